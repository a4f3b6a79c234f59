/* The table of APIs. */
#include <assert.h>
#include <string.h>

#include "server/anthropic/anthropic.h"
#include "server/apis/apis.h"
#include "server/decisions/decisions.h"
#include "server/llama/llama.h"
#include "server/ollama/ollama.h"
#include "server/responses/responses.h"

static const struct api *const apis[] = {
    &api_completions,     &api_chat,
    &api_embeddings,      &api_ollama_chat,
    &api_ollama_generate, &api_llama_completion,
    &api_llama_infill,    &api_messages,
    &api_responses,       &api_decisions,
    &api_ollama_embed,    &api_ollama_embeddings,
    &api_llama_embedding, &api_rerank,
    &api_rerank_short,    &api_rerank_cohere,
    &api_systemone,       &api_reranking,
    &api_score,           &api_classify,
    &api_pooling,
};

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

const struct api *api_of_errors(const char *path) {
    for (int i = 0; i < N_APIS; i++) {
        const char *top = apis[i]->errors_below ? apis[i]->errors_below : apis[i]->path;
        size_t n = strlen(top);
        if (strncmp(top, path, n) == 0 && (path[n] == 0 || path[n] == '/')) return apis[i];
    }
    return NULL;
}
