/* convert: a model's files become a GGUF file with smaller matrices (`penstock quantize`).
 *
 * A `struct conversion` is what the output will hold: its keys, and its tensors with where their
 * numbers come from. It is made of a GGUF file (file.c) or of a folder (folder.c), and written by
 * file.c. Folder-internal; on one thread, whose backend has more. */
#ifndef PENSTOCK_ENGINE_CONVERT_H
#define PENSTOCK_ENGINE_CONVERT_H

#include "engine/convert/gguf_write.h"
#include "engine/models/families/family.h"
#include "engine/models/model.h"

/* One tensor of the output: E times N rows of K, and where they come from. */
struct out_tensor {
    char name[WEIGHT_MAX_NAME + 1];
    enum dtype from, to;
    int n_dims; /* and dim: of the output, in GGUF's order */
    int64_t dim[WEIGHT_MAX_DIMS];
    int64_t E, N, K;
    const struct weight *weight;  /* the source; of experts that lie apart that of the first */
    const struct weight **expert; /* [E] owned; NULL: they lie together, or there are none */
    int part, n_parts;            /* of the source's rows; 0 of 1: all */
    int D, D_rope; /* rows of heads of D: their first D_rope are in halves, and become pairs; 0: not
                      so */
    float *made;   /* [N] owned: the numbers themselves; NULL: they have a source */
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

/* Fills in what a folder gives: tensors, then keys. Fails with STATUS_BAD_FILE or STATUS_USAGE
 * where the folder cannot be read, where its matrices are quantised already, and where a GGUF file
 * would say another thing than the folder does. */
enum status convert_folder(struct conversion *c, struct err *err);

/* Lists the tensors of a folder's model; `pairs`: rotary positions are of neighbours in GGUF files
 * of the family, and of halves in the folder. */
enum status folder_tensors(struct conversion *c, bool pairs, struct err *err);

/* Adds a tensor that stays as it is or becomes what the job says. */
struct out_tensor *conversion_add(struct conversion *c, const char *name);

/* The n rows from `first` on, in the type `from`: where they lie, or in `room`. */
const void *out_tensor_rows(const struct out_tensor *t, int64_t first, int64_t n, void *room);

/* Adds the keys of a model's shape. */
void folder_keys(struct conversion *c, const struct gguf_form *form);

/* Adds the keys of a folder's tokenizer, ends and templates. Fails with STATUS_BAD_FILE where no
 * tokenizer that a GGUF file can say gives the same ids. */
enum status folder_vocabulary(struct conversion *c, struct err *err);

/* Do both tokenizers give the same ids to many kinds of text, and the same text to each id but the
 * added ones? `of_a` is what a was made of. */
bool same_tokenizers(const struct tokenizer *a, const struct tokenizer *b,
                     const struct tokenizer_spec *of_a);

/* Reads the head of the output again and compares what it says with what the folder did. */
enum status check_again(const struct conversion *c, struct err *err);

/* The head of the output, without what follows it; returns the bytes that follow. */
int64_t conversion_head(const struct conversion *c, struct buf *out);

#endif
