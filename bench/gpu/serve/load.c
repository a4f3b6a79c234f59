/* DESIGN: the scheduler's thread calls on_events, which records tokens in requests. Other threads
 * do not read a request until it has ended. The mutex guards the count of running requests. */
#include "bench/gpu/serve/load.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- model ---------------------------------------------------------------------------------- */

static void write_config(FILE *file, const struct shape *s) {
    fprintf(file,
            "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": %d, "
            "\"intermediate_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
            "\"num_key_value_heads\": %d, \"head_dim\": %d, \"vocab_size\": %d, "
            "\"max_position_embeddings\": %d, \"rms_norm_eps\": 1e-5, \"rope_theta\": 500000, "
            "\"tie_word_embeddings\": %s, \"torch_dtype\": \"bfloat16\"}\n",
            s->K, s->F, s->L, s->H, s->G, s->D, s->V, s->context, s->tied ? "true" : "false");
}

static enum status open_path(struct engine **out, const struct setup *setup, const char *path,
                             struct err *err) {
    struct engine_config config = {.model = path,
                                   .dtype = setup->dtype,
                                   .quantization = setup->quantization,
                                   .dummy = true,
                                   .kv_dtype = setup->kv_dtype,
                                   .max_model_len = setup->max_len,
                                   .max_num_seqs = setup->max_seqs,
                                   .max_num_batched_tokens = setup->max_rows,
                                   .block_size = 16,
                                   .device = setup->device,
                                   .persistent_step = setup->persistent_step,
                                   .wgmma = setup->wgmma,
                                   .cpu_path = setup->cpu_path};
    return engine_open(out, &config, err);
}

static FILE *create(const char *folder, const char *path) {
    return mkdir(folder, 0700) == 0 ? fopen(path, "w") : NULL;
}

/* The name of a config.json's folder is the model's name. */
enum status open_random(struct engine **out, const struct setup *setup, struct err *err) {
    char top[] = "/tmp/penstock-shape-XXXXXX", folder[96], path[128];
    bool made = mkdtemp(top) != NULL, written = false;
    snprintf(folder, sizeof folder, "%s/%s", top, setup->shape->name);
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *file = made ? create(folder, path) : NULL;
    if (file) {
        write_config(file, setup->shape);
        written = fclose(file) == 0;
    }
    enum status status = written
                             ? open_path(out, setup, path, err)
                             : err_set(err, STATUS_SYSTEM, NULL, "%s: %s", path, strerror(errno));
    unlink(path);
    rmdir(folder);
    rmdir(top);
    return status;
}

/* ---- events --------------------------------------------------------------------------------- */

static void one_ended(struct load *load) {
    pthread_mutex_lock(&load->mutex);
    load->n_live--;
    load->end_ns = now_ns();
    pthread_cond_signal(&load->ended);
    pthread_mutex_unlock(&load->mutex);
}

static void on_events(void *arg, const struct event *events, int n) {
    for (int i = 0; i < n; i++) {
        struct load_request *request = events[i].generation->owner;
        if (events[i].kind == EVENT_TOKEN) {
            request->token_ns[request->n] = now_ns();
            request->token[request->n++] = events[i].sampled.id;
        }
        if (!events[i].last) continue;
        request->failed = events[i].finish != FINISH_LENGTH;
        one_ended(arg);
    }
}

/* ---- load ----------------------------------------------------------------------------------- */

void load_open(struct load *load, struct engine *engine, int most, int max_seqs, int max_rows) {
    const struct engine_memory *memory = engine_memory(engine);
    *load = (struct load){.engine = engine, .capacity = most};
    load->request = mem_calloc((size_t)most, sizeof *load->request);
    struct scheduler_config config = {.max_num_seqs = max_seqs,
                                      .max_num_batched_tokens = max_rows,
                                      .max_model_len = memory->max_model_len,
                                      .max_queued_requests = most + 1,
                                      .max_queued_tokens = 1 << 30,
                                      .n_blocks = memory->n_blocks,
                                      .block_size = memory->block_size,
                                      .max_logit_rows = max_seqs,
                                      .on_events = on_events,
                                      .arg = load};
    load->scheduler = scheduler_new(&config, engine);
    pthread_mutex_init(&load->mutex, NULL);
    pthread_cond_init(&load->ended, NULL);
}

void load_close(struct load *load) {
    scheduler_free(load->scheduler);
    for (int i = 0; i < load->n; i++) {
        free(load->request[i].prompt);
        free(load->request[i].token);
        free(load->request[i].token_ns);
    }
    free(load->request);
    pthread_mutex_destroy(&load->mutex);
    pthread_cond_destroy(&load->ended);
}

struct load_request *load_add(struct load *load, int n_prompt, int n_output,
                              const struct sampling *sampling, uint64_t seed) {
    struct load_request *request = &load->request[load->n];
    assert(load->n < load->capacity);
    load->n++;
    request->prompt = mem_calloc((size_t)n_prompt, sizeof *request->prompt);
    request->token = mem_calloc((size_t)n_output, sizeof *request->token);
    request->token_ns = mem_calloc((size_t)n_output, sizeof *request->token_ns);
    for (int i = 0; i < n_prompt; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        request->prompt[i] = (int32_t)((seed >> 33) % (uint64_t)engine_model(load->engine)->V);
    }
    struct generation *g = &request->generation;
    g->prompt = request->prompt;
    g->n_prompt = n_prompt;
    g->n = 1;
    g->max_tokens = n_output;
    g->sampling = *sampling;
    g->prompt_logprobs = -1;
    g->owner = request;
    return request;
}

bool load_submit(struct load *load, struct load_request *request) {
    struct err err = {0};
    request->submitted_ns = request->generation.received_ns = now_ns();
    if (!load->begin_ns) load->begin_ns = request->submitted_ns;
    pthread_mutex_lock(&load->mutex);
    load->n_live++;
    pthread_mutex_unlock(&load->mutex);
    if (scheduler_submit(load->scheduler, &request->generation, &err) == STATUS_OK) return true;
    fprintf(stderr, "gpu_serve: %s\n", err.message);
    request->failed = true;
    one_ended(load);
    return false;
}

void load_start(struct load *load) {
    scheduler_start(load->scheduler);
}

static bool wait_until(struct load *load, uint64_t end_ns) {
    pthread_mutex_lock(&load->mutex);
    while (load->n_live > 0 && now_ns() < end_ns) {
        struct timespec soon;
        clock_gettime(CLOCK_REALTIME, &soon);
        soon.tv_nsec += 50000000;
        soon.tv_sec += soon.tv_nsec / 1000000000, soon.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&load->ended, &load->mutex, &soon);
    }
    bool all = load->n_live == 0;
    pthread_mutex_unlock(&load->mutex);
    return all;
}

void load_wait(struct load *load, double max_s) {
    if (wait_until(load, now_ns() + (uint64_t)(max_s * 1e9))) return;
    load->cut_short = true;
    for (int i = 0; i < load->n; i++) {
        atomic_store(&load->request[i].generation.cancelled, true);
        scheduler_cancel(load->scheduler, &load->request[i].generation);
    }
    wait_until(load, UINT64_MAX);
}

bool load_run(struct load *load, double max_s) {
    bool good = true;
    for (int i = 0; i < load->n; i++) good = load_submit(load, &load->request[i]) && good;
    load_start(load);
    load_wait(load, max_s);
    for (int i = 0; i < load->n; i++) good = good && (load->cut_short || !load->request[i].failed);
    return good;
}

double load_tokens(const struct load *load) {
    double tokens = 0;
    for (int i = 0; i < load->n; i++) tokens += load->request[i].n;
    return tokens;
}

double load_seconds(const struct load *load) {
    return (double)(load->end_ns - load->begin_ns) * 1e-9;
}
