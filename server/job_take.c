/* What becomes of a job's tokens and memory, whoever waits for its answer: a client, or a batch. */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "server/job.h"

static void free_prompt(struct job *job, struct job_prompt *prompt) {
    for (int i = 0; prompt->choices && i < job->request->n; i++) choice_free(&prompt->choices[i]);
    free(prompt->choices);
    free(prompt->prompt_logprobs);
    free(prompt->ids);
    buf_free(&prompt->decoded_text);
}

void job_clear(struct job *job) {
    for (int i = 0; i < job->n_prompts; i++) free_prompt(job, &job->prompts[i]);
    free(job->prompts);
    api_request_free(job->request);
    buf_free(&job->out);
}

void job_cancel(struct job *job) {
    for (int i = 0; i < job->n_prompts; i++) {
        struct generation *g = &job->prompts[i].generation;
        atomic_store(&g->cancelled, true);
        scheduler_cancel(job->app->scheduler, g);
    }
}

/* A stop string has ended a choice that the scheduler still runs. */
static void stop_choice(struct job *job, struct generation *g, int choice) {
    atomic_fetch_or(&g->cancelled_choices[choice / 64], (uint64_t)1 << (choice % 64));
    scheduler_cancel(job->app->scheduler, g);
}

static void take_prompt_token(struct job_prompt *prompt, const struct event *event) {
    assert(prompt->prompt_logprobs && event->position < prompt->n_ids);
    struct api_logprob *logprob = &prompt->prompt_logprobs[event->position];
    logprob->sampled = event->sampled;
    logprob->has_logprob = true;
}

void job_take(struct job *job, struct job_prompt *prompt, const struct event *event) {
    struct choice *choice = &prompt->choices[event->choice];
    if (event->kind == EVENT_PROMPT_TOKEN) {
        take_prompt_token(prompt, event);
        return;
    }
    if (choice->done) return;
    int before = choice->n_tokens;
    choice_add(choice, prompt, event);
    if (event->n_cached > prompt->n_cached) {
        job->cached_tokens += event->n_cached - prompt->n_cached;
        prompt->n_cached = event->n_cached;
    }
    job->completion_tokens += choice->n_tokens - before;
    if (!choice->done) return;
    if (event->finish == FINISH_NONE) stop_choice(job, &prompt->generation, event->choice);
    job->n_open--;
}
