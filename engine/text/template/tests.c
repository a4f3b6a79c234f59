/* The tests for the operator `is`. */
#include "engine/text/template/template.h"

/* ---- tests of kind -------------------------------------------------------------------------- */

#define TEST(name, condition) BUILTIN(name, VALUE_OF_BOOL(condition))

TEST(is_defined, self.kind != VALUE_UNDEFINED)
TEST(is_undefined, self.kind == VALUE_UNDEFINED)
TEST(is_none, self.kind == VALUE_NONE)
TEST(is_boolean, self.kind == VALUE_BOOL)
TEST(is_true, self.kind == VALUE_BOOL && self.boolean)
TEST(is_false, self.kind == VALUE_BOOL && !self.boolean)
TEST(is_integer, self.kind == VALUE_INT || value_digits(r, self))
TEST(is_float, self.kind == VALUE_FLOAT && !value_digits(r, self))
TEST(is_number, value_is_number(self))
TEST(is_string, self.kind == VALUE_STRING)
TEST(is_mapping, self.kind == VALUE_DICT)
TEST(is_iterable, value_is_iterable(self) || self.kind == VALUE_LOOP)
TEST(is_sequence, self.kind == VALUE_STRING || self.kind == VALUE_DICT ||
                      self.kind == VALUE_UNDEFINED ||
                      (self.kind == VALUE_LIST && self.list->flavour <= LIST_RANGE))
TEST(is_callable, self.kind == VALUE_UNDEFINED || self.kind == VALUE_FUNCTION ||
                      self.kind == VALUE_METHOD || self.kind == VALUE_MACRO ||
                      self.kind == VALUE_LOOP)

/* ---- tests of comparison -------------------------------------------------------------------- */

TEST(is_equal, value_equal(r, self, args->position[0]))
TEST(is_unequal, !value_equal(r, self, args->position[0]))
TEST(is_less, value_compare(r, self, args->position[0]) == -1)
TEST(is_greater, value_compare(r, self, args->position[0]) == 1)
TEST(is_in, value_contains(r, args->position[0], self))

static struct value is_at_most(struct render *r, struct value self, const struct args *args) {
    int order = value_compare(r, self, args->position[0]);
    return VALUE_OF_BOOL(order == -1 || order == 0);
}

static struct value is_at_least(struct render *r, struct value self, const struct args *args) {
    int order = value_compare(r, self, args->position[0]);
    return VALUE_OF_BOOL(order == 1 || order == 0);
}

/* Identity: in Python, equal constants and small numbers are one object. Lists and dicts are
 * identical if they are one object here. */
static struct value is_same(struct render *r, struct value self, const struct args *args) {
    struct value other = args->position[0];
    if (self.kind != other.kind) return VALUE_OF_BOOL(false);
    bool is_object = self.kind == VALUE_LIST || self.kind == VALUE_DICT;
    return VALUE_OF_BOOL(is_object ? self.dict == other.dict : value_equal(r, self, other));
}

static bool divides(struct render *r, struct value self, struct value by) {
    struct value rest = value_binary(r, '%', self, by);
    return value_equal(r, rest, VALUE_OF_INT(0));
}

TEST(is_divisible, divides(r, self, args->position[0]))
TEST(is_even, divides(r, self, VALUE_OF_INT(2)))
TEST(is_odd, value_equal(r, value_binary(r, '%', self, VALUE_OF_INT(2)), VALUE_OF_INT(1)))

/* Does the text have cased characters that `how` does not change? */
static bool is_case(struct render *r, struct value self, int32_t (*how)(int32_t, int32_t)) {
    const struct string *text = value_string(r, self);
    bool has_cased = false;
    render_charge(r, text->length / 2);
    for (size_t at = 0, next; at < text->length; at = next) {
        next = string_next(text, at);
        int32_t point = string_point(text, at, next);
        if (point < 0 || !point_is_cased(point)) continue;
        if (how(point, -1) != point) return false;
        has_cased = true;
    }
    return has_cased;
}

TEST(is_lower, is_case(r, self, point_lower))
TEST(is_upper, is_case(r, self, point_upper))

const struct builtin template_tests[] = {
    {"defined", is_defined, "", 0},
    {"undefined", is_undefined, "", 0},
    {"none", is_none, "", 0},
    {"boolean", is_boolean, "", 0},
    {"true", is_true, "", 0},
    {"false", is_false, "", 0},
    {"integer", is_integer, "", 0},
    {"float", is_float, "", 0},
    {"number", is_number, "", 0},
    {"string", is_string, "", 0},
    {"mapping", is_mapping, "", 0},
    {"iterable", is_iterable, "", 0},
    {"sequence", is_sequence, "", 0},
    {"callable", is_callable, "", 0},
    {"eq", is_equal, "#other", 1},
    {"equalto", is_equal, "#other", 1},
    {"==", is_equal, "#other", 1},
    {"ne", is_unequal, "#other", 1},
    {"!=", is_unequal, "#other", 1},
    {"lt", is_less, "#other", 1},
    {"lessthan", is_less, "#other", 1},
    {"<", is_less, "#other", 1},
    {"gt", is_greater, "#other", 1},
    {"greaterthan", is_greater, "#other", 1},
    {">", is_greater, "#other", 1},
    {"le", is_at_most, "#other", 1},
    {"<=", is_at_most, "#other", 1},
    {"ge", is_at_least, "#other", 1},
    {">=", is_at_least, "#other", 1},
    {"in", is_in, "seq", 1},
    {"sameas", is_same, "other", 1},
    {"divisibleby", is_divisible, "num", 1},
    {"even", is_even, "", 0},
    {"odd", is_odd, "", 0},
    {"lower", is_lower, "", 0},
    {"upper", is_upper, "", 0},
    {NULL, NULL, NULL, 0},
};
