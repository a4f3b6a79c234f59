/* kernels: the arithmetic of a forward pass. One table of ops, implemented by each backend.
 *
 * A `struct backend` is one device: its threads or streams, its scratch memory, its functions. A
 * `struct matrix` is a weight in the backend's layout. A `struct kv_cache` is the paged key-value
 * memory in the backend's layout. The model's forward pass is written once over `struct
 * compute_ops`. The plain C functions are the oracle of the fast ones. One thread (the engine
 * thread) calls the ops of a backend, in order; the backend divides the work among its threads.
 *
 * The same bytes. The operations of an output row and their order do not depend on M, on the
 * number of threads, or on the instruction set. The files are built with -ffp-contract=off, each
 * fma is written explicitly, and kernels/cpu/order.md defines the order. So a token's logits do
 * not depend on the other rows of the batch. The CUDA backend promises the same for its own bits,
 * unless it is opened with `allow_batch_variant_gemm`; see docs/cuda/products.md.
 *
 * Headers: dtype.h number formats; step.h the rows of a pass; ops.h the arithmetic; program.h
 * a pass as rows of ops; memory.h buffers, weights, KV cache, swap; sampling.h token sampling;
 * backend.h devices; profile.h times.
 *
 * Letters for shapes, in this folder and in all code that uses it:
 *   M rows of a step (tokens)     K inputs of a matrix           N outputs of a matrix
 *   H query heads                 G key-value heads (H % G == 0) D size of a head
 *   V vocabulary                  F hidden size of the MLP       L layers
 *   S sequences of a step         R rows that want logits        B slots of a KV block
 */
#ifndef PENSTOCK_KERNELS_H
#define PENSTOCK_KERNELS_H

#include "kernels/backend.h"
#include "kernels/dtype.h"
#include "kernels/memory.h"
#include "kernels/ops.h"
#include "kernels/profile.h"
#include "kernels/program.h"
#include "kernels/sampling.h"
#include "kernels/step.h"

#endif
