/* The text files of a folder: which file the tokenizer is read from, the information in the other
 * files, and where the chat templates are. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/files/model_file.h"
#include "engine/files/text/folder_text.h"
#include "support/suite_main.h"

static char folder[64];

static const char *const names[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "tekken.json",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
    "additional_chat_templates/tool_use.jinja",
};

static void make_folder(void) {
    char path[128];
    snprintf(folder, sizeof folder, "/tmp/penstock_text_XXXXXX");
    ck_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/additional_chat_templates", folder);
    ck_assert_int_eq(mkdir(path, 0700), 0);
}

static void remove_folder(void) {
    char path[128];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/additional_chat_templates", folder);
    rmdir(path);
    rmdir(folder);
}

static void remove_file(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

static void put(const char *name, const char *text) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    ck_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* ---- tokenizers ----------------------------------------------------------------------------- */

static struct tokenizer *tokenizer_of(int V) {
    struct tokenizer_spec spec;
    struct tokenizer *tokenizer;
    struct err err = {0};
    enum status status = hf_tokenizer_read(&spec, folder, V, &err);
    ck_assert_msg(status == STATUS_OK, "%s", err.message);
    status = tokenizer_new(&tokenizer, &spec, &err);
    ck_assert_msg(status == STATUS_OK, "%s", err.message);
    tokenizer_spec_free(&spec);
    return tokenizer;
}

static void expect_refused(const char *wanted) {
    struct tokenizer_spec spec;
    struct err err = {0};
    ck_assert_int_eq(hf_tokenizer_read(&spec, folder, 0, &err), STATUS_BAD_FILE);
    ck_assert_msg(strstr(err.message, wanted), "%s", err.message);
    ck_assert_msg(strstr(err.message, folder) == err.message, "%s", err.message);
}

static void encodes(const struct tokenizer *tokenizer, const char *text, const char *wanted) {
    int32_t *ids;
    struct buf shown = {0};
    int n = tokenizer_encode(tokenizer, text, strlen(text), SPECIAL_PARSED, true, 100, &ids);
    buf_puts(&shown, "");
    for (int i = 0; i < n; i++) buf_printf(&shown, "%d ", (int)ids[i]);
    ck_assert_msg(strcmp(shown.data ? shown.data : "", wanted) == 0, "%s: %s", text, shown.data);
    buf_free(&shown);
    free(ids);
}

static const char vocabulary[] = "{\"a\":0,\"b\":1,\"ab\":2,\"\u0120\":3,\"\u0120a\":4,\"<s>\":5}";

START_TEST(vocab_and_merges_need_a_class) {
    put("vocab.json", vocabulary);
    expect_refused("key merges.txt: expected the file beside vocab.json, found nothing");
    put("merges.txt", "#version: 0.2\na b\r\n\u0120 a\n");
    expect_refused("key tokenizer_class: expected \"GPT2Tokenizer\"");
    put("tokenizer_config.json", "{\"tokenizer_class\":\"BartTokenizer\"}");
    expect_refused("found \"BartTokenizer\"");
    put("tokenizer_config.json",
        "{\"tokenizer_class\":\"GPT2Tokenizer\",\"bos_token\":{\"content\":\"<s>\"},\"add_bos_"
        "token\":true,"
        "\"added_tokens_decoder\":{\"5\":{\"content\":\"<s>\",\"special\":true},"
        "\"7\":{\"content\":\"<t>\",\"rstrip\":true}}}");
    struct tokenizer *tokenizer = tokenizer_of(10);
    ck_assert_int_eq(tokenizer_size(tokenizer), 10);
    ck_assert_int_eq(tokenizer_bos(tokenizer), 5);
    encodes(tokenizer, "ab a<t>  b<s>", "5 2 4 7 1 5 ");
    ck_assert(tokenizer_is_special(tokenizer, 5) && !tokenizer_is_special(tokenizer, 7));
    tokenizer_free(tokenizer);
    put("merges.txt", "ab\n");
    expect_refused(
        "key merges.txt: expected two tokens with a space between them a line, found line 1");
}
END_TEST

START_TEST(tokenizer_json_is_preferred) {
    put("vocab.json", vocabulary);
    put("tokenizer.json", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"x\":0,\"y\":1},\"merges\":[]},"
                          "\"added_tokens\":[{\"id\":9,\"content\":\"<e>\",\"special\":true}]}");
    put("special_tokens_map.json", "{\"eos_token\":\"<e>\"}");
    struct tokenizer *tokenizer = tokenizer_of(0);
    ck_assert_int_eq(tokenizer_size(tokenizer), 10);
    ck_assert_int_eq(tokenizer_eos(tokenizer), 9);
    encodes(tokenizer, "xy<e>z", "0 1 9 ");
    tokenizer_free(tokenizer);
    tokenizer = tokenizer_of(5); /* the model cannot compute id 9 */
    ck_assert_int_eq(tokenizer_size(tokenizer), 5);
    encodes(tokenizer, "xy<e>", "0 1 ");
    tokenizer_free(tokenizer);
}
END_TEST

START_TEST(a_folder_without_a_tokenizer_is_refused) {
    expect_refused(
        "expected one of tokenizer.json, vocab.json with merges.txt, tokenizer.model and");
    put("tokenizer.model", "\x0A");
    expect_refused("tokenizer.model: key pieces: expected a whole message");
}
END_TEST

/* All of them are broken, so the message names the first one. */
START_TEST(the_first_of_the_files_is_read) {
    static const char *const files[][2] = {{"tokenizer.json", "{"},
                                           {"vocab.json", "{"},
                                           {"tokenizer.model", "x"},
                                           {"tekken.json", "{"}};
    enum { N_FILES = sizeof files / sizeof *files };
    for (size_t i = 0; i < N_FILES; i++) put(files[i][0], files[i][1]);
    for (size_t i = 0; i < N_FILES; i++) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "/%s: ", files[i][0]);
        expect_refused(wanted);
        remove_file(files[i][0]);
    }
    expect_refused("found none");
}
END_TEST

/* A read from a pipe without a writer would block forever. */
START_TEST(a_pipe_is_refused) {
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json", "vocab.json",
                                        "tekken.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[128], wanted[160];
        put("tokenizer.json", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"x\":0},\"merges\":[]}}");
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        snprintf(wanted, sizeof wanted, "%s: expected a regular file", files[i]);
        if (i >= 2) remove_file("tokenizer.json");
        remove_file(files[i]);
        ck_assert_int_eq(mkfifo(path, 0600), 0);
        expect_refused(wanted);
        remove_file(files[i]);
    }
}
END_TEST

/* ---- templates ------------------------------------------------------------------------------ */

static void templates_are(const char *text, const char *tools) {
    struct folder_templates templates;
    struct err err = {0};
    enum status status = folder_templates_read(&templates, folder, &err);
    ck_assert_msg(status == STATUS_OK, "%s", err.message);
    ck_assert_pstr_eq(templates.text, text);
    ck_assert_pstr_eq(templates.tools_text, tools);
    folder_templates_free(&templates);
}

START_TEST(templates_are_found) {
    struct folder_templates templates;
    struct err err = {0};
    templates_are(NULL, NULL);
    put("chat_template.json", "{\"chat_template\":\"of pictures\"}");
    templates_are("of pictures", NULL);
    put("tokenizer_config.json", "{\"chat_template\":null}");
    templates_are("of pictures", NULL);
    put("tokenizer_config.json", "{\"chat_template\":\"one\"}");
    templates_are("one", NULL);
    put("tokenizer_config.json", "{\"chat_template\":[{\"name\":\"default\",\"template\":\"d\"},"
                                 "{\"name\":\"tool_use\",\"template\":\"t\"},"
                                 "{\"name\":\"rag\",\"template\":\"r\"}]}");
    templates_are("d", "t");
    put("chat_template.jinja", "file");
    templates_are("file", NULL);
    put("additional_chat_templates/tool_use.jinja", "tools");
    templates_are("file", "tools");
    unlink("chat_template.jinja");
    put("chat_template.jinja", "");
    templates_are("", "tools");
    char path[128];
    snprintf(path, sizeof path, "%s/nothing.jinja", folder);
    ck_assert_int_eq(template_file_read(&templates, path, &err), STATUS_BAD_FILE);
    ck_assert_msg(strstr(err.message, "nothing.jinja: the file does not exist"), "%s", err.message);
}
END_TEST

START_TEST(broken_templates_are_refused) {
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        {"{\"chat_template\":7}",
         "key chat_template: expected a text or a list of named ones, found 7"},
        {"{\"chat_template\":[]}", "key chat_template: expected one named \"default\", found none"},
        {"{\"chat_template\":[{\"name\":\"default\"}]}",
         "chat_template.template: expected a string"},
        {"{", "tokenizer_config.json: expected a JSON object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct folder_templates templates;
        struct err err = {0};
        put("tokenizer_config.json", cases[i].text);
        ck_assert_int_eq(folder_templates_read(&templates, folder, &err), STATUS_BAD_FILE);
        ck_assert_msg(strstr(err.message, cases[i].wanted), "%s", err.message);
        ck_assert(!templates.text && !templates.tools_text);
    }
}
END_TEST

static void compile_fails(bool with_tools, const char *wanted) {
    struct folder_templates t;
    struct chat_template *compiled;
    struct err err = {0};
    ck_assert_int_eq(folder_templates_read(&t, folder, &err), STATUS_OK);
    enum status status =
        with_tools
            ? folder_template_new(&compiled, t.tools_text, t.tools_length, t.tools_file, &err)
            : folder_template_new(&compiled, t.text, t.length, t.file, &err);
    ck_assert_int_eq(status, STATUS_BAD_FILE);
    ck_assert_ptr_null(compiled);
    ck_assert_msg(strstr(err.message, folder) == err.message && strstr(err.message, wanted), "%s",
                  err.message);
    folder_templates_free(&t);
}

START_TEST(a_broken_template_is_named_with_its_file) {
    put("chat_template.json", "{\"chat_template\":\"{{\"}");
    compile_fails(false, "/chat_template.json: chat template, line 1: ");
    put("tokenizer_config.json", "{\"chat_template\":[{\"name\":\"default\",\"template\":\"{{ x\"},"
                                 "{\"name\":\"tool_use\",\"template\":\"\\n{% if %}\"}]}");
    compile_fails(false, "/tokenizer_config.json: chat template, line 1: a tag is not closed");
    compile_fails(true, "/tokenizer_config.json: chat template, line 2: expected an expression");
    put("chat_template.jinja", "a\n\n{{ x");
    put("additional_chat_templates/tool_use.jinja", "{% for %}");
    compile_fails(false, "/chat_template.jinja: chat template, line 3: a tag is not closed");
    compile_fails(true, "/tool_use.jinja: chat template, line 1: expected a name");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine_folder_text");
    TCase *tests = tcase_create("core");
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_test(tests, vocab_and_merges_need_a_class);
    tcase_add_test(tests, tokenizer_json_is_preferred);
    tcase_add_test(tests, a_folder_without_a_tokenizer_is_refused);
    tcase_add_test(tests, the_first_of_the_files_is_read);
    tcase_add_test(tests, a_pipe_is_refused);
    tcase_add_test(tests, templates_are_found);
    tcase_add_test(tests, broken_templates_are_refused);
    tcase_add_test(tests, a_broken_template_is_named_with_its_file);
    suite_add_tcase(suite, tests);
    return suite_main(suite);
}
