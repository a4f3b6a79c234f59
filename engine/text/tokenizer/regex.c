/* The regular expressions of tokenizer files, executed by PCRE2.
 *
 * DESIGN
 *   The files are written for Oniguruma. Patterns are rewritten if PCRE2 interprets them otherwise:
 *   white space and word characters are other sets, ^ and $ are ends of lines, \h is a hexadecimal
 *   digit, \v is one character. Features that PCRE2 lacks are refused: sets within sets, &&, a
 *   counted repeat before a +, references.
 *
 *   A pattern may need exponential time, so each match has a limit. regex_of_file tests a file's
 *   pattern on texts that force repeats to backtrack, and refuses it if it exceeds the limit there.
 *
 *   Threads: a compiled pattern is read-only; a `struct regex_run` belongs to one thread. PCRE2's
 *   machine code runs on 32 KiB of the caller's stack. If that is not enough, the interpreter runs
 *   instead.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <assert.h>
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#include "engine/text/tokenizer/internal.h"

#define MAX_PATTERN_BYTES (1 << 16)

/* Oniguruma's word characters: Unicode's Alphabetic, M, Nd and Pc, and outside of sets also six
 * characters of Latin-1. */
#define WORD_SET                                                                                   \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{"     \
    "1F169}"                                                                                       \
    "\\x{1F170}-\\x{1F189}"
#define WORD_LATIN "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"
#define NOT_SPACES                                                                                 \
    "\\x{0}-\\x{8}\\x{E}-\\x{1F}\\x{21}-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}\\x{1681}-\\x{"     \
    "1FFF}"                                                                                        \
    "\\x{200B}-\\x{2027}\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{"   \
    "10FFFF}"

/* ---- from Oniguruma's syntax to PCRE2's ----------------------------------------------------- */

struct rewriting {
    const char *at, *end;
    struct buf *out;
    bool in_set;
    bool after_interval; /* the last item is a counted repeat */
    const char *refused; /* the feature that PCRE2 lacks, or NULL */
};

/* Escapes that mean other sets in PCRE2: outside of a set, and within one (NULL: refused). */
static const struct {
    char letter;
    const char *alone, *in_set;
} classes[] = {
    {'s', "[" REGEX_SPACES "]", REGEX_SPACES},
    {'S', "[^" REGEX_SPACES "]", NOT_SPACES},
    {'d', "\\p{Nd}", "\\p{Nd}"},
    {'D', "\\P{Nd}", "\\P{Nd}"},
    {'w', "[" WORD_SET WORD_LATIN "]", WORD_SET},
    {'W', "[^" WORD_SET WORD_LATIN "]", NULL},
    {'h', "[0-9A-Fa-f]", "0-9A-Fa-f"},
    {'H', "[^0-9A-Fa-f]", NULL},
    {'b', "(?:(?<=[" WORD_SET "])(?![" WORD_SET "])|(?<![" WORD_SET "])(?=[" WORD_SET "]))",
     "\\x08"},
    {'v', "\\x0B", "\\x0B"},
    {'A', "\\A", NULL},
    {'z', "\\z", NULL},
    {'Z', "\\Z", NULL},
};

static void refuse(struct rewriting *r, const char *what) {
    if (!r->refused) r->refused = what;
    r->at = r->end;
}

/* Rewrites \x41, \x{1F600} or \u0041, from after the letter on. */
static void rewrite_code_point(struct rewriting *r, char letter) {
    const char *digits = r->at;
    bool in_braces = letter == 'x' && digits < r->end && *digits == '{';
    digits += in_braces;
    size_t most = in_braces ? 8 : letter == 'u' ? 4 : 2, n = 0;
    while (n < most && digits + n < r->end && strchr("0123456789abcdefABCDEF", digits[n]) &&
           digits[n])
        n++;
    bool closed = !in_braces || (digits + n < r->end && digits[n] == '}');
    if (n == 0 || !closed || (letter == 'u' && n < 4)) return refuse(r, "an unfinished code point");
    buf_printf(r->out, "\\x{%.*s}", (int)n, digits);
    r->at = digits + n + in_braces;
}

/* Rewrites \p{L}, \P{^L}. The names are the same if PCRE2 knows them. */
static void rewrite_property(struct rewriting *r, char letter) {
    const char *close =
        r->at < r->end && *r->at == '{' ? memchr(r->at, '}', (size_t)(r->end - r->at)) : NULL;
    if (!close) return refuse(r, "a property without braces");
    buf_printf(r->out, "\\%c%.*s", letter, (int)(close + 1 - r->at), r->at);
    r->at = close + 1;
}

static void rewrite_escape(struct rewriting *r) {
    if (r->at + 1 >= r->end) return refuse(r, "a backslash at the end");
    char letter = r->at[1];
    r->at += 2;
    if (letter == 'x' || letter == 'u') return rewrite_code_point(r, letter);
    if (letter == 'p' || letter == 'P') return rewrite_property(r, letter);
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        if (classes[i].letter != letter) continue;
        const char *text = r->in_set ? classes[i].in_set : classes[i].alone;
        if (!text) return refuse(r, "the complement of a set within a set");
        return buf_puts(r->out, text);
    }
    bool is_same = strchr("nrtfae", letter) && letter;
    bool is_mark = (letter >= '!' && letter <= '~' && !strchr("<>", letter)) || letter == ' ';
    bool is_word = (letter >= '0' && letter <= '9') || (letter >= 'A' && letter <= 'Z') ||
                   (letter >= 'a' && letter <= 'z');
    if (!is_same && (is_word || !is_mark))
        return refuse(r, "an escape without an equivalent in PCRE2");
    buf_printf(r->out, "\\%c", letter);
}

/* Rewrites a set, from its opening bracket on. */
static void rewrite_set(struct rewriting *r) {
    buf_add(r->out, r->at++, 1);
    if (r->at < r->end && *r->at == '^') buf_add(r->out, r->at++, 1);
    if (r->at < r->end && *r->at == ']') {
        buf_puts(r->out, "\\]");
        r->at++;
    }
    r->in_set = true;
    while (r->at < r->end && *r->at != ']') {
        size_t left = (size_t)(r->end - r->at);
        if (*r->at == '\\')
            rewrite_escape(r);
        else if (left >= 9 && memcmp(r->at, "[:space:]", 9) == 0) {
            buf_puts(r->out, REGEX_SPACES);
            r->at += 9;
        } else if (*r->at == '[')
            refuse(r, "a set within a set");
        else if (left >= 2 && memcmp(r->at, "&&", 2) == 0)
            refuse(r, "the intersection && of sets");
        else
            buf_add(r->out, r->at++, 1);
    }
    r->in_set = false;
    if (r->at == r->end) return refuse(r, "a set without an end");
    buf_add(r->out, r->at++, 1);
}

/* Rewrites a group's head "(?...", if both syntaxes have it. */
static void rewrite_group(struct rewriting *r) {
    static const char *const heads[] = {"(?:", "(?=",  "(?!",   "(?<=", "(?<!",
                                        "(?>", "(?i:", "(?-i:", "(?i)", "(?-i)"};
    size_t left = (size_t)(r->end - r->at);
    if (left < 2 || r->at[1] != '?') return buf_add(r->out, r->at++, 1);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        size_t n = strlen(heads[i]);
        if (left < n || memcmp(r->at, heads[i], n) != 0) continue;
        buf_add(r->out, r->at, n);
        r->at += n;
        return;
    }
    refuse(r, "a kind of group without an equivalent in PCRE2");
}

/* Returns the bytes of an interval like {2,3} at `at`, or 0 if the brace is an ordinary
 * character. */
static size_t interval_bytes(const struct rewriting *r) {
    const char *at = r->at + 1;
    size_t n_digits = 0;
    while (at < r->end && ((*at >= '0' && *at <= '9') || *at == ',')) n_digits += *at++ != ',';
    return n_digits > 0 && at < r->end && *at == '}' ? (size_t)(at + 1 - r->at) : 0;
}

static void rewrite_brace(struct rewriting *r) {
    size_t n = interval_bytes(r);
    if (n == 0) {
        buf_puts(r->out, "\\{");
        r->at++;
        return;
    }
    char behind = r->at + n < r->end ? r->at[n] : 0;
    bool is_exact = !memchr(r->at, ',', n);
    if (behind == '+' || (behind == '?' && is_exact))
        return refuse(r, "a counted repeat with another repeat after it");
    buf_printf(r->out, r->at[1] == ',' ? "{0%.*s" : "{%.*s", (int)n - 1, r->at + 1);
    r->at += n;
}

static const char *rewrite(const struct span *pattern, struct buf *out) {
    struct rewriting r = {.at = pattern->data, .end = pattern->data + pattern->length, .out = out};
    while (r.at < r.end) {
        if (*r.at == '\\')
            rewrite_escape(&r);
        else if (*r.at == '[')
            rewrite_set(&r);
        else if (*r.at == '(')
            rewrite_group(&r);
        else if (*r.at == '{')
            rewrite_brace(&r);
        else
            buf_add(out, r.at++, 1);
    }
    return r.refused;
}

/* ---- compiling ------------------------------------------------------------------------------ */

/* Compiles a pattern in PCRE2's syntax, or a literal text. */
static enum status compile(struct token_regex *regex, const char *pattern, size_t length,
                           uint32_t flags, const char *key, struct err *err) {
    int code;
    PCRE2_SIZE at;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (context) pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_code *compiled =
        pcre2_compile((PCRE2_SPTR)pattern, length, PCRE2_UTF | flags, &code, &at, context);
    pcre2_compile_context_free(context);
    if (!compiled) {
        char reason[128];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
        return err_set(err, STATUS_BAD_FILE, key,
                       "key %s: expected a regular expression that PCRE2 can compile, found one "
                       "with this error at byte %zu: %s",
                       key, (size_t)at, reason);
    }
    /* Some systems forbid machine code made at run time. PCRE2's interpreter is slower, but finds
     * the same pieces. */
    regex->jit = pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE) == 0;
    regex->code = compiled;
    regex->steps = 0;
    return STATUS_OK;
}

enum status regex_own(struct token_regex *regex, const char *pattern, const char *key,
                      struct err *err) {
    return compile(regex, pattern, strlen(pattern), PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, key, err);
}

/* Does the pattern stay within the limit on texts that force repeats to backtrack? */
static bool is_bounded(const struct token_regex *regex) {
    static const char *const units[] = {"a", " ", "1", "!", "\n", "aB", "a ", "\xC3\xA9"};
    struct token_regex slow = *regex; /* without machine code: the interpreter counts more steps */
    slow.jit = false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        struct buf text = {0};
        while (text.length < 64) buf_puts(&text, units[i]);
        buf_puts(&text, "\xE2\x82\xAC");
        struct regex_run run;
        struct regex_cursor cursor = {0};
        size_t begin, end;
        regex_begin(&run, text.length);
        while (regex_next(&slow, &run, text.data, text.length, &cursor, &begin, &end)) {
        }
        bool gave_up = run.gave_up;
        regex_end(&run);
        buf_free(&text);
        if (gave_up) return false;
    }
    return true;
}

enum status regex_of_file(struct token_regex *regex, struct span pattern, bool is_regex,
                          const char *key, struct err *err) {
    if (pattern.length == 0 || pattern.length > MAX_PATTERN_BYTES)
        return err_set(err, STATUS_BAD_FILE, key,
                       "key %s: expected a pattern of 1 to %d bytes, found %zu", key,
                       MAX_PATTERN_BYTES, pattern.length);
    if (!is_regex) return compile(regex, pattern.data, pattern.length, PCRE2_LITERAL, key, err);
    struct buf text = {0};
    const char *refused = rewrite(&pattern, &text);
    enum status status = STATUS_OK;
    if (refused)
        status = err_set(err, STATUS_BAD_FILE, key,
                         "key %s: expected a regular expression that PCRE2 can match, found %s",
                         key, refused);
    if (!status)
        status = compile(regex, text.data, text.length, PCRE2_UCP | PCRE2_MULTILINE, key, err);
    buf_free(&text);
    if (status) return status;
    regex->steps = 200000;
    if (is_bounded(regex)) return STATUS_OK;
    regex_free(regex);
    return err_set(err, STATUS_BAD_FILE, key,
                   "key %s: expected a regular expression that ends within %u steps, found one "
                   "that needs more for a text of 67 bytes",
                   key, (unsigned)200000);
}

void regex_free(struct token_regex *regex) {
    pcre2_code_free(regex->code);
    regex->code = NULL;
}

/* ---- matching ------------------------------------------------------------------------------- */

static void *allocate(size_t bytes, void *none) {
    (void)none;
    return mem_alloc(bytes);
}

static void release(void *memory, void *none) {
    (void)none;
    mem_free(memory);
}

void regex_begin(struct regex_run *run, size_t length) {
    pcre2_general_context *memory = pcre2_general_context_create(allocate, release, NULL);
    *run = (struct regex_run){.data = pcre2_match_data_create(1, memory),
                              .context = pcre2_match_context_create(memory),
                              .length = length};
    pcre2_general_context_free(memory);
}

void regex_end(struct regex_run *run) {
    pcre2_match_data_free(run->data);
    pcre2_match_context_free(run->context);
}

/* Finds the first match from `offset` on. If PCRE2 gives up (a limit), this match
 * and all later ones fail: the rest becomes one piece, so no byte is lost. */
static bool match(const struct token_regex *regex, struct regex_run *run, const char *text,
                  size_t length, size_t offset, size_t *begin, size_t *end) {
    if (run->gave_up) return false;
    /* A repeat may backtrack over its whole match once per alternative, but not more. */
    size_t limit = run->length > UINT32_MAX / 64 ? UINT32_MAX / 2 : 1000 + 32 * run->length;
    pcre2_set_match_limit(run->context, (uint32_t)limit + regex->steps);
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (regex->jit) {
        rc = pcre2_jit_match(regex->code, subject, length, offset, 0, run->data, run->context);
    }
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        rc = pcre2_match(regex->code, subject, length, offset, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         run->data, run->context);
    }
    run->gave_up = rc < 0 && rc != PCRE2_ERROR_NOMATCH;
    if (rc < 0) return false;
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(run->data);
    *begin = range[0];
    *end = range[1];
    assert(*begin >= offset && *begin <= *end && *end <= length);
    return true;
}

bool regex_next(const struct token_regex *regex, struct regex_run *run, const char *text,
                size_t length, struct regex_cursor *cursor, size_t *begin, size_t *end) {
    while (cursor->at <= length) {
        if (!match(regex, run, text, length, cursor->at, begin, end)) return false;
        if (*begin == *end && cursor->has_match && *end == cursor->match_end) {
            /* an empty match at the end of the previous one: continue at the next character */
            size_t n = utf8_character(text + cursor->at, length - cursor->at);
            cursor->at += n ? n : 1;
            continue;
        }
        *cursor = (struct regex_cursor){.at = *end, .match_end = *end, .has_match = true};
        return true;
    }
    return false;
}
