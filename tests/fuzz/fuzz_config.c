/* The YAML file of options: any bytes either set options or are refused with a message. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

#include "server/options/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct setting *settings = mem_calloc((size_t)option_count, sizeof *settings);
    struct arena *arena = arena_new((size_t)64 << 20);
    struct options options = {0};
    struct err err = {0};
    enum status status =
        options_file_parse("fuzz.yaml", (const char *)data, size, settings, arena, &err);
    assert((status == STATUS_OK) == (err.status == STATUS_OK));
    assert(status == STATUS_OK || *err.message);
    for (int i = 0; i < option_count; i++) {
        if (!settings[i].text) continue;
        assert(settings[i].source == SOURCE_FILE && settings[i].line > 0);
        option_set(&option_table[i], settings[i].text, option_table[i].name, &options, &err);
    }
    arena_free(arena);
    free(settings);
    return 0;
}
