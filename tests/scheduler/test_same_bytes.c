/* The same bytes: the tokens and logprobs of a request are bit-identical whatever else runs. Each
 * case is a seed. It draws a model, a mix of requests, their arrivals and cancels, and the settings
 * that must not change results: rows (also of prompts) and sequences of a step, logit rows, blocks
 * and their size, the prefix cache (warm in a second round), compute threads, the CPU path, the
 * steps in flight, the scheduler's own thread, a store of prefixes that a second server reads. All
 * results are compared with those of each request running alone on the plain path. In half of the
 * cases there are so few blocks that sequences are preempted.
 *
 *     PROPERTY_SEED=123    replays one case
 *     PROPERTY_CASES=n     number of cases
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/same_bytes.h"
#include "support/suite_main.h"
#include "support/tiny_model.h"

#if defined(__SANITIZE_THREAD__)
#define CASES 8
#define ASKED 4
#define REAL_ASKED 1
#define REAL_SETTINGS 0 /* tiny models show races, too */
#elif defined(__SANITIZE_ADDRESS__)
#define CASES 40
#define ASKED 12
#define REAL_ASKED 4
#define REAL_SETTINGS 2
#else
#define CASES 400
#define ASKED 28
#define REAL_ASKED 12
#define REAL_SETTINGS 5
#endif

#define REAL_MODEL "models/SmolLM2-135M-Instruct.Q4_1.gguf"
#define TINY_LENGTH 640 /* two and a half chunks of attention */

/* ---- the models ----------------------------------------------------------------------------- */

/* Every kind of product of a path, experts, every cache type, groups of one and of several query
 * heads, a head size that is not a multiple of a vector, windows in all layers or in most. */
static const struct variety {
    const char *name;
    enum dtype dtype;
    int V, K, F, L, H, G, D;
    bool untied, float32;
    enum kv_dtype kv_dtype;
    int ranks, E, window;
    const char *file; /* of a model file, which replaces the letters */
} varieties[] = {
    {"f32", DTYPE_F32, 300, 64, 96, 2, 4, 2, 16, false, false, KV_DTYPE_AUTO},
    {"q8_0", DTYPE_Q8_0, 300, 64, 96, 3, 4, 2, 16, true, false, KV_DTYPE_Q8_0},
    {"q4_1", DTYPE_Q4_1, 301, 64, 96, 2, 4, 1, 16, false, false, KV_DTYPE_AUTO},
    {"q4_0", DTYPE_Q4_0, 333, 96, 64, 2, 3, 3, 32, true, false, KV_DTYPE_FLOAT32},
    {"f16", DTYPE_F16, 290, 64, 64, 2, 6, 2, 12, false, false, KV_DTYPE_FLOAT32},
    {"bf16", DTYPE_BF16, 290, 48, 80, 2, 2, 2, 24, false, false, KV_DTYPE_FLOAT16},
    {"q4_1 as float32", DTYPE_Q4_1, 300, 64, 96, 2, 4, 2, 16, false, true, KV_DTYPE_AUTO},
    {"q4_1 on 2 ranks", DTYPE_Q4_1, 300, 64, 128, 2, 4, 2, 16, false, false, KV_DTYPE_AUTO, 2},
    {"f32 on 3 ranks", DTYPE_F32, 290, 48, 96, 2, 6, 3, 16, true, false, KV_DTYPE_Q8_0, 3},
    {"experts", DTYPE_Q8_0, 290, 64, 32, 2, 4, 2, 16, false, false, KV_DTYPE_AUTO, 1, 7},
    {"experts of halves", DTYPE_BF16, 290, 48, 48, 2, 2, 2, 24, true, false, KV_DTYPE_Q8_0, 1, 4},
    {"windows alone", DTYPE_F32, 290, 48, 48, 2, 4, 2, 16, false, false, KV_DTYPE_AUTO, 1, 3, 23},
    {"windows", DTYPE_Q8_0, 290, 64, 32, 4, 4, 2, 16, false, false, KV_DTYPE_AUTO, 1, 3, 100},
    {"longer windows", DTYPE_F32, 290, 48, 48, 3, 2, 1, 16, false, false, KV_DTYPE_Q8_0, 1, 3, 300},
    {"gemma2", .kv_dtype = KV_DTYPE_AUTO, .file = "tests/vectors/families/gemma2.gguf"},
    {"gemma2 on 2 ranks", .ranks = 2, .file = "tests/vectors/families/gemma2.gguf"},
    {"gemma3", .kv_dtype = KV_DTYPE_Q8_0, .file = "tests/vectors/families/gemma3.gguf"},
    {"olmo3", .kv_dtype = KV_DTYPE_FLOAT32, .file = "tests/vectors/families/olmo3.gguf"},
    {"exaone4", .kv_dtype = KV_DTYPE_AUTO, .file = "tests/vectors/families/exaone4.gguf"},
    {"cohere2", .kv_dtype = KV_DTYPE_FLOAT16, .file = "tests/vectors/families/cohere2.gguf"},
    {"lfm2", .kv_dtype = KV_DTYPE_AUTO, .file = "tests/vectors/families/lfm2.gguf"},
    {"lfm2 from a folder", .kv_dtype = KV_DTYPE_FLOAT16, .file = "tests/vectors/folders/lfm2"},
    {"lfm2_moe", .kv_dtype = KV_DTYPE_AUTO, .file = "tests/vectors/families/lfm2_moe.gguf"},
    {"qwen3_5", .kv_dtype = KV_DTYPE_AUTO, .file = "tests/vectors/families/qwen3_5.gguf"},
    {"qwen3_5_moe", .kv_dtype = KV_DTYPE_FLOAT16, .file = "tests/vectors/folders/qwen3_5_moe"},
    {"qwen3_next", .kv_dtype = KV_DTYPE_AUTO, .file = "tests/vectors/folders/qwen3_next"},
    {"granite4_h", .kv_dtype = KV_DTYPE_AUTO, .file = "tests/vectors/families/granite4_h.gguf"},
    {"granite4_h_moe", .kv_dtype = KV_DTYPE_FLOAT16,
     .file = "tests/vectors/folders/granite4_h_moe"},
    {"mamba2", .kv_dtype = KV_DTYPE_AUTO, .file = "tests/vectors/families/mamba2.gguf"},
    {"nemotron_h", .kv_dtype = KV_DTYPE_Q8_0, .file = "tests/vectors/families/nemotron_h.gguf"},
    {"falcon_h1", .kv_dtype = KV_DTYPE_AUTO, .file = "tests/vectors/folders/falcon_h1"},
    {"deepseek_v3", .kv_dtype = KV_DTYPE_AUTO, .file = "tests/vectors/families/deepseek_v3.gguf"},
    {"deepseek_v2", .kv_dtype = KV_DTYPE_Q8_0, .file = "tests/vectors/folders/deepseek_v2"},
    {"glm4_moe_lite", .kv_dtype = KV_DTYPE_FLOAT16, .file = "tests/vectors/folders/glm4_moe_lite"},
    {"kimi_linear", .kv_dtype = KV_DTYPE_AUTO, .file = "tests/vectors/families/kimi_linear.gguf"},
    {"kimi_linear_wide", .kv_dtype = KV_DTYPE_FLOAT16,
     .file = "tests/vectors/folders/kimi_linear_wide"},
    {"mistral4", .kv_dtype = KV_DTYPE_AUTO, .file = "tests/vectors/folders/mistral4"},
    {"phi3", .kv_dtype = KV_DTYPE_AUTO, .file = "tests/vectors/families/phi3.gguf"},
};

enum { N_VARIETIES = sizeof varieties / sizeof *varieties };

static struct request_set *sets[N_VARIETIES]; /* made at first use */
static char *files[N_VARIETIES];

enum { FILE_LENGTH = 96 }; /* the context of model files, eight windows */

static char *make_file(int i) {
    const struct variety *v = &varieties[i];
    struct tiny_model tiny = {.V = v->V,
                              .K = v->K,
                              .F = v->F,
                              .L = v->L,
                              .H = v->H,
                              .G = v->G,
                              .D = v->D,
                              .E = v->E,
                              .window = v->window,
                              .context_length = TINY_LENGTH,
                              .dtype = v->dtype,
                              .untied = v->untied,
                              .seed = (uint64_t)i + 1};
    return tiny_model_temporary(&tiny);
}

static struct request_set *set_of(int i) {
    if (sets[i]) return sets[i];
    const struct variety *v = &varieties[i];
    if (!v->file) files[i] = make_file(i);
    sets[i] = mem_calloc(1, sizeof *sets[i]);
    *sets[i] = (struct request_set){.model = {.file = v->file ? v->file : files[i],
                                              .kv_dtype = v->kv_dtype,
                                              .dtype = v->float32 ? COMPUTE_FLOAT32 : COMPUTE_AUTO,
                                              .max_model_len = v->file ? FILE_LENGTH : TINY_LENGTH,
                                              .ranks = v->ranks},
                                    .reference_path = "plain",
                                    .long_prompt = v->file ? FILE_LENGTH * 2 / 3 : LONG_PROMPT,
                                    .longest = v->file ? FILE_LENGTH / 2 : LONG_PROMPT,
                                    .searches = !v->file || strstr(v->file, "lfm2") ||
                                                strstr(v->file, "qwen3_5.gguf") ||
                                                strstr(v->file, "granite4_h.gguf"),
                                    .mirostat = true,
                                    .reads = true};
    request_set_init(sets[i], (uint64_t)i + 1, ASKED, NULL, 0);
    request_set_learn(sets[i]);
    return sets[i];
}

static void free_sets(void) {
    for (int i = 0; i < N_VARIETIES; i++) {
        if (!sets[i]) continue;
        if (files[i]) unlink(files[i]);
        free(files[i]);
        files[i] = NULL;
        request_set_free(sets[i]);
        free(sets[i]);
        sets[i] = NULL;
    }
}

/* ---- a case --------------------------------------------------------------------------------- */

struct scenario {
    uint64_t seed, random;
    int variety;
    const struct request_set *set;
    struct setting setting;
    const struct asked *asked[MAX_CLIENTS];
    int n_asked, passes;
    bool small; /* so few blocks that sequences should be preempted */
    bool threaded;
    bool stores;     /* a second server reads the prefixes that the first one has stored */
    char folder[40]; /* of the store */
};

static int between(struct scenario *scenario, int low, int high) {
    return drawn_between(&scenario->random, low, high);
}

static bool chance(struct scenario *scenario, int percent) {
    return drawn_chance(&scenario->random, percent);
}

static int blocks_for(int slots, int block_size) {
    return (slots + block_size - 1) / block_size;
}

/* Few blocks: the largest request fits if it is alone, with little more room. */
static int draw_blocks(struct scenario *scenario) {
    int largest = 0, all = 0;
    for (int i = 0; i < scenario->n_asked; i++) {
        int slots = asked_slots(scenario->set, scenario->asked[i]);
        int blocks =
            blocks_for(slots, scenario->setting.block_size) * asked_width(scenario->asked[i]);
        largest = blocks > largest ? blocks : largest;
        all += blocks * scenario->asked[i]->generation.n;
    }
    if (!scenario->small) return all + between(scenario, 1, 40);
    return largest + between(scenario, 0, largest / 8 + 1);
}

/* Window blocks for layers with windows, in most cases; often the minimum for one sequence. */
static int draw_window_blocks(struct scenario *scenario) {
    const struct request_set *set = scenario->set;
    if (set->n_windows == 0 || chance(scenario, 20)) return 0;
    int least = window_blocks_seen(set->window, scenario->setting.block_size);
    int most = scenario->setting.n_blocks;
    if (least >= most) return most;
    return between(scenario, least, chance(scenario, 50) ? min_int(least + 3, most) : most);
}

/* The plain path is slow, and the reference uses it already. */
static const char *draw_path(struct scenario *scenario) {
    const char *const *paths = backend_cpu_paths();
    int n = 0;
    while (paths[n + 1]) n++;
    return chance(scenario, 15) || n == 0 ? "plain" : paths[between(scenario, 0, n - 1)];
}

/* Draws drafts, in half of the cases. */
static void draw_drafts(struct scenario *scenario) {
    struct setting *s = &scenario->setting;
    if (chance(scenario, 50)) return;
    s->max_drafts = between(scenario, 1, MAX_DRAFTS);
    s->wrong = chance(scenario, 30) ? 0 : between(scenario, 0, 130);
    s->fixed_drafts = chance(scenario, 60);
    /* not from the random sequence, so the other settings do not change */
    s->draft_model = scenario->seed % 3 == 0;
    s->draft_short = scenario->seed % 2 == 0;
}

/* Draws the states of cached prefixes, few or many, at few places or many. They use a separate
 * random sequence, so the other settings do not change. */
static void draw_checkpoints(struct scenario *scenario) {
    uint64_t random = scenario->seed * 5381;
    if (!scenario->set->has_states) return;
    scenario->setting.checkpoints = drawn_between(&random, 0, drawn_between(&random, 1, 2) * 15);
    scenario->setting.checkpoint_blocks = drawn_between(&random, 1, 8);
}

/* Returns the maximum number of beams of a search, which run together. */
static int widest_asked(const struct scenario *scenario) {
    int widest = 1;
    for (int i = 0; i < scenario->n_asked; i++)
        widest = max_int(widest, asked_width(scenario->asked[i]));
    return widest;
}

static void draw_setting(struct scenario *scenario) {
    static const int sizes[] = {4, 8, 16, 4, 8, 16, 4, 8, 16, 1, 5, 32};
    static const int rows[] = {1, 2, 3, 4, 5, 8, 15, 16, 17, 32, 33, 64};
    struct setting *s = &scenario->setting;
    s->path = draw_path(scenario);
    s->threads = between(scenario, 1, 3);
    s->block_size = sizes[between(scenario, 0, 11)];
    const struct variety *v = &varieties[scenario->variety];
    bool floats = v->float32 || v->kv_dtype == KV_DTYPE_FLOAT16 || v->kv_dtype == KV_DTYPE_FLOAT32;
    if (!floats) s->block_size += s->block_size % 2; /* integers are stored in pairs */
    s->max_rows = chance(scenario, 50) ? rows[between(scenario, 0, 11)] : between(scenario, 1, 256);
    s->max_seqs = scenario->small ? between(scenario, 2, 16) : between(scenario, 1, 16);
    int widest = widest_asked(scenario);
    s->max_seqs = max_int(s->max_seqs, widest);
    s->max_rows = max_int(s->max_rows, widest);
    s->max_logit_rows = between(scenario, chance(scenario, 20) ? widest : s->max_seqs, 40);
    s->caching = chance(scenario, 65);
    s->n_blocks = draw_blocks(scenario);
    s->window_blocks = draw_window_blocks(scenario);
    s->mixed_rows = chance(scenario, 50) ? between(scenario, 1, 40) : 0;
    if (scenario->small && s->max_rows < 4) s->max_rows += 4;
    draw_drafts(scenario);
    s->warm_up = scenario->seed % 5 == 0;
    s->max_mask_work = scenario->seed % 4 ? (int)(scenario->seed % 97) + 1 : 0;
    draw_checkpoints(scenario);
}

/* If blocks should be few, requests are short and grow: a long one would need room that is enough
 * for all the others. */
static const struct asked *draw_asked(struct scenario *scenario) {
    const struct request_set *set = scenario->set;
    const struct asked *asked = &set->asked[between(scenario, 0, set->n_asked - 1)];
    if (!scenario->small || chance(scenario, 5)) return asked;
    for (int i = 0; i < 100; i++) { /* a small set may lack such requests */
        if (asked->generation.n_prompt <= 40 && asked->generation.max_tokens >= 8) break;
        asked = &set->asked[between(scenario, 0, set->n_asked - 1)];
    }
    return asked;
}

/* Not from the random sequence, so the other settings do not change. */
static void draw_store(struct scenario *scenario) {
    const struct setting *s = &scenario->setting;
    bool has_states = scenario->set->has_states;
    if (scenario->seed % 3 == 0 || !s->caching || scenario->set->model.ranks > 1) return;
    scenario->stores = !has_states || s->checkpoints > 0;
}

static void draw_scenario(struct scenario *scenario, uint64_t seed) {
    *scenario = (struct scenario){.seed = seed, .random = seed * 7919};
    scenario->variety = between(scenario, 0, N_VARIETIES - 1);
    scenario->set = set_of(scenario->variety);
    scenario->small = chance(scenario, 50);
    scenario->threaded = chance(scenario, 15);
    scenario->passes = !scenario->threaded && chance(scenario, 40) ? 2 : 1;
    scenario->n_asked = between(scenario, scenario->small ? 4 : 2, MAX_CLIENTS);
    for (int i = 0; i < scenario->n_asked; i++) scenario->asked[i] = draw_asked(scenario);
    draw_setting(scenario);
    draw_store(scenario);
}

static void add_clients(struct scenario *scenario, struct run *run) {
    int spread = chance(scenario, scenario->small ? 80 : 50) ? 0 : between(scenario, 1, 60);
    bool cancels = chance(scenario, scenario->small ? 25 : 50);
    for (int i = 0; i < scenario->n_asked; i++) {
        struct client *client = run_add(run, scenario->asked[i]);
        client->submit_at = between(scenario, 0, spread);
        if (!cancels || !chance(scenario, 40)) continue;
        client->cancel_at = client->submit_at + between(scenario, 0, 40);
        if (client->generation.beams.width == 0 && chance(scenario, 50))
            client->cancel_choice = between(scenario, 0, client->generation.n - 1);
    }
}

static void tell(const struct scenario *scenario, const struct run *run) {
    const struct setting *s = &scenario->setting;
    fprintf(
        stderr,
        "PROPERTY_SEED=%llu: %llu differences. Model %s, path %s, %d threads, %d rows, %d of "
        "prompts, %d sequences, %d logit rows, "
        "%d blocks of %d (%d for windows), cache %d, %d drafts (%d %% wrong, fixed %d, by a model "
        "%d), %d checkpoints, one in %d blocks, %d passes, own thread %d, %d requests. First: "
        "%s\n",
        (unsigned long long)scenario->seed, (unsigned long long)run->tally.differences,
        varieties[scenario->variety].name, s->path, s->threads, s->max_rows, s->mixed_rows,
        s->max_seqs, s->max_logit_rows, s->n_blocks, s->block_size, s->window_blocks, s->caching,
        s->max_drafts, s->wrong, s->fixed_drafts, s->draft_model, s->checkpoints,
        s->checkpoint_blocks, scenario->passes, scenario->threaded, scenario->n_asked,
        run->first_difference);
}

static void add_tally(struct tally *sum, const struct tally *tally) {
    sum->tokens += tally->tokens;
    sum->scores += tally->scores;
    sum->preemptions += tally->preemptions;
    sum->copies += tally->copies;
    sum->prefix_hits += tally->prefix_hits;
    sum->cancels += tally->cancels;
    sum->steps += tally->steps;
    sum->differences += tally->differences;
    sum->drafts += tally->drafts;
    sum->accepted += tally->accepted;
    sum->forced += tally->forced;
    sum->unready += tally->unready;
    sum->state_hits += tally->state_hits;
    sum->state_accepted += tally->state_accepted;
    for (enum cache_part part = 0; part < N_CACHE_PARTS; part++)
        sum->restored[part] += tally->restored[part];
}

static void run_server(struct scenario *scenario, struct run *run) {
    run_open(run, scenario->set, &scenario->setting);
    for (int pass = 0; pass < scenario->passes; pass++) {
        add_clients(scenario, run);
        if (scenario->threaded) {
            run_threaded(run);
        } else {
            run_stepped(run);
        }
    }
    run_close(run);
    if (run->tally.differences > 0) tell(scenario, run);
}

static void make_store(struct scenario *scenario) {
    snprintf(scenario->folder, sizeof scenario->folder, "/tmp/same_bytes_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(scenario->folder));
    scenario->setting.store = scenario->folder;
}

static void remove_store(const struct scenario *scenario) {
    char command[80];
    snprintf(command, sizeof command, "rm -r %s", scenario->folder);
    ck_assert_int_eq(system(command), 0);
}

/* Adds the results to *sum. */
static void run_case(struct scenario *scenario, struct run *run, struct tally *sum) {
    if (scenario->stores) make_store(scenario);
    for (int server = 0; server < (scenario->stores ? 2 : 1); server++) {
        run_server(scenario, run);
        add_tally(sum, &run->tally);
    }
    if (scenario->stores) remove_store(scenario);
}

/* ---- the cases ------------------------------------------------------------------------------ */

static void print_tally(const char *what, int n, const struct tally *t, uint64_t began) {
    printf(
        "%d %s in %.1f s: %llu tokens and %llu prompt scores compared in %llu steps; %llu "
        "preemptions, %llu copies, "
        "%llu prefix tokens hit, %llu choices cancelled, %llu of %llu drafts held, %llu tokens "
        "forced, %llu masks unready; with states %llu prefix tokens and %llu drafts; from stores "
        "%llu blocks, %llu window blocks, %llu states\n",
        n, what, (double)(now_ns() - began) * 1e-9, (unsigned long long)t->tokens,
        (unsigned long long)t->scores, (unsigned long long)t->steps,
        (unsigned long long)t->preemptions, (unsigned long long)t->copies,
        (unsigned long long)t->prefix_hits, (unsigned long long)t->cancels,
        (unsigned long long)t->accepted, (unsigned long long)t->drafts,
        (unsigned long long)t->forced, (unsigned long long)t->unready,
        (unsigned long long)t->state_hits, (unsigned long long)t->state_accepted,
        (unsigned long long)t->restored[PART_BLOCK], (unsigned long long)t->restored[PART_WINDOW],
        (unsigned long long)t->restored[PART_STATE]);
}

static uint64_t number_from(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

START_TEST(a_request_gives_the_same_in_any_company) {
    uint64_t only = number_from("PROPERTY_SEED", 0),
             cases = only ? 1 : number_from("PROPERTY_CASES", CASES);
    int small = 0, preempted = 0, failed = 0;
    struct run *run = mem_calloc(1, sizeof *run);
    struct tally sum = {0};
    struct scenario scenario;
    uint64_t began = now_ns();
    for (uint64_t i = 0; i < cases; i++) {
        draw_scenario(&scenario, only ? only : i + 1);
        struct tally tally = {0};
        run_case(&scenario, run, &tally);
        add_tally(&sum, &tally);
        small += scenario.small;
        preempted += scenario.small && tally.preemptions > 0;
        failed += tally.differences > 0;
    }
    print_tally("cases", (int)cases, &sum, began);
    printf("%d of %d cases with few blocks preempted\n", preempted, small);
    ck_assert_msg(failed == 0, "%d of %d cases differ", failed, (int)cases);
    if (cases >= 100) { /* enough cases to compare shares */
        ck_assert_int_gt(preempted * 5, small * 3);
        ck_assert(sum.copies > 0 && sum.prefix_hits > 0 && sum.cancels > 0);
        ck_assert(sum.accepted > 0 && sum.drafts > sum.accepted);
        ck_assert(sum.forced > 0 && sum.unready > 0);
        ck_assert(sum.state_hits > 0 && sum.state_accepted > 0);
        for (enum cache_part part = 0; part < N_CACHE_PARTS; part++)
            ck_assert_uint_gt(sum.restored[part], 0);
    }
    free(run);
}
END_TEST

/* ---- the real model ------------------------------------------------------------------------- */

#define TEXT "bench/accuracy.txt"
#define REAL_LENGTH 768

static int read_text(struct request_set *set, int32_t **ids) {
    static char text[1 << 16];
    struct tokenizer *tokenizer;
    struct err err = {0};
    FILE *file = fopen(TEXT, "rb");
    ck_assert_ptr_nonnull(file);
    size_t length = fread(text, 1, sizeof text, file);
    fclose(file);
    ck_assert_msg(engine_open_tokenizer(&tokenizer, set->model.file, &err) == STATUS_OK, "%s",
                  err.message);
    int n = tokenizer_encode(tokenizer, text, length, SPECIAL_AS_TEXT, false, 1 << 16, ids);
    tokenizer_free(tokenizer);
    return n;
}

static void run_real(const struct request_set *set, const struct setting *setting, bool threaded,
                     struct tally *sum) {
    struct run *run = mem_calloc(1, sizeof *run);
    run_open(run, set, setting);
    for (int i = 0; i < set->n_asked; i++) {
        const struct asked *asked = &set->asked[(i + 3) % set->n_asked];
        if (asked_slots(set, asked) > setting->n_blocks * setting->block_size) continue;
        struct client *client = run_add(run, asked);
        client->submit_at = i / 4 * 3;
        if (i % 6 == 5) client->cancel_at = client->submit_at + 7;
    }
    if (threaded) {
        run_threaded(run);
    } else {
        run_stepped(run);
    }
    run_close(run);
    add_tally(sum, &run->tally);
    ck_assert_msg(run->tally.differences == 0, "path %s, %d rows, %d blocks of %d, cache %d: %s",
                  setting->path, setting->max_rows, setting->n_blocks, setting->block_size,
                  setting->caching, run->first_difference);
    free(run);
}

/* The second setting has room for little more than the long request. The last one uses another
 * path, if the machine has one that is not plain. */
START_TEST(a_real_model_gives_the_same_too) {
    const char *const *paths = backend_cpu_paths();
    const char *best = paths[0], *other = paths[1] && paths[2] ? paths[1] : best;
    const struct setting settings[] = {
        {best, 2, 256, 12, 12, 16, 400, true, 2},  {best, 3, 48, 16, 16, 4, 36, false, 1},
        {best, 1, 131, 5, 40, 4, 170, true, 2},    {best, 2, 23, 12, 16, 8, 400, true, 2},
        {other, 2, 97, 12, 12, 16, 400, false, 1},
    };
    struct request_set *set = mem_calloc(1, sizeof *set);
    *set = (struct request_set){.model = {.file = REAL_MODEL, .max_model_len = REAL_LENGTH},
                                .reference_path = best,
                                .longest = 100};
    struct tally sum = {0};
    int32_t *text;
    uint64_t began = now_ns();
    int n_text = read_text(set, &text);
    request_set_init(set, 5, REAL_ASKED, text, n_text);
    request_set_learn(set);
    for (int i = 0; i < REAL_SETTINGS; i++) run_real(set, &settings[i], i == 3, &sum);
    print_tally("settings of the real model", REAL_SETTINGS, &sum, began);
    ck_assert(REAL_ASKED < 12 || sum.preemptions > 0);
    request_set_free(set);
    free(set);
    free(text);
}
END_TEST

int main(void) {
    log_setup(LOG_WARNING, LOG_TEXT); /* engines that warm up log it */
    Suite *suite = suite_create("property_same_bytes");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 600);
    tcase_add_unchecked_fixture(core, NULL, free_sets);
    tcase_add_test(core, a_request_gives_the_same_in_any_company);
    suite_add_tcase(suite, core);
    TCase *real = tcase_create("real");
    tcase_set_timeout(real, 600);
    if (REAL_SETTINGS > 0) tcase_add_test(real, a_real_model_gives_the_same_too);
    suite_add_tcase(suite, real);
    return suite_main(suite);
}
