/* Makes a fingerprint of an open engine and its options. */
#include "server/fingerprint/fingerprint.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* Adds to a part. A text that is too long or not printable is replaced by its hash, so that no
 * difference is lost. */
static void add(char part[FINGERPRINT_BYTES], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add(char part[FINGERPRINT_BYTES], const char *format, ...) {
    char text[1024];
    size_t at = strlen(part);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert(n >= 0 && at < FINGERPRINT_BYTES);
    if (n >= (int)sizeof text) n = sizeof text - 1;
    bool fits = at + (size_t)n + 24 < FINGERPRINT_BYTES && is_printable(text, (size_t)n);
    if (fits)
        memcpy(part + at, text, (size_t)n + 1);
    else
        snprintf(part, FINGERPRINT_BYTES, "#%016llx%016llx",
                 (unsigned long long)XXH3_64bits(part, at),
                 (unsigned long long)XXH3_64bits(text, (size_t)n));
}

static void add_build(char *part) {
    const struct build_info info = build_info();
    add(part, "%s %s %s", info.version, info.commit, info.build);
}

static void add_model(char *part, const struct model_config *model) {
    add(part, "%s %s %lld %lld %016llx", model->architecture, model->quantisation,
        (long long)model->n_parameters, (long long)model->file_bytes,
        (unsigned long long)model->stamp);
}

/* The CPU's paths give equal bytes; a GPU's kernels depend on its generation. */
static void add_arithmetic(char *part, const struct engine_config *config,
                           const struct engine *engine) {
    bool on_host = engine_on_host(engine);
    add(part, "%s", on_host ? "cpu" : engine_backend_name(engine));
    add(part, " dtype %d quantization %d cache %d", (int)config->dtype, (int)config->quantization,
        (int)config->kv_dtype);
    add(part, " ranks %d blocks of %d", max_int(config->ranks, 1), config->block_size);
    add(part, " pooling %d dummy %d", (int)config->pooling, config->dummy);
    if (!on_host)
        add(part, " wgmma %d grid %d cublas %d", config->wgmma, config->persistent_step,
            config->allow_batch_variant_gemm);
}

static unsigned long long template_hash(const struct engine *engine, bool with_tools) {
    const struct chat_template *chat = engine_chat_template(engine, with_tools);
    size_t length = 0;
    const char *source = chat ? chat_template_source(chat, &length) : "";
    return (unsigned long long)XXH3_64bits(source, length);
}

static void add_template(char *part, const struct options *options, const struct engine *engine) {
    add(part, "%016llx %016llx", template_hash(engine, false), template_hash(engine, true));
    add(part, " tools %s reasoning %s %d", options->api.tool_call_parser,
        options->api.reasoning_parser, options->api.reasoning_budget);
    add(part, " open objects %d", options->api.open_objects);
}

static void add_defaults(char *part, const struct options *options, const struct engine *engine) {
    const struct sampling_defaults *defaults = engine_sampling_defaults(engine);
    add(part, "config %d", (int)options->api.generation_config);
    if (!defaults) return;
    add(part, " t %g p %g min %g r %g k %d", defaults->temperature, defaults->top_p,
        defaults->min_p, defaults->repetition_penalty, defaults->top_k);
    if (defaults->n_suppressed > 0)
        add(part, " not %016llx",
            (unsigned long long)XXH3_64bits(defaults->suppressed,
                                            (size_t)defaults->n_suppressed *
                                                sizeof *defaults->suppressed));
}

void fingerprint_make(struct fingerprint *out, const struct options *options,
                      const struct engine *engine, const char *model_name) {
    assert(engine_memory(engine)->max_model_len > 0);
    memset(out, 0, sizeof *out);
    add_build(out->part[FINGERPRINT_BUILD]);
    add_model(out->part[FINGERPRINT_MODEL], engine_model(engine));
    add_arithmetic(out->part[FINGERPRINT_ARITHMETIC], &options->engine, engine);
    add(out->part[FINGERPRINT_LENGTH], "%d", engine_memory(engine)->max_model_len);
    add_template(out->part[FINGERPRINT_TEMPLATE], options, engine);
    add_defaults(out->part[FINGERPRINT_DEFAULTS], options, engine);
    add(out->part[FINGERPRINT_NAMES], "%s", model_name);
}
