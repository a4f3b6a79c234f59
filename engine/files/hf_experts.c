/* Reads the experts of a config.json. */
#include "engine/files/hf_config.h"
#include "engine/files/hf_keys.h"
#include "kernels/backend.h"

/* Marks the layers of mlp_only_layers as dense. */
static enum status read_listed_dense(struct model_config *c, const struct json *dense,
                                     struct err *err) {
    bool fits = !dense || json_is(dense, JSON_ARRAY);
    json_each(layer, dense) {
        fits = fits && json_is(layer, JSON_NUMBER) && layer->is_integer && layer->integer >= 0 &&
               layer->integer < c->L;
        if (fits) c->layer[layer->integer].is_dense = true;
    }
    if (fits && (c->experts.may_be_dense || !json_first(dense))) return STATUS_OK;
    if (fits)
        return err_set(err, STATUS_BAD_FILE, "mlp_only_layers",
                       "key mlp_only_layers: only an empty array is supported in a model of the "
                       "architecture \"%s\"",
                       c->architecture);
    return err_set(err, STATUS_BAD_FILE, "mlp_only_layers",
                   "key mlp_only_layers: expected an array of layers, each in 0..%d", c->L - 1);
}

/* Reads mlp_layer_types, which lists the layers with an MLP and those with experts. */
static enum status read_mlp_types(struct model_config *c, const struct json *root,
                                  struct err *err) {
    static const char key[] = "mlp_layer_types";
    const struct json *types = key_value(root, key);
    bool fits = c->experts.may_be_dense && json_is(types, JSON_ARRAY) && types->n_children == c->L;
    int i = 0;
    json_each(type, fits ? types : NULL) {
        c->layer[i].is_dense = json_is_text(type, "dense");
        fits = fits && (c->layer[i++].is_dense || json_is_text(type, "sparse"));
    }
    if (fits) return STATUS_OK;
    return err_set(
        err, STATUS_BAD_FILE, key,
        "key %s: expected \"dense\" or \"sparse\" for each of %d layers, in a model whose "
        "layers may have an MLP instead of experts",
        key, c->L);
}

/* Marks the layers with an MLP instead of experts: the first ones, those that are not a multiple of
 * the step, and the listed ones. */
static enum status read_dense_layers(struct model_config *c, const struct json *root,
                                     struct err *err) {
    int step, first = 0, last = c->L - 1, longest = c->experts.may_be_dense ? MAX_LAYERS : 1;
    const bool has_first = c->experts.by_sigmoid || c->latent.is_used;
    const bool is_usual = c->experts.by_sigmoid && c->experts.may_be_dense && c->L > 1;
    const char *steps =
        c->latent.is_used ? "moe_layer_freq" : "decoder_sparse_step|moe_layer_interval";
    if (key_value(root, "mlp_layer_types")) return read_mlp_types(c, root, err);
    const char *first_key =
        key_value(root, "num_dense_layers") ? "num_dense_layers" : "first_k_dense_replace";
    enum status status = key_int_or(root, steps, 1, c->latent.is_used ? 1 : longest, 1, &step, err);
    if (!status && has_first)
        status = key_int_or(root, first_key, 0, c->L - 1, is_usual, &first, err);
    if (!status && c->experts.may_be_dense && !has_first) {
        status = key_int_or(root, "moe_layer_start_index", 0, c->L - 1, 0, &first, err);
        if (!status) status = key_int_or(root, "moe_layer_end_index", -1, last, -1, &last, err);
        if (last < 0) last = c->L - 1;
    }
    if (status) return status;
    for (int i = 0; i < c->L; i++)
        c->layer[i].is_dense = i < first || i > last || (i + 1) % step != 0;
    return read_listed_dense(c, key_value(root, "mlp_only_layers"), err);
}

/* Checks how a model with latent attention chooses its experts. Returns in *has_groups whether it
 * chooses groups first. */
static enum status check_method(const struct model_config *c, const struct json *root,
                                bool *has_groups, struct err *err) {
    const bool by_sigmoid = c->experts.by_sigmoid;
    const struct json *score = key_value(root, "scoring_func|moe_router_activation_func"), *method;
    const char *wanted = by_sigmoid ? "sigmoid" : "softmax";
    char text[64];
    method = key_value(root, "topk_method");
    *has_groups =
        by_sigmoid || c->experts.always_groups || json_is_text(method, "group_limited_greedy");
    if (!c->latent.is_used) return STATUS_OK;
    if (score && !json_is_text(score, wanted))
        return err_set(err, STATUS_BAD_FILE, "scoring_func",
                       "key scoring_func: only \"%s\" is supported in a model of the architecture "
                       "\"%s\", found \"%s\"",
                       wanted, c->architecture, key_shown(score, text));
    bool fits = by_sigmoid ? json_is_text(method, "noaux_tc") : json_is_text(method, "greedy");
    if (!method || fits || json_is_text(method, "group_limited_greedy")) return STATUS_OK;
    return err_set(
        err, STATUS_BAD_FILE, "topk_method",
        "key topk_method: only %s supported in a model of the architecture \"%s\", found "
        "\"%s\"",
        by_sigmoid ? "\"noaux_tc\" is" : "\"greedy\" and \"group_limited_greedy\" are",
        c->architecture, key_shown(method, text));
}

/* Reads the unread layers, groups and shared experts, for families that score by sigmoid or have
 * latent attention. */
static enum status read_groups(struct model_config *c, const struct json *root, struct err *err) {
    struct expert_config *e = &c->experts;
    double scale = 1;
    int shared = 1;
    bool has_groups;
    enum status status = check_method(c, root, &has_groups, err);
    if (!status)
        status = key_int_or(root, "num_nextn_predict_layers|num_mtp_layers", 0, MAX_LAYERS, 0,
                            &c->n_unread_layers, err);
    if (!status)
        status = key_int_or(root, "n_group|num_expert_group", 1, e->E, 1, &e->n_groups, err);
    if (!status)
        status =
            key_int_or(root, "topk_group", 1, e->n_groups, e->n_groups, &e->n_used_groups, err);
    if (!status)
        status = key_int_or(root, "n_shared_experts|num_shared_experts", 1, 64, 1, &shared, err);
    if (!status)
        status =
            key_number_or(root, "routed_scaling_factor|route_scale", 1e-6, 1e6, 1, &scale, err);
    if (!has_groups) e->n_groups = e->n_used_groups = 1;
    e->F_shared = shared * e->F;
    e->weight_scale = (float)scale;
    return status;
}

/* Reads the shared experts of ERNIE and HunYuan, which are one expert of their common width. */
static enum status read_ernie(struct expert_config *e, const struct json *root, struct err *err) {
    int shared = 0;
    double least;
    enum status status =
        key_int_or(root, "moe_num_shared_experts|num_shared_expert", 0, 64, 0, &shared, err);
    if (!status) status = key_number_or(root, "moe_norm_min", 0, 1e-6, 0, &least, err);
    if (shared > 0) e->F_shared = shared * e->F;
    return status;
}

enum status hf_experts_read(struct model_config *c, const struct json *root, struct err *err) {
    struct expert_config *e = &c->experts;
    if (!e->is_used) return STATUS_OK;
    if (key_value(root, "clip_qkv"))
        return err_set(err, STATUS_BAD_FILE, "clip_qkv",
                       "key clip_qkv: queries, keys and values that are clipped are not supported; "
                       "null was expected");
    static const char used[] =
        "num_experts_per_tok|top_k_experts|moe_k|num_experts_per_token|moe_topk";
    double limit, alpha;
    enum status status = read_dense_layers(c, root, err);
    if (!status) status = key_number_or(root, "swiglu_limit", 7, 7, 7, &limit, err);
    if (!status) status = key_number_or(root, "swiglu_alpha", 1.702, 1.702, 1.702, &alpha, err);
    if (!status)
        status = key_int(root, "num_local_experts|num_experts|n_routed_experts|moe_num_experts", 1,
                         MAX_EXPERTS, &e->E, err);
    if (!status)
        status = key_int(root, used, 1, e->E < MAX_USED_EXPERTS ? e->E : MAX_USED_EXPERTS,
                         &e->n_used, err);
    if (!status) status = key_int_or(root, "moe_intermediate_size", 1, MAX_WIDTH, c->F, &e->F, err);
    if (!status)
        status = key_int_or(root, "shared_expert_intermediate_size|shared_intermediate_size", 0,
                            MAX_WIDTH, 0, &e->F_shared, err);
    const bool has_groups = e->by_sigmoid || c->latent.is_used;
    if (!status) status = has_groups ? read_groups(c, root, err) : read_ernie(e, root, err);
    if (status) return status;
    return key_bool_or(root, "norm_topk_prob|moe_renormalize|route_norm", e->normalises,
                       &e->normalises, err);
}
