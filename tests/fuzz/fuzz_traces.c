/* The headers of W3C Trace Context, the lists of OTEL_ variables, and a collector's answer: any
 * bytes are read or refused. An accepted header is written in a form that is read again as the
 * same. The first line is a traceparent; the rest is all the others. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "server/traces/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_parent(const char *text) {
    struct trace_context context, again;
    char written[TRACE_PARENT_BYTES];
    if (!trace_context_read(&context, text)) return;
    trace_context_write(&context, written);
    assert(strlen(written) == TRACE_PARENT_BYTES - 1);
    bool is_read = trace_context_read(&again, written);
    assert(is_read && memcmp(&context, &again, sizeof context) == 0);
    (void)is_read;
}

static void check_state(const char *text) {
    char state[TRACE_STATE_BYTES], again[TRACE_STATE_BYTES];
    bool is_read = trace_state_read(state, text);
    assert(strlen(state) < TRACE_STATE_BYTES && (is_read || !*state));
    if (!is_read) return;
    is_read = trace_state_read(again, state);
    assert(is_read && strcmp(state, again) == 0 && is_printable(state, strlen(state)));
}

static void check_pairs(const char *text) {
    struct buf name = {0}, value = {0};
    const char *at = text;
    while (trace_pair_next(&at, &name, &value) && name.length > 0) {
        assert(at > text && name.length + value.length < (size_t)(at - text));
        text = at;
    }
    buf_free(&name);
    buf_free(&value);
}

static void check_answer(const char *text, size_t length) {
    char said[32];
    uint64_t n = traces_rejected(text, length, said, sizeof said);
    assert(strlen(said) < sizeof said && (n > 0 || !*said));
    (void)n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *line = memchr(data, '\n', size);
    size_t first = line ? (size_t)(line - data) : size;
    char *text = mem_alloc(size + 1);
    memcpy(text, data, size);
    text[size] = 0;
    text[first] = 0;
    check_parent(text);
    const char *rest = first < size ? text + first + 1 : text;
    check_state(rest);
    check_pairs(rest);
    check_answer(rest, size - (size_t)(rest - text));
    mem_free(text);
    return 0;
}
