"""A service manager: Unix sockets, passed sockets, its messages, and the end of an idle process."""
import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import stat
import subprocess

import httpx
import pytest

from conftest import BINARY, MODEL, NAME, environment, free_port

BODY = {"model": NAME, "prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}
SERVE = [BINARY, "serve", "--model", MODEL, "--served-model-name", NAME, "--max-model-len", "1024",
         "--kv-cache-memory", "64MiB", "--drain-delay", "0"]


@contextlib.contextmanager
def manager(folder):
    """Yields (environment, read): read() returns the next message of the server."""
    path = str(folder / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as messages:
        messages.bind(path)
        messages.settimeout(60)
        yield {**environment(), "NOTIFY_SOCKET": path}, lambda: messages.recv(4096).decode()


@contextlib.contextmanager
def process(command, **options):
    one = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)
    try:
        yield one
    finally:
        if one.poll() is None:
            one.kill()
        one.communicate()


def ask(path, **headers):
    with httpx.Client(transport=httpx.HTTPTransport(uds=path), base_url="http://x", timeout=60) as client:
        return client.post("/v1/completions", json=BODY, headers=headers)


def passed(command, sockets, env):
    """Starts a process that gets these sockets as a service manager passes them."""
    pairs = " ".join(f"{3 + i}<&{one.fileno()}" for i, one in enumerate(sockets))
    shell = f'exec {pairs}; export LISTEN_FDS={len(sockets)} LISTEN_PID=$$; exec "$@"'
    return process(["bash", "-c", shell, "sh", *map(str, command)], env=env,
                   pass_fds=[one.fileno() for one in sockets])


def listening(path=None):
    one = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
    one.bind(path or ("127.0.0.1", 0))
    one.listen(16)
    os.set_inheritable(one.fileno(), True)
    return one


# ---- --uds ------------------------------------------------------------------------------------------


def test_a_unix_socket(tmp_path):
    path = str(tmp_path / "socket")
    with manager(tmp_path) as (env, read), process([*SERVE, "--uds", path], env=env) as server:
        assert "READY=1" in until(read, "READY=1")
        assert stat.S_ISSOCK(os.stat(path).st_mode)
        assert ask(path).status_code == 200
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0
        assert not os.path.exists(path)
        log = server.stderr.read()
        assert f"ready on unix:{path}" in log and "--unix-socket" in log and "client=unix" in log


def until(read, word):
    while word not in (message := read()):
        assert "STOPPING" not in message, message
    return message


def test_a_stale_socket_is_replaced(tmp_path):
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(path)
    with manager(tmp_path) as (env, read), process([*SERVE, "--uds", path], env=env):
        until(read, "READY=1")
        assert ask(path).status_code == 200


@pytest.mark.parametrize("kind, cause", [("used", "another program listens"), ("file", "not a socket"),
                                         ("long", "1 to 107 bytes"), ("folder", "does not exist")])
def test_paths_that_cannot_be_used(tmp_path, kind, cause):
    path = tmp_path / ("s" * 200 if kind == "long" else "none/s" if kind == "folder" else "s")
    if kind == "file":
        path.write_text("precious")
    with contextlib.ExitStack() as stack:
        if kind == "used":
            stack.enter_context(listening(str(path)))
        end = subprocess.run([*SERVE, "--uds", path], capture_output=True, text=True, env=environment(), timeout=60)
        assert end.returncode in (1, 2) and cause in end.stderr, end.stderr
    assert kind != "file" or path.read_text() == "precious"


def test_forwarded_clients_of_a_unix_socket(tmp_path):
    path = str(tmp_path / "socket")
    command = [*SERVE, "--uds", path, "--trusted-proxies", "unix,10.0.0.0/8"]
    with manager(tmp_path) as (env, read), process(command, env=env) as server:
        until(read, "READY=1")
        assert ask(path, **{"X-Forwarded-For": "192.0.2.7, 10.1.2.3"}).status_code == 200
        server.send_signal(signal.SIGINT)
        server.wait(60)
        assert "client=192.0.2.7" in server.stderr.read()


# ---- messages ---------------------------------------------------------------------------------------


def test_messages_in_order(tmp_path):
    with manager(tmp_path) as (env, read):
        env["WATCHDOG_USEC"] = "300000"
        with process([*SERVE, "--port", str(free_port())], env=env) as server:
            until(read, "READY=1")
            for _ in range(3):
                assert read() == "WATCHDOG=1"
            server.send_signal(signal.SIGTERM)
            while (message := read()) == "WATCHDOG=1":
                continue
            assert message.startswith("STOPPING=1") and "EXTEND_TIMEOUT_USEC=40000000" in message
            assert server.wait(60) == 0


# ---- passed sockets ---------------------------------------------------------------------------------


def asked(kind, address):
    """A connection that has sent its request, also if no process accepts it yet."""
    client = socket.socket(kind)
    client.settimeout(120)
    client.connect(address)
    connection = http.client.HTTPConnection("x")
    connection.sock = client
    connection.request("POST", "/v1/completions", json.dumps(BODY))
    return connection


def text_of(connection):
    with contextlib.closing(connection):
        return json.loads(connection.getresponse().read())["choices"][0]["text"]


def test_passed_sockets_outlive_the_process(tmp_path):
    path = str(tmp_path / "passed")
    with listening() as tcp, listening(path) as unix, manager(tmp_path) as (env, read):
        texts = []
        for _ in range(2):
            # Both requests are sent before the server runs, and wait in the sockets.
            waiting = [asked(socket.AF_INET, tcp.getsockname()), asked(socket.AF_UNIX, path)]
            with passed([*SERVE, "--exit-when-idle", "1"], [tcp, unix], env) as server:
                texts += map(text_of, waiting)
                assert server.wait(60) == 0
                assert "no request for 1 s" in server.stderr.read()
        assert len(set(texts)) == 1
        assert pathlib.Path(path).exists()  # it is the manager's


def test_a_descriptor_that_does_not_listen(tmp_path):
    with socket.socket() as idle:
        os.set_inheritable(idle.fileno(), True)
        with passed(SERVE, [idle], environment()) as server:
            assert server.wait(60) == 2
            assert "not a listening stream socket" in server.stderr.read()


def test_systemd_starts_it_at_the_first_connection():
    port = free_port()
    command = ["systemd-socket-activate", "-l", f"127.0.0.1:{port}", *SERVE, "--exit-when-idle", "1"]
    with process(command, env=environment()) as server:
        answer = None
        while not answer:
            assert server.poll() is None, server.stderr.read()
            with contextlib.suppress(httpx.ConnectError):
                answer = httpx.post(f"http://127.0.0.1:{port}/v1/completions", json=BODY, timeout=120)
        assert answer.status_code == 200
        assert server.wait(60) == 0
