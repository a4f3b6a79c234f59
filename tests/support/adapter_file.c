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

/* Returns n numbers in the type, in new memory. */
static void *in_type(const float *numbers, size_t n, enum dtype type) {
    void *bytes = malloc(dtype_bytes(type, n));
    uint16_t *kept = bytes;
    if (type == DTYPE_F32) return memcpy(bytes, numbers, dtype_bytes(type, n));
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &numbers[i], sizeof bits);
        kept[i] = type == DTYPE_F16 ? float_to_half(numbers[i]) : (uint16_t)(bits >> 16);
    }
    return bytes;
}

static void round_to(enum dtype type, float *numbers, size_t n) {
    void *bytes = in_type(numbers, n, type);
    dequantise(type, bytes, numbers, n);
    free(bytes);
}

/* Adds rows of numbers of about the size 1 / sqrt(fan_in). */
static void add_half(struct gguf_writer *writer, const struct made_adapter *made, const char *name,
                     char half, const int64_t dim[2], double fan_in, uint64_t *random) {
    const enum dtype type = half == 'a' ? made->a_type : made->b_type;
    const size_t n = (size_t)(dim[0] * dim[1]);
    char whole[ROLE_NAME_BYTES + 8];
    float *numbers = random_floats(random, n);
    for (size_t i = 0; i < n; i++) numbers[i] *= (float)(1 / sqrt(fan_in));
    round_to(made->rounds_to, numbers, n);
    void *bytes = in_type(numbers, n, type);
    snprintf(whole, sizeof whole, "%s.lora_%c", name, half);
    gguf_writer_tensor(writer, whole, type, 2, dim, bytes, dtype_bytes(type, n));
    free(bytes);
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
            add_half(&writer, made, name, 'a', (int64_t[]){K, made->rank}, (double)K, &random);
            add_half(&writer, made, name, 'b', (int64_t[]){made->rank, N}, made->rank, &random);
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
