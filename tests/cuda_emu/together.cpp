/* DESIGN: the blocks of a cooperative grid, which all live at once.
 *
 * They take turns. In its turn a block runs until nobody of it is ready: all have ended, or wait
 * for threads that sleep, which poll something that another block is to do. Before an atomic a turn
 * may end as well, so that blocks meet in between. Each block has its own stacks; shared memory,
 * the program's static variables among it, stands at the same addresses for all of them and is put
 * away between a block's turns, as is what the checker knows of it.
 *
 * When for two rounds nothing has happened but polling, the grid is deadlocked. That is reported
 * with a place, and the grid is given up. Whoever polls calls __nanosleep; a loop that does not is
 * found to be without progress, much later (block.cpp).
 *
 * Left out: mbarriers, bulk copies and products of warpgroups in such grids.
 */
#include <algorithm>
#include <vector>

#include "internal.h"

namespace emu {

enum { IDLE_ROUNDS = 2 };

/* Puts a block in its place, or away. */
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

/* Gives each block a turn; false after a deadlock in one of them. */
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
