#include "support/fake_engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers -------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t fake_random(uint64_t *state) {
    return mix(*state += 0x9e3779b97f4a7c15u);
}

int fake_between(uint64_t *state, int low, int high) {
    assert(low <= high);
    return low + (int)(fake_random(state) % (uint64_t)(high - low + 1));
}

uint64_t fake_word(int32_t token, int position, uint64_t sum_before) {
    return mix(sum_before + mix((uint64_t)token * 0x10001 + (uint64_t)position + 77));
}

uint64_t fake_logits(uint64_t sum) {
    return mix(sum ^ 0x5bd1e995u);
}

bool fake_listed(const int32_t *ids, int n, int32_t id) {
    for (int i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

int32_t fake_choose(uint64_t logits, uint64_t seed, int position, int choice, int32_t last,
                    const int32_t *banned, int n_banned, uint32_t mask) {
    uint64_t key =
        mix(seed + 3) + (uint64_t)position * 131 + (uint64_t)choice * 8191 + (uint64_t)last * 7;
    int32_t id = (int32_t)(mix(logits ^ key) % FAKE_V);
    for (int i = 0; i < FAKE_V; i++, id = (id + 1) % FAKE_V)
        if (!fake_listed(banned, n_banned, id) && (mask >> id & 1)) return id;
    return -1;
}

struct logit_bias fake_bias(int i) {
    return (struct logit_bias){.id = FAKE_V - 1 - i, .bias = 0.5f + (float)i};
}

float fake_score(uint64_t logits, int32_t id, int n_top) {
    return (float)(mix(logits + (uint64_t)id * 31 + (uint64_t)n_top) & 0xffff);
}

void fake_hidden(uint64_t logits, float hidden[FAKE_K]) {
    for (int k = 0; k < FAKE_K; k++) hidden[k] = (float)(mix(logits + (uint64_t)k) & 0xffff);
}

int fake_best(uint64_t logits, const int32_t *banned, int n_banned, int most,
              struct token_logprob best[FAKE_V]) {
    int n = 0;
    for (int32_t id = 0; id < FAKE_V; id++) {
        float logprob = -0.125f - 0.25f * (float)(mix(logits + (uint64_t)id * 77) % 24);
        if (fake_listed(banned, n_banned, id)) logprob = -INFINITY;
        int at = n++;
        for (; at > 0 && logprob > best[at - 1].logprob; at--) best[at] = best[at - 1];
        best[at] = (struct token_logprob){id, logprob};
    }
    return n < most ? n : most;
}

/* ---- the engine ----------------------------------------------------------------------------- */

static uint64_t *slot_at(struct fake_engine *engine, const int32_t *table, int position) {
    int block = table[position / engine->block_size];
    assert(block >= 0 && block < engine->n_blocks);
    return &engine->word[block * engine->block_size + position % engine->block_size];
}

static uint64_t *window_slot_at(struct fake_engine *engine, const int32_t *table, int position) {
    int block = table[position / engine->block_size];
    assert(block >= 0 && block < engine->n_window_blocks);
    return &engine->window_word[block * engine->block_size + position % engine->block_size];
}

static void copy_window_block(struct fake_engine *engine, const struct step *step, int i) {
    size_t size = (size_t)engine->block_size;
    int from = step->window_copy_from[i], to = step->window_copy_to[i];
    assert(from >= 0 && from < engine->n_window_blocks);
    assert(to >= 0 && to < engine->n_window_blocks && from != to);
    memcpy(engine->window_word + (size_t)to * size, engine->window_word + (size_t)from * size,
           size * sizeof *engine->window_word);
}

static void copy_blocks(struct fake_engine *engine, const struct step *step) {
    size_t size = (size_t)engine->block_size;
    for (int i = 0; i < step->n_copies; i++) {
        if (engine->n_window_blocks > 0) copy_window_block(engine, step, i);
        for (int j = 0; j < step->n_copies; j++) assert(step->copy_to[i] != step->copy_from[j]);
        for (int j = 0; j < i; j++) assert(step->copy_to[i] != step->copy_to[j]);
        memcpy(engine->word + (size_t)step->copy_to[i] * size,
               engine->word + (size_t)step->copy_from[i] * size, size * sizeof *engine->word);
        engine->n_copies++;
    }
}

static void copy_states(struct fake_engine *engine, const struct step *step) {
    for (int i = 0; i < step->n_state_copies; i++) {
        int32_t from = step->state_from[i], to = step->state_to[i];
        assert(from >= 0 && from < engine->n_states && to >= 0 && to < engine->n_states);
        for (int j = 0; j < step->n_state_copies; j++) assert(to != step->state_from[j]);
        for (int j = 0; j < i; j++) assert(to != step->state_to[j]);
        engine->state[to] = engine->state[from];
        engine->n_state_copies++;
    }
}

/* Each sequence of the step has a state of its own. */
static void check_states(const struct fake_engine *engine, const struct step *step, int s) {
    if (engine->n_states == 0) return;
    assert(step->state[s] >= 0 && step->state[s] < engine->n_states);
    for (int i = 0; i < s; i++) assert(step->state[i] != step->state[s]);
    for (int m = 0; m < step->M; m++) {
        int32_t kept = step->state_after[m];
        assert(kept >= -1 && kept < engine->n_states && kept != step->state[s]);
        for (int i = 0; i < step->n_state_copies && kept >= 0; i++)
            assert(kept != step->state_from[i] && kept != step->state_to[i]);
        for (int i = 0; i < m && kept >= 0; i++) assert(kept != step->state_after[i]);
    }
}

static void check_shape(const struct fake_engine *engine, const struct step *step) {
    assert(step->M > 0 && step->M <= engine->max_rows);
    assert(step->S > 0 && step->S <= engine->max_seqs && step->R <= engine->max_logit_rows);
    assert(step->row_start[0] == 0 && step->row_start[step->S] == step->M);
    assert(step->n_hidden >= 0 && step->n_hidden <= step->R);
    for (int r = 0; r < step->R; r++) {
        bool first = r == 0 || r == step_logits(step);
        assert(step->logit_row[r] >= (first ? 0 : step->logit_row[r - 1] + 1));
        assert(step->logit_row[r] < step->M);
    }
}

/* A step must not read or write blocks that have not arrived. */
static void check_arrived(const struct fake_engine *engine, const struct step *step, int s) {
    const int32_t *table = step->table + (size_t)s * (size_t)step->table_stride;
    int last = step->position[step->row_start[s + 1] - 1];
    for (int i = 0; i <= last / engine->block_size; i++)
        assert(engine->swap[KV_BLOCKS].comes_from[table[i]] < 0);
}

/* The rows of a sequence are in order, and their slots are those of its table. */
static void check_rows(struct fake_engine *engine, const struct step *step, int s) {
    const int32_t *table = step->table + (size_t)s * (size_t)step->table_stride;
    assert(step->row_start[s] < step->row_start[s + 1]);
    for (int m = step->row_start[s]; m < step->row_start[s + 1]; m++) {
        int position = step->position[m];
        assert(position >= 0 && position < step->table_stride * engine->block_size);
        assert(m == step->row_start[s] || position == step->position[m - 1] + 1);
        assert(&engine->word[step->slot[m]] == slot_at(engine, table, position));
        int block = step->slot[m] / engine->block_size;
        assert(engine->written_in[block] != engine->n_steps || engine->writer[block] == s);
        engine->written_in[block] = engine->n_steps;
        engine->writer[block] = s;
    }
}

/* A sequence does not read a block that another one writes in the same step. */
static void check_reads(const struct fake_engine *engine, const struct step *step, int s) {
    const int32_t *table = step->table + (size_t)s * (size_t)step->table_stride;
    int last = step->position[step->row_start[s + 1] - 1];
    for (int i = 0; i <= last / engine->block_size; i++)
        assert(engine->written_in[table[i]] != engine->n_steps || engine->writer[table[i]] == s);
}

static uint64_t sum_before(struct fake_engine *engine, const int32_t *table, int position) {
    uint64_t sum = 0;
    for (int i = 0; i < position; i++) sum += *slot_at(engine, table, i);
    return sum;
}

/* Writes the word of a row, and compares the words in its window with those of the other layers. */
static void run_window(struct fake_engine *engine, const struct step *step, int s, int m) {
    size_t row = (size_t)s * (size_t)step->table_stride;
    const int32_t *window_table = step->window_table + row, *table = step->table + row;
    int position = step->position[m], first = position - engine->window + 1;
    uint64_t *slot = window_slot_at(engine, window_table, position);
    for (int i = first > 0 ? first : 0; i <= position; i++)
        assert(engine->swap[KV_WINDOW_BLOCKS].comes_from[window_table[i / engine->block_size]] < 0);
    assert(slot == &engine->window_word[step->window_slot[m]]);
    *slot = engine->word[step->slot[m]];
    for (int i = first > 0 ? first : 0; i <= position; i++)
        assert(*window_slot_at(engine, window_table, i) == *slot_at(engine, table, i));
}

enum { NO_TOKEN = -2 }; /* a sample without an allowed token */

static int32_t token_at(const struct fake_engine *engine, const struct step *step, int m) {
    int32_t token = step->token[m];
    if (token < 0) token = engine->id[pending_token(token)];
    if (token == NO_TOKEN) token = 0; /* a device computes an unused result */
    assert(token >= 0 && token < FAKE_V);
    return token;
}

/* Keeps what the step wants of row m. */
static void read_row(struct fake_pass *pass, const struct step *step, int m, int32_t token,
                     uint64_t logits) {
    const int32_t *hidden = step->logit_row + step_logits(step);
    if (pass->n_hidden < step->n_hidden && hidden[pass->n_hidden] == m)
        fake_hidden(logits, pass->hidden[pass->n_hidden++]);
    if (pass->n_logits == step_logits(step) || step->logit_row[pass->n_logits] != m) return;
    pass->last[pass->n_logits] = token;
    pass->logits[pass->n_logits++] = logits;
}

static void run_sequence(struct fake_engine *engine, struct fake_pass *pass,
                         const struct step *step, int s) {
    const int32_t *table = step->table + (size_t)s * (size_t)step->table_stride;
    int first = step->row_start[s], end = step->row_start[s + 1];
    uint64_t sum = sum_before(engine, table, step->position[first]);
    if (engine->n_states > 0 && step->position[first] > 0)
        assert(engine->state[step->state[s]] == sum);
    for (int m = first; m < end; m++) {
        int32_t token = token_at(engine, step, m);
        uint64_t word = fake_word(token, step->position[m], sum);
        engine->word[step->slot[m]] = word;
        if (engine->n_window_blocks > 0) run_window(engine, step, s, m);
        sum += word;
        if (engine->n_states > 0 && step->state_after[m] >= 0)
            engine->state[step->state_after[m]] = sum;
        read_row(pass, step, m, token, fake_logits(sum));
    }
    assert(sum == sum_before(engine, table, step->position[end - 1] + 1));
    if (engine->n_states > 0) engine->state[step->state[s]] = sum;
}

/* A sample points to settings and lists of its generation, which must be alive. */
static void check_settings(const struct sampling *sampling) {
    if (!sampling) return;
    assert(sampling->n_bias == 0 || sampling->n_bias == FAKE_BIASES);
    for (int i = 0; i < sampling->n_bias; i++) {
        const struct logit_bias due = fake_bias(i);
        assert(sampling->bias[i].id == due.id && sampling->bias[i].bias == due.bias);
    }
    for (int i = 0; i < sampling->n_banned; i++)
        assert(sampling->banned[i] >= 0 && sampling->banned[i] < FAKE_V);
}

static void fake_submit(void *self, const struct step *step) {
    struct fake_engine *engine = self;
    assert(engine->n_passes < engine->in_flight);
    struct fake_pass *pass = &engine->pass[(engine->first + engine->n_passes++) % MAX_IN_FLIGHT];
    int n_pending = 0;
    pass->n_logits = pass->n_hidden = pass->n_samples = 0;
    pass->sampled = false;
    pass->named = step->samples;
    pass->n_named = step->n_samples;
    engine->n_named += step->samples != NULL;
    for (int i = 0; i < step->n_samples; i++) check_settings(step->samples[i].sampling);
    engine->n_steps++;
    engine->n_rows += (uint64_t)step->M;
    if (step->S > engine->most_seqs) engine->most_seqs = step->S;
    check_shape(engine, step);
    copy_blocks(engine, step);
    copy_states(engine, step);
    for (int s = 0; s < step->S; s++) check_states(engine, step, s);
    for (int s = 0; s < step->S; s++) check_arrived(engine, step, s);
    for (int s = 0; s < step->S; s++) check_rows(engine, step, s);
    for (int s = 0; s < step->S; s++) check_reads(engine, step, s);
    for (int m = 0; m < step->M; m++) n_pending += step->token[m] < 0;
    assert(n_pending == step->n_pending);
    engine->n_pending += (uint64_t)n_pending;
    for (int s = 0; s < step->S; s++) run_sequence(engine, pass, step, s);
    assert(pass->n_logits == step_logits(step) && pass->n_hidden == step->n_hidden);
}

/* The first part holds all of them. */
static struct sampled best_of(uint64_t logits, const struct sample *sample) {
    const struct sampling *s = sample->sampling;
    struct sampled out = {0};
    if (sample->part) return out;
    out.n_top = fake_best(logits, s->banned, s->n_banned, sample->n_best, out.top);
    return out;
}

static struct sampled score_one(uint64_t logits, const struct sample *sample) {
    struct sampled out = {.id = sample->scored, .n_top = sample->n_ids};
    out.logprob = fake_score(logits, sample->scored, sample->n_top);
    for (int i = 0; i < sample->n_ids; i++)
        out.top[i] = (struct token_logprob){sample->ids[i], fake_score(logits, sample->ids[i], 0)};
    return out;
}

/* The last token of the history is that of the row, whether or not the host knows it. */
static struct sampled sample_one(const struct fake_pass *pass, const struct sample *sample) {
    uint64_t logits = pass->logits[sample->row];
    int32_t last = pass->last[sample->row];
    assert(sample->row >= 0 && sample->row < pass->n_logits);
    if (!sample->sampling) return score_one(logits, sample);
    int known = sample->n_prompt + sample->n_output - sample->last_is_pending;
    assert(sample->position == sample->n_prompt + sample->n_output);
    assert(sample->last_is_pending || sample->history[known - 1] == last);
    if (sample->n_best > 0) return best_of(logits, sample);
    return (struct sampled){.id = fake_choose(logits, sample->sampling->seed, sample->position,
                                              sample->choice, last, sample->sampling->banned,
                                              sample->sampling->n_banned,
                                              sample->mask ? *sample->mask : UINT32_MAX)};
}

static void fake_sample(void *self, const struct sample *samples, int n) {
    struct fake_engine *engine = self;
    struct fake_pass *pass = &engine->pass[(engine->first + engine->n_passes - 1) % MAX_IN_FLIGHT];
    assert(engine->n_passes > 0 && !pass->sampled);
    assert(n >= 0 && n <= engine->max_logit_rows + MAX_SHARED_SAMPLES);
    assert(!pass->named || (pass->named == samples && pass->n_named == n));
    for (int i = 0; i < n; i++) assert(!pass->named || !samples[i].mask);
    for (int r = 0; r < engine->max_logit_rows; r++) engine->id[r] = -1;
    for (int i = n - 1; i >= 0; i--) {
        check_settings(samples[i].sampling);
        pass->results[i] = sample_one(pass, &samples[i]);
        int32_t id = pass->results[i].id;
        if (samples[i].sampling) engine->id[samples[i].row] = id < 0 ? NO_TOKEN : id;
    }
    pass->n_samples = n;
    pass->sampled = true;
}

static const struct sampled *fake_wait(void *self) {
    struct fake_engine *engine = self;
    const struct fake_pass *pass = &engine->pass[engine->first];
    bool failed = engine->fails_at > 0 && ++engine->n_waits >= engine->fails_at;
    assert(engine->n_passes > 0 && pass->sampled);
    engine->first = (engine->first + 1) % MAX_IN_FLIGHT;
    engine->n_passes--;
    engine->waited = pass;
    return failed ? NULL : pass->results;
}

static const float *fake_hidden_of(void *self, int i) {
    const struct fake_engine *engine = self;
    assert(i >= 0 && i < engine->waited->n_hidden);
    return engine->waited->hidden[i];
}

static bool fake_failed(void *self, struct err *err) {
    (void)self;
    err_set(err, STATUS_SERVER_ERROR, NULL, "The fake device has failed.");
    return true;
}

static void fake_parallel(void *self, void (*fn)(void *arg, int i), void *arg, int n) {
    (void)self;
    for (int i = n - 1; i >= 0; i--) fn(arg, i);
}

/* ---- swapping ------------------------------------------------------------------------------- */

static uint64_t *words_of(const struct fake_engine *engine, enum block_kind kind) {
    return kind == KV_WINDOW_BLOCKS ? engine->window_word : engine->word;
}

static bool fake_swap_reserve(void *self, enum block_kind kind, int n) {
    struct fake_engine *engine = self;
    struct fake_swap *swap = &engine->swap[kind];
    assert(n > 0 &&
           n <= (kind == KV_WINDOW_BLOCKS ? engine->n_host_windows : engine->n_host_blocks));
    if (n > (kind == KV_WINDOW_BLOCKS ? engine->n_host_of_windows : engine->n_host)) return false;
    if (n > swap->n_reserved) swap->n_reserved = n;
    return true;
}

static void fake_swap_out(void *self, enum block_kind kind, const int32_t *block,
                          const int32_t *host_block, int n) {
    struct fake_engine *engine = self;
    const struct fake_swap *swap = &engine->swap[kind];
    size_t size = (size_t)engine->block_size, bytes = size * sizeof *swap->word;
    for (int i = 0; i < n; i++) {
        assert(host_block[i] >= 0 && host_block[i] < swap->n_reserved);
        assert(block[i] >= 0 && swap->comes_from[block[i]] < 0);
        memcpy(swap->word + (size_t)host_block[i] * size,
               words_of(engine, kind) + (size_t)block[i] * size, bytes);
    }
    if (kind == KV_BLOCKS) engine->n_out += (uint64_t)n;
}

static void fake_swap_in(void *self, enum block_kind kind, const int32_t *host_block,
                         const int32_t *block, int n) {
    struct fake_engine *engine = self;
    const struct fake_swap *swap = &engine->swap[kind];
    size_t size = (size_t)engine->block_size, bytes = size * sizeof *swap->word;
    for (int i = 0; i < n; i++) {
        assert(host_block[i] >= 0 && host_block[i] < swap->n_reserved);
        assert(block[i] >= 0 && swap->comes_from[block[i]] < 0);
        swap->comes_from[block[i]] = host_block[i];
        memcpy(swap->comes + (size_t)block[i] * size, swap->word + (size_t)host_block[i] * size,
               bytes);
        memset(words_of(engine, kind) + (size_t)block[i] * size, 0xee, bytes);
    }
    if (kind == KV_BLOCKS) engine->n_in += (uint64_t)n;
}

static void fake_swap_arrive(void *self) {
    struct fake_engine *engine = self;
    size_t size = (size_t)engine->block_size, bytes = size * sizeof(uint64_t);
    for (enum block_kind kind = 0; kind < N_BLOCK_KINDS; kind++) {
        const struct fake_swap *swap = &engine->swap[kind];
        int n = kind == KV_WINDOW_BLOCKS ? engine->n_window_blocks : engine->n_blocks;
        for (size_t b = 0; b < (size_t)n; b++) {
            if (swap->comes_from[b] < 0) continue;
            memcpy(words_of(engine, kind) + b * size, swap->comes + b * size, bytes);
            swap->comes_from[b] = -1;
        }
    }
}

struct engine_port fake_engine_port(struct fake_engine *engine) {
    size_t size = (size_t)engine->block_size;
    assert(engine->n_host_windows == 0 || engine->n_window_blocks > 0);
    engine->swap[KV_BLOCKS].word =
        mem_calloc((size_t)engine->n_host_blocks * size, sizeof(uint64_t));
    engine->swap[KV_WINDOW_BLOCKS].word =
        mem_calloc((size_t)engine->n_host_windows * size, sizeof(uint64_t));
    return (struct engine_port){.self = engine,
                                .V = FAKE_V,
                                .K = FAKE_K,
                                .in_flight = engine->in_flight,
                                .row_quantum = 16,
                                .submit = fake_submit,
                                .sample = fake_sample,
                                .wait = fake_wait,
                                .hidden = fake_hidden_of,
                                .failed = fake_failed,
                                .parallel = fake_parallel,
                                .swap = {.self = engine,
                                         .n_host_blocks = engine->n_host_blocks,
                                         .n_host_windows = engine->n_host_windows,
                                         .reserve = fake_swap_reserve,
                                         .out = fake_swap_out,
                                         .in = fake_swap_in,
                                         .arrive = fake_swap_arrive}};
}

void fake_engine_poison(struct fake_engine *engine, const struct window_pool *windows) {
    size_t size = (size_t)engine->block_size, bytes = size * sizeof *engine->window_word;
    for (int i = 0; i < windows->n_free; i++)
        memset(engine->window_word + (size_t)windows->free[i] * size, 0xdd, bytes);
}

void fake_engine_poison_states(struct fake_engine *engine, const struct state_pool *states) {
    for (int i = 0; i < states->n_free; i++) engine->state[states->free[i]] = 0xdddddddddddddddd;
}

static void init_swap(struct fake_swap *swap, size_t blocks, size_t size) {
    swap->comes = mem_calloc(blocks * size, sizeof *swap->comes);
    swap->comes_from = mem_calloc(blocks, sizeof *swap->comes_from);
    for (size_t b = 0; b < blocks; b++) swap->comes_from[b] = -1;
}

struct fake_engine *fake_engine_new(const struct scheduler_config *config) {
    struct fake_engine *engine = mem_calloc(1, sizeof *engine);
    size_t blocks = (size_t)config->n_blocks, size = (size_t)config->block_size;
    engine->n_blocks = config->n_blocks;
    engine->block_size = config->block_size;
    engine->max_seqs = config->max_num_seqs;
    engine->max_rows = config->max_num_batched_tokens;
    engine->max_logit_rows = config->max_logit_rows;
    engine->word = mem_calloc(blocks * size, sizeof *engine->word);
    engine->n_window_blocks = config->n_window_blocks;
    engine->window = config->window;
    engine->window_word =
        mem_calloc((size_t)config->n_window_blocks * size + 1, sizeof *engine->window_word);
    engine->n_states = config->n_states;
    engine->state = mem_calloc((size_t)config->n_states + 1, sizeof *engine->state);
    engine->written_in = mem_calloc(blocks, sizeof *engine->written_in);
    engine->writer = mem_calloc(blocks, sizeof *engine->writer);
    engine->id = mem_calloc((size_t)config->max_logit_rows, sizeof *engine->id);
    init_swap(&engine->swap[KV_BLOCKS], blocks, size);
    init_swap(&engine->swap[KV_WINDOW_BLOCKS], (size_t)config->n_window_blocks, size);
    engine->in_flight = 1;
    size_t rows = (size_t)config->max_logit_rows;
    for (int i = 0; i < MAX_IN_FLIGHT; i++) {
        engine->pass[i].logits = mem_calloc(rows, sizeof(uint64_t));
        engine->pass[i].last = mem_calloc(rows, sizeof(int32_t));
        engine->pass[i].hidden = mem_calloc(rows, sizeof *engine->pass[i].hidden);
        engine->pass[i].results = mem_calloc(rows + MAX_SHARED_SAMPLES, sizeof(struct sampled));
    }
    return engine;
}

void fake_engine_free(struct fake_engine *engine) {
    free(engine->word);
    free(engine->window_word);
    free(engine->state);
    free(engine->written_in);
    free(engine->writer);
    free(engine->id);
    for (int i = 0; i < 2; i++) {
        free(engine->swap[i].word);
        free(engine->swap[i].comes);
        free(engine->swap[i].comes_from);
    }
    for (int i = 0; i < MAX_IN_FLIGHT; i++) {
        free(engine->pass[i].logits);
        free(engine->pass[i].last);
        free(engine->pass[i].hidden);
        free(engine->pass[i].results);
    }
    free(engine);
}
