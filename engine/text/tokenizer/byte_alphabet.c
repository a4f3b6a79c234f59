/* Converts a token's spelling in the file to its bytes. */
#include <assert.h>
#include <string.h>

#include "engine/text/tokenizer/internal.h"

/* Returns the byte for a character of GPT-2's alphabet, or -1. GPT-2 writes each byte as one
 * visible character: printable Latin-1 represents itself, the other 68 bytes are U+0100 to U+0143
 * in order. */
static int byte_of_character(uint32_t c) {
    bool is_itself =
        (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
    if (c < 0x100) return is_itself ? (int)c : -1;
    if (c < 0x121) return (int)(c - 0x100);        /* 00..20 */
    if (c < 0x143) return (int)(c - 0x121) + 0x7F; /* 7F..A0 */
    return c == 0x143 ? 0xAD : -1;
}

uint32_t byte_level_character(uint8_t byte) {
    if (byte_of_character(byte) >= 0) return byte;
    return byte < 0x21 ? 0x100u + byte : byte == 0xAD ? 0x143 : 0x121u + byte - 0x7F;
}

/* A token with a character outside the alphabet was not made from bytes: its bytes are its
 * spelling. */
size_t alphabet_bytes(const char *name, size_t length, char *out) {
    size_t n = 0;
    for (size_t at = 0, size; at < length; at += size) {
        size = 1;
        int byte = (uint8_t)name[at];
        if (byte < 0x21 || byte > 0x7E) {
            size = utf8_character(name + at, length - at);
            byte = size ? byte_of_character(utf8_code_point(name + at, size)) : -1;
        }
        if (byte < 0) {
            memcpy(out, name, length);
            return length;
        }
        assert(byte < 256);
        out[n++] = (char)byte;
    }
    assert(n <= length);
    return n;
}

/* SentencePiece writes a space as U+2581. */
static size_t decode_spaces(const char *name, size_t length, char *out) {
    size_t n = 0;
    for (size_t at = 0; at < length;) {
        bool space = length - at >= 3 && memcmp(name + at, "\xE2\x96\x81", 3) == 0;
        out[n++] = space ? ' ' : name[at];
        at += space ? 3 : 1;
    }
    return n;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

int alphabet_byte_token(const char *name, size_t length) {
    if (length != 6 || memcmp(name, "<0x", 3) != 0 || name[5] != '>') return -1;
    int high = hex_digit(name[3]), low = hex_digit(name[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

size_t alphabet_decode(enum tokenizer_kind kind, int type, const char *name, size_t length,
                       char *out) {
    int byte = type == TOKEN_BYTE ? alphabet_byte_token(name, length) : -1;
    if (byte >= 0) {
        *out = (char)byte;
        return 1;
    }
    bool plain = !type_is_special(type);
    bool has_marks = kind == TOKENIZER_SENTENCEPIECE || kind == TOKENIZER_UNIGRAM;
    if (plain && has_marks) return decode_spaces(name, length, out);
    if (plain && type != TOKEN_USER_DEFINED) return alphabet_bytes(name, length, out);
    memcpy(out, name, length);
    return length;
}
