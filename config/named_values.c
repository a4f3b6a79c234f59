/* The names of settings' values, as a user writes them. */
#include <assert.h>

#include "config/config.h"

const char *value_name(const struct named_value *names, int value) {
    while (names->name && names->value != value) names++;
    assert(names->name);
    return names->name;
}

/* ---- settings with named values ------------------------------------------------------------- */

const struct named_value device_names[] = {
    {"auto", DEVICE_AUTO}, {"cpu", DEVICE_CPU}, {"cuda", DEVICE_CUDA}, {NULL, 0}};

const struct named_value compute_dtype_names[] = {{"auto", COMPUTE_AUTO},
                                                  {"bfloat16", COMPUTE_BFLOAT16},
                                                  {"float16", COMPUTE_FLOAT16},
                                                  {"float32", COMPUTE_FLOAT32},
                                                  {NULL, 0}};

/* Types to which float weights are quantised. */
#define BLOCK_TYPES                                                                                \
    {"q8_0", QUANTIZATION_Q8_0}, {"q4_0", QUANTIZATION_Q4_0}, {"q4_1", QUANTIZATION_Q4_1},         \
        {"q5_0", QUANTIZATION_Q5_0}, {"q5_1", QUANTIZATION_Q5_1}, {"q4_k", QUANTIZATION_Q4_K}, {   \
        "q6_k", QUANTIZATION_Q6_K                                                                  \
    }

const struct named_value quantization_names[] = {
    {"none", QUANTIZATION_NONE}, {"fp8", QUANTIZATION_FP8}, BLOCK_TYPES, {NULL, 0}};
const struct named_value block_type_names[] = {BLOCK_TYPES, {NULL, 0}};

const struct named_value kv_dtype_names[] = {
    {"auto", KV_DTYPE_AUTO},       {"int16", KV_DTYPE_INT16},     {"q8_0", KV_DTYPE_Q8_0},
    {"float16", KV_DTYPE_FLOAT16}, {"float32", KV_DTYPE_FLOAT32}, {"bfloat16", KV_DTYPE_BFLOAT16},
    {"fp8", KV_DTYPE_FP8},         {"fp8_e4m3", KV_DTYPE_FP8},    {NULL, 0}};

const struct named_value pooling_names[] = {{"auto", HIDDEN_NONE},
                                            {"cls", HIDDEN_FIRST},
                                            {"last", HIDDEN_LAST},
                                            {"mean", HIDDEN_ALL},
                                            {NULL, 0}};

const struct named_value load_format_names[] = {
    {"auto", LOAD_AUTO}, {"dummy", LOAD_DUMMY}, {NULL, 0}};

const struct named_value generation_config_names[] = {
    {"auto", GENERATION_CONFIG_AUTO}, {"none", GENERATION_CONFIG_NONE}, {NULL, 0}};

const struct named_value log_level_names[] = {{"debug", LOG_DEBUG},
                                              {"info", LOG_INFO},
                                              {"warning", LOG_WARNING},
                                              {"error", LOG_ERROR},
                                              {NULL, 0}};

const struct named_value log_format_names[] = {{"text", LOG_TEXT}, {"json", LOG_JSON}, {NULL, 0}};

const struct named_value grammar_file_names[] = {
    {"auto", GRAMMAR_FILE_AUTO},          {"json_object", GRAMMAR_FILE_OBJECT},
    {"json", GRAMMAR_FILE_SCHEMA},        {"regex", GRAMMAR_FILE_REGEX},
    {"choice", GRAMMAR_FILE_CHOICE},      {"grammar", GRAMMAR_FILE_GRAMMAR},
    {"structural_tag", GRAMMAR_FILE_TAG}, {NULL, 0}};
