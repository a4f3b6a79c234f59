/* DESIGN: the state that every launch checks: whether a CUDA call has failed, and whether grids may
 * begin early.
 *
 * A failed call must not end the process at once, because clients wait for answers. But ops return
 * nothing, and a kernel's fault appears in a later call. So the first failure is recorded here with
 * CUDA's description. From then on nothing is launched, and ops that copy or wait return at once,
 * so that nothing runs on missing data. Callers that wait for results check whether they are valid
 * (`failed` of the op table). Memory is still freed, and the results of those calls are ignored.
 *
 * The record belongs to the process, as its CUDA context does: after a fault every call of every
 * backend fails. It is cleared when the last backend closes. */
#include <atomic>
#include <pthread.h>

#include "kernels/cuda/runtime/runtime.cuh"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards everything except `failed` */
static std::atomic<bool> failed;
static struct {
    cudaError_t error;
    const char *what;     /* for example "a kernel's launch" */
    struct err explained; /* in its place, if its message is not empty */
    bool told;
} first;
static int n_backends;

static void note(cudaError_t error, const char *what) {
    pthread_mutex_lock(&mutex);
    if (!failed) first = {error, what, {}, false};
    failed = true;
    pthread_mutex_unlock(&mutex);
}

void cuda_fail(const struct err *why) {
    assert(why->message[0]);
    pthread_mutex_lock(&mutex);
    if (!failed) first = {cudaErrorUnknown, "", *why, false};
    failed = true;
    pthread_mutex_unlock(&mutex);
}

bool cuda_ok(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return true;
    note(error, what);
    return false;
}

void cuda_check(cudaError_t error, const char *what) {
    if (error != cudaSuccess) note(error, what);
}

bool cuda_alloc_ok(cudaError_t error) {
    if (error == cudaSuccess) return true;
    if (error != cudaErrorMemoryAllocation) note(error, "taking memory");
    cudaGetLastError(); /* the error is handled here */
    return false;
}

bool cuda_failed() {
    return failed.load(std::memory_order_relaxed);
}

static void describe(struct err *err) {
    if (first.explained.message[0] && err) *err = first.explained;
    if (first.explained.message[0]) return;
    err_set(err, STATUS_SERVER_ERROR, NULL, "The GPU has failed: %s: %s (%s).", first.what,
            cudaGetErrorString(first.error), cudaGetErrorName(first.error));
}

bool cuda_failure(struct err *err) {
    pthread_mutex_lock(&mutex);
    const bool is = failed;
    if (is) describe(err);
    if (is && err) first.told = true;
    pthread_mutex_unlock(&mutex);
    return is;
}

void cuda_failure_open() {
    pthread_mutex_lock(&mutex);
    n_backends++;
    pthread_mutex_unlock(&mutex);
}

/* Logs a failure that was never reported. */
void cuda_failure_close() {
    struct err err;
    pthread_mutex_lock(&mutex);
    assert(n_backends > 0);
    if (failed && !first.told) {
        describe(&err);
        log_line(LOG_ERROR, "%s", err.message);
        first.told = true;
    }
    if (--n_backends == 0) failed = false;
    pthread_mutex_unlock(&mutex);
}

bool early_grids;

__global__ void compiled_for_kernel() {}

void early_grids_find() {
    cudaFuncAttributes attributes = {};
    cuda_check(cudaFuncGetAttributes(&attributes, compiled_for_kernel), "looking at a kernel");
    early_grids = attributes.ptxVersion >= 90;
}

bool device_has_code() {
    cudaFuncAttributes code = {};
    const cudaError_t error = cudaFuncGetAttributes(&code, compiled_for_kernel);
    cudaGetLastError(); /* handled here, or reported again at the next launch */
    return error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction;
}

void device_log(const cudaDeviceProp *prop, int device) {
    cudaFuncAttributes code = {};
    char from[40] = "";
    cuda_check(cudaFuncGetAttributes(&code, compiled_for_kernel), "looking at a kernel");
    const bool by_driver = code.binaryVersion > code.ptxVersion;
    if (by_driver) snprintf(from, sizeof from, " from PTX of sm_%d", code.ptxVersion);
    log_line(LOG_INFO, "GPU %d: %s, sm_%d%d, runs kernels %s for sm_%d%s; %s", device, prop->name,
             prop->major, prop->minor, by_driver ? "compiled by the driver" : "built",
             code.binaryVersion, from,
             early_grids ? "grids begin early"
                         : "each grid begins after the previous one has ended");
}
