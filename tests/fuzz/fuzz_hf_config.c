/* Any bytes as a config.json: it is refused with a message, or its shape, tensors and vocabulary
 * can be read. The same holds for the bytes as the config.json of an EAGLE-3 head. */
#include <stdlib.h>

#include "engine/models/model.h"
#include "support/hf_config_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

/* Reads the file as the head of a model with 6 layers. */
static void read_as_head(const struct hf_config *hf) {
    static struct model_config config;
    struct err err = {0};
    config = (struct model_config){
        .L = 7, .n_ahead = 1, .K = 32, .K_embedding = 32, .V = 299, .eagle.is_used = true};
    if (hf_eagle_read(&config, hf, &err) != STATUS_OK) {
        require(err.status == STATUS_BAD_FILE && err.message[0] != 0);
        return;
    }
    const struct kv_heads *heads = &config.layer[6].heads;
    require(config.eagle.H % heads->G == 0 && config.eagle.rope.D_rope <= heads->D);
    require(config.layer[6].F > 0 && config.eagle.V > 0 && config.eagle.V <= config.V);
    for (int i = 0; i < N_TAPS; i++) require(config.eagle.tap[i] >= 0 && config.eagle.tap[i] < 7);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct model_file file = {.path = "fuzz.json"};
    struct err err = {0};
    struct model_config config;
    struct tokenizer_spec spec;
    if (hf_config_parse(&file.hf, (const char *)data, size, &err) != STATUS_OK) {
        require(err.status == STATUS_BAD_FILE && err.message[0] != 0);
        return 0;
    }
    read_as_head(file.hf);
    if (model_config_read(&config, &file, &err) == STATUS_OK) {
        require(config.H % config.G == 0 && config.rope.D_rope <= config.D);
        require(model_file_weights(&file)->n >= config.L);
        require(tokenizer_spec_read(&spec, &file, &err) == STATUS_OK && spec.n_tokens == config.V);
        tokenizer_spec_free(&spec);
    } else {
        require(err.status == STATUS_BAD_FILE && err.message[0] != 0);
    }
    model_file_close(&file);
    return 0;
}
