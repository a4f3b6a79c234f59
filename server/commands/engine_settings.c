/* Code that the commands share: settings from options, opening engines, errors, input, waiting. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "server/commands/commands.h"

int print_error(const struct err *err) {
    print_failure("%s", err->message);
    return err->status == STATUS_USAGE ? 2 : 1;
}

void print_text(const char *text, size_t length) {
    bool is_terminal = isatty(STDOUT_FILENO);
    for (size_t at = 0; at < length;) {
        size_t n = utf8_character(text + at, length - at);
        uint32_t code = n ? utf8_code_point(text + at, n) : 0;
        bool steers = (code < ' ' && code != '\n' && code != '\t') || (code >= 0x7F && code < 0xA0);
        if (steers && is_terminal)
            printf("\\x%02x", n ? (unsigned)code : (unsigned char)text[at]);
        else
            fwrite(text + at, 1, n ? n : 1, stdout);
        at += n ? n : 1;
    }
}

void wait_briefly(pthread_cond_t *condition, pthread_mutex_t *mutex) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_cond_timedwait(condition, mutex, &until);
}

/* ---- options to settings -------------------------------------------------------------------- */

/* Drafts can be guessed only after the host has seen the last token. With two steps in flight it
 * has not yet seen it when it plans a step. */
static int steps_in_flight(const struct options *options) {
    bool speculates = options->speculation.method != SPECULATION_NONE;
    return options->steps_in_flight == 0 && speculates ? 1 : options->steps_in_flight;
}

/* One logit row per sequence, and rows for the drafts of one sequence. Otherwise a small number of
 * sequences would leave no rows for drafts. */
static int logit_rows(const struct options *options) {
    bool speculates = options->speculation.method != SPECULATION_NONE;
    return options->max_num_seqs + (speculates ? options->speculation.max_tokens : 0);
}

struct engine_config engine_config_from(const struct options *options) {
    return (struct engine_config){
        .model = options->model,
        .weight_cache = options->weight_cache,
        .chat_template = options->chat_template,
        .threads = options->threads,
        .cpu_affinity = options->cpu_affinity,
        .ranks = options->tensor_parallel_size,
        .dtype = options->dtype,
        .quantization = options->quantization,
        .allow_batch_variant_gemm = !options->deterministic,
        .wgmma = options->wgmma,
        .persistent_step = options->persistent_step,
        .dummy = options->load_format == LOAD_DUMMY,
        .kv_dtype = options->kv_cache_dtype,
        .max_model_len = options->max_model_len,
        .max_num_seqs = options->max_num_seqs,
        .max_num_batched_tokens = options->max_num_batched_tokens,
        .max_logit_rows = logit_rows(options),
        .device = options->device,
        .in_flight = steps_in_flight(options),
        .enforce_eager = options->enforce_eager,
        .warm_up = options->warm_up,
        .block_size = options->block_size,
        .kv_memory = options->kv_cache_memory,
        .window_blocks = -1,
        .gpu_memory_utilization =
            options->gpu_memory_utilization > 0 ? options->gpu_memory_utilization : -1,
        .swap_space = options->swap_space,
    };
}

struct scheduler_config scheduler_config_from(const struct options *options,
                                              const struct engine *engine) {
    const struct engine_memory *memory = engine_memory(engine);
    assert(memory->max_model_len > 0 && memory->n_blocks > 0);
    return (struct scheduler_config){
        .max_num_seqs = options->max_num_seqs,
        .max_num_batched_tokens = options->max_num_batched_tokens,
        .max_mixed_prefill_tokens = options->max_mixed_prefill_tokens,
        .itl_target_ns = (uint64_t)options->itl_target_ms * 1000000,
        .max_model_len = memory->max_model_len,
        .max_queued_requests = options->max_queued_requests,
        .max_queued_tokens = options->max_queued_tokens,
        .n_blocks = memory->n_blocks,
        .block_size = memory->block_size,
        .n_window_blocks = memory->n_window_blocks,
        .window = memory->window,
        .max_logit_rows = logit_rows(options),
        .prefix_caching = options->enable_prefix_caching,
        .speculation = options->speculation,
        .fixed_drafts = options->always_speculate,
    };
}

static enum status open_with_progress(struct engine **engine, struct engine_config *config,
                                      const struct options *options, struct err *err) {
    struct progress progress;
    config->progress = progress_step;
    config->progress_arg = &progress;
    progress_begin(&progress, options->log_format == LOG_TEXT && terminal_has_codes(STDERR_FILENO));
    enum status status = engine_open(engine, config, err);
    progress_end(&progress);
    return status;
}

/* The maximum number of sequences in a pass of the draft model (if more run, no sequence drafts:
 * MAX_COST_ROWS), and its rows: a long prompt is computed in chunks of this size next to the main
 * model's steps. */
enum { DRAFT_SEQUENCES = 127, DRAFT_ROWS = 128 };

static struct engine_config draft_config_from(const struct options *options) {
    return (struct engine_config){
        .model = options->speculation.model,
        .threads = options->threads,
        .cpu_affinity = options->cpu_affinity,
        .dtype = options->dtype,
        .kv_dtype = options->kv_cache_dtype,
        .max_num_seqs = min_int(options->max_num_seqs, DRAFT_SEQUENCES),
        .max_num_batched_tokens = DRAFT_ROWS,
        .in_flight = 1,
        .enforce_eager = options->enforce_eager,
        .warm_up = options->warm_up,
        .block_size = options->block_size,
    };
}

int open_engine(struct engine **engine, const struct options *options) {
    struct err err;
    struct engine_config config = engine_config_from(options);
    struct engine_config drafter = draft_config_from(options);
    if (model_path_check(options)) return 1;
    if (options->speculation.method == SPECULATION_DRAFT_MODEL) config.drafter = &drafter;
    return open_with_progress(engine, &config, options, &err) ? print_error(&err) : 0;
}

/* ---- a draft model -------------------------------------------------------------------------- */

int check_drafts(const struct options *options) {
    struct options draft = *options;
    if (options->speculation.method != SPECULATION_DRAFT_MODEL) return 0;
    draft.model = options->speculation.model;
    return model_path_check(&draft);
}

int open_draft_engine(struct engine **draft, const struct engine *engine,
                      const struct options *options) {
    assert(engine);
    struct err err;
    *draft = NULL;
    if (options->speculation.method != SPECULATION_DRAFT_MODEL) return 0;
    struct engine_config config = draft_config_from(options);
    config.device = engine_on_host(engine) ? DEVICE_CPU : DEVICE_CUDA;
    config.drafts_for = engine;
    if (open_with_progress(draft, &config, options, &err) == STATUS_OK) return 0;
    print_failure("--speculative-config: the draft model cannot be used: %s", err.message);
    return 1;
}
