/* kernels/program: a forward pass as data, an array of op rows. A model writes its program once,
 * when it is loaded (engine/models/forward.c). A backend runs it for each step: one op after the
 * other on the CPU; queued, or recorded once and replayed, on a device. The profile has a time for
 * each kind of op.
 *
 * The sequence of ops depends only on the program and on the step's counts of rows. Everything else
 * that differs between steps is in the step: a row's buffers and descriptor never change.
 */
#ifndef PENSTOCK_KERNELS_PROGRAM_H
#define PENSTOCK_KERNELS_PROGRAM_H

#include "kernels/ops.h"

/* The kinds of ops of a program: the functions of struct compute_ops. The others are only timed. */
enum op {
    OP_EMBED,
    OP_MATMUL,
    OP_MATMUL_HEADS,
    OP_ROPE_WRITE,
    OP_LATENT_WRITE,
    OP_ATTENTION,
    OP_SHORT_CONV,
    OP_DELTA_RULE,
    OP_STATE_SPACE,
    OP_MATMUL_ADD,
    OP_MLP,
    OP_EXPERTS,
    OP_NORM_ADD,
    OP_ALL_REDUCE,
    OP_GATHER,
    OP_RECALL,
    OP_JOIN,
    OP_NORM,
    OP_LOGITS,
    OP_SPREAD,
    OP_HIDDEN,
    OP_SAMPLE, /* on the device */
    OP_DOWNLOAD,
    OP_STEP_BEGIN, /* upload of a step's arrays and its block copies */
    /* The gap between two steps, without queued work. With only_steps it includes the upload of the
     * next step's arrays and ends at the first kernel. */
    OP_BETWEEN,
    OP_STEP, /* a whole step, with only_steps */
    N_OPS,
};

/* Returns an op's name, such as "mlp". */
const char *op_name(enum op op);

/* The rows of a step that an op computes. An op without rows is left out. */
enum op_count {
    COUNT_ALL,         /* M */
    COUNT_ALL_IF_READ, /* M, or 0 if R is 0: the op has no effect but on rows that are read */
    COUNT_READ,        /* R */
    COUNT_LOGITS,      /* R - n_hidden */
    COUNT_HIDDEN,      /* n_hidden */
    N_COUNTS,
};

enum { MAX_OP_BUFFERS = 6, MAX_PRODUCTS = 4 };

/* One op of a program. */
struct op_row {
    enum op op;
    enum op_count count;
    int times;       /* factor of the count; 0 stands for 1 */
    int layer;       /* of the model; -1: outside of layers */
    int cache_layer; /* of the cache: of keys and values, or of states */
    /* numbers per row: of the ops on rows, from OP_NORM_ADD to OP_NORM, of OP_HIDDEN, and of the
     * input of OP_SPREAD */
    int K;
    /* In the order of the op's parameters: the buffers that it changes, and those that it reads (of
     * OP_DELTA_RULE and OP_STATE_SPACE the fields of their rows). NULL: not used */
    float *y[MAX_OP_BUFFERS], *x[MAX_OP_BUFFERS];
    struct norm norm; /* gain NULL: no norm */
    int n_products;
    union {
        struct embedding embedding;
        struct linear products[MAX_PRODUCTS]; /* [n_products] of OP_MATMUL; 1 of OP_MATMUL_ADD */
        struct head_linear head_linear;
        struct heads heads;
        struct latent latent;
        struct attention attention;
        struct short_conv short_conv;
        struct delta_rule delta_rule;
        struct state_space state_space;
        struct mlp mlp;
        struct experts experts;
        struct join join;
        struct lm_head lm_head;
        struct spread spread;
    };
};

struct program {
    int n, room;
    struct op_row *rows;         /* [room], of which n are written; the program owns them */
    int max_rows, max_read_rows; /* of a step: the rows of its buffers */
};

/* Appends a copy of a row. */
void program_add(struct program *program, const struct op_row *row);
void program_free(struct program *program);

/* Runs or queues the ops of a pass in their order. Called by the thread that calls the ops. */
void program_run(struct backend *b, const struct program *program, const struct step *step,
                 struct kv_cache *cache);

#endif
