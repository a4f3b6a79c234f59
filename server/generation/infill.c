/* Prompts whose middle the model fills in: other files, then the text before and after the gap, as
 * in llama-server's format_infill and Qwen2.5-Coder's report.
 *
 *   [repo]myproject\n [file]NAME\nTEXT ... [file]filename\n   only with input_extra
 *   [prefix]TEXT [suffix]TEXT [middle]
 *
 * Texts are encoded without special tokens: a user cannot forge one. */
#include <assert.h>
#include <string.h>

#include "server/generation/prompt.h"
#include "server/json/json.h"

struct id_list {
    int32_t *ids;
    int n;
};

static void add_ids(struct id_list *list, const int32_t *ids, int n) {
    list->ids = mem_realloc(list->ids, (size_t)(list->n + n + 1) * sizeof *ids);
    if (n > 0) memcpy(list->ids + list->n, ids, (size_t)n * sizeof *ids);
    list->n += n;
}

/* Adds a text; `limit` tokens are the most that the list may have. Returns false if there are
 * more. */
static bool add_text(struct id_list *list, const struct tokenizer *tokenizer, const char *text,
                     size_t length, int limit) {
    int32_t *ids = NULL;
    int n = tokenizer_encode(tokenizer, text, length, SPECIAL_AS_TEXT, false, limit, &ids);
    if (n > 0) add_ids(list, ids, n);
    mem_free(ids);
    return n >= 0 && list->n <= limit;
}

static bool add_words(struct id_list *list, const struct tokenizer *tokenizer, const char *text,
                      int limit) {
    return add_text(list, tokenizer, text, strlen(text), limit);
}

/* Adds a file of input_extra. Models without a token for files see a mark in the text. */
static bool add_file(struct id_list *list, const struct tokenizer *tokenizer,
                     const struct json *file, int limit) {
    const int32_t *fim = tokenizer_fim(tokenizer);
    const struct json *name = json_member(file, "filename"), *text = json_member(file, "text");
    if (fim[FIM_FILE] < 0) {
        return add_words(list, tokenizer, "\n\n--- snippet ---\n\n", limit) &&
               add_text(list, tokenizer, json_text(text), json_length(text), limit);
    }
    add_ids(list, &fim[FIM_FILE], 1);
    return add_words(list, tokenizer, json_is(name, JSON_STRING) ? json_text(name) : "tmp",
                     limit) &&
           add_words(list, tokenizer, "\n", limit) &&
           add_text(list, tokenizer, json_text(text), json_length(text), limit);
}

static bool add_files(struct id_list *list, const struct tokenizer *tokenizer,
                      const struct json *files, int limit) {
    const int32_t *fim = tokenizer_fim(tokenizer);
    if (!json_first(files)) return true;
    if (fim[FIM_REPOSITORY] >= 0) {
        add_ids(list, &fim[FIM_REPOSITORY], 1);
        if (!add_words(list, tokenizer, "myproject\n", limit)) return false;
    }
    json_each(file, files) {
        if (!add_file(list, tokenizer, file, limit)) return false;
    }
    if (fim[FIM_FILE] < 0) return true;
    add_ids(list, &fim[FIM_FILE], 1);
    return add_words(list, tokenizer, "filename\n", limit);
}

static bool add_gap(struct id_list *list, const struct tokenizer *tokenizer,
                    const struct api_prompt *prompt, int limit) {
    const int32_t *fim = tokenizer_fim(tokenizer);
    add_ids(list, &fim[FIM_PREFIX], 1);
    if (!add_text(list, tokenizer, prompt->text, prompt->length, limit)) return false;
    add_ids(list, &fim[FIM_SUFFIX], 1);
    if (!add_text(list, tokenizer, prompt->suffix, prompt->suffix_length, limit)) return false;
    add_ids(list, &fim[FIM_MIDDLE], 1);
    return true;
}

enum status infill_encode(const struct engine *engine, const struct api_prompt *prompt,
                          bool add_special, int limit, int32_t **ids, int *n, struct err *err) {
    const struct tokenizer *tokenizer = engine_tokenizer(engine);
    const int context = engine_memory(engine)->max_model_len;
    struct id_list files = {0}, gap = {0}, all = {0};
    const int32_t *before, *after;
    int n_before, n_after;
    assert(prompt->infills && tokenizer_fim(tokenizer));
    tokenizer_around(tokenizer, &before, &n_before, &after, &n_after);
    bool fits = add_files(&files, tokenizer, prompt->extra, limit) &&
                add_gap(&gap, tokenizer, prompt, limit);
    if (fits) { /* a quarter of the context is left to the answer; the first files are dropped */
        int room = max_int(context - context / 4 - gap.n - n_before, 0);
        int kept = min_int(files.n, room);
        if (add_special) add_ids(&all, before, n_before);
        add_ids(&all, files.ids + (files.n - kept), kept);
        add_ids(&all, gap.ids, gap.n);
    }
    mem_free(files.ids);
    mem_free(gap.ids);
    *ids = all.ids;
    *n = all.n;
    return fits ? STATUS_OK : api_context_exceeded(err, "prompt", context, true, limit);
}
