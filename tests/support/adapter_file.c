#include "support/adapter_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/models/families/family.h"
#include "support/gguf_writer.h"
#include "support/kernel_data.h"

static const enum role projections[] = {ROLE_Q,       ROLE_K,       ROLE_V,       ROLE_QKV,
                                        ROLE_O,       ROLE_GATE,    ROLE_UP,      ROLE_DOWN,
                                        ROLE_GATE_UP, ROLE_CONV_IN, ROLE_CONV_OUT};

/* Adds rows of numbers of about the size 1 / sqrt(fan_in). */
static void add_half(struct gguf_writer *writer, const char *name, char half, int64_t row,
                     int64_t rows, double fan_in, uint64_t *random) {
    char whole[ROLE_NAME_BYTES + 8];
    const int64_t dim[] = {row, rows};
    float *numbers = random_floats(random, (size_t)(row * rows));
    for (int64_t i = 0; i < row * rows; i++) numbers[i] *= (float)(1 / sqrt(fan_in));
    snprintf(whole, sizeof whole, "%s.lora_%c", name, half);
    gguf_writer_tensor(writer, whole, DTYPE_F32, 2, dim, numbers,
                       (size_t)(row * rows) * sizeof *numbers);
    free(numbers);
}

void adapter_file_bytes(const struct made_adapter *made, const struct model_config *config,
                        struct buf *out) {
    struct gguf_writer writer = {0};
    uint64_t random = made->seed * 7919 + 1;
    gguf_writer_string(&writer, "general.type", "adapter");
    gguf_writer_string(&writer, "general.architecture", config->architecture);
    gguf_writer_string(&writer, "adapter.type", "lora");
    if (made->alpha != 0) gguf_writer_f32(&writer, "adapter.lora.alpha", made->alpha);
    for (int layer = 0; layer < config->L; layer++)
        for (size_t i = 0; i < sizeof projections / sizeof *projections; i++) {
            enum role role = projections[i];
            const struct role_info *info = role_info(role);
            char name[ROLE_NAME_BYTES];
            if (!config_has_in(config, role, layer) || (made->only && made->only != role)) continue;
            if (info->of_experts && !made->only) continue;
            role_name(name, role, layer);
            int64_t K = role_extent(config, info->K, layer),
                    N = role_extent(config, info->N, layer);
            add_half(&writer, name, 'a', K, made->rank, (double)K, &random);
            add_half(&writer, name, 'b', made->rank, N, made->rank, &random);
        }
    gguf_writer_finish(&writer, out);
    gguf_writer_free(&writer);
}

char *adapter_file_temporary(const struct made_adapter *made, const struct model_config *config) {
    const char *folder = getenv("TMPDIR");
    struct buf bytes = {0};
    char *path = malloc(512);
    snprintf(path, 512, "%s/penstock_adapter_XXXXXX", folder ? folder : "/tmp");
    int fd = mkstemp(path);
    if (fd < 0) {
        perror(path);
        exit(1);
    }
    close(fd);
    adapter_file_bytes(made, config, &bytes);
    write_file(path, bytes.data, bytes.length);
    buf_free(&bytes);
    return path;
}
