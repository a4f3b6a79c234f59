/* kernels/ops: the arithmetic of a forward pass, as one table of functions. What one model
 * family needs and another does not is an option of an op, not an op of its own.
 *
 * Pointers x, y, q, k, v and sum are device memory from buffer_new, row-major, without padding, of
 * the backend's type of activations: float32 on the CPU, no wider than that elsewhere. Gains,
 * biases, frequencies and logits are float32 device memory everywhere. CPU ops have ended when they
 * return; CUDA ops are queued, and `download` waits for them. No op reports a failure: arguments
 * are checked when a matrix or a cache is made, and `failed` tells that a device broke. y may not
 * overlap x unless said.
 */
#ifndef PENSTOCK_KERNELS_OPS_H
#define PENSTOCK_KERNELS_OPS_H

#include <stdbool.h>

#include "kernels/step.h"

struct backend;
struct matrix;
struct kv_cache;

enum norm_kind {
    NORM_RMS,   /* x / sqrt(mean(x^2) + epsilon) * gain (Zhang and Sennrich 2019) */
    NORM_LAYER, /* (x - mean(x)) / sqrt(variance(x) + epsilon) * gain + bias (Ba et al. 2016) */
};

/* What rows go through on their way into a product. An op that is given NULL applies no norm. */
struct norm {
    enum norm_kind kind;
    const float *gain; /* [K] */
    const float *bias; /* [K], of NORM_LAYER; NULL: none */
    float epsilon;
    float sum_scale; /* of norm_add: what the sum is multiplied by; 0: it stays as it is */
};

static inline float norm_sum_scale(const struct norm *norm) {
    return norm->sum_scale == 0 ? 1 : norm->sum_scale;
}

/* A projection: y = (x times w^T + bias) * scale. */
struct linear {
    struct matrix *w;  /* [N][K] */
    const float *bias; /* [N]; NULL: none */
    float scale;       /* 0: as it is. Of an MLP only `down` may have one */
};

static inline float linear_scale(const struct linear *linear) {
    return linear->scale == 0 ? 1 : linear->scale;
}

enum activation {
    ACTIVATION_SILU,      /* x / (1 + exp(-x)) */
    ACTIVATION_GELU,      /* x * (1 + erf(x / sqrt(2))) / 2 (Hendrycks and Gimpel 2016) */
    ACTIVATION_GELU_TANH, /* the same by their tanh approximation */
    ACTIVATION_RELU,      /* max(x, 0) */
    /* g / (1 + exp(-ALPHA g)) * (u + 1), of a gate g up to CLAMP_LIMIT and an up u within it on
     * both sides (gpt-oss: OpenAI 2025); only gated */
    ACTIVATION_CLAMPED,
};

#define CLAMP_LIMIT 7.0f
#define CLAMP_ALPHA 1.702f

/* down(activation(gate(x)) * up(x)) (Shazeer 2020); without a gate down(activation(up(x))). */
struct mlp {
    enum activation activation;
    struct linear gate; /* [F][K]; gate.w NULL: the MLP is not gated */
    struct linear up;   /* [F][K] */
    struct linear down; /* [K][F] */
    /* what a gate's outputs are multiplied by, in the place of up, whose w is NULL: columns
     * times_first.. of rows [M][times_stride]; NULL: up's outputs. Of the op mlp alone */
    const float *times;
    int times_first, times_stride;
};

/* A mixture of experts (Shazeer et al. 2017): E MLPs, of which each row goes through n_used. The
 * router's logits are in float32. A row's experts are those of the largest logits, of equal ones
 * the lower number; their weights are the softmax of the logits over all experts, or with
 * `normalises` over those of the row.
 *
 * With `by_sigmoid` (DeepSeek-AI 2024) scores are the sigmoids of the logits. A row's experts are
 * those of the largest scores + correction, out of the n_used_groups groups of neighbours whose two
 * largest add up to most; their weights are the scores, or what of their sum each is. */
struct experts {
    int E, n_used;
    bool normalises, by_sigmoid;
    const float *correction;        /* [E], of by_sigmoid; NULL: none */
    int n_groups, n_used_groups;    /* of by_sigmoid; 0: no groups */
    float weight_scale;             /* of the weights; 0: as they are */
    const float *expert_scale;      /* [E] of each expert's weight, besides; NULL: none */
    struct linear router;           /* [E][K], a MATRIX_FLOAT32 */
    const struct norm *router_norm; /* of x, where the router sees other rows than the experts;
                                       NULL: it sees h. Without a shared_gate */
    struct mlp mlp;    /* of all experts, one after the other: [E * F][K], and down [E * K][F] */
    struct mlp shared; /* which all rows go through, of a width of its own; up.w NULL: none */
    struct linear shared_gate; /* [1][K], a MATRIX_FLOAT32: the shared one's weight is the sigmoid
                                  of its product; w NULL: the weight is 1 */
};

enum { MAX_EXPERT_GROUPS = 32 };

static inline float experts_weight_scale(const struct experts *experts) {
    return experts->weight_scale == 0 ? 1 : experts->weight_scale;
}

/* F and K of experts are multiples of this: so each one's rows are whole panels or tiles. */
enum { EXPERT_QUANTUM = 16 };

/* How the two numbers of a pair that RoPE rotates are laid out in a head. */
enum rope_layout {
    ROPE_ADJACENT, /* (0,1), (2,3), ..: GGUF's llama files, whose query and key rows are permuted */
    ROPE_HALVES,   /* (0,D/2), (1,D/2+1), ..: the order of GPT-NeoX and of Hugging Face */
};

/* Rotary positions (Su et al. 2021): a pair is rotated by position * inv_freq[pair]. */
struct rope {
    int D_rope;            /* leading numbers of a head that are rotated; even; 0: none */
    const float *inv_freq; /* [D_rope / 2] */
    enum rope_layout layout;
    float scale; /* of cosines and sines, as YaRN has it (Peng et al. 2023); 0: as they are */
};

/* Norms of queries and keys, where there are gains (QK norm: Henry et al. 2020). */
enum head_norms {
    HEAD_NORMS_ALIKE,    /* an RMSNorm of each head, gains [D] for all of them */
    HEAD_NORMS_TOGETHER, /* an RMSNorm of all heads of a row (OLMo 2: Team OLMo 2024); gains [H][D]
                            and [G][D] */
    HEAD_NORMS_OWN,      /* a LayerNorm of each head, with its own of the gains [H][D] and [G][D] */
};

/* What queries and keys go through before attention: their norms, then the rotation; and of queries
 * then a scale by their position (Llama 4: Meta 2025). Values may go through a norm. */
struct heads {
    int H;                        /* query heads */
    struct rope rope;             /* of queries and keys */
    const float *q_gain, *k_gain; /* both or neither, where there are keys; NULL: no norm */
    float epsilon;                /* of the norms */
    enum head_norms norms;
    const float *v_gain;  /* [D] of an RMSNorm of each head of the values; NULL: none */
    bool values_are_keys; /* v is to be k as it comes, before norm and rotation (Gemma 4) */
    const float *q_scale; /* [positions / q_scale_every, rounded up]; NULL: none */
    int q_scale_every;    /* positions in a row that share a scale; 2 or more */
};

/* How scores of a query and a key are weighed. */
struct attention {
    int H;       /* query heads; head h reads key-value head h * G / H (Ainslie et al. 2023) */
    float scale; /* score = scale * q . k */
    float cap;   /* score becomes cap * tanh(score / cap); 0: it stays */
    int window;  /* a row sees the last `window` positions, its own included; 0: all of them.
                    With the cache's heads one of backend_config's windows */
    const float *sinks; /* [H] a score of each head beside those of the positions, whose value is 0
                           (Xiao et al. 2024); NULL: none */
};

/* What a token's row begins with. */
struct embedding {
    const struct matrix *tokens;    /* [V][K]; NULL: the rows stand there already */
    float scale;                    /* of the token's row; 1: as it is */
    const struct matrix *positions; /* [positions][K], learned; NULL: none. Row `position` is added
                                       to the scaled token's row */
};

/* What ends a pass: y = logits(norm(x)). */
struct lm_head {
    struct linear linear; /* [V][K] */
    float cap;            /* then y becomes cap * tanh(y / cap); 0: it stays */
};

/* The ops of a forward pass, called in order by the thread that opened the backend. */
struct compute_ops {
    /* Does what forward(arg, step) does, which calls step_begin and the ops of one pass; NULL where
     * that would be all. A device may queue the same work without calling it, from what it has
     * recorded, or may call it with a copy of the step that has more rows, of M, S and R alike,
     * than the step's arrays have; the results of those rows are ignored. So which ops `forward`
     * calls, and with what, must depend on nothing but M, S, R and the step's pointers. */
    void (*run)(struct backend *b, const struct step *step, struct kv_cache *cache,
                void (*forward)(void *arg, const struct step *step), void *arg);
    /* Prepares `run` for what forward(arg, step) calls, before the first step, when the weights and
     * `cache` are there; what it decides it says in the log. NULL where there is nothing to
     * prepare. Fails with STATUS_USAGE if there is no memory. */
    enum status (*plan_run)(struct backend *b, struct kv_cache *cache,
                            void (*forward)(void *arg, const struct step *step), void *arg,
                            struct err *err);
    /* The shape of a step that `run` would record, so that a start can have it recorded before
     * requests come: the i-th one, the most likely first. It has *rows sequences of one row each,
     * all at *position. False: there are no more; NULL where nothing is recorded. A shape is
     * recorded the second time that a step has it. */
    bool (*recorded_shape)(struct backend *b, int i, int *rows, int *position);
    /* Declares the step that the following calls belong to, and does its block copies in
     * `cache`. */
    void (*step_begin)(struct backend *b, const struct step *step, struct kv_cache *cache);

    /* y[M][K] = the rows of token[0..M), or of y itself, with positions; pending tokens are read
     * from the step's `sampled`. */
    void (*embed)(struct backend *b, float *y, const struct embedding *embedding);
    /* y[i][M][N_i] = norm(x[M][K]) times linear[i] for n matrices of the same K. */
    void (*matmul)(struct backend *b, float *const *y, const float *x, const struct norm *norm,
                   const struct linear *linear, int n, int M);
    /* sum[M][N] += x[M][K] times linear. */
    void (*matmul_add)(struct backend *b, float *sum, const float *x, const struct linear *linear,
                       int M);
    /* sum[M][K] += mlp(norm(x[M][K])). sum may be x. */
    void (*mlp)(struct backend *b, float *sum, const float *x, const struct norm *norm,
                const struct mlp *mlp, int M);
    /* sum[M][K] += weight * mlp(h) over the experts of each row, and over the shared one, where h =
     * norm(x[M][K]). sum may be x. The backend was opened with the experts' shape. */
    void (*experts)(struct backend *b, float *sum, const float *x, const struct norm *norm,
                    const struct experts *experts, int M);
    /* x[M][K] += norm(y[M][K]), then times the norm's sum_scale; y is zero afterwards. For norms
     * after a branch. */
    void (*norm_add)(struct backend *b, float *x, float *y, const struct norm *norm, int M, int K);
    /* Of a backend in a group: x[M][K] of every rank = that of rank 0, + part[M][K] of rank 1, +
     * that of rank 2 and so on, in this order whatever M is; part, which is ignored on rank 0, is
     * zero afterwards. All ranks call it with the same M and K, each on its thread. */
    void (*all_reduce)(struct backend *b, float *x, float *part, int M, int K);
    /* y[R][V] = head(norm(x[R][K])), in float32: the logits. */
    void (*logits)(struct backend *b, float *y, const float *x, const struct norm *norm,
                   const struct lm_head *head, int R);
    /* Norms and rotates q[M][H][D] in place and k[M][G][D], norms v[M][G][D], and puts k and v into
     * the step's slots of one layer. k and v are left changed or as they were. k NULL: queries
     * alone, of a layer that reads what another one has written. */
    void (*rope_write)(struct backend *b, struct kv_cache *cache, int layer,
                       const struct heads *heads, float *q, float *k, float *v);
    /* y[M][H][D] = softmax(scores) . values of each row over the positions of its sequence that it
     * sees in one layer. */
    void (*attention)(struct backend *b, float *y, const float *q, const struct kv_cache *cache,
                      int layer, const struct attention *attention);
    /* y[R][K] = rows logit_row[0..R) of x[M][K]. */
    void (*gather)(struct backend *b, float *y, const float *x, int K);
};

#endif
