"""Measures the time of one prompt by its length, beside OpenVINO and llama.cpp, in turns.

    python3 bench/contexts.py [--program build/penstock] [--model models/....gguf] [--lengths 512 2048 ...] [--repeats 3]
        [--peers openvino ...] [--out FILE]

Each side computes a prompt of N tokens and one token more. All sides read a copy of the model whose file allows 33,024
tokens. A figure is the median of the repeats, in seconds. Lengths from 8,192 on have one repeat, because one may take minutes.
A peer that needed more than 60 s for a length takes no part in longer ones.
The last column is the least time that the multiply-adds allow, divided by ours: products run at most at the int8 rate that
`penstock bench` measures, attention at half of it, because keys and values have 16 bits.
"""
import os
import re
import statistics
import subprocess

import direct
import llama
import machine
import runs
import served
import works

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
LONG = 8192  # lengths from this one on have one repeat
MAX_TOKENS = 33024
PATIENCE_S = 60
COPY = "build/bench-models/long.gguf"
CACHE = "1GiB"  # 33,024 tokens of 23,760 bytes take 749 MiB
PEERS = ("openvino", "openvino bf16", "llama.cpp")
KEY = b"llama.context_length"
UINT32 = 4  # a type of a GGUF value


def copy_of(model):
    """Writes the model with another context length. The number is changed in place, so the rest of the file is equal."""
    with open(model, "rb") as file:
        data = bytearray(file.read())
    at = data.find(KEY) + len(KEY)
    if at < len(KEY) or int.from_bytes(data[at:at + 4], "little") != UINT32:
        raise RuntimeError(f"{model} has no 32-bit number {KEY.decode()}: give a model of the family llama")
    data[at + 4:at + 8] = MAX_TOKENS.to_bytes(4, "little")
    os.makedirs(os.path.dirname(COPY), exist_ok=True)
    with open(COPY, "wb") as file:
        file.write(data)
    return COPY


def sides_of(args, model):
    """The sides that are installed, Penstock first."""
    flags = ("--kv-cache-memory", CACHE, "--max-model-len", str(MAX_TOKENS), "--warm-up")
    yield served.penstock(args.program, model, args.threads, *flags)
    for name, make in direct.available(model, args.threads).items():
        if name in args.peers:
            yield make()
    if "llama.cpp" in args.peers and llama.is_installed():
        side = llama.Llama(args.threads, is_tuned=False)
        side.load(model)
        yield side


# ---- the limit ------------------------------------------------------------------------------------------------------------

def heads_of(program, model):
    """(layers, query heads, numbers of a head), from `penstock inspect`."""
    text = subprocess.run([program, "inspect", model], check=True, capture_output=True, text=True).stdout
    found = re.search(r"(\d+) layers, .* (\d+) heads on \d+ key-value heads of (\d+)", text)
    return tuple(int(number) for number in found.groups())


def least_seconds(limit, body_parameters, heads, n):
    """The least time of the multiply-adds of a prompt of n tokens: a position reads n / 2 others on average."""
    layers, n_heads, size = heads
    attention = layers * n_heads * size * 2 * n * (n + 1) / 2
    return (n * body_parameters + 2 * attention) / (limit["int8_g_s"] * 1e9)


# ---- the table ------------------------------------------------------------------------------------------------------------

def measure(sides, n, repeats):
    """The seconds of each side, in the order A B B A."""
    work = works.Work(f"context {n}", f"one prompt of {n} tokens", n, 1)
    seconds = {side.name: [] for side in sides}
    for side in sides:
        side.prepare(work)
    for repeat in range(repeats):
        for side in sides if repeat % 2 == 0 else reversed(sides):
            seconds[side.name].append(works.ttft_p50_ms(side.run(work, repeat)) / 1e3)
    return seconds


def row_of(n, seconds, least):
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    ours = medians["penstock"]
    peers = [median for name, median in medians.items() if name != "penstock"]
    return {"tokens": n, "seconds": seconds, "median": medians, "to_the_best": min(peers) / ours if peers else None,
            "share_of_limit": least / ours}


def print_row(row, opened):
    times = " | ".join(f"{row['median'][side.name]:.3f}" if side.name in row["median"] else "" for side in opened)
    ratio = f"{row['to_the_best']:.2f}" if row["to_the_best"] else ""
    print(f"| {row['tokens']:,} | {times} | {ratio} | {row['share_of_limit']:.0%} |", flush=True)


def parse_arguments():
    parser = runs.options(__doc__, repeats=3, threads=runs.two_threads())
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="tokens of the prompts")
    parser.add_argument("--peers", nargs="*", default=PEERS, choices=PEERS, help="of those that are installed")
    return parser.parse_args()


def main():
    args = parse_arguments()
    report = {**runs.begin(args), "rows": []}
    model = copy_of(args.model)
    limit, heads = machine.limits(args.program, model, args.threads), heads_of(args.program, model)
    body = machine.model_shape(args.program, model)["body_parameters"]
    opened = []
    print(f"{report['machine']['cpu']}, {args.threads} threads, load {report['load_before']:.1f}, {limit}")
    try:
        opened.extend(sides_of(args, model))
        sides = opened
        print("| tokens | " + " | ".join(side.name for side in sides) + " | to the best | of the limit |")
        for n in args.lengths:
            seconds = measure(sides, n, 1 if n >= LONG else args.repeats)
            row = row_of(n, seconds, least_seconds(limit, body, heads, n))
            report["rows"].append(row)
            print_row(row, opened)
            sides = [side for side in sides if side.name == "penstock" or row["median"][side.name] < PATIENCE_S]
    finally:
        for side in opened:
            side.close()
    report |= {"limits": limit, "load_after": machine.load()}
    runs.write(args, report)


main()
