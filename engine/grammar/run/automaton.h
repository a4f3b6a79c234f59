/* The automaton of a grammar: states of a network that are found during use, and their masks.
 * Private to engine/grammar/run.
 *
 * A state is one of Earley's item sets (Earley 1970, with Aycock and Horspool 2002 for empty
 * rules). An item is a node of the network and a frame; the frame lists the items that continue
 * after the item's rule ends. In a rule that counts (build/count.c) it also has a count. A state is
 * created when it is first reached and never changes. Equal
 * states are shared, and each state caches its successor per byte class. So a finite grammar
 * becomes a finite automaton during use, and removing bytes means returning to an older state. */
#ifndef PENSTOCK_GRAMMAR_AUTOMATON_H
#define PENSTOCK_GRAMMAR_AUTOMATON_H

#include <pthread.h>
#include <stdatomic.h>

#include "config/list.h"
#include "engine/grammar/build/network.h"
#include "engine/grammar/run/run.h"

/* ---- states --------------------------------------------------------------------------------- */

struct state;

struct item {
    uint32_t node;
    uint32_t count; /* of the node's rule; 0 if it does not count */
    struct frame *frame;
};

/* The items that continue after the end of a rule that began in an earlier state. The frame does
 * not say which state that was, so texts of any length can lead to the same state. */
struct frame {
    uint32_t rule;
    uint32_t serial;      /* orders items */
    struct state *origin; /* the state whose items wait for the rule; NULL: `callers` lists them */
    struct frame *same_hash;
    uint32_t hash;
    bool is_marked;
    bool has_counts;   /* a caller or a caller's frame has a count */
    uint32_t ahead;    /* for which `far` is known; 0: for none */
    struct frame *far; /* frame_far of this one */
    int n_callers;
    struct item *callers; /* [n_callers] the nodes after the calls, with their frames; sorted */
};

/* The cached frame of a rule that began in a state. */
struct known_frame {
    struct frame *frame;
    struct known_frame *next; /* of the same state */
};

/* Sets of characters that grammars seldom distinguish (slices.c). */
enum character_set {
    SET_SLICE, /* characters of JSON strings, except '"' and '\' */
    SET_SLICE_WITHOUT_TAGS,
    N_SLICES,
    SET_LOWER = N_SLICES, /* a to z */
    SET_UPPER,
    SET_DIGIT,
    SET_BEYOND, /* all characters outside ASCII */
    N_SETS,
};

/* The allowed tokens of a state. States with equal masks share one. */
struct mask {
    struct mask *same_hash;
    uint32_t hash, n_states; /* n_states: states that refer to it */
    uint64_t of;             /* id of the vocabulary */
    size_t words;
    uint32_t bits[]; /* [words] */
};

struct state {
    struct state *same_hash;
    /* the state after any one character of a set. dead: no character is allowed; NULL: the
     * characters lead to several states, or it is unknown */
    struct state *through[N_SETS];
    bool knows_through[N_SETS];
    struct known_frame *frames; /* of rules that began here */
    struct item *items;
    int n_items;
    uint32_t hash;
    bool may_end, is_marked;
    uint8_t n_wanted;     /* number of requests for a known mask since the last collection */
    struct mask *mask;    /* of the vocabulary last used; NULL: unknown */
    struct walk *walk;    /* the interrupted walk that computes the mask; NULL: no walk */
    struct state *next[]; /* by byte class; NULL: unknown */
};

struct automaton {
    const struct network *network;
    /* bytes of states, frames, masks and walks; above max_bytes unused ones are freed */
    size_t bytes, max_bytes;
    /* [n_rules + 1] frames of rules that began in the item's state; the last one is the root's */
    struct frame *here;
    struct frames {
        struct frame **buckets;
        uint32_t n, n_buckets, next_serial;
        struct item *callers; /* [max_callers] callers of the frames under construction */
        int n_callers, max_callers;
        bool *is_open; /* [n_rules] rules whose frames are under construction */
        int n_open;    /* number of such rules */
    } frames;
    struct masks {
        struct mask **buckets;
        uint32_t n, n_buckets;
        size_t bytes;
    } masks;
    struct state *dead; /* the state after bytes that are not allowed */
    struct state *start;
    struct state **buckets;
    uint32_t n_states, n_buckets;
    bool is_exhausted; /* a limit turned a state into the dead state */
    int64_t work;      /* work of walks and of new states, in trie nodes or steps of equal cost */
    /* the state under construction */
    struct making {
        struct item *items;
        uint32_t *same_node; /* [items] another item of the same node, index + 1; 0: last */
        uint32_t *last;      /* [nodes] newest item of the node, index + 1 */
        int n, max;
        bool may_end, is_too_ambiguous;
    } making;
};

void automaton_init(struct automaton *a, const struct network *network, size_t max_bytes);
void automaton_free(struct automaton *a);
void state_free(struct automaton *a, struct state *state);

/* Returns the frame that items of later states use for a rule that began in `origin`. Frames other
 * than "here" frames stay the same. (frames.c) */
struct frame *frame_in_later(struct automaton *a, struct frame *frame, struct state *origin);

/* Returns the frame with each count replaced by the one that no `ahead` counted repeats tell apart
 * from it; see state_far. */
struct frame *frame_far(struct automaton *a, struct frame *frame, uint32_t ahead);

/* Frees unmarked frames, unmarks the others and returns their bytes. */
size_t frames_sweep(struct automaton *a);
void frames_free(struct automaton *a);

/* Returns the mask with these bits[words] and adds a reference. mask_release removes one; NULL is
 * allowed. (masks.c) */
struct mask *mask_share(struct automaton *a, uint64_t of, const uint32_t *bits, size_t words);
void mask_release(struct automaton *a, struct mask *mask);

/* Returns a state with the same mask, in which counts far from their bounds are the same for all:
 * no token of fewer than `ahead` bytes tells them apart. Large counts so share masks. (states.c) */
struct state *state_far(struct automaton *a, struct state *state, uint32_t ahead);

/* The count that stands for all counts of a node that no `ahead` repeats tell apart. */
uint32_t count_far(const struct network *network, uint32_t node, uint32_t count, uint32_t ahead);

/* Order of items (states.c). */
int item_order(const struct item *x, const struct item *y);
void sort_items(struct item *items, int n);

/* Finds a successor that state->next does not know yet. */
struct state *automaton_find(struct automaton *a, struct state *state, int class);

/* Returns the state after a byte; a->dead if the byte is not allowed. */
static inline struct state *automaton_step(struct automaton *a, struct state *state, uint8_t byte) {
    int class = a->network->class_of[byte];
    struct state *next = state->next[class];
    return next ? next : automaton_find(a, state, class);
}

/* ---- grammars ------------------------------------------------------------------------------- */

struct grammar {
    atomic_int owners;
    pthread_mutex_t lock; /* guards the automaton and the list */
    struct list matchers;
    struct network *network;
    struct automaton automaton;
    atomic_bool is_broken; /* memory ran out during a change to the automaton */
    bool is_private;       /* belongs to one compilation, whose scope owns its blocks */
    struct mem_scope rest; /* blocks of an incomplete change, freed with the grammar */
    atomic_size_t bytes;   /* total, at the last release of the lock */
};

/* Releases the lock of a grammar and updates its memory count (grammar.c). */
void grammar_unlock(struct grammar *grammar);

/* Adds to the memory count of all grammars and searches; negative after a release (grammar.c). */
void live_bytes_add(ptrdiff_t bytes);

struct matcher {
    struct list_node in_grammar;
    struct grammar *grammar;
    const struct vocabulary *vocabulary;
    /* [n] before the first token and after each token. NULL: forgotten, and found again from the
     * tokens. The last ones, and some of the others, are known. */
    struct state **states;
    int32_t *tokens; /* [n] the token before each state; the first has none */
    size_t n, max;
};

/* Calls run(arg), which may create states and masks, under the lock. Returns false if memory runs
 * out in this call or ran out in an earlier one: the automaton is then incomplete, and later calls
 * return false without calling run. If memory runs out in a private grammar, the function does not
 * return: it ends the scope of the compilation. */
bool grammar_run(struct grammar *grammar, void (*run)(void *arg), void *arg);

/* If the automaton exceeds its limit: frees the masks, and the states that no matcher refers to.
 * Useful states stay if there is room. The caller holds the lock. (collect.c) */
void grammar_collect(struct grammar *grammar);

/* ---- vocabularies --------------------------------------------------------------------------- */

/* A node of the plain trie: one byte of tokens. Nodes are in depth-first order, so a subtree is
 * contiguous. Six tokens, 0 "a", 1 "ab", 2 "b", 3 "b1", 4 "7" and 5 "é" (C3 A9):
 *
 *   root +-- '7' token 4                node   0   1   2   3   4   5   6
 *        +-- 'a' token 0 -- 'b' 1       byte  '7' 'a' 'b' 'b' '1'  C3  A9
 *        +-- 'b' token 2 -- '1' 3       depth  0   0   1   0   1   0   1
 *        +-- C3 ----------- A9 5        skip   1   3   3   5   5   7   7
 *                                       token  4   0   1   2   3  -1   5
 *
 * `skip` is the index of the first node after the subtree. */
struct trie_node {
    uint32_t skip;
    int32_t token; /* the token that ends here; -1: none does */
    uint16_t depth;
    uint8_t byte;
};

/* A node of a shape trie. It replaces each letter, digit and character outside ASCII by its set;
 * other bytes stay. There are far fewer shapes than tokens, and in most states all characters of a
 * set lead to one state. The children of a node are adjacent. The same six tokens:
 *
 *   root +-- digit  {4}
 *        +-- lower  {0, 2} +-- lower  {1}
 *        |                 +-- digit  {3}
 *        +-- beyond {5} */
struct shape_node {
    uint32_t children; /* index of the first child */
    /* ranges of shape_trie.ids: tokens that end here are ids..own_end, those of the subtree
     * ids..all_end */
    uint32_t ids, own_end, all_end;
    uint16_t n_children;
    uint8_t byte; /* if `set` is N_SETS */
    uint8_t set;  /* character_set; N_SETS: only the byte */
};

struct shape_trie {
    struct shape_node *nodes; /* [n_nodes] the root first; parents before children */
    uint32_t n_nodes;
    int32_t *ids;
};

/* A level of a walk over shapes: a range of siblings, and the state after their parent. */
struct shape_level {
    uint32_t at, end;
    struct state *state;
    bool is_exact; /* no set on the path */
};

/* The tokens of at most MAX_CHARACTERS characters, all of one set. If every such character is
 * allowed in a state, these tokens are allowed without a walk; the walk visits only the rest. */
enum { MAX_CHARACTERS = 24 };
struct slice {
    /* masks of the tokens with at most this many characters */
    uint32_t *at_most[MAX_CHARACTERS + 1];
    struct shape_trie rest; /* all other tokens */
};

/* The use of a slice in a state. */
struct slice_use {
    /* the slice's tokens of at most this many characters are allowed, longer ones are not, ... */
    int characters;
    bool differs[256]; /* ... except those that begin with these bytes: they need a walk */
};

struct vocabulary {
    struct slice slices[N_SLICES]; /* characters of JSON strings; the same without '<' */
    uint64_t id;                   /* unique in the process */
    int V, max_depth;
    char *bytes;
    uint32_t *at;       /* [V + 1] token i is bytes[at[i]]..bytes[at[i + 1]] */
    int32_t *same_next; /* [V] another token with the same bytes; -1: none */
    struct trie_node *nodes;
    uint32_t n_nodes;
    uint32_t first[256];        /* the node of each first byte; n_nodes: no token begins with it */
    struct shape_trie shapes;   /* of all tokens */
    struct shape_trie by_first; /* of all tokens, with exact first bytes */
};

/* A token for sorting. The first eight bytes distinguish most tokens. */
struct sorted_token {
    uint64_t prefix; /* big-endian */
    const char *bytes;
    int32_t id;
    uint32_t length;
};

/* Builds the shape trie of sorted tokens (shapes.c). */
struct shape_trie shape_trie_new(const struct vocabulary *v, const struct sorted_token *tokens,
                                 int n, bool first_is_exact);
void shape_trie_free(struct shape_trie *trie);

/* Returns for each node the number of characters before it, or OUTSIDE_SLICE if one of them is not
 * in the slice or they are more than MAX_CHARACTERS. So the tokens of a node are either all in the
 * slice or all outside. The caller frees the array. */
enum { OUTSIDE_SLICE = 255 };
uint8_t *shape_trie_characters(const struct shape_trie *trie, enum character_set slice);

/* Builds the trie of the tokens outside a slice from the result of shape_trie_characters. */
struct shape_trie shape_trie_rest(const struct shape_trie *trie, const uint8_t *characters);

/* Finds the state after every character of a set. dead: no character is allowed; NULL: they lead to
 * several states. */
struct state *automaton_find_through(struct automaton *a, enum character_set set,
                                     struct state *state);

static inline struct state *automaton_through(struct automaton *a, enum character_set set,
                                              struct state *state) {
    if (state->knows_through[set]) return state->through[set];
    return automaton_find_through(a, set, state);
}

/* Is an ASCII character in a set? */
bool set_has(enum character_set set, int c);

/* Returns the state to which most first bytes of a set's characters lead, and sets `differs` for
 * the bytes that lead elsewhere or to several states. */
struct state *automaton_most_common(struct automaton *a, enum character_set set,
                                    struct state *state, bool differs[256]);

/* Computes the unknown mask of a state. False: this takes more than about max_work; the next call
 * continues, unless states were freed in between. (mask.c) */
bool mask_find(struct automaton *a, const struct vocabulary *v, struct state *state,
               int64_t max_work);
void walk_free(struct walk *walk);

/* Is any token allowed in a state? */
bool mask_has_any(struct automaton *a, const struct vocabulary *v, struct state *state);

/* Can the slice shorten the walk in this state? May return false although it can (slices.c). */
bool slice_use(struct automaton *a, enum character_set slice, struct state *state,
               struct slice_use *use);

#endif
