#include "engine/sampling/changes.h"

#include <math.h>

bool changes_logits(const struct sample *sample) {
    const struct sampling *s = sample->sampling;
    return s->n_bias > 0 || s->n_banned > 0 || s->allowed || sample->mask || s->n_bad_words > 0 ||
           sampling_has_penalties(s);
}

/* ---- biases and what is forbidden ----------------------------------------------------------- */

static void forbid_all_but(const uint32_t *allowed, float *logits, int V) {
    for (int start = 0; start < V; start += 32) {
        uint32_t forbidden = ~allowed[start / 32];
        if (V - start < 32) forbidden &= ((uint32_t)1 << (V - start)) - 1;
        for (; forbidden; forbidden &= forbidden - 1)
            logits[start + __builtin_ctz(forbidden)] = -INFINITY;
    }
}

/* Words that may be due come before the output's newest token, and stand together. */
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
    if (sample->mask) forbid_all_but(sample->mask, logits, V);
    if (s->n_bad_words > 0) forbid_bad_words(s, logits, end, sample->n_output);
}

/* ---- penalties ------------------------------------------------------------------------------ */

/* The penalties apply to each id once: its count goes back to zero then; -1 marks an id that is in
 * the prompt only. */
void penalise(const struct sample *sample, float *logits, int32_t *count) {
    const struct sampling *s = sample->sampling;
    const int32_t *history = sample->history;
    int n_prompt = sample->n_prompt, n_all = n_prompt + sample->n_output;
    if (!sampling_has_penalties(s)) return;
    for (int i = n_prompt; i < n_all; i++) count[history[i]]++;
    for (int i = 0; i < n_prompt; i++)
        count[history[i]] = count[history[i]] ? count[history[i]] : -1;
    for (int i = 0; i < n_all; i++) {
        int32_t id = history[i], n = count[id];
        if (n == 0) continue;
        count[id] = 0;
        float penalty = s->repetition_penalty;
        if (penalty != 1) logits[id] = logits[id] > 0 ? logits[id] / penalty : logits[id] * penalty;
        if (n > 0) logits[id] -= s->frequency_penalty * (float)n + s->presence_penalty;
    }
}
