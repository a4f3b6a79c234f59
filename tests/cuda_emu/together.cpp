/* DESIGN: the blocks of a cooperative grid, which are all alive at the same time.
 *
 * The blocks take turns. In its turn a block runs until none of its threads is ready: each has
 * ended, sleeps, or waits for threads that sleep. Sleeping threads poll for an action of another
 * block. A turn may also end before an atomic, so that blocks interleave. Each block has separate
 * stacks. Shared memory, including static variables, is at the same addresses for all blocks: its
 * contents are saved between a block's turns, and so is the checker's state of the block.
 *
 * If two rounds pass in which threads only poll, the grid is deadlocked. This is reported with a
 * place, and the grid is abandoned. Loops that poll call __nanosleep. A loop that does not is found
 * to make no progress much later (block.cpp).
 *
 * Not supported in such grids: mbarriers, bulk copies and products of warpgroups.
 */
#include <algorithm>
#include <vector>

#include "internal.h"

namespace emu {

enum { IDLE_ROUNDS = 2 };

/* Restores a block's state, or saves it. */
static void swap_block(size_t number) {
    block_swap(number);
    shared_swap(number);
    checker_swap(number);
    checker_stacks(block_stacks());
}

static void begin(const cudaLaunchConfig_t &config, const body &body, unsigned number) {
    const dim3 &block = config.blockDim;
    swap_block(number);
    shared_fill();
    checker_block(block.x * block.y * block.z);
    block_begin(block, block_index(config.gridDim, number), body, false, true);
    swap_block(number);
}

static turn_end take_turn(unsigned number) {
    swap_block(number);
    const turn_end end = block_run();
    if (end == turn_end::ENDED) shared_check();
    swap_block(number);
    return end;
}

static void say_deadlock(size_t n_blocks, const std::vector<unsigned> &alive) {
    block_swap(alive[0]);
    const std::string place = block_sleeps_at();
    block_swap(alive[0]);
    report("deadlock", "%zu of %zu blocks have ended; the others wait, block %u at %s",
           n_blocks - alive.size(), n_blocks, alive[0], place.c_str());
}

/* Gives each block a turn. Returns false after a deadlock in one of them. */
static bool run_round(std::vector<unsigned> &alive) {
    std::vector<unsigned> still;
    for (unsigned i : block_order(alive.size())) {
        const turn_end end = take_turn(alive[i]);
        if (end == turn_end::HALTED) return false;
        if (end == turn_end::PAUSED) still.push_back(alive[i]);
    }
    std::sort(still.begin(), still.end());
    alive = still;
    return true;
}

void run_together(const cudaLaunchConfig_t &config, const body &body,
                  const std::vector<unsigned> &blocks) {
    std::vector<unsigned> alive = blocks;
    for (unsigned number : blocks) begin(config, body, number);
    for (int idle = 0; !alive.empty();) {
        const unsigned long before = block_progress();
        if (!run_round(alive)) return;
        idle = block_progress() == before ? idle + 1 : 0;
        if (idle == IDLE_ROUNDS) return say_deadlock(blocks.size(), alive);
    }
}

} // namespace emu
