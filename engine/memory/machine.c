/* The memory that the process may use. A container sees the whole machine in /proc/meminfo, so the
 * limits of its cgroup and of all cgroups above apply as well. Memory that only caches files counts
 * as free in both. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/memory/memory.h"

#define UNREADABLE ((int64_t)1 << 30) /* assumed if the system provides no data */
/* cgroup version 1 expresses "no limit" by a number near 2^63 */
#define UNLIMITED ((int64_t)1 << 60)

/* The integer at the end of the first line that begins with `name` ("" matches any line), or -1. */
static int64_t number_after(const char *path, const char *name) {
    FILE *file = fopen(path, "re");
    char line[512];
    int64_t number = -1;
    size_t length = strlen(name);
    if (!file) return -1;
    while (number < 0 && fgets(line, sizeof line, file)) {
        if (strncmp(line, name, length) != 0) continue;
        if (sscanf(line + length, "%" SCNd64, &number) != 1) number = -1;
        if (length == 0) break;
    }
    fclose(file);
    return number;
}

/* Joins the path of a file in a cgroup's folder. Returns false if the path is too long. */
static bool join(char *out, size_t size, const char *folder, const char *file) {
    return snprintf(out, size, "%s/%s", folder, file) < (int)size;
}

static int64_t read_limit(const char *folder, const char *file, const char *line) {
    char path[4096];
    return join(path, sizeof path, folder, file) ? number_after(path, line) : -1;
}

struct cgroup_files {
    const char *limit, *usage, *cache; /* cache: the line of memory.stat */
};

static const struct cgroup_files version_2 = {"memory.max", "memory.current", "inactive_file "};
static const struct cgroup_files version_1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                              "total_inactive_file "};

/* Lowers `memory` to the limit of one cgroup. */
static void apply_limit(struct machine_memory *memory, const char *folder,
                        const struct cgroup_files *files) {
    int64_t limit = read_limit(folder, files->limit, "");
    if (limit < 0 || limit >= UNLIMITED) return;
    int64_t usage = read_limit(folder, files->usage, "");
    int64_t cache = read_limit(folder, "memory.stat", files->cache);
    int64_t taken = usage > 0 ? usage - (cache > 0 ? cache : 0) : 0;
    int64_t left = limit - (taken > 0 ? taken : 0);
    if (left < 0) left = 0;
    if (limit < memory->total) memory->total = limit;
    if (left < memory->available) memory->available = left;
}

/* Applies the limits from root/path up to root, because a cgroup is also limited by its ancestors.
 */
static void apply_upwards(struct machine_memory *memory, const char *root, const char *path,
                          const struct cgroup_files *files) {
    char folder[4096];
    size_t root_length = strlen(root);
    if (snprintf(folder, sizeof folder, "%s%s", root, path) >= (int)sizeof folder) return;
    while (strlen(folder) > root_length) {
        apply_limit(memory, folder, files);
        *strrchr(folder, '/') = 0;
    }
    apply_limit(memory, root, files);
}

/* Applies one line of /proc/self/cgroup: "0::/path" is version 2, "7:memory:/path" version 1. */
static void apply_line(struct machine_memory *memory, const char *root, char *line) {
    line[strcspn(line, "\n")] = 0;
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path || path[1] != '/') return;
    *path++ = 0;
    controllers++;
    if (controllers[0] == 0) {
        apply_upwards(memory, root, path, &version_2);
    } else if (strstr(controllers, "memory")) {
        char below[4096];
        if (join(below, sizeof below, root, "memory"))
            apply_upwards(memory, below, path, &version_1);
    }
}

void machine_memory_read_at(struct machine_memory *memory, const char *proc, const char *cgroup) {
    int64_t total_kib = read_limit(proc, "meminfo", "MemTotal:");
    int64_t available_kib = read_limit(proc, "meminfo", "MemAvailable:");
    memory->total = total_kib > 0 ? total_kib * 1024 : UNREADABLE;
    memory->available = available_kib > 0 ? available_kib * 1024 : memory->total;
    char path[4096], line[4096];
    FILE *file = join(path, sizeof path, proc, "self/cgroup") ? fopen(path, "re") : NULL;
    if (!file) return;
    while (fgets(line, sizeof line, file)) apply_line(memory, cgroup, line);
    fclose(file);
    assert(memory->available >= 0);
}

void machine_memory_read(struct machine_memory *memory) {
    machine_memory_read_at(memory, "/proc", "/sys/fs/cgroup");
}
