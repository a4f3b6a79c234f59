#include "support/fake_scheduler.h"

#include <check.h>
#include <string.h>

#include "scheduler/internal.h"

static void on_events(void *arg, const struct event *events, int n) {
    struct fake_scheduler *f = arg;
    ck_assert_int_le(f->n_seen + n, FAKE_EVENTS);
    for (int i = 0; i < n; i++) f->seen[f->n_seen++] = events[i];
}

void fake_scheduler_open(struct fake_scheduler *f, struct scheduler_config config) {
    memset(f, 0, sizeof *f);
    config.on_events = on_events;
    config.arg = f;
    f->max_model_len = config.max_model_len;
    f->engine = fake_engine_new(&config);
    struct engine_port port = fake_engine_port(f->engine);
    f->scheduler = scheduler_new_on(&config, &port);
}

void fake_scheduler_close(struct fake_scheduler *f) {
    scheduler_free(f->scheduler);
    fake_engine_free(f->engine);
}

struct generation *fake_scheduler_ask(struct fake_scheduler *f, int k, int n_prompt, int max_tokens,
                                      int n) {
    struct fake_client *client = &f->client[k];
    struct generation *g = &client->generation;
    g->n_prompt = n_prompt;
    g->max_tokens = max_tokens;
    g->n = n;
    g->prompt_logprobs = -1;
    for (int i = 0; i < n_prompt; i++) client->prompt[i] = (i + k) % FAKE_V;
    fake_client_ready(client, f->max_model_len);
    return g;
}

enum status fake_scheduler_put(struct fake_scheduler *f, struct generation *g, struct err *err) {
    return scheduler_submit(f->scheduler, g, err);
}
