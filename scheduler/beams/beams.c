#include "scheduler/beams/beams.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* A continuation of a beam. */
struct beam_candidate {
    int beam;
    int32_t id;
    float score;
};

int beams_n_best(int width, int n_stop_ids) {
    return width * max_int(2, 1 + n_stop_ids);
}

size_t beams_bytes(int width, int max_length) {
    size_t texts = ((size_t)width + 1) * (size_t)max_length * sizeof(int32_t);
    return (sizeof(struct beams) + texts + 7) / 8 * 8;
}

struct beams *beams_init(void *memory, const struct beam_search *search, int max_length,
                         const int32_t *stop_ids, int n_stop_ids) {
    struct beams *b = memory;
    int32_t *tokens = (int32_t *)(void *)(b + 1);
    *b = (struct beams){.search = *search,
                        .n_best = beams_n_best(search->width, n_stop_ids),
                        .max_length = max_length,
                        .n_stop_ids = n_stop_ids,
                        .stop_ids = stop_ids,
                        .n_live = 1};
    assert(search->width >= 1 && search->width <= MAX_BEAMS && max_length > 0);
    assert(b->n_best <= MAX_BEST);
    for (int i = 0; i <= search->width; i++) b->finished[i].tokens = tokens + i * max_length;
    return b;
}

/* ---- candidates ----------------------------------------------------------------------------- */

void beams_take(struct beams *b, int beam, int part, const struct sampled *sampled) {
    int from = part * MAX_TOP_LOGPROBS;
    assert(beam >= 0 && beam < b->n_live && from + sampled->n_top <= MAX_BEST);
    if (part == 0) b->n[beam] = 0;
    assert(b->n[beam] == from || sampled->n_top == 0);
    memcpy(b->candidate[beam] + from, sampled->top, (size_t)sampled->n_top * sizeof *sampled->top);
    b->n[beam] += sampled->n_top;
    b->known[beam] = true;
}

bool beams_complete(const struct beams *b) {
    for (int i = 0; i < b->n_live; i++)
        if (!b->known[i]) return false;
    return b->n_live > 0;
}

static bool comes_before(const struct beam_candidate *a, const struct beam_candidate *b) {
    if (a->score != b->score) return a->score > b->score;
    return a->beam != b->beam ? a->beam < b->beam : a->id < b->id;
}

/* Ranks the best candidates of all beams. Returns their number. The scores of one beam fall, so the
 * first candidate without a place ends its beam. Rounding may make different scores equal; then the
 * lower id is first. */
static int beams_rank(const struct beams *b, struct beam_candidate best[MAX_BEST]) {
    int n = 0;
    for (int beam = 0; beam < b->n_live; beam++) {
        for (int i = 0; i < b->n[beam]; i++) {
            const struct token_logprob *top = &b->candidate[beam][i];
            struct beam_candidate one = {beam, top->id, b->score[beam] + top->logprob};
            if (!isfinite(one.score)) break;
            if (n == b->n_best && one.score < best[n - 1].score) break;
            if (n == b->n_best && !comes_before(&one, &best[n - 1])) continue;
            int at = n < b->n_best ? n++ : n - 1;
            for (; at > 0 && comes_before(&one, &best[at - 1]); at--) best[at] = best[at - 1];
            best[at] = one;
        }
    }
    return n;
}

/* ---- ends ----------------------------------------------------------------------------------- */

static bool is_stop_id(const struct beams *b, int32_t id) {
    for (int i = 0; i < b->n_stop_ids; i++)
        if (b->stop_ids[i] == id) return true;
    return false;
}

/* Returns the score of a sum of logprobs over `length` tokens. pow is computed in doubles and
 * rounded to a float, which hides an error in its last bit. */
static float score_of(const struct beams *b, float sum, int length) {
    return sum / (float)pow((double)length, b->search.length_penalty);
}

/* Adds a candidate to the finished texts if it is better than the last of `width`. Texts that
 * finished earlier win ties. */
static void beams_finish(struct beams *b, const struct beam_candidate *candidate,
                         const int32_t *output, int length) {
    float score = score_of(b, candidate->score, length + 1);
    int width = b->search.width, at = b->n_finished;
    if (at == width && !(score > b->finished[width - 1].score)) return;
    struct finished_beam text = b->finished[at]; /* the spare one, or one that is not used yet */
    for (; at > 0 && score > b->finished[at - 1].score; at--) b->finished[at] = b->finished[at - 1];
    memcpy(text.tokens, output, (size_t)length * sizeof *output);
    text.tokens[length] = candidate->id;
    text.n_tokens = length + 1;
    text.score = score;
    text.by_stop_id = is_stop_id(b, candidate->id);
    b->finished[at] = text;
    b->n_finished = min_int(b->n_finished + 1, width);
}

/* Could the best beam of the next step enter the finished texts? Without early_stopping it is
 * judged at its current length; with "never", at the length with the highest score. */
static bool could_improve(const struct beams *b, float best, int length) {
    const struct beam_search *search = &b->search;
    if (b->n_finished < search->width) return true;
    if (search->stopping == BEAMS_STOP_EARLY) return false;
    bool longest = search->stopping == BEAMS_NEVER_STOP_EARLY && search->length_penalty > 0;
    return score_of(b, best, longest ? b->max_length : length) >
           b->finished[search->width - 1].score;
}

int beams_advance(struct beams *b, const int32_t *const output[MAX_BEAMS], int length,
                  struct next_beam next[MAX_BEAMS]) {
    struct beam_candidate best[MAX_BEST];
    int n = beams_rank(b, best), n_next = 0, width = b->search.width;
    bool full = length + 1 == b->max_length;
    assert(beams_complete(b) && length < b->max_length);
    for (int i = 0; i < n && n_next < width; i++) {
        const struct beam_candidate *one = &best[i];
        bool ends = full || is_stop_id(b, one->id);
        if (ends && i < width) beams_finish(b, one, output[one->beam], length);
        if (!ends) next[n_next++] = (struct next_beam){one->beam, one->id, one->score};
    }
    b->n_live = n_next > 0 && could_improve(b, next[0].score, length + 1) ? n_next : 0;
    for (int i = 0; i < b->n_live; i++) b->score[i] = next[i].score;
    memset(b->known, 0, sizeof b->known);
    return b->n_live;
}
