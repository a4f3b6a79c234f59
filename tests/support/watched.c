#include "support/watched.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the reference -------------------------------------------------------------------------- */

static void read_numbers(char *line, struct golden *g, bool are_guesses) {
    int n = 0;
    for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n"), n++) {
        const int32_t id = (int32_t)strtol(word, NULL, 10);
        ck_assert(are_guesses ? n < WATCHED_GUESSES && g->n_guessed < WATCHED_TOKENS
                              : n < WATCHED_LENGTH);
        if (are_guesses)
            g->guess[g->n_guessed][n] = id;
        else
            g->id[g->n_prompt + g->n_tokens++] = id;
    }
    g->n_guessed += are_guesses;
}

static void read_golden(const char *name, struct golden golden[WATCHED_PROMPTS]) {
    char path[96], line[4096];
    snprintf(path, sizeof path, "tests/vectors/ahead/%.*s.txt", (int)strcspn(name, "."), name);
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "%s cannot be read", path);
    struct golden *g = golden - 1;
    memset(golden, 0, WATCHED_PROMPTS * sizeof *golden);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "prompt ", 7) == 0) {
            ck_assert(++g < golden + WATCHED_PROMPTS);
            read_numbers(line + 7, g, false);
            g->n_prompt = g->n_tokens, g->n_tokens = 0;
        } else if (strncmp(line, "tokens ", 7) == 0) {
            read_numbers(line + 7, g, false);
        } else if (strncmp(line, "guesses ", 8) == 0) {
            read_numbers(line + 8, g, true);
        }
    }
    fclose(file);
    for (int i = 0; i < WATCHED_PROMPTS; i++)
        ck_assert(golden[i].n_tokens == WATCHED_TOKENS && golden[i].n_guessed == WATCHED_TOKENS);
}

/* ---- a scheduler whose drafts are compared -------------------------------------------------- */

static void compare_guess(struct watched *w, const struct draft_job *job, int k) {
    const struct generation *g = job->context.owner;
    const struct golden *golden = &w->golden[g->prompt == w->golden[1].id];
    const int at = job->context.n - golden->n_prompt - 1;
    const int32_t found = job->context.tokens[job->context.n + k];
    ck_assert(at >= 0 && at < WATCHED_TOKENS);
    ck_assert_mem_eq(job->context.tokens, golden->id,
                     (size_t)job->context.n * sizeof *golden->id); /* the model's own text */
    w->n_compared++, w->at[at]++;
    if (found == golden->guess[at][k] || w->n_wrong++ > 0) return;
    snprintf(w->first, sizeof w->first, "guess %d after token %d is %d, the reference has %d", k,
             at, (int)found, (int)golden->guess[at][k]);
}

static void propose_and_compare(void *self, struct draft_job *jobs, int n) {
    struct watched *w = self;
    w->drafter.propose_all(w->drafter.self, jobs, n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < jobs[i].draft.n; k++) compare_guess(w, &jobs[i], k);
}

static void on_events(void *arg, const struct event *events, int n) {
    struct watched *w = arg;
    for (int i = 0; i < n; i++) w->n_live -= events[i].last;
}

/* Writes the path of the model's EAGLE-3 head. Returns NULL if it has none. */
static const char *head_of(const char *path, char out[112]) {
    snprintf(out, 112, "%s_head", path);
    return access(out, F_OK) == 0 ? out : NULL;
}

static struct engine *open_watched(const char *path, const struct setting *s, enum device device,
                                   int ranks) {
    char head[112];
    struct engine_config config = {.model = path,
                                   .ranks = ranks,
                                   .threads = s->threads,
                                   .cpu_path = s->path,
                                   .dtype = COMPUTE_FLOAT32,
                                   .kv_dtype = KV_DTYPE_FLOAT32,
                                   .device = device,
                                   .max_model_len = WATCHED_LENGTH,
                                   .max_num_seqs = s->max_seqs,
                                   .max_num_batched_tokens = s->max_rows,
                                   .max_logit_rows = s->max_logit_rows,
                                   .block_size = s->block_size,
                                   .max_drafts = WATCHED_GUESSES,
                                   .guesses_ahead = true,
                                   .eagle = head_of(path, head),
                                   .state_checkpoints = -1,
                                   .enforce_eager = s->eager,
                                   .warm_up = s->warm_up,
                                   .swap_space = s->swap_slots > 0 ? 1 << 20 : 0,
                                   .kv_memory = 64 << 20};
    struct engine *engine;
    struct err err = {0};
    ck_assert_msg(engine_open(&engine, &config, &err) == STATUS_OK, "%s: %s", path, err.message);
    return engine;
}

struct watched *watched_new(const char *name, const struct setting *s, enum device device,
                            int ranks) {
    struct watched *w = mem_calloc(1, sizeof *w);
    char path[96];
    snprintf(path, sizeof path, "tests/vectors/ahead/%s", name);
    read_golden(name, w->golden);
    w->engine = open_watched(path, s, device, ranks);
    const struct engine_memory *memory = engine_memory(w->engine);
    const struct scheduler_config config = {
        .max_num_seqs = s->max_seqs,
        .max_num_batched_tokens = s->max_rows,
        .max_model_len = WATCHED_LENGTH,
        .max_queued_requests = 8,
        .max_queued_tokens = 4096,
        .n_blocks = min_int(s->n_blocks, memory->n_blocks),
        .block_size = s->block_size,
        .n_states = memory->n_states,
        .n_checkpoints = memory->n_checkpoints,
        .n_draft_states = memory->n_draft_states,
        .checkpoint_every = memory->checkpoint_every,
        .checkpoint_least = 1,
        .swap_from = 1,
        .max_logit_rows = s->max_logit_rows,
        .prefix_caching = s->caching,
        .speculation = {.method = SPECULATION_AHEAD, .max_tokens = WATCHED_GUESSES},
        .fixed_drafts = true,
        .on_events = on_events,
        .arg = w};
    w->scheduler = scheduler_new(&config, w->engine);
    w->drafter = w->scheduler->drafter;
    w->scheduler->drafter.self = w;
    w->scheduler->drafter.propose_all = propose_and_compare;
    return w;
}

void watched_free(struct watched *w) {
    w->scheduler->drafter = w->drafter;
    scheduler_free(w->scheduler);
    engine_close(w->engine);
    mem_free(w);
}

void watched_ask(struct watched *w, int prompt, int n) {
    struct generation *g = &w->generation[w->n_asked++];
    struct err err = {0};
    ck_assert_int_le(w->n_asked, 4);
    *g = (struct generation){.prompt = w->golden[prompt].id,
                             .n_prompt = w->golden[prompt].n_prompt,
                             .n = n,
                             .max_tokens = WATCHED_TOKENS,
                             .max_drafts = WATCHED_GUESSES,
                             .predicted = w->golden[prompt].id + w->golden[prompt].n_prompt,
                             .n_predicted = w->predicts,
                             .sampling = SAMPLING_GREEDY,
                             .prompt_logprobs = -1,
                             .owner = g};
    w->n_live++;
    ck_assert_msg(scheduler_submit(w->scheduler, g, &err) == STATUS_OK, "%s", err.message);
}

void watched_step(struct watched *w) {
    scheduler_step(w->scheduler);
    scheduler_check(w->scheduler);
}

void watched_finish(struct watched *w) {
    for (int i = 0; i < 2000 && w->n_live > 0; i++) watched_step(w);
    ck_assert_int_eq(w->n_live, 0);
    w->n_asked = 0;
    ck_assert_msg(w->n_wrong == 0, "%d of %d guesses are wrong; first: %s", w->n_wrong,
                  w->n_compared, w->first);
}
