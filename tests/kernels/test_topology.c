/* The processors of a machine and the binding of threads, in invented folders: sockets, hardware
 * threads, fast and slow cores, only some of the processors, and invalid files. */
#include <check.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/cpu/cpu.h"
#include "support/suite_main.h"

static char root[64];
static struct topology t;
static struct placement p;
static struct err err;

static void make_root(void) {
    strcpy(root, "/tmp/test-topology-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    memset(&p, 0, sizeof p);
}

static void remove_root(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", root);
    ck_assert_int_eq(system(command), 0);
}

/* Writes a file. Makes its folders if needed. */
static void put(const char *path, const char *text) {
    char full[256];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = 0;
        mkdir(full, 0700);
    }
    FILE *file = fopen(full, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static void put_number(int processor, const char *name, int number) {
    char path[96], text[16];
    snprintf(path, sizeof path, "cpu/cpu%d/%s", processor, name);
    snprintf(text, sizeof text, "%d\n", number);
    put(path, text);
}

static void put_core(int processor, int package, int core) {
    put_number(processor, "topology/physical_package_id", package);
    put_number(processor, "topology/core_id", core);
}

/* Reads the processors first, first + step, ... */
static void read_some(int n, int first, int step) {
    int numbers[MAX_PROCESSORS];
    for (int i = 0; i < n; i++) numbers[i] = first + i * step;
    topology_read(&t, root, numbers, n);
    ck_assert_int_eq(t.n, n);
}

/* Two sockets of 4 cores with two hardware threads each: 0-3 and 8-11 belong to the first. */
static void put_two_sockets(void) {
    put("node/online", "0-1\n");
    put("node/node0/cpulist", "0-3,8-11\n");
    put("node/node1/cpulist", "4-7,12-15\n");
    for (int i = 0; i < 16; i++) put_core(i, i / 4 % 2, i % 4);
}

static int as_many(int cores) {
    return cores;
}

static int three(int cores) {
    return cores < 3 ? cores : 3;
}

static void check_threads(const int *nodes, const int *processors, int n) {
    ck_assert_int_eq(p.n_threads, n);
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(p.node_of[i], nodes[i]);
        ck_assert_int_eq(p.processor[i], processors ? processors[i] : -1);
    }
}

START_TEST(two_sockets) {
    put_two_sockets();
    read_some(16, 0, 1);
    static const int order[] = {0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15};
    ck_assert_int_eq(t.n_nodes, 2);
    const struct cpu_counts counts = topology_counts(&t);
    ck_assert_int_eq(counts.processors, 16);
    ck_assert_int_eq(counts.cores, 8);
    ck_assert_int_eq(counts.nodes, 2);
    for (int i = 0; i < 16; i++) {
        ck_assert_int_eq(t.processors[i].number, order[i]);
        ck_assert_int_eq(t.processors[i].node, i / 8);
        ck_assert_int_eq(t.processors[i].sibling, i / 4 % 2);
    }
    /* threads are spread over the nodes, and get separate cores while there are enough */
    ck_assert_int_eq(placement_of(&p, &t, "cores", 6, as_many, &err), STATUS_OK);
    check_threads((int[]){0, 0, 0, 1, 1, 1}, (int[]){0, 1, 2, 4, 5, 6}, 6);
    ck_assert_int_eq(placement_of(&p, &t, "nodes", 4, as_many, &err), STATUS_OK);
    check_threads((int[]){0, 0, 1, 1}, NULL, 4);
    ck_assert_int_eq(placement_of(&p, &t, "nodes", 0, three, &err), STATUS_OK);
    check_threads((int[]){0, 1, 1}, NULL, 3);
    ck_assert_int_eq(placement_of(&p, &t, "nodes", 40, as_many, &err), STATUS_OK);
    ck_assert_int_eq(p.node_of[19], 0);
    ck_assert_int_eq(p.node_of[20], 1);
}
END_TEST

START_TEST(lists_choose) {
    put_two_sockets();
    read_some(16, 0, 1);
    ck_assert_int_eq(placement_of(&p, &t, "12-13,5,0", 0, as_many, &err), STATUS_OK);
    check_threads((int[]){0, 1, 1, 1}, (int[]){0, 5, 12, 13}, 4);
    /* a list of processors of one node excludes the other node */
    ck_assert_int_eq(placement_of(&p, &t, "4-6", 2, as_many, &err), STATUS_OK);
    check_threads((int[]){0, 0}, (int[]){4, 5}, 2);
    ck_assert_int_eq(p.n_nodes, 1);
    ck_assert_int_eq(p.topology.nodes[0], 1);
}
END_TEST

START_TEST(an_impossible_affinity_is_refused) {
    put_two_sockets();
    read_some(3, 1, 1); /* the set of processors 1, 2 and 3 */
    static const char *const odd[] = {
        "",  "node",  "0-",    "3-1", "1,x", "1 2", "-1", "1,", "99999999999999999999",
        "0", "1-200", "131072"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        ck_assert_int_eq(placement_of(&p, &t, odd[i], 0, as_many, &err), STATUS_USAGE);
        ck_assert_ptr_nonnull(strstr(err.message, "{cpu-affinity}"));
    }
    ck_assert_int_eq(placement_of(&p, &t, "cores", 4, as_many, &err), STATUS_USAGE);
    ck_assert_int_eq(placement_of(&p, &t, "1-2", 3, as_many, &err), STATUS_USAGE);
}
END_TEST

/* With only some of the processors, nodes without processors are not counted. */
START_TEST(a_set_of_processors) {
    put_two_sockets();
    read_some(3, 5, 1);
    ck_assert_int_eq(t.n_nodes, 1);
    ck_assert_int_eq(t.nodes[0], 1);
    for (int i = 0; i < 3; i++) ck_assert_int_eq(t.processors[i].number, 5 + i);
    read_some(3, 3, 4); /* 3, 7, 11: two siblings of the first node, one of the second */
    ck_assert_int_eq(t.n_nodes, 2);
    ck_assert_int_eq(t.processors[0].number, 3);
    ck_assert_int_eq(t.processors[1].number, 11);
    ck_assert_int_eq(t.processors[1].sibling, 1);
    ck_assert_int_eq(placement_of(&p, &t, "nodes", 1, as_many, &err), STATUS_OK);
    check_threads((int[]){0}, NULL, 1);
    ck_assert_int_eq(p.n_nodes, 1); /* the second node; those of the first are unassigned */
    ck_assert_int_eq(p.topology.nodes[0], 1);
    ck_assert_int_eq(p.topology.processors[0].node, -1);
    ck_assert_int_eq(p.topology.processors[2].node, 0);
}
END_TEST

/* Fast cores have two hardware threads, slow ones one. The order is: fast cores, slow cores, the
 * second threads of the fast cores. */
START_TEST(fast_and_slow_cores) {
    put("node/online", "0\n");
    put("node/node0/cpulist", "0-7\n");
    for (int i = 0; i < 8; i++) {
        put_core(i, 0, i < 4 ? i / 2 : i);
        put_number(i, "cpufreq/cpuinfo_max_freq", i < 4 ? 5200000 : 3900000);
    }
    read_some(8, 0, 1);
    static const int order[] = {0, 2, 4, 5, 6, 7, 1, 3};
    for (int i = 0; i < 8; i++) ck_assert_int_eq(t.processors[i].number, order[i]);
    put_number(6, "cpu_capacity", 9000000); /* takes precedence over the frequency */
    read_some(8, 0, 1);
    ck_assert_int_eq(t.processors[0].number, 6);
}
END_TEST

START_TEST(without_files_all_are_equal) {
    read_some(5, 2, 3);
    ck_assert_int_eq(t.n_nodes, 1);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(t.processors[i].number, 2 + 3 * i);
        ck_assert_int_eq(t.processors[i].node, 0);
        ck_assert_int_eq(t.processors[i].sibling, 0);
    }
}
END_TEST

START_TEST(odd_files_do_no_harm) {
    static char endless[40000];
    memset(endless, '1', sizeof endless - 1);
    const char *const odd[] = {"", "\n", "-", "0-", "x", "0-999999999", "5-2\n", "0,,\n", endless};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        for (size_t j = 0; j < sizeof odd / sizeof *odd; j++) {
            put("node/online", odd[i]);
            put("node/node0/cpulist", odd[j]);
            put("cpu/cpu0/topology/core_id", odd[j]);
            put("cpu/cpu0/cpu_capacity", odd[i]);
            read_some(4, 0, 1);
            ck_assert_int_eq(t.n_nodes, 1);
        }
    for (size_t i = 0; i + 1 < sizeof endless; i++) endless[i] = i % 2 ? ',' : '3';
    put("node/online", "0-1\n");
    put("node/node0/cpulist", "0-1\n");
    put("node/node1/cpulist", endless); /* it is cut off, so all of it is ignored */
    read_some(4, 0, 1);
    ck_assert_int_eq(t.n_nodes, 1);
    put("node/online", "0-1\n"); /* processor 1 is on both nodes, 3 on neither */
    put("node/node0/cpulist", "0-1\n");
    put("node/node1/cpulist", "1-2\n");
    read_some(4, 0, 1);
    ck_assert_int_eq(t.n_nodes, 2);
    ck_assert_int_eq(t.processors[1].number, 1);
    ck_assert_int_eq(t.processors[2].number, 3);
    ck_assert_int_eq(t.processors[3].node, 1);
}
END_TEST

/* This machine: threads are bound as reported, and moving memory preserves its bytes. */
START_TEST(this_machine) {
    int numbers[MAX_PROCESSORS], n = processors_allowed(numbers, MAX_PROCESSORS);
    ck_assert_int_ge(n, 1);
    ck_assert_int_eq(placement_choose(&p, "cores", 0, as_many, &err), STATUS_OK);
    ck_assert_int_eq(p.n_threads, n);
    cpu_set_t before, now;
    ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
    for (int i = 0; i < n; i++) {
        placement_bind(&p, i);
        ck_assert_int_eq(sched_getaffinity(0, sizeof now, &now), 0);
        ck_assert_int_eq(CPU_COUNT(&now), 1);
        ck_assert(CPU_ISSET((size_t)p.processor[i], &now));
        ck_assert_int_eq(sched_setaffinity(0, sizeof before, &before), 0);
    }
    ck_assert_int_eq(placement_choose(&p, "nodes", n, as_many, &err), STATUS_OK);
    placement_bind(&p, 0);
    ck_assert_int_eq(sched_getaffinity(0, sizeof now, &now), 0);
    ck_assert(p.n_nodes > 1 || CPU_EQUAL(&now, &before));
    ck_assert_int_eq(sched_setaffinity(0, sizeof before, &before), 0);
    enum { BYTES = 1 << 16 };
    uint8_t *memory = mem_large(BYTES), *copy = mem_alloc(BYTES);
    for (int i = 0; i < BYTES; i++) copy[i] = memory[i] = (uint8_t)(i / 7);
    placement_move(&p, memory + 5, BYTES - 9, 0);
    ck_assert_int_eq(memcmp(memory, copy, BYTES), 0);
    mem_large_free(memory, BYTES);
    free(copy);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_topology");
    TCase *core = tcase_create("topology");
    tcase_add_checked_fixture(core, make_root, remove_root);
    tcase_add_test(core, two_sockets);
    tcase_add_test(core, lists_choose);
    tcase_add_test(core, an_impossible_affinity_is_refused);
    tcase_add_test(core, a_set_of_processors);
    tcase_add_test(core, fast_and_slow_cores);
    tcase_add_test(core, without_files_all_are_equal);
    tcase_add_test(core, odd_files_do_no_harm);
    tcase_add_test(core, this_machine);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
