"""The prefix store in Redis, in whole servers: two servers share prefixes, answers have the same bytes, and no client
sees that Redis is gone, slow or empty."""
import shutil
import socket
import subprocess
import threading
import time

import pytest
from conftest import BINARY, MODEL, environment, free_port
from streams import until
from test_prefix_store import STORY, answer_of, cached, until_cached

N_CACHED = 48  # tokens of STORY that the store must give at least


class Redis:
    def __init__(self, folder):
        self.port, self.folder = free_port(), folder
        self.start()

    def start(self):
        self.process = subprocess.Popen(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
                                         "--appendonly", "no", "--dir", str(self.folder)], stdout=subprocess.DEVNULL)
        until(lambda: self.ask("PING") == "PONG")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def ask(self, *words):
        return subprocess.run(["redis-cli", "-p", str(self.port), *words], capture_output=True, text=True).stdout.strip()

    def settle(self, least, database="0"):
        """Waits for so many values."""
        until(lambda: int(self.ask("-n", database, "DBSIZE")) >= least)


@pytest.fixture
def redis(tmp_path):
    assert shutil.which("redis-server"), "docker/setup.sh test installs redis-server"
    one = Redis(tmp_path)
    yield one
    one.kill()


def metrics(server):
    """Returns the store's metrics: {name and label: value}."""
    lines = server.http.get("/metrics").text.splitlines()
    rows = [line.split(" ") for line in lines if line.startswith("penstock_prefix_store_")]
    return {name.removeprefix("penstock_prefix_store_"): float(value) for name, value in rows}


class SlowProxy:
    """Passes commands at once, and answers while `passes` is set."""

    def __init__(self, port):
        self.target, self.passes = port, threading.Event()
        self.passes.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target))
            threading.Thread(target=self.copy, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self.copy, args=(server, client, True), daemon=True).start()

    def copy(self, source, sink, holds):
        try:
            while data := source.recv(1 << 16):
                if holds:
                    self.passes.wait()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self):
        self.listener.close()
        self.passes.set()


def test_servers_share_prefixes_and_outlive_redis(start, redis):
    flags = ["--prefix-store", f"redis://127.0.0.1:{redis.port}/1"]
    first, second = start(*flags), start(*flags)
    before = answer_of(first)
    n = before["usage"]["prompt_tokens"] // 16
    redis.settle(n, database="1")
    after = answer_of(second)
    assert cached(after) >= N_CACHED and after["choices"] == before["choices"]
    wrote, read = metrics(first), metrics(second)
    assert wrote['blocks_total{result="miss"}'] >= n and wrote['bytes_total{direction="written"}'] > 0
    assert read['blocks_total{result="hit"}'] * 16 == cached(after) and read['bytes_total{direction="read"}'] > 0
    assert read["up"] == 1 and read["errors_total"] == 0
    private = "another text " * 30
    for one in first, second:
        assert cached(one.complete(private, max_tokens=1, cache_salt="mine")) == 0
    redis.ask("FLUSHALL")
    other = STORY.replace("river", "stream")
    expected = answer_of(first, other)["choices"]
    redis.kill()
    for _ in range(3):
        assert answer_of(second, other)["choices"] == expected
    until(lambda: metrics(second)["up"] == 0 and metrics(second)["errors_total"] >= 1 and "going on without it" in second.log_tail())
    assert second.process.poll() is None
    redis.start()
    third = STORY.replace("river", "brook")
    until(lambda: [answer_of(first, f"{time.monotonic()} {third}", 1), redis.ask("-n", "1", "DBSIZE")][1] != "0")
    until(lambda: "is used again" in first.log_tail())


def test_a_slow_redis_costs_less_than_computing_twice(start, redis):
    proxy = SlowProxy(redis.port)
    one = start("--prefix-store", f"redis://127.0.0.1:{proxy.port}", "--kv-cache-memory", "8MiB", "--max-model-len", "256")
    prompts = [f"{i} {STORY[:400]}" for i in range(4)]
    expected = [answer_of(one, prompt, 4)["choices"] for prompt in prompts]
    redis.settle(20)
    assert until_cached(one, prompts, expected) > 4 * 32
    proxy.passes.clear()  # from now on Redis never answers, and all requests end
    slow = [answer_of(one, prompt, 4) for prompt in prompts]
    assert [answer["choices"] for answer in slow] == expected
    proxy.close()


@pytest.mark.parametrize("place, text", [
    ("rediss://127.0.0.1", "does not encrypt"), ("redis://127.0.0.1:http", "redis://[[USER]:PASSWORD@]HOST"),
    ("redis://me:secret@:1", "redis://[[USER]:PASSWORD@]HOST")])
def test_wrong_addresses_are_refused(place, text):
    command = [BINARY, "serve", "--model", MODEL, "--port", str(free_port()), "--max-model-len", "256", "--prefix-store", place]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment())
    assert ended.returncode == 2 and text in ended.stderr and "secret" not in ended.stderr, ended.stderr
