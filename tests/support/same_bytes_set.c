/* The requests of a set, and their answers when they run alone. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/memory/memory.h"
#include "support/fake_engine.h"
#include "support/forbidden.h"
#include "support/lettered.h"
#include "support/same_bytes.h"

int drawn_between(uint64_t *random, int low, int high) {
    return fake_between(random, low, high);
}

bool drawn_chance(uint64_t *random, int percent) {
    return fake_between(random, 1, 100) <= percent;
}

/* ---- drawing -------------------------------------------------------------------------------- */

/* Lengths near the end of a chunk (256 positions) and of a block are drawn more often. */
static int draw_length(uint64_t *random, int most) {
    static const int edges[] = {1,  4,  7,  8,   9,   15,  16,  17,  24,  31,
                                32, 33, 64, 128, 250, 255, 256, 257, 510, 513};
    int kind = drawn_between(random, 1, 100), length;
    if (kind <= 25) {
        length = edges[drawn_between(random, 0, (int)(sizeof edges / sizeof *edges) - 1)];
    } else {
        length = drawn_between(random, 1, kind <= 60 ? 40 : 200);
    }
    return length < most ? length : most;
}

/* Returns the beginning of a theme, often with one changed token, so that prefixes of all lengths
 * are shared. */
static const int32_t *draw_prompt(const struct request_set *set, uint64_t *random, int n) {
    int32_t *prompt = mem_calloc((size_t)n, sizeof *prompt);
    memcpy(prompt, set->theme[drawn_between(random, 0, N_THEMES - 1)], (size_t)n * sizeof *prompt);
    if (drawn_chance(random, 40))
        prompt[drawn_between(random, 0, n - 1)] = drawn_between(random, 0, set->V - 1);
    return prompt;
}

/* Bad words: no token may follow itself, which is frequent in the output of small models. */
static void draw_forbidden(const struct request_set *set, struct asked *asked, uint64_t *random) {
    struct sampling *s = &asked->generation.sampling;
    if (drawn_chance(random, 15)) {
        asked->allowed = mem_calloc((size_t)(set->V + 31) / 32, sizeof *asked->allowed);
        draw_allowed(random, asked->allowed, set->V, drawn_between(random, 1, 60));
        s->allowed = asked->allowed;
    }
    if (!drawn_chance(random, 20)) return;
    s->n_bad_words = set->V < MAX_BAD_WORDS ? set->V : MAX_BAD_WORDS;
    asked->bad_words = mem_calloc((size_t)s->n_bad_words, sizeof *asked->bad_words);
    for (int i = 0; i < s->n_bad_words; i++)
        asked->bad_words[i] = (struct bad_word){.last = i, .n_before = 1, .before = {i}};
    s->bad_words = asked->bad_words;
}

/* Uses a separate random sequence, like grammars. The output of small models has many repeats. */
static void draw_repeats(struct asked *asked, uint64_t random) {
    struct sampling *s = &asked->generation.sampling;
    if (!drawn_chance(&random, 25)) return;
    if (drawn_chance(&random, 50)) s->no_repeat_ngram = drawn_between(&random, 1, 4);
    if (drawn_chance(&random, 50)) s->repetition_penalty = 1.5f;
    if (drawn_chance(&random, 50)) s->penalty_last_n = drawn_between(&random, 1, 30);
    if (drawn_chance(&random, 50)) return;
    s->dry_multiplier = 2;
    s->dry_base = 1.75f;
    s->dry_allowed_length = drawn_between(&random, 1, 2);
    s->dry_last_n = drawn_chance(&random, 50) ? INT32_MAX : drawn_between(&random, 2, 40);
}

static void draw_mirostat(struct sampling *s) {
    s->mirostat_tau = 2;
    s->mirostat_eta = 0.2f;
}

static void draw_sampling(const struct request_set *set, struct asked *asked, uint64_t *random) {
    struct sampling *s = &asked->generation.sampling;
    static const float temperatures[] = {0.3f, 0.7f, 1, 1.7f};
    *s = (struct sampling)SAMPLING_GREEDY;
    if (drawn_chance(random, 65)) s->temperature = temperatures[drawn_between(random, 0, 3)];
    if (drawn_chance(random, 30)) s->top_k = drawn_between(random, 1, 50);
    if (drawn_chance(random, 30)) s->top_p = (float)drawn_between(random, 5, 99) / 100;
    if (drawn_chance(random, 20)) s->min_p = (float)drawn_between(random, 1, 30) / 100;
    if (drawn_chance(random, 20)) s->presence_penalty = 0.5f;
    if (drawn_chance(random, 20)) s->frequency_penalty = 0.25f;
    if (drawn_chance(random, 20)) s->repetition_penalty = 1.25f;
    s->seed = drawn_chance(random, 50) ? 7 : fake_random(random);
    if (drawn_chance(random, 85)) s->n_logprobs = drawn_between(random, 0, MAX_TOP_LOGPROBS);
    draw_forbidden(set, asked, random);
    if (!drawn_chance(random, 15)) return;
    s->n_bias = drawn_between(random, 1, 4);
    s->bias = asked->bias;
    for (int i = 0; i < s->n_bias; i++)
        asked->bias[i] = (struct logit_bias){drawn_between(random, 0, set->V - 1),
                                             (float)drawn_between(random, -40, 40) / 8};
}

static void draw_asked(const struct request_set *set, struct asked *asked, int length,
                       uint64_t *random) {
    struct generation *g = &asked->generation;
    g->n_prompt = length;
    g->prompt = draw_prompt(set, random, g->n_prompt);
    g->n = drawn_chance(random, 65) ? 1 : drawn_between(random, 2, MOST_CHOICES);
    g->max_tokens = drawn_between(random, 1, drawn_chance(random, 60) ? 12 : 40);
    g->min_tokens = drawn_chance(random, 20) ? drawn_between(random, 0, g->max_tokens) : 0;
    g->n_stop_ids = drawn_chance(random, 30) ? drawn_between(random, 1, 8) : 0;
    for (int i = 0; i < g->n_stop_ids; i++) g->stop_ids[i] = drawn_between(random, 0, set->V - 1);
    g->prompt_logprobs = drawn_chance(random, 15) ? drawn_between(random, 0, 5) : -1;
    if (g->prompt_logprobs >= 0 && drawn_chance(random, 30)) g->max_tokens = g->min_tokens = 0;
    g->priority = drawn_chance(random, 30) ? drawn_between(random, -1, 2) : 0;
    g->cache_salt[0] = drawn_chance(random, 10) ? 1 : 0;
    draw_sampling(set, asked, random);
}

/* Every fourth request has a grammar, which may begin after a token that is also a normal token. A
 * separate random sequence keeps all other requests unchanged. */
static void draw_constraint(const struct request_set *set, struct asked *asked, uint64_t random) {
    static const int32_t begin_ids[] = {7};
    struct generation *g = &asked->generation;
    if (!drawn_chance(&random, 25)) return;
    g->grammar = draw_grammar(&random);
    g->vocabulary = set->vocabulary;
    /* then forced tokens are not sampled */
    if (drawn_chance(&random, 60)) g->sampling.n_logprobs = -1;
    g->n_begin_ids = drawn_chance(&random, 20);
    g->begin_ids = begin_ids;
    if (g->n_begin_ids == 0) return;
    asked->bias[0] = (struct logit_bias){begin_ids[0], 3}; /* otherwise it would be very rare */
    g->sampling.bias = asked->bias;
    g->sampling.n_bias = 1;
}

/* Every eighth request of a set with searches. A search does not sample, so only changes to the
 * logits remain of its sampling settings. */
static void draw_search(struct asked *asked, uint64_t random) {
    struct generation *g = &asked->generation;
    if (!drawn_chance(&random, 12) || g->grammar || g->max_tokens == 0) return;
    g->beams = (struct beam_search){.width = drawn_between(&random, 1, MOST_CHOICES),
                                    .stopping = (enum beam_stopping)drawn_between(&random, 0, 2),
                                    .length_penalty = drawn_between(&random, -1, 2)};
    g->n = drawn_between(&random, 1, g->beams.width);
    g->prompt_logprobs = g->sampling.n_logprobs = -1;
    g->sampling.temperature = 0;
}

/* Every sixth request has a limit on thoughts. */
static void draw_limit(const struct request_set *set, struct asked *asked, uint64_t random) {
    if (drawn_chance(&random, 16))
        asked->generation.thoughts = draw_thoughts(&random, set->vocabulary, set->V);
}

/* Every eighth request reads its prompt: ids or hidden vectors. Of the others, some want the
 * logprobs of given ids. */
static void draw_reading(const struct request_set *set, struct asked *asked, uint64_t random) {
    struct generation *g = &asked->generation;
    bool reads = drawn_chance(&random, 12), lists = drawn_chance(&random, 15);
    if (g->grammar || g->beams.width > 0 || (!reads && (!lists || g->max_tokens == 0))) return;
    if (!reads && g->sampling.n_logprobs < 0) return;
    for (int i = 0; i < 64; i++) asked->read_ids[i] = drawn_between(&random, 0, set->V - 1);
    g->logprob_ids = asked->read_ids;
    g->n_logprob_ids = drawn_between(&random, 1, reads ? 64 : MAX_TOP_LOGPROBS);
    if (!reads) return;
    g->hidden = (enum hidden_rows)drawn_between(&random, HIDDEN_NONE, HIDDEN_ALL);
    if (g->hidden != HIDDEN_NONE) g->n_logprob_ids = 0;
    g->max_tokens = g->min_tokens = 0;
    g->n = 1;
    g->prompt_logprobs = -1;
    g->thoughts = (struct thought_limit){0};
}

static void draw_themes(struct request_set *set, uint64_t *random) {
    set->n_theme = set->model.max_model_len;
    size_t n = (size_t)set->n_theme;
    set->drawn = mem_calloc(N_THEMES * n, sizeof *set->drawn);
    for (size_t i = 0; i < N_THEMES * n; i++) set->drawn[i] = drawn_between(random, 0, set->V - 1);
    for (size_t t = 0; t < N_THEMES; t++) {
        set->theme[t] = set->drawn + t * n;
        if (t > 0) memcpy(set->drawn + t * n, set->drawn, 20 * t * sizeof *set->drawn);
    }
}

/* Reads the properties of the model that are known only after it is opened. */
static void ask_model(struct request_set *set) {
    struct engine_config config = {.model = set->model.file,
                                   .threads = 1,
                                   .dtype = set->model.dtype,
                                   .kv_dtype = set->model.kv_dtype,
                                   .device = set->model.device,
                                   .max_model_len = 16,
                                   .max_num_seqs = 1,
                                   .max_num_batched_tokens = 1,
                                   .block_size = 16,
                                   .guesses_ahead = set->model.eagle != NULL,
                                   .eagle = set->model.eagle};
    struct engine *engine;
    struct err err = {0};
    if (engine_open(&engine, &config, &err) != STATUS_OK) {
        fprintf(stderr, "%s: %s\n", set->model.file, err.message);
        exit(1);
    }
    const struct model_config *m = engine_model(engine);
    set->V = m->V;
    set->K = engine_hidden_size(engine);
    set->kv = (struct kv_config){
        .L = config_kv_heads(m, set->heads), .G = m->G, .D = m->D, .n_blocks = 1};
    set->kv.heads = set->heads;
    set->kv.L -= m->n_ahead; /* the layer of a head beside the model counts for guesses_ahead */
    if (set->kv.L > 0 && m->n_ahead == 0) set->heads[set->kv.L] = set->heads[set->kv.L - 1];
    set->has_states = config_recurrent_layers(m) > 0;
    set->state_bytes = (int64_t)config_recurrent_layers(m) * config_state_floats(m) * 4;
    for (int i = 0; i < m->L; i++) {
        set->n_windows += m->layer[i].window > 0;
        set->window = m->layer[i].window > set->window ? m->layer[i].window : set->window;
    }
    if (memory_plan_kv_dtype(&config, m, &set->kv.dtype, &err) != STATUS_OK) abort();
    engine_close(engine);
}

static void cut_themes(struct request_set *set, const int32_t *text, int n) {
    set->n_theme = n * 3 / 4;
    for (int t = 0; t < N_THEMES; t++) set->theme[t] = text + n / 8 * t;
}

void request_set_init(struct request_set *set, uint64_t seed, int n_asked, const int32_t *text,
                      int n_text) {
    uint64_t random = seed * 1000003;
    assert(n_asked <= MOST_ASKED);
    ask_model(set);
    if (text) {
        cut_themes(set, text, n_text);
    } else {
        draw_themes(set, &random);
    }
    int longest = set->long_prompt ? set->long_prompt : LONG_PROMPT;
    assert(set->n_theme >= longest && set->model.max_model_len > longest);
    set->n_asked = n_asked;
    set->vocabulary = lettered_vocabulary(set->V);
    for (int i = 0; i < n_asked; i++) {
        int length = draw_length(&random, set->longest);
        if (i == 0) length = set->long_prompt ? set->long_prompt : LONG_PROMPT;
        draw_asked(set, &set->asked[i], length, &random);
        draw_constraint(set, &set->asked[i], seed * 7717 + (uint64_t)i);
        draw_repeats(&set->asked[i], seed * 9973 + (uint64_t)i);
        draw_limit(set, &set->asked[i], seed * 4481 + (uint64_t)i);
        if (set->mirostat && i % 9 == 4) draw_mirostat(&set->asked[i].generation.sampling);
        if (set->searches && set->n_windows == 0 && i > 0)
            draw_search(&set->asked[i], seed * 6661 + (uint64_t)i);
        if (set->reads) draw_reading(set, &set->asked[i], seed * 5501 + (uint64_t)i);
    }
}

void request_set_free(struct request_set *set) {
    for (int i = 0; i < set->n_asked; i++) {
        struct asked *asked = &set->asked[i];
        free((void *)asked->generation.prompt);
        free(asked->allowed);
        grammar_release(asked->generation.grammar);
        free(asked->bad_words);
        free(asked->answer.scored);
        free(asked->answer.hidden);
        for (int c = 0; c < MOST_CHOICES; c++) free(asked->answer.choice[c].token);
    }
    vocabulary_free(set->vocabulary);
    free(set->drawn);
}

void request_set_drop(struct request_set *set) {
    request_set_free(set);
    free(set);
}

struct request_set *tiny_set_new(const struct tiny_model *tiny, const struct model_choice *model) {
    struct request_set *set = mem_calloc(1, sizeof *set);
    set->model = *model;
    set->model.file = tiny_model_temporary(tiny);
    set->model.max_model_len = tiny->context_length;
    set->model.device = DEVICE_CUDA;
    set->reference_path = "plain";
    set->longest = 12;
    return set;
}

void tiny_set_drop(struct request_set *set) {
    unlink(set->model.file);
    free((char *)set->model.file);
    request_set_drop(set);
}

void request_set_shorten(struct request_set *set, int max_tokens) {
    for (int i = 0; i < set->n_asked; i++) {
        struct generation *g = &set->asked[i].generation;
        g->max_tokens = min_int(g->max_tokens, max_tokens);
        g->min_tokens = min_int(g->min_tokens, g->max_tokens);
    }
}

static int answers_agree(const struct asked *right, const struct asked *got, int number) {
    int n = 0;
    for (int c = 0; c < right->generation.n; c++) {
        ck_assert_int_eq(got->answer.choice[c].n, right->answer.choice[c].n);
        ck_assert_int_eq(got->answer.choice[c].finish, right->answer.choice[c].finish);
        for (int t = 0; t < right->answer.choice[c].n; t++, n++)
            ck_assert_msg(got->answer.choice[c].token[t].id == right->answer.choice[c].token[t].id,
                          "request %d, choice %d, token %d", number, c, t);
    }
    return n;
}

void request_sets_agree(const struct request_set *right, const struct request_set *got) {
    int n_tokens = 0;
    ck_assert_int_eq(got->n_asked, right->n_asked);
    for (int i = 0; i < right->n_asked; i++)
        n_tokens += answers_agree(&right->asked[i], &got->asked[i], i);
    ck_assert_int_gt(n_tokens, 10);
}

int asked_slots(const struct request_set *set, const struct asked *asked) {
    return generation_max_slots(&asked->generation, set->model.max_model_len);
}

int asked_width(const struct asked *asked) {
    return max_int(asked->generation.beams.width, 1);
}

/* ---- learning ------------------------------------------------------------------------------- */

static void answer_prepare(struct asked *asked, int K) {
    size_t most = (size_t)asked->generation.max_tokens;
    struct answer *answer = &asked->answer;
    size_t scored = (size_t)max_int(asked->generation.n_prompt, MAX_BEST_PARTS);
    answer->scored = mem_calloc(scored, sizeof *answer->scored);
    answer->hidden = mem_calloc((size_t)K, sizeof *answer->hidden);
    for (int c = 0; c < asked->generation.n; c++)
        answer->choice[c].token = mem_calloc(most + 1, sizeof *answer->choice[c].token);
}

int request_set_learn(struct request_set *set) {
    struct run *run = mem_calloc(1, sizeof *run);
    int length = set->model.max_model_len, tokens = 0;
    struct setting alone = {.path = set->reference_path,
                            .in_flight = 1,
                            .eager = true,
                            .samples_forced = true,
                            .threads = 1,
                            .max_rows = length,
                            .max_seqs = MOST_CHOICES,
                            .max_logit_rows = length,
                            .block_size = 16,
                            .n_blocks = (length / 16 + 1) * (MOST_CHOICES + 1)};
    run_open(run, set, &alone);
    for (int i = 0; i < set->n_asked; i++) {
        struct asked *asked = &set->asked[i];
        answer_prepare(asked, set->K);
        run_add(run, asked)->into = &asked->answer;
        run_stepped(run);
        asked->answer.known = true;
        for (int c = 0; c < asked->generation.n; c++) tokens += asked->answer.choice[c].n;
    }
    assert(run->tally.preemptions == 0 && run->tally.prefix_hits == 0);
    run_close(run);
    free(run);
    return tokens;
}
