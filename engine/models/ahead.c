/* Finds the layer of a model that guesses ahead (forward_ahead.c), and its tensors in folders.
 *
 * Most families number the layer after the model's own: "model.layers.61.eh_proj.weight". Qwen's
 * have other names: "mtp.fc.weight", "mtp.layers.0.mlp.up_proj.weight". Models with several such
 * layers use the first one, again and again, as in vLLM. */
#include <assert.h>
#include <string.h>

#include "engine/models/folder_names.h"
#include "engine/models/layers.h"

/* Does the folder name the layer as Qwen does? `weights` may be empty. */
static bool has_own_names(const struct weights *weights) {
    static const char name[] = "mtp.fc.weight";
    for (int i = 0; i < weights->n; i++) {
        const char *found = strstr(weights->tensor[i].name, name);
        if (found && !found[sizeof name - 1]) return true;
    }
    return false;
}

enum status layers_add_ahead(struct model_config *config, const struct model_file *file,
                             const struct model_family *family, struct err *err) {
    const bool has_own = file->hf && has_own_names(&file->hf->weights);
    struct layer_config *layer = &config->layer[config->L];
    assert(config->n_ahead == 0 && config->L > 0 && config->L <= MAX_LAYERS);
    if (file->eagle) return eagle_add(config, file, err);
    if (!file->guesses_ahead) return STATUS_OK;
    if (family->ahead == AHEAD_NONE)
        return err_set(err, STATUS_BAD_FILE, "speculative-config",
                       "{speculative-config}: the method \"mtp\" needs a layer of the model that "
                       "guesses ahead (nextn, MTP), which is not served in a model of the "
                       "architecture \"%s\"; use \"ngram\", \"suffix\" or \"draft_model\"",
                       family->gguf);
    if (config->n_unread_layers == 0 && !has_own)
        return err_set(err, STATUS_BAD_FILE, "speculative-config",
                       "{speculative-config}: the method \"mtp\" needs a layer of the model that "
                       "guesses ahead (nextn, MTP), and the model lacks it; use a file with such a "
                       "layer, or \"ngram\", \"suffix\" or \"draft_model\"");
    if (config->L == MAX_LAYERS)
        return err_set(err, STATUS_BAD_FILE, "num_hidden_layers",
                       "the model has %d layers, and one that guesses ahead would exceed the limit",
                       config->L);
    layer->is_dense = layer->is_recurrent = layer->lacks_mixer = layer->lacks_mlp = false;
    config->L++;
    config->n_ahead = 1;
    config->ahead_is_normed = family->ahead == AHEAD_NORMED;
    if (config->n_unread_layers > 0) config->n_unread_layers--;
    config->roles |= ROLES_AHEAD & ~ROLE_BIT(ROLE_AHEAD_OUTPUT_NORM);
    return STATUS_OK;
}

bool layers_shares_tensor(const struct model_config *config, int layer, const char *name) {
    static const char *const ends[] = {".embed_tokens.weight", ".shared_head.head.weight",
                                       ".nextn.embed_tokens.weight",
                                       ".nextn.shared_head_head.weight"};
    const size_t length = strlen(name);
    if (layer < 0 || layer >= config->L || !config_is_ahead(config, layer)) return false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t n = strlen(ends[i]);
        if (length > n && strcmp(name + length - n, ends[i]) == 0) return true;
    }
    return false;
}

const char *folder_ahead_name(const char *rest) {
    static const struct {
        const char *own, *usual;
    } names[] = {{"mtp.fc.weight", "eh_proj.weight"},
                 {"mtp.pre_fc_norm_embedding.weight", "enorm.weight"},
                 {"mtp.pre_fc_norm_hidden.weight", "hnorm.weight"},
                 {"mtp.norm.weight", "shared_head.norm.weight"}};
    static const char of_layer[] = "mtp.layers.0.";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(rest, names[i].own) == 0) return names[i].usual;
    return strncmp(rest, of_layer, sizeof of_layer - 1) == 0 ? rest + sizeof of_layer - 1 : NULL;
}
