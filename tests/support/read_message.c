#include "support/read_message.h"

#include <check.h>
#include <string.h>

#include "server/message/internal.h"

void write_message(const struct message *message, struct buf *out) {
    buf_clear(out);
    buf_puts(out, "");
    if (message->reasoning.length > 0) buf_printf(out, "R{%s}", message->reasoning.data);
    if (message->content.length > 0) buf_printf(out, "C{%s}", message->content.data);
    for (int i = 0; i < message->n_calls; i++) {
        const struct message_call *call = &message->calls[i];
        ck_assert_int_eq(call->index, i);
        ck_assert(call->begins && call->id[0]);
        buf_printf(out, "%s(%s)", call->name, call->arguments.data ? call->arguments.data : "");
    }
}

/* Adds a delta of a stream to the sum of the earlier ones, as a client does. */
static void join(struct message *sum, const struct message *delta) {
    buf_add(&sum->reasoning, delta->reasoning.data, delta->reasoning.length);
    buf_add(&sum->content, delta->content.data, delta->content.length);
    for (int i = 0; i < delta->n_calls; i++) {
        const struct message_call *from = &delta->calls[i];
        ck_assert_int_eq(from->begins, from->index == sum->n_calls);
        struct message_call *to = message_call_at(sum, from->index);
        if (from->begins) {
            to->begins = true;
            memcpy(to->id, from->id, sizeof to->id);
            memcpy(to->name, from->name, sizeof to->name);
        } else {
            ck_assert(from->arguments.length > 0); /* a delta must not be empty */
        }
        buf_add(&to->arguments, from->arguments.data, from->arguments.length);
    }
}

void read_message_in_parts(const struct message_settings *settings, const char *text, size_t first,
                           size_t step, struct buf *out) {
    struct message_parser *parser = message_parser_new(settings);
    struct message sum = {0}, delta = {0};
    size_t length = strlen(text);
    for (size_t at = 0, n = first; at < length; at += n, n = step) {
        if (n > length - at) n = length - at;
        message_parser_add(parser, text + at, n, &delta);
        join(&sum, &delta);
        message_clear(&delta);
    }
    message_parser_finish(parser, &delta);
    join(&sum, &delta);
    ck_assert_int_eq(message_parser_calls(parser), sum.n_calls);
    ck_assert(message_parser_is_idle(parser));
    write_message(&sum, out);
    message_free(&sum);
    message_free(&delta);
    message_parser_free(parser);
}
