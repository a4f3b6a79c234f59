"""Mutants of lists of orders, of the grid that does them, and of its barrier; tests/cuda_mutate.py says what the names mean."""
UNITS = ["persistent/bf16", "persistent/persistent", "runtime/orders", "backend_compute", "attention/plan"]
PROGRAMS = ["persistent", "engine_persistent"]
K, G, L, P = "persistent/kernel.cuh", "runtime/grid_barrier.cuh", "runtime/orders.cu", "persistent/persistent.cu"

MUTANTS = [
    ("persistent/persistent.cu", "    all->wanted = false;\n    return false;", "    return false;"),
    ("persistent/persistent.cu", "all->launched += error == cudaSuccess;", "all->launched++;",
     "only a failed device tells them apart, and it stops the bench"),
    ("persistent/persistent.cu", "all->launched += error == cudaSuccess;", "all->launched = error == cudaSuccess;"),
    ("persistent/persistent.cu", " && error != cudaErrorCooperativeLaunchTooLarge", ""),
    # the barrier
    (G, "    __syncthreads();\n    if (threadIdx.x == 0)\n        before", "    if (threadIdx.x == 0)\n        before"),
    (G, "before = add_release(word,", "before = atomicAdd(word,"),
    (G, "PHASE - (gridDim.x - 1)", "PHASE - gridDim.x"),
    (G, "PHASE - (gridDim.x - 1)", "PHASE - (gridDim.x - 2)"),
    (G, "^ before) >> 31 == 0", "^ before) >> 31 == 1"),
    (G, "load_acquire(word) ^", "atomicAdd(word, 0u) ^"),
    (G, "load_acquire(word) ^", "emu::atomic_load(word) ^"),
    (G, "__nanosleep(20);\n    __syncthreads();", "__nanosleep(20);"),
    # orders in their turn
    (K, "        if (waits) grid_barrier_wait(word, before);\n", ""),
    (K, "if (now.meets)", "if (now.waits)"),
    (K, "if (now.meets)", "if (i + 1 < n)"),
    (K, "&near[(i + 1) % 2], &orders[i + 1]", "&near[(i + 1) % 2], &orders[i]"),
    (K, "copy_order(&near[(i + 1) % 2],", "copy_order(&near[i % 2],"),
    (K, "    copy_order(&near[0], &orders[0]);\n    __syncthreads();", "    copy_order(&near[0], &orders[0]);"),
    (K, "        else\n            __syncthreads();\n", ""),
    (K, "if (order.kind == ORDER_PRODUCT)", "if (order.kind != ORDER_NORMED_PRODUCT && order.kind == ORDER_PRODUCT && order.items > 1)"),
    # products
    (K, "part += STEP_WARPS;", "part += STEP_WARPS + 1;"),
    (K, "part - warp >= warps_of(p);", "part - warp >= p.w.ranges;"),
    (K, "part - warp >= warps_of(p);", "true;"),
    (K, "if (complete) item += (int)gridDim.x, part = warp;", "if (complete) item += (int)gridDim.x + 1, part = warp;"),
    (K, "if (complete) item += (int)gridDim.x, part = warp;", "if (complete) item += (int)gridDim.x;"),
    (K, "if (!complete) continue;\n        __syncthreads();", "if (!complete) continue;"),
    (K, "__syncthreads(); /* the sums are written again */", ";"),
    (K, "        norm_rows(normed, sums, any, all.norm);\n", ""),
    (K, "        x = normed;\n", ""),
    # heads, attention, rows
    (K, "(int)(threadIdx.x / WARP * gridDim.x + blockIdx.x);", "(int)(threadIdx.x / WARP * gridDim.x + blockIdx.x + 1);"),
    (K, "i += STEP_WARPS * (int)gridDim.x)", "i += (int)gridDim.x)"),
    (K, "prepare_head<T, KV>(args, i / heads, i % heads, lane);", "prepare_head<T, KV>(args, i / heads, i / rows, lane);"),
    (K, "i < items * across; i += (int)gridDim.x)", "i < items + across - 1; i += (int)gridDim.x)"),
    (K, "work.args.items[i % items];", "work.args.items[i / across];"),
    (K, "        if (item.rows == 0) continue;\n", ""),
    (K, "__syncthreads(); /* warps' memory is written again */", ";"),
    (K, "const bool f16 = order.type == DTYPE_F16;", "const bool f16 = order.type != DTYPE_F16;"),
    (K, "int i = first * STEP_THREADS + (int)threadIdx.x;", "int i = first + (int)threadIdx.x;"),
    (K, "for (int m = first; m < items; m += apart)\n            embed_row", "for (int m = first; m < apart; m += apart)\n            embed_row"),
    (K, "for (int m = first; m < items; m += apart)\n            gather_row", "for (int m = first; m < apart; m += apart)\n            gather_row"),
    # lists
    (L, "return kind != ORDER_ANGLES ||", "return (kind != ORDER_ANGLES && kind != ORDER_HEADS) ||"),
    (L, "return kind != ORDER_ANGLES ||", "return kind == ORDER_NORMED_PRODUCT || kind == ORDER_ANGLES ||"),
    (L, "    if (list->n > 0) list->orders[list->n - 1].meets = waits;\n", ""),
    (L, "any_act || list->act == head->act", "any_act || list->act"),
    (L, "list->groups == head->groups);", "list->groups);"),
    (L, "    if (making) making->useless = true;\n", ""),
    (L, "    if (head.smem > list->smem) list->smem = head.smem;\n", "    list->smem = head.smem;\n"),
    # launches
    (P, "if (list->useless || list->n == 0", "if (list->n == 0"),
    (P, "    allow_smem(kernel, STEP_SMEM);\n", ""),
    (P, "step->n = list->n;", "step->n = list->n - 1;"),
    (P, "each * all->multiprocessors", "each * all->multiprocessors + 1"),
    (P, "cudaStreamSynchronize(stream), \"waiting for orders\"", "cudaSuccess, \"waiting for orders\""),
    ("backend_compute.cu", "        if (cuda->attention.plan[w].n_whole > 0) key.one_grid = false;\n", ""),
    ("attention/plan.cu", "    p->plan->n_whole += tiles;\n", ""),
]
