/* Writes a model's logits, for bench/accuracy.py: `build/logits MODEL auto|float32 THREADS
 * [KV_CACHE_DTYPE]`.
 *
 * Each line of standard input is a separate text: token ids separated by spaces. For each of its n
 * tokens, the logits of the next token are written to standard output: float32 [n][V], in the
 * machine's byte order. PENSTOCK_CPU selects the path. A text has at most MAX_TOKENS tokens. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

#define MAX_TOKENS 2048
#define MAX_ROWS 64
#define BLOCK_SIZE 16
#define MAX_LINE (MAX_TOKENS * 12)

/* Reads the ids of a line. Returns their number, or -1 if the line has anything else. */
static int read_ids(const char *line, int V, int32_t *ids) {
    int n = 0;
    for (;;) {
        char *end;
        errno = 0;
        long id = strtol(line, &end, 10);
        if (end == line) break;
        if (errno || id < 0 || id >= V || n == MAX_TOKENS) return -1;
        ids[n++] = (int32_t)id;
        line = end;
    }
    return line[strspn(line, " \n")] ? -1 : n;
}

/* Returns the logits [n][V] of tokens ids[first..first + n). Earlier tokens are in the cache. */
static const float *run_rows(struct engine *engine, const int32_t *ids, int first, int n) {
    static int32_t table[MAX_TOKENS / BLOCK_SIZE];
    int32_t position[MAX_ROWS], row[MAX_ROWS], row_start[2] = {0, n};
    for (int i = 0; i < MAX_TOKENS / BLOCK_SIZE; i++) table[i] = i;
    for (int i = 0; i < n; i++) {
        position[i] = first + i;
        row[i] = i;
    }
    struct step step = {.M = n,
                        .token = ids + first,
                        .position = position,
                        .slot = position, /* block i holds the positions from i * BLOCK_SIZE */
                        .S = 1,
                        .row_start = row_start,
                        .table = table,
                        .table_stride = MAX_TOKENS / BLOCK_SIZE,
                        .R = n,
                        .logit_row = row};
    engine_submit(engine, &step);
    return engine_read_logits(engine);
}

static int write_logits(struct engine *engine, const int32_t *ids, int n) {
    size_t V = (size_t)engine_model(engine)->V;
    for (int at = 0; at < n; at += MAX_ROWS) {
        int rows = n - at < MAX_ROWS ? n - at : MAX_ROWS;
        const float *logits = run_rows(engine, ids, at, rows);
        if (fwrite(logits, V * sizeof *logits, (size_t)rows, stdout) != (size_t)rows) return 1;
    }
    return fflush(stdout) ? 1 : 0;
}

static int write_all(struct engine *engine) {
    static char line[MAX_LINE];
    static int32_t ids[MAX_TOKENS];
    while (fgets(line, sizeof line, stdin)) {
        int n = read_ids(line, engine_model(engine)->V, ids);
        if (n < 0) {
            fprintf(stderr, "logits: a line is not a list of at most %d token ids\n", MAX_TOKENS);
            return 1;
        }
        if (write_logits(engine, ids, n)) {
            fprintf(stderr, "logits: the output could not be written\n");
            return 1;
        }
    }
    return 0;
}

/* Returns the type of a name, or -1. */
static int kv_dtype_named(const char *name) {
    const struct named_value *value = kv_dtype_names;
    while (value->name && strcmp(value->name, name)) value++;
    return value->name ? value->value : -1;
}

int main(int argc, char **argv) {
    int kv_dtype = argc == 5 ? kv_dtype_named(argv[4]) : KV_DTYPE_AUTO;
    bool known = (argc == 4 || argc == 5) && kv_dtype >= 0;
    if (!known || (strcmp(argv[2], "auto") && strcmp(argv[2], "float32"))) {
        fprintf(stderr, "usage: logits MODEL auto|float32 THREADS [KV_CACHE_DTYPE]\n");
        return 2;
    }
    struct engine_config config = {.model = argv[1],
                                   .threads = atoi(argv[3]),
                                   .dtype =
                                       strcmp(argv[2], "auto") ? COMPUTE_FLOAT32 : COMPUTE_AUTO,
                                   .kv_dtype = (enum kv_dtype)kv_dtype,
                                   .max_num_seqs = 1,
                                   .max_num_batched_tokens = MAX_ROWS,
                                   .max_logit_rows = MAX_ROWS,
                                   .block_size = BLOCK_SIZE,
                                   .max_model_len = MAX_TOKENS,
                                   .kv_memory = (int64_t)1 << 30};
    struct engine *engine;
    struct err err;
    if (engine_open(&engine, &config, &err)) {
        fprintf(stderr, "logits: %s\n", err.message);
        return 1;
    }
    int code = write_all(engine);
    engine_close(engine);
    return code;
}
