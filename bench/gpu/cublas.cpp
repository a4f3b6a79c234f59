/* cuBLAS in its fastest configuration, with a workspace of 32 MiB, which its authors recommend on
 * Hopper. It is loaded at run time, because a program linked with it cannot start without it. */
#include "bench/gpu/times.h"

#include <cublas_v2.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static struct {
    cublasStatus_t (*create)(cublasHandle_t *);
    cublasStatus_t (*set_stream)(cublasHandle_t, cudaStream_t);
    cublasStatus_t (*set_workspace)(cublasHandle_t, void *, size_t);
    cublasStatus_t (*product)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                              const void *, const void *, cudaDataType, int, const void *,
                              cudaDataType, int, const void *, void *, cudaDataType, int,
                              cublasComputeType_t, cublasGemmAlgo_t);
    cublasHandle_t handle;
} library;

template <class Function> static bool find(void *file, Function **function, const char *name) {
    *function = reinterpret_cast<Function *>(dlsym(file, name));
    return *function;
}

/* The toolkit may be outside the loader's search path. */
static void *open_library() {
    for (const char *name : {"libcublas.so.13", "/usr/local/cuda/lib64/libcublas.so.13",
                             "libcublas.so.12", "/usr/local/cuda/lib64/libcublas.so"})
        if (void *file = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return file;
    fprintf(stderr, "gpu_times: no cuBLAS: %s\n", dlerror());
    return nullptr;
}

static bool open_cublas() {
    const size_t WORKSPACE = 32 << 20;
    void *file = open_library(), *workspace = nullptr;
    if (!file || !find(file, &library.create, "cublasCreate_v2") ||
        !find(file, &library.set_stream, "cublasSetStream_v2") ||
        !find(file, &library.set_workspace, "cublasSetWorkspace_v2") ||
        !find(file, &library.product, "cublasGemmEx"))
        return false;
    return library.create(&library.handle) == CUBLAS_STATUS_SUCCESS &&
           library.set_stream(library.handle, the_stream()) == CUBLAS_STATUS_SUCCESS &&
           cudaMalloc(&workspace, WORKSPACE) == cudaSuccess &&
           library.set_workspace(library.handle, workspace, WORKSPACE) == CUBLAS_STATUS_SUCCESS;
}

bool cublas_ready() {
    static const bool ready = open_cublas();
    return ready;
}

void cublas_run(void *y, const void *x, const void *w, int M, int N, int K, bool float_out) {
    const float one = 1.0f, zero = 0.0f;
    const cublasStatus_t status =
        library.product(library.handle, CUBLAS_OP_T, CUBLAS_OP_N, N, M, K, &one, w, CUDA_R_16BF, K,
                        x, CUDA_R_16BF, K, &zero, y, float_out ? CUDA_R_32F : CUDA_R_16BF, N,
                        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    if (status == CUBLAS_STATUS_SUCCESS) return;
    fprintf(stderr, "gpu_times: cuBLAS failed with status %d at %d x %d x %d\n", (int)status, M, N,
            K);
    exit(1);
}
