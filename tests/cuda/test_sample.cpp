/* Sampling on the device compared with the CPU's sampler. The same logits, settings and history
 * must give the same token, rank and logprobs, for rows of all kinds whose settings are mixed in
 * one launch. */
#include "kernels/cuda/sampling/sampling.cuh"

#include <math.h>
#include <string.h>

#include <list>

#include "tests/cuda/support.h"

extern "C" {
#include "engine/sampling/sampling.h"
#include "support/forbidden.h"
}

enum { HISTORY = 24, MAX_BIAS = 6, MAX_BANNED = 3, MAX_BAD = 9 };

/* ---- rows ----------------------------------------------------------------------------------- */

enum kind {
    SMOOTH,
    FLAT,
    TIED,
    EQUAL,
    STEEP,
    MASKED,
    CLOSE,
    BAND,
    LARGE,
    HEADED,
    HOLES,
    INFINITE,
    NOTHING,
    N_KINDS
};

static float logit_of(uint64_t *state, enum kind kind) {
    float x = random_float(state);
    switch (kind) {
    case FLAT: /* many tokens may be chosen */
        return 0.3f * x;
    case TIED: /* few values, each many times */
        return roundf(x * 2) / 2;
    case EQUAL:
        return 1.25f;
    case STEEP: /* most weights are 0 */
        return x * 300;
    case MASKED:
        return random_below(state, 20) ? -INFINITY : x;
    case CLOSE: /* differences too small for the exponential */
        return 3 + x * 1e-6f;
    case BAND: /* weights that differ only in their last bits, a fixed distance below the best */
        return random_below(state, 30) ? -3 - (float)random_below(state, 64) * 0x1p-22f : 0;
    case LARGE:
        return x * 1e30f;
    case HEADED:
        return random_below(state, 100) ? x - 8 : 5 * x;
    case HOLES:
        return random_below(state, 3) ? x : NAN;
    case INFINITE:
        return random_below(state, 10) ? x : random_below(state, 2) ? INFINITY : -INFINITY;
    case NOTHING:
        return random_below(state, 2) ? NAN : -INFINITY;
    default:
        return 3 * x;
    }
}

static void fill_row(uint64_t *state, float *row, int V, enum kind kind) {
    for (int i = 0; i < V; i++) row[i] = logit_of(state, kind);
    if (random_below(state, 4)) return;
    int run = random_below(state, V) + 1; /* one token stands out, or many equal ones */
    float value = random_below(state, 2) ? row[0] : 30;
    for (int i = V - run; i < V && i < V - run + 1 + (random_below(state, 2) ? 0 : 60); i++)
        row[i] = value;
}

/* ---- settings ------------------------------------------------------------------------------- */

struct setting {
    struct sampling sampling;
    std::vector<logit_bias> bias;
    std::vector<int32_t> banned, history;
    std::vector<uint32_t> allowed, mask;
    std::vector<bad_word> bad_words;
    int n_prompt, n_output, position, choice, slot;
};

static float one_of(uint64_t *state, const floats &values) {
    return values[(size_t)random_below(state, (int)values.size())];
}

static void draw_changes(uint64_t *state, setting *t, int V) {
    struct sampling *s = &t->sampling;
    int few = V < 3 ? V : 3;
    for (int i = random_below(state, MAX_BIAS + 1); i > 0; i--) /* some ids twice */
        t->bias.push_back({random_below(state, random_below(state, 2) ? V : few),
                           one_of(state, {-100, -1, 2, 100})});
    for (int i = random_below(state, MAX_BANNED + 1); i > 0; i--)
        t->banned.push_back(random_below(state, random_below(state, 2) ? V : few));
    s->presence_penalty = one_of(state, {0, 0, 0.5f, -1});
    s->frequency_penalty = one_of(state, {0, 0, 0.3f, -0.2f});
    s->repetition_penalty = one_of(state, {1, 1, 1.2f, 0.8f});
}

static void draw_forbidden(uint64_t *state, setting *t, int V) {
    if (random_below(state, 2)) {
        t->allowed.resize((size_t)(V + 31) / 32);
        draw_allowed(state, t->allowed.data(), V, (int)one_of(state, {0, 5, 50, 99}));
    }
    if (random_below(state, 2)) {
        t->bad_words.resize(1 + (size_t)random_below(state, MAX_BAD));
        draw_bad_words(state, t->bad_words.data(), (int)t->bad_words.size(), V,
                       t->history.data() + t->n_prompt, t->n_output);
    }
}

static void draw_history(uint64_t *state, setting *t, int V) {
    t->n_prompt = random_below(state, HISTORY / 2);
    t->n_output = random_below(state, HISTORY / 2);
    int spread = random_below(state, 2) ? V : V < 8 ? V : 8; /* repetitions */
    for (int i = 0; i < t->n_prompt + t->n_output; i++)
        t->history.push_back(random_below(state, spread));
}

/* Often only one of them, sometimes several. */
static void draw_cuts(uint64_t *state, struct sampling *s) {
    int only = random_below(state, 12);
    bool all = only == 5;
    if (all || only == 0) s->top_n_sigma = one_of(state, {0, 0.1f, 1, 2.5f, 30, 1e30f});
    if (all || only == 1) s->epsilon_cutoff = one_of(state, {0, 1e-6f, 3e-4f, 0.05f, 0.99f});
    if (all || only == 2) s->eta_cutoff = one_of(state, {0, 1e-6f, 3e-4f, 0.05f, 0.99f});
    if (all || only == 3) s->typical_p = one_of(state, {1e-6f, 0.1f, 0.5f, 0.9f, 0.9999999f, 1});
    if (!all && only != 4) return;
    s->xtc_probability = one_of(state, {0.5f, 1, 1});
    s->xtc_threshold = one_of(state, {0, 1e-4f, 0.02f, 0.1f, 0.4f, 1});
}

static setting draw_setting(uint64_t *state, int V, int slot) {
    setting t{};
    struct sampling *s = &t.sampling;
    t.position = random_below(state, 1000);
    t.choice = random_below(state, 3);
    t.slot = slot;
    s->temperature = one_of(state, {0, 0.01f, 0.3f, 0.8f, 1, 1, 1.5f, 2, 50, 1e9f, 1e-30f, 1e-42f});
    s->top_p = one_of(state, {1, 1, 0, 1e-6f, 0.1f, 0.5f, 0.9f, 0.95f, 0.999f, 0.9999999f});
    s->min_p = one_of(state, {0, 0, 0, 0, 1e-40f, 1e-10f, 0.02f, 0.3f, 0.999999f, 1});
    s->top_k = (int)one_of(state, {0, 0, 0, 1, 2, 7, 40, 100, 129, 1000, 5000, 1e6f, 0x1p30f});
    if (random_below(state, 10) == 0) s->top_k = V - random_below(state, 2);
    if (random_below(state, 6) == 0) s->top_k = 0, s->min_p = 0, s->top_p = 1;
    s->repetition_penalty = 1;
    s->seed = (uint64_t)random_u32(state) << 32 | random_u32(state);
    s->n_logprobs = random_below(state, 2) ? -1 : random_below(state, MAX_TOP_LOGPROBS + 1);
    draw_history(state, &t, V);
    if (random_below(state, 2)) draw_changes(state, &t, V);
    if (slot >= 0 && random_below(state, 3) == 0) draw_forbidden(state, &t, V);
    draw_cuts(state, s);
    if (random_below(state, 3)) return t;
    t.mask.resize((size_t)(V + 31) / 32);
    draw_allowed(state, t.mask.data(), V, (int)one_of(state, {0, 2, 50, 99}));
    if (random_below(state, 6) == 0) std::fill(t.mask.begin(), t.mask.end(), 0);
    return t;
}

/* ---- both samplers -------------------------------------------------------------------------- */

struct batch {
    int V;
    floats logits; /* [rows][V] */
    std::vector<setting> settings;
    std::vector<enum kind> kinds;
    int R() const {
        return (int)settings.size();
    }
};

static void add_row(uint64_t *state, batch *b, enum kind kind, setting t) {
    b->logits.resize(b->logits.size() + (size_t)b->V);
    fill_row(state, &b->logits[b->settings.size() * (size_t)b->V], b->V, kind);
    b->settings.push_back(std::move(t));
    b->kinds.push_back(kind);
}

static void bind(setting *t) {
    t->sampling.bias = t->bias.data();
    t->sampling.n_bias = (int)t->bias.size();
    t->sampling.banned = t->banned.data();
    t->sampling.n_banned = (int)t->banned.size();
    t->sampling.allowed = t->allowed.empty() ? NULL : t->allowed.data();
    t->sampling.bad_words = t->bad_words.data();
    t->sampling.n_bad_words = (int)t->bad_words.size();
}

static std::vector<sampled> sample_on_cpu(batch *b) {
    struct sampler *sampler = sampler_new(b->V, NULL);
    std::vector<sampled> out(b->settings.size());
    for (size_t r = 0; r < out.size(); r++) {
        setting *t = &b->settings[r];
        bind(t);
        floats row(&b->logits[r * (size_t)b->V], &b->logits[r * (size_t)b->V] + b->V);
        struct sample sample = {};
        sample.sampling = &t->sampling;
        sample.position = t->position;
        sample.choice = t->choice;
        sample.history = t->history.data();
        sample.n_prompt = t->n_prompt;
        sample.n_output = t->n_output;
        sample.mask = t->mask.empty() ? NULL : t->mask.data();
        sampler_sample(sampler, &sample, row.data(), &out[r]);
    }
    sampler_free(sampler);
    return out;
}

/* The batch on the device. */
struct on_device {
    const batch &b;
    std::list<buffer> lists; /* the rows' */
    buffer logits, rows, counts, words, ids, results;
    template <class T> const T *list(std::vector<T> items) {
        items.push_back({}); /* an empty list needs memory too */
        return lists.emplace_back(items).template as<T>();
    }
    std::vector<sample_row> rows_of(const batch &all) {
        std::vector<sample_row> made;
        for (const setting &t : all.settings) {
            made.push_back({t.sampling, t.position, t.choice, t.slot, 0, NULL});
            if (!t.mask.empty()) made.back().mask = list(t.mask);
            struct sampling &s = made.back().sampling;
            s.bias = list(t.bias);
            s.n_bias = (int)t.bias.size();
            s.banned = list(t.banned);
            s.n_banned = (int)t.banned.size();
            /* these and the allowed ids belong to the slot */
            s.n_bad_words = (int)t.bad_words.size();
            made.back().n_output = t.n_output;
        }
        return made;
    }
    explicit on_device(const batch &batch)
        : b(batch), logits(b.logits), rows(rows_of(b)), counts(b.logits.size() * sizeof(uint32_t)),
          words((size_t)b.R() * sizeof(sample_words)), ids((size_t)b.R() * sizeof(int32_t)),
          results((size_t)b.R() * sizeof(sample_result)) {}

    void count() {
        for (const setting &t : b.settings) {
            if (t.slot < 0) continue;
            const struct sample_past past = {
                t.n_prompt,
                t.n_output,
                list(t.history),
                t.allowed.empty() ? NULL : list(t.allowed),
                (int)t.bad_words.size(),
                list(t.bad_words),
            };
            sample_count(counts.as<uint32_t>() + (size_t)t.slot * (size_t)b.V,
                         words.as<sample_words>() + t.slot, b.V, &past, test_stream());
            finish();
        }
    }
    /* Writes the rows with the current settings. */
    void fill_rows() {
        rows.fill_from(rows_of(b).data());
    }
    void sample() {
        struct sample_batch all = {b.R(),
                                   b.V,
                                   logits.as<float>(),
                                   rows.as<sample_row>(),
                                   counts.as<uint32_t>(),
                                   words.as<sample_words>(),
                                   ids.as<int32_t>(),
                                   results.as<sample_result>()};
        ids.poison();
        results.poison();
        sample_rows(&all, test_stream());
    }
};

/* ---- comparing ------------------------------------------------------------------------------ */

static bool same_logprob(float a, float b) {
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

static std::string describe_row(const batch &b, int r, const char *when) {
    const setting &t = b.settings[(size_t)r];
    const struct sampling &s = t.sampling;
    return text("V %d, row %d, kind %d, %s: t %g top_p %g min_p %g top_k %d bias %zu banned %zu "
                "penalties %g %g %g best %d sigma %g epsilon %g eta %g typical %g xtc %g",
                b.V, r, b.kinds[(size_t)r], when, (double)s.temperature, (double)s.top_p,
                (double)s.min_p, s.top_k, t.bias.size(), t.banned.size(),
                (double)s.repetition_penalty, (double)s.frequency_penalty,
                (double)s.presence_penalty, s.n_logprobs, (double)s.top_n_sigma,
                (double)s.epsilon_cutoff, (double)s.eta_cutoff, (double)s.typical_p,
                (double)s.xtc_threshold);
}

static void check_best(const sample_result &got, const sampled &want, const std::string &what) {
    ck_assert_msg(got.n_best == want.n_top, "%s: %d best, not %d", what.c_str(), got.n_best,
                  want.n_top);
    for (int i = 0; i < want.n_top; i++)
        ck_assert_msg(got.best[i].id == want.top[i].id &&
                          same_logprob(got.best[i].logprob, want.top[i].logprob),
                      "%s: the best's number %d is %d (%.9g), not %d (%.9g)", what.c_str(), i,
                      got.best[i].id, (double)got.best[i].logprob, want.top[i].id,
                      (double)want.top[i].logprob);
}

static bool has_nan(const batch &b, int r) {
    const float *row = &b.logits[(size_t)r * (size_t)b.V];
    for (int i = 0; i < b.V; i++)
        if (isnan(row[i])) return true;
    return false;
}

static void check_results(const batch &b, const on_device &d, const std::vector<sampled> &want,
                          const char *when) {
    std::vector<int32_t> ids = d.ids.read<int32_t>();
    std::vector<sample_result> results = d.results.read<sample_result>();
    for (int r = 0; r < b.R(); r++) {
        const sample_result &got = results[(size_t)r];
        const sampled &right = want[(size_t)r];
        std::string what = describe_row(b, r, when);
        ck_assert_msg(got.id == right.id && ids[(size_t)r] == right.id, "%s: id %d, not %d",
                      what.c_str(), got.id, right.id);
        ck_assert_msg(got.rank == right.rank && same_logprob(got.logprob, right.logprob),
                      "%s: rank %d, logprob %.9g, not %d, %.9g", what.c_str(), got.rank,
                      (double)got.logprob, right.rank, (double)right.logprob);
        if (!has_nan(b, r)) check_best(got, right, what); /* the order of NaNs is unspecified */
    }
    floats after = d.logits.read<float>();
    ck_assert_msg(memcmp(after.data(), b.logits.data(), after.size() * sizeof(float)) == 0,
                  "V %d: the logits are not as they were", b.V);
}

/* Samples twice: the second token of a row follows the first. */
static void compare(batch *b) {
    std::vector<sampled> want = sample_on_cpu(b);
    on_device d(*b);
    d.count();
    d.sample();
    check_results(*b, d, want, "at first");
    for (size_t r = 0; r < want.size(); r++) {
        setting *t = &b->settings[r];
        /* its tokens are not counted, or no token was sampled */
        if (t->slot < 0 || want[r].id < 0) continue;
        t->history.push_back(want[r].id);
        t->n_output++;
    }
    d.fill_rows();
    d.sample();
    check_results(*b, d, sample_on_cpu(b), "again");
}

/* ---- tests ---------------------------------------------------------------------------------- */

/* Vocabularies of one id, and on and around the sizes of a warp and a vector, for both sizes of
 * blocks. */
static const struct {
    int V, R, rounds;
} sizes[] = {{1, 12, 1},    {2, 12, 1},    {32, 48, 8},   {33, 48, 4},   {513, 24, 4},
             {1000, 48, 8}, {8190, 12, 2}, {8192, 12, 2}, {20001, 12, 2}};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

START_TEST(mixed_rows_are_sampled_as_on_the_cpu) {
    int V = sizes[_i].V, R = sizes[_i].R;
    uint64_t state = 99 + (uint64_t)V;
    for (int round = 0; round < sizes[_i].rounds; round++) {
        batch b{V, {}, {}, {}};
        for (int r = 0; r < R; r++)
            add_row(&state, &b, (enum kind)random_below(&state, N_KINDS),
                    draw_setting(&state, V, R - 1 - r));
        compare(&b);
    }
}
END_TEST

/* The vocabularies of models. With these kinds of rows the list is sufficient, insufficient, or
 * overflows. */
START_TEST(large_vocabularies_are_sampled_as_on_the_cpu) {
    struct {
        int V, R;
    } models[] = {{49152, 8}, {50257, 4}, {128256, 2}};
    const enum kind kinds[] = {SMOOTH, FLAT, HEADED, EQUAL};
    int V = models[_i].V;
    uint64_t state = 5 + (uint64_t)V;
    batch b{V, {}, {}, {}};
    for (int r = 0; r < models[_i].R; r++) {
        setting t = draw_setting(&state, V, r % 2 ? r : -1);
        if (t.slot < 0) t.history.clear(), t.n_prompt = t.n_output = 0;
        t.sampling.temperature = one_of(&state, {0.7f, 1, 1.3f});
        if (r < 2) t.sampling.top_p = 0.95f, t.sampling.top_k = 0, t.sampling.min_p = 0;
        if (r == 2) t.sampling.top_p = 1, t.sampling.top_k = 0, t.sampling.min_p = 0;
        add_row(&state, &b, kinds[r % 4], t);
    }
    compare(&b);
}
END_TEST

/* A row with ties at the k-th place, for all k and one more. */
START_TEST(every_k_is_cut_at_the_lower_id) {
    const int V = 70;
    uint64_t state = 3;
    batch b{V, {}, {}, {}};
    for (int k = 1; k <= V + 1; k++) {
        setting t = draw_setting(&state, V, k - 1);
        uint64_t same = 8;
        t.sampling.temperature = 3;
        t.sampling.top_k = k;
        t.sampling.min_p = 0;
        t.sampling.top_p = k % 2 ? 1 : 0.8f;
        add_row(&state, &b, TIED, t);
        for (int i = 0; i < V; i++) b.logits[(size_t)((k - 1) * V + i)] = logit_of(&same, TIED);
    }
    compare(&b);
}
END_TEST

/* Sums of equal weights reach exactly top_p. */
START_TEST(equal_logits_are_cut_at_top_p) {
    const int V = 64;
    batch b{V, floats((size_t)V * 128, 0.5f), {}, {}};
    uint64_t state = 17;
    for (int r = 0; r < 128; r++) {
        setting t{};
        t.sampling.temperature = 1;
        t.sampling.top_p = (float)(1 + r / 2) / 64;
        t.sampling.top_k = r % 2 ? 48 : 0;
        t.sampling.repetition_penalty = 1;
        t.sampling.seed = random_u32(&state);
        t.sampling.n_logprobs = 5;
        t.position = r;
        t.slot = -1;
        b.settings.push_back(t);
        b.kinds.push_back(EQUAL);
    }
    std::vector<sampled> want = sample_on_cpu(&b);
    on_device d(b);
    d.sample();
    check_results(b, d, want, "once");
}
END_TEST

/* The maximum number of biases and bans of a row, many ids several times, for both sizes of
 * blocks. */
START_TEST(the_most_changes_are_made) {
    const int V = _i ? 9000 : 1500;
    uint64_t state = 23;
    batch b{V, {}, {}, {}};
    for (int r = 0; r < 3; r++) {
        setting t = draw_setting(&state, V, r);
        t.bias.clear(), t.banned.clear();
        for (int i = 0; i < MAX_LOGIT_BIAS; i++)
            t.bias.push_back({random_below(&state, r ? V : 300), random_float(&state)});
        for (int i = 0; i < MAX_BANNED_IDS; i++) t.banned.push_back(random_below(&state, V));
        t.sampling.n_logprobs = 20;
        add_row(&state, &b, SMOOTH, t);
    }
    compare(&b);
}
END_TEST

/* The number of rows and a row's place do not change the result. */
START_TEST(a_row_is_sampled_alike_alone) {
    const int V = _i ? 8193 : 700, R = 10;
    uint64_t state = 31;
    batch b{V, {}, {}, {}};
    for (int r = 0; r < R; r++) {
        setting t = draw_setting(&state, V, r);
        t.sampling.n_logprobs = 20;
        add_row(&state, &b, r % 2 ? FLAT : SMOOTH, t);
    }
    for (setting &t : b.settings) bind(&t);
    on_device all(b);
    all.count();
    all.sample();
    std::vector<sample_result> together = all.results.read<sample_result>();
    for (size_t r = 0; r < (size_t)R; r++) {
        batch one{V,
                  floats(&b.logits[r * (size_t)V], &b.logits[r * (size_t)V] + V),
                  {b.settings[r]},
                  {b.kinds[r]}};
        one.settings[0].slot = 0;
        on_device alone(one);
        alone.count();
        alone.sample();
        sample_result result = alone.results.read<sample_result>()[0];
        ck_assert_msg(memcmp(&result, &together[r], sizeof result) == 0, "row %zu differs", r);
    }
}
END_TEST

/* The history replaces the old counts of the row, and only of that row. */
START_TEST(counts_are_of_the_history) {
    const int V = 300, n_prompt = 250, n_output = 300 * _i;
    uint64_t state = 41;
    std::vector<int32_t> history;
    std::vector<uint32_t> want((size_t)V, 0);
    for (int i = 0; i < n_prompt + n_output; i++) {
        int id = random_below(&state, V);
        history.push_back(id);
        want[(size_t)id] = i < n_prompt ? SAMPLE_IN_PROMPT : want[(size_t)id] + 1;
    }
    buffer ids(history), counts(3 * (size_t)V * sizeof(uint32_t));
    const struct sample_past past = {n_prompt, n_output, ids.as<int32_t>()};
    sample_count(counts.as<uint32_t>() + V, NULL, V, &past, test_stream());
    std::vector<uint32_t> got = counts.read<uint32_t>();
    for (int i = 0; i < 3 * V; i++) {
        uint32_t right = i / V == 1 ? want[(size_t)(i - V)] : 0xffffffffu;
        ck_assert_msg(got[(size_t)i] == right, "count %d is %08x, not %08x", i, got[(size_t)i],
                      right);
    }
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_sample");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_loop_test(core, mixed_rows_are_sampled_as_on_the_cpu, 0, N_SIZES);
    tcase_add_loop_test(core, large_vocabularies_are_sampled_as_on_the_cpu, 0, 3);
    tcase_add_test(core, every_k_is_cut_at_the_lower_id);
    tcase_add_test(core, equal_logits_are_cut_at_top_p);
    tcase_add_loop_test(core, the_most_changes_are_made, 0, 2);
    tcase_add_loop_test(core, a_row_is_sampled_alike_alone, 0, 2);
    tcase_add_loop_test(core, counts_are_of_the_history, 0, 3);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
