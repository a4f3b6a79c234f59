/* Chooses the reader of an adapter, and knows its model's forms. */
#include <string.h>
#include <sys/stat.h>

#include "engine/adapters/internal.h"

/* The family of GGUF files of a model. */
static const struct model_family *family_in_gguf(const struct model_config *config) {
    const struct model_family *family = model_family_called(config->architecture);
    return family->written_as ? model_family_called(family->written_as) : family;
}

enum rope_layout adapter_layout(const struct adapter_file *file) {
    const struct model_config *config = &file->model->config;
    const struct model_family *folder = model_family_called(config->architecture);
    bool adjacent = file->in_gguf ? family_in_gguf(config)->positions == POSITIONS_ROPE_ADJACENT
                                  : folder->folder.rotates_adjacent;
    return adjacent ? ROPE_ADJACENT : ROPE_HALVES;
}

static bool is_text(const char *name, const char *text, size_t length) {
    return strlen(name) == length && memcmp(name, text, length) == 0;
}

bool adapter_is_for(const struct model_config *config, const char *name, size_t length) {
    return is_text(config->architecture, name, length) ||
           is_text(family_in_gguf(config)->gguf, name, length);
}

enum status adapter_read(struct adapter **out, const char *path, struct model *model,
                         const struct adapter_limits *limits, struct err *err) {
    struct stat stat_of;
    struct adapter_file file = {.path = path, .model = model, .err = err};
    assert(limits->rank > 0 && limits->rank <= MAX_ADAPTER_RANK && model->adapters.n > 0);
    for (int r = 0; r < model->shard.ranks; r++) out[r] = NULL;
    if (stat(path, &stat_of))
        return err_set(err, STATUS_BAD_FILE, "lora_path",
                       "%s: there is no such adapter; give a folder of PEFT or a GGUF file", path);
    file.pairs = mem_calloc((size_t)model->config.L * N_ROLES, sizeof *file.pairs);
    enum status status =
        (S_ISDIR(stat_of.st_mode) ? peft_read : gguf_adapter_read)(out, &file, limits);
    mem_free(file.pairs);
    assert(status || *out);
    return status ? blame_file(err, status, path) : STATUS_OK;
}

/* A rank's share of a dimension that `ranks` ranks divide; they may not divide it evenly, which is
 * refused later. */
static int64_t share_of(int n, bool is_shared, int ranks) {
    return is_shared ? (n + ranks - 1) / ranks : n;
}

int64_t adapter_most_bytes(const struct model_config *config, int rank, int ranks) {
    static const enum role roles[] = {ROLE_Q,        ROLE_K,    ROLE_V,  ROLE_O,   ROLE_CONV_IN,
                                      ROLE_CONV_OUT, ROLE_GATE, ROLE_UP, ROLE_DOWN};
    int64_t floats = 0, gaps = 0;
    assert(rank > 0 && ranks > 0);
    for (int layer = 0; layer < config->L; layer++)
        for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
            const struct role_info *info = role_info(roles[i]);
            if (!config_may_have_in(config, roles[i], layer)) continue;
            const int N = role_extent(config, info->N, layer),
                      K = role_extent(config, info->K, layer);
            /* each part of a fused matrix may fill a panel and be aligned */
            gaps += (MAX_PARTS + 1) * (ADAPTER_ALIGN - 1);
            floats += share_of(N, info->split == SPLIT_OUTPUTS, ranks) +
                      MAX_PARTS * (LOW_RANK_PANEL - 1) +
                      share_of(K, info->split == SPLIT_INPUTS, ranks);
        }
    return ranks * (floats * rank * (int64_t)sizeof(float) + gaps);
}
