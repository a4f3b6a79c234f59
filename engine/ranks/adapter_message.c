/* Adapters as bytes. Rank 0 reads an adapter's file and cuts it, so other machines do not need
 * a copy of the file, and all ranks have parts of the same file:
 *
 *     MESSAGE_ADAPTER   [number, largest rank, parts, bytes]
 *                       [layer, role, type, rank, scale, a, b] ..
 *     MESSAGE_NUMBERS   [number, first][bytes] ..       as often as needed, in rising order
 *
 * A rank makes room at the first message, and copies numbers at the others. */
#include <assert.h>
#include <string.h>

#include "engine/ranks/internal.h"

static int64_t place_in(const struct adapter *adapter, const void *matrix) {
    const int64_t at = (const uint8_t *)matrix - adapter->numbers;
    assert(at >= 0 && at < adapter->bytes && at % ADAPTER_ALIGN == 0);
    return at;
}

size_t message_adapter_pack(struct message_adapter *out, int number,
                            const struct adapter *adapter) {
    const size_t bytes = sizeof *out + (size_t)adapter->n * sizeof *out->part;
    assert(number > 0 && adapter->n > 0 && bytes <= ADAPTER_MESSAGE_BYTES);
    *out = (struct message_adapter){MESSAGE_ADAPTER, number, adapter->rank, adapter->n,
                                    adapter->bytes};
    for (int i = 0; i < adapter->n; i++) {
        const struct adapter_part *part = &adapter->part[i];
        out->part[i] = (struct message_part){.layer = part->layer,
                                             .role = (int16_t)part->role,
                                             .rank = part->low.rank,
                                             .type = (int16_t)part->low.type,
                                             .scale = part->low.scale,
                                             .a = place_in(adapter, part->low.a),
                                             .b = place_in(adapter, part->low.b_panels)};
    }
    return bytes;
}

static bool is_within(int64_t first, size_t n, int64_t all) {
    return first >= 0 && n <= (size_t)all && first <= all - (int64_t)n;
}

/* Can the part change a matrix of the model, and are its numbers in the message's? */
static bool part_is_whole(const struct message_part *part, const struct model *model,
                          const struct message_adapter *message) {
    if (part->layer < 0 || part->layer >= model->config.L || part->role < 0 ||
        part->role >= N_ROLES || part->rank < 1 || part->rank > message->rank)
        return false;
    if (part->type != DTYPE_F32 && part->type != DTYPE_F16 && part->type != DTYPE_BF16)
        return false;
    if (part->a % ADAPTER_ALIGN || part->b % ADAPTER_ALIGN) return false;
    if (!model_adapts(model, (enum role)part->role, part->layer)) return false;
    const struct role_info *info = role_info((enum role)part->role);
    const int N = role_extent(&model->part, info->N, part->layer);
    const size_t K = (size_t)role_extent(&model->part, info->K, part->layer);
    const size_t a = (size_t)part->rank * K, b = low_rank_numbers(part->rank, N);
    const enum dtype type = (enum dtype)part->type;
    return is_within(part->a, dtype_bytes(type, a), message->bytes) &&
           is_within(part->b, dtype_bytes(type, b), message->bytes);
}

static bool adapter_is_whole(const struct model *model, const struct message_adapter *message,
                             size_t bytes) {
    if (bytes < sizeof *message || message->kind != MESSAGE_ADAPTER || message->n < 1 ||
        message->bytes < 1 || message->bytes % ADAPTER_ALIGN ||
        message->bytes > INT64_MAX - ADAPTER_ALIGN || message->number < 1 ||
        message->number > model->adapters.n)
        return false;
    if ((bytes - sizeof *message) / sizeof *message->part != (size_t)message->n ||
        (bytes - sizeof *message) % sizeof *message->part != 0)
        return false;
    for (int i = 0; i < message->n; i++)
        if (!part_is_whole(&message->part[i], model, message)) return false;
    return true;
}

bool message_adapter_unpack(struct adapter **out, const struct model *model,
                            const struct message_adapter *message, size_t bytes) {
    *out = NULL;
    if (!adapter_is_whole(model, message, bytes)) return false;
    struct adapter *adapter = adapter_new(message->n, message->bytes);
    if (!adapter) return true;
    adapter->n = message->n;
    adapter->rank = message->rank;
    for (int i = 0; i < message->n; i++) {
        const struct message_part *part = &message->part[i];
        adapter->part[i] =
            (struct adapter_part){part->layer,
                                  (enum role)part->role,
                                  {part->rank, part->scale, adapter->numbers + part->a,
                                   adapter->numbers + part->b, (enum dtype)part->type}};
    }
    *out = adapter;
    return true;
}

size_t message_numbers_pack(struct message_numbers *out, int number, const struct adapter *adapter,
                            int64_t first, int64_t *n) {
    const int64_t left = adapter->bytes - first;
    assert(number > 0 && first >= 0 && left > 0);
    *n = min_int64(left, MOST_NUMBERS);
    *out = (struct message_numbers){MESSAGE_NUMBERS, number, first};
    memcpy(out->numbers, adapter->numbers + first, (size_t)*n);
    return sizeof *out + (size_t)*n;
}

bool message_numbers_unpack(struct adapter *adapter, const struct message_numbers *message,
                            size_t bytes) {
    assert(adapter && adapter->bytes > 0);
    if (bytes <= sizeof *message) return false;
    const size_t n = bytes - sizeof *message;
    if (!is_within(message->first, n, adapter->bytes)) return false;
    memcpy(adapter->numbers + message->first, message->numbers, n);
    return true;
}
