/* Joins matrices of folders whose 4-bit codes are indices into a table: MXFP4 of gpt-oss, NVFP4
 * from llm-compressor and NVIDIA's modelopt, and the 4-bit types of bitsandbytes; and the 8-bit
 * codes of bitsandbytes. The layouts are from the documentation of these projects. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/hf_config.h"
#include "engine/files/hf_keys.h"
#include "engine/files/tensors/mapping.h"

static bool is_floats(const struct weight *weight, int64_t n) {
    return weight && weight->type == DTYPE_F32 && weight->n_elements == n;
}

enum status joining_check_scales(const struct joining *j, const struct packed *p,
                                 const struct weight *scales) {
    for (int64_t i = 0; i < scales->n_elements; i++) {
        float scale = packed_scale(p, (size_t)i);
        if (!isfinite(scale))
            return err_set(j->err, STATUS_BAD_FILE, scales->name,
                           "tensor %s: number %lld is %g; finite scales were expected",
                           scales->name, (long long)i, (double)scale);
    }
    return STATUS_OK;
}

/* Reads the global scale, which scales all scales: a positive number. */
static enum status read_global(struct joining *j, const char *base, const char *suffix,
                               float *out) {
    const struct weight *global = joining_part(j, base, suffix);
    if (is_floats(global, 1)) memcpy(out, global->data, sizeof *out);
    if (is_floats(global, 1) && isfinite(*out) && *out > 0) return STATUS_OK;
    return joining_refuse(j, base, suffix, "one positive number of F32");
}

enum status join_nvfp4(struct joining *j, const char *base, const struct weight *codes) {
    enum { GROUP = 16 };
    static const float table[16] = {0,  0.5f,  1,  1.5f,  2,  3,  4,  6,
                                    -0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    bool is_modelopt = j->packing->method == PACKING_MODELOPT;
    const struct weight *scales = joining_part(j, base, ".weight_scale");
    int64_t N = codes->dim[1], K = 2 * codes->dim[0];
    if (codes->n_dims != 2 || N > INT32_MAX || K > INT32_MAX || K % GROUP != 0)
        return joining_refuse(j, base, "", "a matrix of bytes, 8 for each scale");
    if (!scales || (int)scales->type != WEIGHT_RAW_E4M3 || scales->dim[0] != K / GROUP ||
        scales->dim[1] != N || scales->dim[2] != 1)
        return joining_refuse(j, base, ".weight_scale",
                              "floats of 8 bits (F8_E4M3), one for each 16 inputs");
    struct packed p = {.layout = PACKED_TABLE,
                       .N = (int)N,
                       .K = (int)K,
                       .bits = 4,
                       .group = GROUP,
                       .n_groups = (int)(K / GROUP),
                       .codes = codes->data,
                       .scales = scales->data,
                       .scale_type = DTYPE_E4M3,
                       .scale_rows = 1,
                       .row_stride = (size_t)(K / GROUP),
                       .group_stride = 1,
                       .table = table};
    enum status status = is_modelopt ? read_global(j, base, ".weight_scale_2", &p.times)
                                     : read_global(j, base, ".weight_global_scale", &p.over);
    if (!status) status = joining_check_scales(j, &p, scales);
    return status ? status : joining_add(j, base, &p, codes);
}

/* Joins the blocks of all experts' rows, [E][N][K / 32][16], and their scales, [E][N][K / 32]. */
enum status join_mxfp4(struct joining *j, const char *base, const struct weight *blocks) {
    enum { BLOCK = 32 };
    const struct weight *scales = joining_part(j, base, "_scales");
    const int64_t *dim = blocks->dim;
    bool fits = scales && blocks->n_dims == 4 && dim[0] == BLOCK / 2 && dim[1] < INT32_MAX / BLOCK;
    for (int i = 0; fits && i < 3; i++) fits = scales->dim[i] == dim[i + 1];
    if (!fits || (int)scales->type != WEIGHT_RAW_U8 || dim[2] * dim[3] > INT32_MAX)
        return joining_refuse(
            j, base, "_blocks",
            "[experts, rows, blocks, 16] beside _scales of [experts, rows, blocks]");
    struct weight weight = {.n_dims = 3,
                            .type = DTYPE_MXFP4,
                            .dim = {dim[1] * BLOCK, dim[2], dim[3]},
                            .data = blocks->data};
    const struct packed packed = {.layout = PACKED_MXFP4,
                                  .N = (int)(dim[2] * dim[3]),
                                  .K = (int)weight.dim[0],
                                  .bits = 4,
                                  .codes = blocks->data,
                                  .scales = scales->data};
    snprintf(weight.name, sizeof weight.name, "%s", base);
    return joining_add_weight(j, &weight, &packed);
}

/* ---- bitsandbytes --------------------------------------------------------------------------- */

/* Joins rows of signed bytes. A row's scale is its largest absolute value, which the code 127
 * represents. */
static enum status join_int8(struct joining *j, const char *base, const struct weight *codes) {
    const struct weight *scales = joining_part(j, base, ".SCB");
    joining_part(j, base, ".weight_format");
    if (codes->n_dims != 2 || codes->dim[0] > INT32_MAX || codes->dim[1] > INT32_MAX)
        return joining_refuse(j, base, ".weight", "a matrix");
    if (!is_floats(scales, codes->dim[1]))
        return joining_refuse(j, base, ".SCB", "a number of F32 for each row");
    const struct packed p = {.layout = PACKED_BYTES,
                             .N = (int)codes->dim[1],
                             .K = (int)codes->dim[0],
                             .bits = 8,
                             .group = (int)codes->dim[0],
                             .n_groups = 1,
                             .codes = codes->data,
                             .scales = scales->data,
                             .scale_type = DTYPE_F32,
                             .scale_rows = 1,
                             .row_stride = 1,
                             .over = 127};
    enum status status = joining_check_scales(j, &p, scales);
    return status ? status : joining_add(j, base, &p, codes);
}

/* The quant_state of a matrix: a JSON text as bytes. */
struct table_state {
    int N, K, block, nested_block; /* numbers per scale, scales per nested scale */
    double offset;
};

static enum status read_numbers(struct table_state *s, const struct json *root, struct err *err) {
    const struct json *shape = key_value(root, "shape"), *first = json_first(shape);
    bool is_pair = json_is(shape, JSON_ARRAY) && shape->n_children == 2;
    for (int i = 0; i < 2 && is_pair; i++, first = first->next) {
        bool fits = json_is(first, JSON_NUMBER) && first->is_integer && first->integer > 0 &&
                    first->integer <= INT32_MAX;
        if (fits) *(i ? &s->K : &s->N) = (int)first->integer;
        is_pair = fits;
    }
    if (!is_pair)
        return err_set(err, STATUS_BAD_FILE, "shape", "key shape: expected two numbers from 1");
    enum status status = key_int(root, "blocksize", 2, 65536, &s->block, err);
    if (!status)
        status = key_int_or(root, "nested_blocksize", 1, 65536, 256, &s->nested_block, err);
    if (!status) status = key_number_or(root, "nested_offset", -1e6, 1e6, 0, &s->offset, err);
    return status;
}

static enum status read_state(struct joining *j, const char *base, struct table_state *s) {
    static const char *const suffixes[] = {".weight.quant_state.bitsandbytes__nf4",
                                           ".weight.quant_state.bitsandbytes__fp4"};
    const struct weight *text = NULL;
    struct json *root;
    for (int i = 0; i < 2 && !text; i++) text = joining_part(j, base, suffixes[i]);
    if (!text || (int)text->type != WEIGHT_RAW_U8)
        return joining_refuse(j, base, suffixes[0], "bytes of JSON");
    enum status status = hf_text_read(&root, text->data, text->bytes, j->err);
    if (!status) {
        status = read_numbers(s, root, j->err);
        json_free(root);
    }
    return status ? blame_file(j->err, status, text->name) : STATUS_OK;
}

/* Scales are floats, or bytes that a table with nested scales decodes. */
static enum status place_absmax(struct joining *j, const char *base, const struct table_state *s,
                                struct packed *p) {
    const struct weight *scales = joining_part(j, base, ".weight.absmax");
    const struct weight *map = joining_part(j, base, ".weight.nested_quant_map");
    const struct weight *nested = joining_part(j, base, ".weight.nested_absmax");
    int64_t n = (int64_t)p->N * p->n_groups;
    bool is_nested = scales && (int)scales->type == WEIGHT_RAW_U8 && scales->n_elements == n;
    if (!is_nested && !is_floats(scales, n))
        return joining_refuse(j, base, ".weight.absmax",
                              "a number of F32 or U8 for each block of quant_state's blocksize");
    p->scales = scales->data;
    p->scale_type = DTYPE_F32;
    if (is_nested) {
        if (!is_floats(map, 256))
            return joining_refuse(j, base, ".weight.nested_quant_map", "256 numbers of F32");
        if (!is_floats(nested, (n + s->nested_block - 1) / s->nested_block))
            return joining_refuse(j, base, ".weight.nested_absmax",
                                  "a number of F32 for each nested_blocksize scales");
        p->scale_map = map->data, p->scale_scale = nested->data;
        p->scale_block = s->nested_block, p->scale_offset = (float)s->offset;
    }
    return joining_check_scales(j, p, scales);
}

enum status join_bitsandbytes(struct joining *j, const char *base, const struct weight *codes) {
    if ((int)codes->type == WEIGHT_RAW_I8) return join_int8(j, base, codes);
    const struct weight *table = joining_part(j, base, ".weight.quant_map");
    struct table_state s = {0};
    enum status status = read_state(j, base, &s);
    if (status) return status;
    if (!is_floats(table, 16))
        return joining_refuse(j, base, ".weight.quant_map", "16 numbers of F32");
    for (int i = 0; i < 16; i++) {
        float value;
        memcpy(&value, (const char *)table->data + 4 * i, sizeof value);
        if (!isfinite(value)) return joining_refuse(j, base, ".weight.quant_map", "finite numbers");
    }
    if (s.K % s.block != 0 || s.K % 2 != 0)
        return joining_refuse(j, base, ".weight", "rows of whole blocks (quant_state's blocksize)");
    if (codes->n_elements * 2 != (int64_t)s.N * s.K)
        return joining_refuse(j, base, ".weight", "a byte for two numbers of quant_state's shape");
    struct packed p = {.layout = PACKED_TABLE,
                       .N = s.N,
                       .K = s.K,
                       .bits = 4,
                       .group = s.block,
                       .n_groups = s.K / s.block,
                       .codes = codes->data,
                       .scale_rows = 1,
                       .row_stride = (size_t)(s.K / s.block),
                       .group_stride = 1,
                       .table = table->data,
                       .high_first = true};
    status = place_absmax(j, base, &s, &p);
    return status ? status : joining_add(j, base, &p, codes);
}
