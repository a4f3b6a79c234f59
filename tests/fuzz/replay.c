/* Runs a fuzzer's entry point over the files of its corpus folders, so that the seeds are a plain
 * test if libFuzzer is not linked. Arguments that begin with '-' are libFuzzer's and are skipped.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void replay_file(const char *path) {
    FILE *file = fopen(path, "rb");
    struct stat info;
    if (!file || fstat(fileno(file), &info) != 0) {
        perror(path);
        exit(1);
    }
    uint8_t *data = malloc((size_t)info.st_size + 1);
    size_t size = data ? fread(data, 1, (size_t)info.st_size, file) : 0;
    fclose(file);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
}

static int replay_folder(const char *folder) {
    DIR *dir = opendir(folder);
    if (!dir) {
        perror(folder);
        exit(1);
    }
    int n = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[4096];
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        replay_file(path);
        n++;
    }
    closedir(dir);
    return n;
}

int main(int argc, char **argv) {
    int n = 0;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-') n += replay_folder(argv[i]);
    }
    printf("%d inputs replayed\n", n);
    return n > 0 ? 0 : 1;
}
