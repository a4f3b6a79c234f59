/* The work list of attention. Rows of one sequence that stand together are taken in tiles, all
 * query heads of a key-value head at once, so that a key or value that was loaded serves up to
 * QUERIES query vectors:
 *
 *   task = (tile of rows, key-value head, part of its query heads)
 *   a task goes through the context in chunks of CHUNK positions from position 0 and
 *   merges each into its state
 *
 * When there are few tasks and long contexts, the chunks of a task are handed out one by one,
 * their parts are kept, and a second round merges them in the same order: the same operations, so
 * the same bits. */
#include <string.h>

#include "kernels/cpu/cpu.h"

enum {
    TASKS_A_THREAD = 4,       /* fewer: split the contexts */
    TINY_PRODUCTS = 32 << 10, /* multiply-adds that are not worth a hand-over */
    SPLIT_BYTES = 8 << 20,    /* parts kept between the two rounds; what needs more is not split */
};

struct attention_job {
    struct cpu *cpu;
    float *y;
    const float *q;
    const struct kv_cache *cache;
    int layer, H;
    float scale;
    int group;           /* query heads of a key-value head */
    int head_parts;      /* parts that they are cut into: 1 but for very large groups */
    int rows;            /* rows of a tile */
    int n_tasks, chunks; /* chunks: of the longest context */
    size_t part_floats;  /* of one query's part */
    float *parts;        /* split: [task][chunk][QUERIES at most `queries`][part_floats] */
    int queries;         /* of a task at most */
};

/* The queries of one task. */
struct task {
    struct attend attend;
    int row[QUERIES], head[QUERIES];
    int chunks;
};

/* First row and rows of tile `i`, counted through all sequences, and its sequence. */
static int find_tile(const struct attention_job *job, int i, int *row, int *n) {
    const int32_t *start = job->cpu->step->row_start;
    int s = 0;
    for (;; s++) {
        int tiles = (start[s + 1] - start[s] + job->rows - 1) / job->rows;
        if (i < tiles) break;
        i -= tiles;
    }
    *row = start[s] + i * job->rows;
    *n = start[s + 1] - *row < job->rows ? start[s + 1] - *row : job->rows;
    return s;
}

static int count_tasks(const struct attention_job *job) {
    const struct step *step = job->cpu->step;
    int tiles = 0;
    for (int s = 0; s < step->S; s++)
        tiles += (step->row_start[s + 1] - step->row_start[s] + job->rows - 1) / job->rows;
    return tiles * job->cache->config.G * job->head_parts;
}

static void task_make(const struct attention_job *job, struct task *task, int i) {
    const struct step *step = job->cpu->step;
    const struct kv_config *c = &job->cache->config;
    int part = i % job->head_parts, g = i / job->head_parts % c->G, first, n;
    int s = find_tile(job, i / job->head_parts / c->G, &first, &n);
    struct attend *a = &task->attend;
    a->cache = job->cache;
    a->layer = job->layer;
    a->head = g;
    a->table = step->table + (size_t)s * (size_t)step->table_stride;
    a->scale = job->scale;
    a->n = 0;
    int head_end = (part + 1) * QUERIES < job->group ? (part + 1) * QUERIES : job->group;
    for (int row = first; row < first + n; row++) {
        for (int h = part * QUERIES; h < head_end; h++, a->n++) {
            task->row[a->n] = row;
            task->head[a->n] = g * job->group + h;
            a->q[a->n] =
                job->q + ((size_t)row * (size_t)job->H + (size_t)task->head[a->n]) * (size_t)c->D;
        }
    }
    task->chunks = step->position[first + n - 1] / CHUNK + 1;
}

/* Attends to one chunk; each query's part goes to parts[query]. */
static void task_chunk(const struct attention_job *job, struct task *task, int chunk,
                       float *parts) {
    struct attend *a = &task->attend;
    a->start = chunk * CHUNK;
    for (int i = 0; i < a->n; i++) {
        int seen = job->cpu->step->position[task->row[i]] + 1 - a->start;
        a->count[i] = seen < 0 ? 0 : seen < CHUNK ? seen : CHUNK;
        a->part[i] = parts + (size_t)i * job->part_floats;
    }
    job->cpu->path->attend(a);
}

static void task_finish(const struct attention_job *job, const struct task *task,
                        const float *parts) {
    size_t D = (size_t)job->cache->config.D;
    for (int i = 0; i < task->attend.n; i++) {
        float *y = job->y + ((size_t)task->row[i] * (size_t)job->H + (size_t)task->head[i]) * D;
        job->cpu->path->finish(y, parts + (size_t)i * job->part_floats, (int)D);
    }
}

/* Merges the queries' parts of a later chunk into the parts of what came before. */
static void task_merge(const struct attention_job *job, const struct task *task, int chunk,
                       float *into, const float *parts) {
    for (int i = 0; i < task->attend.n; i++)
        if (job->cpu->step->position[task->row[i]] >= chunk * CHUNK)
            job->cpu->path->merge(into + (size_t)i * job->part_floats,
                                  parts + (size_t)i * job->part_floats, job->cache->config.D);
}

/* Floats of a thread's scratch: scores, codes of the queries and their scales, parts of a chunk,
 * parts of what came before. */
static size_t thread_floats(int D) {
    size_t padded = round_up((size_t)D, LANES), part = PART_VALUES + padded;
    return (size_t)QUERIES * (SCORE_STRIDE + padded / 2 + padded / LANES + 2 * part);
}

/* The scratch of a thread, laid out for the heads of this cache. */
static float *scratch_of(const struct attention_job *job, struct attend *a, int thread) {
    size_t padded = (size_t)job->cache->D_padded;
    a->scores = job->cpu->attention + (size_t)thread * thread_floats(job->cpu->max_d);
    a->codes = (int16_t *)(a->scores + QUERIES * SCORE_STRIDE);
    a->scales = a->scores + QUERIES * (SCORE_STRIDE + padded / 2);
    return a->scales + QUERIES * (padded / LANES);
}

static void whole_task(void *arg, int i, int thread) {
    const struct attention_job *job = arg;
    struct task task;
    task_make(job, &task, i);
    float *parts = scratch_of(job, &task.attend, thread);
    float *state = parts + QUERIES * job->part_floats;
    task_chunk(job, &task, 0, state);
    for (int chunk = 1; chunk < task.chunks; chunk++) {
        task_chunk(job, &task, chunk, parts);
        task_merge(job, &task, chunk, state, parts);
    }
    task_finish(job, &task, state);
}

static float *split_parts(const struct attention_job *job, int task, int chunk) {
    return job->parts + ((size_t)task * (size_t)job->chunks + (size_t)chunk) *
                            (size_t)job->queries * job->part_floats;
}

static void split_chunk(void *arg, int i, int thread) {
    const struct attention_job *job = arg;
    struct task task;
    task_make(job, &task, i / job->chunks);
    int chunk = i % job->chunks;
    scratch_of(job, &task.attend, thread);
    if (chunk < task.chunks)
        task_chunk(job, &task, chunk, split_parts(job, i / job->chunks, chunk));
}

static void split_merge(void *arg, int i, int thread) {
    (void)thread;
    const struct attention_job *job = arg;
    struct task task;
    task_make(job, &task, i);
    for (int chunk = 1; chunk < task.chunks; chunk++)
        task_merge(job, &task, chunk, split_parts(job, i, 0), split_parts(job, i, chunk));
    task_finish(job, &task, split_parts(job, i, 0));
}

static int longest_context(const struct step *step) {
    int longest = 0;
    for (int m = 0; m < step->M; m++)
        if (step->position[m] > longest) longest = step->position[m];
    return longest;
}

/* Few tasks over several chunks, whose parts fit. */
static bool worth_splitting(const struct attention_job *job) {
    size_t part_bytes = (size_t)job->queries * job->part_floats * sizeof(float);
    return job->cpu->head.n_threads > 1 && job->chunks > 1 &&
           job->n_tasks < TASKS_A_THREAD * job->cpu->head.n_threads &&
           (size_t)job->chunks <= SPLIT_BYTES / part_bytes / (size_t)job->n_tasks;
}

void op_attention(struct backend *b, float *y, const float *q, const struct kv_cache *cache,
                  int layer, int H, float scale) {
    struct cpu *cpu = cpu_of(b);
    const struct kv_config *c = &cache->config;
    assert(H % c->G == 0 && c->D <= cpu->max_d && layer >= 0 && layer < c->L);
    if (cpu->step->M == 0) return;
    struct attention_job job = {.cpu = cpu,
                                .y = y,
                                .q = q,
                                .cache = cache,
                                .layer = layer,
                                .H = H,
                                .scale = scale,
                                .group = H / c->G};
    job.head_parts = (job.group + QUERIES - 1) / QUERIES;
    job.rows = job.group < QUERIES ? QUERIES / job.group : 1;
    job.queries = job.group < QUERIES ? job.rows * job.group : QUERIES;
    if (cpu->step->M == cpu->step->S && job.group < QUERIES) job.queries = job.group;
    job.part_floats = PART_VALUES + (size_t)cache->D_padded;
    job.n_tasks = count_tasks(&job);
    int longest = longest_context(cpu->step);
    job.chunks = longest / CHUNK + 1;
    job.parts = cpu->attention + (size_t)cpu->head.n_threads * thread_floats(cpu->max_d);
    if (2 * (int64_t)cpu->step->M * H * c->D * (longest + 1) < TINY_PRODUCTS) {
        for (int i = 0; i < job.n_tasks; i++) whole_task(&job, i, 0);
    } else if (worth_splitting(&job)) {
        pool_run(cpu->pool, split_chunk, &job, job.n_tasks * job.chunks);
        pool_run(cpu->pool, split_merge, &job, job.n_tasks);
    } else {
        pool_run(cpu->pool, whole_task, &job, job.n_tasks);
    }
}

/* Takes scratch for heads of D, when that is more than before: angles of the rows, the threads'
 * attention. */
void cpu_plan_heads(struct cpu *cpu, int D) {
    if (D <= cpu->max_d) return;
    cpu_drop_heads(cpu);
    cpu->max_d = D;
    cpu->rope_bytes = 2 * (size_t)cpu->max_rows * ((size_t)D / 2 + 1) * sizeof(float);
    for (int i = 0; i < ROPE_TABLES; i++) {
        cpu->rope[i].cosine = mem_large(cpu->rope_bytes);
        cpu->rope[i].sine = cpu->rope[i].cosine + (size_t)cpu->max_rows * ((size_t)D / 2 + 1);
    }
    cpu->attention_bytes =
        (size_t)cpu->head.n_threads * thread_floats(D) * sizeof(float) + SPLIT_BYTES;
    cpu->attention = mem_large(cpu->attention_bytes);
}

void cpu_drop_heads(struct cpu *cpu) {
    if (cpu->max_d == 0) return;
    for (int i = 0; i < ROPE_TABLES; i++) mem_large_free(cpu->rope[i].cosine, cpu->rope_bytes);
    mem_large_free(cpu->attention, cpu->attention_bytes);
    cpu->max_d = 0;
}
