/* Converts a folder to a GGUF file. Before anything is written, the head of the output is read
 * again: this finds properties without a key or with another meaning, and the error names them. */
#include "engine/convert/convert.h"

/* Turns an error in the planned file into an error of writing it. */
static enum status blame_writing(const struct conversion *c, enum status status, struct err *err) {
    struct err why;
    if (!status) return status;
    why = *err;
    return err_set(err, STATUS_BAD_FILE, "model", "a GGUF file cannot hold %s: %s", c->job->in,
                   why.message);
}

/* Refuses properties that GGUF files cannot express and that reading the output again would call by
 * another name. */
static enum status refuse_unsaid(const struct conversion *c, struct err *err) {
    const struct model_config *m = &c->config;
    if (m->is_encoder)
        return err_set(err, STATUS_USAGE, "model",
                       "%s: folders of encoders are not written as GGUF files; serve it with "
                       "{quantization} q8_0, or quantise a GGUF file of it",
                       c->job->in);
    if (m->rope.stretch.kind == ROPE_DYNAMIC)
        return err_set(
            err, STATUS_USAGE, "rope_scaling",
            "%s: key rope_scaling: GGUF files do not support \"dynamic\" scaling of positions",
            c->job->in);
    for (int i = 1; i < m->L; i++)
        if (m->layer[i].is_dense && !m->layer[i - 1].is_dense)
            return err_set(
                err, STATUS_USAGE, "mlp_only_layers",
                "%s: layer %d is without experts (mlp_only_layers, decoder_sparse_step), but layer "
                "%d is not; GGUF files support this for the first layers only",
                c->job->in, i, i - 1);
    return STATUS_OK;
}

/* Returns why folders of the model are not written, or NULL. */
static const char *unwritten(const struct model_config *config) {
    if (config->latent.is_used) return "latent attention is not written";
    if (config->C == 0 || config->state.kind == STATE_CONV) return NULL;
    return config->state.kind == STATE_DELTA ? "those order value heads otherwise"
                                             : "state spaces are not written";
}

enum status convert_folder(struct conversion *c, struct err *err) {
    enum status status = model_file_open(&c->source, c->job->in, MODEL_WHOLE, err);
    if (!status) status = model_config_read(&c->config, &c->source, err);
    if (status) return status;
    const char *reason = unwritten(&c->config);
    if (reason)
        return err_set(
            err, STATUS_USAGE, "model",
            "%s: folders of the architecture \"%s\" cannot be made into GGUF files here, "
            "because %s; quantise the folder when it is loaded: penstock serve %s {quantization} "
            "%s",
            c->job->in, c->config.architecture, reason, c->job->in,
            value_name(quantization_names, c->job->type));
    const struct gguf_form form = model_gguf_form(&c->config);
    if (!form.architecture)
        return err_set(err, STATUS_USAGE, "model",
                       "%s: GGUF files do not support the architecture \"%s\"; quantise the folder "
                       "when it is loaded: penstock serve %s {quantization} %s",
                       c->job->in, c->config.architecture, c->job->in,
                       value_name(quantization_names, c->job->type));
    status = refuse_unsaid(c, err);
    if (!status) status = folder_tensors(c, &form, err);
    if (status) return status;
    folder_keys(c, &form);
    status = folder_vocabulary(c, err);
    return status ? status : blame_writing(c, check_again(c, err), err);
}
