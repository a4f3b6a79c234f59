/* Lists the families and builds a model's config. The family sets its fixed values. A reader of
 * engine/files/ adds the file's values. The tensors show which optional parts the model has. Last,
 * the family's `finish` computes the values that depend on several others. */
#include "engine/models/families/family.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/files/model_file.h"
#include "engine/models/folder_names.h"
#include "engine/models/layers.h"
#include "engine/models/model.h"

/* clang-format off */
static const struct model_family *const families[] = {
    &model_llama, &model_mistral, &model_mistral3, &model_mistral4, &model_qwen2, &model_qwen3,
    &model_smollm3, &model_phi3, &model_gemma, &model_gemma2, &model_gemma3, &model_gemma4,
    &model_gemma4_experts, &model_gpt2, &model_opt, &model_granite, &model_olmo2, &model_glm4,
    &model_ernie4_5, &model_seed_oss, &model_starcoder2, &model_stablelm, &model_cohere2,
    &model_exaone4, &model_mixtral, &model_qwen2moe, &model_qwen3moe, &model_olmoe,
    &model_granitemoe, &model_gpt_oss, &model_glm4_moe, &model_minimax_m2, &model_glm,
    &model_falcon, &model_gptneox, &model_command_r, &model_granite4, &model_granite4_experts,
    &model_phi, &model_qwen2vl, &model_qwen3vl, &model_qwen3vlmoe, &model_arcee, &model_nemotron,
    &model_hunyuan, &model_ernie4_5_moe, &model_apertus, &model_bert, &model_roberta,
    &model_gemma_embedding, &model_nomic, &model_modern, &model_jina, &model_lfm2, &model_lfm2_moe,
    &model_qwen35, &model_qwen35moe, &model_qwen3next, &model_deepseek2, &model_deepseek_v2,
    &model_deepseek_v3, &model_glm4_moe_lite, &model_kimi_linear, &model_bamba, &model_mamba2,
    &model_nemotron_h, &model_falcon_h1, &model_dots1, &model_solar_open, &model_cwm, &model_jais2,
    &model_exaone_moe, &model_hunyuan_moe, &model_afmoe,
};
/* clang-format on */
enum { N_FAMILIES = sizeof families / sizeof *families };

/* Does a file of this architecture have experts? For names with and without. A wrong number of
 * experts is reported by its reader. */
static bool has_experts(const struct model_file *file, const char *name) {
    char key[MAX_ARCHITECTURE + 16];
    struct err ignored;
    int64_t n = 0;
    if (file->hf) return hf_config_has_experts(file->hf);
    snprintf(key, sizeof key, "%s.expert_count", name);
    return gguf_int_or(file->gguf, key, 0, INT32_MAX, 0, &n, &ignored) == STATUS_OK && n > 0;
}

/* Does a config.json's model_type stand for a class? It spells the class's name without the task:
 * "qwen2_moe" and Qwen2MoeForCausalLM. */
static bool is_type_of(const char *type, const char *class) {
    for (; *class && strncmp(class, "For", 3) != 0 && strncmp(class, "LMHead", 6) != 0; class ++) {
        if (*class == '_') continue;
        while (*type == '_') type++;
        if (tolower((unsigned char)*class) != *type++) return false;
    }
    return !*type || strcmp(type, "_text") == 0;
}

static bool is_called(const struct model_family *family, bool in_gguf, const char *name) {
    if (in_gguf) return !family->only_folders && strcmp(family->gguf, name) == 0;
    for (const char *const *hf = family->hf; *hf; hf++)
        if (is_class_or_classifier(name, *hf) || is_type_of(name, *hf)) return true;
    return false;
}

static enum status refuse_architecture(bool in_gguf, const char *name, struct err *err) {
    static const char *const indexed[] = {"DeepseekV32", "deepseek32",   "DeepseekV4",  "deepseek4",
                                          "GlmMoeDsa",   "deepseek_v32", "glm_moe_dsa", "glm-dsa"};
    const char *key = in_gguf ? "general.architecture" : "architectures";
    for (size_t i = 0; i < sizeof indexed / sizeof *indexed; i++)
        if (strncmp(name, indexed[i], strlen(indexed[i])) == 0)
            return err_set(
                err, STATUS_BAD_FILE, key,
                "key %s: the architecture \"%s\" has an indexer, which chooses the positions "
                "that a token sees; that is not supported",
                key, name);
    return err_set(err, STATUS_BAD_FILE, key,
                   "key %s: the architecture \"%s\" is not supported; docs/models.md lists the %d "
                   "families that are",
                   key, name,
                   N_FAMILIES - 3); /* gemma4, granitehybrid and deepseek2 are one each */
}

static bool has_role(const struct weights *weights, enum role role) {
    char name[ROLE_NAME_BYTES];
    for (int layer = 0; layer < MAX_LAYERS; layer++) { /* the first layers may have an MLP */
        role_name(name, role, layer);
        if (weights_lookup(weights, name)) return true;
    }
    return false;
}

static enum status find_family(const struct model_family **out, const struct model_file *file,
                               struct err *err) {
    char name[MAX_ARCHITECTURE];
    bool in_gguf = file->gguf != NULL;
    enum status status = model_file_architecture(name, file, err);
    if (status) return status;
    *out = NULL;
    bool experts = has_experts(file, name);
    for (int i = 0; i < N_FAMILIES; i++) { /* two may share a name, one of them with experts */
        if (!is_called(families[i], in_gguf, name)) continue;
        if (!*out || family_has_experts(families[i]) == experts) *out = families[i];
    }
    if (*out && file->hf) *out = folder_style_choose(*out, &file->hf->weights);
    if (*out && in_gguf && (*out)->other_form && has_role(&file->gguf->weights, (*out)->other_has))
        *out = (*out)->other_form;
    if (*out) return STATUS_OK;
    return refuse_architecture(in_gguf, name, err);
}

/* Returns the fused tensors of a GGUF file, which may have either form. */
static role_set fused_in_file(const struct weights *weights, const struct model_family *family) {
    role_set fused = 0;
    if (family->may_fuse_mlp && !has_role(weights, ROLE_GATE)) fused |= ROLE_BIT(ROLE_GATE_UP);
    if (has_role(weights, ROLE_EXPERTS_GATE_UP)) fused |= ROLES_FUSED_EXPERTS;
    if (has_role(weights, ROLE_QKV)) fused |= ROLES_FUSED_QKV;
    if (has_role(weights, ROLE_DELTA_B_DT)) fused |= ROLE_BIT(ROLE_DELTA_B_DT);
    if (has_role(weights, ROLE_DELTA_QKVZ)) fused |= ROLE_BIT(ROLE_DELTA_QKVZ);
    return fused;
}

/* Sets the values that a config.json may omit. */
static void begin_folder(struct model_config *config, const struct folder_style *style) {
    config->V = style->V;
    config->H = style->H;
    config->G = style->G;
    config->D = style->D;
    config->context_length = style->context_length;
    config->window = style->window;
    config->attention_scale = style->attention_scale;
    config->rope.part = style->rope_part;
}

static void begin_encoder(struct model_config *config, const struct model_family *family) {
    config->norms_stream = family->norms_stream;
    config->is_encoder = family->is_encoder;
    config->first_lacks_norm = family->first_lacks_norm;
    config->full_is_first = family->full_is_first;
    config->has_slopes = family->positions == POSITIONS_ALIBI;
}

static void begin(struct model_config *config, const struct model_file *file,
                  const struct model_family *family) {
    bool in_gguf = file->gguf != NULL;
    role_set fused = in_gguf ? fused_in_file(&file->gguf->weights, family) : family->folder.fused;
    assert((family->roles & family->optional) == 0);
    *config = (struct model_config){.roles = roles_fused(family->roles, fused),
                                    .norm = family->norm,
                                    .norm_names = family->norm_names,
                                    .norm_epsilon = family->norm_epsilon,
                                    .activation = family->activation,
                                    .up_is_first = family->up_is_first,
                                    .has_parallel_branches = family->has_parallel_branches,
                                    .norms_mlp_apart = family->norms_mlp_apart,
                                    .full_every = family->full_every,
                                    .window_rotation = family->window_rotation,
                                    .norms_values = family->norms_values,
                                    .head_size = family->head_size,
                                    .embedding_scale = 1,
                                    .residual_scale = 1,
                                    .logit_scale = 1};
    config->norms_heads_last = family->norms_heads_last, config->taps = family->taps;
    config->state.kind = family->states;
    config->mixes_both = family->mixes_both, config->lacks_attention = family->lacks_attention;
    config->has_single_parts = family->has_single_parts;
    config->state.tiles = family->tiles_heads && in_gguf;
    config->state.by_channel = family->by_channel;
    begin_encoder(config, family);
    if (!in_gguf) config->roles |= family->folder.roles;
    if (!in_gguf) begin_folder(config, &family->folder);
    snprintf(config->architecture, sizeof config->architecture, "%s", family->gguf);
    config->experts.is_used = family_has_experts(family);
    config->experts.beside_mlp = family->roles & ROLE_BIT(ROLE_EXPERTS_POST_NORM);
    config->experts.may_be_dense =
        (family->roles & ROLE_BIT(ROLE_GATE)) && !config->experts.beside_mlp;
    config->experts.by_sigmoid = family->by_sigmoid;
    config->experts.always_groups = family->always_groups;
    config->latent.is_used = family->has_latents;
    config->experts.weight_scale = 1;
    config->experts.normalises =
        in_gguf ? family->weights.normalised_in_gguf : family->weights.normalised_in_folders;
    bool adjacent = family->positions == POSITIONS_ROPE_ADJACENT &&
                    (in_gguf || family->folder.rotates_adjacent);
    config->rope.layout = adjacent ? ROPE_ADJACENT : ROPE_HALVES;
    config->rope.is_used = family->positions < POSITIONS_LEARNED;
    config->rope.may_be_off = family->may_not_rotate;
    config->rope.stretch.truncates = in_gguf && !family->smooth_yarn;
    config->rope.base = family->rope_base > 0 ? family->rope_base : 10000;
}

/* ---- tensors -------------------------------------------------------------------------------- */

/* Returns the known role of the tensor `name` if its layer may have the role, otherwise N_ROLES. */
static enum role role_of(const struct model_config *config, role_set known, const char *name) {
    int layer = -1, prefix = 0;
    char whole[ROLE_NAME_BYTES];
    bool of_layer = sscanf(name, "blk.%9d.%n", &layer, &prefix) == 1 && prefix > 0;
    for (enum role role = 0; role < N_ROLES; role++) {
        if (!(known & ROLE_BIT(role))) continue;
        if (role_is_of_layer(role) != of_layer) continue;
        const bool is_part = layers_has_part(config, role, layer, name);
        if (!is_part && strcmp(config_role_gguf(config, role), name + prefix) != 0) continue;
        config_role_name(whole, config, role, layer);
        bool is_layer = !of_layer || (layer >= 0 && layer < config->L);
        bool fits = is_layer && config_may_have_in(config, role, layer);
        return fits && (is_part || strcmp(whole, name) == 0) ? role : N_ROLES;
    }
    return N_ROLES;
}

/* Records which optional tensors exist. A tensor that the family does not know is an error: the
 * forward pass would ignore it and give wrong answers. */
static enum status read_roles(struct model_config *config, const struct weights *weights,
                              const struct model_family *family, struct err *err) {
    role_set optional = roles_fused(family->optional, fused_in_file(weights, family));
    role_set known = config->roles | (optional & ~family_absent_roles(config));
    if (config_owns_ahead(config)) known |= ROLES_AHEAD;
    for (int i = 0; i < weights->n; i++) {
        const char *name = weights->tensor[i].name;
        enum role role = role_of(config, known, name);
        int layer;
        if (sscanf(name, "blk.%9d.", &layer) != 1) layer = -1;
        if (layer >= config->L && layer < config->L + config->n_unread_layers) continue;
        if (role == N_ROLES && layers_shares_tensor(config, layer, name)) continue;
        if (role == N_ROLES && is_head_tensor(name, true)) continue;
        if (role == N_ROLES)
            return err_set(err, STATUS_BAD_FILE, name,
                           "tensor %s is not supported in a model of the architecture \"%s\"", name,
                           family->gguf);
        if (!config_ignores(config, role, layer)) config->roles |= ROLE_BIT(role);
    }
    assert((config->roles & ~known) == 0);
    return STATUS_OK;
}

/* A token passes through only some of a layer's experts. */
static void count_layer_weight(struct model_config *config, const char *name,
                               const struct weight *weight) {
    const struct expert_config *experts = &config->experts;
    bool is_part = experts->is_used && strstr(name, "_exps.");
    double part = is_part ? (double)experts->n_used / experts->E : 1;
    if (strncmp(name, "blk.", 4) != 0) return;
    config->n_layer_parameters += (int64_t)((double)weight->n_elements * part + 0.5);
    config->layer_bytes += (int64_t)((double)weight->bytes * part + 0.5);
}

/* The number of elements of a model's matrices in one type. */
struct type_share {
    enum dtype type;
    int64_t n; /* 0: the entry is unused */
};

enum { MAX_TYPES = WEIGHT_MAX_TYPE + 1 }; /* types are few, but their numbers have gaps */

static void count_type(struct type_share *shares, const struct weight *weight) {
    struct type_share *share = shares;
    while (share->n > 0 && share->type != weight->type) share++;
    assert(share < shares + MAX_TYPES);
    share->type = weight->type;
    share->n += weight->n_elements;
}

/* Is it a tensor of a folder's layer that guesses ahead? It is not counted, so that the model is
 * the same with and without drafts. GGUF files count all their tensors. */
static bool is_added_ahead(const struct model_config *config, const struct weights *weights,
                           int i) {
    const char *name = weights_name(weights, i);
    int layer;
    if (config->n_ahead == 0 || sscanf(name, "blk.%9d.", &layer) != 1) return false;
    return name != weights->tensor[i].name && config_is_ahead(config, layer);
}

/* Counts parameters and bytes, and names the quantisation after the type with the most elements of
 * matrices; vectors stay in float32. Tensors do not overlap in their files, so the sum of their
 * elements is far below INT64_MAX. */
static void count_tensors(struct model_config *config, const struct weights *weights) {
    struct type_share shares[MAX_TYPES + 1] = {0}, most = {0};
    int64_t bytes = 0;
    for (int i = 0; i < weights->n; i++) {
        const struct weight *weight = &weights->tensor[i];
        if (!weights_name(weights, i)[0]) continue; /* the model does not use it */
        if (!is_added_ahead(config, weights, i)) config->n_parameters += weight->n_elements;
        bytes += (int64_t)weight->bytes;
        if (weight->n_dims > 1) count_layer_weight(config, weights_name(weights, i), weight);
        if (weight->n_dims > 1 && weight->n_elements > 0) count_type(shares, weight);
    }
    for (int i = 0; shares[i].n > 0; i++) {
        bool is_lower = shares[i].n == most.n && shares[i].type < most.type;
        if (shares[i].n > most.n || is_lower) most = shares[i];
    }
    snprintf(config->quantisation, sizeof config->quantisation, "%s",
             most.n == 0 ? "none" : dtype_name((int)most.type));
    if (config->file_bytes == 0) config->file_bytes = bytes; /* random weights are not in files */
}

/* ---- derived values ------------------------------------------------------------------------- */

/* Completes the rotation of layers with windows from the values of the file and the family. */
static void finish_window_rope(struct model_config *config) {
    struct rope_config *own = &config->window_rope;
    float base = config->window_rotation == WINDOW_ROPE_LOCAL ? own->base : config->rope.base;
    int D_rope = own->D_rope;
    if (own->is_used) return; /* the file has set all of it */
    *own = config->rope;
    own->base = base;
    if (D_rope > 0) own->D_rope = D_rope;
    own->stretch = (struct rope_stretch){.kind = ROPE_UNSCALED};
}

/* Returns the longest context to which positions may be stretched, at least the model's context
 * length. */
static int longest_context(const struct model_config *config) {
    const struct rope_stretch *s = &config->rope.stretch;
    bool grows = s->kind == ROPE_LINEAR || s->kind == ROPE_YARN || s->kind == ROPE_DYNAMIC;
    double first = s->kind == ROPE_LINEAR ? config->context_length : s->original_context;
    double longest = grows ? first * s->factor : 0;
    if (longest <= config->context_length) return config->context_length;
    return longest > MAX_CONTEXT ? MAX_CONTEXT : (int)longest;
}

/* Refuses scales that the family does not support. */
static enum status refuse_scales(const struct model_config *config,
                                 const struct model_family *family, bool in_gguf, struct err *err) {
    const struct {
        const char *of_gguf, *of_folder;
        float value, none;
        bool is_served;
    } scales[] = {
        {"embedding_scale", "embedding_multiplier", config->embedding_scale, 1, family->scales},
        {"residual_scale", "residual_multiplier", config->residual_scale, 1, family->scales},
        {"logit_scale", "logits_scaling", config->logit_scale, 1, family->scales},
        {"attention.temperature_scale", "llama_4_scaling_beta", config->query_beta, 0,
         family->scales_queries},
    };
    char key[64];
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        if (scales[i].is_served || scales[i].value == scales[i].none) continue;
        snprintf(key, sizeof key, "%s%s%s", in_gguf ? family->gguf : "", in_gguf ? "." : "",
                 in_gguf ? scales[i].of_gguf : scales[i].of_folder);
        return err_set(err, STATUS_BAD_FILE, key,
                       "key %s: only %g is supported in a model of the architecture \"%s\", found "
                       "%g",
                       key, (double)scales[i].none, family->gguf, (double)scales[i].value);
    }
    return STATUS_OK;
}

/* Checks that the family supports the file's branches, and removes the roles of norms that these do
 * not have. */
static enum status check_branches(struct model_config *config, const struct model_family *family,
                                  bool in_gguf, struct err *err) {
    char key[64] = "do_layer_norm_before";
    bool served = true;
    bool is_other = config->has_parallel_branches != family->has_parallel_branches;
    if (is_other && !family->may_be_parallel) {
        snprintf(key, sizeof key, "%s%suse_parallel_residual", in_gguf ? family->gguf : "",
                 in_gguf ? "." : "");
        served = family->has_parallel_branches;
    } else if (!config->norms_stream || family->may_norm_stream) {
        config->roles &= ~family_absent_roles(config);
        return STATUS_OK;
    }
    return err_set(err, STATUS_BAD_FILE, key, "key %s: only %s is supported", key,
                   served ? "true" : "false");
}

/* Checks an embedding whose width differs from the stream's: projections must connect the two. */
static enum status check_embedding(struct model_config *config, const struct model_family *family,
                                   struct err *err) {
    role_set projections = ROLE_BIT(ROLE_PROJECT_IN) | ROLE_BIT(ROLE_PROJECT_OUT);
    if (config->K_embedding == 0) config->K_embedding = config->K;
    if (config->K_embedding == config->K) return STATUS_OK;
    config->roles |= family->optional & projections;
    if (config->roles & projections) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, "word_embed_proj_dim",
                   "key word_embed_proj_dim: only the width of the stream, %d, is supported in a "
                   "model of the architecture \"%s\", found %d",
                   config->K, family->gguf, config->K_embedding);
}

/* Checks that a model with per-layer inputs has the tensors for them. */
static enum status check_inputs(struct model_config *config, const struct model_family *family,
                                struct err *err) {
    static const role_set roles = ROLE_BIT(ROLE_INPUTS_EMBEDDING) |
                                  ROLE_BIT(ROLE_INPUTS_PROJECTION) | ROLE_BIT(ROLE_INPUTS_NORM) |
                                  ROLE_BIT(ROLE_INPUT_GATE) | ROLE_BIT(ROLE_INPUT_OUT) |
                                  ROLE_BIT(ROLE_INPUT_NORM);
    if (config->P == 0) return STATUS_OK;
    if ((family->optional & roles) == roles && (int64_t)config->L * config->P <= INT32_MAX) {
        config->roles |= roles;
        return STATUS_OK;
    }
    return err_set(
        err, STATUS_BAD_FILE, "hidden_size_per_layer_input",
        "key hidden_size_per_layer_input: inputs of %d numbers for each of %d layers are "
        "not supported in a model of the architecture \"%s\"",
        config->P, config->L, family->gguf);
}

/* Adds the biases that config.json turns on. Fails if the family does not have them. */
static enum status add_biases(struct model_config *config, const struct model_family *family,
                              const struct hf_config *hf, struct err *err) {
    static const role_set roles[N_HF_BIASES] = {
        [HF_BIAS_ATTENTION] = ROLES_ATTENTION_BIASES,
        [HF_BIAS_OUTPUT] = ROLE_BIT(ROLE_O_BIAS),
        [HF_BIAS_QKV] = ROLES_QKV_BIASES,
        [HF_BIAS_MLP] = ROLES_MLP_BIASES,
        [HF_BIAS_ALL] = ROLES_ATTENTION_BIASES | ROLES_MLP_BIASES,
        [HF_QK_NORM] = ROLES_QK_NORM | ROLE_BIT(ROLE_Q_NORM_ALL) | ROLE_BIT(ROLE_K_NORM_ALL) |
                       ROLES_QK_NORM_HEADS,
        [HF_QK_LAYERNORM] = ROLES_QK_NORM_HEADS,
        [HF_CONV_BIAS] = ROLES_SHORT_CONV_BIASES,
        [HF_TWO_NORMS] = ROLE_BIT(ROLE_ATTN_NORM_2) | ROLE_BIT(ROLE_ATTN_NORM_2_BIAS),
    };
    for (enum hf_bias bias = 0; bias < N_HF_BIASES; bias++) {
        role_set biases = roles[bias] & (family->roles | family->optional);
        const char *key = hf_bias_key(bias);
        if (!hf->has_bias[bias]) continue;
        if (biases == 0)
            return err_set(err, STATUS_BAD_FILE, key, "key %s: only false is supported", key);
        config->roles |= roles_fused(biases, family->folder.fused);
    }
    return STATUS_OK;
}

/* Lists the tensors of a folder, or random tensors for a lone config.json. */
static enum status read_folder(struct model_config *config, struct hf_config *hf,
                               const struct model_family *family, struct err *err) {
    if (!hf->is_tied) config->roles |= ROLE_BIT(ROLE_OUTPUT);
    enum status status = add_biases(config, family, hf, err);
    if (status) return status;
    if (hf->n_shards == 0) return dummy_weights(&hf->weights, config, hf->dtype, err);
    return folder_names_read(config, &hf->weights, family, hf, err);
}

static enum status read_config(struct model_config *config, struct model_file *file,
                               struct err *err) {
    const struct model_family *family;
    struct hf_config *hf = file->hf;
    enum status status = find_family(&family, file, err);
    if (status) return hf ? blame_file(err, status, hf->path) : status;
    begin(config, file, family);
    if (hf) folder_style_begin(hf, family);
    status = model_file_config(config, file, err);
    if (!status) status = layers_add_ahead(config, file, family, err);
    if (status) return status;
    if (config->latent.is_used) layers_add_latents(config, hf ? NULL : &file->gguf->weights);
    finish_window_rope(config);
    config->longest_context = longest_context(config);
    if (config->experts.F_shared > 0) config->roles |= family->optional & ROLES_SHARED;
    status = refuse_scales(config, family, !hf, err);
    if (!status) status = check_branches(config, family, !hf, err);
    if (!status) status = check_embedding(config, family, err);
    if (!status) status = layers_check_experts(config, err);
    if (!status) status = check_inputs(config, family, err);
    if (!status) status = layers_finish(config, err);
    if (!status && !hf && family->keys_may_serve) layers_find_values(config, &file->gguf->weights);
    if (!status)
        status = hf ? read_folder(config, hf, family, err)
                    : read_roles(config, &file->gguf->weights, family, err);
    if (!status && hf) status = layers_read_xielu(config, &hf->weights, err);
    if (!status) status = layers_check_xielu(config, err);
    if (!status) status = layers_check_windows(config, family, err);
    if (!status && family->finish) status = family->finish(config, err);
    if (!status && config->eagle.is_used) status = eagle_check_model(config, err);
    if (status) return hf ? blame_file(err, status, hf->folder ? hf->folder : hf->path) : status;
    if (config->attention_scale == 0) config->attention_scale = 1.0f / sqrtf((float)config->D);
    if (!(config->roles & ROLE_BIT(ROLE_TYPE_EMBEDDING))) config->n_types = 0;
    count_tensors(config, model_file_weights(file));
    return STATUS_OK;
}

enum status model_config_read(struct model_config *config, struct model_file *file,
                              struct err *err) {
    enum status status = model_file_blame(file, read_config(config, file, err), err);
    config->stamp = file->stamp;
    assert(status || (config->L > 0 && config->H % config->G == 0));
    return status;
}

const struct model_family *model_family_called(const char *name) {
    int i = 0;
    while (strcmp(families[i]->gguf, name) != 0) i++;
    return families[i];
}

struct gguf_form model_gguf_form(const struct model_config *config) {
    const struct model_family *family = model_family_called(config->architecture);
    if (family->only_folders && !family->written_as) return (struct gguf_form){0};
    if (family->written_as) family = model_family_called(family->written_as);
    bool pairs = family->positions == POSITIONS_ROPE_ADJACENT && config->rope.layout == ROPE_HALVES;
    bool lists = family->windows == WINDOWS_LISTED;
    bool splits_mlp = family->roles & ROLE_BIT(ROLE_GATE);
    return (struct gguf_form){
        family->gguf, pairs,      family->full_every,
        lists,        splits_mlp, family->has_parallel_branches || family->may_be_parallel};
}
