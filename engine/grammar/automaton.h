/* What a compiled grammar is: a network, and the states that are found in it while it is used. For
 * engine/grammar only.
 *
 * The network has nodes for each rule, and edges of three kinds: a byte, nothing, or another rule.
 * A state is one of Earley's sets (Earley 1970, with Aycock and Horspool 2002 for empty rules):
 * items, each a node and a frame, which says who goes on where the item's rule ends. States are
 * made when they are first reached and never change, equal ones are one, and each keeps the states
 * behind its bytes: a finite grammar becomes a finite automaton as it is used, and taking back
 * bytes is nothing but going on from an older state.
 */
#ifndef PENSTOCK_GRAMMAR_AUTOMATON_H
#define PENSTOCK_GRAMMAR_AUTOMATON_H

#include <pthread.h>
#include <stdatomic.h>

#include "config/list.h"
#include "engine/grammar/build.h"

/* ---- the network ---------------------------------------------------------------------------- */

enum edge_kind {
    EDGE_BYTES,
    EDGE_EMPTY,
    EDGE_CALL,
    EDGE_BEGIN, /* empty, at the beginning of the text only: in drafts of searches */
};

struct edge {
    uint8_t kind, low, high; /* bytes of an EDGE_BYTES */
    bool is_tail;            /* a call after which its rule does nothing more */
    uint32_t rule;           /* of an EDGE_CALL */
    uint32_t to;
};

struct node {
    uint32_t edges, n_edges; /* the first one's index; how many */
    bool is_end;             /* of its rule */
    bool is_kept;            /* it waits for a byte, or for the end of a call */
};

struct network {
    struct node *nodes;
    struct edge *edges;
    uint32_t n_nodes, n_edges;
    struct network_rule {
        uint32_t start, end;
        bool is_nullable, is_productive;
    } * rules;
    int n_rules, root;
    int n_classes;         /* of bytes that no edge tells apart */
    uint8_t class_of[256]; /* of a byte */
    uint8_t first_of[256]; /* byte of a class */
    uint8_t size_of[256];  /* of a class, 0 is 256 */
    size_t bytes;
};

/* Edges as they are drawn. */
struct draft {
    struct builder *b;
    struct draft_edge {
        struct edge edge;
        uint32_t next; /* of the same node, index + 1; 0: none */
    } * edges;
    uint32_t n_edges, max_edges;
    uint32_t *first; /* edge of a node, index + 1 */
    uint32_t n_nodes, max_nodes;
};

/* A new node; beyond the limit it fails and returns 0. */
uint32_t draft_node(struct draft *draft);
void draft_edge(struct draft *draft, uint32_t from, struct edge edge);
void draft_bytes(struct draft *draft, uint32_t from, int low, int high, uint32_t to);
void draft_empty(struct draft *draft, uint32_t from, uint32_t to);
void draft_free(struct draft *draft);

/* Draws an expression between two nodes. It adds no edge into `from` and none out of `to`. */
void draft_expr(struct draft *draft, const struct expr *expr, uint32_t from, uint32_t to);

/* Draws one of the characters of a class as UTF-8. */
void draft_class(struct draft *draft, const struct expr *expr, uint32_t from, uint32_t to);

/* Draws an EXPR_AND or EXPR_NOT as a deterministic automaton (dfa.c). */
void draft_regular(struct draft *draft, const struct expr *expr, uint32_t from, uint32_t to);

/* A deterministic automaton over classes of bytes that no state tells apart. State 0 is where no
 * text goes on any more: all its bytes lead back to it. */
struct dfa {
    uint32_t n, max, n_classes;
    uint8_t class_of[256]; /* of a byte */
    uint8_t first_of[256]; /* a byte of a class */
    uint32_t *next;        /* [n][n_classes] */
    bool *accepts;         /* [n] */
    uint32_t start;
    uint32_t first; /* where a text begins that nothing precedes; unlike start with an EDGE_BEGIN */
};

static inline uint32_t dfa_next(const struct dfa *dfa, uint32_t state, uint8_t byte) {
    return dfa->next[(size_t)state * dfa->n_classes + dfa->class_of[byte]];
}

/* Makes it of a draft without calls; after a failure it is still to be freed. */
void dfa_of_draft(struct builder *b, const struct draft *draft, uint32_t start, uint32_t end,
                  struct dfa *dfa);
void dfa_free(struct dfa *dfa);

/* Which states reach one that accepts. The caller frees it. (dfa_draw.c) */
bool *dfa_find_live(const struct dfa *dfa);

/* Draws it between two nodes. */
void dfa_draw(struct draft *draft, const struct dfa *dfa, uint32_t from, uint32_t to);

/* Makes the network of the builder's rules. NULL: the builder failed; that no text at all keeps to
 * the grammar is a failure too. */
struct network *network_new(struct builder *b, int root);
void network_free(struct network *network);

/* ---- states --------------------------------------------------------------------------------- */

struct state;

struct item {
    uint32_t node;
    struct frame *frame;
};

/* Who goes on where a rule ends that began in an earlier state. It does not matter in which one, so
 * that what comes behind a text of any length is one state. */
struct frame {
    uint32_t rule;
    uint32_t serial;      /* orders items */
    struct state *origin; /* where to look who waits for the rule; NULL: they are listed */
    struct frame *same_hash;
    uint32_t hash;
    bool is_marked;
    int n_callers;
    struct item *callers; /* [n_callers] behind their calls, in order */
};

/* The frame of a rule that began in a state. */
struct known_frame {
    struct frame *frame;
    struct known_frame *next; /* of the same state */
};

/* Characters that grammars seldom tell apart (slices.c). */
enum character_set {
    SET_SLICE, /* the text of JSON's strings */
    SET_SLICE_WITHOUT_TAGS,
    N_SLICES,
    SET_LOWER = N_SLICES, /* a to z */
    SET_UPPER,
    SET_DIGIT,
    SET_BEYOND, /* all characters beyond ASCII */
    N_SETS,
};

/* Tokens that may come. Most states have one that others have too: equal ones are one. */
struct mask {
    struct mask *same_hash;
    uint32_t hash, n_states; /* that have it */
    uint64_t of;             /* the vocabulary */
    size_t words;
    uint32_t bits[]; /* [words] */
};

struct state {
    struct state *same_hash;
    struct state *through[N_SETS]; /* behind any one character of a set; dead: none comes; NULL:
                                      several, or not looked for yet */
    bool knows_through[N_SETS];
    struct known_frame *frames; /* of rules that began here */
    struct item *items;
    int n_items;
    uint32_t hash;
    bool may_end, is_marked;
    uint8_t n_wanted;     /* how often its mask was at hand since states were last freed */
    struct mask *mask;    /* of the vocabulary that was last asked for; NULL: not found yet */
    struct walk *walk;    /* that is to find it and was interrupted; NULL: none */
    struct state *next[]; /* by class of bytes; NULL: not found yet */
};

struct automaton {
    const struct network *network;
    size_t bytes, max_bytes; /* of states and masks; when unused ones are freed */
    struct frame *here;      /* [n_rules + 1]: rules that begin in the item's own state; the root */
    struct frames {
        struct frame **buckets;
        uint32_t n, n_buckets, next_serial;
        struct item *callers; /* [max_callers] of the frames that are being made */
        int n_callers, max_callers;
        bool *is_open; /* [n_rules] rules whose frames are being made, */
        int n_open;    /* of which there are so many */
    } frames;
    struct masks {
        struct mask **buckets;
        uint32_t n, n_buckets;
        size_t bytes;
    } masks;
    struct state *dead; /* nothing comes back from it */
    struct state *start;
    struct state **buckets;
    uint32_t n_states, n_buckets;
    bool is_exhausted; /* a limit made a state dead */
    int64_t work;      /* of walks and of making states: nodes of tries, or what takes as long */
    /* the state that is being made */
    struct making {
        struct item *items;
        uint32_t *same_node; /* [items]: index + 1 of an item of the same node, 0: none */
        uint32_t *last;      /* [nodes]: index + 1 of its last item */
        int n, max;
        bool may_end, is_too_ambiguous;
    } making;
};

void automaton_init(struct automaton *a, const struct network *network, size_t max_bytes);
void automaton_free(struct automaton *a);
void state_free(struct automaton *a, struct state *state);

/* The frame of a rule that began in `origin`, as items of later states hold it; other frames stay
 * as they are (frames.c). */
struct frame *frame_in_later(struct automaton *a, struct frame *frame, struct state *origin);

/* The bytes of all frames that are left after those are freed that are not marked; unmarks them. */
size_t frames_sweep(struct automaton *a);
void frames_free(struct automaton *a);

/* The mask with these bits[words], for one state more; and for one less. NULL: none (masks.c). */
struct mask *mask_share(struct automaton *a, uint64_t of, const uint32_t *bits, size_t words);
void mask_release(struct automaton *a, struct mask *mask);

/* Puts items in order (states.c). */
int item_order(const struct item *x, const struct item *y);
void sort_items(struct item *items, int n);

/* Finds the state behind a byte class that state->next does not know yet. */
struct state *automaton_find(struct automaton *a, struct state *state, int class);

/* The state behind a byte; a->dead: there is none. */
static inline struct state *automaton_step(struct automaton *a, struct state *state, uint8_t byte) {
    int class = a->network->class_of[byte];
    struct state *next = state->next[class];
    return next ? next : automaton_find(a, state, class);
}

/* ---- grammars ------------------------------------------------------------------------------- */

struct grammar {
    atomic_int owners;
    pthread_mutex_t lock; /* of the automaton and of the list */
    struct list matchers;
    struct network *network;
    struct automaton automaton;
    atomic_bool is_broken; /* memory was short in the midst of a change to the automaton */
    bool is_private;       /* of one compilation, which it ends with: the blocks are its own */
    struct mem_scope rest; /* blocks of that change, freed with the grammar */
    atomic_size_t bytes;   /* of all, when the lock was last released */
};

/* Releases the lock of a grammar, and counts how much the grammar has grown (compile.c). */
void grammar_unlock(struct grammar *grammar);

/* Counts memory that a grammar or a search has taken or, below 0, freed (compile.c). */
void live_bytes_add(ptrdiff_t bytes);

struct matcher {
    struct list_node in_grammar;
    struct grammar *grammar;
    const struct vocabulary *vocabulary;
    struct state **states; /* [n]: before the first token, and behind each */
    size_t n, max;
};

/* Calls run(arg), which may make states and masks, under the lock. False: memory is short, or was
 * short before. Then the automaton is half made: nothing reads it any more until it is freed. If
 * the grammar is private, lack of memory ends the caller's scope instead. */
bool grammar_run(struct grammar *grammar, void (*run)(void *arg), void *arg);

/* Frees the states that no matcher stands at or can go back to, and all masks, once they take more
 * than the limit. The caller holds the lock (collect.c). */
void grammar_collect(struct grammar *grammar);

/* ---- vocabularies --------------------------------------------------------------------------- */

/* Depth-first: a node's subtree lies behind it, up to `skip`. */
struct trie_node {
    uint32_t skip;
    int32_t token; /* that ends here, -1: none */
    uint16_t depth;
    uint8_t byte;
};

/* Tokens by their shapes: a letter, a digit and a character beyond ASCII stand for every one of
 * their set, all other bytes for themselves. There are far fewer shapes than tokens, and most
 * states lead to one place behind all of a set. A node's children lie side by side. */
struct shape_node {
    uint32_t children;              /* the first one's index */
    uint32_t ids, own_end, all_end; /* the tokens that end here, then those of its subtree */
    uint16_t n_children;
    uint8_t byte; /* or one of the set */
    uint8_t set;  /* N_SETS: only the byte */
};

struct shape_trie {
    struct shape_node *nodes; /* [n_nodes]: the root, each node before its children */
    uint32_t n_nodes;
    int32_t *ids;
};

/* Where a walk over shapes is: among siblings, whose parent led to the state. */
struct shape_level {
    uint32_t at, end;
    struct state *state;
    bool is_exact; /* the path has no set */
};

/* Tokens of at most MAX_CHARACTERS whole characters that are all in one set: where a state takes
 * every such character, it takes these tokens without a walk, which goes over the rest only. */
enum { MAX_CHARACTERS = 24 };
struct slice {
    uint32_t *at_most[MAX_CHARACTERS + 1]; /* masks: its tokens of so many characters or fewer */
    struct shape_trie rest;                /* the other tokens */
};

/* How a slice is taken in a state. */
struct slice_use {
    int characters;    /* its tokens of at most so many are allowed, longer ones are not; */
    bool differs[256]; /* but of those that begin with these bytes nothing is known */
};

struct vocabulary {
    struct slice slices[N_SLICES]; /* the text of JSON's strings; that without '<' */
    uint64_t id;                   /* unlike that of every other */
    int V, max_depth;
    char *bytes;
    uint32_t *at;       /* [V + 1]: token i is bytes[at[i]] to bytes[at[i + 1]] */
    int32_t *same_next; /* [V]: another token of the same bytes, -1: none */
    struct trie_node *nodes;
    uint32_t n_nodes;
    uint32_t first[256];        /* the node of a first byte, n_nodes: no token begins with it */
    struct shape_trie shapes;   /* of all tokens */
    struct shape_trie by_first; /* the same, but the first bytes stand for themselves */
};

/* A token as it is sorted: most are told apart by their first eight bytes. */
struct sorted_token {
    uint64_t prefix; /* big-endian */
    const char *bytes;
    int32_t id;
    uint32_t length;
};

/* Makes a trie of the shapes of sorted tokens (shapes.c). */
struct shape_trie shape_trie_new(const struct vocabulary *v, const struct sorted_token *tokens,
                                 int n, bool first_is_exact);
void shape_trie_free(struct shape_trie *trie);

/* How many characters lead to each node, OUTSIDE_SLICE where not all of them are in the slice or
 * they are more than MAX_CHARACTERS: all tokens of a node are in a slice, or none. The caller frees
 * it. */
enum { OUTSIDE_SLICE = 255 };
uint8_t *shape_trie_characters(const struct shape_trie *trie, enum character_set slice);

/* Makes the trie of the tokens that are in no slice, by what shape_trie_characters has found. */
struct shape_trie shape_trie_rest(const struct shape_trie *trie, const uint8_t *characters);

/* Finds the state behind every character of a set; dead: none comes; NULL: it depends. */
struct state *automaton_find_through(struct automaton *a, enum character_set set,
                                     struct state *state);

static inline struct state *automaton_through(struct automaton *a, enum character_set set,
                                              struct state *state) {
    if (state->knows_through[set]) return state->through[set];
    return automaton_find_through(a, set, state);
}

/* Is a character of ASCII in a set? */
bool set_has(enum character_set set, int c);

/* The bytes that characters of a set begin with, by what is behind them: most lead to one state,
 * which it returns, and those of `differs` elsewhere, or nobody knows. */
struct state *automaton_most_common(struct automaton *a, enum character_set set,
                                    struct state *state, bool differs[256]);

/* Finds which tokens may come in a state whose mask is not known. False: that takes more than about
 * max_work; the next call goes on, unless states were freed in between. (mask.c) */
bool mask_find(struct automaton *a, const struct vocabulary *v, struct state *state,
               int64_t max_work);
void walk_free(struct walk *walk);

/* May any token come in a state? */
bool mask_has_any(struct automaton *a, const struct vocabulary *v, struct state *state);

/* Is a slice of use in the state? It may say no where it is (slices.c). */
bool slice_use(struct automaton *a, enum character_set slice, struct state *state,
               struct slice_use *use);

#endif
