"""Mutants of sharing pieces out and of choosing processors; tests/mutate.py says what the names mean."""
C = "kernels/cpu/"
SUITES = {
    C + "sharing.c": ["kernels_sharing"],
    C + "topology.c": ["kernels_topology"],
    C + "pool.c": ["kernels_pool"],
    C + "ops/matmul.c": ["kernels_nodes"],
}

MUTANTS = [
    # shares
    (C + "sharing.c", "memory_order_relaxed) == job && *from < *to;", "memory_order_relaxed) != 0 && *from < *to;"),
    (C + "sharing.c", "if (job_bits(job) == 0) {", "if (job == 0) {"),
    (C + "sharing.c", "for (int t = 0; t < s->n_threads; t++) atomic_store(&s->shares[t].word, 0);", ""),
    (C + "sharing.c", "word_of(job, from + 1, to)", "word_of(job, from, to)"),
    (C + "sharing.c", "from == to", "from + 1 >= to"),
    (C + "sharing.c", "(int64_t)n * s->node_first[k] / s->n_threads", "(int64_t)n * k / s->n_nodes"),
    # groups, and who looks where
    (C + "sharing.c", "turn < own ? first + (home - first + turn) % own : (first + turn) % s->n_groups",
     "(home + turn) % s->n_groups"),
    (C + "sharing.c", "(home - first + turn) % own", "turn"),
    (C + "sharing.c", "search->owner == group->end", "search->owner > group->end"),
    (C + "sharing.c", "atomic_store(&group->ended, 0);", ""),
    (C + "sharing.c", "search->ran = 0;", ""),
    (C + "sharing.c", "s->wanted += group_pieces(s, &s->groups[g]) > 0", "s->wanted++"),
    (C + "sharing.c", "+ GROUP_THREADS - 1) / GROUP_THREADS", "+ GROUP_THREADS - 1) / 1024 + 1"),
    # processors
    (C + "topology.c", "if (a->sibling != b->sibling) return a->sibling - b->sibling;", ""),
    (C + "topology.c", "a->speed > b->speed ? -1 : 1", "a->speed > b->speed ? 1 : -1"),
    (C + "topology.c", "other->core == p->core && other->package == p->package", "other->core == p->core"),
    (C + "topology.c", "if (taken == 0) return false;", ""),
    (C + "topology.c", "strlen(line) < LINE_BYTES - 1", "true"),
    (C + "topology.c", "if (t->processors[i].node < 0) t->processors[i].node = 0;", "if (t->processors[i].node < 0) t->processors[i].node = 1;"),
    (C + "topology.c", "t->processors[first + (i - from) % n].number", "t->processors[i].number"),
    (C + "topology.c", "to > from ? used : -1", "used"),
    (C + "topology.c", "if (*from > *to || ", "if ("),
    (C + "topology.c", "(uintptr_t)memory + page - 1) / page * page", "(uintptr_t)memory) / page * page",
     "pages that are only partly the range's move too: the same bytes, in another place"),
    # work of nodes
    (C + "ops/matmul.c", "return before + from + u;", "return before + u;"),
    (C + "ops/matmul.c", "before += list_units(job, i++)", "before += 0 * i++"),
    (C + "ops/matmul.c", "i -= job->border[node];", ""),
    (C + "ops/matmul.c", "job->unit == store_unit ? job->n : 1;", "1;"),
]
