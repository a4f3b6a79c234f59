/* Texts that grow, and paths. */
#include <check.h>
#include <stdint.h>
#include <string.h>

#include "config/config.h"
#include "support/suite_main.h"

START_TEST(a_path_has_one_slash_between_folder_and_name) {
    static const struct {
        const char *folder, *path;
    } cases[] = {{"a", "a/b"}, {"a/", "a/b"}, {"/", "/b"}, {"", "/b"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path = path_in(cases[i].folder, "b");
        ck_assert_str_eq(path, cases[i].path);
        mem_free(path);
    }
}
END_TEST

START_TEST(a_text_too_long_for_memory_is_not_added) {
    struct buf text = {0};
    ck_assert(buf_try_add(&text, "ab", 2));
    ck_assert(!buf_try_add(&text, "", SIZE_MAX));
    ck_assert(buf_try_add(&text, "c", 1));
    ck_assert_str_eq(text.data, "abc");
    buf_free(&text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("config_buf");
    TCase *core = tcase_create("core");
    tcase_add_test(core, a_path_has_one_slash_between_folder_and_name);
    tcase_add_test(core, a_text_too_long_for_memory_is_not_added);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
