/* A schema that takes a few tenths of a second of CPU time to compile, and is then refused. */
#ifndef TESTS_SUPPORT_SLOW_SCHEMA_H
#define TESTS_SUPPORT_SLOW_SCHEMA_H

#include "config/config.h"

/* Appends a different schema for each number: automata of some ten thousand states, until they are
 * too large. */
static inline void slow_schema(struct buf *out, int number) {
    buf_printf(out, "{\"title\":\"%d\",\"type\":\"object\",\"properties\":{\"a\":{}", number);
    for (int i = 0; i < 20; i++) {
        buf_printf(out,
                   ",\"p%d\":{\"type\":\"string\",\"allOf\":[{\"pattern\":\"^.*%c.{11}$\"},"
                   "{\"pattern\":\"^.*%c.{11}$\"}]}",
                   i, 'a' + i, 'b' + i);
    }
    buf_puts(out, "}}");
}

#endif
