"""Perplexity and KL divergence from float32, for all file types and CPU paths, compared with peers on the same weights.

    build/peers/llama.cpp/bin/python bench/accuracy.py [--windows 6] [--text FILE ...] [--out docs/measurements/NAME.json] [TYPE ...]

bench/accuracy.txt (an older state of this project's documents), or other texts one after another, is divided into
windows of 512 tokens. Each is a separate text, and the prediction after each token from the 64th is scored. The
reference is the same file in Penstock's oracle mode: weights, activations and cache in float32
(tests/engine/test_golden.c compares that with transformers). The best path computes all windows. The other paths
compute the beginnings of the first ones, and all their bytes are compared with the best path's. Then all sides continue
beginnings of the same text greedily, and their tokens are compared with the reference's. A TYPE in small letters is one
of `penstock quantize`. Its file is made from the default model's halves unless it exists.
"""
import dataclasses
import os
import subprocess

import numpy as np

import direct
import extras
import gguf_file
import llama
import runs
import served
import works

WINDOW, FIRST, PATH_TOKENS = 512, 63, 64
CACHES = ["q8_0", "float16"]  # in addition to the default, int16
TYPES = ["Q4_1", "Q4_0", "Q8_0", "Q4_K_M", "BF16", "F16"]
QUANTIZE = ["q8_0", "q6_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0"]
FILES = "build/bench-models"


class Ours:
    """Runs build/logits with one model, mode, path and type of cache."""

    def __init__(self, model, dtype, threads, path=None, cache="auto"):
        environment = {**os.environ, **({"PENSTOCK_CPU": path} if path else {})}
        self.process = subprocess.Popen(["build/logits", model, dtype, str(threads), cache], env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def rows(self, ids, V):
        self.process.stdin.write((" ".join(map(str, ids)) + "\n").encode())
        self.process.stdin.flush()
        data = self.process.stdout.read(len(ids) * V * 4)
        if len(data) < len(ids) * V * 4:
            raise SystemExit(f"accuracy.py: build/logits ended with code {self.process.wait()}")
        return np.frombuffer(data, np.float32).reshape(len(ids), V)

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)


class Theirs:
    """A peer, whose worker writes logits to a file."""
    FILE = "build/accuracy.f32"

    def __init__(self, peer):
        self.peer = peer

    def rows(self, ids, V):
        self.peer.scores(ids, self.FILE)
        return np.fromfile(self.FILE, np.float32).reshape(len(ids), V)

    def close(self):
        self.peer.close()
        if os.path.exists(self.FILE):
            os.remove(self.FILE)


def llama_side(model, threads):
    side = llama.Llama(threads, is_tuned=False)
    side.load(model)
    side.worker.ask("context", n_ctx=WINDOW, n_seq_max=1, n_batch=WINDOW, n_ubatch=WINDOW, n_threads=threads,
                    n_threads_batch=threads, flash_attn_type=1, kv_unified=True)
    return side


def peers_of(args, file_type, model):
    """Returns the functions that start each installed peer that reads the file, by name."""
    peers = {}
    if llama.is_installed():
        peers["llama.cpp"] = lambda: llama_side(model, args.threads)
    if file_type == "Q4_1":
        peers |= direct.available(model, args.threads)
    return peers


@dataclasses.dataclass(frozen=True)
class Beginnings(works.Work):
    """Prompts from a text."""
    ids: tuple = ()

    def queues(self, repeat):
        prompts = self.users * self.queue_length
        starts = [i * (len(self.ids) - self.n_in) // prompts for i in range(prompts)]
        return [[list(self.ids[at:at + self.n_in]) for at in starts[user::self.users]] for user in range(self.users)]


def answers(side, work):
    """Returns the tokens of all answers, in the order of users and of their prompts."""
    side.prepare(work)
    return [r["tokens"] for r in sorted(side.tokens(work, 0), key=lambda r: r["user"])]


def greedy(args, model, peers, ids):
    """Counts how many tokens of each answer equal the reference's, up to the first different one."""
    work = Beginnings("beginnings", "", 32, 32, users=10, queue_length=args.prompts // 10, ids=tuple(ids))

    def ours(*flags):
        return served.penstock(args.program, model, args.threads, "--kv-cache-memory", "512MiB", *flags)

    found, exact = {}, None
    for who, make in {"float32": lambda: ours("--dtype", "float32"), "penstock": ours, **peers}.items():
        side = make()
        tokens = answers(side, work)
        side.close()
        exact = exact or tokens
        found[who] = [extras.equal_leading(a, b) for a, b in zip(tokens, exact)]
    return {"of": work.n_out, "equal": found}


def log_softmax(rows):
    rows = rows.astype(np.float64)
    rows -= rows.max(axis=1, keepdims=True)
    rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
    return rows


class Score:
    """The sums over the windows."""

    def __init__(self):
        self.nll, self.kl, self.differ, self.window_kl = [], [], 0, []

    def add(self, rows, reference, targets):
        """`rows` and `reference` are logprobs [n][V]."""
        self.nll += (-rows[np.arange(len(rows)), targets]).tolist()
        kl = (np.exp(reference) * (reference - rows)).sum(axis=1)
        self.kl += kl.tolist()
        self.window_kl.append(float(kl.mean()))
        self.differ += int((rows.argmax(axis=1) != reference.argmax(axis=1)).sum())

    def result(self, who):
        return {"who": who, "perplexity": float(np.exp(np.mean(self.nll))), "mean_kl": float(np.mean(self.kl)),
                "window_kl": self.window_kl, "p99_kl": float(np.percentile(self.kl, 99)),
                "best_token_differs": self.differ / len(self.kl), "tokens": len(self.kl)}


def cpu_paths(binary):
    text = subprocess.run([binary, "version"], check=True, capture_output=True, text=True).stdout
    return text.split("CPU paths of this machine:")[1].split("\n")[0].split()


def token_ids(binary, model, *paths):
    """Returns the ids of texts one after another."""
    ids = []
    for path in paths:
        with open(path, encoding="utf-8") as f:
            text = subprocess.run([binary, "tokenize", "--model", model], check=True, stdin=f, stdout=subprocess.PIPE,
                                  text=True).stdout
        ids += [int(line.split()[0]) for line in text.splitlines()[:-1]]
    return ids


def same_bytes(args, model, path, windows, expected, V):
    """Does a path give the same bytes as the best one? Compares a few tokens only, because a path may be slow."""
    other = Ours(model, "auto", args.threads, path)
    equal = [other.rows(ids[:PATH_TOKENS], V).tobytes() == rows for ids, rows in zip(windows, expected)]
    other.close()
    return {"path": path, "windows": len(equal), "same_bytes": all(equal)}


def measure(args, name, model, windows, ids):
    """All scores of one file."""
    paths, peers = cpu_paths(args.program), peers_of(args, name, model)
    reference = Ours(model, "float32", args.threads)
    sides = {f"penstock {paths[0]}": Ours(model, "auto", args.threads, paths[0])}
    if name == "Q4_1":
        sides |= {f"penstock, {cache} cache": Ours(model, "auto", args.threads, paths[0], cache) for cache in CACHES}
    sides |= {who: Theirs(make()) for who, make in peers.items()}
    scores, kept = {"float32": Score(), **{who: Score() for who in sides}}, []
    for window in windows:
        targets = window[FIRST + 1:]
        exact = log_softmax(reference.rows(window, args.vocabulary)[FIRST:-1])
        scores["float32"].add(exact, exact, targets)
        for who, side in sides.items():
            rows = side.rows(window, args.vocabulary)
            scores[who].add(log_softmax(rows[FIRST:-1]), exact, targets)
            if who == f"penstock {paths[0]}" and len(kept) < args.path_windows:
                kept.append(rows[:PATH_TOKENS].tobytes())
    for side in [reference, *sides.values()]:
        side.close()
    others = [same_bytes(args, model, path, windows, kept, args.vocabulary) for path in paths[1:] if kept]
    return {"type": name, "scores": [score.result(who) for who, score in scores.items()], "paths": others,
            "greedy": greedy(args, model, peers, ids)}


def file_of(args, name):
    """Returns the file of a type. Penstock's own types are made; None: bench/models.py must make the file."""
    if name == "Q4_1":
        return args.model
    path, source = f"{FILES}/{'quantize-' if name in QUANTIZE else ''}{name}.gguf", f"{FILES}/halves.gguf"
    if name in QUANTIZE and not os.path.exists(path):
        if not os.path.exists(source):
            os.makedirs(FILES, exist_ok=True)
            gguf_file.GGUF(args.model).write_halves(source)
        subprocess.run([args.program, "quantize", source, path, "--type", name], check=True)
    return path if os.path.exists(path) else None


def print_result(result):
    for score in result["scores"]:
        print(f"{result['type']:<7} {score['who']:<22} perplexity {score['perplexity']:.4f}  "
              f"mean KL {score['mean_kl']:.6f}  p99 {score['p99_kl']:.5f}  "
              f"best token differs in {score['best_token_differs']:.2%} of {score['tokens']}", flush=True)
    for path in result["paths"]:
        bytes_are = "the same bytes" if path["same_bytes"] else "OTHER BYTES"
        print(f"{result['type']:<7} penstock {path['path']}: {bytes_are} in {path['windows']} windows", flush=True)
    of = result["greedy"]["of"]
    for who, equal in result["greedy"]["equal"].items():
        print(f"{result['type']:<7} {who:<22} greedy tokens before a first difference: {np.mean(equal):.1f} of {of}, "
              f"{sum(n == of for n in equal)} of {len(equal)} answers whole", flush=True)


def write(args, windows, results):
    """Called after each type, because all of them together take long."""
    runs.write(args, {"text": " ".join(args.text), "window": WINDOW, "first": FIRST + 1, "windows": len(windows), "types": results})


def main():
    parser = runs.options(__doc__, threads=runs.two_threads())
    parser.add_argument("types", nargs="*", default=TYPES, metavar="TYPE", help=", ".join(TYPES + QUANTIZE))
    parser.add_argument("--text", nargs="+", default=["bench/accuracy.txt"], metavar="FILE")
    parser.add_argument("--windows", type=int, default=6)
    parser.add_argument("--path-windows", type=int, default=1, help="of the paths that are not the best one")
    parser.add_argument("--prompts", type=int, default=100, help="beginnings that are continued, a multiple of 10")
    parser.add_argument("--vocabulary", type=int, default=49152)
    args = parser.parse_args()
    subprocess.run(["docker/build.sh", "release", str(args.threads), "logits"], check=True)
    ids = token_ids(args.program, args.model, *args.text)
    windows = [ids[at:at + WINDOW] for at in range(0, len(ids) - WINDOW + 1, WINDOW)][:args.windows]
    results = []
    for name in args.types:
        if model := file_of(args, name):
            results.append(measure(args, name, model, windows, ids))
            print_result(results[-1])
            write(args, windows, results)
        else:
            print(f"{name}: {FILES}/{name}.gguf does not exist; bench/models.py makes it")


if __name__ == "__main__":
    main()
