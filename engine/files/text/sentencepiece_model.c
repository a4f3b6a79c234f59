/* tokenizer.model: SentencePiece's file format, a message of protocol buffers
 * (sentencepiece_model.proto).
 *
 * The encoding: each field is a number, (field << 3 | wire type), and its value: a varint, 8 bytes,
 * 4 bytes, or a length and that number of bytes. This file reads only the fields that change the
 * result. It skips the others, but checks their lengths. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/text/internal.h"

static const struct tokenizer_keys keys = {
    .tokens = "pieces",
    .types = "pieces.type",
    .scores = "pieces.score",
    .merges = "pieces",
    .pre = "trainer_spec.model_type",
    .bos = "trainer_spec.bos_id",
    .eos = "trainer_spec.eos_id",
    .unknown = "trainer_spec.unk_id",
};

/* ---- protocol buffers ----------------------------------------------------------------------- */

enum wire { WIRE_VARINT = 0, WIRE_8_BYTES = 1, WIRE_BYTES = 2, WIRE_4_BYTES = 5 };

struct protobuf {
    const char *at, *end;
};

struct protobuf_field {
    int number;
    enum wire wire;
    uint64_t value;        /* of a varint or fixed bytes */
    struct protobuf bytes; /* of a text or message */
};

static bool next_varint(struct protobuf *message, uint64_t *out) {
    assert(message->at <= message->end);
    *out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (message->at == message->end) return false;
        uint8_t byte = (uint8_t)*message->at++;
        *out |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

static bool next_fixed(struct protobuf *message, size_t n, uint64_t *out) {
    *out = 0;
    if ((size_t)(message->end - message->at) < n) return false;
    memcpy(out, message->at, n); /* the file and the machine are little-endian */
    message->at += n;
    return true;
}

/* Reads the next field. Returns false at the end, and for a broken message, with *broken set. */
static bool next_field(struct protobuf *message, struct protobuf_field *field, bool *broken) {
    assert(message->at <= message->end);
    uint64_t head, length;
    if (message->at == message->end) return false;
    *broken = true;
    if (!next_varint(message, &head) || head >> 3 == 0 || head >> 3 > 1 << 29) return false;
    field->number = (int)(head >> 3);
    field->wire = (enum wire)(head & 7);
    bool is_whole = false;
    switch (field->wire) {
    case WIRE_VARINT:
        is_whole = next_varint(message, &field->value);
        break;
    case WIRE_8_BYTES:
        is_whole = next_fixed(message, 8, &field->value);
        break;
    case WIRE_4_BYTES:
        is_whole = next_fixed(message, 4, &field->value);
        break;
    case WIRE_BYTES:
        is_whole =
            next_varint(message, &length) && length <= (uint64_t)(message->end - message->at);
        if (!is_whole) break;
        field->bytes = (struct protobuf){message->at, message->at + length};
        message->at += length;
        break;
    }
    *broken = !is_whole;
    return is_whole;
}

/* ---- contents of the file ------------------------------------------------------------------- */

enum { MODEL_UNIGRAM = 1, MODEL_BPE = 2 };

struct sentencepiece {
    struct reading reading;
    double *scores;
    int n, capacity;
    uint64_t model_type;
    bool byte_fallback, suffix; /* suffix: a space belongs to the word before it */
    int64_t unknown, bos, eos;
    struct span map;
    bool add_prefix, squeeze, escapes_spaces;
};

static enum status broken(const struct sentencepiece *model, const char *what) {
    return bad_key(&model->reading, what, "a whole message of protocol buffers",
                   "a field that is broken or passes its end");
}

/* Reads a piece: 1 its text, 2 its score, 3 its type. */
static enum status read_piece(struct sentencepiece *model, struct protobuf message) {
    struct span text = {"", 0};
    float score = 0;
    uint64_t type = TOKEN_NORMAL;
    struct protobuf_field field = {0};
    bool is_broken = false;
    while (next_field(&message, &field, &is_broken)) {
        if (field.number == 1 && field.wire == WIRE_BYTES)
            text = (struct span){field.bytes.at, (size_t)(field.bytes.end - field.bytes.at)};
        if (field.number == 2 && field.wire == WIRE_4_BYTES)
            memcpy(&score, &(uint32_t){(uint32_t)field.value}, sizeof score);
        if (field.number == 3 && field.wire == WIRE_VARINT) type = field.value;
    }
    if (is_broken) return broken(model, "pieces");
    if (type < TOKEN_NORMAL || type > TOKEN_BYTE)
        return bad_key(&model->reading, keys.types, "a type from 1 to 6", "%llu of piece %d",
                       (unsigned long long)type, model->n);
    if (!isfinite(score))
        return bad_key(&model->reading, keys.scores, "a finite number", "%f of piece %d",
                       (double)score, model->n);
    if (text.length == 0)
        return bad_key(&model->reading, keys.tokens, "a text for each piece", "none of piece %d",
                       model->n);
    if (model->n == model->capacity) {
        model->capacity = model->capacity ? 2 * model->capacity : 1024;
        model->scores = mem_realloc(model->scores, (size_t)model->capacity * sizeof *model->scores);
        model->reading.spec->score = model->scores;
    }
    model->scores[model->n] = (double)score;
    return add_token(&model->reading, keys.tokens, model->n++, text, (int)type, 0);
}

/* Reads trainer_spec: 3 the model's type, 24 spaces as suffixes, 35 byte fallback, 40 to 42 ids. */
static enum status read_trainer(struct sentencepiece *model, struct protobuf message) {
    struct protobuf_field field = {0};
    bool is_broken = false;
    while (next_field(&message, &field, &is_broken)) {
        if (field.wire != WIRE_VARINT) continue;
        switch (field.number) {
        case 3:
            model->model_type = field.value;
            break;
        case 24:
            model->suffix = field.value != 0;
            break;
        case 35:
            model->byte_fallback = field.value != 0;
            break;
        case 40:
            model->unknown = (int32_t)field.value;
            break;
        case 41:
            model->bos = (int32_t)field.value;
            break;
        case 42:
            model->eos = (int32_t)field.value;
            break;
        default:
            break;
        }
    }
    return is_broken ? broken(model, "trainer_spec") : STATUS_OK;
}

/* Reads normalizer_spec: 2 the map of characters, 3 add a leading space, 4 remove extra spaces, 5
 * spaces become U+2581. */
static enum status read_normalizer(struct sentencepiece *model, struct protobuf message) {
    struct protobuf_field field = {0};
    bool is_broken = false;
    while (next_field(&message, &field, &is_broken)) {
        bool is_set = field.wire == WIRE_VARINT && field.value != 0;
        if (field.number == 2 && field.wire == WIRE_BYTES)
            model->map = (struct span){field.bytes.at, (size_t)(field.bytes.end - field.bytes.at)};
        if (field.number == 3) model->add_prefix = is_set;
        if (field.number == 4) model->squeeze = is_set;
        if (field.number == 5) model->escapes_spaces = is_set;
    }
    return is_broken ? broken(model, "normalizer_spec") : STATUS_OK;
}

static enum status read_model(struct sentencepiece *model, struct protobuf message) {
    struct protobuf_field field = {0};
    bool is_broken = false;
    enum status status = STATUS_OK;
    while (!status && next_field(&message, &field, &is_broken)) {
        if (field.wire != WIRE_BYTES) continue;
        if (field.number == 1) status = read_piece(model, field.bytes);
        if (field.number == 2) status = read_trainer(model, field.bytes);
        if (field.number == 3) status = read_normalizer(model, field.bytes);
    }
    return !status && is_broken ? broken(model, "pieces") : status;
}

/* ---- to a spec ------------------------------------------------------------------------------ */

static enum status check_id(const struct sentencepiece *model, const char *key, int64_t id,
                            int32_t *out) {
    *out = (int32_t)id;
    if (id >= -1 && id < model->n) return STATUS_OK;
    return bad_key(&model->reading, key, "-1 or the id of a piece", "%lld", (long long)id);
}

static enum status check_kind(struct sentencepiece *model) {
    struct tokenizer_spec *spec = model->reading.spec;
    spec->kind = model->model_type == MODEL_BPE ? TOKENIZER_SENTENCEPIECE : TOKENIZER_UNIGRAM;
    if (model->model_type != MODEL_BPE && model->model_type != MODEL_UNIGRAM)
        return bad_key(&model->reading, keys.pre, "1 (Unigram) or 2 (BPE)", "%llu",
                       (unsigned long long)model->model_type);
    if (model->suffix)
        return bad_key(&model->reading, "trainer_spec.treat_whitespace_as_suffix", "false", "true");
    if (!model->escapes_spaces)
        return bad_key(&model->reading, "normalizer_spec.escape_whitespaces", "true", "false");
    return STATUS_OK;
}

void sentencepiece_normalizers(struct tokenizer_spec *spec, struct span map, bool squeeze_spaces) {
    struct tokenizer_step *step = mem_calloc(2, sizeof *step);
    int n = 0;
    if (map.length > 0)
        step[n++] = (struct tokenizer_step){.kind = STEP_CHARACTER_MAP, .content = map};
    if (squeeze_spaces) step[n++] = (struct tokenizer_step){.kind = STEP_SQUEEZE_SPACES};
    spec->normalizers = step;
    spec->n_normalizers = n;
}

static enum status fill(struct sentencepiece *model) {
    struct tokenizer_spec *spec = model->reading.spec;
    model->reading.n_scores = model->n;
    spec->byte_fallback = model->byte_fallback;
    spec->fuse_unknown = true;
    spec->add_space_prefix = model->add_prefix;
    spec->in_floats = true;
    sentencepiece_normalizers(spec, model->map, model->squeeze);
    enum status status = check_kind(model);
    if (!status) status = check_id(model, keys.unknown, model->unknown, &spec->unknown);
    if (!status) status = check_id(model, keys.bos, model->bos, &spec->bos);
    if (!status) status = check_id(model, keys.eos, model->eos, &spec->eos);
    return status;
}

static enum status read_bytes(struct tokenizer_spec *spec, const char *path, const char *bytes,
                              size_t length, int V, struct err *err, struct sentencepiece *model) {
    *model = (struct sentencepiece){.model_type = MODEL_UNIGRAM,
                                    .unknown = 0,
                                    .bos = 1,
                                    .eos = 2,
                                    .add_prefix = true,
                                    .squeeze = true,
                                    .escapes_spaces = true};
    reading_begin(&model->reading, spec, path, V, &keys, err);
    char *copy = holder_alloc(model->reading.holder, length);
    memcpy(copy, bytes, length);
    enum status status = read_model(model, (struct protobuf){copy, copy + length});
    return status ? status : fill(model);
}

enum status sentencepiece_model_read(struct tokenizer_spec *spec, const char *path,
                                     const char *bytes, size_t length, int V, struct err *err) {
    struct sentencepiece model;
    enum status status = read_bytes(spec, path, bytes, length, V, err, &model);
    if (!status) status = finish_tokens(&model.reading);
    return reading_end(&model.reading, status);
}

enum status sentencepiece_folder_read(struct tokenizer_spec *spec, const char *folder, int V,
                                      struct err *err) {
    struct sentencepiece model;
    char *bytes;
    size_t length;
    enum status status =
        read_file(folder, "tokenizer.model", MAX_TOKENIZER_BYTES, &bytes, &length, err);
    if (status || !bytes) return status;
    char *path = path_in(folder, "tokenizer.model");
    status = read_bytes(spec, path, bytes, length, V, err, &model);
    if (!status) status = read_config(&model.reading, folder, false);
    if (!status) status = finish_tokens(&model.reading);
    status = reading_end(&model.reading, status);
    mem_free(path);
    mem_free(bytes);
    return status;
}
