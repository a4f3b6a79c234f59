/* Computes a head on the host: each output is a sum over the inputs in their order, in double, so
 * its bits depend on nothing else. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine/engine.h"

static double activated(enum head_activation activation, double x) {
    switch (activation) {
    case HEAD_TANH:
        return tanh(x);
    case HEAD_RELU:
        return x > 0 ? x : 0;
    case HEAD_GELU:
        return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
    case HEAD_SIGMOID:
        return 1 / (1 + exp(-x));
    case HEAD_SILU:
        return x / (1 + exp(-x));
    default:
        return x;
    }
}

static void normalise(const struct head_layer *layer, double *x) {
    const int n = layer->n_out;
    double mean = 0, variance = 0;
    for (int j = 0; j < n; j++) mean += x[j];
    mean /= n;
    for (int j = 0; j < n; j++) variance += (x[j] - mean) * (x[j] - mean);
    const double factor = 1 / sqrt(variance / n + (double)layer->epsilon);
    for (int j = 0; j < n; j++) {
        x[j] = (x[j] - mean) * factor * (double)layer->gain[j];
        if (layer->norm_bias) x[j] += (double)layer->norm_bias[j];
    }
}

static void run_layer(const struct head_layer *layer, const double *in, double *out) {
    const int n = layer->n_out;
    for (int j = 0; j < n; j++) out[j] = layer->bias ? (double)layer->bias[j] : 0;
    for (int i = 0; i < layer->n_in; i++) {
        const float *row = layer->weight + (size_t)i * (size_t)n;
        const double x = in[i];
        for (int j = 0; j < n; j++) out[j] += x * (double)row[j];
    }
    if (layer->activation != HEAD_IDENTITY)
        for (int j = 0; j < n; j++) out[j] = activated(layer->activation, out[j]);
    if (layer->gain) normalise(layer, out);
}

double *head_run(const struct head *head, const double *in, int n) {
    int widest = n;
    for (int i = 0; i < head->n; i++) widest = max_int(widest, head->layer[i].n_out);
    double *a = mem_alloc((size_t)widest * sizeof *a), *b = mem_alloc((size_t)widest * sizeof *b);
    memcpy(a, in, (size_t)n * sizeof *in);
    for (int i = 0; i < head->n; i++) {
        assert(head->layer[i].n_in == (i > 0 ? head->layer[i - 1].n_out : n));
        run_layer(&head->layer[i], a, b);
        double *other = a;
        a = b;
        b = other;
    }
    mem_free(b);
    return a;
}
