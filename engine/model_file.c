#include "engine/model_file.h"

#include <string.h>

#include "engine/hf_config.h"

enum status model_file_open(struct gguf **out, const struct engine_config *config,
                            struct err *err) {
    const char *dot = strrchr(config->model, '.');
    if (!dot || strcmp(dot, ".json") != 0) return gguf_open(out, config->model, err);
    if (config->dummy) return hf_config_open(out, config->model, err);
    return err_set(err, STATUS_USAGE, "model",
                   "%s has a model's shape, but no weights: give a .gguf file, or --load-format "
                   "dummy for random ones",
                   config->model);
}
