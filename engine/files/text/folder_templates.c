/* Reads a folder's chat templates: from separate files, or from a field of tokenizer_config.json or
 * chat_template.json. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/text/internal.h"

#define MAX_TEMPLATE_BYTES ((size_t)1 << 20)

void folder_templates_free(struct folder_templates *templates) {
    mem_free(templates->text);
    mem_free(templates->tools_text);
    mem_free(templates->file);
    mem_free(templates->tools_file);
    *templates = (struct folder_templates){0};
}

/* The fields of one of the two templates: its text and its source file. */
struct template_place {
    char **text;
    size_t *length;
    char **file;
};

static struct template_place place_of(struct folder_templates *out, bool with_tools) {
    return with_tools
               ? (struct template_place){&out->tools_text, &out->tools_length, &out->tools_file}
               : (struct template_place){&out->text, &out->length, &out->file};
}

static void copy_text(struct template_place to, const struct json *text, const char *path) {
    assert(json_is(text, JSON_STRING));
    mem_free(*to.text);
    mem_free(*to.file);
    *to.length = text->length;
    *to.text = mem_alloc(text->length + 1);
    memcpy(*to.text, text->string, text->length + 1);
    *to.file = mem_strdup(path);
}

static enum status read_text(struct template_place to, const char *folder, const char *name,
                             struct err *err) {
    enum status status = read_file(folder, name, MAX_TEMPLATE_BYTES, to.text, to.length, err);
    if (!status && *to.text) *to.file = path_in(folder, name);
    return status;
}

/* Copies one entry of a list of named templates, if it is `default` or `tool_use`. Other names are
 * ignored. */
static enum status read_named(struct folder_templates *out, const struct reading *reading,
                              const struct json *entry) {
    const struct json *name, *text;
    enum status status =
        need_member(reading, entry, "name", "chat_template.name", JSON_STRING, &name);
    if (!status)
        status =
            need_member(reading, entry, "template", "chat_template.template", JSON_STRING, &text);
    if (status) return status;
    bool with_tools = json_is_text(name, "tool_use");
    if (with_tools || json_is_text(name, "default"))
        copy_text(place_of(out, with_tools), text, reading->path);
    return STATUS_OK;
}

static enum status read_field(struct folder_templates *out, const struct reading *reading,
                              const struct json *root) {
    const struct json *field = json_member(root, "chat_template");
    char found[96];
    enum status status = STATUS_OK;
    if (!field || json_is(field, JSON_NULL)) return STATUS_OK;
    if (json_is(field, JSON_STRING)) {
        copy_text(place_of(out, false), field, reading->path);
        return STATUS_OK;
    }
    if (!json_is(field, JSON_ARRAY))
        return bad_key(reading, "chat_template", "a text or a list of named ones", "%s",
                       found_name(field, found));
    json_each(entry, field) {
        status = read_named(out, reading, entry);
        if (status) return status;
    }
    if (out->text) return STATUS_OK;
    return bad_key(reading, "chat_template", "one named \"default\"", "none");
}

/* Reads the field of one file. A missing file or field is no error. */
static enum status read_field_of(struct folder_templates *out, const char *folder, const char *name,
                                 struct err *err) {
    struct json *root;
    enum status status = read_object(folder, name, &root, err);
    if (status || !root) return status;
    char *path = path_in(folder, name);
    const struct reading reading = {.path = path, .err = err};
    status = read_field(out, &reading, root);
    mem_free(path);
    json_free(root);
    return status;
}

enum status folder_templates_read(struct folder_templates *out, const char *folder,
                                  struct err *err) {
    *out = (struct folder_templates){0};
    enum status status = read_text(place_of(out, false), folder, "chat_template.jinja", err);
    if (!status && !out->text) status = read_field_of(out, folder, "tokenizer_config.json", err);
    if (!status && !out->text) status = read_field_of(out, folder, "chat_template.json", err);
    if (!status && !out->tools_text)
        status =
            read_text(place_of(out, true), folder, "additional_chat_templates/tool_use.jinja", err);
    if (status) folder_templates_free(out);
    return status;
}

enum status template_file_read(struct folder_templates *out, const char *path, struct err *err) {
    const char *slash = strrchr(path, '/');
    *out = (struct folder_templates){0};
    char *folder = mem_strdup(slash ? path : ".");
    if (slash) folder[slash == path ? 1 : slash - path] = 0;
    enum status status = read_text(place_of(out, false), folder, slash ? slash + 1 : path, err);
    mem_free(folder);
    if (status || out->text) return status;
    return err_set(err, STATUS_BAD_FILE, "chat-template", "%s: the file does not exist", path);
}

enum status folder_template_new(struct chat_template **out, const char *text, size_t length,
                                const char *file, struct err *err) {
    struct err cause = {0};
    enum status status = chat_template_new(out, text, length, &cause);
    if (!status) return STATUS_OK;
    return err_set(err, status, cause.param, "%s%s%s", file ? file : "", file ? ": " : "",
                   cause.message);
}
