/* DESIGN: passes a step's samples to their kernel.
 *
 * The settings of samples are a few hundred bytes per row. If they are known when the step is
 * submitted, they are uploaded with its arrays in one copy (step.cu): the launch is planned and
 * laid out in the step's memory before the step runs. Otherwise, for example with a grammar's
 * masks, this happens when the step is sampled, and the settings are copied separately
 * (passage.cu). Results are a few bytes per row, which the kernel writes directly to pinned host
 * memory.
 *
 * The token counts of a sequence for penalties, its allowed ids and its bad words stay on the
 * device in a slot, and the kernel adds each chosen token. The host records the slot's sequence and
 * its number of tokens. The sample of the next token finds its slot ready, or adds the missing
 * tokens. Otherwise the slot is rebuilt from the history: for the first sample, after the slot was
 * given to another sequence, and when a discarded sample is repeated. So lists over the vocabulary
 * are copied once and not per token. The search for a slot starts at an index derived from the
 * sequence's number and takes the least recently used slot that this launch does not use. So the
 * last token of a sequence of the previous launch, which the host may not know, is never needed.
 *
 * The samples of a sequence with drafts each have a history that is one draft longer. The first
 * uses the sequence's slot. Each other sample uses a temporary slot of this launch, made from the
 * slot before it:
 *
 *     slot of the sequence    ... t9         the kernel adds the token that it draws
 *     of this launch          ... t9 a       a copy, and the first draft
 *     of this launch          ... t9 a b     a copy of that, and the second draft
 *
 * Copies are made before any draw. The next sample adds the accepted drafts.
 *
 * Biases, bans and the listed changes modify a row of logits during sampling. If several samples
 * share such a row, as the first tokens of a request's choices do, each runs in its own wave;
 * otherwise there is one wave. */
#include "kernels/cuda/sampling/sampling.cuh"

#include <stdlib.h>
#include <string.h>

/* The tokens in a slot. */
struct slot {
    uint64_t sequence;
    int n_prompt, n_output; /* their numbers */
    bool known;             /* they stay valid after the launch */
    uint64_t launch;        /* the last launch that used it */
};

/* The source of a sample's slot. */
struct slot_source {
    int copy_of; /* another slot, or -1: its own tokens */
    int n_held;  /* number of output tokens in it; NOTHING: not even the prompt */
};
enum { NOTHING = -1 };

/* The offsets of the parts of a launch's settings in bytes, and the filled size. */
struct layout {
    size_t places, bias, banned, masks, changes, ids, past, end;
    int n_rows, n_bias, n_banned, n_masks;
    size_t n_changes, n_ids, n_past;
};

/* The samples of one launch: planned, laid out in memory, launched. */
struct launch {
    int n; /* number of samples; 0: nothing is planned */
    struct layout at;
    int waves;
    int end[1 + MAX_SHARED_SAMPLES]; /* end of the rows of each wave */
    const uint8_t *settings;         /* device memory; NULL: not laid out */
};

struct device_sampler {
    int V, n_slots, most;
    uint32_t *counts;           /* device memory [n_slots][V] */
    struct sample_words *words; /* device memory [n_slots] */
    struct slot *slots;         /* [n_slots] */
    int *slot;                  /* [most] slots of this launch's samples, or -1 */
    int *wave;                  /* [most] */
    struct slot_source *source; /* [most] sources of these slots */
    uint64_t n_launches;
    struct launch launch; /* the next launch */
    struct passages passages;
};

/* ---- memory --------------------------------------------------------------------------------- */

struct device_sampler *device_sampler_new(int V, int rows, int most) {
    assert(V > 0 && V <= SAMPLE_MAX_V && rows > 0 && most > 0);
    void *counts, *words;
    const size_t count_bytes = (size_t)rows * (size_t)V * sizeof(uint32_t);
    const size_t word_bytes = (size_t)rows * sizeof(struct sample_words);
    assert(count_bytes + word_bytes == (size_t)rows * sampling_slot_bytes(V));
    if (!cuda_alloc_ok(cudaMalloc(&counts, count_bytes))) return nullptr;
    if (!cuda_alloc_ok(cudaMalloc(&words, word_bytes))) {
        cuda_check(cudaFree(counts), "freeing token counts");
        return nullptr;
    }
    struct device_sampler *s = (struct device_sampler *)mem_calloc(1, sizeof *s);
    s->V = V;
    s->n_slots = rows;
    s->most = most;
    s->counts = (uint32_t *)counts;
    s->words = (struct sample_words *)words;
    s->slots = (struct slot *)mem_calloc((size_t)rows, sizeof *s->slots);
    s->slot = (int *)mem_calloc((size_t)most, sizeof *s->slot);
    s->wave = (int *)mem_calloc((size_t)most, sizeof *s->wave);
    s->source = (struct slot_source *)mem_calloc((size_t)most, sizeof *s->source);
    passages_open(&s->passages);
    return s;
}

void device_sampler_free(struct device_sampler *s, cudaStream_t stream) {
    if (!s) return;
    cuda_check(cudaStreamSynchronize(stream), "waiting for the stream");
    passages_close(&s->passages);
    cuda_check(cudaFree(s->counts), "freeing token counts");
    cuda_check(cudaFree(s->words), "freeing bad words");
    free(s->slots);
    free(s->slot);
    free(s->wave);
    free(s->source);
    free(s);
}

/* ---- slots ---------------------------------------------------------------------------------- */

static int home(const struct device_sampler *s, uint64_t sequence) {
    return (int)(sequence * 0x9E3779B97F4A7C15u >> 33) % s->n_slots;
}

/* Returns the slot with the sequence's tokens, or -1. */
static int find_slot(const struct device_sampler *s, uint64_t sequence) {
    int slot = home(s, sequence);
    for (int i = 0; i < s->n_slots; i++, slot = slot + 1 < s->n_slots ? slot + 1 : 0)
        if (s->slots[slot].known && s->slots[slot].sequence == sequence) return slot;
    return -1;
}

/* The last launch that used a slot; the lowest age if its content is not needed any more. */
static uint64_t age_of(const struct device_sampler *s, const struct slot *slot) {
    return slot->known || slot->launch == s->n_launches ? slot->launch : 0;
}

/* Returns the least recently used slot, searching from the sequence's home. */
static int lend_slot(const struct device_sampler *s, uint64_t sequence) {
    int slot = home(s, sequence), oldest = slot;
    for (int i = 0; i < s->n_slots; i++, slot = slot + 1 < s->n_slots ? slot + 1 : 0)
        if (age_of(s, &s->slots[slot]) < age_of(s, &s->slots[oldest])) oldest = slot;
    assert(s->slots[oldest].launch < s->n_launches);
    return oldest;
}

static bool wants_slot(const struct sample *sample) {
    return sample->sampling && !sample->part && sampling_takes_slot(sample->sampling);
}

/* Does sample i follow a sample of the same sequence with one draft less? */
static bool follows_draft(const struct sample *samples, int i) {
    if (i == 0 || !wants_slot(&samples[i]) || !wants_slot(&samples[i - 1])) return false;
    const bool same = samples[i].sequence == samples[i - 1].sequence && !samples[i].shared;
    assert(!same || samples[i].n_output == samples[i - 1].n_output + 1);
    return same;
}

/* Samples whose sequence has a slot keep it. Then the others get slots; samples of a shared row get
 * one slot together. */
static void find_slots(struct device_sampler *s, const struct sample *samples, int n) {
    for (int i = 0; i < n; i++) {
        s->slot[i] = -1;
        s->source[i] = {-1, samples[i].n_output}; /* the slot is ready */
        if (!wants_slot(&samples[i]) || samples[i].shared || follows_draft(samples, i)) continue;
        s->slot[i] = find_slot(s, samples[i].sequence);
        if (s->slot[i] >= 0) s->slots[s->slot[i]].launch = s->n_launches;
    }
}

/* Returns the content of a slot for the tokens before sample i; the slot may be newly assigned. */
static struct slot_source source_of(const struct device_sampler *s, const struct sample *samples,
                                    int i, bool lent) {
    const struct sample *sample = &samples[i];
    const struct slot *slot = &s->slots[s->slot[i]];
    if (follows_draft(samples, i)) return {s->slot[i - 1], samples[i - 1].n_output};
    const bool before = slot->n_prompt == sample->n_prompt && slot->n_output <= sample->n_output;
    return {-1, before && !lent ? slot->n_output : NOTHING};
}

static void lend_slots(struct device_sampler *s, const struct sample *samples, int n) {
    for (int i = 0; i < n; i++) {
        const struct sample *sample = &samples[i];
        if (!wants_slot(sample)) continue;
        const bool same = i > 0 && sample->shared && samples[i - 1].row == sample->row;
        if (same && s->slot[i - 1] >= 0) {
            s->slot[i] = s->slot[i - 1];
            continue;
        }
        const bool lent = s->slot[i] < 0;
        if (lent) s->slot[i] = lend_slot(s, sample->sequence);
        const bool follows = follows_draft(samples, i);
        s->source[i] = source_of(s, samples, i, lent);
        /* the slot could not be rebuilt from the history */
        assert(!sample->last_is_pending || (!follows && s->source[i].n_held == sample->n_output));
        s->slots[s->slot[i]] = {sample->sequence, sample->n_prompt, sample->n_output + 1,
                                !sample->shared && !follows, s->n_launches};
    }
}

/* ---- waves ---------------------------------------------------------------------------------- */

enum { NO_WAVE = -1 }; /* for a sample without work */

/* Returns the number of waves. */
static int find_waves(struct device_sampler *s, const struct sample *samples, int n) {
    int waves = 1;
    for (int first = 0, end; first < n; first = end) {
        bool changed = false;
        for (end = first; end < n && samples[end].row == samples[first].row; end++) {
            const struct sampling *how = samples[end].sampling;
            changed |= how && (how->n_bias > 0 || how->n_banned > 0 || sampling_lists_changes(how));
        }
        if (samples[first].n_best > 0) changed = false; /* only one sample reads the row */
        for (int i = first; i < end; i++)
            s->wave[i] = samples[i].part ? NO_WAVE : changed ? i - first : 0;
        if (changed && end - first > waves) waves = end - first;
    }
    return waves;
}

/* ---- laying a launch out -------------------------------------------------------------------- */

/* Sizes of a slot's source, in 32-bit numbers: the missing part of the history, the bits of the
 * allowed ids, the bad words. */
struct past_size {
    size_t history, allowed, words;
};

/* Words with one bit per id. */
static size_t bits_of(const struct device_sampler *s) {
    return ((size_t)s->V + 31) / 32;
}

static struct past_size past_of(const struct device_sampler *s, const struct sample *sample,
                                int n_held) {
    const struct sampling *how = sample->sampling;
    if (n_held != NOTHING) return {(size_t)(sample->n_output - n_held), 0, 0};
    return {(size_t)sample->n_prompt + (size_t)sample->n_output, how->allowed ? bits_of(s) : 0,
            (size_t)how->n_bad_words * (sizeof *how->bad_words / sizeof(int32_t))};
}

static struct layout plan_layout(const struct device_sampler *s, const struct sample *samples,
                                 int n, const struct logit_changes *changes) {
    size_t bias = 0, banned = 0, masks = 0, past = 0, listed = 0, ids = 0;
    for (int i = 0; i < n; i++) {
        const struct sampling *how = samples[i].sampling;
        assert(!how || (how->n_bias <= MAX_LOGIT_BIAS && how->n_banned <= MAX_BANNED_IDS));
        bias += how ? (size_t)how->n_bias : 0;
        banned += how ? (size_t)how->n_banned : 0;
        masks += how && samples[i].mask;
        listed += changes ? (size_t)changes[i].n : 0;
        ids += (size_t)samples[i].n_ids;
        if (s->slot[i] < 0) continue;
        const struct past_size size = past_of(s, &samples[i], s->source[i].n_held);
        past += size.history + size.allowed + size.words;
    }
    struct layout at = {};
    at.places = (size_t)n * sizeof(struct sample_row);
    at.bias = at.places + (size_t)n * sizeof(struct sample_place);
    at.banned = at.bias + bias * sizeof(struct logit_bias);
    at.masks = at.banned + banned * sizeof(int32_t);
    at.changes = at.masks + masks * bits_of(s) * sizeof(uint32_t);
    at.ids = at.changes + listed * sizeof(struct logit_change);
    at.past = at.ids + ids * sizeof(int32_t);
    at.end = at.past + past * sizeof(int32_t);
    return at;
}

static struct sample_row score_of(const struct sample *sample) {
    struct sample_row row = {};
    row.sampling.top_p = row.sampling.repetition_penalty = 1;
    row.sampling.n_logprobs = sample->n_top;
    row.slot = -1;
    return row;
}

/* Makes the row of a sample and appends its lists, except for its ids, to the settings. */
static struct sample_row row_of(const struct device_sampler *s, const struct sample *sample,
                                const struct logit_changes *changes, int slot, struct layout *at,
                                const struct settings_memory *memory) {
    const struct sampling *how = sample->sampling;
    if (!how) return score_of(sample);
    struct sample_row row = {*how,    sample->position, sample->choice, slot, sample->n_output,
                             nullptr, sample->n_best,   nullptr,        0,    sample->mirostat_mu};
    /* the sum is needed, the model's best ids are not */
    if (sample->n_best > 0) row.sampling.n_logprobs = 0;
    const size_t bias = at->bias + (size_t)at->n_bias * sizeof *how->bias;
    const size_t banned = at->banned + (size_t)at->n_banned * sizeof *how->banned;
    if (how->n_bias > 0)
        memcpy(memory->host + bias, how->bias, (size_t)how->n_bias * sizeof *how->bias);
    if (how->n_banned > 0)
        memcpy(memory->host + banned, how->banned, (size_t)how->n_banned * sizeof *how->banned);
    row.sampling.bias = (const struct logit_bias *)(memory->device + bias);
    row.sampling.banned = (const int32_t *)(memory->device + banned);
    at->n_bias += how->n_bias;
    at->n_banned += how->n_banned;
    if (changes && changes->change) {
        const size_t from = at->changes + at->n_changes * sizeof *changes->change;
        memcpy(memory->host + from, changes->change, (size_t)changes->n * sizeof *changes->change);
        row.changes = (struct logit_change *)(memory->device + from);
        row.n_changes = changes->n;
        at->n_changes += (size_t)changes->n;
    }
    if (!sample->mask) return row;
    const size_t bytes = bits_of(s) * sizeof *row.mask;
    const size_t mask = at->masks + (size_t)at->n_masks++ * bytes;
    memcpy(memory->host + mask, sample->mask, bytes);
    row.mask = (const uint32_t *)(memory->device + mask);
    return row;
}

/* Appends the ids whose logprobs the sample wants. */
static void put_ids(struct sample_row *row, const struct sample *sample, struct layout *at,
                    const struct settings_memory *memory) {
    const size_t from = at->ids + at->n_ids * sizeof *sample->ids;
    assert(sample->n_ids >= 0 && sample->n_ids <= SAMPLE_MAX_BEST);
    if (sample->n_ids == 0) return;
    memcpy(memory->host + from, sample->ids, (size_t)sample->n_ids * sizeof *sample->ids);
    row->ids = (const int32_t *)(memory->device + from);
    row->n_ids = sample->n_ids;
    at->n_ids += (size_t)sample->n_ids;
}

static void put_row(const struct device_sampler *s, const struct sample *samples, int i,
                    const struct logit_changes *changes, struct layout *at,
                    const struct settings_memory *memory) {
    const struct sample *sample = &samples[i];
    const bool first = i == 0 || samples[i - 1].row != sample->row;
    const int at_row = at->n_rows++;
    struct sample_row *row = &((struct sample_row *)memory->host)[at_row];
    *row = row_of(s, sample, changes ? &changes[i] : nullptr, s->slot[i], at, memory);
    put_ids(row, sample, at, memory);
    ((struct sample_place *)(memory->host + at->places))[at_row] = {
        sample->row, i, first ? sample->row : -1, sample->sampling ? -1 : sample->scored,
        !sample->shared};
}

/* Appends the source of a sample's slot to the settings. */
static void put_past(const struct device_sampler *s, const struct sample *sample, int n_held,
                     struct layout *at, const struct settings_memory *memory) {
    const struct sampling *how = sample->sampling;
    const struct past_size size = past_of(s, sample, n_held);
    int32_t *to = (int32_t *)(memory->host + at->past) + at->n_past;
    const int32_t *end = sample->history + sample->n_prompt + sample->n_output;
    if (size.history > 0) memcpy(to, end - size.history, size.history * sizeof *to);
    to += size.history;
    if (size.allowed > 0) memcpy(to, how->allowed, size.allowed * sizeof *to);
    to += size.allowed;
    if (size.words > 0) memcpy(to, how->bad_words, size.words * sizeof *to);
    at->n_past += size.history + size.allowed + size.words;
}

static uint32_t *counts_of(const struct device_sampler *s, int slot) {
    return s->counts + (size_t)slot * (size_t)s->V;
}

static void copy_slot(const struct device_sampler *s, int from, int to, bool with_words,
                      cudaStream_t stream) {
    cuda_check(cudaMemcpyAsync(counts_of(s, to), counts_of(s, from),
                               (size_t)s->V * sizeof *s->counts, cudaMemcpyDeviceToDevice, stream),
               "copying counts");
    if (with_words)
        cuda_check(cudaMemcpyAsync(s->words + to, s->words + from, sizeof *s->words,
                                   cudaMemcpyDeviceToDevice, stream),
                   "copying bad words");
}

/* Makes or extends the slots with sources in the settings, in the order of the samples, because a
 * slot may be copied from another. */
static void make_slots(const struct device_sampler *s, const struct sample *samples, int n,
                       const int32_t *past, cudaStream_t stream) {
    for (int i = 0; i < n; i++) {
        const struct slot_source *source = &s->source[i];
        const int slot = s->slot[i], n_bad_words = slot < 0 ? 0 : samples[i].sampling->n_bad_words;
        if (slot < 0) continue;
        const struct past_size size = past_of(s, &samples[i], source->n_held);
        struct sample_past from = {0, (int)size.history, past, NULL, n_bad_words, NULL, 0};
        past += size.history;
        if (source->copy_of >= 0) copy_slot(s, source->copy_of, slot, n_bad_words > 0, stream);
        if (source->n_held != NOTHING) {
            from.n_held = source->n_held;
            if (from.n_output > 0)
                sample_count_more(counts_of(s, slot), s->words + slot, s->V, &from, stream);
            continue;
        }
        from.n_prompt = samples[i].n_prompt;
        from.n_output = samples[i].n_output;
        if (size.allowed > 0) from.allowed = (const uint32_t *)past;
        past += size.allowed;
        from.bad_words = (const struct bad_word *)past;
        past += size.words;
        sample_count(counts_of(s, slot), s->words + slot, s->V, &from, stream);
    }
}

/* Launches rows `from` to `to` of the settings. */
static void run_wave(const struct device_sampler *s, const struct sample_batch *all, int from,
                     int to, cudaStream_t stream) {
    const struct launch *launch = &s->launch;
    struct sample_batch batch = *all;
    batch.R = to - from;
    batch.V = s->V;
    batch.rows = (const struct sample_row *)launch->settings + from;
    batch.places = (const struct sample_place *)(launch->settings + launch->at.places) + from;
    batch.counts = s->counts;
    batch.words = s->words;
    sample_rows(&batch, stream);
}

/* The kernel writes results in the host's format. */
static_assert(sizeof(struct sample_result) == sizeof(struct sampled) &&
                  offsetof(struct sample_result, logprob) == offsetof(struct sampled, logprob) &&
                  offsetof(struct sample_result, rank) == offsetof(struct sampled, rank) &&
                  offsetof(struct sample_result, n_best) == offsetof(struct sampled, n_top) &&
                  offsetof(struct sample_result, mirostat_mu) ==
                      offsetof(struct sampled, mirostat_mu) &&
                  offsetof(struct sample_result, best) == offsetof(struct sampled, top) &&
                  sizeof(struct sample_best) == sizeof(struct token_logprob),
              "one layout");

size_t device_sampler_plan(struct device_sampler *s, const struct sample *samples, int n,
                           const struct logit_changes *changes) {
    struct launch *launch = &s->launch;
    assert(n > 0 && n <= s->most && launch->n == 0);
    s->n_launches++;
    find_slots(s, samples, n);
    lend_slots(s, samples, n);
    *launch = {n, plan_layout(s, samples, n, changes), find_waves(s, samples, n), {}, nullptr};
    assert(launch->waves <= 1 + MAX_SHARED_SAMPLES);
    return launch->at.end;
}

void device_sampler_lay_out(struct device_sampler *s, const struct sample *samples,
                            const struct logit_changes *changes,
                            const struct settings_memory *memory) {
    struct launch *launch = &s->launch;
    assert(launch->n > 0 && !launch->settings);
    assert(settings_are_aligned(memory));
    for (int wave = 0; wave < launch->waves; wave++) {
        for (int i = 0; i < launch->n; i++)
            if (s->wave[i] == wave) put_row(s, samples, i, changes, &launch->at, memory);
        launch->end[wave] = launch->at.n_rows;
    }
    for (int i = 0; i < launch->n; i++)
        if (s->slot[i] >= 0) put_past(s, &samples[i], s->source[i].n_held, &launch->at, memory);
    launch->settings = memory->device;
}

void device_sampler_run(struct device_sampler *s, float *logits, const struct sample *samples,
                        int n, const struct logit_changes *changes, int32_t *ids,
                        struct sampled *results, cudaStream_t stream) {
    struct launch *launch = &s->launch;
    struct passage *own = nullptr;
    if (n == 0) return;
    if (launch->n == 0) device_sampler_plan(s, samples, n, changes);
    assert(launch->n == n);
    if (!launch->settings) {
        own = passage_take(&s->passages, launch->at.end);
        if (!own) return;
        device_sampler_lay_out(s, samples, changes, &own->memory);
        passage_send(&s->passages, own, launch->at.end, stream);
    }
    make_slots(s, samples, n, (const int32_t *)(launch->settings + launch->at.past), stream);
    struct sample_batch all = {};
    all.logits = logits;
    all.ids = ids;
    all.results = (struct sample_result *)results;
    for (int wave = 0; wave < launch->waves; wave++)
        run_wave(s, &all, wave > 0 ? launch->end[wave - 1] : 0, launch->end[wave], stream);
    if (own) passage_mark_used(own, stream);
    launch->n = 0;
}
