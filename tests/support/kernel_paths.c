#include <stdio.h>
#include <string.h>

#include "support/kernel_data.h"
#include "support/kernel_paths.h"

const struct tested_path all_paths[N_PATHS] = {{&path_plain, "plain"},
                                               {&path_avx2, "avx2"},
                                               {&path_avxvnni, "avx2"},
                                               {&path_avx512vnni, "avx512vnni"},
                                               {&path_amx, "avx512vnni"}};

bool machine_has(const char *name) {
    for (const char *const *path = backend_cpu_paths(); *path; path++)
        if (strcmp(*path, name) == 0) return true;
    return false;
}

struct backend *open_path(int i, int threads, int max_rows, int max_k) {
    if (!machine_has(all_paths[i].base)) {
        printf("%s needs %s: not tested here\n", all_paths[i].path->name, all_paths[i].base);
        return NULL;
    }
    struct backend *b = open_backend("plain", threads, max_rows, max_k);
    cpu_of(b)->path = all_paths[i].path;
    return b;
}
