/* thoughts: a limit on the tokens of a model's thoughts, the text between two markers.
 *
 *     <think> Let me see . </think> \n\n Yes .
 *     BEFORE  OPEN: 4 tokens        OVER            limit 10: the model ends its thoughts
 *     <think> Let me </think> \n\n Yes .
 *     BEFORE  OPEN   FORCED         OVER            limit 2: both tokens after "me" are forced
 *
 * The state is plain data and depends only on the tokens of the output, so it is the same in any
 * batch. It finds the markers in the text of the tokens, because models divide a marker into tokens
 * in several ways. Pure functions; any thread.
 */
#ifndef PENSTOCK_THOUGHTS_H
#define PENSTOCK_THOUGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The limit on the thoughts of each choice of a generation. The owner of the generation keeps all
 * that it points to alive and unchanged. */
struct thought_limit {
    bool is_set;    /* false: no limit, and the other fields are unused */
    bool is_open;   /* the prompt ends inside thoughts */
    bool is_behind; /* the prompt ends after thoughts: none follow */
    /* thoughts may begin anywhere in the output and several times; otherwise only at its start,
     * after white space */
    bool may_return;
    int max_tokens;          /* generated tokens inside the markers of a choice */
    const char *begin, *end; /* the markers, NUL-terminated */
    const int32_t *forced;   /* [n_forced] the tokens that follow when the limit is reached */
    int n_forced;
    /* Returns the text of a token. */
    const char *(*text_of)(const void *texts, int32_t id, size_t *length);
    const void *texts;
};

enum thoughts_state { THOUGHTS_BEFORE, THOUGHTS_OPEN, THOUGHTS_FORCED, THOUGHTS_OVER };

struct thoughts {
    enum thoughts_state state;
    int n_matched; /* bytes of the next marker */
    int n_tokens;  /* of the thoughts */
    int n_taken;   /* of the forced tokens */
};

/* Returns the state before the first token of an output. */
struct thoughts thoughts_first(const struct thought_limit *limit);

/* Reads the next token of the output. A token that differs from a forced one ends the forcing: the
 * grammar did not allow it. */
void thoughts_take(struct thoughts *thoughts, const struct thought_limit *limit, int32_t id);

/* Returns the token that must be next, or -1. */
int32_t thoughts_next(const struct thoughts *thoughts, const struct thought_limit *limit);

/* Could a token be forced before or after the next n tokens, whatever these are? */
bool thoughts_may_force(const struct thoughts *thoughts, const struct thought_limit *limit, int n);

#endif
