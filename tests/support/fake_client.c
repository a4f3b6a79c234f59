#include "support/fake_client.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/grammar.h"
#include "support/matcher_copy.h"

/* ---- the client ----------------------------------------------------------------------------- */

static void choice_add(struct fake_choice *choice, int32_t token, int position) {
    choice->sum += fake_word(token, position, choice->sum);
    choice->last = token;
}

/* ---- searches ------------------------------------------------------------------------------- */

/* A beam of a search that runs alone. */
struct fake_beam {
    struct fake_choice choice;
    int32_t output[FAKE_MAX_TOKENS];
};

static void give_best(struct beams *beams, int beam, const struct generation *generation,
                      const struct fake_choice *choice) {
    bool early = choice->n_output < generation->min_tokens;
    int32_t forced = thoughts_next(&choice->thoughts, &generation->thoughts);
    struct sampled sampled = {.n_top = 1, .top = {{.id = forced}}};
    if (forced >= 0) {
        beams_take(beams, beam, 0, &sampled);
        return;
    }
    sampled.n_top = fake_best(fake_logits(choice->sum), generation->stop_ids,
                              early ? generation->n_stop_ids : 0, beams->n_best, sampled.top);
    beams_take(beams, beam, 0, &sampled);
}

static void keep_texts(struct fake_client *client, const struct beams *beams) {
    client->n_texts = beams->n_finished;
    for (int i = 0; i < beams->n_finished; i++) {
        const struct finished_beam *found = &beams->finished[i];
        struct fake_text *text = &client->text[i];
        *text = (struct fake_text){
            .n = found->n_tokens, .score = found->score, .by_stop_id = found->by_stop_id};
        memcpy(text->token, found->tokens, (size_t)found->n_tokens * sizeof *text->token);
    }
}

/* Computes the texts that the search of a client must find. */
static void search_alone(struct fake_client *client, const struct fake_choice *prompt) {
    const struct generation *g = &client->generation;
    int most = generation_max_tokens(g, client->max_model_len) - g->n_prompt, n = 1;
    struct beams *beams = beams_init(mem_calloc(1, beams_bytes(g->beams.width, most)), &g->beams,
                                     most, g->stop_ids, g->n_stop_ids);
    struct fake_beam *now = mem_calloc(2 * MAX_BEAMS, sizeof *now), *then = now + MAX_BEAMS;
    struct next_beam next[MAX_BEAMS];
    const int32_t *output[MAX_BEAMS];
    now[0].choice = *prompt;
    for (int length = 0; n > 0; length++) {
        for (int i = 0; i < n; i++) give_best(beams, i, g, &now[i].choice);
        for (int i = 0; i < n; i++) output[i] = now[i].output;
        n = beams_advance(beams, output, length, next);
        memcpy(then, now, MAX_BEAMS * sizeof *now);
        for (int i = 0; i < n; i++) {
            now[i] = then[next[i].parent];
            now[i].output[length] = next[i].id;
            now[i].choice.n_output++;
            choice_add(&now[i].choice, next[i].id, g->n_prompt + length);
            thoughts_take(&now[i].choice.thoughts, &g->thoughts, next[i].id);
        }
    }
    keep_texts(client, beams);
    free(now);
    free(beams);
}

static bool searches(const struct fake_client *client) {
    const struct generation *g = &client->generation;
    return g->beams.width > 0 && generation_max_tokens(g, client->max_model_len) > g->n_prompt;
}

void fake_client_ready(struct fake_client *client, int max_model_len) {
    struct generation *generation = &client->generation;
    struct fake_choice prompt = {.thoughts = thoughts_first(&generation->thoughts)};
    assert(generation->n_prompt <= FAKE_MAX_TOKENS);
    for (int i = 0; i < generation->n_prompt; i++) {
        choice_add(&prompt, client->prompt[i], i);
        client->prompt_sum[i] = prompt.sum;
    }
    for (int i = 0; i < generation->n; i++) client->choice[i] = prompt;
    client->max_model_len = max_model_len;
    client->n_scored = client->n_ended = 0;
    client->done = false;
    if (searches(client)) search_alone(client, &prompt);
    for (int i = 0; i < FAKE_BIASES; i++) client->bias[i] = fake_bias(i);
    generation->sampling.bias = client->bias;
    generation->sampling.n_bias = FAKE_BIASES;
    for (int i = 0; i < generation->n_logprob_ids; i++) client->read_ids[i] = i * 7 % FAKE_V;
    generation->logprob_ids = client->read_ids;
    generation->hidden_sum = client->hidden_sum;
    client->n_read = 0;
    memset(client->hidden_sum, 0, sizeof client->hidden_sum);
    generation->prompt = client->prompt;
    generation->owner = client;
}

static void take_prompt_token(struct fake_client *client, const struct event *event) {
    const struct generation *generation = &client->generation;
    int position = ++client->n_scored;
    assert(generation->prompt_logprobs >= 0 && event->position == position && event->choice == 0);
    assert(position < generation->n_prompt && event->finish == FINISH_NONE);
    assert(event->sampled.id == client->prompt[position]);
    assert(event->sampled.logprob == fake_score(fake_logits(client->prompt_sum[position - 1]),
                                                event->sampled.id, generation->prompt_logprobs));
    for (int i = 0; i < generation->n; i++) assert(client->choice[i].n_output == 0);
}

/* The ids come in their order, from the last row of the prompt. */
static void take_read(struct fake_client *client, const struct event *event) {
    const struct generation *generation = &client->generation;
    const uint64_t logits = fake_logits(client->prompt_sum[generation->n_prompt - 1]);
    assert(generation_reads(generation) && event->sampled.n_top > 0);
    for (int i = 0; i < event->sampled.n_top; i++) {
        const struct token_logprob *got = &event->sampled.top[i];
        assert(got->id == client->read_ids[client->n_read++]);
        assert(got->logprob == fake_score(logits, got->id, 0));
    }
}

static void check_hidden(const struct fake_client *client) {
    const struct generation *generation = &client->generation;
    const int n = generation->n_prompt;
    double sum[FAKE_MAX_TOKENS * FAKE_K] = {0};
    int from = generation->hidden == HIDDEN_LAST ? n - 1 : 0;
    int end = generation->hidden == HIDDEN_FIRST ? 1 : n;
    if (generation->hidden == HIDDEN_NONE || !generation_reads(generation)) from = end;
    for (int i = from; i < end; i++) {
        float hidden[FAKE_K];
        fake_hidden(fake_logits(client->prompt_sum[i]), hidden);
        const int at = generation->keeps_hidden ? (i - from) * FAKE_K : 0;
        for (int k = 0; k < FAKE_K; k++) sum[at + k] += (double)hidden[k];
    }
    assert(memcmp(sum, client->hidden_sum, sizeof sum) == 0);
}

/* A prompt that was read ends with all its ids and vectors. */
static void check_read(const struct fake_client *client) {
    const struct generation *generation = &client->generation;
    bool ids = generation_reads(generation) && generation->hidden == HIDDEN_NONE;
    assert(client->n_read == (ids ? generation->n_logprob_ids : 0));
    check_hidden(client);
}

/* Returns the grammar's mask of the next token. Before the grammar begins, all tokens except stop
 * ids are allowed; then stop ids are allowed if the grammar may end. */
static uint32_t grammar_mask(const struct generation *generation,
                             const struct fake_choice *choice) {
    uint32_t mask = UINT32_MAX, ends = 0;
    if (!choice->matcher) return mask;
    for (int i = 0; i < generation->n_stop_ids; i++) ends |= 1u << generation->stop_ids[i];
    if (choice->begun) matcher_mask(choice->matcher, &mask);
    mask &= ~ends;
    return choice->begun && matcher_may_end(choice->matcher) ? mask | ends : mask;
}

/* If the grammar allows a forced token, only this one is allowed. */
static uint32_t mask_due(const struct generation *generation, const struct fake_choice *choice) {
    uint32_t mask = grammar_mask(generation, choice);
    int32_t forced = thoughts_next(&choice->thoughts, &generation->thoughts);
    return forced >= 0 && (mask >> forced & 1) ? 1u << forced : mask;
}

/* Makes the matcher read a token, or begins the grammar after it (if there are two begin ids, after
 * both). */
static void take_due(const struct generation *generation, struct fake_choice *choice,
                     int32_t before, int32_t due) {
    int n = generation->n_begin_ids;
    const int32_t *ids = generation->begin_ids;
    if (fake_listed(generation->stop_ids, generation->n_stop_ids, due)) return;
    if (choice->begun) {
        bool may_come = matcher_accept(choice->matcher, due);
        assert(may_come);
    } else if (choice->n_output >= n && ids[n - 1] == due) {
        choice->begun = n == 1 || ids[0] == before;
    }
}

static bool is_complete(const struct fake_choice *choice) {
    uint32_t mask;
    if (!choice->begun || !matcher_may_end(choice->matcher)) return false;
    matcher_mask(choice->matcher, &mask);
    return !(mask & (uint32_t)((1ull << FAKE_V) - 1));
}

static enum finish finish_due(const struct fake_client *client, const struct fake_choice *choice) {
    const struct generation *generation = &client->generation;
    bool stop = fake_listed(generation->stop_ids, generation->n_stop_ids, choice->last);
    if (stop && choice->n_output > generation->min_tokens) return FINISH_STOP;
    if (choice->matcher && is_complete(choice)) return FINISH_COMPLETE;
    if (choice->n_output == generation->max_tokens) return FINISH_LENGTH;
    if (generation->n_prompt + choice->n_output == client->max_model_len) return FINISH_LENGTH;
    return FINISH_NONE;
}

/* Returns the next token of a choice, and appends it to the choice. */
static int32_t choice_next(const struct generation *generation, struct fake_choice *choice,
                           int number) {
    int position = generation->n_prompt + choice->n_output;
    bool forced = thoughts_next(&choice->thoughts, &generation->thoughts) >= 0 && !choice->matcher;
    bool early = choice->n_output < generation->min_tokens && !forced;
    int32_t due = fake_choose(fake_logits(choice->sum), generation->sampling.seed, position, number,
                              choice->last, generation->stop_ids,
                              early ? generation->n_stop_ids : 0, mask_due(generation, choice));
    int32_t before = choice->last;
    if (due < 0) return due;
    choice_add(choice, due, position);
    thoughts_take(&choice->thoughts, &generation->thoughts, due);
    choice->n_output++;
    if (choice->matcher) take_due(generation, choice, before, due);
    return due;
}

static void begin_matcher(const struct generation *generation, struct fake_choice *choice) {
    if (!generation->grammar || choice->matcher) return;
    choice->matcher = matcher_new(generation->grammar, generation->vocabulary);
    choice->begun = generation->n_begin_ids == 0;
}

int fake_foresee(void *arg, int number, int n_known, int32_t *out, int n) {
    struct fake_client *client = arg;
    begin_matcher(&client->generation, &client->choice[number]);
    struct fake_choice choice = client->choice[number];
    assert(n_known == client->generation.n_prompt + choice.n_output);
    if (choice.matcher) choice.matcher = matcher_copy(choice.matcher);
    int found = 0;
    while (found < n && (out[found] = choice_next(&client->generation, &choice, number)) >= 0) {
        found++;
        if (finish_due(client, &choice) != FINISH_NONE) break;
    }
    matcher_free(choice.matcher);
    return found;
}

static void take_text(const struct fake_client *client, struct fake_choice *choice,
                      const struct event *event) {
    const struct fake_text *text = &client->text[event->choice];
    assert(event->choice < client->n_texts && choice->n_output < text->n);
    assert(event->sampled.id == text->token[choice->n_output++]);
    bool last = choice->n_output == text->n;
    assert(event->finish == (!last ? FINISH_NONE : text->by_stop_id ? FINISH_STOP : FINISH_LENGTH));
    assert(!last || event->score == text->score);
}

static void take_token(struct fake_client *client, const struct event *event) {
    const struct generation *generation = &client->generation;
    struct fake_choice *choice = &client->choice[event->choice];
    if (searches(client)) {
        take_text(client, choice, event);
        return;
    }
    begin_matcher(generation, choice);
    assert(event->sampled.id == choice_next(generation, choice, event->choice));
    assert(generation->prompt_logprobs < 0 || client->n_scored == generation->n_prompt - 1);
    assert(event->finish == finish_due(client, choice));
}

static bool was_cancelled(const struct generation *generation, int choice) {
    return atomic_load(&generation->cancelled) ||
           (atomic_load(&generation->cancelled_choices[choice / 64]) >> (choice % 64) & 1);
}

static void take_end(struct fake_client *client, const struct event *event) {
    const struct generation *generation = &client->generation;
    if (event->finish == FINISH_CANCELLED) {
        assert(was_cancelled(generation, event->choice));
        return;
    }
    if (event->finish == FINISH_ERROR) {
        assert(client->device_failed && *client->device_failed);
        return;
    }
    if (event->finish == FINISH_STUCK) {
        struct fake_choice *choice = &client->choice[event->choice];
        begin_matcher(generation, choice);
        assert(choice_next(generation, choice, event->choice) == -1);
        return;
    }
    assert(event->finish == FINISH_LENGTH);
    if (searches(client))
        assert(event->choice >= client->n_texts);
    else
        assert(generation->max_tokens == 0);
    assert(generation->prompt_logprobs < 0 || client->n_scored == generation->n_prompt - 1);
    check_read(client);
}

void fake_client_poison(struct fake_client *client) {
    memset(&client->generation, 0xdd, sizeof client->generation);
    memset(client->prompt, 0xdd, sizeof client->prompt);
    memset(client->predicted, 0xdd, sizeof client->predicted);
    memset(client->bias, 0xdd, sizeof client->bias);
    memset(client->read_ids, 0xdd, sizeof client->read_ids);
    memset(client->hidden_sum, 0xdd, sizeof client->hidden_sum);
}

void fake_client_check(struct fake_client *client, const struct event *event) {
    struct fake_choice *choice = &client->choice[event->choice];
    assert(event->generation == &client->generation && !client->done);
    assert(event->choice >= 0 && event->choice < client->generation.n);
    assert(!choice->ended || event->kind == EVENT_PROMPT_TOKEN); /* all choices share the prompt */
    if (event->kind == EVENT_PROMPT_TOKEN) take_prompt_token(client, event);
    if (event->kind == EVENT_READ) take_read(client, event);
    if (event->kind == EVENT_TOKEN) take_token(client, event);
    if (event->kind == EVENT_END) take_end(client, event);
    if (event->finish != FINISH_NONE) {
        matcher_free(choice->matcher);
        choice->matcher = NULL;
        choice->ended = true;
        choice->finish = event->finish;
        client->n_ended++;
    }
    client->n_cached = event->n_cached;
    assert(event->last == (client->n_ended == client->generation.n));
    client->done = event->last;
}

void fake_client_take(struct fake_client *client, const struct event *event) {
    fake_client_check(client, event);
    if (client->done) fake_client_poison(client);
}

/* ---- a scheduler, step by step -------------------------------------------------------------- */

void fake_client_submit(struct fake_client *client, struct scheduler *scheduler,
                        int max_model_len) {
    struct err err;
    fake_client_ready(client, max_model_len);
    ck_assert_int_eq(scheduler_submit(scheduler, &client->generation, &err), STATUS_OK);
}

bool fake_step(struct scheduler *scheduler) {
    bool more = scheduler_step(scheduler);
    scheduler_check(scheduler);
    return more;
}

void fake_run(struct scheduler *scheduler) {
    while (fake_step(scheduler)) {
    }
}
