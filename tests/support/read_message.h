/* Reads the text of an answer as a message, in parts, and adds them as clients of a stream do. */
#ifndef PENSTOCK_TESTS_READ_MESSAGE_H
#define PENSTOCK_TESTS_READ_MESSAGE_H

#include "server/message/message.h"

/* Writes a message as one line: R{thoughts} C{content} name(arguments) ... */
void write_message(const struct message *message, struct buf *out);

/* Reads a text in parts that end after `first` bytes and then every `step`, and writes the sum of
 * all parts with write_message. Checks the rules of every stream: a call begins once, with id and
 * name, and deltas are not empty. */
void read_message_in_parts(const struct message_settings *settings, const char *text, size_t first,
                           size_t step, struct buf *out);

/* Reads a text in parts of `step` bytes and writes the sum in the model's order: R{thoughts}
 * C{content} name(), without spaces. */
void read_message_in_order(const struct message_settings *settings, const char *text, size_t step,
                           struct buf *out);

/* Fails unless the text is read as this message of write_message, wherever it is cut. */
void expect_message(const struct message_settings *settings, const char *text,
                    const char *expected);

/* Adds a whole new call to a message, or its beginning, and returns it. */
struct message_call *message_give_call(struct message *message, int index, const char *id,
                                       const char *name, const char *arguments);

#endif
