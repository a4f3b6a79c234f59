"""Mutants of the experts on the CPU; tests/mutate.py says what the names mean."""
OPS = "kernels/cpu/ops/"
MODELS = "engine/models/"
SUITES = {
    OPS: ["kernels_experts"],
    MODELS: ["engine_families"],
    "engine/files/": ["engine_families"],
    "kernels/cpu/plain/": ["kernels_op_options"],
    OPS + "attention.c": ["kernels_attention"],
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
    # gates that are clamped, sinks
    ("kernels/cpu/plain/rows.c", "g = CLAMP_LIMIT < g ? CLAMP_LIMIT : g;", ""),
    ("kernels/cpu/plain/rows.c", "u = CLAMP_LIMIT < u ? CLAMP_LIMIT : u;", ""),
    ("kernels/cpu/plain/rows.c", "u = -CLAMP_LIMIT > u ? -CLAMP_LIMIT : u;", ""),
    ("kernels/cpu/plain/rows.c", "(u + 1.0f)", "u"),
    ("kernels/cpu/plain/rows.c", "-(g * CLAMP_ALPHA)", "-g"),
    (OPS + "attention.c", "fmaf(into[PART_SUM], old, new)", "into[PART_SUM] * old"),
    (OPS + "attention.c", "into[PART_VALUES + d] * old;", "into[PART_VALUES + d];"),
    (OPS + "attention.c", "sinks[task->head[i]]", "sinks[0]"),
    (OPS + "attention.c", "float max = sink > into[PART_MAX] ? sink : into[PART_MAX];", "float max = into[PART_MAX];"),
    (MODELS + "forward.c", ".sinks = model->layers[layer].vec[ROLE_SINKS]", ".sinks = model->layers[0].vec[ROLE_SINKS]"),
    (MODELS + "forward.c", "linear_of(t, ROLE_ROUTER, ROLE_ROUTER_BIAS)", "{t->w[ROLE_ROUTER], NULL}"),
    (MODELS + "forward.c", "linear_of(t, ROLE_EXPERTS_GATE, ROLE_EXPERTS_GATE_BIAS)", "{t->w[ROLE_EXPERTS_GATE], NULL}"),
    (MODELS + "load.c", "size_t first = fused->is_interleaved ? i : i * N", "size_t first = i * N"),
    (MODELS + "load.c", "int first = fused->is_interleaved ? i : i * N", "int first = i * N"),
    (MODELS + "family.c", "in_gguf && !family->smooth_yarn", "in_gguf"),
    ("engine/files/packed.c", "low | high << 4", "high | low << 4"),
    ("engine/files/packed.c", "out[0] = scales[b];", "out[0] = scales[0];"),
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
