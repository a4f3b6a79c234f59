/* Constraints on a job's answers: converts a field's text to a compiled grammar. Runs on worker
 * threads. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/generation/grammar_store.h"
#include "server/generation/job.h"
#include "server/json/json.h"

/* Work to find a first mask (grammar.h): the maximum, about 0.3 s of a thread, and the amount done
 * at a time, during which other users of the grammar may have to wait. */
enum { MAX_FIRST_WORK = 40000000, WORK_AT_ONCE = 30000 };

/* ---- formats of structural tags ------------------------------------------------------------- */

/* Writes a format that allows each text of an array. */
static void write_choices(const struct json *choices, struct buf *out) {
    buf_puts(out, "{\"type\":\"or\",\"elements\":[");
    json_each(choice, choices) {
        buf_puts(out, choice == json_first(choices) ? "{\"type\":\"const_string\",\"value\":"
                                                    : ",{\"type\":\"const_string\",\"value\":");
        json_write_value(out, choice);
        buf_puts(out, "}");
    }
    buf_puts(out, "]}");
}

/* Has a structural tag the members that write_tag reads? */
static bool tag_is_whole(const struct json *tag) {
    const struct json *structures = json_member(tag, "structures");
    if (json_is(json_member(tag, "format"), JSON_OBJECT)) return true;
    if (!json_is(structures, JSON_ARRAY) || !json_member(tag, "triggers")) return false;
    json_each(one, structures) {
        if (!json_member(one, "begin") || !json_member(one, "schema") || !json_member(one, "end"))
            return false;
    }
    return true;
}

/* Writes the format of a structural tag. An older kind of tag has triggers and structures in place
 * of a format; they become a format of triggered tags. */
static void write_tag(const struct json *tag, struct buf *out) {
    assert(tag_is_whole(tag));
    const struct json *format = json_member(tag, "format");
    const struct json *structures = json_member(tag, "structures");
    if (format) {
        json_write_value(out, format);
        return;
    }
    buf_puts(out, "{\"type\":\"triggered_tags\",\"triggers\":");
    json_write_value(out, json_member(tag, "triggers"));
    buf_puts(out, ",\"tags\":[");
    json_each(one, structures) {
        buf_puts(out, one == json_first(structures) ? "{\"begin\":" : ",{\"begin\":");
        json_write_value(out, json_member(one, "begin"));
        buf_puts(out, ",\"content\":{\"type\":\"json_schema\",\"json_schema\":");
        json_write_value(out, json_member(one, "schema"));
        buf_puts(out, "},\"end\":");
        json_write_value(out, json_member(one, "end"));
        buf_puts(out, "}");
    }
    buf_puts(out, "]}");
}

/* Fails unless the text of a schema is JSON, which may become part of a structural tag. */
static enum status check_json(const struct api_grammar *asked, struct err *err) {
    struct json *json;
    enum status status = json_parse(&json, asked->field, asked->text, asked->length, err);
    if (status == STATUS_OK) json_free(json);
    return status;
}

/* Appends a field's constraint as a format. */
static enum status write_content(const struct api_grammar *asked, struct buf *out,
                                 struct err *err) {
    static const struct {
        const char *type, *member;
        bool is_string;
    } formats[] = {[GRAMMAR_JSON_OBJECT] = {"json_schema", "json_schema", false},
                   [GRAMMAR_JSON_SCHEMA] = {"json_schema", "json_schema", false},
                   [GRAMMAR_JSON_SCHEMA_STRICT] = {"json_schema", "json_schema", false},
                   [GRAMMAR_REGEX] = {"regex", "pattern", true},
                   [GRAMMAR_GBNF] = {"grammar", "grammar", true}};
    if (asked->kind == GRAMMAR_CHOICE || asked->kind == GRAMMAR_STRUCTURAL_TAG) {
        struct json *json;
        enum status status = json_parse(&json, asked->field, asked->text, asked->length, err);
        if (status) return status;
        if (asked->kind == GRAMMAR_CHOICE)
            write_choices(json, out);
        else if (tag_is_whole(json))
            write_tag(json, out);
        else
            status = err_set(err, STATUS_INVALID_REQUEST, asked->field, "The tag is not whole.");
        json_free(json);
        return status;
    }
    bool is_schema =
        asked->kind == GRAMMAR_JSON_SCHEMA || asked->kind == GRAMMAR_JSON_SCHEMA_STRICT;
    if (is_schema && check_json(asked, err)) return err->status;
    buf_printf(out, "{\"type\":\"%s\",\"%s\":", formats[asked->kind].type,
               formats[asked->kind].member);
    if (formats[asked->kind].is_string)
        json_write_string(out, asked->text, asked->length);
    else if (asked->kind == GRAMMAR_JSON_OBJECT)
        buf_puts(out, "{\"type\":\"object\"}");
    else
        buf_add(out, asked->text, asked->length);
    buf_puts(out, asked->kind == GRAMMAR_JSON_SCHEMA_STRICT ? ",\"strict\":true}" : "}");
    return STATUS_OK;
}

/* Makes a structural tag the request's grammar, under the name of a field. */
static enum status keep_tag(struct api_request *request, const char *field, const struct buf *text,
                            struct err *err) {
    assert(field && text->length > 0);
    request->grammar = (struct api_grammar){
        .field = field,
        .kind = GRAMMAR_STRUCTURAL_TAG,
        .text = arena_strndup(request->arena, text->data, text->length),
        .length = text->length,
    };
    if (request->grammar.text) return STATUS_OK;
    return err_set(err, STATUS_UNAVAILABLE, field, "Not enough memory.");
}

/* ---- tools ---------------------------------------------------------------------------------- */

/* May the answer begin with a block of reasoning? */
static bool may_think(const struct generation_job *job) {
    const struct message_settings *format = &job->format;
    bool is_open = !format->starts_inside && !format->starts_behind;
    return format->reasoning && is_open;
}

static enum status check_beside_tools(const struct api_grammar *asked, struct err *err) {
    if (asked->kind != GRAMMAR_CHOICE && asked->kind != GRAMMAR_STRUCTURAL_TAG) return STATUS_OK;
    return err_set(err, STATUS_INVALID_REQUEST, asked->field,
                   "'%s' is not served together with 'tools' that may be called: give "
                   "'tool_choice' \"none\", or leave one out.",
                   asked->field);
}

/* A field's grammar then applies to text outside of calls. If calls are required, it is ignored. */
enum status job_ask_for_calls(struct generation_job *job, struct err *err) {
    struct api_request *request = job->request;
    const struct message_settings *format = &job->format;
    if (!job->tools) return STATUS_OK;
    struct tool_grammar asked = {.tools = format->tools,
                                 .reasoning = may_think(job) ? format->reasoning : NULL,
                                 .functions = request->prompts[0].tools,
                                 .filter = request->callable,
                                 .must_call = request->tool_choice == TOOL_CHOICE_REQUIRED,
                                 .parallel =
                                     request->parallel_tool_calls && !request->callable.only};
    struct buf content = {0}, text = {0};
    bool has_content = request->grammar.field && !asked.must_call;
    if (has_content && (check_beside_tools(&request->grammar, err) ||
                        write_content(&request->grammar, &content, err)))
        return err->status;
    asked.content = has_content ? content.data : NULL;
    tool_grammar_write(&asked, &text);
    enum status status = keep_tag(request, "tools", &text, err);
    buf_free(&content);
    buf_free(&text);
    return status;
}

/* ---- steps ---------------------------------------------------------------------------------- */

static enum job_progress progress_of(struct generation_job *job, enum claim_verdict verdict,
                                     const struct err *why) {
    assert(verdict != CLAIM_REFUSED || why->status);
    if (verdict == CLAIM_UNCOMPILED) return JOB_UNCOMPILED;
    if (verdict == CLAIM_WAITS) return JOB_WAITS;
    if (verdict == CLAIM_REFUSED) job->err = *why;
    return JOB_PREPARED;
}

/* Allows reasoning before the text of the field's grammar, and marks around it. */
static enum status let_think(struct generation_job *job, struct err *err) {
    struct api_request *request = job->request;
    struct buf content = {0}, text = {0};
    enum status status = write_content(&request->grammar, &content, err);
    if (status == STATUS_OK) {
        thoughts_grammar_write(job->format.reasoning, may_think(job), content.data, &text);
        status = keep_tag(request, request->grammar.field, &text, err);
    }
    buf_free(&content);
    buf_free(&text);
    return status;
}

/* Chooses the first text to compile: the client's with reasoning in front, if the answer may begin
 * with it. If that is refused, the client's text is compiled alone (use_stated). */
static void begin_grammar(struct generation_job *job) {
    const struct reasoning_format *reasoning = job->format.reasoning;
    bool has_envelope = reasoning && reasoning_format_has_envelope(reasoning);
    job->step = STEP_GRAMMAR;
    if (job->tools || !(may_think(job) || has_envelope)) return;
    job->stated = job->request->grammar;
    job->thinks = let_think(job, &job->refusal) == STATUS_OK;
    if (job->refusal.status == STATUS_UNAVAILABLE) job->err = job->refusal;
}

/* Goes back to the text that the client wrote, so that the error refers to it. */
static enum job_progress use_stated(struct generation_job *job, const struct err *why) {
    assert(job->thinks && job->stated.field && why->status == STATUS_INVALID_REQUEST);
    job->refusal = *why;
    job->request->grammar = job->stated;
    job->thinks = false;
    return JOB_PREPARED;
}

static enum job_progress get_searches(struct generation_job *job, bool may_compile) {
    const struct stop_source source = {job->app->grammars, &job->claim, may_compile};
    struct err why = {0};
    enum claim_verdict verdict =
        stop_searches_get(&source, job->request, "stop_regex", &job->stop_searches, &why);
    if (verdict == CLAIM_READY) job->step = STEP_COMPILED;
    if (verdict == CLAIM_READY && job->request->grammar.field) begin_grammar(job);
    return progress_of(job, verdict, &why);
}

/* Gets the grammar and its vocabulary. If the answer may have calls or reasoning, the vocabulary
 * includes the text of their markers. */
static enum job_progress get_grammar(struct generation_job *job, bool may_compile) {
    const struct api_grammar *asked = &job->request->grammar;
    const bool has_markers = job->tools || job->thinks;
    struct err why = {0};
    struct grammar *grammar = NULL;
    enum claim_verdict verdict =
        grammar_store_get(job->app->grammars, &job->claim, may_compile, asked->kind, asked->text,
                          asked->length, &grammar, &why);
    if (why.status == STATUS_INVALID_REQUEST && job->thinks) return use_stated(job, &why);
    if (why.status == STATUS_INVALID_REQUEST) {
        struct err of_text = why;
        err_set(&why, of_text.status, asked->field, "'%s' cannot be enforced: %s", asked->field,
                of_text.message);
    }
    if (verdict == CLAIM_READY) {
        grammar_release(job->grammar);
        job->grammar = grammar;
        job->vocabulary =
            grammar_store_vocabulary(job->app->grammars, has_markers ? job->format.tools : NULL,
                                     has_markers ? job->app->limits.reasoning_format : NULL);
        job->step = STEP_MASK;
        if (!job->vocabulary) err_out_of_memory(&job->err);
        if (job->refusal.status) job->err = job->refusal; /* only the one with reasoning fails */
    }
    return progress_of(job, verdict, &why);
}

/* Works towards the first mask. Returns false if the work exceeds the limit, or one portion if the
 * caller may not compile, or if the client has left. */
static bool find_first_mask(struct generation_job *job, struct matcher *matcher, bool may_compile) {
    int left = may_compile ? MAX_FIRST_WORK / WORK_AT_ONCE : 1;
    while (!matcher_prepare(matcher, WORK_AT_ONCE))
        if (--left == 0 || job_is_abandoned(job)) return false;
    return true;
}

/* Finds the first mask, so that the engine thread has it immediately. Refuses a grammar that
 * accepts only the empty text, because it would end an answer before it begins. */
static enum job_progress get_mask(struct generation_job *job, bool may_compile) {
    const char *field = job->request->grammar.field;
    struct matcher *matcher = matcher_new(job->grammar, job->vocabulary);
    bool is_found = matcher && find_first_mask(job, matcher, may_compile);
    bool may_go_on = is_found && matcher_may_go_on(matcher);
    bool is_short = !matcher || grammar_is_broken(job->grammar);
    matcher_free(matcher);
    if (is_short && !job->err.status) err_out_of_memory(&job->err);
    if (job->err.status) return JOB_PREPARED;
    if (!is_found && !may_compile) return JOB_UNCOMPILED;
    if (may_go_on)
        job->step = STEP_BEGIN;
    else if (is_found)
        err_set(&job->err, STATUS_INVALID_REQUEST, field,
                "'%s' does not match any text of one token or more.", field);
    else
        err_set(&job->err, STATUS_INVALID_REQUEST, field,
                "'%s' cannot be enforced: the search for its first tokens exceeds the limit of %d "
                "nodes of the vocabulary's trie.",
                field, MAX_FIRST_WORK);
    return JOB_PREPARED;
}

/* Returns the text after which the grammar begins: the end of reasoning that is open at the end of
 * the prompt, or NULL. */
static const char *beginning(const struct generation_job *job) {
    const struct reasoning_format *reasoning = job->format.reasoning;
    return reasoning && job->format.starts_inside ? reasoning_format_end(reasoning) : NULL;
}

static enum job_progress find_beginning(struct generation_job *job) {
    assert(!job->begin_ids);
    const char *text = beginning(job);
    job->step = STEP_COMPILED;
    if (!text) return JOB_PREPARED;
    job->n_begin_ids = tokenizer_encode(engine_tokenizer(job->app->engine), text, strlen(text),
                                        SPECIAL_PARSED, false, INT32_MAX, &job->begin_ids);
    if (job->n_begin_ids < 1) /* a tokenizer drops bytes that no token has */
        err_set(&job->err, STATUS_INVALID_REQUEST, job->request->grammar.field,
                "'%s' is not served with this model: its tokenizer lacks tokens for \"%s\", after "
                "which the answer begins.",
                job->request->grammar.field, text);
    return JOB_PREPARED;
}

static enum job_progress take_step(struct generation_job *job, bool may_compile) {
    switch (job->step) {
    case STEP_ORIGIN:
        return job_find_fingerprint(job);
    case STEP_SEARCHES:
        return get_searches(job, may_compile);
    case STEP_GRAMMAR:
        return get_grammar(job, may_compile);
    case STEP_MASK:
        return get_mask(job, may_compile);
    case STEP_BEGIN:
        return find_beginning(job);
    case STEP_COMPILED:
        break;
    }
    return JOB_PREPARED;
}

enum job_progress job_constrain(struct generation_job *job, bool may_compile) {
    enum job_progress progress = JOB_PREPARED;
    while (progress == JOB_PREPARED && !job->err.status && job->step != STEP_COMPILED)
        progress = take_step(job, may_compile);
    return progress;
}
