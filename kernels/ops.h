/* kernels/ops: the arithmetic of a forward pass, as one table of functions. If only some model
 * families need a feature, it is an option of an op rather than a new op.
 *
 * Pointers x, y, q, k, v and sum are device memory from buffer_new, row-major and without padding.
 * Their element type is the backend's type of activations: float32 on the CPU, float32 or narrower
 * on CUDA. Gains, biases, frequencies and logits are float32 device memory everywhere. CPU ops are
 * complete when they return; CUDA ops are queued, and `download` waits for them. Ops do not report
 * failures: arguments are checked when a matrix or a cache is made, and `failed` reports a broken
 * device. y may not overlap x unless stated.
 */
#ifndef PENSTOCK_KERNELS_OPS_H
#define PENSTOCK_KERNELS_OPS_H

#include <stdbool.h>

#include "kernels/dtype.h"
#include "kernels/step.h"

struct backend;
struct matrix;
struct kv_cache;
struct program;

enum norm_kind {
    NORM_RMS,   /* x / sqrt(mean(x^2) + epsilon) * gain (Zhang and Sennrich 2019) */
    NORM_LAYER, /* (x - mean(x)) / sqrt(variance(x) + epsilon) * gain + bias (Ba et al. 2016) */
};

/* The norm of a product's input rows. If an op gets NULL, it applies no norm. */
struct norm {
    enum norm_kind kind;
    const float *gain; /* [K] */
    const float *bias; /* [K], for NORM_LAYER; NULL: zero */
    float epsilon;
    float sum_scale; /* for norm_add: factor of the sum; 0 stands for 1 */
    bool of_sum;     /* for norm_add: the norm is of x + y instead of y */
};

static inline float norm_sum_scale(const struct norm *norm) {
    return norm->sum_scale == 0 ? 1 : norm->sum_scale;
}

enum { LOW_RANK_PANEL = 16 }; /* outputs of a panel of struct low_rank */

/* One adapter's change of a projection: y += ((x times a^T) times b^T) * scale (LoRA: Hu et al.
 * 2021). b is stored in panels of adjacent outputs: number r of output n is
 * b_panels[n / 16][r][n % 16]. The last panel has zeros after output N - 1. Products widen numbers
 * of 16 bits to float32, which is exact, so the type does not change their bytes. */
struct low_rank {
    int rank;             /* 0: the adapter does not change the projection */
    float scale;          /* before the projection's own scale */
    const void *a;        /* [rank][K] */
    const void *b_panels; /* [ceil(N / LOW_RANK_PANEL)][rank][LOW_RANK_PANEL] */
    enum dtype type;      /* of both: F32, F16 or BF16 */
};

/* The index of number r of output n in b_panels, and the numbers of all panels of N outputs. */
static inline size_t low_rank_at(int rank, int n, int r) {
    const int panel = n / LOW_RANK_PANEL, lane = n % LOW_RANK_PANEL;
    return ((size_t)panel * (size_t)rank + (size_t)r) * LOW_RANK_PANEL + (size_t)lane;
}
static inline size_t low_rank_numbers(int rank, int N) {
    const int panels = (N + LOW_RANK_PANEL - 1) / LOW_RANK_PANEL;
    return (size_t)panels * (size_t)rank * LOW_RANK_PANEL;
}

/* The adapters of the rows of an op. The caller sets it before a pass. */
struct row_adapters {
    /* [M] the number of each row's adapter, 0: none; NULL: all are 0. CUDA reads the step's
     * instead */
    const int32_t *adapter;
    bool are_read; /* the rows are those that the step reads (its logit_row); else all */
};

/* The adapters of a projection. */
struct low_ranks {
    const struct row_adapters *rows;
    /* [adapters + 1]; of[0] has rank 0. The list and its matrices are device memory. An op reads
     * them when it runs, so an entry may change between steps that have no row of it */
    const struct low_rank *of;
};

/* A projection: y = (x times w^T + bias) * scale. */
struct linear {
    struct matrix *w;            /* [N][K] */
    const float *bias;           /* [N]; NULL: zero */
    float scale;                 /* 0 stands for 1. In an MLP only `gate` and `down` may have one */
    const struct low_ranks *low; /* NULL: no adapters */
};

static inline float linear_scale(const struct linear *linear) {
    return linear->scale == 0 ? 1 : linear->scale;
}

enum activation {
    ACTIVATION_SILU,         /* x / (1 + exp(-x)) */
    ACTIVATION_GELU,         /* x * (1 + erf(x / sqrt(2))) / 2 (Hendrycks and Gimpel 2016) */
    ACTIVATION_GELU_TANH,    /* the tanh approximation of the same paper */
    ACTIVATION_RELU,         /* max(x, 0) */
    ACTIVATION_RELU_SQUARED, /* max(x, 0)^2 (So et al. 2021) */
    /* g / (1 + exp(-ALPHA g)) * (u + 1), with the gate g clamped to at most CLAMP_LIMIT and the up
     * value u clamped to +-CLAMP_LIMIT (gpt-oss: OpenAI 2025); only for gated MLPs */
    ACTIVATION_CLAMPED,
    ACTIVATION_XIELU, /* struct xielu; only for MLPs without a gate */
};

/* xIELU (Huang and Schlag 2024): positive * x^2 + linear * x for x > 0, else
 * negative * (exp(min(x, limit)) - 1 - x) + linear * x. */
struct xielu {
    float positive, negative, linear;
    float limit; /* from -1 to 0 */
};

#define CLAMP_LIMIT 7.0f
#define CLAMP_ALPHA 1.702f

/* down(activation(gate(x)) * up(x)) (Shazeer 2020); without a gate down(activation(up(x))). */
struct mlp {
    enum activation activation;
    struct linear gate; /* [F][K]; gate.w NULL: the MLP is not gated */
    struct linear up;   /* [F][K] */
    struct linear down; /* [K][F] */
    /* If not NULL, the gate's outputs are multiplied by columns times_first.. of these rows
     * [M][times_stride] instead of up's outputs; up.w is then NULL. Only for the op mlp */
    const float *times;
    int times_first, times_stride;
    struct xielu xielu; /* for ACTIVATION_XIELU */
};

/* A mixture of experts (Shazeer et al. 2017): E MLPs, and each row uses n_used of them. The
 * router's logits are float32. A row uses the experts with the largest logits; ties go to the lower
 * number. Their weights are the softmax of the logits over all experts, or with `normalises` over
 * the row's experts.
 *
 * With a correction the softmax of all logits is the score. A row uses the experts with the largest
 * score + correction (ERNIE 4.5: Baidu 2025), and the weights are as with by_sigmoid.
 *
 * With `by_sigmoid` (DeepSeek-AI 2024) the scores are the sigmoids of the logits. A row uses the
 * experts with the largest score + correction within the n_used_groups best groups of adjacent
 * experts. A group ranks by the sum of its two largest values. The weights are the scores, or with
 * `normalises` the scores divided by their sum.
 *
 * With groups but not by_sigmoid, the softmax of all logits is the score, a group ranks by its
 * largest value, and the rest is as with by_sigmoid (DeepSeek V2). */
struct experts {
    int E, n_used;
    bool normalises, by_sigmoid;
    const float *correction;     /* [E]; NULL: zero */
    int n_groups, n_used_groups; /* 0: a single group */
    float weight_scale;          /* factor of all weights; 0 stands for 1 */
    const float *expert_scale;   /* [E] another factor per expert; NULL: 1 */
    struct linear router;        /* [E][K], a MATRIX_FLOAT32 */
    struct norm router_norm;     /* the router's input is this norm of x; gain NULL: its input is
                                       h. It excludes shared_gate */
    struct mlp mlp;              /* all experts, concatenated: [E * F][K], and down [E * K][F] */
    struct mlp shared; /* the shared expert that all rows use; up.w NULL: there is not one */
    struct linear shared_gate; /* [1][K], a MATRIX_FLOAT32: the sigmoid of its product is the weight
                                  of the shared expert; w NULL: the weight is 1 */
};

enum { MAX_EXPERT_GROUPS = 32 };

static inline float experts_weight_scale(const struct experts *experts) {
    return experts->weight_scale == 0 ? 1 : experts->weight_scale;
}

/* F and K of experts are multiples of this, so the rows of each expert are whole panels or
 * tiles. */
enum { EXPERT_QUANTUM = 16 };

/* The positions in a head of the two numbers that RoPE rotates as a pair. */
enum rope_layout {
    ROPE_ADJACENT, /* (0,1), (2,3), ..: llama files in GGUF, with permuted query and key rows */
    ROPE_HALVES,   /* (0,D/2), (1,D/2+1), ..: GPT-NeoX and Hugging Face */
};

/* Rotary positions (Su et al. 2021): a pair is rotated by position * inv_freq[pair]. */
struct rope {
    int D_rope;            /* number of leading elements to rotate; even; 0: no rotation */
    const float *inv_freq; /* [D_rope / 2] */
    enum rope_layout layout;
    float scale; /* factor of cosines and sines in YaRN (Peng et al. 2023); 0 stands for 1 */
};

/* Norms of queries and keys, if there are gains (QK norm: Henry et al. 2020). */
enum head_norms {
    HEAD_NORMS_ALIKE,    /* an RMSNorm per head, with shared gains [D] */
    HEAD_NORMS_TOGETHER, /* an RMSNorm over all heads of a row (OLMo 2: Team OLMo 2024); gains
                            [H][D] and [G][D] */
    HEAD_NORMS_OWN,      /* a LayerNorm per head, with separate gains [H][D] and [G][D] */
    HEAD_NORMS_LAYER,    /* a LayerNorm over all heads of a row (Jina Embeddings 2 for code); gains
                            and biases [H][D] and [G][D] */
};

/* Is a norm over all heads of a row? */
static inline bool head_norms_are_of_rows(enum head_norms norms) {
    return norms == HEAD_NORMS_TOGETHER || norms == HEAD_NORMS_LAYER;
}

/* The processing of heads before attention. Queries and keys are normalised, then rotated, or the
 * other way round; queries are then scaled by position (Llama 4: Meta 2025). Values may be
 * normalised. */
struct heads {
    int H;                        /* query heads */
    struct rope rope;             /* for queries and keys */
    const float *q_gain, *k_gain; /* both or neither if there are keys; NULL: no norm */
    const float *q_bias, *k_bias; /* for HEAD_NORMS_LAYER; else NULL */
    float epsilon;                /* of the norms */
    enum head_norms norms;
    bool norms_last;      /* queries and keys are normalised after the rotation (HunYuan) */
    const float *v_gain;  /* [D] gains of an RMSNorm per value head; NULL: no norm */
    bool values_are_keys; /* v is a copy of k before its norm and rotation (Gemma 4) */
    const float *q_scale; /* [positions / q_scale_every, rounded up]; NULL: 1 */
    int q_scale_every;    /* consecutive positions that share a scale; 2 or more */
};

/* Parameters of attention scores. */
struct attention {
    int H;       /* query heads; head h reads key-value head h * G / H (Ainslie et al. 2023) */
    float scale; /* score = scale * q . k */
    float cap;   /* score becomes cap * tanh(score / cap); 0: no cap */
    int window;  /* a row sees the last `window` positions, its own included; 0: all positions.
                    Window and heads are in backend_config's list */
    const float *sinks; /* [H] an extra score per head with value 0 (Xiao et al. 2024); NULL: off */
    /* Encoders: a row also sees the rows after it, as many as before it if there is a window. All
     * positions of each sequence are then rows of the step. Equals backend_config's on CUDA */
    bool both_ways;
    /* [H] ALiBi (Press et al. 2022): slope * distance of the two positions is subtracted from a
     * head's scores before the cap; NULL: nothing */
    const float *slopes;
    /* [M][H][D] y is multiplied by the sigmoids of these numbers (Qiu et al. 2025); NULL: by
     * nothing */
    const float *gate;
};

/* A product per head: of each of H heads, N numbers from K numbers by that head's own matrix. */
struct head_linear {
    struct matrix *w; /* [H * N][K]; N is a multiple of HEAD_QUANTUM */
    int H, N;
    int x_stride, y_stride; /* numbers per head in x, of which the first K are read, and in y */
};

/* Outputs of a head are whole panels of its matrix. */
enum { HEAD_QUANTUM = 16 };

/* Latent attention (DeepSeek-AI 2024): a row's key is a latent vector of `rank` numbers,
 * normalised, followed by D_rope rotated numbers, and its value is the latent vector. All query
 * heads read this one key head. Queries may be scaled by position, as in struct heads. */
struct latent {
    int H;                /* query heads */
    int rank;             /* of the latent vector */
    int D_unrotated;      /* numbers of a query before its D_rope rotated ones */
    struct rope rope;     /* for the last D_rope numbers of queries and keys */
    struct norm norm;     /* of the latent vector */
    const float *q_scale; /* [positions / q_scale_every, rounded up]; NULL: 1 */
    int q_scale_every;    /* consecutive positions that share a scale; 2 or more */
};

/* A gated short convolution (LFM2: Liquid AI 2025). Each of N channels c is a sequence over the
 * positions p, and sees its last `taps` numbers; those before position 0 are 0:
 *     u[p][c] = in[p][c] * x[p][c]
 *     y[p][c] = out[p][c] * (bias[c] + sum over t < taps of w[t][c] * u[p - taps + 1 + t][c])
 * The layer's state of a sequence begins with its last taps - 1 rows of u, the oldest first.
 *
 * Without gates (in and out are NULL) u = x and y = SiLU(bias + sum): the convolution before a
 * gated delta rule or a state space. One op may compute a part of a layer's channels: its N
 * channels are those from `first` on of C, and the rows of w and of the state have C numbers. */
struct short_conv {
    int N, taps;       /* taps: 2 to MAX_TAPS */
    const float *w;    /* [taps][C] */
    const float *bias; /* [C]; NULL: zero */
    int C, first;      /* 0 stands for the op's own N channels */
};

enum { MAX_TAPS = 8 };

/* Returns the channels of the layer. */
static inline int short_conv_channels(const struct short_conv *conv) {
    return conv->C > 0 ? conv->C : conv->N;
}

/* Returns the numbers of a layer's state per sequence. */
static inline int short_conv_state(const struct short_conv *conv) {
    return (conv->taps - 1) * short_conv_channels(conv);
}

/* The gated delta rule (Yang et al. 2024). A layer has Hk key heads of dk and Hv value heads of dv,
 * and each key head serves Hv / Hk value heads. A value head keeps a matrix S [dk][dv] per
 * sequence, zero before position 0. Each position replaces it, with q and k divided by their
 * lengths:
 *     g = exp(decay * softplus(dt + dt_bias)), beta = sigmoid(b)
 *     d = (v - g * S^T k) * beta
 *     S = g * S + k d^T
 *     o = S^T q / sqrt(dk)
 *     y = rmsnorm(o) * SiLU(z)
 * The matrices follow the numbers of the convolution in the layer's state.
 *
 * With by_channel each of the dk rows of S has its own g (Kimi Delta Attention: Moonshot AI 2025).
 * Then S is g * S before d: d = (v - (g * S)^T k) * beta. */
struct delta_rule {
    int Hk, Hv, dk, dv;   /* Hv is a multiple of Hk; dv is a multiple of DELTA_QUANTUM */
    bool tiles;           /* value head h reads key head h % Hk; else h / (Hv / Hk) */
    int state_first;      /* place of the matrices [Hv][dk][dv] in the state */
    const float *decay;   /* [Hv] at most 0: -exp(A_log) */
    const float *dt_bias; /* [Hv], or with by_channel [Hv][dk] */
    const float *gain;    /* [dv] of the norm */
    float epsilon;
    bool by_channel;
    bool by_sigmoid; /* y = rmsnorm(o) * sigmoid(z) instead */
};

enum { DELTA_QUANTUM = 16, MAX_DELTA_HEAD = 256 }; /* dk and dv are at most MAX_DELTA_HEAD */

/* The products of a row that the rule reads. Their content is undefined afterwards. */
struct delta_rows {
    float *qkv; /* [M][(2 Hk dk) + Hv dv] after the convolution; q [M][Hk][dk] if k is not NULL */
    float *z;   /* [M][Hv][dv] */
    float *b, *dt; /* [M][Hv], float32 on all backends; with by_channel dt[M][Hv][dk] */
    float *k, *v;  /* [M][Hk][dk] and [M][Hv][dv] after their convolutions; NULL: in qkv */
};

/* A selective state space (Mamba 2: Dao and Gu 2024). A layer has Hv heads of dv numbers x, and Hk
 * groups with dk numbers B and dk numbers C each; a group serves Hv / Hk adjacent heads. A head
 * keeps a matrix S [dk][dv] per sequence, zero before position 0. Each position replaces it:
 *     dt = softplus(dt + dt_bias), between dt_min and dt_max
 *     S = exp(decay * dt) * S + B (dt * x)^T
 *     o = S^T C + skip * x
 *     y = rmsnorm(o * SiLU(z)), or with norms_first rmsnorm(o) * SiLU(z)
 * The norm is over each group's Hv / Hk * dv numbers. The matrices follow the numbers of the
 * convolution in the layer's state. */
struct state_space {
    int Hk, Hv, dk, dv;   /* as in struct delta_rule, and with its limits */
    int state_first;      /* place of the matrices [Hv][dk][dv] in the state */
    const float *decay;   /* [Hv] at most 0: -exp(A_log) */
    const float *dt_bias; /* [Hv] */
    const float *skip;    /* [Hv] D of the paper */
    float dt_min, dt_max;
    const float *gain; /* [Hv * dv] of the norm; NULL: no norm, y = o * SiLU(z) */
    float epsilon;
    bool norms_first;
};

/* The products of a row that it reads. The content of z is undefined afterwards. */
struct space_rows {
    const float *xbc; /* [M][(Hv dv) + (2 Hk dk)] x of all heads, B and C of all groups, after the
                         convolution */
    float *z;         /* [M][Hv][dv] */
    const float *dt;  /* [M][Hv] */
};

/* The initial row of a token. */
struct embedding {
    const struct matrix *tokens;    /* [V][K]; NULL: y already contains the rows */
    float scale;                    /* factor of the token's row */
    const struct matrix *positions; /* [positions][K], learned; row `position` is added to the
                                       scaled row of the token; NULL: nothing is added */
    /* [types][K]; row `type` is added before the position; NULL: nothing. On CUDA for backends that
     * see both ways */
    const struct matrix *types;
    struct norm norm; /* of the sum; gain NULL: no norm */
    bool of_next;     /* of the token after each row (struct step, next), which is known */
};

/* Two rows beside each other: y = norms[0](a), norms[1](b). */
struct join {
    struct norm norms[2];
    bool recalls; /* row m reads row hidden_row[m] of b (struct step) instead of row m */
};

/* Rows of logits of a smaller vocabulary: its id i is the id to[i]. If two ids are equal, the logit
 * of either counts. */
struct spread {
    const int32_t *to; /* [K] device memory, each below V */
    int V;
};

/* The end of a pass: y = logits(norm(x)). */
struct lm_head {
    struct linear linear; /* [V][K] */
    float cap;            /* y becomes cap * tanh(y / cap); 0: no cap */
};

/* The ops of a forward pass, called in order by the thread that opened the backend. */
struct compute_ops {
    /* Does the work of program_run. NULL if the caller should call that. A device may replay a
     * recording of a program instead. It may also run the program for a copy of the step with
     * larger M, S and R than the step's arrays have, and ignore the results of the extra rows. */
    void (*run)(struct backend *b, const struct program *program, const struct step *step,
                struct kv_cache *cache);
    /* Prepares `run` for a program and logs its decisions. Call it before the first step, after the
     * weights are loaded and `cache` exists. NULL if nothing needs preparation. Fails with
     * STATUS_USAGE if memory is short. */
    enum status (*plan_run)(struct backend *b, const struct program *program,
                            struct kv_cache *cache, struct err *err);
    /* Returns the i-th shape of a step that `run` records, the most likely first, so that start-up
     * can record it before requests arrive: *rows sequences of one row each, all at *position.
     * Returns false after the last shape. NULL if the backend does not record. `run` records a
     * shape when it occurs for the second time. */
    bool (*recorded_shape)(struct backend *b, int i, int *rows, int *position);
    /* Sets the step of the following calls and performs its block copies in `cache`. */
    void (*step_begin)(struct backend *b, const struct step *step, struct kv_cache *cache);

    /* y[M][K] = the embedding of token[0..M) and position[0..M). Pending tokens are read from the
     * step's `sampled`. */
    void (*embed)(struct backend *b, float *y, const struct embedding *embedding);
    /* y[i][M][N_i] = norm(x[M][K]) times linear[i] for n matrices of the same K. The outputs of a
     * MATRIX_FLOAT32 are float32. */
    void (*matmul)(struct backend *b, float *const *y, const float *x, const struct norm *norm,
                   const struct linear *linear, int n, int M);
    /* sum[M][N] += x[M][K] times linear. */
    void (*matmul_add)(struct backend *b, float *sum, const float *x, const struct linear *linear,
                       int M);
    /* sum[M][K] += mlp(norm(x[M][K])). sum may be x. */
    void (*mlp)(struct backend *b, float *sum, const float *x, const struct norm *norm,
                const struct mlp *mlp, int M);
    /* sum[M][K] += weight * mlp(h) over each row's experts and the shared expert, with h =
     * norm(x[M][K]). sum may be x. The backend must be opened with the experts' shape. */
    void (*experts)(struct backend *b, float *sum, const float *x, const struct norm *norm,
                    const struct experts *experts, int M);
    /* x[M][K] = (x + norm(y[M][K])) * the norm's sum_scale, or with of_sum (x + norm(x + y)) * it;
     * y is zero afterwards. For norms after a branch. */
    void (*norm_add)(struct backend *b, float *x, float *y, const struct norm *norm, int M, int K);
    /* For a backend in a group: on every rank, x[M][K] becomes x of rank 0 + part[M][K] of rank 1 +
     * part of rank 2 and so on, always in this order. Rank 0 ignores part; part is zero afterwards.
     * All ranks call it with the same M and K, each on its own thread. */
    void (*all_reduce)(struct backend *b, float *x, float *part, int M, int K);
    /* y[R][V] = head(norm(x[R][K])), in float32: the logits. */
    void (*logits)(struct backend *b, float *y, const float *x, const struct norm *norm,
                   const struct lm_head *head, int R);
    /* y[R][K] = norm(x), in float32, of R rows of x[..][K] from row `from` on: hidden vectors. If
     * norm is NULL, y = x. */
    void (*hidden)(struct backend *b, float *y, const float *x, const struct norm *norm, int from,
                   int R, int K);
    /* Normalises and rotates q[M][H][D] in place and k[M][G][D], normalises v[M][G][D], and writes
     * k and v to the step's slots of one layer. The content of k and v is undefined afterwards. If
     * k is NULL, only queries are processed; the layer then reads another layer's cache. */
    void (*rope_write)(struct backend *b, struct kv_cache *cache, int layer,
                       const struct heads *heads, float *q, float *k, float *v);
    /* y[M][H][size of a value] = softmax(scores) . values of each row in one layer, over the
     * positions of its sequence that the row sees. */
    void (*attention)(struct backend *b, float *y, const float *q, const struct kv_cache *cache,
                      int layer, const struct attention *attention);
    /* y[M][H][y_stride] = x[M][H][x_stride] times each head's matrix. Other numbers of y are
     * unchanged. NULL: the backend does not have latent attention. */
    void (*matmul_heads)(struct backend *b, float *y, const float *x,
                         const struct head_linear *linear, int M);
    /* Writes k[M][rank + D_rope], normalised and rotated, to the step's slots of one layer whose
     * values are a part of its keys. Rotates the last D_rope numbers of from[M][H][D_unrotated +
     * D_rope] to the end of each head of q[M][H][rank + D_rope]. The content of k is undefined
     * afterwards. NULL: as for matmul_heads. */
    void (*latent_write)(struct backend *b, struct kv_cache *cache, int layer,
                         const struct latent *latent, float *q, const float *from, float *k);
    /* y[M][N] = conv of x[M][N], gated by in[M][N] and out[M][N] or not gated. y may be x. Reads
     * and replaces the state of each of the step's sequences in recurrent layer `layer`, and copies
     * it after rows that the step names (state_after). NULL: the backend has no states. */
    void (*short_conv)(struct backend *b, float *y, const float *in, const float *out,
                       const float *x, struct kv_cache *cache, int layer,
                       const struct short_conv *conv);
    /* y[M][Hv][dv] = the gated delta rule of the rows, which reads and replaces states in the same
     * way. */
    void (*delta_rule)(struct backend *b, float *y, const struct delta_rows *rows,
                       struct kv_cache *cache, int layer, const struct delta_rule *rule);
    /* y[M][Hv][dv] = the state space of the rows, in the same way. */
    void (*state_space)(struct backend *b, float *y, const struct space_rows *rows,
                        struct kv_cache *cache, int layer, const struct state_space *space);
    /* y[R][K] = rows logit_row[0..R) of x[M][K]. */
    void (*gather)(struct backend *b, float *y, const float *x, int K);
    /* y[M][K] = rows hidden_row[0..M) of x (struct step). */
    void (*recall)(struct backend *b, float *y, const float *x, int M, int K);
    /* y[R][V] = x[R][K] at the places of its ids, and -infinity elsewhere. Both are float32. */
    void (*spread)(struct backend *b, float *y, const float *x, const struct spread *spread, int R,
                   int K);
    /* y[M][K] = norm(x[M][K]). */
    void (*norm)(struct backend *b, float *y, const float *x, const struct norm *norm, int M,
                 int K);
    /* y[M][2K] = the join of a[M][K] and b[M][K], or of rows of b that the step names. */
    void (*join)(struct backend *b, float *y, const float *a, const float *other,
                 const struct join *join, int M, int K);
};

#endif
