"""Mutants of the experts on the CPU; tests/mutate.py says what the names mean."""
OPS = "kernels/cpu/ops/"
MODELS = "engine/models/"
SUITES = {
    OPS: ["kernels_experts"],
    MODELS: ["engine_families"],
    "engine/files/": ["engine_families"],
}

MUTANTS = [
    # which experts, and their weights
    (OPS + "route.c", "logits[e] > logits[best[at - 1]]", "logits[e] >= logits[best[at - 1]]"),
    (OPS + "route.c", "int at = e < n ? e : n;", "int at = e < n ? e : n - 1;"),
    (OPS + "route.c", "    sort_rising(expert, n_used);\n", ""),
    (OPS + "route.c", "float max = logits[expert[0]]", "float max = logits[0]"),
    (OPS + "route.c", "e < E && !normalises;", "e < n_used && !normalises;"),
    (OPS + "route.c", "if (!normalises) sum = tree_sum(s);", "sum = tree_sum(s);"),
    (OPS + "route.c", "weight[i] = weight[i] / sum;", "(void)sum;"),
    # which rows
    (OPS + "route.c", "m->row_of[at] = i / n_used;", "m->row_of[at] = i % n_used;"),
    (OPS + "route.c", "m->weight_of[at] = m->weight[i];", "m->weight_of[at] = m->weight[at];"),
    (OPS + "route.c", "m->tile[e + 1] = m->tile[e] + tiles;", "m->tile[e + 1] = m->tile[e] + (tiles > 0);"),
    (OPS + "route.c", "int end = from + TILE_GROUP < tiles ? from + TILE_GROUP : tiles;", "int end = tiles;"),
    (OPS + "route.c", "part.minus_sum += 3 * block;", "part.minus_sum += block;"),
    (OPS + "route.c", "size_t row = (size_t)m->tile[expert] * LANES", "size_t row = (size_t)m->first[expert]"),
    # the products
    (OPS + "experts.c", "int panel = (span->expert * job->F + unit * BLOCK + at) / LANES;", "int panel = (unit * BLOCK + at) / LANES;"),
    (OPS + "experts.c", "span->expert * (job->K / LANES) + panel", "panel"),
    (OPS + "experts.c", "to[lane] + m->weight_of[i] * y[lane]", "to[lane] + y[lane]"),
    (OPS + "experts.c", "int from = m->first[span->expert] + span->from * LANES,", "int from = m->first[span->expert],"),
    (OPS + "experts.c", "for (int at = 0; at < n; at += LANES)", "for (int at = 0; at < BLOCK && at < job->F; at += BLOCK)"),
    # the shared expert
    (OPS + "experts.c", "1 / (1 + plain_exp(-z))", "1 / (1 + plain_exp(z))"),
    (OPS + "experts.c", "    if (experts->shared.up.w) mix_shared(&job);\n", ""),
    (OPS + "experts.c", "    mixture_group(m, job->M, 1, 1);\n", ""),
    # what a file says
    ("engine/files/hf_config.c", 'key_bool_or(root, "norm_topk_prob", e->normalises, &e->normalises, err)', "STATUS_OK"),
    ("engine/files/gguf_config.c", 'e->n_used = (int)n;', 'e->n_used = 1;'),
    (MODELS + "forward.c", ".normalises = c->normalises,", ".normalises = !c->normalises,"),
    (MODELS + "forward.c", ".shared_gate = {t->w[ROLE_SHARED_ROUTER], NULL}", ".shared_gate = {NULL, NULL}"),
    (MODELS + "load.c", "copy_rows(l, weight, to + (size_t)e * weight->bytes);", "copy_rows(l, weight, to);"),
    (MODELS + "folder_names.c", "*expert = (int)number;", "*expert = 0;"),
    (MODELS + "families/experts.c", '{ROLE_EXPERTS_GATE, "block_sparse_moe.experts.*.w1.weight"}',
     '{ROLE_EXPERTS_GATE, "block_sparse_moe.experts.*.w3.weight"}'),
    (MODELS + "family.c", "family_has_experts(families[i]) == experts", "family_has_experts(families[i]) != experts"),
]
