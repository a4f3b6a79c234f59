/* A growing message: reasoning, content, calls, and the ids of calls. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/message/internal.h"

bool message_is_empty(const struct message *message) {
    return message->reasoning.length == 0 && message->content.length == 0 && message->n_calls == 0;
}

void message_clear(struct message *message) {
    buf_clear(&message->reasoning);
    buf_clear(&message->content);
    for (int i = 0; i < message->n_calls; i++) buf_free(&message->calls[i].arguments);
    message->n_calls = message->n_parts = 0;
}

void message_free(struct message *message) {
    message_clear(message);
    buf_free(&message->reasoning);
    buf_free(&message->content);
    mem_free(message->calls);
    mem_free(message->parts);
    *message = (struct message){0};
}

/* Adds to the order of the output. Text of one kind is one part. */
static void add_part(struct message *message, enum message_kind kind, size_t length) {
    int n = message->n_parts;
    if (n > 0 && kind != MESSAGE_CALL && message->parts[n - 1].kind == kind) {
        message->parts[n - 1].length += length;
        return;
    }
    if (n == message->part_capacity) {
        int capacity = n ? 2 * n : 4;
        message->parts = mem_realloc(message->parts, (size_t)capacity * sizeof *message->parts);
        message->part_capacity = capacity;
    }
    message->parts[message->n_parts++] = (struct message_part){kind, length};
}

void message_add_text(struct message *message, enum message_kind kind, const char *text,
                      size_t length) {
    assert(kind != MESSAGE_CALL);
    if (length == 0) return;
    buf_add(kind == MESSAGE_REASONING ? &message->reasoning : &message->content, text, length);
    add_part(message, kind, length);
}

void message_drop_reasoning(struct message *message) {
    buf_clear(&message->reasoning);
    for (int i = 0; i < message->n_parts; i++)
        if (message->parts[i].kind == MESSAGE_REASONING) message->parts[i].length = 0;
}

/* Takes the parts of text that follow each other without a call or text of the other kind. */
static void take_text(const struct message *message, struct message_cursor *at,
                      struct message_piece *piece) {
    for (; at->part < message->n_parts; at->part++) {
        const struct message_part *part = &message->parts[at->part];
        bool is_empty = part->kind != MESSAGE_CALL && part->length == 0;
        if (part->kind != piece->kind && !is_empty) break;
        piece->length += part->length;
    }
}

bool message_next(const struct message *message, struct message_cursor *at,
                  struct message_piece *piece) {
    const struct message_part *part;
    do {
        if (at->part == message->n_parts) return false;
        part = &message->parts[at->part++];
    } while (part->kind != MESSAGE_CALL && part->length == 0);
    *piece = (struct message_piece){.kind = part->kind, .length = part->length};
    if (part->kind == MESSAGE_CALL) {
        assert(at->call < message->n_calls);
        piece->call = &message->calls[at->call++];
        return true;
    }
    bool is_reasoning = part->kind == MESSAGE_REASONING;
    const struct buf *text = is_reasoning ? &message->reasoning : &message->content;
    size_t *done = is_reasoning ? &at->reasoning : &at->content;
    take_text(message, at, piece);
    piece->text = text->data + *done;
    *done += piece->length;
    assert(*done <= text->length);
    return true;
}

struct message_call *message_call_at(struct message *message, int index) {
    int n = message->n_calls;
    if (n > 0 && message->calls[n - 1].index == index) return &message->calls[n - 1];
    assert(n == 0 || message->calls[n - 1].index < index);
    if (n == message->call_capacity) {
        int capacity = n ? 2 * n : 2;
        message->calls = mem_realloc(message->calls, (size_t)capacity * sizeof *message->calls);
        message->call_capacity = capacity;
    }
    message->calls[n] = (struct message_call){.index = index};
    add_part(message, MESSAGE_CALL, 0);
    return &message->calls[message->n_calls++];
}

/* ---- ids ------------------------------------------------------------------------------------ */

/* SplitMix64 (Steele et al. 2014). */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Mistral's templates accept only nine letters and digits. Kimi's template writes the id as the
 * model did. */
void write_call_id(char id[MAX_CALL_ID], enum id_style style, uint64_t seed, int index,
                   const struct pattern_reader *reader) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    uint64_t state = seed + (uint64_t)index * 0xD1342543DE82EF95u;
    int n = style == ID_NINE ? 9 : 24;
    char *out = id;
    if (style == ID_KIMI) {
        snprintf(id, MAX_CALL_ID, "functions.%s:%.16s", reader->name.text, reader->id.text);
        return;
    }
    if (style == ID_CALL) out += strlen(strcpy(id, "call_"));
    for (int i = 0; i < n; i++) *out++ = letters[next_random(&state) % (sizeof letters - 1)];
    *out = 0;
}

void add_escaped(struct buf *out, char c) {
    static const char escaped[] = "\"\\\n\r\t", letters[] = "\"\\nrt";
    const char *known = c ? strchr(escaped, c) : NULL;
    if (known)
        buf_add(out, (char[]){'\\', letters[known - escaped]}, 2);
    else if ((unsigned char)c < 0x20)
        buf_printf(out, "\\u%04x", (unsigned)c);
    else
        buf_add(out, &c, 1);
}
