/* Dicts: pairs in insertion order. A dict with more than SMALL pairs also has a hash table with
 * open addressing, whose slots index the pairs. It is at most a quarter full. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "config/name_index.h"
#include "engine/text/template/template.h"

#define SMALL 8 /* up to this number, pairs are searched linearly */

static uint64_t mix(uint64_t hash, uint64_t with) {
    hash = (hash ^ with) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

static uint64_t hash_number(struct value value) {
    double real = value_real(value);
    bool whole = isfinite(real) && real == floor(real) && fabs(real) < 9e15;
    uint64_t bits;
    if (whole) return mix(1, (uint64_t)(int64_t)real);
    if (value_is_integral(value)) real = (double)value_integer(value);
    memcpy(&bits, &real, sizeof bits);
    return mix(2, bits);
}

/* Returns equal hashes for equal values. Fails for lists and dicts, which cannot be keys in
 * Python. */
static uint64_t hash(struct render *r, struct value value) {
    render_charge(r, 2);
    if (value.kind == VALUE_STRING) {
        const struct string *string = value.string;
        render_charge(r, string->length / 16);
        return mix(name_hash(string->data, string->length), string->length);
    }
    if (value_is_number(value)) return hash_number(value);
    bool is_tuple = value.kind == VALUE_LIST && value.list->flavour == LIST_TUPLE;
    if (value.kind == VALUE_DICT || (value.kind == VALUE_LIST && !is_tuple)) {
        render_fail(r, "'%s' cannot be a key", value_type(value));
    }
    if (!is_tuple) return (uint64_t)value.kind;
    uint64_t sum = 7;
    guard_enter(&r->guard);
    for (size_t i = 0; i < value.list->n; i++) sum = mix(sum, hash(r, value.list->items[i]));
    guard_leave(&r->guard);
    return sum;
}

struct dict *dict_new(struct render *r) {
    struct dict *dict = render_alloc(r, sizeof *dict);
    *dict = (struct dict){0};
    return dict;
}

/* Returns the key's slot, or the free slot for it. The table always has free slots, so the search
 * ends. */
static uint32_t *slot_of(struct render *r, const struct dict *dict, struct value key) {
    assert(dict->n < dict->n_slots);
    for (size_t i = hash(r, key);; i++) {
        uint32_t *slot = &dict->slots[i & (dict->n_slots - 1)];
        if (!*slot || value_equal(r, dict->pairs[*slot - 1].key, key)) return slot;
    }
}

struct value *dict_get(struct render *r, const struct dict *dict, struct value key) {
    if (dict->slots) {
        uint32_t *slot = slot_of(r, dict, key);
        return *slot ? &dict->pairs[*slot - 1].value : NULL;
    }
    if (key.kind != VALUE_STRING) (void)hash(r, key); /* fails for values that cannot be keys */
    for (size_t i = 0; i < dict->n; i++) {
        if (value_equal(r, dict->pairs[i].key, key)) return &dict->pairs[i].value;
    }
    return NULL;
}

struct value *dict_find(struct render *r, const struct dict *dict, const char *key) {
    const struct string text = {.data = key, .length = strlen(key)};
    return dict_get(r, dict, VALUE_OF_STRING(&text));
}

/* Doubles the capacity for pairs, and rebuilds the hash table. */
static void grow(struct render *r, struct dict *dict) {
    size_t capacity = dict->capacity ? 2 * dict->capacity : SMALL;
    if (capacity > UINT32_MAX / 2) render_fail(r, "a dict has too many keys");
    struct pair *pairs = guard_array(&r->guard, capacity, sizeof *pairs);
    if (dict->n) memcpy(pairs, dict->pairs, dict->n * sizeof *pairs);
    dict->pairs = pairs;
    dict->capacity = capacity;
    if (capacity == SMALL) return;
    dict->n_slots = 4 * capacity;
    dict->slots = guard_array(&r->guard, dict->n_slots, sizeof *dict->slots);
    memset(dict->slots, 0, dict->n_slots * sizeof *dict->slots);
    for (size_t i = 0; i < dict->n; i++) *slot_of(r, dict, dict->pairs[i].key) = (uint32_t)(i + 1);
}

void dict_set(struct render *r, struct dict *dict, struct value key, struct value value) {
    struct value *old = dict_get(r, dict, key);
    render_charge(r, 1);
    if (old) {
        *old = value;
        return;
    }
    if (dict->n == dict->capacity) grow(r, dict);
    assert(dict->n < dict->capacity);
    dict->pairs[dict->n++] = (struct pair){key, value};
    if (!dict->slots) return;
    uint32_t *slot = slot_of(r, dict, key);
    assert(*slot == 0);
    *slot = (uint32_t)dict->n;
}

struct dict *dict_copy(struct render *r, const struct dict *dict) {
    struct dict *copy = dict_new(r);
    for (size_t i = 0; i < dict->n; i++)
        dict_set(r, copy, dict->pairs[i].key, dict->pairs[i].value);
    return copy;
}
