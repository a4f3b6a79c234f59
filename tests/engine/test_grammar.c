/* Grammars: the texts that each kind accepts, and the message for each refusal. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/grammar.h"
#include "support/suite_main.h"

/* Texts begin with '+' (accepted), '~' (a prefix of an accepted text) or '-' (neither). */
struct example {
    enum grammar_kind kind;
    const char *text;
    const char *texts[12];
};

static void check_example(const struct example *example) {
    struct grammar *grammar;
    struct err err = {0};
    enum status status =
        grammar_compile(example->kind, example->text, strlen(example->text), NULL, &grammar, &err);
    ck_assert_msg(status == STATUS_OK, "%s: %s", example->text, err.message);
    for (const char *const *text = example->texts; *text; text++) {
        bool may_end;
        size_t n = strlen(*text + 1), accepted = grammar_match(grammar, *text + 1, n, &may_end);
        char found = accepted < n ? '-' : may_end ? '+' : '~';
        ck_assert_msg(found == **text, "%s: %s is %c", example->text, *text, found);
    }
    grammar_release(grammar);
}

static const struct example regexes[] = {
    {GRAMMAR_REGEX, "a(b|c)*d", {"+ad", "+abcbcd", "-abx", "~a", "~"}},
    {GRAMMAR_REGEX, "[^a-c]{2,3}x?", {"+\u00e9\u00e9x", "-a", "~z", "+zzz", "+xxxx", "-xxxxx"}},
    {GRAMMAR_REGEX, "^(?i)s[a-c]$", {"+SA", "+sB", "-\u017fb", "-sd"}},
    {GRAMMAR_REGEX, "\\d+\\.\\d{2}|\\pL+", {"+12.34", "-1a", "+\u00c4rger", "~1."}},
    {GRAMMAR_REGEX, "a{2}b{1,}c{0,2}", {"+aab", "+aabbbcc", "-aabccc", "~aa"}},
    {GRAMMAR_REGEX, "\\x41\\x{e9}\\Q.*\\E", {"+A\u00e9.*", "-A\u00e9x"}},
    {GRAMMAR_REGEX, "(?s:.)\\n.", {"+\n\nx", "-x\n\n"}},
    {GRAMMAR_REGEX, "[[:alpha:]-]+[]]", {"+a-Z]", "-1"}},
    {GRAMMAR_REGEX, "(a*)*b", {"+b", "+aaab", "~aaa"}},
    {GRAMMAR_REGEX, "", {"+", "-x"}},
};

START_TEST(regular_expressions_match_as_re2_says) {
    check_example(&regexes[_i]);
}
END_TEST

static const struct example others[] = {
    {GRAMMAR_CHOICE, "[\"yes\",\"no\",\"nope\"]", {"+yes", "+no", "+nope", "-maybe", "~ye"}},
    {GRAMMAR_JSON_OBJECT,
     "",
     {"+{}", "+{\"a\": [1, 2.5e3, {\"b\":null}], \"c\":\"\\u00e9\"}", "-{\"a\":1,}", "-[",
      "+{\"\\ud83d\\ude00\": true}", "-{\"\\ud800\":1}", "~{\"a\"", "-{\"a\":01}", "-{\n\n}"}},
};

START_TEST(choices_and_objects_match) {
    check_example(&others[_i]);
}
END_TEST

static const struct example grammars[] = {
    {GRAMMAR_GBNF,
     "root ::= \"a\" (b | \"c\"+)* # x\nb ::= [^x-z\\n]{2} \"\\n\"",
     {"+a\u00e9\u00e9\nc", "+a", "-ax", "~ab"}},
    {GRAMMAR_GBNF,
     "root ::= root \"+\" t | t\nt ::= [0-9]+ | \"(\" root \")\"",
     {"+1+2+(3+4)", "~1+", "-1+)", "~(((1"}},
    {GRAMMAR_GBNF, "root ::= root root | 'a' | ''", {"+", "+aaaaaaaa", "-b"}},
    {GRAMMAR_GBNF, "root ::= x*\nx ::= \"\\x41\" .", {"+A\u00e9A\n", "~A", "-x"}},
    {GRAMMAR_GBNF,
     "start: expr (\",\" expr)*\n?expr: NAME | INT -> x\n  | \"a\"..\"c\" ~ 2..3\n"
     "%import common.INT\nNAME: /[x-z]+/i",
     {"+XY,12,abc", "~ab,b", "+ab,1"}},
    {GRAMMAR_GBNF, "start: \"No\"i [\"!\"] // either", {"+nO", "+NO!", "-y"}},
    {GRAMMAR_GBNF, "?start: x y\n!x: \"a\"\n?!y: \"b\"", {"+ab", "~a", "-b"}},
};

START_TEST(grammars_match) {
    check_example(&grammars[_i]);
}
END_TEST

#define TAGS                                                                                       \
    "[{\"begin\":\"<f=a>\",\"content\":{\"type\":\"json_schema\",\"json_schema\":{\"type\":"       \
    "\"null\"}},\"end\":\"</f>\"},{\"begin\":\"<f=b>\",\"content\":{\"type\":\"any_text\"},"       \
    "\"end\":[\"</f>\",\"|\"]}]"
#define TAG(format) GRAMMAR_STRUCTURAL_TAG, "{\"type\":\"structural_tag\",\"format\":" format "}"

#define ARGUMENTS(style, texts)                                                                    \
    TAG("{\"type\":\"json_schema\",\"style\":\"" style "\",\"texts\":" texts ",\"json_schema\":{"  \
        "\"type\":\"object\",\"required\":[\"s\",\"n\"],\"properties\":{\"n\":{\"type\":"          \
        "\"integer\"},\"s\":{\"type\":\"string\",\"maxLength\":5},\"f\":{\"items\":{\"type\":["    \
        "\"boolean\",\"null\"]},\"type\":\"array\"},\"k\":{\"enum\":[\"x\",\"y\"]}}}}")
#define X(name, type, value)                                                                       \
    "<|open|>argument key=\"" name "\" type=\"" type "\"<|sep|>" value "<|close|>argument<|sep|>"
#define P(name, value) "<parameter=" name ">\n" value "\n</parameter>\n"

static const struct example tags[] = {
    {TAG("{\"type\":\"triggered_tags\",\"triggers\":[\"<f=\"],\"tags\":" TAGS "}"),
     {"+hi <f <<f=a>null</f> x<f=b><</</f>", "+", "-<f=c", "-<f=a>x", "~<f=b>x", "+<f=b>x|<"}},
    {TAG("{\"type\":\"triggered_tags\",\"triggers\":[\"<f=\"],\"at_least_one\":true,"
         "\"stop_after_first\":true,\"tags\":" TAGS "}"),
     {"+<f=a>null</f>", "-x", "-<f=b>||", "~"}},
    {TAG("{\"type\":\"tags_with_separator\",\"separator\":\", \",\"tags\":" TAGS "}"),
     {"+", "+<f=a>null</f>, <f=b>|", "-<f=b>|<", "~<f=b>|,"}},
    {TAG("{\"type\":\"sequence\",\"elements\":[{\"type\":\"const_string\",\"value\":\"a\"},"
         "{\"type\":\"or\",\"elements\":[{\"type\":\"regex\",\"pattern\":\"x+\"},"
         "{\"type\":\"grammar\",\"grammar\":\"root ::= [0-9]\"}]}]}"),
     {"+axx", "+a7", "-a77", "~a"}},
    {TAG("{\"type\":\"tag\",\"begin\":\"(\",\"end\":\")\",\"content\":{\"type\":\"sequence\","
         "\"elements\":[{\"type\":\"const_string\",\"value\":\"a\"},{\"type\":\"any_text\"}]}}"),
     {"+(abc)", "-(abc)x", "-(b"}},
    {GRAMMAR_STRUCTURAL_TAG,
     "{\"structures\":[{\"begin\":\"<f>\",\"schema\":{\"type\":\"null\"},\"end\":\"</f>\"}],"
     "\"triggers\":[\"<f\"]}",
     {"+x<f>null</f>y", "-<fx", "~<f"}},
    {TAG("{\"type\":\"triggered_tags\",\"triggers\":[\"aab\"],\"tags\":[{\"begin\":\"aab\","
         "\"content\":{\"type\":\"const_string\",\"value\":\"!\"},\"end\":\"\"}]}"),
     {"+aaab!ab", "-aaabx", "+aa"}},
    {TAG("{\"type\":\"any_text\",\"excludes\":[\"ab\",\"c\"],\"not_at_start\":\"\\\\s*x+y\"}"),
     {"+", "+axy", "-ac", "-aab", "- \nxxy", "+xx", "+x x", "-xyz"}},
    {TAG("{\"type\":\"tag\",\"begin\":\"\",\"end\":\"|\",\"content\":{\"type\":\"any_text\","
         "\"excludes\":[\"b\"]}}"),
     {"+aa|", "-a|a", "-b", "~"}},
    {ARGUMENTS("qwen_xml", "[\"s\",\"k\"]"),
     {"+" P("n", "3") P("s", "a\n<b>") P("k", "x"), "-" P("n", "\"3\"") P("s", "a"), "~",
      "+" P("n", "3") P("s", ""), "-" P("s", "a"), "-" P("n", "3") P("s", "</parameter>"),
      "+" P("n", "3") P("s", "\"") P("f", "[true, null]"), "-" P("n", "3") P("s", "abcdef"),
      "-" P("n", "3") P("s", "a") P("k", "z")}},
    {TAG("{\"type\":\"json_schema\",\"style\":\"qwen_xml\",\"texts\":[\"s\"],\"json_schema\":{"
         "\"properties\":{\"s\":{\"type\":\"string\"}},\"required\":[\"s\"]}}"),
     {"+" P("s", "a <parameter=s>"), "-" P("s", "a</parameter>b")}},
    /* Python's words, for a value that may have the type and cannot be a text */
    {TAG("{\"type\":\"json_schema\",\"style\":\"qwen_xml\",\"json_schema\":{\"properties\":{"
         "\"b\":{\"type\":\"boolean\",\"title\":\"B\"},\"z\":{\"anyOf\":[{\"type\":\"integer\"},{"
         "\"type\":\"null\"}]},\"t\":{\"type\":[\"boolean\",\"string\"]},\"c\":{\"const\":true},"
         "\"l\":{\"type\":\"array\"}}}}"),
     {"+" P("b", "True") P("z", "None"), "+" P("b", "false") P("z", "null"), "-" P("b", "TRUE"),
      "+" P("z", "3"), "-" P("z", "True"), "-" P("b", "None"), "-" P("t", "True"),
      "-" P("c", "True"), "-" P("l", "[True]")}},
    {ARGUMENTS("glm_xml", "[\"s\",\"k\"]"),
     {"+<arg_key>n</arg_key>\n<arg_value>3</arg_value>\n<arg_key>s</arg_key>\n<arg_value>a"
      "</arg_value>\n",
      "-<arg_key>s"}},
    {ARGUMENTS("xtml", "[]"),
     {"+" X("n", "number", "3") X("s", "string", "a\n\"<"),
      "-" X("n", "number", "3") "<|open|>argument key=\"s\" type=\"nu", "-" X("n", "string", "3"),
      "-" X("n", "number", "3") X("s", "string", "abcdef"),
      "+" X("n", "number", "3") X("s", "string", "") X("f", "array", "[true, null]")
          X("k", "string", "x"),
      "-" X("n", "number", "3") X("s", "string", "a") X("k", "string", "z")}},
    /* a choice between a text and other types, and names that are escaped */
    {TAG("{\"type\":\"json_schema\",\"style\":\"xtml\",\"json_schema\":{\"properties\":{\"a&\\\"\":"
         "{"
         "\"anyOf\":[{\"type\":\"string\",\"maxLength\":2},{\"type\":\"null\"},{\"minimum\":5,"
         "\"type\":"
         "\"integer\"},{\"const\":\"long\"}]},\"b\":{\"type\":\"string\",\"nullable\":true}}}}"),
     {"+" X("a&amp;&quot;", "null", "null"), "+" X("a&amp;&quot;", "string", "ab"),
      "+" X("a&amp;&quot;", "string", "long"), "-" X("a&amp;&quot;", "string", "abc"),
      "+" X("a&amp;&quot;", "number", "7"), "-" X("a&amp;&quot;", "number", "4"),
      "+" X("b", "null", "null"), "+" X("b", "string", "null"), "-" X("b", "number", "1"), "+"}},
    {ARGUMENTS("seed_xml", "[\"s\",\"k\"]"),
     {"+<parameter=n>3</parameter>\n<parameter=s>\na</parameter>\n<parameter=f>[True, None]"
      "</parameter>\n",
      "-<parameter=n>3</parameter>\n<parameter=s>a</parameter>\n<parameter=f>[true",
      "-<parameter=n>\n3"}},
    {ARGUMENTS("python", "[]"),
     {"+n=3, s=\"a\"", "-n=3,s", "-n=3, f", "+n=3, s=\"\\n\", f=[True, None], k=\"y\"",
      "+n=3, s='a\"', k='y'", "-n=3, s='a'b'", "-n=3, s=\"a\", f=[true", "~n=3",
      "-n=3, s=\"abcdef\"", "-n=3, s='abcdef'"}},
    {TAG("{\"type\":\"json_schema\",\"style\":\"seed_xml\",\"texts\":[],\"json_schema\":{"
         "\"properties\":{\"l\":{\"type\":\"array\"}}}}"),
     {"+<parameter=l>['a', \"b\", None, {'k': True}]</parameter>\n"}},
    {ARGUMENTS("gemma", "[]"),
     {"+n:3,s:<|\"|>a'\"<|\"|>", "+n:3,s:<|\"|>a<|\"|>,f:[true,null],k:<|\"|>y<|\"|>", "-n:3,s:a",
      "-n:3,s:\"a\"", "-n:3,s:<|\"|>abcdef", "-n:3,s:<|\"|>a<|\"|>,k:<|\"|>z<|\"|>"}},
    {TAG("{\"type\":\"json_schema\",\"style\":\"gemma\",\"texts\":[],\"json_schema\":{"
         "\"properties\":{\"o\":{\"type\":\"object\"}}}}"),
     {"+o:{k:<|\"|>v<|\"|>,l:[1,{}]}", "-o:{\"k\":1}"}},
    {ARGUMENTS("functiongemma", "[]"),
     {"+n:3,s:<escape>a'\"<escape>", "+n:3,s:<escape>a<escape>,f:[true,null],k:<escape>y<escape>",
      "-n:3,s:a", "-n:3,s:<|\"|>a", "-n:3,s:<escape>abcdef",
      "-n:3,s:<escape>a<escape>,k:<escape>z"}},
    {TAG("{\"type\":\"json_schema\",\"style\":\"functiongemma\",\"json_schema\":{"
         "\"properties\":{\"s\":{\"type\":\"string\"}}}}"),
     {"+s:<escape>a <b> c<escape>", "-s:<escape>a<escape>b", "~s:<escape>a<|"}},
    {ARGUMENTS("step_xml", "[\"s\",\"k\"]"),
     {"+<steptml:parameter name=\"n\">3</steptml:parameter>\n<steptml:parameter name=\"s\">a<b"
      "</steptml:parameter>",
      "-<steptml:parameter name=\"s\"", "-<steptml:parameter name=\"n\">\"3"}},
    {ARGUMENTS("solar", "[\"s\",\"k\"]"),
     {"+<|tool_arg:start|>n<|tool_arg:value|>3<|tool_arg:end|>\n<|tool_arg:start|>s<|tool_arg:"
      "value|>"
      "a<|<|tool_arg:end|>\n",
      "-<|tool_arg:start|>s", "-<|tool_arg:start|>n<|tool_arg:value|>\"3"}},
    {ARGUMENTS("hunyuan3_xml", "[\"s\",\"k\"]"),
     {"+<arg_key:opensource>n</arg_key:opensource>\n<arg_value:opensource>3</"
      "arg_value:opensource>\n"
      "<arg_key:opensource>s</arg_key:opensource><arg_value:opensource>a</a"
      "</arg_value:opensource>",
      "-<arg_key>"}},
    {ARGUMENTS("hunyuan4_xml", "[\"s\",\"k\"]"),
     {"+<arg_key:6124c78e>n</arg_key:6124c78e>\n<arg_value:6124c78e>3</arg_value:6124c78e>\n"
      "<arg_key:6124c78e>s</arg_key:6124c78e><arg_value:6124c78e>a</arg_value:6124c78e>",
      "-<arg_key:o"}},
    /* here a text might begin with a quote */
    {TAG("{\"type\":\"json_schema\",\"style\":\"seed_xml\",\"texts\":[],\"json_schema\":{"
         "\"properties\":{\"l\":{\"type\":[\"string\",\"null\"]}}}}"),
     {"-<parameter=l>'a'", "+<parameter=l>\"a\"</parameter>\n"}},
};

START_TEST(structural_tags_match) {
    check_example(&tags[_i]);
}
END_TEST

#define S(schema) GRAMMAR_JSON_SCHEMA, schema
static const struct example schemas[] = {
    {S("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":"
       "\"integer\","
       "\"minimum\":3,\"maximum\":120},\"c\":{\"enum\":[\"x\",3]}},\"required\":[\"b\"],"
       "\"additionalProperties\":false}"),
     {"+{\"a\":\"hi\",\"b\":5}", "+{\"b\":120,\"c\":\"x\"}", "-{\"b\":121}", "-{\"b\":2}",
      "-{\"c\"", "-{\"b\":3,\"a\"", "+{\"b\":3,\"c\":3}", "-{}", "+{ \"b\": 3 }", "~{\"b\":12"}},
    {S("{\"properties\":{\"a\":{\"type\":\"string\"}},\"additionalProperties\":true}"),
     {"+{\"a\":\"hi\",\"b\":5}", "+{\"ab\":3,\"\":1}", "-{\"a\":1}", "+3", "-{\"b\":1,\"a\"",
      "-{\"\\u0061\"", "+{}"}},
    {S("{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{"
       "\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1.5},\"n\":{\"anyOf\":[{\"$ref\":"
       "\"#/$defs/n\"},{\"type\":\"null\"}]}},\"required\":[\"v\",\"n\"],"
       "\"additionalProperties\":false}}}"),
     {"+{\"v\":1.2,\"n\":{\"v\":0.01,\"n\":null}}", "-{\"v\":0,", "+{\"v\":1.50,\"n\":null}",
      "-{\"v\":1.51", "-{\"v\":-", "-{\"v\":1}"}},
    {S("{\"type\":\"string\",\"pattern\":\"^a+$\",\"maxLength\":3}"),
     {"+\"aa\"", "-\"aaaa", "-\"b\"", "-\"\""}},
    {S("{\"type\":\"string\",\"pattern\":\"x\"}"), {"+\"axb\"", "+\"\\\"x\"", "-\"ab\""}},
    /* only some alternatives have an anchor */
    {S("{\"type\":\"string\",\"pattern\":\"(^a|^b|c)\"}"),
     {"+\"ax\"", "+\"bx\"", "+\"xcx\"", "-\"xa\"", "-\"\"", "+\"xac\""}},
    {S("{\"type\":\"string\",\"pattern\":\"^([^,]|$)\"}"), {"+\"\"", "+\"a,\"", "-\",a", "-\",\""}},
    {S("{\"type\":\"string\",\"pattern\":\"^(a+$|%b)\"}"),
     {"+\"aa\"", "+\"%bx\"", "-\"ab", "-\"x", "-\"\""}},
    {S("{\"type\":\"string\",\"pattern\":\"(?:^|\\n)a(?:$|;)\"}"),
     {"+\"a\"", "+\"x\\na\"", "+\"a;x\"", "+\"x\\na;x\"", "-\"xa\"", "-\"ax\"", "-\"x\\nax\""}},
    {S("{\"type\":\"string\",\"pattern\":\"((^a|b)|c)d?\"}"), {"+\"ax\"", "+\"xbx\"", "-\"xa\""}},
    {S("{\"type\":\"string\",\"minLength\":1,\"maxLength\":2}"),
     {"+\"\u00e9\u00e9\"", "-\"\"", "-\"abc", "+\"\\ud83d\\ude00x\""}},
    {S("{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":2,\"maxItems\":3}"),
     {"+[true,false]", "-[true]", "+[true, true,true]", "-[true,true,true,"}},
    {S("{\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"null\"}],\"items\":false}"),
     {"+[]", "+[1]", "+[1,null]", "-[1,null,", "-[null", "+{\"x\":1}"}},
    {S("{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"minimum\":2}}},{\"properties\":"
       "{\"a\":{\"type\":\"integer\",\"maximum\":3}},\"required\":[\"a\"]}]}"),
     {"+{\"a\":2}", "+{\"a\":3}", "-{\"a\":4}", "-{\"a\":1}", "-{}"}},
    {S("{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"x\"}},\"required\":"
       "[\"k\"]},{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"y\"},\"v\":{\"type\":"
       "\"null\"}},\"required\":[\"k\"],\"additionalProperties\":false}]}"),
     {"+{\"k\":\"x\"}", "+{\"k\":\"y\",\"v\":null}", "-{\"k\":\"y\",\"v\":1",
      "-{\"k\":\"x\",\"v\":1}"}},
    {S("{\"type\":\"object\",\"patternProperties\":{\"^n\":{\"type\":\"null\"}},"
       "\"additionalProperties\":{\"type\":\"integer\"},\"properties\":{\"name\":{}}}"),
     {"+{\"name\":null,\"nx\":null,\"m\":1}", "-{\"nx\":1", "-{\"m\":null", "-{\"name\":1"}},
    {S("{\"type\":\"integer\",\"multipleOf\":7}"), {"+0", "+14", "+-21", "-01", "~1", "+147"}},
    {S("{\"type\":\"number\",\"multipleOf\":0.25,\"maximum\":8}"),
     {"+0.25", "+7.750", "+-1.5", "-8.25", "+3", "-0.3", "-0.26", "+0.0"}},
    {S("{\"type\":\"number\",\"multipleOf\":3}"), {"+3", "+3.0", "-4.0", "-3.1", "~3."}},
    {S("{\"type\":\"object\",\"additionalProperties\":{\"type\":\"null\"},\"minProperties\":1,"
       "\"maxProperties\":2}"),
     {"-{}", "+{\"a\":null}", "+{\"a\":null,\"b\":null}", "-{\"a\":null,\"b\":null,"}},
    {S("{\"type\":\"object\",\"properties\":{\"a\":true,\"b\":true,\"c\":true},\"required\":[\"b\"]"
       ","
       "\"additionalProperties\":false,\"minProperties\":2,\"maxProperties\":2}"),
     {"-{\"b\":1}", "+{\"a\":1,\"b\":1}", "+{\"b\":1,\"c\":1}", "-{\"a\":1,\"c\"",
      "-{\"a\":1,\"b\":1,"}},
    {S("{\"type\":\"object\",\"properties\":{\"a\":true,\"b\":true},\"minProperties\":2,"
       "\"additionalProperties\":true}"),
     {"+{\"a\":1,\"b\":1}", "+{\"a\":1,\"c\":1,\"c\":1}", "-{\"a\":1}", "-{\"c\":1",
      "~{\"b\":1,\"x"}},
    {S("{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"x\",\"y\"]},\"additionalProperties\":"
       "{\"type\":\"null\"}}"),
     {"+{}", "+{\"x\":null,\"y\":null}", "-{\"x\":null,\"x\"", "-{\"z", "-{\"x\":1"}},
    {S("{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-c]\",\"maxLength\":3}}"),
     {"+{\"abc\":1}", "-{\"d", "-{\"abcd", "+{}", "-{\"\""}},
    {S("{\"type\":\"object\",\"additionalProperties\":{\"type\":\"null\"},\"properties\":{"
       "\"\u00e9\":"
       "{\"const\":1}}}"),
     {"+{\"\\u00e8\":null}", "-{\"\\u00e9\":null", "+{\"\\u00e9\":1}", "+{\"\u00e9\":1}"}},
    {S("{\"type\":\"string\",\"pattern\":\"^[a\u00e9]+$\",\"minLength\":2,\"maxLength\":600}"),
     {"+\"a\u00e9\"", "-\"a\"", "-\"\\u0061"}},
    {S("{\"type\":\"string\",\"pattern\":\"^\\\\s\\\\S\\\\cJ\\\\p{Lowercase_Letter}$\"}"),
     {"+\"\u00a0x\\n\u00e9\"", "-\"x", "-\" \u2003"}},
    {S("{\"type\":\"string\",\"format\":\"date\",\"maxLength\":600}"),
     {"+\"2024-02-29\"", "-\"h", "-\"2023-02-29"}},
    {S("{\"type\":\"string\",\"format\":\"uri\",\"maxLength\":2083,\"minLength\":1}"),
     {"+\"https://a.b:80/c%20d?e=/?#f\"", "+\"a:b\"", "-\"1a:", "-\"http://a/%2g"}},
    {S("{\"const\":{\"a\":[1,\"\u00e9\"]}}"),
     {"+{\"a\":[1,\"\u00e9\"]}", "+{\"a\": [1, \"\\u00E9\"]}", "-{\"a\":[1,\"e"}},
    {S("{\"type\":[\"null\",\"boolean\"]}"), {"+null", "+true", "-1"}},
    {S("{\"properties\":{\"a\":{\"properties\":{\"b\":{}}}},\"required\":[\"c\"]}"),
     {"+{\"a\":{\"b\":1},\"c\":2}", "-{\"a\":{\"d", "-{\"a\":{},\"d", "+{\"a\":{},\"c\":{\"d\":1}}",
      "+5"}},
    {S("{\"type\":\"object\",\"properties\":{}}"), {"+{}", "-{\"a"}},
    {S("{\"type\":\"object\"}"), {"+{\"a\":1}"}},
    {S("{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":true}},{\"properties\":{\"b\":true},"
       "\"patternProperties\":{\"^x\":{\"type\":\"null\"}}}]}"),
     {"+{\"a\":1,\"b\":2,\"x\":null}", "-{\"c", "-{\"x\":1"}},
    {S("{\"type\":\"object\",\"properties\":{\"a\":true},\"minProperties\":2}"),
     {"+{\"a\":1,\"c\":1}", "-{\"a\":1}"}},
    {S("{\"properties\":{\"a\":{\"const\":{\"b\":1}},\"c\":{}}}"),
     {"+{\n  \"a\": {\n\t\"b\": 1}, \"c\": [1, {\"d\": 2}]\n}", "-{\"a\" ", "-{  ",
      "-{\"a\":  ", "-{\"a\": {\"b\" ", "-{\"c\": {\"d\" ", "-{\n\n", "-{\t"}},
    {S("true"), {"+[1,{}]", "-x"}},
    {S("{\"type\":\"null\",\"x-order\":1,\"enumNames\":[],\"typo\":{\"type\":5},\"optional\":"
       "true}"),
     {"+null", "-1"}},
    {S("{\"id\":\"a\",\"type\":\"integer\",\"minimum\":3,\"exclusiveMinimum\":true,\"maximum\":5,"
       "\"exclusiveMaximum\":false}"),
     {"+4", "+5", "-3", "-6"}},
    {S("{\"type\":\"string\",\"maxLength\":null,\"enum\":null,\"pattern\":null,\"const\":\"a\"}"),
     {"+\"a\"", "-\"b"}},
    {S("{\"const\":null,\"not\":null}"), {"+null", "-1"}},
    {S("{\"type\":\"integer\",\"maximum\":9223372036854775807,\"minimum\":-1."
       "7976931348623157e308}"),
     {"+9223372036854775807", "-9223372036854775808", "+-123456789012345678901234567890"}},
    {S("{\"type\":\"string\",\"maxLength\":18446744073709551615}"), {"+\"abc\"", "-1"}},
    {S("{\"type\":\"number\",\"maximum\":1.7976931348623157e308}"), {"+1e5", "+2", "-x"}},
    {S("{\"type\":\"string\",\"maxLength\":1,\"nullable\":true}"),
     {"+\"a\"", "+null", "-1", "-\"ab"}},
    {S("{\"enum\":[\"a\"],\"nullable\":true}"), {"+\"a\"", "+null", "-1"}},
    {S("{\"allOf\":[{\"$ref\":\"#/$defs/"
       "d\"}],\"nullable\":true,\"$defs\":{\"d\":{\"type\":\"integer\"}}}"),
     {"+5", "+null", "-\"", "-true"}},
    {S("{\"allOf\":[{\"type\":[\"integer\",\"null\"],\"nullable\":true},{\"type\":\"integer\"}]}"),
     {"+5", "-null"}},
    {S("{\"type\":\"string\",\"format\":\"regex\"}"), {"+\"a\"", "-1"}},
    {S("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"bb\":{\"type\":\"null\"}},"
       "\"additionalProperties\":false,\"not\":{\"propertyNames\":{\"maxLength\":1}}}"),
     {"+{\"bb\":null}", "+{\"a\":null,\"bb\":null}", "-{}", "-{\"a\":null}"}},
    {S("{\"type\":\"array\",\"not\":{\"prefixItems\":[true,{\"type\":\"null\"}]}}"),
     {"+[1,2]", "+[null,2,null]", "-[]", "-[1]", "-[1,null]"}},
    /* each part of allOf counts, also if the schema only decides about listed values */
    {S("{\"enum\":[1,\"a\",\"bb\"],\"allOf\":[{\"type\":\"string\"},{\"maxLength\":1}]}"),
     {"+\"a\"", "-1", "-\"bb"}},
    {S("{\"enum\":[1,\"a\",\"bb\"],\"not\":{\"allOf\":[{\"type\":\"string\"},{\"maxLength\":1}]}}"),
     {"+1", "-\"a", "+\"bb\""}},
};

START_TEST(schemas_accept_what_is_valid) {
    check_example(&schemas[_i]);
}
END_TEST

START_TEST(open_objects_may_have_other_properties) {
    static const char schema[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"properties\":{}}}}";
    static const char text[] = "{\"a\":{\"c\":1},\"b\":1}";
    for (int open = 0; open < 2; open++) {
        const struct grammar_limits limits = {.open_objects = open};
        struct grammar *grammar;
        bool may_end;
        ck_assert(!grammar_compile(S(schema), sizeof schema - 1, &limits, &grammar, NULL));
        size_t accepted = grammar_match(grammar, text, sizeof text - 1, &may_end);
        ck_assert_int_eq(accepted == sizeof text - 1 && may_end, open);
        grammar_release(grammar);
    }
}
END_TEST

static const struct {
    const char *format, *texts[8];
} formats[] = {
    {"date", {"+2024-02-29", "-2023-02-29", "-2100-02-29", "+2000-02-29", "-2024-04-31", "-0000-"}},
    {"time", {"+12:00:00Z", "+23:59:59.5-01:00", "-24", "~12:00:00"}},
    {"date-time",
     {"+2024-02-28T23:59:59Z", "-2024-02-28 ", "+2024-02-28T23:59:59.123456789Z",
      "-2024-02-28T23:59:59.Z"}},
    {"duration", {"+P1DT2H", "+P3W", "+PT5M1S", "~P", "~P1DT"}},
    {"email", {"+a.b@c.org", "~a@", "-@"}},
    {"hostname", {"+example.org", "-.a", "~a-"}},
    {"ipv4", {"+1.22.255.0", "-256", "-01"}},
    {"ipv6", {"+::1", "+1:2:3:4:5:6:7:8", "+::ffff:1.2.3.4", "+1::", "-1::2::"}},
    {"uuid", {"+123e4567-e89b-12d3-a456-426614174000", "-123e4567e"}},
    {"uri", {"+https://a.b/c?d=e#f", "+urn:x", "-//a", "+http://u:%40@a/"}},
    {"uri", {"+file:///etc/hosts", "+http:", "+a://", "+a:/x", "-a:///["}},
    {"uuid4",
     {"+123e4567-e89b-42d3-a456-426614174000", "-123e4567-e89b-1", "-123e4567-e89b-42d3-c"}},
    {"ipvanyaddress", {"+1.2.3.4", "+::1", "-1.2.3.x"}},
    {"ipv4network", {"+10.0.0.0/8", "-10.0.0.0/33"}},
    {"base64", {"+YWI=", "+", "-YWJ=", "-Y="}},
    {"password", {"+\u00e9 *", "~x"}},
};

START_TEST(formats_are_enforced) {
    char schema[100];
    snprintf(schema, sizeof schema, "{\"type\":\"string\",\"format\":\"%s\"}", formats[_i].format);
    struct example example = {.kind = GRAMMAR_JSON_SCHEMA, .text = schema};
    char texts[8][64];
    for (int i = 0; formats[_i].texts[i]; i++) {
        const char *text = formats[_i].texts[i];
        bool closes = *text == '+';
        snprintf(texts[i], sizeof texts[i], "%c\"%s%s", *text, text + 1, closes ? "\"" : "");
        example.texts[i] = texts[i];
    }
    check_example(&example);
}
END_TEST

static const struct {
    enum grammar_kind kind;
    const char *text, *words;
} refused[] = {
    {GRAMMAR_REGEX, "((?=a)b)*", "a lookaround"},
    {GRAMMAR_REGEX, "(?<!a)b", "a lookaround"},
    {GRAMMAR_REGEX, "(a)\\1", "a backreference"},
    {GRAMMAR_REGEX, "\\bx", "a word boundary"},
    {GRAMMAR_REGEX, "a**", "a repetition of a repetition"},
    {GRAMMAR_REGEX, "*a", "a repetition of nothing at byte 0"},
    {GRAMMAR_REGEX, "(a", "a '(' without its ')' at byte 0"},
    {GRAMMAR_REGEX, "a)", "a ')' without its '(' at byte 1"},
    {GRAMMAR_REGEX, "[a", "a '[' without its ']'"},
    {GRAMMAR_REGEX, "[z-a]", "a range whose end is before its beginning"},
    {GRAMMAR_REGEX, "a\xff", "a byte that is not UTF-8 at byte 1"},
    {GRAMMAR_REGEX, "a$b", "an anchor inside it"},
    {GRAMMAR_REGEX, "\\p{Klingon}", "an unknown Unicode property"},
    {GRAMMAR_REGEX, "a\\p", "an unknown Unicode property"},
    {GRAMMAR_REGEX, "(a?){60000}", "more than 100000 states"},
    {GRAMMAR_REGEX, "[^\\x00-\\x{10ffff}]", "Nothing can match"},
    {GRAMMAR_CHOICE, "[]", "at least one string"},
    {GRAMMAR_CHOICE, "[\"a\",1]", "at /1 is a number"},
    {GRAMMAR_GBNF, "root ::= foo", "the name of an undefined rule at line 1, column 10"},
    {GRAMMAR_GBNF, "x ::= \"a\"", "lacks its start rule \"root\""},
    {GRAMMAR_GBNF, "root ::= \"a\nx ::= \"b\"", "a text in quotes without its end at line 1"},
    {GRAMMAR_GBNF, "root ::= (\"a\"", "a '(' without its ')'"},
    {GRAMMAR_GBNF, "root ::= x\nx ::= x \"a\"", "Nothing can match"},
    {GRAMMAR_GBNF, "root ::= \"a\"{3,2}", "an invalid count of repetitions"},
    {GRAMMAR_GBNF, "root ::= \"a\"\nroot ::= \"b\"", "a rule that is defined twice at line 2"},
    {GRAMMAR_GBNF, "start: \"a\"\n%ignore \" \"", "a directive that is not served"},
    {GRAMMAR_GBNF, "start: x{y}", "a template"},
    {GRAMMAR_STRUCTURAL_TAG, "{}", "needs an object \"format\""},
    {TAG("{\"type\":\"magic\"}"), "at \"/format/type\" is not a served format"},
    {TAG("{\"type\":\"any_text\",\"x\":1}"), "\"/format/x\" is a field that is not served"},
    {TAG("{\"type\":\"triggered_tags\",\"triggers\":[\"<g\"],\"tags\":" TAGS "}"),
     "does not begin with any of the triggers"},
    {S("{\"$schema\":\"http://a/b\"}"), "must be the name of a draft"},
    {S("{\"type\":\"number\",\"multipleOf\":0.12345}"), "it may be at most 2000"},
    {S("{\"type\":\"object\",\"propertyNames\":{\"maxLength\":1},\"required\":[\"ab\"]}"),
     "Nothing can match"},
    {S("{\"type\":\"object\",\"minProperties\":2,\"maxProperties\":1}"), "Nothing can match"},
    {S("{\"type\":\"object\",\"properties\":{\"a\":true},\"minProperties\":3}"),
     "at \"/minProperties\" cannot be enforced"},
    {S("{\"additonalProperties\":false}"), "if you mean \"additionalProperties\", write it so"},
    {S("{\"min_length\":1}"), "if you mean \"minLength\""},
    {S("{\"anyof\":[true]}"), "if you mean \"anyOf\""},
    {S("{\"requierd\":[\"a\"]}"), "if you mean \"required\""},
    {S("{\"exclusiveMinimum\":\"5\"}"), "must be a number, or true or false"},
    {S("{\"nullable\":1}"), "must be true or false"},
    {S("{\"properties\":{\"a/b\":{\"unevaluatedItems\":5}}}"),
     "at \"/properties/a~1b/unevaluatedItems\" must be a schema"},
    {S("{\"$recursiveRef\":\"#\"}"), "is a keyword that is not enforced"},
    {S("{\"$ref\":\"#\"}"), "refers to itself"},
    {S("{\"$ref\":\"#/x\"}"), "which is not a schema"},
    {S("{\"$ref\":\"http://a/b\"}"), "only places in this schema"},
    {S("{\"type\":\"text\"}"), "must be one of null, boolean"},
    {S("{\"minLength\":-1}"), "at \"/minLength\" must be a whole number"},
    {GRAMMAR_JSON_SCHEMA_STRICT, "{\"type\":\"string\",\"format\":\"regex\"}",
     "is not an enforced format"},
    {S("{\"type\":\"string\",\"pattern\":\"(?<=a)\"}"), "The pattern at /pattern has a lookaround"},
    {S("{\"type\":\"string\",\"enum\":[1]}"), "Nothing can match"},
    {S("{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}"), "Nothing can match"},
    {S("{\"required\":[\"a\"],\"type\":\"object\",\"additionalProperties\":false}"),
     "Nothing can match"},
    {S("false"), "Nothing can match"},
    {S("[]"), "must be a schema"},
    {S("{"), "is not valid JSON"},
};

START_TEST(what_cannot_be_enforced_is_refused_by_name) {
    struct grammar *grammar;
    struct err err = {0};
    enum status status = grammar_compile(refused[_i].kind, refused[_i].text,
                                         strlen(refused[_i].text), NULL, &grammar, &err);
    ck_assert_msg(status == STATUS_INVALID_REQUEST, "%s", refused[_i].text);
    ck_assert_msg(strstr(err.message, refused[_i].words), "%s: %s", refused[_i].text, err.message);
}
END_TEST

#define COUNT(table) (int)(sizeof(table) / sizeof *(table))

/* A regular expression with many states: the flag is read before they are made. */
START_TEST(a_cancelled_compilation_stops) {
    static const char text[] = "(?:a|b)*a(?:a|b){10}";
    atomic_bool cancelled = true;
    const struct grammar_limits limits = {.max_ms = 100000, .cancelled = &cancelled};
    struct grammar *grammar = NULL;
    struct search *search;
    struct err err = {0};
    ck_assert_int_eq(grammar_compile(GRAMMAR_REGEX, text, strlen(text), &limits, &grammar, &err),
                     STATUS_CANCELLED);
    ck_assert(!grammar && err.message[0]);
    ck_assert_int_eq(search_compile(text, strlen(text), &limits, &search, &err), STATUS_CANCELLED);
    ck_assert_ptr_null(search);
    cancelled = false;
    ck_assert_int_eq(grammar_compile(GRAMMAR_REGEX, text, strlen(text), &limits, &grammar, &err),
                     STATUS_OK);
    grammar_release(grammar);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("grammar");
    TCase *cases = tcase_create("examples");
    tcase_add_loop_test(cases, regular_expressions_match_as_re2_says, 0, COUNT(regexes));
    tcase_add_loop_test(cases, choices_and_objects_match, 0, COUNT(others));
    tcase_add_loop_test(cases, grammars_match, 0, COUNT(grammars));
    tcase_add_loop_test(cases, structural_tags_match, 0, COUNT(tags));
    tcase_add_loop_test(cases, schemas_accept_what_is_valid, 0, COUNT(schemas));
    tcase_add_test(cases, open_objects_may_have_other_properties);
    tcase_add_loop_test(cases, formats_are_enforced, 0, COUNT(formats));
    tcase_add_loop_test(cases, what_cannot_be_enforced_is_refused_by_name, 0, COUNT(refused));
    tcase_add_test(cases, a_cancelled_compilation_stops);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
