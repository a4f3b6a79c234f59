/* The gated delta rule and state spaces, one column of a head's matrix at a time; and the gates of
 * attention's outputs. */
#include <math.h>

#include "kernels/cpu/cpu.h"

/* Replaces a column of the matrix and writes its output, in three steps: the sum that the matrix
 * gives for k, the addition d, and the sum for q. */
static void one_column(const struct state_row *row, int column) {
    const size_t dv = (size_t)row->dv;
    const float v = row->v[column];
    float *S = row->S + column, seen = 0, o = 0;
    for (int i = 0; row->corrects && i < row->dk; i++) {
        const float k = row->decays ? row->k[i] * row->decays[i] : row->k[i];
        seen = fmaf(S[(size_t)i * dv], k, seen);
    }
    const float kept = row->decays ? 1 : row->decay;
    const float d = (row->corrects ? fmaf(-kept, seen, v) : v) * row->beta;
    for (int i = 0; i < row->dk; i++) {
        float *s = &S[(size_t)i * dv];
        const float decay = row->decays ? row->decays[i] : row->decay;
        *s = fmaf(row->k[i], d, *s * decay);
        o = fmaf(*s, row->q[i], o);
    }
    row->y[column] = row->corrects ? o : fmaf(row->skip, v, o);
}

void plain_state_row(const struct state_row *row) {
    assert(row->corrects || !row->decays);
    assert(row->dk > 0 && row->first >= 0 && row->n > 0 && row->first + row->n <= row->dv);
    for (int i = 0; i < row->n; i++) one_column(row, row->first + i);
}

void plain_gate(float *y, const float *gate, size_t n) {
    assert(y != gate);
    for (size_t i = 0; i < n; i++) y[i] = y[i] / (1.0f + plain_exp(-gate[i]));
}
