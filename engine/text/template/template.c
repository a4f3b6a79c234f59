/* Chat templates: compiling a template, and rendering it for a conversation.
 *
 * DESIGN
 *   A compiled template is a syntax tree in a separate arena. It is read-only after
 *   chat_template_new, so any number of threads may render it at the same time. All values of a
 *   render are in the render's arena, which is freed as a whole. Errors longjmp to the function
 *   that owns the arena (compile_guarded, render_guarded). Between that function and the error the
 *   interpreter does not hold locks, files or malloc'ed memory, so errors do not leak. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/template/template.h"

#define COMPILE_BYTES ((size_t)128 << 20) /* limit of a template's tree */
/* limit of a render, in addition to 8 * max_bytes of output */
#define RENDER_BYTES ((size_t)64 << 20)
#define OUTPUT_MAX ((size_t)256 << 20) /* limit of max_bytes */

struct chat_template {
    struct arena *arena;
    const struct template_node *body;
    struct buf source;
    bool names_content; /* the source contains "content" */
    struct template_wishes wishes;
};

/* ---- guard: bounds, memory and errors ------------------------------------------------------- */

_Noreturn void guard_fail(struct guard *guard, const char *format, ...) {
    char cause[512]; /* the size of err->message, which err_set cuts between characters */
    va_list list;
    va_start(list, format);
    vsnprintf(cause, sizeof cause, format, list);
    va_end(list);
    err_set(guard->err, guard->status, "chat_template", "chat template, line %d: %s", guard->line,
            cause);
    longjmp(guard->escape, 1);
}

void *guard_alloc(struct guard *guard, size_t bytes) {
    void *memory = arena_alloc(guard->arena, bytes);
    if (!memory) guard_fail(guard, "the template needs more memory than its limit");
    return memory;
}

void *guard_array(struct guard *guard, size_t n, size_t bytes) {
    assert(bytes > 0);
    if (n > SIZE_MAX / bytes) guard_fail(guard, "the template needs more memory than its limit");
    return guard_alloc(guard, n * bytes);
}

void guard_charge(struct guard *guard, size_t steps) {
    guard->steps += steps;
    if (guard->steps > TEMPLATE_STEPS_MAX) guard_fail(guard, "the template takes too many steps");
}

void guard_enter(struct guard *guard) {
    if (++guard->depth > TEMPLATE_DEPTH_MAX) guard_fail(guard, "the template is nested too deeply");
}

void guard_leave(struct guard *guard) {
    assert(guard->depth > 0);
    guard->depth--;
}

/* ---- compiling ------------------------------------------------------------------------------ */

static bool compile_guarded(struct guard *guard, struct chat_template *chat_template,
                            const char *source, size_t length) {
    if (setjmp(guard->escape)) return false;
    if (length > TEMPLATE_SOURCE_MAX) {
        guard_fail(guard, "the template is longer than %zu bytes", TEMPLATE_SOURCE_MAX);
    }
    chat_template->body = template_parse(guard, source, length);
    return true;
}

enum status chat_template_new(struct chat_template **out, const char *source, size_t length,
                              struct err *err) {
    struct chat_template *chat_template = mem_calloc(1, sizeof *chat_template);
    struct guard guard = {.err = err, .status = STATUS_BAD_FILE, .line = 1};
    guard.arena = chat_template->arena = arena_new(COMPILE_BYTES);
    *out = NULL;
    if (!compile_guarded(&guard, chat_template, source, length)) {
        chat_template_free(chat_template);
        return STATUS_BAD_FILE;
    }
    buf_add(&chat_template->source, source, length);
    chat_template->names_content = length && memmem(source, length, "content", 7) != NULL;
    template_find_wishes(&chat_template->wishes, chat_template, chat_template->body);
    *out = chat_template;
    return STATUS_OK;
}

void chat_template_free(struct chat_template *chat_template) {
    if (!chat_template) return;
    arena_free(chat_template->arena);
    buf_free(&chat_template->source);
    mem_free(chat_template);
}

const char *chat_template_source(const struct chat_template *chat_template, size_t *length) {
    *length = chat_template->source.length;
    return chat_template->source.data ? chat_template->source.data : "";
}

static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool chat_template_names(const struct chat_template *chat_template, const char *name) {
    const struct buf *source = &chat_template->source;
    const size_t length = strlen(name);
    const char *end = source->data + source->length;
    for (const char *at = source->data; at; at++) {
        at = memmem(at, (size_t)(end - at), name, length);
        if (!at) return false;
        bool starts = at == source->data || !is_name_char(at[-1]);
        if (starts && (at + length == end || !is_name_char(at[length]))) return true;
    }
    return false;
}

struct chat_wishes chat_template_wishes(const struct chat_template *chat_template) {
    return template_known_wishes(&chat_template->wishes);
}

bool chat_template_reserves(const char *name) {
    static const char *const set[] = {"messages",  "tools",     "add_generation_prompt",
                                      "bos_token", "eos_token", "continue_final_message"};
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        if (strcmp(set[i], name) == 0) return true;
    return builtin_function(name, strlen(name)) != NULL;
}

/* ---- global variables ----------------------------------------------------------------------- */

void render_set(struct render *r, const char *name, struct value value) {
    dict_set(r, r->globals, string_of(r, name), value);
}

/* A message's reasoning has several names. Like in transformers, a message with one of them gets
 * both "thinking" and "reasoning_content". */
static struct value alias_reasoning(struct render *r, struct dict *message) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const struct value *reasoning = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !reasoning; i++) {
        reasoning = dict_find(r, message, names[i]);
        if (reasoning && reasoning->kind == VALUE_NONE) reasoning = NULL;
    }
    if (!reasoning) return VALUE_OF_DICT(message);
    struct dict *aliased = dict_new(r);
    dict_set(r, aliased, string_of(r, "thinking"), *reasoning);
    for (size_t i = 0; i < message->n; i++) {
        dict_set(r, aliased, message->pairs[i].key, message->pairs[i].value);
    }
    dict_set(r, aliased, string_of(r, "reasoning_content"), *reasoning);
    return VALUE_OF_DICT(aliased);
}

static struct template_list *read_messages(struct render *r, const struct json *json) {
    struct value messages = value_from_json(r, json);
    if (messages.kind != VALUE_LIST) render_fail(r, "'messages' must be an array");
    for (size_t i = 0; i < messages.list->n; i++) {
        struct value *message = &messages.list->items[i];
        if (message->kind != VALUE_DICT) render_fail(r, "every message must be an object");
        *message = alias_reasoning(r, message->dict);
    }
    return messages.list;
}

static void set_globals(struct render *r, const struct template_wishes *wishes,
                        const struct chat_input *input, struct template_list *messages) {
    render_set(r, "messages", VALUE_OF_LIST(messages));
    render_set(r, "tools", input->tools ? value_from_json(r, input->tools) : VALUE_OF_NONE);
    render_set(r, "documents",
               input->documents ? value_from_json(r, input->documents) : VALUE_OF_NONE);
    render_set(r, "add_generation_prompt", VALUE_OF_BOOL(input->add_generation_prompt));
    if (input->bos_token) render_set(r, "bos_token", string_of(r, input->bos_token));
    if (input->eos_token) render_set(r, "eos_token", string_of(r, input->eos_token));
    template_set_wishes(r, wishes, input);
    if (!input->extra) return;
    struct value extra = value_from_json(r, input->extra);
    if (extra.kind != VALUE_DICT) render_fail(r, "the template's variables must be an object");
    for (size_t i = 0; i < extra.dict->n; i++) {
        dict_set(r, r->globals, extra.dict->pairs[i].key, extra.dict->pairs[i].value);
    }
}

/* ---- continuing the final message ----------------------------------------------------------- */

#define TAG "CONTINUE_FINAL_MESSAGE_TAG"

/* Returns the content to continue; in a list, the text of the last block that contains text. */
static struct value *last_text(struct render *r, struct value *content) {
    if (content->kind != VALUE_LIST) return content;
    for (size_t i = content->list->n; i-- > 0;) {
        struct value *block = &content->list->items[i];
        struct value *text = block->kind == VALUE_DICT ? dict_find(r, block->dict, "text") : NULL;
        if (text) return text;
    }
    render_fail(r, "the final message lacks text to continue");
}

/* Appends a tag to the final message's content, to find the content in the output. Returns the
 * content without the tag. */
static const struct string *tag_final(struct render *r, const struct template_list *messages,
                                      bool names_content) {
    if (messages->n == 0) render_fail(r, "the final message to continue is missing");
    struct value *content = dict_find(r, messages->items[messages->n - 1].dict, "content");
    if (!content || content->kind == VALUE_NONE) {
        render_fail(r, "the final message lacks content to continue");
    }
    if (!names_content) render_fail(r, "the template does not use the messages' content");
    content = last_text(r, content);
    const struct string *text = value_need_string(r, *content, "the content to continue");
    *content = string_append(r, text, string_of(r, TAG " ").string);
    return text;
}

/* Cuts the output at the end of the final message, like transformers: at the tag; or, if the
 * template has trimmed the content (the space of TAG " " is missing), before the white space in
 * front of the tag. */
static void cut_at_tag(struct render *r, const struct string *content) {
    const struct string *all = builder_value(r, r->out).string;
    const struct string *tag = string_of(r, TAG).string;
    ptrdiff_t at = string_find_last(r, all, tag);
    if (at < 0 || string_find(r, all, string_strip(r, content, NULL, true, true).string, 0) < 0) {
        render_fail(r, "the final message to continue does not appear in the rendered prompt");
    }
    const struct string *head = string_part(r, all, 0, (size_t)at).string;
    size_t after = (size_t)at + tag->length;
    bool is_whole = after < all->length && all->data[after] == ' ';
    r->out->length =
        is_whole ? head->length : string_strip(r, head, NULL, false, true).string->length;
}

/* ---- rendering ------------------------------------------------------------------------------ */

static bool render_guarded(struct render *r, const struct chat_template *chat_template,
                           const struct chat_input *input, size_t max_bytes) {
    if (setjmp(r->guard.escape)) return false;
    r->globals = dict_new(r);
    r->out = builder_new(r);
    r->out->limit = max_bytes ? max_bytes : 1;
    r->frame = render_alloc(r, sizeof *r->frame);
    *r->frame = (struct template_frame){0};
    struct template_list *messages = read_messages(r, input->messages);
    const struct string *final = NULL;
    if (input->continue_final_message) {
        final = tag_final(r, messages, chat_template->names_content);
    }
    set_globals(r, &chat_template->wishes, input, messages);
    enum flow flow = exec(r, chat_template->body);
    assert(flow == FLOW_NEXT && r->guard.depth == 0);
    (void)flow;
    if (final) cut_at_tag(r, final);
    return true;
}

/* Returns the output's runs of bytes by owner. They begin `start` bytes into the caller's
 * buffer. */
static struct chat_piece *pieces_of(const struct template_builder *out, size_t start,
                                    int *n_pieces) {
    struct chat_piece *pieces = NULL;
    int n = 0, capacity = 0;
    for (size_t at = 0, end; at < out->length; at = end) {
        bool user = out->mask ? out->mask[at] : out->user;
        end = out->mask ? at + 1 : out->length;
        while (out->mask && end < out->length && out->mask[end] == user) end++;
        if (n == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            pieces = mem_realloc(pieces, (size_t)capacity * sizeof *pieces);
        }
        pieces[n++] =
            (struct chat_piece){.start = start + at, .length = end - at, .from_user = user};
    }
    assert(n == 0 || pieces[n - 1].start + pieces[n - 1].length == start + out->length);
    *n_pieces = n;
    return pieces;
}

enum status chat_template_render(const struct chat_template *chat_template,
                                 const struct chat_input *input, size_t max_bytes, struct buf *out,
                                 struct chat_piece **pieces, int *n_pieces, struct err *err) {
    assert(chat_template && chat_template->arena && input && out);
    if (max_bytes > OUTPUT_MAX) max_bytes = OUTPUT_MAX;
    struct render *r = mem_calloc(1, sizeof *r);
    r->guard = (struct guard){.err = err, .status = STATUS_INVALID_REQUEST, .line = 1};
    r->guard.arena = arena_new(RENDER_BYTES + 8 * max_bytes);
    r->time_s = input->time_s;
    bool done = render_guarded(r, chat_template, input, max_bytes);
    if (done) {
        if (pieces) *pieces = pieces_of(r->out, out->length, n_pieces);
        buf_add(out, r->out->length ? r->out->data : "", r->out->length);
    }
    arena_free(r->guard.arena);
    mem_free(r);
    return done ? STATUS_OK : STATUS_INVALID_REQUEST;
}
