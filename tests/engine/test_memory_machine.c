/* Reads a machine's memory from fake /proc and cgroup folders. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/memory/memory.h"
#include "support/gguf_writer.h"
#include "support/suite_main.h"

#define GIB ((int64_t)1 << 30)

static char root[] = "/tmp/test-memory-XXXXXX";

static void make_folder(const char *path) {
    char full[256];
    snprintf(full, sizeof full, "%s/%s", root, path);
    mkdir(full, 0700);
}

static void make_file(const char *path, const char *text) {
    char full[256];
    snprintf(full, sizeof full, "%s/%s", root, path);
    write_file(full, text, strlen(text));
}

static void make_machine(void) {
    strcpy(root + strlen(root) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    make_folder("proc");
    make_folder("proc/self");
    make_folder("cg");
    make_file("proc/meminfo", "MemTotal:       8388608 kB\nMemFree:         102400 kB\n"
                              "MemAvailable:   4194304 kB\n");
}

static struct machine_memory read_machine(void) {
    char proc[128], cgroup[128];
    struct machine_memory memory;
    snprintf(proc, sizeof proc, "%s/proc", root);
    snprintf(cgroup, sizeof cgroup, "%s/cg", root);
    machine_memory_read_at(&memory, proc, cgroup);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", root);
    ck_assert_int_eq(system(command), 0);
    return memory;
}

START_TEST(without_cgroups_the_machine_counts) {
    make_machine();
    struct machine_memory memory = read_machine();
    ck_assert_int_eq(memory.total, 8 * GIB);
    ck_assert_int_eq(memory.available, 4 * GIB);
}
END_TEST

START_TEST(with_nothing_to_read_a_gibibyte_is_assumed) {
    struct machine_memory memory;
    machine_memory_read_at(&memory, "/nowhere", "/nowhere");
    ck_assert_int_eq(memory.total, GIB);
    ck_assert_int_eq(memory.available, GIB);
}
END_TEST

START_TEST(a_version_2_limit_applies_from_any_level) {
    make_machine();
    make_file("proc/self/cgroup", "0::/outer/inner\n");
    make_folder("cg/outer");
    make_folder("cg/outer/inner");
    make_file("cg/outer/inner/memory.max", "max\n");
    make_file("cg/outer/memory.max", "2147483648\n");
    make_file("cg/outer/memory.current", "1073741824\n");
    make_file("cg/outer/memory.stat", "anon 1\ninactive_file 536870912\nactive_file 5\n");
    struct machine_memory memory = read_machine();
    ck_assert_int_eq(memory.total, 2 * GIB);
    ck_assert_int_eq(memory.available, 2 * GIB - GIB / 2);
}
END_TEST

START_TEST(a_version_1_limit_holds) {
    make_machine();
    make_file("proc/self/cgroup", "9:name=systemd:/\n4:memory:/job\n0::/\n");
    make_folder("cg/memory");
    make_folder("cg/memory/job");
    make_file("cg/memory/memory.limit_in_bytes", "9223372036854771712\n");
    make_file("cg/memory/job/memory.limit_in_bytes", "1073741824\n");
    make_file("cg/memory/job/memory.usage_in_bytes", "2147483648\n");
    struct machine_memory memory = read_machine();
    ck_assert_int_eq(memory.total, GIB);
    ck_assert_int_eq(memory.available, 0);
}
END_TEST

START_TEST(a_container_that_sees_its_own_root_is_bound_by_it) {
    make_machine();
    make_file("proc/self/cgroup", "0::/somewhere/outside\n");
    make_file("cg/memory.max", "1073741824\n");
    struct machine_memory memory = read_machine();
    ck_assert_int_eq(memory.available, GIB);
}
END_TEST

START_TEST(odd_cgroup_lines_do_no_harm) {
    make_machine();
    make_file("proc/self/cgroup", "\n:\n::\n0::relative\n4:memory\nrubbish\n0::/\n");
    ck_assert_int_eq(read_machine().available, 4 * GIB);
}
END_TEST

START_TEST(this_machine_has_memory) {
    struct machine_memory memory;
    machine_memory_read(&memory);
    ck_assert_int_gt(memory.total, 0);
    ck_assert_int_ge(memory.available, 0);
    ck_assert_int_le(memory.available, memory.total);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine/memory_machine");
    TCase *cases = tcase_create("all");
    tcase_add_test(cases, without_cgroups_the_machine_counts);
    tcase_add_test(cases, with_nothing_to_read_a_gibibyte_is_assumed);
    tcase_add_test(cases, a_version_2_limit_applies_from_any_level);
    tcase_add_test(cases, a_version_1_limit_holds);
    tcase_add_test(cases, a_container_that_sees_its_own_root_is_bound_by_it);
    tcase_add_test(cases, odd_cgroup_lines_do_no_harm);
    tcase_add_test(cases, this_machine_has_memory);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
