/* Broken quantised folders: the description in config.json, the parts of a matrix, and the numbers
 * in them. Each is refused when the folder is opened, after little work, with one sentence that
 * names the file or tensor, the expectation and the finding. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "counted/work.h"
#include "engine/engine.h"
#include "support/folder_copy.h"
#include "support/suite_main.h"

#define VECTORS "tests/vectors/folders/"
#define CONFIG "config.json"
#define WEIGHTS "model.safetensors"
#define DOWN "model.layers.0.mlp.down_proj"
#define EXPERTS "language_model.model.layers.0.mlp.experts.gate_up_proj"
#define Q "model.layers.0.self_attn.q_proj"

enum { MOST_WORK = 2000000 }; /* to refuse a small folder */

/* A change to a copy of a folder. */
enum change {
    CONFIG_TEXT, /* replaces the first `from` in config.json by `to` */
    HEADER,      /* the same in the header of the weights, whose length is adjusted */
    NUMBER,      /* replaces bytes at offset `at` of the tensor `from` by `to` */
};

static const struct {
    const char *base;
    enum change change;
    const char *from, *to;
    const char *words; /* words of the message */
    size_t at, n;      /* bytes of `to`; n == 0: it is text */
} broken[] = {
    /* the description in config.json */
    {"gptq", CONFIG_TEXT, "\"gptq\"", "\"eetq\"",
     "the method \"eetq\" is not supported; gptq, awq, auto-round, compressed-tensors, "
     "fp8, mxfp4, modelopt"},
    {"gptq", CONFIG_TEXT, "\"gptq\"", "\"bitsandbytes\"",
     "holds integers, but does not belong to a matrix of the quantization_config method"},
    {"gptq", CONFIG_TEXT, "\"gptq\"", "\"hqq\"", "the method \"hqq\" is not supported"},
    {"awq", CONFIG_TEXT, "\"awq\"", "\"quanto\"", "the method \"quanto\" is not supported"},
    {"float8-rows", CONFIG_TEXT, "\"compressed-tensors\"", "\"modelopt\"",
     "quantization_config.quant_algo: NVFP4 or FP8 was expected, found nothing"},
    {"nvfp4-modelopt", CONFIG_TEXT, "NVFP4", "W4A8_AWQ",
     "quant_algo: NVFP4 or FP8 was expected, found W4A8_AWQ"},
    {"gptq", CONFIG_TEXT, "\"quant_method\": \"gptq\"", "\"quant_method\": 4",
     "the method \"\" is not supported"},
    {"gptq", CONFIG_TEXT, "\"quant_method\"", "\"quant_mode\"", "the method \"\" is not supported"},
    {"gptq", CONFIG_TEXT, "\"bits\": 4", "\"bits\": 3",
     "key quantization_config.bits: 4 or 8 was expected, found 3"},
    {"gptq", CONFIG_TEXT, "\"bits\": 4", "\"bits\": 16", "key bits: expected 2 to 8, found 16"},
    {"gptq", CONFIG_TEXT, "\"bits\": 4", "\"bits\": \"4\"",
     "key bits: expected a number, found a string"},
    {"gptq", CONFIG_TEXT, "\"bits\": 4", "\"bits\": 4.5", "key bits: expected a whole number"},
    {"gptq", CONFIG_TEXT, "\"bits\"", "\"bit\"", "key bits is missing"},
    {"gptq", CONFIG_TEXT, "\"bits\": 4", "\"bits\": 8", "expected [3, 16] of I32, found [3, 8]"},
    {"gptq-act-order", CONFIG_TEXT, "gptq_v2", "marlin",
     "checkpoint_format: \"gptq\" or \"gptq_v2\" was expected, found marlin"},
    {"gptq", CONFIG_TEXT, "\"group_size\": 32", "\"group_size\": 64",
     "expected groups of 64 inputs (quantization_config.group_size), found 3 for 96 inputs"},
    {"gptq", CONFIG_TEXT, "\"group_size\": 32", "\"group_size\": -1",
     "expected one group (quantization_config.group_size), found 3 for 96 inputs"},
    {"awq", CONFIG_TEXT, "\"group_size\": 32", "\"group_size\": 128",
     "expected groups of 128 inputs (quantization_config.group_size)"},
    {"awq", CONFIG_TEXT, "\"group_size\": 32", "\"group_size\": -2",
     "key group_size: expected -1 to"},
    {"awq", CONFIG_TEXT, "\"bits\": 4", "\"bits\": 8", "expected 4 to 4, found 8"},
    {"awq", CONFIG_TEXT, "\"bits\": 4", "\"w_bit\": 3", "expected 4 to 4, found 3"},
    {"awq", CONFIG_TEXT, "\"gemm\"", "\"gemv\"", "version: \"gemm\" was expected, found gemv"},
    {"awq", CONFIG_TEXT, "\"gemm\"", "7", "version: \"gemm\" was expected, found a number"},
    {"packed-int4", CONFIG_TEXT, "\"pack-quantized\"", "\"marlin-24\"",
     "format: pack-quantized, int-quantized or float-quantized was expected, found marlin-24"},
    {"packed-int4", CONFIG_TEXT, "\"format\": \"pack-quantized\"", "\"form\": 1",
     "format: pack-quantized, int-quantized or float-quantized was expected, found nothing"},
    {"packed-int4", CONFIG_TEXT, "\"num_bits\": 4", "\"num_bits\": 3", "expected 4 to 8, found 3"},
    {"packed-int4", CONFIG_TEXT, "\"num_bits\": 4", "\"num_bits\": 6",
     "key num_bits: 4 or 8 was expected, found 6"},
    {"packed-int4", CONFIG_TEXT, "\"kv_cache_scheme\": null",
     "\"sparsity_config\": {\"format\": \"sparse-24-bitmask\"}",
     "sparsity_config.format: \"dense\" was expected, found sparse-24-bitmask"},
    {"packed-int4", CONFIG_TEXT, "\"kv_cache_scheme\": null",
     "\"transform_config\": {\"config_groups\": {}}", "transform_config: none was expected"},
    {"float8-blocks", CONFIG_TEXT, "\"weight_block_size\": [", "\"weight_block_size\": [40, ",
     "weight_block_size: an array of two numbers from 1 was expected"},
    {"float8-blocks", CONFIG_TEXT, "40", "0",
     "weight_block_size: an array of two numbers from 1 was expected"},
    {"float8-blocks", CONFIG_TEXT, "40", "\"40\"",
     "weight_block_size: an array of two numbers from 1 was expected"},
    {"float8-blocks", CONFIG_TEXT, "40", "1000000",
     "weight_block_size: an array of two numbers from 1 was expected"},
    {"float8-blocks", CONFIG_TEXT, "40", "20", "weight_scale_inv: expected ["},
    {"float8-blocks", CONFIG_TEXT, "\"weight_block_size\"", "\"block_size\"",
     "weight_scale_inv: expected ["},
    {"float8-structure", CONFIG_TEXT, "\"block_structure\": [", "\"block_structure\": [8, ",
     "config_groups.weights.block_structure: an array of two numbers from 1 was expected"},
    {"float8-structure", CONFIG_TEXT, "\"block_structure\"", "\"blocks\"",
     "config_groups.weights.block_structure: an array of two numbers from 1 was expected, found "
     "nothing"},
    {"float8-structure", CONFIG_TEXT, "24", "12", "weight_scale: expected ["},
    {"awq", CONFIG_TEXT, "\"awq\"", "\"gptq\"", "expected ["},
    {"int8", CONFIG_TEXT, "\"compressed-tensors\"", "\"fp8\"",
     "holds integers, but does not belong to a matrix"},
    {"gptq", CONFIG_TEXT, "\"hidden_size\": 64", "\"hidden_size\": 128",
     "(expected [299, 128], found [299, 64])"},

    /* the parts of a matrix */
    {"gptq", HEADER, DOWN ".scales", DOWN ".scalez", DOWN ".scales: expected scales, found none"},
    {"gptq", HEADER, DOWN ".qzeros", DOWN ".qzeroz",
     DOWN ".qzeros: expected [3, 8] of I32, found none"},
    {"gptq", HEADER, DOWN ".qweight\":{\"dtype\":\"I32\",\"shape\":[12,64]",
     DOWN ".qweight\":{\"dtype\":\"I32\",\"shape\":[24,32]", "expected ["},
    {"gptq", HEADER, DOWN ".qweight\":{\"dtype\":\"I32\",\"shape\":[12,64]",
     DOWN ".qweight\":{\"dtype\":\"I32\",\"shape\":[12,8,8]", "qweight: expected a matrix"},
    {"gptq", HEADER, DOWN ".qweight\":{\"dtype\":\"I32\",\"shape\":[12,64]",
     DOWN ".qweight\":{\"dtype\":\"F32\",\"shape\":[12,64]", "qweight: expected a matrix of I32"},
    {"gptq", HEADER, DOWN ".qweight\":{\"dtype\":\"I32\",\"shape\":[12,64]",
     DOWN ".qweight\":{\"dtype\":\"I32\",\"shape\":[4611686018427387904,64]", "qweight"},
    {"gptq", HEADER, DOWN ".qweight\":{\"dtype\":\"I32\",\"shape\":[12,64]",
     DOWN ".qweight\":{\"dtype\":\"I32\",\"shape\":[-12,64]", "qweight"},
    {"gptq", HEADER, DOWN ".qzeros\":{\"dtype\":\"I32\",\"shape\":[3,8]",
     DOWN ".qzeros\":{\"dtype\":\"I32\",\"shape\":[8,3]",
     DOWN ".qzeros: expected [3, 8] of I32, found [8, 3]"},
    {"gptq", HEADER, DOWN ".scales\":{\"dtype\":\"F16\",\"shape\":[3,64]",
     DOWN ".scales\":{\"dtype\":\"F16\",\"shape\":[6,32]", DOWN ".scales: expected ["},
    {"gptq", HEADER, DOWN ".scales\":{\"dtype\":\"F16\",\"shape\":[3,64]",
     DOWN ".scales\":{\"dtype\":\"F16\",\"shape\":[64,3]",
     DOWN ".scales: 64 groups do not divide 96 inputs"},
    {"gptq", HEADER, DOWN ".g_idx\":{\"dtype\":\"I32\",\"shape\":[96]",
     DOWN ".g_idx\":{\"dtype\":\"I32\",\"shape\":[2,48]", DOWN ".g_idx: expected [1, 96] of I32"},
    {"gptq", HEADER, DOWN ".g_idx\":{\"dtype\":\"I32\"", DOWN ".g_idx\":{\"dtype\":\"F32\"",
     DOWN ".g_idx: expected [1, 96] of I32"},
    {"awq", HEADER, DOWN ".qweight\":{\"dtype\":\"I32\",\"shape\":[96,8]",
     DOWN ".qweight\":{\"dtype\":\"I32\",\"shape\":[48,16]", "expected ["},
    {"packed-int4", HEADER, DOWN ".weight_shape", DOWN ".weight_shapf",
     DOWN ".weight_shape: expected two numbers, the rows and columns of weight_packed"},
    {"packed-int4", HEADER, DOWN ".weight_scale", DOWN ".weight_scalf",
     DOWN ".weight_scale: expected scales, found none"},
    {"packed-int4", HEADER, DOWN ".weight_zero_point\":{\"dtype\":\"I32\",\"shape\":[8,3]",
     DOWN ".weight_zero_point\":{\"dtype\":\"I32\",\"shape\":[4,6]",
     DOWN ".weight_zero_point: expected [8, 3] of I32, found [4, 6]"},
    {"packed-int4", HEADER, DOWN ".weight_scale\":{\"dtype\":\"BF16\",\"shape\":[64,3]",
     DOWN ".weight_scale\":{\"dtype\":\"BF16\",\"shape\":[48,4]", DOWN ".weight_scale: expected ["},
    {"packed-int8", HEADER, DOWN ".weight_packed\":{\"dtype\":\"I32\",\"shape\":[64,24]",
     DOWN ".weight_packed\":{\"dtype\":\"I32\",\"shape\":[128,12]",
     DOWN ".weight_shape: expected two numbers"},
    {"awq-experts", HEADER, "experts.4.up_proj.qzeros", "experts.4.up_proj.qzeroz",
     "experts.4.up_proj.qzeros: expected [2, 8] of I32, found none"},
    {"int8", HEADER, DOWN ".weight_scale\":{\"dtype\":\"BF16\",\"shape\":[64,1]",
     DOWN ".weight_scale\":{\"dtype\":\"BF16\",\"shape\":[32,2]", DOWN ".weight_scale: expected ["},
    {"int8", HEADER, DOWN ".weight_scale", DOWN ".weight_scalf",
     DOWN ".weight_scale: expected scales, found none"},
    {"float8-blocks", HEADER, DOWN ".weight_scale_inv", DOWN ".weight_scale_inw",
     DOWN ".weight_scale: expected scales, found none"},
    {"float8-blocks", HEADER, DOWN ".weight_scale_inv\":{\"dtype\":\"F32\",\"shape\":[2,3]",
     DOWN ".weight_scale_inv\":{\"dtype\":\"F32\",\"shape\":[3,2]",
     DOWN ".weight_scale_inv: expected [2, 3] of F16, BF16 or F32, found [3, 2]"},
    {"float8-mistral4", HEADER, EXPERTS "_scale_inv", EXPERTS "_scale_inw",
     EXPERTS "_scale_inv: expected floats, one for each expert or for each block"},
    {"float8-mistral4", HEADER, EXPERTS "_scale_inv\":{\"dtype\":\"BF16\",\"shape\":[7,1,1]",
     EXPERTS "_scale_inv\":{\"dtype\":\"BF16\",\"shape\":[1,7,1]",
     EXPERTS "_scale_inv: expected floats, one for each expert or for each block"},
    {"float8-mistral4", HEADER, EXPERTS "_scale_inv\":{\"dtype\":\"BF16\"",
     EXPERTS "_scale_inv\":{\"dtype\":\"I16\"", "the dtype I16 is not supported"},
    {"float8-mistral4-blocks", HEADER, EXPERTS "_scale_inv\":{\"dtype\":\"F32\",\"shape\":[7,2,4]",
     EXPERTS "_scale_inv\":{\"dtype\":\"F32\",\"shape\":[7,4,2]",
     EXPERTS "_scale_inv: expected floats, one for each expert or for each block"},
    {"float8-mistral4-blocks", HEADER, EXPERTS "_scale_inv\":{\"dtype\":\"F32\",\"shape\":[7,2,4]",
     EXPERTS "_scale_inv\":{\"dtype\":\"F32\",\"shape\":[4,14]",
     EXPERTS "_scale_inv: expected floats, one for each expert or for each block"},
    {"float8-mistral4-blocks", CONFIG_TEXT, "[\n      16,", "[\n      24,",
     "experts.down_proj_scale_inv: expected floats, one for each expert or for each block"},
    {"nvfp4", HEADER, DOWN ".weight_global_scale", DOWN ".weight_global_scald",
     DOWN ".weight_global_scale: expected one positive number of F32"},
    {"nvfp4", HEADER, DOWN ".weight_scale\":{\"dtype\":\"F8_E4M3\",\"shape\":[64,6]",
     DOWN ".weight_scale\":{\"dtype\":\"F8_E4M3\",\"shape\":[96,4]",
     DOWN ".weight_scale: expected floats of 8 bits (F8_E4M3), one for each 16 inputs"},
    {"nvfp4", HEADER, DOWN ".weight_scale\":{\"dtype\":\"F8_E4M3\"",
     DOWN ".weight_scale\":{\"dtype\":\"U8\"", DOWN ".weight_scale: expected floats of 8 bits"},
    {"nvfp4", HEADER, DOWN ".weight_packed\":{\"dtype\":\"U8\",\"shape\":[64,48]",
     DOWN ".weight_packed\":{\"dtype\":\"U8\",\"shape\":[256,12]", "a matrix of bytes, 8 for"},
    {"bnb-nf4", HEADER, DOWN ".weight.quant_state.bitsandbytes__nf4",
     DOWN ".weight.quant_state.bitsandbytes__nf5", "bitsandbytes__nf4: expected bytes of JSON"},
    {"bnb-nf4", HEADER, DOWN ".weight.quant_map", DOWN ".weight.quant_nap",
     DOWN ".weight.quant_map: expected 16 numbers of F32"},
    {"bnb-nf4", HEADER, DOWN ".weight.nested_absmax", DOWN ".weight.nested_absmay",
     DOWN ".weight.nested_absmax: expected a number of F32 for each nested_blocksize scales"},
    {"bnb-nf4", HEADER, DOWN ".weight.absmax", DOWN ".weight.absmay",
     DOWN ".weight.absmax: expected a number of F32 or U8 for each block"},
    {"bnb-int8", HEADER, DOWN ".SCB", DOWN ".SCC", DOWN ".SCB: expected a number of F32"},

    /* the numbers */
    {"nvfp4", NUMBER, DOWN ".weight_scale", "\x7f", DOWN ".weight_scale: number 7 is nan", 7, 1},
    {"nvfp4", NUMBER, DOWN ".weight_global_scale", "\0\0\0\0",
     DOWN ".weight_global_scale: expected one positive number", 0, 4},
    {"nvfp4-modelopt", NUMBER, DOWN ".weight_scale_2", "\x00\x00\x80\x7f",
     DOWN ".weight_scale_2: expected one positive number", 0, 4},
    {"bnb-nf4", NUMBER, DOWN ".weight.nested_absmax", "\x00\x00\xc0\x7f",
     DOWN ".weight.absmax: number 24 is nan", 4, 4},
    {"bnb-nf4", NUMBER, DOWN ".weight.quant_map", "\x00\x00\x80\x7f",
     DOWN ".weight.quant_map: expected finite numbers", 8, 4},
    {"bnb-nf4", NUMBER, DOWN ".weight.quant_state.bitsandbytes__nf4", "[", "quant_state", 0, 1},
    {"bnb-nf4", NUMBER, DOWN ".weight.quant_state.bitsandbytes__nf4", "20",
     "rows of whole blocks (quant_state's blocksize)", 35, 2},
    {"bnb-nf4", NUMBER, DOWN ".weight.quant_state.bitsandbytes__nf4", " 0",
     "key blocksize: expected 2 to 65536, found 0", 35, 2},
    {"bnb-int8", NUMBER, DOWN ".SCB", "\x00\x00\xc0\x7f", DOWN ".SCB: number 3 is nan", 12, 4},
    {"gptq", NUMBER, DOWN ".scales", "\x00\x7e", DOWN ".scales: number 5 is nan", 10, 2},
    {"awq", NUMBER, Q ".scales", "\x00\x7c", Q ".scales: number 0 is inf", 0, 2},
    {"awq", NUMBER, DOWN ".scales", "\x00\xfc", DOWN ".scales: number 191 is -inf", 382, 2},
    {"packed-int4", NUMBER, DOWN ".weight_scale", "\xc0\x7f",
     DOWN ".weight_scale: number 1 is nan; finite scales were expected", 2, 2},
    {"int8", NUMBER, Q ".weight_scale", "\x80\x7f", Q ".weight_scale: number 63 is inf", 126, 2},
    {"float8-rows", NUMBER, DOWN ".weight_scale", "\x00\x00\xc0\x7f",
     DOWN ".weight_scale: number 2 is nan", 8, 4},
    {"float8-blocks", NUMBER, DOWN ".weight_scale_inv", "\x00\x00\x80\xff",
     DOWN ".weight_scale_inv: number 5 is -inf", 20, 4},
    {"float8-mistral4", NUMBER, EXPERTS "_scale_inv", "\xc0\x7f",
     EXPERTS "_scale_inv: number 6 is nan", 12, 2},
    {"gptq-act-order", NUMBER, DOWN ".g_idx", "\xff\xff\xff\xff",
     DOWN ".g_idx: input 7 belongs to group -1; 0 to 2 were expected", 28, 4},
    {"gptq-act-order", NUMBER, DOWN ".g_idx", "\x03\x00\x00\x00",
     DOWN ".g_idx: input 95 belongs to group 3; 0 to 2 were expected", 380, 4},
    {"gptq-act-order", NUMBER, DOWN ".g_idx", "\x00\x00\x00\x80",
     DOWN ".g_idx: input 0 belongs to group -2147483648", 0, 4},
    {"packed-int8", NUMBER, DOWN ".weight_shape", "\x30", DOWN ".weight_shape: expected two", 8, 1},
    {"packed-int8", NUMBER, DOWN ".weight_shape", "\xc0", "(expected [64, 96], found [64, 192])", 8,
     1},
    {"packed-int4", NUMBER, DOWN ".weight_shape", "\x30",
     DOWN ".weight_zero_point: expected [16, 3] of I32, found [8, 3]", 8, 1},
    {"packed-int4", NUMBER, DOWN ".weight_shape", "\x41", DOWN ".weight_shape: expected two", 0, 1},
    {"packed-int4", NUMBER, DOWN ".weight_shape", "\x61", DOWN ".weight_shape: expected two", 8, 1},
    {"packed-int4", NUMBER, DOWN ".weight_shape", "\x00", DOWN ".weight_shape: expected two", 8, 1},
    {"packed-int4", NUMBER, DOWN ".weight_shape", "\xff\xff\xff\xff\xff\xff\xff\xff",
     DOWN ".weight_shape: expected two", 8, 8},
};
enum { N_BROKEN = sizeof broken / sizeof *broken };

/* ---- breaking ------------------------------------------------------------------------------- */

/* Returns the length of the header, from the bytes before it. */
static uint64_t header_bytes(const struct buf *file) {
    uint64_t bytes;
    memcpy(&bytes, file->data, sizeof bytes);
    return bytes;
}

static void change_header(const char *from, const char *to) {
    struct buf file = {0};
    folder_copy_replace(WEIGHTS, from, to);
    folder_copy_read(&file, WEIGHTS);
    uint64_t bytes = header_bytes(&file) + strlen(to) - strlen(from);
    memcpy(file.data, &bytes, sizeof bytes);
    folder_copy_write(WEIGHTS, file.data, file.length);
    buf_free(&file);
}

static void change_number(const char *tensor, size_t at, const char *to, size_t n) {
    struct buf file = {0};
    unsigned long begin = 0, end = 0;
    char name[128];
    folder_copy_read(&file, WEIGHTS);
    snprintf(name, sizeof name, "\"%s\":", tensor);
    const char *entry = memmem(file.data, file.length, name, strlen(name));
    ck_assert_msg(entry != NULL, "%s is no tensor", tensor);
    entry = strstr(entry, "\"data_offsets\":[");
    ck_assert_int_eq(sscanf(entry, "\"data_offsets\":[%lu,%lu", &begin, &end), 2);
    ck_assert_uint_le(begin + at + n, end);
    memcpy(file.data + 8 + header_bytes(&file) + begin + at, to, n);
    folder_copy_write(WEIGHTS, file.data, file.length);
    buf_free(&file);
}

static enum status open_folder(const char *folder, struct err *err) {
    struct engine *engine = NULL;
    struct engine_config config = {.model = folder,
                                   .stand_in_vocabulary = true,
                                   .threads = 1,
                                   .max_num_seqs = 1,
                                   .max_num_batched_tokens = 8,
                                   .block_size = 16};
    enum status status = engine_open(&engine, &config, err);
    engine_close(engine);
    return status;
}

START_TEST(a_broken_folder_is_refused) {
    char from[FOLDER_PATH_BYTES];
    struct err err = {0};
    snprintf(from, sizeof from, VECTORS "%s", broken[_i].base);
    const char *folder = folder_copy(from);
    if (broken[_i].change == CONFIG_TEXT)
        folder_copy_replace(CONFIG, broken[_i].from, broken[_i].to);
    else if (broken[_i].change == HEADER)
        change_header(broken[_i].from, broken[_i].to);
    else
        change_number(broken[_i].from, broken[_i].at, broken[_i].to, broken[_i].n);
    uint64_t before = work_done();
    enum status status = open_folder(folder, &err);
    uint64_t work = work_done() - before;
    folder_copy_remove();
    printf("%s\n", err.message);
    ck_assert_msg(status == STATUS_BAD_FILE, "%d: %s became %s", _i, broken[_i].from,
                  broken[_i].to);
    ck_assert_msg(strncmp(err.message, folder, strlen(folder)) == 0, "%s", err.message);
    ck_assert_msg(strstr(err.message, broken[_i].words) != NULL, "\"%s\" lacks \"%s\"", err.message,
                  broken[_i].words);
    ck_assert_ptr_null(strchr(err.message, '\n'));
    ck_assert_msg(work < MOST_WORK, "%llu units of work", (unsigned long long)work);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine/broken quantised folders");
    TCase *all = tcase_create("all");
    tcase_add_loop_test(all, a_broken_folder_is_refused, 0, N_BROKEN);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
