/* DESIGN: opening a model and running its passes.
 *
 * Order at start-up: the file is mapped and checked; the model's shape is read; a thread begins to
 * read tokenizer, template and end ids; memory is planned; the backend starts its threads; weights
 * go into the backend's layout, tensor by tensor, the file's pages being let go every few of them,
 * so that little more than one copy is resident; cache and activations are made. When the text's
 * thread has ended too the file is let go: nothing points into it.
 *
 * Passes. On the CPU a pass runs when it is launched, on the caller's thread and the backend's. On
 * a device launching queues it and the copy of its logits to pinned memory, with a mark behind that
 * engine_wait waits for. Two may be in flight (d: late ids put on the device):
 *
 *     host     submit 1 | submit 2 | wait 1 .. sample d launch 2 | commit 1, plan 3, submit 3 | ..
 *     device   [ pass 1            ]                   [ pass 2                             ] ..
 *
 * Where several ranks share the model, the engine has rank 0 and everything that only one of them
 * has: embedding, head, sampling. The others run the same passes beside it (ranks.c); a launch ends
 * when all have launched.
 *
 * A pass that needs no id of the one before, and whose logits would not overwrite any that are
 * still to be read, is launched in engine_submit and follows the one before without a gap. Late ids
 * lie in one array on the device; the embedding reads them there. Whoever samples writes them: the
 * host by engine_sampled, after which the device has nothing else to do, or the device itself,
 * behind the pass of an engine_submit_samples. That is launched at once, whatever it needs, and
 * brings back what came of its samples instead of logits.
 *
 * A device may fail while passes are in flight. It is asked after each wait: what it has brought
 * before is lost too, since nobody could tell which of it is whole. Passes are counted on as if
 * they ran, so that whoever has submitted them can wait for all of them.
 */
#include "engine/engine.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device.h"
#include "engine/memory_plan.h"
#include "engine/model.h"
#include "engine/model_file.h"
#include "engine/ranks.h"
#include "engine/swap.h"

/* A step that was submitted and not yet waited for. */
struct pass {
    struct step step;
    bool launched;
    bool sampled; /* the device samples, and results come back instead of logits */
};

struct engine {
    struct model model;
    struct engine_memory memory;
    struct tokenizer *tokenizer;
    struct chat_template *chat_template;
    struct backend *backend;
    struct kv_cache *cache;
    struct ranks *ranks; /* the others; NULL: there is one rank */
    struct engine_swap swap;
    char backend_name[256];
    bool lacks_memory; /* of the host, which a pass would have needed */
    double weights_ms;
    int n_end_ids;
    int32_t end_ids[MAX_END_IDS];
    int in_flight;                     /* the most passes at once */
    struct pass passes[MAX_IN_FLIGHT]; /* a ring: those in flight from `first` on */
    int first, n_passes;
    int waited_rows;                /* logit rows of the pass that was waited for last */
    int32_t *sampled;               /* device memory [max_logit_rows]: late tokens are read here */
    float *host_logits;             /* pinned [max_logit_rows][V]; NULL until it is wanted */
    struct device_sampler *sampler; /* NULL where the host samples; then so are these: */
    struct sampled *results;        /* device memory [max_samples] */
    struct sampled *host_results;   /* pinned [MAX_IN_FLIGHT][max_samples] */
    struct backend_ops timed_ops;   /* in use while ops are timed */
};

/* ---- text ----------------------------------------------------------------------------------- */

static enum status read_tokenizer(struct engine *engine, const struct gguf *gguf, struct err *err) {
    struct tokenizer_spec spec = {0};
    enum status status = tokenizer_spec_read(&spec, gguf, err);
    if (!status) status = tokenizer_new(&engine->tokenizer, &spec, err);
    if (!status) status = end_ids_collect(engine->end_ids, &engine->n_end_ids, gguf, &spec, err);
    tokenizer_spec_free(&spec);
    return status;
}

static enum status read_template(struct engine *engine, const struct gguf *gguf, struct err *err) {
    const char *text;
    size_t length;
    enum status status = chat_template_text(gguf, &text, &length, err);
    if (status || !text) return status;
    return chat_template_new(&engine->chat_template, text, length, err);
}

/* The text's side is read on a thread of its own while the weights are taken in: neither needs
 * anything of the other, and at the start there is nothing else to do. */
struct text_job {
    struct engine *engine;
    const struct gguf *gguf;
    pthread_t thread;
    bool beside; /* the thread runs */
    enum status status;
    struct err err;
};

static void *read_text(void *arg) {
    struct text_job *job = arg;
    job->status = read_tokenizer(job->engine, job->gguf, &job->err);
    if (!job->status) job->status = read_template(job->engine, job->gguf, &job->err);
    return NULL;
}

static void begin_text(struct text_job *job) {
    job->beside = pthread_create(&job->thread, NULL, read_text, job) == 0;
    if (!job->beside) read_text(job);
}

static enum status end_text(struct text_job *job, struct err *err) {
    if (job->beside) pthread_join(job->thread, NULL);
    if (job->status && err) *err = job->err;
    return job->status;
}

enum status engine_open_tokenizer(struct tokenizer **out, const char *path, struct err *err) {
    struct gguf *gguf;
    struct engine engine = {0};
    enum status status = gguf_open(&gguf, path, err);
    if (status) return status;
    status = read_tokenizer(&engine, gguf, err);
    gguf_close(gguf);
    *out = engine.tokenizer;
    return status;
}

/* ---- memory and backend --------------------------------------------------------------------- */

static bool is(const char *setting, const char *name) {
    return setting && strcmp(setting, name) == 0;
}

/* Types that only a GPU computes with are refused elsewhere, not passed over. */
static enum status check_types(const struct engine_config *config, struct err *err) {
    bool halves = is(config->dtype, "bfloat16") || is(config->dtype, "float16");
    bool fp8 = is(config->quantization, "fp8"), cuda = is(config->device, "cuda");
    if (halves && !cuda)
        return err_set(err, STATUS_USAGE, "dtype",
                       "--dtype %s is of activations on a GPU; give --device cuda, or --dtype auto",
                       config->dtype);
    if (fp8 && !cuda)
        return err_set(err, STATUS_USAGE, "quantization",
                       "--quantization fp8 is made for a GPU; give --device cuda, or serve a file "
                       "of q8_0 or q4_k from the CPU");
    if (fp8 && config->float32)
        return err_set(err, STATUS_USAGE, "quantization",
                       "--quantization fp8 contradicts --dtype float32; give only one of them");
    return STATUS_OK;
}

/* Of a CUDA backend. */
static enum dtype activations_type(const struct engine_config *config) {
    if (config->float32) return DTYPE_F32;
    return is(config->dtype, "float16") ? DTYPE_F16 : DTYPE_BF16;
}

static int smallest(int a, int b, int c) {
    int least = a < b ? a : b;
    return least < c ? least : c;
}

/* The largest step in which every sequence may have one row, and a logit row. Ranks meet on their
 * devices, which no graph has yet. */
static int graph_rows(const struct engine_config *config) {
    if (config->enforce_eager || config->ranks > 1) return 0;
    return smallest(config->max_num_seqs, config->max_num_batched_tokens, config->max_logit_rows);
}

/* What a rank's backend is opened with; the threads are those of all ranks. */
static struct backend_config plan_backend(const struct engine *engine,
                                          const struct engine_config *config) {
    struct model_info m = shard_info(&engine->model.info, config->ranks);
    int widest = m.K > m.F ? m.K : m.F;
    if (m.H * m.D > widest) widest = m.H * m.D;
    return (struct backend_config){
        .threads = config->threads,
        .path = config->cpu_path,
        .max_rows = config->max_num_batched_tokens,
        .max_k = widest,
        .activations = activations_type(config),
        .max_seqs = config->max_num_seqs,
        .max_context = engine->memory.max_model_len,
        .heads = m.H,
        .graph_rows = graph_rows(config),
        .graphs = config->max_graphs,
    };
}

static void name_backend(struct engine *engine, int ranks, const char *why) {
    struct backend *b = engine->backend;
    char others[40] = "";
    if (ranks > 1) snprintf(others, sizeof others, " in the first of %d ranks", ranks);
    snprintf(engine->backend_name, sizeof engine->backend_name, "%s %s, %d thread%s%s%s", b->name,
             b->path, b->n_threads, b->n_threads == 1 ? "" : "s", others, why);
}

/* Opens the backend; the other ranks begin to open theirs, and to load. */
static enum status open_backend(struct engine *engine, const struct gguf *gguf,
                                const struct engine_config *config, const char *why,
                                struct err *err) {
    bool on_cuda = is(config->device, "cuda");
    struct backend_config wanted = plan_backend(engine, config);
    if (config->ranks > 1) {
        enum status status = ranks_open(&engine->ranks, config->ranks, on_cuda, err);
        if (status) return status;
        if (wanted.threads == 0) wanted.threads = backend_cpu_threads();
        ranks_begin_load(engine->ranks,
                         &(struct ranks_plan){&engine->model.info, &gguf->weights, config, wanted});
        wanted.threads = ranks_threads(wanted.threads, 0, config->ranks);
        wanted.group = ranks_group(engine->ranks);
    }
    enum status status = on_cuda ? backend_cuda_open(&engine->backend, &wanted, err)
                                 : backend_cpu_open(&engine->backend, &wanted, err);
    if (status) {
        ranks_end(engine->ranks, NULL);
        return status;
    }
    engine->model.backend = engine->backend;
    engine_time_ops(engine, NULL); /* ranges, where a profiler looks */
    name_backend(engine, config->ranks, why);
    return STATUS_OK;
}

static enum status open_cache(struct engine *engine, const struct engine_config *config,
                              struct err *err) {
    const struct model_info *m = &engine->model.part;
    struct kv_config wanted = {
        .L = m->L, .G = m->G, .D = m->D, .block_size = engine->memory.block_size};
    enum status status = memory_plan_kv_dtype(config, &wanted.dtype, err);
    if (!status) status = device_plan_pool(engine->backend, &engine->memory, config, &wanted, err);
    if (status) return status;
    wanted.n_blocks = engine->memory.n_blocks;
    ranks_begin_cache(engine->ranks, &wanted);
    status = engine->backend->ops->kv_new(engine->backend, &engine->cache, &wanted, err);
    enum status others = ranks_end(engine->ranks, status ? NULL : err);
    return status ? status : others;
}

static size_t ids_bytes(const struct engine *engine) {
    return (size_t)engine->model.act.max_logit_rows * sizeof(int32_t);
}

static size_t logits_bytes(const struct engine *engine, int R) {
    return (size_t)R * (size_t)engine->model.info.V * sizeof(float);
}

static int max_samples(const struct engine *engine) {
    return engine->model.act.max_logit_rows + MAX_SHARED_SAMPLES;
}

static size_t results_bytes(const struct engine *engine) {
    return (size_t)max_samples(engine) * sizeof *engine->results;
}

#define FEWER_SEQUENCES "lower --max-num-seqs"

static enum status open_sampler(struct engine *engine, int sequences, struct err *err) {
    struct backend *b = engine->backend;
    size_t counts = (size_t)sequences * (size_t)engine->model.info.V * sizeof(int32_t);
    void *results = NULL, *host_results = NULL;
    if (!b->ops->sample) return STATUS_OK;
    engine->sampler = b->ops->sampler_new(b, engine->model.info.V, sequences, max_samples(engine));
    if (!engine->sampler) return refuse_room(b, "counts of tokens", counts, FEWER_SEQUENCES, err);
    engine->memory.sampling = (int64_t)(counts + results_bytes(engine));
    enum status status =
        buffer_take(b, &results, results_bytes(engine), "samples", FEWER_SEQUENCES, err);
    if (!status)
        status = host_take(b, &host_results, MAX_IN_FLIGHT * results_bytes(engine), "samples",
                           FEWER_SEQUENCES, err);
    engine->results = results;
    engine->host_results = host_results;
    return status;
}

static void close_sampler(struct engine *engine) {
    struct backend *b = engine->backend;
    if (!engine->sampler) return;
    b->ops->sampler_free(b, engine->sampler);
    if (engine->results) b->ops->buffer_free(b, engine->results, results_bytes(engine));
    if (engine->host_results)
        b->ops->host_free(b, engine->host_results, MAX_IN_FLIGHT * results_bytes(engine));
}

/* What results come back through. */
static enum status open_results(struct engine *engine, const struct engine_config *config,
                                struct err *err) {
    struct backend *b = engine->backend;
    assert(config->in_flight >= 0 && config->in_flight <= MAX_IN_FLIGHT);
    engine->in_flight = config->in_flight ? config->in_flight : b->in_flight;
    void *sampled;
    enum status status = buffer_take(b, &sampled, ids_bytes(engine), "ids", FEWER_SEQUENCES, err);
    engine->sampled = sampled;
    /* As many sequences as may sample in one step. */
    int rows = engine->model.act.max_logit_rows, sequences = config->max_num_seqs;
    if (status || config->host_samples) return status;
    return open_sampler(engine, sequences > 0 && sequences < rows ? sequences : rows, err);
}

static void close_results(struct engine *engine) {
    struct backend *b = engine->backend;
    int rows = engine->model.act.max_logit_rows;
    close_sampler(engine);
    if (engine->sampled) b->ops->buffer_free(b, engine->sampled, ids_bytes(engine));
    if (engine->host_logits) b->ops->host_free(b, engine->host_logits, logits_bytes(engine, rows));
}

/* Puts what was taken in the place of what the plan guessed. */
static void finish_memory(struct engine *engine) {
    const struct activations *a = &engine->model.act;
    int64_t weights, scratch;
    ranks_memory(engine->ranks, &weights, &scratch);
    engine->memory.weights = weights + engine->model.weight_bytes;
    engine->memory.scratch =
        scratch + activations_bytes(&engine->model, a->max_rows, a->max_logit_rows);
}

bool engine_failed(const struct engine *engine, struct err *err) {
    struct backend *b = engine->backend;
    bool failed = b->ops->failed && b->ops->failed(b, err);
    if (!failed && !engine->lacks_memory) return false;
    if (!failed)
        err_set(err, STATUS_SERVER_ERROR, NULL,
                "The host has no memory to pin for the logits of a step.");
    if (err) snprintf(err->code, sizeof err->code, "device_failed");
    return true;
}

static enum status load_weights(struct engine *engine, const struct gguf *gguf,
                                const struct engine_config *config, struct err *err) {
    uint64_t began = now_ns();
    enum status status = model_load(&engine->model, &gguf->weights, config, err);
    enum status others = ranks_end(engine->ranks, status ? NULL : err);
    if (!status) status = others;
    engine->weights_ms = (double)(now_ns() - began) * 1e-6;
    if (!status) finish_memory(engine);
    return status;
}

/* ---- opening -------------------------------------------------------------------------------- */

static enum status open_from(struct engine *engine, const struct gguf *gguf,
                             struct engine_config *config, struct err *err) {
    struct machine_memory machine = {0};
    struct model_info *info = &engine->model.info;
    char why[160];
    enum status status = model_info_read(info, gguf, config->model, err);
    if (!status) status = device_choose(config, &machine.device, why, sizeof why, err);
    if (status) return status;
    struct text_job text = {.engine = engine, .gguf = gguf};
    begin_text(&text);
    machine_memory_read(&machine);
    status = memory_plan(&engine->memory, info, config, &machine, err);
    if (!status) status = check_types(config, err);
    if (!status) status = shard_check(info, &gguf->weights, config->ranks, err);
    if (!status) status = open_backend(engine, gguf, config, why, err);
    if (!status) status = load_weights(engine, gguf, config, err);
    if (!status) status = open_results(engine, config, err);
    if (!status) status = open_cache(engine, config, err);
    if (!status)
        status = swap_open(&engine->swap, engine->backend, engine->cache, &engine->memory, err);
    if (engine->backend && engine_failed(engine, err)) status = STATUS_SERVER_ERROR;
    enum status text_status = end_text(&text, err); /* what is wrong there is told first */
    return text_status ? text_status : status;
}

enum status engine_open(struct engine **out, const struct engine_config *asked, struct err *err) {
    struct engine_config config = *asked;
    if (config.max_logit_rows == 0) config.max_logit_rows = config.max_num_seqs;
    if (config.ranks == 0) config.ranks = 1;
    struct gguf *gguf;
    enum status status = model_file_open(&gguf, &config, err);
    if (status) return status;
    struct engine *engine = mem_calloc(1, sizeof *engine);
    engine->model.shard = (struct shard){0, config.ranks};
    status = open_from(engine, gguf, &config, err);
    gguf_close(gguf);
    if (status) {
        engine_close(engine);
        engine = NULL;
    }
    *out = engine;
    return status;
}

void engine_close(struct engine *engine) {
    if (!engine) return;
    if (engine->backend) {
        close_results(engine);
        swap_close(&engine->swap);
        if (engine->cache) engine->backend->ops->kv_free(engine->backend, engine->cache);
        model_close(&engine->model);
        backend_close(engine->backend);
    }
    ranks_close(engine->ranks);
    tokenizer_free(engine->tokenizer);
    chat_template_free(engine->chat_template);
    free(engine);
}

/* ---- what it is ----------------------------------------------------------------------------- */

const struct model_info *engine_model(const struct engine *engine) {
    return &engine->model.info;
}

const struct engine_memory *engine_memory(const struct engine *engine) {
    return &engine->memory;
}

const struct tokenizer *engine_tokenizer(const struct engine *engine) {
    return engine->tokenizer;
}

const struct chat_template *engine_chat_template(const struct engine *engine) {
    return engine->chat_template;
}

const char *engine_backend_name(const struct engine *engine) {
    return engine->backend_name;
}

double engine_weights_ms(const struct engine *engine) {
    return engine->weights_ms;
}

const int32_t *engine_end_ids(const struct engine *engine, int *n) {
    *n = engine->n_end_ids;
    return engine->end_ids;
}

struct engine_swap *engine_swap(struct engine *engine) {
    return engine->swap.swap ? &engine->swap : NULL;
}

int engine_threads(const struct engine *engine) {
    return engine->backend->n_threads;
}

/* ---- running -------------------------------------------------------------------------------- */

static void check_step(const struct engine *engine, const struct step *step) {
    const struct activations *a = &engine->model.act;
    assert(step->M > 0 && step->M <= a->max_rows);
    assert(step->R >= 0 && step->R <= a->max_logit_rows && step->R <= step->M);
    assert(step->S > 0 && step->row_start[0] == 0 && step->row_start[step->S] == step->M);
    assert(step->n_late == 0 || engine->n_passes > 0); /* the ids come from the one before */
    (void)a;
    (void)step;
}

bool engine_on_host(const struct engine *engine) {
    return engine->backend->host_memory;
}

int engine_in_flight(const struct engine *engine) {
    return engine->in_flight;
}

static void forward(void *arg, const struct step *step) {
    struct engine *engine = arg;
    engine->model.family->forward(&engine->model, step, engine->cache);
}

static void launch(struct engine *engine, int i) {
    struct pass *pass = &engine->passes[i];
    struct backend *b = engine->backend;
    ranks_begin_pass(engine->ranks, &pass->step);
    if (b->ops->run)
        b->ops->run(b, &pass->step, engine->cache, forward, engine);
    else
        forward(engine, &pass->step);
    ranks_end(engine->ranks, NULL);
    if (!b->host_memory && !pass->sampled && engine->host_logits)
        b->ops->fetch(b, i, engine->host_logits, engine->model.act.logits,
                      logits_bytes(engine, pass->step.R));
    pass->launched = true;
}

/* Can the newest pass be launched behind the one that stands before it? */
static bool may_follow(const struct engine *engine, const struct step *before,
                       const struct step *step) {
    return !engine->backend->host_memory && step->n_late == 0 && (step->R == 0 || before->R == 0);
}

/* Puts a pass behind those in flight; returns its number. */
static int add_pass(struct engine *engine, const struct step *step, bool sampled) {
    assert(engine->n_passes < engine->in_flight);
    assert(engine->n_passes == 0 || engine->passes[engine->first].sampled == sampled);
    check_step(engine, step);
    int i = (engine->first + engine->n_passes++) % MAX_IN_FLIGHT;
    engine->passes[i] = (struct pass){.step = *step, .sampled = sampled};
    engine->passes[i].step.sampled = engine->sampled;
    return i;
}

/* Few ask for logits, so their memory is taken when somebody does; by then the engine is in use,
 * and there is nothing to fall back to: engine_failed tells. */
static void take_host_logits(struct engine *engine) {
    struct backend *b = engine->backend;
    size_t bytes = logits_bytes(engine, engine->model.act.max_logit_rows);
    engine->host_logits = b->ops->host_new(b, bytes);
    engine->lacks_memory = !engine->host_logits;
}

void engine_submit(struct engine *engine, const struct step *step) {
    struct backend *b = engine->backend;
    bool wanted = !b->host_memory && !engine->host_logits;
    if (wanted && !engine_failed(engine, NULL)) take_host_logits(engine);
    int before = engine->first, i = add_pass(engine, step, false);
    if (i == before || may_follow(engine, &engine->passes[before].step, step)) launch(engine, i);
}

bool engine_samples(const struct engine *engine) {
    return engine->sampler != NULL;
}

void engine_submit_samples(struct engine *engine, const struct step *step,
                           const struct sample *samples, int n) {
    struct backend *b = engine->backend;
    assert(n >= 0 && n <= max_samples(engine));
    int i = add_pass(engine, step, true);
    launch(engine, i);
    b->ops->sample(b, engine->sampler, engine->model.act.logits, samples, n, engine->sampled,
                   engine->results);
    b->ops->fetch(b, i, engine->host_results + i * max_samples(engine), engine->results,
                  (size_t)n * sizeof *engine->results);
}

const struct sampled *engine_wait_samples(struct engine *engine) {
    int i = engine->first;
    assert(engine->n_passes > 0 && engine->passes[i].sampled);
    engine->backend->ops->await(engine->backend, i);
    engine->first = (engine->first + 1) % MAX_IN_FLIGHT;
    engine->n_passes--;
    if (engine_failed(engine, NULL)) return NULL;
    return engine->host_results + i * max_samples(engine);
}

float *engine_wait(struct engine *engine) {
    struct backend *b = engine->backend;
    const struct pass *pass = &engine->passes[engine->first];
    assert(engine->n_passes > 0 && !pass->sampled);
    assert(pass->launched || engine_failed(engine, NULL)); /* then engine_sampled never came */
    if (!b->host_memory) b->ops->await(b, engine->first);
    engine->waited_rows = pass->step.R;
    engine->first = (engine->first + 1) % MAX_IN_FLIGHT;
    engine->n_passes--;
    if (engine_failed(engine, NULL)) return NULL;
    return b->host_memory ? engine->model.act.logits : engine->host_logits;
}

void engine_sampled(struct engine *engine, const int32_t *id) {
    struct backend *b = engine->backend;
    const struct pass *pass = &engine->passes[engine->first];
    if (engine->n_passes == 0 || pass->launched) return;
    size_t bytes = (size_t)engine->waited_rows * sizeof *id;
    if (pass->step.n_late > 0) b->ops->upload(b, engine->sampled, id, bytes);
    launch(engine, engine->first);
}

void engine_time_ops(struct engine *engine, struct op_times *times) {
    struct backend *b = engine->backend;
    if (b->timed) backend_stop_watching(b);
    if (times || b->ranges) backend_watch_ops(b, &engine->timed_ops, times);
}

void engine_limits(struct engine *engine, struct device_limits *out) {
    struct backend *b = engine->backend;
    *out = (struct device_limits){0};
    if (b->ops->limits) b->ops->limits(b, out);
}

void engine_weights_read(const struct engine *engine, int64_t *layers, int64_t *head) {
    const struct model *model = &engine->model;
    size_t (*bytes)(const struct matrix *) = engine->backend->ops->matrix_bytes;
    bool tied = model->head == model->embedding;
    *head = (int64_t)bytes(model->head);
    *layers = model->weight_bytes - *head - (tied ? 0 : (int64_t)bytes(model->embedding));
}

void engine_parallel(struct engine *engine, void (*fn)(void *arg, int i), void *arg, int n) {
    engine->backend->ops->parallel(engine->backend, fn, arg, n);
}
