/* The work list of attention. Adjacent rows of a sequence form tiles. A task processes a tile for
 * all query heads of a key-value head, so that each loaded key or value serves up to QUERIES query
 * vectors:
 *
 *   task = (tile of rows, key-value head, part of its query heads)
 *   A task processes the context in chunks of CHUNK positions, aligned to CHUNK. The result of a
 *   query's first chunk is its state; the results of later chunks are merged into it.
 *
 * With a window, a task begins at the first chunk that its first row sees, and reads no block
 * before that row's window. If rows see both ways, it ends at the last chunk that its last row
 * sees.
 *
 * In a step with prompts over long contexts, a thread takes several tasks at once and processes
 * each chunk for all of them, because a head's keys and values do not fit in the second cache. With
 * 128 rows after 32,768 positions (heads of 64, two threads of a Zen 5) attention is 1.7 times as
 * fast.
 *
 * If there are few tasks and long contexts, the chunks of a task are distributed among the threads,
 * their parts are kept, and a second round merges them. The operations and their order are the
 * same, so the bits are too. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

enum {
    TASKS_A_THREAD = 4,       /* with fewer, contexts are split */
    TASKS_TOGETHER = 8,       /* limit of the tasks that a thread takes at once */
    LONG_CHUNKS = 8,          /* with more, it takes several */
    TINY_PRODUCTS = 32 << 10, /* multiply-adds not worth a hand-over */
    /* limit of the parts kept between the two rounds; larger jobs are not split */
    SPLIT_BYTES = 8 << 20,
};

struct attention_job {
    struct cpu *cpu;
    float *y;
    const float *q;
    const struct kv_kind *kv;
    int place; /* index of the layer within its kind */
    const struct attention *attention;
    int group;           /* query heads per key-value head */
    int head_parts;      /* parts of these heads: 1 except for very large groups */
    int rows;            /* rows per tile */
    int n_tasks, chunks; /* chunks: the maximum over all tasks */
    int together;        /* tasks that a thread takes at once */
    size_t part_floats;  /* size of one query's part */
    float *parts;        /* if split: [task][chunk][up to `queries`][part_floats] */
    int queries;         /* maximum of a task */
    int gated_rows;      /* rows of a piece of apply_gates */
};

/* The queries of one task. */
struct task {
    struct attend attend;
    int row[QUERIES], head[QUERIES];
    int first_chunk[QUERIES]; /* the first chunk that each query sees */
    int last[QUERIES];        /* the last position that it sees */
    float *state[QUERIES];    /* merged parts of each query's chunks so far */
    int begin, end;           /* the chunks that any query sees */
};

/* The first position that a row sees. */
static int first_seen(const struct attention_job *job, int row) {
    int position = job->cpu->step->position[row], window = job->attention->window;
    return window > 0 && window <= position ? position - window + 1 : 0;
}

/* The last position that a row of sequence s sees. */
static int last_seen(const struct attention_job *job, int s, int row) {
    const struct step *step = job->cpu->step;
    int position = step->position[row], window = job->attention->window;
    if (!job->attention->both_ways) return position;
    int end = step->position[step->row_start[s + 1] - 1];
    return window > 0 && window <= end - position ? position + window - 1 : end;
}

/* The rows and heads of a task. */
struct place {
    int s, row, n; /* a sequence, and the rows row..row + n - 1 of it */
    int g, part;   /* a key-value head, and a part of its query heads */
};

/* The tiles of a sequence. */
static int tiles_of_sequence(const struct attention_job *job, int s) {
    const int32_t *start = job->cpu->step->row_start;
    return (start[s + 1] - start[s] + job->rows - 1) / job->rows;
}

/* Finds task i. The tiles of a sequence follow each other for each head, so that the head's keys
 * and values stay in the second cache. */
static struct place find_task(const struct attention_job *job, int i) {
    const int32_t *start = job->cpu->step->row_start;
    const int heads = job->kv->G * job->head_parts;
    int s = 0, tiles;
    for (;; s++) {
        assert(s < job->cpu->step->S);
        tiles = tiles_of_sequence(job, s);
        if (i < tiles * heads) break;
        i -= tiles * heads;
    }
    struct place at = {.s = s, .row = start[s] + i % tiles * job->rows};
    at.n = start[s + 1] - at.row < job->rows ? start[s + 1] - at.row : job->rows;
    at.g = i / tiles / job->head_parts;
    at.part = i / tiles % job->head_parts;
    return at;
}

/* ---- pieces: the tasks that a thread takes at once ------------------------------------------ */

/* The tasks of a sequence that read the same key-value head. A piece has tasks of one such group:
 * others would share no keys, and the tasks of a long decode row would end up on one thread. */
static int group_tasks(const struct attention_job *job, int s) {
    return tiles_of_sequence(job, s) * job->head_parts;
}

static int group_pieces(const struct attention_job *job, int s) {
    return (group_tasks(job, s) + job->together - 1) / job->together;
}

static int count_pieces(const struct attention_job *job) {
    int pieces = 0;
    for (int s = 0; s < job->cpu->step->S; s++) pieces += job->kv->G * group_pieces(job, s);
    return pieces;
}

/* Returns the first task of piece i; *n is the number of its tasks. */
static int find_piece(const struct attention_job *job, int i, int *n) {
    int first = 0, s = 0;
    for (; i >= job->kv->G * group_pieces(job, s); s++) {
        i -= job->kv->G * group_pieces(job, s);
        first += job->kv->G * group_tasks(job, s);
        assert(s + 1 < job->cpu->step->S);
    }
    const int tasks = group_tasks(job, s), pieces = group_pieces(job, s);
    const int skipped = i % pieces * job->together, left = tasks - skipped;
    *n = left < job->together ? left : job->together;
    return first + i / pieces * tasks + skipped;
}

/* Counts the tasks and the maximum number of chunks. */
static void count_tasks(struct attention_job *job) {
    const struct step *step = job->cpu->step;
    int tiles = 0;
    for (int s = 0; s < step->S; s++) {
        int end = step->row_start[s + 1];
        for (int row = step->row_start[s]; row < end; row += job->rows, tiles++) {
            int last = row + job->rows < end ? row + job->rows - 1 : end - 1;
            int chunks = last_seen(job, s, last) / CHUNK + 1 - first_seen(job, row) / CHUNK;
            if (chunks > job->chunks) job->chunks = chunks;
        }
    }
    job->n_tasks = tiles * job->kv->G * job->head_parts;
}

/* Index of a row's head in an array whose heads have `size` numbers. */
static size_t head_at(const struct attention_job *job, int row, int head, int size) {
    return ((size_t)row * (size_t)job->attention->H + (size_t)head) * (size_t)size;
}

static void task_make(const struct attention_job *job, struct task *task, int i) {
    const struct step *step = job->cpu->step;
    const float *slopes = job->attention->slopes;
    const struct place at = find_task(job, i);
    const int g = at.g, end = at.row + at.n;
    struct attend *a = &task->attend;
    a->kv = job->kv;
    a->place = job->place;
    a->head = g;
    a->table = kv_table(job->kv, step) + (size_t)at.s * (size_t)step->table_stride;
    a->scale = job->attention->scale;
    a->cap = job->attention->cap;
    a->n = 0;
    int head_end = (at.part + 1) * QUERIES < job->group ? (at.part + 1) * QUERIES : job->group;
    for (int row = at.row; row < end; row++) {
        for (int h = at.part * QUERIES; h < head_end; h++, a->n++) {
            task->row[a->n] = row;
            task->head[a->n] = g * job->group + h;
            task->first_chunk[a->n] = first_seen(job, row) / CHUNK;
            task->last[a->n] = last_seen(job, at.s, row);
            a->q[a->n] = job->q + head_at(job, row, task->head[a->n], job->kv->D);
            a->position[a->n] = step->position[row];
            a->slope[a->n] = slopes ? slopes[task->head[a->n]] : 0;
        }
    }
    task->begin = task->first_chunk[0];
    task->end = task->last[a->n - 1] / CHUNK + 1;
    assert(a->n > 0 && a->n <= QUERIES && task->begin < task->end);
}

/* Sets the states to the parts at `parts`: of each query's first chunk, or of any chunk if the
 * queries share one place. */
static void task_states(const struct attention_job *job, struct task *task, float *parts,
                        size_t chunk_floats) {
    for (int i = 0; i < task->attend.n; i++)
        task->state[i] = parts + (size_t)(task->first_chunk[i] - task->begin) * chunk_floats +
                         (size_t)i * job->part_floats;
}

static int within_chunk(int position) {
    return position < 0 ? 0 : position < CHUNK ? position : CHUNK;
}

/* Computes one chunk. A query's part is written to its state for its first chunk, else to
 * parts[query]. */
static void task_chunk(const struct attention_job *job, struct task *task, int chunk,
                       float *parts) {
    struct attend *a = &task->attend;
    a->start = chunk * CHUNK;
    for (int i = 0; i < a->n; i++) {
        int row = task->row[i];
        a->begin[i] = within_chunk(first_seen(job, row) - a->start);
        a->end[i] = within_chunk(task->last[i] + 1 - a->start);
        a->part[i] =
            chunk == task->first_chunk[i] ? task->state[i] : parts + (size_t)i * job->part_floats;
    }
    job->cpu->path->attend(a);
}

/* Merges a later chunk's parts into the states. */
static void task_merge(const struct attention_job *job, const struct task *task, int chunk,
                       const float *parts) {
    for (int i = 0; i < task->attend.n; i++)
        if (chunk > task->first_chunk[i] && chunk <= task->last[i] / CHUNK)
            job->cpu->path->merge(task->state[i], parts + (size_t)i * job->part_floats,
                                  job->kv->D_value);
}

/* Merges a part with one score and a value of 0. */
static void merge_sink(float *into, float sink, int D) {
    float max = sink > into[PART_MAX] ? sink : into[PART_MAX];
    float old = plain_exp(into[PART_MAX] - max), new = plain_exp(sink - max);
    into[PART_MAX] = max;
    into[PART_SUM] = fmaf(into[PART_SUM], old, new);
    for (int d = 0; d < D; d++) into[PART_VALUES + d] = into[PART_VALUES + d] * old;
}

static void task_finish(const struct attention_job *job, const struct task *task) {
    const float *sinks = job->attention->sinks;
    const int D = job->kv->D_value;
    for (int i = 0; i < task->attend.n && sinks; i++)
        merge_sink(task->state[i], sinks[task->head[i]], D);
    for (int i = 0; i < task->attend.n; i++)
        job->cpu->path->finish(job->y + head_at(job, task->row[i], task->head[i], D),
                               task->state[i], D);
}

/* Floats that a task keeps between its chunks: codes of its queries and their scales, and the parts
 * of earlier chunks. */
static size_t kept_floats(size_t padded) {
    return (size_t)QUERIES * (padded / 2 + padded / LANES + PART_VALUES + padded);
}

/* Floats of a thread's scratch memory: staged values, scores, parts of a chunk, and the kept floats
 * of the tasks that it takes at once. */
static size_t thread_floats(const struct cpu *cpu) {
    size_t padded = round_up((size_t)cpu->max_d, LANES);
    return cpu->staged_floats + (size_t)QUERIES * (SCORE_STRIDE + PART_VALUES + padded) +
           TASKS_TOGETHER * kept_floats(padded);
}

/* Lays out the scratch memory of a thread for a task, which has this number among those taken at
 * once, and prepares its queries. Returns the memory for parts of a chunk; *states is the memory
 * for parts of earlier chunks. */
static float *scratch_of(const struct attention_job *job, struct attend *a, int thread, int number,
                         float **states) {
    assert(thread >= 0 && thread < job->cpu->head.n_threads);
    assert(number >= 0 && number < TASKS_TOGETHER);
    size_t padded = (size_t)job->kv->D_padded;
    float *scratch = job->cpu->attention + (size_t)thread * thread_floats(job->cpu);
    a->staged = (uint8_t *)scratch;
    a->scores = scratch + job->cpu->staged_floats;
    float *parts = a->scores + QUERIES * SCORE_STRIDE;
    float *kept = parts + QUERIES * (PART_VALUES + padded) + (size_t)number * kept_floats(padded);
    a->scales = kept + QUERIES * (PART_VALUES + padded);
    a->codes = (int16_t *)(a->scales + QUERIES * (padded / LANES));
    assert(a->codes + QUERIES * padded <= (int16_t *)(scratch + thread_floats(job->cpu)));
    if (job->cpu->path->attend_begin) job->cpu->path->attend_begin(a);
    *states = kept;
    return parts;
}

/* Processes the tasks of a piece. They read the same keys and values: a chunk stays in the second
 * cache while all of them use it. */
static void whole_tasks(void *arg, int i, int thread) {
    const struct attention_job *job = arg;
    int n;
    const int first = find_piece(job, i, &n);
    struct task tasks[TASKS_TOGETHER];
    float *parts = NULL, *states;
    int begin = INT_MAX, end = 0;
    for (int t = 0; t < n; t++) {
        task_make(job, &tasks[t], first + t);
        parts = scratch_of(job, &tasks[t].attend, thread, t, &states);
        task_states(job, &tasks[t], states, 0);
        if (tasks[t].begin < begin) begin = tasks[t].begin;
        if (tasks[t].end > end) end = tasks[t].end;
    }
    for (int chunk = begin; chunk < end; chunk++)
        for (int t = 0; t < n; t++) {
            if (chunk < tasks[t].begin || chunk >= tasks[t].end) continue;
            task_chunk(job, &tasks[t], chunk, parts);
            task_merge(job, &tasks[t], chunk, parts);
        }
    for (int t = 0; t < n; t++) task_finish(job, &tasks[t]);
}

/* Prepares task i of a split job. Returns the parts of its first chunk. */
static float *split_task(const struct attention_job *job, struct task *task, int i,
                         size_t *chunk_floats) {
    *chunk_floats = (size_t)job->queries * job->part_floats;
    float *parts = job->parts + (size_t)i * (size_t)job->chunks * *chunk_floats;
    task_make(job, task, i);
    assert(task->attend.n <= job->queries && task->end - task->begin <= job->chunks);
    task_states(job, task, parts, *chunk_floats);
    return parts;
}

static void split_chunk(void *arg, int i, int thread) {
    const struct attention_job *job = arg;
    struct task task;
    size_t chunk_floats, number = (size_t)(i % job->chunks);
    float *parts = split_task(job, &task, i / job->chunks, &chunk_floats);
    int chunk = task.begin + (int)number;
    if (chunk >= task.end) return;
    float *unused;
    scratch_of(job, &task.attend, thread, 0, &unused);
    task_chunk(job, &task, chunk, parts + number * chunk_floats);
}

static void split_merge(void *arg, int i, int thread) {
    (void)thread;
    const struct attention_job *job = arg;
    struct task task;
    size_t chunk_floats;
    const float *parts = split_task(job, &task, i, &chunk_floats);
    for (int chunk = task.begin; chunk < task.end; chunk++, parts += chunk_floats)
        task_merge(job, &task, chunk, parts);
    task_finish(job, &task);
}

/* The maximum number of positions that a row sees. */
static int max_seen(const struct attention_job *job) {
    const struct step *step = job->cpu->step;
    int max = 0;
    for (int s = 0; s < step->S; s++)
        for (int m = step->row_start[s]; m < step->row_start[s + 1]; m++) {
            int seen = last_seen(job, s, m) + 1 - first_seen(job, m);
            if (seen > max) max = seen;
        }
    return max;
}

/* True for few tasks over several chunks whose parts fit in memory. */
static bool worth_splitting(const struct attention_job *job) {
    size_t part_bytes = (size_t)job->queries * job->part_floats * sizeof(float);
    return job->cpu->head.n_threads > 1 && job->chunks > 1 &&
           job->n_tasks < TASKS_A_THREAD * job->cpu->head.n_threads &&
           (size_t)job->chunks <= SPLIT_BYTES / part_bytes / (size_t)job->n_tasks;
}

/* The maximum number of tasks that a thread takes at once. It is 1 for contexts whose keys and
 * values stay in the second cache anyway, and if too few pieces would remain for the threads. */
static int tasks_together(const struct attention_job *job) {
    const int enough = job->n_tasks / (TASKS_A_THREAD * job->cpu->head.n_threads);
    if (job->chunks <= LONG_CHUNKS || enough < 1) return 1;
    return enough < TASKS_TOGETHER ? enough : TASKS_TOGETHER;
}

static void gate_piece(void *arg, int i, int thread) {
    const struct attention_job *job = arg;
    const int first = i * job->gated_rows, left = job->cpu->step->M - first;
    const size_t width = (size_t)job->attention->H * (size_t)job->kv->D;
    const size_t rows = (size_t)(left < job->gated_rows ? left : job->gated_rows);
    const size_t at = (size_t)first * width;
    (void)thread;
    job->cpu->path->gate(job->y + at, job->attention->gate + at, rows * width);
}

/* Multiplies the outputs by the sigmoids of their gates. */
static void apply_gates(struct attention_job *job) {
    const int M = job->cpu->step->M;
    job->gated_rows = piece_units(job->cpu, 16LL * job->attention->H * job->kv->D, M);
    pool_run(job->cpu->pool, gate_piece, job, (M + job->gated_rows - 1) / job->gated_rows);
}

void op_attention(struct backend *b, float *y, const float *q, const struct kv_cache *cache,
                  int layer, const struct attention *attention) {
    struct cpu *cpu = cpu_of(b);
    const int H = attention->H;
    assert(layer >= 0 && layer < cache->config.L);
    const struct kv_kind *kv = kv_kind(cache, layer);
    assert(H % kv->G == 0 && kv->D <= cpu->max_d);
    assert(attention->cap >= 0 && attention->window >= 0);
    if (cpu->step->M == 0) return;
    struct attention_job job = {.cpu = cpu,
                                .y = y,
                                .q = q,
                                .kv = kv,
                                .place = cache->layer[layer].place,
                                .attention = attention,
                                .group = H / kv->G,
                                .together = 1};
    job.head_parts = (job.group + QUERIES - 1) / QUERIES;
    job.rows = job.group < QUERIES ? QUERIES / job.group : 1;
    job.queries = job.group < QUERIES ? job.rows * job.group : QUERIES;
    if (cpu->step->M == cpu->step->S && job.group < QUERIES) job.queries = job.group;
    job.part_floats = PART_VALUES + (size_t)kv->D_value_padded;
    count_tasks(&job);
    job.parts = cpu->attention + (size_t)cpu->head.n_threads * thread_floats(cpu);
    if (2 * (int64_t)cpu->step->M * H * kv->D * max_seen(&job) < TINY_PRODUCTS) {
        for (int i = 0; i < job.n_tasks; i++) whole_tasks(&job, i, 0);
    } else if (worth_splitting(&job)) {
        pool_run(cpu->pool, split_chunk, &job, job.n_tasks * job.chunks);
        pool_run(cpu->pool, split_merge, &job, job.n_tasks);
    } else {
        job.together = tasks_together(&job);
        pool_run(cpu->pool, whole_tasks, &job, count_pieces(&job));
    }
    if (attention->gate) apply_gates(&job);
}

/* Floats for a chunk's values of a kind whose values are a part of its keys. */
static size_t staged_floats(const struct kv_kind *kv) {
    size_t bytes = (size_t)CHUNK * (size_t)kv->D_value_padded * kv->element_bytes;
    return kv->shares ? round_up(bytes / sizeof(float), LANES) : 0;
}

/* Plans scratch for a kind of layers if it needs more than before: angles of the rows, attention of
 * the threads. */
void cpu_plan_heads(struct cpu *cpu, const struct kv_kind *kv) {
    const int D = kv->D > cpu->max_d ? kv->D : cpu->max_d;
    const size_t staged = staged_floats(kv);
    assert(D > 0 && cpu->max_rows > 0);
    if (D == cpu->max_d && staged <= cpu->staged_floats) return;
    const size_t most = staged > cpu->staged_floats ? staged : cpu->staged_floats;
    cpu_free_heads(cpu);
    cpu->max_d = D;
    cpu->staged_floats = most;
    cpu->rope_bytes = 2 * (size_t)cpu->max_rows * ((size_t)D / 2 + 1) * sizeof(float);
    for (int i = 0; i < ROPE_TABLES; i++) {
        cpu->rope[i].cosine = mem_large(cpu->rope_bytes);
        cpu->rope[i].sine = cpu->rope[i].cosine + (size_t)cpu->max_rows * ((size_t)D / 2 + 1);
    }
    cpu->attention_bytes =
        (size_t)cpu->head.n_threads * thread_floats(cpu) * sizeof(float) + SPLIT_BYTES;
    cpu->attention = mem_large(cpu->attention_bytes);
}

void cpu_free_heads(struct cpu *cpu) {
    if (cpu->max_d == 0) return;
    for (int i = 0; i < ROPE_TABLES; i++) mem_large_free(cpu->rope[i].cosine, cpu->rope_bytes);
    mem_large_free(cpu->attention, cpu->attention_bytes);
    cpu->max_d = 0;
    cpu->staged_floats = 0;
}
