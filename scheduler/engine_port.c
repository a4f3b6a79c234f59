/* engine_port: the port to the real engine, and scheduler_new, which makes it.
 *
 * DESIGN. Sampling runs on the engine's compute threads. engine_parallel does not say which
 * thread calls, so the parallel work is one task a sampler: task i owns sampler i and takes jobs
 * from a shared counter until none is left. Which sampler does which job changes no result
 * (sampler_sample). A choice of a forked prompt shares its logits with the others, so its task
 * works on a copy. Sampling belongs to the wait, because the step behind may want the ids: it is
 * launched as soon as they are there, and runs while the results are committed.
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
    int32_t *id; /* [max_logit_rows] what was sampled from its rows */
    _Atomic int next_job;
};

static size_t spare_bytes(const struct port *port) {
    return (size_t)port->n_samplers * (size_t)port->V * sizeof *port->spare;
}

static void port_submit(void *self, const struct step *step, struct sample_job *jobs, int n) {
    (void)jobs, (void)n;
    engine_submit(((struct port *)self)->engine, step);
}

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

static void port_wait(void *self, struct sample_job *jobs, int n) {
    struct port *port = self;
    port->logits = engine_wait(port->engine);
    port->jobs = jobs;
    port->n_jobs = n;
    atomic_store(&port->next_job, 0);
    int tasks = n < port->n_samplers ? n : port->n_samplers;
    if (tasks > 0) engine_parallel(port->engine, run_jobs, port, tasks);
    set_ids(port);
    engine_sampled(port->engine, port->id);
}

static void port_close(void *self) {
    struct port *port = self;
    for (int i = 0; i < port->n_samplers; i++) sampler_free(port->sampler[i]);
    mem_large_free(port->spare, spare_bytes(port));
    free(port->id);
    free(port);
}

/* More samplers than compute threads could not work at once; each has tables of V. */
static int samplers_wanted(const struct engine *engine, int max_seqs) {
    int threads = engine_threads(engine), n = threads < MAX_SAMPLERS ? threads : MAX_SAMPLERS;
    return n < max_seqs ? n : max_seqs;
}

struct scheduler *scheduler_new(const struct scheduler_config *config, struct engine *engine) {
    struct port *port = mem_calloc(1, sizeof *port);
    port->engine = engine;
    port->V = engine_model(engine)->V;
    port->n_samplers = samplers_wanted(engine, config->max_num_seqs);
    for (int i = 0; i < port->n_samplers; i++) port->sampler[i] = sampler_new(port->V, NULL);
    port->spare = mem_large(spare_bytes(port));
    port->id = mem_calloc((size_t)config->max_logit_rows, sizeof *port->id);
    struct engine_port made = {.self = port,
                               .V = port->V,
                               .in_flight = engine_in_flight(engine),
                               .submit = port_submit,
                               .wait = port_wait,
                               .close = port_close};
    return scheduler_new_on(config, &made);
}
