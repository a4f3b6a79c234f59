/* cuBLAS, loaded by dlopen. Built only if NVIDIA's header is present, for its types; otherwise
 * cublas_open fails. */
#include "kernels/cuda/runtime/cublas.cuh"

#if __has_include(<cublas_v2.h>)

#include <cublas_v2.h>
#include <dlfcn.h>
#include <pthread.h>

/* The functions in use. Their types are written out because the header overloads one of them. A
 * handle belongs to a device, and each rank has its own. */
static struct {
    cublasStatus_t (*create)(cublasHandle_t *);
    cublasStatus_t (*set_stream)(cublasHandle_t, cudaStream_t);
    cublasStatus_t (*product)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                              const void *, const void *, cudaDataType, int, const void *,
                              cudaDataType, int, const void *, void *, cudaDataType, int,
                              cublasComputeType_t, cublasGemmAlgo_t);
    bool tried;
    cublasHandle_t handle[MAX_RANKS]; /* by device; NULL: not created yet */
} library;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* ranks open it concurrently */

/* The library of the toolkit that this program was built with, or else the newest installed one. */
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

/* The handle for the calling thread's device. */
static cublasHandle_t *own_handle() {
    int device = 0;
    cuda_check(cudaGetDevice(&device), "asking which device is chosen");
    assert(device >= 0 && device < MAX_RANKS);
    return &library.handle[device];
}

static bool load() {
    if (!library.tried) {
        resolve(&library.create, "cublasCreate_v2");
        resolve(&library.set_stream, "cublasSetStream_v2");
        resolve(&library.product, "cublasGemmEx");
    }
    library.tried = true;
    return library.create && library.set_stream && library.product;
}

bool cublas_open() {
    pthread_mutex_lock(&mutex);
    cublasHandle_t *handle = own_handle();
    if (load() && !*handle && library.create(handle) != CUBLAS_STATUS_SUCCESS) *handle = nullptr;
    const bool is_open = *handle != nullptr;
    pthread_mutex_unlock(&mutex);
    return is_open;
}

/* Records a failed product as a failure of the device, with CUDA's error if there is one. */
static bool did(cublasStatus_t status, const char *what) {
    if (status == CUBLAS_STATUS_SUCCESS) return true;
    const cudaError_t cause = cudaPeekAtLastError();
    log_line(LOG_ERROR, "cuBLAS: %s failed with status %d", what, (int)status);
    return cuda_ok(cause == cudaSuccess ? cudaErrorUnknown : cause, what);
}

void cublas_product(enum dtype act, void *y, const void *x, const void *w, int M, int N, int K,
                    bool float_out, bool add, float scale, cudaStream_t stream) {
    if (M == 0 || cuda_failed()) return;
    const cublasHandle_t handle = *own_handle();
    assert(handle);
    const float before = add ? 1.0f : 0.0f;
    const cudaDataType type = act == DTYPE_F32   ? CUDA_R_32F
                              : act == DTYPE_F16 ? CUDA_R_16F
                                                 : CUDA_R_16BF;
    if (!did(library.set_stream(handle, stream), "choosing cuBLAS's stream")) return;
    /* cuBLAS uses column-major order: it sees w as [K][N] to be transposed, x as [K][M] and y as
     * [N][M]. */
    did(library.product(handle, CUBLAS_OP_T, CUBLAS_OP_N, N, M, K, &scale, w, type, K, x, type, K,
                        &before, y, float_out ? CUDA_R_32F : type, N, CUBLAS_COMPUTE_32F,
                        CUBLAS_GEMM_DEFAULT),
        "a product of cuBLAS");
}

#else

bool cublas_open() {
    return false;
}
void cublas_find_with(void *(*)(const char *)) {}
void cublas_product(enum dtype, void *, const void *, const void *, int, int, int, bool, bool,
                    float, cudaStream_t) {
    assert(!"cuBLAS was not found");
}

#endif
