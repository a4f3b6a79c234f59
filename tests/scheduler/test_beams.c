/* Beam search. First the search as a function: which texts finish, which beams continue, when it
 * ends, ties. Then with tiny models: the texts and scores of transformers
 * (tests/vectors/make_beams.py), with many searches running together, few blocks and rows, and
 * preemptions. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/internal.h"
#include "support/suite_main.h"

/* ---- the search ----------------------------------------------------------------------------- */

enum { LENGTH = 8, STOP = 9 };

static const int32_t stops[] = {STOP};

static struct beams *begin(int width, enum beam_stopping stopping, double penalty) {
    const struct beam_search search = {width, stopping, penalty};
    return beams_init(mem_calloc(1, beams_bytes(width, LENGTH)), &search, LENGTH, stops, 1);
}

static void give(struct beams *b, int beam, int n, const struct token_logprob *best) {
    struct sampled sampled = {.n_top = n};
    if (n > 0) memcpy(sampled.top, best, (size_t)n * sizeof *best);
    beams_take(b, beam, 0, &sampled);
}

/* Advances beams that all have the tokens 1 2 3 ... */
static int advance(struct beams *b, int length, struct next_beam *next) {
    static const int32_t tokens[LENGTH] = {1, 2, 3, 4, 5, 6, 7, 8};
    const int32_t *output[MAX_BEAMS];
    for (int i = 0; i < MAX_BEAMS; i++) output[i] = tokens;
    return beams_advance(b, output, length, next);
}

static void split(struct beams *b, struct next_beam *next) {
    give(b, 0, 4, (struct token_logprob[]){{1, -1}, {2, -1}, {3, -2}, {4, -3}});
    ck_assert(beams_complete(b));
    ck_assert_int_eq(advance(b, 0, next), 2);
}

START_TEST(equal_candidates_are_ordered_by_beam_and_then_by_id) {
    struct beams *b = begin(2, BEAMS_STOP_BY_SCORE, 1);
    struct next_beam next[MAX_BEAMS];
    split(b, next);
    ck_assert(next[0].id == 1 && next[1].id == 2 && !beams_complete(b));
    give(b, 1, 4, (struct token_logprob[]){{0, -1}, {5, -1}, {6, -3}, {8, -4}});
    ck_assert(!beams_complete(b));
    give(b, 0, 4, (struct token_logprob[]){{3, -1}, {4, -1}, {5, -2}, {6, -INFINITY}});
    ck_assert_int_eq(advance(b, 1, next), 2);
    ck_assert(next[0].parent == 0 && next[0].id == 3 && next[0].score == -2);
    ck_assert(next[1].parent == 0 && next[1].id == 4);
    free(b);
}
END_TEST

/* If rounding makes scores equal, the lower id is first, whatever the original order was. */
START_TEST(rounding_makes_ties) {
    struct beams *b = begin(2, BEAMS_STOP_BY_SCORE, 1);
    struct next_beam next[MAX_BEAMS];
    split(b, next);
    b->score[0] = -1e8f; /* so large that adding 0.25 changes nothing */
    give(b, 0, 4, (struct token_logprob[]){{8, -0.25f}, {7, -0.5f}, {6, -0.75f}, {5, -1}});
    give(b, 1, 0, NULL);
    ck_assert_int_eq(advance(b, 1, next), 2);
    ck_assert(next[0].id == 5 && next[1].id == 6);
    free(b);
}
END_TEST

/* The same holds if a candidate with an equal score has the last place. */
START_TEST(ties_for_the_last_place) {
    struct beams *b = begin(2, BEAMS_STOP_BY_SCORE, 1);
    struct next_beam next[MAX_BEAMS];
    split(b, next);
    b->score[1] = -1e8f;
    give(b, 0, 2, (struct token_logprob[]){{STOP, -1}, {3, -2}});
    give(b, 1, 3, (struct token_logprob[]){{STOP, -0.25f}, {8, -0.5f}, {5, -0.75f}});
    ck_assert_int_eq(advance(b, 1, next), 2);
    ck_assert(next[0].id == 3 && next[1].id == 5); /* two of 5, 8 and 9 have a place */
    free(b);
}
END_TEST

/* With three end ids, more candidates are ranked, so all beams continue. */
START_TEST(ends_do_not_crowd_beams_out) {
    static const int32_t three[] = {STOP, 10, 11};
    const struct beam_search search = {2, BEAMS_STOP_BY_SCORE, 1};
    struct beams *b = beams_init(mem_calloc(1, beams_bytes(2, LENGTH)), &search, LENGTH, three, 3);
    struct next_beam next[MAX_BEAMS];
    ck_assert_int_eq(b->n_best, 8);
    ck_assert_int_eq(beams_n_best(2, 0), 4);
    give(b, 0, 5, (struct token_logprob[]){{3, -1}, {STOP, -2}, {10, -3}, {11, -4}, {4, -5}});
    ck_assert_int_eq(advance(b, 0, next), 2);
    ck_assert(next[0].id == 3 && next[1].id == 4);
    free(b);
}
END_TEST

START_TEST(of_equal_texts_the_first_stays_first) {
    struct beams *b = begin(2, BEAMS_STOP_BY_SCORE, 1);
    struct next_beam next[MAX_BEAMS];
    static const int32_t first[] = {1}, second[] = {2};
    split(b, next);
    give(b, 0, 2, (struct token_logprob[]){{STOP, -1}, {3, -2}});
    give(b, 1, 2, (struct token_logprob[]){{STOP, -1}, {4, -2}});
    beams_advance(b, (const int32_t *const[MAX_BEAMS]){first, second}, 1, next);
    ck_assert_int_eq(b->n_finished, 2);
    ck_assert(b->finished[0].score == b->finished[1].score);
    ck_assert(b->finished[0].tokens[0] == 1 && b->finished[1].tokens[0] == 2);
    free(b);
}
END_TEST

START_TEST(only_the_first_candidates_may_finish) {
    struct beams *b = begin(2, BEAMS_STOP_BY_SCORE, 0);
    struct next_beam next[MAX_BEAMS];
    split(b, next);
    give(b, 0, 3, (struct token_logprob[]){{STOP, -1}, {3, -2}, {4, -3}});
    give(b, 1, 3, (struct token_logprob[]){{5, -1}, {STOP, -1.5f}, {6, -4}});
    ck_assert_int_eq(advance(b, 1, next), 2); /* the second end is the third candidate */
    ck_assert(next[0].id == 5 && next[1].id == 3);
    ck_assert_int_eq(b->n_finished, 1);
    ck_assert(b->finished[0].score == -2 && b->finished[0].by_stop_id);
    ck_assert(b->finished[0].n_tokens == 2 && b->finished[0].tokens[1] == STOP);
    free(b);
}
END_TEST

/* Two texts finish at the second token, with sums of -2 and -2.5, while the best beam has `best`.
 * Returns the number of beams that continue. */
static int finish_two(enum beam_stopping stopping, double penalty, float best) {
    struct beams *b = begin(2, stopping, penalty);
    struct next_beam next[MAX_BEAMS];
    split(b, next);
    give(b, 0, 3, (struct token_logprob[]){{STOP, -1}, {3, best + 1}, {4, best}});
    give(b, 1, 3, (struct token_logprob[]){{STOP, -1.5f}, {5, best}, {6, best}});
    int n = advance(b, 1, next);
    ck_assert_int_eq(b->n_finished, 2);
    ck_assert_int_eq(n, b->n_live);
    free(b);
    return n;
}

START_TEST(the_three_rules_end_a_search) {
    ck_assert_int_eq(finish_two(BEAMS_STOP_EARLY, 1, -3), 0);
    /* -2.5 / 2 is better than -3 / 2, and worse than -3 / 8 */
    ck_assert_int_eq(finish_two(BEAMS_STOP_BY_SCORE, 1, -3), 0);
    ck_assert_int_eq(finish_two(BEAMS_NEVER_STOP_EARLY, 1, -3), 2);
    /* -2.5 / 2 is better than -11 / 8 */
    ck_assert_int_eq(finish_two(BEAMS_NEVER_STOP_EARLY, 1, -11), 0);
    /* if length lowers the score, the current length is the best */
    ck_assert_int_eq(finish_two(BEAMS_NEVER_STOP_EARLY, -1, -3), 0);
    ck_assert_int_eq(finish_two(BEAMS_NEVER_STOP_EARLY, 0, -3), 0);
}
END_TEST

/* If length lowers the score, a search that never stops early compares at the current length. */
START_TEST(with_a_length_penalty_the_next_token_counts) {
    struct beams *b = begin(2, BEAMS_NEVER_STOP_EARLY, -1);
    struct next_beam next[MAX_BEAMS];
    split(b, next);
    give(b, 0, 3, (struct token_logprob[]){{STOP, -1}, {3, -1.25f}, {4, -3}});
    give(b, 1, 2, (struct token_logprob[]){{5, -1.5f}, {6, -4}});
    ck_assert_int_eq(advance(b, 1, next), 2);
    ck_assert(b->n_finished == 1 && b->finished[0].score == -4);
    give(b, 0, 2, (struct token_logprob[]){{3, -0.5f}, {4, -5}});
    give(b, 1, 2, (struct token_logprob[]){{STOP, -0.5f}, {6, -6}});
    ck_assert_int_eq(advance(b, 2, next), 2); /* -2.75 * 3 is better than -3 * 3 */
    ck_assert(b->n_finished == 2 && b->finished[1].score == -9);
    free(b);
}
END_TEST

START_TEST(better_texts_push_worse_ones_out) {
    struct beams *b = begin(2, BEAMS_NEVER_STOP_EARLY, 1);
    struct next_beam next[MAX_BEAMS];
    split(b, next);
    for (int length = 1; length < 4; length++) {
        float end = length == 1 ? -4 : length == 2 ? -4.5f : -0.5f;
        b->score[0] = b->score[1] = 0;
        give(b, 0, 3, (struct token_logprob[]){{STOP, end}, {3, end - 1}, {4, end - 2}});
        give(b, 1, 0, NULL);
        ck_assert_int_eq(advance(b, length, next), 2);
    }
    ck_assert_int_eq(b->n_finished, 2); /* -4 / 2 was dropped; -4.5 / 3 and -0.5 / 4 are left */
    ck_assert(b->finished[0].score == -0.125f && b->finished[0].n_tokens == 4);
    ck_assert(b->finished[1].score == -1.5f && b->finished[1].n_tokens == 3);
    ck_assert(b->finished[0].tokens[2] == 3 && b->finished[0].tokens[3] == STOP);
    free(b);
}
END_TEST

START_TEST(at_the_length_limit_all_finish) {
    struct beams *b = begin(2, BEAMS_NEVER_STOP_EARLY, 1);
    struct next_beam next[MAX_BEAMS];
    split(b, next);
    give(b, 0, 2, (struct token_logprob[]){{3, -1}, {4, -2}});
    give(b, 1, 2, (struct token_logprob[]){{STOP, -1.5f}, {6, -2}});
    ck_assert_int_eq(advance(b, LENGTH - 1, next), 0);
    ck_assert_int_eq(b->n_finished, 2);
    ck_assert(!b->finished[0].by_stop_id && b->finished[1].by_stop_id);
    free(b);
}
END_TEST

START_TEST(a_search_without_candidates_ends) {
    struct beams *b = begin(3, BEAMS_STOP_BY_SCORE, 1);
    struct next_beam next[MAX_BEAMS];
    give(b, 0, 2, (struct token_logprob[]){{3, -1}, {4, -INFINITY}});
    ck_assert_int_eq(advance(b, 0, next), 1);
    give(b, 0, 1, (struct token_logprob[]){{3, -INFINITY}});
    ck_assert_int_eq(advance(b, 1, next), 0);
    ck_assert_int_eq(b->n_finished, 0);
    free(b);
}
END_TEST

/* ---- vectors -------------------------------------------------------------------------------- */

enum { MAX_LENGTH = 64, MOST_CASES = 150 };

struct text {
    double score;
    int n;
    int32_t id[MAX_LENGTH];
};

struct golden {
    char model[16];
    struct generation generation;
    int32_t prompt[MAX_LENGTH];
    struct text wanted[MAX_BEAMS], got[MAX_BEAMS];
    bool ended;
};

static struct golden golden[MOST_CASES];
static int n_golden;

static void read_case(struct golden *g, const char *line) {
    char rule[8];
    struct generation *one = &g->generation;
    struct sampling *s = &one->sampling;
    int n = sscanf(line, "%15s %d %d %lf %7s %d %d %f", g->model, &one->beams.width, &one->n,
                   &one->beams.length_penalty, rule, &one->max_tokens, &one->min_tokens,
                   &s->repetition_penalty);
    ck_assert_int_eq(n, 8);
    one->beams.stopping = *rule == 's'   ? BEAMS_STOP_BY_SCORE
                          : *rule == 'e' ? BEAMS_STOP_EARLY
                                         : BEAMS_NEVER_STOP_EARLY;
    s->n_logprobs = one->prompt_logprobs = -1;
    s->top_p = 1;
    one->prompt = g->prompt;
    one->owner = g;
}

static int read_ids(const char *text, int32_t *ids, int most) {
    int n = 0;
    char *rest;
    for (long id = strtol(text, &rest, 10); rest != text; id = strtol(text, &rest, 10)) {
        ck_assert_int_lt(n, most);
        ids[n++] = (int32_t)id;
        text = rest;
    }
    return n;
}

static void read_golden(void) {
    char line[1024];
    FILE *file = fopen("tests/vectors/beams.txt", "r");
    ck_assert(file != NULL);
    struct golden *g = golden;
    memset(golden, 0, sizeof golden); /* tests may share a process */
    n_golden = 0;
    int n_texts = 0;
    while (fgets(line, sizeof line, file)) {
        char *rest = strchr(line, ' ');
        if (strncmp(line, "case", 4) == 0) {
            ck_assert_int_lt(n_golden, MOST_CASES);
            g = &golden[n_golden++];
            read_case(g, rest);
            n_texts = 0;
        } else if (strncmp(line, "stops", 5) == 0) {
            g->generation.n_stop_ids = rest ? read_ids(rest, g->generation.stop_ids, 8) : 0;
        } else if (strncmp(line, "prompt", 6) == 0) {
            g->generation.n_prompt = read_ids(rest, g->prompt, MAX_LENGTH);
        } else if (strncmp(line, "text", 4) == 0) {
            struct text *text = &g->wanted[n_texts++];
            text->score = strtod(rest, &rest);
            text->n = read_ids(rest, text->id, MAX_LENGTH);
        }
    }
    fclose(file);
    ck_assert_int_eq(n_golden, 90);
}

static void take_events(void *arg, const struct event *events, int n) {
    int *n_live = arg;
    for (int i = 0; i < n; i++) {
        struct golden *g = events[i].generation->owner;
        *n_live -= events[i].last;
        if (!g) continue; /* an urgent request */
        struct text *text = &g->got[events[i].choice];
        ck_assert(events[i].kind == EVENT_TOKEN && !g->ended);
        text->id[text->n++] = events[i].sampled.id;
        if (events[i].finish != FINISH_NONE) text->score = (double)events[i].score;
        g->ended = events[i].last;
    }
}

static const struct room {
    int max_seqs, max_rows, block_size, n_blocks;
    bool caching;
} rooms[] = {{64, 128, 16, 400, true}, /* all run together */
             {9, 12, 4, 150, true},    /* few rows: beams skip steps */
             {64, 90, 4, 128, false},  /* few blocks: preempted beams are recomputed, */
             {64, 90, 4, 128, true}};  /* or found in the prefix cache */
enum { N_ROOMS = sizeof rooms / sizeof *rooms };

static struct engine *open_engine(const char *model, const struct room *room) {
    char path[64];
    struct err err = {0};
    struct engine *engine;
    snprintf(path, sizeof path, "tests/vectors/folders/%s", model);
    const struct engine_config config = {.model = path,
                                         .stand_in_vocabulary = true,
                                         .threads = 2,
                                         .dtype = COMPUTE_FLOAT32,
                                         .kv_dtype = KV_DTYPE_FLOAT32,
                                         .max_num_seqs = room->max_seqs,
                                         .max_num_batched_tokens = room->max_rows,
                                         .block_size = room->block_size};
    ck_assert_msg(engine_open(&engine, &config, &err) == STATUS_OK, "%s", err.message);
    return engine;
}

static void check_texts(const struct golden *g) {
    for (int i = 0; i < g->generation.n; i++) {
        const struct text *got = &g->got[i], *wanted = &g->wanted[i];
        int number = (int)(g - golden);
        ck_assert_msg(got->n == wanted->n, "case %d, text %d: %d tokens, not %d", number, i, got->n,
                      wanted->n);
        ck_assert_mem_eq(got->id, wanted->id, (size_t)got->n * sizeof *got->id);
        /* sums of hundreds have no more digits in a float */
        ck_assert_double_eq_tol(got->score, wanted->score, fmax(1e-4, -1e-6 * wanted->score));
    }
}

/* Requests that need all blocks of a small pool, and precede all searches. */
enum { N_URGENT = 8 };

static void submit_urgent(struct scheduler *s, int *n_live) {
    static struct generation urgent[N_URGENT];
    static int32_t prompt[N_URGENT][33];
    for (int i = 0; i < N_URGENT; i++) {
        for (int j = 0; j < 33; j++) prompt[i][j] = (40 * i + j % 7) % 299;
        urgent[i] = (struct generation){.prompt = prompt[i],
                                        .n_prompt = 33,
                                        .n = 1,
                                        .max_tokens = 30,
                                        .sampling = {.repetition_penalty = 1, .n_logprobs = -1},
                                        .prompt_logprobs = -1,
                                        .priority = -1};
        if (scheduler_submit(s, &urgent[i], NULL) == STATUS_OK) ++*n_live;
    }
}

/* Submits the searches of a model: the first `early` ones before the first step, then one per step.
 * Returns the statistics. */
static struct scheduler_stats search_all(const char *model, const struct room *room, int early) {
    struct engine *engine = open_engine(model, room);
    struct scheduler_stats stats;
    int n_live = 0, step = 0;
    const struct scheduler_config config = {.max_num_seqs = room->max_seqs,
                                            .max_num_batched_tokens = room->max_rows,
                                            .max_mixed_prefill_tokens = 1 << 20,
                                            .max_model_len = MAX_LENGTH,
                                            .max_queued_requests = MOST_CASES,
                                            .max_queued_tokens = 1 << 20,
                                            .n_blocks = room->n_blocks,
                                            .block_size = room->block_size,
                                            .max_logit_rows = room->max_seqs,
                                            .prefix_caching = room->caching,
                                            .swap_from = 1,
                                            .on_events = take_events,
                                            .arg = &n_live};
    struct scheduler *s = scheduler_new(&config, engine);
    for (int i = 0; i < n_golden; i++) {
        if (strcmp(golden[i].model, model) != 0) continue;
        ck_assert_int_eq(scheduler_submit(s, &golden[i].generation, NULL), STATUS_OK);
        n_live++;
        if (++step > early) scheduler_step(s);
        scheduler_check(s);
    }
    submit_urgent(s, &n_live);
    while (n_live > 0) {
        scheduler_step(s);
        scheduler_check(s);
    }
    scheduler_stats(s, &stats);
    scheduler_free(s);
    engine_close(engine);
    return stats;
}

START_TEST(searches_find_the_texts_of_transformers) {
    const struct room *room = &rooms[_i / 3];
    static const char *const models[] = {"llama", "qwen3", "gpt2"};
    read_golden();
    struct scheduler_stats stats =
        search_all(models[_i % 3], room, room->n_blocks == 128 ? MOST_CASES : 4);
    for (int i = 0; i < n_golden; i++)
        if (strcmp(golden[i].model, models[_i % 3]) == 0) check_texts(&golden[i]);
    if (room->n_blocks == 128) ck_assert_uint_gt(stats.preemptions, 0);
    ck_assert_uint_eq((uint64_t)stats.blocks_used, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_beams");
    TCase *search = tcase_create("search"), *vectors = tcase_create("vectors");
    tcase_add_test(search, equal_candidates_are_ordered_by_beam_and_then_by_id);
    tcase_add_test(search, rounding_makes_ties);
    tcase_add_test(search, ties_for_the_last_place);
    tcase_add_test(search, ends_do_not_crowd_beams_out);
    tcase_add_test(search, of_equal_texts_the_first_stays_first);
    tcase_add_test(search, with_a_length_penalty_the_next_token_counts);
    tcase_add_test(search, only_the_first_candidates_may_finish);
    tcase_add_test(search, the_three_rules_end_a_search);
    tcase_add_test(search, better_texts_push_worse_ones_out);
    tcase_add_test(search, at_the_length_limit_all_finish);
    tcase_add_test(search, a_search_without_candidates_ends);
    tcase_set_timeout(vectors, 120);
    tcase_add_loop_test(vectors, searches_find_the_texts_of_transformers, 0, 3 * N_ROOMS);
    suite_add_tcase(suite, search);
    suite_add_tcase(suite, vectors);
    return suite_main(suite);
}
