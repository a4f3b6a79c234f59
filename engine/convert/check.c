/* Checks that the output says the same as the folder. Its head is read like any GGUF file's, over
 * placeholder memory for the tensors' data, and the resulting model is compared with the
 * folder's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/convert/convert.h"

/* ---- the model ------------------------------------------------------------------------------ */

struct number {
    const char *what;
    double was, is;
};

static bool is_close(double a, double b) {
    return fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b));
}

static enum status compare(const struct number *number, size_t n, struct err *err) {
    for (size_t i = 0; i < n; i++)
        if (!is_close(number[i].was, number[i].is))
            return err_set(err, STATUS_BAD_FILE, "model", "%s: %g in the folder, %g in the file",
                           number[i].what, number[i].was, number[i].is);
    return STATUS_OK;
}

static enum status compare_shapes(const struct model_config *was, const struct model_config *is,
                                  struct err *err) {
    const struct number numbers[] = {
        {"vocabulary", was->V, is->V},
        {"width", was->K, is->K},
        {"layers", was->L, is->L},
        {"heads", was->H, is->H},
        {"layers that read keys and values of others", was->n_readers, is->n_readers},
        {"width of a layer's own input", was->P, is->P},
        {"context", was->context_length, is->context_length},
        {"longest context", was->longest_context, is->longest_context},
        {"kind of norm", was->norm, is->norm},
        {"epsilon of norms", (double)was->norm_epsilon, (double)is->norm_epsilon},
        {"activation", was->activation, is->activation},
        {"norms of heads after the rotation", was->norms_heads_last, is->norms_heads_last},
        {"parallel branches", was->has_parallel_branches, is->has_parallel_branches},
        {"scale of the embedding", (double)was->embedding_scale, (double)is->embedding_scale},
        {"scale of branches", (double)was->residual_scale, (double)is->residual_scale},
        {"scale of logits", (double)was->logit_scale, (double)is->logit_scale},
        {"scale of queries", (double)was->query_beta, (double)is->query_beta},
        {"scale of scores", (double)was->attention_scale, (double)is->attention_scale},
        {"cap of scores", (double)was->attention_cap, (double)is->attention_cap},
        {"cap of logits", (double)was->logit_cap, (double)is->logit_cap},
    };
    return compare(numbers, sizeof numbers / sizeof *numbers, err);
}

static enum status compare_experts(const struct expert_config *was, const struct expert_config *is,
                                   struct err *err) {
    const struct number numbers[] = {
        {"experts", was->E, is->E},
        {"experts of a token", was->n_used, is->n_used},
        {"width of an expert", was->F, is->F},
        {"width of the shared expert", was->F_shared, is->F_shared},
        {"weights that add up to 1", was->normalises, is->normalises},
        {"choice by sigmoids", was->by_sigmoid, is->by_sigmoid},
        {"groups of experts", fmax(was->n_groups, 1), fmax(is->n_groups, 1)},
        {"groups of a token", fmax(was->n_used_groups, 1), fmax(is->n_used_groups, 1)},
        {"scale of experts", (double)was->weight_scale, (double)is->weight_scale},
    };
    return was->is_used ? compare(numbers, sizeof numbers / sizeof *numbers, err) : STATUS_OK;
}

/* ---- positions ------------------------------------------------------------------------------ */

static double scores_factor(const struct rope_config *rope) {
    return rope->stretch.attention_factor > 0 ? (double)rope->stretch.attention_factor : 1;
}

/* The factors that the output has as a tensor for contexts of `length`, or NULL. */
static const float *factors_of(const struct conversion *c, const struct rope_config *rope,
                               int length) {
    bool is_long = length > rope->stretch.original_context;
    enum role role = is_long ? ROLE_ROPE_LONG : ROLE_ROPE_SHORT;
    for (int i = 0; i < c->n; i++) {
        const struct out_tensor *t = &c->tensor[i];
        bool is_it = strcmp(t->name, role_info(role)->gguf) == 0 ||
                     strcmp(t->name, role_info(ROLE_ROPE_FACTORS)->gguf) == 0;
        if (is_it) return t->made;
    }
    return NULL;
}

/* The frequencies combine all parts of a stretch. */
static enum status compare_ropes(const struct rope_config *was, const struct rope_config *is,
                                 const float *factors, int length, struct err *err) {
    const struct number numbers[] = {
        {"numbers of a head that rotate", was->D_rope, is->D_rope},
        {"scale of rotated heads", scores_factor(was), scores_factor(is)},
    };
    enum status status = compare(numbers, 2, err);
    size_t n = (size_t)was->D_rope / 2;
    if (status || n == 0) return status;
    float *before = mem_alloc(2 * n * sizeof *before), *after = before + n;
    rope_frequencies(before, was, NULL, length);
    rope_frequencies(after, is, factors, length);
    for (size_t i = 0; i < n && !status; i++)
        status = compare(
            &(struct number){"a frequency of positions", (double)before[i], (double)after[i]}, 1,
            err);
    mem_free(before);
    return status;
}

static enum status compare_layers(const struct model_config *was, const struct model_config *is,
                                  struct err *err) {
    bool own = was->window_rotation != WINDOW_ROPE_SAME;
    enum status status = STATUS_OK;
    for (int i = 0; i < was->L && !status; i++) {
        const struct layer_config *a = &was->layer[i], *b = &is->layer[i];
        const struct number numbers[] = {
            {"window of a layer", a->window, b->window},
            {"layer without positions", a->has_no_rope, b->has_no_rope},
            {"layer with a rotation of its own", own && a->slides, own && b->slides},
            {"layer without experts", a->is_dense, b->is_dense},
            {"width of an MLP", config_width(was, i), config_width(is, i)},
            {"key-value heads", config_heads(was, i).G, config_heads(is, i).G},
            {"size of a head", config_heads(was, i).D, config_heads(is, i).D},
            {"layer whose keys are values", a->values_are_keys, b->values_are_keys},
            {"alpha_p of xIELU", (double)a->xielu[XIELU_ALPHA_P], (double)b->xielu[XIELU_ALPHA_P]},
            {"alpha_n of xIELU", (double)a->xielu[XIELU_ALPHA_N], (double)b->xielu[XIELU_ALPHA_N]},
            {"beta of xIELU", (double)a->xielu[XIELU_BETA], (double)b->xielu[XIELU_BETA]},
            {"eps of xIELU", (double)a->xielu[XIELU_EPS], (double)b->xielu[XIELU_EPS]},
        };
        status = compare(numbers, sizeof numbers / sizeof *numbers, err);
    }
    return status;
}

static enum status compare_models(const struct conversion *c, const struct model_config *is,
                                  struct err *err) {
    const struct model_config *was = &c->config;
    int length = was->context_length;
    enum status status = compare_shapes(was, is, err);
    if (!status) status = compare_experts(&was->experts, &is->experts, err);
    if (!status) status = compare_layers(was, is, err);
    if (!status)
        status =
            compare_ropes(&was->rope, &is->rope, factors_of(c, &was->rope, length), length, err);
    bool slides = false, own = was->window_rotation != WINDOW_ROPE_SAME;
    for (int i = 0; i < was->L; i++) slides |= was->layer[i].slides;
    if (status || !slides) return status;
    const struct rope_config *is_rope =
        is->window_rotation == WINDOW_ROPE_SAME ? &is->rope : &is->window_rope;
    const float *factors =
        is->window_rotation == WINDOW_ROPE_SAME ? factors_of(c, &is->rope, length) : NULL;
    return compare_ropes(own ? &was->window_rope : &was->rope, is_rope, factors, length, err);
}

/* ---- text ----------------------------------------------------------------------------------- */

static enum status compare_texts(const struct conversion *c, const struct model_file *again,
                                 struct err *err) {
    struct tokenizer_spec of_was = {0}, of_is = {0};
    struct tokenizer *was = NULL, *is = NULL;
    enum status status = tokenizer_spec_read(&of_was, &c->source, err);
    if (!status) status = tokenizer_new(&was, &of_was, err);
    if (!status) status = tokenizer_spec_read(&of_is, again, err);
    if (!status) status = tokenizer_new(&is, &of_is, err);
    if (!status && !same_tokenizers(was, is, &of_was))
        status = err_set(err, STATUS_BAD_FILE, "tokenizer",
                         "its tokenizer gives ids that differ from the folder's");
    tokenizer_free(was);
    tokenizer_free(is);
    tokenizer_spec_free(&of_was);
    tokenizer_spec_free(&of_is);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------ */

enum status check_again(const struct conversion *c, struct err *err) {
    struct model_file again = {.path = c->job->in};
    struct model_config config;
    struct buf head = {0};
    size_t bytes = (size_t)conversion_head(c, &head) + c->alignment;
    bytes += head.length;
    /* untouched pages take up no memory */
    void *file = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    enum status status = STATUS_OK;
    if (file == MAP_FAILED) {
        status = err_set(err, STATUS_BAD_FILE, "model", "%zu bytes cannot be mapped", bytes);
    } else {
        memcpy(file, head.data, head.length);
        status = gguf_open_memory(&again.gguf, file, bytes, err);
    }
    if (!status) status = model_config_read(&config, &again, err);
    if (!status) status = compare_models(c, &config, err);
    if (!status) status = compare_texts(c, &again, err);
    model_file_close(&again);
    if (file != MAP_FAILED) munmap(file, bytes);
    buf_free(&head);
    return status;
}
