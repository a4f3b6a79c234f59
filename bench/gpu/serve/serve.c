/* gpu_serve PART OUT SECONDS [tiny]: runs a part within SECONDS and writes lines of JSON to the
 * file OUT. Exits with code 3 if some figures were left out. */
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

double time_left(const struct run *run) {
    uint64_t now = now_ns();
    return now < run->end_ns ? (double)(run->end_ns - now) * 1e-9 : 0;
}

static int left_out;

bool worth_starting(struct run *run, const char *id, double seconds) {
    if (run->tiny || time_left(run) >= seconds) return true;
    fprintf(run->out,
            "{\"part\": \"%s\", \"id\": \"%s\", \"left_out\": true, \"why\": \"%.0f s were left, "
            "and it takes about %.0f\"}\n",
            run->part, id, time_left(run), seconds);
    fflush(run->out);
    left_out++;
    return false;
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

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(struct run *run);
    } parts[] = {
        {"tokens", run_tokens}, {"llama", run_llama}, {"fp8", run_fp8}, {"small", run_small}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts && argc >= 4; i++) {
        if (strcmp(argv[1], parts[i].name) != 0) continue;
        struct run run = {.part = parts[i].name,
                          .out = fopen(argv[2], "w"),
                          .end_ns = now_ns() + (uint64_t)(atof(argv[3]) * 1e9),
                          .tiny = argc > 4 && strcmp(argv[4], "tiny") == 0};
        if (!run.out) {
            perror(argv[2]);
            return 1;
        }
        parts[i].run(&run);
        bool written = fclose(run.out) == 0;
        return run.failed || !written ? 1 : left_out ? 3 : 0;
    }
    fprintf(stderr, "usage: gpu_serve tokens|llama|fp8|small OUT SECONDS [tiny]\n");
    return 2;
}
