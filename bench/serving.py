"""Measures a running Penstock over HTTP, from its users' side: fairness, sharing, memory, start, idleness.

    .venv/bin/python bench/serving.py [--program build/penstock] [--model models/....gguf] [--only NAME ...]

Each part starts a server, prints its figures as soon as it has them, and ends the server. Parts do not fail because of
a time: the output is a report, with the machine and its load at the top.
"""

import concurrent.futures
import json
import os
import socket
import statistics
import subprocess
import threading
import time

import httpx

import runs



def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """The server of one part; it is ready when the block is entered."""

    def __init__(self, args, *flags):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.command = [args.program, "serve", "--model", args.model, "--port", str(self.port),
                        "--served-model-name", "m", "--log-level", "warning", "--drain-delay", "0", *flags]

    def __enter__(self):
        start = time.perf_counter()
        self.process = subprocess.Popen(self.command)
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as client:
                    client.sendall(b"GET /health/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    if b" 200 " in client.recv(200):
                        break
            except OSError:
                time.sleep(0.001)
        self.ready_ms = (time.perf_counter() - start) * 1e3
        self.http = httpx.Client(base_url=self.url, timeout=600, limits=httpx.Limits(max_connections=64))
        return self

    def __exit__(self, *_):
        self.http.close()
        self.process.terminate()
        self.process.wait(60)

    def complete(self, prompt, max_tokens, **more):
        body = {"model": "m", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        answer = self.http.post("/v1/completions", json={**body, **more})
        answer.raise_for_status()
        return answer.json()

    def stream(self, prompt, max_tokens):
        """The times, in seconds from the start, at which text arrived."""
        body = {"model": "m", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True,
                "stream": True}
        start, times = time.perf_counter(), []
        with self.http.stream("POST", "/v1/completions", json=body) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    times.append(time.perf_counter() - start)
        return start, times

    def status(self, key):
        with open(f"/proc/{self.process.pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith(key + ":"))

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ids(n, seed):
    """A prompt of n token ids that differs from that of every other seed."""
    return [(seed * 7919 + i * 131) % 40000 + 1000 for i in range(n)]


def percentile(values, p):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * p))]


def part_start(args):
    times = []
    for _ in range(7):
        with Server(args) as server:
            times.append(server.ready_ms)
    print(f"start: exec to a 200 from /health/ready: median {statistics.median(times):.0f} ms, "
          f"least {min(times):.0f} ms")


def part_together(args):
    """16 clients at once, compared with the same 16 one after another."""
    prompts = [ids(64, seed) for seed in range(16)]
    with Server(args, "--no-enable-prefix-caching") as server:
        server.complete(ids(16, 99), 8)
        start = time.perf_counter()
        alone = [server.complete(p, 128)["choices"][0]["text"] for p in prompts]
        in_turn = time.perf_counter() - start
        start = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            together = [a["choices"][0]["text"] for a in pool.map(lambda p: server.complete(p, 128), prompts)]
        at_once = time.perf_counter() - start
    print(f"together: 16 requests (64 in, 128 out): in turn {in_turn:.2f} s, at once {at_once:.2f} s, "
          f"ratio {at_once / in_turn:.2f}, same bytes: {alone == together}")


def part_long_prompt(args):
    """8 streams decode while a prompt of 6,000 tokens arrives."""
    for budget in (128, 512):
        with Server(args, "--max-num-batched-tokens", str(budget)) as server:
            server.complete(ids(16, 99), 8)
            results, window = [], {}
            threads = [threading.Thread(target=lambda s=s: results.append(server.stream(ids(32, s), 400)))
                       for s in range(8)]
            for thread in threads:
                thread.start()
            time.sleep(2)
            window["from"] = time.perf_counter()
            server.complete(ids(6000, 77), 1)
            window["to"] = time.perf_counter()
            for thread in threads:
                thread.join()
        during, quiet = [], []
        for start, times in results:
            for before, after in zip(times, times[1:]):
                is_during = start + after > window["from"] and start + before < window["to"]
                (during if is_during else quiet).append((after - before) * 1e3)
        print(f"long prompt, budget {budget}: 6,000 tokens took {window['to'] - window['from']:.1f} s beside 8 streams; "
              f"ITL during it p50 {percentile(during, .5):.0f} p99 {percentile(during, .99):.0f} "
              f"max {max(during):.0f} ms; without it p50 {percentile(quiet, .5):.0f} "
              f"p99 {percentile(quiet, .99):.0f} ms")


def part_prefix(args):
    """A second request that begins with the same 1,000 tokens."""
    first, second = [], []
    with Server(args) as server:
        server.complete(ids(16, 99), 8)
        for seed in range(5):
            shared = ids(1000, seed)
            _, times = server.stream(shared + ids(8, 100 + seed), 4)
            first.append(times[0] * 1e3)
            _, times = server.stream(shared + ids(8, 200 + seed), 4)
            second.append(times[0] * 1e3)
    a, b = statistics.median(first), statistics.median(second)
    print(f"prefix: TTFT with 1,000 shared tokens: first {a:.0f} ms, second {b:.0f} ms, ratio {b / a:.3f}")


def part_memory(args):
    """Resident memory after 1,000 and after 10,000 requests."""
    with Server(args) as server:
        def one(i):
            server.complete(ids(4 + i % 13, i % 50), 1 + i % 3)

        def run(n):
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                list(pool.map(one, range(n)))
            time.sleep(1)
            return server.status("VmRSS")

        after_1000 = run(1000)
        after_10000 = run(9000)
    print(f"memory: resident after 1,000 requests {after_1000 / 1024:.2f} MiB, after 10,000 "
          f"{after_10000 / 1024:.2f} MiB, difference {(after_10000 - after_1000) / 1024:+.2f} MiB")


def part_idle(args):
    with Server(args) as server:
        server.complete(ids(16, 1), 16)
        time.sleep(5)  # the KV memory becomes resident during the first seconds
        before = server.cpu_seconds()
        time.sleep(10)
        used = server.cpu_seconds() - before
    print(f"idle: {used * 1e3:.0f} ms of CPU in 10 s ({used * 10:.2f} %)")


def part_leave(args):
    """200 clients disconnect during their streams. Is all their memory freed?"""
    with Server(args) as server:
        for i in range(200):
            body = json.dumps({"model": "m", "prompt": ids(40, i), "max_tokens": 500, "stream": True,
                               "ignore_eos": True}).encode()
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                               b"Content-Length: %d\r\n\r\n" % len(body) + body)
                client.recv(1000)
        time.sleep(1)
        text = server.http.get("/metrics").text
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"):
        value = next(line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith(name + "{"))
        print(f"leave: after 200 disconnects in mid-stream {name} = {value}")


PARTS = {"start": part_start, "together": part_together, "long_prompt": part_long_prompt, "prefix": part_prefix,
         "memory": part_memory, "idle": part_idle, "leave": part_leave}


def main():
    parser = runs.options(__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    args = parser.parse_args()
    found = runs.begin(args)
    print(f"{found['machine']['cpu']}, {found['machine']['cores']} cores, {found['machine']['system']}, load {found['load_before']:.1f}")
    for name in args.only:
        PARTS[name](args)


main()
