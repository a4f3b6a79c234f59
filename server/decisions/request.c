/* The API /v1/decisions: up to 400 questions over one input. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/decisions/internal.h"
#include "server/responses/responses.h"

/* A body while it is read. */
struct decision_reader {
    struct api_request *request;
    struct decision *decision;
    const struct api_limits *limits;
    const struct json *asked; /* the question */
    char where[32];           /* "questions[3]" */
    struct buf text;          /* of the question, for the model */
    struct err *err;
};

/* ---- checks --------------------------------------------------------------------------------- */

static enum status wrong(struct decision_reader *r, const char *member, const char *message) {
    char where[128];
    snprintf(where, sizeof where, "%s%s%s", r->where, *member ? "." : "", member);
    return err_set(r->err, STATUS_INVALID_REQUEST, where, "'%s' %s.", where, message);
}

/* Every member of a question changes its meaning, so unknown ones are refused. `known` ends with
 * NULL. */
static enum status refuse_unknown(struct decision_reader *r, const struct json *object,
                                  const char *place, const char *const *known) {
    char name[80];
    json_each_member(member, object) {
        int i = 0;
        while (known[i] && strcmp(known[i], member->name) != 0) i++;
        if (known[i]) continue;
        snprintf(name, sizeof name, "%s%.40s", place, member->name);
        return wrong(r, name, "is not a member of it");
    }
    return STATUS_OK;
}

/* Copies the JSON of a value to the arena. */
static const char *keep(struct decision_reader *r, const struct json *value) {
    struct buf text = {0};
    json_write_value(&text, value);
    char *kept = arena_alloc(r->request->arena, text.length + 1);
    if (kept) memcpy(kept, text.data, text.length);
    if (kept) kept[text.length] = 0;
    buf_free(&text);
    if (!kept) err_set(r->err, STATUS_UNAVAILABLE, NULL, "Not enough memory for the questions.");
    return kept;
}

/* ---- the text of a question ----------------------------------------------------------------- */

/* Appends a string, or the texts of parts. */
static enum status add_instructions(struct decision_reader *r) {
    const size_t start = r->text.length;
    const struct json *value = json_member(r->asked, "instructions");
    if (json_is(value, JSON_STRING) && json_length(value) > 0) {
        buf_add(&r->text, json_text(value), json_length(value));
        return STATUS_OK;
    }
    json_each(part, json_is(value, JSON_ARRAY) ? value : NULL) {
        const struct json *text = json_member(part, "text");
        if (!json_is_text(json_member(part, "type"), "input_text") || !json_is(text, JSON_STRING))
            return wrong(r, "instructions", "may have parts of the type \"input_text\" only");
        if (r->text.length > start) buf_puts(&r->text, "\n");
        buf_add(&r->text, json_text(text), json_length(text));
    }
    if (r->text.length > start) return STATUS_OK;
    if (json_is(value, JSON_STRING) || json_is(value, JSON_ARRAY))
        return wrong(r, "instructions", "must not be empty");
    return wrong(r, "instructions", "must be a text, or a list of texts");
}

/* Appends a line such as "B) red: the colour of fire", and keeps the option's value. */
static enum status add_option(struct decision_reader *r, struct question *question,
                              const char *label, const struct json *option, const char *list,
                              const char *member) {
    const struct json *value = json_member(option, member);
    const struct json *description = json_member(option, "description");
    const char *const known[] = {member, "description", NULL};
    char place[48];
    bool is_bool = json_is(value, JSON_BOOL) && question->kind == CHOICE;
    snprintf(place, sizeof place, "%s[%d].", list, question->n);
    if (refuse_unknown(r, option, place, known)) return r->err->status;
    place[strlen(place) - 1] = 0;
    if (is_empty(value)) return wrong(r, place, "must not have an empty value or label");
    if (!is_bool && !json_is(value, JSON_STRING))
        return wrong(r, place, "must have a text as its value or label");
    if (description && !json_is(description, JSON_STRING) && !json_is(description, JSON_NULL))
        return wrong(r, place, "must have a text as its description");
    const char *kept = keep(r, value);
    if (!kept) return r->err->status;
    for (int i = 0; i < question->n; i++)
        if (strcmp(question->option[i], kept) == 0)
            return wrong(r, place, "must differ from those before it");
    question->option[question->n++] = kept;
    const char *text = is_bool ? (json_true(value) ? "true" : "false") : json_text(value);
    buf_printf(&r->text, "\n%s) %s", label, text);
    if (json_length(description) > 0) buf_printf(&r->text, ": %s", json_text(description));
    return STATUS_OK;
}

/* A list of options: its name, the member with an option's value, the number of options, and how
 * the model is asked. */
struct option_list {
    const char *list, *member, *title, *range;
    enum labels labels;
    int most;
};

static enum status add_options(struct decision_reader *r, struct question *question,
                               const struct option_list *options, struct api_prompt *prompt) {
    struct label labels[MAX_READ_IDS];
    char message[96];
    const struct json *list = json_member(r->asked, options->list);
    int n = json_is(list, JSON_ARRAY) ? json_count(list) : 0;
    if (n < 2 || n > options->most) return wrong(r, options->list, options->range);
    int found = labels_find(r->limits, options->labels, n, labels);
    snprintf(message, sizeof message,
             "has %d options, but this model has labels of one token for %d", n, found);
    if (found < n) return wrong(r, options->list, message);
    question->option = arena_alloc(r->request->arena, (size_t)n * sizeof *question->option);
    if (!question->option || labels_set(labels, n, r->request->arena, prompt, r->err))
        return err_set(r->err, STATUS_UNAVAILABLE, NULL, "Not enough memory for the questions.");
    buf_printf(&r->text, "\n\n%s:", options->title);
    json_each(option, list) {
        const char *label = labels[question->n].text;
        if (add_option(r, question, label, option, options->list, options->member))
            return r->err->status;
    }
    return STATUS_OK;
}

static enum status add_predicate(struct decision_reader *r, struct question *question,
                                 struct api_prompt *prompt) {
    struct label labels[2];
    if (labels_find(r->limits, LABELS_YES_NO, 2, labels) < 2)
        return wrong(r, "type", "needs a model that has \"yes\" and \"no\" as single tokens");
    question->n = 2;
    return labels_set(labels, 2, r->request->arena, prompt, r->err);
}

/* ---- a question ----------------------------------------------------------------------------- */

static const struct option_list choice_options = {
    "choices",      "value",          "Options", "must be a list of 2 to 255 options",
    LABELS_LETTERS, MAX_CHOICES_ASKED};
static const struct option_list score_options = {
    "levels", "label", "Levels", "must be a list of 2 to 10 levels", LABELS_DIGITS, MAX_LEVELS};

/* The kinds of questions: the type's name, its members, and how the model is asked to answer. A
 * change of these words needs a new QUESTIONS_VERSION (server/fingerprint). */
static const struct {
    const char *type, *members[5], *request;
    const struct option_list *options;
} kinds[] = {
    [PREDICATE] = {"predicate",
                   {"type", "instructions", "name"},
                   "Is this true? Answer with yes or no only.",
                   NULL},
    [CHOICE] = {"choice",
                {"type", "instructions", "name", "choices"},
                "Answer with the letter of one option only.",
                &choice_options},
    [SCORE] = {"score",
               {"type", "instructions", "name", "levels"},
               "Answer with the number of one level only.",
               &score_options},
};

/* The text begins with what all questions of a kind have in common, so that its keys and values are
 * computed once. */
static enum status read_kind(struct decision_reader *r, struct question *question,
                             struct api_prompt *prompt) {
    const struct json *type = json_member(r->asked, "type");
    const int n = (int)(sizeof kinds / sizeof *kinds);
    int kind = 0;
    while (kind < n && !json_is_text(type, kinds[kind].type)) kind++;
    if (kind == n) return wrong(r, "type", "must be \"predicate\", \"choice\" or \"score\"");
    if (refuse_unknown(r, r->asked, "", kinds[kind].members)) return r->err->status;
    buf_printf(&r->text, "%s\n\n", kinds[kind].request);
    if (add_instructions(r)) return r->err->status;
    question->kind = kind;
    if (kind == PREDICATE) return add_predicate(r, question, prompt);
    return add_options(r, question, kinds[kind].options, prompt);
}

static enum status read_question(struct decision_reader *r, struct question *question,
                                 struct api_prompt *prompt) {
    const struct json *name = json_member(r->asked, "name");
    if (!json_is(r->asked, JSON_OBJECT)) return wrong(r, "", "must be an object");
    if (api_holds_nul(r->asked)) return wrong(r, "", "must not hold the character \\u0000");
    if (name && !json_is(name, JSON_NULL) && !json_is(name, JSON_STRING))
        return wrong(r, "name", "must be a text");
    if (json_is(name, JSON_STRING) && !(question->name = keep(r, name))) return r->err->status;
    buf_clear(&r->text);
    if (read_kind(r, question, prompt)) return r->err->status;
    char *text = arena_alloc(r->request->arena, r->text.length);
    if (!text) return err_set(r->err, STATUS_UNAVAILABLE, NULL, "Not enough memory.");
    memcpy(text, r->text.data, r->text.length);
    prompt->question = text;
    prompt->question_length = r->text.length;
    return STATUS_OK;
}

/* All questions share the messages of the request's prompt. */
static enum status read_questions(struct decision_reader *r, const struct json *questions) {
    struct api_request *request = r->request;
    const struct api_prompt input = request->prompts[0];
    int n = json_is(questions, JSON_ARRAY) ? json_count(questions) : 0, i = 0;
    if (n < 1 || n > MAX_QUESTIONS)
        return err_set(r->err, STATUS_INVALID_REQUEST, "questions",
                       "'questions' must be a list of 1 to %d questions.", MAX_QUESTIONS);
    request->prompts = arena_alloc(request->arena, (size_t)n * sizeof *request->prompts);
    r->decision = arena_alloc(request->arena, sizeof *r->decision);
    if (!request->prompts || !r->decision) {
        request->prompts = NULL;
        return err_set(r->err, STATUS_UNAVAILABLE, NULL, "Not enough memory for the questions.");
    }
    memset(r->decision, 0, sizeof *r->decision);
    request->reading = r->decision;
    request->n_prompts = n;
    json_each(asked, questions) {
        snprintf(r->where, sizeof r->where, "questions[%d]", i);
        r->asked = asked;
        request->prompts[i] = input;
        if (read_question(r, &r->decision->question[i], &request->prompts[i]))
            return r->err->status;
        i++;
    }
    return STATUS_OK;
}

/* ---- the body ------------------------------------------------------------------------------- */

static const struct field rows[] = {
    {"model", FIELD_STRING, FIELD_NOT_STORED, .copied_to = "model"},
    {"input", FIELD_ANY, FIELD_NOT_STORED, .required = true},
    {"questions", FIELD_ARRAY, FIELD_NOT_STORED, .required = true},
    {"prompt_cache_key", FIELD_STRING, FIELD_NOT_STORED},
    {"prompt_cache_options", FIELD_OBJECT, FIELD_NOT_STORED},
    {"safety_identifier", FIELD_STRING, FIELD_NOT_STORED},
    {"cache_salt", FIELD_STRING, FIELD_NOT_STORED, .copied_to = "cache_salt"},
    {"priority", FIELD_INT, FIELD_NOT_STORED, 0, INT32_MIN, INT32_MAX, .copied_to = "priority"},
    {"deadline_ms", FIELD_INT, FIELD_NOT_STORED, 0, 1, MAX_DEADLINE_MS, .copied_to = "deadline_ms"},
    {"request_id", FIELD_STRING, FIELD_NOT_STORED, .copied_to = "request_id"},
};

static const struct field_table decision_fields = {FIELDS_OF(rows)};

static enum status refuse_unknown_fields(const struct json *body, struct err *err) {
    json_each_member(member, body) {
        if (fields_find(&decision_fields, member->name)) continue;
        return err_set(err, STATUS_INVALID_REQUEST, member->name,
                       "'%.64s' is not a field of this path: leave it out.", member->name);
    }
    return STATUS_OK;
}

/* Writes a chat's body with the input as its messages. */
static enum status translate(struct buf *out, struct buf *names, const struct json *body,
                             struct err *err) {
    if (!json_is(body, JSON_OBJECT))
        return err_set(err, STATUS_INVALID_REQUEST, NULL,
                       "The body must be a JSON object, but it is %s.", json_type_name(body));
    if (refuse_unknown_fields(body, err) || fields_check(&decision_fields, body, err))
        return err->status;
    const struct json *input = fields_member(&decision_fields, body, "input");
    if (!input)
        return err_set(err, STATUS_INVALID_REQUEST, "input",
                       "'input' must be a text or items, with 'questions' about it.");
    if (is_empty(input))
        return err_set(err, STATUS_INVALID_REQUEST, "input", "'input' must not be empty.");
    buf_puts(out, "{\"max_tokens\":1");
    struct buf copied = {0};
    fields_copy(&decision_fields, body, &copied);
    if (copied.length > 0) buf_puts(out, ",");
    buf_add(out, copied.data, copied.length);
    buf_free(&copied);
    if (responses_write_input(out, names, body, err)) return err->status;
    buf_puts(out, "}");
    return STATUS_OK;
}

static enum status finish(struct api_request **out, const struct json *body,
                          const struct api_limits *limits, struct err *err) {
    struct decision_reader r = {.request = *out, .limits = limits, .err = err};
    r.request->prompts[0].thinking = THINKING_OFF;
    r.request->prompts[0].add_generation_prompt = true;
    enum status status = read_questions(&r, fields_member(&decision_fields, body, "questions"));
    buf_free(&r.text);
    if (status == STATUS_OK) {
        api_read_only(r.request);
        return STATUS_OK;
    }
    api_request_free(r.request);
    *out = NULL;
    return status;
}

enum status decisions_parse(struct api_request **out, struct json *body,
                            const struct api_limits *limits, const struct api *api,
                            struct buf *names, struct err *err) {
    struct buf text = {0};
    struct json *chat = NULL;
    *out = NULL;
    api_name_add(names, "messages", "input");
    enum status status = translate(&text, names, body, err);
    if (status == STATUS_OK)
        status = json_parse_strict(&chat, "The body", text.data, text.length, err);
    if (status == STATUS_OK) status = api_parse_chat(out, chat, limits, api, err);
    if (status != STATUS_OK) api_rename(err, names->data, names->length);
    if (status == STATUS_OK) status = finish(out, body, limits, err);
    buf_free(&text);
    json_free(body);
    return status;
}

static enum status parse_body(struct api_request **out, struct json *body,
                              const struct api_limits *limits, struct err *err) {
    struct buf names = {0};
    enum status status = decisions_parse(out, body, limits, &api_decisions, &names, err);
    if (status == STATUS_OK) api_keep_names(*out, &names);
    buf_free(&names);
    return status;
}

/* ---- answers -------------------------------------------------------------------------------- */

static void write_choice(struct buf *out, const struct question *question,
                         const double *probability) {
    buf_printf(out, ",\"choice\":%s,\"probabilities\":[",
               question->option[decisions_best(probability, question->n)]);
    for (int i = 0; i < question->n; i++)
        buf_printf(out, "%s{\"value\":%s,\"probability\":%.9g}", i > 0 ? "," : "",
                   question->option[i], probability[i]);
    buf_puts(out, "]");
}

static void write_score(struct buf *out, const struct question *question,
                        const double *probability) {
    buf_printf(out, ",\"score\":%.9g,\"probabilities\":[",
               decisions_score(probability, question->n));
    for (int i = 0; i < question->n; i++)
        buf_printf(out, "%s{\"value\":%d,\"label\":%s,\"probability\":%.9g}", i > 0 ? "," : "", i,
                   question->option[i], probability[i]);
    buf_puts(out, "]");
}

static void write_answer(struct buf *out, const struct question *question,
                         const struct api_choice *choice) {
    static const char *const types[] = {"predicate", "choice", "score"};
    double probability[MAX_READ_IDS];
    assert(choice->read && question->n <= MAX_READ_IDS);
    double mass = labels_probabilities(choice->read, question->n, probability);
    buf_printf(out, "{\"type\":\"%s\",\"name\":%s", types[question->kind],
               question->name ? question->name : "null");
    if (question->kind == PREDICATE) buf_printf(out, ",\"probability\":%.9g", probability[0]);
    if (question->kind == CHOICE) write_choice(out, question, probability);
    if (question->kind == SCORE) write_score(out, question, probability);
    if (question->kind != PREDICATE)
        buf_printf(out, ",\"confidence\":%.9g",
                   mass * probability[decisions_best(probability, question->n)]);
    buf_puts(out, "}");
}

static void write_response(struct buf *out, const struct api_answer *answer,
                           const struct api_choice *choices, int n, const struct api_usage *usage) {
    const struct decision *decision = answer->request->reading;
    buf_puts(out, "{\"model\":");
    json_write_string(out, answer->model, strlen(answer->model));
    buf_puts(out, ",\"answers\":[");
    for (int i = 0; i < n; i++) {
        if (i > 0) buf_puts(out, ",");
        write_answer(out, &decision->question[i], &choices[i]);
    }
    buf_printf(out,
               "],\"usage\":{\"input_tokens\":%d,\"input_tokens_details\":{\"cached_tokens\":%d,"
               "\"cache_write_tokens\":0},\"output_tokens\":0,\"output_tokens_details\":"
               "{\"reasoning_tokens\":0},\"total_tokens\":%d}}",
               usage->prompt_tokens, usage->cached_tokens, usage->prompt_tokens);
}

const struct api api_decisions = {
    .path = "/v1/decisions",
    .fields = &decision_fields,
    .example = "\"input\":\"It rains.\",\"questions\":[{\"type\":\"predicate\",\"instructions\":"
               "\"The weather is wet.\"}]",
    .answer_members = "model answers usage",
    .id_prefix = "dec-",
    .reads = "questions",
    .parse = parse_body,
    .write_response = write_response,
    API_OPENAI_ERRORS,
};
