/* DESIGN: files that change while they are mapped.
 *
 * Another program may truncate a mapped file, and a disk may fail. The system then sends SIGBUS to
 * the thread that reads a lost page. The bytes cannot be recovered, so the process ends. It first
 * logs the name of the file, and it ends with an exit code instead of a signal.
 *
 * Purpose   a list of the mapped files, in which the signal handler looks up the address.
 * Threads   any thread maps and closes files; the mutex protects the list. The handler does not
 *           lock: entries are never freed, only reused. An entry is valid while its `data` is
 *           set, and `data` is set last. If several threads fault at the same time, the first one
 *           writes the message and the others wait for the end.
 * Limits    a file that is overwritten but not truncated yields other bytes without a signal.
 *           mapping_check detects it by the file's size and modification time.
 */
#include "engine/files/tensors/mapping.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A process has 1,024 descriptors by default, and a model may have thousands of parts. Files with
 * descriptors from this number on are closed after they are mapped. */
enum { MOST_DESCRIPTORS = 256, EXIT_FILE_LOST = 1 };

/* ---- the list of mapped files --------------------------------------------------------------- */

struct mapped_file {
    _Atomic(const uint8_t *) data; /* NULL: the entry is free */
    size_t size;
    char *path;
    struct stat info; /* at the time of mapping */
    struct mapped_file *next;
};

static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct mapped_file *) mapped_files;
static struct sigaction action_before;
static atomic_flag file_is_lost = ATOMIC_FLAG_INIT;

/* Returns the file whose pages contain the address, or NULL. Safe in a signal handler. */
static struct mapped_file *find_mapped(const void *address) {
    for (struct mapped_file *file = atomic_load(&mapped_files); file; file = file->next) {
        const uint8_t *data = atomic_load(&file->data);
        if (data && (uintptr_t)address - (uintptr_t)data < file->size) return file;
    }
    return NULL;
}

static struct mapped_file *free_entry(void) {
    struct mapped_file *file = atomic_load(&mapped_files);
    while (file && atomic_load(&file->data)) file = file->next;
    if (file) return file;
    file = mem_calloc(1, sizeof *file);
    file->next = atomic_load(&mapped_files);
    atomic_store(&mapped_files, file);
    return file;
}

static void list_add(const struct mapping *mapping, const char *path, const struct stat *info) {
    pthread_mutex_lock(&list_mutex);
    struct mapped_file *file = free_entry();
    assert(!file->path);
    file->size = mapping->size;
    file->path = mem_strdup(path);
    file->info = *info;
    atomic_store(&file->data, mapping->data);
    pthread_mutex_unlock(&list_mutex);
}

static void list_remove(const struct mapping *mapping) {
    pthread_mutex_lock(&list_mutex);
    struct mapped_file *file = find_mapped(mapping->data);
    assert(file && file->size == mapping->size);
    atomic_store(&file->data, NULL);
    mem_free(file->path);
    file->path = NULL;
    pthread_mutex_unlock(&list_mutex);
}

/* ---- files that are lost -------------------------------------------------------------------- */

/* The faulting thread is reading a mapped file, so it does not hold the lock of log_line. */
static void on_lost_page(int number, siginfo_t *info, void *context) {
    (void)context;
    const struct mapped_file *file = info->si_code > 0 ? find_mapped(info->si_addr) : NULL;
    if (!file) { /* sent by another process, or another cause: use the previous action */
        sigaction(number, &action_before, NULL);
        if (info->si_code <= 0) raise(number);
        return;
    }
    while (atomic_flag_test_and_set(&file_is_lost)) pause();
    log_line(LOG_ERROR,
             "%s: byte %zu cannot be read any more; the file was cut short while it was in use, or "
             "its disk failed. Replace files by renaming another one to their name, and start "
             "again.",
             file->path, (size_t)((const uint8_t *)info->si_addr - atomic_load(&file->data)));
    _exit(EXIT_FILE_LOST);
}

static void catch_lost_pages(void) {
    struct sigaction action = {.sa_sigaction = on_lost_page, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &action_before);
}

static bool is_same_time(const struct timespec *a, const struct timespec *b) {
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

enum status mapping_check(const struct mapping *mapping, struct err *err) {
    struct stat now;
    if (!mapping->data) return STATUS_OK;
    const struct mapped_file *file = find_mapped(mapping->data);
    assert(file);
    int failed = mapping->fd >= 0 ? fstat(mapping->fd, &now) : stat(file->path, &now);
    bool is_other = failed || now.st_ino != file->info.st_ino || now.st_dev != file->info.st_dev;
    if (is_other && mapping->fd < 0) return STATUS_OK; /* another file has this name now */
    if (!is_other && now.st_size == file->info.st_size &&
        is_same_time(&now.st_mtim, &file->info.st_mtim))
        return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, "model",
                   "%s: the file was written to while it was read; replace files by renaming "
                   "another one to their name, and start again",
                   file->path);
}

/* ---- mapping -------------------------------------------------------------------------------- */

enum status mapping_open(struct mapping *out, const char *path, struct err *err) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, catch_lost_pages);
    /* refuses a pipe instead of waiting for it */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    *out = (struct mapping){0};
    if (fd < 0 || fstat(fd, &info) != 0) {
        int cause = errno;
        if (fd >= 0) close(fd);
        return err_set(err, STATUS_BAD_FILE, "model", "%s: %s", path, strerror(cause));
    }
    if (!S_ISREG(info.st_mode) || info.st_size == 0) {
        close(fd);
        return err_set(err, STATUS_BAD_FILE, "model", "%s: not a file, or an empty one", path);
    }
    void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
        int cause = errno;
        close(fd);
        return err_set(err, STATUS_BAD_FILE, "model", "%s: %s", path, strerror(cause));
    }
    if (fd >= MOST_DESCRIPTORS) {
        close(fd);
        fd = -1;
    }
    *out = (struct mapping){data, (size_t)info.st_size, fd};
    list_add(out, path, &info);
    return STATUS_OK;
}

void mapping_close(struct mapping *mapping) {
    if (mapping->data) {
        list_remove(mapping);
        munmap((void *)(uintptr_t)mapping->data, mapping->size);
        if (mapping->fd >= 0) close(mapping->fd);
    }
    *mapping = (struct mapping){0};
}

/* ---- paths ---------------------------------------------------------------------------------- */

bool is_in_folder(const char *folder, const char *name) {
    char *path = path_in(folder, name);
    bool is_there = access(path, F_OK) == 0;
    mem_free(path);
    return is_there;
}

enum status blame_file(struct err *err, enum status status, const char *path) {
    if (!err) return status;
    const struct err cause = *err;
    return err_set(err, status, cause.param[0] ? cause.param : "model", "%s: %s", path,
                   cause.message);
}
