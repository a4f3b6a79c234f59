/* The help of each command: its options, its layout, and the lines about flags. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "server/options/table.h"
#include "support/suite_main.h"

/* Each option is in the help of exactly its commands, and no line is wider than a terminal. */
START_TEST(help_is_whole) {
    for (int c = 0; c < command_count; c++) {
        struct buf text = {0};
        options_help(command_table[c].name, &text);
        for (int i = 0; i < option_count; i++) {
            char flag[64];
            const struct option *option = &option_table[i];
            bool on = option->type == OPTION_BOOL && option->fallback[0] == 't';
            snprintf(flag, sizeof flag, "\n  --%s%s ", on ? "no-" : "", option->name);
            bool has = option->commands & command_table[c].bit;
            ck_assert_msg(!strstr(text.data, flag) == !has, "%s in %s", flag,
                          command_table[c].name);
        }
        for (char *line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n")) {
            ck_assert_msg(strlen(line) <= 120, "%s", line);
        }
        buf_free(&text);
    }
    struct buf text = {0};
    options_help(NULL, &text);
    for (int c = 0; c < command_count; c++) {
        ck_assert_ptr_nonnull(strstr(text.data, command_table[c].name));
    }
    buf_free(&text);
}
END_TEST

/* The column of the explanations, from 0. */
enum { EXPLANATIONS = 36 };

/* Checks an option's lines in a help text: the explanation begins in its column, after the flag and
 * two spaces, or on its own line if the flag is too long for that. */
static void check_layout(const char *text, const struct option *option) {
    struct buf flag = {0};
    option_flag(option, &flag);
    char begin[80];
    size_t n = (size_t)snprintf(begin, sizeof begin, "\n  %s", flag.data);
    const char *line = strstr(text, begin);
    while (line && line[n] != ' ' && line[n] != '\n') line = strstr(line + 1, begin);
    ck_assert_msg(line, "%s", flag.data);
    line++;
    size_t length = strcspn(line, "\n");
    const char *at = memmem(line, length, option->help, strlen(option->help));
    if (at) {
        ck_assert_msg(at == line + EXPLANATIONS, "%s", flag.data);
        ck_assert_msg(at[-1] == ' ' && at[-2] == ' ', "%s", flag.data);
    } else {
        ck_assert_msg(length > EXPLANATIONS - 2, "%s", flag.data);
        line += length + 1;
        ck_assert_msg(strspn(line, " ") == EXPLANATIONS, "%s", flag.data);
        ck_assert_mem_eq(line + EXPLANATIONS, option->help, strlen(option->help));
    }
    buf_free(&flag);
}

START_TEST(explanations_stand_in_one_column) {
    for (int c = 0; c < command_count; c++) {
        struct buf text = {0};
        options_help(command_table[c].name, &text);
        for (int i = 0; i < option_count; i++)
            if (option_table[i].commands & command_table[c].bit)
                check_layout(text.data, &option_table[i]);
        buf_free(&text);
    }
}
END_TEST

/* A command without flags is not said to have any. */
START_TEST(flags_are_explained_where_there_are_any) {
    int n_without = 0;
    for (int c = 0; c < command_count; c++) {
        struct buf text = {0};
        bool has = false;
        for (int i = 0; i < option_count; i++)
            has |= option_table[i].commands & command_table[c].bit;
        options_help(command_table[c].name, &text);
        ck_assert(!strstr(text.data, " [flags]") == !has);
        ck_assert(!strstr(text.data, "Defaults are in brackets") == !has);
        n_without += !has;
        buf_free(&text);
    }
    ck_assert_int_gt(n_without, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_options_help");
    TCase *core = tcase_create("core");
    suite_add_tcase(suite, core);
    tcase_add_test(core, help_is_whole);
    tcase_add_test(core, explanations_stand_in_one_column);
    tcase_add_test(core, flags_are_explained_where_there_are_any);
    return suite_main(suite);
}
