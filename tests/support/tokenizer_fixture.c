#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/model_file.h"
#include "support/tokenizer_fixture.h"

static void fail(const char *path, const char *what) {
    fprintf(stderr, "%s: %s\n", path, what);
    exit(1);
}

char *fixture_read(const char *path, size_t *length) {
    FILE *file = fopen(path, "rb");
    if (!file) fail(path, "cannot be opened");
    struct buf text = {0};
    char part[1 << 16];
    for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;) buf_add(&text, part, n);
    fclose(file);
    buf_add(&text, "", 0);
    *length = text.length;
    return text.data;
}

int fixture_lines(const char *path, void (*see)(void *context, const struct cJSON *line),
                  void *context) {
    size_t length;
    char *text = fixture_read(path, &length);
    int n = 0;
    for (char *at = text, *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        cJSON *line = cJSON_ParseWithLength(at, (size_t)(end - at));
        if (!line) fail(path, "a line is not JSON");
        see(context, line);
        cJSON_Delete(line);
        n++;
    }
    free(text);
    return n;
}

struct buf fixture_text(const struct cJSON *line) {
    struct buf out = {0};
    const cJSON *text = cJSON_GetObjectItem(line, "text"), *hex = cJSON_GetObjectItem(line, "hex");
    buf_add(&out, "", 0);
    if (text) buf_puts(&out, text->valuestring);
    for (const char *at = hex ? hex->valuestring : ""; *at; at += 2) {
        unsigned byte;
        if (sscanf(at, "%2x", &byte) != 1) fail("hex", "is not hexadecimal text");
        buf_add(&out, &(char){(char)byte}, 1);
    }
    return out;
}

/* ---- vocabularies --------------------------------------------------------------------------- */

static const char **strings_of(const cJSON *array, uint32_t **lengths) {
    size_t n = (size_t)cJSON_GetArraySize(array), i = 0;
    const char **strings = mem_alloc(n * sizeof *strings);
    *lengths = mem_alloc(n * sizeof **lengths);
    const cJSON *item;
    cJSON_ArrayForEach(item, array) {
        strings[i] = item->valuestring;
        (*lengths)[i++] = (uint32_t)strlen(item->valuestring);
    }
    return strings;
}

static int32_t number(const cJSON *json, const char *key, int32_t otherwise) {
    const cJSON *item = cJSON_GetObjectItem(json, key);
    return item ? (int32_t)item->valuedouble : otherwise;
}

static void fill_numbers(const cJSON *json, int32_t *types, double *scores) {
    const cJSON *item;
    size_t i = 0;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(json, "types")) types[i++] = item->valueint;
    i = 0;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(json, "scores")) {
        scores[i++] = item->valuedouble;
    }
}

static struct tokenizer *tokenizer_of(const cJSON *json, const char *path) {
    const cJSON *tokens = cJSON_GetObjectItem(json, "tokens"),
                *pre = cJSON_GetObjectItem(json, "pre");
    const cJSON *merges = cJSON_GetObjectItem(json, "merges");
    size_t n = (size_t)cJSON_GetArraySize(tokens);
    uint32_t *token_length, *merge_length;
    int32_t *types = mem_calloc(n, sizeof *types);
    double *scores = mem_calloc(n, sizeof *scores);
    fill_numbers(json, types, scores);
    struct tokenizer_spec spec = {
        .kind = merges ? TOKENIZER_BYTE_BPE : TOKENIZER_SENTENCEPIECE,
        .pre = pre ? pre->valuestring : NULL,
        .n_tokens = (int)n,
        .token = strings_of(tokens, &token_length),
        .type = types,
        .score = merges ? NULL : scores,
        .n_merges = cJSON_GetArraySize(merges),
        .merge = strings_of(merges, &merge_length),
        .bos = number(json, "bos", -1),
        .eos = number(json, "eos", -1),
        .unknown = number(json, "unknown", -1),
        .add_bos = cJSON_IsTrue(cJSON_GetObjectItem(json, "add_bos")),
        .add_eos = cJSON_IsTrue(cJSON_GetObjectItem(json, "add_eos")),
        .add_space_prefix = cJSON_IsTrue(cJSON_GetObjectItem(json, "add_space_prefix")),
    };
    spec.token_length = token_length;
    spec.merge_length = merge_length;
    struct tokenizer *tokenizer;
    struct err err = {0};
    if (tokenizer_new(&tokenizer, &spec, &err) != STATUS_OK) fail(path, err.message);
    free((void *)spec.token);
    free((void *)spec.merge);
    free(token_length);
    free(merge_length);
    free(types);
    free(scores);
    return tokenizer;
}

struct tokenizer *fixture_tokenizer(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "tests/vectors/tokenizer_%s.json", name);
    size_t length;
    char *text = fixture_read(path, &length);
    cJSON *json = cJSON_ParseWithLength(text, length);
    if (!json) fail(path, "is no JSON");
    struct tokenizer *tokenizer = tokenizer_of(json, path);
    cJSON_Delete(json);
    free(text);
    return tokenizer;
}

struct tokenizer *fixture_model_tokenizer(void) {
    static const char path[] = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
    struct gguf *gguf;
    struct tokenizer_spec spec;
    struct tokenizer *tokenizer;
    struct err err = {0};
    if (gguf_open(&gguf, path, &err) != STATUS_OK) fail(path, err.message);
    if (gguf_tokenizer_read(&spec, gguf, &err) != STATUS_OK) fail(path, err.message);
    if (tokenizer_new(&tokenizer, &spec, &err) != STATUS_OK) fail(path, err.message);
    tokenizer_spec_free(&spec);
    gguf_close(gguf);
    return tokenizer;
}

/* ---- random texts --------------------------------------------------------------------------- */

uint32_t fixture_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static uint32_t random_code_point(uint64_t *state) {
    static const uint32_t first[] = {0x20,   0x20,   0x20,   0x09,   0xA0,    0x300,   0x400, 0x600,
                                     0x2000, 0x3000, 0x4E00, 0xAC00, 0x1F300, 0x10000, 0x01};
    static const uint32_t last[] = {0x7E,   0x7E,   0x40,   0x20,   0x24F,   0x36F,    0x52F, 0x6FF,
                                    0x206F, 0x30FF, 0x9FFF, 0xD7A3, 0x1FAFF, 0x10FFFF, 0xD7FF};
    uint32_t block = fixture_random(state) % (sizeof first / sizeof first[0]);
    return first[block] + fixture_random(state) % (last[block] - first[block] + 1);
}

void fixture_random_text(uint64_t *state, int n, struct buf *out) {
    for (int i = 0; i < n; i++) {
        uint32_t c = random_code_point(state);
        char bytes[4];
        size_t length = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        for (size_t k = length; k-- > 1; c >>= 6) bytes[k] = (char)(0x80 | (c & 0x3F));
        bytes[0] = (char)(length == 1 ? c : (0xF00u >> length & 0xFF) | c);
        buf_add(out, bytes, length);
    }
}

/* ---- vectors -------------------------------------------------------------------------------- */

struct comparison {
    const struct tokenizer *tokenizer;
    const char *name;
    int n_different;
};

static bool same_ids(const cJSON *expected, const int32_t *ids, int n) {
    if (cJSON_GetArraySize(expected) != n) return false;
    const cJSON *item;
    int i = 0;
    cJSON_ArrayForEach(item, expected) {
        if (ids[i++] != item->valueint) return false;
    }
    return true;
}

static bool encodes_as(const struct comparison *comparison, const struct buf *text,
                       enum special_rule rule, const cJSON *expected) {
    int32_t *ids;
    int n = tokenizer_encode(comparison->tokenizer, text->data, text->length, rule, false, 1 << 20,
                             &ids);
    bool same = same_ids(expected, ids, n);
    if (!same) {
        char *wanted = cJSON_PrintUnformatted(expected);
        printf("%s: '%s' (rule %d)\n  expected %s\n  found     ", comparison->name, text->data,
               (int)rule, wanted);
        for (int i = 0; i < n; i++) printf("%d,", (int)ids[i]);
        printf("\n");
        free(wanted);
    }
    free(ids);
    return same;
}

static void compare_line(void *context, const cJSON *line) {
    struct comparison *comparison = context;
    const cJSON *parsed = cJSON_GetObjectItem(line, "parsed");
    const cJSON *plain = cJSON_GetObjectItem(line, "plain");
    struct buf text = fixture_text(line);
    bool same = encodes_as(comparison, &text, SPECIAL_PARSED, parsed) &&
                encodes_as(comparison, &text, SPECIAL_AS_TEXT, plain ? plain : parsed);
    if (!same) comparison->n_different++;
    buf_free(&text);
}

int fixture_compare(const struct tokenizer *tokenizer, const char *name, int *n) {
    char path[256];
    snprintf(path, sizeof path, "tests/vectors/tokenizer_%s.jsonl", name);
    struct comparison comparison = {.tokenizer = tokenizer, .name = name};
    *n = fixture_lines(path, compare_line, &comparison);
    return comparison.n_different;
}
