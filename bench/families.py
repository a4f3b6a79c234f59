"""Measures models of other shapes compared with llama.cpp, folders compared with files, and a vocabulary compared with
the library `tokenizers`.

    python3 bench/families.py [--only qwen3-0.6b folder vocabulary ...] [--repeats 3] [--out docs/measurements/NAME.json]

bench/shapes.py makes the models. Sides take turns in the order A B B A; llama.cpp has its usual settings (--tune: its
best). The works are short, so that the run takes six minutes on a quiet machine: one stream (tokens per second after
the first), one prompt of 512 tokens, 16 streams. A folder in bfloat16 is started, and a GGUF file of the same size,
both in the page cache. The peak of the memory is compared with the memory after an answer. `tokenizers` loads a
vocabulary of 262,144 tokens and encodes one text.
"""
import os
import pathlib
import re
import subprocess
import sys
import time

import judge
import llama
import machine
import runs
import served
import works

HERE = "build/bench-shapes"
MODELS = ("qwen3-0.6b", "gemma3-1b", "gpt2-124m", "qwen3moe-cut")
TYPES = ("q8_0", "q4_k")
FOLDER = "qwen3-0.6b"
MIB = 1 << 20
PYTHONS = ("build/oracle/venv/bin/python", "build/peers/grammar/bin/python")

STREAM = works.Work("stream", "one stream, 16 in 32 out", 16, 32)
PROMPT = works.Work("prompt", "one prompt of 512 tokens", 512, 1)
TOGETHER = works.Work("together", "16 at once, 32 in 24 out", 32, 24, users=16)
WARM_UP = works.Work("warm-up", "", 32, 4, users=2)


def decoded_per_s(requests):
    times = requests[0]["times"]
    return (len(times) - 1) / (times[-1] - times[0])


DECODE = works.Metric("decode", "tok/s", decoded_per_s)
WORKS = ((STREAM, DECODE, 1.2), (PROMPT, works.TTFT, 1.5), (TOGETHER, works.TOKENS, 1.5))

TOKENIZERS = """
import sys, time, tokenizers
text, least = sys.stdin.read(), [1e9, 1e9]
for _ in range(int(sys.argv[2])):
    begun = time.process_time()
    tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
    loaded = time.process_time()
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    least = [min(least[0], loaded - begun), min(least[1], time.process_time() - loaded)]
print(*least, len(ids))
"""


class Bench:
    def __init__(self, args):
        self.args, self.thrown, self.kept = args, 0, 0

    def measure(self, act, pids):
        """Returns act(attempt)'s result; that of the second run if the first was disturbed. Each has different prompts
        (bench/compare.py)."""
        for attempt in range(2):
            with machine.Watch(pids) as watch:
                result = act(attempt)
            if not watch.is_disturbed(self.args.limit):
                return result
            self.thrown += 1 - attempt
        self.kept += 1
        return result

    def in_turn(self, acts, pids=None):
        """Repeats acts, {name: function of the repeat}, in the order A B B A."""
        found = {name: [] for name in acts}
        for repeat in range(self.args.repeats):
            for name in list(acts) if repeat % 2 == 0 else reversed(acts):
                found[name].append(self.measure(lambda attempt, n=name: acts[n](repeat + works.AGAIN * attempt), pids and pids[name]))
        return found


def row(*parts):
    made = judge.make_row(*parts, machine.kind())
    judge.print_row(made)
    return made


def goal(against, hard):
    return [works.Goal(against, (hard, None), (hard, None))]


# ---- shapes -----------------------------------------------------------------------------------------------------

def step_bytes(binary, path):
    """Returns the bytes of the weights that a step of one token reads: of the layers that a token passes, and of the
    head."""
    text = subprocess.run([binary, "inspect", path], check=True, capture_output=True, text=True).stdout
    shape = machine.model_shape(binary, path)
    layers = re.search(r"a step of one token reads ([\d.]+) MiB of the layers", text)
    if not layers:
        return shape["weight_bytes"]
    tensors = subprocess.run([binary, "inspect", "--tensors", path], check=True, capture_output=True, text=True).stdout
    sizes = dict(re.findall(r"^  (\S+)\s+\S+\s+\[[^\]]*\]\s+(\d+) bytes", tensors, re.M))
    return int(float(layers[1]) * MIB) + int(sizes.get("output.weight", sizes["token_embd.weight"]))


def measure_shape(bench, name, kind, number, letter="F"):
    """One model in one type: three rows."""
    args, path, rows = bench.args, f"{HERE}/{name}-{kind}.gguf", []
    sides = [served.penstock(args.program, path, args.threads, "--max-model-len", "1024")]
    try:
        if llama.is_installed():
            sides.append(llama.Llama(args.threads, args.tune))
            sides[-1].load(path)
        pids = {side.name: [pid for one in sides for pid in one.pids()] for side in sides}
        for side in sides:
            side.prepare(WARM_UP)
            side.run(WARM_UP, 0)
        for part, (work, metric, hard) in enumerate(WORKS):
            for side in sides:
                side.prepare(work)
            found = bench.in_turn({side.name: lambda repeat, s=side: s.run(work, repeat) for side in sides}, pids)
            values = {side: [metric.of(requests) for requests in runs] for side, runs in found.items()}
            rows.append(row(f"{letter}{number}.{part + 1}", f"{name} {kind}", work.what, metric, values, goal("llama.cpp", hard)))
        rows[0]["step_bytes"] = step_bytes(args.program, path)
        print(f"{'':16} a step of one token reads {rows[0]['step_bytes'] / MIB:,.0f} MiB of weights: "
              f"{rows[0]['step_bytes'] * rows[0]['median']['penstock'] / 1e9:.1f} GB/s")
    finally:
        for side in sides:
            side.close()
    return rows


# ---- folders ----------------------------------------------------------------------------------------------------

def memory_of(pid):
    """Returns (peak, now) of a process's memory, in bytes."""
    with open(f"/proc/{pid}/status") as f:
        lines = dict(re.findall(r"^(VmHWM|VmRSS):\s+(\d+) kB", f.read(), re.M))
    return int(lines["VmHWM"]) * 1024, int(lines["VmRSS"]) * 1024


def start(bench, path, seen):
    """Milliseconds from exec to ready; the memory goes to `seen`."""
    server = served.penstock(bench.args.program, path, bench.args.threads, "--max-model-len", "1024")
    taken = (time.perf_counter() - server.began) * 1e3
    server.run(WARM_UP, 0)
    seen.append(memory_of(server.process.pid))
    server.close()
    return taken


def read_anew(path):
    """Reads the file into the page cache again: the size of the cache's pieces depends on how it was filled."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while file.read(1 << 24):
            pass


def measure_folder(bench):
    folder, file, seen = f"{HERE}/{FOLDER}", f"{HERE}/{FOLDER}-bf16.gguf", []
    for path in (f"{folder}/model.safetensors", file):
        read_anew(path)
    values = bench.in_turn({"penstock": lambda repeat: start(bench, folder, seen), "its GGUF": lambda repeat: start(bench, file, [])})
    extra = [(most - now) / MIB for most, now in seen]
    ready = works.Metric("ready", "ms", None, True)
    below = works.Metric("memory", "MiB that the most is below what is served + 64", None)
    return [row("F9.1", f"{FOLDER} bf16", "a folder, exec to ready", ready, values, goal("its GGUF", 0.97)),
            row("F9.2", f"{FOLDER} bf16", "memory while a folder is loaded", below,
                {"penstock": [64 - value for value in extra]}, goal(None, 0))]


# ---- text -------------------------------------------------------------------------------------------------------

def measure_vocabulary(bench):
    """The least processor times of several loads and encodings, in one process per side."""
    folder = f"{HERE}/vocabulary"
    python = next((path for path in (bench.args.tokenizers, *PYTHONS) if path and os.path.exists(path)), None)
    if not python:
        print("vocabulary: no Python here has the package tokenizers (bench/peers.sh grammar installs one)")
        return []
    text = b"".join(path.read_bytes() for path in [pathlib.Path("bench/accuracy.txt"), *sorted(pathlib.Path("docs").glob("*.md"))])
    commands = {"penstock": ["build/tokens", folder, "3"],
                "tokenizers": [python, "-c", TOKENIZERS, f"{folder}/tokenizer.json", "3"]}
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}

    def run(name):
        done = subprocess.run(commands[name], input=text, capture_output=True, check=True, env=environment)
        return [float(word) for word in done.stdout.split()]

    found = bench.in_turn({name: lambda repeat, n=name: run(n) for name in commands})
    ids = {name: {int(one[2]) for one in runs} for name, runs in found.items()}
    if ids["penstock"] != ids["tokenizers"]:
        sys.exit(f"families.py: the two sides gave different numbers of ids: {ids}")
    load = works.Metric("load", "ms", None, True)
    encode = works.Metric("encode", "MB/s", None)
    return [row("F10.1", "262k", "a vocabulary of 262,144 tokens", load,
                {name: [1e3 * one[0] for one in runs] for name, runs in found.items()}, goal("tokenizers", 1)),
            row("F10.2", "262k", f"a text of {len(text):,} bytes, one thread", encode,
                {name: [len(text) / 1e6 / one[1] for one in runs] for name, runs in found.items()}, goal("tokenizers", 1))]


# ---- the whole --------------------------------------------------------------------------------------------------

def parts():
    """Returns {name for --only: (its requirements, its function)}."""
    made = {"vocabulary": (f"{HERE}/vocabulary/tokenizer.json", measure_vocabulary),
            "folder": (f"{HERE}/{FOLDER}-bf16.gguf", measure_folder)}
    for i, (name, kind) in enumerate((name, kind) for name in MODELS for kind in TYPES):
        made[f"{name}-{kind}"] = (f"{HERE}/{name}-{kind}.gguf", lambda bench, n=name, k=kind, i=i: measure_shape(bench, n, k, i + 1))
    return made


def run_parts(doc, parts, maker, seconds):
    """Measures the parts that the command line asks for and whose files exist."""
    parser = runs.options(doc, repeats=3, threads=runs.two_threads(), model=False)
    parser.add_argument("--only", nargs="+", default=[], metavar="PART", help="beginnings of: " + ", ".join(parts))
    parser.add_argument("--seconds", type=int, default=seconds, help="parts that have not begun by then are left out")
    parser.add_argument("--limit", type=float, default=.05, help="share of the machine's time that others may take in a repeat")
    parser.add_argument("--tune", action="store_true", help="find llama.cpp's best settings first")
    parser.add_argument("--tokenizers", metavar="PYTHON", help="one that has the package tokenizers")
    args = parser.parse_args()
    bench, begun = Bench(args), time.perf_counter()
    report = {**runs.begin(args), "rows": []}
    for name, (needed, measure) in parts.items():
        if args.only and not any(name.startswith(one) for one in args.only):
            continue
        if not os.path.exists(needed):
            print(f"{name}: cannot find {needed}; {maker} makes it")
            continue
        if time.perf_counter() - begun > args.seconds:
            print(f"{name}: left out, {args.seconds} s have passed")
            continue
        report["rows"] += measure(bench)
    report |= {"seconds": time.perf_counter() - begun, "thrown_away": bench.thrown, "kept_disturbed": bench.kept}
    reached = [goal["reached"] != "no" for one in report["rows"] for goal in one["goals"]]
    print(f"{sum(reached)} of {len(reached)} goals reached; {report['seconds']:.0f} s, {bench.thrown} disturbed repeats were done again, "
          f"{bench.kept} of them were disturbed once more")
    runs.write(args, report)


if __name__ == "__main__":
    run_parts(__doc__, parts(), "bench/shapes.py", seconds=300)
