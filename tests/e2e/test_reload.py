"""SIGHUP without a controlling terminal: settings are read again, all or nothing."""
import contextlib
import fcntl
import os
import pty
import signal
import subprocess
import termios

import httpx
import pytest
from conftest import BINARY, ROOT, environment, free_port
from streams import until as until_true
from test_supervisor import manager, until

VECTORS = ROOT / "tests/vectors"
BASE = str(VECTORS / "folders/qwen2")
LORA = {"eight": VECTORS / "adapters/qwen2-8", "one": VECTORS / "adapters/qwen2-1.gguf"}


class Service:
    """A server as a service manager starts it: with a file of settings, and without a terminal."""

    def __init__(self, folder, env):
        self.file, self.keys = folder / "penstock.yaml", folder / "keys.yaml"
        self.write(["one"], {"a": "alpha"}, "https://a.example")
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = open(folder / "log", "a+")  # appends: the server shares the position, which text() moves
        self.process = subprocess.Popen(
            [BINARY, "serve", "--model", BASE, "--served-model-name", "base", "--port", str(port), "--max-model-len", "96",
             "--kv-cache-memory", "8MiB", "--max-loras", "3", "--drain-delay", "0", "--config", self.file,
             "--api-key-file", self.keys], env=env, stderr=self.log, start_new_session=True)

    def write(self, adapters, keys, origin, more=""):
        pairs = ",".join(f"{name}={LORA[name]}" for name in adapters)
        self.file.write_text(f'lora: "{pairs}"\ncors-origins: {origin}\n{more}')
        self.keys.write_text("keys:\n" + "".join(f"- {{name: {name}, key: {key}}}\n" for name, key in keys.items()))

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def ask(self, key, model="base"):
        return httpx.post(self.url + "/v1/completions", json={"model": model, "prompt": [1, 2, 3], "max_tokens": 4},
                          headers={"Authorization": f"Bearer {key}", "Origin": "https://b.example"}, timeout=60)


@pytest.fixture
def service(tmp_path):
    with manager(tmp_path) as (env, read):
        one = Service(tmp_path, env)
        until(read, "READY=1")

        def reload():
            one.process.send_signal(signal.SIGHUP)
            until(read, "RELOADING=1")
            until(read, "READY=1")

        one.reload = reload
        yield one
        one.process.terminate()
        assert one.process.wait(60) == 0
        one.log.close()


def test_everything_changes_or_nothing(service):
    assert service.ask("alpha").status_code == service.ask("alpha", "one").status_code == 200
    service.write(["eight"], {"a": "beta", "c": "gamma"}, "https://b.example", "log-level: debug\n")
    service.reload()
    assert service.ask("alpha").status_code == 401
    answer = service.ask("gamma", "eight")
    assert answer.status_code == 200 and answer.headers["Access-Control-Allow-Origin"] == "https://b.example"
    assert service.ask("beta", "one").status_code == 404
    httpx.get(service.url + "/health/live", timeout=60)
    until_true(lambda: "/health/live" in service.text())  # probes are logged at the level debug, after their answer
    for more, why in [("max-num-seqs: 3\n", "--max-num-seqs has changed"), ("log-level: loud\n", "loud"),
                      ("lora: broken=/nowhere\n", "/nowhere")]:
        service.write(["one"], {"d": "delta"}, "https://c.example", more)
        if "lora" in more:
            service.file.write_text(more)
        service.reload()
        until_true(lambda: "nothing is read again" in service.text() and why in service.text())
        assert service.ask("delta").status_code == 401
        assert service.ask("gamma", "eight").status_code == 200 and service.ask("gamma", "one").status_code == 404


def is_ready(port):
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"http://127.0.0.1:{port}/health/ready", timeout=60).status_code == 200
    return False


def test_with_a_controlling_terminal_it_ends():
    master, slave = pty.openpty()

    def take_terminal():
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for number in (signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)

    port = free_port()
    server = subprocess.Popen([BINARY, "serve", "--model", BASE, "--port", str(port), "--kv-cache-memory", "8MiB",
                               "--max-model-len", "96"], env=environment(), stderr=subprocess.DEVNULL, pass_fds=[slave],
                              preexec_fn=take_terminal)
    until_true(lambda: is_ready(port))
    server.send_signal(signal.SIGHUP)
    assert server.wait(60) == 0
    os.close(master)
    os.close(slave)
