/* Speeds, measured through the scheduler. docs/cuda/measuring.md, "Serving", defines each
 * figure. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gpu/serve/serve.h"

static const struct sampling greedy = SAMPLING_GREEDY;

/* n concurrent requests of equal length, and optionally the time of each op. */
struct batch {
    int n, n_prompt, n_output, max_rows;
    double max_s;
    struct op_times *times; /* or NULL */
};

/* Runs a batch. The caller reads the load and closes it. */
static bool run_batch(struct load *load, struct engine *engine, const struct batch *b,
                      int max_seqs) {
    load_open(load, engine, b->n, max_seqs < b->n ? max_seqs : b->n, b->max_rows);
    for (int i = 0; i < b->n; i++)
        load_add(load, b->n_prompt, b->n_output, &greedy, (uint64_t)i + 1);
    if (b->times) engine_time_ops(engine, b->times);
    return load_run(load, b->max_s);
}

static void close_batch(struct load *load, const struct batch *b) {
    struct engine *engine = load->engine;
    load_close(load);
    if (b->times) engine_time_ops(engine, NULL);
}

/* How products are multiplied, after a figure's description. */
static const char *by_wgmma(const struct run *run) {
    return run->wgmma ? ", wgmma" : "";
}

/* Writes how many sequences of a batch the cache holds at once. */
static void note_pool(char note[96], const struct engine *engine, const struct batch *b, bool cut) {
    const struct engine_memory *memory = engine_memory(engine);
    const int64_t blocks =
        (b->n_prompt + b->n_output + memory->block_size - 1) / memory->block_size;
    snprintf(note, 96, "the cache holds %" PRId64 " requests at once%s", memory->n_blocks / blocks,
             cut ? "; cut short: the time was up" : "");
}

static int smaller(const struct run *run, int n, int tiny) {
    return run->tiny ? tiny : n;
}

/* ---- decoding ------------------------------------------------------------------------------- */

/* Returns the tokens per second of one request after its first token. */
static double alone_rate(const struct load *load) {
    const struct load_request *r = &load->request[0];
    double seconds = (double)(r->token_ns[r->n - 1] - r->token_ns[0]) * 1e-9;
    return r->n > 1 && seconds > 0 ? (r->n - 1) / seconds : 0;
}

/* Returns the number of steps that ran as one grid; the figure's note shows it too. */
static uint64_t decode_alone(struct run *run, struct engine *engine, const char *id, int n_prompt,
                             int n_output) {
    struct load load;
    const uint64_t before = engine_one_grid_steps(engine);
    char note[64] = "graphs";
    const struct batch b = {1, n_prompt, n_output, 512, time_left(run), NULL};
    const bool good = run_batch(&load, engine, &b, 1);
    const uint64_t grids = engine_one_grid_steps(engine) - before;
    if (grids) snprintf(note, sizeof note, "%" PRIu64 " steps as one grid", grids);
    if (!good) {
        write_failure(run, id, "a request failed");
    } else if (!load.cut_short) {
        struct figure f = {.id = id,
                           .model = engine_model(engine)->name,
                           .what = "one request decodes",
                           .unit = "tok/s",
                           .value = alone_rate(&load),
                           .note = note};
        count_step(engine, 1, n_prompt + n_output / 2.0, &f.bytes, &f.flops);
        f.us = f.value > 0 ? 1e6 / f.value : 0;
        write_figure(run, &f);
    } else {
        write_failure(run, id, "the time was up");
    }
    close_batch(&load, &b);
    return grids;
}

static void decode_many(struct run *run, struct engine *engine, const char *id,
                        const struct batch *b, int max_seqs) {
    struct load load;
    if (!run_batch(&load, engine, b, max_seqs)) {
        write_failure(run, id, "a request failed");
    } else {
        char what[96], note[96];
        snprintf(what, sizeof what, "%d requests of %d in, %d out%s", b->n, b->n_prompt,
                 b->n_output, by_wgmma(run));
        note_pool(note, engine, b, load.cut_short);
        struct figure f = {.id = id,
                           .model = engine_model(engine)->name,
                           .what = what,
                           .unit = "tok/s",
                           .value = load_tokens(&load) / load_seconds(&load),
                           .note = note};
        /* all requests run in each step; ignores prefill */
        if (b->n <= max_seqs && !load.cut_short) {
            count_step(engine, b->n, b->n_prompt + b->n_output / 2.0, &f.bytes, &f.flops);
            f.us = f.value > 0 ? 1e6 * b->n / f.value : 0;
        }
        write_figure(run, &f);
    }
    close_batch(&load, b);
}

/* ---- prompts -------------------------------------------------------------------------------- */

static void prefill(struct run *run, struct engine *engine, int n_prompt) {
    enum { TIMES = 3 };
    double best_us = 0;
    for (int i = 0; i < TIMES; i++) {
        struct load load;
        const struct batch b = {1, n_prompt, 1, n_prompt, time_left(run), NULL};
        bool good = run_batch(&load, engine, &b, 1);
        double us = (double)(load.request[0].token_ns[0] - load.request[0].submitted_ns) * 1e-3;
        close_batch(&load, &b);
        if (!good || load.cut_short) {
            write_failure(run, "G5", "a request failed, or the time was up");
            return;
        }
        if (i == 0 || us < best_us) best_us = us;
    }
    char what[64];
    snprintf(what, sizeof what, "a prompt of %d tokens%s", n_prompt, by_wgmma(run));
    const struct model_config *m = engine_model(engine);
    double step_bytes, one, pairs = (double)n_prompt * (n_prompt + 1) / 2;
    count_step(engine, 1, 0, &step_bytes, &one);
    double head = 2.0 * m->V * m->K;
    write_figure(run, &(struct figure){.id = "G5",
                                       .model = m->name,
                                       .what = what,
                                       .unit = "tok/s",
                                       .value = n_prompt / best_us * 1e6,
                                       .us = best_us,
                                       .bytes = step_bytes,
                                       .flops = n_prompt * (one - head) + head +
                                                4.0 * pairs * m->H * m->D * m->L});
}

/* ---- streams while prompts arrive ----------------------------------------------------------- */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the 99th percentile of the milliseconds between tokens of the first `streams` requests,
 * from the arrival of the first prompt. */
static double gap_p99_ms(const struct load *load, int streams, uint64_t from_ns, int *n_gaps) {
    int most = 0, n = 0;
    for (int i = 0; i < streams; i++) most += load->request[i].n;
    double *gap = mem_calloc((size_t)most + 1, sizeof *gap), p99 = 0;
    for (int i = 0; i < streams; i++) {
        const struct load_request *r = &load->request[i];
        for (int t = 1; t < r->n; t++)
            if (r->token_ns[t] > from_ns)
                gap[n++] = (double)(r->token_ns[t] - r->token_ns[t - 1]) * 1e-6;
    }
    qsort(gap, (size_t)n, sizeof *gap, ascending);
    if (n > 0) p99 = gap[(int)((n - 1) * 0.99)];
    free(gap);
    *n_gaps = n;
    return p99;
}

static void streams_and_prompts(struct run *run, struct engine *engine) {
    const int streams = smaller(run, 32, 2), prompts = smaller(run, 20, 2), budget = 512;
    const int length = smaller(run, 2048, 16), output = smaller(run, 600, 12);
    const uint64_t every_ns = run->tiny ? 1000000 : 300000000;
    struct load load;
    struct timespec pause = {.tv_nsec = (long)every_ns};
    int n_gaps;
    bool good = true;
    load_open(&load, engine, streams + prompts, streams + prompts, budget);
    for (int i = 0; i < streams; i++)
        load_add(&load, smaller(run, 128, 4), output, &greedy, (uint64_t)i + 1);
    for (int i = 0; i < prompts; i++)
        load_add(&load, length, smaller(run, 16, 2), &greedy, (uint64_t)(streams + i) + 1);
    for (int i = 0; i < streams; i++) good = load_submit(&load, &load.request[i]) && good;
    load_start(&load);
    nanosleep(&pause, NULL);
    uint64_t from_ns = now_ns();
    for (int i = streams; i < streams + prompts; i++) {
        good = load_submit(&load, &load.request[i]) && good;
        nanosleep(&pause, NULL);
    }
    load_wait(&load, time_left(run));
    double p99 = gap_p99_ms(&load, streams, from_ns, &n_gaps);
    char what[112], note[96];
    snprintf(what, sizeof what,
             "99th percentile between two tokens of 32 streams while prompts of 2048 arrive%s",
             by_wgmma(run));
    snprintf(note, sizeof note, "%d gaps, %d rows a step%s", n_gaps, budget,
             load.cut_short ? ", cut short: the time was up" : "");
    if (good)
        write_figure(run, &(struct figure){.id = "G6",
                                           .model = engine_model(engine)->name,
                                           .what = what,
                                           .unit = "ms",
                                           .value = p99,
                                           .note = note});
    else
        write_failure(run, "G6", "a request was refused");
    load_close(&load);
}

/* ---- inside steps --------------------------------------------------------------------------- */

static void gaps_between_steps(struct run *run, struct engine *engine, int S) {
    static struct op_times times;
    struct load load;
    times = (struct op_times){.only_steps = true};
    const struct batch b = {S,   smaller(run, 16, 4), smaller(run, 200, 6),
                            512, time_left(run),      &times};
    bool good = run_batch(&load, engine, &b, S);
    close_batch(&load, &b);
    if (!good) {
        write_failure(run, "G7", "a request failed");
        return;
    }
    char what[64];
    snprintf(what, sizeof what, "no kernel runs between two steps of %d", S);
    double n = times.calls[OP_BETWEEN] > 1 ? (double)times.calls[OP_BETWEEN] - 1 : 1;
    write_figure(run, &(struct figure){
                          .id = "G7",
                          .model = engine_model(engine)->name,
                          .what = what,
                          .unit = "us",
                          .value = (double)times.ns[OP_BETWEEN] * 1e-3 / n,
                          .note = "by the device's clock, the copy of the step's arrays counted"});
}

/* Varied settings, mixed in one batch. */
static struct sampling mixed(int i) {
    struct sampling s = greedy;
    if (i % 8 == 0) return s;
    s.temperature = 0.5f + 0.1f * (float)(i % 8);
    s.seed = (uint64_t)i;
    if (i % 4 == 1) s.top_p = 0.9f;
    if (i % 4 == 2) s.top_k = 40;
    if (i % 4 == 3) s.min_p = 0.05f;
    if (i % 8 >= 6) s.presence_penalty = 0.5f, s.repetition_penalty = 1.1f;
    if (i % 8 == 5) s.n_logprobs = 5;
    return s;
}

static void share_of_sampling(struct run *run, struct engine *engine) {
    static struct op_times times;
    const int n = smaller(run, 256, 3);
    struct load load;
    uint64_t all = 0;
    times = (struct op_times){0};
    load_open(&load, engine, n, n, 512);
    for (int i = 0; i < n; i++) {
        struct sampling sampling = mixed(i);
        load_add(&load, smaller(run, 128, 4), smaller(run, 64, 4), &sampling, (uint64_t)i + 1);
    }
    engine_time_ops(engine, &times);
    bool good = load_run(&load, time_left(run));
    load_close(&load);
    engine_time_ops(engine, NULL);
    for (int op = 0; op < N_OPS; op++) all += op == OP_BETWEEN ? 0 : times.ns[op];
    double us = (double)times.ns[OP_SAMPLE] * 1e-3 / (double)(times.calls[OP_SAMPLE] + 1);
    if (good)
        write_figure(run, &(struct figure){
                              .id = "G10",
                              .model = engine_model(engine)->name,
                              .what = "sampling, of the device's time, 256 sequences",
                              .unit = "%",
                              .value = all ? 100.0 * (double)times.ns[OP_SAMPLE] / (double)all : 0,
                              .us = us,
                              .note = "with an event after each op"});
    else
        write_failure(run, "G10", "a request failed");
}

/* ---- parts ---------------------------------------------------------------------------------- */

/* Opens an engine with a bfloat16 KV cache. With `tiny`, limits the sizes to those that the
 * emulation can run. */
static struct engine *open_setup(struct run *run, const char *id, struct setup setup) {
    setup.shape = shape_of(run, setup.shape);
    setup.device = DEVICE_CUDA;
    setup.max_seqs = smaller(run, setup.max_seqs, 4);
    setup.max_rows = smaller(run, setup.max_rows, 512);
    setup.max_len = smaller(run, setup.max_len, 96);
    setup.kv_dtype = KV_DTYPE_BFLOAT16;
    setup.wgmma = run->wgmma;
    uint64_t start = now_ns();
    struct engine *engine = open_engine(run, id, &setup);
    if (engine)
        write_figure(run,
                     &(struct figure){.id = "start",
                                      .model = setup.shape->name,
                                      .what = setup.quantization ? "random fp8 weights are made"
                                                                 : "random weights are made",
                                      .unit = "ms",
                                      .value = (double)(now_ns() - start) * 1e-6});
    return engine;
}

/* The first pass of a new engine, which a restarted program needs, too. */
static void warm_up(struct run *run, struct engine *engine, int seqs) {
    const struct batch warm = {seqs, smaller(run, 64, 4), 4, 512, time_left(run), NULL};
    struct load load;
    if (!run_batch(&load, engine, &warm, seqs)) write_failure(run, "start", "a request failed");
    close_batch(&load, &warm);
}

static void run_prompts(struct run *run, struct engine *engine) {
    if (worth_starting(run, "G5", 3, 20)) prefill(run, engine, smaller(run, 2048, 16));
    if (worth_starting(run, "G5", 5, 30)) prefill(run, engine, smaller(run, 8192, 40));
}

static void run_many(struct run *run, struct engine *engine, int seqs) {
    if (!worth_starting(run, "G4", 20, 240)) return;
    const struct batch g4 = {smaller(run, 512, 6),  smaller(run, 1000, 8),
                             smaller(run, 1000, 4), 2048,
                             time_left(run),        NULL};
    decode_many(run, engine, "G4", &g4, seqs);
}

static void run_thirty_two(struct run *run, struct engine *engine, int seqs) {
    if (!worth_starting(run, "G2", 12, 45)) return;
    const struct batch g2 = {smaller(run, 32, 3),   smaller(run, 256, 8),
                             smaller(run, 1024, 6), 2048,
                             time_left(run),        NULL};
    decode_many(run, engine, "G2", &g2, seqs);
}

/* What one request, 32 requests and their steps take. Of these only G2 depends on wgmma. */
static void run_few(struct run *run, struct engine *engine, int seqs) {
    if (run->wgmma) {
        run_thirty_two(run, engine, seqs);
        return;
    }
    if (worth_starting(run, "G1", 5, 30))
        decode_alone(run, engine, "G1", smaller(run, 128, 8), smaller(run, 512, 8));
    if (worth_starting(run, "G7", 3, 15)) gaps_between_steps(run, engine, 1);
    if (worth_starting(run, "G7", 3, 15)) gaps_between_steps(run, engine, smaller(run, 32, 3));
    run_thirty_two(run, engine, seqs);
    if (worth_starting(run, "G10", 8, 30)) share_of_sampling(run, engine);
}

/* The cache is planned from the device's memory: on 80 GB it holds fewer sequences of G4 than on
 * 141, and the note gives the number. */
void run_llama(struct run *run) {
    const int seqs = smaller(run, 256, 4);
    const struct setup setup = {
        .shape = &llama_8b, .max_seqs = 256, .max_rows = 8192, .max_len = 8448};
    struct engine *engine = open_setup(run, "start", setup);
    if (!engine) return;
    warm_up(run, engine, seqs);
    run_few(run, engine, seqs);
    run_prompts(run, engine);
    if (worth_starting(run, "G6", 15, 60)) streams_and_prompts(run, engine);
    run_many(run, engine, seqs);
    engine_close(engine);
}

void run_fp8(struct run *run) {
    const struct setup setup = {.shape = &llama_8b,
                                .quantization = QUANTIZATION_FP8,
                                .max_seqs = 32,
                                .max_rows = 2048,
                                .max_len = 2048};
    struct engine *engine = open_setup(run, "start", setup);
    if (!engine) return;
    if (worth_starting(run, "G8", 4, 30))
        decode_alone(run, engine, "G8", smaller(run, 128, 8), smaller(run, 512, 8));
    if (worth_starting(run, "G8", 6, 45)) {
        const struct batch many = {smaller(run, 32, 3),  smaller(run, 256, 8),
                                   smaller(run, 512, 6), 2048,
                                   time_left(run),       NULL};
        decode_many(run, engine, "G8", &many, many.n);
    }
    engine_close(engine);
}

/* Each model runs as a graph of launches, then as one grid: first all graphs. */
void run_small(struct run *run) {
    const struct shape *const shapes[] = {&gpt2_sized, &smollm2_135m};
    for (int i = 0; i < 4; i++) {
        const bool one_grid = i / 2;
        if (!worth_starting(run, "G9", 3, 20)) continue;
        struct engine *engine = open_setup(run, "G9",
                                           (struct setup){.shape = shapes[i % 2],
                                                          .max_seqs = 4,
                                                          .max_rows = 512,
                                                          .max_len = 1024,
                                                          .persistent_step = one_grid});
        if (!engine) continue;
        decode_alone(run, engine, "warm", smaller(run, 16, 4), smaller(run, 64, 4));
        const uint64_t grids =
            decode_alone(run, engine, "G9", smaller(run, 16, 8), smaller(run, 512, 8));
        if (one_grid && grids == 0) write_failure(run, "G9", "no step ran as one grid");
        engine_close(engine);
    }
}
