/* The API /v1/systemone: a state and questions by name, translated to a body of /v1/decisions. A
 * noul is a predicate; the criteria of a choice are its choices, those of a score its levels. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/decisions/internal.h"

/* ---- requests ------------------------------------------------------------------------------- */

static const struct field rows[] = {
    {"model", FIELD_STRING, FIELD_NOT_STORED, .copied_to = "model"},
    {"state", FIELD_ANY, FIELD_NOT_STORED, .required = true},
    {"questions", FIELD_OBJECT, FIELD_NOT_STORED, .required = true},
    {"cache_salt", FIELD_STRING, FIELD_NOT_STORED, .copied_to = "cache_salt"},
    {"priority", FIELD_INT, FIELD_NOT_STORED, 0, INT32_MIN, INT32_MAX, .copied_to = "priority"},
    {"deadline_ms", FIELD_INT, FIELD_NOT_STORED, 0, 1, MAX_DEADLINE_MS, .copied_to = "deadline_ms"},
    {"request_id", FIELD_STRING, FIELD_NOT_STORED, .copied_to = "request_id"},
};

static const struct field_table systemone_fields = {FIELDS_OF(rows)};

static const char *const types[] = {"noul", "choice", "score"}; /* by enum question_kind */

/* A question while it is translated. `where` is its place in the translated body; errors name that
 * place, and are renamed last. */
struct asking {
    struct buf *out;
    const struct json *asked;
    char where[32];
    struct err *err;
};

static enum status wrong(struct asking *asking, const char *member, const char *message) {
    char where[48];
    snprintf(where, sizeof where, "%s%s", asking->where, member);
    return err_set(asking->err, STATUS_INVALID_REQUEST, where, "'%s' %s.", where, message);
}

/* Lists and objects are written as JSON, so an empty one is a text. */
static bool is_empty_text(const struct json *value) {
    return json_is(value, JSON_STRING) && is_empty(value);
}

static bool is_content(const struct json *value) {
    return json_is(value, JSON_STRING) || json_is(value, JSON_OBJECT) || json_is(value, JSON_ARRAY);
}

/* Appends the text of a value: a string's own, or its JSON. */
static void add_content(struct buf *text, const struct json *value) {
    if (json_is(value, JSON_STRING))
        buf_add(text, json_text(value), json_length(value));
    else
        json_write_value(text, value);
}

/* Writes the text of a value as a JSON string. */
static void write_content(struct buf *out, const struct json *value) {
    struct buf text = {0};
    add_content(&text, value);
    json_write_string(out, text.data ? text.data : "", text.length);
    buf_free(&text);
}

static enum status check_members(struct asking *asking, const struct json *object,
                                 const char *place, const char *const *known) {
    json_each_member(member, object) {
        int i = 0;
        while (known[i] && strcmp(known[i], member->name) != 0) i++;
        if (known[i]) continue;
        return wrong(asking, place, "has a member that this version does not know");
    }
    return STATUS_OK;
}

/* Appends what true and false mean. */
static enum status add_meanings(struct asking *asking, struct buf *text,
                                const struct json *criteria) {
    static const char *const known[] = {"true", "false", NULL};
    if (!criteria || json_is(criteria, JSON_NULL)) return STATUS_OK;
    if (!json_is(criteria, JSON_OBJECT))
        return wrong(asking, ".criteria", "must be an object with \"true\" and \"false\"");
    if (check_members(asking, criteria, ".criteria", known)) return asking->err->status;
    for (int i = 0; i < 2; i++) {
        const struct json *meaning = json_member(criteria, known[i]);
        if (!meaning || json_is(meaning, JSON_NULL)) continue;
        buf_printf(text, "\n%s: ", i == 0 ? "yes" : "no");
        add_content(text, meaning);
    }
    return STATUS_OK;
}

static enum status write_instructions(struct asking *asking, enum question_kind kind) {
    struct buf text = {0};
    const struct json *instructions = json_member(asking->asked, "instructions");
    enum status status = STATUS_OK;
    if (is_empty_text(instructions)) return wrong(asking, ".instructions", "must not be empty");
    if (!is_content(instructions))
        return wrong(asking, ".instructions", "must be a text, an object or a list");
    add_content(&text, instructions);
    if (kind == PREDICATE)
        status = add_meanings(asking, &text, json_member(asking->asked, "criteria"));
    buf_puts(asking->out, ",\"instructions\":");
    json_write_string(asking->out, text.data, text.length);
    buf_free(&text);
    return status;
}

/* Writes criteria by name: null, or a description. */
static enum status write_choices(struct asking *asking, const struct json *criteria) {
    const char *comma = "";
    int n = json_is(criteria, JSON_OBJECT) ? json_count(criteria) : 0;
    if (n < 2 || n > MAX_CHOICES_ASKED)
        return wrong(asking, ".criteria", "must be an object of 2 to 255 choices");
    buf_puts(asking->out, ",\"choices\":[");
    json_each_member(member, criteria) {
        buf_printf(asking->out, "%s{\"value\":", comma);
        json_write_string(asking->out, member->name, strlen(member->name));
        if (!json_is(member, JSON_NULL)) {
            buf_puts(asking->out, ",\"description\":");
            write_content(asking->out, member);
        }
        buf_puts(asking->out, "}");
        comma = ",";
    }
    buf_puts(asking->out, "]");
    return STATUS_OK;
}

static enum status write_levels(struct asking *asking, const struct json *criteria) {
    const char *comma = "";
    int n = json_is(criteria, JSON_ARRAY) ? json_count(criteria) : 0;
    if (n < 2 || n > MAX_LEVELS)
        return wrong(asking, ".criteria", "must be a list of 2 to 10 levels");
    buf_puts(asking->out, ",\"levels\":[");
    json_each(level, criteria) {
        if (is_empty_text(level))
            return wrong(asking, ".criteria", "must not have empty texts as its levels");
        if (!is_content(level))
            return wrong(asking, ".criteria", "must have texts, objects or lists as its levels");
        buf_printf(asking->out, "%s{\"label\":", comma);
        write_content(asking->out, level);
        buf_puts(asking->out, "}");
        comma = ",";
    }
    buf_puts(asking->out, "]");
    return STATUS_OK;
}

static enum status write_question(struct asking *asking) {
    static const char *const known[] = {"type", "instructions", "criteria", NULL};
    static const char *const kinds[] = {"predicate", "choice", "score"};
    const struct json *criteria = json_member(asking->asked, "criteria");
    int kind = 0;
    if (!json_is(asking->asked, JSON_OBJECT)) return wrong(asking, "", "must be an object");
    while (kind < 3 && !json_is_text(json_member(asking->asked, "type"), types[kind])) kind++;
    if (kind == 3) return wrong(asking, ".type", "must be \"noul\", \"choice\" or \"score\"");
    if (check_members(asking, asking->asked, "", known)) return asking->err->status;
    buf_printf(asking->out, "{\"type\":\"%s\",\"name\":", kinds[kind]);
    json_write_string(asking->out, asking->asked->name, strlen(asking->asked->name));
    if (write_instructions(asking, kind)) return asking->err->status;
    if (kind == CHOICE && write_choices(asking, criteria)) return asking->err->status;
    if (kind == SCORE && write_levels(asking, criteria)) return asking->err->status;
    buf_puts(asking->out, "}");
    return STATUS_OK;
}

/* Adds the client's names of a question and its options. */
static void name_question(struct buf *names, int index, const char *clients) {
    char field[48];
    struct buf name = {0};
    buf_printf(&name, "questions.%s", clients);
    snprintf(field, sizeof field, "questions[%d]", index);
    api_name_add(names, field, name.data);
    buf_puts(&name, ".criteria");
    snprintf(field, sizeof field, "questions[%d].choices", index);
    api_name_add(names, field, name.data);
    snprintf(field, sizeof field, "questions[%d].levels", index);
    api_name_add(names, field, name.data);
    buf_free(&name);
}

static enum status write_questions(struct buf *out, struct buf *names, const struct json *questions,
                                   struct err *err) {
    struct asking asking = {.out = out, .err = err};
    int n = json_count(questions), i = 0;
    if (n < 1 || n > MAX_QUESTIONS)
        return err_set(err, STATUS_INVALID_REQUEST, "questions",
                       "'questions' must be an object of 1 to %d questions.", MAX_QUESTIONS);
    buf_puts(out, ",\"questions\":[");
    json_each_member(asked, questions) {
        if (i > 0) buf_puts(out, ",");
        name_question(names, i, asked->name);
        snprintf(asking.where, sizeof asking.where, "questions[%d]", i++);
        asking.asked = asked;
        if (write_question(&asking)) return err->status;
    }
    buf_puts(out, "]");
    return STATUS_OK;
}

/* Images and sounds change the meaning of a request, so they are not ignored. */
static enum status refuse_unserved(const struct json *body, struct err *err) {
    static const char *const names[] = {"images", "assets", "audio", "videos"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct json *value = json_member(body, names[i]);
        if (!value || json_is(value, JSON_NULL)) continue;
        return err_set(err, STATUS_INVALID_REQUEST, names[i],
                       "'%s' is not served: this server reads only text.", names[i]);
    }
    return STATUS_OK;
}

static enum status translate(struct buf *out, struct buf *names, const struct json *body,
                             struct err *err) {
    if (!json_is(body, JSON_OBJECT))
        return err_set(err, STATUS_INVALID_REQUEST, NULL,
                       "The body must be a JSON object, but it is %s.", json_type_name(body));
    if (fields_check(&systemone_fields, body, err) || refuse_unserved(body, err))
        return err->status;
    const struct json *state = fields_member(&systemone_fields, body, "state");
    if (!state)
        return err_set(err, STATUS_INVALID_REQUEST, "state",
                       "'state' must be a text or a JSON value, with 'questions' about it.");
    if (is_empty_text(state))
        return err_set(err, STATUS_INVALID_REQUEST, "state", "'state' must not be empty.");
    api_name_add(names, "input", "state");
    api_name_add(names, "messages", "state");
    buf_puts(out, "{\"input\":");
    write_content(out, state);
    struct buf copied = {0};
    fields_copy(&systemone_fields, body, &copied);
    if (copied.length > 0) buf_puts(out, ",");
    buf_add(out, copied.data, copied.length);
    buf_free(&copied);
    const struct json *questions = fields_member(&systemone_fields, body, "questions");
    if (write_questions(out, names, questions, err)) return err->status;
    buf_puts(out, "}");
    return STATUS_OK;
}

/* An answer repeats the levels as the client wrote them. */
static enum status keep_levels(struct api_request *request, const struct json *questions,
                               struct err *err) {
    const struct decision *decision = request->reading;
    int i = 0;
    json_each_member(asked, questions) {
        const struct question *question = &decision->question[i++];
        int level = 0;
        json_each(value, question->kind == SCORE ? json_member(asked, "criteria") : NULL) {
            struct buf text = {0};
            json_write_value(&text, value);
            char *kept = arena_strndup(request->arena, text.data, text.length);
            buf_free(&text);
            if (!kept) return err_out_of_memory(err);
            question->option[level++] = kept;
        }
        assert(question->kind != SCORE || level == question->n);
    }
    return STATUS_OK;
}

static enum status parse_body(struct api_request **out, struct json *body,
                              const struct api_limits *limits, struct err *err) {
    struct buf text = {0}, names = {0}, messages = {0};
    struct json *asked = NULL;
    *out = NULL;
    enum status status = translate(&text, &names, body, err);
    if (status == STATUS_OK)
        status = json_parse_strict(&asked, "The body", text.data, text.length, err);
    if (status == STATUS_OK)
        status = decisions_parse(out, asked, limits, &api_systemone, &messages, err);
    if (status == STATUS_OK)
        status = keep_levels(*out, fields_member(&systemone_fields, body, "questions"), err);
    if (status == STATUS_OK)
        api_keep_names(*out, &names);
    else if (names.length > 0)
        api_rename(err, names.data, names.length);
    if (status != STATUS_OK && *out) {
        api_request_free(*out);
        *out = NULL;
    }
    buf_free(&text);
    buf_free(&names);
    buf_free(&messages);
    json_free(body);
    return status;
}

/* ---- answers -------------------------------------------------------------------------------- */

/* Writes a choice's probabilities by name, or a score's by the number of the level. */
static void write_probabilities(struct buf *out, const struct question *question,
                                const double *probability) {
    buf_puts(out, ",\"probabilities\":{");
    for (int i = 0; i < question->n; i++) {
        buf_puts(out, i > 0 ? "," : "");
        if (question->kind == CHOICE)
            buf_puts(out, question->option[i]);
        else
            buf_printf(out, "\"%d\"", i);
        buf_printf(out, ":%.9g", probability[i]);
    }
    buf_puts(out, "}");
}

static void write_legend(struct buf *out, const struct question *question) {
    buf_puts(out, ",\"legend\":{");
    for (int i = 0; i < question->n; i++)
        buf_printf(out, "%s\"%d\":%s", i > 0 ? "," : "", i, question->option[i]);
    buf_puts(out, "}");
}

static void write_answer(struct buf *out, const struct question *question,
                         const struct api_choice *choice) {
    double probability[MAX_READ_IDS];
    assert(choice->read && question->name && question->n <= MAX_READ_IDS);
    double mass = labels_probabilities(choice->read, question->n, probability);
    int best = decisions_best(probability, question->n);
    buf_printf(out, "%s:{\"type\":\"%s\"", question->name, types[question->kind]);
    if (question->kind == PREDICATE) {
        buf_printf(out, ",\"noul\":%.9g}", probability[0]);
        return;
    }
    if (question->kind == CHOICE)
        buf_printf(out, ",\"choice\":%s", question->option[best]);
    else
        buf_printf(out, ",\"score\":%.9g", decisions_score(probability, question->n));
    buf_printf(out, ",\"confidence\":%.9g", mass * probability[best]);
    if (question->kind == SCORE) write_legend(out, question);
    write_probabilities(out, question, probability);
    buf_puts(out, "}");
}

static void write_response(struct buf *out, const struct api_answer *answer,
                           const struct api_choice *choices, int n, const struct api_usage *usage) {
    const struct decision *decision = answer->request->reading;
    buf_puts(out, "{\"model\":");
    json_write_string(out, answer->model, strlen(answer->model));
    buf_puts(out, ",\"answers\":{");
    for (int i = 0; i < n; i++) {
        if (i > 0) buf_puts(out, ",");
        write_answer(out, &decision->question[i], &choices[i]);
    }
    buf_printf(out, "},\"usage\":{\"input_tokens\":%d,\"output_tokens\":0}}", usage->prompt_tokens);
}

/* ---- errors --------------------------------------------------------------------------------- */

/* Writes the parts of a name such as "questions.a.criteria[2]" as ["body","questions",...,2]. */
static void write_place(struct buf *out, const char *name) {
    buf_puts(out, "[\"body\"");
    while (*name) {
        size_t n = strcspn(name, ".[]");
        size_t digits = strspn(name, "0123456789");
        if (n > 0) buf_puts(out, ",");
        if (n > 0 && digits == n && name[n] == ']')
            buf_add(out, name, n);
        else if (n > 0)
            json_write_string(out, name, n);
        name += n + (name[n] != 0);
    }
    buf_puts(out, "]");
}

/* Writes a bad body in the form of FastAPI's servers, any other error as a text. */
static void write_error(struct buf *out, const struct err *err, const char *request_id) {
    (void)request_id;
    assert(err->status != STATUS_OK);
    const bool is_input = err->status == STATUS_INVALID_REQUEST;
    const char *type = err->code[0] ? err->code : "value_error";
    buf_puts(out, "{\"detail\":");
    if (is_input) {
        buf_puts(out, "[{\"type\":");
        json_write_string(out, type, strlen(type));
        buf_puts(out, ",\"loc\":");
        write_place(out, err->param);
        buf_puts(out, ",\"msg\":");
    }
    json_write_string(out, err->message, strlen(err->message));
    buf_puts(out, is_input ? "}]}" : "}");
}

#define NO_MEMORY                                                                                  \
    "{\"detail\":\"Not enough memory for this request: try again later, or send a smaller one.\"}"

const struct api api_systemone = {
    .path = "/v1/systemone",
    .fields = &systemone_fields,
    .example = "\"state\":\"It rains.\",\"questions\":{\"wet\":{\"type\":\"noul\","
               "\"instructions\":\"The weather is wet.\"}}",
    .answer_members = "model answers usage",
    .error_members = "detail",
    .bad_input_http = 422,
    .id_prefix = "dec-",
    .reads = "questions",
    .parse = parse_body,
    .write_response = write_response,
    .write_error = write_error,
    .no_memory_body = NO_MEMORY,
    .no_memory_event = "data: " NO_MEMORY "\n\n",
};
