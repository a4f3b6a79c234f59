"""Two servers that are restarted in turn, proxies in front of them, and clients that detect all losses.

The proxies run with the files of deploy/, except for addresses and paths. A client knows each expected answer: the same
request has the same bytes on both servers, whatever else runs there.
"""
import contextlib
import functools
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import httpx

from e2e.conftest import NAME, ROOT, Server, free_port
from sse import events

FLAGS = ["--max-model-len", "1024", "--max-num-seqs", "32", "--kv-cache-memory", "128MiB", "--threads", "1"]
CONFIGURED = [8081, 8082]  # the servers' ports in the files of deploy/
CONFIGURED_PROXY = ["127.0.0.1:8080", "--port 8080", "port_value: 8080"]
START_SECONDS = 30
# The time that a client waits for an answer and a server drains. The tests count losses and do not measure speed: on a
# busy machine an answer may take longer than the default of 30 s after which it would be cut off.
PATIENCE_SECONDS = 600


# ---- servers ----------------------------------------------------------------------------------------


class Replica:
    """A server that keeps its port when it is restarted."""

    def __init__(self, *flags):
        self.flags, self.port, self.restarts = [*FLAGS, "--drain-timeout", str(PATIENCE_SECONDS), *flags], free_port(), 0
        self.address = f"127.0.0.1:{self.port}"
        self.begin()

    def begin(self):
        self.server = Server(*self.flags, port=self.port).wait_until_ready()

    def resident_kb(self):
        with open(f"/proc/{self.server.process.pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))

    def restart(self):
        """Like a supervisor: SIGTERM, wait for the end, start a new process."""
        self.server.process.send_signal(signal.SIGTERM)
        code = self.server.process.wait(PATIENCE_SECONDS)
        assert code == 0, f"the server ended with {code}\n{self.server.log_tail()}"
        self.server.stop()
        self.restarts += 1
        self.begin()


@contextlib.contextmanager
def replicas(*flags):
    both = []
    try:
        for _ in range(2):
            both.append(Replica(*flags))
        yield both
    finally:
        for one in both:
            one.server.process.kill()
            one.server.process.wait()
            one.server.stop()


# ---- proxies ----------------------------------------------------------------------------------------


def shipped(path, servers, port):
    """Returns a file of deploy/, with these addresses."""
    text = (ROOT / "deploy" / path).read_text()
    form = "port_value: {}" if path.startswith("envoy/") else "127.0.0.1:{}"
    for old, new in zip(CONFIGURED, [one.port for one in servers]):
        assert text.count(form.format(old)) == 1, (path, old)
        text = text.replace(form.format(old), form.format(new))
    own = [old for old in CONFIGURED_PROXY if old in text]
    assert len(own) == 1, path
    return text.replace(own[0], own[0].replace("8080", str(port)))


def accepts(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextlib.contextmanager
def running(command, port, log, environment=None):
    """Runs a proxy until the block ends, and yields its address. Its log is printed if anything fails."""
    process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        until = time.monotonic() + START_SECONDS
        while not accepts(port):
            assert process.poll() is None and time.monotonic() < until, f"{command[0]} does not serve"
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
        assert process.poll() is None, f"{command[0]} has ended by itself: {process.poll()}"
    except BaseException:
        log.seek(0)
        print(log.read()[-6000:].decode(errors="replace"))
        raise
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def nginx(servers):
    port = free_port()
    user = "user root;" if os.geteuid() == 0 else ""  # otherwise its workers could not read the folder
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
        with open(f"{folder}/penstock.conf", "w") as file:
            file.write(shipped("nginx/penstock.conf", servers, port))
        paths = "".join(f"{name}_temp_path {folder}/{name};" for name in
                        ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
        with open(f"{folder}/nginx.conf", "w") as file:
            file.write(f"daemon off; {user} worker_processes 2; pid {folder}/pid; error_log stderr;\n"
                       "events { worker_connections 1024; }\n"
                       f"http {{ access_log off; {paths} include {folder}/penstock.conf; }}\n")
        with running(["nginx", "-e", "stderr", "-p", folder, "-c", f"{folder}/nginx.conf"], port, log) as url:
            yield url


@contextlib.contextmanager
def haproxy(servers):
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
        with open(f"{folder}/haproxy.cfg", "w") as file:
            file.write(shipped("haproxy/haproxy.cfg", servers, port))
        with running(["haproxy", "-db", "-f", f"{folder}/haproxy.cfg"], port, log) as url:
            yield url


@contextlib.contextmanager
def python_router(name, servers):
    """A router whose command is in the tests' environment."""
    port = free_port()
    command = ["sh", "-c", shipped(f"{name}/start.sh", servers, port), "start.sh", "--prometheus-port", str(free_port())]
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    with tempfile.TemporaryFile() as log, running(command, port, log, {**os.environ, "PATH": path}) as url:
        yield url


@contextlib.contextmanager
def envoy(servers):
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
        with open(f"{folder}/envoy.yaml", "w") as file:
            file.write(shipped("envoy/envoy.yaml", servers, port))
        command = [str(pathlib.Path(sys.executable).parent / "envoy"), "--use-dynamic-base-id", "-l", "warning", "-c", file.name]
        with running(command, port, log) as url:
            yield url


PROXIES = {"nginx": nginx, "haproxy": haproxy, "envoy": envoy, "vllm-router": functools.partial(python_router, "vllm-router"),
           "sglang-router": functools.partial(python_router, "sglang-router")}


@contextlib.contextmanager
def in_front(name, servers):
    """Runs the proxy with this name, and yields its address after it passes requests on to both servers."""
    with PROXIES[name](servers) as url:
        until = time.monotonic() + START_SECONDS
        good = 0
        while good < 8:
            good = good + 1 if httpx.get(url + "/v1/models").status_code == 200 else 0
            assert time.monotonic() < until, f"{name} passes no requests on"
            time.sleep(0.05)
        yield url


# ---- clients ----------------------------------------------------------------------------------------


PROMPTS = ["Once upon a time", "The capital of France is", "Water flows", "def add(a, b):", "In the year 1900", "word " * 300]


def completion(prompt, n_tokens, **fields):
    return "/v1/completions", {"model": NAME, "prompt": prompt, "max_tokens": n_tokens, "ignore_eos": True,
                               "temperature": 0, **fields}


def chat(prompt, n_tokens, **fields):
    return "/v1/chat/completions", {"model": NAME, "messages": [{"role": "user", "content": prompt}],
                                    "max_tokens": n_tokens, "ignore_eos": True, "temperature": 0, **fields}


def texts_of(answer):
    """Returns the text of each choice, of a whole answer or of the events of a stream, whose ends are checked."""
    whole, ends = {}, {}
    for one in answer:
        for choice in one["choices"]:
            part = choice["text"] if "text" in choice else (choice.get("delta") or choice["message"]).get("content")
            whole[choice["index"]] = whole.get(choice["index"], "") + (part or "")
            ends[choice["index"]] = choice["finish_reason"] or ends.get(choice["index"])
    assert ends and set(ends.values()) == {"length"}, f"choices that did not end: {ends}"
    return whole


class Lost(Exception):
    """An answer that a client lost."""


def ask(http, path, body):
    """Sends one request and returns its texts, or raises Lost with the reason."""
    try:
        with http.stream("POST", path, json=body) as response:
            raw = response.read()
        if response.status_code != 200:
            raise Lost(f"status {response.status_code}: {raw[:300]!r}")
        return texts_of(events(raw) if body.get("stream") else [json.loads(raw)])
    except (httpx.TransportError, AssertionError, ValueError, KeyError) as error:
        raise Lost(f"{type(error).__name__}: {error}") from error


class Client(threading.Thread):
    """Sends one request after another over one connection, as SDKs do."""

    def __init__(self, crowd, number):
        super().__init__(daemon=True)
        self.crowd, self.random, self.answered, self.left, self.lost = crowd, random.Random(number), 0, 0, []

    def run(self):
        with httpx.Client(base_url=self.crowd.url, timeout=PATIENCE_SECONDS) as http:
            while not self.crowd.stopping.is_set():
                path, body = self.random.choice(self.crowd.requests)
                begun = time.monotonic()
                if self.random.random() < self.crowd.leavers:
                    self.leave(path, body)
                    continue
                try:
                    texts = ask(http, path, body)
                    if texts != self.crowd.expected[json.dumps([path, body])]:
                        raise Lost(f"another text: {texts}")
                    self.answered += 1
                except Lost as lost:
                    self.lost.append(f"{path} after {time.monotonic() - begun:.2f} s: {lost}")

    def leave(self, path, body):
        """Disconnects after the first bytes of an answer."""
        self.left += 1
        with contextlib.suppress(httpx.TransportError):
            with httpx.stream("POST", self.crowd.url + path, json=body, timeout=PATIENCE_SECONDS) as response:
                for _ in response.iter_raw():
                    break


class Crowd:
    """Clients of a proxy. `requests` are (path, body); `leavers` is the share of requests whose answer is not read to
    the end."""

    def __init__(self, url, n, requests, leavers=0.0):
        self.url, self.requests, self.leavers, self.stopping = url, requests, leavers, threading.Event()
        with httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as http:
            self.expected = {json.dumps([path, body]): ask(http, path, body) for path, body in requests}
        self.clients = [Client(self, number) for number in range(n)]

    def __enter__(self):
        for one in self.clients:
            one.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for one in self.clients:
            one.join(PATIENCE_SECONDS)
            assert not one.is_alive()

    @property
    def answered(self):
        return sum(one.answered for one in self.clients)

    @property
    def left(self):
        return sum(one.left for one in self.clients)

    @property
    def lost(self):
        return [text for one in self.clients for text in one.lost]


def wait_for_answers(crowd, n, seconds=120):
    """Waits until each client has received n more answers."""
    wanted = [one.answered + n for one in crowd.clients]
    until = time.monotonic() + seconds
    while any(one.answered < least for one, least in zip(crowd.clients, wanted)):
        assert time.monotonic() < until, "the clients get no answers"
        time.sleep(0.05)
