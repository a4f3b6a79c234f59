/* The default number of threads of a process: from its affinity mask, and from the quotas of
 * control groups in invented folders. */
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

static void make_root(void) {
    strcpy(root, "/tmp/test-threads-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
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

static int threads(int cores) {
    char proc[128], cgroup[128];
    snprintf(proc, sizeof proc, "%s/proc", root);
    snprintf(cgroup, sizeof cgroup, "%s/cg", root);
    return threads_for(cores, proc, cgroup);
}

START_TEST(without_limits_all_cores_serve) {
    ck_assert_int_eq(threads(7), 7);
    put("proc/self/cgroup", "0::/job\n");
    put("cg/job/cpu.max", "max 100000\n");
    ck_assert_int_eq(threads(7), 7);
    ck_assert_int_eq(threads(100000), MAX_THREADS);
}
END_TEST

START_TEST(a_quota_is_rounded_to_cores) {
    static const struct {
        const char *max;
        int threads;
    } quotas[] = {{"200000 100000\n", 2},  {"150000 100000\n", 2}, {"149000 100000\n", 1},
                  {"250000 100000\n", 3},  {"20000 100000\n", 1},  {"1000 1000000\n", 1},
                  {"1600000 100000\n", 8}, {"350000 100000\n", 4}, {"12500 5000\n", 3}};
    put("proc/self/cgroup", "0::/job\n");
    for (size_t i = 0; i < sizeof quotas / sizeof *quotas; i++) {
        put("cg/job/cpu.max", quotas[i].max);
        ck_assert_int_eq(threads(8), quotas[i].threads);
    }
}
END_TEST

START_TEST(the_least_of_all_groups_above_holds) {
    put("proc/self/cgroup", "0::/outer/middle/inner\n");
    put("cg/outer/middle/inner/cpu.max", "600000 100000\n");
    put("cg/outer/middle/cpu.max", "300000 100000\n");
    put("cg/outer/cpu.max", "max 100000\n");
    ck_assert_int_eq(threads(8), 3);
    put("cg/outer/cpu.max", "100000 100000\n");
    ck_assert_int_eq(threads(8), 1);
}
END_TEST

/* Inside a container /proc may name the group as on the host, while the folder shows the group as
 * the root. */
START_TEST(a_container_is_bound_by_its_root) {
    put("proc/self/cgroup", "0::/\n");
    put("cg/cpu.max", "400000 100000\n");
    ck_assert_int_eq(threads(8), 4);
    put("proc/self/cgroup", "0::/docker/0123\n");
    ck_assert_int_eq(threads(8), 4);
    put("proc/self/cgroup", "");
    ck_assert_int_eq(threads(8), 4);
}
END_TEST

START_TEST(version_1_is_read_too) {
    put("proc/self/cgroup", "9:cpuset:/other\n4:cpu,cpuacct:/job\n0::/\n");
    put("cg/cpu/job/cpu.cfs_quota_us", "250000\n");
    put("cg/cpu/job/cpu.cfs_period_us", "100000\n");
    put("cg/cpu/other/cpu.cfs_quota_us", "100000\n");
    put("cg/cpu/other/cpu.cfs_period_us", "100000\n");
    ck_assert_int_eq(threads(8), 3);
    put("cg/cpu/job/cpu.cfs_quota_us", "-1\n");
    ck_assert_int_eq(threads(8), 8);
}
END_TEST

START_TEST(odd_files_do_no_harm) {
    put("proc/self/cgroup", "\n:\n::\n0::relative\n4:cpu\nrubbish\n0::/job\n0::/\n");
    static const char *const odd[] = {"",           "\n",    "max\n",        "-5 100000\n",
                                      "0 100000\n", "5 0\n", "nan 100000\n", "inf 100000\n",
                                      "100000 -1\n"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        put("cg/job/cpu.max", odd[i]);
        ck_assert_int_eq(threads(8), 8);
    }
}
END_TEST

START_TEST(an_affinity_mask_is_kept_to) {
    cpu_set_t before, one;
    ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
    int cores = CPU_COUNT(&before), cpu = 0, now = backend_cpu_threads();
    ck_assert(now >= 1 && now <= cores);
    while (!CPU_ISSET(cpu, &before)) cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    ck_assert_int_eq(backend_cpu_threads(), 1);
    ck_assert_int_eq(sched_setaffinity(0, sizeof before, &before), 0);
    ck_assert_int_eq(backend_cpu_threads(), now);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_threads");
    TCase *core = tcase_create("threads");
    tcase_add_checked_fixture(core, make_root, remove_root);
    tcase_add_test(core, without_limits_all_cores_serve);
    tcase_add_test(core, a_quota_is_rounded_to_cores);
    tcase_add_test(core, the_least_of_all_groups_above_holds);
    tcase_add_test(core, a_container_is_bound_by_its_root);
    tcase_add_test(core, version_1_is_read_too);
    tcase_add_test(core, odd_files_do_no_harm);
    tcase_add_test(core, an_affinity_mask_is_kept_to);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
