/* EAGLE-3 heads beside a model: their part of the model, and the refused folders, models and
 * settings. tests/scheduler/test_ahead.c compares their guesses. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/internal.h"
#include "engine/models/layers.h"
#include "support/folder_copy.h"
#include "support/suite_main.h"

#define LLAMA "tests/vectors/ahead/eagle_llama"
#define QWEN3 "tests/vectors/ahead/eagle_qwen3"

static struct engine_config config_of(const char *model, const char *head) {
    return (struct engine_config){.model = model,
                                  .stand_in_vocabulary = true,
                                  .threads = 1,
                                  .max_num_seqs = 2,
                                  .max_num_batched_tokens = 8,
                                  .block_size = 16,
                                  .kv_memory = 1 << 20,
                                  .max_drafts = 2,
                                  .guesses_ahead = true,
                                  .eagle = head};
}

static struct engine *open_model(const struct engine_config *config) {
    struct engine *engine;
    struct err err = {0};
    ck_assert_msg(engine_open(&engine, config, &err) == STATUS_OK, "%s", err.message);
    return engine;
}

static void check_refused(const struct engine_config *config, enum status wanted,
                          const char *words) {
    struct engine *engine;
    struct err err = {0};
    ck_assert_int_eq(engine_open(&engine, config, &err), wanted);
    ck_assert_msg(strstr(err.message, words) != NULL, "%s", err.message);
    ck_assert_ptr_null(engine);
}

/* The head is one more layer in the cache and in the plan, and has a program of its own. */
START_TEST(the_head_is_planned_and_loaded) {
    struct engine_config config = config_of(QWEN3, QWEN3 "_head");
    struct engine *with = open_model(&config);
    config.guesses_ahead = false, config.eagle = NULL;
    struct engine *without = open_model(&config);
    const struct model_config *m = engine_model(with);
    ck_assert(engine_model(without)->L == 5 && m->L == 6 && m->n_ahead == 1);
    ck_assert(m->eagle.H == 6 && m->layer[5].heads.G == 3 && m->layer[5].heads.D == 8);
    ck_assert(m->eagle.has_embedding && !m->eagle.maps_ids && m->eagle.norms_stream);
    ck_assert_int_eq(m->n_parameters, engine_model(without)->n_parameters);
    ck_assert_int_gt(engine_memory(with)->kv_bytes_per_token,
                     engine_memory(without)->kv_bytes_per_token);
    ck_assert_int_gt(engine_memory(with)->weights, engine_memory(without)->weights);
    ck_assert(with->model.ahead.n > 0 && without->model.ahead.n == 0);
    engine_close(with);
    engine_close(without);
}
END_TEST

/* A GPU plans the head's attention apart from the model's if its heads are others. */
START_TEST(the_head_has_windows_of_its_own) {
    struct attention_window windows[MAX_WINDOWS];
    struct engine_config config = config_of(LLAMA, LLAMA "_head");
    struct engine *engine = open_model(&config);
    struct model_config m = *engine_model(engine);
    ck_assert_int_eq(model_windows(&m, windows), 1);
    m.eagle.H = 6;
    ck_assert_int_eq(model_windows(&m, windows), 2);
    ck_assert(windows[0].H == 4 && windows[1].H == 6 && windows[1].G == windows[0].G);
    engine_close(engine);
}
END_TEST

/* Ids of a list of their own are inputs of layers (vLLM), those in eagle_config are outputs
 * (SGLang). */
START_TEST(the_head_reads_three_vectors_of_the_stream) {
    struct engine_config config = config_of(LLAMA, LLAMA "_head");
    struct engine *engine = open_model(&config);
    const int32_t *tap = engine_model(engine)->eagle.tap;
    ck_assert(tap[0] == 2 && tap[1] == 3 && tap[2] == 3); /* 2, 6 / 2, 6 - 3 */
    ck_assert(engine_model(engine)->eagle.maps_ids && engine_model(engine)->eagle.V == 150);
    engine_close(engine);
    config = config_of(QWEN3, QWEN3 "_head");
    engine = open_model(&config);
    tap = engine_model(engine)->eagle.tap;
    ck_assert(tap[0] == 4 && tap[1] == 1 && tap[2] == 2);
    engine_close(engine);
    config = config_of(LLAMA, folder_copy(LLAMA "_head"));
    folder_copy_replace("config.json", "\"hidden_act\"",
                        "\"eagle_aux_hidden_state_layer_ids\": [6, 0, 1], \"hidden_act\"");
    engine = open_model(&config);
    tap = engine_model(engine)->eagle.tap;
    ck_assert(tap[0] == 6 && tap[1] == 0 && tap[2] == 1);
    engine_close(engine);
    folder_copy_remove();
}
END_TEST

/* Freed and loaded again, by one rank or two, it has the same programs. A changed head is refused.
 */
START_TEST(the_head_is_loaded_again) {
    struct engine_config config = config_of(LLAMA, folder_copy(LLAMA "_head"));
    config.ranks = _i;
    struct engine *engine = open_model(&config);
    const struct engine_load_watch watch = {0};
    struct err err = {0};
    const int n = engine->model.ahead.n;
    engine_unload(engine);
    ck_assert(engine->model.ahead.n == 0 && !engine->model.eagle.head);
    ck_assert_msg(engine_load(engine, &watch, &err) == STATUS_OK, "%s", err.message);
    ck_assert_int_eq(engine->model.ahead.n, n);
    engine_unload(engine);
    folder_copy_replace("config.json", "\"silu\"", "\"silu\" ");
    ck_assert_int_eq(engine_load(engine, &watch, &err), STATUS_UNAVAILABLE);
    ck_assert_msg(strstr(err.message, "was changed after the start") != NULL, "%s", err.message);
    engine_close(engine);
    folder_copy_remove();
}
END_TEST

/* ---- refused folders ------------------------------------------------------------------------ */

static const struct {
    const char *file, *from, *to, *words;
} broken[] = {
    {"config.json", "\"hidden_size\": 32", "\"hidden_size\": 48",
     "key hidden_size: the head is for a model with 48, and this model has 32; name the head"},
    {"config.json", "\"hidden_size\": 32", "\"hidden_size\": 32, \"target_hidden_size\": 64",
     "key target_hidden_size: the head is for a model with 64"},
    {"config.json", "\"vocab_size\": 299", "\"vocab_size\": 300", "key vocab_size: the head is"},
    {"config.json", "\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2",
     "an EAGLE-3 head of 1 layer is supported, found 2"},
    {"config.json", "LlamaForCausalLMEagle3", "Eagle3Speculator",
     "\"Eagle3Speculator\" is not an EAGLE-3 head that is supported; LlamaForCausalLMEagle3 and"},
    {"config.json", "\"silu\"", "\"gelu\"", "key hidden_act: only \"silu\" is supported"},
    {"config.json", "\"silu\"", "\"silu\", \"norm_before_fc\": true",
     "key norm_before_fc: only false is supported"},
    {"config.json", "\"silu\"", "\"silu\", \"eagle_config\": {\"use_aux_hidden_state\": false}",
     "key use_aux_hidden_state: only true is supported"},
    {"config.json", "\"silu\"", "\"silu\", \"eagle_aux_hidden_state_layer_ids\": [2, 3]",
     "3 ids were expected, found 2"},
    {"config.json", "\"silu\"", "\"silu\", \"eagle_aux_hidden_state_layer_ids\": [2, 3, 7]",
     "key eagle_aux_hidden_state_layer_ids"},
    {"config.json", "\"silu\"",
     "\"silu\", \"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": [2, 3, 6]}",
     "key eagle_aux_hidden_state_layer_ids"},
    {"config.json", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3",
     "4 query heads of 8 over 3 key-value heads are not supported"},
    {"config.json", "\"draft_vocab_size\": 150", "\"draft_vocab_size\": 300",
     "key draft_vocab_size"},
    {"config.json", "\"draft_vocab_size\": 150", "\"draft_vocab_size\": 149",
     "tensor lm_head.weight"},
    {"config.json", "\"intermediate_size\": 40", "\"intermediate_size\": 41",
     "tensor midlayer.mlp.gate_proj.weight"},
    {"config.json", "\"silu\"",
     "\"silu\", \"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": \"e4m3\"}",
     "key quantization_config"},
    {"model.safetensors", "\"fc.weight\"", "\"fx.weight\"", "tensor fx.weight is not supported"},
    {"model.safetensors", "\"d2t\"", "\"d2x\"", "tensor d2x is not supported"},
    {"model.safetensors", "midlayer.self_attn.q_proj.weight", "midlayer.self_attn.r_proj.weight",
     "tensor midlayer.self_attn.r_proj.weight is not supported"},
    {"config.json", "\"silu\"", "\"silu\", \"eagle_aux_hidden_state_layer_ids\": []",
     "3 ids were expected, found 0"},
    {"config.json", "\"silu\"", "\"silu\", \"eagle_config\": [4]",
     "key eagle_config: expected an object, found"},
    {"model.safetensors", "I64", "I32", "d2t"},
    {"model.safetensors", "\"norm.weight\"", "\"model.t2d\"  ", "norm.weight"},
    {"model.safetensors", "\"lm_head.weight\"", "\"model.t2d\"     ", "lm_head.weight"},
    {"model.safetensors", "\"dtype\":\"BF16\",\"shape\":[32],\"data_offsets\":[16944,17008",
     "\"dtype\":\"I64\", \"shape\":[8], \"data_offsets\":[16944,17008",
     "tensor midlayer.hidden_norm.weight: the type F32, F16 or BF16 was expected"},
};
enum { N_BROKEN = sizeof broken / sizeof *broken };

START_TEST(broken_heads_are_named) {
    struct engine_config config = config_of(LLAMA, folder_copy(LLAMA "_head"));
    folder_copy_replace(broken[_i].file, broken[_i].from, broken[_i].to);
    check_refused(&config, STATUS_BAD_FILE, broken[_i].words);
    folder_copy_remove();
}
END_TEST

/* The file keeps its places: the three matrices of the MLP have as many numbers each. */
START_TEST(matrices_of_whole_numbers_are_refused) {
    struct engine_config config = config_of(LLAMA, folder_copy(LLAMA "_head"));
    static const char *const changes[][2] = {
        {"BF16\",\"shape\":[32,40],\"data_offsets\":[17072,19632]",
         "I8\",  \"shape\":[32,40],\"data_offsets\":[17072,18352]"},
        {"BF16\",\"shape\":[40,32],\"data_offsets\":[19632,22192]",
         "I8\",  \"shape\":[40,32],\"data_offsets\":[18352,19632]"},
        {"BF16\",\"shape\":[40,32],\"data_offsets\":[22192,24752]",
         "F32\", \"shape\":[40,32],\"data_offsets\":[19632,24752]"}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        folder_copy_replace("model.safetensors", changes[i][0], changes[i][1]);
    check_refused(&config, STATUS_BAD_FILE,
                  "tensor midlayer.mlp.down_proj.weight: the type F32, F16 or BF16 was expected");
    folder_copy_remove();
}
END_TEST

/* Any key that names a method of quantising is refused, even beside float weights. */
START_TEST(quantised_heads_are_refused) {
    struct engine_config config = config_of(QWEN3, folder_copy(QWEN3 "_head"));
    folder_copy_replace("config.json", "\"silu\"",
                        "\"silu\", \"compression_config\": {\"quant_method\": \"fp8\", "
                        "\"fmt\": \"e4m3\"}");
    check_refused(&config, STATUS_BAD_FILE,
                  "only EAGLE-3 heads with float weights are supported; name a head that is not");
    folder_copy_remove();
}
END_TEST

/* Offset i of d2t in the file of a copied head. */
static size_t offset_at(const struct buf *bytes, int i) {
    unsigned long begin, end;
    uint64_t header;
    const char *entry = memmem(bytes->data, bytes->length, "\"d2t\"", 5);
    ck_assert_ptr_nonnull(entry);
    ck_assert(sscanf(strstr(entry, "\"data_offsets\":["), "\"data_offsets\":[%lu,%lu", &begin,
                     &end) == 2);
    ck_assert_uint_eq(end - begin, 150 * sizeof(int64_t));
    memcpy(&header, bytes->data, sizeof header);
    return sizeof header + header + begin + (size_t)i * sizeof(int64_t);
}

START_TEST(ids_beyond_the_vocabulary_are_refused) {
    struct engine_config config = config_of(LLAMA, folder_copy(LLAMA "_head"));
    struct buf bytes = {0};
    folder_copy_read(&bytes, "model.safetensors");
    const int64_t wrong = 298;
    memcpy(bytes.data + offset_at(&bytes, 1), &wrong, sizeof wrong);
    folder_copy_write("model.safetensors", bytes.data, bytes.length);
    check_refused(&config, STATUS_BAD_FILE,
                  "tensor d2t: token 1 of the head is token 1 + 298 of the model, which has 299");
    buf_free(&bytes);
    folder_copy_remove();
}
END_TEST

/* Writes to d2t, in place, when the model's last layer is loaded. */
static void write_ids(void *arg, const char *what, double part) {
    static const int64_t wrong = -1;
    struct buf bytes = {0};
    (void)arg;
    if (strcmp(what, "weights") != 0 || part < 1) return;
    folder_copy_read(&bytes, "model.safetensors");
    FILE *file = fopen(folder_copy_path("model.safetensors"), "r+");
    ck_assert(file && fseek(file, (long)offset_at(&bytes, 0), SEEK_SET) == 0);
    ck_assert_uint_eq(fwrite(&wrong, sizeof wrong, 1, file), 1);
    fclose(file);
    buf_free(&bytes);
}

START_TEST(ids_that_change_during_the_load_are_refused) {
    struct engine_config config = config_of(LLAMA, folder_copy(LLAMA "_head"));
    config.progress = write_ids;
    check_refused(&config, STATUS_BAD_FILE, "tensor d2t of the EAGLE-3 head was written to while");
    folder_copy_remove();
}
END_TEST

/* As the model, and so as a draft model, too. */
START_TEST(a_head_is_no_model) {
    struct engine_config config = config_of(QWEN3 "_head", NULL);
    config.guesses_ahead = false;
    check_refused(&config, STATUS_BAD_FILE,
                  "the folder is an EAGLE-3 head, and no model; name it in {speculative-config} "
                  "with its method, \"method\": \"eagle3\"");
}
END_TEST

START_TEST(other_files_are_refused) {
    struct engine_config config = config_of(LLAMA, LLAMA "_head/config.json");
    check_refused(&config, STATUS_USAGE, "an EAGLE-3 head is a folder with config.json");
    config.eagle = folder_copy(LLAMA "_head");
    char from[FOLDER_PATH_BYTES];
    snprintf(from, sizeof from, "%s", folder_copy_path("model.safetensors"));
    ck_assert_int_eq(rename(from, folder_copy_path("pytorch_model.bin")), 0);
    check_refused(&config, STATUS_BAD_FILE, "pytorch_model.bin is not read: convert it");
    folder_copy_remove();
}
END_TEST

/* ---- refused models and settings ------------------------------------------------------------ */

START_TEST(models_that_heads_cannot_follow_are_refused) {
    struct model_config *m = mem_calloc(1, sizeof *m);
    struct err err = {0};
    *m = (struct model_config){.L = 2, .n_ahead = 1, .K = 8, .K_embedding = 8, .architecture = "x"};
    ck_assert_int_eq(eagle_check_model(m, &err), STATUS_OK);
    m->layer[0].window = 16;
    ck_assert_int_eq(eagle_check_model(m, &err), STATUS_BAD_FILE);
    ck_assert_msg(strstr(err.message, "a model with layers with windows"), "%s", err.message);
    m->layer[0].window = 0, m->C = 8;
    ck_assert_int_eq(eagle_check_model(m, &err), STATUS_BAD_FILE);
    ck_assert_msg(strstr(err.message, "a model with recurrent layers"), "%s", err.message);
    m->C = 0, m->latent.is_used = true;
    ck_assert_int_eq(eagle_check_model(m, &err), STATUS_BAD_FILE);
    ck_assert_msg(strstr(err.message, "a model with latent attention"), "%s", err.message);
    m->latent.is_used = false, m->has_slopes = true;
    ck_assert_int_eq(eagle_check_model(m, &err), STATUS_BAD_FILE);
    ck_assert_msg(strstr(err.message, "slopes of positions (ALiBi)"), "%s", err.message);
    m->has_slopes = false, m->n_unread_layers = 1;
    ck_assert_int_eq(eagle_check_model(m, &err), STATUS_BAD_FILE);
    ck_assert_msg(strstr(err.message, "a layer of its own that guesses ahead"), "%s", err.message);
    mem_free(m);
}
END_TEST

START_TEST(settings_without_heads_are_refused) {
    struct engine_config config = config_of(LLAMA, LLAMA "_head");
    struct engine_config wrong = config;
    wrong.weight_cache = "/tmp";
    check_refused(&wrong, STATUS_USAGE, "does not work with {weight-cache}; leave it out");
    wrong = config, wrong.in_flight = 2;
    check_refused(&wrong, STATUS_USAGE,
                  "{steps-in-flight} 2 does not work with the method \"eagle3");
    wrong = config, wrong.max_adapters = 1, wrong.max_adapter_rank = 4;
    check_refused(&wrong, STATUS_USAGE, "does not work with {lora} and {enable-runtime-lora}");
    struct engine engine = {.model.config = {.n_ahead = 1, .eagle.is_used = true}};
    struct opening o = {.engine = &engine, .config = config};
    struct err err = {0};
    o.config.device = DEVICE_CUDA, o.config.persistent_step = true;
    ck_assert_int_eq(settings_check(&o, &err), STATUS_USAGE);
    ck_assert_msg(strstr(err.message, "the method \"eagle3\" of {speculative-config}"), "%s",
                  err.message);
    o.config.persistent_step = false, o.config.ranks = 2;
    ck_assert_int_eq(settings_check(&o, &err), STATUS_USAGE);
    ck_assert_msg(strstr(err.message, "the layer that guesses ahead of the model"), "%s",
                  err.message);
}
END_TEST

static int width_of(const struct model *model, const char *name) {
    struct model_activations a = {.max_rows = 1};
    struct model_buffer buffers[N_MODEL_BUFFERS];
    model_buffers(&a, model, buffers);
    for (int i = 0; i < N_MODEL_BUFFERS; i++)
        if (strcmp(buffers[i].name, name) == 0) return buffers[i].width;
    ck_abort_msg("no buffer is called %s", name);
}

/* Rank 1 receives joined vectors of 2 * 32 numbers, and adds its part of as many to them. */
START_TEST(a_rank_has_room_for_joined_vectors) {
    struct engine_config config = config_of(LLAMA, LLAMA "_head");
    struct engine *engine = open_model(&config);
    struct model *rank = mem_calloc(1, sizeof *rank);
    rank->part = shard_config(engine_model(engine), 2);
    rank->shard = (struct shard){1, 2};
    ck_assert_int_eq(width_of(rank, "ahead_joined"), 64);
    ck_assert_int_eq(width_of(rank, "part"), 64);
    ck_assert_int_eq(width_of(rank, "ahead_hidden") + width_of(rank, "guess_logits"), 0);
    rank->shard.rank = 0;
    ck_assert_int_eq(width_of(rank, "guess_logits"), 150);
    ck_assert_int_eq(width_of(rank, "part"), 0);
    mem_free(rank);
    engine_close(engine);
}
END_TEST

/* Ranks divide the head's own heads, too. */
START_TEST(ranks_share_the_head) {
    struct engine_config config = config_of(LLAMA, LLAMA "_head");
    config.ranks = 2;
    struct engine *two = open_model(&config);
    const struct model *model = &two->model;
    ck_assert(model->part.eagle.H == 2 && model->config.eagle.H == 4);
    ck_assert(model->part.layer[6].heads.G == 1 && model->part.layer[6].F == 20);
    ck_assert(model->eagle.to && model->eagle.tap[0] && model->eagle.head);
    engine_close(two);
    config = config_of(QWEN3, QWEN3 "_head");
    config.ranks = 2;
    check_refused(&config, STATUS_USAGE,
                  "{tensor-parallel-size} 2 does not divide this model: 4 query heads, 2 "
                  "key-value heads, 3 key-value heads of the EAGLE-3 head");
}
END_TEST

/* Blocks of the model's types do not count for the head. */
START_TEST(ranks_divide_the_mlp_of_the_head) {
    struct engine_config settings = config_of(LLAMA, LLAMA "_head");
    struct engine *engine = open_model(&settings);
    struct model_config m = *engine_model(engine);
    struct weight down = {.name = "blk.0.ffn_down.weight", .type = DTYPE_Q8_0};
    const struct weights weights = {.n = 1, .tensor = &down};
    struct err err;
    m.F = 64, m.layer[6].F = 6;
    ck_assert_int_eq(shard_check(&m, &weights, 2, &err), STATUS_OK);
    m.layer[6].F = 7;
    ck_assert_int_eq(shard_check(&m, &weights, 2, &err), STATUS_USAGE);
    ck_assert_msg(strstr(err.message, "the MLP of the EAGLE-3 head of 7 in blocks of 1"), "%s",
                  err.message);
    engine_close(engine);
}
END_TEST

/* Rank 0 has the products of the stream, and both multiply their parts of the joined vectors. */
START_TEST(the_program_of_a_rank_is_printed) {
    struct engine_config config = config_of(LLAMA, LLAMA "_head");
    char *text = NULL;
    size_t length;
    struct err err = {0};
    FILE *out = open_memstream(&text, &length);
    const struct inspected shown = {.program = true};
    config.ranks = 2;
    ck_assert_msg(engine_inspect(&config, shown, out, &err) == STATUS_OK, "%s", err.message);
    fclose(out);
    char *other = strstr(text, "Program of rank 1 of 2");
    ck_assert_ptr_nonnull(other);
    ck_assert_ptr_null(strstr(other, "fc.weight"));
    ck_assert_ptr_null(strstr(other, "recall"));
    ck_assert_ptr_nonnull(strstr(other, "midlayer.self_attn.q_proj.weight [16 x 64]"));
    ck_assert_ptr_nonnull(strstr(other, "midlayer.mlp.down_proj.weight [32 x 20]"));
    *other = 0;
    ck_assert_ptr_nonnull(strstr(text, "fc.weight [32 x 32]"));
    ck_assert_ptr_nonnull(strstr(text, "midlayer.self_attn.o_proj.weight [32 x 16]"));
    free(text);
}
END_TEST

/* The outline of a program, without weights, has the ops of the head. */
START_TEST(the_program_is_printed) {
    struct engine_config config = config_of(LLAMA, LLAMA "_head");
    char *text = NULL;
    size_t length;
    struct err err = {0};
    FILE *out = open_memstream(&text, &length);
    const struct inspected shown = {.program = true};
    ck_assert_msg(engine_inspect(&config, shown, out, &err) == STATUS_OK, "%s", err.message);
    fclose(out);
    ck_assert_ptr_nonnull(strstr(text, "an EAGLE-3 head of 150 tokens"));
    ck_assert_ptr_nonnull(strstr(text, "fc.weight [32 x 32] -> ahead_hidden [32]"));
    ck_assert_ptr_nonnull(strstr(text, "recall"));
    ck_assert_ptr_nonnull(strstr(text, "guess_logits [150] -> logits [299]"));
    ck_assert_ptr_nonnull(strstr(text, "midlayer.self_attn.q_proj.weight [32 x 64]"));
    free(text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine_eagle");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 60);
    tcase_add_test(core, the_head_is_planned_and_loaded);
    tcase_add_test(core, the_head_has_windows_of_its_own);
    tcase_add_test(core, the_head_reads_three_vectors_of_the_stream);
    tcase_add_loop_test(core, the_head_is_loaded_again, 1, 3);
    tcase_add_loop_test(core, broken_heads_are_named, 0, N_BROKEN);
    tcase_add_test(core, matrices_of_whole_numbers_are_refused);
    tcase_add_test(core, quantised_heads_are_refused);
    tcase_add_test(core, ids_beyond_the_vocabulary_are_refused);
    tcase_add_test(core, ids_that_change_during_the_load_are_refused);
    tcase_add_test(core, a_head_is_no_model);
    tcase_add_test(core, other_files_are_refused);
    tcase_add_test(core, models_that_heads_cannot_follow_are_refused);
    tcase_add_test(core, settings_without_heads_are_refused);
    tcase_add_test(core, a_rank_has_room_for_joined_vectors);
    tcase_add_test(core, ranks_share_the_head);
    tcase_add_test(core, ranks_divide_the_mlp_of_the_head);
    tcase_add_test(core, the_program_is_printed);
    tcase_add_test(core, the_program_of_a_rank_is_printed);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
