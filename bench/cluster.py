"""Drives a real vllm-router with simulated replicas: hit rate of the prefix cache and time to the first token, by policy and
number of replicas.

    python3 bench/cluster.py --record                            step costs of this machine, by penstock bench
    build/clients/venv/bin/python bench/cluster.py [--replicas 4,16,64] [--policies round_robin,cache_aware,kv_aware]
        [--conversations 400] [--turns 6] [--prompts tokens] [--minutes 30] [--router="--router-temperature 1"] [--out FILE]
    build/clients/venv/bin/python bench/cluster.py --self-test

A replica has a prefix cache of blocks with LRU eviction, publishes the events of its blocks as Penstock does, computes prompts
one after another and decodes in a batch, in simulated time: each step costs the recorded time. It answers when the simulated
answer is complete, so the router sees its load; the time to the first token is the simulated one, without the router and the
network. Where the machine cannot carry the requests, simulated time is slower than real time. Each conversation begins with its
own tokens, and each turn repeats all earlier ones.

A prompt is a list of tokens, or with --prompts text a text of numbers, which vllm-router has rendered by all replicas. The table
has the replicas that were used, and the share of later turns that returned to the replica of the turn before.
"""
import argparse
import asyncio
import collections
import functools
import json
import multiprocessing
import os
import pathlib
import random
import re
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
COSTS = HERE / "cluster_costs.json"
BLOCK, MODEL = 16, "simulated"
FIRST_WORDS, TURN_WORDS, ANSWER_WORDS = 400, 40, 24
START_SECONDS = 120


# ---- costs ------------------------------------------------------------------------------------------


def record(program, model):
    """Writes the costs of a prompt's token, of a decoding step and of each row in it, in seconds."""
    import machine
    command = [program, "bench", "--model", model, "--bench-prompt", "512", "--bench-batch", "1,16", "--bench-generate", "64",
               "--bench-repeats", "3", "--log-level", "error"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    prompt, one, many = (float(re.search(rf"^\| {row} +\| +([\d.]+) \|", text, re.MULTILINE)[1]) for row in ("pp 512", "tg 1", "tg 16"))
    row = max(0.0, (16 / many - 1 / one) / 15)
    source = f"penstock bench of {os.path.basename(model)} at a load of {os.getloadavg()[0]:.1f} on {machine.describe()}"
    costs = {"source": source, "prompt_token_s": 1 / prompt, "step_s": 1 / one - row,
             "row_s": row}
    COSTS.write_text(json.dumps(costs, indent=1) + "\n", encoding="utf-8")
    print(COSTS.read_text(encoding="utf-8"), end="")


# ---- a replica --------------------------------------------------------------------------------------


class Replica:
    """The prefix cache and the steps of a simulated server. Times are simulated seconds."""

    def __init__(self, costs, n_blocks, publish):
        self.costs, self.n_blocks, self.publish = costs, n_blocks, publish
        self.blocks = collections.OrderedDict()  # hash -> (hash, parent, tokens), the least recently used first
        self.free_at, self.rows = 0.0, 0

    def hashes(self, tokens):
        parent = 0
        for i in range(len(tokens) // BLOCK):
            parent = hash((parent, *tokens[i * BLOCK:(i + 1) * BLOCK])) & (1 << 63) - 1
            yield parent

    def cached(self, tokens):
        """Returns the cached tokens of a prompt; at least one token is computed."""
        n = 0
        for one in self.hashes(tokens[:-1]):
            if one not in self.blocks:
                break
            self.blocks.move_to_end(one)
            n += BLOCK
        return n

    def begin(self, tokens, now):
        """Returns (cached tokens, time to the first token)."""
        cached = self.cached(tokens)
        work = (len(tokens) - cached) * self.costs["prompt_token_s"]
        self.free_at = max(self.free_at, now) + work
        self.rows += 1
        return cached, self.free_at - now

    def decode_s(self, n_tokens):
        return n_tokens * (self.costs["step_s"] + self.rows * self.costs["row_s"])

    def end(self, tokens):
        """Keeps the blocks of prompt and answer, and tells the subscribers."""
        self.rows -= 1
        stored, lost, parent = [], [], None
        for i, one in enumerate(self.hashes(tokens)):
            if one in self.blocks:
                self.blocks.move_to_end(one)
                parent = one
                continue
            self.blocks[one] = one, parent, tokens[i * BLOCK:(i + 1) * BLOCK]
            stored.append(self.blocks[one])
            parent = one
        while len(self.blocks) > self.n_blocks:
            lost.append(self.blocks.popitem(last=False)[0])
        self.publish(stored, lost, self.blocks.values())


class Publisher:
    """The events of a replica, as server/kv_events writes them. A new subscriber gets all known blocks first."""

    def __init__(self, context, port):
        import zmq
        self.socket, self.number = context.socket(zmq.XPUB), 0
        self.socket.bind(f"tcp://127.0.0.1:{port}")

    def __call__(self, stored, lost, known):
        import msgpack
        place = {"medium": "GPU", "group_idx": 0}
        is_new = False
        while self.socket.poll(0):
            is_new |= self.socket.recv()[:1] == b"\1"
        events = [{"type": "AllBlocksCleared"}] if is_new else []
        events += [{"type": "BlockStored", "block_hashes": [one], "parent_block_hash": parent, "token_ids": list(tokens),
                    "block_size": BLOCK, "lora_id": None, "lora_name": None, "extra_keys": None, **place,
                    "kv_cache_spec_kind": "full_attention"} for one, parent, tokens in (known if is_new else stored)]
        if lost and not is_new:
            events.append({"type": "BlockRemoved", "block_hashes": lost, **place})
        if events:
            self.socket.send_multipart([b"", struct.pack(">Q", self.number), msgpack.packb([time.time(), events, 0])])
            self.number += 1


# ---- messages of HTTP -------------------------------------------------------------------------------


class Messages(asyncio.Protocol):
    """A connection on which messages with a length arrive one after another."""

    def __init__(self):
        self.data, self.transport = bytearray(), None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            head = bytes(self.data[:end]).decode("latin-1")
            length = re.search(r"(?i)\r\ncontent-length: *(\d+)", head)
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(self.data) < whole:
                return
            body = bytes(self.data[end + 4:whole])
            del self.data[:whole]
            self.message(head.split("\r\n", 1)[0], body)

    def send(self, first, body):
        self.transport.write(b"%s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (first, len(body)) + body)


# ---- replicas over HTTP -----------------------------------------------------------------------------


def tokens_of(prompt):
    """The tokens of a prompt, which is a text of numbers or a list of them."""
    return [int(word) for word in prompt.split()] if isinstance(prompt, str) else prompt


class Connection(Messages):
    """A connection to a simulated replica."""

    def __init__(self, replica, number, slow):
        super().__init__()
        self.replica, self.number, self.slow = replica, number, slow

    def message(self, first, body):
        path = first.split(" ")[1]
        if not path.startswith("/v1/completions"):
            return self.answer({"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": 32768}]})
        asked = json.loads(body)
        tokens = tokens_of(asked["prompt"])
        if path.endswith("/render"):
            return self.answer([{"request_id": "r", "token_ids": tokens}])
        cached, first_s = self.replica.begin(tokens, time.monotonic() / self.slow)
        seconds = (first_s + self.replica.decode_s(asked["max_tokens"])) * self.slow
        asyncio.get_running_loop().call_later(seconds, self.complete, tokens, cached, first_s, asked["max_tokens"])
        return None

    def complete(self, tokens, cached, first_s, n):
        made = [random.randrange(1 << 20) for _ in range(n)]
        self.replica.end(tokens + made)
        self.answer({"object": "text_completion", "model": MODEL, "first_s": first_s, "replica": self.number,
                     "choices": [{"index": 0, "text": " ".join(map(str, made)), "token_ids": made, "finish_reason": "length"}],
                     "usage": {"prompt_tokens": len(tokens), "prompt_tokens_details": {"cached_tokens": cached}}})

    def answer(self, value):
        if not self.transport.is_closing():
            self.send(b"HTTP/1.1 200 OK", json.dumps(value).encode())


def serve_replicas(costs, n, n_blocks, slow, events, pipe):
    """A process with n replicas. Sends their ports."""
    async def run():
        context, ports = None, []
        if events:
            import zmq
            context = zmq.Context(io_threads=1)
            context.set(zmq.MAX_SOCKETS, 2 * n + 16)
        for number in range(n):
            event_port = free_port() if events else None
            publish = Publisher(context, event_port) if events else lambda *_: None
            replica = Replica(costs, n_blocks, publish)
            server = await asyncio.get_running_loop().create_server(
                functools.partial(Connection, replica, number, slow), "127.0.0.1", 0, backlog=512)
            ports.append((server.sockets[0].getsockname()[1], event_port))
        pipe.send(ports)
        await asyncio.Event().wait()
    raise_limits()
    run_loop(run())


def free_port():
    import socket
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def raise_limits():
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def run_loop(coroutine):
    """asyncio.run, by uvloop if it is installed: a run takes half the time."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(coroutine)
    return uvloop.run(coroutine)


# ---- clients ----------------------------------------------------------------------------------------


class Asking(Messages):
    """A kept connection to the router."""
    future = None

    def ask(self, body):
        self.future = asyncio.get_running_loop().create_future()
        self.send(b"POST /v1/completions HTTP/1.1\r\nHost: router", json.dumps(body).encode())
        return self.future

    def message(self, first, body):
        if " 200 " in first + " ":
            self.future.set_result(json.loads(body))
        else:
            self.future.set_exception(RuntimeError(f"the router answered {first}: {body[:300]}"))

    def connection_lost(self, error):
        if self.future and not self.future.done():
            self.future.set_exception(RuntimeError(f"the router closed a connection: {error}"))


class Pool:
    """Connections to the router; a request has one to itself."""

    def __init__(self, port):
        self.port, self.idle = port, []

    async def ask(self, body):
        while self.idle and self.idle[-1].transport.is_closing():
            self.idle.pop()
        if self.idle:
            one = self.idle.pop()
        else:
            one = (await asyncio.get_running_loop().create_connection(Asking, "127.0.0.1", self.port))[1]
        answer = await one.ask(body)
        self.idle.append(one)
        return answer


def possible(known, prompt):
    """The tokens of a prompt that a cache with everything known has."""
    return min(known, prompt - 1) // BLOCK * BLOCK


async def converse(pool, seed, args, slow, results):
    draw = random.Random(seed)
    tokens, known = [draw.randrange(1 << 20) for _ in range(FIRST_WORDS)], 0
    last = None
    for _ in range(args.turns):
        await asyncio.sleep(draw.expovariate(1 / args.think) * slow)
        tokens += [draw.randrange(1 << 20) for _ in range(TURN_WORDS)]
        prompt = " ".join(map(str, tokens)) if args.prompts == "text" else tokens
        got = await pool.ask({"model": MODEL, "prompt": prompt, "max_tokens": ANSWER_WORDS})
        tokens += got["choices"][0]["token_ids"]
        n = got["usage"]["prompt_tokens"]
        results.append((n, got["usage"]["prompt_tokens_details"]["cached_tokens"], got["first_s"], possible(known, n), got["replica"],
                        got["replica"] == last))
        known, last = n + ANSWER_WORDS, got["replica"]


async def crowd(port, args, n_active, slow):
    results, seeds, pool = [], iter(range(args.conversations)), Pool(port)
    end = time.monotonic() + 60 * args.minutes

    async def worker():
        for seed in seeds:
            if time.monotonic() > end:
                break
            await converse(pool, seed, args, slow, results)

    await asyncio.gather(*(worker() for _ in range(min(n_active, args.conversations))))
    return results


# ---- one measurement --------------------------------------------------------------------------------


def start_router(policy, flags, ports, log):
    port = free_port()
    urls = [f"http://127.0.0.1:{http}" for http, _ in ports]
    command = [str(pathlib.Path(sys.executable).parent / "vllm-router"), "--port", str(port), "--host", "127.0.0.1", "--policy", policy,
               "--prometheus-port", str(free_port()), "--disable-circuit-breaker", "--log-level", "error", *flags, "--worker-urls", *urls]
    if policy == "kv_aware":
        command += ["--kv-event-model", MODEL, "--kv-event-block-size", str(BLOCK)]
        command += [f"--kv-event-source={url}=tcp://127.0.0.1:{events}" for url, (_, events) in zip(urls, ports)]
    router = subprocess.Popen(command, stdout=log, stderr=log)
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and router.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readiness", timeout=5) as ready:
                if ready.status == 200:
                    return router, port
        except OSError:
            time.sleep(0.1)
    log.seek(0)
    router.kill()
    raise RuntimeError(f"the router does not start: {log.read()[-2000:]}")


def slowness(args, costs, n_active):
    """How many real seconds a simulated second takes, so that the machine carries the requests."""
    answer_s = FIRST_WORDS * costs["prompt_token_s"] / 4 + ANSWER_WORDS * (costs["step_s"] + 4 * costs["row_s"])
    return max(args.min_slowness, n_active / (args.think + answer_s) / args.requests_a_second)


def measure(args, costs, n, policy):
    n_active = args.active * n
    slow = slowness(args, costs, n_active)
    ours, theirs = multiprocessing.Pipe()
    replicas = multiprocessing.Process(target=serve_replicas, daemon=True,
                                       args=(costs, n, args.blocks, slow, policy == "kv_aware", theirs))
    replicas.start()
    with tempfile.TemporaryFile() as log:
        router = None
        try:
            router, port = start_router(policy, args.router.split(), ours.recv(), log)
            began = time.monotonic()
            results = run_loop(crowd(port, args, n_active, slow))
            seconds = time.monotonic() - began
        finally:
            if router:
                router.kill()  # with many events it may take longer than 30 s to end by itself
                router.wait()
            replicas.terminate()
            replicas.join()
    first = sorted(result[2] for result in results)
    tokens = sum(result[0] for result in results)
    return {"replicas": n, "policy": policy, "conversations": len(results) // args.turns, "requests": len(results), "slowness": slow,
            "wall_s": seconds, "hit_rate": sum(result[1] for result in results) / tokens,
            "possible_hit_rate": sum(result[3] for result in results) / tokens,
            "used_replicas": len({result[4] for result in results}),
            "returned": sum(result[5] for result in results) / max(1, sum(result[3] > 0 for result in results)),
            "ttft_p50_s": statistics.median(first), "ttft_p99_s": first[int(0.99 * (len(first) - 1))]}


def self_test():
    """A replica against numbers that are known."""
    events, costs = [], {"prompt_token_s": 0.01, "step_s": 0.1, "row_s": 0.02}
    one = Replica(costs, 4, lambda stored, lost, _: events.append((len(stored), len(lost))))
    text = list(range(40))
    cached, first_s = one.begin(text, 100.0)
    assert cached == 0 and abs(first_s - 0.4) < 1e-9
    assert abs(one.decode_s(10) - 1.2) < 1e-9
    one.end(text + list(range(8)))
    assert events == [(3, 0)] and one.rows == 0
    cached, first_s = one.begin(text + [7], 100.2)
    assert cached == 32 and abs(first_s - (0.2 + 9 * 0.01)) < 1e-9, "it waits for the first prompt"
    one.end([9] * 48)
    assert events[-1] == (3, 2) and len(one.blocks) == 4 and one.cached(text) < 32
    assert one.cached([9] * 48) == 32, "one token is computed"
    assert possible(0, 400) == 0 and possible(464, 528) == 464 and possible(64, 64) == 48
    print("cluster.py: the simulated replica keeps, loses and times its blocks")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--program", default=str(HERE.parent / "build/penstock"))
    parser.add_argument("--model", default=str(HERE.parent / "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--replicas", default="4,16,64")
    parser.add_argument("--policies", default="round_robin,cache_aware,kv_aware")
    parser.add_argument("--conversations", type=int, default=400)
    parser.add_argument("--minutes", type=float, default=1e6, help="no conversation begins after this time")
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--active", type=int, default=16, help="conversations at a time for each replica")
    parser.add_argument("--think", type=float, default=4.0, help="simulated seconds between an answer and the next turn")
    parser.add_argument("--blocks", type=int, default=1000, help="blocks of each replica's cache")
    parser.add_argument("--requests-a-second", type=float, default=200.0, help="that this machine can carry")
    parser.add_argument("--min-slowness", type=float, default=0.1, help="least real seconds of a simulated second")
    parser.add_argument("--prompts", choices=["tokens", "text"], default="tokens",
                        help="a router has each text rendered by all replicas, 8 at a time and within a second")
    parser.add_argument("--router", default="", help="more flags for the router")
    parser.add_argument("--out")
    args = parser.parse_args()
    if args.record or args.self_test:
        return record(args.program, args.model) if args.record else self_test()
    raise_limits()
    costs, rows = json.loads(COSTS.read_text(encoding="utf-8")), []
    print("| replicas | used | policy | requests | returned | hit rate | possible | TTFT p50, s | TTFT p99, s | wall, s |\n|---|---|---|---|---|---|---|---|---|")
    for n in map(int, args.replicas.split(",")):
        for policy in args.policies.split(","):
            row = measure(args, costs, n, policy)
            rows.append(row)
            print(f"| {n} | {row['used_replicas']} | {policy} | {row['requests']} | {row['returned']:.1%} | {row['hit_rate']:.1%} | {row['possible_hit_rate']:.1%} | "
                  f"{row['ttft_p50_s']:.3f} | {row['ttft_p99_s']:.3f} | {row['wall_s']:.0f} |", flush=True)
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps({"costs": costs, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return None


if __name__ == "__main__":
    main()
