/* The limits of a compilation: the part of engine/grammar/build that grammar.h passes on. */
#ifndef PENSTOCK_GRAMMAR_LIMITS_H
#define PENSTOCK_GRAMMAR_LIMITS_H

#include <stdatomic.h>

#include "config/config.h"

/* Limits of a grammar; 0: the default in the comment. Above a limit compilation fails with a
 * message that names it. max_bytes also limits the memory during use. */
struct grammar_limits {
    size_t max_text;  /* 256 KiB */
    int max_depth;    /* 64 levels of nesting */
    int max_states;   /* 100,000 */
    size_t max_bytes; /* 16 MiB */
    int max_ms;       /* 500 ms of CPU time of the compiling thread */
    int max_copies;   /* 64: a repeat with more nodes counts; no failure */
    /* JSON Schema: objects with `properties` and without `additionalProperties` may have other
     * properties, as the specification says. false: they may not. */
    bool open_objects;
    /* Checked together with max_ms: if it becomes true, compilation fails with STATUS_CANCELLED.
     * NULL: compilation cannot be cancelled. */
    const atomic_bool *cancelled;
};

#endif
