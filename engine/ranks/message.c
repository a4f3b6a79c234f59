/* Actions as bytes. A pass's message is 32-bit integers:
 *
 *     [header: kind, M, S, blocks of a sequence, R, n_hidden, n_copies, n_state_copies, is_ahead,
 *      arrays]
 *     [token: M][position: M][slot: M][row_start: S + 1] .. the arrays in the order of the table
 *
 * `arrays` has a bit for each array that the message has. Block tables are cut to the blocks that
 * rows see, the same number for all sequences. Samples are not sent: only rank 0 samples. Pending
 * tokens are sent by their negative ids: only rank 0 reads tokens. Nor are next tokens and the rows
 * of hidden vectors sent: only rank 0 reads them. */
#include <assert.h>
#include <string.h>

#include "engine/ranks/internal.h"

enum {
    KIND,
    ROWS,
    SEQUENCES,
    BLOCKS,
    LOGIT_ROWS,
    HIDDEN,
    COPIES,
    STATE_COPIES,
    IS_AHEAD,
    ARRAYS,
    HEADER_INTS
};

/* How many numbers an array has. */
enum array_extent {
    PER_ROW,
    PER_SEQUENCE,
    PER_START,
    PER_BLOCK,
    PER_LOGIT_ROW,
    PER_COPY,
    PER_STATE_COPY
};

static const struct {
    size_t at; /* of the pointer in struct step */
    enum array_extent extent;
} arrays[] = {
    {offsetof(struct step, token), PER_ROW},
    {offsetof(struct step, position), PER_ROW},
    {offsetof(struct step, slot), PER_ROW},
    {offsetof(struct step, type), PER_ROW},
    {offsetof(struct step, row_start), PER_START},
    {offsetof(struct step, logit_row), PER_LOGIT_ROW},
    {offsetof(struct step, copy_from), PER_COPY},
    {offsetof(struct step, copy_to), PER_COPY},
    {offsetof(struct step, table), PER_BLOCK},
    {offsetof(struct step, window_slot), PER_ROW},
    {offsetof(struct step, window_copy_from), PER_COPY},
    {offsetof(struct step, window_copy_to), PER_COPY},
    {offsetof(struct step, window_table), PER_BLOCK},
    {offsetof(struct step, adapter), PER_ROW},
    {offsetof(struct step, state), PER_SEQUENCE},
    {offsetof(struct step, state_after), PER_ROW},
    {offsetof(struct step, state_from), PER_STATE_COPY},
    {offsetof(struct step, state_to), PER_STATE_COPY},
};
enum { N_ARRAYS = sizeof arrays / sizeof *arrays };

static size_t extent_of(enum array_extent extent, const int32_t *header) {
    const size_t S = (size_t)header[SEQUENCES];
    switch (extent) {
    case PER_ROW:
        return (size_t)header[ROWS];
    case PER_SEQUENCE:
        return S;
    case PER_START:
        return S + 1;
    case PER_BLOCK:
        return S * (size_t)header[BLOCKS];
    case PER_LOGIT_ROW:
        return (size_t)header[LOGIT_ROWS];
    case PER_COPY:
        return (size_t)header[COPIES];
    case PER_STATE_COPY:
        return (size_t)header[STATE_COPIES];
    }
    return 0;
}

static const int32_t *array_of(const struct step *step, int i) {
    const int32_t *array;
    memcpy(&array, (const char *)step + arrays[i].at, sizeof array);
    return array;
}

/* A step copies at most one block of each kind, and one state, per sequence. */
size_t message_step_most(int rows, int seqs, int blocks) {
    assert(rows > 0 && seqs > 0 && blocks > 0);
    const int32_t header[HEADER_INTS] = {
        [ROWS] = rows,       [SEQUENCES] = seqs, [BLOCKS] = blocks,
        [LOGIT_ROWS] = rows, [COPIES] = seqs,    [STATE_COPIES] = seqs};
    size_t n = HEADER_INTS;
    for (int i = 0; i < N_ARRAYS; i++) n += extent_of(arrays[i].extent, header);
    return n * sizeof *header;
}

/* The blocks that the rows of any sequence see. */
static int blocks_seen(const struct step *step, int block_size) {
    int most = 0;
    for (int s = 0; s < step->S; s++)
        most = max_int(most, step->position[step->row_start[s + 1] - 1] / block_size + 1);
    return min_int(most, step->table_stride);
}

/* Copies one array, or the first blocks of each line of a table. Returns its numbers. */
static size_t put_array(int32_t *out, const int32_t *array, enum array_extent extent,
                        const int32_t *header, int stride) {
    const size_t n = extent_of(extent, header), line = (size_t)header[BLOCKS];
    if (extent != PER_BLOCK) {
        memcpy(out, array, n * sizeof *out);
        return n;
    }
    for (size_t s = 0; s < (size_t)header[SEQUENCES]; s++)
        memcpy(out + s * line, array + s * (size_t)stride, line * sizeof *out);
    return n;
}

size_t message_step_pack(int32_t *out, size_t capacity, const struct step *step, int block_size) {
    int32_t *header = out;
    size_t n = HEADER_INTS;
    assert(step->M > 0 && step->S > 0 && block_size > 0);
    assert(step->n_state_copies == 0 || step->state);
    header[KIND] = MESSAGE_PASS;
    header[ROWS] = step->M;
    header[SEQUENCES] = step->S;
    header[BLOCKS] = blocks_seen(step, block_size);
    header[LOGIT_ROWS] = step->R;
    header[HIDDEN] = step->n_hidden;
    header[COPIES] = step->n_copies;
    header[STATE_COPIES] = step->n_state_copies;
    header[IS_AHEAD] = step->is_ahead;
    header[ARRAYS] = 0;
    for (int i = 0; i < N_ARRAYS; i++) {
        const int32_t *array = array_of(step, i);
        if (!array || extent_of(arrays[i].extent, header) == 0) continue;
        assert((n + extent_of(arrays[i].extent, header)) * sizeof *out <= capacity);
        header[ARRAYS] |= 1 << i;
        n += put_array(out + n, array, arrays[i].extent, header, step->table_stride);
    }
    return n * sizeof *out;
}

/* The bit of a step's array in a header. */
static int32_t bit_of(size_t at) {
    int i = 0;
    while (i < N_ARRAYS - 1 && arrays[i].at != at) i++;
    assert(arrays[i].at == at);
    return 1 << i;
}

/* Has the header the arrays of every step, and those of copied states if there are any? */
static bool has_arrays(const int32_t *header) {
    int32_t needed = bit_of(offsetof(struct step, token)) |
                     bit_of(offsetof(struct step, position)) | bit_of(offsetof(struct step, slot)) |
                     bit_of(offsetof(struct step, row_start)) |
                     bit_of(offsetof(struct step, table));
    if (header[STATE_COPIES] > 0)
        needed |= bit_of(offsetof(struct step, state)) | bit_of(offsetof(struct step, state_from)) |
                  bit_of(offsetof(struct step, state_to));
    return (header[ARRAYS] & needed) == needed && header[ARRAYS] >> N_ARRAYS == 0;
}

/* Are the numbers of a header possible? */
static bool header_is_whole(const int32_t *header) {
    return header[KIND] == MESSAGE_PASS && header[ROWS] > 0 && header[SEQUENCES] > 0 &&
           header[SEQUENCES] <= header[ROWS] && header[BLOCKS] > 0 && header[LOGIT_ROWS] >= 0 &&
           header[LOGIT_ROWS] <= header[ROWS] && header[HIDDEN] >= 0 &&
           header[HIDDEN] <= header[LOGIT_ROWS] && header[COPIES] >= 0 &&
           header[STATE_COPIES] >= 0 && (header[IS_AHEAD] == 0 || header[IS_AHEAD] == 1) &&
           has_arrays(header);
}

bool message_step_unpack(struct step *out, const int32_t *message, size_t bytes) {
    const int32_t *header = message;
    size_t n = HEADER_INTS;
    *out = (struct step){0};
    if (bytes < n * sizeof *message || !header_is_whole(header)) return false;
    for (int i = 0; i < N_ARRAYS; i++) {
        if (!(header[ARRAYS] & 1 << i)) continue;
        const int32_t *array = message + n;
        n += extent_of(arrays[i].extent, header);
        if (n * sizeof *message > bytes) return false;
        memcpy((char *)out + arrays[i].at, &array, sizeof array);
    }
    out->M = header[ROWS];
    out->S = header[SEQUENCES];
    out->table_stride = header[BLOCKS];
    out->R = header[LOGIT_ROWS];
    out->n_hidden = header[HIDDEN];
    out->n_copies = header[COPIES];
    out->n_state_copies = header[STATE_COPIES];
    out->is_ahead = header[IS_AHEAD] == 1;
    return n * sizeof *message == bytes && out->row_start[0] == 0 &&
           out->row_start[out->S] == out->M;
}

/* ---- the cache ------------------------------------------------------------------------------ */

void message_cache_pack(struct message_cache *out, const struct kv_config *config,
                        size_t step_bytes) {
    *out = (struct message_cache){MESSAGE_CACHE, *config, step_bytes, {{0}}, {0}};
    assert(config->L >= 0 && config->L <= MAX_LAYERS && config->heads && config->has_window);
    memcpy(out->heads, config->heads, (size_t)config->L * sizeof *out->heads);
    memcpy(out->has_window, config->has_window, (size_t)config->L * sizeof *out->has_window);
}

bool message_cache_unpack(struct message_cache *message, size_t bytes) {
    struct kv_config *config = &message->config;
    if (bytes != sizeof *message || message->kind != MESSAGE_CACHE) return false;
    config->heads = message->heads;
    config->has_window = message->has_window;
    return config->L >= 0 && config->L <= MAX_LAYERS && config->block_size > 0 &&
           config->n_blocks > 0 && message->step_bytes <= PEERS_MESSAGE_BYTES;
}
