/* Steps as graph replays: only the numbers of a step depend on it; stale data in memory has no
 * effect; and the rules for making, using and dropping graphs. */
#include "kernels/cuda/graph.cuh"
#include "kernels/cuda/rows/rows.cuh"
#include "kernels/cuda/sampling/sampling.cuh"
#include "kernels/cuda/step.cuh"

#include <string.h>

#include "tests/cuda/support.h"

/* Only the emulation has these counters. */
extern "C" __attribute__((weak)) unsigned long cuda_emu_graphs(void);
extern "C" __attribute__((weak)) unsigned long cuda_emu_bytes_to_device(void);

/* ---- steps ---------------------------------------------------------------------------------- */

enum { MAX_ROWS = 24, MAX_SEQS = 16, CONTEXT = 6000, H = 4, G = 2, D = 16, B = 16 };

struct decode_step {
    std::vector<int32_t> token, position, slot, row_start, table, logit_row, sequence;
    struct step step = {};
};

/* Draws n rows at positions up to `last`: one row per sequence, and rows of up to `drafts`
 * drafts. */
static void draw(decode_step *d, int n, int last, int stride, uint64_t *state, int drafts = 0) {
    *d = {};
    int S = 0;
    for (int i = 0, left = 0, position = 0; i < n; i++, left--, position++) {
        if (left == 0) {
            left = 1 + (drafts > 0 ? random_below(state, drafts + 1) : 0);
            position = i == 0 ? last - left + 1 : random_below(state, last - left + 2);
            for (int b = 0; b < stride; b++) d->table.push_back(1 + random_below(state, 5000));
            d->row_start.push_back(i);
            S++;
        }
        d->token.push_back(random_below(state, 1000));
        d->position.push_back(position);
        d->slot.push_back(d->table[(size_t)((S - 1) * stride + position / B)] * B + position % B);
        d->logit_row.push_back(i);
        d->sequence.push_back(S - 1);
    }
    d->row_start.push_back(n);
    struct step *s = &d->step;
    s->M = s->R = n;
    s->S = S;
    s->token = d->token.data();
    s->position = d->position.data();
    s->slot = d->slot.data();
    s->row_start = d->row_start.data();
    s->table = d->table.data();
    s->table_stride = stride;
    s->logit_row = d->logit_row.data();
}

struct world {
    struct attention_workspace work;
    struct step_memory memory;
    world() {
        const struct step_limits limits = {MAX_ROWS, MAX_SEQS, CONTEXT, H};
        const struct kv_config kv = {1, G, D, 6000, B, DTYPE_BF16};
        struct err err;
        early_grids_find();
        ck_assert_int_eq(attention_workspace_new(&work, DTYPE_BF16, &limits, &kv, &err), STATUS_OK);
        ck_assert_int_eq(step_memory_open(&memory, &err), STATUS_OK);
        ck_assert_int_eq(step_memory_reserve(&memory, &work, B, test_stream(), &err), STATUS_OK);
    }
    ~world() {
        finish();
        step_memory_close(&memory);
        attention_workspace_free(&work);
    }
    void upload(const decode_step &d, int rows) {
        step_upload(&memory, &d.step, rows, &work, B, test_stream());
    }
};

static std::vector<int32_t> numbers(const int32_t *at, int n) {
    std::vector<int32_t> out((size_t)n);
    finish();
    CUDA_OK(cudaMemcpy(out.data(), at, (size_t)n * sizeof *at, cudaMemcpyDeviceToHost));
    return out;
}

/* ---- the arguments of a graph --------------------------------------------------------------- */

static bool same_places(const struct device_step &a, const struct device_step &b) {
    return a.M == b.M && a.R == b.R && a.token == b.token && a.position == b.position &&
           a.slot[KV_BLOCKS] == b.slot[KV_BLOCKS] && a.line[KV_BLOCKS] == b.line[KV_BLOCKS] &&
           a.table == b.table && a.logit_row == b.logit_row;
}

START_TEST(arguments_depend_on_bucket_and_class_alone) {
    world w;
    uint64_t state = 1;
    for (const int last : {9, 250, 3000, CONTEXT - 1}) {
        decode_step first, other;
        draw(&first, 8, last, CONTEXT / B, &state);
        w.upload(first, 8);
        const struct device_step at = w.memory.at;
        const struct attention_item *items = w.work.items[0];
        for (const int n : {5, 6, 7, 8, 8}) {
            draw(&other, n, last, 1 + last / B + n, &state, n % 2 ? 4 : 0);
            w.upload(other, 8);
            if (last <= 250) ck_assert_int_eq(w.work.plan[0].n_items, 8);
            ck_assert_ptr_eq(w.work.items[0], items);
            if (last <= 250) ck_assert(same_places(w.memory.at, at));
        }
    }
}
END_TEST

/* A class has room for the plan's items, in multiples of the rows, and for less than twice as many.
 * Returns the room. */
static int check_class(world *w, const decode_step &d) {
    const int rows = d.step.M;
    w->upload(d, 0);
    const int wanted = w->work.plan[0].n_items;
    w->upload(d, rows);
    const int room = w->work.plan[0].n_items;
    ck_assert(room >= wanted && room <= w->work.max_items);
    ck_assert(room == rows || room < 2 * wanted || room == w->work.max_items);
    ck_assert(room % rows == 0 || room == w->work.max_items);
    const auto items =
        numbers((const int32_t *)w->work.items[0], room * (int)sizeof(struct attention_item) / 4);
    for (int i = 0; i < room; i++) {
        struct attention_item item;
        memcpy(&item, items.data() + (size_t)i * sizeof item / 4, sizeof item);
        ck_assert(i < wanted ? item.rows == 1 : item.rows == 0);
    }
    return room;
}

START_TEST(classes_hold_their_plans) {
    world w;
    uint64_t state = 2;
    decode_step d;
    for (const int rows : {1, 2, 4, 8, 16})
        for (int last = 0; last < CONTEXT; last += 511) {
            draw(&d, rows, last, CONTEXT / B, &state);
            check_class(&w, d);
        }
    for (int32_t &position : d.position) position = CONTEXT - 1;
    /* the class would need more than the maximum */
    ck_assert_int_eq(check_class(&w, d), w.work.max_items);
}
END_TEST

/* ---- the contents of the step's memory ------------------------------------------------------ */

static void check_rows(const world &w, const decode_step &d, int rows) {
    const struct device_step &at = w.memory.at;
    const int n = d.step.M;
    const auto token = numbers(at.token, rows), position = numbers(at.position, rows);
    const auto slot = numbers(at.slot[KV_BLOCKS], rows), line = numbers(at.line[KV_BLOCKS], rows);
    const auto logit_row = numbers(at.logit_row, rows);
    for (int i = 0; i < rows; i++) {
        const size_t m = (size_t)i;
        ck_assert_int_eq(token[m], i < n ? d.token[m] : 0);
        ck_assert_int_eq(position[m], i < n ? d.position[m] : -1);
        ck_assert_int_eq(slot[m], i < n ? d.slot[m] : -1);
        ck_assert_int_eq(logit_row[m], i);
        if (i >= n) ck_assert_int_eq(line[m], 0);
        if (i >= n) continue;
        const int blocks = d.position[m] / B + 1;
        const auto own = numbers(at.table + line[m], blocks);
        ck_assert(memcmp(own.data(), d.step.table + (size_t)(d.sequence[m] * d.step.table_stride),
                         (size_t)blocks * sizeof(int32_t)) == 0);
    }
}

/* Items and rows refer to the same lines of the block table. */
static void check_items(const world &w, int rows) {
    const int n = w.work.plan[0].n_items;
    const auto line = numbers(w.memory.at.line[KV_BLOCKS], rows);
    const auto words =
        numbers((const int32_t *)w.work.items[0], n * (int)sizeof *w.work.items[0] / 4);
    for (int i = 0; i < n; i++) {
        struct attention_item item;
        memcpy(&item, words.data() + (size_t)i * sizeof item / 4, sizeof item);
        if (item.rows > 0) ck_assert_int_eq(item.sequence, line[(size_t)item.row]);
    }
}

START_TEST(a_step_is_there_and_padding_writes_nothing) {
    world w;
    uint64_t state = 3;
    const int sizes[][2] = {{1, 1}, {2, 2}, {3, 4}, {5, 8}, {8, 8}, {9, 16}, {16, 16}, {11, 0}};
    for (const auto &size : sizes) {
        decode_step d;
        for (const int drafts : {0, 3}) {
            draw(&d, size[0], 10 + random_below(&state, CONTEXT - 10), CONTEXT / B, &state, drafts);
            w.upload(d, size[1]);
            check_rows(w, d, size[1] ? size[1] : size[0]);
            check_items(w, size[1] ? size[1] : size[0]);
        }
    }
}
END_TEST

/* Two steps are laid out before the stream has started the first. */
START_TEST(two_steps_may_wait_for_the_stream) {
    world w;
    uint64_t state = 4;
    decode_step first, second;
    buffer copy(3 * sizeof(int32_t));
    draw(&first, 3, 50, 10, &state);
    draw(&second, 3, 70, 10, &state);
    w.upload(first, 4);
    CUDA_OK(cudaMemcpyAsync(copy.data, w.memory.at.token, copy.bytes, cudaMemcpyDeviceToDevice,
                            test_stream()));
    w.upload(second, 4);
    check_rows(w, second, 4);
    ck_assert(copy.read<int32_t>() == first.token);
}
END_TEST

/* A step copies each block table once, with a line as long as its sequence: 15 lines of one block
 * and one of 375, not 16 lines of 375. */
START_TEST(a_long_sequence_does_not_lengthen_other_lines) {
    if (!cuda_emu_bytes_to_device) return;
    world w;
    uint64_t state = 6;
    for (const int rows : {0, (int)MAX_SEQS})
        for (const int longest : {0, 7, MAX_SEQS - 1}) {
            decode_step d;
            draw(&d, MAX_SEQS, B - 1, CONTEXT / B, &state);
            d.position[(size_t)longest] = CONTEXT - 1;
            const unsigned long before = cuda_emu_bytes_to_device();
            w.upload(d, rows);
            const unsigned long bytes = cuda_emu_bytes_to_device() - before;
            const size_t others = (size_t)(w.memory.at.table - w.memory.device) * sizeof(int32_t);
            const size_t lines = (MAX_SEQS - 1 + CONTEXT / B) * sizeof(int32_t);
            ck_assert_uint_eq(bytes, others + lines);
        }
}
END_TEST

/* Greedy samples of n rows, each with a bias for the token that wins: 5 + its row. */
struct biased_samples {
    std::vector<struct logit_bias> bias;
    std::vector<struct sampling> how;
    std::vector<struct sample> samples;
    explicit biased_samples(const decode_step &d) {
        const size_t n = (size_t)d.step.M;
        how.resize(n), samples.resize(n);
        for (int32_t i = 0; i < d.step.M; i++) bias.push_back({5 + i, 1000});
        for (size_t i = 0; i < n; i++) {
            how[i] = SAMPLING_GREEDY;
            how[i].bias = &bias[i], how[i].n_bias = 1;
            samples[i].row = (int)i;
            samples[i].sampling = &how[i];
            samples[i].history = d.token.data() + i;
            samples[i].n_prompt = 1, samples[i].sequence = i;
        }
    }
};

/* Settings follow the arrays of a step, which end at any number, and the structures in them are
 * aligned nevertheless. They travel with the step's one copy. */
START_TEST(settings_are_aligned_after_arrays_of_any_length) {
    enum { V = 40, MOST = 8 };
    world w;
    uint64_t state = 8;
    struct device_sampler *sampler = device_sampler_new(V, MOST, MOST);
    for (int n = 1; n <= MOST; n++) {
        decode_step d;
        draw(&d, n, B - 1, 1, &state);
        biased_samples all(d);
        d.step.sampler = sampler;
        d.step.samples = all.samples.data(), d.step.n_samples = n;
        const size_t rows = (size_t)n;
        buffer logits(random_vector(&state, rows * V)), ids(rows * sizeof(int32_t));
        buffer results(rows * sizeof(struct sampled));
        w.upload(d, 0);
        const unsigned long copied = cuda_emu_bytes_to_device ? cuda_emu_bytes_to_device() : 0;
        device_sampler_run(sampler, logits.as<float>(), d.step.samples, n, nullptr,
                           ids.as<int32_t>(), results.as<struct sampled>(), test_stream());
        const std::vector<int32_t> id = ids.read<int32_t>();
        for (int i = 0; i < n; i++) ck_assert_int_eq(id[(size_t)i], 5 + i);
        if (cuda_emu_bytes_to_device) ck_assert_uint_eq(cuda_emu_bytes_to_device(), copied);
    }
    device_sampler_free(sampler, test_stream());
}
END_TEST

/* ---- which graphs exist --------------------------------------------------------------------- */

START_TEST(buckets) {
    static const struct {
        int most, M, rows;
    } cases[] = {{64, 1, 1},   {64, 2, 2},  {64, 3, 4},   {64, 4, 4},   {64, 5, 8},
                 {64, 8, 8},   {64, 9, 16}, {64, 16, 16}, {64, 17, 24}, {64, 63, 64},
                 {64, 64, 64}, {64, 65, 0}, {20, 17, 20}, {20, 20, 20}, {3, 3, 3},
                 {3, 2, 2},    {1, 1, 1},   {0, 1, 0},    {6, 5, 6}};
    for (const auto &c : cases) {
        struct graphs graphs;
        struct step step = {};
        graphs_open(&graphs, c.most, 2);
        step.M = step.S = step.R = c.M;
        ck_assert_msg(graphs_rows(&graphs, &step) == c.rows, "%d of %d", c.M, c.most);
        step.n_copies = 1;
        ck_assert_int_eq(graphs_rows(&graphs, &step), 0);
        step.n_copies = 0;
        step.R = c.M - 1;
        ck_assert_int_eq(graphs_rows(&graphs, &step), 0);
        step.R = c.M;
        step.S = 1; /* with drafts */
        ck_assert_int_eq(graphs_rows(&graphs, &step), c.rows);
        graphs_close(&graphs);
    }
}
END_TEST

START_TEST(buckets_are_listed) {
    for (int most = 0; most < 70; most++) {
        struct graphs graphs;
        int n = 0, last = 0;
        graphs_open(&graphs, most, 2);
        for (int M = 1; M <= most; M++) {
            struct step step = {};
            step.M = step.S = step.R = M;
            const int rows = graphs_rows(&graphs, &step);
            if (rows == last) continue;
            last = rows;
            ck_assert_msg(graphs_bucket(&graphs, n++) == rows, "the %d of %d", n, most);
        }
        ck_assert_int_eq(graphs_bucket(&graphs, n), 0);
        graphs_close(&graphs);
    }
}
END_TEST

/* Adds 1 to a number on the device, which counts executions; `calls` counts calls on the host. */
struct counted {
    buffer x, one;
    int calls = 0;
    counted() : x(floats(1, 0.0f)), one(floats(1, 1.0f)) {}
    static void queue(void *arg) {
        auto *c = static_cast<counted *>(arg);
        c->calls++;
        rows_bias(DTYPE_F32, c->x.data, c->one.as<float>(), 1, 1, 1, test_stream());
    }
    int done() {
        return (int)x.read<float>()[0];
    }
};

static void run_key(struct graphs *graphs, counted *c, const struct graph_key *key, int calls,
                    const char *what) {
    const int before = c->calls, done = c->done();
    graphs_run(graphs, key, test_stream(), counted::queue, c);
    ck_assert_msg(c->calls - before == calls, "%s: %d rows, %d items: called %d times", what,
                  key->rows, key->items[0], c->calls - before);
    ck_assert_int_eq(c->done(), done + 1);
}

static void run(struct graphs *graphs, counted *c, int rows, int items, int calls) {
    const struct graph_key key = {rows, {items}, nullptr, nullptr};
    run_key(graphs, c, &key, calls, "a key");
}

START_TEST(a_graph_is_recorded_the_second_time) {
    struct graphs graphs;
    counted c;
    graphs_open(&graphs, 8, 4);
    for (const int items : {4, 8}) {
        run(&graphs, &c, 4, items, 1);
        run(&graphs, &c, 4, items, 1);
        for (int i = 0; i < 3; i++) run(&graphs, &c, 4, items, 0);
    }
    run(&graphs, &c, 4, 4, 0);
    graphs_clear(&graphs);
    run(&graphs, &c, 4, 4, 1);
    graphs_close(&graphs);
}
END_TEST

/* Keys that differ only in a later window, or in any other part, have their own graphs. */
START_TEST(every_part_of_a_key_counts) {
    static int32_t sampled;
    static char cache, program; /* only their addresses are compared */
    const struct graph_key base = {4, {4, 4, 4, 4}, nullptr, nullptr};
    struct graph_key other[MAX_WINDOWS + 5];
    const int n = MAX_WINDOWS + 5;
    for (struct graph_key &key : other) key = base;
    for (int window = 0; window < MAX_WINDOWS; window++) other[window].items[window] = 8;
    other[MAX_WINDOWS].rows = 8;
    other[MAX_WINDOWS + 1].sampled = &sampled;
    other[MAX_WINDOWS + 2].cache = (const struct kv_cache *)&cache;
    other[MAX_WINDOWS + 3].adapts = true;
    other[MAX_WINDOWS + 4].program = (const struct program *)&program;
    struct graphs graphs;
    counted c;
    graphs_open(&graphs, 8, n + 1);
    for (const int calls : {1, 1, 0}) run_key(&graphs, &c, &base, calls, "the first key");
    for (int i = 0; i < n; i++) {
        char what[32];
        snprintf(what, sizeof what, "another key, %d", i);
        for (const int calls : {1, 1, 0}) run_key(&graphs, &c, &other[i], calls, what);
        run_key(&graphs, &c, &base, 0, "the first key again");
    }
    ck_assert_int_eq(graphs.n, n + 1);
    graphs_close(&graphs);
}
END_TEST

START_TEST(the_graph_used_longest_ago_goes) {
    struct graphs graphs;
    counted c;
    graphs_open(&graphs, 8, 3);
    for (const int rows : {1, 2, 4}) {
        run(&graphs, &c, rows, 1, 1);
        run(&graphs, &c, rows, 1, 1);
    }
    run(&graphs, &c, 1, 1, 0);
    run(&graphs, &c, 8, 1, 1); /* replaces 2 */
    run(&graphs, &c, 1, 1, 0);
    run(&graphs, &c, 4, 1, 0);
    run(&graphs, &c, 2, 1, 1);
    ck_assert_int_eq(graphs.n, 3);
    if (cuda_emu_graphs) ck_assert_uint_eq(cuda_emu_graphs(), 2); /* and one key without a graph */
    graphs_close(&graphs);
    if (cuda_emu_graphs) ck_assert_uint_eq(cuda_emu_graphs(), 0);
}
END_TEST

/* The work runs in any case, recorded or not, and the other graphs stay. */
START_TEST(a_launch_without_memory_is_plain) {
    if (!cuda_emu_graphs) return; /* only the emulation refuses on request */
    struct graphs graphs;
    counted c;
    graphs_open(&graphs, 8, 3);
    for (int calls : {1, 1, 0}) run(&graphs, &c, 1, 1, calls);
    run(&graphs, &c, 2, 1, 1);
    setenv("CUDA_EMU_FAIL", "cudaGraphLaunch", 1);
    run(&graphs, &c, 2, 1, 2); /* the first run records */
    unsetenv("CUDA_EMU_FAIL");
    ck_assert(graphs.failed && !cuda_failed());
    run(&graphs, &c, 2, 1, 1);
    run(&graphs, &c, 1, 1, 0);
    graphs_close(&graphs);
    ck_assert_uint_eq(cuda_emu_graphs(), 0);
}
END_TEST

/* A refusal keeps the existing graphs. From then on only new keys are launched without a graph. */
START_TEST(a_refusal_ends_recording) {
    if (!cuda_emu_graphs) return; /* only the emulation refuses on request */
    struct graphs graphs;
    counted c;
    graphs_open(&graphs, 8, 3);
    run(&graphs, &c, 1, 1, 1);
    run(&graphs, &c, 1, 1, 1);
    setenv("CUDA_EMU_FAIL", "cudaGraphInstantiate", 1);
    run(&graphs, &c, 2, 1, 1);
    run(&graphs, &c, 2, 1, 2); /* the first run records */
    ck_assert(graphs.failed);
    run(&graphs, &c, 2, 1, 1); /* not tried again */
    unsetenv("CUDA_EMU_FAIL");
    run(&graphs, &c, 1, 1, 0);
    graphs_close(&graphs);
}
END_TEST

/* ---- the backend ---------------------------------------------------------------------------- */

static struct compute_ops counting; /* of the backend; counts the passes that are queued */
static void (*begin_uncounted)(struct backend *, const struct step *, struct kv_cache *);
static int n_begun;

static void begin_counted(struct backend *b, const struct step *step, struct kv_cache *cache) {
    n_begun++;
    begin_uncounted(b, step, cache);
}

struct backend_world {
    struct backend *b;
    struct kv_cache *cache;
    /* The layers have `windows`, or all attend to everything. */
    explicit backend_world(std::initializer_list<int> windows = {}) {
        struct backend_config config = {1, nullptr, MAX_SEQS, 16, DTYPE_BF16};
        config.max_seqs = config.graph_rows = MAX_SEQS;
        config.max_context = CONTEXT;
        config.heads = H;
        for (const int window : windows) config.windows[config.n_windows++] = {window, 0};
        const struct kv_config kv = {1, G, D, 6000, B, DTYPE_BF16};
        struct err err;
        ck_assert_msg(backend_cuda_open(&b, &config, &err) == STATUS_OK, "%s", err.message);
        ck_assert_msg(b->cache->kv_new(b, &cache, &kv, &err) == STATUS_OK, "%s", err.message);
        counting = *b->compute;
        begin_uncounted = counting.step_begin;
        counting.step_begin = begin_counted;
        b->compute = &counting;
    }
    ~backend_world() {
        b->cache->kv_free(b, cache);
        backend_close(b);
    }
    /* Runs steps of `rows` rows up to a position. Returns how often the pass was queued. */
    int run(int rows, int last, uint64_t *state) {
        decode_step d;
        draw(&d, rows, last, CONTEXT / B, state);
        struct program program = {}; /* without ops */
        program.max_rows = program.max_read_rows = MAX_SEQS;
        const int before = n_begun;
        b->compute->run(b, &program, &d.step, cache);
        return n_begun - before;
    }
};

/* Contexts of one class share a graph. Another class has another graph. */
START_TEST(a_longer_context_is_another_graph) {
    backend_world w;
    uint64_t state = 5;
    for (const int last : {500, CONTEXT - 1})
        for (int i = 0; i < 4; i++) ck_assert_int_eq(w.run(1, last - i, &state), i < 2);
    ck_assert_int_eq(w.run(1, 300, &state), 0);
}
END_TEST

/* The plan of a short window has the same size at each context; the second one grows. */
START_TEST(the_last_window_chooses_the_graph) {
    backend_world w({40, 0});
    uint64_t state = 7;
    for (const int last : {500, CONTEXT - 1})
        for (int i = 0; i < 4; i++) ck_assert_int_eq(w.run(1, last - i, &state), i < 2);
    ck_assert_int_eq(w.run(1, 300, &state), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cuda_graph");
    TCase *steps = tcase_create("steps"), *kept = tcase_create("graphs");
    tcase_set_timeout(steps, 120);
    tcase_add_test(steps, arguments_depend_on_bucket_and_class_alone);
    tcase_add_test(steps, classes_hold_their_plans);
    tcase_add_test(steps, a_step_is_there_and_padding_writes_nothing);
    tcase_add_test(steps, two_steps_may_wait_for_the_stream);
    tcase_add_test(steps, a_long_sequence_does_not_lengthen_other_lines);
    tcase_add_test(steps, settings_are_aligned_after_arrays_of_any_length);
    suite_add_tcase(suite, steps);
    tcase_add_test(kept, buckets);
    tcase_add_test(kept, buckets_are_listed);
    tcase_add_test(kept, a_graph_is_recorded_the_second_time);
    tcase_add_test(kept, every_part_of_a_key_counts);
    tcase_add_test(kept, the_graph_used_longest_ago_goes);
    tcase_add_test(kept, a_launch_without_memory_is_plain);
    tcase_add_test(kept, a_refusal_ends_recording);
    tcase_add_test(kept, a_longer_context_is_another_graph);
    tcase_add_test(kept, the_last_window_chooses_the_graph);
    suite_add_tcase(suite, kept);
    return suite_main(suite);
}
