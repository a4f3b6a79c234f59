/* Forms in which tools write the same folder. Each form of a folder gives the logits of the folder
 * itself, bit for bit. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/model_file.h"
#include "engine/models/model.h"
#include "support/folder_copy.h"
#include "support/sequence_runner.h"
#include "support/suite_main.h"

#define VECTORS "tests/vectors/folders/"
#define CONFIG "config.json"
#define WEIGHTS "model.safetensors"

enum { N_TOKENS = 5, MAX_CHANGES = 3 };

/* Replaces every `from` by `to` in a file, in the header of a file of weights, or adds a file. */
struct change {
    const char *file, *from, *to;
};

static const struct {
    const char *base;
    struct change change[MAX_CHANGES];
    const char *extra; /* the names of tensors of zeros in a second file of weights */
} forms[] = {
    /* config.json */
    {"mistral", {{CONFIG, "\"architectures\"", "\"_\""}}},
    {"qwen2moe", {{CONFIG, "\"architectures\"", "\"_\""}}},
    {"gpt2", {{CONFIG, "\"architectures\"", "\"_\""}}},
    {"gemma3", {{CONFIG, "\"architectures\"", "\"_\""}}},
    {"gptneox", {{CONFIG, "\"architectures\"", "\"_\""}}},
    {"granite4", {{CONFIG, "\"architectures\"", "\"_\""}}},
    {"qwen2_5_vl", {{CONFIG, "\"architectures\"", "\"_\""}}},
    {"qwen3_vl_moe", {{CONFIG, "\"architectures\"", "\"_\""}}},
    {"gemma4_unified", {{CONFIG, "\"architectures\"", "\"_\""}}},
    {"qwen2_5_vl", {{CONFIG, "\"mrope\"", "\"default\""}}},
    {"falcon", {{CONFIG, "\"n_layer\"", "\"num_hidden_layers\""}}},
    /* the method of quantisation */
    {"gptq",
     {{CONFIG, "\"quantization_config\"", "\"_\""},
      {"quantize_config.json", .to = "{\"bits\": 4, \"group_size\": 32, \"desc_act\": false}"}}},
    {"awq",
     {{CONFIG, "\"quantization_config\"", "\"_\""},
      {"quantize_config.json",
       .to = "{\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 32}"}}},
    {"awq",
     {{CONFIG, "\"quantization_config\"", "\"_\""},
      {"quant_config.json",
       .to = "{\"zero_point\": true, \"q_group_size\": 32, \"w_bit\": 4, \"version\": \"GEMM\"}"}}},
    {"float8-modelopt",
     {{CONFIG, "\"quantization_config\"", "\"_\""},
      {"hf_quant_config.json",
       .to = "{\"producer\": {\"name\": \"modelopt\"}, \"quantization\": {\"quant_algo\": "
             "\"FP8\", \"kv_cache_quant_algo\": null}}"}}},
    {"gptq",
     {{CONFIG, "\"gptq\"",
       "\"auto-round\", \"data_type\": \"int\", \"packing_format\": \"auto_round:auto_gptq\""}}},
    {"gptq-act-order",
     {{CONFIG, "\"gptq\"", "\"auto-round\", \"packing_format\": \"auto_round:gptqmodel\""},
      {CONFIG, "\"checkpoint_format\"", "\"_\""}}},
    {"awq", {{CONFIG, "\"awq\"", "\"auto-round\", \"packing_format\": \"auto_round:auto_awq\""}}},
    {"gptq-act-order", {{CONFIG, "\"checkpoint_format\"", "\"format\""}}},
    {"gptq", {{CONFIG, "\"desc_act\"", "\"format\": \"gptq\", \"desc_act\""}}},
    /* the head: its own in a folder that says tied; or the only tensor of both */
    {"mistral", {{CONFIG, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true"}}},
    {"granite", {{CONFIG, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true"}}},
    {"gemma", {{WEIGHTS, "\"model.embed_tokens.weight\"", "\"lm_head.weight\""}}},
    {"gpt2", {{WEIGHTS, "\"transformer.wte.weight\"", "\"lm_head.weight\""}}},
    /* tensors that change nothing */
    {"gptq", .extra = "model.layers.0.self_attn.q_proj.bias model.layers.0.mlp.down_proj.bias "
                      "model.layers.1.self_attn.o_proj.bias"},
    {"falcon", .extra = "transformer.h.0.self_attention.query_key_value.bias "
                        "transformer.h.1.mlp.dense_4h_to_h.bias"},
    {"gptneox", .extra = "gpt_neox.layers.1.attention.masked_bias "
                         "gpt_neox.layers.1.attention.rotary_emb.inv_freq"},
    {"mistral", .extra = "model.layers.0.self_attn.rotary_emb.inv_freq model.rotary_emb.inv_freq "
                         "model.layers.1.self_attn.rotary_emb.cos_cached "
                         "model.layers.1.self_attn.rotary_emb.sin_cached"},
    {"llama", {{"model.safetensors.index.json", NULL, NULL}}},
    /* names */
    {"mistral",
     {{WEIGHTS, "\"model.", "\"_orig_mod.model."},
      {WEIGHTS, "\"lm_head.", "\"_orig_mod.lm_head."}}},
    {"granite",
     {{WEIGHTS, "\"model.", "\"base_model.model.model."},
      {WEIGHTS, "\"lm_head.", "\"base_model.model.lm_head."}}},
    {"gemma2", {{WEIGHTS, "\"model.", "\"base_model.model._orig_mod.model.language_model."}}},
};
enum { N_FORMS = sizeof forms / sizeof *forms };

/* ---- changes -------------------------------------------------------------------------------- */

static void replace_all(struct buf *out, const char *text, size_t n, const struct change *change) {
    const char *end = text + n, *place;
    while ((place = memmem(text, (size_t)(end - text), change->from, strlen(change->from)))) {
        buf_add(out, text, (size_t)(place - text));
        buf_puts(out, change->to);
        text = place + strlen(change->from);
    }
    buf_add(out, text, (size_t)(end - text));
}

static void replace_in_header(struct buf *out, const struct buf *file,
                              const struct change *change) {
    struct buf header = {0};
    uint64_t n;
    memcpy(&n, file->data, sizeof n);
    replace_all(&header, file->data + sizeof n, n, change);
    uint64_t length = header.length;
    buf_add(out, (const char *)&length, sizeof length);
    buf_add(out, header.data, header.length);
    buf_add(out, file->data + sizeof n + n, file->length - sizeof n - n);
    buf_free(&header);
}

static void apply(const struct change *change) {
    struct buf file = {0}, changed = {0};
    if (!change->to) {
        ck_assert_int_eq(remove(folder_copy_path(change->file)), 0);
        return;
    }
    if (change->from) folder_copy_read(&file, change->file);
    if (!change->from)
        buf_puts(&changed, change->to);
    else if (strcmp(change->file, WEIGHTS) == 0)
        replace_in_header(&changed, &file, change);
    else
        replace_all(&changed, file.data, file.length, change);
    folder_copy_write(change->file, changed.data, changed.length);
    buf_free(&file);
    buf_free(&changed);
}

/* Makes the file of weights the first of two without an index. The second has tensors of four
 * zeros. */
static void add_tensors(const char *names) {
    struct buf header = {0}, file = {0};
    char first[FOLDER_PATH_BYTES];
    snprintf(first, sizeof first, "%s", folder_copy_path("model-00001-of-00002.safetensors"));
    ck_assert_int_eq(rename(folder_copy_path(WEIGHTS), first), 0);
    buf_puts(&header, "{");
    int n = 0;
    for (const char *at = names; *at; at += strspn(at, " "), n++) {
        int length = (int)strcspn(at, " ");
        buf_printf(&header, "%s\"%.*s\": {\"dtype\": \"F16\", \"shape\": [4], \"data_offsets\": ",
                   n ? ", " : "", length, at);
        buf_printf(&header, "[%d, %d]}", 8 * n, 8 * n + 8);
        at += length;
    }
    buf_puts(&header, "}");
    uint64_t length = header.length;
    buf_add(&file, (const char *)&length, sizeof length);
    buf_add(&file, header.data, header.length);
    for (int i = 0; i < n; i++) buf_add(&file, "\0\0\0\0\0\0\0", 8);
    folder_copy_write("model-00002-of-00002.safetensors", file.data, file.length);
    buf_free(&header);
    buf_free(&file);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static float *logits_of(const char *folder, size_t *bytes) {
    static const int32_t tokens[N_TOKENS] = {7, 260, 3, 298, 41};
    const struct engine_config config = {.model = folder,
                                         .threads = 1,
                                         .dtype = COMPUTE_FLOAT32,
                                         .max_num_seqs = N_TOKENS,
                                         .max_num_batched_tokens = 8,
                                         .block_size = 16};
    struct err err = {0};
    struct engine *engine;
    ck_assert_msg(engine_open(&engine, &config, &err) == STATUS_OK, "%s", err.message);
    *bytes = (size_t)(N_TOKENS * engine_model(engine)->V) * sizeof(float);
    float *out = mem_alloc(*bytes);
    memcpy(out, runner_logits(engine, tokens, 0, N_TOKENS), *bytes);
    engine_close(engine);
    return out;
}

START_TEST(each_form_of_a_folder_is_the_same_model) {
    char base[FOLDER_PATH_BYTES];
    size_t bytes, bytes_of_form;
    snprintf(base, sizeof base, VECTORS "%s", forms[_i].base);
    float *wanted = logits_of(base, &bytes);
    const char *folder = folder_copy(base);
    for (int i = 0; i < MAX_CHANGES && forms[_i].change[i].file; i++) apply(&forms[_i].change[i]);
    if (forms[_i].extra) add_tensors(forms[_i].extra);
    float *found = logits_of(folder, &bytes_of_form);
    folder_copy_remove();
    ck_assert_uint_eq(bytes, bytes_of_form);
    ck_assert_mem_eq(found, wanted, bytes);
    mem_free(found);
    mem_free(wanted);
}
END_TEST

/* ---- a copy of the embedding ---------------------------------------------------------------- */

/* Returns the bytes of a tensor in a file of weights. */
static char *bytes_of(struct buf *file, const char *name, size_t *n) {
    uint64_t header;
    size_t begin, end;
    memcpy(&header, file->data, sizeof header);
    const char *entry = memmem(file->data, header, name, strlen(name));
    ck_assert_ptr_nonnull(entry);
    const char *offsets = strstr(entry, "data_offsets");
    ck_assert_int_eq(sscanf(offsets, "data_offsets\":[%zu,%zu]", &begin, &end), 2);
    *n = end - begin;
    return file->data + sizeof header + header + begin;
}

static bool has_head(const char *folder) {
    struct err err = {0};
    struct model_file file;
    struct model_config config;
    ck_assert_int_eq(model_file_open(&file, folder, MODEL_WHOLE, &err), STATUS_OK);
    ck_assert_msg(model_config_read(&config, &file, &err) == STATUS_OK, "%s", err.message);
    bool found = config_has(&config, ROLE_OUTPUT);
    model_file_close(&file);
    return found;
}

START_TEST(a_head_that_is_a_copy_of_the_embedding_is_left_out) {
    static const struct change tie = {CONFIG, "\"tie_word_embeddings\": false",
                                      "\"tie_word_embeddings\": true"};
    struct buf file = {0};
    size_t n, n_head;
    const char *folder = folder_copy(VECTORS "mistral");
    folder_copy_read(&file, WEIGHTS);
    const char *embedding = bytes_of(&file, "\"model.embed_tokens.weight\"", &n);
    char *head = bytes_of(&file, "\"lm_head.weight\"", &n_head);
    ck_assert_uint_eq(n, n_head);
    memcpy(head, embedding, n);
    folder_copy_write(WEIGHTS, file.data, file.length);
    ck_assert(has_head(folder));
    apply(&tie);
    ck_assert(!has_head(folder));
    folder_copy_remove();
    buf_free(&file);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine/forms of folders");
    TCase *all = tcase_create("all");
    tcase_add_loop_test(all, each_form_of_a_folder_is_the_same_model, 0, N_FORMS);
    tcase_add_test(all, a_head_that_is_a_copy_of_the_embedding_is_left_out);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
