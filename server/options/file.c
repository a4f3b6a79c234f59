#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "server/options/table.h"

#define MAX_FILE_BYTES ((size_t)1 << 20)

/* The state of reading one file. */
struct options_reader {
    const char *path;
    yaml_parser_t parser;
    yaml_event_t event;
    struct setting *settings;
    struct arena *arena;
    struct err *err;
    int *lines; /* [option_count] line where the file sets an option; 0: nowhere */
};

/* Advances to the next event and frees the current one. */
static enum status next_event(struct options_reader *reader) {
    yaml_event_delete(&reader->event);
    if (yaml_parser_parse(&reader->parser, &reader->event)) return STATUS_OK;
    const char *problem = reader->parser.problem ? reader->parser.problem : "it is not YAML";
    size_t line = reader->parser.problem_mark.line + 1;
    return err_set(reader->err, STATUS_BAD_FILE, "config", "%s:%zu: %s", reader->path, line,
                   problem);
}

/* Returns the line of the current event, from 1. */
static int event_line(const struct options_reader *reader) {
    return (int)reader->event.start_mark.line + 1;
}

/* Reads the key of the current event. *index is its option. */
static enum status read_key(struct options_reader *reader, int *index, bool *negated) {
    if (reader->event.type != YAML_SCALAR_EVENT) {
        return err_set(reader->err, STATUS_BAD_FILE, "config",
                       "%s:%d: a key must be the name of an option", reader->path,
                       event_line(reader));
    }
    const char *key = (const char *)reader->event.data.scalar.value;
    size_t length = reader->event.data.scalar.length;
    *index = option_find(key, length, negated);
    if (*index < 0) {
        const char *nearest = option_nearest(key, length, ~0u);
        return err_set(reader->err, STATUS_BAD_FILE, "config",
                       "%s:%d: unknown option \"%.*s\"%s%s%s", reader->path, event_line(reader),
                       (int)(length < 80 ? length : 80), key, nearest ? "; did you mean " : "",
                       nearest ? nearest : "", nearest ? "?" : "");
    }
    const char *name = option_table[*index].name;
    if (strcmp(name, "config") == 0) {
        return err_set(reader->err, STATUS_BAD_FILE, "config",
                       "%s:%d: a file cannot name another file as its config", reader->path,
                       event_line(reader));
    }
    if (reader->lines[*index]) {
        return err_set(reader->err, STATUS_BAD_FILE, name,
                       "%s:%d: %s is set twice, first on line %d; keep only one", reader->path,
                       event_line(reader), name, reader->lines[*index]);
    }
    reader->lines[*index] = event_line(reader);
    return STATUS_OK;
}

/* Is a plain scalar YAML's null, which means "not set"? */
static bool is_null(const yaml_event_t *event) {
    if (event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return false;
    const char *text = (const char *)event->data.scalar.value;
    return !*text || strcmp(text, "~") == 0 || strcmp(text, "null") == 0;
}

/* Reads the value of the current event into the option's setting, unless an earlier source has set
 * it. */
static enum status read_value(struct options_reader *reader, int index, bool negated) {
    const char *name = option_table[index].name;
    if (reader->event.type != YAML_SCALAR_EVENT) {
        return err_set(reader->err, STATUS_BAD_FILE, name,
                       "%s:%d: %s takes one value, not a list or a map", reader->path,
                       event_line(reader), name);
    }
    const char *text = (const char *)reader->event.data.scalar.value;
    size_t length = reader->event.data.scalar.length;
    if (strlen(text) != length) {
        return err_set(reader->err, STATUS_BAD_FILE, name, "%s:%d: %s holds a NUL byte",
                       reader->path, event_line(reader), name);
    }
    struct setting *setting = &reader->settings[index];
    if (setting->source != SOURCE_NONE || is_null(&reader->event)) return STATUS_OK;
    char *copy = arena_strndup(reader->arena, text, length);
    assert(copy && "the arena is larger than a file may be");
    *setting = (struct setting){SOURCE_FILE, copy, negated, reader->lines[index]};
    return STATUS_OK;
}

/* Reads keys and values to the end of the map. */
static enum status read_map(struct options_reader *reader) {
    for (;;) {
        int index = -1;
        bool negated = false;
        enum status status = next_event(reader);
        if (status == STATUS_OK && reader->event.type == YAML_MAPPING_END_EVENT) return STATUS_OK;
        if (status == STATUS_OK) status = read_key(reader, &index, &negated);
        if (status == STATUS_OK) status = next_event(reader);
        if (status == STATUS_OK) status = read_value(reader, index, negated);
        if (status != STATUS_OK) return status;
    }
}

/* Reads the only document, a map. An empty file sets nothing. */
static enum status read_document(struct options_reader *reader) {
    enum status status;
    do status = next_event(reader);
    while (status == STATUS_OK && (reader->event.type == YAML_STREAM_START_EVENT ||
                                   reader->event.type == YAML_DOCUMENT_START_EVENT));
    if (status != STATUS_OK || reader->event.type == YAML_STREAM_END_EVENT) return status;
    bool map = reader->event.type == YAML_MAPPING_START_EVENT;
    if (!map && reader->event.type == YAML_SCALAR_EVENT && is_null(&reader->event)) return status;
    if (!map) {
        return err_set(reader->err, STATUS_BAD_FILE, "config",
                       "%s:%d: the file must hold lines of `name: value`", reader->path,
                       event_line(reader));
    }
    return read_map(reader);
}

/* Checks that only the end of the stream follows the first document. */
static enum status read_end(struct options_reader *reader) {
    while (reader->event.type != YAML_STREAM_END_EVENT) {
        enum status status = next_event(reader);
        if (status != STATUS_OK) return status;
        if (reader->event.type == YAML_DOCUMENT_START_EVENT) {
            return err_set(reader->err, STATUS_BAD_FILE, "config",
                           "%s:%d: a second document begins here; keep one", reader->path,
                           event_line(reader));
        }
    }
    return STATUS_OK;
}

enum status options_file_parse(const char *path, const char *data, size_t length,
                               struct setting *settings, struct arena *arena, struct err *err) {
    struct options_reader reader = {.path = path, .settings = settings, .arena = arena, .err = err};
    if (!yaml_parser_initialize(&reader.parser)) {
        return err_set(err, STATUS_SYSTEM, "config", "%s: out of memory", path);
    }
    reader.lines = mem_calloc((size_t)option_count, sizeof *reader.lines);
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)data, length);
    enum status status = read_document(&reader);
    if (status == STATUS_OK) status = read_end(&reader);
    yaml_event_delete(&reader.event);
    yaml_parser_delete(&reader.parser);
    mem_free(reader.lines);
    return status;
}

enum status options_file_read(const char *path, struct setting *settings, struct arena *arena,
                              struct err *err) {
    FILE *file = fopen(path, "rb");
    char *data = mem_alloc(MAX_FILE_BYTES + 1);
    errno = file ? 0 : errno;
    size_t length = file ? fread(data, 1, MAX_FILE_BYTES + 1, file) : 0;
    enum status status;
    if (!file || ferror(file)) {
        status = err_set(err, STATUS_BAD_FILE, "config",
                         "the configuration file %s cannot be read: %s", path, strerror(errno));
    } else if (length > MAX_FILE_BYTES) {
        status = err_set(err, STATUS_BAD_FILE, "config",
                         "%s is larger than the 1 MiB that a configuration file may have", path);
    } else {
        status = options_file_parse(path, data, length, settings, arena, err);
    }
    mem_free(data);
    if (file) fclose(file);
    return status;
}
