/* The names of fields in translated bodies. An API whose bodies are translated to those of a chat
 * records the client's name for each field, so that errors name what the client has sent. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/openai/internal.h"

/* Names are pairs of NUL-terminated strings, one after the other. */
void api_name_add(struct buf *names, const char *field, const char *clients) {
    assert(field[0] && clients[0]);
    buf_add(names, field, strlen(field) + 1);
    buf_add(names, clients, strlen(clients) + 1);
}

void api_name_message(struct buf *names, int index, const char *member, const char *clients) {
    char field[80];
    snprintf(field, sizeof field, "messages[%d]%s", index, member);
    api_name_add(names, field, clients);
}

void api_keep_names(struct api_request *request, const struct buf *names) {
    assert(!request->names);
    request->names = arena_strndup(request->arena, names->data, names->length);
    request->names_length = request->names ? names->length : 0;
}

/* Is the name this field or a member of it? */
static bool is_of(const char *name, size_t length, const char *field, size_t n) {
    if (length < n || memcmp(name, field, n) != 0) return false;
    return length == n || name[n] == '.' || name[n] == '[';
}

/* Appends the client's name for a field, by the longest known part of it. Returns false if no part
 * is known. */
static bool write_clients(struct buf *out, const char *name, size_t length, const char *names,
                          size_t names_length) {
    const char *best = NULL;
    size_t best_length = 0;
    for (const char *field = names; field < names + names_length;) {
        size_t n = strlen(field);
        const char *clients = field + n + 1;
        if (n > best_length && is_of(name, length, field, n)) {
            best = clients;
            best_length = n;
        }
        field = clients + strlen(clients) + 1;
    }
    if (!best) return false;
    buf_puts(out, best);
    buf_add(out, name + best_length, length - best_length);
    return true;
}

void api_list_field(struct buf *list, const struct api_request *request, const char *field) {
    struct buf name = {0};
    if (!write_clients(&name, field, strlen(field), request->names, request->names_length))
        buf_puts(&name, field);
    if (list->length == 0 || !strstr(list->data, name.data)) {
        if (list->length > 0) buf_puts(list, ", ");
        buf_puts(list, name.data);
    }
    buf_free(&name);
}

/* Copies the message; names are those between two quotes. */
static void write_message(struct buf *out, const char *message, const char *names, size_t length) {
    for (const char *p = message; *p; p++) {
        buf_add(out, p, 1);
        const char *end = *p == '\'' ? strchr(p + 1, '\'') : NULL;
        if (end && write_clients(out, p + 1, (size_t)(end - p - 1), names, length)) {
            buf_puts(out, "'");
            p = end;
        }
    }
}

void api_rename(struct err *err, const char *names, size_t length) {
    struct buf param = {0}, message = {0};
    char code[sizeof err->code];
    assert(err->status != STATUS_OK);
    memcpy(code, err->code, sizeof code);
    if (!write_clients(&param, err->param, strlen(err->param), names, length))
        buf_puts(&param, err->param);
    write_message(&message, err->message, names, length);
    err_set(err, err->status, param.data, "%s", message.data ? message.data : "");
    memcpy(err->code, code, sizeof code);
    buf_free(&param);
    buf_free(&message);
}
