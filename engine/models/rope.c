/* Computes the frequencies of rotary positions, stretched like in transformers: once, in double,
 * then rounded to float. */
#include <assert.h>
#include <math.h>

#include "engine/models/model.h"

/* Returns the divisor of frequency i in Llama 3.1: 1 for wavelengths that fit many times into the
 * original context, `factor` for longer ones; between these its inverse is interpolated linearly.
 */
static double llama3_divisor(const struct rope_config *rope, int i) {
    const struct rope_stretch *s = &rope->stretch;
    double wavelength = 2 * M_PI * pow((double)rope->base, 2.0 * i / rope->D_rope);
    double turns = s->original_context / wavelength;
    double part = (turns - s->low_freq_factor) / (s->high_freq_factor - s->low_freq_factor);
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    return 1 / ((1 - part) / s->factor + part);
}

/* Returns the pair, as a fraction, that turns this number of times in the original context. */
static double pair_of_turns(const struct rope_config *rope, double turns) {
    double wavelength = rope->stretch.original_context / turns;
    return rope->D_rope * log(wavelength / (2 * M_PI)) / (2 * log((double)rope->base));
}

/* Returns the divisor in YaRN: 1 up to the pair that turns beta_fast times in the original context,
 * `factor` from the pair that turns beta_slow times; between these its inverse is interpolated
 * linearly. */
static double yarn_divisor(const struct rope_config *rope, int i) {
    const struct rope_stretch *s = &rope->stretch;
    double first = pair_of_turns(rope, s->beta_fast), last = pair_of_turns(rope, s->beta_slow);
    if (s->truncates) first = floor(first), last = ceil(last);
    first = fmax(first, 0);
    last = fmin(last, rope->D_rope - 1);
    if (first == last) last += 0.001;
    double part = (i - first) / (last - first);
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    return 1 / (part / s->factor + 1 - part);
}

/* The divisor for a pair that does not rotate, the value in GGUF files: the angle at every position
 * is too small to change a float's cosine. */
static const double STILL = 1e30;

static double divisor_of(const struct rope_config *rope, int i, int length) {
    const struct rope_stretch *s = &rope->stretch;
    switch (s->kind) {
    case ROPE_LINEAR:
        return s->factor;
    case ROPE_LLAMA3:
        return llama3_divisor(rope, i);
    case ROPE_YARN:
        return yarn_divisor(rope, i);
    case ROPE_PART:
        return i < (int)(s->part * rope->D_rope / 2) ? s->factor : STILL;
    case ROPE_LONG:
        assert(i < s->n_factors);
        return (double)(length > s->original_context ? s->long_factor : s->short_factor)[i];
    case ROPE_UNSCALED:
    case ROPE_DYNAMIC: /* it changes the base instead */
        break;
    }
    return 1;
}

void rope_factors(float *factors, const struct rope_config *rope) {
    int length = rope->stretch.original_context;
    for (int i = 0; i < rope->D_rope / 2; i++) factors[i] = (float)divisor_of(rope, i, length);
}

static double base_of(const struct rope_config *rope, int length) {
    const struct rope_stretch *s = &rope->stretch;
    if (s->kind != ROPE_DYNAMIC || length <= s->original_context) return (double)rope->base;
    double stretched = s->factor * length / s->original_context - (s->factor - 1);
    assert(rope->D_rope > 2 && stretched > 0);
    return (double)rope->base * pow(stretched, rope->D_rope / (rope->D_rope - 2.0));
}

void rope_frequencies(float *inv_freq, const struct rope_config *rope, const float *factors,
                      int length) {
    double base = base_of(rope, length);
    for (int i = 0; i < rope->D_rope / 2; i++) {
        double divisor = factors ? (double)factors[i] : divisor_of(rope, i, length);
        inv_freq[i] = (float)(1 / (pow(base, 2.0 * i / rope->D_rope) * divisor));
    }
}
