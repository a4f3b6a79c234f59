/* What is served, and under which name: the model and the options say how much a request may ask
 * for. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "server/app.h"

#define MAX_PROMPTS 256

static uint64_t system_seed(void) {
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = now_ns();
    return seed;
}

void app_set_name(struct app *app) {
    const char *served = app->options->served_model_name;
    const char *path = app->options->model, *slash = strrchr(path, '/');
    char *name = app->name;
    snprintf(name, sizeof app->name, "%s", served ? served : slash ? slash + 1 : path);
    size_t n = strlen(name);
    if (!served && n > 5 && strcasecmp(name + n - 5, ".gguf") == 0) name[n - 5] = 0;
    app->model_name = name;
}

void app_set_limits(struct app *app) {
    const struct options *options = app->options;
    int queue = options->max_queued_requests;
    app->limits = (struct api_limits){
        .model = app->model_name,
        .V = engine_model(app->engine)->V,
        .max_model_len = engine_memory(app->engine)->max_model_len,
        .max_choices = options->max_num_seqs < MAX_CHOICES ? options->max_num_seqs : MAX_CHOICES,
        .max_prompts = queue < MAX_PROMPTS ? queue : MAX_PROMPTS, /* or it could never be taken */
        .default_seed = options->seed >= 0 ? (uint64_t)options->seed : system_seed(),
        .has_chat_template = engine_chat_template(app->engine) != NULL,
    };
}
