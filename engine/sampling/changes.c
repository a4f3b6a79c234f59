#include "engine/sampling/changes.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sampling/sampling.h"

bool changes_logits(const struct sample *sample) {
    const struct sampling *s = sample->sampling;
    return s->n_bias > 0 || s->n_banned > 0 || s->allowed || s->n_bad_words > 0 ||
           sampling_has_penalties(s) || sampling_lists_changes(s);
}

/* ---- biases and bans ------------------------------------------------------------------------ */

static void forbid_all_but(const uint32_t *allowed, float *logits, int V) {
    for (int start = 0; start < V; start += 32) {
        uint32_t forbidden = ~allowed[start / 32];
        if (V - start < 32) forbidden &= ((uint32_t)1 << (V - start)) - 1;
        for (; forbidden; forbidden &= forbidden - 1)
            logits[start + __builtin_ctz(forbidden)] = -INFINITY;
    }
}

int gather_allowed(const uint32_t *allowed, const float *logits, int V, int most, float *to,
                   int32_t *ids) {
    int n = 0;
    for (int start = 0; start < V; start += 32) {
        uint32_t left = allowed[start / 32];
        if (V - start < 32) left &= ((uint32_t)1 << (V - start)) - 1;
        for (; left; left &= left - 1) {
            if (n == most) return -1;
            ids[n] = start + __builtin_ctz(left);
            to[n] = logits[ids[n]];
            n++;
        }
    }
    return n;
}

/* Words that may be due match the output's newest token and are adjacent in the list. */
static void forbid_bad_words(const struct sampling *s, float *logits, const int32_t *at,
                             int n_output) {
    int low = 0, high = s->n_bad_words;
    if (n_output == 0) return;
    while (low < high) {
        int middle = (low + high) / 2;
        if (s->bad_words[middle].before[0] < at[-1])
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < s->n_bad_words && s->bad_words[low].before[0] == at[-1]; low++)
        if (bad_word_is_due(&s->bad_words[low], at, n_output))
            logits[s->bad_words[low].last] = -INFINITY;
}

void bias_and_forbid(const struct sample *sample, float *logits, int V) {
    const struct sampling *s = sample->sampling;
    const int32_t *end = sample->history + sample->n_prompt + sample->n_output;
    for (int i = 0; i < s->n_bias; i++) logits[s->bias[i].id] += s->bias[i].bias;
    for (int i = 0; i < s->n_banned; i++) logits[s->banned[i]] = -INFINITY;
    if (s->allowed) forbid_all_but(s->allowed, logits, V);
    if (s->n_bad_words > 0) forbid_bad_words(s, logits, end, sample->n_output);
}

/* ---- the history ---------------------------------------------------------------------------- */

/* The listed changes and, per id, the index of its change plus 1. */
struct change_list {
    struct logit_change *change;
    int n;
    int32_t *place;
};

static struct logit_change *change_of(struct change_list *list, int32_t id) {
    if (list->place[id] == 0) {
        list->change[list->n] = (struct logit_change){.id = id};
        list->place[id] = ++list->n;
    }
    return &list->change[list->place[id] - 1];
}

/* Without a window, ids that occur only in the prompt count only for the repetition penalty. */
static void count_tokens(struct change_list *list, const struct sample *sample) {
    int n = sample->n_prompt + sample->n_output, last = sample->sampling->penalty_last_n;
    int first = last > 0 ? max_int(n - last, 0) : sample->n_prompt;
    if (!sampling_has_penalties(sample->sampling)) return;
    for (int i = first; i < n; i++) change_of(list, sample->history[i])->count++;
    for (int i = 0; last == 0 && i < sample->n_prompt; i++) {
        struct logit_change *change = change_of(list, sample->history[i]);
        if (change->count == 0) change->count = -1;
    }
}

/* The number of tokens, of the `most` before `end`, after the last one that ends a repeat. */
static int length_unbroken(const uint32_t *breakers, const int32_t *end, int most) {
    int n = 0;
    if (!breakers) return most;
    while (n < most && !(breakers[end[-1 - n] / 32] >> end[-1 - n] % 32 & 1)) n++;
    return n;
}

/* DRY: if the history's last tokens also occur `back` tokens earlier, the token that followed them
 * there gets a penalty that grows with the length of the match. */
static void discourage_repeats(struct change_list *list, const struct sample *sample) {
    const struct sampling *s = sample->sampling;
    int n_all = sample->n_prompt + sample->n_output, window = min_int(n_all, s->dry_last_n);
    const int32_t *end = sample->history + n_all;
    int longest = length_unbroken(s->dry_breakers, end, min_int(window, MAX_REPEAT));
    float penalty[MAX_REPEAT + 1];
    if (s->dry_multiplier <= 0 || longest < s->dry_allowed_length) return;
    double power = (double)s->dry_multiplier;
    for (int n = s->dry_allowed_length; n <= longest; n++, power *= (double)s->dry_base)
        penalty[n] = power < (double)FLT_MAX ? (float)power : FLT_MAX;
    for (int back = 1; back < window; back++) {
        int n = 0, most = min_int(longest, window - back);
        while (n < most && end[-1 - n] == end[-1 - n - back]) n++;
        if (n < s->dry_allowed_length) continue;
        struct logit_change *change = change_of(list, end[-back]);
        change->minus = fmaxf(change->minus, penalty[n]);
    }
}

/* Bans the tokens that followed the history's last tokens at earlier occurrences. */
static void forbid_ngrams(struct change_list *list, const struct sample *sample) {
    int n = sample->sampling->no_repeat_ngram - 1, n_all = sample->n_prompt + sample->n_output;
    if (n < 0 || n >= n_all) return;
    const int32_t *end = sample->history + n_all;
    for (const int32_t *at = sample->history + n; at < end; at++)
        if (memcmp(at - n, end - n, (size_t)n * sizeof *at) == 0)
            change_of(list, *at)->minus = INFINITY;
}

int list_changes(const struct sample *sample, int32_t *place, struct logit_change *change) {
    struct change_list list = {change, 0, place};
    assert(sample->sampling->no_repeat_ngram <= MAX_REPEAT);
    count_tokens(&list, sample);
    discourage_repeats(&list, sample);
    forbid_ngrams(&list, sample);
    for (int i = 0; i < list.n; i++) place[change[i].id] = 0;
    return list.n;
}

void apply_changes(const struct sampling *s, const struct logit_change *change, int n,
                   float *logits) {
    float penalty = s->repetition_penalty;
    for (; n > 0; n--, change++) {
        float l = logits[change->id];
        if (change->count != 0 && penalty != 1) l = l > 0 ? l / penalty : l * penalty;
        if (change->count > 0)
            l -= s->frequency_penalty * (float)change->count + s->presence_penalty;
        logits[change->id] = change->minus == INFINITY ? -INFINITY : l - change->minus;
    }
}

/* ---- listing changes for a device ----------------------------------------------------------- */

struct change_lists {
    int V, max_samples;
    int32_t *place;              /* [V] */
    struct logit_changes *lists; /* [max_samples] */
    struct logit_change *change; /* [capacity] for all samples; grows if a step needs more */
    size_t capacity;
};

struct change_lists *change_lists_new(int V, int max_samples) {
    struct change_lists *lists = mem_calloc(1, sizeof *lists);
    assert(V > 0 && max_samples > 0);
    lists->V = V;
    lists->max_samples = max_samples;
    lists->place = mem_calloc((size_t)V, sizeof *lists->place);
    lists->lists = mem_calloc((size_t)max_samples, sizeof *lists->lists);
    return lists;
}

void change_lists_free(struct change_lists *lists) {
    if (!lists) return;
    mem_free(lists->place);
    mem_free(lists->lists);
    mem_free(lists->change);
    mem_free(lists);
}

/* The maximum number of changes of a sample: 0 unless its settings list them. */
static size_t most_changes(const struct sample *sample, int V) {
    if (!sample->sampling || sample->part || !sampling_lists_changes(sample->sampling)) return 0;
    return (size_t)min_int(V, sample->n_prompt + sample->n_output);
}

const struct logit_changes *change_lists_fill(struct change_lists *lists,
                                              const struct sample *samples, int n) {
    size_t most = 0;
    assert(n <= lists->max_samples);
    for (int i = 0; i < n; i++) most += most_changes(&samples[i], lists->V);
    if (most == 0) return NULL;
    if (most > lists->capacity) {
        lists->capacity = 2 * most;
        mem_free(lists->change);
        lists->change = mem_calloc(lists->capacity, sizeof *lists->change);
    }
    struct logit_change *to = lists->change;
    for (int i = 0; i < n; i++) {
        lists->lists[i] = (struct logit_changes){0};
        if (most_changes(&samples[i], lists->V) == 0) continue;
        assert(!samples[i].last_is_pending);
        int listed = list_changes(&samples[i], lists->place, to);
        lists->lists[i] = (struct logit_changes){to, listed};
        to += listed;
    }
    return lists->lists;
}
