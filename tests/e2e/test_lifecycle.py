"""Starting, refusing, draining, ending: exit codes, and the clients' view meanwhile."""
import concurrent.futures
import contextlib
import signal
import socket
import subprocess
import threading
import time

import httpx
import pytest

from conftest import BINARY, MODEL, NAME, environment
from sse import events
from streams import ENDLESS, endless, until

PATIENCE_S = 120  # for an end that comes at once, however busy the machine is
STREAM = {"model": NAME, "prompt": "Once upon a time", "max_tokens": 60, "ignore_eos": True, "stream": True,
          "temperature": 0}
LONG = {**STREAM, "max_tokens": 7000}  # for servers with ENDLESS


class Stream(threading.Thread):
    """A client that reads one stream to its end."""

    def __init__(self, server, body):
        super().__init__(daemon=True)
        self.server, self.body = server, body
        self.raw, self.status, self.started = b"", None, threading.Event()
        self.start()

    def run(self):
        with contextlib.suppress(httpx.TransportError):
            with httpx.stream("POST", self.server.url + "/v1/completions", json=self.body, timeout=120) as response:
                self.status = response.status_code
                for part in response.iter_raw():
                    self.raw += part
                    self.started.set()
        self.started.set()


def begin(server, n, body=STREAM):
    streams = [Stream(server, body) for _ in range(n)]
    for one in streams:
        assert one.started.wait(PATIENCE_S) and one.status == 200
    return streams


def has_begun_to_drain(server):
    return server.http.get("/health/ready").status_code == 503


def check_whole(streams):
    """Waits until all streams have ended by their lengths."""
    for one in streams:
        one.join(PATIENCE_S)
        assert events(one.raw)[-1]["choices"][0]["finish_reason"] == "length"


def check_cut(streams):
    """Waits until all streams have ended early."""
    for one in streams:
        one.join(PATIENCE_S)
        assert not one.is_alive() and b'"length"' not in one.raw


def ask(server, body):
    return httpx.post(server.url + "/v1/completions", json=body, timeout=300)


# ---- the end ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_let_streams_finish(start, number):
    server = start("--max-num-seqs", "8", "--drain-timeout", "600")
    streams = begin(server, 8)
    server.process.send_signal(number)
    check_whole(streams)
    assert server.process.wait(PATIENCE_S) == 0


def generate(client):
    return client.post("/v1/completions", json={**STREAM, "stream": False, "max_tokens": 1})


def is_refused(server):
    """A closed port is as good an answer as a 503."""
    try:
        answer = ask(server, {**STREAM, "stream": False, "max_tokens": 1})
    except (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError):
        return True
    return answer.status_code == 503 and answer.json()["error"]["type"] == "unavailable_error"


def test_while_draining_nothing_new_is_taken(start):
    server = start("--max-num-seqs", "8", "--drain-timeout", "600", "--threads", "1")
    streams = begin(server, 2, {**STREAM, "max_tokens": 300})
    server.process.send_signal(signal.SIGTERM)
    until(lambda: is_refused(server))
    assert is_refused(server)
    check_whole(streams)
    assert server.process.wait(PATIENCE_S) == 0


DELAY_S = 300
DELAYED = ["--max-num-seqs", "8", "--threads", "1", "--drain-delay", str(DELAY_S), "--drain-timeout", "600"]


def check_delay(server, begin_drain):
    """Begins a drain and checks the clients' view during its delay, which a last signal ends."""
    streams = begin(server, 2, {**STREAM, "max_tokens": 300})
    idle = httpx.Client(base_url=server.url, timeout=PATIENCE_S)
    assert generate(idle).status_code == 200
    begin_drain()
    until(lambda: has_begun_to_drain(server))
    assert server.http.get("/health").status_code == 503
    for _ in range(2):
        for client in [idle, httpx]:  # an open connection, and a new one
            answer = generate(client) if client is idle else ask(server, {**STREAM, "stream": False})
            assert answer.status_code == 503 and answer.json()["error"]["type"] == "unavailable_error"
            assert int(answer.headers["retry-after"]) >= 1 and answer.headers["connection"] == "close"
        assert server.http.get("/health/live").status_code == 200
        assert server.post("/tokenize", {"prompt": "x"}).status_code == 200
    check_whole(streams)
    assert ask(server, {**STREAM, "stream": False}).status_code == 503  # the port is open until the delay ends
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(PATIENCE_S) == 0
    idle.close()


def test_after_sigterm_the_port_stays_open_for_a_while(start):
    server = start(*DELAYED)
    check_delay(server, lambda: server.process.send_signal(signal.SIGTERM))


def test_a_delay_ends_by_itself(start):
    server = start("--drain-delay", "1")
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(PATIENCE_S) == 0
    assert "the port closes in 1 s" in server.log_tail() and "the port is closed" in server.log_tail()


def test_an_admin_drains_without_a_signal(start):
    server = start(*DELAYED, "--admin-key", "boss")
    assert server.http.post("/drain").status_code == 401

    def drain():
        answer = server.http.post("/drain", headers={"authorization": "Bearer boss"})
        assert answer.json() == {"status": "draining", "requests": 2, "delay_s": DELAY_S, "timeout_s": 600}
        server.process.send_signal(signal.SIGTERM)  # as a supervisor may; it does not end the delay
        until(lambda: "signal 15" in server.log_tail())
    check_delay(server, drain)


def test_a_person_at_a_terminal_waits_for_no_router(start):
    server = start("--drain-delay", str(DELAY_S))
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(PATIENCE_S) == 0


def test_a_second_signal_ends_the_delay(start):
    server = start("--max-num-seqs", "8", "--drain-delay", str(DELAY_S), *ENDLESS)
    streams = begin(server, 2, LONG)
    server.process.send_signal(signal.SIGTERM)
    until(lambda: has_begun_to_drain(server))
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(PATIENCE_S) == 0
    check_cut(streams)


def test_a_second_sigterm_ends_at_once(start):
    server = start("--max-num-seqs", "8", "--drain-timeout", "600", *ENDLESS)
    streams = begin(server, 4, LONG)
    server.process.send_signal(signal.SIGTERM)
    until(lambda: "the port is closed" in server.log_tail())
    assert server.process.poll() is None
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(PATIENCE_S)
    check_cut(streams)


def test_the_drain_has_an_end(start):
    server = start("--drain-timeout", "1", *ENDLESS)
    streams = begin(server, 2, LONG)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(PATIENCE_S) == 0
    for one in streams:
        one.join(PATIENCE_S)
        assert events(one.raw)[-1]["error"]["message"] == "The server is shutting down."


def test_clients_that_left_hold_no_server(start):
    server = start()
    for _ in range(10):
        with contextlib.suppress(httpx.TimeoutException):
            httpx.post(server.url + "/v1/completions", json={**STREAM, "stream": False, "max_tokens": 800}, timeout=0.1)
        with httpx.stream("POST", server.url + "/v1/completions", json={**STREAM, "max_tokens": 800}, timeout=120) as response:
            next(response.iter_raw())
    server.wait_until_idle()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(PATIENCE_S) == 0


def test_idle_servers_end_at_once(start):
    flags = ["--drain-timeout", "600", "--request-timeout", "600"]
    server = start(*flags)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(PATIENCE_S) == 0
    other = start(*flags)
    other.process.send_signal(signal.SIGINT)
    assert other.process.wait(PATIENCE_S) == 0


def test_a_half_sent_request_holds_no_server(start):
    server = start("--drain-timeout", "600", "--request-timeout", "600")
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        until(lambda: server.metric("penstock_http_connections") == 2)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE_S) == 0
        client.settimeout(PATIENCE_S)
        assert client.recv(4096).startswith(b"HTTP/1.1 503 ")


def test_user_signals_are_ignored_from_the_first_moment(start):
    """Log rotation sends them while the model loads and while clients are served."""
    server = start(ready=False)
    while server.process.poll() is None and "loading" not in server.log_text():
        time.sleep(0.005)
    server.process.send_signal(signal.SIGUSR1)
    server.process.send_signal(signal.SIGUSR2)
    server.wait_until_ready()
    streams = begin(server, 2)
    for number in [signal.SIGUSR1, signal.SIGUSR2, signal.SIGXFSZ, signal.SIGPIPE]:
        server.process.send_signal(number)
    check_whole(streams)
    until(lambda: "signal 10 is ignored" in server.log_tail())
    assert server.process.poll() is None


def test_under_nohup_a_hangup_is_nothing(start):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # inherited by the program, as from nohup
    try:
        server = start()
    finally:
        signal.signal(signal.SIGHUP, before)
    server.process.send_signal(signal.SIGHUP)
    assert server.complete(max_tokens=2)["usage"]["completion_tokens"] == 2
    assert server.http.get("/health/ready").status_code == 200


def test_work_after_idleness_is_not_a_hang(start):
    """The first step of a server that was idle for long, on a machine with a long uptime."""
    server = start()
    slow = Stream(server, {**STREAM, "prompt": "word " * 900, "max_tokens": 1})
    while slow.is_alive():
        assert server.http.get("/health").status_code == 200
    assert events(slow.raw)


# ---- errors at the start ------------------------------------------------------------------------------


def run(*arguments, env=None):
    done = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=120,
                          env={**environment(), **(env or {})})
    return done.returncode, done.stderr


@pytest.mark.parametrize("flags, says", [
    (["--no-such-flag"], "no-such-flag"), (["--port", "70000"], "port"), (["--port", "x"], "port"),
    (["--max-num-seqs", "0"], "max-num-seqs"), (["--kv-cache-memory", "lots"], "kv-cache-memory"),
    (["--log-level", "loud"], "log-level")])
def test_wrong_flags(flags, says):
    code, text = run("serve", "--model", MODEL, *flags)
    assert code == 2 and says in text and "Traceback" not in text


def test_wrong_commands():
    assert run("no-such-command")[0] == 2
    assert run("serve")[0] == 2  # the model is missing


def test_wrong_environment():
    code, text = run("serve", "--model", MODEL, env={"PENSTOCK_PORT": "x"})
    assert code == 2 and "PENSTOCK_PORT" in text


@pytest.mark.parametrize("flags, env, says", [
    (["--api-key", ""], {}, "--api-key"), ([], {"PENSTOCK_API_KEY": " , "}, "--api-key"),
    (["--admin-key", ","], {}, "--admin-key"), ([], {"PENSTOCK_ADMIN_KEY": " "}, "--admin-key")])
def test_keys_that_are_none_open_no_server(flags, env, says):
    code, text = run("serve", "--model", MODEL, *flags, env=env)
    assert code == 2 and says in text


@pytest.mark.parametrize("command", [
    ["--help"], ["serve", "--help"], ["version"], ["inspect", MODEL], ["tokenize", "--model", MODEL, "hello"],
    ["run", "--model", MODEL, "--max-tokens", "5", "hello"]])
def test_output_that_is_lost_is_a_failure(command):
    with open("/dev/full", "w") as full:
        done = subprocess.run([BINARY, *command], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120,
                              env=environment())
    assert done.returncode == 1 and "could not be written" in done.stderr


def test_unusable_models(tmp_path):
    code, text = run("serve", "--port", "0", "--model", "/nowhere/model.gguf")
    assert code == 1 and "/nowhere/model.gguf" in text
    other = tmp_path / "other.gguf"
    other.write_bytes(b"not a model" * 1000)
    assert run("serve", "--port", "0", "--model", str(other))[0] == 1
    cut = tmp_path / "cut.gguf"
    with open(MODEL, "rb") as whole:
        cut.write_bytes(whole.read(3 << 20))
    assert run("serve", "--port", "0", "--model", str(cut))[0] == 1


def test_port_in_use():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, text = run("serve", "--model", MODEL, "--port", str(port))
    assert code == 1 and str(port) in text and "in use" in text


# ---- overload -----------------------------------------------------------------------------------------


def test_a_full_queue_refuses_and_keeps_its_promises(start):
    server = start("--max-num-seqs", "1", "--max-queued-requests", "2", *ENDLESS)
    body = {**STREAM, "stream": False, "max_tokens": 40}
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        with endless(server, 1) as ids:  # holds the only place
            until(lambda: ids)
            asked = [pool.submit(ask, server, body) for _ in range(24)]
            until(lambda: sum(one.done() for one in asked) == 22)
        answers = [one.result() for one in asked]
    codes = [answer.status_code for answer in answers]
    assert sorted(codes) == [200] * 2 + [429] * 22
    for answer in answers:
        if answer.status_code == 429:
            assert answer.json()["error"]["type"] == "overloaded_error"
            assert int(answer.headers["retry-after"]) >= 1
        else:
            assert answer.json()["usage"]["completion_tokens"] == 40
    server.wait_until_idle()
    assert server.complete(max_tokens=2)


def test_more_prompts_than_the_queue_holds(start):
    """Trying again would not help, so the status is 400."""
    server = start("--max-queued-requests", "2")
    answer = ask(server, {"model": NAME, "prompt": ["a"] * 3, "max_tokens": 1})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "prompt"
    assert ask(server, {"model": NAME, "prompt": ["a"] * 2, "max_tokens": 1}).status_code == 200


def test_a_key_file(start, tmp_path):
    keys = tmp_path / "keys"
    long = "k" * 3000
    keys.write_text(f"first\nsecond\n{'#' * 2000}tail\n{long}\n")
    server = start("--api-key-file", str(keys))
    parts = [(long, 200), (long[:1023], 401), (long[:-1], 401), ("#" * 977 + "tail", 401)]  # a line is one key, or ignored
    for key, code in [("first", 200), ("second", 200), ("third", 401), *parts]:
        answer = server.http.get("/v1/models", headers={"authorization": f"Bearer {key}"})
        assert answer.status_code == code


def test_little_memory_still_answers_all(start):
    """More sequences at a time than the KV cache can hold: some are preempted and resumed, none is lost."""
    server = start("--kv-cache-memory", "48MiB", "--max-num-seqs", "16")
    body = {"model": NAME, "prompt": "Once upon a time", "max_tokens": 150, "ignore_eos": True, "temperature": 0}
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: ask(server, body), range(16)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["choices"][0]["text"] for answer in answers}) == 1
    server.wait_until_idle()
