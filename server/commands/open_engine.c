/* Opens the engine of a command and the engine of its draft model. */
#include <assert.h>
#include <unistd.h>

#include "engine/peers/peers.h"
#include "server/commands/commands.h"

static enum status open_with_progress(struct engine **engine, struct engine_config *config,
                                      const struct options *options, struct err *err) {
    struct progress progress;
    config->progress = progress_step;
    config->progress_arg = &progress;
    progress_begin(&progress, "loading",
                   options->log.format == LOG_TEXT && terminal_has_codes(STDERR_FILENO));
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
        .model = options->scheduler.speculation.model,
        .threads = options->engine.threads,
        .cpu_affinity = options->engine.cpu_affinity,
        .dtype = options->engine.dtype,
        .kv_dtype = options->engine.kv_dtype,
        .max_num_seqs = min_int(options->engine.max_num_seqs, DRAFT_SEQUENCES),
        .max_num_batched_tokens = DRAFT_ROWS,
        .in_flight = 1,
        .enforce_eager = options->engine.enforce_eager,
        .warm_up = options->engine.warm_up,
        .block_size = options->engine.block_size,
    };
}

int open_engine(struct engine **engine, const struct options *options) {
    struct err err;
    if (peers_started() && !options->engine.peers) {
        print_failure("mpirun started several processes, which is only for `penstock serve`; start "
                      "this command without mpirun");
        return 2;
    }
    struct engine_config config = options->engine;
    struct engine_config drafter = draft_config_from(options);
    if (options->scheduler.speculation.method == SPECULATION_DRAFT_MODEL) config.drafter = &drafter;
    return open_with_progress(engine, &config, options, &err) ? print_error(&err) : 0;
}

enum status check_engine(struct engine_memory *memory, const struct options *options,
                         struct err *err) {
    struct engine_config config = options->engine, drafter = draft_config_from(options);
    if (options->scheduler.speculation.method == SPECULATION_DRAFT_MODEL) config.drafter = &drafter;
    return engine_check(memory, &config, err);
}

/* ---- a draft model -------------------------------------------------------------------------- */

int open_draft_engine(struct engine **draft, const struct engine *engine,
                      const struct options *options) {
    struct err err;
    assert(engine);
    *draft = NULL;
    if (options->scheduler.speculation.method != SPECULATION_DRAFT_MODEL) return 0;
    struct engine_config config = draft_config_from(options);
    config.device = engine_on_host(engine) ? DEVICE_CPU : DEVICE_CUDA;
    config.drafts_for = engine;
    if (open_with_progress(draft, &config, options, &err) == STATUS_OK) return 0;
    struct buf message = {0};
    options_message(err.message, &message);
    print_failure("--speculative-config: the draft model cannot be used: %s", message.data);
    buf_free(&message);
    return 1;
}
