/* The sampling op compared with the CPU's sampler over many steps. Sequences arrive, skip steps and
 * leave. Several sample from one row, some rows are only scored, and some sequences have drafts of
 * which any number is accepted. Settings travel with a step's arrays or separately. The slots for
 * counts are as few as possible. Results must equal the CPU's to the last bit. If only the device
 * knows the last token of a history, the test does not pass that token. */
#include "kernels/cuda/sampling/sampling.cuh"

#include <string.h>

#include "tests/cuda/support.h"

extern "C" {
#include "engine/sampling/sampling.h"
#include "support/forbidden.h"
}

enum { SEQUENCES = 9, SLOTS = 8, STEPS = 24, UNKNOWN = -7 };

struct sequence {
    uint64_t number;
    struct sampling sampling;
    std::vector<logit_bias> bias;
    std::vector<int32_t> banned, tokens;
    std::vector<uint32_t> allowed, mask; /* the mask is for its next token */
    std::vector<bad_word> bad_words;
    int n_prompt;
    float mu;
    bool in_step_before;
    bool thrown_away; /* the last token was drawn and discarded */
};

static float one_of(uint64_t *state, const floats &values) {
    return values[(size_t)random_below(state, (int)values.size())];
}

/* Few ids are likely, so that words of these ids occur. */
static void draw_forbidden(uint64_t *state, sequence *q, int V) {
    if (random_below(state, 3) == 0) {
        q->allowed.resize((size_t)(V + 31) / 32);
        draw_allowed(state, q->allowed.data(), V, 70);
    }
    if (random_below(state, 3) > 0) return;
    std::vector<int32_t> likely;
    for (int i = 0; i < 40; i++) likely.push_back(random_below(state, 6));
    q->bad_words.resize(30);
    draw_bad_words(state, q->bad_words.data(), 30, 6, likely.data(), 40);
    for (bad_word &word : q->bad_words)
        if (word.n_before > 2) word.n_before = 1 + word.n_before % 2;
}

/* Settings whose changes the host lists from the history. */
static void draw_repeats(uint64_t *state, sequence *q) {
    struct sampling *s = &q->sampling;
    if (random_below(state, 3) > 0) return;
    s->penalty_last_n = (int)one_of(state, {0, 1, 5, 30});
    s->no_repeat_ngram = (int)one_of(state, {0, 1, 2, 3});
    s->dry_multiplier = one_of(state, {0, 0.8f, 1e9f});
    s->dry_base = 1.75f;
    s->dry_allowed_length = 1;
    s->dry_last_n = (int)one_of(state, {4, 1000});
}

static sequence new_sequence(uint64_t *state, int V, bool lists) {
    static uint64_t n = 0;
    sequence q{};
    struct sampling *s = &q.sampling;
    q.number = n++;
    s->temperature = one_of(state, {0, 0.5f, 1, 1.5f});
    s->top_p = one_of(state, {1, 1, 0.4f, 0.95f});
    s->min_p = one_of(state, {0, 0, 0.05f});
    s->typical_p = one_of(state, {0, 0, 0, 0.4f});
    s->xtc_probability = one_of(state, {0, 0, 0, 0.5f});
    s->xtc_threshold = 0.05f;
    s->mirostat_tau = one_of(state, {0, 0, 0, 2});
    s->mirostat_eta = 0.3f;
    s->top_k = (int)one_of(state, {0, 0, 3, 40});
    s->seed = random_u32(state);
    s->n_logprobs = random_below(state, 2) ? -1 : random_below(state, MAX_TOP_LOGPROBS + 1);
    s->presence_penalty = one_of(state, {0, 0.5f});
    s->frequency_penalty = one_of(state, {0, 0.7f});
    s->repetition_penalty = one_of(state, {1, 1.3f});
    if (random_below(state, 2))
        for (int i = 0; i < 3; i++)
            q.bias.push_back({random_below(state, V), one_of(state, {-100, 2, 5})});
    if (random_below(state, 3) == 0) q.banned = {random_below(state, V), random_below(state, V)};
    draw_forbidden(state, &q, V);
    if (lists) draw_repeats(state, &q);
    q.mu = mirostat_first(s);
    q.n_prompt = 1 + random_below(state, 20);
    for (int i = 0; i < q.n_prompt; i++) q.tokens.push_back(random_below(state, V));
    return q;
}

/* ---- a step --------------------------------------------------------------------------------- */

/* A sample and the CPU's result. Histories are copies. The device's copy may lack the last token.
 */
struct wanted {
    struct sample sample;
    sequence *of;
    bool drafted; /* the last token before it is a draft */
    std::vector<int32_t> history, known, ids;
    struct sampled right;
};

struct world {
    int V;
    bool lists; /* sequences may have changes that the host lists */
    uint64_t state, ahead;
    uint64_t listed = 77; /* for the ids whose logprobs are listed */
    struct sampler *cpu;
    struct device_sampler *device;
    struct change_lists *changes;
    std::vector<sequence> sequences;
    floats logits;
    std::vector<wanted> all;
    buffer travelled{1 << 20}; /* a step's settings */
    int rows, counted;
    uint64_t n_unknown, n_shared, n_stuck, n_beams, n_listed, n_held, n_refused, n_sent;
};

static void bind(sequence *q) {
    q->sampling.bias = q->bias.data();
    q->sampling.n_bias = (int)q->bias.size();
    q->sampling.banned = q->banned.data();
    q->sampling.n_banned = (int)q->banned.size();
    q->sampling.allowed = q->allowed.empty() ? NULL : q->allowed.data();
    q->sampling.bad_words = q->bad_words.data();
    q->sampling.n_bad_words = (int)q->bad_words.size();
}

/* Some samples want the logprobs of given ids. */
static void add_ids(world *w, wanted *t) {
    const size_t n =
        random_below(&w->listed, 3) ? 0 : 1 + random_below(&w->listed, MAX_TOP_LOGPROBS);
    t->ids.resize(n);
    for (int32_t &id : t->ids) id = random_below(&w->listed, w->V);
    t->sample.n_ids = (int)n;
}

static void add_choice(world *w, sequence *q, int choice, bool shared) {
    wanted t{};
    t.of = q;
    t.history = q->tokens;
    t.known = q->tokens;
    const bool lists = sampling_needs_last(&q->sampling);
    w->n_listed += lists;
    if (q->in_step_before && !shared && !lists) {
        t.known.back() = UNKNOWN;
        t.sample.last_is_pending = true;
        w->n_unknown++;
    }
    bind(q);
    t.sample.row = w->rows;
    t.sample.sampling = &q->sampling;
    t.sample.position = (int)q->tokens.size();
    t.sample.choice = choice;
    t.sample.mirostat_mu = q->mu;
    t.sample.n_prompt = q->n_prompt;
    t.sample.n_output = (int)q->tokens.size() - q->n_prompt;
    t.sample.sequence = q->number;
    t.sample.shared = shared;
    t.sample.mask = q->mask.empty() ? NULL : q->mask.data();
    if (q->sampling.n_logprobs >= 0) add_ids(w, &t);
    w->all.push_back(t);
}

/* A beam's row: its best tokens, in as many samples as they need. Its tokens are not counted. */
static void add_beam(world *w, sequence *q, int n_best) {
    q->in_step_before = false;
    for (int part = 0; part < sample_parts(n_best); part++) {
        add_choice(w, q, 0, true);
        w->all.back().sample.n_best = n_best;
        w->all.back().sample.n_ids = 0;
        w->all.back().sample.part = part > 0;
    }
    w->n_beams++;
    w->counted += sampling_takes_slot(&q->sampling);
    w->rows++;
}

static void add_score(world *w) {
    wanted t{};
    t.sample.row = w->rows++;
    t.sample.scored = random_below(&w->state, w->V);
    t.sample.n_top = random_below(&w->state, MAX_TOP_LOGPROBS + 1);
    add_ids(w, &t);
    w->all.push_back(t);
}

/* A sequence's row: its choice, or the choices of several sequences that share its start. */
static void add_row(world *w, sequence *q) {
    q->mask.resize(random_below(&w->state, 3) ? 0 : (size_t)(w->V + 31) / 32);
    if (!q->mask.empty())
        draw_allowed(&w->state, q->mask.data(), w->V, (int)one_of(&w->state, {0, 10, 90}));
    if (!q->mask.empty() && random_below(&w->state, 6) == 0)
        std::fill(q->mask.begin(), q->mask.end(), 0);
    const bool fresh = (int)q->tokens.size() == q->n_prompt && !q->thrown_away;
    const int choices = fresh && random_below(&w->state, 2) ? 2 + random_below(&w->state, 3) : 1;
    for (int c = 0; c < choices; c++) add_choice(w, q, c, choices > 1);
    w->n_shared += choices > 1;
    w->counted += sampling_takes_slot(&q->sampling);
    w->rows++;
}

static bool has_slot(sequence *q) {
    bind(q);
    return sampling_takes_slot(&q->sampling);
}

/* Adds rows of a sequence with drafts after its tokens, up to the number of slots. */
static void add_drafts(world *w, sequence *q) {
    const bool takes = has_slot(q);
    const size_t n_known = q->tokens.size();
    int n = 1 + random_below(&w->state, MAX_DRAFTS);
    if (q->sampling.mirostat_tau > 0) n = 0;
    if (takes && n > SLOTS - w->counted) n = SLOTS - w->counted;
    q->mask.clear();
    q->in_step_before = false;
    for (int i = 0; i < n; i++) {
        add_choice(w, q, 0, false);
        w->all.back().drafted = i > 0;
        w->counted += takes;
        w->rows++;
        q->tokens.push_back(random_below(&w->state, 6)); /* the likely ids */
    }
    q->tokens.resize(n_known);
}

static void choose_rows(world *w) {
    w->all.clear();
    w->rows = w->counted = 0;
    for (sequence &q : w->sequences) {
        if (random_below(&w->state, 12) == 0) q = new_sequence(&w->state, w->V, w->lists);
        const bool has_room = w->counted < SLOTS || !has_slot(&q);
        if (has_room && !q.thrown_away && random_below(&w->state, 5) == 0)
            add_beam(w, &q, 1 + random_below(&w->state, MAX_BEST));
        else if (has_room && random_below(&w->state, 4) == 0)
            add_drafts(w, &q);
        else if (has_room && random_below(&w->state, 3))
            add_row(w, &q);
        else
            q.in_step_before = false;
        if (random_below(&w->state, 6) == 0) add_score(w);
    }
    /* Few ids are likely, so that their counts matter. */
    w->logits = random_vector(&w->state, (size_t)(w->rows * w->V));
    for (size_t i = 0; i < w->logits.size(); i++) w->logits[i] -= i % (size_t)w->V < 6 ? 0 : 5;
}

static void best_on_cpu(world *w, size_t first) {
    struct sampled out[MAX_BEST_PARTS];
    wanted &t = w->all[first];
    const float *row = &w->logits[(size_t)(t.sample.row * w->V)];
    floats own(row, row + w->V);
    t.sample.history = t.history.data();
    sampler_best(w->cpu, &t.sample, own.data(), out);
    for (int part = 0; part < sample_parts(t.sample.n_best); part++)
        w->all[first + (size_t)part].right = out[part];
}

static void sample_on_cpu(world *w) {
    for (size_t i = 0; i < w->all.size(); i++) {
        wanted &t = w->all[i];
        if (t.sample.part) continue;
        if (t.sample.n_best > 0) {
            best_on_cpu(w, i);
            continue;
        }
        const float *row = &w->logits[(size_t)(t.sample.row * w->V)];
        floats own(row, row + w->V);
        t.right = {};
        t.sample.ids = t.ids.data();
        t.sample.history = t.history.data();
        if (!t.sample.sampling)
            sampler_score(w->cpu, &t.sample, row, &t.right);
        else
            sampler_sample(w->cpu, &t.sample, own.data(), &t.right);
    }
}

/* Copies settings before the step runs, like a step's upload. Skipped if changes are listed, and at
 * random. */
static void send_ahead(world *w, const std::vector<struct sample> &samples) {
    static std::vector<uint8_t> host(w->travelled.bytes);
    for (const struct sample &sample : samples)
        if (sample.sampling && sampling_lists_changes(sample.sampling)) return;
    if (samples.empty() || random_below(&w->ahead, 4) == 0) return;
    const size_t bytes = device_sampler_plan(w->device, samples.data(), (int)samples.size(), NULL);
    ck_assert_uint_le(bytes, host.size());
    if (random_below(&w->ahead, 4) == 0) return; /* as if memory were short */
    const struct settings_memory memory = {host.data(), (uint8_t *)w->travelled.data};
    device_sampler_lay_out(w->device, samples.data(), NULL, &memory);
    CUDA_OK(
        cudaMemcpyAsync(memory.device, memory.host, bytes, cudaMemcpyHostToDevice, test_stream()));
    w->n_sent++;
}

static void sample_on_device(world *w, const buffer &logits, const buffer &ids,
                             const buffer &results) {
    std::vector<struct sample> samples;
    for (wanted &t : w->all) {
        t.sample.history = t.known.data();
        t.sample.ids = t.ids.data();
        samples.push_back(t.sample);
    }
    send_ahead(w, samples);
    device_sampler_run(w->device, (float *)logits.data, samples.data(), (int)samples.size(),
                       change_lists_fill(w->changes, samples.data(), (int)samples.size()),
                       (int32_t *)ids.data, (struct sampled *)results.data, test_stream());
    for (wanted &t : w->all) /* already read */
        for (int32_t &token : t.known) token = UNKNOWN;
}

static bool same_sampled(const struct sampled &a, const struct sampled &b) {
    return a.id == b.id && a.mirostat_mu == b.mirostat_mu &&
           memcmp(&a.logprob, &b.logprob, sizeof a.logprob) == 0 && a.rank == b.rank &&
           a.n_top == b.n_top && memcmp(a.top, b.top, (size_t)a.n_top * sizeof *a.top) == 0;
}

static void check_step(const world *w, const buffer &logits, const buffer &ids,
                       const buffer &results, int step) {
    const std::vector<int32_t> id = ids.read<int32_t>();
    const std::vector<struct sampled> got = results.read<struct sampled>();
    for (size_t i = 0; i < w->all.size(); i++) {
        const wanted &t = w->all[i];
        ck_assert_msg(
            same_sampled(got[i], t.right),
            "step %d, sample %zu of row %d, %d and %d tokens before: %d (%a), not %d (%a)", step, i,
            t.sample.row, t.sample.n_prompt, t.sample.n_output, got[i].id, (double)got[i].logprob,
            t.right.id, (double)t.right.logprob);
        if (i == 0 || w->all[i - 1].sample.row != t.sample.row)
            ck_assert_int_eq(id[(size_t)t.sample.row], t.right.id);
    }
    const floats after = logits.read<float>();
    for (const wanted &t : w->all) { /* a beam's row belongs to it and stays changed */
        const size_t at = (size_t)(t.sample.row * w->V), bytes = (size_t)w->V * sizeof(float);
        ck_assert(t.sample.n_best > 0 || memcmp(&after[at], &w->logits[at], bytes) == 0);
    }
}

/* Is the draft before a sample accepted? Earlier drafts of its sequence may have been refused. */
static bool holds(world *w, const wanted *t) {
    const bool held = (int)t->of->tokens.size() == t->sample.position &&
                      t->of->tokens.back() == t->history.back();
    w->n_held += held;
    w->n_refused += !held;
    return held;
}

/* If several choices share a row, the first one continues. A token may be discarded. */
static void commit(world *w) {
    for (size_t i = 0; i < w->all.size(); i++) {
        wanted &t = w->all[i];
        if (!t.of || (i > 0 && w->all[i - 1].sample.row == t.sample.row)) continue;
        if (t.drafted && !holds(w, &t)) continue;
        const bool drafts = t.drafted || (i + 1 < w->all.size() && w->all[i + 1].drafted);
        t.of->in_step_before = false;
        if (t.right.id < 0) { /* the sequence ends */
            w->n_stuck++;
            *t.of = new_sequence(&w->state, w->V, w->lists);
            continue;
        }
        t.of->thrown_away = random_below(&w->state, 8) == 0;
        if (t.of->thrown_away) continue;
        t.of->tokens.push_back(t.right.id);
        t.of->mu = t.right.mirostat_mu;
        t.of->in_step_before = !t.sample.shared && !drafts;
    }
}

static void run_step(world *w, int step) {
    choose_rows(w);
    if (w->rows == 0) return;
    buffer logits(w->logits), ids((size_t)w->rows * sizeof(int32_t));
    buffer results(w->all.size() * sizeof(struct sampled));
    sample_on_cpu(w);
    sample_on_device(w, logits, ids, results);
    check_step(w, logits, ids, results, step);
    commit(w);
}

/* ---- tests ---------------------------------------------------------------------------------- */

START_TEST(steps_are_sampled_as_on_the_cpu) {
    world w{};
    w.V = _i % 2 ? 300 : 61;
    w.lists = _i < 4;
    w.ahead = 1;
    w.state = 7 + (uint64_t)_i;
    w.cpu = sampler_new(w.V, NULL);
    w.changes = change_lists_new(w.V, SEQUENCES * (1 + MAX_DRAFTS));
    w.device = device_sampler_new(w.V, SLOTS, SEQUENCES * (1 + MAX_DRAFTS));
    for (int i = 0; i < SEQUENCES; i++) w.sequences.push_back(new_sequence(&w.state, w.V, w.lists));
    for (int step = 0; step < STEPS; step++) run_step(&w, step);
    ck_assert_uint_gt(w.n_unknown, 0);
    ck_assert_uint_gt(w.n_shared, 0);
    ck_assert_uint_gt(w.n_stuck, 0);
    ck_assert_uint_gt(w.n_beams, 0);
    ck_assert(w.lists ? w.n_listed > 0 : w.n_sent > 0);
    ck_assert(w.n_refused > 0 && (w.n_held > 0 || !w.lists));
    device_sampler_free(w.device, test_stream());
    change_lists_free(w.changes);
    sampler_free(w.cpu);
}
END_TEST

/* The maximum number of choices of one row, with a bias. The bias and the changes by the history
 * are applied once. */
START_TEST(a_row_has_many_choices) {
    const int V = 40, n = 1 + MAX_SHARED_SAMPLES;
    uint64_t state = 3;
    world w{};
    w.V = V;
    w.cpu = sampler_new(V, NULL);
    w.changes = change_lists_new(w.V, 1 + MAX_SHARED_SAMPLES);
    w.device = device_sampler_new(V, 1, n);
    sequence q = new_sequence(&state, V, true);
    q.bias = {{5, 1.5f}, {5, 0.25f}};
    q.sampling.temperature = 1;
    q.sampling.frequency_penalty = 1;
    q.sampling.dry_multiplier = (float)_i;
    for (int c = 0; c < n; c++) add_choice(&w, &q, c, true);
    w.rows = 1;
    w.logits = random_vector(&state, (size_t)V);
    buffer logits(w.logits), ids(sizeof(int32_t)), results((size_t)n * sizeof(struct sampled));
    sample_on_cpu(&w);
    sample_on_device(&w, logits, ids, results);
    check_step(&w, logits, ids, results, 0);
    device_sampler_free(w.device, test_stream());
    change_lists_free(w.changes);
    sampler_free(w.cpu);
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_sampler");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_loop_test(core, steps_are_sampled_as_on_the_cpu, 0, 7);
    tcase_add_loop_test(core, a_row_has_many_choices, 0, 2);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
