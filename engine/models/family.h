/* family: an architecture, as data. A family says which tensors a model has and what its file does
 * not say; the forward pass is the same for all of them (forward.c). One file a family (llama.c,
 * ...), and a row in family.c. Folder-internal. */
#ifndef PENSTOCK_ENGINE_FAMILY_H
#define PENSTOCK_ENGINE_FAMILY_H

#include "engine/files/model_file.h"
#include "engine/models/roles.h"

enum position_kind {
    POSITIONS_ROPE_ADJACENT, /* rotary, in the layouts of kernels/ops.h */
    POSITIONS_ROPE_HALVES,
    POSITIONS_LEARNED, /* rows that are added to the tokens' */
};

enum window_kind {
    WINDOWS_NONE,        /* a file that has a window is refused */
    WINDOWS_EVEN_LAYERS, /* layers 0, 2, 4, ... see a window, the others all positions */
    WINDOWS_ALL_LAYERS,
};

struct model_family {
    const char *gguf;      /* general.architecture of a GGUF file */
    const char *const *hf; /* "architectures" of a config.json; NULL-terminated */
    uint64_t roles;        /* tensors that each file has: a sum of ROLE_BIT */
    uint64_t optional;     /* those that a file may have */
    enum norm_kind norm;
    enum activation activation;
    enum position_kind positions;
    enum window_kind windows;
    bool ties; /* without "tie_word_embeddings" in a config.json the head is the embedding */
    /* Works out what no reader knows, and refuses what the family cannot be: the last step of
     * reading a config. NULL: nothing. */
    enum status (*finish)(struct model_config *config, struct err *err);
};

/* The tensors of most families: pre-norm blocks of attention and a gated MLP. */
#define ROLES_ENDS (ROLE_BIT(ROLE_TOKEN_EMBEDDING) | ROLE_BIT(ROLE_OUTPUT_NORM))
#define ROLES_ATTENTION                                                                            \
    (ROLE_BIT(ROLE_ATTN_NORM) | ROLE_BIT(ROLE_Q) | ROLE_BIT(ROLE_K) | ROLE_BIT(ROLE_V) |           \
     ROLE_BIT(ROLE_O))
#define ROLES_GATED_MLP                                                                            \
    (ROLE_BIT(ROLE_FFN_NORM) | ROLE_BIT(ROLE_GATE) | ROLE_BIT(ROLE_UP) | ROLE_BIT(ROLE_DOWN))

extern const struct model_family model_llama, model_qwen2, model_qwen3, model_gpt2, model_gemma2;

#endif
