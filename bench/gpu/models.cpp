#include "bench/gpu/times.h"

const std::vector<model> &models(bool tiny) {
    static const std::vector<model> real = {
        {"GPT-2 124M", 768, 3072, 12, 12, 64, 50257, 12, 1024, false},
        {"SmolLM2-135M", 576, 1536, 9, 3, 64, 49152, 30, 8192, true},
        {"Llama-3.2-1B", 2048, 8192, 32, 8, 64, 128256, 16, 8192, true},
        {"Llama-3.1-8B", 4096, 14336, 32, 8, 128, 128256, 32, 8192, true},
    };
    static const std::vector<model> small = {{"tiny", 256, 256, 4, 2, 64, 320, 1, 300, true},
                                             {"plain", 64, 128, 1, 1, 64, 50, 1, 20, false}};
    return tiny ? small : real;
}

const std::vector<int> &row_counts(bool tiny) {
    static const std::vector<int> real = {1, 2, 4, 8, 16, 32, 128, 512, 2048}, small = {1, 17};
    return tiny ? small : real;
}
