/* Fingerprints as JSON: views are written, read back, and compared member by member. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/fingerprint/fingerprint.h"
#include "support/suite_main.h"

#define SHA_OF_ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static const enum fingerprint_view views[] = {FINGERPRINT_RECEIPT, FINGERPRINT_PROMISE,
                                              FINGERPRINT_BLOCKS, FINGERPRINT_SYSTEM};
enum { N_VIEWS = sizeof views / sizeof *views };

static struct fingerprint a, b;
static struct fingerprint_difference other;
static struct buf text;

static void setup(void) {
    a = (struct fingerprint){.model = "aa",
                             .adapter = "bb",
                             .build = "0.1.0 abc Release",
                             .arithmetic = 1,
                             .device = "cpu",
                             .kernels = "H200",
                             .weights = "Q4_1",
                             .quantization = "none",
                             .dtype = "auto",
                             .kv_cache = "int16",
                             .block_size = 16,
                             .ranks = 2,
                             .pooling = 3,
                             .shape = "llama 5 6",
                             .stamp = "0f",
                             .length = 7,
                             .template = "t",
                             .defaults = "d",
                             .name = "n"};
}

static void teardown(void) {
    buf_free(&text);
}

static void write_view(enum fingerprint_view view, const struct fingerprint *fingerprint) {
    buf_clear(&text);
    fingerprint_write(&text, fingerprint, view);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

START_TEST(each_view_has_its_members) {
    write_view(FINGERPRINT_PROMISE, &a);
    ck_assert_str_eq(
        text.data, "{\"adapter\":\"bb\",\"arithmetic\":1,\"block_size\":16,\"build\":\"0.1.0 abc "
                   "Release\",\"defaults\":\"d\",\"device\":\"cpu\",\"dtype\":\"auto\",\"kernels\":"
                   "\"H200\",\"kv_cache\":\"int16\",\"length\":7,\"name\":\"n\",\"pooling\":3,"
                   "\"quantization\":\"none\",\"ranks\":2,\"shape\":\"llama 5 6\",\"stamp\":\"0f\","
                   "\"template\":\"t\",\"weights\":\"Q4_1\"}");
    write_view(FINGERPRINT_RECEIPT, &a);
    ck_assert_str_eq(
        text.data,
        "{\"adapter\":\"bb\",\"arithmetic\":1,\"build\":\"0.1.0 abc Release\",\"device\":"
        "\"cpu\",\"dtype\":\"auto\",\"kv_cache\":\"int16\",\"model\":\"aa\","
        "\"quantization\":\"none\",\"ranks\":2,\"weights\":\"Q4_1\"}");
}
END_TEST

START_TEST(a_view_is_read_as_it_was_written) {
    for (int i = 0; i < N_VIEWS; i++) {
        write_view(views[i], &a);
        ck_assert(fingerprint_parse(&b, text.data, text.length, views[i]));
        ck_assert(!fingerprint_differs(&a, &b, views[i], &other));
        for (int j = 0; j < N_VIEWS; j++)
            ck_assert_int_eq(fingerprint_parse(&b, text.data, text.length, views[j]), i == j);
    }
}
END_TEST

START_TEST(a_member_with_a_line_break_or_a_nul_is_refused) {
    static const char *const parts[] = {"x", "\\n", "\\u0000", "\\u001b"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        write_view(FINGERPRINT_RECEIPT, &a);
        char *at = strstr(text.data, "\"cpu\"");
        struct buf changed = {0};
        buf_add(&changed, text.data, (size_t)(at - text.data));
        buf_printf(&changed, "\"%s\"%s", parts[i], at + strlen("\"cpu\""));
        ck_assert_int_eq(fingerprint_parse(&b, changed.data, changed.length, FINGERPRINT_RECEIPT),
                         i == 0);
        buf_free(&changed);
    }
}
END_TEST

START_TEST(a_text_that_is_no_fingerprint_is_refused) {
    static const char *const wrong[] = {"", "{}", "[]", "null",
                                        "{\"adapter\":null,\"arithmetic\":1}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ck_assert(!fingerprint_parse(&b, wrong[i], strlen(wrong[i]), FINGERPRINT_RECEIPT));
}
END_TEST

/* ---- differences ---------------------------------------------------------------------------- */

/* Changes the i-th member. Returns its name, or NULL after the last one. */
static const char *change(struct fingerprint *f, int i) {
    char *const texts[] = {f->model,   f->adapter,      f->build,    f->device,   f->kernels,
                           f->weights, f->quantization, f->dtype,    f->kv_cache, f->shape,
                           f->stamp,   f->template,     f->defaults, f->name};
    int *const numbers[] = {&f->arithmetic, &f->block_size, &f->ranks, &f->pooling, &f->length};
    static const char *const names[] = {
        "model",      "adapter",    "build", "device",  "kernels",  "weights",  "quantization",
        "dtype",      "kv_cache",   "shape", "stamp",   "template", "defaults", "name",
        "arithmetic", "block_size", "ranks", "pooling", "length"};
    const int n_texts = sizeof texts / sizeof *texts, n = sizeof names / sizeof *names;
    if (i >= n) return NULL;
    if (i < n_texts)
        texts[i][0]++;
    else
        ++*numbers[i - n_texts];
    return names[i];
}

START_TEST(each_member_of_a_view_that_differs_is_named) {
    static const int n_expected[] = {9, 18, 14, 14}; /* a receipt's build is no difference */
    for (int v = 0; v < N_VIEWS; v++) {
        int n_found = 0;
        for (int i = 0;; i++) {
            b = a;
            const char *name = change(&b, i);
            if (!name) break;
            if (!fingerprint_differs(&a, &b, views[v], &other)) continue;
            ck_assert_str_eq(other.name, name);
            ck_assert(other.words[0] && strcmp(other.a, other.b) != 0);
            n_found++;
        }
        ck_assert_int_eq(n_found, n_expected[v]);
    }
}
END_TEST

START_TEST(both_values_of_a_difference_are_shown) {
    b = a;
    b.ranks = 5;
    ck_assert(fingerprint_differs(&a, &b, FINGERPRINT_RECEIPT, &other));
    ck_assert_str_eq(other.a, "2");
    ck_assert_str_eq(other.b, "5");
    b.adapter[0] = 0;
    memset(b.template, 'x', sizeof b.template - 1);
    ck_assert(fingerprint_differs(&a, &b, FINGERPRINT_PROMISE, &other));
    ck_assert_str_eq(other.words, "the adapter");
    ck_assert_str_eq(other.b, "none");
    b = a;
    memset(b.template, 'x', sizeof b.template - 1);
    ck_assert(fingerprint_differs(&a, &b, FINGERPRINT_PROMISE, &other));
    ck_assert_uint_eq(strlen(other.b), HASH_DIGITS);
}
END_TEST

START_TEST(another_build_counts_for_promises_and_not_for_receipts) {
    b = a;
    b.build[0] = 'x';
    ck_assert(!fingerprint_differs(&a, &b, FINGERPRINT_RECEIPT, &other));
    ck_assert(!fingerprint_differs(&a, &b, FINGERPRINT_SYSTEM, &other));
    ck_assert(fingerprint_differs(&a, &b, FINGERPRINT_PROMISE, &other));
    ck_assert_str_eq(other.words, "the build");
}
END_TEST

/* ---- system_fingerprint --------------------------------------------------------------------- */

START_TEST(a_system_fingerprint_changes_with_each_member_of_its_view) {
    char first[FINGERPRINT_SYSTEM_BYTES], second[FINGERPRINT_SYSTEM_BYTES];
    fingerprint_write_system(first, &a);
    ck_assert_int_eq(
        strncmp(first, "penstock-" PENSTOCK_VERSION "-", strlen("penstock-" PENSTOCK_VERSION "-")),
        0);
    ck_assert_uint_eq(strlen(first), strlen("penstock-" PENSTOCK_VERSION "-") + 12);
    for (int i = 0;; i++) {
        b = a;
        if (!change(&b, i)) break;
        fingerprint_write_system(second, &b);
        ck_assert_int_eq(strcmp(first, second) != 0,
                         fingerprint_differs(&a, &b, FINGERPRINT_SYSTEM, &other));
    }
}
END_TEST

/* ---- the hash of an adapter ----------------------------------------------------------------- */

static void write_file(const char *folder, const char *name, const char *content) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(content, file);
    fclose(file);
}

static void remove_file(const char *folder, const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    ck_assert_int_eq(unlink(path), 0);
}

START_TEST(an_adapter_is_hashed_by_the_files_that_decide_its_numbers) {
    char folder[] = "/tmp/adapter_XXXXXX", path[64], first[HASH_DIGITS + 1], hex[HASH_DIGITS + 1];
    const char lines[] =
        SHA_OF_ABC "  adapter_config.json\n" SHA_OF_ABC "  adapter_model.safetensors\n";
    struct err err;
    ck_assert_ptr_nonnull(mkdtemp(folder));
    write_file(folder, "adapter_config.json", "abc");
    ck_assert_int_eq(adapter_hash(first, folder, &err), STATUS_SERVER_ERROR);
    ck_assert_ptr_nonnull(strstr(err.message, "adapter_model.safetensors cannot be read"));
    write_file(folder, "adapter_model.safetensors", "abc");
    ck_assert_int_eq(adapter_hash(first, folder, &err), STATUS_OK);
    hash_text(hex, lines, strlen(lines));
    ck_assert_str_eq(first, hex);
    write_file(folder, "README.json", "other"); /* a checkpoint has more files */
    ck_assert_int_eq(adapter_hash(hex, folder, &err), STATUS_OK);
    ck_assert_str_eq(first, hex);
    write_file(folder, "adapter_config.json", "abd");
    ck_assert_int_eq(adapter_hash(hex, folder, &err), STATUS_OK);
    ck_assert_str_ne(first, hex);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder); /* one file, as of GGUF */
    ck_assert_int_eq(adapter_hash(hex, path, &err), STATUS_OK);
    ck_assert_str_eq(hex, SHA_OF_ABC);
    remove_file(folder, "adapter_config.json");
    remove_file(folder, "adapter_model.safetensors");
    remove_file(folder, "README.json");
    ck_assert_int_eq(rmdir(folder), 0);
    ck_assert_int_eq(adapter_hash(hex, folder, &err), STATUS_SERVER_ERROR);
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("fingerprint");
    TCase *tests = tcase_create("fingerprint");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, each_view_has_its_members);
    tcase_add_test(tests, a_view_is_read_as_it_was_written);
    tcase_add_test(tests, a_member_with_a_line_break_or_a_nul_is_refused);
    tcase_add_test(tests, a_text_that_is_no_fingerprint_is_refused);
    tcase_add_test(tests, an_adapter_is_hashed_by_the_files_that_decide_its_numbers);
    tcase_add_test(tests, each_member_of_a_view_that_differs_is_named);
    tcase_add_test(tests, both_values_of_a_difference_are_shown);
    tcase_add_test(tests, another_build_counts_for_promises_and_not_for_receipts);
    tcase_add_test(tests, a_system_fingerprint_changes_with_each_member_of_its_view);
    suite_add_tcase(s, tests);
    return s;
}

int main(void) {
    return suite_main(suite());
}
