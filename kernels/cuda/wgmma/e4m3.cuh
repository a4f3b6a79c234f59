/* Products of e4m3 on sm_90a: packed fp8 weights times quantised rows (quantise.cuh), by the kernel
 * of wide.cuh with its own ring, sums and epilogue.
 *
 * Tensor cores keep fewer bits in sums of e4m3 than of other types, so a chain of products is at
 * most 128 columns long: two slabs. The order of an output's sum is
 *
 *     chain   of two slabs of a range, the last one possibly of one: wgmma after wgmma, from zero
 *     range   acc = +0, then acc = acc + chain
 *     total   +0, then total = total + acc
 *     end     total * scale of the output * scale of the row, then the epilogue
 *
 * for any number of rows: with few rows the same instructions use fewer columns. */
#ifndef PENSTOCK_CUDA_WGMMA_E4M3_CUH
#define PENSTOCK_CUDA_WGMMA_E4M3_CUH

#include "kernels/cuda/wgmma/quantise.cuh"
#include "kernels/cuda/wgmma/wide.cuh"

/* The ring of a shape holds 64 to 128 KiB of weights. */
template <int ROWS, int STAGES> struct WideE4m3 : WideShape<ROWS, E4M3_LINE, STAGES> {};

/* Loads a slab of 16 outputs as the operands of two products of 32 columns. A packed word has two
 * adjacent elements of row g and two of row g + 8; an operand's word has four of one row. */
__device__ __forceinline__ void load_e4m3(uint32_t (&a)[2][4], const uint8_t *tile, int lane) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t w[4];
        load_words<false, 4>(w, tile + (i * WARP + lane) * 16);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            a[i][2 * half] = __byte_perm(w[2 * half], w[2 * half + 1], 0x5410);
            a[i][2 * half + 1] = __byte_perm(w[2 * half], w[2 * half + 1], 0x7632);
        }
    }
}

/* chain = a slab of the consumer's tiles times the rows, both in a stage; with ADDS, chain += that.
 */
template <class S, bool ADDS>
__device__ __forceinline__ void use_e4m3_stage(float (&chain)[S::SUMS], const uint8_t *stage,
                                               const Consumer &me) {
    const uint64_t x = shared_matrix_64(stage);
    uint32_t a[2][4];
    load_e4m3(a, stage + S::X_BYTES + (me.group * (S::NB / CONSUMERS) + me.warp) * S::TILE_BYTES,
              me.lane);
    wgmma_fence();
    wgmma_e4m3<ADDS>(chain, a[0], x);
    wgmma_e4m3<true>(chain, a[1], x + STEP_BYTES / 16);
    wgmma_commit();
    wgmma_wait<0>(chain);
}

/* The same for the ring's next stage, which is then returned to the producer. */
template <class S, bool ADDS>
__device__ __forceinline__ void take_slab(float (&chain)[S::SUMS], const WideMemory<S> &memory,
                                          Turn<S> &turn, const Consumer &me) {
    mbarrier_wait(memory.full + turn.stage, turn.parity);
    use_e4m3_stage<S, ADDS>(chain, memory.ring + turn.stage * S::STAGE, me);
    __syncwarp(); /* all lanes have loaded */
    if (me.lane == 0) mbarrier_arrive(memory.empty + turn.stage);
    turn.next();
}

/* acc = the sum of a range of the piece. */
template <int ROWS, int STAGES, class T, class S>
__device__ __forceinline__ void
multiply_range(WideE4m3<ROWS, STAGES>, float (&acc)[S::SUMS], const Product<T> &p, int range,
               const WideMemory<S> &memory, Turn<S> &turn, const Consumer &me) {
    const int end = range_start(p.w.slabs, p.w.ranges, range + 1);
    float chain[S::SUMS];
#pragma unroll
    for (int i = 0; i < S::SUMS; i++) acc[i] = 0.0f;
    for (int slab = range_start(p.w.slabs, p.w.ranges, range); slab < end; slab += 2) {
        take_slab<S, false>(chain, memory, turn, me);
        if (slab + 1 < end) take_slab<S, true>(chain, memory, turn, me);
        add_sums(acc, chain);
    }
}

/* total = total * scale of the output * scale of the row. A lane has outputs g and g + 8 of a tile,
 * whose scales are adjacent, and two adjacent rows of each 8. */
template <int ROWS, int STAGES, class T, int SUMS>
__device__ __forceinline__ void scale_totals(WideE4m3<ROWS, STAGES>, float (&total)[SUMS],
                                             const WideWork<T> &work, const Piece &piece,
                                             const Consumer &me) {
    using S = WideE4m3<ROWS, STAGES>;
    const Product<T> &p = work.all.of[piece.number];
    const int place = me.group * (S::NB / CONSUMERS) + me.warp,
              wanted = piece.tile + (place >> p.pair);
    const int tile = wanted < p.w.tiles ? wanted : p.w.tiles - 1;
    const float *scales =
        reinterpret_cast<const float *>((place & p.pair) ? p.up.scales : p.w.scales);
    const Vec<float, 2> of_output = load_vec<2>(scales + tile * GEMM_TILE + me.lane / 4 * 2);
    const float *rows = work.scales + piece.row + me.lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < SUMS; i += 4) {
        const Vec<float, 2> of_row = load_vec<2>(rows + i * 2);
#pragma unroll
        for (int j = 0; j < 4; j++)
            total[i + j] = total[i + j] * of_output.v[j / 2] * of_row.v[j % 2];
    }
}

#endif
