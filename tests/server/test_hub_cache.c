/* The cache of models by name: finding, listing and deleting, without a hub. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/hub/internal.h"
#include "support/suite_main.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define OLDER "76543210fedcba9876543210fedcba9876543210"

static char root[] = "/tmp/penstock_hub_XXXXXX";
static struct hub_settings settings;
static struct err err;

/* ---- a cache -------------------------------------------------------------------------------- */

static void write_file(const char *path, const char *text) {
    ck_assert_int_eq(hub_make_folders(path, &err), STATUS_OK);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

/* Puts a file into a snapshot, as a pull does; its hash is made up of one digit. */
static void put(const char *repo, const char *commit, const char *path, char digit,
                const char *text) {
    struct hub_file file = {.path = (char *)path};
    struct buf blob = {0};
    char *folder = hub_repo_folder(&settings, repo);
    memset(file.hash, digit, SHA256_DIGITS);
    buf_printf(&blob, "%s/blobs/%s", folder, file.hash);
    write_file(blob.data, text);
    ck_assert_int_eq(hub_link(folder, commit, &file, &err), STATUS_OK);
    ck_assert_int_eq(hub_write_ref(folder, commit, &err), STATUS_OK);
    buf_free(&blob);
    mem_free(folder);
}

static void setup(void) {
    snprintf(root, sizeof root, "/tmp/penstock_hub_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    settings = (struct hub_settings){.cache = root};
}

static void teardown(void) {
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", root);
    ck_assert_int_eq(system(command), 0);
}

static struct hub_name name_of(const char *text) {
    struct hub_name name;
    ck_assert_int_eq(hub_name_parse(&name, text, &err), STATUS_OK);
    return name;
}

/* Finds a model, and compares the end of its path; NULL: it must be missing. */
static void expect_found(const char *text, const char *end) {
    struct hub_name name = name_of(text);
    struct buf path = {0};
    bool found = hub_find(&settings, &name, &path);
    ck_assert_msg(found == (end != NULL), "%s", text);
    if (end) ck_assert_str_eq(path.data + path.length - strlen(end), end);
    if (end) ck_assert_int_eq(access(path.data, R_OK), 0);
    buf_free(&path);
}

static void add_line(void *arg, const struct hub_model *model) {
    buf_printf(arg, "%s %d%s\n", model->name, (int)model->bytes, model->whole ? "" : " part");
    ck_assert(model->changed_s > 0);
}

static void expect_listed(const char *lines) {
    struct buf text = {0};
    buf_puts(&text, "");
    hub_list(&settings, add_line, &text);
    ck_assert_str_eq(text.data, lines);
    buf_free(&text);
}

static void expect_removed(const char *text, int expected) {
    struct hub_name name = name_of(text);
    int64_t bytes;
    ck_assert_msg(hub_remove(&settings, &name, &bytes, &err) == STATUS_OK, "%s", err.message);
    ck_assert_int_eq(bytes, expected);
}

/* ---- tests ---------------------------------------------------------------------------------- */

START_TEST(a_file_is_found_by_repository_tag_and_name) {
    expect_found("river/bank", NULL);
    put("river/bank", COMMIT, "bank-Q8_0.gguf", 'a', "eight bits");
    expect_found("river/bank", COMMIT "/bank-Q8_0.gguf");
    expect_found("river/bank:q8_0", COMMIT "/bank-Q8_0.gguf");
    expect_found("river/bank/bank-Q8_0.gguf", COMMIT "/bank-Q8_0.gguf");
    expect_found("river/bank:Q4_K_M", NULL);
    expect_found("river/bed", NULL);
    put("river/bank", COMMIT, "deep/er/bank-Q4_K_M.gguf", 'b', "four");
    expect_found("river/bank", COMMIT "/deep/er/bank-Q4_K_M.gguf");
    expect_listed("river/bank/bank-Q8_0.gguf 10\nriver/bank/deep/er/bank-Q4_K_M.gguf 4\n");
}
END_TEST

START_TEST(the_newest_commit_is_the_one_that_is_found) {
    put("river/bank", OLDER, "a.gguf", 'a', "old");
    put("river/bank", COMMIT, "b.gguf", 'b', "new");
    expect_found("river/bank", COMMIT "/b.gguf");
    expect_found("river/bank/a.gguf", NULL);
    char path[256];
    snprintf(path, sizeof path, "%s/models--river--bank/refs/main", root);
    write_file(path, OLDER "\n");
    expect_found("river/bank", OLDER "/a.gguf");
    write_file(path, "../../etc");
    expect_found("river/bank", NULL);
    write_file(path, "");
    expect_found("river/bank", NULL);
}
END_TEST

START_TEST(a_link_without_its_blob_is_missing) {
    char path[256], hash[SHA256_DIGITS + 1] = "";
    put("river/bank", COMMIT, "a-00001-of-00002.gguf", 'a', "one");
    put("river/bank", COMMIT, "a-00002-of-00002.gguf", 'b', "two");
    expect_found("river/bank", COMMIT "/a-00001-of-00002.gguf");
    expect_listed("river/bank/a-00001-of-00002.gguf 6\n");
    memset(hash, 'b', SHA256_DIGITS);
    snprintf(path, sizeof path, "%s/models--river--bank/blobs/%s", root, hash);
    ck_assert_int_eq(unlink(path), 0);
    expect_found("river/bank", NULL);
    expect_listed("river/bank/a-00001-of-00002.gguf 3 part\n");
}
END_TEST

START_TEST(a_folder_is_found_when_config_weights_and_tokenizer_are_there) {
    put("river/bank", COMMIT, "config.json", 'a', "{}");
    expect_found("river/bank", NULL);
    put("river/bank", COMMIT, "model.safetensors.index.json", 'b',
        "{\"weight_map\": {\"x\": \"one.safetensors\", \"y\": \"two.safetensors\"}}");
    put("river/bank", COMMIT, "one.safetensors", 'c', "1");
    put("river/bank", COMMIT, "tokenizer.json", 'd', "{}");
    expect_found("river/bank", NULL);
    put("river/bank", COMMIT, "two.safetensors", 'e', "2");
    expect_found("river/bank", COMMIT);
    expect_listed("river/bank 70\n");
    put("river/bank", COMMIT, "model.safetensors.index.json", 'b', "{\"weight_map\"");
    expect_found("river/bank", NULL);
}
END_TEST

START_TEST(weights_without_a_tokenizer_are_not_whole) {
    put("river/bank", COMMIT, "config.json", 'a', "{}");
    put("river/bank", COMMIT, "model.safetensors", 'b', "12");
    expect_found("river/bank", NULL);
    expect_listed("river/bank 4 part\n");
    put("river/bank", COMMIT, "tokenizer.model", 'c', "1");
    expect_found("river/bank", COMMIT);
}
END_TEST

START_TEST(removing_keeps_shared_blobs_until_the_last_link) {
    put("river/bank", COMMIT, "a-Q4_K_M.gguf", 'a', "same");
    put("river/bank", OLDER, "a-Q4_K_M.gguf", 'a', "same");
    put("river/bank", COMMIT, "a-Q8_0.gguf", 'b', "eight");
    expect_removed("river/bank:Q4_K_M", 0);
    expect_found("river/bank", COMMIT "/a-Q8_0.gguf");
    expect_removed("river/bank/a-Q8_0.gguf", 5);
    expect_found("river/bank", NULL);
    expect_removed("river/bank", 44); /* the older blob and the reference */
    struct hub_name name = name_of("river/bank");
    int64_t bytes;
    ck_assert_int_eq(hub_remove(&settings, &name, &bytes, &err), STATUS_NOT_FOUND);
    expect_listed("");
}
END_TEST

START_TEST(removing_the_last_file_removes_the_repository) {
    char path[256];
    struct stat info;
    put("river/bank", COMMIT, "a.gguf", 'a', "same");
    put("river/bed", COMMIT, "a.gguf", 'a', "other");
    snprintf(path, sizeof path, "%s/.locks/models--river--bank/x.lock", root);
    write_file(path, "");
    expect_removed("river/bank/a.gguf", 44);
    ck_assert_int_ne(stat(path, &info), 0);
    expect_listed("river/bed/a.gguf 5\n");
}
END_TEST

START_TEST(other_folders_and_links_are_left_alone) {
    char path[256], target[256];
    struct stat info;
    snprintf(target, sizeof target, "%s/precious", root);
    write_file(target, "precious");
    snprintf(path, sizeof path, "%s/datasets--river--bank/blobs/x", root);
    write_file(path, "data");
    snprintf(path, sizeof path, "%s/models--river/blobs/x", root);
    write_file(path, "data");
    put("river/bank", COMMIT, "a.gguf", 'a', "same");
    snprintf(path, sizeof path, "%s/models--river--bank/snapshots/%s/b.gguf", root, COMMIT);
    ck_assert_int_eq(symlink(target, path), 0);
    expect_removed("river/bank/b.gguf", 0);
    snprintf(path, sizeof path, "%s/models--river--bank/snapshots/%s/out", root, COMMIT);
    ck_assert_int_eq(symlink(root, path), 0);
    expect_removed("river/bank", 44);
    ck_assert_int_eq(stat(target, &info), 0);
    expect_listed("");
}
END_TEST

START_TEST(a_part_of_a_file_is_listed_until_it_is_removed) {
    char path[256];
    snprintf(path, sizeof path, "%s/models--river--bank/blobs/aa.incomplete", root);
    write_file(path, "half");
    expect_found("river/bank", NULL);
    expect_listed("river/bank 4 part\n");
    expect_removed("river/bank", 4);
    expect_listed("");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("hub_cache");
    TCase *cases = tcase_create("core");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, a_file_is_found_by_repository_tag_and_name);
    tcase_add_test(cases, the_newest_commit_is_the_one_that_is_found);
    tcase_add_test(cases, a_link_without_its_blob_is_missing);
    tcase_add_test(cases, a_folder_is_found_when_config_weights_and_tokenizer_are_there);
    tcase_add_test(cases, weights_without_a_tokenizer_are_not_whole);
    tcase_add_test(cases, removing_keeps_shared_blobs_until_the_last_link);
    tcase_add_test(cases, removing_the_last_file_removes_the_repository);
    tcase_add_test(cases, other_folders_and_links_are_left_alone);
    tcase_add_test(cases, a_part_of_a_file_is_listed_until_it_is_removed);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
