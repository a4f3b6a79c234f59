/* Compares tokens, end to end: in float32 those of the CPU and the device; in 16 bits those of
 * requests alone and in batches. */
#include <stdlib.h>
#include <string.h>

#include "bench/gpu/serve/serve.h"

enum { MOST = 32 };

/* The tokens of all requests. */
struct answers {
    int n, n_output;
    int32_t *token; /* [n][n_output] */
};

static struct sampling sampling_of(int i) {
    struct sampling s = SAMPLING_GREEDY;
    if (i % 2 == 0) return s;
    s.temperature = 0.8f;
    s.top_p = 0.95f;
    s.seed = (uint64_t)i;
    if (i % 4 == 3) s.presence_penalty = 0.5f;
    return s;
}

/* Runs requests first .. last - 1 concurrently. Returns false if one failed. */
static bool ask(struct run *run, struct engine *engine, struct answers *answers, int first,
                int last, int max_rows, int n_prompt) {
    struct load load;
    load_open(&load, engine, last - first, last - first, max_rows);
    for (int i = first; i < last; i++) {
        struct sampling sampling = sampling_of(i);
        load_add(&load, n_prompt + i % 5, answers->n_output, &sampling, (uint64_t)i + 1);
    }
    bool good = load_run(&load, time_left(run)) && !load.cut_short;
    for (int i = first; i < last; i++)
        memcpy(answers->token + i * answers->n_output, load.request[i - first].token,
               (size_t)answers->n_output * sizeof(int32_t));
    load_close(&load);
    return good;
}

static struct answers answers_new(int n, int n_output) {
    return (struct answers){n, n_output, mem_calloc((size_t)n * (size_t)n_output, sizeof(int32_t))};
}

/* Returns the number of tokens before the first difference, summed over all requests. */
static int same_tokens(const struct answers *a, const struct answers *b) {
    int same = 0;
    for (int i = 0; i < a->n; i++) {
        for (int t = 0; t < a->n_output; t++, same++)
            if (a->token[i * a->n_output + t] != b->token[i * a->n_output + t]) break;
    }
    return same;
}

static void compare(struct run *run, const char *id, const char *model, const char *what,
                    const struct answers *a, const struct answers *b) {
    const int same = same_tokens(a, b), all = a->n * a->n_output;
    write_figure(run, &(struct figure){.id = id,
                                       .model = model,
                                       .what = what,
                                       .value = same,
                                       .unit = "tokens the same",
                                       .note = same == all ? "all" : "NOT all"});
    if (same != all) write_failure(run, id, "tokens differ");
}

/* Runs the same requests in float32 on the CPU (plain path) and on the device. */
static void compare_with_cpu(struct run *run, const struct shape *shape, int n, int n_output) {
    struct setup setup = {.shape = shape,
                          .device = DEVICE_CPU,
                          .cpu_path = "plain",
                          .kv_dtype = KV_DTYPE_FLOAT32,
                          .dtype = COMPUTE_FLOAT32,
                          .max_seqs = n,
                          .max_rows = 64,
                          .max_len = run->tiny ? 96 : 512};
    struct answers cpu = answers_new(n, n_output), cuda = answers_new(n, n_output);
    struct engine *engine = open_engine(run, "T1", &setup);
    bool good = engine && ask(run, engine, &cpu, 0, n, 64, run->tiny ? 8 : 40);
    engine_close(engine);
    setup.device = DEVICE_CUDA;
    engine = good ? open_engine(run, "T1", &setup) : NULL;
    good = engine && ask(run, engine, &cuda, 0, n, 64, run->tiny ? 8 : 40);
    engine_close(engine);
    if (good)
        compare(run, "T1", shape->name, "float32 on the device and on the CPU", &cpu, &cuda);
    else
        write_failure(run, "T1", "an engine or a request failed, or the time was up");
    free(cpu.token), free(cuda.token);
}

/* Runs each request alone with an undivided prompt, then all together in chunks. */
static void compare_company(struct run *run, const struct shape *shape, enum compute_dtype dtype,
                            enum quantization quantization, int n, int n_output) {
    struct setup setup = {.shape = shape,
                          .device = DEVICE_CUDA,
                          .dtype = dtype,
                          .quantization = quantization,
                          .kv_dtype = KV_DTYPE_BFLOAT16,
                          .wgmma = run->wgmma,
                          .max_seqs = n,
                          .max_rows = 128,
                          .max_len = run->tiny ? 96 : 512};
    /* with --wgmma the whole prompt runs by wgmma, and chunks and decodes of up to 16 rows by
     * mma.sync; together, chunks and decodes of more rows run by wgmma in smaller blocks */
    const int n_prompt = !run->tiny ? 100 : run->wgmma ? 70 : 8;
    struct answers alone = answers_new(n, n_output), together = answers_new(n, n_output);
    struct engine *engine = open_engine(run, "T2", &setup);
    bool good = engine != NULL;
    for (int i = 0; i < n && good; i++) good = ask(run, engine, &alone, i, i + 1, 128, n_prompt);
    good = good && ask(run, engine, &together, 0, n, run->tiny ? 7 : 50, n_prompt);
    engine_close(engine);
    char what[64];
    snprintf(what, sizeof what, "%s, alone and together%s",
             quantization ? "fp8 weights" : "bfloat16", run->wgmma ? ", wgmma" : "");
    if (good)
        compare(run, "T2", shape->name, what, &alone, &together);
    else if (!run->absent)
        write_failure(run, "T2", "an engine or a request failed, or the time was up");
    free(alone.token), free(together.token);
}

/* With --wgmma only T2: the products of T1 are float32's. */
void run_tokens(struct run *run) {
    static const struct shape tiny = {"tiny", 64, 96, 2, 4, 2, 16, 300, 512, true};
    const struct shape *large = &smollm2_135m, *first = shape_of(run, &tiny);
    const int n = run->tiny ? 3 : MOST, n_output = run->tiny ? 4 : 48;
    if (!run->wgmma && worth_starting(run, "T1", 3, 30))
        compare_with_cpu(run, first, run->tiny ? 3 : 12, n_output);
    if (worth_starting(run, "T2", 3, 30))
        compare_company(run, first, COMPUTE_BFLOAT16, QUANTIZATION_NONE, n, n_output);
    if (run->tiny && !run->wgmma) return;
    if (run->tiny) large = first;
    if (worth_starting(run, "T2", 5, 40))
        compare_company(run, large, COMPUTE_BFLOAT16, QUANTIZATION_NONE, n, run->tiny ? 4 : 64);
    if (worth_starting(run, "T2", 5, 40))
        compare_company(run, large, COMPUTE_BFLOAT16, QUANTIZATION_FP8, n, run->tiny ? 4 : 64);
    if (!run->wgmma && worth_starting(run, "T1", 20, 60)) compare_with_cpu(run, large, 6, 32);
}
