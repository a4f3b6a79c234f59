/* Canonical JSON. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/json/json.h"
#include "server/receipts/receipts.h"

static int by_name(const void *a, const void *b) {
    const struct json *x = *(const struct json *const *)a, *y = *(const struct json *const *)b;
    return strcmp(x->name, y->name); /* compares bytes as unsigned */
}

static bool is_in(const char *const *names, const char *name) {
    for (; names && *names; names++)
        if (strcmp(*names, name) == 0) return true;
    return false;
}

/* The parser bounds the depth of a tree. */
void canonical_write_without(struct buf *out, const struct json *object,
                             const char *const *left_out) {
    const int n = json_count(object);
    assert(json_is(object, JSON_OBJECT));
    const struct json **sorted = mem_alloc(((size_t)n + 1) * sizeof(struct json *));
    int kept = 0;
    json_each_member(member, object) {
        if (!is_in(left_out, member->name)) sorted[kept++] = member;
    }
    qsort(sorted, (size_t)kept, sizeof *sorted, by_name);
    buf_puts(out, "{");
    for (int i = 0; i < kept; i++) {
        if (i > 0) buf_puts(out, ",");
        json_write_string(out, sorted[i]->name, strlen(sorted[i]->name));
        buf_puts(out, ":");
        canonical_write(out, sorted[i]);
    }
    buf_puts(out, "}");
    mem_free(sorted);
}

void canonical_write(struct buf *out, const struct json *value) {
    if (json_is(value, JSON_OBJECT)) {
        canonical_write_without(out, value, NULL);
    } else if (json_is(value, JSON_ARRAY)) {
        buf_puts(out, "[");
        json_each(element, value) {
            if (element != json_first(value)) buf_puts(out, ",");
            canonical_write(out, element);
        }
        buf_puts(out, "]");
    } else {
        json_write_value(out, value);
    }
}

/* The fields of a request that change neither its tokens nor the form of its answer. */
static const char *const without_effect[] = {"user",
                                             "metadata",
                                             "request_id",
                                             "priority",
                                             "deadline_ms",
                                             "cache_salt",
                                             "service_tier",
                                             "prompt_cache_key",
                                             "prompt_cache_retention",
                                             "safety_identifier",
                                             NULL};

void canonical_request(struct buf *out, const struct json *body) {
    if (json_is(body, JSON_OBJECT))
        canonical_write_without(out, body, without_effect);
    else
        canonical_write(out, body);
}

void request_write(struct buf *out, const struct json *body) {
    const char *between = "{";
    if (!json_is(body, JSON_OBJECT)) {
        json_write_value(out, body);
        return;
    }
    json_each_member(member, body) {
        if (is_in(without_effect, member->name)) continue;
        buf_puts(out, between);
        json_write_string(out, member->name, strlen(member->name));
        buf_puts(out, ":");
        json_write_value(out, member);
        between = ",";
    }
    buf_puts(out, *between == '{' ? "{}" : "}");
}
