/* What the answers of a job keep to: from the text of a field to a compiled grammar. Worker
 * threads. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/generation/grammar_store.h"
#include "server/generation/job.h"
#include "server/json/json.h"

/* The work of a first mask (grammar.h): some 0.3 s of a thread in all, and as much of it at once as
 * others that keep to the same grammar may wait for. */
enum { MAX_FIRST_WORK = 40000000, WORK_AT_ONCE = 30000 };

/* Finds the first mask, so that the engine's thread has it at once. A grammar that only an empty
 * text keeps to would end an answer before it begins. */
static enum status check_first(const struct generation_job *job, struct matcher *matcher,
                               struct err *err) {
    const char *field = job->request->grammar.field;
    int left = MAX_FIRST_WORK / WORK_AT_ONCE;
    while (!matcher_prepare(matcher, WORK_AT_ONCE))
        if (--left == 0)
            return err_set(err, STATUS_INVALID_REQUEST, field,
                           "'%s' cannot be kept to: which tokens may come first is more to find "
                           "out than the limit, %d nodes of the vocabulary's trie.",
                           field, MAX_FIRST_WORK);
    if (matcher_may_go_on(matcher)) return STATUS_OK;
    return err_set(err, STATUS_INVALID_REQUEST, field,
                   "'%s' can be kept to by no text of one token or more.", field);
}

/* ---- tools ---------------------------------------------------------------------------------- */

/* Appends what a field says as a format of structural tags, for what of an answer is no call. */
static enum status write_content(const struct api_grammar *asked, struct buf *out,
                                 struct err *err) {
    static const struct {
        const char *type, *member;
        bool is_string;
    } formats[] = {[GRAMMAR_JSON_OBJECT] = {"json_schema", "json_schema", false},
                   [GRAMMAR_JSON_SCHEMA] = {"json_schema", "json_schema", false},
                   [GRAMMAR_REGEX] = {"regex", "pattern", true},
                   [GRAMMAR_GBNF] = {"grammar", "grammar", true}};
    bool has_format = asked->kind != GRAMMAR_CHOICE && asked->kind != GRAMMAR_STRUCTURAL_TAG;
    if (!has_format)
        return err_set(err, STATUS_INVALID_REQUEST, asked->field,
                       "'%s' is not served together with 'tools' that may be called: give "
                       "'tool_choice' \"none\", or leave one of them out.",
                       asked->field);
    buf_printf(out, "{\"type\":\"%s\",\"%s\":", formats[asked->kind].type,
               formats[asked->kind].member);
    if (formats[asked->kind].is_string)
        json_write_string(out, asked->text, asked->length);
    else if (asked->kind == GRAMMAR_JSON_OBJECT)
        buf_puts(out, "{\"type\":\"object\"}");
    else
        buf_add(out, asked->text, asked->length);
    buf_puts(out, "}");
    return STATUS_OK;
}

/* Makes the request's grammar that of an answer with tools; a field's own holds then for what is no
 * call, and for nothing where there must be calls. */
static enum status ask_for_calls(struct generation_job *job, struct err *err) {
    struct api_request *request = job->request;
    const struct message_settings *format = &job->format;
    bool may_think = format->reasoning && !format->starts_inside && !format->starts_behind;
    struct tool_grammar asked = {.tools = format->tools,
                                 .reasoning = may_think ? format->reasoning : NULL,
                                 .functions = request->prompts[0].tools,
                                 .filter = request->callable,
                                 .must_call = request->tool_choice == TOOL_CHOICE_REQUIRED,
                                 .parallel =
                                     request->parallel_tool_calls && !request->callable.only};
    struct buf content = {0}, text = {0};
    bool has_content = request->grammar.field && !asked.must_call;
    if (has_content && write_content(&request->grammar, &content, err)) return err->status;
    asked.content = has_content ? content.data : NULL;
    tool_grammar_write(&asked, &text);
    request->grammar = (struct api_grammar){
        .field = "tools",
        .kind = GRAMMAR_STRUCTURAL_TAG,
        .text = arena_strndup(request->arena, text.data, text.length),
        .length = text.length,
    };
    buf_free(&content);
    buf_free(&text);
    if (request->grammar.text) return STATUS_OK;
    return err_set(err, STATUS_UNAVAILABLE, "tools", "Not enough memory.");
}

/* ---- any grammar ---------------------------------------------------------------------------- */

/* The text behind which the grammar begins: the end of the thoughts in which the prompt has ended,
 * if it has. */
static const char *beginning(const struct generation_job *job) {
    const struct reasoning_format *reasoning = job->format.reasoning;
    if (job->request->grammar.begins_after) return job->request->grammar.begins_after;
    return reasoning && job->format.starts_inside ? reasoning_format_end(reasoning) : NULL;
}

enum status job_constrain(struct generation_job *job, struct err *err) {
    const struct api_grammar *asked = &job->request->grammar;
    struct err why = {0};
    assert(!job->grammar);
    if (job->tools && ask_for_calls(job, err)) return err->status;
    if (!asked->field) return STATUS_OK;
    enum status status = grammar_store_get(job->app->grammars, asked->kind, asked->text,
                                           asked->length, &job->grammar, &why);
    if (status)
        return err_set(err, status, asked->field, "'%s' cannot be kept to: %s", asked->field,
                       why.message);
    job->vocabulary = job->tools ? grammar_store_vocabulary(job->app->grammars, job->format.tools,
                                                            job->app->limits.reasoning_format)
                                 : grammar_store_vocabulary(job->app->grammars, NULL, NULL);
    const char *text = beginning(job);
    if (text)
        job->n_begin_ids = tokenizer_encode(engine_tokenizer(job->app->engine), text, strlen(text),
                                            SPECIAL_PARSED, false, INT32_MAX, &job->begin_ids);
    assert(!text || job->n_begin_ids > 0);
    struct matcher *matcher = matcher_new(job->grammar, job->vocabulary);
    status = check_first(job, matcher, err);
    matcher_free(matcher);
    return status;
}
