/* The items of a stored request's input, one page at a time: GET /v1/responses/{id}/input_items.
 *
 * An item keeps its own id. One without an id gets one from the response's id and its place in the
 * input, so it has the same id in every page and after a restart. */
#include <assert.h>
#include <string.h>

#include "server/responses/internal.h"

struct input_list {
    const char *response;      /* its id, after the prefix */
    const struct json *text;   /* an input that is a string, or NULL */
    const struct json **items; /* [n]; a string is one item, NULL */
    int n;
};

/* ---- ids ------------------------------------------------------------------------------------ */

static const char *type_of(const struct json *item) {
    const struct json *type = responses_member(item, "type");
    return type ? json_text(type) : "message";
}

static const char *prefix_of(const char *type) {
    static const struct {
        const char *type, *prefix;
    } known[] = {{"message", "msg"}, {"reasoning", "rs"}, {"function_call", "fc"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(type, known[i].type) == 0) return known[i].prefix;
    return "item";
}

/* Writes the id of the item at a place of the input, in place of the buffer's content. */
static void write_id(struct buf *id, const struct input_list *list, int place) {
    const struct json *own = json_member(list->items[place], "id");
    size_t length = json_length(own);
    assert(place >= 0 && place < list->n);
    buf_clear(id);
    if (length > 0 && length <= API_MAX_ITEM_ID)
        buf_add(id, json_text(own), length);
    else
        buf_printf(id, "%s_%s_in%d", prefix_of(type_of(list->items[place])), list->response, place);
}

static bool has_id(const struct input_list *list, int place, const char *asked) {
    struct buf id = {0};
    write_id(&id, list, place);
    bool is_equal = id.length == strlen(asked) && memcmp(id.data, asked, id.length) == 0;
    buf_free(&id);
    return is_equal;
}

/* ---- items ---------------------------------------------------------------------------------- */

/* Writes the content of a message; a string becomes one part. */
static void write_content(struct buf *out, const struct json *content, bool is_answer) {
    if (!json_is(content, JSON_STRING)) {
        json_write_value(out, content);
        return;
    }
    buf_puts(out, is_answer ? "[{\"type\":\"output_text\",\"text\":"
                            : "[{\"type\":\"input_text\",\"text\":");
    json_write_value(out, content);
    buf_puts(out, is_answer ? ",\"annotations\":[]}]" : "}]");
}

static void write_members(struct buf *out, const struct json *item, bool is_message) {
    bool is_answer = json_is_text(json_member(item, "role"), "assistant");
    json_each_member(member, item) {
        if (strcmp(member->name, "id") == 0 || strcmp(member->name, "type") == 0) continue;
        buf_puts(out, ",");
        json_write_string(out, member->name, strlen(member->name));
        buf_puts(out, ":");
        if (is_message && strcmp(member->name, "content") == 0)
            write_content(out, member, is_answer);
        else
            json_write_value(out, member);
    }
}

static void write_item(struct buf *out, const struct input_list *list, int place,
                       const struct buf *id) {
    const struct json *item = list->items[place];
    const char *type = type_of(item);
    buf_puts(out, "{\"id\":");
    json_write_string(out, id->data, id->length);
    buf_puts(out, ",\"type\":");
    json_write_string(out, type, strlen(type));
    if (item) {
        write_members(out, item, strcmp(type, "message") == 0);
    } else {
        buf_puts(out, ",\"role\":\"user\",\"content\":");
        write_content(out, list->text, false);
    }
    buf_puts(out, "}");
}

/* ---- pages ---------------------------------------------------------------------------------- */

static struct input_list list_of(const struct json *stored, const char *id) {
    const struct json *input = json_member(stored, "input");
    const char *prefix = api_responses.id_prefix;
    struct input_list list = {.response = id};
    if (strncmp(id, prefix, strlen(prefix)) == 0) list.response += strlen(prefix);
    if (json_is(input, JSON_STRING)) list.text = input;
    int n_items = json_is(input, JSON_ARRAY) ? json_count(input) : 0;
    list.items = mem_calloc((size_t)n_items + 1, sizeof *list.items);
    json_each(item, n_items > 0 ? input : NULL) list.items[list.n++] = item;
    if (list.text) list.n = 1;
    assert(list.n == max_int(n_items, list.text != NULL));
    return list;
}

/* Sets *first to the place where the page begins: after the item `page->after`, in its order. If
 * several items have this id, the last one counts, so the pages end. */
static bool find_first(const struct input_list *list, const struct api_item_page *page,
                       int *first) {
    int step = page->oldest_first ? 1 : -1;
    *first = page->oldest_first ? 0 : list->n - 1;
    if (!page->after[0]) return true;
    for (int at = page->oldest_first ? list->n - 1 : 0; at >= 0 && at < list->n; at -= step) {
        if (!has_id(list, at, page->after)) continue;
        *first = at + step;
        return true;
    }
    return false;
}

static void write_ends(struct buf *out, const struct buf *first_id, const struct buf *last_id) {
    const struct buf *ids[] = {first_id, last_id};
    for (int i = 0; i < 2; i++) {
        buf_puts(out, i == 0 ? ",\"first_id\":" : ",\"last_id\":");
        if (ids[i]->length > 0)
            json_write_string(out, ids[i]->data, ids[i]->length);
        else
            buf_puts(out, "null");
    }
}

static void write_page(struct buf *out, const struct input_list *list,
                       const struct api_item_page *page, int first) {
    struct buf first_id = {0}, id = {0};
    int step = page->oldest_first ? 1 : -1, at = first, n = 0;
    buf_puts(out, "{\"object\":\"list\",\"data\":[");
    for (; n < page->limit && at >= 0 && at < list->n; at += step, n++) {
        buf_puts(out, n > 0 ? "," : "");
        write_id(&id, list, at);
        write_item(out, list, at, &id);
        if (n == 0) buf_add(&first_id, id.data, id.length);
    }
    buf_puts(out, "]");
    write_ends(out, &first_id, &id);
    buf_printf(out, ",\"has_more\":%s}", at >= 0 && at < list->n ? "true" : "false");
    buf_free(&first_id);
    buf_free(&id);
}

enum status responses_write_input_items(struct buf *out, const struct json *body, const char *id,
                                        const struct api_item_page *page, struct err *err) {
    struct input_list list = list_of(body, id);
    enum status status = STATUS_OK;
    int first;
    assert(page->limit >= 1 && page->limit <= API_MAX_ITEMS);
    if (find_first(&list, page, &first))
        write_page(out, &list, page, first);
    else
        status = err_set(err, STATUS_INVALID_REQUEST, "after",
                         "'after' must be the id of an item of this input, but it is \"%.64s\".",
                         page->after);
    mem_free(list.items);
    return status;
}
