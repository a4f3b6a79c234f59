/* gpu_serve PART OUT SECONDS [from=N] [tiny]: runs a part within SECONDS and writes lines of JSON
 * to the file OUT. from=N leaves out the first N steps and appends to OUT. Exits with code 3 if
 * some figures were left out, with 77 if the device lacks instructions for the part. */
#include "bench/gpu/serve/serve.h"

#include <stdlib.h>
#include <string.h>

const struct shape llama_8b = {"Llama-3.1-8B", 4096, 14336, 32, 32, 8, 128, 128256, 16384, false};
const struct shape smollm2_135m = {"SmolLM2-135M", 576, 1536, 30, 9, 3, 64, 49152, 8192, true};
/* The widths and number of parameters of GPT-2 124M, with a gated MLP: 3 x 2048 instead of 2 x
 * 3072. */
const struct shape gpt2_sized = {"GPT-2 124M's size", 768, 2048, 12, 12, 12, 64, 50257, 1024, true};

const struct shape *shape_of(const struct run *run, const struct shape *real) {
    static const struct shape tiny = {"tiny", 32, 40, 1, 2, 1, 64, 300, 96, true};
    return run->tiny ? &tiny : real;
}

static double seconds_until(uint64_t end_ns) {
    uint64_t now = now_ns();
    return now < end_ns ? (double)(end_ns - now) * 1e-9 : 0;
}

double time_left(const struct run *run) {
    return seconds_until(run->step_end_ns);
}

static int left_out;

static void leave_out(struct run *run, const char *id, double left, double seconds) {
    fprintf(run->out,
            "{\"part\": \"%s\", \"id\": \"%s\", \"left_out\": true, \"why\": \"%.0f s were left, "
            "and it takes about %.0f\"}\n",
            run->part, id, left, seconds);
    fflush(run->out);
    left_out++;
}

bool worth_starting(struct run *run, const char *id, double seconds, double most) {
    int number = run->next++;
    if (number < run->from || run->absent) return false;
    double left = seconds_until(run->end_ns), within = left < most || run->tiny ? left : most;
    if (left < seconds && !run->tiny) {
        leave_out(run, id, left, seconds);
        return false;
    }
    run->step_end_ns = now_ns() + (uint64_t)(within * 1e9);
    fprintf(run->out, "{\"part\": \"%s\", \"id\": \"%s\", \"starts\": %d, \"within_s\": %.0f}\n",
            run->part, id, number, within);
    fflush(run->out);
    return true;
}

struct engine *open_engine(struct run *run, const char *id, const struct setup *setup) {
    struct engine *engine = NULL;
    struct err err = {0};
    if (open_random(&engine, setup, &err) == STATUS_OK) return engine;
    fprintf(stderr, "gpu_serve: %s: %s\n", setup->shape->name, err.message);
    run->absent = setup->wgmma && strcmp(err.param, "wgmma") == 0;
    if (!run->absent) write_failure(run, id, "the engine could not be opened");
    return NULL;
}

void write_figure(struct run *run, const struct figure *f) {
    fprintf(run->out,
            "{\"part\": \"%s\", \"id\": \"%s\", \"model\": \"%s\", \"what\": \"%s\", \"value\": "
            "%.9g, \"unit\": \"%s\", \"us\": %.9g, \"bytes\": %.9g, \"flops\": %.9g, \"note\": "
            "\"%s\"}\n",
            run->part, f->id, f->model, f->what, f->value, f->unit, f->us, f->bytes, f->flops,
            f->note ? f->note : "");
    fflush(run->out);
}

void write_failure(struct run *run, const char *id, const char *why) {
    fprintf(run->out, "{\"part\": \"%s\", \"id\": \"%s\", \"failed\": \"%s\"}\n", run->part, id,
            why);
    fflush(run->out);
    fprintf(stderr, "gpu_serve: %s: %s\n", id, why);
    run->failed = true;
}

void count_step(const struct engine *engine, int S, double context, double *bytes, double *flops) {
    const struct model_config *m = engine_model(engine);
    int64_t layers, head;
    engine_weights_read(engine, 1, &layers, &head);
    double q = (double)m->H * m->D, kv = (double)m->G * m->D;
    double weights = m->L * (m->K * (2 * q + 2 * kv) + 3.0 * m->K * m->F) + (double)m->V * m->K;
    double cached = (double)engine_memory(engine)->kv_bytes_per_token;
    *bytes = (double)(layers + head) + S * context * cached;
    *flops = S * (2 * weights + 4 * context * q * m->L);
}

static const struct part {
    const char *name;
    void (*run)(struct run *run);
    bool wgmma;
} parts[] = {{"tokens", run_tokens, false}, {"llama", run_llama, false},
             {"fp8", run_fp8, false},       {"small", run_small, false},
             {"wgmma", run_llama, true},    {"wgmma_tokens", run_tokens, true}};

/* Reads the arguments after SECONDS. Returns false if one of them is unknown. */
static bool read_options(struct run *run, char **argv) {
    char after;
    for (; *argv; argv++) {
        if (strcmp(*argv, "tiny") == 0)
            run->tiny = true;
        else if (sscanf(*argv, "from=%d%c", &run->from, &after) != 1 || run->from < 0)
            return false;
    }
    return true;
}

/* Returns the exit code. */
static int run_part(const struct part *part, struct run *run, const char *path) {
    run->part = part->name, run->wgmma = part->wgmma;
    run->out = fopen(path, run->from ? "a" : "w");
    if (!run->out) {
        perror(path);
        return 1;
    }
    part->run(run);
    fprintf(run->out, "{\"ends\": %d}\n", run->next);
    bool written = fclose(run->out) == 0;
    return run->failed || !written ? 1 : run->absent ? 77 : left_out ? 3 : 0;
}

int main(int argc, char **argv) {
    struct run run = {0};
    if (argc >= 4 && read_options(&run, argv + 4)) {
        run.end_ns = run.step_end_ns = now_ns() + (uint64_t)(atof(argv[3]) * 1e9);
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            if (strcmp(argv[1], parts[i].name) == 0) return run_part(&parts[i], &run, argv[2]);
    }
    fprintf(stderr, "usage: gpu_serve tokens|llama|fp8|small|wgmma|wgmma_tokens OUT SECONDS "
                    "[from=N] [tiny]\n");
    return 2;
}
