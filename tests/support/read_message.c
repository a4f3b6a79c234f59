#include "support/read_message.h"

#include <check.h>
#include <stdio.h>
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

struct message_call *message_give_call(struct message *message, int index, const char *id,
                                       const char *name, const char *arguments) {
    struct message_call *call = message_call_at(message, index);
    call->begins = true;
    snprintf(call->id, sizeof call->id, "%s", id);
    snprintf(call->name, sizeof call->name, "%s", name);
    buf_puts(&call->arguments, arguments);
    return call;
}

static void join_call(struct message *sum, const struct message_call *from) {
    ck_assert_int_eq(from->begins, from->index == sum->n_calls);
    if (from->begins) {
        message_give_call(sum, from->index, from->id, from->name, "");
    } else {
        ck_assert(from->arguments.length > 0); /* a delta must not be empty */
    }
    buf_add(&message_call_at(sum, from->index)->arguments, from->arguments.data,
            from->arguments.length);
}

/* Adds a delta of a stream to the sum of the earlier ones, as a client does. */
static void join(struct message *sum, const struct message *delta) {
    struct message_cursor at = {0};
    struct message_piece piece;
    while (message_next(delta, &at, &piece)) {
        if (piece.call)
            join_call(sum, piece.call);
        else
            message_add_text(sum, piece.kind, piece.text, piece.length);
    }
    ck_assert(at.reasoning == delta->reasoning.length && at.content == delta->content.length &&
              at.call == delta->n_calls);
}

static void read_sum(const struct message_settings *settings, const char *text, size_t first,
                     size_t step, struct message *sum) {
    struct message_parser *parser = message_parser_new(settings);
    struct message delta = {0};
    size_t length = strlen(text);
    for (size_t at = 0, n = first; at < length; at += n, n = step) {
        if (n > length - at) n = length - at;
        message_parser_add(parser, text + at, n, &delta);
        join(sum, &delta);
        message_clear(&delta);
    }
    message_parser_finish(parser, &delta);
    join(sum, &delta);
    ck_assert_int_eq(message_parser_calls(parser), sum->n_calls);
    ck_assert(message_parser_is_idle(parser));
    message_free(&delta);
    message_parser_free(parser);
}

void read_message_in_parts(const struct message_settings *settings, const char *text, size_t first,
                           size_t step, struct buf *out) {
    struct message sum = {0};
    read_sum(settings, text, first, step, &sum);
    write_message(&sum, out);
    message_free(&sum);
}

void read_message_in_order(const struct message_settings *settings, const char *text, size_t step,
                           struct buf *out) {
    struct message sum = {0};
    struct message_cursor at = {0};
    struct message_piece piece;
    buf_clear(out);
    read_sum(settings, text, step, step, &sum);
    while (message_next(&sum, &at, &piece)) {
        if (piece.call) {
            buf_printf(out, "%s()", piece.call->name);
            continue;
        }
        buf_puts(out, piece.kind == MESSAGE_REASONING ? "R{" : "C{");
        buf_add(out, piece.text, piece.length);
        buf_puts(out, "}");
    }
    message_free(&sum);
}

void expect_message(const struct message_settings *settings, const char *text,
                    const char *expected) {
    struct buf whole = {0}, parts = {0};
    size_t length = strlen(text);
    read_message_in_parts(settings, text, length, length, &whole);
    ck_assert_msg(strcmp(whole.data, expected) == 0, "%s\n gave     %s\n and not  %s", text,
                  whole.data, expected);
    for (size_t cut = 0; cut <= length; cut++) {
        read_message_in_parts(settings, text, cut, length, &parts);
        ck_assert_msg(strcmp(parts.data, expected) == 0, "cut at %zu: %s\n gave     %s", cut, text,
                      parts.data);
    }
    for (size_t step = 1; step <= 13; step++) {
        read_message_in_parts(settings, text, step, step, &parts);
        ck_assert_msg(strcmp(parts.data, expected) == 0, "every %zu: %s\n gave     %s", step, text,
                      parts.data);
    }
    buf_free(&whole);
    buf_free(&parts);
}
