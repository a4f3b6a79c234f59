"""Mutants of swapping blocks to the host; tests/cuda_mutate.py says what the names mean."""
UNITS = ["swap"]

MUTANTS = [
    ("swap.cu", "wait_for(s->steps, s->sent[stage]);", ""),
    ("swap.cu", "wait_for(s->copies, s->full[stage]);", ""),
    ("swap.cu", "wait_for(s->steps, s->arrived);", "(void)s;"),
    ("swap.cu", "wait_for(s->copies, s->begun);", ""),
    ("swap.cu", "record(s->sent[stage], s->copies);", ""),
    ("swap.cu", "record(s->full[stage], s->steps);", ""),
    ("swap.cu", "record(s->arrived, s->copies);", ""),
    ("swap.cu", "s->turn = (s->turn + 1) % OUT_STAGES;", "", "one stage is enough, and slower"),
    ("swap.cu", "slot[run] % s->slab_slots != 0", "s->slab_slots != 0"),
    ("swap.cu", "slot[run] == slot[run - 1] + 1", "slot[run] != slot[run - 1]"),
    ("swap.cu", "(size_t)(slot % s->slab_slots) * s->block_bytes", "(size_t)slot * s->block_bytes"),
    ("swap.cu", "kv_scatter_listed(s->cache, s->in, block + i, count, s->copies);",
     "kv_scatter_listed(s->cache, s->in, block, count, s->copies);"),
    ("swap.cu", "kv_scatter_listed(s->cache, s->in, block + i, count, s->copies);",
     "kv_scatter_listed(s->cache, s->in, block + i, count, s->steps);"),
    ("swap.cu", "kv_gather_listed(s->out[stage], s->cache, block + i, count, s->steps);",
     "kv_gather_listed(s->out[stage], s->cache, block + i, count, s->copies);"),
    ("swap.cu", "copy(s, s->out[stage], slot + i, count, true);", "copy(s, s->out[stage], slot, count, true);"),
    ("swap.cu", "for (int i = 0; i * s->slab_slots < n; i++)", "for (int i = 0; (i + 1) * s->slab_slots < n; i++)"),
]
