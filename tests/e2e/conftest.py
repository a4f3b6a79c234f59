"""Starts the built server for the tests, and prints its log if a test fails.

PENSTOCK_BINARY and PENSTOCK_MODEL name a program and a model other than those of the tree, PENSTOCK_EMULATED the
program with an emulated GPU (tests/cuda).
"""
import contextlib
import itertools
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time

import httpx
import pytest

for number in (signal.SIGHUP, signal.SIGTERM):  # nohup ignores these, and servers inherit that
    signal.signal(number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # ignored in a shell's background
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("PENSTOCK_BINARY", str(ROOT / "build/penstock"))
MODEL = os.environ.get("PENSTOCK_MODEL", str(ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
EMULATED = pathlib.Path(os.environ.get("PENSTOCK_EMULATED", ROOT / "build/tests/cuda/penstock_emulated"))
NAME = "smol"  # the model's name in the tests' servers
START_SECONDS, STOP_SECONDS = 180, 60
LOG_TAIL_BYTES = 6000
PORTS = 1500  # of each process of pytest; it runs at most 8

running = []  # servers whose log a test's report shows


def ports_of_worker():
    """The ports of this process of pytest, again and again. The workers of one run share none, and the system gives none
    of them to a client's connection: its range for these begins at 32768. Two runs begin at different ports."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first, begin = 20000 + PORTS * worker, os.getpid() % PORTS
    return itertools.cycle(first + (begin + i) % PORTS for i in range(PORTS))


ports = ports_of_worker()


def free_port():
    """The next port that nothing has bound."""
    for port in itertools.islice(ports, PORTS):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that ended do not matter
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def environment():
    """The environment without variables of the server, which would change the servers that the tests start."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}


class Server:
    """One running `penstock serve`."""

    def __init__(self, *flags, binary=BINARY, model=MODEL, env=None, port=None, served=NAME, launcher=()):
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = tempfile.TemporaryFile()
        command = [*launcher, binary, "serve", "--model", model, *(["--served-model-name", served] if served else []),
                   "--port", str(self.port), "--drain-delay", "0"]
        self.process = subprocess.Popen([*command, *flags], stdout=self.log, stderr=self.log,
                                        env={**environment(), **(env or {})})
        running.append(self)
        self.http = httpx.Client(base_url=self.url, timeout=120)

    def wait_until_ready(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                if self.http.get("/health/ready").status_code == 200:
                    return self
            time.sleep(0.02)
        raise AssertionError(f"the server was not ready; exit code {self.process.poll()}\n{self.log_tail()}")

    def log_text(self):
        """The whole log. The server writes at this file's position, so the position must not change."""
        return os.pread(self.log.fileno(), os.fstat(self.log.fileno()).st_size, 0).decode(errors="replace")

    def log_tail(self):
        return self.log_text()[-LOG_TAIL_BYTES:]

    def post(self, path, body, **options):
        return self.http.post(path, json=body, **options)

    def complete(self, prompt="Once upon a time", **fields):
        """A completion that must succeed; greedy by default."""
        body = {"model": NAME, "prompt": prompt, "temperature": 0, **fields}
        answer = self.post("/v1/completions", body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def continue_by(self, n, prompt):
        """Returns the choice of a greedy completion of exactly n tokens, with their ids and logprobs."""
        return self.complete(prompt, max_tokens=n, logprobs=1, ignore_eos=True, return_token_ids=True)["choices"][0]

    def chat(self, content="What is two plus two?", **fields):
        body = {"model": NAME, "messages": [{"role": "user", "content": content}], "temperature": 0,
                "max_tokens": 16, **fields}
        answer = self.post("/v1/chat/completions", body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def metrics(self):
        """Returns {'name{labels}': value} of /metrics."""
        text = self.http.get("/metrics").text
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, value in lines}

    def metric(self, name):
        """Returns the sum of one name's samples over its labels."""
        return sum(v for k, v in self.metrics().items() if re.split(r"[{]", k)[0] == name)

    def wait_until_idle(self, seconds=60):
        """Waits until no request runs or waits, and no KV block is referenced."""
        names = ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"]
        end = time.monotonic() + seconds
        while (left := {name: self.metric(name) for name in names}) and any(left.values()):
            assert time.monotonic() < end, left
            time.sleep(0.05)

    def stop(self):
        self.http.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError(f"the server did not end after SIGTERM\n{self.log_tail()}") from None
            finally:
                running.remove(self)
        else:
            running.remove(self)
        self.log.close()


@pytest.fixture(scope="session")
def server():
    """The server that most tests share."""
    one = Server("--max-model-len", "1024", "--max-num-seqs", "16", "--kv-cache-memory", "512MiB")
    try:
        yield one.wait_until_ready()
        assert one.process.poll() is None, f"the server ended by itself: {one.process.poll()}"
    finally:
        one.stop()


@pytest.fixture
def start():
    """start(flags...) starts a server for one test."""
    own = []

    def begin(*flags, ready=True):
        own.append(Server("--max-model-len", "1024", "--kv-cache-memory", "256MiB", *flags))
        return own[-1].wait_until_ready() if ready else own[-1]

    yield begin
    for one in own:
        one.stop()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """A model that the emulated device can run: two layers, 32 wide."""
    if not EMULATED.exists():
        pytest.fail("the emulated device was not built: there was no C++ compiler, which docker/setup.sh test installs")
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    subprocess.run([EMULATED.parent / "make_tiny_model", path], check=True)
    return path


@pytest.fixture(scope="module")
def emulated(tiny_model):
    """emulated(flags...) returns a module's server on the emulated GPU: the same server for the same flags."""
    own = {}

    def begin(*flags):
        if flags not in own:
            own[flags] = Server("--device", "cuda", *flags, binary=EMULATED, model=tiny_model)
        return own[flags].wait_until_ready()

    yield begin
    for one in own.values():
        assert one.process.poll() is None, f"the server ended by itself: {one.process.poll()}\n{one.log_tail()}"
        one.stop()
        assert one.process.returncode == 0, one.process.returncode


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed:
        for one in running:
            report.sections.append((f"log of the server on port {one.port}", one.log_tail()))
