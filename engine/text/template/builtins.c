/* Finds builtins by name, and binds arguments to parameters. */
#include <assert.h>
#include <string.h>

#include "engine/text/template/template.h"

#define PARAMS_MAX 8

static const struct builtin *find(const struct builtin *table, const char *name, size_t length) {
    for (; table->name; table++) {
        if (strlen(table->name) == length && memcmp(table->name, name, length) == 0) return table;
    }
    return NULL;
}

const struct builtin *builtin_filter(const char *name, size_t length) {
    const struct builtin *found = find(template_filters_scalar, name, length);
    return found ? found : find(template_filters_list, name, length);
}

const struct builtin *builtin_test(const char *name, size_t length) {
    return find(template_tests, name, length);
}

const struct builtin *builtin_function(const char *name, size_t length) {
    return find(template_functions, name, length);
}

const struct builtin *builtin_method(struct value self, const char *name, size_t length) {
    switch (self.kind) {
    case VALUE_STRING:
        return find(template_string_methods, name, length);
    case VALUE_DICT:
        return find(template_dict_methods, name, length);
    case VALUE_LOOP:
        return find(template_loop_methods, name, length);
    case VALUE_LIST:
        return self.list->flavour <= LIST_RANGE ? find(template_list_methods, name, length) : NULL;
    default:
        return NULL;
    }
}

/* ---- binding -------------------------------------------------------------------------------- */

/* Returns the length of the first name of "one,two,three"; *rest points after its comma. */
static size_t next_param(const char *params, const char **rest) {
    size_t n = strcspn(params, ",");
    *rest = params + n + (params[n] == ',');
    return n;
}

/* Sets the parameter with a keyword's name. */
static void bind_keyword(struct render *r, const struct builtin *builtin,
                         const struct keyword *keyword, struct value bound[PARAMS_MAX]) {
    const char *rest = builtin->params;
    for (size_t i = 0; *rest; i++) {
        const char *param = rest;
        size_t n = next_param(param, &rest);
        if (n != keyword->name->length || memcmp(param, keyword->name->data, n) != 0) continue;
        if (bound[i].kind != VALUE_MISSING) {
            render_fail(r, "%s: the argument '%.*s' is given twice", builtin->name, (int)n, param);
        }
        bound[i] = keyword->value;
        return;
    }
    render_fail(r, "%s does not take the argument '%.*s'", builtin->name,
                shown_length(keyword->name), keyword->name->data);
}

struct value builtin_run(struct render *r, const struct builtin *builtin, struct value self,
                         const struct args *args) {
    struct value bound[PARAMS_MAX] = {{0}};
    render_charge(r, 1);
    if (!builtin->params) return builtin->run(r, self, args);
    struct args full = {.position = bound};
    for (const char *rest = builtin->params; *rest; full.n_positions++) next_param(rest, &rest);
    assert(full.n_positions <= PARAMS_MAX && (size_t)builtin->required <= full.n_positions);
    if (args->n_positions > full.n_positions) {
        render_fail(r, "%s takes at most %zu arguments", builtin->name, full.n_positions);
    }
    for (size_t i = 0; i < args->n_positions; i++) bound[i] = args->position[i];
    for (size_t i = 0; i < args->n_keywords; i++)
        bind_keyword(r, builtin, &args->keyword[i], bound);
    for (int i = 0; i < builtin->required; i++) {
        if (bound[i].kind == VALUE_MISSING) {
            render_fail(r, "%s needs %d arguments", builtin->name, builtin->required);
        }
    }
    return builtin->run(r, self, &full);
}

bool builtin_test_passes(struct render *r, const struct builtin *test, struct value self,
                         const struct args *args) {
    return value_truth(builtin_run(r, test, self, args));
}
