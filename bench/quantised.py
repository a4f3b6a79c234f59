"""Compares files that `penstock quantize` writes with those of llama.cpp's quantiser: `make bench-quantised`.

    build/peers/llama.cpp/bin/python bench/quantised.py [--parts loads quality making loading] [--types q8_0 ...] [--out NAME.json]

The source is the default model decoded to halves, as a GGUF file and as a folder (bench/hf_folder.py), in
build/quantised.

    loads    llama.cpp loads each file, made of either source, and computes what Penstock computes of it
    quality  perplexity, and KL from the source, of each type's file and of llama.cpp's, all in float32 arithmetic
    making   time and memory of making a file, compared with llama.cpp's quantiser with as many threads
    loading  serving the source with --quantization, compared with reading its bytes and with serving it unchanged
"""
import json
import os
import subprocess
import sys

import numpy as np

import accuracy
import gguf_file
import hf_folder
import machine
import runs

FOLDER = "build/quantised"
SOURCES = {"GGUF": f"{FOLDER}/F16.gguf", "folder": f"{FOLDER}/folder"}
TYPES = ["q8_0", "q6_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0"]
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 12: (256, 144), 14: (256, 210)}


# ---- making files ---------------------------------------------------------------------------------------------

def make_sources(model):
    if not os.path.exists(SOURCES["GGUF"]):
        os.makedirs(FOLDER, exist_ok=True)
        gguf_file.GGUF(model).write_halves(SOURCES["GGUF"])
    if not os.path.exists(SOURCES["folder"]):
        hf_folder.from_gguf(gguf_file.GGUF(SOURCES["GGUF"]), SOURCES["folder"])


# A child's largest memory starts at that of the process that forked it, so this one is small.
LAUNCH = """
import json, resource, subprocess, sys, time
began = time.perf_counter()
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
seconds, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({"code": code, "seconds": seconds, "cpu_s": used.ru_utime + used.ru_stime, "memory_bytes": used.ru_maxrss * 1024}))
"""


def timed(command):
    """Runs a command to its end. Returns its seconds, processor time and largest memory."""
    found = json.loads(subprocess.run([sys.executable, "-SE", "-c", LAUNCH, *command], check=True, capture_output=True,
                                      text=True).stdout)
    if found.pop("code"):
        raise SystemExit(f"quantised.py: {' '.join(command)} failed")
    return found


def ours(args, source, kind):
    """Returns the path of Penstock's file of a type, and the cost of making it."""
    out = f"{FOLDER}/{kind}-{source}.gguf"
    if os.path.exists(out):
        os.remove(out)
    return out, timed([args.program, "quantize", SOURCES[source], out, "--type", kind, "--threads", str(args.threads)])


def theirs(args, kind):
    out = f"{FOLDER}/{kind}-llama.cpp.gguf"
    done = subprocess.run([sys.executable, "bench/llama_quantise.py", SOURCES["GGUF"], out, kind, str(args.threads)], check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return out, json.loads(done.stdout)


def data(file, name):
    """A tensor's bytes."""
    kind, shape, offset = file.tensors[name]
    numbers, size = BLOCKS[kind]
    return file.data[file.start + offset:file.start + offset + int(np.prod(shape)) // numbers * size]


def equal_tensors(path, other):
    """How many tensors of two files have the same type and bytes."""
    a, b = gguf_file.GGUF(path), gguf_file.GGUF(other)
    same = sum(a.tensors[name][0] == b.tensors[name][0] and np.array_equal(data(a, name), data(b, name)) for name in a.tensors)
    return {"same": same, "of": len(a.tensors), "types_equal": all(a.tensors[n][0] == b.tensors[n][0] for n in a.tensors)}


# ---- loads ----------------------------------------------------------------------------------------------------

LENGTH, MOST_KL = 64, .05  # both round inputs to 8 bits, but differently


def divergence(args, path, ids):
    """Returns the mean KL between Penstock's results for a file and llama.cpp's. Ends if llama.cpp does not load the
    file."""
    own, peer = accuracy.Ours(path, "auto", args.threads), accuracy.Theirs(accuracy.llama_side(path, args.threads))
    a, b = (accuracy.log_softmax(side.rows(ids, args.vocabulary)) for side in (own, peer))
    own.close()
    peer.close()
    return float((np.exp(a) * (a - b)).sum(axis=1).mean())


def loads(args, windows):
    rows = []
    for kind in args.types:
        for source in SOURCES:
            path, _ = ours(args, source, kind)
            kl = divergence(args, path, windows[0][:LENGTH])
            rows.append({"type": kind, "from": source, "bytes": os.path.getsize(path), "mean_kl": kl, "loads": kl < MOST_KL})
            print(f"loads    {kind:5} of {source:7} llama.cpp computes the same to a mean KL of {kl:.5f}"
                  f"{'' if kl < MOST_KL else ', TOO FAR'}", flush=True)
    return rows


# ---- quality --------------------------------------------------------------------------------------------------

def score(args, path, windows, exact):
    """Scores one file, in float32; `exact` are the source's logprobs per window, or None for the source itself."""
    side, found, kept = accuracy.Ours(path, "float32", args.threads), accuracy.Score(), []
    for i, window in enumerate(windows):
        rows = accuracy.log_softmax(side.rows(window, args.vocabulary)[accuracy.FIRST:-1])
        found.add(rows, exact[i] if exact else rows, window[accuracy.FIRST + 1:])
        kept.append(rows)
    side.close()
    return found, kept


def quality(args, windows):
    source, exact = score(args, SOURCES["GGUF"], windows, None)
    rows = [source.result("source")]
    print(f"quality  F16   perplexity {rows[0]['perplexity']:.4f}", flush=True)
    for kind in args.types:
        mine, other = ours(args, "GGUF", kind)[0], theirs(args, kind)[0]
        row = {"type": kind, "equal_tensors": equal_tensors(mine, other)}
        for who, path in ("penstock", mine), ("llama.cpp", other):
            row[who] = score(args, path, windows, exact)[0].result(who)
        row["perplexity_ratio"] = row["penstock"]["perplexity"] / row["llama.cpp"]["perplexity"]
        rows.append(row)
        same = row["equal_tensors"]
        print(f"quality  {kind:5} perplexity {row['penstock']['perplexity']:.4f}, llama.cpp {row['llama.cpp']['perplexity']:.4f} "
              f"({row['perplexity_ratio'] - 1:+.2%}); mean KL {row['penstock']['mean_kl']:.6f}, {row['llama.cpp']['mean_kl']:.6f}; "
              f"{same['same']} of {same['of']} tensors have the same bytes"
              f"{'' if same['types_equal'] else ', TYPES DIFFER'}", flush=True)
    return rows


# ---- making and loading ---------------------------------------------------------------------------------------

def least(runs):
    """Returns the least of each figure, because other work on the machine only adds."""
    return {name: min(run[name] for run in runs) for name in runs[0]}


def making(args, _windows):
    rows = []
    for kind in args.types:
        turns = [(ours(args, "GGUF", kind), theirs(args, kind)) for _ in range(args.repeats)]
        mine, other = (least([turn[i][1] for turn in turns]) for i in range(2))
        size = os.path.getsize(turns[0][0][0])
        rows.append({"type": kind, "bytes": size, "penstock": mine, "llama.cpp": other})
        print(f"making   {kind:5} {mine['seconds']:.2f} s ({mine['cpu_s']:.2f} of processors, {mine['memory_bytes'] / 2**20:.0f} MiB), "
              f"llama.cpp {other['seconds']:.2f} s ({other['cpu_s']:.2f}, {other['memory_bytes'] / 2**20:.0f} MiB): "
              f"{other['seconds'] / mine['seconds']:.2f} times as fast, by processors {other['cpu_s'] / mine['cpu_s']:.2f}", flush=True)
    return rows


def forget(path):
    """Removes a file from the page cache."""
    with open(path, "rb") as f:
        os.fdatasync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def loading(args, _windows):
    """From exec to the first token. The file is not in the page cache, as after a download; with --warm it is."""
    path = os.path.join(args.folder, "model.safetensors")
    run = [args.program, "run", "--model", args.folder, "--threads", str(args.threads), "--max-tokens", "1", "--temperature", "0"]
    acts = {"reading": ["dd", f"if={path}", "of=/dev/null", "bs=1M"], "as it is": [*run, "water"]}
    acts |= {kind: [*run, "--quantization", kind, "water"] for kind in args.types}
    found = {name: [] for name in acts}
    for _ in range(args.repeats):
        for name, command in acts.items():
            if not args.warm:
                forget(path)
            found[name].append(timed(command))
    rows = [{"what": name, **least(runs)} for name, runs in found.items()]
    for row in rows:
        print(f"loading  {row['what']:8} {row['seconds']:.2f} s ({row['cpu_s']:.2f} of processors, "
              f"{row['memory_bytes'] / 2**20:.0f} MiB): {row['seconds'] / rows[0]['seconds']:.2f} times reading", flush=True)
    return rows


PARTS = {"loads": loads, "quality": quality, "making": making, "loading": loading}


def main():
    parser = runs.options(__doc__, repeats=3, threads=runs.two_threads())
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--types", nargs="+", default=TYPES, choices=TYPES)
    parser.add_argument("--text", default="bench/accuracy.txt")
    parser.add_argument("--windows", type=int, default=3, help=f"of {accuracy.WINDOW} tokens, for the perplexity")
    parser.add_argument("--folder", default=SOURCES["folder"], help="that is loaded, a larger one for example (bench/shapes.py)")
    parser.add_argument("--warm", action="store_true", help="load files that are in the page cache")
    parser.add_argument("--vocabulary", type=int, default=49152)
    args = parser.parse_args()
    subprocess.run(["docker/build.sh", "release", str(args.threads), "logits"], check=True)
    make_sources(args.model)
    ids = accuracy.token_ids(args.program, args.model, args.text)
    windows = [ids[at:at + accuracy.WINDOW] for at in range(0, len(ids) - accuracy.WINDOW + 1, accuracy.WINDOW)]
    report = {}
    if args.out and os.path.exists(args.out):
        with open(args.out) as f:
            report = json.load(f)
    report["machine"], report["threads"] = machine.describe(), args.threads
    for part in args.parts:
        report[part] = {"load": machine.load(), "rows": PARTS[part](args, windows[:args.windows])}
        runs.write(args, report)


if __name__ == "__main__":
    main()
