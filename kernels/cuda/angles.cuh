/* The angles of RoPE for a step's rows. */
#ifndef PENSTOCK_CUDA_ANGLES_CUH
#define PENSTOCK_CUDA_ANGLES_CUH

#include "kernels/cuda/step.cuh"

/* Made at their first use in a step, and serving all its layers. There is one table, since a model
 * has one list of frequencies; another list makes it anew. */
struct angle_table {
    const float *inv_freq; /* NULL: not made in this step */
    int pairs;
    float *cosine, *sine; /* [max_rows][pairs] */
    int most_pairs;       /* that there is room for */
};

/* Bytes of so many pairs for a step of so many rows. */
size_t angles_bytes(int max_rows, int pairs);

/* Has room for that; takes it anew where there is less. Fails with STATUS_USAGE where the device
 * has none. */
enum status angles_take(struct angle_table *table, int max_rows, int pairs, cudaStream_t stream,
                        struct err *err);
void angles_free(struct angle_table *table);

/* Makes the angles of a step's positions, if that was not done. */
void angles_make(struct angle_table *table, const struct device_step *step, const float *inv_freq,
                 int pairs, cudaStream_t stream);

#endif
