/* What the commands share: from options to an engine that is ready. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/commands.h"

/* So few rows ride along in a step that waits for memory anyway. */
#define SWAP_FROM 64

int print_error(const struct err *err) {
    fprintf(stderr, "penstock: %s\n", err->message);
    return err->status == STATUS_USAGE ? 2 : 1;
}

/* ---- a progress bar that only the patient see ----------------------------------------------- */

static uint64_t progress_start;
static bool progress_shown;

/* Draws nothing in the first second: most models are loaded by then. */
static void draw_progress(void *arg, const char *what, double part) {
    (void)arg;
    if (now_ns() - progress_start < 1000000000ull && !progress_shown) return;
    progress_shown = true;
    char bar[31];
    int full = (int)(part * 30);
    memset(bar, ' ', sizeof bar);
    memset(bar, '=', (size_t)(full > 30 ? 30 : full));
    bar[30] = 0;
    fprintf(stderr, "\r%s [%s] %3.0f %%", what, bar, part * 100);
}

static void end_progress(void) {
    if (progress_shown) fprintf(stderr, "\r\033[K");
}

/* ---- options to settings -------------------------------------------------------------------- */

struct engine_config engine_config_from(const struct options *options) {
    return (struct engine_config){
        .model = options->model,
        .threads = options->threads,
        .float32 = strcmp(options->dtype, "float32") == 0,
        .dtype = options->dtype,
        .quantization = options->quantization,
        .free_order = !options->deterministic,
        .dummy = strcmp(options->load_format, "dummy") == 0,
        .kv_dtype = options->kv_cache_dtype,
        .max_model_len = options->max_model_len,
        .max_num_seqs = options->max_num_seqs,
        .max_num_batched_tokens = options->max_num_batched_tokens,
        .device = options->device,
        .in_flight = options->steps_in_flight,
        .enforce_eager = options->enforce_eager,
        .block_size = options->block_size,
        .kv_memory = options->kv_cache_memory,
        .gpu_memory_utilization =
            options->gpu_memory_utilization > 0 ? options->gpu_memory_utilization : -1,
        .swap_space = options->swap_space,
        .progress = isatty(STDERR_FILENO) ? draw_progress : NULL,
    };
}

/* Rows that a step of decodes may take beside them: as many as take about as long again. */
static int mixed_prefill_tokens(const struct options *options, const struct engine *engine) {
    if (options->max_mixed_prefill_tokens > 0) return options->max_mixed_prefill_tokens;
    return engine_on_host(engine) ? 16 : 512;
}

struct scheduler_config scheduler_config_from(const struct options *options,
                                              const struct engine *engine) {
    const struct engine_memory *memory = engine_memory(engine);
    return (struct scheduler_config){
        .max_num_seqs = options->max_num_seqs,
        .max_num_batched_tokens = options->max_num_batched_tokens,
        .max_mixed_prefill_tokens = mixed_prefill_tokens(options, engine),
        .max_model_len = memory->max_model_len,
        .max_queued_requests = options->max_queued_requests,
        .max_queued_tokens = options->max_queued_tokens,
        .n_blocks = memory->n_blocks,
        .block_size = memory->block_size,
        .max_logit_rows = options->max_num_seqs,
        .prefix_caching = options->enable_prefix_caching,
        .swap_from = SWAP_FROM,
    };
}

int open_engine(struct engine **engine, const struct options *options) {
    struct err err;
    struct engine_config config = engine_config_from(options);
    progress_start = now_ns();
    progress_shown = false;
    enum status status = engine_open(engine, &config, &err);
    end_progress();
    return status ? print_error(&err) : 0;
}
