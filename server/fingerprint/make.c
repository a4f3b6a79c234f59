/* Makes a fingerprint of an open engine and its options. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "server/fingerprint/fingerprint.h"
#include "server/options/options.h"

#define COPY(to, text) snprintf(to, sizeof(to), "%s", text)

/* Appends to a text of a fingerprint. If it is too long or not printable, the whole is replaced by
 * its hash, so that no difference is lost. */
static void add(char out[FINGERPRINT_TEXT], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add(char out[FINGERPRINT_TEXT], const char *format, ...) {
    char text[1024];
    size_t at = strlen(out);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert(n >= 0 && at < FINGERPRINT_TEXT);
    if (n >= (int)sizeof text) n = sizeof text - 1;
    bool fits = at + (size_t)n + 24 < FINGERPRINT_TEXT && is_printable(text, (size_t)n);
    if (fits)
        memcpy(out + at, text, (size_t)n + 1);
    else
        snprintf(out, FINGERPRINT_TEXT, "#%016llx%016llx", (unsigned long long)XXH3_64bits(out, at),
                 (unsigned long long)XXH3_64bits(text, (size_t)n));
}

static void add_model(struct fingerprint *out, const struct model_config *model) {
    add(out->shape, "%s %lld %lld", model->architecture, (long long)model->n_parameters,
        (long long)model->file_bytes);
    snprintf(out->stamp, sizeof out->stamp, "%016llx", (unsigned long long)model->stamp);
}

/* The CPU's paths give equal bytes; a GPU's kernels depend on its generation. */
static void add_arithmetic(struct fingerprint *out, const struct engine_config *config,
                           const struct engine *engine) {
    const bool on_host = engine_on_host(engine);
    out->arithmetic = ARITHMETIC_VERSION;
    out->ranks = max_int(1, config->ranks);
    out->block_size = config->block_size;
    out->pooling = (int)config->pooling;
    COPY(out->device, on_host ? "cpu" : "cuda");
    COPY(out->weights, config->dummy ? "dummy" : engine_model(engine)->quantisation);
    COPY(out->quantization, value_name(quantization_names, (int)config->quantization));
    COPY(out->dtype, value_name(compute_dtype_names, (int)config->dtype));
    COPY(out->kv_cache, engine_kv_dtype(engine));
    if (!on_host)
        add(out->kernels, "%s wgmma %d grid %d cublas %d", engine_backend_name(engine),
            config->wgmma, config->persistent_step, config->allow_batch_variant_gemm);
}

static unsigned long long template_hash(const struct engine *engine, bool with_tools) {
    const struct chat_template *chat = engine_chat_template(engine, with_tools);
    size_t length = 0;
    const char *source = chat ? chat_template_source(chat, &length) : "";
    return (unsigned long long)XXH3_64bits(source, length);
}

static void add_template(char *out, const struct options *options, const struct engine *engine) {
    add(out, "%016llx %016llx", template_hash(engine, false), template_hash(engine, true));
    add(out, " tools %s reasoning %s %d", options->api.tool_call_parser,
        options->api.reasoning_parser, options->api.reasoning_budget);
    add(out, " open objects %d questions %d", options->api.open_objects, QUESTIONS_VERSION);
}

static void add_defaults(char *out, const struct options *options, const struct engine *engine) {
    const struct sampling_defaults *defaults = engine_sampling_defaults(engine);
    add(out, "config %d", (int)options->api.generation_config);
    if (!defaults) return;
    add(out, " t %g p %g min %g r %g k %d", defaults->temperature, defaults->top_p, defaults->min_p,
        defaults->repetition_penalty, defaults->top_k);
    if (defaults->n_suppressed > 0)
        add(out, " not %016llx",
            (unsigned long long)XXH3_64bits(defaults->suppressed,
                                            (size_t)defaults->n_suppressed *
                                                sizeof *defaults->suppressed));
}

void fingerprint_make(struct fingerprint *out, const struct options *options,
                      const struct engine *engine, const char *model_name) {
    const struct build_info build = build_info();
    assert(engine_memory(engine)->max_model_len > 0);
    *out = (struct fingerprint){.length = engine_memory(engine)->max_model_len};
    snprintf(out->build, sizeof out->build, "%s %s %s", build.version, build.commit, build.build);
    add_model(out, engine_model(engine));
    add_arithmetic(out, &options->engine, engine);
    add_template(out->template, options, engine);
    add_defaults(out->defaults, options, engine);
    add(out->name, "%s", model_name);
}
