"""Plants bugs in the CUDA kernels, one at a time, and shows that the tests under emulation find them.

    tests/cuda_mutate.py              every mutant
    tests/cuda_mutate.py rows kv      those of some subjects
    tests/cuda_mutate.py rows:3       one

A mutant is an edit of one place of a source file. The kernels that the place belongs to are compiled with it, plain and
checked, and linked into the subject's test programs; the others' objects are those of the build folder (build, or BUILD
from the environment), which must be up to date (`cmake --build build --target cuda_suites`). The plain program runs with
two seeds of the thread order, the checked one with one. A mutant that every run lets pass has survived, which the table
must expect and give the reason for. Each takes some seconds, so this is no part of `make test`; it is run when kernels or
their tests change.
"""
import os
import re
import shlex
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
WORK = os.path.join(BUILD, "mutate")
TIMEOUT_S = 300
LEAST_SHARE = 0.85
K = "kernels/cuda/"

# By subject (tests/cuda/test_<subject>): the kernel files that its test runs.
UNITS = {
    "rows": ["rows"],
    "weights": ["embed", "matmul_plain"],
    "heads": ["heads"],
    "kv": ["kv"],
    "sample": ["sample"],
}

# By subject: files whose synchronisation is dropped, call by call.
DROPS = {
    "rows": [K + "device.cuh"],
    "heads": [K + "heads.cu"],
    "sample": [K + "sample_select.cuh", K + "sample.cu"],
}
SYNC = re.compile(r"__syncthreads\(\);|__syncwarp\(\);|__threadfence\(\);|cp_async_wait<\d>\(\);|cp_async_commit\(\);")

# By subject: file, what stands there (once), what is put in its place; and where the mutant cannot be found, why.
MUTANTS = {
    "rows": [
        (K + "device.cuh", "if (lane == 0) part[warp] = x;", "if (lane == 1) part[warp] = x;",
         "equivalent: every lane holds the warp's sum"),
        (K + "device.cuh", "if (lane == 0) part[warp] = x;", "part[warp] = x;"),
        (K + "device.cuh", "lane < THREADS / WARP ? part[lane] : 0.0f", "lane <= THREADS / WARP ? part[lane] : 0.0f"),
        (K + "device.cuh", "lane < THREADS / WARP ? part[lane] : 0.0f", "lane < THREADS / WARP - 1 ? part[lane] : 0.0f"),
        (K + "rows.cu", "const size_t at = (size_t)blockIdx.x * K;\n    float sum", "const size_t at = (size_t)blockIdx.x * (K + 1);\n    float sum"),
        (K + "rows.cu", "store_vec<N>(x + at + k, in);", ""),
        (K + "rows.cu", "row[k + i] = value;", "row[k] = value;"),
        (K + "rows.cu", "block_sum<NORM_THREADS>(squares) / (float)K + epsilon", "block_sum<NORM_THREADS>(squares) / (float)NORM_THREADS + epsilon"),
        (K + "rows.cu", "(row[k + i] - mean) * r * gain[k + i]", "(row[k + i] - mean) * r * gain[k]"),
        (K + "rows.cu", "(row[k + i] - mean) * r * gain[k + i]", "row[k + i] * r * gain[k + i]"),
        (K + "rows.cu", "const size_t smem = (size_t)K * sizeof(float);", "const size_t smem = (size_t)(K - 1) * sizeof(float);"),
        (K + "rows.cu", "if (smem > DEFAULT_SMEM) allow_smem(kernel, smem);", ""),
        (K + "rows.cu", "    if (at >= n) return;\n    const Vec<T, N> in", "    if (at > n) return;\n    const Vec<T, N> in"),
        (K + "rows.cu", "(n + per_block - 1) / per_block", "n / per_block"),
        (K + "rows.cu", "const int column = (int)(at % (size_t)columns);", "const int column = (int)(at / (size_t)columns);"),
        (K + "rows.cu", "(size_t)row[blockIdx.x] * K", "(size_t)row[0] * K"),
        (K + "rows.cu", "if (length % Vec16<T>::N == 0)", "if (length % 2 == 0)"),
    ],
    "weights": [
        (K + "embed.cu", "k < K; k += EMBED_THREADS", "k <= K; k += EMBED_THREADS"),
        (K + "embed.cu", "(size_t)token[blockIdx.x] * row_bytes", "(size_t)token[0] * row_bytes"),
        (K + "dequantise.cuh", "return i < 16 ? p[i] & 15 : p[i - 16] >> 4;", "return i < 16 ? p[i] >> 4 : p[i - 16] & 15;"),
        (K + "dequantise.cuh", "return i < 4 ? p[i] & 63 :", "return i <= 4 ? p[i] & 63 :"),
        (K + "dequantise.cuh", "[192 + j / 16]", "[192 + j / 32]"),
        (K + "dequantise.cuh", "(p[i / 8] >> (i % 8) & 1) << 4", "(p[i / 8] >> (i % 8) & 1) << 3"),
        (K + "matmul_plain.cu", "for (int k = 0; k < K; k++)", "for (int k = 0; k <= K; k++)"),
        (K + "matmul_plain.cu", "if (n >= N) return;", "if (n > N) return;"),
        (K + "matmul_plain.cu", "y[m * N + n] =", "y[m * K + n] ="),
        (K + "matmul_plain.cu", "const size_t m = blockIdx.y;", "const size_t m = 0;"),
    ],
    "heads": [
        (K + "heads.cu", "if (i >= M * pairs) return;", "if (i > M * pairs) return;"),
        (K + "heads.cu", "position[i / pairs] * inv_freq[i % pairs]", "position[i % M] * inv_freq[i % pairs]"),
        (K + "heads.cu", "const int first = adjacent ? 2 * i : i, second = adjacent ? 2 * i + 1 : i + pairs;",
         "const int first = adjacent ? 2 * i : i, second = adjacent ? 2 * i + 1 : i + 1;"),
        (K + "heads.cu", "(turned ? a.D_rope : 0) + lane", "(turned ? a.D_rope + 1 : 0) + lane"),
        (K + "heads.cu", "if (head >= a.q.n + a.k.n + a.v.n) return;", "if (head > a.q.n + a.k.n + a.v.n) return;"),
        (K + "heads.cu", "offset = slot % a.block_size;", "offset = slot / a.block_size;"),
        (K + "heads.cu", "((size_t)block * g.n + head) * a.block_size + offset", "((size_t)block * a.q.n + head) * a.block_size + offset"),
        (K + "heads.cu", "const bool turned = (is_q || is_k) && a.D_rope > 0;", "const bool turned = a.D_rope > 0;"),
        (K + "heads.cu", "out[second] = from_float<OUT>(y * c + x * s);", "out[second] = from_float<OUT>(y * c - x * s);"),
        (K + "heads.cu", "g.bias + (size_t)head * a.D", "g.bias"),
    ],
    "kv": [
        (K + "kv.cu", "const bool is_value = y >= sizes.L;", "const bool is_value = y > sizes.L;"),
        (K + "kv.cu", "i < sizes.block_bytes; i += MOVE_THREADS * N", "i + N < sizes.block_bytes; i += MOVE_THREADS * N"),
        (K + "kv.cu", "i < sizes.block_bytes; i += MOVE_THREADS * N", "i <= sizes.block_bytes; i += MOVE_THREADS * N"),
        (K + "kv.cu", "(size_t)layer * p.layer_bytes;", "(size_t)layer * sizes.block_bytes;"),
        (K + "kv.cu", "cache->block_bytes % 16 == 0", "cache->block_bytes % 4 == 0"),
        (K + "kv.cu", "((size_t)i * 2 + is_value) * sizes.L + layer", "((size_t)i + is_value) * sizes.L + layer"),
        (K + "kv.cu", "g < sizes.n_scales; g += MOVE_THREADS", "g < sizes.n_scales - 1; g += MOVE_THREADS"),
        (K + "kv.cu", "is_value ? p.value_scale : p.key_scale", "p.key_scale"),
        (K + "kv.cu", "((size_t)layer * p.n_blocks + block) * sizes.n_scales", "block * sizes.n_scales"),
        (K + "kv.cu", "at + sizes.block_bytes)};", "at)};"),
    ],
    "sample": [
        # numbers
        (K + "sample_math.cuh", "p = p * r + 1.0f;\n    const float y", "p = fmaf(p, r, 1.0f);\n    const float y"),
        (K + "sample_math.cuh", "return x >= -87.0f ? y : 0.0f;", "return y;",
         "a weight of 1e-38 is no share of anything, so that it is never drawn"),
        (K + "sample_math.cuh", "return __float2ull_rn(weight * SHARES_OF_ONE);", "return __float2ull_rn(weight * 0x1p20f);"),
        (K + "sample_math.cuh", "for (int k = 19; k >= 1; k -= 2)", "for (int k = 5; k >= 1; k -= 2)"),
        (K + "sample_math.cuh", "c[2] = (uint32_t)(a >> 32) ^ c[3] ^ key1;", "c[2] = (uint32_t)(a >> 32) ^ c[3] ^ key0;"),
        (K + "sample_math.cuh", "__float_as_uint(logit + 0.0f)", "__float_as_uint(logit)"),
        (K + "sample_math.cuh", "return bits >> 31 ? bits : 0x7fffffffu - bits;", "return 0x7fffffffu - bits;"),
        # the row
        (K + "sample_select.cuh", "lane < w.WARPS ? (unsigned)w.part[lane] : 0u", "lane < w.WARPS - 1 ? (unsigned)w.part[lane] : 0u"),
        (K + "sample_select.cuh", "x = lane < w.WARPS ? w.part[lane] : 0;", "x = lane <= w.WARPS ? w.part[lane] : 0;"),
        (K + "sample_select.cuh", "x = lane < w.WARPS ? w.part[lane] : 0;", "x = lane < w.WARPS - 1 ? w.part[lane] : 0;"),
        (K + "sample_select.cuh", "const uint32_t generated = count & ~SAMPLE_IN_PROMPT;", "const uint32_t generated = count;"),
        (K + "sample_select.cuh", "return ((to - from + WARPS - 1) / WARPS + unit - 1) / unit * unit;", "return (to - from) / WARPS / unit * unit;"),
        (K + "sample_select.cuh", "const int end = first + run < to ? first + run : to;", "const int end = first + run;"),
        (K + "sample_select.cuh", "if (id + a * STEP < end) logit[a] = load_vec<N>(row.logits + id + a * STEP);",
         "logit[a] = load_vec<N>(row.logits + id + a * STEP);"),
        (K + "sample_select.cuh", "if (id + a * STEP >= end) continue;", "if (id + a * STEP > end) continue;"),
        # histograms and selection
        (K + "sample_select.cuh", "    w.sum[threadIdx.x] = 0;\n", ""),
        (K + "sample_select.cuh", "    w.count[threadIdx.x] = 0;\n", ""),
        (K + "sample_select.cuh", "if (lane >= apart) upto", "if (lane > apart) upto"),
        (K + "sample_select.cuh", ">= wanted;\n}", "> wanted;\n}"),
        (K + "sample_select.cuh", "const int digit = first + (j + lane) % EACH;", "const int digit = first + (j + lane) % (EACH - 1);"),
        (K + "sample_select.cuh", "if (at < w.LIST) w.list[at] = key;", "w.list[at] = key;"),
        (K + "sample_select.cuh", "s.has_list = s.listed.count <= s.w.LIST;", "s.has_list = true;"),
        (K + "sample_select.cuh", "if (rank > floor) return;", "if (rank >= floor) return;",
         "a pair's best is left off the list; what is missing is found in the row, only later"),
        (K + "sample_select.cuh", "bool in_list = s.has_list && reaches(s.listed, by_sum, wanted);", "bool in_list = s.has_list;"),
        (K + "sample_select.cuh", "    s.has_list = false; /* what it held before is gone */\n", ""),
        (K + "sample_select.cuh", "if (!in_list && c.in.count <= s.w.LIST) {", "if (!in_list) {"),
        (K + "sample_select.cuh", "atomicAdd(&s.w.count[digit], 1u);", "s.w.count[digit] += 1;"),
        (K + "sample_select.cuh", "before = plus(before, c.before);\n        known", "before = c.before;\n        known"),
        (K + "sample_select.cuh", "if (!begins_with(key, known)) return;", ""),
        (K + "sample.cu", "const unsigned other = __shfl_xor_sync(FULL_MASK, own, 1);", "const unsigned other = NO_RANK;",
         "the list is longer than it needs to be, or overflows; the row has the rest"),
        # what is asked
        (K + "sample.cu", "return weight > 0.0f && weight >= min_p ?", "return weight > 0.0f && weight > min_p ?"),
        (K + "sample.cu", "logit > own || (id < 0 && logit == logit)", "logit > own"),
        (K + "sample.cu", "logit > own || (id < 0 && logit == logit)", "logit >= own"),
        (K + "sample.cu", "rank == least ? (unsigned)id : NO_RANK", "(unsigned)id"),
        (K + "sample.cu", "sum->rest += __float2ll_rn((scaled - whole) * 0x1p40f);", ""),
        (K + "sample.cu", "if (key <= last.key) winners", "if (key < last.key) winners"),
        (K + "sample.cu", "before += winners[i] < own;", "before += winners[i] <= own;"),
        (K + "sample.cu", "better += logit > chosen;", "better += logit >= chosen;"),
        (K + "sample.cu", "for (int i = 0; i < entry; i++)\n            if (id(i) == id(entry)) return false;", ""),
        (K + "sample.cu", "logit = i < c.n_bias ? logit + c.bias[i].bias : -INFINITY;",
         "logit = i < c.n_bias ? logits[id] + c.bias[i].bias : -INFINITY;"),
        (K + "sample.cu", "(uint64)(u * (double)total) + 1;", "(uint64)(u * (double)total);",
         "they part where a random number falls right on a border, one in 2^44 of them"),
        (K + "sample.cu", "return wanted > 1.0 ? (uint64)ceil(wanted) : 1;", "return (uint64)ceil(wanted);"),
        (K + "sample.cu", "return wanted > 1.0 ? (uint64)ceil(wanted) : 1;", "return wanted > 1.0 ? (uint64)wanted + 1 : 1;"),
        (K + "sample.cu", "*wanted -= w.crossing->before.sum;", ""),
        (K + "sample.cu", "(unsigned)t.top_k >= all.count", "(unsigned)t.top_k > all.count",
         "the whole is selected, which is the same, only later"),
        (K + "sample.cu", "(size_t)t.slot * b.V : nullptr", "(size_t)blockIdx.x * b.V : nullptr"),
        (K + "sample.cu", "restore_logits<THREADS>(changes, logits, kept);", ""),
        (K + "sample.cu", "if (t.slot >= 0) b.counts[(size_t)t.slot * b.V + id] += 1;", ""),
        (K + "sample.cu", "if (i < n_prompt)\n", "if (i <= n_prompt)\n"),
        (K + "sample.cu", "if (i >= n) return;", "if (i > n) return;"),
    ],
}


class Mutant:
    def __init__(self, subject, path, at, old, new, reason):
        self.subject, self.path, self.at, self.old, self.new, self.reason = subject, path, at, old, new, reason

    def text(self):
        source = read(self.path)
        line = source.count("\n", 0, self.at) + 1
        return f"{self.path}:{line}: {one_line(self.old)} -> {one_line(self.new) or '(nothing)'}"


def one_line(text):
    return " ".join(text.split())[:60]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def mutants_of(subject):
    for path in DROPS.get(subject, []):
        for match in SYNC.finditer(read(path)):
            yield Mutant(subject, path, match.start(), match[0], ";", None)
    for path, old, new, *reason in MUTANTS.get(subject, []):
        source = read(path)
        if source.count(old) != 1:
            sys.exit(f"{path}: {source.count(old)} places hold {old!r}; a mutant needs one")
        yield Mutant(subject, path, source.index(old), old, new, reason[0] if reason else None)


def commands_of(program):
    """The commands that build a program, the link last."""
    done = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", program], capture_output=True, text=True, check=True)
    return done.stdout.strip().split("\n")


def write_overlay(mutant):
    """The mutated file alone, in a tree of its own that is searched first. Returns its path."""
    source = read(mutant.path)
    path = os.path.join(WORK, "overlay", mutant.path)
    subprocess.run(["rm", "-rf", os.path.join(WORK, "overlay")], check=True)
    os.makedirs(os.path.dirname(path))
    with open(path, "w", encoding="utf-8") as file:
        file.write(source[:mutant.at] + mutant.new + source[mutant.at + len(mutant.old):])
    return path


def compile_unit(command, unit, mutant, path):
    """Compiles one kernel file with the mutant. Returns the object that it replaces and the new one, or None."""
    words = shlex.split(command)
    words = words[words[0].endswith("ccache"):]
    out = words.index("-o") + 1
    old, new = words[out], os.path.join(WORK, f"{unit}.o")
    words[out] = new
    if mutant.path == f"{K}{unit}.cu":
        words[-1] = path
    at = words.index("-MF")
    del words[at:at + 2]
    done = subprocess.run([words[0], "-I" + os.path.join(WORK, "overlay"), *words[1:]], cwd=BUILD, capture_output=True, text=True)
    print(done.stderr, end="")
    return None if done.returncode else (old, new)


def build(program, mutant, path):
    """Builds a test program with the mutant; False where that does not compile."""
    commands = commands_of(program)
    link = commands[-1].replace(f"-o tests/cuda/{program} ", f"-o {WORK}/{program} ")
    for unit in UNITS[mutant.subject]:
        command = next(c for c in commands if c.endswith(f"/{K}{unit}.cu"))
        objects = compile_unit(command, unit, mutant, path)
        if not objects:
            return False
        link = link.replace(f" {objects[0]} ", f" {objects[1]} ")
    return subprocess.run(link, shell=True, cwd=BUILD).returncode == 0


def run(program, seed):
    """What a run says: "" when all is well."""
    environment = {**os.environ, "CK_FORK": "no", "CUDA_EMU_SEED": str(seed)}
    try:
        done = subprocess.run([os.path.join(WORK, program)], cwd=ROOT, env=environment, capture_output=True, text=True,
                              timeout=TIMEOUT_S, errors="replace")
    except subprocess.TimeoutExpired:
        return "no end"
    kinds = sorted(set(re.findall(r"cuda_emu: ([a-z ]+[a-zA-Z]*):", done.stderr)))
    wrong = ["wrong result"] if re.search(r":[FE]:", done.stdout) else []
    return "" if done.returncode == 0 else ", ".join(kinds + wrong) or f"exit {done.returncode}"


def judge(mutant):
    """Who finds it: {"plain": ..., "checked": ...}; None where it does not compile."""
    path = write_overlay(mutant)
    program = f"cuda_{mutant.subject}"
    if not build(program, mutant, path) or not build(program + "_checked", mutant, path):
        return None
    plain = [run(program, seed) for seed in (1, 2)]
    return {"plain": next((p for p in plain if p), ""), "checked": run(program + "_checked", 1)}


def chosen(arguments):
    for argument in arguments or sorted(set(MUTANTS) | set(DROPS)):
        subject, _, number = argument.partition(":")
        mutants = list(mutants_of(subject))
        for i, mutant in enumerate(mutants):
            if not number or int(number) == i:
                yield f"{subject}:{i}", mutant


def main():
    total, plain, found, bad = 0, 0, 0, 0
    mutants = list(chosen(sys.argv[1:]))  # all are looked up before the first is made
    for name, mutant in mutants:
        finders = judge(mutant)
        total += 1
        if finders is None:
            print(f"{name:22} {mutant.text()}\n    DOES NOT COMPILE")
            bad += 1
            continue
        plain += bool(finders["plain"])
        caught = bool(finders["plain"] or finders["checked"])
        found += caught
        bad += caught == bool(mutant.reason)
        verdict = f"plain [{finders['plain']}] checked [{finders['checked']}]" if caught else "SURVIVED"
        print(f"{name:22} {mutant.text()}\n    {verdict}{': ' + mutant.reason if mutant.reason else ''}", flush=True)
    print(f"{total} mutants: {found} found ({found / max(total, 1):.0%}), {plain} of them by the plain build; "
          f"{total - found} survived, {bad} not as the table says")
    return 1 if bad or found < LEAST_SHARE * total else 0


if __name__ == "__main__":
    sys.exit(main())
