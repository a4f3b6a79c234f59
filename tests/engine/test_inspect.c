/* The output of inspection, for a tiny model and for files that are refused partway. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/internal.h"
#include "support/gguf_sample.h"
#include "support/suite_main.h"
#include "support/tiny_model.h"

/* Inspects the file at `path`, with its tensors. The caller frees the text. */
static enum status inspect(const char *path, int64_t kv_memory, char **text, struct err *err) {
    struct engine_config config = {.model = path,
                                   .dummy = true, /* for a config.json; a .gguf file has weights */
                                   .max_num_seqs = 4,
                                   .max_num_batched_tokens = 64,
                                   .block_size = 16,
                                   .kv_memory = kv_memory};
    size_t size;
    FILE *out = open_memstream(text, &size);
    ck_assert_ptr_nonnull(out);
    enum status status = engine_inspect(&config, (struct inspected){true, true}, out, err);
    fclose(out);
    return status;
}

static void expect_line(const char *text, const char *line) {
    ck_assert_msg(strstr(text, line), "\"%s\" is not in:\n%s", line, text);
}

static char *write_temporary(struct gguf_writer *writer) {
    struct buf file = {0};
    char *path = mem_strdup("/tmp/test-inspect-XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    gguf_writer_finish(writer, &file);
    write_file(path, file.data, file.length);
    buf_free(&file);
    gguf_writer_free(writer);
    return path;
}

static void remove_file(char *path) {
    unlink(path);
    free(path);
}

START_TEST(a_model_is_told_in_full) {
    struct tiny_model tiny;
    char *text;
    struct err err = {0};
    tiny_model_defaults(&tiny);
    tiny.dtype = DTYPE_Q4_1;
    char *path = tiny_model_temporary(&tiny);
    ck_assert_msg(inspect(path, 0, &text, &err) == STATUS_OK, "%s", err.message);
    expect_line(text, "GGUF version 3, ");
    expect_line(text, "\nKeys: 24\n  general.architecture = \"llama\"  (string)\n");
    expect_line(text, "  llama.attention.layer_norm_rms_epsilon = 9.99999975e-06  (float32)\n");
    expect_line(text, "  tokenizer.ggml.add_bos_token = false  (bool)\n");
    expect_line(text,
                "  tokenizer.ggml.tokens = [\"<|begin|>\", \"<|endoftext|>\", \"<|im_start|>\", "
                "\"<|im_end|>\", ...]  (276 x string)\n");
    expect_line(text, "\nTensors by type: 20 in all\n");
    expect_line(text, "\nTensors: 20\n");
    ck_assert(strstr(text, "\nModel: ") < strstr(text, "\nMemory when serving\n"));
    ck_assert(strstr(text, "\nMemory when serving\n") < strstr(text, "\nKeys: "));
    ck_assert(strstr(text, "\nKeys: ") < strstr(text, "\nTensors: "));
    expect_line(text, "  rotary positions, base 10000 over 16 dimensions; norm epsilon 1e-05\n");
    expect_line(text,
                "blk.1.ffn_down.weight            q4_1  [96 x 64]                3840 bytes\n");
    expect_line(text, "f32        5 tensors            320 elements           1280 bytes\n");
    expect_line(text, "2 layers, 64 wide, MLP of 96, 4 heads on 2 key-value heads of 16\n");
    expect_line(text, "Tokenizer: byte-level BPE, pattern \"smollm\"\n  276 tokens, 16 merges\n");
    expect_line(text, "  272 normal, 4 control, 0 user-defined");
    expect_line(
        text, "  ends a generation: 1 \"<|endoftext|>\"\n  ends a generation: 3 \"<|im_end|>\"\n");
    expect_line(text, "  KV cache: 64 blocks of 16 slots, 288 bytes a token\n"
                      "  holds 1024 tokens: 4 sequences of 256 tokens\n");
    free(text);
    remove_file(path);
}
END_TEST

START_TEST(a_model_without_rotary_positions_shows_none) {
    char *text;
    struct err err = {0};
    ck_assert_msg(inspect("tests/vectors/families/gpt2.gguf", 0, &text, &err) == STATUS_OK, "%s",
                  err.message);
    expect_line(text, "  learned positions; norm epsilon 1e-05\n");
    ck_assert_ptr_null(strstr(text, "rotary"));
    free(text);
}
END_TEST

START_TEST(stretched_positions_are_told) {
    static const struct {
        const char *file, *line;
    } files[] = {{"phi3_long.gguf", "over 8 dimensions, stretched (longrope); norm epsilon"},
                 {"mistral3.gguf", "over 16 dimensions, stretched (yarn); norm epsilon"},
                 {"../folders/gemma4", "over 32 dimensions (8 rotate); norm epsilon"},
                 {"gemma4.gguf", "over 32 dimensions (8 rotate); norm epsilon"},
                 {"qwen2.gguf", "over 16 dimensions; norm epsilon"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[96], *text;
        struct err err = {0};
        snprintf(path, sizeof path, "tests/vectors/families/%s", files[i].file);
        ck_assert_msg(inspect(path, 0, &text, &err) == STATUS_OK, "%s", err.message);
        expect_line(text, files[i].line);
        free(text);
    }
}
END_TEST

/* Files of Llama 3.1 do not name a type of stretch. Their factors are in the file. */
START_TEST(factors_of_the_file_are_told) {
    static const float slower[] = {1, 1, 1, 1, 2.5f, 4, 8, 8}, none[] = {1, 1, 1, 1, 1, 1, 1, 1};
    static const float part[] = {1, 1, 1, 1, 1, 1, 1e30f, 1e30f};
    static const struct {
        const float *factors;
        const char *line;
    } files[] = {
        {slower, "over 16 dimensions, stretched (1 to 8 times: rope_freqs.weight); norm epsilon"},
        {part, "over 16 dimensions (12 rotate); norm epsilon"},
        {none, "over 16 dimensions; norm epsilon"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct tiny_model tiny;
        char *text;
        struct err err = {0};
        tiny_model_defaults(&tiny);
        tiny.rope_factors = files[i].factors;
        char *path = tiny_model_temporary(&tiny);
        ck_assert_msg(inspect(path, 0, &text, &err) == STATUS_OK, "%s", err.message);
        expect_line(text, files[i].line);
        free(text);
        remove_file(path);
    }
}
END_TEST

/* A config.json does not contain weights: the plan counts the bytes of the random ones. */
START_TEST(a_config_json_is_told_with_its_weights) {
    static const char json[] =
        "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 64, "
        "\"intermediate_size\": 96, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
        "\"num_key_value_heads\": 2, \"vocab_size\": 300, \"rms_norm_eps\": 1e-5, "
        "\"max_position_embeddings\": 128}";
    char *text, path[] = "/tmp/test-inspect-XXXXXX.json";
    struct err err = {0};
    int fd = mkstemps(path, 5);
    ck_assert_int_ge(fd, 0);
    close(fd);
    write_file(path, json, sizeof json - 1);
    ck_assert_msg(inspect(path, 0, &text, &err) == STATUS_OK, "%s", err.message);
    unlink(path);
    expect_line(text, ".json: config.json, 200960 bytes of random weights\n\nModel: ");
    expect_line(text, "\nTensors: 21\n");
    expect_line(text, "  weights                  200960 bytes");
    free(text);
}
END_TEST

/* Layers for drafts that the file contains and the program does not use. */
START_TEST(layers_that_are_not_used_are_told) {
    char *text;
    struct err err = {0};
    ck_assert_int_eq(inspect("tests/vectors/folders/glm4moe", 0, &text, &err), STATUS_OK);
    ck_assert_ptr_nonnull(strstr(text, "\n  3 layers, "));
    expect_line(text, "\n  layer 3 guesses tokens beyond the next one (nextn), and is not used\n");
    free(text);
}
END_TEST

START_TEST(a_refused_file_is_described_as_far_as_it_was_read) {
    struct gguf_writer writer = {0};
    struct err err = {0};
    char *text;
    gguf_sample(&writer);
    char *path = write_temporary(&writer);
    ck_assert_int_eq(inspect(path, 0, &text, &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.param, "general.architecture");
    ck_assert_msg(strncmp(err.message, path, strlen(path)) == 0, "%s", err.message);
    expect_line(text, "  i64 = -5000000000  (int64)\n");
    expect_line(text, "  yes = true  (bool)\n");
    expect_line(text, "  words = [\"one\", \"\", \"three\"]  (3 x string)\n");
    expect_line(text, "  halves = [1, 2, 3]  (3 x uint16)\n");
    expect_line(text, "  nothing = []  (0 x uint16)\n");
    free(text);
    remove_file(path);
}
END_TEST

START_TEST(strings_cannot_steer_a_terminal) {
    struct gguf_writer writer = {0};
    char *text;
    char longer[100];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    gguf_writer_string(&writer, "odd", "\033[2J \"q\" \\ \n \x9b \xc2\x9b \u20ac");
    gguf_writer_string(&writer, "long", longer);
    char *path = write_temporary(&writer);
    ck_assert_int_eq(inspect(path, 0, &text, NULL), STATUS_BAD_FILE);
    expect_line(text, "odd = \"\\x1b[2J \\\"q\\\" \\\\ \\n \\x9b \\xc2\\x9b \u20ac\"  (string)\n");
    expect_line(text, "xxx\"... (99 bytes)  (string)\n");
    free(text);
    remove_file(path);
}
END_TEST

START_TEST(settings_that_cannot_work_are_told) {
    struct tiny_model tiny;
    char *text;
    struct err err = {0};
    tiny_model_defaults(&tiny);
    char *path = tiny_model_temporary(&tiny);
    ck_assert_int_eq(inspect(path, 1000, &text, &err), STATUS_USAGE);
    ck_assert_str_eq(err.param, "kv-cache-memory");
    expect_line(text, "Tokenizer:");
    free(text);
    ck_assert_int_eq(inspect("/nowhere.gguf", 0, &text, &err), STATUS_BAD_FILE);
    ck_assert_str_eq(text, "");
    free(text);
    remove_file(path);
}
END_TEST

/* Two layers of five ops each, the embedding, two gathers, and both ends. */
START_TEST(the_program_has_a_line_for_each_op) {
    struct tiny_model tiny;
    char *text;
    struct err err = {0};
    tiny_model_defaults(&tiny);
    char *path = tiny_model_temporary(&tiny);
    ck_assert_msg(inspect(path, 0, &text, &err) == STATUS_OK, "%s", err.message);
    expect_line(text, "\nProgram: 15 ops of a step with M rows, R of which are read\n");
    expect_line(text,
                "      -  embed                 M         token_embd.weight [276 x 64] -> x [64]\n"
                "      0  q k v                 M         norm of x [64], attn_q.weight [64 x 64], "
                "attn_k.weight [32 x 64], attn_v.weight [32 x 64] -> q [64], k [32], v [32]\n"
                "      0  rope and kv write     M         -> q [64], k [32], v [32], cache 0\n"
                "      0  attention             M         q [64], cache 0 -> attn_out [64]\n");
    expect_line(text,
                "      1  attention             M if R    q [64], cache 1 -> attn_out [64]\n"
                "      1  gather                R         x [64] -> logit_x [64]\n"
                "      1  gather                R         attn_out [64] -> q [64]\n"
                "      1  attention output      R         q [64], attn_output.weight [64 x 64] -> "
                "logit_x [64]\n");
    expect_line(text, "      -  head                  logits    norm of logit_x [64], ");
    free(text);
    remove_file(path);
}
END_TEST

/* Models of each kind of layer, with each kind of branch. */
static const char *const kinds[] = {
    "families/qwen3.gguf",       "families/gpt2.gguf",      "folders/opt_350m",
    "folders/gemma4_moe",        "folders/gemma4",          "families/qwen2moe.gguf",
    "families/command_r.gguf",   "families/exaone4.gguf",   "families/lfm2_moe.gguf",
    "families/qwen3_5_moe.gguf", "families/falcon_h1.gguf", "families/nemotron_h.gguf",
    "families/deepseek_v2.gguf", "folders/mistral4",        "folders/gpt_oss",
    "families/granitemoe.gguf",  "families/apertus.gguf"};

/* Models that two ranks share. */
static const char *const shared[] = {"families/qwen2.gguf", "folders/opt_350m",
                                     "families/qwen3_5.gguf", "families/lfm2.gguf",
                                     "families/falcon_h1.gguf"};

/* Prints the program of the model in memory. The caller frees the text. */
static char *loaded_program(const struct engine_config *config) {
    char *text;
    size_t size;
    struct err err = {0};
    struct engine *engine;
    FILE *out = open_memstream(&text, &size);
    ck_assert_msg(engine_open(&engine, config, &err) == STATUS_OK, "%s", err.message);
    model_print_program(&engine->model, out);
    fclose(out);
    engine_close(engine);
    return text;
}

/* With ranks, rank 0's. Experts of these files are too narrow for two ranks. */
START_TEST(the_program_of_a_file_is_that_of_the_loaded_model) {
    const int n_kinds = sizeof kinds / sizeof *kinds;
    char path[64], *text;
    size_t size;
    struct err err = {0};
    snprintf(path, sizeof path, "tests/vectors/%s",
             _i < n_kinds ? kinds[_i] : shared[_i - n_kinds]);
    const struct engine_config config = {.model = path,
                                         .ranks = _i < n_kinds ? 1 : 2,
                                         .stand_in_vocabulary = true,
                                         .threads = 1,
                                         .max_num_seqs = 4,
                                         .max_num_batched_tokens = 64,
                                         .block_size = 16};
    FILE *out = open_memstream(&text, &size);
    enum status status = engine_inspect(&config, (struct inspected){.program = true}, out, &err);
    fclose(out);
    ck_assert_msg(status == STATUS_OK, "%s", err.message);
    char *program = loaded_program(&config);
    expect_line(text, program);
    free(program);
    free(text);
}
END_TEST

/* Two key heads and six value heads of 16: a rank has the half. Rank 1 has no embedding and no
 * head. */
START_TEST(each_rank_has_its_program) {
    char *text;
    size_t size;
    struct err err = {0};
    struct engine_config config = {.model = "tests/vectors/families/qwen3_5.gguf",
                                   .ranks = 2,
                                   .stand_in_vocabulary = true,
                                   .max_num_seqs = 4,
                                   .max_num_batched_tokens = 64,
                                   .block_size = 16};
    FILE *out = open_memstream(&text, &size);
    ck_assert_msg(!engine_inspect(&config, (struct inspected){.program = true}, out, &err), "%s",
                  err.message);
    fclose(out);
    expect_line(text, "\nProgram of rank 0 of 2: ");
    expect_line(text, "attn_qkv.weight [80 x 32], attn_gate.weight [48 x 32], ");
    expect_line(text, "ssm_out.weight [32 x 48] -> ");
    const char *second = strstr(text, "\nProgram of rank 1 of 2: ");
    ck_assert_ptr_nonnull(second);
    expect_line(second, "ssm_out.weight [32 x 48] -> part [32]\n");
    ck_assert(!strstr(second, "token_embd.weight") && !strstr(second, "  head  "));
    free(text);
    config.ranks = 3;
    out = open_memstream(&text, &size);
    ck_assert_int_eq(engine_inspect(&config, (struct inspected){.program = true}, out, &err),
                     STATUS_USAGE);
    fclose(out);
    ck_assert_msg(strstr(err.message, "3 does not divide this model"), "%s", err.message);
    ck_assert_ptr_null(strstr(text, "\nProgram"));
    free(text);
}
END_TEST

/* ---- the suite ------------------------------------------------------------------------------ */

int main(void) {
    const TTest *const tests[] = {
        a_model_is_told_in_full,
        the_program_has_a_line_for_each_op,
        a_model_without_rotary_positions_shows_none,
        stretched_positions_are_told,
        factors_of_the_file_are_told,
        a_config_json_is_told_with_its_weights,
        layers_that_are_not_used_are_told,
        a_refused_file_is_described_as_far_as_it_was_read,
        strings_cannot_steer_a_terminal,
        settings_that_cannot_work_are_told,
    };
    Suite *suite = suite_create("engine/inspect");
    TCase *cases = tcase_create("all");
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(cases, tests[i]);
    tcase_add_loop_test(cases, the_program_of_a_file_is_that_of_the_loaded_model, 0,
                        (int)(sizeof kinds / sizeof *kinds + sizeof shared / sizeof *shared));
    tcase_add_test(cases, each_rank_has_its_program);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
