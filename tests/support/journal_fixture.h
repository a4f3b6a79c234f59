/* A journal in a folder of its own, for one source of a program. */
#ifndef TESTS_SUPPORT_JOURNAL_FIXTURE_H
#define TESTS_SUPPORT_JOURNAL_FIXTURE_H

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/promises/internal.h"

static char folder[64];
static struct journal *journal;
static struct err err;
static sem_t done;

static inline void on_done(void *arg) {
    (void)arg;
    sem_post(&done);
}

/* Deletes the files of the folder. */
static inline void empty_folder(void) {
    DIR *dir = opendir(folder);
    const struct dirent *found;
    while (dir && (found = readdir(dir)))
        if (found->d_name[0] != '.') unlinkat(dirfd(dir), found->d_name, 0);
    if (dir) closedir(dir);
}

static inline enum status open_sized(int64_t size) {
    struct journal_config config = {.folder = folder, .size = size, .on_done = on_done};
    err = (struct err){0};
    return journal_open(&journal, &config, &err);
}

static inline enum status open_journal(void) {
    return open_sized(JOURNAL_MIN_SIZE);
}

static inline void close_journal(void) {
    journal_close(journal);
    journal = NULL;
}

static inline void folder_setup(void) {
    const char *memory = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; /* fast syncs */
    log_setup(LOG_ERROR, LOG_TEXT);
    snprintf(folder, sizeof folder, "%s/penstock-journal-XXXXXX", memory);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    sem_init(&done, 0, 0);
}

static inline void folder_teardown(void) {
    close_journal();
    empty_folder();
    rmdir(folder);
}

/* A record of a promise whose id and Idempotency-Key are "i<number>" and "k<number>". */
struct sample {
    struct record record;
    char id[24], key[24];
};

static inline void sample_make(struct sample *sample, enum record_kind kind, uint64_t number,
                               const char *body, size_t length) {
    *sample = (struct sample){.record = {.kind = kind, .promise = number, .created_s = 7}};
    snprintf(sample->id, sizeof sample->id, "i%llu", (unsigned long long)number);
    snprintf(sample->key, sizeof sample->key, "k%llu", (unsigned long long)number);
    if (kind == RECORD_REMOVED) return;
    sample->record.flags = RECORD_STORED;
    record_set(&sample->record, RECORD_ID, sample->id, strlen(sample->id));
    record_set(&sample->record, RECORD_IDEMPOTENCY, sample->key, strlen(sample->key));
    record_set(&sample->record, RECORD_PATH, "/v1/responses", 13);
    record_set(&sample->record, RECORD_BODY, body, length);
}

/* Writes a record and waits until it is on the disk. Returns the status of the write. */
static inline enum status write_sample(enum record_kind kind, uint64_t number, const char *body,
                                       size_t length) {
    struct sample sample;
    struct journal_write *write;
    sample_make(&sample, kind, number, body, length);
    journal_push(journal, journal_write_new(&sample.record, &sample));
    while (!(write = journal_take(journal))) sem_wait(&done);
    ck_assert_ptr_eq(write->owner, &sample);
    err = write->err;
    journal_write_free(write);
    return err.status;
}

static inline enum status put(enum record_kind kind, uint64_t number) {
    return write_sample(kind, number, "{}", 2);
}

/* Is the promise in the index, and does its record name it? */
static inline bool has(uint64_t number) {
    char id[24];
    struct promise_entry entry;
    struct buf bytes = {0};
    struct record record;
    snprintf(id, sizeof id, "i%llu", (unsigned long long)number);
    if (!journal_find_id(journal, NULL, id, &entry)) return false;
    bool ok = journal_read(journal, &entry, &bytes, &record, NULL) == STATUS_OK &&
              record_is(&record, RECORD_ID, id, strlen(id));
    buf_free(&bytes);
    return ok;
}

static inline struct journal_stats stats_now(void) {
    struct journal_stats stats;
    journal_stats(journal, &stats);
    return stats;
}

/* Reads a file of the folder. The caller frees it. */
static inline struct buf file_content(const char *name) {
    struct buf content = {0};
    char *path = path_in(folder, name), part[4096];
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;) buf_add(&content, part, n);
    fclose(file);
    mem_free(path);
    return content;
}

static inline void write_file(const char *name, const char *data, size_t length) {
    char *path = path_in(folder, name);
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(data, 1, length, file), length);
    fclose(file);
    mem_free(path);
}

#define FIRST_SEGMENT "0000000000000001.journal"

#endif
