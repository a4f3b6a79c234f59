/* Segments of a prefix store: whatever their bytes are, a prompt gets only parts with the bytes
 * that were written for it. An input is the head of a segment, without the unused bytes after it,
 * then its records. The seeds are the segments of each part, for the first two blocks of the
 * prompt. */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scheduler/store/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { B = 4, N = 2 };
static const struct prefix_store_config shape = {.max_bytes = 1 << 20,
                                                 .identity = {1, 2},
                                                 .n_blocks = N,
                                                 .block_size = B,
                                                 .window = 3,
                                                 .part_bytes = {24, 16, 40}};
static const int32_t text[N * B] = {3, 1, 4, 1, 5, 9, 2, 6};

static void fill(uint8_t *content, enum cache_part part, int block) {
    for (size_t k = 0; k < shape.part_bytes[part]; k++)
        content[k] = (uint8_t)(k * 3 + 40 * (size_t)part + 7 * (size_t)block);
}

static void write_segment(const char *folder, const uint8_t *data, size_t size) {
    char path[100];
    size_t head = size < sizeof(struct segment_head) ? size : sizeof(struct segment_head);
    snprintf(path, sizeof path, "%s/0.segment", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    bool ok = fd >= 0 && pwrite(fd, data, head, 0) == (ssize_t)head;
    size -= head;
    if (ok && size > 0) ok = pwrite(fd, data + head, size, SEGMENT_HEAD) == (ssize_t)size;
    assert(ok);
    (void)ok;
    close(fd);
}

static void check(const struct restored_prefix *prefix) {
    uint8_t expected[40];
    for (int i = 0; prefix && i < prefix->n_parts; i++) {
        const struct restored_part *part = &prefix->part[i];
        assert(part->block >= 0 && part->block < prefix->n_blocks);
        fill(expected, part->part, part->block);
        assert(memcmp(part->content, expected, shape.part_bytes[part->part]) == 0);
    }
}

/* Offers all parts of the prompt except those of one kind, which the input may have. */
static void offer_others(struct prefix_store *store, enum cache_part absent) {
    struct block_hash parent = {0};
    for (int i = 0; i < N; i++) {
        struct block_hash hash = prefix_hash(parent, text + i * B, B);
        for (enum cache_part part = 0; part < N_CACHE_PARTS; part++) {
            uint8_t *content = part == absent
                                   ? NULL
                                   : prefix_store_reserve(store, part, hash, parent, text + i * B);
            if (!content) continue;
            fill(content, part, i);
            prefix_store_put(store, part);
        }
        parent = hash;
    }
}

static void read_beside(const char *folder, enum cache_part absent) {
    struct prefix_store_config config = shape;
    struct prefix_store *store;
    struct err err;
    config.place = folder;
    for (int round = 0; round < 2; round++) { /* the second one has the other parts, too */
        enum status status = prefix_store_open(&store, &config, &err);
        assert(!status);
        (void)status;
        struct restored_prefix *prefix = prefix_store_read(store, text, N * B, 0);
        check(prefix);
        restored_prefix_free(prefix);
        if (round == 0) offer_others(store, absent);
        prefix_store_close(store);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char rm[] = "rm -r ";
    char command[64] = "rm -r /tmp/fuzz_store_XXXXXX", *folder = command + sizeof rm - 1;
    struct segment_head head = {.part = PART_BLOCK};
    if (size >= sizeof head) memcpy(&head, data, sizeof head);
    if (!mkdtemp(folder)) abort();
    write_segment(folder, data, size);
    read_beside(folder, (enum cache_part)(head.part % N_CACHE_PARTS));
    if (system(command) != 0) abort();
    return 0;
}
