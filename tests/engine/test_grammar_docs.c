/* docs/structured-output.md lists each keyword and format of JSON Schema that the program knows,
 * and no others, with the right kind: enforced (first column of the table) or an annotation. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema/internal.h"
#include "support/suite_main.h"

enum { MAX_NAMES = 80 };

struct names {
    char list[MAX_NAMES][32];
    int n;
};

/* Adds all names in `backquotes` up to `end`. */
static void add_quoted(struct names *names, const char *text, const char *end) {
    while ((text = memchr(text, '`', (size_t)(end - text)))) {
        const char *close = memchr(text + 1, '`', (size_t)(end - text - 1));
        ck_assert(close && close - text < 32 && names->n < MAX_NAMES);
        memcpy(names->list[names->n], text + 1, (size_t)(close - text - 1));
        names->list[names->n++][close - text - 1] = 0;
        text = close + 1;
    }
}

static bool has(const struct names *names, const char *name) {
    for (int i = 0; i < names->n; i++) {
        if (strcmp(names->list[i], name) == 0) return true;
    }
    return false;
}

/* Reads the names in the page's section. */
static struct names enforced, notes, unenforced, formats;

static void read_page(void) {
    static char page[20000];
    FILE *file = fopen("docs/structured-output.md", "r");
    ck_assert_msg(file, "run this in the folder of the sources");
    size_t n = fread(page, 1, sizeof page - 1, file);
    fclose(file);
    page[n] = 0;
    char *at = strstr(page, "\n## JSON Schema\n"), *end = at ? strstr(at + 1, "\n## ") : NULL;
    ck_assert(end);
    for (char *line = strstr(at, "|---|"); line && line < end; line = strchr(line, '\n') + 1) {
        const char *line_end = strchr(line, '\n'), *second = strstr(line, " | ");
        if (*line == '|' && second && second < line_end) add_quoted(&enforced, line, second);
        if (strncmp(line, "| `format` ", 11) == 0) add_quoted(&formats, second, line_end);
        if (strncmp(line, "`title`", 7) == 0)
            add_quoted(&notes, line, strstr(line, "are annotations"));
        if (strncmp(line, "`$dynamicRef", 12) == 0)
            add_quoted(&unenforced, line, strstr(line, "are not enforced"));
    }
}

START_TEST(the_page_names_each_keyword_as_what_it_is) {
    const struct schema_keyword *keyword;
    int n = 0;
    for (; (keyword = schema_keyword((size_t)n)); n++) {
        const struct names *names = keyword->form == FORM_NOTE         ? &notes
                                    : keyword->form == FORM_UNENFORCED ? &unenforced
                                                                       : &enforced;
        ck_assert_msg(has(names, keyword->name), "%s is not on the page as what it is",
                      keyword->name);
    }
    ck_assert_msg(n == enforced.n + notes.n + unenforced.n, "the page has other keywords");
}
END_TEST

START_TEST(the_page_names_each_format) {
    int n = 0;
    for (; schema_formats[n].name; n++) {
        ck_assert_msg(has(&formats, schema_formats[n].name), "%s is not on the page",
                      schema_formats[n].name);
    }
    ck_assert_int_eq(n + has(&formats, "maxLength"), formats.n);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("grammar_docs");
    TCase *cases = tcase_create("page");
    tcase_add_unchecked_fixture(cases, read_page, NULL);
    tcase_add_test(cases, the_page_names_each_keyword_as_what_it_is);
    tcase_add_test(cases, the_page_names_each_format);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
