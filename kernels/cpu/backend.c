/* The CPU backend: opening and closing it, the paths that this machine can run, and the op
 * table. */
#include <cpuid.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

/* ---- paths ---------------------------------------------------------------------------------- */

static bool has_plain(void) {
    return true;
}

/* Leaf 1, bit 29 of ecx. Not every compiler's runtime knows this feature by name. */
static bool has_f16c(void) {
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx >> 29 & 1);
}

/* The compiler's runtime asks CPUID, and XGETBV whether the system saves the registers. */
static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi2") && has_f16c();
}

static bool has_avx512vnni(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}

struct choice {
    const struct path *path;
    bool (*has)(void);
};

static const struct choice choices[] = {
    {&path_avx512vnni, has_avx512vnni},
    {&path_avx2, has_avx2},
    {&path_plain, has_plain},
};

enum { N_CHOICES = sizeof choices / sizeof *choices };

const char *const *backend_cpu_paths(void) {
    static const char *names[N_CHOICES + 1];
    if (!names[0]) { /* filled alike by whoever comes first */
        int n = 0;
        for (int i = 0; i < N_CHOICES; i++)
            if (choices[i].has()) names[n++] = choices[i].path->name;
    }
    return names;
}

static const struct path *find_path(const char *name) {
    for (int i = 0; i < N_CHOICES; i++)
        if (choices[i].has() && (!name || strcmp(choices[i].path->name, name) == 0))
            return choices[i].path;
    return NULL;
}

static enum status choose_path(const struct path **out, const char *name, struct err *err) {
    const char *forced = name ? name : getenv("PENSTOCK_CPU");
    if (forced && !*forced) forced = NULL;
    *out = find_path(forced);
    if (*out) return STATUS_OK;
    char list[128] = "";
    for (const char *const *path = backend_cpu_paths(); *path; path++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "", *path);
    return err_set(err, STATUS_USAGE, "PENSTOCK_CPU",
                   "this machine has no CPU path \"%s\"; it can run: %s", forced, list);
}

/* ---- ops that are only memory --------------------------------------------------------------- */

static void *op_buffer_new(struct backend *b, size_t bytes) {
    (void)b;
    return mem_large(bytes);
}

static void op_buffer_free(struct backend *b, void *buffer, size_t bytes) {
    (void)b;
    mem_large_free(buffer, bytes);
}

static enum status op_matrix_new(struct backend *b, struct matrix **out, enum dtype type, int N,
                                 int K, const void *rows, bool as_float, struct err *err) {
    return matrix_make(out, cpu_of(b), type, N, K, rows, as_float, err);
}

static void op_matrix_free(struct backend *b, struct matrix *matrix) {
    matrix_drop(cpu_of(b), matrix);
}

static size_t op_matrix_bytes(const struct matrix *matrix) {
    return matrix->bytes;
}

static void op_logits(struct backend *b, float *y, const float *x, struct matrix *head, int R) {
    op_matmul(b, &y, x, &head, 1, R);
}

static void op_upload(struct backend *b, void *device, const void *host, size_t bytes) {
    (void)b;
    memcpy(device, host, bytes);
}

static void op_download(struct backend *b, void *host, const void *device, size_t bytes) {
    (void)b;
    memcpy(host, device, bytes);
}

struct parallel_job {
    void (*fn)(void *arg, int i);
    void *arg;
};

static void parallel_piece(void *arg, int i, int thread) {
    (void)thread;
    struct parallel_job *job = arg;
    job->fn(job->arg, i);
}

static void op_parallel(struct backend *b, void (*fn)(void *arg, int i), void *arg, int n) {
    struct parallel_job job = {fn, arg};
    pool_run(cpu_of(b)->pool, parallel_piece, &job, n);
}

static void op_close(struct backend *b) {
    struct cpu *cpu = cpu_of(b);
    assert(!cpu->slabs); /* every matrix was freed */
    pool_free(cpu->pool);
    cpu_drop_heads(cpu);
    mem_large_free(cpu->memory, cpu->memory_bytes);
    free(cpu);
}

static const struct backend_ops cpu_ops = {
    .buffer_new = op_buffer_new,
    .buffer_free = op_buffer_free,
    .matrix_new = op_matrix_new,
    .matrix_free = op_matrix_free,
    .matrix_bytes = op_matrix_bytes,
    .kv_new = op_kv_new,
    .kv_free = op_kv_free,
    .step_begin = op_step_begin,
    .embed = op_embed,
    .rmsnorm = op_rmsnorm,
    .matmul = op_matmul,
    .logits = op_logits,
    .rope = op_rope,
    .kv_write = op_kv_write,
    .attention = op_attention,
    .silu_gate = op_silu_gate,
    .add = op_add,
    .gather = op_gather,
    .upload = op_upload,
    .download = op_download,
    .parallel = op_parallel,
    .close = op_close,
};

/* ---- open and close ------------------------------------------------------------------------- */

enum status backend_cpu_open(struct backend **out, const struct backend_config *config,
                             struct err *err) {
    const struct path *path;
    enum status status = choose_path(&path, config->path, err);
    if (status != STATUS_OK) return status;
    if (config->max_rows <= 0 || config->max_k <= 0 || config->threads < 0 ||
        config->threads > MAX_THREADS)
        return err_set(err, STATUS_USAGE, NULL,
                       "a CPU backend needs rows and inputs, and 1 to %d threads", MAX_THREADS);
    struct cpu *cpu = mem_calloc(1, sizeof *cpu);
    int threads = config->threads ? config->threads : backend_cpu_threads();
    cpu->path = path;
    cpu->max_rows = config->max_rows;
    cpu->max_k = config->max_k;
    cpu->pool = pool_new(threads < MAX_THREADS ? threads : MAX_THREADS);
    cpu->head = (struct backend){&cpu_ops, "cpu", path->name, pool_threads(cpu->pool), true};
    cpu_plan_activations(cpu);
    *out = &cpu->head;
    return STATUS_OK;
}

void backend_close(struct backend *b) {
    if (b) b->ops->close(b);
}
