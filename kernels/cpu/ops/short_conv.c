/* The op of the short convolution. A piece is some channels in all rows of the step, so that each
 * state is read and written by one thread. */
#include <string.h>

#include "kernels/cpu/cpu.h"

struct conv_job {
    struct cpu *cpu;
    const struct short_conv *conv;
    struct kv_cache *cache;
    int layer;
    int groups; /* groups of LANES channels per piece */
    const float *in, *out, *x;
    float *y;
};

/* Copies a group of channels of a state to another state. */
static void conv_copy(const struct conv_job *job, const struct channels *c, int32_t to) {
    float *copy = kv_state(job->cache, to, job->layer);
    for (int t = 0; t < job->conv->taps - 1; t++) {
        const size_t at =
            (size_t)(t * short_conv_channels(job->conv) + job->conv->first + c->first);
        memcpy(copy + at, c->state + at, (size_t)c->n * sizeof *copy);
    }
}

/* Computes a group of channels in rows row..end-1 of a sequence. */
static void conv_rows(const struct conv_job *job, int first, int s, int row, int end) {
    const struct step *step = job->cpu->step;
    const int N = job->conv->N;
    const size_t at = (size_t)row * (size_t)N;
    const struct channels channels = {.conv = job->conv,
                                      .first = first,
                                      .n = N - first < LANES ? N - first : LANES,
                                      .rows = end - row,
                                      .begins = step->position[row] == 0,
                                      .in = job->in ? job->in + at : NULL,
                                      .out = job->out ? job->out + at : NULL,
                                      .x = job->x + at,
                                      .y = job->y + at,
                                      .state = kv_state(job->cache, step->state[s], job->layer)};
    job->cpu->path->short_conv(&channels);
    if (step->state_after && step->state_after[end - 1] >= 0)
        conv_copy(job, &channels, step->state_after[end - 1]);
}

/* Computes a group of channels in all sequences. */
static void conv_group(const struct conv_job *job, int first) {
    const struct step *step = job->cpu->step;
    for (int s = 0; s < step->S; s++)
        for (int row = step->row_start[s], end; row < step->row_start[s + 1]; row = end) {
            end = state_rows_end(step, row, step->row_start[s + 1]);
            conv_rows(job, first, s, row, end);
        }
}

static void conv_piece(void *arg, int i, int thread) {
    const struct conv_job *job = arg;
    (void)thread;
    int first = i * job->groups * LANES, end = first + job->groups * LANES;
    for (; first < end && first < job->conv->N; first += LANES) conv_group(job, first);
}

void op_short_conv(struct backend *b, float *y, const float *in, const float *out, const float *x,
                   struct kv_cache *cache, int layer, const struct short_conv *conv) {
    struct cpu *cpu = cpu_of(b);
    const int groups = (conv->N + LANES - 1) / LANES;
    assert(cpu->step->state && layer >= 0 && layer < cache->config.state_layers);
    assert(conv->taps >= 2 && conv->taps <= MAX_TAPS && conv->N > 0);
    assert(conv->first >= 0 && conv->first + conv->N <= short_conv_channels(conv));
    assert(short_conv_state(conv) <= cache->config.state_floats);
    struct conv_job job = {cpu, conv, cache, layer, 1, in, out, x, y};
    job.groups = piece_units(cpu, (int64_t)cpu->step->M * LANES * conv->taps, groups);
    pool_run(cpu->pool, conv_piece, &job, (groups + job.groups - 1) / job.groups);
}
