/* The tiles of a step: its rows by adapter. A tile stays open until it is full:
 *
 *     rows     0:a 1:b 2:a 3:- 4:a 5:a          tiles of 2 rows, adapters a and b
 *     tiles    [a: 0 2] [b: 1] [-: 3] [a: 4 5] [unused]
 */
#include "kernels/cuda/low_rank/low_rank.cuh"

/* Each adapter leaves at most one tile partly filled. */
int adapter_tiles_most(int rows, int max_adapters) {
    assert(rows >= 0 && max_adapters > 0);
    const int64_t groups = min_int(rows, max_adapters + 1);
    return (int)((rows + (ADAPTER_TILE - 1) * groups) / ADAPTER_TILE);
}

void adapter_tiles_fill(struct adapter_tile *tile, const int32_t *adapter, const int32_t *row,
                        int n, int rows, int max_adapters, int32_t *open) {
    const int most = adapter_tiles_most(rows, max_adapters);
    int used = 0;
    assert(n <= rows);
    for (int i = 0; i <= max_adapters; i++) open[i] = -1;
    for (int r = 0; r < rows; r++) {
        const int32_t own = r < n ? adapter[row ? row[r] : r] : 0;
        assert(own >= 0 && own <= max_adapters);
        if (open[own] < 0 || tile[open[own]].n == ADAPTER_TILE) {
            assert(used < most);
            open[own] = used;
            tile[used++] = {own, 0, {}};
        }
        struct adapter_tile *to = &tile[open[own]];
        to->row[to->n++] = r;
    }
    for (int i = used; i < most; i++) tile[i] = {};
}
