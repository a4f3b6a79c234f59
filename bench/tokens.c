/* Times a tokenizer, for bench/families.py: `build/tokens MODEL REPEATS <TEXT`.
 *
 * Prints the minimum seconds of REPEATS loads, the minimum seconds of REPEATS encodings of the
 * whole text, and the number of ids. Seconds are CPU time of this thread. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "engine/files/model_file.h"

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Opens the model's tokenizer. Returns the seconds, or -1 on failure. */
static double load(struct tokenizer **out, const char *path, struct err *err) {
    struct model_file file = {0};
    struct tokenizer_spec spec = {0};
    double begun = now_s();
    enum status status = model_file_open(&file, path, MODEL_TEXT, err);
    if (!status) status = tokenizer_spec_read(&spec, &file, err);
    if (!status) status = tokenizer_new(out, &spec, err);
    tokenizer_spec_free(&spec);
    if (!status) model_file_close(&file);
    return status ? -1 : now_s() - begun;
}

static double encode(const struct tokenizer *tokenizer, const struct buf *text, int *n) {
    int32_t *ids;
    double begun = now_s();
    *n = tokenizer_encode(tokenizer, text->data, text->length, SPECIAL_PARSED, false, INT32_MAX,
                          &ids);
    double seconds = now_s() - begun;
    free(ids);
    return seconds;
}

int main(int argc, char **argv) {
    double load_s = 1e9, encode_s = 1e9;
    struct buf text = {0};
    struct err err;
    char part[4096];
    int n = 0;
    if (argc != 3 || atoi(argv[2]) < 1) {
        fprintf(stderr, "usage: tokens MODEL REPEATS <TEXT\n");
        return 2;
    }
    for (size_t got; (got = fread(part, 1, sizeof part, stdin)) > 0;) buf_add(&text, part, got);
    for (int i = 0; i < atoi(argv[2]); i++) {
        struct tokenizer *tokenizer;
        double seconds = load(&tokenizer, argv[1], &err);
        if (seconds < 0) {
            fprintf(stderr, "tokens: %s\n", err.message);
            return 1;
        }
        if (seconds < load_s) load_s = seconds;
        seconds = encode(tokenizer, &text, &n);
        if (seconds < encode_s) encode_s = seconds;
        tokenizer_free(tokenizer);
    }
    printf("%.6f %.6f %d\n", load_s, encode_s, n);
    buf_free(&text);
    return 0;
}
