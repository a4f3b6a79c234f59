/* How a folder is quantised: quantization_config of its config.json, or a file beside it. */
#include <stdio.h>
#include <string.h>

#include "engine/files/hf_config.h"
#include "engine/files/hf_keys.h"
#include "engine/files/tensors/mapping.h"

static enum status refuse_key(const char *key, const char *expected, const struct json *found,
                              struct err *err) {
    char text[64];
    const char *kind = !found ? "nothing" : json_type_name(found);
    if (json_is(found, JSON_STRING)) kind = key_shown(found, text);
    return err_set(err, STATUS_BAD_FILE, "quantization_config",
                   "key quantization_config.%s: %s was expected, found %s", key, expected, kind);
}

static enum status read_group_size(struct packing *p, const struct json *config, struct err *err) {
    return key_int_or(config, "group_size|q_group_size", -1, INT32_MAX, 0, &p->group_size, err);
}

static enum status read_words(struct packing *p, const struct json *config, struct err *err) {
    enum status status = key_int(config, "bits", 2, 8, &p->bits, err);
    if (!status) status = read_group_size(p, config, err);
    if (status) return status;
    if (p->bits != 4 && p->bits != 8)
        return err_set(err, STATUS_BAD_FILE, "bits",
                       "key quantization_config.bits: 4 or 8 was expected, found %d", p->bits);
    return STATUS_OK;
}

static enum status read_gptq(struct packing *p, const struct json *config, struct err *err) {
    const char *key = key_value(config, "checkpoint_format") ? "checkpoint_format" : "format";
    const struct json *format = key_value(config, key);
    enum status status = read_words(p, config, err);
    if (status) return status;
    p->zeros_less_one = !json_is_text(format, "gptq_v2");
    if (format && p->zeros_less_one && !json_is_text(format, "gptq"))
        return refuse_key(key, "\"gptq\" or \"gptq_v2\"", format, err);
    return STATUS_OK;
}

static enum status read_awq(struct packing *p, const struct json *config, struct err *err) {
    const struct json *version = key_value(config, "version");
    enum status status = key_int(config, "bits|w_bit", 4, 4, &p->bits, err);
    if (!status) status = read_group_size(p, config, err);
    if (status || !version || json_is_text(version, "gemm") || json_is_text(version, "GEMM"))
        return status;
    return refuse_key("version", "\"gemm\"", version, err);
}

/* Reads the rows and columns of a block with one scale. */
static enum status read_block_size(struct packing *p, const char *key, const struct json *sizes,
                                   struct err *err) {
    const struct json *first = json_first(sizes);
    int64_t size[2] = {0};
    if (json_is(sizes, JSON_ARRAY) && sizes->n_children == 2)
        for (int i = 0; i < 2; i++, first = first->next)
            size[i] = json_is(first, JSON_NUMBER) && first->is_integer ? first->integer : 0;
    if (size[0] < 1 || size[1] < 1 || size[0] > 65536 || size[1] > 65536)
        return refuse_key(key, "an array of two numbers from 1", sizes, err);
    p->block_rows = (int)size[0];
    p->block_columns = (int)size[1];
    return STATUS_OK;
}

/* Reads one of llm-compressor's groups of matrices. */
static enum status read_group(struct packing *p, const struct json *weights, struct err *err) {
    const struct json *blocks = key_value(weights, "block_structure");
    int bits = 0;
    enum status status = key_int(weights, "num_bits", 4, 8, &bits, err);
    if (status) return status;
    if (bits != 4 && bits != 8)
        return err_set(err, STATUS_BAD_FILE, "num_bits",
                       "key num_bits: 4 or 8 was expected, found %d", bits);
    if (!json_is_text(key_value(weights, "strategy"), "block")) return STATUS_OK;
    return read_block_size(p, "config_groups.weights.block_structure", blocks, err);
}

/* Checks the format and the settings of each group. The groups' layouts follow from their
 * tensors. */
static enum status read_compressed(struct packing *p, const struct json *config, struct err *err) {
    static const char *const formats[] = {"pack-quantized",  "int-quantized",
                                          "float-quantized", "naive-quantized",
                                          "mixed-precision", "nvfp4-pack-quantized"};
    const struct json *format = key_value(config, "format"), *sparse;
    bool known = false;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        known |= json_is_text(format, formats[i]);
    if (!known)
        return refuse_key("format", "pack-quantized, int-quantized or float-quantized", format,
                          err);
    sparse = key_value(key_value(config, "sparsity_config"), "format");
    if (sparse && !json_is_text(sparse, "dense"))
        return refuse_key("sparsity_config.format", "\"dense\"", sparse, err);
    if (json_first(key_value(config, "transform_config")))
        return refuse_key("transform_config", "none", key_value(config, "transform_config"), err);
    json_each(group, key_value(config, "config_groups")) {
        enum status status = read_group(p, key_value(group, "weights"), err);
        if (status) return status;
    }
    return STATUS_OK;
}

static enum status read_fp8(struct packing *p, const struct json *config, struct err *err) {
    const struct json *sizes = key_value(config, "weight_block_size");
    return sizes ? read_block_size(p, "weight_block_size", sizes, err) : STATUS_OK;
}

static enum status read_modelopt(struct packing *p, const struct json *config, struct err *err) {
    const struct json *algorithm = key_value(config, "quant_algo");
    p->bits = 4;
    if (json_is_text(algorithm, "NVFP4") || json_is_text(algorithm, "FP8")) return STATUS_OK;
    return refuse_key("quant_algo", "NVFP4 or FP8", algorithm, err);
}

/* The tensors show the kind of each matrix. */
static enum status read_bitsandbytes(struct packing *p, const struct json *config,
                                     struct err *err) {
    (void)config, (void)err;
    p->bits = 4;
    return STATUS_OK;
}

static enum status read_mxfp4(struct packing *p, const struct json *config, struct err *err) {
    (void)config, (void)err;
    p->bits = 4;
    return STATUS_OK;
}

/* AutoRound's folders have the parts of another method. */
static enum status read_auto_round(struct packing *p, const struct json *config, struct err *err) {
    const struct json *form = key_value(config, "packing_format");
    const struct json *kind = key_value(config, "data_type");
    bool adds_one = !form || json_is_text(form, "auto_round:auto_gptq");
    if (kind && !json_is_text(kind, "int")) return refuse_key("data_type", "\"int\"", kind, err);
    if (json_is_text(form, "auto_round:auto_awq")) {
        p->method = PACKING_AWQ;
        return read_awq(p, config, err);
    }
    if (!adds_one && !json_is_text(form, "auto_round") &&
        !json_is_text(form, "auto_round:gptqmodel"))
        return refuse_key("packing_format",
                          "auto_round:auto_gptq, auto_round:gptqmodel or auto_round:auto_awq", form,
                          err);
    enum status status = read_words(p, config, err);
    p->zeros_less_one = adds_one;
    return status;
}

/* ---- finding the method --------------------------------------------------------------------- */

enum { MAX_METHOD_BYTES = 1 << 20 };

/* Reads the file in which older quantisers state the method, if config.json does not. Its usual
 * method is `name`. */
static enum status read_beside(struct hf_config *hf, const struct json **config, const char **name,
                               struct err *err) {
    static const struct {
        const char *file, *method, *key;
    } files[] = {{"quantize_config.json", "gptq", NULL},
                 {"quant_config.json", "awq", NULL},
                 {"hf_quant_config.json", "modelopt", "quantization"}};
    for (size_t i = 0; hf->folder && i < sizeof files / sizeof *files; i++) {
        if (!is_in_folder(hf->folder, files[i].file)) continue;
        char *path = path_in(hf->folder, files[i].file);
        enum status status = hf_file_read(&hf->method, path, MAX_METHOD_BYTES, err);
        mem_free(path);
        if (status) return status;
        *config = files[i].key ? key_value(hf->method, files[i].key) : hf->method;
        *name = files[i].method;
        return STATUS_OK;
    }
    return STATUS_OK;
}

static enum status refuse_method(const struct hf_config *hf, const struct json *method,
                                 struct err *err) {
    char text[64];
    if (!method && key_value(hf->root, "quantization"))
        return err_set(err, STATUS_BAD_FILE, "quantization_config",
                       "%s: MLX has quantised this folder, and its form is not supported: use a "
                       "GGUF file of the model, or a folder that GPTQ, AWQ or llm-compressor made",
                       hf->path);
    return err_set(err, STATUS_BAD_FILE, "quantization_config",
                   "%s: key quantization_config: the method \"%s\" is not supported; gptq, awq, "
                   "auto-round, compressed-tensors, fp8, mxfp4, modelopt and bitsandbytes are",
                   hf->path, key_shown(method, text));
}

enum status hf_packing_read(struct hf_config *hf, struct err *err) {
    static const struct {
        const char *name;
        enum packing_method method;
        enum status (*read)(struct packing *, const struct json *, struct err *);
    } methods[] = {{"gptq", PACKING_GPTQ, read_gptq},
                   {"awq", PACKING_AWQ, read_awq},
                   {"auto-round", PACKING_GPTQ, read_auto_round},
                   {"intel/auto-round", PACKING_GPTQ, read_auto_round},
                   {"compressed-tensors", PACKING_COMPRESSED, read_compressed},
                   {"fp8", PACKING_FP8, read_fp8},
                   {"mxfp4", PACKING_MXFP4, read_mxfp4},
                   {"modelopt", PACKING_MODELOPT, read_modelopt},
                   {"bitsandbytes", PACKING_BITSANDBYTES, read_bitsandbytes}};
    const struct json *config = key_value(hf->text, "quantization_config");
    const char *usual = "";
    enum status status = STATUS_OK;
    if (!config) config = key_value(hf->root, "quantization_config");
    if (!config) config = key_value(hf->root, "compression_config");
    if (!config) config = key_value(hf->root, "quantization");
    if (!config) status = read_beside(hf, &config, &usual, err);
    if (status || !config) return status;
    const struct json *method = key_value(config, "quant_method");
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        bool is_meant =
            method ? json_is_text(method, methods[i].name) : strcmp(usual, methods[i].name) == 0;
        if (!is_meant) continue;
        hf->packing.method = methods[i].method;
        status = methods[i].read(&hf->packing, config, err);
        return status ? blame_file(err, status, hf->path) : STATUS_OK;
    }
    return refuse_method(hf, method, err);
}
