/* The pre-tokenizer: splits text into pieces that tokens do not cross.
 *
 * DESIGN
 *   The stages (patterns.c) run one after another. Each passes its pieces to the next one, and the
 *   last passes them to the sink, so the pieces are never stored in a list. A stage that rewrites a
 *   piece has a buffer for it, which is valid until the stage gets its next piece.
 *
 *   Threads: the stages are read-only; each call of pretokenizer_split has separate match data.
 */
#include <assert.h>
#include <string.h>

#include "engine/text/tokenizer/internal.h"

struct split {
    const struct pretokenizer *pretokenizer;
    struct regex_run run;
    struct piece_sink sink;
    struct buf room[MAX_STEPS]; /* for stages that rewrite */
};

static bool split_stage(struct split *split, int stage, const char *text, size_t length,
                        bool is_first);

/* ---- splitting at matches ------------------------------------------------------------------- */

/* The pieces of one text on their way to the next stage. One piece is held back while it may still
 * grow. */
struct piece_joining {
    struct split *split;
    int stage; /* the next stage */
    const char *text;
    bool is_first; /* the text is the start of the encoded input */
    enum split_behavior behavior;
    bool has_held, held_is_match;
    size_t held_begin, held_end;
};

static bool hand_on(const struct piece_joining *joining, size_t begin, size_t end) {
    return begin == end || split_stage(joining->split, joining->stage, joining->text + begin,
                                       end - begin, joining->is_first && begin == 0);
}

/* Does a part belong to the piece that is held back? */
static bool joins(const struct piece_joining *joining, bool is_match) {
    if (!joining->has_held) return false;
    switch (joining->behavior) {
    case SPLIT_MERGED_WITH_PREVIOUS:
        return is_match && !joining->held_is_match;
    case SPLIT_MERGED_WITH_NEXT:
        return joining->held_is_match && !is_match;
    case SPLIT_CONTIGUOUS:
        return is_match == joining->held_is_match;
    default:
        return false;
    }
}

/* Adds the next part of the text: a match, or the text before one. */
static bool join_part(struct piece_joining *joining, size_t begin, size_t end, bool is_match) {
    assert(begin <= end);
    if (joining->behavior == SPLIT_REMOVED) return is_match || hand_on(joining, begin, end);
    if (joining->behavior == SPLIT_ISOLATED) return hand_on(joining, begin, end);
    if (joins(joining, is_match)) {
        joining->held_end = end;
        joining->held_is_match = is_match;
        return true;
    }
    size_t held_begin = joining->held_begin, held_end = joining->held_end;
    bool has_held = joining->has_held;
    joining->held_begin = begin;
    joining->held_end = end;
    joining->held_is_match = is_match;
    joining->has_held = true;
    return !has_held || hand_on(joining, held_begin, held_end);
}

static bool split_at_matches(struct split *split, int at_stage, const char *text, size_t length,
                             bool is_first) {
    const struct stage *stage = &split->pretokenizer->stage[at_stage];
    struct piece_joining joining = {.split = split,
                                    .stage = at_stage + 1,
                                    .text = text,
                                    .is_first = is_first,
                                    .behavior = stage->behavior};
    struct regex_cursor cursor = {0};
    size_t done = 0, begin, end;
    while (regex_next(&stage->regex, &split->run, text, length, &cursor, &begin, &end)) {
        assert(begin >= done && end <= length);
        if (begin > done && !join_part(&joining, done, begin, stage->invert)) return false;
        if (!join_part(&joining, begin, end, !stage->invert)) return false;
        done = end;
    }
    if (done < length && !join_part(&joining, done, length, stage->invert)) return false;
    return !joining.has_held || hand_on(&joining, joining.held_begin, joining.held_end);
}

/* ---- rewriting ------------------------------------------------------------------------------ */

static void add_alphabet(const char *text, size_t length, struct buf *out) {
    for (size_t i = 0; i < length; i++) {
        char character[4];
        buf_add(out, character, utf8_write(byte_level_character((uint8_t)text[i]), character));
    }
}

static void add_marked(const struct stage *stage, const char *text, size_t length, bool is_first,
                       struct buf *out) {
    size_t n_mark = strlen(stage->mark);
    bool starts_so = length >= n_mark && memcmp(text, stage->mark, n_mark) == 0;
    bool has_none = !starts_so && (length == 0 || text[0] != ' ');
    bool takes_one =
        stage->prepend != PREPEND_NEVER && (is_first || stage->prepend != PREPEND_FIRST);
    if (takes_one && has_none) buf_puts(out, stage->mark);
    for (size_t at = 0; at < length;) {
        const char *space = memchr(text + at, ' ', length - at);
        size_t n = space ? (size_t)(space - text) - at : length - at;
        buf_add(out, text + at, n);
        if (space) buf_puts(out, stage->mark);
        at += n + (space != NULL);
    }
}

/* Passes the text to the stages from `stage` on. Recurses once per stage. */
static bool split_stage(struct split *split, int stage, const char *text, size_t length,
                        bool is_first) {
    if (length == 0) return true;
    if (stage == split->pretokenizer->n_stages) {
        return split->sink.take(split->sink.context, text, length);
    }
    const struct stage *rule = &split->pretokenizer->stage[stage];
    if (rule->kind == STAGE_SPLIT) return split_at_matches(split, stage, text, length, is_first);
    if (rule->kind == STAGE_PREFIX_SPACE && text[0] == ' ')
        return split_stage(split, stage + 1, text, length, is_first);
    struct buf *room = &split->room[stage];
    buf_clear(room);
    if (rule->kind == STAGE_ALPHABET) {
        add_alphabet(text, length, room);
    } else if (rule->kind == STAGE_PREFIX_SPACE) {
        buf_add(room, " ", 1);
        buf_add(room, text, length);
    } else {
        add_marked(rule, text, length, is_first, room);
    }
    return split_stage(split, stage + 1, room->data, room->length, is_first);
}

/* ---- entry point ---------------------------------------------------------------------------- */

/* Bytes that are not UTF-8 pass only the alphabet stage. */
static bool take_invalid(struct split *split, const char *text, size_t length) {
    const struct pretokenizer *pretokenizer = split->pretokenizer;
    for (int i = 0; i < pretokenizer->n_stages; i++) {
        if (pretokenizer->stage[i].kind != STAGE_ALPHABET) continue;
        buf_clear(&split->room[i]);
        add_alphabet(text, length, &split->room[i]);
        text = split->room[i].data;
        length = split->room[i].length;
    }
    return split->sink.take(split->sink.context, text, length);
}

/* Splits the runs of valid UTF-8. The bytes between them become pieces unchanged. */
static bool split_runs(struct split *split, const char *text, size_t length, bool is_first) {
    for (size_t at = 0, n; at < length; at += n) {
        n = utf8_valid_prefix(text + at, length - at);
        if (!split_stage(split, 0, text + at, n, is_first && at == 0)) return false;
        size_t invalid = at + n;
        while (invalid < length && utf8_character(text + invalid, length - invalid) == 0) invalid++;
        size_t n_invalid = invalid - at - n;
        if (n_invalid && !take_invalid(split, text + at + n, n_invalid)) return false;
        n += n_invalid;
        assert(n > 0);
    }
    return true;
}

bool pretokenizer_split(const struct pretokenizer *pretokenizer, const char *text, size_t length,
                        bool is_first, struct piece_sink sink) {
    struct split split = {.pretokenizer = pretokenizer, .sink = sink};
    regex_begin(&split.run, length);
    bool whole = split_runs(&split, text, length, is_first);
    regex_end(&split.run);
    for (int i = 0; i < pretokenizer->n_stages; i++) buf_free(&split.room[i]);
    return whole;
}
