/* DESIGN: bounds the memory of answers that clients have not yet read.
 *
 * A client controls the size of some answers: ids that represent long texts, logprobs of a whole
 * prompt, many choices. An answer's size is estimated from the request, as far as possible, before
 * the work on it begins, and is counted from then until its last byte is sent. Workers and the loop
 * count, so the sum is atomic. Small answers are not counted, because the number of connections
 * bounds them. server/http/stream.c bounds the bytes of a stream.
 */
#include <assert.h>

#include "server/app/app.h"

/* Returns the counted size of an answer of `bytes`. */
static size_t answers_counted(size_t bytes) {
    return bytes > ANSWER_SMALL_BYTES ? bytes : 0;
}

/* Adds to the sum. Returns false if it would exceed its bound. */
static bool answers_add(struct answers *answers, size_t more) {
    size_t sum = atomic_load(&answers->bytes);
    do {
        bool is_bounded = answers->max_bytes > 0;
        if (is_bounded && (sum > answers->max_bytes || more > answers->max_bytes - sum))
            return false;
    } while (!atomic_compare_exchange_weak(&answers->bytes, &sum, sum + more));
    return true;
}

enum status answer_reserve(struct answers *answers, struct answer_share *share, size_t bytes,
                           const char *param, struct err *err) {
    if (bytes > ANSWER_MAX_BYTES)
        return err_set(err, STATUS_INVALID_REQUEST, param,
                       "The answer would take up to %zu bytes, but the limit is %zu: ask for less "
                       "in one request.",
                       bytes, ANSWER_MAX_BYTES);
    size_t counted = answers_counted(bytes);
    if (counted <= share->bytes) return STATUS_OK;
    if (answers_add(answers, counted - share->bytes)) {
        share->bytes = counted;
        return STATUS_OK;
    }
    err_set(err, STATUS_UNAVAILABLE, NULL,
            "Too many large answers wait to be read by their clients; try again later.");
    if (err) snprintf(err->code, sizeof err->code, "too_many_answers");
    return STATUS_UNAVAILABLE;
}

void answer_settle(struct answers *answers, struct answer_share *share, size_t bytes) {
    size_t counted = answers_counted(bytes);
    size_t before = atomic_fetch_add(&answers->bytes, counted - share->bytes); /* modulo 2^64 */
    assert(before >= share->bytes);
    (void)before;
    share->bytes = counted;
}

void answer_release(struct answers *answers, struct answer_share *share) {
    answer_settle(answers, share, 0);
    assert(share->bytes == 0);
}
