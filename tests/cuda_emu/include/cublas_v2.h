/* The few types of cuBLAS's interface that kernels/cuda/runtime/cublas.cu uses, with the values of
 * its documentation. The functions are looked up by name; a test provides its functions. */
#ifndef CUDA_EMU_CUBLAS_H
#define CUDA_EMU_CUBLAS_H

#include "cuda_runtime_api.h"

typedef struct cublasContext *cublasHandle_t;
enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1 };
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cudaDataType { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };

#endif
