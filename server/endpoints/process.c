/* process_...: the operating system's values that every Prometheus client library exports. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "server/endpoints/metrics_view.h"

static double clock_s(clockid_t clock) {
    struct timespec now;
    return clock_gettime(clock, &now) == 0 ? (double)now.tv_sec + (double)now.tv_nsec * 1e-9 : NAN;
}

/* Reads times and sizes from the line that proc(5) describes. The second field is the program's
 * name in parentheses, which may contain any characters; the needed fields follow it. */
static void read_stat(struct process_stats *out) {
    char line[1024];
    unsigned long utime, stime, virtual_bytes;
    unsigned long long start;
    long pages;
    FILE *file = fopen("/proc/self/stat", "r");
    if (!file) return;
    size_t n = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[n] = 0;
    const char *fields = strrchr(line, ')');
    if (!fields || sscanf(fields + 1,
                          " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d "
                          "%*d %*d %llu %lu %ld",
                          &utime, &stime, &start, &virtual_bytes, &pages) != 5) {
        return;
    }
    double ticks = (double)sysconf(_SC_CLK_TCK);
    double booted = clock_s(CLOCK_REALTIME) - clock_s(CLOCK_BOOTTIME);
    out->cpu_s = (double)(utime + stime) / ticks;
    out->start_s = booted + (double)start / ticks;
    out->virtual_bytes = (double)virtual_bytes;
    out->resident_bytes = (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static double count_open_files(void) {
    DIR *folder = opendir("/proc/self/fd");
    int n = -1; /* the folder itself is open */
    if (!folder) return NAN;
    for (const struct dirent *entry; (entry = readdir(folder));) n += entry->d_name[0] != '.';
    closedir(folder);
    return n;
}

void process_stats(struct process_stats *out) {
    struct rlimit files;
    *out = (struct process_stats){NAN, NAN, NAN, NAN, NAN, NAN};
    read_stat(out);
    out->open_files = count_open_files();
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) out->max_files = (double)files.rlim_cur;
}
