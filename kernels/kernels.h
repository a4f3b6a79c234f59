/* kernels: the arithmetic of a forward pass, over one op table with a backend behind it.
 *
 * A `struct backend` is one device: its threads or streams, its scratch, its functions. A `struct
 * matrix` is a weight in the layout that the backend likes; a `struct kv_cache` is the paged
 * key-value memory in the backend's layout. The model's forward pass is written once over `struct
 * compute_ops`; the plain C functions are the oracle of the fast ones. One thread (the engine's)
 * calls the ops of a backend, in order; a backend spreads the work.
 *
 * The same bytes. Each output row is computed by the same operations in the same order whatever M,
 * the split over threads, or the instruction set is: the file is built with -ffp-contract=off, fma
 * is written where it is meant, and kernels/cpu/order.md holds the one written order. So a token's
 * logits do not depend on what else is in the batch. The CUDA backend promises the same of its own
 * bits, unless it is opened with `allow_batch_variant_gemm`; docs/cuda/kernels.md says how.
 *
 * The chapters: dtype.h number formats; step.h the rows of a pass; ops.h the arithmetic; memory.h
 * buffers, weights, KV cache, swap; sampling.h choosing tokens; backend.h devices; profile.h times.
 *
 * Letters for shapes, here and in all code above:
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
#include "kernels/sampling.h"
#include "kernels/step.h"

#endif
