/* Any bytes as a config.json: it is refused with a sentence, or its shape can be laid out as a file
 * that the rest of the program takes for one. */
#include <stdlib.h>

#include "engine/hf_config.h"
#include "engine/model_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct hf_config config;
    struct err err = {0};
    struct gguf *gguf = NULL;
    struct model_info info;
    struct tokenizer_spec spec;
    enum { SMALL = 4096 }; /* a vocabulary beyond it takes long, and is of the same form */
    if (hf_config_read(&config, (const char *)data, size, &err) != STATUS_OK) {
        require(err.status == STATUS_BAD_FILE && err.message[0] != 0);
        return 0;
    }
    if (config.V > SMALL) config.V = SMALL;
    if (config.L > 16) config.L = 16;
    if (hf_config_lay_out(&gguf, &config, "fuzz", &err) != STATUS_OK) return 0; /* addresses */
    require(model_info_read(&info, gguf, "fuzz.json", &err) == STATUS_OK);
    require(info.V == config.V && info.K == config.K && info.F == config.F && info.L == config.L);
    require(info.H == config.H && info.G == config.G && info.D == config.D);
    require(tokenizer_spec_read(&spec, gguf, &err) == STATUS_OK && spec.n_tokens == info.V);
    tokenizer_spec_free(&spec);
    gguf_close(gguf);
    return 0;
}
