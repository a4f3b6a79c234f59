#!/usr/bin/env python3
"""Two ranks as processes of mpirun beside two ranks as threads of one process, one compute thread each.

    bench/ranks.py [--far build/penstock_mpi] [--near build/penstock] [--repeats 5] [--out build/ranks.json]

The model has random weights in the shape of Qwen2.5 0.5B, in q8_0. Both servers run for the whole time, and only one of them
works at a time, in turns. The rows are medians: prompt tokens a second of one prompt of 1,024 tokens, and decoded tokens a
second of 1 and of 8 sequences. Both must give the same tokens.
"""
import argparse
import concurrent.futures
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from served import free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHAPE = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896,
         "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
         "rms_norm_eps": 1e-6, "rope_theta": 1e6, "max_position_embeddings": 4096, "tie_word_embeddings": True,
         "torch_dtype": "bfloat16", "hidden_act": "silu"}
SETTINGS = ["--load-format", "dummy", "--quantization", "q8_0", "--tensor-parallel-size", "2", "--kv-cache-memory", "256MiB",
            "--max-model-len", "2048", "--served-model-name", "m", "--no-enable-prefix-caching", "--warm-up"]
PROMPT, DECODED, SEQUENCES = 1024, 64, (1, 8)


def start(command, port):
    process = subprocess.Popen([*command, "--port", str(port)], stderr=subprocess.DEVNULL)
    while process.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=5)
            return process
        except (OSError, urllib.error.URLError):
            time.sleep(0.1)
    sys.exit(f"{command[0]} ended with {process.returncode}")


def complete(port, prompt, n):
    body = {"model": "m", "prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["choices"][0]["token_ids"]


def prefill(port):
    """Prompt tokens a second, and the answer."""
    began = time.perf_counter()
    tokens = complete(port, [100 + i * 7 % 5000 for i in range(PROMPT)], 1)
    return PROMPT / (time.perf_counter() - began), [tokens]


def decode(port, n):
    """Decoded tokens a second of n sequences, whose prompts are short, and the answers."""
    began = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        answers = list(pool.map(lambda i: complete(port, [200 + i, 300, 400], DECODED), range(n)))
    return n * DECODED / (time.perf_counter() - began), answers


def measure(ports, repeats):
    """{work: {side: [rates]}}"""
    works = {"prefill of 1,024": prefill, **{f"decode of {n}": lambda port, n=n: decode(port, n) for n in SEQUENCES}}
    rates = {name: {side: [] for side in ports} for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            answers = {}
            for side, port in ports.items():
                rate, answers[side] = work(port)
                rates[name][side].append(rate)
            if answers["processes"] != answers["threads"]:
                sys.exit(f"{name}: the two sides give different tokens")
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--far", default=str(ROOT / "build/penstock_mpi"))
    parser.add_argument("--near", default=str(ROOT / "build/penstock"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out")
    options = parser.parse_args()
    ports = {"threads": free_port(), "processes": free_port()}
    with tempfile.TemporaryDirectory() as folder:
        shape = pathlib.Path(folder, "config.json")
        shape.write_text(json.dumps(SHAPE))
        near = [options.near, "serve", "--model", str(shape), *SETTINGS, "--threads", "2"]
        far = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2",
               options.far, "serve", "--model", str(shape), *SETTINGS, "--threads", "1"]
        own = [start(near, ports["threads"]), start(far, ports["processes"])]
        try:
            rates = measure(ports, options.repeats)
        finally:
            for process in own:
                process.send_signal(signal.SIGTERM)
                process.wait(60)
    rows = [{"work": name, **{side: statistics.median(values) for side, values in sides.items()}} for name, sides in rates.items()]
    for row in rows:
        print(f"{row['work']:18} threads {row['threads']:8.1f}/s   processes {row['processes']:8.1f}/s   "
              f"{row['processes'] / row['threads']:.1%}")
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
