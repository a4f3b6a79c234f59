/* A run: an engine and a scheduler with some settings, and clients that compare the events.
 *
 * DESIGN. A stepped run uses only the thread of the test. In a threaded run events are delivered on
 * the scheduler's thread. Only that thread accesses a client between its submit and its last event.
 * The threads share only n_live, under the mutex. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/internal.h"
#include "kernels/cpu/kv.h"
#include "support/naive_grammar.h"
#include "support/same_bytes.h"

#define MOST_STEPS 200000

/* ---- comparing ------------------------------------------------------------------------------ */

static bool same_float(float a, float b) {
    return memcmp(&a, &b, sizeof a) == 0;
}

static bool same_sampled(const struct sampled *a, const struct sampled *b) {
    bool same = a->id == b->id && same_float(a->logprob, b->logprob) && a->rank == b->rank &&
                a->n_top == b->n_top;
    for (int i = 0; same && i < a->n_top; i++)
        same = a->top[i].id == b->top[i].id && same_float(a->top[i].logprob, b->top[i].logprob);
    return same;
}

static void differ(struct client *client, const struct event *event, int at,
                   const struct sampled *wanted) {
    struct run *run = client->run;
    if (run->tally.differences++ > 0) return;
    const struct sampled *got = &event->sampled;
    snprintf(
        run->first_difference, sizeof run->first_difference,
        "request %d (%d tokens, n %d), choice %d, kind %d, token %d: id %d logprob %a rank %d, "
        "finish %d; alone: id %d logprob %a rank %d",
        (int)(client->asked - run->set->asked), client->generation.n_prompt, client->generation.n,
        event->choice, (int)event->kind, at, (int)got->id, (double)got->logprob, got->rank,
        (int)event->finish, wanted ? (int)wanted->id : -1, wanted ? (double)wanted->logprob : 0.0,
        wanted ? wanted->rank : 0);
}

/* ---- events --------------------------------------------------------------------------------- */

static void learn_event(struct client *client, const struct event *event) {
    struct answer *into = client->into;
    if (event->kind == EVENT_PROMPT_TOKEN || event->kind == EVENT_READ)
        into->scored[into->n_scored++] = event->sampled;
    if (event->kind == EVENT_TOKEN)
        into->choice[event->choice].token[into->choice[event->choice].n++] = event->sampled;
    if (event->finish == FINISH_NONE) return;
    into->choice[event->choice].finish = event->finish;
    into->choice[event->choice].score = event->score;
    memcpy(into->hidden, client->hidden, (size_t)client->run->set->K * sizeof *into->hidden);
}

static void compare_score(struct client *client, const struct event *event) {
    const struct answer *answer = &client->asked->answer;
    int at = client->n_scored++;
    client->run->tally.scores++;
    if (at >= answer->n_scored) {
        differ(client, event, at, NULL);
    } else if ((event->kind == EVENT_PROMPT_TOKEN && event->position != at + 1) ||
               !same_sampled(&event->sampled, &answer->scored[at])) {
        differ(client, event, at, &answer->scored[at]);
    }
}

static void compare_token(struct client *client, const struct event *event) {
    const struct answer *answer = &client->asked->answer;
    int c = event->choice, at = client->n_tokens[c]++;
    client->run->tally.tokens++;
    if (at >= answer->choice[c].n || client->ended[c] || client->n_scored < answer->n_scored) {
        differ(client, event, at, NULL);
    } else if (!same_sampled(&event->sampled, &answer->choice[c].token[at])) {
        differ(client, event, at, &answer->choice[c].token[at]);
    }
}

static bool may_be_cancelled(const struct client *client, int choice) {
    return client->cancel_at >= 0 && (client->cancel_choice < 0 || client->cancel_choice == choice);
}

/* A choice that ends has produced all tokens that it produces alone, or was cancelled. */
static void compare_end(struct client *client, const struct event *event) {
    const struct answer *answer = &client->asked->answer;
    int c = event->choice;
    size_t hidden = (size_t)client->run->set->K * sizeof *client->hidden;
    if (event->finish == FINISH_CANCELLED && may_be_cancelled(client, c)) {
        client->run->tally.cancels++;
    } else if (event->finish != answer->choice[c].finish ||
               !same_float(event->score, answer->choice[c].score) ||
               client->n_tokens[c] != answer->choice[c].n || client->n_scored != answer->n_scored ||
               memcmp(client->hidden, answer->hidden, hidden) != 0) {
        differ(client, event, client->n_tokens[c], NULL);
    }
}

static void take_event(struct client *client, const struct event *event) {
    if (client->into) {
        learn_event(client, event);
    } else if (event->kind == EVENT_PROMPT_TOKEN || event->kind == EVENT_READ) {
        compare_score(client, event);
    } else if (event->kind == EVENT_TOKEN) {
        compare_token(client, event);
    }
    if (event->finish == FINISH_NONE) return;
    if (!client->into) compare_end(client, event);
    client->ended[event->choice] = true;
    client->last = event->last;
}

static void on_events(void *arg, const struct event *events, int n) {
    struct run *run = arg;
    int ended = 0;
    for (int i = 0; i < n; i++) {
        take_event(events[i].generation->owner, &events[i]);
        ended += events[i].last;
    }
    if (ended == 0) return;
    pthread_mutex_lock(&run->mutex);
    run->n_live -= ended;
    pthread_cond_signal(&run->all_ended);
    pthread_mutex_unlock(&run->mutex);
}

/* ---- opening -------------------------------------------------------------------------------- */

/* The same model in a second engine, with all keys and values in blocks of one kind. */
static struct engine_config draft_config(const struct run *run) {
    const struct setting *s = &run->setting;
    const struct model_choice *m = &run->set->model;
    return (struct engine_config){.model = m->file,
                                  .threads = s->threads,
                                  .kv_dtype = m->kv_dtype,
                                  .device = m->device,
                                  .dtype = m->dtype,
                                  .quantization = m->quantization,
                                  .wgmma = m->wgmma,
                                  .max_num_seqs = s->max_seqs,
                                  .max_num_batched_tokens = s->max_seqs + s->max_rows % 40,
                                  .block_size = s->block_size,
                                  .enforce_eager = s->eager,
                                  .cpu_path = s->path};
}

/* Opens the engine with exactly the requested blocks. */
static struct engine *open_engine(const struct run *run) {
    const struct setting *s = &run->setting;
    const struct model_choice *m = &run->set->model;
    const struct engine_config drafter = draft_config(run);
    const int pool = s->n_blocks * s->block_size; /* the maximum length of a sequence */
    struct engine_config config = {.model = m->file,
                                   .threads = s->threads,
                                   .ranks = m->ranks,
                                   .kv_dtype = m->kv_dtype,
                                   .device = m->device,
                                   .dtype = m->dtype,
                                   .quantization = m->quantization,
                                   .wgmma = m->wgmma,
                                   .persistent_step = s->persistent_step,
                                   .max_model_len =
                                       pool < m->max_model_len ? pool : m->max_model_len,
                                   .max_num_seqs = s->max_seqs,
                                   .max_num_batched_tokens = s->max_rows,
                                   .max_logit_rows = s->max_logit_rows,
                                   .block_size = s->block_size,
                                   .in_flight = s->in_flight,
                                   .enforce_eager = s->eager,
                                   .max_graphs = s->graphs,
                                   .warm_up = s->warm_up,
                                   .host_samples = m->host_samples,
                                   .max_adapters = run->set->n_adapters,
                                   .max_adapter_rank = 64,
                                   .cpu_path = s->path};
    struct kv_config kv = run->set->kv;
    kv.block_size = s->block_size;
    kv.L += s->guesses_ahead;
    config.guesses_ahead = s->guesses_ahead;
    config.eagle = s->guesses_ahead ? m->eagle : NULL;
    if (s->draft_model && !run->set->has_states) config.drafter = &drafter;
    config.max_drafts = s->max_drafts;
    config.state_checkpoints = s->checkpoints * run->set->state_bytes;
    config.swap_space = (int64_t)kv_token_bytes(&kv) * s->block_size * s->swap_slots;
    config.window_blocks = s->window_blocks;
    if (s->window_blocks > 0) kv.L = run->set->n_windows;
    config.kv_memory = (int64_t)kv_token_bytes(&kv) * s->block_size * s->window_blocks;
    kv.L = s->window_blocks > 0 ? run->set->kv.L - kv.L : kv.L; /* windows exclude guesses */
    config.kv_memory += (int64_t)kv_token_bytes(&kv) * s->block_size * s->n_blocks;
    struct engine *engine;
    struct err err = {0};
    if (engine_open(&engine, &config, &err) != STATUS_OK) {
        fprintf(stderr, "%s: %s\n", m->file, err.message);
        exit(1);
    }
    const struct engine_memory *memory = engine_memory(engine);
    assert(memory->n_blocks == s->n_blocks || memory->kv_bytes_per_token == 0);
    assert(memory->n_window_blocks == s->window_blocks);
    return engine;
}

static struct engine *open_draft_engine(const struct run *run) {
    const struct setting *s = &run->setting;
    const struct model_choice *m = &run->set->model;
    struct kv_config kv = run->set->kv;
    kv.block_size = s->block_size;
    int length = min_int(engine_memory(run->engine)->max_model_len, m->max_model_len);
    int64_t blocks = (length + s->block_size - 1) / s->block_size;
    struct engine_config config = draft_config(run);
    config.drafts_for = run->engine;
    if (s->draft_short) config.kv_memory = (int64_t)kv_token_bytes(&kv) * s->block_size * blocks;
    struct engine *engine;
    struct err err = {0};
    if (engine_open(&engine, &config, &err) == STATUS_OK) return engine;
    fprintf(stderr, "%s as a draft model: %s\n", m->file, err.message);
    exit(1);
}

/* Writes the tokens of a choice after n_known tokens, as it runs alone. */
static int foresee(void *owner, int choice, int n_known, int32_t *out, int n) {
    const struct client *client = owner;
    const struct answer *answer = &client->asked->answer;
    int at = n_known - client->generation.n_prompt;
    if (client->into) return 0;
    for (int i = 0; i < n; i++) {
        if (at + i >= answer->choice[choice].n) return i;
        out[i] = answer->choice[choice].token[at + i].id;
    }
    return n;
}

static void set_drafter(struct run *run, struct scheduler_config *config) {
    static const struct lookup_config lookup = {.min_match = 1, .max_match = MAX_DRAFT_MATCH};
    const struct setting *s = &run->setting;
    if (s->max_drafts == 0) return;
    config->speculation.max_tokens = s->max_drafts;
    config->fixed_drafts = s->fixed_drafts;
    if (s->guesses_ahead) {
        config->speculation.method = SPECULATION_AHEAD;
        return;
    }
    if (s->draft_model && !run->set->has_states) {
        config->draft_engine = run->draft_engine = open_draft_engine(run);
        return;
    }
    run->replay = (struct replay){.foresee = foresee,
                                  .V = run->set->V,
                                  .wrong = s->wrong,
                                  .any_length = !s->fixed_drafts,
                                  .random = (uint64_t)s->wrong + 1};
    run->drafter = s->wrong > 100 ? drafter_lookup(&lookup) : replay_drafter(&run->replay);
    config->drafter = &run->drafter;
}

/* The set owns the grammars. Their masks are already known from the reference runs. */
static void forget_masks(const struct request_set *set) {
    for (int i = 0; i < set->n_asked; i++) {
        struct grammar *grammar = set->asked[i].generation.grammar;
        if (grammar) grammar_forget(grammar);
    }
}

void run_reload_adapters(struct run *run, int first) {
    const int n = run->set->n_adapters;
    struct err err;
    struct adapter_facts facts;
    assert(run->n_clients == 0);
    for (int i = 0; i < n; i++)
        if (run->adapter_number[i]) engine_adapter_unload(run->engine, run->adapter_number[i]);
    for (int i = first; i < first + n; i++) {
        int *number = &run->adapter_number[i % n];
        if (engine_adapter_load(run->engine, run->set->adapter[i % n], number, &facts, &err)) {
            fprintf(stderr, "%s: %s\n", run->set->adapter[i % n], err.message);
            exit(1);
        }
        run->adapter_id[i % n] = ++run->n_adapter_ids;
    }
}

/* The identity need not name the model: each folder is used for one. */
static void open_run_store(struct run *run, struct scheduler_config *scheduler) {
    struct err err = {0};
    struct prefix_store_config config = {.place = run->setting.store,
                                         .max_bytes = (int64_t)1 << 30,
                                         .identity = {1, 2},
                                         .n_blocks = scheduler->n_blocks,
                                         .block_size = scheduler->block_size,
                                         .window = scheduler->window};
    if (!config.place) return;
    for (enum cache_part part = 0; part < N_CACHE_PARTS; part++)
        config.part_bytes[part] = engine_part_bytes(run->engine, part);
    if (prefix_store_open(&run->store, &config, &err) != STATUS_OK) {
        fprintf(stderr, "%s: %s\n", config.place, err.message);
        exit(1);
    }
    scheduler->prefix_store = run->store;
}

void run_open(struct run *run, const struct request_set *set, const struct setting *setting) {
    memset(run, 0, sizeof *run);
    run->set = set;
    run->setting = *setting;
    pthread_mutex_init(&run->mutex, NULL);
    pthread_cond_init(&run->all_ended, NULL);
    run->engine = open_engine(run);
    run_reload_adapters(run, 0);
    const struct engine_memory *memory = engine_memory(run->engine);
    struct scheduler_config config = {
        .max_num_seqs = setting->max_seqs,
        .max_num_batched_tokens = setting->max_rows,
        .max_mixed_prefill_tokens = setting->mixed_rows > 0 ? setting->mixed_rows : 1 << 20,
        .itl_target_ns = (uint64_t)(setting->mixed_rows % 3) * 100000,
        .max_model_len = set->model.max_model_len,
        .max_queued_requests = MAX_CLIENTS,
        .max_queued_tokens = 1 << 20,
        .n_blocks = setting->n_blocks,
        .block_size = setting->block_size,
        .n_window_blocks = setting->window_blocks,
        .window = set->window,
        .n_states = memory->n_states,
        .n_checkpoints = memory->n_checkpoints,
        .n_draft_states = memory->n_draft_states,
        .checkpoint_every = setting->checkpoint_blocks * setting->block_size,
        .checkpoint_least = 1,
        .max_logit_rows = setting->max_logit_rows,
        .prefix_caching = setting->caching,
        .swap_from = 1,
        .samples_forced = setting->samples_forced,
        .max_mask_work = setting->max_mask_work,
        .on_events = on_events,
        .arg = run};
    set_drafter(run, &config);
    open_run_store(run, &config);
    forget_masks(set);
    run->scheduler = scheduler_new(&config, run->engine);
}

static void take_stats(struct run *run) {
    struct scheduler_stats stats;
    scheduler_stats(run->scheduler, &stats);
    assert(stats.running == 0 && stats.waiting == 0 && stats.blocks_used == 0);
    run->tally.preemptions = stats.preemptions;
    assert(stats.swapped == 0 && stats.host_blocks_used == 0);
    run->tally.swapped_out = stats.swapped_out;
    run->tally.swapped_in = stats.swapped_in;
    run->tally.prefix_hits = stats.prefix_hits;
    run->tally.state_hits = run->set->has_states ? stats.prefix_hits : 0;
    run->tally.state_accepted = run->set->has_states ? stats.accepted_tokens : 0;
    run->tally.steps = stats.steps;
    run->tally.drafts = stats.draft_tokens;
    run->tally.accepted = stats.accepted_tokens;
    run->tally.forced = stats.forced_tokens;
    run->tally.unready = stats.unready_masks;
}

void run_close(struct run *run) {
    take_stats(run);
    scheduler_free(run->scheduler);
    prefix_store_close(run->store);
    engine_close(run->draft_engine);
    engine_close(run->engine);
    pthread_mutex_destroy(&run->mutex);
    pthread_cond_destroy(&run->all_ended);
}

/* ---- clients -------------------------------------------------------------------------------- */

static void copy_generation(struct generation *to, const struct generation *from) {
    memcpy(to, from, sizeof *to);
    atomic_init(&to->cancelled, false);
    atomic_init(&to->cancelled_choices[0], 0);
    atomic_init(&to->cancelled_choices[1], 0);
}

struct client *run_add(struct run *run, const struct asked *asked) {
    assert(run->n_clients < MAX_CLIENTS);
    struct client *client = &run->client[run->n_clients++];
    memset(client, 0, sizeof *client);
    copy_generation(&client->generation, &asked->generation);
    client->generation.owner = client;
    client->hidden = mem_calloc((size_t)run->set->K, sizeof *client->hidden);
    client->generation.hidden_sum = client->hidden;
    client->generation.max_drafts = run->setting.max_drafts;
    if (asked->adapter)
        generation_use_adapter(&client->generation, run->adapter_number[asked->adapter - 1],
                               run->adapter_id[asked->adapter - 1]);
    client->asked = asked;
    client->run = run;
    client->cancel_at = client->cancel_choice = -1;
    return client;
}

/* As the server does (read_stored in server/generation/prepare.c). */
static void read_stored(struct run *run, struct generation *g) {
    bool is_public = g->cache_salt[0] == 0 && g->cache_salt[1] == 0;
    if (!run->store || !is_public || g->prompt_logprobs >= 0 || generation_reads(g)) return;
    g->restored = prefix_store_read(run->store, g->prompt, g->n_prompt - 1, 0);
    for (int i = 0; g->restored && i < g->restored->n_parts; i++)
        run->tally.restored[g->restored->part[i].part]++;
}

static void submit(struct client *client) {
    struct err err = {0};
    read_stored(client->run, &client->generation);
    if (scheduler_submit(client->run->scheduler, &client->generation, &err) == STATUS_OK) return;
    fprintf(stderr, "a request was refused: %s\n", err.message);
    exit(1);
}

static void cancel(struct client *client) {
    struct generation *g = &client->generation;
    if (client->cancel_choice < 0) {
        atomic_store(&g->cancelled, true);
    } else {
        atomic_fetch_or(&g->cancelled_choices[0], (uint64_t)1 << client->cancel_choice);
    }
    scheduler_cancel(client->run->scheduler, g);
}

/* ---- running -------------------------------------------------------------------------------- */

static void forget_clients(struct run *run) {
    for (int i = 0; i < run->n_clients; i++) {
        assert(run->client[i].last);
        free(run->client[i].hidden);
    }
    run->n_clients = 0;
}

static void act_at(struct run *run, int step) {
    for (int i = 0; i < run->n_clients; i++) {
        struct client *client = &run->client[i];
        if (client->submit_at == step) submit(client);
        if (client->cancel_at == step && !client->last) cancel(client);
    }
}

static void poison_on_cpu(struct backend *b, struct kv_cache *cache, int32_t window_block) {
    (void)b;
    for (int layer = 0; layer < cache->config.L; layer++) {
        const struct kv_kind *kv = kv_kind(cache, layer);
        int place = cache->layer[layer].place;
        if (!kv->has_window) continue;
        memset(kv_keys(kv, place, window_block), 0x5a, kv->key_bytes);
        memset(kv_values(kv, place, window_block), 0x5a, kv->value_bytes);
    }
}

static void poison_state_on_cpu(struct backend *b, struct kv_cache *cache, int32_t state) {
    (void)b;
    memset(kv_state(cache, state, 0), 0x5a, kv_state_bytes(&cache->config));
}

static void poison_states(struct run *run) {
    const struct state_pool *states = &run->scheduler->states;
    void (*poison)(struct backend *, struct kv_cache *, int32_t) = run->setting.poison_state;
    if (!poison && run->engine->backend->host_memory) poison = poison_state_on_cpu;
    for (int i = 0; i < states->n_free && poison; i++)
        poison(run->engine->backend, run->engine->cache, states->free[i]);
}

void run_poison(struct run *run) {
    poison_states(run);
    const struct window_pool *windows = &run->scheduler->pool.windows;
    void (*poison)(struct backend *, struct kv_cache *, int32_t) = run->setting.poison;
    if (!poison) poison = poison_on_cpu;
    for (int i = 0; i < windows->n_free; i++)
        poison(run->engine->backend, run->engine->cache, windows->free[i]);
}

void run_stepped(struct run *run) {
    uint64_t steps = run->scheduler->stats.steps;
    run->n_live = run->n_clients;
    for (int step = 0; run->n_live > 0; step++) {
        assert(step < MOST_STEPS);
        act_at(run, step);
        scheduler_step(run->scheduler);
        run_poison(run);
        if (run->scheduler->stats.steps > steps)
            run->tally.copies += (uint64_t)run->scheduler->batch.step.n_copies;
        steps = run->scheduler->stats.steps;
    }
    forget_clients(run);
}

void run_threaded(struct run *run) {
    run->n_live = run->n_clients;
    scheduler_start(run->scheduler);
    for (int i = 0; i < run->n_clients; i++) {
        submit(&run->client[i]);
        if (i % 3 == 2) sched_yield();
    }
    for (int i = 0; i < run->n_clients; i++)
        if (run->client[i].cancel_at >= 0) cancel(&run->client[i]);
    pthread_mutex_lock(&run->mutex);
    while (run->n_live > 0) pthread_cond_wait(&run->all_ended, &run->mutex);
    pthread_mutex_unlock(&run->mutex);
    forget_clients(run);
}
