/* Sequences with keys and values in a paged cache, for the tests of attention. All memory that no
 * row may read is poison: unused blocks, positions after a sequence's end, entries of the block
 * table after the last one that the step's rows see. */
#ifndef PENSTOCK_TESTS_CUDA_ATTENTION_WORLD_H
#define PENSTOCK_TESTS_CUDA_ATTENTION_WORLD_H

#include "kernels/cuda/attention/attention.cuh"
#include "tests/cuda/support.h"

struct attention_shape {
    int H, G, D, B;
    enum kv_type cache;
    enum dtype act; /* DTYPE_F32: the oracle mode */
    int window;
    float cap;
    bool has_sinks;  /* head h has the score sink_of(h) in addition to those of the positions */
    bool both_ways;  /* rows see the rows after them; each part of a step is a whole sequence */
    bool has_slopes; /* head h has the slope slope_of(h) */
    /* of latent attention: values are the first D_value numbers of the keys; 0: other vectors */
    int D_value;
    int value_size() const {
        return D_value ? D_value : D;
    }
};
float sink_of(int head);
float slope_of(int head);
std::string shape_text(const attention_shape &s);

/* Rows from..to-1 of one sequence, by position. */
struct part_of_step {
    int sequence, from, to;
};
using step_parts = std::vector<part_of_step>;

struct attention_world {
    attention_shape shape;
    float scale;
    std::vector<int> lengths; /* of the sequences */
    std::vector<floats> q;    /* [sequence][length][H][D], as stored in act */
    /* [sequence][length][G][D], as read back from the cache; v has D_value if there is one */
    std::vector<floats> k, v;
    std::vector<std::vector<int>> blocks;
    int n_blocks;
    attention_plan planned; /* of the last run */
    int tiles = 0;          /* of a block of wide_heads; 0: attention_float serves wide heads */

    /* `seed` selects the numbers, `placement` the places of the blocks. */
    attention_world(const attention_shape &shape, std::vector<int> lengths, uint64_t seed,
                    int placement);
    /* Returns the bytes of a step's y[rows][H][value_size()]. Computes it twice, into poison; the
     * bytes must be the same, and the counters must end as zero. max_parts and chunks are arguments
     * of the plan. */
    std::vector<uint8_t> run(const step_parts &parts, int64_t max_parts = INT32_MAX,
                             bool chunks = false);
    /* The same in double precision. */
    floats reference(const step_parts &parts) const;
    /* The same for a 16-bit cache with weights of 16 bits. Each is relative to the largest score of
     * its span up to the end of its unit, of `unit` positions, and is rounded then; the sum of
     * weights is of the rounded ones. `doubt` receives the error that each number may have because
     * a kernel's scores have 24 bits. */
    floats rounded_reference(const step_parts &parts, int unit, floats *doubt) const;

  private:
    std::vector<uint8_t> run_planned(struct attention_args *args, const struct world_step &a,
                                     int64_t max_parts, bool chunks, buffer *y);
    void attend(const struct attention_args *args, const int32_t *sequence, int M);
    std::vector<uint8_t> keys, values; /* the cache */
    floats key_scale, value_scale;
    void place(uint64_t *state, floats *numbers, std::vector<uint8_t> *cache, const floats &scales,
               int sequence);
};

/* Adds a test that runs n times, numbered from 0. The limit is five minutes per run. */
void add_attention_case(Suite *suite, const char *name, const TTest *test, int n);

#endif
