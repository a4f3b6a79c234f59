/* convert: turns a model's files into a GGUF file with smaller matrices (`penstock quantize`).
 *
 * A `struct conversion` describes the output: its keys, and its tensors with the sources of their
 * numbers. It is made from a GGUF file (file.c) or from a folder (folder.c), and file.c writes it.
 * Folder-internal. All functions run on one thread, whose backend uses more threads. */
#ifndef PENSTOCK_ENGINE_CONVERT_H
#define PENSTOCK_ENGINE_CONVERT_H

#include "engine/convert/gguf_write.h"
#include "engine/engine.h"
#include "engine/models/families/family.h"
#include "engine/models/model.h"

/* One tensor of the output: E times N rows of K, and their source. */
struct out_tensor {
    char name[WEIGHT_MAX_NAME + 1];
    enum dtype from, to;
    int n_dims; /* n_dims and dim: of the output, in GGUF's order */
    int64_t dim[WEIGHT_MAX_DIMS];
    int64_t E, N, K;
    /* the source; for experts in separate tensors, the first of them */
    const struct weight *weight;
    /* [E] owned; NULL: there are no experts, or they share one tensor */
    const struct weight **expert;
    int part, n_parts; /* part of the source's rows; 0 of 1: all */
    /* for heads of D rows: the first D_rope rows are halves and become pairs; 0: the order stays */
    int D, D_rope;
    float *made; /* [N] owned: the numbers themselves; NULL: `weight` is the source */
};

struct conversion {
    struct quantise_job *job;
    struct model_file source;
    struct model_config config; /* of a folder */
    struct gguf_keys keys;
    uint32_t alignment; /* of the tensors' data */
    int n, capacity;
    struct out_tensor *tensor; /* [n] */
};

/* Describes a folder as a conversion: tensors, then keys. Fails with STATUS_BAD_FILE or
 * STATUS_USAGE if the folder cannot be read, if its matrices are quantised already, or if a GGUF
 * file cannot express the same model. */
enum status convert_folder(struct conversion *c, struct err *err);

/* Lists the tensors of a folder's model in the form of the family's GGUF files. */
enum status folder_tensors(struct conversion *c, const struct gguf_form *form, struct err *err);

/* Adds a tensor that is copied or quantised as the job requests. */
struct out_tensor *conversion_add(struct conversion *c, const char *name);

/* Returns the n rows from `first` on, in the type `from`: the source itself, or a copy in `room`.
 */
const void *out_tensor_rows(const struct out_tensor *t, int64_t first, int64_t n, void *room);

/* Adds the keys of a model's shape. */
void folder_keys(struct conversion *c, const struct gguf_form *form);

/* Adds the keys of a folder's tokenizer, ends and templates. Fails with STATUS_BAD_FILE if no
 * tokenizer that a GGUF file can describe gives the same ids. */
enum status folder_vocabulary(struct conversion *c, struct err *err);

/* Do both tokenizers give the same ids for many kinds of text, and the same text for each id except
 * the added ones? `of_a` is the spec of a. */
bool same_tokenizers(const struct tokenizer *a, const struct tokenizer *b,
                     const struct tokenizer_spec *of_a);

/* Reads the head of the output again and compares it with the folder. */
enum status check_again(const struct conversion *c, struct err *err);

/* Writes the head of the output. Returns the number of bytes that must follow it. */
int64_t conversion_head(const struct conversion *c, struct buf *out);

#endif
