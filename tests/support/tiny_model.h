/* tiny_model: a small random llama model in a GGUF file, complete enough to be served: weights, a
 * byte-level BPE vocabulary, special tokens, a chat template. The same description gives the same
 * bytes.
 *
 * The vocabulary: the special tokens below, 256 bytes, the tokens of a few merges, and unused
 * tokens up to V.
 */
#ifndef PENSTOCK_TESTS_TINY_MODEL_H
#define PENSTOCK_TESTS_TINY_MODEL_H

#include "kernels/dtype.h"

enum tiny_token {
    TINY_BOS = 0,      /* "<|begin|>", control */
    TINY_EOS = 1,      /* "<|endoftext|>", control */
    TINY_IM_START = 2, /* "<|im_start|>", control */
    TINY_IM_END = 3,   /* "<|im_end|>", control, tokenizer.ggml.eot_token_id */
    TINY_BYTE = 4,     /* byte b is token TINY_BYTE + b */
    TINY_MERGED = 260, /* the first token of a merge */
};

/* Letters as in kernels.h. */
struct tiny_model {
    int V, K, F, L, H, G, D; /* V: at least the size of the vocabulary; 0: exactly that */
    int E;                   /* experts that replace each MLP (a token uses 2); 0: no experts */
    int window; /* of each layer except every third; 0: no windows; only for models with experts */
    int context_length;
    enum dtype
        dtype; /* of matrices whose rows are whole blocks; other matrices and vectors are f32 */
    bool as_floats;            /* matrices are written as floats, with the values of their blocks */
    bool untied;               /* with a separate output.weight */
    const float *rope_factors; /* [D / 2] written as rope_freqs.weight; may be NULL */
    uint64_t seed;
};

/* A model of two layers and about 80 thousand parameters: K 64, F 96, H 4, G 2, D 16, 256 tokens
 * long, f32, tied, seed 1. */
void tiny_model_defaults(struct tiny_model *model);

/* Appends the bytes of the file to `out`. */
void tiny_model_bytes(const struct tiny_model *model, struct buf *out);

/* Writes the file. If that fails, ends the test program with a message. */
void tiny_model_write(const struct tiny_model *model, const char *path);

/* Writes it to a new file below $TMPDIR or /tmp. The caller deletes the file and frees the path
 * with free(). */
char *tiny_model_temporary(const struct tiny_model *model);

#endif
