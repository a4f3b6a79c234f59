/* tokenizer.json files compared with the library that they are made for: the same ids, special
 * tokens and text, for each configuration in tests/vectors/hf_tokenizers. With
 * PENSTOCK_HF_TOKENIZERS=FOLDER, those of another folder. */
#include <check.h>
#include <cjson/cJSON.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/model_file.h"
#include "engine/files/text/folder_text.h"
#include "support/suite_main.h"
#include "support/tokenizer_fixture.h"

/* Returns the tokenizer of the file next to NAME.jsonl: NAME.model is SentencePiece's, tekken.json
 * Mistral's, all others are tokenizer.json files. */
static struct tokenizer *tokenizer_beside(const char *lines) {
    struct tokenizer_spec spec;
    struct tokenizer *tokenizer;
    struct err err = {0};
    char path[512];
    size_t length;
    const char *name = strrchr(lines, '/') + 1;
    bool is_model = strncmp(name, "sp_", 3) == 0;
    snprintf(path, sizeof path, "%.*s%s", (int)strlen(lines) - 6, lines,
             is_model ? ".model" : ".json");
    char *text = fixture_read(path, &length);
    enum status status = is_model ? sentencepiece_model_read(&spec, path, text, length, 0, &err)
                         : strncmp(name, "tekken", 6) == 0
                             ? tekken_json_read(&spec, path, text, length, 0, &err)
                             : tokenizer_json_read(&spec, path, text, length, 0, &err);
    ck_assert_msg(status == STATUS_OK, "%s", err.message);
    if (is_model) spec.add_bos = true;
    status = tokenizer_new(&tokenizer, &spec, &err);
    ck_assert_msg(status == STATUS_OK, "%s", err.message);
    tokenizer_spec_free(&spec);
    free(text);
    return tokenizer;
}

/* ---- one line ------------------------------------------------------------------------------- */

struct comparison {
    const struct tokenizer *tokenizer;
    const char *path;
    int n_different, n_pairs;
};

static bool same_ids(const cJSON *wanted, const int32_t *ids, int n) {
    const cJSON *item;
    int i = 0;
    if (cJSON_GetArraySize(wanted) != n) return false;
    cJSON_ArrayForEach(item, wanted) {
        if (ids[i++] != item->valueint) return false;
    }
    return true;
}

static void report(struct comparison *comparison, const char *what, const cJSON *line,
                   const int32_t *ids, int n) {
    char *wanted = cJSON_PrintUnformatted(line);
    if (comparison->n_different++ < 8) {
        printf("%s: %s differ: wanted %s\n  found", comparison->path, what, wanted);
        for (int i = 0; i < n; i++) printf(" %d", (int)ids[i]);
        printf("\n");
    }
    free(wanted);
}

static void check_ids(struct comparison *comparison, const cJSON *line, const char *key,
                      const struct buf *text, enum special_rule rule, bool around) {
    const cJSON *wanted = cJSON_GetObjectItem(line, key);
    int32_t *ids;
    if (!wanted) wanted = cJSON_GetObjectItem(line, "ids");
    if (cJSON_IsNull(wanted)) return;
    int n = tokenizer_encode(comparison->tokenizer, text->data, text->length, rule, around, 1 << 20,
                             &ids);
    if (!same_ids(wanted, ids, n)) report(comparison, key, line, ids, n);
    free(ids);
}

/* Checks the text of the ids as a stream, which consists of whole characters. */
static void check_text(struct comparison *comparison, const cJSON *line, const struct buf *text) {
    const cJSON *decoded = cJSON_GetObjectItem(line, "decoded"), *id;
    struct detokenizer detokenizer = {.tokenizer = comparison->tokenizer};
    struct buf out = {0}, wanted = {0};
    if (cJSON_IsNull(decoded)) return;
    buf_add(&out, "", 0);
    cJSON_ArrayForEach(id, cJSON_GetObjectItem(line, "ids")) {
        detokenizer_add(&detokenizer, id->valueint, &out);
        ck_assert_uint_eq(utf8_valid_prefix(out.data, out.length), out.length);
    }
    detokenizer_finish(&detokenizer, &out);
    if (cJSON_IsObject(decoded)) {
        wanted = fixture_text(decoded);
    } else {
        buf_add(&wanted, decoded ? decoded->valuestring : text->data,
                decoded ? strlen(decoded->valuestring) : text->length);
    }
    if (wanted.length != out.length || memcmp(wanted.data, out.data, out.length) != 0) {
        report(comparison, "texts", line, NULL, 0);
        if (comparison->n_different < 8) printf("  '%s'\n", out.data);
    }
    buf_free(&out);
    buf_free(&wanted);
}

/* Checks the ids of the text and a second one, and their types. */
static void check_pair(struct comparison *comparison, const cJSON *line, const struct buf *text) {
    static const char second[] = "A second text: caf\xC3\xA9.";
    const cJSON *wanted = cJSON_GetObjectItem(line, "pair");
    int32_t *ids;
    int n_first = 0;
    if (!cJSON_IsArray(wanted)) return;
    int n =
        tokenizer_encode_pair(comparison->tokenizer, (struct span){text->data, text->length},
                              (struct span){second, sizeof second - 1}, 1 << 20, &ids, &n_first);
    bool same = n_first == cJSON_GetObjectItem(line, "n_first")->valueint;
    if (!same_ids(wanted, ids, n) || !same) report(comparison, "pair", line, ids, n);
    comparison->n_pairs++;
    mem_free(ids);
    int at_limit =
        n > 0
            ? tokenizer_encode_pair(comparison->tokenizer, (struct span){text->data, text->length},
                                    (struct span){second, sizeof second - 1}, n - 1, &ids, &n_first)
            : -1;
    ck_assert_int_eq(at_limit, -1);
}

static void compare_line(void *context, const cJSON *line) {
    struct comparison *comparison = context;
    struct buf text = fixture_text(line);
    check_ids(comparison, line, "ids", &text, SPECIAL_PARSED, false);
    check_ids(comparison, line, "plain", &text, SPECIAL_AS_TEXT, false);
    check_ids(comparison, line, "around", &text, SPECIAL_PARSED, true);
    check_pair(comparison, line, &text);
    check_text(comparison, line, &text);
    buf_free(&text);
}

START_TEST(each_configuration_equals_the_library) {
    const char *folder = getenv("PENSTOCK_HF_TOKENIZERS");
    if (!folder) folder = "tests/vectors/hf_tokenizers";
    DIR *directory = opendir(folder);
    int n_files = 0, n_lines = 0, n_different = 0;
    ck_assert(directory);
    for (const struct dirent *entry; (entry = readdir(directory));) {
        char path[512];
        size_t length = strlen(entry->d_name);
        if (length < 7 || strcmp(entry->d_name + length - 6, ".jsonl") != 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        struct tokenizer *tokenizer = tokenizer_beside(path);
        struct comparison comparison = {.tokenizer = tokenizer, .path = path};
        int n = fixture_lines(path, compare_line, &comparison);
        if (comparison.n_different > 0)
            printf("%s: %d of %d differ\n", path, comparison.n_different, n);
        n_different += comparison.n_different;
        n_lines += n;
        n_files++;
        tokenizer_free(tokenizer);
    }
    closedir(directory);
    printf("%d configurations, %d texts\n", n_files, n_lines);
    ck_assert_int_eq(n_different, 0);
    ck_assert_int_ge(n_files, 30);
}
END_TEST

/* Encodes a line break with a tokenizer whose byte token is an added token too. */
static void expect_byte_token(const char *special) {
    struct tokenizer_spec spec;
    struct tokenizer *tokenizer;
    int32_t *ids;
    char text[400];
    snprintf(text, sizeof text,
             "{\"added_tokens\":[{\"id\":1,\"content\":\"<0x0A>\",\"special\":%s}],"
             "\"model\":{\"type\":\"BPE\",\"vocab\":{\"<unk>\":0,\"<0x0A>\":1,\"a\":2},"
             "\"merges\":[],\"unk_token\":\"<unk>\",\"byte_fallback\":true}}",
             special);
    ck_assert_int_eq(tokenizer_json_read(&spec, "t", text, strlen(text), 3, NULL), STATUS_OK);
    ck_assert_int_eq(tokenizer_new(&tokenizer, &spec, NULL), STATUS_OK);
    ck_assert_int_eq(tokenizer_encode(tokenizer, "a\na", 3, SPECIAL_AS_TEXT, false, 9, &ids), 3);
    ck_assert(ids[0] == 2 && ids[1] == 1 && ids[2] == 2);
    mem_free(ids);
    tokenizer_free(tokenizer);
    tokenizer_spec_free(&spec);
}

START_TEST(a_byte_token_that_is_added_too_is_still_a_byte) {
    expect_byte_token("false");
    expect_byte_token("true");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine_hf_tokenizer");
    TCase *tests = tcase_create("core");
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, each_configuration_equals_the_library);
    tcase_add_test(tests, a_byte_token_that_is_added_too_is_still_a_byte);
    suite_add_tcase(suite, tests);
    return suite_main(suite);
}
