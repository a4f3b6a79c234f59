#include "bench/gpu/times.h"

#include <algorithm>
#include <map>

cudaStream_t the_stream() {
    static cudaStream_t stream = [] {
        cudaStream_t made;
        cuda_check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "making a stream");
        return made;
    }();
    return stream;
}

std::vector<uint16_t> random_words(size_t n, const pattern &random) {
    static uint64_t state = 0x9e3779b97f4a7c15ull;
    std::vector<uint16_t> words(n);
    for (uint16_t &word : words) { /* xorshift64*, Vigna 2016 */
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        const uint16_t drawn = (uint16_t)(state * 0x2545f4914f6cdd1dull >> 48);
        word = (uint16_t)((drawn & random.keep) | random.set);
    }
    return words;
}

timed_memory::timed_memory(size_t size) : data(nullptr), bytes(size) {
    cuda_check(cudaMalloc((void **)&data, std::max(bytes, (size_t)256)), "taking device memory");
}

/* Memory of the same pattern has the same numbers, because drawing them takes longer than most
 * timed kernels. */
timed_memory::timed_memory(size_t size, const pattern &random) : timed_memory(size) {
    static std::map<std::pair<uint16_t, uint16_t>, std::vector<uint16_t>> drawn;
    std::vector<uint16_t> &words = drawn[{random.keep, random.set}];
    if (words.empty()) words = random_words((size_t)1 << 20, random);
    const size_t n = std::min(bytes, words.size() * 2);
    put(words.data(), n);
    repeat(n);
}

timed_memory::~timed_memory() {
    cuda_check(cudaStreamSynchronize(the_stream()), "waiting for the device");
    cuda_check(cudaFree(data), "giving device memory back");
}

void timed_memory::put(const void *host, size_t n) {
    cuda_check(cudaMemcpyAsync(data, host, n, cudaMemcpyHostToDevice, the_stream()), "filling");
    cuda_check(cudaStreamSynchronize(the_stream()), "filling");
}

void timed_memory::repeat(size_t n) {
    while (n > 0 && n < bytes) {
        const size_t more = std::min(n, bytes - n);
        cuda_check(cudaMemcpyAsync(data + n, data, more, cudaMemcpyDeviceToDevice, the_stream()),
                   "filling");
        n += more;
    }
}

bool has_wgmma() {
    cudaDeviceProp p = {};
    cuda_check(cudaGetDeviceProperties(&p, 0), "asking for the device");
    return p.major == 9 && p.minor == 0;
}

int cold_copies(size_t bytes, int most) {
    int l2 = 0;
    cuda_check(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, 0),
               "asking for the cache's size");
    const size_t wanted = 5 * (size_t)l2 / 2;
    return (int)std::min((wanted + bytes - 1) / std::max(bytes, (size_t)1), (size_t)most - 1) + 1;
}
