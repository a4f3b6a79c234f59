/* Layers with different attention windows and heads on the CUDA backend: queries and keys with QK
 * norm and a partial rotation, and scores with a cap, compared with double precision. The bytes are
 * the same in chunks, row by row, in batches and as graphs, and with window blocks that are
 * overwritten as soon as no row sees them. */
#include <math.h>
#include <string.h>

#include "tests/cuda/support.h"

enum { L = 4, H = 4, MOST_H = 6, D = 32, ROTATED = 16, B = 16, MAX_ROWS = 64, MAX_SEQS = 4 };
enum { CONTEXT = 1200, N_BLOCKS = 225, GRAPH_ROWS = 4 };
/* The second window is shorter than a split, so the layers' plans differ. A split's bound cuts the
 * third window. The last layer has full attention and heads of its own. */
static const int windows[L] = {0, 40, 300, 0};
static const int lengths[] = {1100, 70, 530};
enum { N_SEQUENCES = 3, LAST = 9 /* the last rows of each sequence, which are compared */ };
/* Window blocks of a sequence, used in turn: the blocks that a step's first row sees, and the
 * step's blocks. */
enum { RING = (300 - 2) / 16 + 2 + 64 / 16 };
static const bool has_window[L] = {false, true, true, false};
using bytes = std::vector<uint8_t>;

/* The types, and the heads of the last layer: fewer key-value heads, more query heads, or more of
 * both. */
struct variety {
    enum dtype act, kv;
    int own_H, own_G;
};
static const variety varieties[] = {{DTYPE_F32, DTYPE_F32, 6, 3},
                                    {DTYPE_F16, DTYPE_F16, 6, 2},
                                    {DTYPE_BF16, DTYPE_BF16, 4, 1},
                                    {DTYPE_BF16, DTYPE_E4M3, 6, 3}};
enum { N_VARIETIES = sizeof varieties / sizeof *varieties };

/* Rows from..to of a sequence. */
struct part {
    int sequence, from, to;
};
using parts = std::vector<part>;

/* ---- the contents of rows -------------------------------------------------------------------- */

/* The vectors of n heads of one row in a layer; `what` 0: queries, 1: keys, 2: values. */
static floats drawn(enum dtype act, int what, int layer, int sequence, int position, int n) {
    uint64_t state = 1 + (uint64_t)((((position * 8) + sequence) * 8 + layer) * 3 + what);
    floats all = random_vector(&state, (size_t)(n * D));
    for (float &value : all) value = value > 4 ? 4 : value < -4 ? -4 : value;
    return rounded(act, all);
}

static int heads_of(const variety &v, int what, int layer) {
    const bool is_last = layer == L - 1;
    if (what == 0) return is_last ? v.own_H : (int)H;
    return is_last ? v.own_G : 2;
}

/* All rows of a step, in its order. */
static floats drawn_rows(const variety &v, int what, int layer, const parts &of) {
    floats all;
    for (const part &one : of)
        for (int p = one.from; p < one.to; p++) {
            const int n = heads_of(v, what, layer);
            const floats row = drawn(v.act, what, layer, one.sequence, p, n);
            all.insert(all.end(), row.begin(), row.end());
        }
    return all;
}

/* ---- a backend ------------------------------------------------------------------------------ */

struct world {
    variety v;
    struct backend *b = nullptr;
    struct kv_cache *cache = nullptr;
    float *x[3][L], *y[L], *q_gain, *k_gain, *inv_freq;
    floats q_gains, k_gains, frequencies;
    bool attends = true, has_own;
    explicit world(const variety &v_, bool has_own_ = false) : v(v_), has_own(has_own_) {
        struct backend_config config = {};
        config.threads = 1;
        config.max_rows = MAX_ROWS;
        config.max_k = MOST_H * D;
        config.activations = v.act;
        config.max_seqs = MAX_SEQS;
        config.max_context = CONTEXT;
        config.heads = H;
        config.n_windows = L;
        struct kv_heads heads[L];
        for (int l = 0; l < L; l++) {
            heads[l] = {heads_of(v, 1, l), D};
            config.windows[l] = {windows[l], heads[l].G, l == L - 1 ? v.own_H : 0};
        }
        config.graph_rows = GRAPH_ROWS;
        struct err err = {};
        ck_assert_msg(backend_cuda_open(&b, &config, &err) == STATUS_OK, "%s", err.message);
        struct kv_config kv = {L, 2, D, N_BLOCKS, B, v.kv};
        kv.heads = heads;
        if (has_own) kv.n_window_blocks = (int)RING * (int)N_SEQUENCES, kv.has_window = has_window;
        ck_assert_msg(b->cache->kv_new(b, &cache, &kv, &err) == STATUS_OK, "%s", err.message);
        uint64_t state = 3;
        q_gains = random_vector(&state, D), k_gains = random_vector(&state, D);
        for (int i = 0; i < ROTATED / 2; i++) frequencies.push_back(powf(100, -(float)i / 8));
        q_gain = put(q_gains), k_gain = put(k_gains), inv_freq = put(frequencies);
        for (int l = 0; l < L; l++) {
            for (auto &all : x) all[l] = put(floats(MAX_ROWS * MOST_H * D));
            y[l] = put(floats(MAX_ROWS * MOST_H * D));
        }
    }
    ~world() {
        for (auto &all : x)
            for (float *one : all) b->memory->buffer_free(b, one, MAX_ROWS * MOST_H * D * 4);
        for (float *one : y) b->memory->buffer_free(b, one, MAX_ROWS * MOST_H * D * 4);
        b->memory->buffer_free(b, q_gain, D * 4);
        b->memory->buffer_free(b, k_gain, D * 4);
        b->memory->buffer_free(b, inv_freq, ROTATED * 2);
        b->cache->kv_free(b, cache);
        backend_close(b);
    }
    world(const world &) = delete;
    world &operator=(const world &) = delete;
    float *put(const floats &values) {
        const size_t size = values.size() * sizeof(float);
        float *data = static_cast<float *>(b->memory->buffer_new(b, size));
        b->memory->upload(b, data, values.data(), size);
        return data;
    }
    size_t row_bytes(int layer) const {
        return (size_t)(heads_of(v, 0, layer) * D) * (v.act == DTYPE_F32 ? 4 : 2);
    }
};

static struct attention attention_of(const variety &v, int layer) {
    return {heads_of(v, 0, layer), 0.3f, layer == 0 ? 0.0f : 6.0f, windows[layer]};
}

/* The write of a layer's keys and values, with the rotation of its queries. */
static struct op_row write_of(world *w, int layer) {
    struct op_row row = {};
    row.op = OP_ROPE_WRITE;
    row.cache_layer = layer;
    for (int i = 0; i < 3; i++) row.y[i] = w->x[i][layer];
    row.heads.H = heads_of(w->v, 0, layer);
    row.heads.rope = {ROTATED, w->inv_freq, ROPE_HALVES};
    row.heads.q_gain = w->q_gain;
    row.heads.k_gain = w->k_gain;
    row.heads.epsilon = 1e-5f;
    return row;
}

/* Runs a step of all layers. */
static void run_layers(world *w, const struct step *step) {
    struct program program = {};
    program.max_rows = program.max_read_rows = (int)CONTEXT * (int)N_SEQUENCES;
    for (int l = 0; l < L; l++) {
        const struct op_row write = write_of(w, l);
        struct op_row attend = {};
        attend.op = OP_ATTENTION;
        attend.cache_layer = l;
        attend.y[0] = w->y[l];
        attend.x[0] = w->x[0][l];
        attend.attention = attention_of(w->v, l);
        program_add(&program, &write);
        if (w->attends) program_add(&program, &attend);
    }
    w->b->compute->run(w->b, &program, step, w->cache);
    program_free(&program);
}

/* A step's blocks for layers with separate blocks. */
struct own_blocks {
    std::vector<int32_t> slot, table;
};

/* Block i of a sequence is the i-th of its ring. Positions that no row sees have no block. */
static void add_own_blocks(own_blocks *own, const part &of, int stride) {
    const auto block = [&](int i) { return i % (int)RING * (int)N_SEQUENCES + of.sequence; };
    const int first = of.from >= windows[2] ? (of.from - windows[2] + 1) / B : 0;
    for (int p = of.from; p < of.to; p++) own->slot.push_back(block(p / B) * B + p % B);
    for (int i = 0; i < stride; i++)
        own->table.push_back(i < first || i > (of.to - 1) / B ? INT32_MIN : block(i));
}

/* Runs a step and returns each layer's rows. Block i of a sequence is 3 * i + sequence. */
static std::vector<bytes> run(world *w, const parts &of) {
    std::vector<int32_t> token, position, slot, row_start = {0}, table, logit_row;
    const int stride = (int)CONTEXT / B;
    own_blocks own;
    for (const part &one : of) {
        for (int p = one.from; p < one.to; p++) {
            logit_row.push_back((int32_t)token.size());
            token.push_back(0);
            position.push_back(p);
            slot.push_back((p / B * (int)N_SEQUENCES + one.sequence) * B + p % B);
        }
        row_start.push_back((int32_t)token.size());
        add_own_blocks(&own, one, stride);
        for (int i = 0; i < stride; i++) table.push_back(i * (int)N_SEQUENCES + one.sequence);
    }
    struct step step = {};
    step.M = step.R = (int)token.size();
    step.S = (int)of.size();
    step.token = token.data();
    step.position = position.data();
    step.slot = slot.data();
    step.row_start = row_start.data();
    step.table = table.data();
    step.table_stride = stride;
    if (w->has_own) step.window_slot = own.slot.data(), step.window_table = own.table.data();
    step.logit_row = logit_row.data();
    for (int l = 0; l < L; l++)
        for (int what = 0; what < 3; what++) {
            const bytes rows = packed(w->v.act, drawn_rows(w->v, what, l, of));
            w->b->memory->upload(w->b, w->x[what][l], rows.data(), rows.size());
        }
    run_layers(w, &step);
    std::vector<bytes> y;
    for (int l = 0; l < L; l++) {
        bytes rows((size_t)step.M * w->row_bytes(l));
        w->b->memory->download(w->b, rows.data(), w->y[l], rows.size());
        y.push_back(rows);
    }
    return y;
}

/* Writes the first n positions of a sequence to the cache. */
static void prefill(world *w, int sequence, int n) {
    w->attends = false;
    for (int from = 0; from < n; from += MAX_ROWS)
        run(w, {{sequence, from, from + MAX_ROWS < n ? from + MAX_ROWS : n}});
    w->attends = true;
}

/* ---- double precision ----------------------------------------------------------------------- */

/* A head's vector after norm and rotation, rounded to a type. */
static floats prepared(const floats &x, int head, const floats &gain, const floats &frequencies,
                       int position, enum dtype type) {
    double squares = 0, v[D];
    for (int d = 0; d < D; d++) squares += pow((double)x[(size_t)(head * D + d)], 2);
    for (int d = 0; d < D; d++)
        v[d] = (double)x[(size_t)(head * D + d)] / sqrt(squares / (int)D + (double)1e-5f) *
               (double)gain[(size_t)d];
    for (int i = 0; i < ROTATED / 2; i++) {
        const double angle = (double)((float)position * frequencies[(size_t)i]);
        const double a = v[i], b = v[i + ROTATED / 2];
        v[i] = a * cos(angle) - b * sin(angle);
        v[i + ROTATED / 2] = b * cos(angle) + a * sin(angle);
    }
    return rounded(type, floats(v, v + D));
}

/* One head of a row's attention in a layer. */
static floats attended(const world &w, int layer, int sequence, int position, int head) {
    const struct attention how = attention_of(w.v, layer);
    const int G = heads_of(w.v, 1, layer), g = head * G / how.H;
    const int first = how.window && position >= how.window ? position - how.window + 1 : 0;
    const enum dtype act = w.v.act;
    const floats q = prepared(drawn(act, 0, layer, sequence, position, how.H), head, w.q_gains,
                              w.frequencies, position, act);
    std::vector<double> sum(D, 0);
    double total = 0;
    for (int p = first; p <= position; p++) {
        const floats k =
            prepared(drawn(act, 1, layer, sequence, p, G), g, w.k_gains, w.frequencies, p, act);
        const floats v = drawn(act, 2, layer, sequence, p, G);
        double score = 0;
        for (size_t d = 0; d < D; d++) score += (double)q[d] * (double)k[d];
        score *= (double)how.scale;
        if (how.cap != 0) score = (double)how.cap * tanh(score / (double)how.cap);
        total += exp(score);
        for (size_t d = 0; d < D; d++) sum[d] += exp(score) * (double)v[(size_t)(g * D) + d];
    }
    floats y(D);
    for (size_t d = 0; d < D; d++) y[d] = (float)(sum[d] / total);
    return y;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void check_row(const world &w, const bytes &y, int layer, int row, int sequence,
                      int position) {
    const floats got = unpacked(w.v.act, y);
    const int n = heads_of(w.v, 0, layer);
    for (int h = 0; h < n; h++) {
        const size_t at = (size_t)((row * n + h) * D);
        const floats mine(got.begin() + (ptrdiff_t)at, got.begin() + (ptrdiff_t)at + D);
        check_close(
            mine, attended(w, layer, sequence, position, h), 4 * rounding_of(w.v.act), 1,
            text("layer %d, sequence %d, position %d, head %d", layer, sequence, position, h));
    }
}

static void check_same(const world &w, const std::vector<bytes> &got, int row,
                       const std::vector<bytes> &want, int other, const char *how) {
    for (size_t l = 0; l < L; l++) {
        const size_t size = w.row_bytes((int)l);
        ck_assert_msg(memcmp(&got[l][(size_t)row * size], &want[l][(size_t)other * size], size) ==
                          0,
                      "%s: layer %zu has other bytes, act %d, cache %d", how, l, w.v.act, w.v.kv);
    }
}

/* Rows of decode steps equal those of a chunk, in separate steps and in batches. Each step runs at
 * least three times: without a graph, recorded, replayed. */
START_TEST(windows_are_right_in_any_company) {
    world w(varieties[_i]);
    std::vector<std::vector<bytes>> chunk;
    for (int s = 0; s < N_SEQUENCES; s++) {
        prefill(&w, s, lengths[s] - LAST);
        chunk.push_back(run(&w, {{s, lengths[s] - LAST, lengths[s]}}));
        if (w.v.kv == DTYPE_E4M3) continue; /* codes of 8 bits are compared only by bytes */
        for (int l = 0; l < L; l++)
            check_row(w, chunk.back()[(size_t)l], l, LAST - 1, s, lengths[s] - 1);
    }
    for (int s = 0; s < N_SEQUENCES; s++)
        for (int i = 0; i < LAST; i++) {
            const int p = lengths[s] - LAST + i;
            check_same(w, run(&w, {{s, p, p + 1}}), 0, chunk[(size_t)s], i, "alone");
        }
    for (int i = 0; i < LAST; i++) {
        parts all;
        for (int s = 0; s < N_SEQUENCES; s++) {
            const int p = lengths[s] - LAST + i;
            all.push_back({s, p, p + 1});
        }
        const std::vector<bytes> y = run(&w, all);
        for (int s = 0; s < N_SEQUENCES; s++)
            check_same(w, y, s, chunk[(size_t)s], i, "in a batch");
    }
    struct err err = {};
    ck_assert(!w.b->device->failed(w.b, &err));
}
END_TEST

/* Chunks, and decode steps in a batch, without graphs and as graphs: window blocks change no byte.
 */
START_TEST(window_blocks_change_no_byte) {
    world whole(varieties[_i]), own(varieties[_i], true);
    std::vector<std::vector<bytes>> chunk;
    for (int s = 0; s < N_SEQUENCES; s++) {
        const parts end = {{s, lengths[s] - LAST, lengths[s]}};
        prefill(&whole, s, lengths[s] - LAST);
        prefill(&own, s, lengths[s] - LAST);
        chunk.push_back(run(&whole, end));
        const std::vector<bytes> y = run(&own, end);
        for (int i = 0; i < LAST; i++) check_same(own, y, i, chunk.back(), i, "a chunk");
    }
    for (int i = 0; i < LAST; i++) {
        parts all;
        for (int s = 0; s < N_SEQUENCES; s++)
            all.push_back({s, lengths[s] - LAST + i, lengths[s] - LAST + i + 1});
        const std::vector<bytes> y = run(&own, all);
        for (int s = 0; s < N_SEQUENCES; s++)
            check_same(own, y, s, chunk[(size_t)s], i, "in a batch");
    }
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_windows");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 300);
    tcase_add_loop_test(core, windows_are_right_in_any_company, 0, N_VARIETIES);
    tcase_add_loop_test(core, window_blocks_change_no_byte, 0, N_VARIETIES);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
