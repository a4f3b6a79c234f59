/* Any bytes as an adapter of a small model: it is refused with a message, or all its numbers are
 * finite and within the limits, and it can be loaded and unloaded.
 *
 * Bytes that begin with GGUF are a GGUF file. Others are a folder of PEFT: adapter_config.json up
 * to the first NUL, then adapter_model.safetensors. The readers open paths, so each input is
 * written to a folder below $TMPDIR or /tmp. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/adapters/adapters.h"
#include "engine/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_RANK = 64 };

static struct engine *engine;
static char folder[256];

static void require(bool holds) {
    if (!holds) abort();
}

static const char *path_of(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void clean_up(void) {
    static const char *const names[] = {"adapter.gguf", "peft/adapter_config.json",
                                        "peft/adapter_model.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unlink(path_of(names[i]));
    rmdir(path_of("peft"));
    rmdir(folder);
    engine_close(engine);
}

static void open_base(void) {
    const struct engine_config config = {.model = "tests/vectors/folders/qwen2",
                                         .threads = 1,
                                         .max_num_seqs = 1,
                                         .max_num_batched_tokens = 16,
                                         .block_size = 16,
                                         .kv_memory = 1 << 20,
                                         .max_adapters = 1,
                                         .max_adapter_rank = MAX_RANK};
    const char *temporary = getenv("TMPDIR");
    struct err err;
    log_setup(LOG_ERROR, LOG_TEXT);
    require(engine_open(&engine, &config, &err) == STATUS_OK);
    snprintf(folder, sizeof folder, "%s/penstock_fuzz_XXXXXX", temporary ? temporary : "/tmp");
    require(mkdtemp(folder) != NULL && mkdir(path_of("peft"), 0700) == 0);
    atexit(clean_up);
}

static void write_bytes(const char *name, const uint8_t *data, size_t size) {
    FILE *file = fopen(path_of(name), "wb");
    require(file != NULL && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

/* Writes the adapter. Returns its path. */
static const char *write_adapter(const uint8_t *data, size_t size) {
    if (size >= 4 && memcmp(data, "GGUF", 4) == 0) {
        write_bytes("adapter.gguf", data, size);
        return path_of("adapter.gguf");
    }
    const uint8_t *nul = memchr(data, 0, size);
    size_t config = nul ? (size_t)(nul - data) : size, rest = nul ? config + 1 : size;
    write_bytes("peft/adapter_config.json", data, config);
    write_bytes("peft/adapter_model.safetensors", data + rest, size - rest);
    return path_of("peft");
}

/* The first panel of b is there, and its numbers are finite. */
static void check_panel(const struct adapter *adapter, const struct low_rank *low) {
    float numbers[MAX_RANK * LOW_RANK_PANEL];
    const size_t n = low_rank_numbers(low->rank, LOW_RANK_PANEL);
    const uint8_t *b = low->b_panels;
    require(b >= adapter->numbers);
    require(b + dtype_bytes(low->type, n) <= adapter->numbers + adapter->bytes);
    dequantise(low->type, b, numbers, n);
    for (size_t i = 0; i < n; i++) require(isfinite(numbers[i]));
}

static void check_adapter(const struct adapter *adapter) {
    require(adapter->n > 0 && adapter->rank >= 1 && adapter->rank <= MAX_RANK);
    require(adapter->bytes <= engine->model.adapters.bytes);
    for (int i = 0; i < adapter->n; i++) {
        const struct low_rank *low = &adapter->part[i].low;
        require(low->rank >= 1 && low->rank <= adapter->rank && isfinite(low->scale));
        require(low->type == DTYPE_F32 || low->type == DTYPE_F16 || low->type == DTYPE_BF16);
        check_panel(adapter, low);
    }
}

static void check_loading(const char *path) {
    struct adapter_facts facts;
    struct err err;
    int number;
    require(engine_adapter_load(engine, path, &number, &facts, &err) == STATUS_OK);
    require(number == 1 && facts.rank >= 1 && facts.n_changed > 0);
    engine_adapter_unload(engine, number);
    require(engine->model.adapters.used_bytes == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct adapter *adapter;
    struct err err = {0};
    if (!engine) open_base();
    const struct adapter_limits limits = {MAX_RANK, engine->model.adapters.bytes};
    const char *path = write_adapter(data, size);
    enum status status = adapter_read(&adapter, path, &engine->model, &limits, &err);
    if (status) {
        require(!adapter && (status == STATUS_BAD_FILE || status == STATUS_USAGE));
        require(err.status == status && err.message[0] && !strchr(err.message, '\n'));
        return 0;
    }
    check_adapter(adapter);
    adapter_free(adapter);
    check_loading(path);
    return 0;
}
