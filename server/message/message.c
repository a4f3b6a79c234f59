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
    message->n_calls = 0;
}

void message_free(struct message *message) {
    message_clear(message);
    buf_free(&message->reasoning);
    buf_free(&message->content);
    mem_free(message->calls);
    *message = (struct message){0};
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
