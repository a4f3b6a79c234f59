/* Any bytes as Mistral's tekken.json: it is refused with a message, or its tokenizer encodes and
 * decodes. */
#include "tokenizer_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err err = {0};
    struct tokenizer_spec spec;
    enum status status = tekken_json_read(&spec, "fuzz", (const char *)data, size, 0, &err);
    return use_tokenizer_file(status, &spec, &err);
}
