/* Formatted strings: "..." % values and "...".format(...), with the results of Python 3. */
#include <check.h>

#include "support/suite_main.h"
#include "support/template_fixture.h"

START_TEST(percent_formats_as_python_does) {
    expect_templates((const struct fixture_case[]){
        {"{{ '%5.2f|%-6d|%+d|% d|%x|%#o' % (3.14159, 42, 7, 7, 255, 8) }}",
         " 3.14|42    |+7| 7|ff|0o10"},
        {"{{ '%e|%g|%c|%r|%s|%%' % (12345.678, 0.0001, 'c', 'q', none) }}",
         "1.234568e+04|0.0001|c|'q'|None|%"},
        {"{{ '%05d|%-5s|%*d|%.2s' % (42, 'ab', 4, 9, 'xyz') }}", "00042|ab   |   9|xy"},
        {"{{ '%-5d|%-05d|%05d|%i|%u' % (3, 3, -3, 4, 5) }}", "3    |3    |-0003|4|5"},
        {"{{ '%d' % 3.99 }}", "3"},
        {"{{ '%(a)s-%(b)03d' % {'a': 'x', 'b': 7} }}", "x-007"},
        {"{{ '%s' % [1, 2] }}", "[1, 2]"},
        {"{{ '%s %s' % (1, (2, 3)) }}", "1 (2, 3)"},
        {"{{ 'no' % {} }}", "no"},
        {NULL, NULL},
    });
}
END_TEST

START_TEST(percent_refuses_the_formats_that_python_refuses) {
    expect_template_failure("{{ '%d %d' % 1 }}", NULL, "the format needs more values");
    expect_template_failure("{{ '%d' % (1, 2) }}", NULL, "not all values are used");
    expect_template_failure("{{ 'x' % 1 }}", NULL, "not all values are used");
    expect_template_failure("{{ '%d' % 'a' }}", NULL, "%d needs a number, not 'str'");
    expect_template_failure("{{ '%x' % 1.5 }}", NULL, "%x needs an integer");
    expect_template_failure("{{ '%c' % 'ab' }}", NULL, "%c needs one character");
    expect_template_failure("{{ '%q' % 1 }}", NULL, "the format is not known");
    expect_template_failure("{{ '%(a)s' % {'b': 1} }}", NULL, "names a key that the dict lacks");
    expect_template_failure("{{ '%(a)s' % (1,) }}", NULL, "needs a dict");
    expect_template_failure("{{ '%(a' % {'b': 1} }}", NULL, "not closed with ')'");
}
END_TEST

START_TEST(fields_format_numbers_as_python_does) {
    expect_templates((const struct fixture_case[]){
        {"{{ '{:05d}|{:+d}|{:=6d}|{:<4}|{:^5}|'.format(-42, 5, -3, 7, 3) }}",
         "-0042|+5|-    3|7   |  3  |"},
        {"{{ '{:,}|{:,}|{:,}|{:,.2f}'.format(123, 1234567, -1234, 1234567.891) }}",
         "123|1,234,567|-1,234|1,234,567.89"},
        {"{{ '{:x}|{:#b}|{:b}|{:#X}|{:o}|{:n}'.format(255, 5, 0, 255, 8, 5) }}",
         "ff|0b101|0|0XFF|10|5"},
        {"{{ '{:.1%}|{:e}|{:g}|{:.2}|{}'.format(0.256, 12345.678, 1e20, 3.14159, 1e16) }}",
         "25.6%|1.234568e+04|1e+20|3.1|1e+16"},
        {"{{ '{:b}'.format(9223372036854775807)|length }}", "63"},
        {NULL, NULL},
    });
}
END_TEST

START_TEST(fields_find_their_argument) {
    expect_templates((const struct fixture_case[]){
        {"{{ '{} {}'.format(1, 2) }}", "1 2"},
        {"{{ '{1} {0} {1}'.format('a', 'b') }}", "b a b"},
        {"{{ '{a}-{b.c}-{d[0]}-{d[1]}'.format(a=1, b={'c': 2}, d=[3, 4]) }}", "1-2-3-4"},
        {"{{ '{0[k]}'.format({'k': 'v'}) }}", "v"},
        {"{{ '{!r} {!s:>3}'.format('x', 'y') }}", "'x'   y"},
        {"{{ '{{}} {{{}}}'.format(1) }}", "{} {1}"},
        {"{{ '{:>5}|{:*^7}|{:.3}|{:s}'.format('ab', 'ab', 'abcdef', 'x') }}",
         "   ab|**ab***|abc|x"},
        {NULL, NULL},
    });
}
END_TEST

START_TEST(fields_refuse_the_formats_that_python_refuses) {
    expect_template_failure("{{ '{}'.format() }}", NULL, "the format needs more values");
    expect_template_failure("{{ '{} {0}'.format(1) }}", NULL, "cannot mix numbered fields");
    expect_template_failure("{{ '{a}'.format(b=1) }}", NULL, "names an argument that is not given");
    expect_template_failure("{{ '{'.format(1) }}", NULL, "not closed with '}'");
    expect_template_failure("{{ '}'.format(1) }}", NULL, "a single '}' in the format");
    expect_template_failure("{{ '{0[a}'.format({}) }}", NULL, "not closed with ']'");
    expect_template_failure("{{ '{!x}'.format(1) }}", NULL, "conversion is 'r' or 's'");
    expect_template_failure("{{ '{:d}'.format('a') }}", NULL, "this format is not for strings");
    expect_template_failure("{{ '{:d}'.format(1.5) }}", NULL, "a float cannot use the format 'd'");
    expect_template_failure("{{ '{:s}'.format(1) }}", NULL, "an integer cannot use the format 's'");
    expect_template_failure("{{ '{:5}'.format([]) }}", NULL, "'list' cannot be formatted");
    expect_template_failure("{{ '{:.}'.format(1.5) }}", NULL, "lacks its precision");
    expect_template_failure("{{ '{:5dd}'.format(1) }}", NULL, "the format is not known");
}
END_TEST

/* Widths and precisions up to the limit and above it. */
START_TEST(widths_are_bounded) {
    expect_template("{{ '{:10000}'.format(1)|length }}", NULL, "10000");
    expect_template_failure("{{ '{:10001}'.format(1) }}", NULL, "width is too large");
    expect_template("{{ ('%*d' % (10000, 1))|length }}", NULL, "10000");
    expect_template_failure("{{ '%*d' % (10001, 1) }}", NULL, "width is too large");
    expect_template("{{ ('%.100f' % 1)|length }}", NULL, "102");
    expect_template_failure("{{ '%.101f' % 1 }}", NULL, "precision is too large");
    expect_template("{{ ('%.100f' % 1e300)|length }}", NULL, "402");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("text_format");
    TCase *tests = tcase_create("formats");
    tcase_add_test(tests, percent_formats_as_python_does);
    tcase_add_test(tests, percent_refuses_the_formats_that_python_refuses);
    tcase_add_test(tests, fields_format_numbers_as_python_does);
    tcase_add_test(tests, fields_find_their_argument);
    tcase_add_test(tests, fields_refuse_the_formats_that_python_refuses);
    tcase_add_test(tests, widths_are_bounded);
    suite_add_tcase(suite, tests);
    return suite_main(suite);
}
