"""Mutants of what families differ in: frequencies, windows, scales; tests/mutate.py says what the names mean."""
MODELS = "engine/models/"
SUITES = {MODELS: ["engine_rope", "engine_families"], "engine/files/": ["engine_families"], "kernels/cpu/ops/": ["kernels_layer_kinds"]}

MUTANTS = [
    # frequencies
    (MODELS + "rope.c", "2 * M_PI * pow((double)rope->base, 2.0 * i / rope->D_rope)", "2 * M_PI * pow((double)rope->base, 2.0 * (i + 1) / rope->D_rope)"),
    (MODELS + "rope.c", "return 1 / ((1 - part) / s->factor + part);", "return 1 / (part / s->factor + 1 - part);"),
    (MODELS + "rope.c", "(turns - s->low_freq_factor)", "(turns - s->high_freq_factor)"),
    (MODELS + "rope.c", "first = floor(first), last = ceil(last)", "first = ceil(first), last = floor(last)"),
    (MODELS + "rope.c", "if (s->truncates) first", "if (!s->truncates) first"),
    (MODELS + "rope.c", "first = fmax(first, 0);", "first = fmax(first, 1);"),
    (MODELS + "rope.c", "last = fmin(last, rope->D_rope - 1);", "last = fmin(last, rope->D_rope / 2 - 1);"),
    (MODELS + "rope.c", "(length > s->original_context ? s->long_factor", "(length >= s->original_context ? s->long_factor"),
    (MODELS + "rope.c", "length <= s->original_context) return", "length < s->original_context) return",
     "at that length the base grows by nothing"),
    (MODELS + "rope.c", "- (s->factor - 1)", "- s->factor"),
    (MODELS + "rope.c", "rope->D_rope / (rope->D_rope - 2.0)", "rope->D_rope / (rope->D_rope - 1.0)"),
    (MODELS + "rope.c", "pow(base, 2.0 * i / rope->D_rope)", "pow(base, 2.0 * i / (rope->D_rope + 1))"),
    ("engine/files/gguf_config.c", 'return has_factors ? "longrope" : "linear";', 'return "linear";'),
    # windows, positions and their kinds
    (MODELS + "layers.c", "(i + 1) % every != 0", "i % every != 0"),
    # layers that differ
    (MODELS + "layers.c", "int source = owners - 1;", "int source = owners - 2;"),
    (MODELS + "layers.c", "config->keys_serve && !layer->slides", "config->keys_serve && layer->slides"),
    (MODELS + "forward.c", "= sqrtf((float)m->P)};", "= (float)m->P};"),
    (MODELS + "forward.c", "1 / sqrtf((float)m->K)};", "1 / (float)m->K};"),
    (MODELS + "forward.c", "NULL, sqrtf(0.5f)},", "NULL, 0.5f},", "the norm that follows takes any factor out, but for its epsilon"),
    (MODELS + "forward.c", ".times_first = layer * m->P,", ".times_first = 0,"),
    (MODELS + "forward.c", ".v_gain = model->ones,", ".v_gain = NULL,"),
    (MODELS + "forward.c", "gather(b, a->logit_inputs, a->inputs, m->L * m->P)", "gather(b, a->logit_inputs, a->inputs, m->P)"),
    (MODELS + "rope.c", "i < (int)(s->part * rope->D_rope / 2)", "i <= (int)(s->part * rope->D_rope / 2)"),
    (MODELS + "families/gemma.c", "    config->attention_scale = 1;\n", ""),
    ("kernels/cpu/ops/rope.c", "        make_values(job, m);\n        norm_and_rotate(job, job->k, job->heads->k_gain, job->kv->G, m);\n",
     "        norm_and_rotate(job, job->k, job->heads->k_gain, job->kv->G, m);\n        make_values(job, m);\n"),
    ("kernels/cpu/ops/kv.c", "cache->kind[k].D != kind.D", "false"),
    ("kernels/cpu/ops/rows.c", "x[k] = (x[k] + row[k]) * scale;", "x[k] = x[k] * scale + row[k];"),
    ("kernels/cpu/ops/matmul.c", "mlp->times ? mlp->times + mlp->times_first : NULL", "mlp->times"),
    (MODELS + "family.c", "own->stretch = (struct rope_stretch){.kind = ROPE_UNSCALED};", ""),
    (MODELS + "families/cohere.c", "= !config->layer[i].slides;", "= config->layer[i].slides;"),
    (MODELS + "families/smollm3.c", "int i = EVERY - 1; i <", "int i = EVERY - 2; i <"),
    (MODELS + "forward.c", "rope->stretch.attention_factor};", "1};"),
    (MODELS + "forward.c", "own ? model->window_inv_freq : model->inv_freq", "model->inv_freq"),
    # scales, norms and their places
    (MODELS + "load.c", "(double)m->query_beta * log1p(i)", "(double)m->query_beta * log1p(i + 1)"),
    (MODELS + "forward.c", "return model->config.norms_stream ? NULL : norm_or_none(norm);", "return norm_or_none(norm);"),
    (MODELS + "forward.c", "compute->norm_add(b, x, y, &ffn, M, model->part.K)", "compute->norm_add(b, x, y, &attn, M, model->part.K)"),
    (MODELS + "load.c", "dequantise(weight->type, weight->data, values + i * D,", "dequantise(weight->type, weight->data, values,"),
    (MODELS + "families/gemma.c", "config->embedding_scale = sqrtf((float)config->K);", "config->embedding_scale = sqrtf((float)config->K) + 1;"),
]
