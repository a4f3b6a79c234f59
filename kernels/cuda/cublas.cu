/* cuBLAS by dlopen. Built only for NVIDIA's types: without their header it is never there. */
#include "kernels/cuda/cublas.cuh"

#if __has_include(<cublas_v2.h>)

#include <cublas_v2.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* The functions that are used; their types are spelled out because the header overloads one. */
static struct {
    cublasStatus_t (*create)(cublasHandle_t *);
    cublasStatus_t (*set_stream)(cublasHandle_t, cudaStream_t);
    cublasStatus_t (*product)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                              const void *, const void *, cudaDataType, int, const void *,
                              cudaDataType, int, const void *, void *, cudaDataType, int,
                              cublasComputeType_t, cublasGemmAlgo_t);
    cublasHandle_t handle;
    bool tried;
} library;

/* The library of the toolkit that this was built with, or the newest that is installed. */
static void *find_in_library(const char *name) {
    static void *handle = [] {
        for (const char *file : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
            if (void *found = dlopen(file, RTLD_NOW | RTLD_LOCAL)) return found;
        return (void *)nullptr;
    }();
    return handle ? dlsym(handle, name) : nullptr;
}
static void *(*find_function)(const char *name) = find_in_library;

void cublas_find_with(void *(*find)(const char *name)) {
    find_function = find ? find : find_in_library;
    library = {};
}

template <class Function> static void resolve(Function **function, const char *name) {
    *function = reinterpret_cast<Function *>(find_function(name));
}

bool cublas_open() {
    if (!library.tried) {
        library.tried = true;
        resolve(&library.create, "cublasCreate_v2");
        resolve(&library.set_stream, "cublasSetStream_v2");
        resolve(&library.product, "cublasGemmEx");
        bool found = library.create && library.set_stream && library.product;
        if (found && library.create(&library.handle) != CUBLAS_STATUS_SUCCESS)
            library.handle = nullptr;
    }
    return library.handle != nullptr;
}

static void must(cublasStatus_t status, const char *what) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    fprintf(stderr, "penstock: cuBLAS: %s failed with status %d\n", what, (int)status);
    abort();
}

static cudaDataType type_of(enum dtype act) {
    return act == DTYPE_F32 ? CUDA_R_32F : act == DTYPE_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

void cublas_product(enum dtype act, void *y, const void *x, const void *w, int M, int N, int K,
                    bool float_out, bool add, cudaStream_t stream) {
    assert(library.handle);
    if (M == 0) return;
    const float one = 1.0f, before = add ? 1.0f : 0.0f;
    const cudaDataType type = type_of(act);
    must(library.set_stream(library.handle, stream), "choosing a stream");
    /* cuBLAS counts by columns: to it w is [K][N] to be transposed, x is [K][M] and y is [N][M]. */
    must(library.product(library.handle, CUBLAS_OP_T, CUBLAS_OP_N, N, M, K, &one, w, type, K, x,
                         type, K, &before, y, float_out ? CUDA_R_32F : type, N, CUBLAS_COMPUTE_32F,
                         CUBLAS_GEMM_DEFAULT),
         "a product");
}

#else

bool cublas_open() {
    return false;
}
void cublas_find_with(void *(*)(const char *)) {}
void cublas_product(enum dtype, void *, const void *, const void *, int, int, int, bool, bool,
                    cudaStream_t) {
    assert(!"cuBLAS is not there");
}

#endif
