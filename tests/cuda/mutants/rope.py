"""Mutants of RoPE and what else is done to the vectors of heads; tests/cuda_mutate.py says what the names mean."""
UNITS = ["attention/rope"]
PROGRAMS = ["rope", "kv_e4m3"]
DROPS = ["attention/heads.cuh"]

MUTANTS = [
    ("attention/rope.cu", "if (i < a.M * a.pairs) make_angle", "if (i <= a.M * a.pairs) make_angle"),
    ("attention/heads.cuh", "a.cosine[i] = c * a.scale;", "a.cosine[i] = c;"),
    ("attention/heads.cuh", "a.sine[i] = s * a.scale;", "a.sine[i] = s;"),
    ("attention/heads.cuh", "a.position[i / a.pairs] * a.inv_freq[i % a.pairs]", "a.position[i % a.M] * a.inv_freq[i % a.pairs]"),
    ("attention/heads.cuh", "const int first = adjacent ? 2 * i : i, second = adjacent ? 2 * i + 1 : i + pairs;",
     "const int first = adjacent ? 2 * i : i, second = adjacent ? 2 * i + 1 : i + 1;"),
    ("attention/heads.cuh", "(rotated ? a.D_rope : 0) + lane", "(rotated ? a.D_rope + 1 : 0) + lane"),
    ("attention/rope.cu", "if (head >= heads_of(a)) return;", "if (head > heads_of(a)) return;"),
    ("attention/heads.cuh", "offset = slot % a.block_size;", "offset = slot / a.block_size;"),
    ("attention/heads.cuh", "(size_t)block * g.n + head;", "(size_t)block * a.q.n + head;"),
    ("attention/heads.cuh", "const bool rotated = (is_q || is_k) && a.D_rope > 0;", "const bool rotated = a.D_rope > 0;"),
    ("attention/heads.cuh", "out.put(second, y * c + x * s);", "out.put(second, y * c - x * s);"),
    ("attention/heads.cuh", "g.bias + (size_t)head * a.D", "g.bias"),
    # a cache of e4m3
    ("attention/heads.cuh", "const int first = m - offset;", "const int first = m - offset + 1;"),
    ("attention/heads.cuh", "if (first >= 0 && a.slot[first]", "if (a.slot[max(first, 0)]",
     "a first row that is before the step is taken for row 0, whose slot is that of another block or another place in it"),
    ("attention/heads.cuh", "a.slot[first] == a.slot[m] - offset", "a.slot[first] != a.slot[m]"),
    ("attention/heads.cuh", "other.x -= (size_t)offset * g.n * a.D;", "other.x -= 0 * g.n;"),
    ("attention/heads.cuh", "other.x -= (size_t)offset * g.n * a.D;", "other.x -= (size_t)(g.n ? offset : 0) * a.D;"),
    ("attention/heads.cuh", "prepare_vector(largest, other, a, first, rotated, lane);", "prepare_vector(largest, other, a, m, rotated, lane);"),
    ("attention/heads.cuh", "scale = kv_scale(warp_max(largest.most));", "scale = kv_scale(largest.most);"),
    ("attention/heads.cuh", "fmaxf(most, fabsf(to_float(from_float<T>(x))))", "fmaxf(most, to_float(from_float<T>(x)))"),
    ("attention/heads.cuh", "fmaxf(most, fabsf(to_float(from_float<T>(x))))", "fmaxf(most, fabsf(x))",
     "a scale is a power of two: that it comes of the rounded number shows where the largest is rounded across one"),
    ("attention/heads.cuh", "if (offset == 0 && lane == 0) *stored = scale;", "if (lane == 0) *stored = scale;",
     "the same number, written over itself; within a step that is a race, which the checker sees only between values"),
    ("attention/heads.cuh", "if (offset == 0 && lane == 0) *stored = scale;", ""),
    ("attention/heads.cuh", "to_float(from_float<T>(x)) / scale", "x / scale"),
    ("attention/kv_layout.cuh", "fraction > 0.5f ? exponent", "fraction >= 0.5f ? exponent"),
    ("attention/kv_layout.cuh", "most * (1.0f / 112.0f)", "most * (1.0f / 128.0f)"),
    ("attention/rope.cu", "cache->layer[args->layer].first;", "0;"),
    # tiles
    ("attention/kv_layout.cuh", "(size_t)(d % KV_COLUMN ^ row * 8);", "(size_t)(d % KV_COLUMN);"),
    ("attention/kv_layout.cuh", "d / KV_COLUMN * KV_TILE + row;", "d / KV_COLUMN + row;"),
    ("attention/kv_layout.cuh", "return bytes == 2 && D % KV_COLUMN == 0 && B % KV_TILE == 0;", "return bytes == 2 && D % KV_COLUMN == 0;"),
    ("attention/heads.cuh", "kv_has_tiles(sizeof(KV), a.D, a.block_size)};", "false};"),
]
