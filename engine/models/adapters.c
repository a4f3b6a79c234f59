/* DESIGN: the adapters of a model by number.
 *
 * Each matrix that adapters may change has a table of their parts, and row m of a step uses entry
 * adapter[m] of it:
 *
 *     tensors.low[role] -> ranks[layer][i] -> parts[layer][i][0 .. n]     entry 0: the base model
 *
 * The thread that loads an adapter fills the entries of a number that no sequence has. The engine
 * thread reads only the entries of its rows, and learns of the number later, through the inbox of
 * the scheduler. So tables need no lock. They outlive the weights, which the engine thread may
 * unload and load again while another thread loads an adapter: its thread reads the config and the
 * tables, never the matrices. On a device the ops read a copy of the table (adapter_copies.c). */
#include <assert.h>
#include <string.h>

#include "engine/models/model.h"

/* The matrices that adapters may change: the projections of attention, of short convolutions and of
 * MLPs. The last layer computes those from ROLE_O on only for rows that are read. */
static const enum role adapted[] = {
    ROLE_Q, ROLE_K,        ROLE_V,    ROLE_CONV_GATE_IN, ROLE_CONV_GATE_OUT, ROLE_CONV_X,
    ROLE_O, ROLE_CONV_OUT, ROLE_GATE, ROLE_UP,           ROLE_DOWN,
};

static_assert(sizeof adapted / sizeof *adapted == N_ADAPTED, "model.h has their number");
enum { FIRST_READ = 6 };

int adapted_place(enum role role) {
    for (int i = 0; i < N_ADAPTED; i++)
        if (adapted[i] == role) return i;
    return -1;
}

static struct low_rank *parts_of(const struct model *model, int layer, int place) {
    assert(layer >= 0 && layer < model->config.L && place >= 0 && place < N_ADAPTED);
    size_t i = (size_t)layer * N_ADAPTED + (size_t)place;
    return model->adapters.parts + i * (size_t)(model->adapters.n + 1);
}

static struct low_ranks *ranks_of(const struct model *model, int layer, int place) {
    assert(layer >= 0 && layer < model->config.L && place >= 0 && place < N_ADAPTED);
    return &model->adapters.ranks[(size_t)layer * N_ADAPTED + (size_t)place];
}

void model_adapters_open(struct model *model, int n, int64_t bytes) {
    struct model_adapters *a = &model->adapters;
    const size_t matrices = (size_t)model->config.L * N_ADAPTED;
    assert(n > 0 && bytes > 0 && a->n == 0 && model->layers);
    a->n = n;
    a->bytes = bytes;
    a->ranks = mem_calloc(matrices, sizeof *a->ranks);
    a->parts = mem_calloc(matrices * (size_t)(n + 1), sizeof *a->parts);
    a->number = mem_calloc((size_t)n + 1, sizeof *a->number);
    a->read_rows.are_read = true;
    a->of_logit_rows = mem_calloc((size_t)model->act.max_logit_rows, sizeof *a->of_logit_rows);
    for (int layer = 0; layer < model->config.L; layer++)
        for (int i = 0; i < N_ADAPTED; i++)
            if (model->layers[layer].w[adapted[i]]) {
                const bool is_read = layer == model->config.L - 1 && i >= FIRST_READ;
                *ranks_of(model, layer, i) = (struct low_ranks){is_read ? &a->read_rows : &a->rows,
                                                                parts_of(model, layer, i)};
            }
}

enum status model_adapters_attach(struct model *model, struct err *err) {
    struct model_adapters *a = &model->adapters;
    assert(a->n > 0 && model->layers);
    enum status status = adapter_copies_open(model, err);
    if (status) return status;
    for (int layer = 0; layer < model->config.L; layer++)
        for (int i = 0; i < N_ADAPTED; i++) {
            struct low_ranks *ranks = ranks_of(model, layer, i);
            const struct low_rank *host = parts_of(model, layer, i);
            assert((ranks->rows != NULL) == (model->layers[layer].w[adapted[i]] != NULL));
            if (!ranks->rows) continue;
            if (a->copies.parts) ranks->of = a->copies.parts + (host - a->parts);
            model->layers[layer].low[adapted[i]] = ranks;
        }
    model_write_program(model);
    return STATUS_OK;
}

void model_adapters_close(struct model *model) {
    mem_free(model->adapters.ranks);
    mem_free(model->adapters.parts);
    mem_free(model->adapters.number);
    mem_free(model->adapters.of_logit_rows);
    model->adapters = (struct model_adapters){0};
}

bool model_adapts(const struct model *model, enum role role, int layer) {
    const int place = adapted_place(role);
    assert(role < N_ROLES && layer < model->config.L && model->adapters.n > 0);
    return layer >= 0 && place >= 0 && ranks_of(model, layer, place)->rows;
}

void model_adapter_set(struct model *model, int number, const struct adapter *adapter) {
    assert(number > 0 && number <= model->adapters.n && adapter->n > 0);
    for (int i = 0; i < adapter->n; i++) {
        const struct adapter_part *part = &adapter->part[i];
        struct low_rank *parts = parts_of(model, part->layer, adapted_place(part->role));
        assert(parts[number].rank == 0 && part->low.rank > 0);
        parts[number] = part->low;
    }
    struct adapter_number *to = &model->adapters.number[number];
    assert(!to->adapter && to->version == 0);
    to->adapter = adapter;
    to->version = ++model->adapters.n_versions;
}

void model_adapter_clear(struct model *model, int number) {
    assert(number > 0 && number <= model->adapters.n && model->adapters.number[number].adapter);
    model->adapters.number[number].version = 0;
    model->adapters.number[number].adapter = NULL;
    for (int layer = 0; layer < model->config.L; layer++)
        for (int i = 0; i < N_ADAPTED; i++)
            parts_of(model, layer, i)[number] = (struct low_rank){0};
}

struct adapter *adapter_new(int parts, int64_t bytes) {
    assert(parts > 0 && bytes > 0 && bytes % ADAPTER_ALIGN == 0);
    struct adapter *adapter = mem_try_calloc(1, sizeof *adapter);
    if (!adapter) return NULL;
    adapter->part = mem_try_calloc((size_t)parts, sizeof *adapter->part);
    adapter->memory = mem_try_calloc((size_t)bytes + ADAPTER_ALIGN - 1, 1);
    if (!adapter->part || !adapter->memory) {
        adapter_free(adapter);
        return NULL;
    }
    const uintptr_t first = (uintptr_t)adapter->memory + ADAPTER_ALIGN - 1;
    adapter->numbers = (uint8_t *)(first / ADAPTER_ALIGN * ADAPTER_ALIGN);
    adapter->bytes = bytes;
    mem_prefer_huge(adapter->numbers, (size_t)bytes); /* each step reads all */
    return adapter;
}

void adapter_free(struct adapter *adapter) {
    if (!adapter) return;
    mem_free(adapter->part);
    mem_free(adapter->memory);
    mem_free(adapter);
}

void model_adapters_begin(struct model *model, const struct step *step) {
    struct model_adapters *a = &model->adapters;
    assert((a->n > 0 || !step->adapter) && step->R <= model->act.max_logit_rows);
    a->rows.adapter = step->adapter;
    a->read_rows.adapter = step->adapter ? a->of_logit_rows : NULL;
    for (int r = 0; step->adapter && r < step->R; r++)
        a->of_logit_rows[r] = step->adapter[step->logit_row[r]];
    if (a->copies.numbers && step->adapter) adapter_copies_update(model, step);
}
