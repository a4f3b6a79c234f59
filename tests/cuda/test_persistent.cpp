/* Lists of orders, and the grid that executes them. Products with norms, residuals and pairs, of
 * more tiles than there are blocks, have the bytes of separate launches. A launch that is not an
 * order makes a list useless. For heads and attention, in lists that the engine makes, see
 * test_engine_persistent.c. */
#include <string.h>

#include "kernels/cuda/attention/rope.cuh"
#include "kernels/cuda/gemm/ops.cuh"
#include "kernels/cuda/persistent/persistent.cuh"
#include "kernels/cuda/rows/rows.cuh"
#include "tests/cuda/gemm_data.h"

/* 10 slabs of K: a tile has more parts than a block has warps, and a pair's tile has 16. */
enum { K = 640, Q = 144, F = 80, V = 212, MAX_M = GEMM_SKINNY_ROWS, LAYERS = 2, N_STEPS = 2 };
constexpr float EPSILON = 1e-5f;

static const kind &float16_weights(enum dtype act) {
    for (const kind &k : kinds)
        if (k.type == act && !k.fp8) return k;
    ck_abort_msg("this kind does not exist");
}

/* A matrix of N outputs. */
struct weights_on_device : matrix_on_device {
    weights_on_device(enum dtype act, int N, int columns, uint64_t seed)
        : matrix_on_device(float16_weights(act), act,
                           make_rows(float16_weights(act), N, columns, seed)) {}
};

/* ---- a pass of products --------------------------------------------------------------------- */

/* Like a model without heads: the work between q and o is left out. */
struct pass {
    enum dtype act;
    int M;
    weights_on_device embedding, q, k, v, o, gate, up, down;
    buffer gain, ids, rows, x, yq, yk, yv, gated, gathered, logits;
    struct gemm_scratch none = {};

    static buffer numbers(int first, int step) {
        std::vector<int32_t> n;
        for (int i = 0; i < MAX_M; i++) n.push_back((first + step * i) % V);
        return buffer(n);
    }
    static floats gains() {
        uint64_t state = 5;
        return random_vector(&state, K);
    }
    static buffer activations(int columns) {
        return buffer((size_t)(MAX_M * columns) * 2);
    }
    pass(enum dtype act_, int M_)
        : act(act_), M(M_), embedding(act, V, K, 1), q(act, Q, K, 2), k(act, 48, K, 3),
          v(act, 37, K, 4), o(act, K, Q, 5), gate(act, F, K, 6), up(act, F, K, 7),
          down(act, K, F, 8), gain(gains()), ids(numbers(3, 7)), rows(numbers(0, 1)),
          x(activations(K)), yq(activations(Q)), yk(activations(48)), yv(activations(37)),
          gated(activations(F)), gathered(activations(K)), logits((size_t)(MAX_M * V) * 4) {}

    struct norm norm() {
        return {NORM_RMS, gain.as<float>(), nullptr, EPSILON};
    }
    void layer() {
        const struct norm first = norm();
        const struct gemm_epilogue add = {nullptr, x.data};
        const struct gemm_job qkv[] = {{&q.w, yq.data}, {&k.w, yk.data}, {&v.w, yv.data}};
        const struct gemm_job pair = {&gate.w, gated.data, nullptr, &up.w};
        gemm_many(qkv, 3, x.data, &first, M, test_stream());
        gemm(&o.w, x.data, yq.data, M, &add, test_stream());
        gemm_many(&pair, 1, x.data, &first, M, test_stream());
        gemm(&down.w, x.data, gated.data, M, &add, test_stream());
    }
    void queue() {
        const struct norm last = norm();
        const struct gemm_epilogue wide = {nullptr, nullptr, true};
        const struct gemm_job head = {&embedding.w, logits.data, &wide};
        embed_rows(x.data, &embedding.w, ids.as<int32_t>(), nullptr, 2, false, M, test_stream());
        for (int i = 0; i < LAYERS; i++) layer();
        rows_gather(act, gathered.data, x.data, rows.as<int32_t>(), M, K, test_stream());
        gemm_many(&head, 1, gathered.data, &last, M, test_stream());
    }
    static void queue_of(void *arg) {
        static_cast<pass *>(arg)->queue();
    }
    std::vector<uint8_t> result() {
        std::vector<uint8_t> all = logits.read<uint8_t>();
        for (const buffer *b : {&x, &yk, &yv}) {
            const std::vector<uint8_t> more = b->read<uint8_t>();
            all.insert(all.end(), more.begin(), more.end());
        }
        return all;
    }
};

/* ---- a device ------------------------------------------------------------------------------- */

struct opened {
    struct persistent all;
    /* Passes in ascending order of their rows. */
    explicit opened(std::initializer_list<pass *> passes) {
        cudaDeviceProp prop;
        struct err err;
        CUDA_OK(cudaGetDeviceProperties(&prop, 0));
        ck_assert_msg(persistent_open(&all, true, &prop, &err) == STATUS_OK, "%s", err.message);
        for (pass *p : passes)
            ck_assert_msg(persistent_consider(&all, p->M, pass::queue_of, p), "%s", all.misfit);
        ck_assert_msg(persistent_plan(&all, N_STEPS, &err) == STATUS_OK, "%s", err.message);
    }
    ~opened() {
        finish();
        persistent_close(&all);
    }
};

static const int row_counts[] = {9, 1, MAX_M, 8};
enum { N_ROW_COUNTS = sizeof row_counts / sizeof *row_counts };

START_TEST(one_grid_gives_the_bytes_of_single_launches) {
    pass p(short_types[_i % 2], row_counts[_i / 2]);
    opened on({&p});
    p.queue();
    const std::vector<uint8_t> want = p.result();
    p.x.poison(), p.logits.poison();
    struct persistent_step *step = persistent_record(&on.all, test_stream(), pass::queue_of, &p);
    ck_assert_ptr_nonnull(step);
    /* the second grid starts with the state that the first one left */
    for (int again = 0; again < 2; again++) {
        ck_assert(persistent_launch(&on.all, step, test_stream()));
        ck_assert_msg(p.result() == want, "%d rows, launch %d", p.M, again);
        ck_assert_uint_eq(on.all.launched, again + 1);
    }
    unsigned word;
    CUDA_OK(cudaMemcpy(&word, on.all.word, sizeof word, cudaMemcpyDeviceToHost));
    ck_assert_uint_eq(word << 1, 0); /* except for the phase */
    persistent_free(step);
}
END_TEST

/* Grids of different sizes may follow one another. */
START_TEST(steps_of_other_rows_use_the_same_barrier) {
    struct persistent_step *steps[2];
    pass one(DTYPE_BF16, 1), many(DTYPE_BF16, 12);
    opened on({&one, &many});
    pass *passes[] = {&one, &many};
    std::vector<uint8_t> want[2];
    for (int i = 0; i < 2; i++) {
        passes[i]->queue();
        want[i] = passes[i]->result();
        steps[i] = persistent_record(&on.all, test_stream(), pass::queue_of, passes[i]);
    }
    for (int i = 0; i < 4; i++) {
        passes[i % 2]->x.poison();
        ck_assert(persistent_launch(&on.all, steps[i % 2], test_stream()));
        ck_assert(passes[i % 2]->result() == want[i % 2]);
    }
    for (struct persistent_step *step : steps) persistent_free(step);
}
END_TEST

/* A shared device may have less room than it reports. Then graphs are used instead. */
START_TEST(a_grid_without_room_is_no_failure) {
    pass p(DTYPE_BF16, 1);
    opened on({&p});
    struct persistent_step *step = persistent_record(&on.all, test_stream(), pass::queue_of, &p);
    ck_assert_ptr_nonnull(step);
    setenv("CUDA_EMU_FAIL", "cooperative", 1);
    ck_assert(!persistent_launch(&on.all, step, test_stream()));
    unsetenv("CUDA_EMU_FAIL");
    ck_assert(!cuda_failed() && !on.all.max_rows && on.all.said_why_not && !on.all.launched);
    persistent_free(step);
}
END_TEST

/* A freed step's memory serves another step. */
START_TEST(a_freed_step_s_place_is_used_again) {
    pass p(DTYPE_BF16, 1), other(DTYPE_BF16, 8);
    opened on({&p, &other});
    struct persistent_step *kept = persistent_record(&on.all, test_stream(), pass::queue_of, &p);
    ck_assert_ptr_nonnull(kept);
    for (int i = 0; i < 3; i++) {
        pass *now = i % 2 ? &p : &other;
        now->queue();
        const std::vector<uint8_t> want = now->result();
        now->x.poison(), now->logits.poison();
        struct persistent_step *step =
            persistent_record(&on.all, test_stream(), pass::queue_of, now);
        ck_assert(step != kept && persistent_launch(&on.all, step, test_stream()));
        ck_assert(now->result() == want);
        persistent_free(step);
    }
    persistent_free(kept);
}
END_TEST

/* ---- lists ---------------------------------------------------------------------------------- */

enum { ROOM = 32 };
static struct order listed[ROOM];

/* Returns the list of a pass, after `also` has added to it. Nothing runs. */
template <class Also> static struct order_list list_of(pass *p, Also also, int room = ROOM) {
    struct order_list list;
    orders_begin(&list, listed, room);
    p->queue();
    also();
    orders_end();
    finish();
    return list;
}

START_TEST(orders_wait_for_one_another) {
    pass p(DTYPE_BF16, 3);
    struct angle_table table = {};
    const floats frequency = {1, 0.5f};
    buffer inv_freq(frequency), angles(size_t(2 * MAX_M * 2 * 4));
    table.cosine = table.sine = angles.as<float>();
    table.max_pairs = 2;
    struct rope rope = {};
    rope.D_rope = 4;
    rope.inv_freq = inv_freq.as<float>();
    auto make_angles = [&] { angles_make(&table, p.ids.as<int32_t>(), &rope, 3, test_stream()); };
    struct order_list list = list_of(&p, make_angles);
    const int n = list.n;
    ck_assert(!list.misfit && list.groups == 1 && list.act == DTYPE_BF16);
    ck_assert_int_eq(n, 1 + 4 * LAYERS + 2 + 1);
    for (int i = 0; i < n; i++) { /* the first order has no predecessor, and angles need none */
        ck_assert_int_eq(list.orders[i].waits, i > 0 && i < n - 1);
        ck_assert_int_eq(list.orders[i].meets, i < n - 2);
    }
    ck_assert_int_eq(list.orders[0].kind, ORDER_EMBED);
    ck_assert_int_eq(list.orders[1].kind, ORDER_NORMED_PRODUCT);
    ck_assert_int_eq(list.orders[1].items, Q / 16 + 48 / 16 + 3);
    ck_assert_int_eq(list.orders[2].kind, ORDER_PRODUCT);
    ck_assert_int_eq(list.orders[n - 1].kind, ORDER_ANGLES);
    ck_assert_int_eq(list.orders[n - 1].items, 6);
    std::vector<uint8_t> untouched(p.x.bytes);
    buffer(p.x.bytes).copy_to(untouched.data());
    ck_assert(p.x.read<uint8_t>() == untouched);
}
END_TEST

START_TEST(a_full_list_counts_the_other_orders) {
    enum { LITTLE = 3 };
    pass p(DTYPE_BF16, 3);
    const struct order_list whole = list_of(&p, [] {});
    const std::vector<struct order> before(listed, listed + LITTLE);
    memset((void *)listed, 0x55, sizeof listed);
    const struct order_list part = list_of(
        &p, [] {}, LITTLE);
    ck_assert_int_eq(part.n, whole.n);
    ck_assert(part.smem == whole.smem && part.groups == whole.groups && !part.misfit);
    for (int i = 0; i < LITTLE; i++) { /* arguments have padding, so they are not compared */
        ck_assert(listed[i].kind == before[i].kind && listed[i].items == before[i].items);
        ck_assert(listed[i].waits == before[i].waits && listed[i].meets == before[i].meets);
    }
    for (size_t i = LITTLE * sizeof *listed; i < sizeof listed; i++)
        ck_assert_int_eq(((unsigned char *)listed)[i], 0x55);
}
END_TEST

/* Adds a launch that one grid cannot execute after a pass of 3 rows in bfloat16. */
static void add_misfit(pass *p, int which, pass *wide, pass *other) {
    const struct norm norm = p->norm();
    if (which == 0) rows_norm(p->act, p->x.data, p->x.data, &norm, p->M, K, test_stream());
    if (which == 1) wide->queue();
    if (which == 2) other->queue();
    if (which == 3)
        rows_gather(DTYPE_F32, p->x.data, p->x.data, p->rows.as<int32_t>(), 1, 8, test_stream());
    if (which == 4)
        rows_gather(p->act, p->x.data, p->x.data, p->rows.as<int32_t>(), 1, 7, test_stream());
}
enum { N_MISFITS = 5 };

START_TEST(a_misfit_makes_a_list_useless) {
    /* made before the list begins, because packing their matrices is not an order either */
    pass p(DTYPE_BF16, 3), wide(DTYPE_BF16, 12), other(DTYPE_F16, 3);
    struct order_list list = list_of(&p, [&] { add_misfit(&p, _i, &wide, &other); });
    ck_assert_ptr_nonnull(list.misfit);
}
END_TEST

struct misfit {
    pass *p;
    int which, calls;
};
static void queue_misfit(void *arg) {
    auto *m = static_cast<misfit *>(arg);
    m->calls++;
    m->p->queue();
    add_misfit(m->p, m->which, nullptr, nullptr);
}

/* A pass with such a launch is launched kernel by kernel. */
START_TEST(a_useless_list_is_no_step) {
    pass p(DTYPE_BF16, 3);
    opened on({&p});
    p.queue();
    const std::vector<uint8_t> want = p.result();
    misfit m = {&p, 0, 0};
    ck_assert_ptr_null(persistent_record(&on.all, test_stream(), queue_misfit, &m));
    ck_assert_int_eq(m.calls, 1);
    ck_assert(on.all.said_why_not);
    for (const struct persistent_step *s = on.all.steps; s < on.all.steps + N_STEPS; s++)
        ck_assert(!s->taken);
    p.x.poison();
    p.queue();
    ck_assert(p.result() == want);
}
END_TEST

/* The decision is made at the start: nothing is launched, no memory is allocated, and the reason is
 * kept. */
START_TEST(a_misfit_is_found_at_the_start) {
    cudaDeviceProp prop;
    struct persistent all;
    struct err err = {};
    pass p(DTYPE_BF16, 3);
    misfit m = {&p, 0, 0};
    CUDA_OK(cudaGetDeviceProperties(&prop, 0));
    ck_assert_int_eq(persistent_open(&all, true, &prop, &err), STATUS_OK);
    if (_i == 1) setenv("CUDA_EMU_FAIL", "cudaFuncSetAttribute", 1);
    ck_assert(!persistent_consider(&all, 3, _i ? pass::queue_of : queue_misfit,
                                   _i ? static_cast<void *>(&p) : &m));
    unsetenv("CUDA_EMU_FAIL");
    ck_assert_str_eq(all.misfit,
                     _i ? "the device does not support a block with 97 KiB of shared memory"
                        : "it has ops that one grid cannot do");
    ck_assert_int_eq(persistent_plan(&all, N_STEPS, &err), STATUS_OK);
    ck_assert(!all.max_rows && !all.host && !all.device && !cuda_failed());
    persistent_close(&all);
}
END_TEST

START_TEST(a_device_may_lack_such_grids) {
    cudaDeviceProp prop;
    struct persistent all;
    struct err err = {};
    CUDA_OK(cudaGetDeviceProperties(&prop, 0));
    ck_assert_int_eq(persistent_open(&all, false, &prop, &err), STATUS_OK);
    ck_assert(!all.word);
    persistent_close(&all);
}
END_TEST

/* A grid takes several times as long if each access is watched. */
int main(int, char **arguments) {
    const int n = suite_is_watched(arguments[0]) ? 2 : 2 * N_ROW_COUNTS;
    Suite *suite = suite_create("cuda_persistent");
    TCase *grids = tcase_create("grids"), *lists = tcase_create("lists");
    tcase_set_timeout(grids, 300);
    tcase_add_loop_test(grids, one_grid_gives_the_bytes_of_single_launches, 0, n);
    tcase_add_test(grids, steps_of_other_rows_use_the_same_barrier);
    tcase_add_test(grids, a_grid_without_room_is_no_failure);
    tcase_add_test(grids, a_freed_step_s_place_is_used_again);
    suite_add_tcase(suite, grids);
    tcase_add_test(lists, orders_wait_for_one_another);
    tcase_add_test(lists, a_full_list_counts_the_other_orders);
    tcase_add_loop_test(lists, a_misfit_is_found_at_the_start, 0, 2);
    tcase_add_loop_test(lists, a_misfit_makes_a_list_useless, 0, N_MISFITS);
    tcase_add_test(lists, a_useless_list_is_no_step);
    tcase_add_test(lists, a_device_may_lack_such_grids);
    suite_add_tcase(suite, lists);
    return suite_main(suite);
}
