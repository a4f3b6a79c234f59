/* A device that fails at work, through the engine and the scheduler: calls of all kinds fail, early
 * and late, permanently and once, with one step in flight and with two, with sampling on the device
 * and on the host, with graphs and without. Chunks, choices, preemptions and swapping are under way
 * at the time. Each request ends once. The failure is reported once and names the call. Later
 * requests are refused. Nothing leaks. */
#include <check.h>
#include <emu_failure.h>
#include <emu_memory.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scheduler/internal.h"
#include "support/suite_main.h"
#include "support/tiny_model.h"

enum { LENGTH = 48, BLOCK = 4, N_BLOCKS = 14, N_REQUESTS = 5, MAX_PROMPT = 30 };

static char *file;

static void make_file(void) {
    const struct tiny_model tiny = {.V = 300,
                                    .K = 16,
                                    .F = 16,
                                    .L = 1,
                                    .H = 2,
                                    .G = 1,
                                    .D = 16,
                                    .context_length = LENGTH,
                                    .dtype = DTYPE_F32,
                                    .untied = true,
                                    .seed = 7};
    file = tiny_model_temporary(&tiny);
}

static void drop_file(void) {
    unlink(file);
    free(file);
    emu_mend();
}

/* ---- requests and their events -------------------------------------------------------------- */

struct request_seen {
    struct generation generation;
    int32_t prompt[MAX_PROMPT];
    int n_events_last, n_ended, n_errors;
};

struct world {
    struct engine *engine;
    struct scheduler *scheduler;
    struct request_seen asked[N_REQUESTS];
    int n_failures, n_tokens;
    struct err failure;
    pthread_mutex_t mutex;
};

/* After a failure no token may arrive. */
static void on_events(void *arg, const struct event *events, int n) {
    struct world *world = arg;
    pthread_mutex_lock(&world->mutex);
    for (int i = 0; i < n; i++) {
        struct request_seen *seen = events[i].generation->owner;
        bool ended = events[i].finish != FINISH_NONE;
        ck_assert_int_eq(seen->n_events_last, 0);
        if (events[i].kind == EVENT_TOKEN) world->n_tokens++;
        seen->n_events_last += events[i].last;
        seen->n_ended += ended;
        seen->n_errors += events[i].finish == FINISH_ERROR;
    }
    pthread_mutex_unlock(&world->mutex);
}

static void on_failure(void *arg, const struct err *err) {
    struct world *world = arg;
    pthread_mutex_lock(&world->mutex);
    world->n_failures++;
    world->failure = *err;
    pthread_mutex_unlock(&world->mutex);
}

/* Prompts longer than a step, several choices, penalties, prompt logprobs. */
static void ask(struct request_seen *seen, int i) {
    struct generation *g = &seen->generation;
    const int lengths[N_REQUESTS] = {30, 3, 9, 17, 5};
    for (int p = 0; p < MAX_PROMPT; p++) seen->prompt[p] = 10 + (i * 31 + p * 7) % 240;
    g->prompt = seen->prompt;
    g->n_prompt = lengths[i];
    g->n = i == 2 ? 3 : 1;
    g->max_tokens = 10;
    g->prompt_logprobs = i == 3 ? 2 : -1;
    g->owner = seen;
    g->sampling = (struct sampling){.temperature = i % 2 ? 0.8f : 0,
                                    .top_p = 1,
                                    .repetition_penalty = i % 2 ? 1.2f : 1,
                                    /* settings that depend on the history */
                                    .no_repeat_ngram = i == 1 ? 3 : 0,
                                    .seed = (uint64_t)i,
                                    .n_logprobs = i == 4 ? 3 : -1};
}

static void begin(struct world *world, int in_flight, bool host_samples, bool eager) {
    const struct kv_config kv = {.L = 1, .G = 1, .D = 16, .block_size = BLOCK, .dtype = DTYPE_F16};
    struct engine_config config = {.model = file,
                                   .threads = 1,
                                   .device = DEVICE_CUDA,
                                   .dtype = COMPUTE_FLOAT16,
                                   .kv_dtype = KV_DTYPE_FLOAT16,
                                   .max_model_len = LENGTH,
                                   .max_num_seqs = 6,
                                   .max_num_batched_tokens = 16,
                                   .block_size = BLOCK,
                                   .in_flight = in_flight,
                                   .enforce_eager = eager,
                                   .host_samples = host_samples};
    config.kv_memory = (int64_t)kv_token_bytes(&kv) * BLOCK * N_BLOCKS;
    config.swap_space = config.kv_memory / 2;
    struct err err = {0};
    ck_assert_msg(engine_open(&world->engine, &config, &err) == STATUS_OK, "%s", err.message);
    struct scheduler_config wanted = {.max_num_seqs = 6,
                                      .max_num_batched_tokens = 16,
                                      .max_model_len = LENGTH,
                                      .max_queued_requests = N_REQUESTS,
                                      .max_queued_tokens = 1000,
                                      .n_blocks = engine_memory(world->engine)->n_blocks,
                                      .block_size = BLOCK,
                                      .max_logit_rows = 6,
                                      .prefix_caching = true,
                                      .swap_from = 1,
                                      .on_events = on_events,
                                      .on_failure = on_failure,
                                      .arg = world};
    world->scheduler = scheduler_new(&wanted, world->engine);
    pthread_mutex_init(&world->mutex, NULL);
}

static void submit_all(struct world *world) {
    struct err err = {0};
    for (int i = 0; i < N_REQUESTS; i++) {
        ask(&world->asked[i], i);
        ck_assert_int_eq(scheduler_submit(world->scheduler, &world->asked[i].generation, &err),
                         STATUS_OK);
    }
}

/* Returns whether the device has failed, and checks the requests accordingly. */
static bool check(struct world *world, const char *words) {
    const bool failed = world->n_failures > 0;
    struct err err = {0};
    int errors = 0;
    for (int i = 0; i < N_REQUESTS; i++) {
        const struct request_seen *seen = &world->asked[i];
        ck_assert_int_eq(seen->n_events_last, 1);
        ck_assert_int_eq(seen->n_ended, seen->generation.n);
        errors += seen->n_errors;
    }
    ck_assert_int_eq(engine_failed(world->engine, NULL), failed);
    if (!failed) {
        ck_assert_int_eq(errors, 0);
        ck_assert_int_eq(world->n_tokens, (N_REQUESTS + 2) * 10);
        return false;
    }
    ck_assert_int_eq(world->n_failures, 1);
    ck_assert_int_gt(errors, 0);
    ck_assert_msg(strstr(world->failure.message, words), "\"%s\" has no \"%s\"",
                  world->failure.message, words);
    ck_assert_str_eq(world->failure.code, "device_failed");
    struct request_seen late = {0};
    ask(&late, 1);
    ck_assert_int_eq(scheduler_submit(world->scheduler, &late.generation, &err),
                     STATUS_UNAVAILABLE);
    return true;
}

static void end(struct world *world) {
    scheduler_free(world->scheduler);
    engine_close(world->engine);
    pthread_mutex_destroy(&world->mutex);
    emu_mend();
    ck_assert_uint_eq(emu_memory_used(), 0);
}

/* ---- failures ------------------------------------------------------------------------------- */

struct failure {
    enum emu_call kind;
    const char *words;
    int at[6]; /* number of calls after the requests were submitted; 0: end of the list */
    bool must; /* the failure happens for any number of calls per step */
};

static const struct failure failures[] = {
    {EMU_LAUNCH, "launch", {1, 2, 9, 30, 61, 90}, true},
    {EMU_COPY, "", {1, 2, 3, 5, 14, 33}, true},
    {EMU_WAIT, "waiting", {1, 2, 3, 4, 11, 24}, true},
    {EMU_RECORD, "recording", {1, 2, 3, 4, 11, 24}, true},
    {EMU_ALLOCATE, "memory", {1, 2, 1, 3, 4, 0}, false},
};
enum { N_FAILURES = sizeof failures / sizeof *failures };

static bool watched; /* a build in which kernels take several times as long */

/* The run's number selects the other settings. Returns whether the device has failed. */
static bool run_failing(const struct failure *failure, int n, int in_flight, int number) {
    struct world *world = mem_calloc(1, sizeof *world);
    const bool for_good = number % 2 == 0, host_samples = number % 3 == 2;
    begin(world, in_flight, host_samples, number % 4 >= 2);
    submit_all(world);
    emu_break(failure->kind, n, for_good);
    while (scheduler_step(world->scheduler)) scheduler_check(world->scheduler);
    const bool failed = check(world, failure->words);
    if (failure->must)
        ck_assert_msg(failed, "call %d of kind %d was not met", n, (int)failure->kind);
    end(world);
    free(world);
    return failed;
}

START_TEST(everything_ends) {
    const struct failure *failure = &failures[_i];
    int met = 0;
    for (int i = 0; i < 6 && failure->at[i] > 0; i++) {
        if (watched && i % 3 != 2) continue;
        met += run_failing(failure, failure->at[i], 1, i);
        met += run_failing(failure, failure->at[i], 2, i + 1);
    }
    ck_assert_int_gt(met, 0);
}
END_TEST

/* Waiting, running and swapped requests are all served while the device works. */
START_TEST(nothing_fails_of_itself) {
    struct world *world = mem_calloc(1, sizeof *world);
    struct scheduler_stats stats;
    begin(world, 2, false, false);
    submit_all(world);
    while (scheduler_step(world->scheduler)) scheduler_check(world->scheduler);
    ck_assert(!check(world, ""));
    scheduler_stats(world->scheduler, &stats);
    ck_assert_msg(stats.preemptions > 0 && stats.swapped_out > 0,
                  "%d preemptions, %d blocks swapped", (int)stats.preemptions,
                  (int)stats.swapped_out);
    end(world);
    free(world);
}
END_TEST

/* On the scheduler's thread, which sleeps after the failure until it is told to end. */
START_TEST(a_thread_goes_on_to_its_end) {
    struct world *world = mem_calloc(1, sizeof *world);
    begin(world, 2, false, false);
    emu_break(EMU_WAIT, 12, true);
    scheduler_start(world->scheduler);
    submit_all(world);
    for (int ended = 0; ended < N_REQUESTS;) {
        usleep(1000);
        pthread_mutex_lock(&world->mutex);
        ended = 0;
        for (int i = 0; i < N_REQUESTS; i++) ended += world->asked[i].n_events_last;
        pthread_mutex_unlock(&world->mutex);
    }
    ck_assert(check(world, "waiting"));
    end(world);
    free(world);
}
END_TEST

/* Opens another engine on a device that works again. */
START_TEST(a_failure_is_forgotten_with_its_backend) {
    struct world *world = mem_calloc(1, sizeof *world);
    begin(world, 2, false, false);
    submit_all(world);
    emu_break(EMU_COPY, 4, true);
    while (scheduler_step(world->scheduler)) {
    }
    ck_assert(check(world, ""));
    end(world);
    memset(world, 0, sizeof *world);
    begin(world, 2, false, false);
    submit_all(world);
    while (scheduler_step(world->scheduler)) {
    }
    ck_assert(!check(world, ""));
    end(world);
    free(world);
}
END_TEST

/* A start is refused with one sentence, at each call that fails during the start. */
START_TEST(a_start_on_a_broken_device_is_refused) {
    const struct engine_config config = {.model = file,
                                         .threads = 1,
                                         .device = DEVICE_CUDA,
                                         .max_num_seqs = 2,
                                         .max_num_batched_tokens = 8,
                                         .block_size = BLOCK};
    for (int kind = 0; kind < EMU_ALLOCATE; kind++) {
        bool failed = true;
        for (int n = 1; failed; n += watched ? 17 : 4) {
            struct engine *engine;
            struct err err = {0};
            emu_break((enum emu_call)kind, n, n % 8 != 1);
            failed = engine_open(&engine, &config, &err) != STATUS_OK;
            ck_assert(failed == emu_is_broken());
            if (failed) {
                ck_assert_ptr_null(engine);
                ck_assert_int_eq(err.status, STATUS_SERVER_ERROR);
                ck_assert_msg(strstr(err.message, "The GPU has failed"), "%s", err.message);
            }
            engine_close(engine);
            emu_mend();
            ck_assert_uint_eq(emu_memory_used(), 0);
        }
    }
}
END_TEST

int main(int n_arguments, char **arguments) {
    assert(n_arguments > 0);
    watched = suite_is_watched(arguments[0]);
    Suite *suite = suite_create("cuda_failures");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 300);
    tcase_add_unchecked_fixture(core, make_file, drop_file);
    tcase_add_loop_test(core, everything_ends, 0, N_FAILURES);
    tcase_add_test(core, nothing_fails_of_itself);
    tcase_add_test(core, a_thread_goes_on_to_its_end);
    tcase_add_test(core, a_failure_is_forgotten_with_its_backend);
    tcase_add_test(core, a_start_on_a_broken_device_is_refused);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
