/* Adapters of tiny models, as PEFT's folders and as GGUF files: PEFT's greedy tokens and logprobs
 * in float32 (tests/vectors/make_adapters.py), on all CPU paths; and each reason to refuse an
 * adapter. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/adapters/adapters.h"
#include "engine/internal.h"
#include "support/adapter_file.h"
#include "support/folder_copy.h"
#include "support/gguf_writer.h"
#include "support/sequence_runner.h"
#include "support/suite_main.h"

enum { MOST = 128, V = 299 };

static const char *const names[] = {"llama-1", "llama-8",   "llama-64",     "qwen2-1",
                                    "qwen2-8", "qwen2-64",  "gpt2-1",       "gpt2-8",
                                    "gpt2-64", "granite-8", "qwen2_file-8", "gpt2_file-8"};

enum { N_NAMES = sizeof names / sizeof *names };

static struct engine *open_for(const char *model, const char *path, bool float32, int adapters) {
    struct engine_config config = {.model = model,
                                   .threads = 2,
                                   .dtype = float32 ? COMPUTE_FLOAT32 : COMPUTE_AUTO,
                                   .cpu_path = path,
                                   .max_num_seqs = 64,
                                   .max_num_batched_tokens = 64,
                                   .block_size = 16,
                                   .kv_memory = 16 << 20,
                                   .max_adapters = adapters,
                                   .max_adapter_rank = 64};
    struct engine *engine;
    struct err err;
    ck_assert_msg(!engine_open(&engine, &config, &err), "%s: %s", model, err.message);
    return engine;
}

/* ---- PEFT's tokens -------------------------------------------------------------------------- */

/* Reads "word 1 2 3" or "word 1:-0.5 2:-0.25". Returns the number of ids. */
static int read_line(FILE *file, const char *word, int32_t *ids, double *logprobs) {
    char line[4096], *at = line, *next;
    int n = 0;
    ck_assert_ptr_nonnull(fgets(line, sizeof line, file));
    ck_assert_msg(strncmp(line, word, strlen(word)) == 0, "%s", line);
    for (at += strlen(word); *at && *at != '\n'; n++) {
        ids[n] = (int32_t)strtol(at, &next, 10);
        if (logprobs) logprobs[n] = strtod(next + 1, &next);
        at = next;
    }
    return n;
}

static void check_prompt(struct engine *engine, FILE *file, int number, const char *what) {
    int32_t ids[MOST], tokens[MOST];
    double logprobs[MOST];
    int n = read_line(file, "prompt", ids, NULL);
    int n_tokens = read_line(file, "tokens", tokens, logprobs);
    ck_assert_int_eq(n_tokens, 24);
    for (int i = 0; i < n_tokens; i++) {
        const float *row = runner_prompt_logits(engine, ids, n, number);
        ck_assert_msg(runner_argmax(row, V) == tokens[i], "%s: token %d is %d, not %d", what, i,
                      runner_argmax(row, V), (int)tokens[i]);
        double logprob = (double)row[tokens[i]] - runner_logsumexp(row, V);
        ck_assert_msg(fabs(logprob - logprobs[i]) < 2e-4, "%s: token %d has %f, not %f", what, i,
                      logprob, logprobs[i]);
        ids[n++] = tokens[i];
    }
}

static void check_adapter(const char *name, const char *end, const char *path) {
    char file[128], adapter[128], line[256], base[128];
    snprintf(file, sizeof file, "tests/vectors/adapters/%s.txt", name);
    snprintf(adapter, sizeof adapter, "tests/vectors/adapters/%s%s", name, end);
    FILE *golden = fopen(file, "r");
    ck_assert_ptr_nonnull(golden);
    ck_assert_ptr_nonnull(fgets(line, sizeof line, golden));
    ck_assert_int_eq(fscanf(golden, "base %127s\n", base), 1);
    snprintf(line, sizeof line, "tests/vectors/%s", base);
    struct engine *engine = open_for(line, path, true, 2);
    struct adapter_facts facts;
    struct err err;
    int other, number;
    ck_assert_msg(!engine_adapter_load(engine, adapter, &other, &facts, &err), "%s", err.message);
    ck_assert_msg(!engine_adapter_load(engine, adapter, &number, &facts, &err), "%s", err.message);
    ck_assert_int_eq(number, 2);
    engine_adapter_unload(engine, other);
    for (int i = 0; i < 2; i++) check_prompt(engine, golden, number, adapter);
    engine_close(engine);
    fclose(golden);
}

START_TEST(tokens_equal_pefts) {
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        check_adapter(names[_i], "", *path);
        check_adapter(names[_i], ".gguf", *path);
    }
}
END_TEST

/* ---- loading -------------------------------------------------------------------------------- */

#define BASE "tests/vectors/folders/qwen2"
#define ADAPTER "tests/vectors/adapters/qwen2-1"

static struct engine *engine;

static void open_base(void) {
    engine = open_for(BASE, NULL, false, 2);
}

static void close_base(void) {
    engine_close(engine);
}

static void must_fail(const char *path, const char *part) {
    struct adapter_facts facts;
    struct err err = {0};
    int number;
    ck_assert_msg(engine_adapter_load(engine, path, &number, &facts, &err), "%s was loaded", path);
    ck_assert_msg(strstr(err.message, part), "expected \"%s\": %s", part, err.message);
    ck_assert_ptr_null(strchr(err.message, '\n'));
    ck_assert_int_eq((int)engine->model.adapters.used_bytes, 0);
}

START_TEST(numbers_and_memory_are_limited) {
    struct adapter_facts facts;
    struct err err;
    int number[3];
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(engine_adapter_load(engine, ADAPTER, &number[i], &facts, &err), STATUS_OK);
    ck_assert_int_eq(number[0] + number[1], 3);
    ck_assert_int_eq(facts.rank, 1);
    ck_assert_int_eq(facts.n_changed, 14);
    ck_assert_int_eq(engine_adapter_load(engine, ADAPTER, &number[2], &facts, &err), STATUS_USAGE);
    ck_assert_ptr_nonnull(strstr(err.message, "{max-loras}"));
    engine_adapter_unload(engine, number[0]);
    ck_assert_int_eq(engine_adapter_load(engine, ADAPTER, &number[2], &facts, &err), STATUS_OK);
    ck_assert_int_eq(number[2], number[0]);
    engine_adapter_unload(engine, number[1]);
    engine_adapter_unload(engine, number[2]);
    ck_assert_int_eq((int)engine->model.adapters.used_bytes, 0);
    engine->model.adapters.bytes = facts.bytes - 1;
    must_fail(ADAPTER, "{lora-memory}");
    engine->max_adapter_rank = 4;
    must_fail("tests/vectors/adapters/qwen2-64", "{max-lora-rank} 64");
}
END_TEST

/* A key of adapter_config.json, and a part of the message. The first replaces "peft_type". */
static const struct {
    const char *from, *to, *part;
} configs[] = {
    {"\"use_dora\": false", "\"use_dora\": true", "use_dora"},
    {"\"modules_to_save\": null", "\"modules_to_save\": [\"lm_head\"]", "modules_to_save"},
    {"\"lora_bias\": false", "\"lora_bias\": true", "lora_bias"},
    {"\"bias\": \"none\"", "\"bias\": \"all\"", "bias"},
    {"\"peft_type\": \"LORA\"", "\"peft_type\": \"IA3\"", "IA3"},
    {"\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa\"", "init_lora_weights"},
    {"\"r\": 1,", "\"r\": 3,", "rank 1, but adapter_config.json says 3"},
    {"\"r\": 1,", "\"r\": \"1\",", "key r must be"},
    {"\"lora_alpha\": 2", "\"lora_alpha\": null, \"r\": -2", "key r must be"},
    {"\"alpha_pattern\": {}", "\"alpha_pattern\": {\".*q_proj\": 4}", "regular expression"},
    {"\"trainable_token_indices\": null", "\"trainable_token_indices\": [1]", "trainable_token"},
    {"\"target_parameters\": null", "\"target_parameters\": [\"experts\"]", "target_parameters"},
    {"\"layer_replication\": null", "\"layer_replication\": [[0, 2]]", "layer_replication"},
    {"{", "[", "adapter_config.json"},
};

START_TEST(unsupported_settings_are_refused) {
    const char *folder = folder_copy(ADAPTER);
    folder_copy_replace("adapter_config.json", configs[_i].from, configs[_i].to);
    must_fail(folder, configs[_i].part);
    folder_copy_remove();
}
END_TEST

/* The same number of bytes, so that the header stays valid. */
static const struct {
    const char *from, *to, *part;
} tensors[] = {
    {"layers.0.self_attn.q_proj.lora_A", "layers.9.self_attn.q_proj.lora_A", "another base model"},
    {"self_attn.q_proj.lora_A.weight", "self_attn.x_proj.lora_A.weight", "another base model"},
    {"self_attn.q_proj.lora_A.weight", "self_attn.q_proj.lora_A.weighs", "not a matrix"},
    {"self_attn.q_proj.lora_A.weight", "self_attn.q_proj.lora_magnitud", "not a matrix"},
    {"self_attn.q_proj.lora_A.weight", "self_attn.q_proj.lora_embeddin", "not a matrix"},
    {"self_attn.q_proj.lora_A.weight", "self_attn.q_proj.base_layer.we", "modules_to_save"},
    {"layers.0.self_attn.q_proj.lora_A", "layers.1.self_attn.q_proj.lora_A", ""},
    {"[1,32]", "[32,1]", "rank"},
};

START_TEST(wrong_tensors_are_refused) {
    const char *folder = folder_copy(ADAPTER);
    folder_copy_replace("adapter_model.safetensors", tensors[_i].from, tensors[_i].to);
    must_fail(folder, tensors[_i].part);
    folder_copy_remove();
}
END_TEST

START_TEST(adapters_of_other_models_are_refused) {
    must_fail("tests/vectors/adapters/gpt2-1", "another base model");
    must_fail("tests/vectors/adapters/gpt2-1.gguf", "general.architecture");
    must_fail("tests/vectors/adapters/qwen2_file-8", "another base model");
    must_fail("tests/vectors/families/qwen2.gguf", "general.type");
    must_fail("tests/vectors/folders/qwen2", "adapter_config.json");
    must_fail("/tmp/there/is/none", "no such adapter");
}
END_TEST

/* ---- GGUF ----------------------------------------------------------------------------------- */

struct gguf_case {
    const char *type, *kind, *name, *part;
    float value;
};

static const struct gguf_case gguf_cases[] = {
    {"model", "lora", "blk.0.attn_q.weight", "general.type", 1},
    {"adapter", "control_vector", "blk.0.attn_q.weight", "adapter.type", 1},
    {"adapter", "lora", "token_embd.weight", "the embedding", 1},
    {"adapter", "lora", "output.weight", "the head", 1},
    {"adapter", "lora", "blk.2.attn_q.weight", "another base model", 1},
    {"adapter", "lora", "blk.-1.attn_q.weight", "another base model", 1},
    {"adapter", "lora", "blk.0.attn_norm.weight", "cannot change", 1},
    {"adapter", "lora", "blk.0.attn_x.weight", "another base model", 1},
    {"adapter", "lora", "blk.0.attn_q.weight", "not finite", NAN},
    {"adapter", "lora", "blk.0.attn_q.weight", "not finite", INFINITY},
};

static void write_case(const struct gguf_case *c, const char *path, bool has_b) {
    struct gguf_writer writer = {0};
    struct buf bytes = {0};
    char name[128];
    float numbers[64];
    for (int i = 0; i < 64; i++) numbers[i] = c->value;
    gguf_writer_string(&writer, "general.type", c->type);
    gguf_writer_string(&writer, "general.architecture", "qwen2");
    gguf_writer_string(&writer, "adapter.type", c->kind);
    snprintf(name, sizeof name, "%s.lora_a", c->name);
    gguf_writer_tensor(&writer, name, DTYPE_F32, 2, (int64_t[]){32, 1}, numbers, 128);
    snprintf(name, sizeof name, "%s.lora_b", c->name);
    if (has_b) gguf_writer_tensor(&writer, name, DTYPE_F32, 2, (int64_t[]){1, 32}, numbers, 128);
    gguf_writer_finish(&writer, &bytes);
    write_file(path, bytes.data, bytes.length);
    gguf_writer_free(&writer);
    buf_free(&bytes);
}

START_TEST(wrong_gguf_files_are_refused) {
    char path[] = "/tmp/penstock_lora_XXXXXX";
    close(mkstemp(path));
    write_case(&gguf_cases[_i], path, true);
    must_fail(path, gguf_cases[_i].part);
    unlink(path);
}
END_TEST

START_TEST(a_matrix_without_partner_is_refused) {
    const struct gguf_case right = {"adapter", "lora", "blk.0.attn_q.weight", "", 1};
    char path[] = "/tmp/penstock_lora_XXXXXX";
    struct adapter_facts facts;
    struct err err;
    int number;
    close(mkstemp(path));
    write_case(&right, path, false);
    must_fail(path, "no partner");
    write_case(&right, path, true);
    ck_assert_int_eq(engine_adapter_load(engine, path, &number, &facts, &err), STATUS_OK);
    unlink(path);
}
END_TEST

/* An adapter on layers with experts may change attention, but not the experts. */
START_TEST(experts_are_refused) {
    struct engine *experts = open_for("tests/vectors/families/qwen3moe.gguf", NULL, false, 2);
    struct made_adapter made = {.rank = 2, .only = ROLE_EXPERTS_DOWN};
    char *path = adapter_file_temporary(&made, engine_model(experts));
    struct adapter_facts facts;
    struct err err;
    int number;
    ck_assert(engine_adapter_load(experts, path, &number, &facts, &err));
    unlink(path);
    free(path);
    made.only = ROLE_Q;
    path = adapter_file_temporary(&made, engine_model(experts));
    ck_assert_msg(!engine_adapter_load(experts, path, &number, &facts, &err), "%s", err.message);
    unlink(path);
    free(path);
    engine_close(experts);
}
END_TEST

/* ---- cut files ------------------------------------------------------------------------------- */

enum { CUT_STEP = 64 };

/* A file of the folder copy that ends early, at each 64th byte. */
static void cut_everywhere(const char *path, const char *file) {
    struct buf bytes = {0};
    folder_copy_read(&bytes, file);
    ck_assert_uint_gt(bytes.length, CUT_STEP);
    for (size_t n = 0; n < bytes.length; n += CUT_STEP) {
        folder_copy_write(file, bytes.data, n);
        must_fail(path, "");
    }
    folder_copy_write(file, bytes.data, bytes.length);
    buf_free(&bytes);
}

START_TEST(files_that_are_cut_at_any_64th_byte_are_refused) {
    const char *folder = folder_copy(ADAPTER);
    struct adapter_facts facts;
    struct err err;
    int number;
    cut_everywhere(folder, "adapter_config.json");
    cut_everywhere(folder, "adapter_model.safetensors");
    ck_assert_int_eq(engine_adapter_load(engine, folder, &number, &facts, &err), STATUS_OK);
    engine_adapter_unload(engine, number);
    folder_copy_remove();
}
END_TEST

START_TEST(gguf_files_that_are_cut_at_any_64th_byte_are_refused) {
    const struct made_adapter made = {.rank = 2, .alpha = 4};
    struct buf bytes = {0};
    char path[] = "/tmp/penstock_lora_XXXXXX";
    struct adapter_facts facts;
    struct err err;
    int number;
    close(mkstemp(path));
    adapter_file_bytes(&made, engine_model(engine), &bytes);
    for (size_t n = 0; n < bytes.length; n += CUT_STEP) {
        write_file(path, bytes.data, n);
        must_fail(path, "");
    }
    write_file(path, bytes.data, bytes.length);
    ck_assert_int_eq(engine_adapter_load(engine, path, &number, &facts, &err), STATUS_OK);
    engine_adapter_unload(engine, number);
    unlink(path);
    buf_free(&bytes);
}
END_TEST

/* ---- families ------------------------------------------------------------------------------- */

/* Models with several kinds of layers: attention, gated attention, delta rules, short convolutions,
 * latent attention, experts. */
static const char *const kinds[] = {
    "families/qwen3.gguf",       "families/gpt2.gguf",        "families/lfm2.gguf",
    "families/qwen3_5.gguf",     "families/deepseek_v2.gguf", "families/deepseek_v2_lite.gguf",
    "families/gemma3.gguf",      "families/falcon.gguf",      "families/granitemoe.gguf",
    "families/kimi_linear.gguf",
};

enum { N_KINDS = sizeof kinds / sizeof *kinds, PROMPT = 12 };

/* Whether the adapter of one matrix can be loaded, and then changes the logits. */
static bool changes_logits(struct engine *model, enum role role, bool *is_loaded) {
    const struct made_adapter made = {.rank = 4, .seed = 7, .only = role};
    char *path = adapter_file_temporary(&made, engine_model(model));
    struct adapter_facts facts;
    struct err err;
    int32_t ids[PROMPT];
    int number, n = engine_model(model)->V;
    float *base = mem_calloc((size_t)n, sizeof *base);
    for (int i = 0; i < PROMPT; i++) ids[i] = 5 + 7 * i;
    *is_loaded = !engine_adapter_load(model, path, &number, &facts, &err);
    memcpy(base, runner_prompt_logits(model, ids, PROMPT, 0), (size_t)n * sizeof *base);
    bool changes = *is_loaded && memcmp(base, runner_prompt_logits(model, ids, PROMPT, number),
                                        (size_t)n * sizeof *base) != 0;
    if (*is_loaded) engine_adapter_unload(model, number);
    unlink(path);
    free(path);
    free(base);
    return changes;
}

/* An adapter is refused, or it has an effect: never is one taken and then left out of a product. */
START_TEST(each_matrix_that_is_taken_has_an_effect) {
    char path[128];
    int taken = 0;
    snprintf(path, sizeof path, "tests/vectors/%s", kinds[_i]);
    struct engine *model = open_for(path, NULL, false, 2);
    for (enum role role = 1; role < N_ROLES; role++) {
        bool has = false, is_loaded;
        for (int i = 0; i < engine_model(model)->L; i++)
            has = has || config_has_in(engine_model(model), role, i);
        if (!has) continue;
        bool changes = changes_logits(model, role, &is_loaded);
        ck_assert_msg(changes || !is_loaded, "%s: adapters of role %d are left out", kinds[_i],
                      (int)role);
        taken += is_loaded;
    }
    ck_assert_int_ge(taken, 2);
    engine_close(model);
}
END_TEST

/* ---- types of numbers ----------------------------------------------------------------------- */

/* An adapter's numbers fit in 16 bits. Its tensors have these types; another one has float32. */
static const struct {
    const char *what;
    enum dtype a, b, rounds_to;
    bool is_short;
} kept_types[] = {
    {"f16", DTYPE_F16, DTYPE_F16, DTYPE_F16, true},
    {"bf16", DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, true},
    {"f16 and f32", DTYPE_F16, DTYPE_F32, DTYPE_F16, false},
    {"f32 and bf16", DTYPE_F32, DTYPE_BF16, DTYPE_BF16, false},
};

static int64_t load_made(struct engine *model, const struct made_adapter *made, int *number) {
    char *path = adapter_file_temporary(made, engine_model(model));
    struct adapter_facts facts;
    struct err err;
    ck_assert_msg(!engine_adapter_load(model, path, number, &facts, &err), "%s", err.message);
    unlink(path);
    free(path);
    return facts.bytes;
}

static void check_type(const char *base, const char *cpu_path, int i) {
    struct made_adapter made = {.rank = 5, .seed = 3, .rounds_to = kept_types[i].rounds_to};
    struct engine *model = open_for(base, cpu_path, false, 2);
    const size_t row = (size_t)engine_model(model)->V * sizeof(float);
    int32_t ids[PROMPT];
    int wide, kept;
    for (int t = 0; t < PROMPT; t++) ids[t] = 5 + 7 * t;
    const int64_t wide_bytes = load_made(model, &made, &wide);
    made.a_type = kept_types[i].a, made.b_type = kept_types[i].b;
    const int64_t bytes = load_made(model, &made, &kept);
    if (kept_types[i].is_short)
        ck_assert_int_lt(bytes, wide_bytes * 5 / 8);
    else
        ck_assert_int_eq(bytes, wide_bytes);
    ck_assert_int_eq(model->model.adapters.used_bytes, bytes + wide_bytes);
    float *want = memcpy(mem_alloc(row), runner_prompt_logits(model, ids, PROMPT, wide), row);
    const bool is_same = memcmp(want, runner_prompt_logits(model, ids, PROMPT, kept), row) == 0;
    ck_assert_msg(is_same, "%s, %s: %s", base, cpu_path, kept_types[i].what);
    ck_assert_int_ne(memcmp(want, runner_prompt_logits(model, ids, PROMPT, 0), row), 0);
    mem_free(want);
    engine_close(model);
}

START_TEST(numbers_of_16_bits_take_half_the_memory_and_give_the_same_bytes) {
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        check_type("tests/vectors/families/qwen3.gguf", *path, _i);
        check_type("tests/vectors/families/gpt2.gguf", *path, _i);
    }
}
END_TEST

/* ---- settings ------------------------------------------------------------------------------- */

START_TEST(what_cannot_be_adapted_is_refused_at_the_start) {
    static const struct {
        struct engine_config config;
        const char *part;
    } cases[] = {
        {{.model = "tests/vectors/encoders/bert", .max_adapters = 1, .max_adapter_rank = 8},
         "encoder"},
        {{.model = BASE,
          .max_adapters = 1,
          .max_adapter_rank = 8,
          .adapter_memory = (int64_t)1 << 50},
         "{lora-memory}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct engine_config config = cases[i].config;
        struct engine *none;
        struct err err = {0};
        config.threads = 2;
        config.max_num_seqs = config.max_num_batched_tokens = 64;
        config.block_size = 16;
        ck_assert_int_eq(engine_open(&none, &config, &err), STATUS_USAGE);
        ck_assert_msg(strstr(err.message, cases[i].part), "%s", err.message);
    }
}
END_TEST

START_TEST(memory_is_planned) {
    const struct engine_memory *memory = engine_memory(engine);
    ck_assert_int_eq(memory->adapters, 2 * adapter_most_bytes(engine_model(engine), 64, 1));
    ck_assert_int_eq(engine->model.adapters.bytes, memory->adapters);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine_adapters");
    TCase *golden = tcase_create("golden"), *core = tcase_create("core");
    tcase_add_loop_test(golden, tokens_equal_pefts, 0, N_NAMES);
    tcase_add_loop_test(golden, each_matrix_that_is_taken_has_an_effect, 0, N_KINDS);
    tcase_add_loop_test(golden, numbers_of_16_bits_take_half_the_memory_and_give_the_same_bytes, 0,
                        sizeof kept_types / sizeof *kept_types);
    tcase_add_test(golden, experts_are_refused);
    tcase_add_test(golden, what_cannot_be_adapted_is_refused_at_the_start);
    tcase_add_checked_fixture(core, open_base, close_base);
    tcase_add_test(core, numbers_and_memory_are_limited);
    tcase_add_test(core, memory_is_planned);
    tcase_add_loop_test(core, unsupported_settings_are_refused, 0,
                        sizeof configs / sizeof *configs);
    tcase_add_loop_test(core, wrong_tensors_are_refused, 0, sizeof tensors / sizeof *tensors);
    tcase_add_test(core, adapters_of_other_models_are_refused);
    tcase_add_loop_test(core, wrong_gguf_files_are_refused, 0,
                        sizeof gguf_cases / sizeof *gguf_cases);
    tcase_add_test(core, a_matrix_without_partner_is_refused);
    tcase_add_test(core, files_that_are_cut_at_any_64th_byte_are_refused);
    tcase_add_test(core, gguf_files_that_are_cut_at_any_64th_byte_are_refused);
    tcase_set_timeout(golden, 300);
    suite_add_tcase(suite, golden);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
