"""Mutants of RoPE and what else is done to the vectors of heads; tests/cuda_mutate.py says what the names mean."""
UNITS = ["attention/rope"]
PROGRAMS = ["rope", "kv_e4m3"]
DROPS = ["attention/rope.cu"]

MUTANTS = [
    ("attention/rope.cu", "if (i >= M * pairs) return;", "if (i > M * pairs) return;"),
    ("attention/rope.cu", "cosine[i] = c * scale;", "cosine[i] = c;"),
    ("attention/rope.cu", "sine[i] = s * scale;", "sine[i] = s;"),
    ("attention/rope.cu", "position[i / pairs] * inv_freq[i % pairs]", "position[i % M] * inv_freq[i % pairs]"),
    ("attention/rope.cu", "const int first = adjacent ? 2 * i : i, second = adjacent ? 2 * i + 1 : i + pairs;",
     "const int first = adjacent ? 2 * i : i, second = adjacent ? 2 * i + 1 : i + 1;"),
    ("attention/rope.cu", "(rotated ? a.D_rope : 0) + lane", "(rotated ? a.D_rope + 1 : 0) + lane"),
    ("attention/rope.cu", "if (head >= a.q.n + a.k.n + a.v.n) return;", "if (head > a.q.n + a.k.n + a.v.n) return;"),
    ("attention/rope.cu", "offset = slot % a.block_size;", "offset = slot / a.block_size;"),
    ("attention/rope.cu", "(size_t)block * g.n + head;", "(size_t)block * a.q.n + head;"),
    ("attention/rope.cu", "const bool rotated = (is_q || is_k) && a.D_rope > 0;", "const bool rotated = a.D_rope > 0;"),
    ("attention/rope.cu", "out.put(second, y * c + x * s);", "out.put(second, y * c - x * s);"),
    ("attention/rope.cu", "g.bias + (size_t)head * a.D", "g.bias"),
    # a cache of e4m3
    ("attention/rope.cu", "const int first = m - offset;", "const int first = m - offset + 1;"),
    ("attention/rope.cu", "if (first >= 0 && a.slot[first]", "if (a.slot[max(first, 0)]",
     "a first row that is before the step is taken for row 0, whose slot is that of another block or another place in it"),
    ("attention/rope.cu", "a.slot[first] == a.slot[m] - offset", "a.slot[first] != a.slot[m]"),
    ("attention/rope.cu", "other.x -= (size_t)offset * g.n * a.D;", "other.x -= 0 * g.n;"),
    ("attention/rope.cu", "other.x -= (size_t)offset * g.n * a.D;", "other.x -= (size_t)(g.n ? offset : 0) * a.D;"),
    ("attention/rope.cu", "prepare_vector(largest, other, a, first, rotated, lane);", "prepare_vector(largest, other, a, m, rotated, lane);"),
    ("attention/rope.cu", "scale = kv_scale(warp_max(largest.most));", "scale = kv_scale(largest.most);"),
    ("attention/rope.cu", "fmaxf(most, fabsf(to_float(from_float<T>(x))))", "fmaxf(most, to_float(from_float<T>(x)))"),
    ("attention/rope.cu", "fmaxf(most, fabsf(to_float(from_float<T>(x))))", "fmaxf(most, fabsf(x))",
     "a scale is a power of two: that it comes of the rounded number shows where the largest is rounded across one"),
    ("attention/rope.cu", "if (offset == 0 && lane == 0) *stored = scale;", "if (lane == 0) *stored = scale;",
     "the same number, written over itself; within a step that is a race, which the checker sees only between values"),
    ("attention/rope.cu", "if (offset == 0 && lane == 0) *stored = scale;", ""),
    ("attention/rope.cu", "to_float(from_float<T>(x)) / scale", "x / scale"),
    ("attention/rope.cu", "cache->layer[args->layer].first;", "0;"),
]
