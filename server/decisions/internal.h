/* Internal to server/decisions. */
#ifndef PENSTOCK_SERVER_DECISIONS_INTERNAL_H
#define PENSTOCK_SERVER_DECISIONS_INTERNAL_H

#include "server/decisions/decisions.h"
#include "server/json/json.h"

/* ---- labels.c ------------------------------------------------------------------------------- */

/* What the model is asked to answer with. */
enum labels {
    LABELS_YES_NO,
    LABELS_LETTERS, /* A to Z, then AA, AB, ... as far as these are single tokens */
    LABELS_DIGITS,  /* from 0 on */
};

struct label {
    char text[8];
    int32_t id; /* its token */
};

/* Finds n labels of one token each, in their order. Returns the number found: below n if the
 * vocabulary lacks tokens. */
int labels_find(const struct api_limits *limits, enum labels kind, int n, struct label *labels);

/* Sets the prompt's ids to those of the labels. Fails if memory is short. */
enum status labels_set(const struct label *labels, int n, struct arena *arena,
                       struct api_prompt *prompt, struct err *err);

/* Computes probability[n] of the labels that were read, normalised to the sum 1. Returns the
 * probability of all labels together. */
double labels_probabilities(const struct token_logprob *read, int n, double *probability);

/* Returns the logarithm of the first label's probability divided by the second's, within +-9999:
 * the difference of their logits. */
double labels_log_ratio(const struct token_logprob read[2]);

/* Returns the first of the options with the highest probability. */
int decisions_best(const double *probability, int n);

/* Returns the expected level, from 0 to n - 1. */
double decisions_score(const double *probability, int n);

/* ---- empty texts ---------------------------------------------------------------------------- */

/* Is the value a text or a list without anything in it? Its error says so; a value of another type
 * gets the error that names the right types. */
static inline bool is_empty(const struct json *value) {
    if (json_is(value, JSON_STRING)) return json_length(value) == 0;
    return json_is(value, JSON_ARRAY) && json_count(value) == 0;
}

/* ---- pairs.c -------------------------------------------------------------------------------- */

struct text_pair {
    struct span query, document;
};

/* Makes a request of the fields that are copied, and a prompt that pairs_fill replaces. The body
 * stays the caller's. */
enum status pairs_parse(struct api_request **out, const struct field_table *fields,
                        const struct json *body, const struct api_limits *limits,
                        const struct api *api, struct err *err);

/* Makes the prompts of n pairs; `wish` is the task or NULL. Fails if the model gives no scores. */
enum status pairs_fill(struct api_request *request, const struct api_limits *limits,
                       const struct text_pair *pairs, int n, const char *wish, struct err *err);

/* Bounds the bytes of queries and tasks in the prompts of one request. */
enum status pairs_check_size(const struct text_pair *pairs, int n, const struct json *wish,
                             const char *name, struct err *err);

/* Returns the scores of all pairs, after their prompts were read, and sets their number. The caller
 * frees them with mem_free. */
double *pairs_scores(const struct api_answer *answer, const struct api_choice *choices,
                     int n_choices, int *n);

/* Returns the string of a query or document: the value, or `text` of an object or of the only part
 * in its `content`; otherwise NULL. */
const struct json *pairs_value(const struct json *value);

/* Says that a query or document must be a text, or that it must not be empty. `forms` names the
 * forms that are right. Returns STATUS_INVALID_REQUEST. */
enum status pairs_refuse(const struct json *value, const char *name, const char *forms,
                         struct err *err);

/* Returns its text, which points into the value; data NULL: the text is empty or missing. */
struct span pairs_text(const struct json *value);

/* ---- request.c ------------------------------------------------------------------------------ */

enum { MAX_QUESTIONS = 400, MAX_CHOICES_ASKED = 255, MAX_LEVELS = 10 };

enum question_kind { PREDICATE, CHOICE, SCORE };

/* One question, as its answer repeats it. Texts are JSON, in the arena. */
struct question {
    enum question_kind kind;
    const char *name; /* or NULL */
    int n;            /* options */
    const char **option;
};

/* `reading` of a request whose prompts are questions. */
struct decision {
    struct question question[MAX_QUESTIONS]; /* one for each prompt */
};

/* Checks a body of /v1/decisions for `api`, and makes a prompt of each question. Adds the names of
 * the messages that the input became to `names`. Frees the body. */
enum status decisions_parse(struct api_request **out, struct json *body,
                            const struct api_limits *limits, const struct api *api,
                            struct buf *names, struct err *err);

#endif
