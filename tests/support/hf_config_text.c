#include "support/hf_config_text.h"

#include "engine/files/hf_keys.h"

enum status hf_config_parse(struct hf_config **out, const char *text, size_t length,
                            struct err *err) {
    struct json *root;
    *out = NULL;
    enum status status = hf_text_read(&root, text, length, err);
    if (!status) *out = hf_config_new(root, "config.json");
    return status;
}
