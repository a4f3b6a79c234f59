/* DESIGN: the gated delta rule and the state space: heads that keep a matrix S [dk][dv] per
 * sequence.
 *
 * Columns of a matrix do not depend on each other, and the sums of a column go over its rows in
 * order. So a warp takes 32 columns of one head through all rows of a sequence, one column per
 * lane, with these columns in shared memory:
 *
 *     block    sequence s, head h, columns 32 c .. 32 c + 31
 *     shared   S [dk][32] | k [dk] | q [dk] | with a decay per channel g [dk]
 *
 *     load S, or zeros at position 0
 *     for each row, by position: k, q and the head's factors; then each lane replaces its column
 *         and writes y; if the step asks for it, S is also written to another state
 *     store S
 *
 * Blocks of one head compute the same k and q. The last part of an op needs all columns of a head
 * or a group, so it is a kernel of its own (gates.cu).
 *
 * A row's chain of sums takes the time of 2 dk dependent multiply-adds. For prompts that is the
 * limit: a chunk of 512 rows with dk 128 takes some 0.4 ms a layer on an H200 (estimated). */
#include "kernels/cuda/recurrent/recurrent.cuh"

#include <type_traits>

#include "kernels/cuda/runtime/ordered.cuh"
#include "kernels/cuda/runtime/ptx.cuh"

constexpr int COLUMNS = WARP;
static_assert(WARP == 2 * PARTIAL_SUMS, "half a warp has k, the other half q");

enum matrix_kind { SPACE, RULE, CHANNEL_RULE };

template <class T> struct matrix_args {
    T *y;                 /* [M][Hv][dv] */
    const T *q, *k, *v;   /* of all heads in row 0 */
    int key_step, v_step; /* numbers between two rows of q and k, and of v */
    const void *b, *dt;   /* [M][Hv], of delta rules float32; b NULL: a state space; dt with a
                              decay per channel [M][Hv][dk] */
    const float *decay, *dt_bias, *skip;
    float dt_min, dt_max; /* of a state space */
    int Hk, Hv, dk, dv, state_first;
    bool tiles;
    struct state_rows rows;
};

/* The columns of a block. */
template <class T, matrix_kind KIND> struct matrix_columns {
    static constexpr bool CORRECTS = KIND != SPACE, BY_CHANNEL = KIND == CHANNEL_RULE;
    using Factor = std::conditional_t<CORRECTS, float, T>;
    const matrix_args<T> &a;
    float *S, *k, *q, *g; /* shared */
    int head, key, first, column;
    bool is_used; /* the lane has a column */

    __device__ __forceinline__ matrix_columns(const matrix_args<T> &args) : a(args) {
        const int parts = (a.dv + COLUMNS - 1) / COLUMNS;
        S = dyn_smem<float>();
        k = S + a.dk * COLUMNS;
        q = k + a.dk;
        g = q + a.dk;
        head = blockIdx.x / parts;
        key = a.tiles ? head % a.Hk : head / (a.Hv / a.Hk);
        first = blockIdx.x % parts * COLUMNS;
        column = first + (int)threadIdx.x;
        is_used = column < a.dv;
    }
    __device__ __forceinline__ float *matrix(int state) const {
        return a.rows.states + state * a.rows.stride + a.state_first + (size_t)head * a.dk * a.dv +
               column;
    }
    __device__ __forceinline__ void load(int state, bool begins) const {
        const float *from = matrix(state);
        for (int i = 0; i < a.dk && is_used; i++)
            S[i * COLUMNS + threadIdx.x] = begins ? 0.0f : from[(size_t)i * a.dv];
    }
    __device__ __forceinline__ void store(int state) const {
        float *to = matrix(state);
        for (int i = 0; i < a.dk && is_used; i++)
            to[(size_t)i * a.dv] = S[i * COLUMNS + threadIdx.x];
    }
    /* Copies k and q of a row to shared memory. The delta rule divides them by their lengths: half
     * of the warp takes k, the other half q. */
    __device__ __forceinline__ void load_keys(int row) const {
        const bool is_q = threadIdx.x >= PARTIAL_SUMS;
        const int lane = threadIdx.x % PARTIAL_SUMS;
        const T *from = (is_q ? a.q : a.k) + (size_t)row * a.key_step + key * a.dk;
        float *to = is_q ? q : k, squares = 0.0f;
        __syncwarp(); /* the last row's were read */
        for (int i = lane; i < a.dk; i += PARTIAL_SUMS) {
            const float number = to_float(from[i]);
            to[i] = number;
            squares = fmaf(number, number, squares);
        }
        if (CORRECTS) {
            const float all = __shfl_sync(FULL_MASK, ordered_tree(squares), is_q * PARTIAL_SUMS);
            const float size = (float)a.dk, r = 1.0f / sqrtf(all / size + 1e-6f / size);
            const float gain = is_q ? 1.0f / size : 1.0f / sqrtf(size);
            for (int i = lane; i < a.dk; i += PARTIAL_SUMS) to[i] = to[i] * r * gain;
        }
        if (BY_CHANNEL) load_decays(row);
        __syncwarp();
    }
    __device__ __forceinline__ void load_decays(int row) const {
        const float *dt = static_cast<const float *>(a.dt) + ((size_t)row * a.Hv + head) * a.dk;
        for (int i = threadIdx.x; i < a.dk; i += WARP) {
            const float step = ordered_softplus(dt[i] + a.dt_bias[(size_t)head * a.dk + i]);
            g[i] = ordered_exp(a.decay[head] * step);
        }
    }
    /* Replaces the lane's column and returns its output. `decay` is that of all rows of S, or 1 if
     * each has its own. */
    __device__ __forceinline__ float replace(float v, float beta, float decay) const {
        float *s = S + threadIdx.x, seen = 0.0f, o = 0.0f;
        if (CORRECTS)
#pragma unroll 8
            for (int i = 0; i < a.dk; i++)
                seen = fmaf(s[i * COLUMNS], BY_CHANNEL ? k[i] * g[i] : k[i], seen);
        const float d = (CORRECTS ? fmaf(-decay, seen, v) : v) * beta;
#pragma unroll 8
        for (int i = 0; i < a.dk; i++) {
            const float kept = s[i * COLUMNS] * (BY_CHANNEL ? g[i] : decay);
            const float next = fmaf(k[i], d, kept);
            s[i * COLUMNS] = next;
            o = fmaf(next, q[i], o);
        }
        return CORRECTS ? o : fmaf(a.skip[head], v, o);
    }
    /* Returns the step of a head, from which its decay follows. */
    __device__ __forceinline__ float step_of(size_t of_head) const {
        float step = ordered_softplus(to_float(static_cast<const Factor *>(a.dt)[of_head]) +
                                      a.dt_bias[head]);
        if (!CORRECTS) {
            step = a.dt_min > step ? a.dt_min : step;
            step = a.dt_max < step ? a.dt_max : step;
        }
        return step;
    }
    __device__ __forceinline__ void run_row(int row) const {
        const size_t of_head = (size_t)row * a.Hv + head;
        const float step = BY_CHANNEL ? 0.0f : step_of(of_head);
        const float decay = BY_CHANNEL ? 1.0f : ordered_exp(a.decay[head] * step);
        const float beta =
            CORRECTS ? ordered_sigmoid(to_float(static_cast<const Factor *>(a.b)[of_head])) : step;
        load_keys(row);
        if (is_used) {
            const T *v = a.v + (size_t)row * a.v_step + head * a.dv;
            const float o = replace(to_float(v[column]), beta, decay);
            a.y[of_head * a.dv + column] = from_float<T>(o);
        }
        if (a.rows.after[row] >= 0) store(a.rows.after[row]);
    }
};

template <class T, matrix_kind KIND>
__global__ void __launch_bounds__(COLUMNS) matrix_kernel(const __grid_constant__ matrix_args<T> a) {
    grid_begin();
    const int s = blockIdx.y, from = a.rows.row_start[s], end = a.rows.row_start[s + 1];
    if (from == end) return;
    const matrix_columns<T, KIND> columns(a);
    columns.load(a.rows.state[s], a.rows.position[from] == 0);
    for (int row = from; row < end; row++) columns.run_row(row);
    columns.store(a.rows.state[s]);
}

template <class T, matrix_kind KIND>
static void launch_matrices(const matrix_args<T> &args, cudaStream_t stream) {
    const int parts = (args.dv + COLUMNS - 1) / COLUMNS;
    const size_t vectors = KIND == CHANNEL_RULE ? 3 : 2;
    const size_t smem = (size_t)args.dk * (COLUMNS + vectors) * sizeof(float);
    const size_t end = (size_t)args.state_first + (size_t)args.Hv * args.dk * args.dv;
    static_assert(MAX_DELTA_HEAD * (COLUMNS + 3) * sizeof(float) <= DEFAULT_SMEM,
                  "the columns fit");
    assert(args.Hk > 0 && args.Hv % args.Hk == 0 && args.dk > 0 && args.dv > 0);
    assert(args.dk <= MAX_DELTA_HEAD && args.dv <= MAX_DELTA_HEAD && end <= args.rows.stride);
    launch(matrix_kernel<T, KIND>, dim3((unsigned)(args.Hv * parts), (unsigned)args.rows.S),
           dim3(COLUMNS), smem, stream, args);
}

void recurrent_delta(enum dtype act, void *y, const struct delta_rows *of,
                     const struct state_rows *rows, const struct delta_rule *rule, int M,
                     cudaStream_t stream) {
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        const int keys = rule->Hk * rule->dk, values = rule->Hv * rule->dv;
        assert(!of->k == !of->v);
        matrix_args<T> args = {};
        args.y = (T *)y, args.q = (const T *)of->qkv;
        args.k = of->k ? (const T *)of->k : args.q + keys;
        args.v = of->v ? (const T *)of->v : args.q + 2 * keys;
        args.v_step = of->v ? values : 2 * keys + values;
        args.key_step = of->k ? keys : args.v_step;
        args.b = of->b, args.dt = of->dt;
        args.decay = rule->decay, args.dt_bias = rule->dt_bias;
        args.Hk = rule->Hk, args.Hv = rule->Hv, args.dk = rule->dk, args.dv = rule->dv;
        args.state_first = rule->state_first, args.tiles = rule->tiles, args.rows = *rows;
        if (rule->by_channel)
            launch_matrices<T, CHANNEL_RULE>(args, stream);
        else
            launch_matrices<T, RULE>(args, stream);
    });
    const struct recurrent_ending ending = {rule->Hv, rule->dv,      rule->gain,      false,
                                            false,    rule->epsilon, rule->by_sigmoid};
    recurrent_finish(act, y, of->z, &ending, M, stream);
}

void recurrent_space(enum dtype act, void *y, const struct space_rows *of,
                     const struct state_rows *rows, const struct state_space *space, int M,
                     cudaStream_t stream) {
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        const int values = space->Hv * space->dv, keys = space->Hk * space->dk;
        matrix_args<T> args = {};
        args.y = (T *)y, args.v = (const T *)of->xbc;
        args.k = args.v + values, args.q = args.k + keys;
        args.key_step = args.v_step = values + 2 * keys;
        args.dt = of->dt, args.skip = space->skip;
        args.decay = space->decay, args.dt_bias = space->dt_bias;
        args.dt_min = space->dt_min, args.dt_max = space->dt_max;
        args.Hk = space->Hk, args.Hv = space->Hv, args.dk = space->dk, args.dv = space->dv;
        args.state_first = space->state_first, args.rows = *rows;
        launch_matrices<T, SPACE>(args, stream);
    });
    const int each = space->Hv / space->Hk * space->dv;
    const struct recurrent_ending ending = {space->Hk,           each,           space->gain, true,
                                            !space->norms_first, space->epsilon, false};
    recurrent_finish(act, y, of->z, &ending, M, stream);
}
