/* A head: the layers that a model applies to pooled hidden vectors. A chain of layers gives the
 * numbers of an embedding, or the logits of a classifier's labels. */
#ifndef PENSTOCK_ENGINE_HEAD_H
#define PENSTOCK_ENGINE_HEAD_H

#include "config/config.h"
#include "kernels/kernels.h"

enum head_activation {
    HEAD_IDENTITY,
    HEAD_TANH,
    HEAD_RELU,
    HEAD_GELU, /* by the error function */
    HEAD_SIGMOID,
    HEAD_SILU,
    N_HEAD_ACTIVATIONS
};

/* activation(weight x + bias), then a LayerNorm (Ba et al. 2016) if there are gains */
struct head_layer {
    int n_in, n_out;
    float *weight; /* [n_in][n_out] */
    float *bias;   /* [n_out] or NULL */
    enum head_activation activation;
    float *gain;      /* [n_out] or NULL */
    float *norm_bias; /* [n_out] or NULL */
    float epsilon;    /* of the norm */
};

enum { MAX_HEAD_LAYERS = 4, MAX_HEAD_WIDTH = 1 << 16 };

struct head {
    int n; /* 0: none, the input is the output */
    struct head_layer layer[MAX_HEAD_LAYERS];
};

/* Returns the head's outputs for a hidden vector of `hidden_size` numbers. */
static inline int head_outputs(const struct head *head, int hidden_size) {
    return head->n > 0 ? head->layer[head->n - 1].n_out : hidden_size;
}

/* A text that the model's makers put before an input, by its name: "query". */
struct embedding_prompt {
    char *name, *text;
};

/* How hidden vectors become an embedding. */
struct pooling {
    enum hidden_rows rows; /* not HIDDEN_NONE */
    struct head head;      /* after pooling */
    bool normalises;       /* to length 1, after the head */
    bool is_stated;        /* by the model's files or an option: embeddings are its purpose */
    /* a step of the model's files that this version lacks, "3_LSTM"; empty: none. Then the model
     * gives no embeddings */
    char unserved[64];
    int n_prompts;
    struct embedding_prompt *prompt; /* [n_prompts] */
    int usual_prompt;                /* of requests that name none: its index + 1; 0: none */
};

/* The function that makes scores of a classifier's logits. */
enum label_activation { LABELS_SOFTMAX, LABELS_SIGMOID, LABELS_IDENTITY };

enum { MAX_LABELS = 1 << 12 };

/* A head for classification of a text or of its tokens. */
struct classifier {
    struct head head;      /* its outputs are the logits; n 0: the model lacks one */
    enum hidden_rows rows; /* of the prompt */
    bool of_tokens;        /* each token has labels, and not the text */
    int n_labels;
    char **label; /* [n_labels] */
    enum label_activation activation, of_scores;
    /* the text of a pair, with {query} and {document}; NULL: the model's files have none */
    char *pair_text;
};

#endif
