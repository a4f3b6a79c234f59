#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "server/decisions/internal.h"

/* Is the token this text, apart from a blank before it? Others are parts of it, or unknown. */
static bool is_token_of(const struct tokenizer *tokenizer, int32_t id, const char *text) {
    size_t length;
    const char *bytes = tokenizer_token_bytes(tokenizer, id, &length);
    if (length > 0 && bytes[0] == ' ') bytes++, length--;
    return length == strlen(text) && memcmp(bytes, text, length) == 0;
}

/* Returns the token of a text at the start of an answer, or -1 if it has several. Without a chat
 * template an answer begins with a blank. */
static int32_t token_of(const struct api_limits *limits, const char *text) {
    char spelled[16];
    int32_t *ids = NULL, id = -1;
    snprintf(spelled, sizeof spelled, "%s%s", limits->has_chat_template ? "" : " ", text);
    int n = tokenizer_encode(limits->tokenizer, spelled, strlen(spelled), SPECIAL_AS_TEXT, false, 8,
                             &ids);
    if (n == 1 && is_token_of(limits->tokenizer, ids[0], text)) id = ids[0];
    if (n >= 0) mem_free(ids);
    return id;
}

/* Writes the i-th spelling of a kind; returns false after the last one. */
static bool spell(enum labels kind, int i, char text[8]) {
    if (kind == LABELS_YES_NO) {
        snprintf(text, 8, "%s", i == 0 ? "yes" : "no");
        return i < 2;
    }
    if (kind == LABELS_DIGITS) {
        snprintf(text, 8, "%c", (char)('0' + i % 10));
        return i < 10;
    }
    if (i < 26)
        snprintf(text, 8, "%c", 'A' + i);
    else
        snprintf(text, 8, "%c%c", 'A' + (i - 26) / 26, 'A' + (i - 26) % 26);
    return i < 26 + 26 * 26;
}

int labels_find(const struct api_limits *limits, enum labels kind, int n, struct label *labels) {
    int found = 0;
    assert(n > 0 && n <= MAX_READ_IDS);
    for (int i = 0; found < n; i++) {
        struct label *label = &labels[found];
        if (!spell(kind, i, label->text)) break;
        label->id = token_of(limits, label->text);
        if (label->id >= 0)
            found++;
        else if (kind != LABELS_LETTERS)
            break;
    }
    return found;
}

enum status labels_set(const struct label *labels, int n, struct arena *arena,
                       struct api_prompt *prompt, struct err *err) {
    int32_t *ids = arena_alloc(arena, (size_t)n * sizeof *ids);
    if (!ids) return err_set(err, STATUS_UNAVAILABLE, NULL, "Not enough memory for the labels.");
    for (int i = 0; i < n; i++) ids[i] = labels[i].id;
    prompt->read_ids = ids;
    prompt->n_read_ids = n;
    return STATUS_OK;
}

double labels_probabilities(const struct token_logprob *read, int n, double *probability) {
    double most = -INFINITY, sum = 0;
    assert(n > 0);
    for (int i = 0; i < n; i++) most = fmax(most, (double)read[i].logprob);
    for (int i = 0; i < n; i++) {
        bool possible = most > -INFINITY;
        sum += probability[i] = possible ? exp((double)read[i].logprob - most) : 1;
    }
    for (int i = 0; i < n; i++) probability[i] /= sum;
    return fmin(1, exp(most) * sum);
}

double labels_log_ratio(const struct token_logprob read[2]) {
    const double least = -9999, yes = fmax(read[0].logprob, least),
                 no = fmax(read[1].logprob, least);
    assert(yes <= 1 && no <= 1);
    return yes - no;
}

int decisions_best(const double *probability, int n) {
    int best = 0;
    assert(n > 0);
    for (int i = 1; i < n; i++)
        if (probability[i] > probability[best]) best = i;
    return best;
}

double decisions_score(const double *probability, int n) {
    double score = 0;
    assert(n > 0);
    for (int i = 0; i < n; i++) score += i * probability[i];
    return score;
}
