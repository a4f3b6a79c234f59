"""Mutants of swapping blocks to the host; tests/cuda_mutate.py says what the names mean."""
UNITS = ["attention/kv_swap"]

MUTANTS = [
    ("attention/kv_swap.cu", "wait_for(s->steps, s->sent[stage]);", ""),
    ("attention/kv_swap.cu", "wait_for(s->copies, s->full[stage]);", ""),
    ("attention/kv_swap.cu", "wait_for(s->steps, s->arrived);", "(void)s;"),
    ("attention/kv_swap.cu", "wait_for(s->copies, s->begun);", ""),
    ("attention/kv_swap.cu", "wait_for(s->steps, s->sent[stage]);", "wait_for(s->steps, s->sent[s->turn]);"),
    ("attention/kv_swap.cu", "wait_for(s->copies, s->full[stage]);", "wait_for(s->copies, s->full[s->turn]);"),
    ("attention/kv_swap.cu", "record(s->full[stage], s->steps);", "record(s->full[s->turn], s->steps);"),
    ("attention/kv_swap.cu", "record(s->sent[stage], s->copies);", "record(s->sent[s->turn], s->copies);"),
    ("attention/kv_swap.cu", "record(s->sent[stage], s->copies);", ""),
    ("attention/kv_swap.cu", "record(s->full[stage], s->steps);", ""),
    ("attention/kv_swap.cu", "record(s->arrived, s->copies);", ""),
    ("attention/kv_swap.cu", "s->turn = (s->turn + 1) % OUT_STAGES;", "", "one stage is enough, and slower"),
    ("attention/kv_swap.cu", "slot[i + run] % slots != 0", "slots != 0"),
    ("attention/kv_swap.cu", "slot[i + run] == first + run", "slot[i + run] != first"),
    ("attention/kv_swap.cu", "(size_t)(first % slots) * area.block_bytes", "(size_t)first * area.block_bytes"),
    ("attention/kv_swap.cu", "kv_scatter_listed(s->cache, kind, s->in, block + i, count, s->copies);",
     "kv_scatter_listed(s->cache, kind, s->in, block, count, s->copies);"),
    ("attention/kv_swap.cu", "kv_scatter_listed(s->cache, kind, s->in, block + i, count, s->copies);",
     "kv_scatter_listed(s->cache, kind, s->in, block + i, count, s->steps);"),
    ("attention/kv_swap.cu", "kv_gather_listed(s->out[stage], s->cache, kind, block + i, count, s->steps);",
     "kv_gather_listed(s->out[stage], s->cache, kind, block + i, count, s->copies);"),
    ("attention/kv_swap.cu", "copy(area, s->out[stage], slot + i, count, true, s->copies);",
     "copy(area, s->out[stage], slot, count, true, s->copies);"),
    ("attention/kv_swap.cu", "i < area.n_chunks && i * area.chunk_slots < n; i++)", "(i + 1) * area.chunk_slots < n; i++)"),
]
