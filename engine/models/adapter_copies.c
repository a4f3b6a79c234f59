/* DESIGN: copies of adapters in the memory of a device.
 *
 * The thread that loads adapters keeps them in host memory (adapters.c). The engine thread copies
 * an adapter when a step first has a row of it, so all accesses of the device are its own, in the
 * order of its steps: it overwrites nothing that an earlier step still reads.
 *
 *     numbers   | adapter of number 3 | free | adapter of number 1 | ...     `bytes` in all
 *     parts     [L][N_ADAPTED][n + 1]: ranks and scales, and addresses in `numbers`
 *
 * A copy is current while its number holds the adapter of the same version. The versions are the
 * only fields that both threads access at once: the loading thread sets one after all other fields,
 * and the engine thread reads those fields only for numbers of its rows, which do not change. The
 * room of a copy that is not current is free. If no free room is long enough, all copies are
 * dropped, and those of the step's rows are made again. All loaded adapters fit (bytes,
 * used_bytes). If ranks share the model, each has the copies of its parts on its own device: all
 * parts of an adapter have the same number of bytes, so a rank needs its share of the memory. */
#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "engine/models/model.h"

static size_t parts_bytes(const struct model *model) {
    return (size_t)model->config.L * N_ADAPTED * (size_t)(model->adapters.n + 1) *
           sizeof(struct low_rank);
}

static void *take(struct backend *b, size_t bytes, struct err *err) {
    struct device_memory memory = {0};
    void *buffer = b->memory->buffer_new(b, bytes);
    if (buffer) return buffer;
    b->memory->available(b, &memory);
    device_out_of_memory(err, "lora-memory", "adapters", bytes, &memory,
                         "lower {max-loras}, {max-lora-rank} or {lora-memory}");
    return NULL;
}

enum status adapter_copies_open(struct model *model, struct err *err) {
    struct model_adapters *a = &model->adapters;
    struct adapter_copies *copies = &a->copies;
    assert(a->n > 0 && a->bytes > 0 && !copies->numbers && !copies->parts);
    if (model->backend->host_memory) return STATUS_OK;
    copies->bytes = a->bytes / model->shard.ranks;
    assert(copies->bytes > 0);
    copies->numbers = take(model->backend, (size_t)copies->bytes, err);
    if (copies->numbers) copies->parts = take(model->backend, parts_bytes(model), err);
    if (!copies->parts) return STATUS_USAGE;
    copies->host_parts = mem_calloc(1, parts_bytes(model));
    copies->place = mem_calloc((size_t)a->n + 1, sizeof *copies->place);
    return STATUS_OK;
}

void adapter_copies_close(struct model *model) {
    struct adapter_copies *copies = &model->adapters.copies;
    const struct memory_ops *memory = model->backend->memory;
    if (copies->numbers)
        memory->buffer_free(model->backend, copies->numbers, (size_t)copies->bytes);
    if (copies->parts) memory->buffer_free(model->backend, copies->parts, parts_bytes(model));
    mem_free(copies->host_parts);
    mem_free(copies->place);
    *copies = (struct adapter_copies){0};
}

/* ---- places --------------------------------------------------------------------------------- */

static bool is_current(const struct model_adapters *a, int number) {
    const uint64_t copied = a->copies.place[number].version;
    return copied != 0 && copied == atomic_load(&a->number[number].version);
}

/* Is `bytes` from `first` on free? */
static bool is_free(const struct model_adapters *a, int64_t first, int64_t bytes) {
    if (first + bytes > a->copies.bytes) return false;
    for (int i = 1; i <= a->n; i++) {
        const struct adapter_place *other = &a->copies.place[i];
        if (is_current(a, i) && first < other->end && other->first < first + bytes) return false;
    }
    return true;
}

/* Returns the first byte of free room, which begins with the memory or after a copy; -1: none is
 * long enough. */
static int64_t free_room(const struct model_adapters *a, int64_t bytes) {
    if (is_free(a, 0, bytes)) return 0;
    for (int i = 1; i <= a->n; i++)
        if (is_current(a, i) && is_free(a, a->copies.place[i].end, bytes))
            return a->copies.place[i].end;
    return -1;
}

/* ---- copying -------------------------------------------------------------------------------- */

/* Writes the entries of a number, with addresses in its copy. */
static void write_entries(const struct model *model, int number, const uint8_t *copy) {
    const struct model_adapters *a = &model->adapters;
    const struct adapter *adapter = a->number[number].adapter;
    const size_t each = (size_t)a->n + 1, matrices = (size_t)model->config.L * N_ADAPTED;
    for (size_t i = 0; i < matrices; i++)
        a->copies.host_parts[i * each + (size_t)number] = (struct low_rank){0};
    for (int i = 0; i < adapter->n; i++) {
        const struct adapter_part *part = &adapter->part[i];
        const size_t matrix = (size_t)part->layer * N_ADAPTED + (size_t)adapted_place(part->role);
        struct low_rank *to = &a->copies.host_parts[matrix * each + (size_t)number];
        *to = part->low;
        to->a = copy + ((const uint8_t *)part->low.a - adapter->numbers);
        to->b_panels = copy + ((const uint8_t *)part->low.b_panels - adapter->numbers);
    }
}

/* Copies the adapter of a number. Returns false if no free room is long enough. */
static bool copy_adapter(struct model *model, int number) {
    struct model_adapters *a = &model->adapters;
    const struct adapter *adapter = a->number[number].adapter;
    assert(adapter && !is_current(a, number));
    const int64_t bytes = adapter->bytes, first = free_room(a, bytes);
    if (first < 0) return false;
    uint8_t *copy = a->copies.numbers + first;
    model->backend->memory->upload(model->backend, copy, adapter->numbers, (size_t)adapter->bytes);
    write_entries(model, number, copy);
    a->copies.place[number] =
        (struct adapter_place){atomic_load(&a->number[number].version), first, first + bytes};
    assert(is_current(a, number));
    return true;
}

/* Copies the adapters of the rows whose copies are not current. Sets *copied if it copies one. */
static bool copy_missing(struct model *model, const struct step *step, bool *copied) {
    for (int m = 0; m < step->M; m++) {
        const int number = step->adapter[m];
        assert(number >= 0 && number <= model->adapters.n);
        if (number == 0 || is_current(&model->adapters, number)) continue;
        if (!copy_adapter(model, number)) return false;
        *copied = true;
    }
    return true;
}

void adapter_copies_update(struct model *model, const struct step *step) {
    struct adapter_copies *copies = &model->adapters.copies;
    bool copied = false;
    assert(copies->numbers && copies->parts && step->adapter);
    if (!copy_missing(model, step, &copied)) {
        memset(copies->place, 0, ((size_t)model->adapters.n + 1) * sizeof *copies->place);
        const bool fits = copy_missing(model, step, &copied);
        assert(fits);
        (void)fits;
    }
    if (copied)
        model->backend->memory->upload(model->backend, copies->parts, copies->host_parts,
                                       parts_bytes(model));
}
