/* Launches. A launch that a device would refuse is refused. A grid runs block by block, in an order
 * that the settings select; a cooperative grid runs in together.cpp. */
#include <algorithm>
#include <map>
#include <vector>

#include "emu_count.h"
#include "internal.h"

extern uint3 blockDim, gridDim;

namespace emu {

enum { MAX_BLOCKS_YZ = 65535, MAX_THREADS_Z = 64 };

static std::map<const void *, size_t> allowed_shared; /* set by cudaFuncSetAttribute */

static size_t shared_limit(const void *kernel) {
    turn mine;
    auto found = allowed_shared.find(kernel);
    return found == allowed_shared.end() ? (size_t)SHARED_DEFAULT : found->second;
}

cudaError_t set_attribute(const void *kernel, cudaFuncAttribute attribute, int value) {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (is_told_to_fail("cudaFuncSetAttribute")) return set_error(cudaErrorInvalidValue);
    if (value < 0 || value > shared_most()) {
        report("launch", "%d bytes of shared memory per block; the limit is %d", value,
               shared_most());
        return set_error(cudaErrorInvalidValue);
    }
    turn mine;
    allowed_shared[kernel] = std::max<size_t>((size_t)value, SHARED_DEFAULT);
    return cudaSuccess;
}

std::vector<unsigned> block_order(size_t n) {
    std::vector<unsigned> blocks(n);
    for (size_t i = 0; i < n; i++)
        blocks[i] = (unsigned)(running_order() == order::LIFO ? n - 1 - i : i);
    if (running_order() == order::RANDOM)
        for (size_t i = n; i > 1; i--) std::swap(blocks[i - 1], blocks[random_below((unsigned)i)]);
    return blocks;
}

uint3 block_index(const dim3 &grid, unsigned i) {
    return {i % grid.x, i / grid.x % grid.y, i / (grid.x * grid.y)};
}

static void run_in_order(const cudaLaunchConfig_t &config, const body &body, bool begins_early,
                         const std::vector<unsigned> &blocks) {
    const dim3 &block = config.blockDim;
    for (unsigned i : blocks) {
        shared_fill();
        checker_block(block.x * block.y * block.z);
        block_begin(block, block_index(config.gridDim, i), body, begins_early, false);
        if (block_run() != turn_end::ENDED) return;
        shared_check();
    }
}

static bool is_cooperative(const cudaLaunchConfig_t &config) {
    for (unsigned i = 0; i < config.numAttrs; i++)
        if (config.attrs[i].id == cudaLaunchAttributeCooperative)
            return config.attrs[i].val.cooperative != 0;
    return false;
}

static unsigned long grids_run, cooperative_run;
static unsigned last_blocks;

/* Returns the blocks of a grid in the order in which they run. */
static std::vector<unsigned> blocks_of(const dim3 &grid, unsigned last) {
    const size_t n = (size_t)grid.x * grid.y * grid.z;
    std::vector<unsigned> blocks = block_order(n);
    if (last > 0) std::erase_if(blocks, [&](unsigned i) { return i + last < n; });
    return blocks;
}

static void run_grid(const cudaLaunchConfig_t &config, const void *kernel, const body &body,
                     bool begins_early, bool together, unsigned last) {
    device_scope scope;
    grids_run++;
    cooperative_run += together;
    const dim3 &grid = config.gridDim, &block = config.blockDim;
    gridDim = {grid.x, grid.y, grid.z};
    blockDim = {block.x, block.y, block.z};
    report_kernel(kernel);
    checker_stacks(block_stacks());
    shared_plan(config.dynamicSmemBytes);
    auto *parameters = static_cast<const char *>(body.parameters.get());
    checker_grid({parameters, parameters + body.bytes}, begins_early);
    const std::vector<unsigned> blocks = blocks_of(grid, last);
    if (together)
        run_together(config, body, blocks);
    else
        run_in_order(config, body, begins_early, blocks);
    checker_grid_ends();
}

static bool has_cluster(const cudaLaunchConfig_t &config) {
    for (unsigned i = 0; i < config.numAttrs; i++)
        if (config.attrs[i].id == cudaLaunchAttributeClusterDimension) return true;
    return false;
}

/* May the grid begin before earlier grids have ended? */
static bool may_begin_early(const cudaLaunchConfig_t &config) {
    for (unsigned i = 0; i < config.numAttrs; i++)
        if (config.attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization)
            return config.attrs[i].val.programmaticStreamSerializationAllowed != 0;
    return false;
}

/* All blocks of a cooperative grid must fit on the device at the same time. */
static cudaError_t check_together(const cudaLaunchConfig_t &config) {
    const dim3 &grid = config.gridDim, &block = config.blockDim;
    const size_t blocks = (size_t)grid.x * grid.y * grid.z;
    if (is_told_to_fail("cooperative")) return set_error(cudaErrorCooperativeLaunchTooLarge);
    const unsigned fit = blocks_at_once(block.x * block.y * block.z, config.dynamicSmemBytes);
    if (may_begin_early(config)) {
        report("launch", "a cooperative grid that may begin early is not emulated");
        return set_error(cudaErrorInvalidValue);
    }
    if (blocks <= fit) return cudaSuccess;
    report("launch", "a cooperative grid of %zu blocks; %u fit at once", blocks, fit);
    return set_error(cudaErrorCooperativeLaunchTooLarge);
}

cudaError_t get_attributes(cudaFuncAttributes *out) {
    if (is_told_to_fail("cudaFuncGetAttributes")) return set_error(cudaErrorNoKernelImageForDevice);
    out->binaryVersion = architecture();
    out->ptxVersion = ptx_version();
    return cudaSuccess;
}

cudaError_t launch(const cudaLaunchConfig_t &config, const void *kernel, const body &body) {
    const dim3 &grid = config.gridDim, &block = config.blockDim;
    size_t threads = (size_t)block.x * block.y * block.z, limit = shared_limit(kernel);
    bool blocks_fit = grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= INT32_MAX &&
                      grid.y <= MAX_BLOCKS_YZ && grid.z <= MAX_BLOCKS_YZ;
    bool threads_fit = threads > 0 && threads <= MAX_THREADS && block.z <= MAX_THREADS_Z;
    if (!blocks_fit || !threads_fit || config.dynamicSmemBytes > limit || has_cluster(config)) {
        report("launch",
               "grid %u,%u,%u of blocks %u,%u,%u with %zu bytes of dynamic shared memory; %zu are "
               "allowed%s",
               grid.x, grid.y, grid.z, block.x, block.y, block.z, config.dynamicSmemBytes, limit,
               has_cluster(config) ? "; clusters are not emulated" : "");
        return set_error(cudaErrorInvalidConfiguration);
    }
    const bool early = may_begin_early(config), together = is_cooperative(config);
    if (early && architecture() < 90) {
        report("launch", "programmatic serialization is of sm_90 and later");
        return set_error(cudaErrorInvalidValue);
    }
    if (together)
        if (cudaError_t error = check_together(config)) return error;
    if (cudaError_t error = call_fails(EMU_LAUNCH)) return error;
    const bool recorded = in_capture(config.stream);
    count_queued(config.stream, EMU_LAUNCH);
    return enqueue(config.stream, [config, kernel, body, early, together, recorded,
                                   last = last_blocks] {
        if (recorded && config.dynamicSmemBytes > shared_limit(kernel))
            report("graph", "a kernel was recorded with more shared memory than it is allowed now");
        run_grid(config, kernel, body, early, together, last);
    });
}

} // namespace emu

unsigned long emu_grids_run(void) {
    return emu::grids_run;
}

void emu_run_last_blocks(unsigned n) {
    emu::last_blocks = n;
}

unsigned long emu_cooperative_run(void) {
    return emu::cooperative_run;
}
