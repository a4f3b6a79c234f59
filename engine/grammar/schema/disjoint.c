/* Proves that conjunctions share no value, as oneOf requires of its branches. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema/internal.h"

enum { MAX_DISJOINT_DEPTH = 4, MAX_TAGS = 8 };

/* ---- two conjunctions ----------------------------------------------------------------------- */

/* Does y match none of the values that x lists? */
static bool values_disjoint(struct schema_reader *r, const struct conj *x, const struct conj *y) {
    struct pointers values = schema_listed(r, x);
    pointers_each(value, &values) {
        if (!builder_works(r->b, 100)) return false;
        if (conj_holds(r, x, value) && conj_holds(r, y, value)) return false;
    }
    return true;
}

/* Does x require a property whose values in x and y are disjoint? */
static bool properties_disjoint(struct schema_reader *r, const struct conj *x, const struct conj *y,
                                int depth) {
    conj_each_value(required, x, "required") {
        json_each(name, required) {
            if (!builder_works(r->b, 100)) return false;
            struct conj of_x = schema_property(r, x, json_text(name));
            struct conj of_y = schema_property(r, y, json_text(name));
            if (r->b->status == STATUS_OK && conj_disjoint(r, &of_x, &of_y, depth + 1)) return true;
        }
    }
    return false;
}

bool conj_disjoint(struct schema_reader *r, const struct conj *x, const struct conj *y, int depth) {
    unsigned types = conj_types(x) & conj_types(y);
    if (types == 0) return true;
    if (schema_has_values(x)) return values_disjoint(r, x, y);
    if (schema_has_values(y)) return values_disjoint(r, y, x);
    if (types != TYPE_OBJECT || depth == MAX_DISJOINT_DEPTH) return false;
    return properties_disjoint(r, x, y, depth) || properties_disjoint(r, y, x, depth);
}

/* ---- one conjunction ------------------------------------------------------------------------ */

/* Does no value of the listed ones match? */
static bool lists_nothing(struct schema_reader *r, const struct conj *conj) {
    return schema_has_values(conj) && schema_listed(r, conj).n < 100 &&
           values_disjoint(r, conj, conj);
}

static bool bounds_cross(const struct conj *conj, const char *least, const char *most) {
    int max = conj_smallest(conj, most, NO_MAX);
    return max != NO_MAX && conj_largest(conj, least, 0) > max;
}

/* Removes the types whose counts no value can have. */
static unsigned possible_types(const struct conj *conj) {
    unsigned types = conj_types(conj);
    if (bounds_cross(conj, "minLength", "maxLength")) types &= ~TYPE_STRING;
    if (bounds_cross(conj, "minItems", "maxItems")) types &= ~TYPE_ARRAY;
    if (bounds_cross(conj, "minProperties", "maxProperties")) types &= ~TYPE_OBJECT;
    return types;
}

bool conj_impossible(struct schema_reader *r, const struct conj *conj) {
    unsigned types = possible_types(conj);
    if (types == 0 || lists_nothing(r, conj)) return true;
    if (types != TYPE_OBJECT || schema_has_values(conj)) return false;
    conj_each_value(required, conj, "required") {
        json_each(name, required) {
            if (!builder_works(r->b, 100)) return false;
            struct conj value = schema_property(r, conj, json_text(name));
            if (possible_types(&value) == 0 || lists_nothing(r, &value)) return true;
        }
    }
    return false;
}

/* ---- many conjunctions ---------------------------------------------------------------------- */

/* Does each conjunction list its values, and are the lists disjoint? */
static bool lists_disjoint(struct schema_reader *r, const struct conj *all, int n) {
    assert(n > 1);
    struct pointers *lists = builder_alloc(r->b, (size_t)n * sizeof *lists);
    for (int i = 0; i < n && lists; i++) {
        if (!builder_works(r->b, 100) || !schema_has_values(&all[i])) return false;
        lists[i] = schema_listed(r, &all[i]);
    }
    return lists && !values_overlap(r, lists, n);
}

static bool requires(struct schema_reader *r, const struct conj *conj, const char *name) {
    conj_each_value(required, conj, "required") {
        if (schema_lists(r, required, name)) return true;
    }
    return false;
}

/* Does each conjunction require this property, with values in disjoint lists? */
static bool tag_disjoint(struct schema_reader *r, const struct conj *all, int n, const char *name) {
    assert(n > 1);
    struct conj *of_all = builder_alloc(r->b, (size_t)n * sizeof *of_all);
    for (int i = 0; i < n && of_all; i++) {
        bool is_object = conj_types(&all[i]) == TYPE_OBJECT;
        if (!builder_works(r->b, 100) || !is_object || !requires(r, &all[i], name)) return false;
        of_all[i] = schema_property(r, &all[i], name);
    }
    return of_all && lists_disjoint(r, of_all, n);
}

bool conjs_disjoint(struct schema_reader *r, const struct conj *all, int n) {
    int n_tags = 0;
    if (n < 2) return true;
    if (lists_disjoint(r, all, n)) return true;
    conj_each_value(required, &all[0], "required") {
        json_each(name, required) {
            if (r->b->status != STATUS_OK || n_tags++ == MAX_TAGS) return false;
            if (tag_disjoint(r, all, n, json_text(name))) return true;
        }
    }
    return false;
}
