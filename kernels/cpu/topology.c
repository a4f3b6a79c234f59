/* Reads the machine's processors and chooses those of the compute threads. */
#include "kernels/cpu/topology.h"

#include <assert.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_NUMBER = 1 << 17, LINE_BYTES = 16384, PATH_BYTES = 4096 };

/* ---- lists such as "0-3,8" ------------------------------------------------------------------ */

/* Takes the next range off a list. Returns false at the end or at a malformed range, and leaves
 * *list there. */
static bool next_range(const char **list, long *from, long *to) {
    const char *at = *list + strspn(*list, ",");
    char *end;
    if (*at < '0' || *at > '9') return false;
    *from = *to = strtol(at, &end, 10);
    if (*end == '-') {
        at = end + 1;
        if (*at < '0' || *at > '9') return false;
        *to = strtol(at, &end, 10);
    }
    if (*from > *to || *to >= MAX_NUMBER || (*end && *end != ',' && *end != '\n')) return false;
    *list = *end == '\n' ? end + 1 : end;
    return true;
}

/* Is the whole text a list of ranges? An empty list is one. */
static bool is_list(const char *list) {
    long from, to;
    while (next_range(&list, &from, &to)) {
    }
    return list[strspn(list, "\n")] == 0;
}

static bool has(const char *list, int number) {
    long from, to;
    while (next_range(&list, &from, &to))
        if (number >= from && number <= to) return true;
    return false;
}

/* ---- what the system says ------------------------------------------------------------------- */

/* Reads the first line of a file. Returns false if the file is missing or the line is too long. */
static bool read_line(char *line, const char *sys, const char *name) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", sys, name);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    bool read = fgets(line, LINE_BYTES, file) && strlen(line) < LINE_BYTES - 1;
    fclose(file);
    return read;
}

/* Reads a number from a processor's folder. Returns `otherwise` if the file is missing. */
static int number_of(const char *sys, int processor, const char *name, int otherwise) {
    char path[128], line[LINE_BYTES], *end;
    snprintf(path, sizeof path, "cpu/cpu%d/%s", processor, name);
    if (!read_line(line, sys, path)) return otherwise;
    long number = strtol(line, &end, 10);
    bool sound = end != line && (*end == 0 || *end == '\n') && number >= 0 && number < INT_MAX;
    return sound ? (int)number : otherwise;
}

static void read_processor(struct processor *p, const char *sys) {
    p->package = number_of(sys, p->number, "topology/physical_package_id", -1);
    p->core = number_of(sys, p->number, "topology/core_id", -1);
    int hertz = number_of(sys, p->number, "cpufreq/cpuinfo_max_freq", 0);
    p->speed = number_of(sys, p->number, "cpu_capacity", hertz);
}

/* Assigns the node to the processors of its list that are still without a node. */
static bool take_node(struct topology *t, const char *sys, int node) {
    assert(node >= 0);
    char path[64], line[LINE_BYTES];
    int taken = 0;
    snprintf(path, sizeof path, "node/node%d/cpulist", node);
    if (!read_line(line, sys, path) || !is_list(line)) return false;
    for (int i = 0; i < t->n; i++) {
        if (t->processors[i].node >= 0 || !has(line, t->processors[i].number)) continue;
        t->processors[i].node = t->n_nodes;
        taken++;
    }
    if (taken == 0) return false;
    t->nodes[t->n_nodes++] = node;
    return true;
}

/* Processors without a node belong to the first one. */
static void read_nodes(struct topology *t, const char *sys) {
    char line[LINE_BYTES];
    long from, to;
    const char *list = line;
    for (int i = 0; i < t->n; i++) t->processors[i].node = -1;
    if (read_line(line, sys, "node/online") && is_list(line))
        while (next_range(&list, &from, &to))
            for (long node = from; node <= to && t->n_nodes < MAX_NODES && node < MAX_PROCESSORS;
                 node++)
                take_node(t, sys, (int)node);
    if (t->n_nodes == 0) t->nodes[t->n_nodes++] = 0;
    for (int i = 0; i < t->n; i++)
        if (t->processors[i].node < 0) t->processors[i].node = 0;
}

/* A processor whose core is unknown counts as a core of its own. */
static void count_siblings(struct topology *t) {
    for (int i = 0; i < t->n; i++) {
        struct processor *p = &t->processors[i];
        for (int j = 0; j < i && p->core >= 0; j++) {
            const struct processor *other = &t->processors[j];
            p->sibling += other->core == p->core && other->package == p->package;
        }
    }
}

static int compare(const void *left, const void *right) {
    const struct processor *a = left, *b = right;
    if (a->node != b->node) return a->node - b->node;
    if (a->sibling != b->sibling) return a->sibling - b->sibling;
    if (a->speed != b->speed) return a->speed > b->speed ? -1 : 1;
    return a->number - b->number;
}

void topology_read(struct topology *t, const char *sys, const int *numbers, int n) {
    assert(n >= 1 && n <= MAX_PROCESSORS);
    *t = (struct topology){.n = n};
    for (int i = 0; i < n; i++) {
        assert(i == 0 || numbers[i] > numbers[i - 1]);
        t->processors[i].number = numbers[i];
        read_processor(&t->processors[i], sys);
    }
    count_siblings(t);
    read_nodes(t, sys);
    qsort(t->processors, (size_t)n, sizeof *t->processors, compare);
}

/* ---- choosing ------------------------------------------------------------------------------- */

/* The number of processors of a node, and the first of them. */
static int node_processors(const struct topology *t, int node, int *first) {
    assert(node >= 0 && node < t->n_nodes);
    int n = 0;
    *first = 0;
    while (*first < t->n && t->processors[*first].node < node) ++*first;
    while (*first + n < t->n && t->processors[*first + n].node == node) n++;
    return n;
}

/* Distributes threads among nodes in proportion to their processors. A node without a thread is
 * dropped. */
static void place(struct placement *p, bool to_cores) {
    const struct topology *t = &p->topology;
    int threads = p->n_threads, used = 0;
    p->n_nodes = 0;
    for (int node = 0; node < t->n_nodes; node++) {
        int first, n = node_processors(t, node, &first);
        int from = threads * first / t->n, to = threads * (first + n) / t->n;
        for (int i = from; i < to; i++) {
            p->node_of[i] = used;
            p->processor[i] = to_cores ? t->processors[first + (i - from) % n].number : -1;
        }
        for (int i = first; i < first + n; i++)
            p->topology.processors[i].node = to > from ? used : -1;
        if (to > from) p->topology.nodes[used++] = t->nodes[node];
    }
    p->n_nodes = used;
}

/* Keeps only the processors in a list. All of them must exist. */
static enum status keep_listed(struct topology *t, const char *list, struct err *err) {
    long from, to;
    int kept = 0;
    for (const char *at = list; next_range(&at, &from, &to);)
        for (long number = from; number <= to; number++) {
            int i = 0;
            while (i < t->n && t->processors[i].number != number) i++;
            if (i == t->n)
                return err_set(err, STATUS_USAGE, "cpu-affinity",
                               "{cpu-affinity}: processor %ld is not one that this process may use",
                               number);
        }
    for (int i = 0; i < t->n; i++)
        if (has(list, t->processors[i].number)) t->processors[kept++] = t->processors[i];
    t->n = kept;
    return STATUS_OK;
}

enum status placement_of(struct placement *p, const struct topology *t, const char *wanted,
                         int threads, int (*limit)(int cores), struct err *err) {
    bool nodes = strcmp(wanted, "nodes") == 0, cores = strcmp(wanted, "cores") == 0;
    bool listed = !nodes && !cores;
    p->topology = *t;
    if (listed && (!is_list(wanted) || !*wanted))
        return err_set(err, STATUS_USAGE, "cpu-affinity",
                       "{cpu-affinity} must be nodes, cores, or a list of processors such as "
                       "0-7,16, not \"%s\"",
                       wanted);
    enum status status = listed ? keep_listed(&p->topology, wanted, err) : STATUS_OK;
    if (status) return status;
    p->n_threads = threads ? threads : limit(p->topology.n);
    if (!nodes && p->n_threads > p->topology.n)
        return err_set(
            err, STATUS_USAGE, "cpu-affinity",
            "{threads} %d are more than the %d processors that {cpu-affinity} binds them to",
            p->n_threads, p->topology.n);
    place(p, !nodes);
    return STATUS_OK;
}

enum status placement_choose(struct placement *p, const char *wanted, int threads,
                             int (*limit)(int cores), struct err *err) {
    int numbers[MAX_PROCESSORS];
    struct topology *t = mem_alloc(sizeof *t);
    topology_read(t, "/sys/devices/system", numbers, processors_allowed(numbers, MAX_PROCESSORS));
    enum status status = placement_of(p, t, wanted, threads, limit, err);
    mem_free(t);
    return status;
}

/* ---- system calls --------------------------------------------------------------------------- */

int processors_allowed(int *numbers, int max) {
    assert(numbers && max > 0);
    cpu_set_t *set = NULL;
    int n = 0, bits = CPU_SETSIZE;
    /* the mask is as long as the kernel's build requires, and no call returns that length */
    for (; bits <= MAX_NUMBER; bits *= 2) {
        CPU_FREE(set);
        set = CPU_ALLOC((size_t)bits);
        if (set && sched_getaffinity(0, CPU_ALLOC_SIZE((size_t)bits), set) == 0) break;
    }
    for (int i = 0; i < bits && bits <= MAX_NUMBER && n < max; i++)
        if (CPU_ISSET_S((size_t)i, CPU_ALLOC_SIZE((size_t)bits), set)) numbers[n++] = i;
    CPU_FREE(set);
    if (n == 0) numbers[n++] = 0;
    return n;
}

struct cpu_counts topology_counts(const struct topology *t) {
    struct cpu_counts counts = {.processors = t->n, .nodes = t->n_nodes};
    for (int i = 0; i < t->n; i++) counts.cores += t->processors[i].sibling == 0;
    assert(counts.cores > 0 && counts.cores <= counts.processors && counts.nodes > 0);
    return counts;
}

struct cpu_counts backend_cpu_counts(void) {
    int numbers[MAX_PROCESSORS];
    struct topology *t = mem_alloc(sizeof *t);
    topology_read(t, "/sys/devices/system", numbers, processors_allowed(numbers, MAX_PROCESSORS));
    const struct cpu_counts counts = topology_counts(t);
    mem_free(t);
    return counts;
}

void placement_bind(const struct placement *p, int thread) {
    const struct topology *t = &p->topology;
    size_t bytes = CPU_ALLOC_SIZE(MAX_NUMBER);
    cpu_set_t *set = CPU_ALLOC(MAX_NUMBER);
    assert(thread >= 0 && thread < p->n_threads);
    if (!set) return;
    CPU_ZERO_S(bytes, set);
    for (int i = 0; i < t->n; i++) {
        const struct processor *one = &t->processors[i];
        bool its = p->processor[thread] < 0 ? one->node == p->node_of[thread]
                                            : one->number == p->processor[thread];
        if (its) CPU_SET_S((size_t)one->number, bytes, set);
    }
    sched_setaffinity(0, bytes, set);
    CPU_FREE(set);
}

void placement_move(const struct placement *p, const void *memory, size_t bytes, int node) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)memory + page - 1) / page * page;
    uintptr_t to = ((uintptr_t)memory + bytes) / page * page;
    unsigned long mask[MAX_PROCESSORS / (8 * sizeof(unsigned long))] = {0};
    size_t bits = 8 * sizeof *mask, number = (size_t)p->topology.nodes[node];
    assert(node >= 0 && node < p->n_nodes && number < MAX_PROCESSORS);
    mask[number / bits] |= 1ul << number % bits;
    if (from < to)
        syscall(SYS_mbind, from, to - from, MPOL_PREFERRED, mask, MAX_PROCESSORS, MPOL_MF_MOVE);
}
