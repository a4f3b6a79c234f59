"""Measures what --speculative-config ngram saves: the same requests on a server with it and on one without, in turns.

    python3 bench/speculation.py [--program build/penstock] [--model models/....gguf] [--repeats 5] [--users 1 8 16]

Answers must be equal to the byte; the figure is the time without guesses divided by the time with them, the median of the
repeats. C13a is the geometric mean of four tasks whose answers repeat their prompts, C13b is free prose.
"""

import argparse
import concurrent.futures
import json
import math
import pathlib
import re
import socket
import statistics
import subprocess
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
N_OUT = 192


def tasks():
    """Fixed prompts; texts and code are the project's own licence and a made-up program, so they do not change."""
    text = (ROOT / "LICENSE").read_text()[1200:2700]
    code = "\n".join(f"def area_{n}(width, height):\n    total = width * height + {n}\n    print(total)\n    return total\n"
                     for n in range(8))
    items = "\n".join(f"item {n}: price {n * 37 % 91}, stock {n * 7 % 13}" for n in range(24))
    story = "Write a long story about a lighthouse keeper and her cat."
    return {
        "copy": ("C13a", f"Repeat this text word for word:\n\n{text}", {}),
        "rename": ("C13a", f"Rename the variable total to result in this code and print the whole code:\n\n{code}", {}),
        "json": ("C13a", f"Write this list as JSON, an object with name, price and stock for each item:\n\n{items}", {}),
        "summary": ("C13a", f"Summarise this text:\n\n{text}", {}),
        "prose": ("C13b", story, {}),
        "prose at 0.7": ("C13b", story, {"temperature": 0.7}),
    }


class Server:
    """A server on a port of its own, ready when the block is entered."""

    def __init__(self, args, *flags):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.url = "http://127.0.0.1:%d" % probe.getsockname()[1]
        port = self.url.rsplit(":", 1)[1]
        self.process = subprocess.Popen([args.program, "serve", "--model", args.model, "--port", port, "--drain-delay", "0",
                                         "--log-level", "warning", *flags])

    def __enter__(self):
        while True:
            try:
                urllib.request.urlopen(self.url + "/health/ready").close()
                return self
            except OSError:
                time.sleep(0.01)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)

    def ask(self, prompt, fields):
        body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": N_OUT, "temperature": 0, "seed": 1,
                "ignore_eos": True, "return_token_ids": True, **fields}
        request = urllib.request.Request(self.url + "/v1/chat/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["choices"][0]["token_ids"]

    def drafts(self):
        with urllib.request.urlopen(self.url + "/metrics") as answer:
            text = answer.read().decode()
        names = ("num_draft_tokens", "num_accepted_tokens")
        return [float(re.search(rf"^vllm:spec_decode_{name}_total\{{.*\}} (\S+)$", text, re.M)[1]) for name in names]


def measure(server, users, prompt, fields):
    """Seconds until all users have their answer, and the answers."""
    with concurrent.futures.ThreadPoolExecutor(users) as pool:
        began = time.perf_counter()
        answers = list(pool.map(lambda user: server.ask(prompt, {**fields, "seed": user}), range(users)))
        return time.perf_counter() - began, answers


def compare(off, on, users, prompt, fields, repeats):
    """The ratios of the repeats, the share of drafts that held, and their number for each token."""
    ratios = []
    before = on.drafts()
    for repeat in range(repeats + 1):  # the first one warms up: the prompt is in both prefix caches afterwards
        sides = (off, on) if repeat % 2 else (on, off)
        seconds = {}
        for side in sides:
            seconds[side], answers = measure(side, users, prompt, fields)
            if repeat == 0 and side is sides[0]:
                wanted = answers
            assert answers == wanted, "guesses have changed an answer"
        if repeat > 0:
            ratios.append(seconds[off] / seconds[on])
    drafts, held = (after - b for after, b in zip(on.drafts(), before))
    return ratios, held / drafts if drafts else 0, drafts / ((repeats + 1) * users * N_OUT)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/penstock")
    parser.add_argument("--model", default="models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--users", type=int, nargs="+", default=[1, 8, 16])
    parser.add_argument("flags", nargs="*", help="further flags of both servers, behind --")
    args = parser.parse_args()
    with Server(args, *args.flags) as off, Server(args, "--speculative-config", "ngram", *args.flags) as on:
        for users in args.users:
            rows = {"C13a": [], "C13b": []}
            for name, (row, prompt, fields) in tasks().items():
                ratios, held, share = compare(off, on, users, prompt, fields, args.repeats)
                rows[row].append(statistics.median(ratios))
                print(f"{users:2} users, {name:12} {rows[row][-1]:5.2f} times as fast ({min(ratios):.2f} to {max(ratios):.2f}); "
                      f"{held:4.0%} of {share:.2f} drafts a token held", flush=True)
            for row, medians in rows.items():
                mean = math.exp(statistics.fmean(math.log(m) for m in medians))
                print(f"{users:2} users, {row}: {mean:.2f}", flush=True)


if __name__ == "__main__":
    main()
