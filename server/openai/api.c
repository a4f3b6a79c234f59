/* The table of APIs, and the life of a request, which is the same for every API. */
#include <assert.h>
#include <string.h>

#include "server/openai/internal.h"

static const struct api *const apis[] = {&api_completions, &api_chat};

#define N_APIS ((int)(sizeof apis / sizeof *apis))

const struct api *api_at(int i) {
    assert(i >= 0);
    return i < N_APIS ? apis[i] : NULL;
}

const struct api *api_find(const char *path) {
    for (int i = 0; i < N_APIS; i++) {
        if (strcmp(apis[i]->path, path) == 0) return apis[i];
    }
    return NULL;
}

void api_request_drop_tree(struct api_request *request) {
    assert(request->json); /* it is freed only once */
    json_free(request->json);
    request->json = NULL;
    request->callable.allowed = NULL;
    for (int i = 0; i < request->n_prompts; i++) {
        struct api_prompt *prompt = &request->prompts[i];
        *prompt = (struct api_prompt){.text = "", .ids = prompt->ids, .n_ids = prompt->n_ids};
    }
}

void api_request_free(struct api_request *request) {
    if (!request) return;
    struct json *json = request->json;
    arena_free(request->arena); /* the arena also holds the request */
    json_free(json);
}
