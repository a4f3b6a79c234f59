/* The comparison of a model's processes at the start. Every difference would give wrong answers, or
 * ranks that wait for each other. Paths of files may differ, so files are compared by content. */
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/ranks/internal.h"

/* ---- the weights ---------------------------------------------------------------------------- */

enum { SAMPLED_BYTES = 4096, CODE_BYTES = 256 };

/* Adds the first, the middle and the last bytes of a tensor. Reading all of it would take as long
 * as loading the model. */
static void add_bytes(XXH3_state_t *hash, const char *data, size_t bytes) {
    size_t n = bytes < SAMPLED_BYTES ? bytes : SAMPLED_BYTES;
    XXH3_64bits_update(hash, data, n);
    XXH3_64bits_update(hash, data + (bytes - n) / 2, n);
    XXH3_64bits_update(hash, data + (bytes - n), n);
}

static void add_weight(XXH3_state_t *hash, const struct weight *weight) {
    const struct packed *packed = weight->packed;
    const int32_t type = (int32_t)weight->type;
    XXH3_64bits_update(hash, weight->name, strlen(weight->name) + 1);
    XXH3_64bits_update(hash, &type, sizeof type);
    XXH3_64bits_update(hash, weight->dim, sizeof weight->dim);
    if (packed && weight->n_elements >= CODE_BYTES * 8)
        XXH3_64bits_update(hash, packed->codes, CODE_BYTES);
    else if (!packed && weight->data) /* random weights lack data */
        add_bytes(hash, weight->data, weight->bytes);
}

uint64_t weights_digest(const struct weights *weights) {
    XXH3_state_t *hash = XXH3_createState();
    if (!hash) mem_fail(sizeof(XXH3_state_t *));
    XXH3_64bits_reset(hash);
    for (int i = 0; i < weights->n; i++) add_weight(hash, &weights->tensor[i]);
    const uint64_t digest = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    return digest;
}

/* ---- facts ---------------------------------------------------------------------------------- */

#define MODEL_FACT "model"

static void add_fact(struct hello *hello, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add_fact(struct hello *hello, const char *name, const char *format, ...) {
    struct fact *fact = &hello->fact[hello->n];
    va_list args;
    assert(hello->n < MAX_FACTS && strlen(name) < FACT_NAME_BYTES);
    hello->n++;
    snprintf(fact->name, sizeof fact->name, "%s", name);
    va_start(args, format);
    vsnprintf(fact->value, sizeof fact->value, format, args);
    va_end(args);
}

static void add_model(struct hello *hello, const struct ranks_self *self) {
    const struct model_config *m = self->model;
    add_fact(hello, MODEL_FACT, "%s %s %" PRId64 " %016" PRIx64, m->architecture, m->quantisation,
             m->n_parameters, weights_digest(self->weights));
}

static void add_settings(struct hello *hello, const struct engine_config *c) {
    add_fact(hello, "tensor-parallel-size", "%d", c->ranks);
    add_fact(hello, "device", "%s", value_name(device_names, (int)c->device));
    add_fact(hello, "load-format", "%s", c->dummy ? "dummy" : "auto");
    add_fact(hello, "dtype", "%s", value_name(compute_dtype_names, (int)c->dtype));
    add_fact(hello, "quantization", "%s", value_name(quantization_names, (int)c->quantization));
    add_fact(hello, "kv-cache-dtype", "%s", value_name(kv_dtype_names, (int)c->kv_dtype));
    add_fact(hello, "pooling", "%s", value_name(pooling_names, (int)c->pooling));
    add_fact(hello, "block-size", "%d", c->block_size);
    add_fact(hello, "max-model-len", "%d", c->max_model_len);
    add_fact(hello, "max-num-seqs", "%d", c->max_num_seqs);
    add_fact(hello, "max-num-batched-tokens", "%d", c->max_num_batched_tokens);
    add_fact(hello, "max-loras", "%d", c->max_adapters);
    add_fact(hello, "max-lora-rank", "%d", c->max_adapter_rank);
    add_fact(hello, "lora-memory", "%" PRId64 " bytes", c->adapter_memory);
    add_fact(hello, "enforce-eager", "%s", c->enforce_eager ? "on" : "off");
    add_fact(hello, "wgmma", "%s", c->wgmma ? "on" : "off");
    add_fact(hello, "deterministic", "%s", c->allow_batch_variant_gemm ? "off" : "on");
    add_fact(hello, "speculative-config", "%d drafts%s", c->max_logit_rows - c->max_num_seqs,
             c->eagle           ? " of eagle3"
             : c->guesses_ahead ? " of mtp"
                                : "");
}

/* An EAGLE-3 head has a folder of its own. */
static void add_eagle(struct hello *hello, const struct ranks_self *self) {
    if (self->eagle)
        add_fact(hello, "speculative-config", "the head %016" PRIx64, weights_digest(self->eagle));
}

void hello_make(struct hello *out, const struct ranks_self *self, int ranks_of_machine,
                const struct err *why) {
    const struct build_info build = build_info();
    assert(ranks_of_machine > 0);
    memset(out, 0, sizeof *out);
    if (why) out->err = *why;
    out->available = self->available / ranks_of_machine;
    out->device = self->device;
    if (gethostname(out->host, sizeof out->host - 1) != 0) snprintf(out->host, 2, "?");
    snprintf(out->build, sizeof out->build, "%s %s %s", build.version, build.commit, build.build);
    if (out->err.status) return;
    add_model(out, self);
    add_settings(out, self->config);
    add_eagle(out, self);
}

/* ---- comparing ------------------------------------------------------------------------------ */

static enum status refuse_fact(const struct fact *first, const struct fact *other, int rank,
                               const char *host, struct err *err) {
    if (strcmp(first->name, MODEL_FACT) == 0)
        return err_set(err, STATUS_USAGE, "model",
                       "rank %d (on %s) has another model than rank 0: \"%s\" and \"%s\"; give all "
                       "ranks copies of the same files",
                       rank, host, other->value, first->value);
    return err_set(err, STATUS_USAGE, first->name,
                   "{%s} is %s on rank %d (on %s) and %s on rank 0; give all ranks the same",
                   first->name, other->value, rank, host, first->value);
}

enum status hello_check(const struct hello *first, const struct hello *other, int rank,
                        struct err *err) {
    assert(rank > 0 && first->n <= MAX_FACTS && !first->err.status);
    if (strcmp(first->build, other->build) != 0)
        return err_set(err, STATUS_USAGE, NULL,
                       "rank %d (on %s) is another build than rank 0: \"%s\" and \"%s\"; install "
                       "the same program on all machines",
                       rank, other->host, other->build, first->build);
    if (other->err.status)
        return err_set(err, other->err.status, other->err.param, "rank %d (on %s): %s", rank,
                       other->host, other->err.message);
    for (int i = 0; i < first->n; i++)
        if (strcmp(first->fact[i].value, other->fact[i].value) != 0)
            return refuse_fact(&first->fact[i], &other->fact[i], rank, other->host, err);
    return STATUS_OK;
}
