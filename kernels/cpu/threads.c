/* How many threads suit this process: the cores that it may run on, and the time that its control
 * group gives it. */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

static int affinity_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int cores = CPU_COUNT(&set);
    return cores > 0 ? cores : 1;
}

/* Reads the first line of a file; false when there is none. */
static bool first_line(char *line, size_t size, const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) return false;
    bool read = fgets(line, (int)size, file) != NULL;
    fclose(file);
    return read;
}

/* Cores' worth of time for "quota period" in microseconds; 0 when there is no limit ("max", or
 * -1). */
static double quota_cores(const char *line) {
    double quota = 0, period = 0;
    if (sscanf(line, "%lf %lf", &quota, &period) != 2 || quota <= 0 || period <= 0) return 0;
    return quota / period;
}

/* The limit in one directory of the control group file systems; 0 for none. */
static double directory_cores(const char *directory) {
    char path[1024], line[128], period[64];
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", directory); /* version 2 */
    if (first_line(line, sizeof line, path)) return quota_cores(line);
    snprintf(path, sizeof path, "/sys/fs/cgroup/cpu%s/cpu.cfs_quota_us", directory); /* version 1 */
    if (!first_line(line, 60, path)) return 0;
    snprintf(path, sizeof path, "/sys/fs/cgroup/cpu%s/cpu.cfs_period_us", directory);
    if (!first_line(period, sizeof period, path)) return 0;
    line[strcspn(line, "\n")] = ' ';
    strncat(line, period, sizeof line - strlen(line) - 1);
    return quota_cores(line);
}

/* The least limit of a group and all that it is in. Clobbers `group`. */
static double group_cores(char *group) {
    double least = 0;
    for (;;) {
        double cores = directory_cores(strcmp(group, "/") ? group : "");
        if (cores > 0 && (least == 0 || cores < least)) least = cores;
        char *slash = strrchr(group, '/');
        if (!slash || !*group) return least;
        *slash = 0;
    }
}

/* The limit on this process by the group that /proc names; inside a container its own group is the
 * root. */
static double process_cores(void) {
    char line[1024];
    double least = 0;
    FILE *file = fopen("/proc/self/cgroup", "r");
    while (file && fgets(line, sizeof line, file)) { /* "4:cpu,cpuacct:/group", or "0::/group" */
        char *controllers = strchr(line, ':'),
             *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        group[strcspn(group, "\n")] = 0;
        if (controllers[1] && !strstr(controllers, "cpu")) continue;
        double cores = group_cores(group);
        if (cores > 0 && (least == 0 || cores < least)) least = cores;
    }
    if (file) fclose(file);
    return least > 0 ? least : directory_cores("");
}

int backend_cpu_threads(void) {
    int cores = affinity_cores();
    double quota = process_cores();
    if (quota > 0 && quota < cores) cores = (int)ceil(quota);
    return cores < MAX_THREADS ? cores : MAX_THREADS;
}
