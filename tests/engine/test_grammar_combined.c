/* Keywords of JSON Schema that constrain other keywords: not, oneOf, if, dependents, contains,
 * uniqueItems, any keyword beside enum. Each is exact: a text is accepted if the schema says so,
 * and a schema for which that cannot be decided is refused. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/grammar.h"
#include "support/suite_main.h"

/* Texts begin with '+' (accepted) or '-' (not accepted). */
struct example {
    const char *schema;
    const char *texts[12];
};

static void check_example(const struct example *example) {
    const struct grammar_limits limits = {.open_objects = true};
    struct grammar *grammar;
    struct err err = {0};
    enum status status = grammar_compile(GRAMMAR_JSON_SCHEMA, example->schema,
                                         strlen(example->schema), &limits, &grammar, &err);
    ck_assert_msg(status == STATUS_OK, "%s: %s", example->schema, err.message);
    for (const char *const *text = example->texts; *text; text++) {
        bool may_end;
        size_t n = strlen(*text + 1), accepted = grammar_match(grammar, *text + 1, n, &may_end);
        char found = accepted == n && may_end ? '+' : '-';
        ck_assert_msg(found == **text, "%s: %s is %c", example->schema, *text, found);
    }
    grammar_release(grammar);
}

#define NAMED(name) "\"type\":\"object\",\"properties\":{" name "}"
#define A_B NAMED("\"a\":{},\"b\":{}")

static const struct example listed[] = {
    {"{\"enum\":[\"ab\",\"b\",1,20,1.5],\"pattern\":\"^a\",\"minimum\":2}",
     {"+\"ab\"", "+20", "-\"b\"", "-1", "-1.5"}},
    {"{\"enum\":[1,2,3,4,6],\"multipleOf\":2,\"not\":{\"const\":4}}", {"+2", "+6", "-1", "-4"}},
    {"{\"enum\":[1,2,3,4],\"anyOf\":[{\"maximum\":1},{\"minimum\":4}]}", {"+1", "+4", "-2"}},
    {"{\"enum\":[1,2,3],\"oneOf\":[{\"maximum\":2},{\"minimum\":2}]}", {"+1", "+3", "-2"}},
    {"{\"enum\":[[1],[1,1],[],[\"a\"]],\"uniqueItems\":true,\"items\":{\"type\":\"integer\"}}",
     {"+[1]", "+[]", "-[1,1]", "-[\"a\"]"}},
    {"{\"enum\":[\"1.2.3.4\",\"x\"],\"format\":\"ipv4\"}", {"+\"1.2.3.4\"", "-\"x\""}},
    {"{\"enum\":[0.3,0.35],\"multipleOf\":0.1}", {"+0.3", "-0.35"}},
    {"{\"enum\":[\"\u00e9\u00e9\",\"\u00e9\"],\"minLength\":2}",
     {"+\"\u00e9\u00e9\"", "-\"\u00e9\""}},
    {"{\"enum\":[{\"a\":1},{\"a\":2,\"b\":1},{}],\"dependentRequired\":{\"a\":[\"b\"]}}",
     {"+{\"a\":2,\"b\":1}", "+{}", "-{\"a\":1}"}},
    {"{\"enum\":[{\"a\":1},{\"b\":1}],\"properties\":{\"a\":{\"type\":\"string\"}},"
     "\"propertyNames\":{\"maxLength\":1}}",
     {"+{\"b\":1}", "-{\"a\":1}"}},
    {"{\"enum\":[5,\"5\",null],\"type\":\"string\",\"nullable\":true}", {"+\"5\"", "+null", "-5"}},
};

static const struct example negated[] = {
    {"{\"type\":\"string\",\"not\":{\"pattern\":\"^a\"}}",
     {"+\"b\"", "+\"\"", "+\"\u00e9\\n\\\"\"", "-\"a\"", "-\"ab\""}},
    {"{\"not\":{\"type\":\"string\"}}", {"+1", "+null", "+{}", "-\"a\""}},
    /* texts that only some readers take as of the format are in neither */
    {"{\"type\":\"string\",\"not\":{\"format\":\"uri\"}}",
     {"+\"a\"", "+\"\"", "+\"/a:b\"", "-\"http://a\"", "-\"a: \"", "-\"http://a b\""}},
    {"{\"type\":\"string\",\"oneOf\":[{\"format\":\"hostname\"},{\"format\":\"uri\"}]}",
     {"+\"a.b\"", "+\"http://a\"", "+\"a:b\"", "-\"a b\"", "-\"a..b\""}},
    {"{\"type\":\"string\",\"not\":{\"anyOf\":[{\"format\":\"date-time\"},{\"format\":\"email\"},"
     "{\"format\":\"duration\"},{\"format\":\"time\"}]}}",
     {"+\"2020-01-01\"", "-\"2020-01-01T00:00:00Z\"", "-\"2020-01-01 00:00\"", "-\"a@b\"",
      "-\"P1D\"", "-\"12:00\"", "+\"Q\""}},
    {"{\"enum\":[\"a@b\",\"a@\",\"a\"],\"not\":{\"format\":\"email\"}}",
     {"+\"a\"", "-\"a@\"", "-\"a@b\""}},
    /* a member without a name breaks the schema, and the members are counted */
    {"{\"type\":\"object\",\"maxProperties\":2,\"not\":{\"additionalProperties\":{\"type\":"
     "\"null\"}}}",
     {"+{\"a\":1}", "+{\"a\":null,\"b\":1}", "+{\"a\":2,\"b\":1}", "-{}", "-{\"a\":null}",
      "-{\"a\":1,\"b\":1,\"c\":1}", "-{\"a\":null,\"b\":null,\"c\":1}"}},
    {"{" A_B ",\"required\":[\"b\"],\"minProperties\":2,\"maxProperties\":3,\"not\":{" A_B
     ",\"additionalProperties\":false}}",
     {"+{\"b\":1,\"c\":1}", "+{\"a\":1,\"b\":1,\"c\":1}", "+{\"b\":1,\"c\":1,\"d\":1}",
      "-{\"b\":1}", "-{\"a\":1,\"b\":1}", "-{\"a\":1,\"b\":1,\"c\":1,\"d\":1}"}},
    {"{\"type\":\"object\",\"maxProperties\":1,\"allOf\":[{\"not\":{\"propertyNames\":{"
     "\"maxLength\":2}}},"
     "{\"not\":{\"patternProperties\":{\"a\":{\"type\":\"null\"}}}}]}",
     {"+{\"abc\":1}", "-{\"bcd\":1}", "-{\"a\":1}", "-{\"abc\":null}", "-{\"bcd\":1,\"a\":1}"}},
    {"{\"type\":\"object\",\"maxProperties\":2,\"allOf\":[{\"not\":{\"propertyNames\":{"
     "\"maxLength\":2}}},"
     "{\"not\":{\"patternProperties\":{\"a\":{\"type\":\"null\"}}}}]}",
     {"+{\"abc\":1}", "+{\"bcd\":1,\"a\":1}", "-{\"bcd\":1}", "-{\"bcd\":1,\"c\":1,\"a\":1}"}},
    {"{\"not\":{\"enum\":[\"a\",1,null,true]}}",
     {"+2", "+\"b\"", "+false", "+[]", "+1.5", "-\"a\"", "-1", "-null", "-true", "-1.0", "-10e-1"}},
    {"{\"type\":\"number\",\"not\":{\"const\":0}}", {"+5", "-0", "-0.0", "--0", "+-0.1"}},
    {"{\"type\":\"number\",\"not\":{\"multipleOf\":3}}", {"+1", "+2.5", "+4", "-3", "-0", "-9"}},
    {"{\"type\":\"number\",\"not\":{\"type\":\"integer\"}}", {"+1.5", "-1", "-2.0", "+-0.01"}},
    {"{\"type\":\"integer\",\"not\":{\"minimum\":2,\"exclusiveMinimum\":true}}", {"+2", "-3"}},
    {"{\"type\":\"string\",\"not\":{\"minLength\":2}}", {"+\"\"", "+\"a\"", "-\"ab\""}},
    {"{\"type\":\"string\",\"format\":\"ipv4\",\"not\":{\"enum\":[\"1.1.1.1\"]}}",
     {"+\"1.1.1.2\"", "-\"1.1.1.1\"", "-\"x\""}},
    {"{\"type\":\"object\",\"not\":{\"required\":[\"a\",\"b\"]}}",
     {"+{}", "+{\"a\":1}", "+{\"b\":1,\"c\":1}", "-{\"a\":1,\"b\":2}"}},
    {"{" NAMED(
         "\"a\":{\"type\":\"string\"}") ",\"not\":{\"properties\":{\"a\":{\"const\":\"x\"}}}}",
     {"+{\"a\":\"y\"}", "-{\"a\":\"x\"}", "-{}", "-1"}},
    {"{\"not\":{\"items\":{\"type\":\"string\"}}}",
     {"+[1]", "+[\"a\",1]", "-[]", "-[\"a\"]", "-5"}},
    {"{\"not\":{\"contains\":{\"const\":1}},\"type\":\"array\"}", {"+[]", "+[2]", "-[2,1]"}},
    {"{\"not\":{\"prefixItems\":[true,{\"type\":\"null\"}]}}", {"+[1,2]", "-[1,null]", "-[1]"}},
    {"{\"not\":{\"not\":{\"type\":\"string\"}}}", {"+\"a\"", "-1"}},
    {"{\"not\":{\"anyOf\":[{\"type\":\"string\"},{\"minimum\":3}]}}",
     {"+2", "-\"a\"", "-3", "-null"}},
    {"{\"not\":{\"allOf\":[{\"minimum\":1},{\"maximum\":3}]},\"type\":\"integer\"}",
     {"+0", "+4", "-1", "-3"}},
    {"{\"not\":{\"oneOf\":[{\"minimum\":1},{\"maximum\":3}]},\"type\":\"integer\"}",
     {"+1", "+3", "-0", "-4"}},
    {"{\"not\":{\"$ref\":\"#/$defs/s\"},\"$defs\":{\"s\":{\"type\":\"string\"}}}",
     {"+1", "-\"a\""}},
    {"{\"anyOf\":[{\"not\":{}},{\"type\":\"null\"}]}", {"+null", "-1"}},
    {"{\"type\":\"object\",\"properties\":{\"c\":{\"$ref\":\"#\"},\"n\":{\"type\":\"integer\"}},"
     "\"not\":{"
     "\"required\":[\"n\"],\"properties\":{\"c\":{\"$ref\":\"#\"}}}}",
     {"+{}", "-{\"n\":1}", "+{\"c\":{}}", "-{\"c\":{\"n\":1}}", "-{\"c\":{},\"n\":1}"}},
    {"{" A_B ",\"additionalProperties\":false,\"not\":{\"properties\":{\"a\":{}},"
     "\"additionalProperties\":false}}",
     {"+{\"a\":1,\"b\":1}", "+{\"b\":1}", "-{\"a\":1}", "-{}"}},
};

static const struct example chosen[] = {
    {"{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]," A_B "}",
     {"+{\"a\":1}", "+{\"b\":1}", "-{}", "-{\"a\":1,\"b\":1}"}},
    {"{\"oneOf\":[{\"type\":\"number\"},{\"type\":\"integer\"}]}", {"+1.5", "-1", "-\"a\""}},
    {"{\"oneOf\":[{\"type\":\"integer\",\"multipleOf\":3},{\"type\":\"integer\","
     "\"multipleOf\":5}]}",
     {"+3", "+5", "-15", "-1", "-0"}},
    {"{\"oneOf\":[{\"enum\":[false,0]},{\"type\":\"integer\"}]}", {"+false", "+5", "-0", "--0"}},
    {"{\"oneOf\":[{\"format\":\"ipv4\"},{\"format\":\"ipv6\"}],\"type\":\"string\"}",
     {"+\"1.2.3.4\"", "+\"::1\"", "-\"x\""}},
    {"{\"oneOf\":[{" NAMED("\"k\":{\"const\":\"a\"},\"x\":{\"type\":\"integer\"}") "},{" NAMED(
         "\"k\":{"
         "\"const\":"
         "\"b\"}") "}]"
                   "}",
     {"+{\"k\":\"a\",\"x\":1}", "+{\"k\":\"b\"}", "-{\"k\":\"a\",\"x\":\"s\"}", "-{\"k\":\"c\"}",
      "-{}"}},
    {"{\"oneOf\":[{\"$ref\":\"#/$defs/A\"},{\"$ref\":\"#/$defs/B\"}],\"discriminator\":{"
     "\"propertyName\":\"k\"},\"$defs\":{\"A\":{" NAMED(
         "\"k\":{\"const\":\"a\"},\"x\":{}") "},\"B\":{" NAMED("\"k\":{\"enum\":[\"b\","
                                                               "\"c\"]}") "}}}",
     {"+{\"k\":\"a\",\"x\":1}", "+{\"k\":\"c\"}", "-{\"k\":\"d\"}", "-{}"}},
    {"{" NAMED("\"k\":{\"type\":\"string\"},\"v\":{\"type\":\"integer\"}") ",\"if\":{"
                                                                           "\"properties\":{"
                                                                           "\"k\":{\"const\":"
                                                                           "\"x\"}},\"required\":"
                                                                           "[\"k\"]},\"then\":{"
                                                                           "\"required\":[\"v\"]}"
                                                                           ",\"else\":{"
                                                                           "\"properties\":{"
                                                                           "\"v\":false}}}",
     {"+{\"k\":\"x\",\"v\":1}", "+{\"k\":\"y\"}", "+{}", "-{\"k\":\"x\"}", "-{\"k\":\"y\",\"v\":1}",
      "-{\"v\":1}"}},
    {"{\"type\":\"integer\",\"if\":{\"minimum\":5},\"else\":{\"multipleOf\":2}}",
     {"+5", "+7", "+4", "-3"}},
    {"{\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]}}",
     {"+{\"a\":1,\"b\":1}", "+{\"b\":1}", "+{}", "-{\"a\":1}"}},
    {"{" A_B ",\"dependentSchemas\":{\"a\":{\"properties\":{\"b\":{\"type\":\"integer\"}}}}}",
     {"+{\"a\":1,\"b\":1}", "+{\"b\":\"x\"}", "-{\"a\":1,\"b\":\"x\"}"}},
    {"{" A_B ",\"dependencies\":{\"a\":[\"b\"],\"b\":{\"maxProperties\":2}}}",
     {"+{\"a\":1,\"b\":1}", "-{\"a\":1}", "-{\"a\":1,\"b\":1,\"c\":1}"}},
};

static const struct example counted[] = {
    {"{\"contains\":{\"type\":\"integer\"},\"type\":\"array\"}",
     {"+[1]", "+[\"a\",1]", "+[1, \"a\"]", "+[1,2]", "-[]", "-[\"a\"]"}},
    {"{\"contains\":{\"type\":\"integer\"},\"minContains\":2,\"maxContains\":3,\"maxItems\":5}",
     {"+[1,1]", "+[1,\"a\",2,3]", "+\"x\"", "-[1]", "-[1,2,3,4]", "-[\"a\",1]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"}],\"contains\":{\"const\":1},"
     "\"minContains\":0,\"maxContains\":1}",
     {"+[]", "+[null]", "+[null,1]", "+[null,2]", "-[1]", "-[null,1,1]"}},
    {"{\"type\":\"array\",\"allOf\":[{\"contains\":{\"const\":1}},{\"contains\":{\"const\":2}}]}",
     {"+[1,2]", "+[2,5,1]", "-[1]", "-[2,2]"}},
    {"{\"type\":\"array\",\"items\":{\"enum\":[\"a\",[],1]},\"uniqueItems\":true,\"minItems\":1}",
     {"+[\"a\"]", "+[[],\"a\", 1]", "-[]", "-[\"a\",\"a\"]", "-[1,[],1]"}},
    {"{\"type\":\"array\",\"items\":{\"enum\":[1,2,1.0]},\"uniqueItems\":true}",
     {"+[1,2]", "+[]", "-[1,1]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"maxItems\":1}", {"+[]", "+[5]", "-[1,2]"}},
    {"{\"type\":\"array\",\"uniqueItems\":false}", {"+[1,1]"}},
};

/* A property without a name breaks a negated schema. It is the last one, so no repetition of its
 * name can change that. */
static const struct example broken[] = {
    {"{\"type\":\"object\",\"not\":{\"additionalProperties\":false}}",
     {"+{\"a\":1}", "+{\"a\":1,\"b\":2}", "-{}"}},
    {"{\"type\":\"object\",\"not\":{\"properties\":{\"a\":{}},\"additionalProperties\":{\"type\":"
     "\"integer\"}}}",
     {"+{\"a\":1,\"b\":\"s\"}", "+{\"c\":1,\"b\":\"s\"}", "-{\"a\":\"s\"}", "-{\"b\":1}",
      "-{\"b\":\"s\",\"b\":1}"}},
    {"{\"type\":\"object\",\"not\":{\"patternProperties\":{\"^a\":{\"const\":1}}}}",
     {"+{\"a\":2}", "+{\"b\":2,\"ab\":null}", "-{\"b\":2}", "-{\"a\":1}", "-{}"}},
    {"{\"type\":\"object\",\"not\":{\"propertyNames\":{\"pattern\":\"a\"}}}",
     {"+{\"b\":1}", "+{\"a\":1,\"b\":1}", "-{\"a\":1}", "-{}"}},
    {"{\"type\":\"object\",\"not\":{\"propertyNames\":{\"not\":{\"enum\":[\"x\",\"y\"]}}}}",
     {"+{\"x\":1}", "+{\"z\":1,\"y\":1}", "-{\"z\":1}", "-{}"}},
    {"{\"type\":\"object\",\"oneOf\":[{\"additionalProperties\":{\"type\":\"integer\"}},{"
     "\"additionalProperties\":{\"type\":\"string\"}}]}",
     {"+{\"a\":1}", "+{\"a\":\"s\"}", "-{}", "-{\"a\":1,\"b\":\"s\"}", "-{\"a\":null}"}},
    {"{\"type\":\"object\",\"properties\":{\"k\":{}},\"if\":{\"patternProperties\":{\"^x\":{"
     "\"type\":"
     "\"integer\"}}},\"else\":{\"required\":[\"k\"]}}",
     {"+{\"x1\":1}", "+{\"k\":1,\"x1\":\"s\"}", "-{\"x1\":\"s\"}"}},
    {"{\"type\":\"object\",\"allOf\":[{\"not\":{\"propertyNames\":{\"pattern\":\"a\"}}},{\"not\":{"
     "\"propertyNames\":{\"pattern\":\"b\"}}},{\"not\":{\"additionalProperties\":{\"const\":1}}}]}",
     {"+{\"c\":2}", "+{\"b\":1,\"a\":2}", "+{\"c\":1,\"d\":2}", "+{\"b\":1,\"a\":1,\"ab\":2}",
      "-{\"b\":1,\"a\":1}", "-{\"ab\":2}", "-{\"a\":2}", "-{\"c\":2,\"c\":1}"}},
};

/* Constraints on names that are choices, and names beside properties. */
static const struct example names[] = {
    {"{\"type\":\"object\",\"propertyNames\":{\"anyOf\":[{\"pattern\":\"^a\"},{\"const\":\"b\"}]}}",
     {"+{\"ab\":1,\"b\":2}", "+{}", "-{\"c\":1}", "-{\"ba\":1}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"oneOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}]}"
     "}",
     {"+{\"a\":1,\"b\":2}", "-{\"ab\":1}", "-{\"c\":1}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"maxLength\":1},\"properties\":{\"a\":{\"type\":"
     "\"integer\"},\"ab\":{}},\"required\":[\"b\"]}",
     {"+{\"a\":1,\"b\":2}", "+{\"b\":2,\"c\":3}", "-{\"ab\":1,\"b\":2}", "-{\"a\":1}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"a\",\"b\"]},\"properties\":{\"a\":{"
     "\"type\":"
     "\"integer\"},\"c\":{}}}",
     {"+{\"a\":1,\"b\":2}", "+{}", "-{\"c\":1}", "-{\"a\":\"s\"}"}},
};

/* unevaluatedProperties and unevaluatedItems beside keywords that apply other schemas. */
#define NONE_LEFT "\"unevaluatedProperties\":false"
#define LISTS(name) "{\"properties\":{\"" name "\":{\"type\":\"integer\"}}}"
#define HAS(name)                                                                                  \
    "{\"required\":[\"" name "\"],\"properties\":{\"" name "\":{\"type\":\"integer\"}}}"

static const struct example unevaluated[] = {
    {"{\"type\":\"object\",\"allOf\":[" LISTS("a") "," LISTS("b") "]," NONE_LEFT "}",
     {"+{\"a\":1,\"b\":2}", "+{}", "-{\"c\":1}", "-{\"a\":1,\"c\":1}", "-{\"a\":true}"}},
    {"{\"type\":\"object\",\"$ref\":\"#/$defs/A\",\"$defs\":{\"A\":{\"properties\":{\"a\":{}},"
     "\"patternProperties\":{\"^x\":{}}}},\"unevaluatedProperties\":{\"type\":\"string\"}}",
     {"+{\"a\":1,\"x1\":2}", "+{\"a\":1,\"c\":\"s\"}", "-{\"c\":1}"}},
    {"{\"type\":\"object\",\"anyOf\":[" HAS("a") "," HAS("b") ",{\"required\":[\"c\"]}],"
                                                              "\"properties\":{\"c\":{}}," NONE_LEFT
                                                              "}",
     {"+{\"c\":1,\"a\":1}", "+{\"a\":1,\"b\":1}", "+{\"c\":1,\"a\":1,\"b\":1}", "+{\"c\":1}",
      "-{\"a\":1,\"d\":1}", "-{\"a\":1,\"b\":\"\"}", "-{}"}},
    {"{\"type\":\"object\",\"oneOf\":[" HAS("a") "," HAS("b") "]," NONE_LEFT "}",
     {"+{\"a\":1}", "+{\"b\":1}", "-{\"a\":1,\"b\":1}", "-{\"a\":1,\"c\":1}", "-{}"}},
    {"{\"type\":\"object\",\"if\":" HAS("a") ",\"then\":" HAS("b") ",\"else\":" HAS(
         "c") "," NONE_LEFT "}",
     {"+{\"a\":1,\"b\":1}", "+{\"c\":1}", "-{\"a\":1,\"c\":1}", "-{\"a\":1,\"b\":1,\"c\":1}",
      "-{\"b\":1,\"c\":1}", "-{\"a\":\"\",\"c\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"dependentSchemas\":{\"a\":" HAS(
         "b") "}," NONE_LEFT "}",
     {"+{\"a\":1,\"b\":1}", "+{}", "-{\"a\":1}", "-{\"b\":1}"}},
    {"{\"type\":\"object\",\"allOf\":[{\"additionalProperties\":{\"type\":\"integer\"}}]," NONE_LEFT
     "}",
     {"+{\"a\":1}", "-{\"a\":\"\"}"}},
    {"{\"type\":\"object\",\"allOf\":[{\"not\":{\"not\":" LISTS("a") "}}]," NONE_LEFT "}",
     {"+{}", "-{\"a\":1}"}},
    {"{\"enum\":[{\"a\":1},{\"a\":1,\"c\":1},{}],\"allOf\":[" LISTS("a") "]," NONE_LEFT "}",
     {"+{\"a\":1}", "+{}", "-{\"a\":1,\"c\":1}"}},
    {"{\"type\":\"object\",\"not\":{\"allOf\":[" LISTS(
         "a") "],\"unevaluatedProperties\":false},"
              "\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{}},\"additionalProperties\":"
              "false}",
     {"+{\"b\":1}", "+{\"a\":1,\"b\":1}", "-{\"a\":1}", "-{}"}},
    {"{\"type\":\"array\",\"allOf\":[{\"prefixItems\":[{\"type\":\"integer\"}]}],"
     "\"unevaluatedItems\":{\"type\":\"string\"}}",
     {"+[1,\"a\"]", "+[]", "-[1,2]", "-[\"a\"]"}},
    {"{\"type\":\"array\",\"contains\":{\"type\":\"string\"},\"prefixItems\":[true],"
     "\"unevaluatedItems\":false}",
     {"+[1,\"a\",\"b\"]", "+[\"a\"]", "-[1,2,\"a\"]", "-[1]"}},
    {"{\"type\":\"array\",\"anyOf\":[{\"prefixItems\":[{\"const\":1},true]},{\"prefixItems\":[{"
     "\"const\":1},true,{\"const\":3}]}],\"unevaluatedItems\":false}",
     {"+[1,5]", "+[1,5,3]", "-[1,5,4]", "-[1,5,3,6]"}},
};

START_TEST(keywords_beside_an_enum_filter_its_values) {
    check_example(&listed[_i]);
}
END_TEST

START_TEST(a_negated_schema_matches_what_breaks_it) {
    check_example(&negated[_i]);
}
END_TEST

START_TEST(one_branch_matches_and_conditions_apply) {
    check_example(&chosen[_i]);
}
END_TEST

START_TEST(items_are_counted) {
    check_example(&counted[_i]);
}
END_TEST

START_TEST(a_property_without_a_name_breaks_a_schema) {
    check_example(&broken[_i]);
}
END_TEST

START_TEST(names_of_properties_match_their_schema) {
    check_example(&names[_i]);
}
END_TEST

START_TEST(members_that_no_matching_schema_evaluates_are_constrained) {
    check_example(&unevaluated[_i]);
}
END_TEST

static const struct {
    const char *schema, *words;
} refused[] = {
    {"{\"not\":{}}", "Nothing can match"},
    {"{\"enum\":[\"a\"],\"minLength\":2}", "Nothing can match"},
    {"{\"not\":5}", "at \"/not\" must be a schema"},
    {"{\"contains\":[]}", "at \"/contains\" must be a schema"},
    {"{\"dependentRequired\":{\"a\":5}}", "must be an object of schemas or arrays of names"},
    {"{\"not\":{\"format\":\"uuid4\"}}", "at \"/not/format\" cannot be negated"},
    {"{\"not\":{\"uniqueItems\":true}}", "at \"/not/uniqueItems\" cannot be negated"},
    {"{\"type\":\"object\",\"allOf\":[{\"not\":{\"additionalProperties\":{\"type\":\"null\"}}},"
     "{\"not\":{\"patternProperties\":{\"a\":{\"const\":1}}}}]}",
     "since another property without a name breaks another schema"}, /* both by their values */
    {"{\"oneOf\":[{\"type\":\"string\",\"format\":\"base64\"},{\"type\":\"string\"}]}",
     "at \"/oneOf/0/format\" cannot be negated"},
    {"{\"not\":{\"const\":[1]}}", "excludes an array or an object"},
    {"{\"uniqueItems\":true}", "at \"/uniqueItems\" is enforced only for"},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[1,2]},\"contains\":true}",
     "is not enforced together with contains"},
    {"{\"contains\":{\"const\":1},\"minContains\":9000}", "with counts this large"},
    {"{\"anyOf\":[" HAS("a") "," HAS("b") "," HAS("c") "," HAS("d") "," HAS("e") "," HAS(
         "f") "," HAS("g") "]," NONE_LEFT "}",
     "can match in at most 64 ways"},
};

START_TEST(what_is_not_decided_is_refused_with_its_place) {
    struct grammar *grammar;
    struct err err = {0};
    const char *schema = refused[_i].schema;
    enum status status =
        grammar_compile(GRAMMAR_JSON_SCHEMA, schema, strlen(schema), NULL, &grammar, &err);
    ck_assert_msg(status == STATUS_INVALID_REQUEST, "%s", schema);
    ck_assert_msg(strstr(err.message, refused[_i].words), "%s: %s", schema, err.message);
}
END_TEST

#define COUNT(table) (int)(sizeof(table) / sizeof *(table))

int main(void) {
    Suite *suite = suite_create("grammar_combined");
    TCase *cases = tcase_create("keywords");
    tcase_add_loop_test(cases, keywords_beside_an_enum_filter_its_values, 0, COUNT(listed));
    tcase_add_loop_test(cases, a_negated_schema_matches_what_breaks_it, 0, COUNT(negated));
    tcase_add_loop_test(cases, one_branch_matches_and_conditions_apply, 0, COUNT(chosen));
    tcase_add_loop_test(cases, items_are_counted, 0, COUNT(counted));
    tcase_add_loop_test(cases, a_property_without_a_name_breaks_a_schema, 0, COUNT(broken));
    tcase_add_loop_test(cases, names_of_properties_match_their_schema, 0, COUNT(names));
    tcase_add_loop_test(cases, members_that_no_matching_schema_evaluates_are_constrained, 0,
                        COUNT(unevaluated));
    tcase_add_loop_test(cases, what_is_not_decided_is_refused_with_its_place, 0, COUNT(refused));
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
