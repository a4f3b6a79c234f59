"""Mutants of blocks of layers with windows; tests/cuda_mutate.py says what the names mean."""
UNITS = ["step", "attention/float", "attention/kv", "attention/kv_swap", "attention/workspace", "backend_compute"]
PROGRAMS = ["windows", "kv", "swap"]

MUTANTS = [
    # the window's edge
    ("attention/float.cu", "max(last - args.window + 1, 0)", "max(last - args.window, 0)"),
    ("attention/float.cu", "max(last - args.window + 1, 0)", "max(last - args.window + 2, 0)"),
    # tables and slots
    ("step.cu", "work->limits.windows[w].length > 0 ? work->kinds - 1 : KV_WHOLE;", "KV_WHOLE;"),
    ("step.cu", "return kind * step->S * stride;", "return kind * stride;"),
    ("step.cu", "{step->window_slot, step->window_table,", "{step->slot, step->window_table,"),
    ("step.cu", "{step->window_slot, step->window_table,", "{step->window_slot, step->table,"),
    ("step.cu", "put_table(to, step, blocks_of(step, kind).table, stride);", "put_table(to, step, step->table, stride);"),
    ("step.cu", "first_line(step, stride, kind);\n    for", "first_line(step, stride, KV_WHOLE);\n    for"),
    ("backend_compute.cu", "cuda->step.at.slot[cache->layer[layer].kind]", "cuda->step.at.slot[KV_WHOLE]"),
    ("attention/workspace.cu", "attention_float(work->act, &args, step->line[kind],", "attention_float(work->act, &args, step->line[KV_WHOLE],"),
    # where blocks lie
    ("attention/kv.cu", "part.first + (size_t)n[kind]++ * (size_t)part.n_blocks", "(size_t)n[kind]++ * (size_t)part.n_blocks"),
    ("attention/kv.cu", "part.first + (size_t)n[kind]++ * (size_t)part.n_blocks",
     "part.first + (size_t)n[kind]++ * (size_t)c->n_window_blocks"),
    ("attention/kv.cu", "const size_t at = part.first * cache->block_bytes;", "const size_t at = 0;"),
    ("attention/kv.cu", "cache->key_scale ? part.first * (size_t)cache->config.G : 0", "0"),
    # copies
    ("step.cu", "kv_copy(cache, (enum kv_kind)kind, at->copy_from[kind] + i,", "kv_copy(cache, (enum kv_kind)kind, at->copy_from[0] + i,"),
    ("step.cu", "blocks_of(step, kind);\n        const int at_once", "blocks_of(step, KV_WHOLE);\n        const int at_once"),
    # swapping
    ("attention/kv_swap.cu", "kv_stage_bytes(s->cache, (enum kv_kind)kind, 1)", "kv_stage_bytes(s->cache, KV_WHOLE, 1)"),
    ("attention/kv_swap.cu", "const struct swap_area &area = s->area[window];", "const struct swap_area &area = s->area[0];"),
    ("attention/kv_swap.cu", "kv_gather_listed(s->out[stage], s->cache, kind,", "kv_gather_listed(s->out[stage], s->cache, KV_WHOLE,"),
    ("attention/kv_swap.cu", "kv_scatter_listed(s->cache, kind,", "kv_scatter_listed(s->cache, KV_WHOLE,"),
]
