/* Loads weights in parts of whole tiles, which are packed, or quantised and packed, as they
 * arrive. */
#include "kernels/cuda/gemm/matrix.cuh"

#include <stdlib.h>

#include "kernels/cuda/runtime/runtime.cuh"

constexpr int GEMM_TILE = 16; /* parts are whole tiles */

static enum status check_shape(enum dtype act, enum dtype type, int N, int K, enum matrix_form form,
                               struct err *err) {
    const int elements = dtype_block_elements(type);
    if (elements == 0 || N <= 0 || K <= 0 || K % elements != 0)
        return err_set(err, STATUS_BAD_FILE, NULL, "a matrix of %d rows of %d cannot be of type %d",
                       N, K, type);
    if ((form == MATRIX_FLOAT32 && act != DTYPE_F32) || (form == MATRIX_FP8 && act == DTYPE_F32))
        return err_set(err, STATUS_USAGE, "dtype",
                       "weights are kept in float32 with {dtype} float32 only");
    return STATUS_OK;
}

/* Sends rows first .. first + count and converts them to e4m3. Returns the resulting source. */
static struct gemm_source quantised(struct staging *staging, const struct gemm_source *from, int K,
                                    int count) {
    uint8_t *codes = staging->device + staging->half_bytes;
    float *scales = (float *)(codes + staging->half_bytes / 2);
    quantise_e4m3(codes, scales, from->type, from->rows, count, K, staging->stream);
    struct gemm_source made = {};
    made.fp8 = true;
    made.rows = codes;
    made.scales = scales;
    made.scale_rows = 1;
    made.scale_columns = K;
    return made;
}

/* The source of a matrix's rows: host memory, or random numbers. */
struct value_source {
    const uint8_t *rows;
    const struct random_weights *random;
};

/* Rows count as at least 8 bytes in the staging buffer, so that a scale per row and codes of half a
 * row's bytes fit after the rows. */
static enum status pack_parts(const struct gemm_weights *w, struct staging *staging,
                              enum dtype type, const struct value_source *origin, bool fp8,
                              struct err *err) {
    const size_t row_bytes = dtype_bytes(type, (size_t)w->K), room = row_bytes < 8 ? 8 : row_bytes;
    const size_t tile_bytes = GEMM_TILE * room, all_bytes = (size_t)w->tiles * tile_bytes;
    const size_t wanted = all_bytes < staging->part_bytes ? all_bytes : staging->part_bytes;
    const size_t half = wanted > tile_bytes ? wanted : tile_bytes;
    const enum status status = staging_reserve(staging, (half + 255) / 256 * 256, err);
    if (status) return status;
    const size_t at_once = staging->half_bytes / tile_bytes * GEMM_TILE;
    for (size_t first = 0; first < (size_t)w->N; first += at_once) {
        const size_t left = (size_t)w->N - first;
        const int count = (int)(left < at_once ? left : at_once);
        struct gemm_source source = {};
        source.type = type;
        const size_t from = first * row_bytes, bytes = (size_t)count * row_bytes;
        source.rows = staging->device;
        if (origin->random)
            random_rows(staging->device, origin->random, from, from + bytes, staging->stream);
        else
            source.rows = staging_send(staging, origin->rows + from, bytes);
        if (fp8) source = quantised(staging, &source, w->K, count);
        gemm_pack(w, &source, (int)first, count, staging->stream);
    }
    return STATUS_OK;
}

static enum status make(struct matrix **out, struct staging *staging, enum dtype act,
                        struct gemm_ways ways, enum dtype type, int N, int K,
                        const struct value_source *origin, enum matrix_form form, struct err *err) {
    static const struct alloc_hint weights = {
        "the next weight matrix", "model",
        "give a smaller model, or {quantization} fp8 if the file has floats"};
    enum status status = check_shape(act, type, N, K, form, err);
    if (status) return status;
    struct matrix made = {};
    struct gemm_source source = {};
    source.type = type;
    source.fp8 = form == MATRIX_FP8 && dtype_block_elements(type) == 1;
    source.cublas =
        ways.cublas && !source.fp8 && act != DTYPE_F32 && dtype_block_elements(type) == 1;
    source.e4m3 = ways.e4m3;
    source.scale_rows = 1;
    source.scale_columns = K;
    made.bytes = gemm_plan(&made.packed, act, &source, N, K);
    status = device_alloc(&made.memory, made.bytes, &weights, err);
    if (status) return status;
    gemm_place(&made.packed, made.memory);
    status = pack_parts(&made.packed, staging, type, origin, source.fp8, err);
    if (status) {
        cuda_check(cudaFree(made.memory), "freeing weights");
        return status;
    }
    *out = (struct matrix *)mem_alloc(sizeof made);
    **out = made;
    return STATUS_OK;
}

enum status matrix_alloc(struct matrix **out, struct staging *staging, enum dtype act,
                         struct gemm_ways ways, enum dtype type, int N, int K, const void *rows,
                         enum matrix_form form, struct err *err) {
    const struct value_source origin = {(const uint8_t *)rows, NULL};
    return make(out, staging, act, ways, type, N, K, &origin, form, err);
}

enum status matrix_alloc_random(struct matrix **out, struct staging *staging, enum dtype act,
                                struct gemm_ways ways, enum dtype type, int N, int K, uint64_t seed,
                                enum matrix_form form, struct err *err) {
    struct random_weights random;
    random_weights_plan(&random, type, K, seed);
    const struct value_source origin = {NULL, &random};
    return make(out, staging, act, ways, type, N, K, &origin, form, err);
}

void matrix_free(struct matrix *matrix) {
    if (!matrix) return;
    cuda_check(cudaFree(matrix->memory), "freeing weights");
    free(matrix);
}
