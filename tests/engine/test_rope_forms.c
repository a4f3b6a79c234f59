/* A rotation has several spellings. All spellings of a config.json have the frequencies of
 * tests/vectors/rope.txt, missing keys have their usual values, and a scaling in a GGUF file has
 * the frequencies of the equivalent config.json. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/models/model.h"
#include "support/hf_config_text.h"
#include "support/llama_keys.h"
#include "support/suite_main.h"

enum { MAX_PAIRS = 64, N_CASES = 17 };

/* ---- reading -------------------------------------------------------------------------------- */

/* A model's rotations, as frequencies. */
struct rotation {
    int n, window_n; /* pairs; window_n == 0: windows rotate like the others */
    float full[MAX_PAIRS], window[MAX_PAIRS];
    float scale, window_scale; /* of cosines and sines */
};

static float scale_of(const struct rope_config *rope) {
    return rope->stretch.attention_factor == 0 ? 1 : rope->stretch.attention_factor;
}

static struct rotation rotation_of(const struct model_config *config, int length) {
    struct rotation found = {.n = config->rope.D_rope / 2, .scale = scale_of(&config->rope)};
    ck_assert_int_le(found.n, MAX_PAIRS);
    rope_frequencies(found.full, &config->rope, NULL, length);
    if (config->window_rotation == WINDOW_ROPE_SAME) return found;
    found.window_n = config->window_rope.D_rope / 2;
    ck_assert_int_le(found.window_n, MAX_PAIRS);
    found.window_scale = scale_of(&config->window_rope);
    rope_frequencies(found.window, &config->window_rope, NULL, length);
    return found;
}

static enum status read_text(const char *text, struct model_config *config, struct err *err) {
    struct model_file file = {.path = "x/config.json"};
    enum status status = hf_config_parse(&file.hf, text, strlen(text), err);
    if (!status) status = model_config_read(config, &file, err);
    model_file_close(&file);
    return status;
}

static struct rotation read_rotation(const char *text, int length) {
    static struct model_config config;
    struct err err = {0};
    ck_assert_msg(!read_text(text, &config, &err), "%s: %s", text, err.message);
    return rotation_of(&config, length);
}

static void expect_same(const float *found, int n, const float *right, int n_right,
                        const char *text) {
    ck_assert_msg(n == n_right, "%s: %d pairs, not %d", text, n, n_right);
    for (int i = 0; i < n; i++)
        ck_assert_msg(fabsf(found[i] - right[i]) <= 1e-6f * right[i], "%s: pair %d: %.9g, not %.9g",
                      text, i, (double)found[i], (double)right[i]);
}

/* ---- spellings of a config.json ------------------------------------------------------------- */

/* A case of rope.txt in parts: a shape, a base, and the other members of rope_parameters. */
struct parts {
    char shape[512], theta[32], rest[1024];
    /* members that may be in the root object: `"key": number, ` or "" */
    char partial[64], context[64];
    char rest_without[1024]; /* without these two */
};

/* Moves the member with that key, which is not the first one, from `rest` to `out`. */
static void take_member(char *rest, const char *key, char out[64]) {
    char *at = strstr(rest, key);
    out[0] = 0;
    if (!at) return;
    int length = (int)strcspn(at, ",}");
    snprintf(out, 64, "%.*s, ", length, at);
    memmove(at - 2, at + length, strlen(at + length) + 1); /* with the comma before it */
}

static struct parts parts_of(const char *line) {
    static const char begin[] = "\"rope_parameters\": {\"rope_theta\": ";
    struct parts p;
    const char *at = strstr(line, begin);
    ck_assert_ptr_nonnull(at);
    snprintf(p.shape, sizeof p.shape, "%.*s", (int)(at - line - 1), line + 1); /* after its { */
    at += strlen(begin);
    size_t length = strcspn(at, ",");
    snprintf(p.theta, sizeof p.theta, "%.*s", (int)length, at);
    at += length + 2;
    snprintf(p.rest, sizeof p.rest, "%.*s", (int)(strrchr(at, '}') - 1 - at), at);
    memcpy(p.rest_without, p.rest, sizeof p.rest);
    take_member(p.rest_without, "\"partial_rotary_factor\"", p.partial);
    take_member(p.rest_without, "\"original_max_position_embeddings\"", p.context);
    return p;
}

/* Only Llama 3's scaling needs the original context among its members. */
static bool has_context_within(const struct parts *p) {
    return strstr(p->rest, "llama3") != NULL;
}

static void spell_flat(struct buf *out, const struct parts *p) {
    buf_printf(out, "{%s\"rope_parameters\": {%s, \"rope_theta\": %s}}", p->shape, p->rest,
               p->theta);
}

static void spell_flat_and_root(struct buf *out, const struct parts *p) {
    bool within = has_context_within(p);
    buf_printf(out, "{%s%s%s\"rope_parameters\": {%s\"rope_theta\": %s, %s}}", p->shape, p->partial,
               within ? "" : p->context, within ? p->context : "", p->theta, p->rest_without);
}

static void spell_old(struct buf *out, const struct parts *p) {
    bool within = has_context_within(p);
    buf_printf(out, "{%s%s%s\"rope_theta\": %s, \"rope_scaling\": {%s%s}}", p->shape, p->partial,
               within ? "" : p->context, p->theta, within ? p->context : "", p->rest_without);
}

/* The older name of "rope_type" is "type". */
static void spell_older(struct buf *out, const struct parts *p) {
    struct parts own = *p;
    take_member(own.rest, "\"partial_rotary_factor\"", own.partial);
    const char *at = strstr(own.rest, "\"rope_type\"");
    buf_printf(out, "{%s%s\"rope_scaling\": {%.*s\"type\"%s}, \"rope_theta\": %s}", p->shape,
               own.partial, (int)(at - own.rest), own.rest, at + strlen("\"rope_type\""), p->theta);
}

static void spell_within_text_config(struct buf *out, const struct parts *p) {
    buf_printf(out,
               "{\"architectures\": [\"LlamaForCausalLM\"], \"rope_parameters\": {\"rope_theta\": "
               "7}, \"text_config\": {%s\"rope_parameters\": {\"rope_theta\": %s, %s}}}",
               p->shape, p->theta, p->rest);
}

/* A family with two kinds of layers, in which layer 0 has a window if `slides`. */
static void spell_of_kinds(struct buf *out, const struct parts *p, bool slides) {
    static const char other[] = "\"rope_theta\": 77, \"rope_type\": \"default\"";
    char own[1200];
    const char *shape = strstr(p->shape, "\"vocab_size\"");
    snprintf(own, sizeof own, "\"rope_theta\": %s, %s", p->theta, p->rest);
    buf_printf(out,
               "{\"architectures\": [\"Qwen2ForCausalLM\"], \"layer_types\": "
               "[\"sliding_attention\"], \"sliding_window\": 32, \"use_sliding_window\": true, "
               "%s\"rope_parameters\": {\"full_attention\": {%s}, \"sliding_attention\": {%s}}}",
               shape, slides ? other : own, slides ? own : other);
}

static void spell_of_full_layers(struct buf *out, const struct parts *p) {
    spell_of_kinds(out, p, false);
}

static void spell_of_sliding_layers(struct buf *out, const struct parts *p) {
    spell_of_kinds(out, p, true);
}

static const struct {
    void (*spell)(struct buf *out, const struct parts *p);
    bool is_of_windows;
} spellings[] = {
    {spell_flat, false},
    {spell_flat_and_root, false},
    {spell_old, false},
    {spell_older, false},
    {spell_within_text_config, false},
    {spell_of_full_layers, false},
    {spell_of_sliding_layers, true},
};
enum { N_SPELLINGS = sizeof spellings / sizeof *spellings };

static void check_spelling(int i, const struct parts *p, int length, float scale,
                           const float *right, int n) {
    struct buf text = {0};
    spellings[i].spell(&text, p);
    struct rotation found = read_rotation(text.data, length);
    bool windows = spellings[i].is_of_windows;
    expect_same(windows ? found.window : found.full, windows ? found.window_n : found.n, right, n,
                text.data);
    float found_scale = windows ? found.window_scale : found.scale;
    ck_assert_msg(fabsf(found_scale - scale) < 1e-6f, "%s: scale %g", text.data,
                  (double)found_scale);
    /* the other kind of layer is not stretched, and has another base */
    if (windows) ck_assert(found.scale == 1 && found.full[1] > found.full[2]);
    if (windows) ck_assert_float_eq_tol(found.full[1], powf(77, -1.0f / (float)found.n), 1e-6f);
    buf_free(&text);
}

static int read_numbers(float *out, char *words) {
    int n = 0;
    for (char *word = strtok(words, " \n"); word; word = strtok(NULL, " \n")) {
        ck_assert_int_lt(n, MAX_PAIRS);
        out[n++] = strtof(word, NULL);
    }
    return n;
}

START_TEST(each_spelling_of_a_rotation_has_its_frequencies) {
    static char line[4096];
    FILE *file = fopen("tests/vectors/rope.txt", "r");
    struct parts parts = {0};
    float right[MAX_PAIRS], scale = 0;
    int length = 0, n = 0;
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file)) {
        char *rest = strchr(line, ' ') + 1;
        if (strncmp(line, "config", 6) == 0) parts = parts_of(rest);
        if (strncmp(line, "length", 6) == 0) length = atoi(rest);
        if (strncmp(line, "scale", 5) == 0) scale = strtof(rest, NULL);
        if (strncmp(line, "frequencies", 11) != 0) continue;
        int pairs = read_numbers(right, rest);
        check_spelling(_i, &parts, length, scale, right, pairs);
        n++;
    }
    fclose(file);
    ck_assert_int_eq(n, N_CASES);
}
END_TEST

/* ---- numbers that are missing --------------------------------------------------------------- */

#define SHAPE                                                                                      \
    "{\"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 300, \"hidden_size\": 96, "       \
    "\"intermediate_size\": 96, \"num_hidden_layers\": 1, \"num_attention_heads\": 4, "            \
    "\"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-05, \"max_position_embeddings\": 4096, "
#define LISTS                                                                                      \
    "\"short_factor\": [1,2,3,4,5,6,7,8,9,10,11,12], \"long_factor\": "                            \
    "[2,3,4,5,6,7,8,9,10,11,12,14]"

static const struct {
    const char *type, *missing, *given;
} usual_numbers[] = {
    {"yarn", "\"original_max_position_embeddings\": 512", "\"factor\": 8"},
    {"yarn", "\"factor\": 3", "\"original_max_position_embeddings\": 4096"},
    {"yarn", "\"factor\": 3, \"truncate\": false", "\"beta_fast\": 32"},
    {"yarn", "\"factor\": 3, \"truncate\": false", "\"beta_slow\": 1"},
    {"yarn", "\"factor\": 3", "\"truncate\": true"},
    {"yarn", "\"factor\": 3", "\"attention_factor\": 1.10986122886681"},
    {"longrope", LISTS ", \"original_max_position_embeddings\": 512", "\"factor\": 8"},
    {"longrope", LISTS ", \"factor\": 8", "\"original_max_position_embeddings\": 4096"},
    {"su", LISTS ", \"original_max_position_embeddings\": 512", "\"type\": \"longrope\""},
    {"proportional", "\"partial_rotary_factor\": 0.5", "\"factor\": 1"},
};

START_TEST(a_number_that_is_missing_is_the_usual_one) {
    char text[1024];
    const char *type = usual_numbers[_i].type, *missing = usual_numbers[_i].missing;
    bool renames = strcmp(type, "su") == 0;
    snprintf(text, sizeof text, SHAPE "\"rope_parameters\": {\"rope_type\": \"%s\", %s}}", type,
             missing);
    struct rotation right = read_rotation(text, 4096);
    snprintf(text, sizeof text, SHAPE "\"rope_parameters\": {\"%s\": \"%s\", %s, %s}}",
             renames ? "other" : "rope_type", type, missing, usual_numbers[_i].given);
    struct rotation found = read_rotation(text, 4096);
    expect_same(found.full, found.n, right.full, right.n, text);
    ck_assert_float_eq_tol(found.scale, right.scale, 1e-6f);
}
END_TEST

/* Unusual numbers are read from the same keys. Without this check the test above would hold for any
 * key. */
static const struct {
    const char *type, *members, *changed;
} read_numbers_of[] = {
    {"linear", "\"factor\": 2", "\"factor\": 3"},
    {"dynamic", "\"factor\": 2", "\"factor\": 3"},
    {"dynamic", "\"factor\": 2, \"alpha\": 50", "\"factor\": 2, \"alpha\": 1000"},
    {"yarn", "\"factor\": 8", "\"factor\": 8, \"original_max_position_embeddings\": 64"},
    {"yarn", "\"factor\": 8", "\"factor\": 4"},
    {"yarn", "\"factor\": 8", "\"factor\": 8, \"beta_fast\": 8"},
    {"yarn", "\"factor\": 8", "\"factor\": 8, \"beta_slow\": 0.25"},
    {"yarn", "\"factor\": 8", "\"factor\": 8, \"truncate\": false"},
    {"longrope", LISTS ", \"original_max_position_embeddings\": 512",
     LISTS ", \"original_max_position_embeddings\": 8192"},
    {"proportional", "\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\": 0.25"},
    {"proportional", "\"partial_rotary_factor\": 0.5",
     "\"partial_rotary_factor\": 0.5, \"factor\": 2"},
#define LLAMA3(factor, low, high, context)                                                         \
    "\"factor\": " factor ", \"low_freq_factor\": " low ", \"high_freq_factor\": " high            \
    ", \"original_max_position_embeddings\": " context
    {"llama3", LLAMA3("8", "1", "4", "512"), LLAMA3("4", "1", "4", "512")},
    {"llama3", LLAMA3("8", "1", "4", "512"), LLAMA3("8", "2", "4", "512")},
    {"llama3", LLAMA3("8", "1", "4", "512"), LLAMA3("8", "1", "8", "512")},
    {"llama3", LLAMA3("8", "1", "4", "512"), LLAMA3("8", "1", "4", "64")},
};

START_TEST(each_number_of_a_scaling_counts) {
    char text[1024];
    struct rotation found[2];
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text, SHAPE "\"rope_parameters\": {\"rope_type\": \"%s\", %s}}",
                 read_numbers_of[_i].type,
                 i ? read_numbers_of[_i].changed : read_numbers_of[_i].members);
        found[i] = read_rotation(text, 8192);
    }
    ck_assert_msg(memcmp(found[0].full, found[1].full, sizeof found[0].full) != 0, "%s", text);
}
END_TEST

/* HunYuan's alpha raises the base to base * alpha^(D / (D - 2)), for contexts of any length. */
START_TEST(alpha_is_another_base) {
    char text[1024];
    snprintf(text, sizeof text,
             SHAPE "\"rope_theta\": 10000, \"rope_scaling\": "
                   "{\"type\": \"dynamic\", \"alpha\": 50, \"factor\": 1}}");
    struct rotation found = read_rotation(text, 8192), longer = read_rotation(text, 1 << 20);
    double D = 2.0 * found.n;
    snprintf(text, sizeof text, SHAPE "\"rope_theta\": %.9g}", 10000 * pow(50, D / (D - 2)));
    struct rotation right = read_rotation(text, 8192);
    expect_same(found.full, found.n, right.full, right.n, text);
    expect_same(longer.full, longer.n, right.full, right.n, text);
}
END_TEST

START_TEST(a_number_without_a_usual_one_is_demanded) {
    static const struct {
        const char *type, *members, *key;
    } cases[] = {
        {"linear", "\"x\": 1", "factor"},
        {"dynamic", "\"x\": 1", "factor"},
        {"dynamic", "\"factor\": 1, \"alpha\": 0", "alpha"},
        {"llama3", "\"low_freq_factor\": 1", "factor"},
        {"llama3", "\"factor\": 8, \"high_freq_factor\": 4", "low_freq_factor"},
        {"llama3", "\"factor\": 8, \"low_freq_factor\": 1", "high_freq_factor"},
        {"llama3", "\"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4",
         "original_max_position_embeddings"},
        {"llama3", LLAMA3("8", "4", "4", "512"), "high_freq_factor"},
        {"longrope", "\"long_factor\": [1]", "short_factor"},
        {"longrope", "\"short_factor\": [1,2,3,4,5,6,7,8,9,10,11,12]", "long_factor"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int old = 0; old < 2; old++) {
            char text[1024];
            struct err err = {0};
            struct model_config config;
            snprintf(text, sizeof text, SHAPE "\"%s\": {\"rope_type\": \"%s\", %s}}",
                     old ? "rope_scaling" : "rope_parameters", cases[i].type, cases[i].members);
            ck_assert_int_eq(read_text(text, &config, &err), STATUS_BAD_FILE);
            ck_assert_msg(strcmp(err.param, cases[i].key) == 0, "%s: %s", text, err.message);
        }
}
END_TEST

/* Pairs beyond the rotated part do not rotate, and neither do those of a partial rotation. */
START_TEST(a_part_of_a_head_rotates_and_the_rest_does_not) {
    struct rotation part = read_rotation(SHAPE "\"rope_parameters\": {\"rope_type\": "
                                               "\"proportional\", \"rope_theta\": 100, \"factor\": "
                                               "2, \"partial_rotary_factor\": 0.5}}",
                                         4096);
    ck_assert_int_eq(part.n, 12);
    for (int i = 0; i < part.n; i++) {
        float right = i < 6 ? powf(100, -2.0f * (float)i / 24) / 2 : 0;
        ck_assert_msg(fabsf(part.full[i] - right) < 1e-6f, "pair %d: %g", i, (double)part.full[i]);
    }
}
END_TEST

/* ---- GGUF files ----------------------------------------------------------------------------- */

static struct rotation read_keys(struct gguf_writer *writer) {
    static struct model_config config;
    struct buf bytes = {0};
    struct err err = {0};
    struct gguf *gguf = llama_keys_open(writer, &bytes);
    struct model_file file = {.path = "x.gguf", .gguf = gguf};
    ck_assert_msg(!model_config_read(&config, &file, &err), "%s", err.message);
    struct rotation found = rotation_of(&config, config.context_length);
    gguf_close(gguf);
    buf_free(&bytes);
    return found;
}

/* The tiny llama of llama_keys: heads of 16, a context of 256. */
#define TINY                                                                                       \
    "{\"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 300, \"hidden_size\": 64, "       \
    "\"intermediate_size\": 96, \"num_hidden_layers\": 1, \"num_attention_heads\": 4, "            \
    "\"rms_norm_eps\": 1e-05, \"max_position_embeddings\": 256, \"rope_parameters\": {"

static const struct {
    const char *type; /* NULL: the file lacks the key */
    struct {
        const char *name;
        float value;
    } key[4];
    const char *same; /* the equivalent in config.json */
} scalings[] = {
    {"none", {{"factor", 8}}, "\"rope_type\": \"default\"}}"},
    {"none", {{"factor", 8}}, "\"rope_theta\": 10000}}"},
    {NULL, {{"factor", 2.5f}}, "\"rope_type\": \"linear\", \"factor\": 2.5}}"},
    {"linear", {{"factor", 2.5f}}, "\"rope_type\": \"linear\", \"factor\": 2.5}}"},
    {"linear", {{"factor", 0}}, "\"rope_type\": \"default\"}}"},
    {"yarn",
     {{"factor", 4}, {"original_context_length", 64}},
     "\"rope_type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 64}}"},
    {"yarn", {{"factor", 4}}, "\"rope_type\": \"yarn\", \"factor\": 4}}"},
    {"yarn",
     {{"factor", 4}, {"yarn_beta_fast", 8}, {"yarn_beta_slow", 2}},
     "\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": 8, \"beta_slow\": 2}}"},
    {"yarn",
     {{"factor", 4}, {"yarn_attn_factor", 1.5f}},
     "\"rope_type\": \"yarn\", \"factor\": 4, \"attention_factor\": 1.5}}"},
    {"yarn",
     {{"factor", 4}, {"yarn_attn_factor", 1.5f}, {"attn_factor", 0.5f}},
     "\"rope_type\": \"yarn\", \"factor\": 4, \"attention_factor\": 0.75}}"},
    {"yarn",
     {{"factor", 4}, {"yarn_log_multiplier", 0.5f}},
     "\"rope_type\": \"yarn\", \"factor\": 4, \"mscale\": 1, \"mscale_all_dim\": 0.5}}"},
    /* with 31 turns the range would begin at another pair */
    {"yarn",
     {{"factor", 4}, {"original_context_length", 625}},
     "\"rope_type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 625, "
     "\"beta_fast\": 32}}"},
    {"yarn", {{"factor", 0.75f}}, "\"rope_type\": \"yarn\", \"factor\": 0.75}}"},
    {"yarn", {{"factor", 1}}, "\"rope_type\": \"yarn\", \"factor\": 1}}"},
};

START_TEST(a_scaling_of_a_gguf_file_is_that_of_a_config) {
    struct gguf_writer writer = {0};
    char name[64], text[1024];
    llama_keys(&writer, "");
    if (scalings[_i].type)
        gguf_writer_string(&writer, "llama.rope.scaling.type", scalings[_i].type);
    for (int i = 0; i < 4 && scalings[_i].key[i].name; i++) {
        float value = scalings[_i].key[i].value;
        snprintf(name, sizeof name, "llama.rope.scaling.%s", scalings[_i].key[i].name);
        if (strcmp(scalings[_i].key[i].name, "original_context_length") == 0)
            gguf_writer_u32(&writer, name, (uint32_t)value);
        else
            gguf_writer_f32(&writer, name, value);
    }
    struct rotation found = read_keys(&writer);
    snprintf(text, sizeof text, TINY "%s", scalings[_i].same);
    struct rotation right = read_rotation(text, 256);
    expect_same(found.full, found.n, right.full, right.n, text);
    ck_assert_msg(fabsf(found.scale - right.scale) < 1e-6f, "%s: %g, not %g", text,
                  (double)found.scale, (double)right.scale);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine/rope_forms");
    TCase *all = tcase_create("all");
    tcase_add_loop_test(all, each_spelling_of_a_rotation_has_its_frequencies, 0, N_SPELLINGS);
    tcase_add_loop_test(all, a_number_that_is_missing_is_the_usual_one, 0,
                        sizeof usual_numbers / sizeof *usual_numbers);
    tcase_add_loop_test(all, each_number_of_a_scaling_counts, 0,
                        sizeof read_numbers_of / sizeof *read_numbers_of);
    tcase_add_test(all, alpha_is_another_base);
    tcase_add_test(all, a_number_without_a_usual_one_is_demanded);
    tcase_add_test(all, a_part_of_a_head_rotates_and_the_rest_does_not);
    tcase_add_loop_test(all, a_scaling_of_a_gguf_file_is_that_of_a_config, 0,
                        sizeof scalings / sizeof *scalings);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
