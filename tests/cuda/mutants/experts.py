"""Mutants of the experts on the device; tests/cuda_mutate.py says what the names mean."""
UNITS = ["gemm/route", "gemm/grouped", "gemm/experts", "gemm/float"]

MUTANTS = [
    # a row's experts
    ("gemm/route.cu", "a.logit == b.logit && a.expert < b.expert", "a.logit == b.logit && a.expert > b.expert"),
    ("gemm/route.cu", "best[lane] = first + second;", "best[lane] = first;"),
    ("gemm/route.cu", "second = fmaxf(second, fminf(first, next));", "second = fmaxf(second, next);"),
    ("gemm/route.cu", "stays || chosen[i] == e / size", "stays || chosen[i] == e % size"),
    ("gemm/route.cu", "rule.n_used_groups < rule.n_groups", "rule.n_used_groups + 3 < rule.n_groups"),
    ("gemm/route.cu", "sigmoid(row[e]) + (rule.correction ? rule.correction[e] : 0.0f)", "sigmoid(row[e])"),
    ("gemm/route.cu", "score(rising[i]) / sum * rule.scale", "score(rising[i]) / sum"),
    ("gemm/experts.cu", "= {experts->router.bias};", "= {NULL};"),
    ("gemm/experts.cu", "    end.scale = linear_scale(&experts->router);\n", ""),
    ("gemm/experts.cu", "experts->router_norm ? experts->router_norm : norm;", "norm;"),
    ("gemm/experts.cu", "    if (of_router != norm)\n        rows_norm(gemm_work->act, gemm_work->normed, x, norm, M, K, gemm_work->stream);\n", ""),
    ("gemm/route.cu", "rule.expert_scale ? scaled * rule.expert_scale[rising[i]] : scaled", "rule.expert_scale ? scaled * rule.expert_scale[i] : scaled"),
    ("gemm/grouped.cuh", "if (p.end.up_bias) p.end.up_bias +=", "if (!p.end.bias) p.end.up_bias +="),
    ("gemm/route.cu", "return a.logit > b.logit ||", "return a.logit < b.logit ||"),
    ("gemm/route.cu", "if (best.expert % WARP == lane) taken |=", "if (best.expert == lane) taken |="),
    ("gemm/route.cu", "rising[before] = chosen[i];", "rising[i] = chosen[i];"),
    ("gemm/route.cu", "const float max = row[chosen[0]];", "const float max = row[chosen[0]] + 100;"),
    ("gemm/route.cu", "if (rule.normalises) {", "if (!rule.normalises) {"),
    ("gemm/route.cu", "for (int e = lane; e < E; e += WARP) sum", "for (int e = lane; e < n_used; e += WARP) sum"),
    # an expert's rows
    ("gemm/route.cu", "next += r.expert[i] < e;", "next += r.expert[i] <= e;"),
    ("gemm/route.cu", "r.row_of[slot] = i / n_used;", "r.row_of[slot] = i % n_used;"),
    ("gemm/route.cu", "        next += __popc(mine);\n", ""),
    ("gemm/route.cu", "min(GROUPED_ROWS, end - from)", "GROUPED_ROWS"),
    ("gemm/route.cu", "+ GROUPED_ROWS - 1) / GROUPED_ROWS;", ") / GROUPED_ROWS;"),
    # the products
    ("gemm/grouped.cu", "of.expert * (g.N / GEMM_TILE) + tile;", "tile;"),
    ("gemm/grouped.cu", "up ? all.up : all.w;", "all.w;"),
    ("gemm/grouped.cuh", "p.x += (size_t)of.first * p.w.K;", ""),
    ("gemm/grouped.cuh", "p.M = of.rows;", ""),
    ("gemm/float.cu", "weights += (size_t)of.expert * g.N * p.w.K;", ""),
    # the sum
    ("gemm/route.cu", "r.weight[at + i] * to_float(y", "to_float(y"),
    ("gemm/route.cu", "1.0f / (1.0f + expf(-gate[row]))", "1.0f / (1.0f + expf(gate[row]))"),
    ("gemm/route.cu", "if (shared) value =", "if (shared && gate) value ="),
    ("gemm/experts.cu", "end.scale = linear_scale(&mlp->down);", ""),
]
