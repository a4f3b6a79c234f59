"""Mutants of window blocks, from the plan to the kernels; tests/mutate.py says what the names mean."""
S = "scheduler/"
K = "kernels/cpu/"
SUITES = {
    S: ["scheduler_window_pool", "scheduler_simulation"],
    K: ["scheduler_same_bytes:core"],
    "engine/memory": ["engine_memory_windows", "engine_memory_plan"],
}
ENVIRONMENT = {"SCHEDULER_STEPS": "500000", "PROPERTY_CASES": "150"}

MUTANTS = [
    # the window's edge
    (S + "kv/window_pool.h", "(n - pool->window + 1) / pool->block_size", "(n - pool->window) / pool->block_size"),
    (S + "kv/window_pool.h", "(n - pool->window + 1) / pool->block_size", "(n - pool->window + 2) / pool->block_size"),
    (S + "kv/window_pool.h", "n >= pool->window ?", "n > pool->window ?"),
    (S + "kv/window_pool.c", "pool->most = window_blocks_seen(window, block_size);",
     "pool->most = window_blocks_seen(window - 1, block_size);"),
    (K + "ops/attention.c", "position - window + 1 : 0", "position - window : 0"),
    # the pool
    (S + "kv/window_pool.c", "if (pool->n_free == 0) window_pool_detach(", "if (pool->n_free == 1) window_pool_detach("),
    (S + "kv/window_pool.c", "pool->owner[pool->link[pool->n].next]", "pool->owner[pool->link[pool->n].prev]"),
    (S + "kv/window_pool.c", "if (pool->watchers[block]++ == 0) idle_remove(pool, pool->of[block]);", "pool->watchers[block]++;"),
    (S + "kv/window_pool.c", "if (--pool->watchers[block] > 0) return;", "--pool->watchers[block];"),
    (S + "kv/window_pool.c", "    if (!known) window_pool_detach(pool, block);\n", ""),
    (S + "kv/window_pool.c", "        window_pool_watch(pool, other);\n", ""),
    (S + "kv/window_pool.c", "    pool->of[other] = w;\n", "    pool->of[other] = w; pool->of[block] = w;\n"),
    # who holds what
    (S + "apply.c", "    sequence->first_seen = 0;\n", ""),
    (S + "apply.c", "    if (sequence->n_blocks >= sequence->first_seen)\n", ""),
    (S + "apply.c", "    watch_hits(s, sequence);\n", ""),
    (S + "apply.c", "        window_pool_unwatch(&s->pool.windows, shared, false);\n", ""),
    (S + "fork.c", "    watch_blocks(s, sequence);\n", ""),
    (S + "fork.c", "    sequence->first_seen = from->first_seen;\n", ""),
    (S + "commit.c", "window_pool_first_seen(&s->pool.windows, sequence->n_committed)",
     "window_pool_first_seen(&s->pool.windows, sequence->n_computed)"),
    (S + "commit.c", "if (sequence->state == SEQUENCE_RUNNING) end_rows(s, sequence, rows->from);",
     "if (sequence->state == SEQUENCE_RUNNING && s->pool.caching) end_rows(s, sequence, rows->from);"),
    (S + "kv/block_pool.c", "        window_pool_detach(&pool->windows, block);\n", ""),
    (S + "kv/block_pool.c", "    window_pool_move(&pool->windows, block, known);\n", ""),
    # the step
    (S + "batch.c", "batch->window_to[batch->step.n_copies] = batch->windows->of[to];",
     "batch->window_to[batch->step.n_copies] = batch->windows->of[from];"),
    (S + "batch.c", "for (int i = sequence->first_seen; i < sequence->n_blocks; i++) {",
     "for (int i = sequence->first_seen + 1; i < sequence->n_blocks; i++) {"),
    (S + "batch.c", "table[position / size] * size + position % size", "table[position / size] * size"),
    # the plan
    (S + "plan.c", "    plan->windows += (before + by == 0) - (before == 0);\n", ""),
    (S + "plan.c", "    plan->watch_change[block] += by;\n", ""),
    (S + "plan.c", "    int available = min_int(plan->available, plan->windows);\n", "    int available = plan->available;\n"),
    (S + "plan.c", "    plan->windows += item->windows;\n", ""),
    (S + "plan.c", "    plan->windows -= item->windows;\n", ""),
    (S + "plan.c", "            count_watcher(plan, view, item->sequence->table[i], -1);\n", "            (void)i;\n"),
    (S + "plan.c", "    return window_pool_usable(&view->pool->windows, plan->hit, n, own);\n", "    return own < n ? n : own;\n"),
    (S + "kv/window_pool.c", "if (lacking < window_pool_first_seen(", "if (lacking <= window_pool_first_seen("),
    (S + "kv/window_pool.c", "(i + 1) * pool->block_size", "i * pool->block_size"),
    (S + "plan.c", "        taken += watchers(plan, view, plan->hit[i]) == 0;\n", "        taken += 0;\n"),
    (S + "plan.c", "    if (windows > plan->windows - plan->promised_windows) return NO_ROOM;\n", ""),
    (S + "plan.c", "    rows = min_int(rows, rows_with_windows(plan, view, from, item.hits));\n", ""),
    (S + "plan.c", "for (int i = first_seen; i < item.hits; i++) count_watcher(", "for (int i = 0; i < item.hits; i++) count_watcher("),
    (S + "speculate.c", "    plan->windows -= blocks;\n", ""),
    (S + "inbox.c", "windows->n == 0 || width * min_int(blocks, windows->most) <= windows->n", "true"),
    # swapping
    (S + "plan.c", "    held = max_int(held, window_pool_first_seen(&view->pool->windows, from));\n", ""),
    (S + "plan.c", "if (known == item.hits) item.host_hits", "item.host_hits"),
    (S + "plan.c", "        *loads |= !window_pool_has(&view->pool->windows, plan->hit[i]);\n", ""),
    (S + "kv/swap.c", "i >= first_seen && !window_pool_has(", "i > first_seen && !window_pool_has("),
    (S + "kv/swap.c", "if (i >= n - n_windows) {", "if (i > n - n_windows) {"),
    (S + "kv/swap.c", "    drop_window(swap, first);\n", ""),
    (S + "kv/swap.c", "    drop_window(swap, host_block);\n", ""),
    (S + "kv/swap.c", "           n_windows > swap_windows_unused(swap))", "           false)"),
    (S + "kv/host_cache.c", "cache->window_of && i >= first_seen)", "cache->window_of && i > first_seen)"),
    (S + "kv/host_cache.c", "if (!has_window(cache, cache->claimed[i])) lacking = n_before + i;", ""),
    (S + "kv/host_cache.c", "    cache->n_windows -= has_window(cache, host_block);\n", ""),
    # the cache
    (K + "ops/attention.c", "kv_table(job->kv, step)", "step->table"),
    (K + "ops/rope.c", "kv_slots(kv, job->cpu->step)[m]", "job->cpu->step->slot[m]"),
    (K + "ops/kv.c", "cache->kind[k].has_window != kind.has_window", "false"),
    (K + "ops/kv.c", "(has_window ? step->window_copy_to : step->copy_to)[i]", "step->copy_to[i]"),
    # the memory
    ("engine/memory/plan.c", "s.least = s.seen + ", "s.least = "),
    ("engine/memory/plan.c", "windows = min_int64(max_int64(windows, s->least), most);", "windows = max_int64(windows, s->least);"),
    ("engine/memory/plan.c", "blocks = (bytes - windows * s->window_bytes) / s->block_bytes;", "blocks = bytes / s->block_bytes;"),
    ("engine/memory/plan.c", "config->window_blocks > 0 || s.least < s.chain", "config->window_blocks > 0 || s.least <= s.chain"),
    ("engine/memory/plan.c", "    windows = min_int64(windows, s.least + n_blocks - s.chain);\n", ""),
    ("engine/memory/plan.c", "(n_blocks * s.usual_seen + s.usual - 1) / s.usual;", "n_blocks;"),
    ("engine/memory/plan_gpu.c", "    plan->n_window_blocks = memory_window_blocks(plan, config, blocks);\n", ""),
    ("engine/memory/plan_gpu.c", "return fitting(&cost, config->kv_memory, most);", "return fitting(&cost, config->kv_memory, most) - 1;"),
]
