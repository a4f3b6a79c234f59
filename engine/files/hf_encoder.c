/* Reads the keys of config.json that only encoders have. */
#include "engine/files/hf_config.h"
#include "engine/files/hf_keys.h"

/* RoBERTa gives the first token the position after that of padding, and counts both in the number
 * of positions. */
static enum status read_padded_positions(struct model_config *c, const struct json *root,
                                         struct err *err) {
    int pad;
    enum status status = key_int_or(root, "pad_token_id", 1, 1, 1, &pad, err);
    if (status) return status;
    if (c->context_length <= pad + 1)
        return err_set(err, STATUS_BAD_FILE, "max_position_embeddings",
                       "key max_position_embeddings: expected more than %d, found %d", pad + 1,
                       c->context_length);
    c->context_length -= pad + 1;
    return STATUS_OK;
}

/* Refuses other positions than the family's, and layers of a decoder. */
static enum status refuse_forms(const struct model_config *c, const struct json *root,
                                struct err *err) {
    const struct json *kind = key_value(root, "position_embedding_type");
    const struct json *mlp = key_value(root, "feed_forward_type");
    const char *served = c->has_slopes ? "alibi" : "absolute";
    bool decodes;
    char text[64];
    if ((kind || c->has_slopes) && !json_is_text(kind, served))
        return err_set(err, STATUS_BAD_FILE, "position_embedding_type",
                       "key position_embedding_type: only \"%s\" is supported, found \"%s\"",
                       served, kind ? key_shown(kind, text) : "nothing");
    if (c->has_slopes && !json_is_text(mlp, "geglu"))
        return err_set(err, STATUS_BAD_FILE, "feed_forward_type",
                       "key feed_forward_type: only \"geglu\" is supported, found \"%s\"",
                       mlp ? key_shown(mlp, text) : "nothing");
    enum status status = key_bool_or(root, "is_decoder", false, &decodes, err);
    if (status || !decodes) return status;
    return err_set(err, STATUS_BAD_FILE, "is_decoder",
                   "key is_decoder: only false is supported in an encoder");
}

/* Refuses forms of Nomic BERT's remote code. */
static enum status refuse_nomic_forms(const struct json *root, struct err *err) {
    static const char *const off[] = {
        "prenorm",      "rotary_emb_interleaved", "use_rms_norm", "causal",        "qkv_proj_bias",
        "mlp_fc1_bias", "mlp_fc2_bias",           "norm_bias",    "parallel_block"};
    double factor;
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
        bool found;
        enum status status = key_bool_or(root, off[i], false, &found, err);
        if (status) return status;
        if (found)
            return err_set(err, STATUS_BAD_FILE, off[i], "key %s: only false is supported", off[i]);
    }
    enum status status = key_number_or(root, "rotary_emb_fraction", 1, 1, 1, &factor, err);
    return status ? status : key_number_or(root, "rotary_scaling_factor", 1, 1, 1, &factor, err);
}

/* A window of files counts the positions before a row and after it. */
static int both_sides(int window) {
    return window > 0 ? window / 2 + 1 : 0;
}

enum status hf_encoder_begin(struct model_config *config, const struct hf_config *hf,
                             struct err *err) {
    int window;
    if (!config->is_encoder || !key_value(hf->text, "local_attention")) return STATUS_OK;
    enum status status = key_int(hf->text, "local_attention", 1, MAX_CONTEXT, &window, err);
    if (!status) config->window = both_sides(window);
    return status;
}

enum status hf_encoder_read(struct model_config *config, const struct hf_config *hf,
                            struct err *err) {
    const struct json *root = hf->text;
    if (!config->is_encoder) return STATUS_OK;
    if (key_value(root, "sliding_window")) {
        config->window = both_sides(config->window);
        for (int i = 0; i < config->L; i++)
            config->layer[i].window = both_sides(config->layer[i].window);
    }
    enum status status =
        key_int_or(root, "type_vocab_size", 1, MAX_WIDTH, 2, &config->n_types, err);
    if (!status) status = refuse_forms(config, root, err);
    if (!status && config->norm == NORM_RMS && !key_value(root, "use_bidirectional_attention"))
        status = err_set(err, STATUS_BAD_FILE, "use_bidirectional_attention",
                         "key use_bidirectional_attention is missing: only true is supported in a "
                         "model of the architecture \"%s\"",
                         config->architecture);
    if (!status) status = refuse_nomic_forms(root, err);
    if (!status && hf->pads_positions) status = read_padded_positions(config, root, err);
    return status;
}
