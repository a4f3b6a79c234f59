"""A GPU that fails during work (an emulated one that fails on request): all clients get an error, none hangs, and the
server ends so that a supervisor can start it again."""
import concurrent.futures
import contextlib
import signal
import socket
import subprocess
import threading

import httpx
import pytest

from conftest import EMULATED, NAME, Server, environment
from sse import events
from streams import until

COMPLETIONS = "/v1/completions"
EXIT_DEVICE_FAILED = 3
PATIENCE_S = 120  # for what happens soon, however busy the machine is
LONG = {"model": NAME, "prompt": "hello the", "max_tokens": 400, "ignore_eos": True, "temperature": 0.5, "seed": 1}


@pytest.fixture
def begin(tiny_model):
    """begin(failure, flags...) starts a server whose device fails in that way. The fixture ends it if the test does
    not."""
    own = []

    def start(failure, *flags, **env):
        own.append(Server("--device", "cuda", "--max-num-seqs", "4", *flags, binary=EMULATED, model=tiny_model,
                          env={"CUDA_EMU_BREAK": failure, **env}))
        return own[-1].wait_until_ready()

    yield start
    for one in own:
        one.stop()


def read_stream(server):
    """Returns the events of a stream: at least one before the error."""
    with httpx.stream("POST", server.url + COMPLETIONS, json={**LONG, "stream": True, "n": 2}, timeout=PATIENCE_S) as response:
        return response.status_code, response.read()


def read_whole(server):
    answer = httpx.post(server.url + COMPLETIONS, json={**LONG, "frequency_penalty": 1}, timeout=PATIENCE_S)
    return answer.status_code, answer.json()


def check_error(error, call):
    assert error["type"] == "server_error" and error["code"] == "device_failed" and error["param"] is None
    assert error["message"].startswith(("The GPU has failed: ", "Rank 1 of 2 is lost: ")) and call in error["message"], error


class Prober(threading.Thread):
    """Asks for the server's health, and then for a completion, until the server ends. After a failure its port is open for
    half a second only, so a client that waits for other clients first could be late. Keeps the answers after the failure."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.unhealthy, self.refused = server, None, None
        self.start()

    def run(self):
        with contextlib.suppress(httpx.TransportError), httpx.Client(base_url=self.server.url, timeout=PATIENCE_S) as client:
            while (answer := client.get("/health")).status_code == 200:
                pass
            self.unhealthy = answer
            self.refused = client.post(COMPLETIONS, json=LONG)

    def check(self, why="The GPU has failed"):
        self.join(PATIENCE_S)
        assert self.unhealthy.status_code == 503 and why in self.unhealthy.json()["error"]["message"]
        assert self.refused.status_code == 503 and self.refused.json()["error"]["type"] == "unavailable_error"
        assert "retry-after" in self.refused.headers


def check_log(server, call):
    lines = [line for line in server.log_tail().splitlines() if " ERROR " in line]
    assert len(lines) == 1 and call in lines[0], server.log_tail()
    assert "cuda_emu" not in server.log_tail() and "Sanitizer" not in server.log_tail()


def check_all_are_told(server, call):
    """Two streams of two choices run and two requests wait, until the device fails. Returns a client that asked meanwhile."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        streams = [pool.submit(read_stream, server) for _ in range(2)]
        until(lambda: server.metric("vllm:num_requests_running") == 4)
        begun = server.metric("vllm:generation_tokens_total")
        until(lambda: server.metric("vllm:generation_tokens_total") >= begun + 12)
        others = [pool.submit(read_whole, server) for _ in range(2)]
        until(lambda: server.metric("vllm:num_requests_waiting") == 2)
        prober = Prober(server)
        server.process.send_signal(signal.SIGRTMIN)
        for one in streams:
            status, raw = one.result(PATIENCE_S)
            chunks = events(raw)
            assert status == 200 and all("choices" in chunk for chunk in chunks[:-1])
            check_error(chunks[-1]["error"], call)
        for one in others:
            status, body = one.result(PATIENCE_S)
            assert status == 500
            check_error(body["error"], call)
    return prober


def check_end(server):
    assert server.process.wait(PATIENCE_S) == EXIT_DEVICE_FAILED


@pytest.mark.parametrize("failure, steps, call", [
    ("launch:1", 2, "launch"), ("launch:40", 1, "launch"), ("launch:9:once", 2, "launch"),
    ("copy:1", 1, "cop"), ("copy:5", 2, "cop"), ("copy:2:once", 2, "cop"),
    ("wait:1", 2, "waiting for"), ("wait:4", 1, "waiting for"), ("record:2", 2, "recording"),
])
def test_everybody_is_told(begin, failure, steps, call):
    server = begin(failure + ":signal", "--steps-in-flight", str(steps))
    check_all_are_told(server, call).check()
    check_end(server)
    check_log(server, call)


TWO_RANKS = ["--tensor-parallel-size", "2", "--enforce-eager"]
TWO_GPUS = {"CUDA_EMU_DEVICES": "2"}


@pytest.mark.parametrize("failure", ["launch:1", "launch:40", "copy:3", "wait:1"])
def test_a_gpu_of_two_ranks_of_one_process_fails(begin, failure):
    """Both ranks make calls that fail from now on, and the first of these is reported: it may be the other rank's."""
    server = begin(failure + ":signal", *TWO_RANKS, **TWO_GPUS)
    check_all_are_told(server, "unspecified launch failure").check()
    check_end(server)
    check_log(server, "unspecified launch failure")


def test_a_lost_rank_of_one_process_ends_the_server(begin):
    """Rank 1 cannot send its rows. Rank 0 waits for them on its GPU, until the group is aborted."""
    server = begin("", *TWO_RANKS, NCCL_STAND_IN_BREAK="1", **TWO_GPUS)
    lost = "Rank 1 of 2 is lost: NCCL has failed: gathering the ranks' rows: out of luck."
    check_all_are_told(server, lost).check(lost)
    check_end(server)
    check_log(server, lost)


def test_without_clients_it_is_told_too(begin):
    """The only client disconnected before the device failed."""
    server = begin("wait:1:signal")
    with httpx.stream("POST", server.url + COMPLETIONS, json={**LONG, "stream": True}, timeout=PATIENCE_S) as response:
        next(response.iter_raw())
        server.process.send_signal(signal.SIGRTMIN)
    check_end(server)


def test_while_it_drains(begin):
    server = begin("wait:2:signal")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        one = pool.submit(read_stream, server)
        until(lambda: server.metric("vllm:generation_tokens_total") >= 4)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: "draining: " in server.log_tail())
        server.process.send_signal(signal.SIGRTMIN)
        check_error(events(one.result(PATIENCE_S)[1])[-1]["error"], "waiting for")
    check_end(server)


@pytest.mark.parametrize("first, then", [(None, None), (signal.SIGTERM, None), (None, signal.SIGTERM)],
                         ids=["failing", "draining-and-failing", "failing-and-told-to-end"])
def test_clients_that_do_not_read_hold_nothing_up(begin, first, then):
    """A request whose body never ends, and a stream that its client does not read; with a signal before or after."""
    server = begin("launch:30:signal")
    with contextlib.ExitStack() as stack:
        slow = stack.enter_context(httpx.Client(base_url=server.url, timeout=PATIENCE_S))
        request = slow.build_request("POST", COMPLETIONS, json={**LONG, "stream": True})
        stack.callback(slow.send(request, stream=True).close)
        half = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        half.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                     b"Content-Length: 50\r\n\r\n{")
        if first:
            server.process.send_signal(first)
            until(lambda: "draining: " in server.log_tail())
        server.process.send_signal(signal.SIGRTMIN)
        if then:
            until(lambda: "The GPU has failed" in server.log_tail())
            server.process.send_signal(then)
        check_end(server)


def test_failures_at_the_start(tiny_model):
    """A failure during the start: one sentence, and no server."""
    for failure in ("launch:1", "copy:1", "copy:9", "wait:2", "record:1"):
        done = subprocess.run([EMULATED, "serve", "--model", tiny_model, "--device", "cuda", "--port", "0"], text=True,
                              capture_output=True, timeout=PATIENCE_S, env={**environment(), "CUDA_EMU_BREAK": failure})
        assert done.returncode == 1, (failure, done)
        said = [line for line in done.stderr.splitlines() if " INFO " not in line]
        assert len(said) == 1 and "The GPU has failed" in said[0], (failure, done.stderr)


def test_run_says_it_too(tiny_model):
    done = subprocess.run([EMULATED, "run", "--model", tiny_model, "--device", "cuda", "--max-tokens", "200", "hello"], text=True,
                          capture_output=True, timeout=PATIENCE_S, errors="replace",
                          env={**environment(), "CUDA_EMU_BREAK": "wait:60"})
    assert done.returncode == EXIT_DEVICE_FAILED and "The GPU has failed: waiting for" in done.stderr, done
