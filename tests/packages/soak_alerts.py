"""Each alert fires by a real fault of a real server, in the eyes of a real Prometheus, and the others stay silent.

Prometheus reads the rules with every span divided by 60: a minute is a second. Thresholds and rates stay as they are.
"""
import collections
import contextlib
import ctypes
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

import httpx
import pytest
from conftest import BUILD, ROOT, run, serving
from test_alerts import ALERTS, PROMTOOL, RULES

sys.path += [str(ROOT / "tests")]
from e2e.conftest import free_port  # noqa: E402

MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
WORDS = "river mountain valley forest meadow village castle harbour island desert garden bridge tower market".split()
WAIT_FOR_ALL = 0x40000000  # __WALL: threads too
CONFIG = """
global: {{scrape_interval: 700ms, scrape_timeout: 700ms, evaluation_interval: 400ms}}
rule_files: [alerts.yml]
scrape_configs:
- job_name: penstock
  static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def in_seconds(rules):
    """The rules with a second for each minute."""
    def shorter(match):
        return f"{match[1]}{int(match[2]) * {'m': 1, 'h': 60}[match[3]]}s"
    return re.sub(r"(\[|for: )(\d+)([mh])\b", shorter, rules)


class Prometheus:
    def __init__(self, folder, port):
        self.port = free_port()
        (folder / "prometheus.yml").write_text(CONFIG.format(port=port))
        (folder / "alerts.yml").write_text(in_seconds(RULES.read_text()))
        run(PROMTOOL, "check", "config", folder / "prometheus.yml")
        self.process = subprocess.Popen(
            [PROMTOOL.with_name("prometheus"), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{self.port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def firing(self):
        """The names of the alerts that fire now. Before Prometheus has started, there are none."""
        try:
            answer = httpx.get(f"http://127.0.0.1:{self.port}/api/v1/alerts", timeout=30)
        except httpx.TransportError:
            return set()
        alerts = answer.json()["data"]["alerts"] if answer.status_code == 200 else []
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def is_scraping(self):
        try:
            answer = httpx.get(f"http://127.0.0.1:{self.port}/api/v1/query", params={"query": "up"}, timeout=30)
        except httpx.TransportError:
            return False
        return answer.status_code == 200 and bool(answer.json()["data"]["result"])

    def stop(self):
        self.process.kill()
        self.process.wait()


class Watch:
    """How often each alert has begun to fire."""

    def __init__(self, prometheus):
        self.prometheus, self.before, self.begun = prometheus, set(), collections.Counter()

    def look(self, seconds, until=lambda begun: False):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until(self.begun):
            now = self.prometheus.firing()
            self.begun.update(now - self.before)
            self.before = now
            time.sleep(0.2)


# ---- load and faults -------------------------------------------------------------------------------------------------


def ask(http, stopped, number, fields):
    while not stopped.is_set():
        number += 1
        body = {"prompt": f"Chapter {number}. The", "ignore_eos": True, **fields}
        if "words" in body:
            body["prompt"] = " ".join(WORDS[(number * i * i + i) % len(WORDS)] for i in range(body.pop("words")))
        try:
            if http.post("/v1/completions", json=body).status_code != 200:
                time.sleep(0.25)
        except httpx.TransportError:
            time.sleep(0.25)


@contextlib.contextmanager
def load(port, clients, **fields):
    """Clients that send one request after another, each with another prompt."""
    stopped = threading.Event()
    http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300, limits=httpx.Limits(max_connections=None))
    threads = [threading.Thread(target=ask, args=(http, stopped, 1000 * i, fields), daemon=True) for i in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()


LIBC, SEIZE, INTERRUPT, DETACH = ctypes.CDLL(None, use_errno=True), 0x4206, 0x4207, 17


def stop_threads(server):
    """Stops all threads but the main one, as a debugger stops them. Returns them."""
    threads = [int(task.name) for task in pathlib.Path(f"/proc/{server.pid}/task").iterdir() if int(task.name) != server.pid]
    for thread in threads:
        for request in (SEIZE, INTERRUPT):
            assert LIBC.ptrace(request, thread, None, None) == 0, os.strerror(ctypes.get_errno())
    return threads


def release(threads):
    for thread in threads:
        os.waitpid(thread, WAIT_FOR_ALL)
        LIBC.ptrace(DETACH, thread, None, None)


def answers_at_work(port):
    """Does the server answer a scrape, with a sequence that runs?"""
    try:
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=1).text
    except httpx.TransportError:
        return False
    return re.search(r"^vllm:num_requests_running\S* [1-9]", text, re.M) is not None


@contextlib.contextmanager
def stopped_engine(server, port):
    """The engine stops in a step. A thread that stops while it holds a lock of the main one, which answers scrapes, is released."""
    with load(port, 1, max_tokens=1200):
        for _ in range(100):
            threads = stop_threads(server)
            if answers_at_work(port):
                break
            release(threads)
            time.sleep(0.1)
        else:
            pytest.fail("the engine did not stop in a step")
        try:
            yield
        finally:
            release(threads)


@contextlib.contextmanager
def killed(server, _):
    server.kill()
    yield


@contextlib.contextmanager
def restarted_twice(server, port):
    server.kill()
    server.wait()
    for _ in range(2):
        with serving(command(port), port):
            time.sleep(1.5)
    yield


@contextlib.contextmanager
def drained(server, _):
    server.terminate()
    yield


def loaded(clients, **fields):
    return lambda _, port: load(port, clients, **fields)


@contextlib.contextmanager
def long_prompts(_, port):
    """Each step of a stream has to wait for a whole long prompt."""
    with load(port, 1, max_tokens=1200), load(port, 1, words=1200, max_tokens=1):
        yield


# Each fault: the alerts that fire, those that may fire beside them because the machine is busy, the options, and the act.
FIRST_TOKENS, TOKENS = {"PenstockFirstTokenSlow", "PenstockFirstTokenSlowTrend"}, {"PenstockTokensSlow", "PenstockTokensSlowTrend"}
LATE = FIRST_TOKENS | TOKENS
FAULTS = {
    "killed": ({"PenstockNotReady"}, set(), [], killed),
    "stopped_engine": ({"PenstockStuck"}, LATE, [], stopped_engine),
    "long_queue": ({"PenstockQueueOld"} | FIRST_TOKENS, LATE, ["--max-num-seqs", "1"], loaded(200, max_tokens=12)),
    "full_queue": ({"PenstockRefuses"}, LATE, ["--max-num-seqs", "1", "--max-queued-requests", "1"], loaded(6, max_tokens=32)),
    "long_prompts": (TOKENS, LATE, ["--max-num-batched-tokens", "4096", "--itl-target-ms", "0", "--no-enable-prefix-caching"], long_prompts),
    "small_cache": ({"PenstockPreempts"}, LATE, ["--max-model-len", "512", "--kv-cache-memory", "14MiB"],
                    loaded(6, max_tokens=400)),
    "drained": ({"PenstockErrors"}, set(), ["--drain-delay", "120"], drained),
    "restarted_twice": ({"PenstockDeviceFailed"}, {"PenstockNotReady"}, [], restarted_twice),
}


def command(port, *flags):
    """One thread: tokens of a busy machine are late if several threads wait for each other."""
    return [ROOT / BUILD / "penstock", "serve", "--model", MODEL, "--port", port, "--threads", "1", "--max-model-len", "2048",
            "--kv-cache-memory", "256MiB", *flags]


def test_each_alert_has_a_fault():
    assert set().union(*(fires for fires, *_ in FAULTS.values())) == set(ALERTS)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_fires_its_alerts_once_and_no_other(name, tmp_path):
    fires, may_fire, flags, fault = FAULTS[name]
    port = free_port()
    with serving(command(port, *flags), port) as server, load(port, 1, max_tokens=1):
        prometheus = Prometheus(tmp_path, port)
        try:
            while not prometheus.is_scraping():
                assert prometheus.process.poll() is None
                time.sleep(0.1)
            watch = Watch(prometheus)
            watch.look(6)
            assert not watch.begun, "an alert fires without a fault"
            with fault(server, port):
                watch.look(120, until=lambda begun: fires <= set(begun))
                watch.look(4)
            assert fires <= set(watch.begun) <= fires | may_fire, watch.begun
            assert {alert: watch.begun[alert] for alert in fires} == dict.fromkeys(fires, 1)
        finally:
            prometheus.stop()
