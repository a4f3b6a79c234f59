/* Chooses the number of threads for this process from its affinity mask and its control group's
 * quota. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

enum { PATH_BYTES = 4096 };

/* Reads the first line of a file. Returns false if there is none to read. */
static bool first_line(char *line, size_t size, const char *path) {
    FILE *file = fopen(path, "re");
    if (!file) return false;
    bool read = fgets(line, (int)size, file) != NULL;
    fclose(file);
    return read;
}

/* Returns the number of cores for "quota period" in microseconds, or 0 for "max" or -1 (no
 * limit). */
static double quota_cores(const char *line) {
    double quota = 0, period = 0;
    if (sscanf(line, "%lf %lf", &quota, &period) != 2 || quota <= 0 || period <= 0) return 0;
    return quota / period;
}

/* Returns the limit in one directory of the control group file systems; 0: no limit. */
static double directory_cores(const char *root, const char *directory) {
    char path[2 * PATH_BYTES], line[128], period[64];
    snprintf(path, sizeof path, "%s%s/cpu.max", root, directory); /* version 2 */
    if (first_line(line, sizeof line, path)) return quota_cores(line);
    snprintf(path, sizeof path, "%s/cpu%s/cpu.cfs_quota_us", root, directory); /* version 1 */
    if (!first_line(line, 60, path)) return 0;
    snprintf(path, sizeof path, "%s/cpu%s/cpu.cfs_period_us", root, directory);
    if (!first_line(period, sizeof period, path)) return 0;
    line[strcspn(line, "\n")] = ' ';
    strncat(line, period, sizeof line - strlen(line) - 1);
    return quota_cores(line);
}

/* The smaller of two limits; 0 means no limit. */
static double lesser(double a, double b) {
    return a == 0 || (b > 0 && b < a) ? b : a;
}

/* Does a list such as "cpu,cpuacct" contain the cpu controller? */
static bool has_cpu(const char *list) {
    for (; *list; list += strspn(list, ",")) {
        size_t length = strcspn(list, ",");
        if (length == 3 && memcmp(list, "cpu", 3) == 0) return true;
        list += length;
    }
    return false;
}

/* Returns the limit for one line of /proc/self/cgroup: "0::/group" is version 2,
 * "4:cpu,cpuacct:/group" is version 1. */
static double line_cores(const char *root, char *line) {
    char *controllers = strchr(line, ':'),
         *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group || group[1] != '/') return 0;
    *group++ = *controllers++ = 0;
    group[strcspn(group, "\n")] = 0;
    if (*controllers && !has_cpu(controllers)) return 0;
    double least = 0; /* over the group and its parents */
    for (char *slash; (slash = strrchr(group, '/')); *slash = 0)
        if (slash[1]) least = lesser(least, directory_cores(root, group));
    return lesser(least, directory_cores(root, ""));
}

/* Returns the limit of this process from the groups that `proc` names. Inside a container its own
 * group is the root. */
static double process_cores(const char *proc, const char *root) {
    char path[PATH_BYTES], line[PATH_BYTES];
    double least = 0;
    snprintf(path, sizeof path, "%s/self/cgroup", proc);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) least = lesser(least, line_cores(root, line));
    if (file) fclose(file);
    return lesser(least, directory_cores(root, ""));
}

int threads_for(int cores, const char *proc, const char *cgroup) {
    assert(cores > 0);
    double quota = process_cores(proc, cgroup);
    if (quota > 0 && quota < cores) cores = (int)floor(quota + 0.5);
    if (cores < 1) cores = 1;
    return cores < MAX_THREADS ? cores : MAX_THREADS;
}

int cores_allowed(void) {
    int numbers[MAX_PROCESSORS];
    return processors_allowed(numbers, MAX_PROCESSORS);
}

int threads_of_cores(int cores) {
    return threads_for(cores, "/proc", "/sys/fs/cgroup");
}

int backend_cpu_threads(void) {
    return threads_of_cores(cores_allowed());
}
