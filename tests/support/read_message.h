/* An answer's text read as a message, in parts, as clients add a stream up. */
#ifndef PENSTOCK_TESTS_READ_MESSAGE_H
#define PENSTOCK_TESTS_READ_MESSAGE_H

#include "server/message/message.h"

/* Reads a text in parts that end after `first` bytes and then every `step`, and writes the sum of
 * what each part has brought as one line: R{thoughts} C{content} name(arguments) ... It checks what
 * holds for every stream: a call begins once, with id and name, and no delta is empty. */
void read_message_in_parts(const struct message_settings *settings, const char *text, size_t first,
                           size_t step, struct buf *out);

#endif
