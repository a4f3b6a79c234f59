/* Chat templates: compiling one, and rendering it for a conversation.
 *
 * DESIGN
 *   A compiled template is a syntax tree in an arena of its own; nothing writes to it after
 *   chat_template_new, so any number of threads may render it at once. A render has its own arena,
 *   in which all its values live, and which is freed whole. Errors leave by longjmp to the function
 *   that the arena was made for (compile_guarded, render_guarded): between there and the error no
 *   lock, file or malloc is held, so nothing is lost on the way.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/text/template.h"

#define COMPILE_BYTES ((size_t)128 << 20) /* what a template's tree may take */
#define RENDER_BYTES ((size_t)64 << 20)   /* of a render, besides eight times its output's limit */
#define OUTPUT_MAX ((size_t)256 << 20)    /* more than any prompt */

struct chat_template {
    struct arena *arena;
    const struct node *body;
    bool names_content; /* the source speaks of "content" */
};

/* ---- compiling ------------------------------------------------------------------------------ */

static bool compile_guarded(struct guard *guard, struct chat_template *chat_template,
                            const char *source, size_t length) {
    if (setjmp(guard->escape)) return false;
    if (length > TEMPLATE_SOURCE_MAX) {
        guard_fail(guard, "it is longer than %zu bytes", TEMPLATE_SOURCE_MAX);
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
    chat_template->names_content = length && memmem(source, length, "content", 7) != NULL;
    *out = chat_template;
    return STATUS_OK;
}

void chat_template_free(struct chat_template *chat_template) {
    if (!chat_template) return;
    arena_free(chat_template->arena);
    free(chat_template);
}

/* ---- what a template sees ------------------------------------------------------------------- */

static void set_global(struct render *r, const char *name, struct value value) {
    dict_set(r, r->globals, text_of(r, name), value);
}

/* The names under which a message's reasoning is known; as transformers does, "thinking" and
 * "reasoning_content" are there whenever one of them is. */
static struct value alias_reasoning(struct render *r, struct dict *message) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const struct value *reasoning = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !reasoning; i++) {
        reasoning = dict_find(r, message, names[i]);
        if (reasoning && reasoning->kind == VALUE_NONE) reasoning = NULL;
    }
    if (!reasoning) return VALUE_OF_DICT(message);
    struct dict *aliased = dict_new(r);
    dict_set(r, aliased, text_of(r, "thinking"), *reasoning);
    for (size_t i = 0; i < message->n; i++) {
        dict_set(r, aliased, message->pairs[i].key, message->pairs[i].value);
    }
    dict_set(r, aliased, text_of(r, "reasoning_content"), *reasoning);
    return VALUE_OF_DICT(aliased);
}

static struct list *read_messages(struct render *r, const struct cJSON *json) {
    struct value messages = value_from_json(r, json);
    if (messages.kind != VALUE_LIST) render_fail(r, "'messages' must be an array");
    for (size_t i = 0; i < messages.list->n; i++) {
        struct value *message = &messages.list->items[i];
        if (message->kind != VALUE_DICT) render_fail(r, "every message must be an object");
        *message = alias_reasoning(r, message->dict);
    }
    return messages.list;
}

static void set_globals(struct render *r, const struct chat_input *input, struct list *messages) {
    set_global(r, "messages", VALUE_OF_LIST(messages));
    set_global(r, "tools", input->tools ? value_from_json(r, input->tools) : VALUE_OF_NONE);
    set_global(r, "documents",
               input->documents ? value_from_json(r, input->documents) : VALUE_OF_NONE);
    set_global(r, "add_generation_prompt", VALUE_OF_BOOL(input->add_generation_prompt));
    if (input->bos_token) set_global(r, "bos_token", text_of(r, input->bos_token));
    if (input->eos_token) set_global(r, "eos_token", text_of(r, input->eos_token));
    if (!input->extra) return;
    struct value extra = value_from_json(r, input->extra);
    if (extra.kind != VALUE_DICT) render_fail(r, "the template's variables must be an object");
    for (size_t i = 0; i < extra.dict->n; i++) {
        dict_set(r, r->globals, extra.dict->pairs[i].key, extra.dict->pairs[i].value);
    }
}

/* ---- continuing the final message ----------------------------------------------------------- */

#define TAG "CONTINUE_FINAL_MESSAGE_TAG"

/* The last block of a content list that has text. */
static struct value *last_text(struct render *r, struct value *content) {
    if (content->kind != VALUE_LIST) return content;
    for (size_t i = content->list->n; i-- > 0;) {
        struct value *block = &content->list->items[i];
        struct value *text = block->kind == VALUE_DICT ? dict_find(r, block->dict, "text") : NULL;
        if (text) return text;
    }
    render_fail(r, "the final message has no text to continue");
}

/* Puts a tag behind the final message's content, to see where the template writes it. Returns
 * the content as it was. */
static const struct text *tag_final(struct render *r, const struct list *messages,
                                    bool names_content) {
    if (messages->n == 0) render_fail(r, "there is no final message to continue");
    struct value *content = dict_find(r, messages->items[messages->n - 1].dict, "content");
    if (!content || content->kind == VALUE_NONE) {
        render_fail(r, "the final message has no content to continue");
    }
    if (!names_content) render_fail(r, "the template does not use the messages' content");
    content = last_text(r, content);
    const struct text *text = value_need_text(r, *content, "the content to continue");
    *content = text_append(r, text, text_of(r, TAG " ").text);
    return text;
}

/* Cuts the output where the final message ends, as transformers does: at the tag, and where the
 * template has trimmed what stands around the content, before the white space in front of the
 * tag too. */
static void cut_at_tag(struct render *r, const struct text *content) {
    const struct text *all = builder_value(r, r->out).text;
    const struct text *tag = text_of(r, TAG).text;
    ptrdiff_t at = text_find_last(r, all, tag);
    if (at < 0 || text_find(r, all, text_strip(r, content, NULL, true, true).text, 0) < 0) {
        render_fail(r, "the final message to continue does not appear in the rendered prompt");
    }
    const struct text *head = text_part(r, all, 0, (size_t)at).text;
    size_t after = (size_t)at + tag->length;
    bool is_whole = after < all->length && all->data[after] == ' ';
    r->out->length = is_whole ? head->length : text_strip(r, head, NULL, false, true).text->length;
}

/* ---- rendering ------------------------------------------------------------------------------ */

static bool render_guarded(struct render *r, const struct chat_template *chat_template,
                           const struct chat_input *input, size_t max_bytes) {
    if (setjmp(r->guard.escape)) return false;
    r->globals = dict_new(r);
    r->out = builder_new(r);
    r->out->limit = max_bytes ? max_bytes : 1;
    r->frame = render_alloc(r, sizeof *r->frame);
    *r->frame = (struct frame){0};
    struct list *messages = read_messages(r, input->messages);
    const struct text *final = NULL;
    if (input->continue_final_message) {
        final = tag_final(r, messages, chat_template->names_content);
    }
    set_globals(r, input, messages);
    exec(r, chat_template->body);
    if (final) cut_at_tag(r, final);
    return true;
}

/* The output's parts by owner, `start` bytes into the caller's buffer. */
static struct chat_piece *pieces_of(const struct builder *out, size_t start, int *n_pieces) {
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
    *n_pieces = n;
    return pieces;
}

enum status chat_template_render(const struct chat_template *chat_template,
                                 const struct chat_input *input, size_t max_bytes, struct buf *out,
                                 struct chat_piece **pieces, int *n_pieces, struct err *err) {
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
    free(r);
    return done ? STATUS_OK : STATUS_INVALID_REQUEST;
}
