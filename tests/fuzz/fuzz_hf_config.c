/* Any bytes as a config.json: it is refused with a message, or its shape, tensors and vocabulary
 * can be read. */
#include <stdlib.h>

#include "engine/models/model.h"
#include "support/hf_config_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
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
