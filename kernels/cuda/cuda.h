/* kernels/cuda: the CUDA backend's inside. docs/cuda.md has the conventions and each kernel's plan.
 *
 *   device.cuh   what every kernel includes       ptx.cuh      instructions without a name in C++
 *   rows.cu      norms, gates, embedding, bias    error.cu     the end after a failed call
 *
 * Each NAME.cu has its kernels first, then the functions that launch them, which NAME.cuh declares.
 * Those are asynchronous: they queue work on the stream that they are given. Pointers are device
 * memory unless said. `act` is the type of activations: DTYPE_F32, DTYPE_F16 or DTYPE_BF16. All
 * arithmetic is in float32, and what is stored is rounded once.
 */
#ifndef PENSTOCK_CUDA_CUDA_H
#define PENSTOCK_CUDA_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include "kernels/kernels.h"
}

#endif
