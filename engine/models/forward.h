/* forward: functions that write the rows of a model's program. Folder-internal; on the thread that
 * loads the model. */
#ifndef PENSTOCK_ENGINE_FORWARD_H
#define PENSTOCK_ENGINE_FORWARD_H

#include "engine/models/layers.h"
#include "engine/models/model.h"

/* The place for which rows are written: a layer or the ends, the rows of the step that it computes,
 * and their buffers. */
struct place {
    struct model *model;
    struct program *program;      /* to which rows are appended */
    const struct model_config *m; /* the model's part */
    struct model_activations *a;
    int layer; /* -1: outside of layers */
    const struct tensors *t;
    enum op_count count;
    float *x;         /* the stream */
    float *attn_out;  /* of attention or a recurrent layer */
    float *state_out; /* NULL: the layer does not have both */
    float *inputs;    /* the per-layer inputs; NULL: not used */
    /* of the layer that guesses ahead: its config, m unless it is a head beside the model */
    const struct model_config *ahead;
    float *attn_in; /* input of attention, [M][2K] of such a head; NULL: x */
};

/* Appends a row to the program, for the rows of `at` unless it has a count of its own.
 * ADD(at, OP_GATHER, .y = {y}, .x = {x}, .K = K) has the row's fields as arguments. */
void forward_add(const struct place *at, struct op_row row);
#define ADD(at, ...) forward_add(at, (struct op_row){__VA_ARGS__})

/* Returns the norm of a role; `bias` may be N_ROLES: no bias. Without a gain there is no norm. */
struct norm norm_of(const struct place *at, enum role gain, enum role bias);

/* Returns a layer's product with its bias (N_ROLES: none) and its adapters. */
struct linear linear_of(const struct tensors *t, enum role w, enum role bias);

/* The same for the last product of a branch: with the residual scale. */
struct linear ending_of(const struct place *at, enum role w, enum role bias);

/* The mixers of a layer. Each writes keys, values or states of all rows, and attn_out. Ops that
 * only the rows that are read need have the count `count`. A recurrent layer beside attention
 * writes state_out instead. */
void attention_mix(const struct place *at, enum op_count count);
void latent_mix(const struct place *at, enum op_count count);
void recurrent_layer(const struct place *at);

/* The first two without attention: they write keys and values of all rows. */
void attention_keys(const struct place *at);
void latent_keys(const struct place *at);

/* The parts of a layer (forward.c): attention or a recurrent layer of all rows, whose ops without
 * other effects have the count `count`; moving the rows that are read to their buffers; and the
 * rest of the layer. */
void layer_mix(const struct place *at, enum op_count count);
void layer_gather(const struct place *read, const struct place *all);
void layer_end(const struct place *at);

/* Layers that guess ahead (forward_ahead.c): the end of the model's own pass, after which x is the
 * stream of rows that are read, and the program of guesses. */
void ahead_end_pass(const struct place *all, const struct place *read);
void ahead_write_program(const struct place *pass);

/* Before layer at->layer: writes the products of the vectors of the stream that an EAGLE-3 head
 * reads there. Does nothing for other models. */
void ahead_tap(const struct place *at);

/* Returns the last product of a recurrent layer. */
struct linear recurrent_output(const struct place *at);

#endif
