/* Measures the cost of draft rows, and whether the scheduler estimates it correctly: a known answer
 * is drafted again, with a given share of wrong tokens, on the engine and the scheduler only.
 *
 *     replay MODEL THREADS        prints JSON
 *     replay MODEL THREADS cpu    measures only CPU time: for a busy machine, 1 thread
 *
 * "costs": microseconds of a step by its rows, one sequence, all drafts right. "replay": for each
 * share of right drafts, the time of all steps, and the scheduler's estimate when it planned them
 * (step_cost.h). bench/speculation.py runs it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "scheduler/internal.h"
#include "support/replay_drafter.h"

enum { N_PROMPT = 32, N_OUT = 224, LENGTH = 512, REPEATS = 3 };

struct bench {
    struct engine *engine;
    struct replay replay;
    int32_t prompt[N_PROMPT], answer[N_OUT];
    int n;      /* tokens of the answer so far */
    bool ended; /* the request has ended */
    bool on_cpu;
};

/* The times of a run: its steps after the prompt. */
struct times {
    int steps, rows;
    double ns, believed_ns;
};

static int foresee(void *owner, int choice, int n_known, int32_t *out, int n) {
    const struct bench *bench = owner;
    int at = n_known - N_PROMPT, i = 0;
    (void)choice;
    for (; i < n && at + i < N_OUT; i++) out[i] = bench->answer[at + i];
    return i;
}

static void on_events(void *arg, const struct event *events, int n) {
    struct bench *bench = arg;
    for (int i = 0; i < n; i++) {
        int32_t id = events[i].sampled.id;
        /* drafts change no token */
        if (bench->replay.V > 0 && bench->answer[bench->n] != id) abort();
        bench->answer[bench->n++] = id;
        bench->ended |= events[i].last;
    }
}

static struct scheduler *new_scheduler(struct bench *bench, const struct drafter *drafter,
                                       int depth, bool fixed) {
    const struct engine_memory *memory = engine_memory(bench->engine);
    const struct scheduler_config config = {.max_num_seqs = 1,
                                            .max_num_batched_tokens =
                                                engine_max_rows(bench->engine),
                                            .max_model_len = LENGTH,
                                            .max_queued_requests = 1,
                                            .max_queued_tokens = LENGTH,
                                            .n_blocks = memory->n_blocks,
                                            .block_size = memory->block_size,
                                            .max_logit_rows = engine_max_logit_rows(bench->engine),
                                            .speculation = {.max_tokens = depth},
                                            .fixed_drafts = fixed,
                                            .drafter = depth > 0 ? drafter : NULL,
                                            .on_events = on_events,
                                            .arg = bench};
    return scheduler_new(&config, bench->engine);
}

static double clock_ns(const struct bench *bench) {
    struct timespec at;
    clock_gettime(bench->on_cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e9 + (double)at.tv_nsec;
}

/* Runs the request once, step by step. */
static struct times run(struct bench *bench, struct scheduler *s, int depth) {
    struct generation generation = {
        .prompt = bench->prompt,
        .n_prompt = N_PROMPT,
        .n = 1,
        .max_tokens = N_OUT,
        .max_drafts = depth,
        .sampling = {.top_p = 1, .repetition_penalty = 1, .n_logprobs = -1},
        .prompt_logprobs = -1,
        .owner = bench};
    struct times times = {0};
    struct err err;
    bench->n = 0;
    bench->ended = false;
    if (scheduler_submit(s, &generation, &err) != STATUS_OK) abort();
    while (!bench->ended) {
        const struct step_cost believed = s->cost;
        double began = clock_ns(bench);
        scheduler_step(s);
        double took = clock_ns(bench) - began;
        if (s->plan.shape.prefill_rows > 0) continue;
        times.steps++;
        times.rows += s->plan.rows;
        times.ns += took;
        times.believed_ns += step_cost_ns(&believed, s->plan.rows);
    }
    return times;
}

static double step_us(struct bench *bench, const struct drafter *drafter, int depth) {
    struct scheduler *s = new_scheduler(bench, drafter, depth, true);
    double least = 0;
    bench->replay.wrong = 0;
    for (int i = 0; i < REPEATS; i++) {
        const struct times times = run(bench, s, depth);
        double us = times.ns / times.steps * 1e-3;
        if (i == 0 || us < least) least = us;
    }
    scheduler_free(s);
    return least;
}

static void print_replay(struct bench *bench, const struct drafter *drafter, int right) {
    struct scheduler *s = new_scheduler(bench, drafter, MAX_DRAFTS, false);
    struct times times = {0};
    bench->replay.wrong = 100 - right;
    for (int i = 0; i <= REPEATS; i++) { /* the first run is for learning */
        times = run(bench, s, MAX_DRAFTS);
        if (i == 0) continue;
        printf(
            "%s{\"right\": %d, \"steps\": %d, \"rows\": %d, \"us\": %.0f, \"believed_us\": %.0f}",
            right == 0 && i == 1 ? "" : ", ", right, times.steps, times.rows, times.ns * 1e-3,
            times.believed_ns * 1e-3);
    }
    scheduler_free(s);
}

int main(int n, char **arguments) {
    static const int depths[] = {0, 1, 2, 3, 5, 7, 9, 11, 13, 15}, rights[] = {0, 50, 80, 100};
    static struct bench bench;
    struct err err;
    bench.on_cpu = n == 4 && strcmp(arguments[3], "cpu") == 0;
    if (n != 3 && !bench.on_cpu) return fprintf(stderr, "replay MODEL THREADS [cpu]\n"), 2;
    const struct engine_config config = {.model = arguments[1],
                                         .threads = atoi(arguments[2]),
                                         .max_model_len = LENGTH,
                                         .max_num_seqs = 1,
                                         .max_num_batched_tokens = 64,
                                         .max_logit_rows = 1 + MAX_DRAFTS,
                                         .block_size = 16};
    if (engine_open(&bench.engine, &config, &err)) return fprintf(stderr, "%s\n", err.message), 1;
    for (int i = 0; i < N_PROMPT; i++) bench.prompt[i] = 1000 + 37 * i;
    bench.replay = (struct replay){.foresee = foresee, .random = 1};
    const struct drafter drafter = replay_drafter(&bench.replay);
    step_us(&bench, &drafter, 0); /* records the answer */
    bench.replay.V = engine_model(bench.engine)->V;
    printf("{\"costs\": {");
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++)
        printf("%s\"%d\": %.1f", i ? ", " : "", depths[i] + 1,
               step_us(&bench, &drafter, depths[i]));
    printf("}, \"replay\": [");
    for (size_t i = 0; i < sizeof rights / sizeof *rights && !bench.on_cpu; i++)
        print_replay(&bench, &drafter, rights[i]);
    printf("]}\n");
    engine_close(bench.engine);
    return 0;
}
