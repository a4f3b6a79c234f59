/* The CPU backend: open and close, the paths of this machine, and the op table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/features.h"

/* ---- paths ---------------------------------------------------------------------------------- */

static struct {
    struct features features;
    const char *paths[MAX_PATHS + 1];
} machine;

static void read_machine(void) {
    machine.features = features_read();
    path_names(&machine.features, machine.paths);
}

const char *const *backend_cpu_paths(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_machine);
    return machine.paths;
}

/* Returns the name of the forced path, or NULL for the best one. */
static const char *path_wanted(const char *name) {
    const char *forced = name ? name : getenv("PENSTOCK_CPU");
    return forced && *forced ? forced : NULL;
}

static enum status choose_path(const struct path **out, const char *name, struct err *err) {
    const char *const *paths = backend_cpu_paths();
    const char *forced = path_wanted(name);
    *out = path_find(&machine.features, forced);
    if (*out) return STATUS_OK;
    char list[128] = "";
    for (const char *const *path = paths; *path; path++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "", *path);
    return err_set(err, STATUS_USAGE, "PENSTOCK_CPU",
                   "this machine has no CPU path \"%s\"; it can run: %s", forced, list);
}

/* Returns the path `name`, or the plain path if the machine cannot run it. */
static const struct path *path_named(const char *name) {
    backend_cpu_paths(); /* fills machine.features */
    const struct path *path = path_find(&machine.features, path_wanted(name));
    return path ? path : &path_plain;
}

const struct logit_ops *backend_cpu_logit_ops(const char *name) {
    return path_named(name)->logits;
}

const struct weight_ops *backend_cpu_weight_ops(const char *name) {
    return path_named(name)->weights;
}

const struct peak_loops *backend_cpu_peaks(const char *name) {
    return path_named(name)->peaks;
}

/* ---- ops that only copy or allocate memory -------------------------------------------------- */

static void *op_buffer_new(struct backend *b, size_t bytes) {
    (void)b;
    return mem_large(bytes);
}

static void op_buffer_free(struct backend *b, void *buffer, size_t bytes) {
    (void)b;
    mem_large_free(buffer, bytes);
}

static enum status op_matrix_new(struct backend *b, struct matrix **out, enum dtype type, int N,
                                 int K, const void *rows, enum matrix_form form, struct err *err) {
    return cpu_matrix_new(out, cpu_of(b), type, N, K, rows, form, err);
}

static enum status op_matrix_quantised(struct backend *b, struct matrix **out, enum dtype to,
                                       enum dtype from, int N, int K, const void *rows,
                                       struct file_place place, enum matrix_form form,
                                       struct err *err) {
    return cpu_matrix_quantised(out, cpu_of(b), to, from, N, K, rows, place, form, err);
}

static const void *op_matrix_data(const struct matrix *matrix, enum dtype *type, int *N, int *K) {
    *type = matrix->type;
    *N = matrix->N;
    *K = matrix->K;
    return matrix->panels;
}

static struct matrix *op_matrix_map(struct backend *b, enum dtype type, int N, int K,
                                    const void *data, size_t bytes) {
    return cpu_matrix_map(cpu_of(b), type, N, K, data, bytes);
}

static void op_matrix_free(struct backend *b, struct matrix *matrix) {
    cpu_matrix_free(cpu_of(b), matrix);
}

static size_t op_matrix_bytes(const struct matrix *matrix) {
    return matrix->bytes;
}

static void op_upload(struct backend *b, void *device, const void *host, size_t bytes) {
    (void)b;
    memcpy(device, host, bytes);
}

static void op_download(struct backend *b, void *host, const void *device, size_t bytes) {
    (void)b;
    memcpy(host, device, bytes);
}

static void op_fetch(struct backend *b, int mark, void *host, const void *device, size_t bytes) {
    assert(mark >= 0 && mark < MAX_IN_FLIGHT);
    if (bytes > 0) op_download(b, host, device, bytes);
}

/* Ops are complete when they return. */
static void op_await(struct backend *b, int mark) {
    (void)b;
    assert(mark >= 0 && mark < MAX_IN_FLIGHT);
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
    assert(!cpu->slabs); /* the caller has freed all matrices */
    pool_free(cpu->pool);
    cpu_free_packing(cpu);
    cpu_free_heads(cpu);
    cpu_free_inputs(cpu);
    cpu_free_low_rank(cpu);
    mixture_free(cpu->mixture);
    mem_free(cpu);
}

static const struct compute_ops compute_ops = {
    .step_begin = op_step_begin,
    .embed = op_embed,
    .matmul = op_matmul,
    .matmul_add = op_matmul_add,
    .mlp = op_mlp,
    .experts = op_experts,
    .norm_add = op_norm_add,
    .all_reduce = op_all_reduce,
    .logits = op_logits,
    .hidden = op_hidden,
    .rope_write = op_rope_write,
    .attention = op_attention,
    .gather = op_gather,
    .recall = op_recall,
    .spread = op_spread,
    .norm = op_norm,
    .join = op_join,
    .matmul_heads = op_matmul_heads,
    .latent_write = op_latent_write,
    .short_conv = op_short_conv,
    .delta_rule = op_delta_rule,
    .state_space = op_state_space,
};

static const struct memory_ops memory_ops = {
    .buffer_new = op_buffer_new,
    .buffer_free = op_buffer_free,
    .host_new = op_buffer_new,
    .host_free = op_buffer_free,
    .matrix_new = op_matrix_new,
    .matrix_quantised = op_matrix_quantised,
    .matrix_random = matrix_random,
    .matrix_free = op_matrix_free,
    .matrix_data = op_matrix_data,
    .matrix_map = op_matrix_map,
    .matrix_bytes = op_matrix_bytes,
    .upload = op_upload,
    .download = op_download,
    .fetch = op_fetch,
    .await = op_await,
};

static const struct cache_ops cache_ops = {
    .kv_new = op_kv_new,
    .kv_free = op_kv_free,
    .kv_touch = op_kv_touch,
    .kv_part_bytes = op_kv_part_bytes,
    .kv_part_get = op_kv_part_get,
    .kv_part_put = op_kv_part_put,
};

static const struct device_ops device_ops = {
    .parallel = op_parallel,
    .close = op_close,
};

/* ---- open and close ------------------------------------------------------------------------- */

/* Chooses the placement and the number of threads. The placement is NULL if they are not bound. */
static enum status choose_placement(struct placement **out, const struct backend_config *config,
                                    int *threads, struct err *err) {
    if (!config->affinity) return STATUS_OK;
    struct placement *placement = mem_calloc(1, sizeof *placement);
    enum status status =
        placement_choose(placement, config->affinity, config->threads, threads_of_cores, err);
    if (status) {
        mem_free(placement);
        return status;
    }
    *threads = placement->n_threads;
    *out = placement;
    return STATUS_OK;
}

enum status backend_cpu_open(struct backend **out, const struct backend_config *config,
                             struct err *err) {
    const struct path *path;
    enum status status = choose_path(&path, config->path, err);
    if (status != STATUS_OK) return status;
    if (config->max_rows <= 0 || config->max_k <= 0 || config->threads < 0 ||
        config->threads > MAX_THREADS)
        return err_set(err, STATUS_USAGE, NULL,
                       "a CPU backend needs rows and inputs, and 1 to %d threads", MAX_THREADS);
    int threads = config->threads ? config->threads : backend_cpu_threads();
    struct placement *placement = NULL;
    status = choose_placement(&placement, config, &threads, err);
    if (status) return status;
    struct cpu *cpu = mem_calloc(1, sizeof *cpu);
    cpu->path = path;
    cpu->max_rows = config->max_rows;
    cpu->max_k = config->max_k;
    cpu->group = config->group;
    cpu->rank = config->rank;
    cpu->pool = pool_new(threads, placement);
    cpu->head = (struct backend){.compute = &compute_ops,
                                 .memory = &memory_ops,
                                 .cache = &cache_ops,
                                 .device = &device_ops,
                                 .name = "cpu",
                                 .path = path->name,
                                 .n_threads = pool_threads(cpu->pool),
                                 .host_memory = true,
                                 .in_flight = 1,
                                 .row_quantum = 16};
    cpu_plan_inputs(cpu);
    cpu_plan_low_rank(cpu, config->max_adapter_rank);
    cpu->mixture = mixture_new(&config->experts, cpu->max_rows);
    *out = &cpu->head;
    return STATUS_OK;
}

void backend_close(struct backend *b) {
    if (b) b->device->close(b);
}
