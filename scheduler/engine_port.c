/* engine_port: the port to the real engine, and scheduler_new, which makes it.
 *
 * DESIGN. Sampling runs on the engine's compute threads. engine_parallel does not say which
 * thread calls, so the parallel work is one task a sampler: task i owns sampler i and takes jobs
 * from a shared counter until none is left. Which sampler does which job changes no result
 * (sampler_sample). A choice of a forked prompt shares its logits with the others, so its task
 * works on a copy. Sampling belongs to the wait, because the step behind may want the ids: it is
 * launched as soon as they are there, and runs while the results are committed.
 *
 * Where the device samples, jobs go down with their step, and only what came of them comes back.
 */
#include "scheduler/engine_port.h"

#include <stdlib.h>
#include <string.h>

#include "scheduler/internal.h"

#define MAX_SAMPLERS 64

struct port {
    struct engine *engine;
    int V, n_samplers;
    struct sampler *sampler[MAX_SAMPLERS];
    float *spare;            /* [n_samplers][V] */
    float *logits;           /* [R][V] of the step that was waited for */
    struct sample_job *jobs; /* and its jobs */
    int n_jobs;
    uint64_t sampling_ns;   /* of all waits */
    int32_t *id;            /* [max_logit_rows] what was sampled from its rows */
    struct sample *samples; /* [max_logit_rows + MAX_EXTRA_SAMPLES] jobs for the device, or NULL */
    _Atomic int next_job;
};

static size_t spare_bytes(const struct port *port) {
    return (size_t)port->n_samplers * (size_t)port->V * sizeof *port->spare;
}

static void port_submit(void *self, const struct step *step, struct sample_job *jobs, int n) {
    (void)jobs, (void)n;
    engine_submit(((struct port *)self)->engine, step);
}

/* ---- on the device -------------------------------------------------------------------------- */

static_assert(MAX_EXTRA_SAMPLES <= MAX_SHARED_SAMPLES, "the engine takes what a step may sample");

/* A sequence's number, which no other one of the process's life has. */
static uint64_t number_of(const struct sequence *sequence) {
    return sequence->request->arrival * MAX_CHOICES + (uint64_t)sequence->index;
}

static struct sample sample_of(const struct sample_job *job) {
    struct sample sample = {.row = job->row,
                            .sampling = job->sampling,
                            .n_top = job->n_top,
                            .position = job->position,
                            .choice = job->choice,
                            .history = job->history,
                            .n_prompt = job->n_prompt,
                            .n_output = job->n_output,
                            .sequence = number_of(job->sequence),
                            .shared = job->shared};
    if (job->score) sample.scored = job->history[job->position];
    if (!job->score && !job->shared)
        sample.late = job->sequence->n_tokens < job->n_prompt + job->n_output;
    return sample;
}

static void device_submit(void *self, const struct step *step, struct sample_job *jobs, int n) {
    struct port *port = self;
    for (int i = 0; i < n; i++) port->samples[i] = sample_of(&jobs[i]);
    engine_submit_samples(port->engine, step, port->samples, n);
}

static bool device_wait(void *self, struct sample_job *jobs, int n) {
    const struct sampled *sampled = engine_wait_samples(((struct port *)self)->engine);
    if (!sampled) return false;
    for (int i = 0; i < n; i++) jobs[i].out = sampled[i];
    return true;
}

static void port_why(void *self, struct err *err) {
    engine_failed(((struct port *)self)->engine, err);
}

/* ---- on the host ---------------------------------------------------------------------------- */

static void run_job(struct port *port, int i, struct sample_job *job) {
    float *logits = port->logits + (size_t)job->row * (size_t)port->V;
    if (job->dropped) return;
    if (job->score) {
        sampler_score(port->sampler[i], logits, job->history[job->position], job->n_top, &job->out);
        return;
    }
    if (job->shared) {
        float *own = port->spare + (size_t)i * (size_t)port->V;
        logits = memcpy(own, logits, (size_t)port->V * sizeof *own);
    }
    sampler_sample(port->sampler[i], job->sampling, logits, job->history, job->n_prompt,
                   job->n_output, job->position, job->choice, &job->out);
}

static void run_jobs(void *self, int i) {
    struct port *port = self;
    for (;;) {
        int job = atomic_fetch_add(&port->next_job, 1);
        if (job >= port->n_jobs) return;
        run_job(port, i, &port->jobs[job]);
    }
}

/* The ids that rows of the next step may want. What is no id ends its sequence when it is
 * committed, which is too late for a row that is planned already: that one gets any id. */
static void set_ids(struct port *port) {
    for (int i = 0; i < port->n_jobs; i++) {
        const struct sample_job *job = &port->jobs[i];
        if (job->dropped || job->score) continue;
        port->id[job->row] = job->out.id >= 0 && job->out.id < port->V ? job->out.id : 0;
    }
}

static bool port_wait(void *self, struct sample_job *jobs, int n) {
    struct port *port = self;
    port->logits = engine_wait(port->engine);
    if (!port->logits) return false;
    uint64_t began = now_ns();
    port->jobs = jobs;
    port->n_jobs = n;
    atomic_store(&port->next_job, 0);
    int tasks = n < port->n_samplers ? n : port->n_samplers;
    if (tasks > 0) engine_parallel(port->engine, run_jobs, port, tasks);
    set_ids(port);
    port->sampling_ns += now_ns() - began;
    engine_sampled(port->engine, port->id);
    return true;
}

static uint64_t port_sampling_ns(void *self) {
    return ((struct port *)self)->sampling_ns;
}

static void port_close(void *self) {
    struct port *port = self;
    for (int i = 0; i < port->n_samplers; i++) sampler_free(port->sampler[i]);
    mem_large_free(port->spare, spare_bytes(port));
    free(port->id);
    free(port->samples);
    free(port);
}

/* ---- swapping ------------------------------------------------------------------------------- */

static struct engine_swap *swap_of(void *self) {
    return engine_swap(((struct port *)self)->engine);
}

static bool port_swap_reserve(void *self, int n) {
    return engine_swap_reserve(swap_of(self), n);
}

static void port_swap_out(void *self, const int32_t *block, const int32_t *slot, int n) {
    engine_swap_out(swap_of(self), block, slot, n);
}

static void port_swap_in(void *self, const int32_t *slot, const int32_t *block, int n) {
    engine_swap_in(swap_of(self), slot, block, n);
}

static void port_swap_arrive(void *self) {
    engine_swap_arrive(swap_of(self));
}

/* ---- the port ------------------------------------------------------------------------------- */

/* More samplers than compute threads could not work at once; each has tables of V. */
static int samplers_wanted(const struct engine *engine, int max_seqs) {
    int threads = engine_threads(engine), n = threads < MAX_SAMPLERS ? threads : MAX_SAMPLERS;
    return n < max_seqs ? n : max_seqs;
}

static void open_samplers(struct port *port, int max_seqs, int max_logit_rows) {
    port->n_samplers = samplers_wanted(port->engine, max_seqs);
    for (int i = 0; i < port->n_samplers; i++) port->sampler[i] = sampler_new(port->V, NULL);
    port->spare = mem_large(spare_bytes(port));
    port->id = mem_calloc((size_t)max_logit_rows, sizeof *port->id);
}

struct scheduler *scheduler_new(const struct scheduler_config *config, struct engine *engine) {
    struct port *port = mem_calloc(1, sizeof *port);
    bool device = engine_samples(engine);
    port->engine = engine;
    port->V = engine_model(engine)->V;
    size_t most = (size_t)config->max_logit_rows + MAX_EXTRA_SAMPLES;
    if (device)
        port->samples = mem_calloc(most, sizeof *port->samples);
    else
        open_samplers(port, config->max_num_seqs, config->max_logit_rows);
    const struct engine_swap *swap = engine_swap(engine);
    struct engine_port made = {.self = port,
                               .n_slots = swap ? engine_swap_slots(swap) : 0,
                               .swap_reserve = port_swap_reserve,
                               .swap_out = port_swap_out,
                               .swap_in = port_swap_in,
                               .swap_arrive = port_swap_arrive,
                               .V = port->V,
                               .in_flight = engine_in_flight(engine),
                               .submit = device ? device_submit : port_submit,
                               .wait = device ? device_wait : port_wait,
                               .why = port_why,
                               .sampling_ns = device ? NULL : port_sampling_ns,
                               .close = port_close};
    return scheduler_new_on(config, &made);
}
