/* The table of RoPE's angles. */
#include "kernels/cuda/angles.cuh"

#include "kernels/cuda/heads.cuh"
#include "kernels/cuda/room.cuh"

size_t angles_bytes(int max_rows, int pairs) {
    return 2 * (size_t)max_rows * (size_t)pairs * sizeof(float);
}

enum status angles_take(struct angle_table *table, int max_rows, int pairs, cudaStream_t stream,
                        struct err *err) {
    static const struct room room = {"the angles of positions", "max-num-batched-tokens",
                                     "lower --max-num-batched-tokens"};
    if (pairs <= table->most_pairs) return STATUS_OK;
    cuda_must(cudaStreamSynchronize(stream), "waiting for the stream");
    angles_free(table);
    void *memory;
    const enum status status = room_device(&memory, angles_bytes(max_rows, pairs), &room, err);
    if (status) return status;
    table->cosine = (float *)memory;
    table->sine = table->cosine + (size_t)max_rows * (size_t)pairs;
    table->most_pairs = pairs;
    return STATUS_OK;
}

void angles_free(struct angle_table *table) {
    cuda_must(cudaFree(table->cosine), "freeing angles");
    *table = angle_table{};
}

void angles_make(struct angle_table *table, const struct device_step *step, const float *inv_freq,
                 int pairs, cudaStream_t stream) {
    if (table->inv_freq == inv_freq && table->pairs == pairs) return;
    assert(pairs <= table->most_pairs); /* a head's, for which there is room since kv_new */
    table->inv_freq = inv_freq;
    table->pairs = pairs;
    heads_angles(table->cosine, table->sine, step->position, inv_freq, step->M, pairs, stream);
}
