/* Shared by the files of engine/ranks: rank.c does a rank's work; threads.c and processes.c start
 * it in this process and in others; message.c, adapter_message.c and hello.c make the messages of
 * processes. */
#ifndef PENSTOCK_ENGINE_RANKS_INTERNAL_H
#define PENSTOCK_ENGINE_RANKS_INTERNAL_H

#include "engine/ranks/ranks.h"
#include "kernels/gpu_group.h"

/* ---- rank.c: a rank above 0 ----------------------------------------------------------------- */

/* The thread that calls rank_load calls all functions. */
struct rank {
    struct model model; /* its shard is set by the owner; model.backend is NULL until rank_load */
    struct kv_cache *cache;
};

enum { NO_GPU = -1 };

/* Opens the backend with `threads` threads and loads the shard. The caller closes the rank even
 * after a failure. */
enum status rank_load(struct rank *rank, const struct ranks_plan *plan, struct rank_group *group,
                      int threads, bool on_cuda, struct err *err);
enum status rank_make_cache(struct rank *rank, const struct kv_config *config, struct err *err);
void rank_touch_cache(struct rank *rank);
void rank_run(struct rank *rank, const struct step *step);
/* Has its device done all passes? Without waiting. */
bool rank_is_idle(const struct rank *rank);
/* Has its device failed? If so, `err` says how. */
bool rank_failed(const struct rank *rank, struct err *err);
void rank_close(struct rank *rank);
/* Bytes of its activations. */
int64_t rank_scratch(const struct rank *rank);

/* ---- ranks.c: the kinds of ranks ------------------------------------------------------------ */

/* The functions of ranks.h for one kind of ranks. */
struct ranks_ops {
    void (*close)(struct ranks *ranks);
    void (*load)(struct ranks *ranks, const struct ranks_plan *plan);
    void (*cache)(struct ranks *ranks, const struct kv_config *config, size_t step_bytes);
    void (*touch)(struct ranks *ranks);
    void (*pass)(struct ranks *ranks, const struct step *step);
    enum status (*give)(struct ranks *ranks, int number, struct adapter *const *of_rank,
                        struct err *err);
    void (*drop)(struct ranks *ranks, int number);
    bool copies; /* the ranks have copies of adapters */
    enum status (*end)(struct ranks *ranks, struct err *err);
    bool (*failed)(const struct ranks *ranks, struct err *err);     /* NULL: none can be lost */
    void (*fail)(const struct ranks *ranks, const struct err *why); /* NULL: nothing waits */
    void (*memory)(const struct ranks *ranks, int64_t *weights, int64_t *scratch);
};

/* The first member of each kind's own struct. */
struct ranks {
    const struct ranks_ops *ops;
    int n; /* including rank 0 */
    struct rank_group *group;
};

enum status thread_ranks_open(struct ranks **out, int ranks, bool on_cuda, struct err *err);
enum status process_ranks_open(struct ranks **out, struct peers *peers, int gpu, struct err *err);

/* ---- groups.c: the groups of ranks that are processes. The peers outlive them ---------------- */

/* A group of CPUs, which gather rows by messages. */
struct rank_group *process_group_cpu(struct peers *peers);

/* A group of GPUs, which NCCL joins; `gpu` is this process's own. Waits for the other processes. If
 * a peer is lost, the group's work ends; if this process cannot meet the others, it is lost. */
enum status process_group_cuda(struct rank_group **out, struct peers *peers,
                               const struct gpu_group_id *id, int gpu, struct err *err);

/* Closes a group of processes. NULL does nothing. */
void process_group_close(struct rank_group *group, struct peers *peers);

/* ---- message.c: actions as bytes ------------------------------------------------------------ */

/* The actions of rank 0, and the first word of their messages. */
enum message_kind {
    MESSAGE_LOAD = 1,
    MESSAGE_CACHE,
    MESSAGE_TOUCH,
    MESSAGE_PASS,
    MESSAGE_ADAPTER,
    MESSAGE_NUMBERS,
    MESSAGE_DROP,
    MESSAGE_JOIN, /* of GPUs, before MESSAGE_LOAD */
    MESSAGE_CLOSE,
    N_MESSAGE_KINDS
};

/* Rank 0 plans the memory, and so the length of sequences. */
struct message_load {
    int32_t kind;
    int32_t max_context; /* of the backend's settings */
};

/* The name of the group of GPUs. */
struct message_join {
    int32_t kind;
    struct gpu_group_id id;
};

/* The answer to MESSAGE_LOAD, MESSAGE_CACHE, MESSAGE_TOUCH and MESSAGE_ADAPTER. */
struct message_answer {
    int64_t weight_bytes, scratch_bytes;
    struct err err; /* its status is STATUS_OK, or the action has failed */
};

/* A cache, with its arrays. Both sides have the same build, so a struct's bytes mean the same. */
struct message_cache {
    int32_t kind;
    struct kv_config config; /* its pointers mean nothing in another process */
    uint64_t step_bytes;     /* the largest message of a pass */
    struct kv_heads heads[MAX_LAYERS];
    bool has_window[MAX_LAYERS];
};

void message_cache_pack(struct message_cache *out, const struct kv_config *config,
                        size_t step_bytes);
/* Sets the pointers of message->config. Returns false if the message is not one. */
bool message_cache_unpack(struct message_cache *message, size_t bytes);

/* Returns the bytes of the largest message for steps of at most these rows, sequences and blocks of
 * a sequence; 0 if it is too large to send. */
size_t message_step_most(int rows, int seqs, int blocks);

/* Writes a step to out[capacity], with the blocks that its rows see. Returns the bytes. The step
 * fits: capacity is message_step_most of its limits. */
size_t message_step_pack(int32_t *out, size_t capacity, const struct step *step, int block_size);

/* Makes a step whose arrays are in the message, which must outlive it. Returns false if the bytes
 * are not a message of message_step_pack. */
bool message_step_unpack(struct step *out, const int32_t *message, size_t bytes);

/* ---- adapter_message.c: adapters as bytes ---------------------------------------------------- */

/* The most bytes of a message of an adapter: a pass waits for at most one to each rank. */
enum { ADAPTER_MESSAGE_BYTES = 1 << 20 };

/* Part of an adapter; a and b are bytes from the first of its numbers. */
struct message_part {
    int32_t layer;
    int16_t role, type;
    int32_t rank;
    float scale;
    int64_t a, b;
};

/* MESSAGE_ADAPTER: a rank's part of an adapter, whose numbers follow in other messages. */
struct message_adapter {
    int32_t kind, number, rank, n;
    int64_t bytes;              /* of its numbers */
    struct message_part part[]; /* [n] */
};

/* MESSAGE_NUMBERS: bytes of the adapter's numbers, from `first` on. The message's size gives their
 * count. */
struct message_numbers {
    int32_t kind, number;
    int64_t first;
    uint8_t numbers[];
};
enum { MOST_NUMBERS = ADAPTER_MESSAGE_BYTES - sizeof(struct message_numbers) };

/* MESSAGE_DROP: no pass uses that adapter any more. */
struct message_drop {
    int32_t kind, number;
};

/* Writes an adapter to out[ADAPTER_MESSAGE_BYTES], without its numbers. Returns the bytes. */
size_t message_adapter_pack(struct message_adapter *out, int number, const struct adapter *adapter);

/* Makes an adapter for the model, whose numbers are 0. Returns false if the bytes are not such a
 * message for this model. Sets *out to NULL if memory is short. */
bool message_adapter_unpack(struct adapter **out, const struct model *model,
                            const struct message_adapter *message, size_t bytes);

/* Writes the numbers from `first` on. Returns the bytes; *n is the count of numbers. */
size_t message_numbers_pack(struct message_numbers *out, int number, const struct adapter *adapter,
                            int64_t first, int64_t *n);

/* Copies numbers to their place. Returns false if that is outside of the adapter. */
bool message_numbers_unpack(struct adapter *adapter, const struct message_numbers *message,
                            size_t bytes);

/* ---- hello.c: comparing processes ----------------------------------------------------------- */

enum { FACT_NAME_BYTES = 40, FACT_BYTES = 160, MAX_FACTS = 32 };

/* One thing that must be equal in all processes. */
struct fact {
    char name[FACT_NAME_BYTES]; /* an option's name, or "model" for its files */
    char value[FACT_BYTES];
};

/* The description of a process, for rank 0. */
struct hello {
    char build[FACT_BYTES];      /* the first member, so that other builds can be told */
    char host[64];               /* its machine */
    struct err err;              /* why it cannot take part; STATUS_OK: it can */
    int64_t available;           /* free bytes of its machine for each of the machine's ranks */
    struct device_memory device; /* of its GPU; 0 on the CPU */
    int n;
    struct fact fact[MAX_FACTS];
};

void hello_make(struct hello *out, const struct ranks_self *self, int ranks_of_machine,
                const struct err *why);

/* Fails with STATUS_USAGE and the first difference of rank r from rank 0, or with its own
 * failure. */
enum status hello_check(const struct hello *first, const struct hello *other, int rank,
                        struct err *err);

/* Returns a number that other weights do not have: of all tensors' names, types and shapes, and of
 * bytes at some places of each. Any thread. */
uint64_t weights_digest(const struct weights *weights);

#endif
