/* Sampling from rows of logits close to a normal distribution, with several kinds of settings. */
#include "bench/gpu/times.h"

#include "kernels/cuda/sampling/sampling.cuh"

#include <algorithm>

static struct sample_row greedy() {
    struct sample_row row = {};
    row.sampling.top_p = row.sampling.repetition_penalty = 1.0f;
    row.sampling.n_logprobs = row.slot = -1;
    return row;
}

static const struct kind {
    const char *name;
    struct sample_row row;
    int passes; /* minimum number of passes over a row of logits */
} kinds[] = {
    {"greedy", greedy(), 1},
    {"temperature",
     [] {
         struct sample_row row = greedy();
         row.sampling.temperature = 0.8f;
         return row;
     }(),
     2},
    {"top-k, top-p",
     [] {
         struct sample_row row = greedy();
         row.sampling.temperature = 0.8f, row.sampling.top_k = 40;
         row.sampling.top_p = 0.95f;
         return row;
     }(),
     2},
    {"20 logprobs",
     [] {
         struct sample_row row = greedy();
         row.sampling.temperature = 0.8f, row.sampling.top_p = 0.95f;
         row.sampling.n_logprobs = 20;
         return row;
     }(),
     4},
    {"penalties",
     [] {
         struct sample_row row = greedy();
         row.sampling.temperature = 0.8f, row.sampling.top_p = 0.95f;
         row.sampling.frequency_penalty = 0.5f;
         row.slot = 0;
         return row;
     }(),
     4},
};

/* Sums four uniform numbers to approximate a normal distribution. At most eight rows differ. */
static std::vector<float> random_logits(int R, int V) {
    const size_t n = (size_t)std::min(R, 8) * (size_t)V;
    const std::vector<uint16_t> words = random_words(4 * n, ANY);
    std::vector<float> logits(n);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < 4; j++) logits[i] += (float)words[4 * i + j] * 0x1p-15f - 1.0f;
    return logits;
}

static call sample_call(const kind &how, int R, int V) {
    const std::vector<float> some = random_logits(R, V);
    auto logits = std::make_shared<timed_memory>((size_t)R * (size_t)V * 4);
    logits->put(some.data(), some.size() * 4);
    logits->repeat(some.size() * 4);
    std::vector<struct sample_row> host((size_t)R, how.row);
    for (int i = 0; i < R; i++) {
        host[(size_t)i].sampling.seed = 42 + (uint64_t)i;
        if (how.row.slot >= 0) host[(size_t)i].slot = i;
    }
    auto rows = std::make_shared<timed_memory>(host);
    const bool counted = how.row.slot >= 0;
    const size_t n_counts = counted ? (size_t)R * (size_t)V : 64;
    auto counts = std::make_shared<timed_memory>(n_counts * 4, pattern{0x0001, 0});
    auto ids = std::make_shared<timed_memory>((size_t)R * 4);
    auto results = std::make_shared<timed_memory>((size_t)R * sizeof(struct sample_result));
    return [=](int) {
        struct sample_batch batch = {};
        batch.R = R, batch.V = V;
        batch.logits = logits->as<float>();
        batch.rows = rows->as<struct sample_row>();
        batch.counts = counts->as<uint32_t>();
        batch.ids = ids->as<int32_t>();
        batch.results = results->as<struct sample_result>();
        sample_rows(&batch, the_stream());
    };
}

static point sample_point(const kind &how, const model &m, int R) {
    return {fields("kernel", "sampling", "kind", how.name, "model", m.name, "rows", R),
            4.0 * how.passes * R * m.V, 0, 1, [=]() -> call { return sample_call(how, R, m.V); }};
}

std::vector<point> list_sampling(bool tiny) {
    std::vector<point> points;
    for (const model &m : models(tiny))
        for (int R : row_counts(tiny))
            for (const kind &how : kinds)
                if (R <= 512) points.push_back(sample_point(how, m, R));
    return points;
}
