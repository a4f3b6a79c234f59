/* DESIGN: the matrices of quantised folders.
 *
 * A folder from GPTQ, AWQ, llm-compressor or an fp8 converter has several tensors per matrix:
 * codes, scales, and sometimes zero points and the group of each input. They are joined into one
 * weight with the matrix's name, so the rest of the engine handles one kind of tensor. Its rows are
 * unpacked when they are loaded (engine/files/tensors/packed.c). Everything that unpacking relies
 * on is checked here: that shapes fit each other, that scales are finite, that groups exist.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/hf_config.h"

/* ---- joining -------------------------------------------------------------------------------- */

const struct weight *joining_part(struct joining *j, const char *base, const char *suffix) {
    char name[WEIGHT_MAX_NAME + 1];
    size_t begin = strlen(base), end = strlen(suffix);
    if (begin + end > WEIGHT_MAX_NAME) return NULL;
    memcpy(name, base, begin);
    memcpy(name + begin, suffix, end + 1);
    const struct weight *part = weights_lookup(j->from, name);
    if (part) j->used[part - j->from->tensor] = true;
    return part;
}

enum status joining_refuse(const struct joining *j, const char *base, const char *suffix,
                           const char *expected) {
    return err_set(j->err, STATUS_BAD_FILE, base, "tensor %s%s: expected %s", base, suffix,
                   expected);
}

/* Does a part exist, with that type (0: any float) and `rows` rows of `columns`? */
static enum status check_part(const struct joining *j, const char *base, const char *suffix,
                              const struct weight *part, int type, int64_t rows, int64_t columns) {
    char expected[160];
    const char *name = type == WEIGHT_RAW_I32 ? "I32" : "F16, BF16 or F32";
    if (part && part->dim[0] == columns && part->dim[1] == rows && part->dim[2] == 1 &&
        (type ? (int)part->type == type : dtype_block_elements((int)part->type) == 1))
        return STATUS_OK;
    int n = snprintf(expected, sizeof expected, "[%lld, %lld] of %s, found ", (long long)rows,
                     (long long)columns, name);
    if (part)
        snprintf(expected + n, sizeof expected - (size_t)n, "[%lld, %lld] of %s",
                 (long long)part->dim[1], (long long)part->dim[0],
                 (int)part->type == WEIGHT_RAW_I32       ? "I32"
                 : dtype_block_elements((int)part->type) ? "floats"
                                                         : "other integers");
    else
        snprintf(expected + n, sizeof expected - (size_t)n, "none");
    return joining_refuse(j, base, suffix, expected);
}

static enum status check_scales(const struct joining *j, const struct weight *scales) {
    const struct packed p = {.scales = scales->data, .scale_type = scales->type};
    return joining_check_scales(j, &p, scales);
}

/* Checks that the group of each input exists. */
static enum status check_groups(const struct joining *j, const struct packed *p,
                                const struct weight *groups) {
    for (int k = 0; k < p->K; k++) {
        int32_t group = packed_group(p, k);
        if (group < 0 || group >= p->n_groups)
            return err_set(j->err, STATUS_BAD_FILE, groups->name,
                           "tensor %s: input %d belongs to group %d; 0 to %d were expected",
                           groups->name, k, (int)group, p->n_groups - 1);
    }
    return STATUS_OK;
}

enum status joining_add_weight(struct joining *j, struct weight *weight, const struct packed *p) {
    enum status status = weight_measure_type(weight, j->err);
    if (status) return status;
    assert(!weight->packed);
    weight->packed = mem_alloc(sizeof *p);
    *weight->packed = *p;
    status = weights_add(j->to, weight, j->err);
    if (status) mem_free(weight->packed);
    return status;
}

enum status joining_add(struct joining *j, const char *base, const struct packed *p,
                        const struct weight *codes) {
    struct weight weight = {.n_dims = 2, .dim = {p->K, p->N}, .data = codes->data};
    if (p->N < 1 || p->K < 1) return joining_refuse(j, base, "", "at least one row and column");
    snprintf(weight.name, sizeof weight.name, "%s.weight", base);
    weight.type = packed_type(p);
    weight.in_16_bits = weight.type == DTYPE_F32;
    return joining_add_weight(j, &weight, p);
}

/* The parts of a matrix whose codes are in columns of outputs. */
struct columns {
    const struct weight *codes, *scales, *zeros, *groups;
    int64_t N, K, n_groups;
};

/* Do the scales have the groups of config.json? */
static enum status check_group_size(const struct joining *j, const struct columns *c) {
    int size = j->packing->group_size;
    int64_t expected = size > 0 ? (c->K + size - 1) / size : 1;
    char what[48] = "one group";
    if (size == 0 || c->n_groups == expected) return STATUS_OK;
    if (size > 0) snprintf(what, sizeof what, "groups of %d inputs", size);
    return err_set(j->err, STATUS_BAD_FILE, c->scales->name,
                   "tensor %s: expected %s (quantization_config.group_size), found %lld for %lld "
                   "inputs",
                   c->scales->name, what, (long long)c->n_groups, (long long)c->K);
}

static enum status check_columns(const struct joining *j, const char *base,
                                 const struct columns *c) {
    int per = 32 / j->packing->bits;
    if (!c->scales) return joining_refuse(j, base, ".scales", "scales, found none");
    if (c->K > INT32_MAX || c->N > INT32_MAX || (int)c->codes->type != WEIGHT_RAW_I32)
        return joining_refuse(j, base, ".qweight", "a matrix of I32");
    if (c->n_groups < 1 || c->K % c->n_groups != 0)
        return err_set(j->err, STATUS_BAD_FILE, c->scales->name,
                       "tensor %s: %lld groups do not divide %lld inputs", c->scales->name,
                       (long long)c->n_groups, (long long)c->K);
    if (c->N % per != 0) return joining_refuse(j, base, ".qzeros", "whole words a row");
    enum status status = check_part(j, base, ".scales", c->scales, 0, c->n_groups, c->N);
    if (!status)
        status = check_part(j, base, ".qzeros", c->zeros, WEIGHT_RAW_I32, c->n_groups, c->N / per);
    if (!status && c->groups)
        status = check_part(j, base, ".g_idx", c->groups, WEIGHT_RAW_I32, 1, c->K);
    if (!status) status = check_group_size(j, c);
    return status ? status : check_scales(j, c->scales);
}

/* Joins qweight, qzeros and scales, all [inputs][outputs]. GPTQ packs inputs into words, AWQ
 * outputs. */
static enum status join_columns(struct joining *j, const char *base, const struct weight *codes) {
    bool awq = j->packing->method == PACKING_AWQ;
    int bits = j->packing->bits, per = 32 / bits;
    struct columns c = {codes,
                        joining_part(j, base, ".scales"),
                        joining_part(j, base, ".qzeros"),
                        awq ? NULL : joining_part(j, base, ".g_idx"),
                        codes->dim[0] * (awq ? per : 1),
                        codes->dim[1] * (awq ? 1 : per),
                        0};
    if (c.scales) c.n_groups = c.scales->dim[1];
    enum status status = check_columns(j, base, &c);
    if (status) return status;
    assert(c.n_groups > 0 && c.K % c.n_groups == 0);
    struct packed p = {.layout = awq ? PACKED_AWQ : PACKED_GPTQ,
                       .N = (int)c.N,
                       .K = (int)c.K,
                       .bits = bits,
                       .group = (int)(c.K / c.n_groups),
                       .n_groups = (int)c.n_groups,
                       .zero_add = !awq && j->packing->zeros_less_one,
                       .codes = codes->data,
                       .zeros = c.zeros->data,
                       .groups = c.groups ? c.groups->data : NULL,
                       .scales = c.scales->data,
                       .scale_type = c.scales->type,
                       .scale_rows = 1,
                       .row_stride = 1,
                       .group_stride = (size_t)c.N};
    if (c.groups) status = check_groups(j, &p, c.groups);
    return status ? status : joining_add(j, base, &p, codes);
}

static int64_t words_of(int64_t n, int bits) {
    return n / (32 / bits) + (n % (32 / bits) != 0);
}

/* Reads the outputs and inputs of packed words, whose rows may end with padding, and the bits of a
 * code: codes of 8 bits need twice as many words as codes of 4. */
static enum status read_packed_shape(const struct joining *j, const char *base,
                                     const struct weight *shape, struct packed *p,
                                     const struct weight *codes) {
    int64_t dim[2] = {0};
    bool is_pair = shape && shape->n_elements == 2;
    int type = shape ? (int)shape->type : 0;
    is_pair = is_pair && (type == WEIGHT_RAW_I64 || type == WEIGHT_RAW_I32);
    for (int i = 0; is_pair && i < 2; i++) {
        int32_t small[2];
        if (type == WEIGHT_RAW_I64) memcpy(dim, shape->data, sizeof dim);
        if (type == WEIGHT_RAW_I32) memcpy(small, shape->data, sizeof small), dim[i] = small[i];
    }
    p->bits = words_of(dim[1], 4) == codes->dim[0] ? 4 : 8;
    if (!is_pair || dim[0] != codes->dim[1] || dim[1] < 1 || dim[1] > INT32_MAX ||
        words_of(dim[1], p->bits) != codes->dim[0])
        return joining_refuse(j, base, ".weight_shape",
                              "two numbers, the rows and columns of weight_packed");
    p->N = (int)dim[0];
    p->K = (int)dim[1];
    return STATUS_OK;
}

/* Are the scales powers of two, each stored as its exponent? */
static bool is_exponents(const struct weight *scales) {
    return (int)scales->type == WEIGHT_RAW_E8M0;
}

/* Reads the shape of a matrix's scales: one for all, one per row, one per row and group, or one per
 * block. */
static enum status place_scales(const struct joining *j, const char *base,
                                const struct weight *scales, struct packed *p) {
    const struct packing *packing = j->packing;
    int64_t rows = scales->dim[1], columns = scales->dim[0];
    if (columns == p->N && rows == 1) rows = p->N, columns = 1; /* a vector */
    bool blocks = p->layout == PACKED_E4M3 && packing->block_rows > 0 && rows * columns > 1;
    if (!blocks && (columns < 1 || p->K % columns != 0))
        return err_set(j->err, STATUS_BAD_FILE, scales->name,
                       "tensor %s: %lld groups do not divide %d inputs", scales->name,
                       (long long)columns, p->K);
    p->scale_rows = blocks ? packing->block_rows : rows == 1 ? p->N : 1;
    p->group = blocks ? packing->block_columns : (int)(p->K / columns);
    p->n_groups = blocks ? (int)(((int64_t)p->K + p->group - 1) / p->group) : (int)columns;
    p->scales = scales->data;
    p->scale_type = scales->type;
    p->row_stride = (size_t)columns;
    p->group_stride = 1;
    int64_t rows_expected = ((int64_t)p->N + p->scale_rows - 1) / p->scale_rows;
    bool fits = rows == rows_expected && columns == p->n_groups && scales->dim[2] == 1;
    bool is_scale = dtype_block_elements((int)scales->type) == 1 || is_exponents(scales);
    if (!fits || !is_scale)
        return check_part(j, base, scales->name + strlen(base), scales, 0, rows_expected,
                          p->n_groups);
    return check_scales(j, scales);
}

/* Joins codes in rows of outputs: llm-compressor's words or bytes, or floats of 8 bits. */
static enum status join_rows(struct joining *j, const char *base, const struct weight *codes,
                             enum packed_layout layout) {
    bool words = layout == PACKED_WORDS;
    const struct weight *scales = joining_part(j, base, ".weight_scale");
    const struct weight *zeros = joining_part(j, base, ".weight_zero_point");
    const struct weight *groups = joining_part(j, base, ".weight_g_idx");
    const struct weight *shape = words ? joining_part(j, base, ".weight_shape") : NULL;
    struct packed p = {.layout = layout,
                       .N = (int)codes->dim[1],
                       .K = (int)codes->dim[0],
                       .bits = 8,
                       .codes = codes->data,
                       .zeros = zeros ? zeros->data : NULL,
                       .groups = groups ? groups->data : NULL};
    if (!scales) scales = joining_part(j, base, ".weight_scale_inv");
    if (!scales) return joining_refuse(j, base, ".weight_scale", "scales, found none");
    if (zeros && !words)
        return joining_refuse(j, base, ".weight_zero_point", "none beside codes of 8 bits");
    enum status status = words ? read_packed_shape(j, base, shape, &p, codes) : STATUS_OK;
    if (!status) status = place_scales(j, base, scales, &p);
    if (!status && zeros)
        status = check_part(j, base, ".weight_zero_point", zeros, WEIGHT_RAW_I32,
                            words_of(p.N, p.bits), p.n_groups);
    if (!status && groups)
        status = check_part(j, base, ".weight_g_idx", groups, WEIGHT_RAW_I32, 1, p.K);
    if (!status && groups) status = check_groups(j, &p, groups);
    return status ? status : joining_add(j, base, &p, codes);
}

/* Returns how many blocks of `size` (0: one block) `n` rows or columns have; 0: the
 * last block is not whole. */
static int64_t whole_blocks(int64_t n, int size) {
    if (size == 0 || n < size) return 1;
    return n % size == 0 ? n / size : 0;
}

/* Reads the grid of scales of an expert's matrix: *rows by *columns. Returns false if the scales do
 * not fit the codes [E][N][K]. */
static bool read_grid(const struct packing *packing, const struct weight *codes,
                      const struct weight *scales, int64_t *rows, int64_t *columns) {
    const int64_t K = codes->dim[0], N = codes->dim[1], E = codes->dim[2];
    *rows = whole_blocks(N, packing->block_rows);
    *columns = whole_blocks(K, packing->block_columns);
    if (!scales || dtype_block_elements((int)scales->type) != 1) return false;
    if (packing->block_rows == 0 && scales->n_dims == 3)
        *rows = scales->dim[1], *columns = scales->dim[0];
    if (*rows == 0 || *columns == 0 || N % *rows != 0 || K % *columns != 0) return false;
    const bool is_grid = scales->n_dims == 3 && scales->dim[2] == E && scales->dim[0] == *columns;
    const bool is_list = scales->n_dims < 3 && *rows * *columns == 1; /* one per expert */
    if (!is_grid && !is_list) return false;
    return scales->n_elements == E * *rows * *columns && N * E <= INT32_MAX;
}

/* Joins stacked experts of float8, [E][N][K], and `name`_scale_inv: one scale per expert, [E] or
 * [E][1][1], or one per block, [E][rows][columns]. As in transformers, the grid of scales divides
 * an expert's rows and columns evenly. An expert's gate and up are rows of one matrix. */
static enum status join_stacked(struct joining *j, const struct weight *codes) {
    const struct weight *scales = joining_part(j, codes->name, "_scale_inv");
    const int64_t K = codes->dim[0], N = codes->dim[1], E = codes->dim[2];
    int64_t rows, columns;
    if (!read_grid(j->packing, codes, scales, &rows, &columns))
        return joining_refuse(j, codes->name, "_scale_inv",
                              "floats, one for each expert or for each block of its rows and "
                              "columns, which must be whole blocks");
    assert(rows * columns * E == scales->n_elements);
    const struct packed p = {.layout = PACKED_E4M3,
                             .N = (int)(N * E),
                             .K = (int)K,
                             .bits = 8,
                             .group = (int)(K / columns),
                             .n_groups = (int)columns,
                             .codes = codes->data,
                             .scales = scales->data,
                             .scale_type = scales->type,
                             .scale_rows = (int)(N / rows),
                             .row_stride = (size_t)columns,
                             .group_stride = 1};
    struct weight weight = {.n_dims = 3, .dim = {K, N, E}, .data = codes->data};
    snprintf(weight.name, sizeof weight.name, "%s", codes->name);
    weight.type = packed_type(&p);
    weight.in_16_bits = true;
    enum status status = check_scales(j, scales);
    return status ? status : joining_add_weight(j, &weight, &p);
}

/* Returns the name without `suffix`, if it ends with it. */
static bool base_of(char base[WEIGHT_MAX_NAME + 1], const char *name, const char *suffix) {
    size_t n = strlen(name), end = strlen(suffix);
    if (n <= end || strcmp(name + n - end, suffix) != 0) return false;
    assert(n - end <= WEIGHT_MAX_NAME);
    memcpy(base, name, n - end);
    base[n - end] = 0;
    return true;
}

/* Joins the weight whose codes are tensor i, if the tensor has codes. */
static enum status join_tensor(struct joining *j, int i) {
    const struct weight *tensor = &j->from->tensor[i];
    enum packing_method method = j->packing->method;
    bool columns = method == PACKING_GPTQ || method == PACKING_AWQ;
    char base[WEIGHT_MAX_NAME + 1];
    int type = (int)tensor->type;
    enum packed_layout layout = PACKED_WORDS;
    bool is_codes = columns && base_of(base, tensor->name, ".qweight");
    if (method == PACKING_MXFP4) {
        if (type != WEIGHT_RAW_U8 || !base_of(base, tensor->name, "_blocks")) return STATUS_OK;
        j->used[i] = true;
        return join_mxfp4(j, base, tensor);
    }
    if (type == WEIGHT_RAW_U8 && method == PACKING_COMPRESSED &&
        base_of(base, tensor->name, ".weight_packed"))
        return j->used[i] = true, join_nvfp4(j, base, tensor);
    if (type == WEIGHT_RAW_U8 && method == PACKING_MODELOPT &&
        base_of(base, tensor->name, ".weight"))
        return j->used[i] = true, join_nvfp4(j, base, tensor);
    if (method == PACKING_BITSANDBYTES && (type == WEIGHT_RAW_U8 || type == WEIGHT_RAW_I8)) {
        if (!base_of(base, tensor->name, ".weight")) return STATUS_OK;
        return j->used[i] = true, join_bitsandbytes(j, base, tensor);
    }
    if (method == PACKING_COMPRESSED)
        is_codes = base_of(base, tensor->name, ".weight_packed") && type == WEIGHT_RAW_I32;
    if (!is_codes && !columns && base_of(base, tensor->name, ".weight")) {
        layout = type == WEIGHT_RAW_E4M3 ? PACKED_E4M3 : PACKED_BYTES;
        is_codes = type == WEIGHT_RAW_E4M3 || (type == WEIGHT_RAW_I8 && method != PACKING_FP8);
    }
    if (type == WEIGHT_RAW_E4M3 && tensor->n_dims == 3)
        return j->used[i] = true, join_stacked(j, tensor);
    if (!is_codes) return STATUS_OK;
    j->used[i] = true;
    if (tensor->n_dims != 2) return joining_refuse(j, tensor->name, "", "a matrix");
    return columns ? join_columns(j, base, tensor) : join_rows(j, base, tensor, layout);
}

/* Is it a scale of activations or of a cache? They are not used: inputs of products are not rounded
 * to float8, and the engine computes the scales of a cache. transformers also ignores static scales
 * of activations when it dequantises a folder. */
static bool is_of_inputs(const char *name) {
    static const char *const ends[] = {
        ".input_scale",      ".input_global_scale", ".input_zero_point", ".output_scale",
        ".activation_scale", "_activation_scale",   ".k_scale",          ".v_scale",
        ".q_scale"};
    char base[WEIGHT_MAX_NAME + 1];
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (base_of(base, name, ends[i])) return true;
    return false;
}

enum status hf_packing_join(struct hf_config *hf, struct err *err) {
    struct weights to, *from = &hf->weights;
    if (hf->packing.method == PACKING_NONE) return STATUS_OK;
    weights_init(&to, (size_t)from->n);
    struct joining j = {&hf->packing, from, &to, mem_calloc((size_t)from->n + 1, sizeof *j.used),
                        err};
    enum status status = STATUS_OK;
    int n_of_inputs = 0;
    for (int i = 0; i < from->n && !status; i++) status = join_tensor(&j, i);
    for (int i = 0; i < from->n && !status; i++) {
        const struct weight *tensor = &from->tensor[i];
        if (j.used[i]) continue;
        if (is_of_inputs(tensor->name)) {
            n_of_inputs++;
            continue;
        }
        status = dtype_block_elements((int)tensor->type) == 1
                     ? weights_add(&to, tensor, err)
                     : err_set(err, STATUS_BAD_FILE, tensor->name,
                               "tensor %s holds integers, but does not belong to a matrix of the "
                               "quantization_config method",
                               tensor->name);
    }
    if (!status && n_of_inputs > 0)
        log_line(LOG_INFO,
                 "%d tensors are scales of activations or of a cache, which the engine computes "
                 "itself, and are not read",
                 n_of_inputs);
    mem_free(j.used);
    to.n_pages = from->n_pages;
    to.pages = from->pages;
    from->pages = NULL;
    weights_free(from);
    *from = to;
    return status;
}
