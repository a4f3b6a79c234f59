/* Launches the kernel for up to 16 rows. */
#include "kernels/cuda/gemm/skinny.cuh"
#include "kernels/cuda/runtime/orders.cuh"

/* The maximum shared memory of a launch; a row is padded to whole slabs, plus half a slab. */
constexpr size_t SKINNY_SMEM = MAX_WARPS * 2 * GEMM_GROUP * SUMS_WIDE * sizeof(float) +
                               GEMM_NORM_BYTES + GEMM_SKINNY_ROWS * (GEMM_SLAB + GEMM_SLAB / 2) * 2;
static_assert(SKINNY_SMEM <= 99 << 10, "the limit of the smallest device");

/* Products of 16-bit weights as an order of a persistent step, if a list is being built. */
template <class F, class T, int C> static bool ordered(const Products<T> &all, size_t smem) {
    if (!std::is_same_v<F, Format16>) {
        orders_refuse(MISFIT_WEIGHTS);
        return false;
    }
    if (all.of->w.K % F::RUN != 0) return false;
    const struct order_head head = {all.norm.gain ? ORDER_NORMED_PRODUCT : ORDER_PRODUCT,
                                    all.first[GEMM_MAX_JOBS],
                                    1,
                                    DTYPE_F32,
                                    all.of->w.act,
                                    C,
                                    smem};
    return orders_add(head, &all, sizeof all);
}

template <class F, class T, int C> static void skinny(const Products<T> &all, cudaStream_t stream) {
    int warps = 0;
    for (const Product<T> &p : all.of) warps = warps_of(p) > warps ? warps_of(p) : warps;
    assert(warps <= MAX_WARPS);
    const Product<T> &p = *all.of;
    size_t smem = sizeof(float) * warps * C * GEMM_GROUP * SUMS_WIDE;
    auto kernel = skinny_kernel<F, T, C, true, false>;
    if constexpr (F::ANY_K)
        if (p.w.K % F::RUN != 0) kernel = skinny_kernel<F, T, C, false, false>;
    if (all.norm.gain) {
        kernel = skinny_kernel<F, T, C, true, true>;
        smem += sizeof(T) * p.M * normed_wide(p.w.slabs);
    }
    assert(smem <= SKINNY_SMEM);
    if (ordered<F, T, C>(all, smem)) return;
    /* always the same size: see allow_smem */
    if (smem > DEFAULT_SMEM) allow_smem(kernel, SKINNY_SMEM);
    launch(kernel, dim3(all.first[GEMM_MAX_JOBS]), dim3(warps * WARP), smem, stream, all);
}

template <class T>
static void skinny_of(const struct gemm_job *jobs, int n, const void *x, const struct norm *norm,
                      int M, cudaStream_t stream) {
    Products<T> all = products_of<T>(jobs, n, x, M, 1);
    if (norm) all.norm = *norm;
    auto run = [&](auto format) {
        using F = decltype(format);
        if (M <= GEMM_GROUP)
            skinny<F, T, 1>(all, stream);
        else
            skinny<F, T, 2>(all, stream);
    };
    if (jobs->w->format == GEMM_ROWS)
        run(FormatRows());
    else
        for_format(jobs->w->format, run);
}

static_assert(NORM_WARPS <= SUMS_WIDE, "the parts of a row's squares fit into the sums");

void gemm_skinny(const struct gemm_job *jobs, int n, const void *x, const struct norm *norm, int M,
                 cudaStream_t stream) {
    static_assert(MAX_WARPS * 2 * GEMM_GROUP * SUMS_WIDE * sizeof(float) <= DEFAULT_SMEM,
                  "sums fit");
    assert(M <= GEMM_SKINNY_ROWS);
    assert(!norm || (uintptr_t)norm->gain % 16 == 0);
    if (jobs->w->act == DTYPE_F16)
        skinny_of<__half>(jobs, n, x, norm, M, stream);
    else
        skinny_of<__nv_bfloat16>(jobs, n, x, norm, M, stream);
}
