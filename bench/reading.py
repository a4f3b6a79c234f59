"""Measures answers that are read: embeddings beside llama.cpp, questions over one state, streams beside embeddings, encoders.

    python3 bench/reading.py [--program build/penstock] [--model models/....gguf] [--threads 2] [--repeats 5] [--texts 256] [--out FILE]
        [--rows C19a C19b C19c C19d]

C19a is the time of 256 texts of 128 tokens as embeddings: llama.cpp's (bench/peers.sh llama.cpp; it has no server and no
HTTP) divided by ours, in turns. Goal: 3. C19b is the time of eight questions on a new state of 800 tokens divided by that of
one question on another new state. Goal: at most 1.3. C19c is the p99 of the inter-token latency of 16 streams while texts are
embedded without pause, divided by that of the streams alone. Goal: at most 1.3. C19d is the time of the texts through encoders
of random weights in Q8_0, with the shapes of BERT base and MiniLM: that of the fastest of llama.cpp (the same file), ONNX
Runtime and OpenVINO (both int8), divided by ours. Goal: 1.5. Its files and ONNX Runtime are those of `bench/peers.sh onnxruntime`,
OpenVINO is that of `bench/peers.sh openvino`; each peer that is not installed is left out. Figures are medians of the repeats.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import threading
import time

import machine
import runs
import served

LLAMA, ONNX, OPENVINO = (f"build/peers/{name}/bin/python" for name in ("llama.cpp", "onnxruntime", "openvino"))
ENCODER_PEERS = ("llama.cpp", "ONNX Runtime", "OpenVINO")
MODELS = "build/bench-models"  # bench/encoder_files.py
ENCODERS = ("bert-base", "minilm")
N_TOKENS = 128
N_AT_ONCE = 32  # texts of a request beside streams
N_STATE, N_QUESTIONS = 800, 8
N_STREAMS, N_OUT = 16, 128
WORDS = "river bridge harbour storm captain letter winter garden signal mountain engine copper market window lantern valley".split()


def text_of(server, seed, n):
    """A text of n tokens that no other seed has."""
    draw = random.Random(seed)
    words = " ".join(draw.choice(WORDS) for _ in range(n + 16))
    ids = server.post("/tokenize", {"prompt": words, "add_special_tokens": False})["tokens"][:n]
    return server.post("/detokenize", {"tokens": ids})["prompt"]


def seconds(server, path, body):
    began = time.perf_counter()
    server.post(path, body)
    return time.perf_counter() - began


# ---- embeddings ---------------------------------------------------------------------------------

class Peer:
    """A library in a process of its own, or nothing if it is not installed."""

    def __init__(self, python, script, **load):
        self.process = None
        if not os.path.exists(python):
            print(f"{python} is absent: `bench/peers.sh {python.split('/')[2]}` installs the peer", flush=True)
            return
        self.process = subprocess.Popen([python, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ask("load", **load)

    def ask(self, act, **more):
        self.process.stdin.write(json.dumps({"do": act, **more}) + "\n")
        self.process.stdin.flush()
        found = json.loads(self.process.stdout.readline())
        if "error" in found:
            raise RuntimeError(found["error"])
        return found

    def embed(self, **given):
        return self.ask("embed", **given)["seconds"] if self.process else None

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait(60)


def embeddings(args):
    """[(our seconds, llama.cpp's or None) of each repeat]."""
    peer, found = Peer(LLAMA, "bench/llama_embed.py", model=args.model, threads=args.threads, n_batch=2048), []
    with runs.Server(args, "--threads", str(args.threads), "--warm-up") as server:
        texts = [text_of(server, seed, N_TOKENS) for seed in range(args.texts)]
        for repeat in range(args.repeats + 1):  # the first warms up
            mine = seconds(server, "/v1/embeddings", {"input": texts, "cache_salt": f"repeat {repeat}"})
            theirs = peer.embed(texts=texts)
            found += [(mine, theirs)] if repeat else []
    peer.close()
    return found


# ---- encoders -----------------------------------------------------------------------------------

def encoder_ids(server, n_texts):
    """Ids of texts of N_TOKENS words of the vocabulary, with the tokens around them; and the texts, for llama.cpp."""
    names = server.post("/detokenize", {"tokens": list(range(1000, 30000, 29))})["prompt"].split()
    texts = [" ".join(random.Random(seed).choices(names, k=N_TOKENS - 2)) for seed in range(n_texts)]
    ids = [server.post("/tokenize", {"prompt": text})["tokens"] for text in texts]
    if any(len(row) != N_TOKENS for row in ids):
        raise RuntimeError("a word of the vocabulary is not one token")
    return ids, texts


def encoder(args, name):
    """[(our seconds, and those of each of ENCODER_PEERS or None) of each repeat]."""
    args = argparse.Namespace(**{**vars(args), "model": f"{MODELS}/{name}.gguf"})
    llama = Peer(LLAMA, "bench/llama_embed.py", model=args.model, threads=args.threads, n_batch=2048, pooling="mean")
    onnx = Peer(ONNX, "bench/onnx_worker.py", model=f"{MODELS}/{name}.onnx", threads=args.threads, batch=N_AT_ONCE)
    openvino = Peer(OPENVINO, "bench/openvino_encoder.py", model=args.model, threads=args.threads, batch=N_AT_ONCE)
    found = []
    with runs.Server(args, "--threads", str(args.threads), "--warm-up") as server:
        ids, texts = encoder_ids(server, args.texts)
        for repeat in range(args.repeats + 1):
            mine = seconds(server, "/v1/embeddings", {"input": ids})
            theirs = llama.embed(texts=texts), onnx.embed(ids=ids), openvino.embed(ids=ids)
            found += [(mine, *theirs)] if repeat else []
    for peer in (llama, onnx, openvino):
        peer.close()
    return found


# ---- decisions ----------------------------------------------------------------------------------

def question(i):
    return {"type": "predicate", "instructions": f"The text names a {WORDS[i]} before any {WORDS[i + 1]}."}


def decisions(args):
    """[(seconds of one question, of eight, and of the eight again while the state is cached) of each repeat]."""
    found = []
    with runs.Server(args, "--threads", str(args.threads), "--warm-up") as server:
        for repeat in range(args.repeats + 1):
            states = [text_of(server, f"state {repeat} {i}", N_STATE) for i in range(2)]
            bodies = [{"input": state, "questions": [question(i) for i in range(n)]} for state, n in zip(states, (1, N_QUESTIONS))]
            one, eight = (seconds(server, "/v1/decisions", body) for body in bodies)
            again = seconds(server, "/v1/decisions", bodies[1])
            found += [(one, eight, again)] if repeat else []
    return found


# ---- streams beside embeddings ------------------------------------------------------------------

class Streams:
    """The work of served.Served.run: one prompt for each user."""

    n_out = N_OUT

    def __init__(self, prompts):
        self.prompts = prompts

    def queues(self, repeat):
        return [[f"{repeat}. {prompt}"] for prompt in self.prompts]


def p99_ms(results):
    gaps = sorted(b - a for result in results for a, b in zip(result["times"], result["times"][1:]))
    return gaps[int(0.99 * (len(gaps) - 1))] * 1e3


def beside(server, texts, stop):
    turn = 0
    while not stop.is_set():
        server.post("/v1/embeddings", {"input": texts, "cache_salt": f"turn {turn}"})
        turn += 1


def streams(args):
    """[(ITL p99 alone, beside embeddings) of each repeat], in milliseconds."""
    found = []
    with runs.Server(args, "--threads", str(args.threads), "--warm-up", "--served-model-name", "m") as server:
        client = served.Served("penstock", server.url, "m")
        work = Streams([text_of(server, f"stream {i}", 32) for i in range(N_STREAMS)])
        texts = [text_of(server, seed, N_TOKENS) for seed in range(N_AT_ONCE)]
        for repeat in range(args.repeats + 1):
            alone = p99_ms(client.run(work, f"alone {repeat}"))
            stop = threading.Event()
            job = threading.Thread(target=beside, args=(server, texts, stop))
            job.start()
            both = p99_ms(client.run(work, f"both {repeat}"))
            stop.set()
            job.join()
            found += [(alone, both)] if repeat else []
    return found


# ---- the report ---------------------------------------------------------------------------------

def ratio(pairs):
    return [a / b for a, b in pairs]


def report_embeddings(args, figures):
    found = embeddings(args)
    figures["embeddings_s"] = found
    print(f"{args.texts} texts of {N_TOKENS} tokens: {runs.spread([mine for mine, _ in found])} s", flush=True)
    if found[0][1] is not None:
        figures["C19a"] = statistics.median(ratio((theirs, mine) for mine, theirs in found))
        print(f"llama.cpp: {runs.spread([theirs for _, theirs in found])} s; C19a {figures['C19a']:.2f} (goal 3)", flush=True)


def report_decisions(args, figures):
    found = decisions(args)
    figures["decisions_s"] = found
    figures["C19b"] = statistics.median(ratio((eight, one) for one, eight, _ in found))
    print(f"a question on {N_STATE} tokens: {runs.spread([one for one, _, _ in found], 3)} s; {N_QUESTIONS}: "
          f"{runs.spread([eight for _, eight, _ in found], 3)} s; again: {runs.spread([again for *_, again in found], 3)} s; "
          f"C19b {figures['C19b']:.2f} (goal 1.3)", flush=True)


def report_streams(args, figures):
    found = streams(args)
    figures["itl_p99_ms"] = found
    figures["C19c"] = statistics.median(ratio((both, alone) for alone, both in found))
    print(f"ITL p99 of {N_STREAMS} streams: {runs.spread([alone for alone, _ in found])} ms; beside embeddings "
          f"{runs.spread([both for _, both in found])} ms; C19c {figures['C19c']:.2f} (goal 1.3)", flush=True)


def report_encoders(args, figures):
    figures["encoders_s"], figures["C19d"] = {}, {}
    for name in ENCODERS:
        if not os.path.exists(f"{MODELS}/{name}.gguf"):
            print(f"{MODELS}/{name}.gguf is absent: `bench/peers.sh onnxruntime` makes it", flush=True)
            continue
        found = figures["encoders_s"][name] = encoder(args, name)
        line = f"{name}, {args.texts} texts of {N_TOKENS} tokens: {runs.spread([row[0] for row in found])} s"
        for i, peer in enumerate(ENCODER_PEERS, 1):
            line += f"; {peer}: {runs.spread([row[i] for row in found])} s" if found[0][i] is not None else ""
        peers = [(min(t for t in theirs if t is not None), mine) for mine, *theirs in found if any(t is not None for t in theirs)]
        if peers:
            figures["C19d"][name] = statistics.median(ratio(peers))
            line += f"; C19d {figures['C19d'][name]:.2f} (goal 1.5)"
        print(line, flush=True)


ROWS = {"C19a": report_embeddings, "C19b": report_decisions, "C19c": report_streams, "C19d": report_encoders}


def main():
    parser = runs.options(__doc__, repeats=5, threads=runs.two_threads())
    parser.add_argument("--texts", type=int, default=256, help="of C19a; fewer for a quick look")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    args = parser.parse_args()
    figures = runs.begin(args)
    for row in args.rows:
        ROWS[row](args, figures)
    figures["load_after"] = machine.load()
    runs.write(args, figures)


if __name__ == "__main__":
    main()
