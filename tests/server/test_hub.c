/* Names of models, the hub's listing, and the choice of files. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "server/hub/internal.h"
#include "support/suite_main.h"

#define SHA1 "0123456789abcdef0123456789abcdef01234567"
#define SHA256 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct err err;

/* ---- names ---------------------------------------------------------------------------------- */

START_TEST(a_name_has_a_repository_and_a_tag_or_a_file) {
    static const struct {
        const char *text, *repo, *tag, *file;
    } rows[] = {
        {"river/bank", "river/bank", "", ""},
        {"river/bank:Q4_K_M", "river/bank", "Q4_K_M", ""},
        {"a/b-1.5_c:iq4_xs", "a/b-1.5_c", "iq4_xs", ""},
        {"river/bank/x.gguf", "river/bank", "", "x.gguf"},
        {"river/bank/Q8_0/x y.GGUF", "river/bank", "", "Q8_0/x y.GGUF"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hub_name name;
        struct buf text = {0};
        ck_assert_int_eq(hub_name_parse(&name, rows[i].text, &err), STATUS_OK);
        ck_assert_str_eq(name.repo, rows[i].repo);
        ck_assert_str_eq(name.tag, rows[i].tag);
        ck_assert_str_eq(name.file, rows[i].file);
        hub_name_write(&name, &text);
        ck_assert_str_eq(text.data, rows[i].text);
        buf_free(&text);
    }
}
END_TEST

START_TEST(other_texts_are_no_names) {
    static const char *const texts[] = {"",
                                        "/",
                                        "bank",
                                        "river/",
                                        "/bank",
                                        "../bank",
                                        "river/..",
                                        "river/.bank",
                                        "river/bank-",
                                        "river/b--k",
                                        "ri..er/bank",
                                        "river/bank:",
                                        "river/bank:Q4/x",
                                        "river/bank:Q4:Q5",
                                        "river/bank/",
                                        "river/bank/x.bin",
                                        "river/bank/.gguf",
                                        "river/bank/../x.gguf",
                                        "river/bank/a//x.gguf",
                                        "river/bank/\xFF.gguf",
                                        "river/bank/a\nb.gguf",
                                        "river/ba nk",
                                        "river/b\xC3\xA4nk",
                                        "https://huggingface.co/river/bank"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct hub_name name;
        ck_assert_msg(hub_name_parse(&name, texts[i], &err) == STATUS_USAGE, "%s", texts[i]);
        ck_assert_ptr_nonnull(strstr(err.message, "is not the name of a model"));
    }
}
END_TEST

START_TEST(long_parts_of_a_name_are_refused) {
    char text[600];
    struct hub_name name;
    for (size_t n = 90; n < 100; n++) { /* "a/" and n letters: at most 96 */
        memset(text, 'x', n + 2);
        memcpy(text, "a/", 2);
        text[n + 2] = 0;
        ck_assert_int_eq(hub_name_parse(&name, text, &err) == STATUS_OK, n + 2 <= 96);
    }
    memset(text, 'x', sizeof text);
    memcpy(text, "a/b:", 4);
    text[4 + 64] = 0;
    ck_assert_int_eq(hub_name_parse(&name, text, &err), STATUS_USAGE);
    text[4 + 63] = 0;
    ck_assert_int_eq(hub_name_parse(&name, text, &err), STATUS_OK);
}
END_TEST

/* ---- listings ------------------------------------------------------------------------------- */

static struct hub_listing listing;

static enum status parse(const char *text) {
    hub_listing_free(&listing);
    return hub_listing_parse(&listing, text, strlen(text), &err);
}

START_TEST(a_listing_has_the_hash_of_the_bytes) {
    ck_assert_int_eq(parse("{\"sha\": \"" SHA1 "\", \"siblings\": ["
                           "{\"rfilename\": \"b.gguf\", \"size\": 5, \"blobId\": \"" SHA1
                           "\", \"lfs\": {\"sha256\": \"" SHA256 "\", \"size\": 6}}, "
                           "{\"rfilename\": \"a.json\", \"size\": 7, \"blobId\": \"" SHA1 "\"}, "
                           "{\"rfilename\": \"c\"}]}"),
                     STATUS_OK);
    ck_assert_int_eq(listing.n, 3);
    ck_assert_str_eq(listing.commit, SHA1);
    ck_assert_str_eq(listing.file[0].path, "a.json");
    ck_assert_str_eq(listing.file[0].hash, SHA1);
    ck_assert_int_eq(listing.file[0].bytes, 7);
    ck_assert_str_eq(listing.file[1].hash, SHA256);
    ck_assert_int_eq(listing.file[1].bytes, 6);
    ck_assert_int_eq(listing.file[2].bytes, -1);
    ck_assert_str_eq(listing.file[2].hash, "");
    ck_assert_int_eq(hub_listing_find(&listing, "b.gguf"), 1);
    ck_assert_int_eq(hub_listing_find(&listing, "d"), -1);
    hub_listing_free(&listing);
}
END_TEST

START_TEST(values_that_are_no_hash_and_no_size_are_not_taken) {
    ck_assert_int_eq(parse("{\"sha\": \"" SHA1 "\", \"siblings\": ["
                           "{\"rfilename\": \"a\", \"size\": -5, \"blobId\": \"../" SHA1 "\"}, "
                           "{\"rfilename\": \"b\", \"size\": 1.5, \"blobId\": \"" SHA256 "\"}, "
                           "{\"rfilename\": \"c\", \"size\": 1e99, \"lfs\": {\"sha256\": \"" SHA1
                           "\"}}]}"),
                     STATUS_OK);
    for (int i = 0; i < listing.n; i++) {
        ck_assert_int_eq(listing.file[i].bytes, -1);
        ck_assert_str_eq(listing.file[i].hash, "");
    }
    hub_listing_free(&listing);
}
END_TEST

START_TEST(other_answers_are_refused) {
    static const char *const texts[] = {
        "",
        "[]",
        "{\"sha\": \"main\", \"siblings\": []}",
        "{\"sha\": \"../../0123456789abcdef0123456789abcdef012\", \"siblings\": []}",
        "{\"sha\": \"" SHA1 "\"}",
        "{\"sha\": \"" SHA1 "\", \"siblings\": [1]}",
        "{\"sha\": \"" SHA1 "\", \"siblings\": [{\"rfilename\": \"../x\"}]}",
        "{\"sha\": \"" SHA1 "\", \"siblings\": [{\"rfilename\": \"x\\u0000y\"}]}",
        "{\"sha\": \"" SHA1 "\", \"siblings\": [{\"rfilename\": \"x\"}, {\"rfilename\": \"x\"}]}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ck_assert_msg(parse(texts[i]) == STATUS_BAD_FILE, "%s", texts[i]);
        ck_assert(err.status == STATUS_BAD_FILE && *err.message);
    }
    hub_listing_free(&listing);
}
END_TEST

/* ---- the choice ----------------------------------------------------------------------------- */

static struct hub_choice choice;

/* Makes a listing of files, which are separated by spaces and sorted. */
static void list_files(const char *names) {
    struct buf text = {0};
    char copy[1024];
    snprintf(copy, sizeof copy, "%s", names);
    buf_puts(&text, "{\"sha\": \"" SHA1 "\", \"siblings\": [");
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        buf_printf(&text, "%s{\"rfilename\": \"%s\"}", word == copy ? "" : ",", word);
    buf_puts(&text, "]}");
    ck_assert_int_eq(parse(text.data), STATUS_OK);
    buf_free(&text);
}

/* Chooses among the files, and compares the needed ones. */
static void expect(const char *files, const char *name, const char *index, const char *needed) {
    struct hub_name parsed;
    struct buf found = {0};
    struct json *root = NULL;
    list_files(files);
    ck_assert_int_eq(hub_name_parse(&parsed, name, &err), STATUS_OK);
    if (index) ck_assert_int_eq(json_parse(&root, "index", index, strlen(index), &err), STATUS_OK);
    enum status status = hub_select(&choice, &listing, &parsed, root, &err);
    for (int i = 0; i < listing.n && !status; i++)
        if (choice.needs[i])
            buf_printf(&found, "%s%s", found.length > 0 ? " " : "", listing.file[i].path);
    ck_assert_str_eq(status ? "none" : found.data, needed);
    mem_free(choice.needs);
    json_free(root);
    buf_free(&found);
    hub_listing_free(&listing);
}

START_TEST(a_tag_is_a_word_of_a_file_in_any_case) {
    const char *files = "a-IQ4_K.gguf a-Q4_0.gguf a-Q4_0_4_4.gguf a-Q4_K.gguf a-q4_k_m.gguf "
                        "a-q4_k_m.txt b/a.Q8_0.gguf mmproj-Q2_K.gguf";
    expect(files, "r/b", NULL, "a-q4_k_m.gguf");
    expect(files, "r/b:Q4_K", NULL, "a-Q4_K.gguf");
    expect(files, "r/b:q4_0", NULL, "a-Q4_0.gguf");
    expect(files, "r/b:Q8_0", NULL, "b/a.Q8_0.gguf");
    expect(files, "r/b:Q4", NULL, "none");
    expect(files, "r/b:Q2_K", NULL, "none");
    expect(files, "r/b/a-Q4_K.gguf", NULL, "a-Q4_K.gguf");
    expect(files, "r/b/mmproj-Q2_K.gguf", NULL, "mmproj-Q2_K.gguf");
    expect(files, "r/b/c.gguf", NULL, "none");
    expect("z-Q8_0.gguf y-F16.gguf", "r/b", NULL, "y-F16.gguf");
}
END_TEST

START_TEST(parts_are_chosen_together) {
    const char *files = "a-Q4_K_M-00001-of-00002.gguf a-Q4_K_M-00002-of-00002.gguf "
                        "a-Q8_0-00001-of-00003.gguf a-Q8_0-00002-of-00003.gguf";
    expect(files, "r/b", NULL, "a-Q4_K_M-00001-of-00002.gguf a-Q4_K_M-00002-of-00002.gguf");
    ck_assert_int_eq(choice.first, 0);
    expect(files, "r/b/a-Q4_K_M-00002-of-00002.gguf", NULL,
           "a-Q4_K_M-00001-of-00002.gguf a-Q4_K_M-00002-of-00002.gguf");
    ck_assert_int_eq(choice.first, 0);
    expect(files, "r/b:Q8_0", NULL, "none");
    ck_assert_ptr_nonnull(strstr(err.message, "part 3 of 3"));
}
END_TEST

START_TEST(a_folder_is_chosen_if_no_file_has_the_usual_tag) {
    const char *files = "config.json model.safetensors tokenizer.json README.md a-F16.gguf";
    expect(files, "r/b", NULL, "config.json model.safetensors tokenizer.json");
    expect("config.json model.safetensors a-Q4_K_M.gguf", "r/b", NULL, "a-Q4_K_M.gguf");
    expect("config.json pytorch_model.bin", "r/b", NULL, "none");
    expect("model.safetensors", "r/b", NULL, "none");
    expect(files, "r/b:Q8_0", NULL, "none");
}
END_TEST

START_TEST(the_index_names_the_weights) {
    const char *files = "config.json model.safetensors.index.json one.safetensors two.safetensors "
                        "zoo.safetensors";
    expect(files, "r/b", NULL, "config.json model.safetensors.index.json");
    ck_assert(choice.wants_index);
    expect(files, "r/b",
           "{\"weight_map\": {\"a\": \"one.safetensors\", \"b\": \"two.safetensors\"}}",
           "config.json model.safetensors.index.json one.safetensors two.safetensors");
    ck_assert(!choice.wants_index);
    expect(files, "r/b", "{\"weight_map\": {\"a\": \"four.safetensors\"}}", "none");
    expect(files, "r/b", "{\"weight_map\": {\"a\": \"config.json\"}}", "none");
    expect(files, "r/b", "{\"weight_map\": {\"a\": 1}}", "none");
    expect(files, "r/b", "[]", "none");
    files = "config.json model-00001-of-00002.safetensors model-00002-of-00002.safetensors";
    expect(files, "r/b", NULL, files);
    expect("config.json model-00001-of-00002.safetensors", "r/b", NULL, "none");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("hub");
    TCase *names = tcase_create("names"), *answers = tcase_create("answers");
    tcase_add_test(names, a_name_has_a_repository_and_a_tag_or_a_file);
    tcase_add_test(names, other_texts_are_no_names);
    tcase_add_test(names, long_parts_of_a_name_are_refused);
    tcase_add_test(answers, a_listing_has_the_hash_of_the_bytes);
    tcase_add_test(answers, values_that_are_no_hash_and_no_size_are_not_taken);
    tcase_add_test(answers, other_answers_are_refused);
    tcase_add_test(answers, a_tag_is_a_word_of_a_file_in_any_case);
    tcase_add_test(answers, parts_are_chosen_together);
    tcase_add_test(answers, a_folder_is_chosen_if_no_file_has_the_usual_tag);
    tcase_add_test(answers, the_index_names_the_weights);
    suite_add_tcase(suite, names);
    suite_add_tcase(suite, answers);
    return suite_main(suite);
}
