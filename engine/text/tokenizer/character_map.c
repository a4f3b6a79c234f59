/* SentencePiece's map of characters (precompiled_charsmap).
 *
 * DESIGN
 *   The bytes are the size of a trie, the trie, and the texts to which its values point. The trie
 *   is Darts' double array of 32-bit units. Bits 0 to 7 are the label of the edge to the unit, bit
 *   8 says that a key ends here, bit 9 scales the offset by 256, bits 10 to 30 are the offset to
 *   the unit's children. In the unit of a value, bit 31 is set and the others are the value. A file
 *   is untrusted, so each index is checked before it is used.
 */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "engine/text/tokenizer/internal.h"

enum status character_map_init(struct character_map *map, struct span bytes, const char *key,
                               struct err *err) {
    uint32_t trie_bytes = 0;
    *map = (struct character_map){0};
    if (bytes.length == 0) return STATUS_OK;
    if (bytes.length >= 4) memcpy(&trie_bytes, bytes.data, 4);
    bool fits =
        bytes.length > 4 && trie_bytes >= 4 && trie_bytes % 4 == 0 && trie_bytes < bytes.length - 4;
    if (!fits || bytes.data[bytes.length - 1] != 0)
        return err_set(err, STATUS_BAD_FILE, key,
                       "key %s: expected a trie and texts that end in a NUL, found %zu bytes that "
                       "begin with a trie of %u",
                       key, bytes.length, (unsigned)trie_bytes);
    size_t text_length = bytes.length - 4 - trie_bytes;
    map->copy = mem_alloc(trie_bytes + text_length);
    memcpy(map->copy, bytes.data + 4, trie_bytes + text_length);
    map->unit = map->copy;
    map->n_units = trie_bytes / 4;
    map->text = (const char *)map->copy + trie_bytes;
    map->text_length = text_length;
    return STATUS_OK;
}

void character_map_free(struct character_map *map) {
    mem_free(map->copy);
    *map = (struct character_map){0};
}

/* Returns the base index of the children of the unit at `at`. */
static size_t children_of(size_t at, uint32_t unit) {
    return at ^ ((size_t)(unit >> 10) << ((unit & 0x200) >> 6));
}

const char *character_map_find(const struct character_map *map, const char *text, size_t length,
                               bool longest, size_t *n_matched) {
    const char *found = NULL;
    if (map->n_units == 0) return NULL;
    size_t at = children_of(0, map->unit[0] & 0x7FFFFFFF);
    for (size_t i = 0; i < length && text[i]; i++) {
        at ^= (uint8_t)text[i];
        if (at >= map->n_units || (map->unit[at] & 0x800000FF) != (uint8_t)text[i]) break;
        uint32_t unit = map->unit[at];
        at = children_of(at, unit);
        if (!(unit & 0x100)) continue;
        if (at >= map->n_units) break;
        size_t value = map->unit[at] & 0x7FFFFFFF;
        if (value >= map->text_length) break;
        found = map->text + value;
        *n_matched = i + 1;
        if (!longest) break;
    }
    return found;
}

/* Returns the bytes of the grapheme at the start of valid text. */
static size_t grapheme_length(const char *text, size_t length) {
    utf8proc_int32_t state = 0;
    size_t at = utf8_character(text, length);
    int32_t before = (int32_t)utf8_code_point(text, at);
    while (at < length) {
        size_t n = utf8_character(text + at, length - at);
        if (n == 0) break;
        int32_t c = (int32_t)utf8_code_point(text + at, n);
        if (utf8proc_grapheme_break_stateful(before, c, &state)) break;
        before = c;
        at += n;
    }
    return at;
}

/* spm_precompiled looks up only graphemes with fewer bytes than this. */
#define LOOKED_UP_BYTES 6

/* Appends the replacement of one grapheme, or of each of its characters. */
static void add_grapheme(const struct character_map *map, const char *text, size_t length,
                         struct buf *out) {
    size_t n_matched;
    const char *found = NULL;
    if (length < LOOKED_UP_BYTES) found = character_map_find(map, text, length, false, &n_matched);
    if (found) return buf_puts(out, found);
    for (size_t at = 0, n; at < length; at += n) {
        n = utf8_character(text + at, length - at);
        found = character_map_find(map, text + at, n, false, &n_matched);
        if (found) {
            buf_puts(out, found);
        } else {
            buf_add(out, text + at, n);
        }
    }
}

void character_map_by_graphemes(const struct character_map *map, const char *text, size_t length,
                                struct buf *out) {
    for (size_t at = 0, n; at < length; at += n) {
        if (utf8_character(text + at, length - at) == 0) {
            buf_add(out, text + at, n = 1);
            continue;
        }
        n = grapheme_length(text + at, length - at);
        add_grapheme(map, text + at, n, out);
    }
}

void character_map_by_prefix(const struct character_map *map, const char *text, size_t length,
                             struct buf *out) {
    for (size_t at = 0, n; at < length; at += n) {
        const char *found = character_map_find(map, text + at, length - at, true, &n);
        if (found) {
            buf_puts(out, found);
            continue;
        }
        n = utf8_character(text + at, length - at);
        if (n > 0) {
            buf_add(out, text + at, n);
        } else { /* like SentencePiece, bytes that are not UTF-8 become U+FFFD */
            buf_puts(out, "\xEF\xBF\xBD");
            n = 1;
        }
    }
}
