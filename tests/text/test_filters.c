/* Filters, tests, methods, functions and operators that templates call: the edge cases of each,
 * with the results of jinja2 and Python. test_template.c compares common use with jinja2. */
#include <check.h>

#include "support/suite_main.h"
#include "support/template_fixture.h"

static const char people[] =
    "{\"people\": [{\"name\": \"Bob\", \"age\": 30, \"pet\": {\"kind\": \"cat\"}},"
    " {\"name\": \"amy\", \"age\": 25}, {\"name\": \"Cid\", \"age\": 30}], \"d\": {\"b\": 1,"
    " \"A\": 3, \"c\": 2}, \"nested\": {\"a\": [1, {\"x\": null}], \"s\": "
    "\"q\\\"\\u00e9\\u0001\"}}";

static void expect_shown(const char *source, const char *wanted) {
    expect_template(source, people, wanted);
}

static void expect_failure(const char *source, const char *cause) {
    expect_template_failure(source, people, cause);
}

START_TEST(sorting_is_stable_and_follows_paths) {
    expect_shown("{{ people|sort(attribute='name')|map(attribute='name')|join(',') }}",
                 "amy,Bob,Cid");
    expect_shown(
        "{{ people|sort(attribute='name', case_sensitive=true)|map(attribute='name')|join(',') }}",
        "Bob,Cid,amy");
    expect_shown("{{ people|sort(attribute='age')|map(attribute='name')|join(',') }}",
                 "amy,Bob,Cid");
    expect_shown("{{ people|sort(true, attribute='age')|map(attribute='name')|join(',') }}",
                 "Bob,Cid,amy");
    expect_shown("{{ people|sort(attribute='age,name')|map(attribute='name')|join(',') }}",
                 "amy,Bob,Cid");
    expect_shown("{{ [3, 1, 2, 5, 4]|sort|join }}{{ []|sort }}{{ [1]|sort }}", "12345[][1]");
    expect_shown("{{ d|dictsort }}", "[('A', 3), ('b', 1), ('c', 2)]");
    expect_shown("{{ d|dictsort(by='value') }}", "[('b', 1), ('c', 2), ('A', 3)]");
    expect_shown("{{ d|dictsort(true, 'key', true) }}", "[('c', 2), ('b', 1), ('A', 3)]");
    expect_failure("{{ [1, 'a']|sort }}", "cannot be ordered");
    expect_failure("{{ d|dictsort(by='x') }}", "dictsort's by must be 'key' or 'value'");
    expect_shown("{% set n = 'nan'|float %}{{ n <= n }}{{ n >= n }}{{ n == n }}{{ [n, 1]|sort }}",
                 "FalseFalseFalse[nan, 1]");
}
END_TEST

START_TEST(choosing_items) {
    expect_shown("{{ ['a', 'A', 'b']|unique|join }}{{ ['a', 'A']|unique(true)|join }}", "abaA");
    expect_shown("{{ ['b', 'A']|min }}{{ ['b', 'A']|max }}{{ ['b', 'A']|min(true) }}", "AbA");
    expect_shown(
        "{{ people|max(attribute='age')|attr('x') is undefined }}{{ []|min is undefined }}",
        "TrueTrue");
    expect_shown("{{ [1, 2, 3, 4]|select('even')|list }}{{ [1, 2, 3]|reject('gt', 1)|list }}",
                 "[2, 4][1]");
    expect_shown("{{ [0, 1, '']|select|list }}{{ [0, 1, '']|reject|list }}", "[1][0, '']");
    expect_shown("{{ people|selectattr('age', 'eq', 30)|map(attribute='name')|join(',') }}",
                 "Bob,Cid");
    expect_shown("{{ people|rejectattr('pet')|map(attribute='name')|join(',') }}", "amy,Cid");
    expect_shown("{{ people|map(attribute='pet.kind', default='-')|join(',') }}", "cat,-,-");
    expect_shown("{{ ['a', 'b']|map('upper')|join }}", "AB");
    expect_failure("{{ [1]|map('nothing')|list }}", "unknown filter 'nothing'");
    expect_failure("{{ [1]|select('nothing')|list }}", "unknown test 'nothing'");
    expect_failure("{{ [1]|map|list }}", "map needs a filter's name or an attribute");
}
END_TEST

START_TEST(parts_of_lists) {
    expect_shown("{{ [1, 2, 3]|first }}{{ [1, 2, 3]|last }}{{ []|first is undefined }}", "13True");
    expect_shown("{{ [1, 2, 3]|reverse|list }}{{ 'abc'|reverse }}", "[3, 2, 1]cba");
    expect_shown("{{ [1, 2, 3, 4, 5]|batch(2)|list }}", "[[1, 2], [3, 4], [5]]");
    expect_shown("{{ [1, 2, 3]|batch(2, 0)|list }}", "[[1, 2], [3, 0]]");
    expect_shown("{{ {'a': 1}|items|list }}{{ undefined_name|items|list }}", "[('a', 1)][]");
    expect_shown("{{ [1, 2]|join('-') }}{{ people|join(',', attribute='age') }}", "1-230,25,30");
    expect_shown(
        "{{ zz|default('x') }}{{ ''|default('x') }}{{ ''|default('x', true) }}{{ none|d('x') }}",
        "xxNone");
}
END_TEST

START_TEST(numbers_are_read_and_rounded) {
    expect_shown(
        "{{ '42'|int }} {{ ' 4_2 '|int }} {{ '0x1F'|int(0, 16) }} {{ '1F'|int(0, 16) }} {{ "
        "'x'|int(7) }}",
        "42 42 31 31 7");
    expect_shown(
        "{{ '0b11'|int(0, 0) }} {{ '-3.9'|int }} {{ 3.9|int }} {{ true|int }} {{ none|int }}",
        "3 -3 3 1 0");
    expect_shown("{{ '0x10'|int(-1, 8) }} {{ '0b1'|int(-1, 16) }} {{ '0x10'|int(-1) }}",
                 "-1 177 -1");
    expect_shown("{{ '1__0'|int(-1) }} {{ '_1'|int(-1) }} {{ ''|int(-1) }}", "-1 -1 -1");
    expect_shown("{{ '1.5'|float }} {{ 'inf'|float }} {{ 'x'|float }} {{ 2|float }}",
                 "1.5 inf 0.0 2.0");
    expect_shown(
        "{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 25|round(-1) }} {{ 7|round }}",
        "2.0 4.0 2.67 20 7");
    expect_shown(
        "{{ 2.1|round(0, 'ceil') }} {{ 2.9|round(0, 'floor') }} {{ 2.15|round(1, 'ceil') }}",
        "3.0 2.0 2.2");
    expect_shown("{{ -3|abs }} {{ -2.5|abs }} {{ [1, 2.5]|sum }} {{ people|sum('age') }}",
                 "3 2.5 3.5 85");
    expect_failure("{{ '9223372036854775808'|int }}", "an integer is too large");
    expect_failure("{{ 1e300|int }}", "too large for an integer");
    expect_failure("{{ 'x'|abs }}", "abs needs a number, not 'str'");
    expect_failure("{{ 1|round(301) }}", "round's precision is too large");
}
END_TEST

START_TEST(operators_follow_python) {
    expect_shown("{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 // -2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 6 % -3 }}",
                 "3 -4 -4 2 -2 0");
    expect_shown("{{ -7.5 // 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }} {{ 0.0 % -2 }}",
                 "-4.0 0.5 -0.5 -0.0");
    expect_shown("{{ 2 ** 10 }} {{ 2 ** -1 }} {{ (-2) ** 3 }} {{ 0 ** 0 }} {{ 2 ** 0.5 > 1.41 }}",
                 "1024 0.5 -8 1 True");
    expect_shown(
        "{{ 1 / 2 }} {{ 4 / 2 }} {{ 1 + 1.5 }} {{ true + 1 }} {{ 'a' * 3 }} {{ 2 * [1] }} {{ 'a' "
        "* -1 }}",
        "0.5 2.0 2.5 2 aaa [1, 1] ");
    expect_shown("{{ (1, 2) + (3,) }} {{ [1] + [2] }}", "(1, 2, 3) [1, 2]");
    expect_shown("{{ 9223372036854775807 + 0 }} {{ -9223372036854775807 - 1 }}",
                 "9223372036854775807 -9223372036854775808");
    expect_failure("{{ 9223372036854775807 + 1 }}", "an integer is too large");
    expect_failure("{{ 9223372036854775807 * 2 }}", "an integer is too large");
    expect_failure("{{ (-9223372036854775807 - 1) // -1 }}", "an integer is too large");
    expect_failure("{{ 3 ** 41 }}", "an integer is too large");
    expect_failure("{{ 1 // 0 }}", "division by zero");
    expect_failure("{{ 1.0 % 0 }}", "division by zero");
    expect_failure("{{ 0 ** -1 }}", "cannot be raised");
    expect_failure("{{ (-8) ** 0.5 }}", "complex numbers");
    expect_failure("{{ [1] + (2,) }}", "'+' is not defined for 'list' and 'tuple'");
    expect_failure("{{ 1 + 'a' }}", "'+' is not defined for 'int' and 'str'");
}
END_TEST

START_TEST(slices_follow_python) {
    expect_shown("{{ 'abcde'[1:3] }} {{ 'abcde'[-2:] }} {{ 'abcde'[::2] }} {{ 'abcde'[::-2] }} {{ "
                 "'abcde'[3:1] }}",
                 "bc de ace eca ");
    expect_shown(
        "{{ 'abcde'[10:] }}{{ 'abcde'[-10:2] }}{{ 'abcde'[4:0:-2] }}{{ 'abcde'[:-10:-1] }}",
        "abecedcba");
    expect_shown(
        "{{ [1, 2, 3, 4][1:-1] }} {{ (1, 2, 3)[::-1] }} {{ range(10)[2:8:3] }} {{ [][::-1] }}",
        "[2, 3] (3, 2, 1) range(2, 8, 3) []");
    expect_shown(
        "{{ 'z\xC3\xA9\xE2\x82\xACq'[1:3] }}{{ 'z\xC3\xA9'[-1] }}{{ 'abc'[5] is undefined }}",
        "\xC3\xA9\xE2\x82\xAC\xC3\xA9True");
    expect_failure("{{ 'abc'[::0] }}", "a slice's step must not be zero");
    expect_failure("{{ 'abc'['a':] }}", "a slice's bound must be an integer");
}
END_TEST

START_TEST(strings_have_the_methods_of_python) {
    expect_shown("{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a b c'.split(none, 1) }}",
                 "['a', 'b', '', 'c'] ['a', 'b'] ['a', 'b c']");
    expect_shown(
        "{{ 'a b c'.rsplit(' ', 1) }} {{ ' a b  c '.rsplit(none, 1) }} {{ 'abc'.rsplit('x') }}",
        "['a b', 'c'] [' a b', 'c'] ['abc']");
    expect_shown(
        "{{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'a'.rpartition('-') }}",
        "('a', '-', 'b-c') ('a-b', '-', 'c') ('', '', 'a')");
    expect_shown("{{ 'a\\nb\\r\\nc\\n'.splitlines() }} {{ 'a\\nb'.splitlines(true) }}",
                 "['a', 'b', 'c'] ['a\\n', 'b']");
    expect_shown("{{ 'abcabc'.find('c') }} {{ 'abcabc'.rfind('c') }} {{ 'abc'.find('x') }} {{ "
                 "'\xC3\xA9z'.find('z') }}"
                 " {{ 'abcabc'.find('a', 1) }} {{ 'aaaa'.count('aa') }} {{ 'ab'.count('') }}",
                 "2 5 -1 1 3 2 3");
    expect_shown(
        "{{ 'aXbX'.replace('X', '-') }} {{ 'aXbX'.replace('X', '-', 1) }} {{ 'ab'.replace('', "
        "'.') }}"
        " {{ 'ab'.replace('', '.', 2) }}",
        "a-b- a-bX .a.b. .a.b");
    expect_shown("{{ 'ab'.ljust(4, '.') }} {{ 'ab'.rjust(4) }} {{ 'ab'.center(5, '.') }} {{ "
                 "'abc'.center(6, '.') }}"
                 " {{ '-7'.zfill(4) }} {{ 'abc'.zfill(2) }}",
                 "ab..   ab ..ab. .abc.. -007 abc");
    expect_shown(
        "{{ 'HeLLo wORLD'.swapcase() }} {{ \"they're bill's\".title() }} {{ 'aBC'.capitalize() }}",
        "hEllO World They'Re Bill'S Abc");
    expect_shown("{{ \"they're-here (now)\"|title }}", "They're-Here (Now)");
    expect_shown("{{ 'x'.isalpha() }}{{ '1'.isdigit() }}{{ ''.isalpha() }}{{ 'x1'.isalnum() }}{{ ' "
                 "'.isspace() }}"
                 "{{ 'A1'.isupper() }}{{ '1'.isupper() }}{{ 'aB'.islower() }}",
                 "TrueTrueFalseTrueTrueTrueFalseFalse");
    expect_shown("{{ 'abc'.startswith('b', 1) }}{{ 'abc'.endswith(('x', 'bc')) }}{{ "
                 "'abc'.removeprefix('a') }}"
                 "{{ 'abc'.removesuffix('bc') }}{{ 'abc'.removesuffix('x') }}",
                 "TrueTruebcaabc");
    expect_shown(
        "{{ '-'.join(['a', 'b']) }}{{ 'xxaxx'.strip('x') }}{{ 'xxaxx'.lstrip('x') }}{{ 'xa "
        "'.rstrip() }}",
        "a-baaxxxa");
    expect_failure("{{ 'a'.index('b') }}", "index: the string does not contain this part");
    expect_failure("{{ 'a'.rindex('b') }}", "rindex: the string does not contain this part");
    expect_failure("{{ 'a'.split('') }}", "split's separator is empty");
    expect_failure("{{ 'a'.center(5, 'xy') }}", "the fill must be one character");
    expect_failure("{{ 'a'.upper(1) }}", "upper takes at most 0 arguments");
    expect_failure("{{ 'a'.replace('b') }}", "replace needs 2 arguments");
    expect_failure("{{ 'a'.replace(old='b', new='c') }}",
                   "replace does not take the argument 'old'");
    expect_failure("{{ 'a'.split(se=' ') }}", "split does not take the argument 'se'");
    expect_failure("{{ 'a'.split(separator=' ') }}",
                   "split does not take the argument 'separator'");
    expect_shown("{{ 'a b'.rsplit(' ', 1) }}{{ 'a b'.rsplit(' ', 0) }}", "['a', 'b']['a b']");
    expect_shown("{{ 'a b'.rsplit(' ', 9223372036854775807) }}", "['a', 'b']");
    expect_shown("{{ 'ab'.ljust(-9223372036854775807 - 1) }}", "ab");
    expect_failure("{{ 'a b'.split(' ', sep=' ') }}", "split: the argument 'sep' is given twice");
}
END_TEST

START_TEST(string_filters) {
    expect_shown(
        "{{ 'a\\n\\nb'|indent }}|{{ 'a\\n\\nb'|indent(2, true, true) }}|{{ 'a\\nb'|indent('>') }}",
        "a\n\n    b|  a\n  \n  b|a\n>b");
    expect_failure("{{ 'a'|urlize }}", "unknown filter 'urlize'");
    expect_shown("{{ '<&>\"'|e }}", "&lt;&amp;&gt;&#34;");
    expect_shown(
        "{{ ' a '|trim }}{{ 'xax'|trim('x') }}{{ 'aXb'|replace('X', '-') }}{{ 12|string + '3' }}",
        "aaa-b123");
}
END_TEST

START_TEST(json_is_that_of_python) {
    expect_shown("{{ nested|tojson }}",
                 "{\"a\": [1, {\"x\": null}], \"s\": \"q\\\"\xC3\xA9\\u0001\"}");
    expect_shown("{{ nested.s|tojson(ensure_ascii=true) }}{{ '\\U0001F600'|tojson(true) }}",
                 "\"q\\\"\\u00e9\\u0001\"\"\\ud83d\\ude00\"");
    expect_shown("{{ d|tojson(sort_keys=true) }}", "{\"A\": 3, \"b\": 1, \"c\": 2}");
    expect_shown("{{ {'a': [1, 2], 'b': {}}|tojson(indent=2) }}",
                 "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}");
    expect_shown(
        "{{ [1, 2]|tojson(separators=(',', ':')) }}{{ {'a': 1}|tojson(separators=(',', ':')) }}",
        "[1,2]{\"a\":1}");
    expect_shown("{{ [1.5, 1e300, true, none]|tojson }}{{ {1: 2, none: 3}|tojson }}",
                 "[1.5, 1e+300, true, null]{\"1\": 2, \"null\": 3}");
    expect_shown("{{ [1e308 * 10, -1e308 * 10]|tojson }}", "[Infinity, -Infinity]");
    expect_template("{{ n|tojson }} {{ n }} {{ n[3] is integer }} {{ n[3] > 5 }} {{ n[3] + 1 }}",
                    "{\"n\": [-0.0, -0, 9007199254740993, 18446744073709551615, "
                    "-123456789012345678901234567890, 1.0, 1e22]}",
                    "[-0.0, 0, 9007199254740993, 18446744073709551615, "
                    "-123456789012345678901234567890, 1, 1e+22] [-0.0, 0, 9007199254740993, "
                    "18446744073709551615, -123456789012345678901234567890, 1, 1e+22] True True "
                    "1.8446744073709552e+19");
    expect_failure("{{ range|tojson }}", "'function' cannot be written as JSON");
    expect_failure("{{ {(1, 2): 3}|tojson }}", "a key of type 'tuple' cannot be written as JSON");
}
END_TEST

START_TEST(values_print_as_in_python) {
    expect_shown("{{ [none, true, 1.0, 1e16, 1e-5, 123456789.125, 'a\\'b', 'a\"\\'b'] }}",
                 "[None, True, 1.0, 1e+16, 1e-05, 123456789.125, \"a'b\", 'a\"\\'b']");
    expect_shown("{{ ['\\n\\t\\\\\\x7f\\u200b\\U000e0001'] }}",
                 "['\\n\\t\\\\\\x7f\\u200b\\U000e0001']");
    expect_shown("{{ (1,) }}{{ () }}{{ {'a': (1, 2)} }}{{ range(3) }}{{ range(0, 9, 3) }}",
                 "(1,)(){'a': (1, 2)}range(0, 3)range(0, 9, 3)");
    expect_shown("{{ {'a': 1}.keys() }}{{ {'a': 1}.values() }}{{ {'a': 1}.items() }}",
                 "dict_keys(['a'])dict_values([1])dict_items([('a', 1)])");
    expect_shown("{{ 0.1 }} {{ 1e22 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }} {{ -0.0 }}",
                 "0.1 1e+22 5e-324 1.7976931348623157e+308 -0.0");
}
END_TEST

START_TEST(functions_and_loops) {
    expect_shown(
        "{{ range(3)|list }}{{ range(1, 4)|list }}{{ range(5, 0, -2)|list }}{{ range(3, 1)|list }}",
        "[0, 1, 2][1, 2, 3][5, 3, 1][]");
    expect_shown("{{ range(100000)|length }}", "100000");
    expect_failure("{{ range(100001) }}", "a range may have at most 100000 items");
    expect_failure("{{ range(1, 2, 0) }}", "range's step must not be zero");
    expect_shown("{{ dict(a=1, b=2) }}{{ dict([('x', 1)], y=2) }}",
                 "{'a': 1, 'b': 2}{'x': 1, 'y': 2}");
    expect_shown(
        "{% for x in 'abc' %}{{ loop.index }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}"
        "{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('x', 'y') }} {% endfor %}",
        "12TrueFalsebx 21FalseFalseacy 30FalseTruebx ");
    expect_shown("{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}", "TrueFalseTrue");
    expect_shown(
        "{% set n = namespace(a=1) %}{% for x in [1, 2] %}{% set n.a = n.a + x %}{% endfor %}{{ "
        "n.a }}",
        "4");
    expect_failure("{{ dict([1]) }}", "'int' is not iterable");
    expect_failure("{{ joiner() }}", "'joiner' is undefined");
    expect_failure("{{ dict([(1, 2, 3)]) }}", "dict needs pairs of a key and a value");
    expect_failure("{% set n = namespace(_a=1) %}", "must not begin with an underscore");
}
END_TEST

START_TEST(macros_bind_their_arguments) {
    expect_shown(
        "{% macro m(a, b=2, c=b) %}{{ a }}{{ b }}{{ c }} {% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ "
        "m(c=5, a=1) }}",
        "122 133 125 ");
    expect_shown("{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
                 "1(2,){'x': 3}");
    expect_shown("{% macro m(a) %}{{ a is undefined }}{% endmacro %}{{ m() }}", "True");
    expect_shown(
        "{% macro m() %}<{{ caller('x') }}>{% endmacro %}{% call(a) m() %}{{ a }}!{% endcall %}",
        "<x!>");
    expect_shown("{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*[1]) }}{{ m(**{'a': 2}) }}", "12");
    expect_failure("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
                   "a macro takes at most 1 arguments");
    expect_failure("{% macro m(a) %}{% endmacro %}{{ m(b=2) }}",
                   "the macro does not take the argument 'b'");
    expect_failure("{% macro m(a) %}{% endmacro %}{{ m(a=1, a=2) }}",
                   "the argument 'a' is given twice");
}
END_TEST

START_TEST(tests_of_the_operator_is) {
    expect_shown("{{ 1 is odd }}{{ 2 is even }}{{ 6 is divisibleby 3 }}{{ 7 is divisibleby(3) }}",
                 "TrueTrueTrueFalse");
    expect_shown("{{ 1 is lt 2 }}{{ 2 is le 2 }}{{ 2 is ge 3 }}{{ 3 is gt 2 }}{{ 1 is ne 1 }}",
                 "TrueTrueFalseTrueFalse");
    expect_shown("{{ 'a' is lower }}{{ 'A1' is upper }}{{ '1' is lower }}", "TrueTrueFalse");
    expect_shown("{{ 1 is integer }}{{ true is integer }}{{ true is number }}{{ 1.0 is float }}",
                 "TrueFalseTrueTrue");
    expect_shown(
        "{{ [] is sequence }}{{ 'a' is sequence }}{{ 1 is sequence }}{{ {} is mapping }}{{ 1 is "
        "iterable }}",
        "TrueTrueFalseTrueFalse");
    expect_shown("{{ x is defined }}{{ none is none }}{{ x is none }}{{ range is callable }}",
                 "FalseTrueFalseTrue");
    expect_shown(
        "{{ 1 in [1, 2] }}{{ 3 not in [1, 2] }}{{ 'a' in {'a': 1} }}{{ 1 is in [1] }}{{ none is "
        "sameas none }}",
        "TrueTrueTrueTrueTrue");
    expect_failure("{{ 1 is nothing }}", "unknown test 'nothing'");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("text_filters");
    TCase *lists = tcase_create("lists"), *others = tcase_create("others");
    tcase_add_test(lists, sorting_is_stable_and_follows_paths);
    tcase_add_test(lists, choosing_items);
    tcase_add_test(lists, parts_of_lists);
    tcase_add_test(others, numbers_are_read_and_rounded);
    tcase_add_test(others, operators_follow_python);
    tcase_add_test(others, slices_follow_python);
    tcase_add_test(others, strings_have_the_methods_of_python);
    tcase_add_test(others, string_filters);
    tcase_add_test(others, json_is_that_of_python);
    tcase_add_test(others, values_print_as_in_python);
    tcase_add_test(others, functions_and_loops);
    tcase_add_test(others, macros_bind_their_arguments);
    tcase_add_test(others, tests_of_the_operator_is);
    suite_add_tcase(suite, lists);
    suite_add_tcase(suite, others);
    return suite_main(suite);
}
