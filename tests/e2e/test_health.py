"""`penstock health`, and `penstock serve --check`."""
import subprocess

import pytest

from conftest import BINARY, MODEL, environment, free_port


def penstock(*words, **env):
    return subprocess.run([BINARY, *words], capture_output=True, text=True, timeout=120, env={**environment(), **env}, check=False)


def test_health_asks_the_server_of_its_options(start, tmp_path):
    server = start()
    (tmp_path / "penstock.yaml").write_text(f"port: {server.port}\nhost: 0.0.0.0\n")
    for done in (penstock("health", "--port", str(server.port)), penstock("health", PENSTOCK_PORT=str(server.port), PENSTOCK_HOST="0.0.0.0"),
                 penstock("health", "--config", str(tmp_path / "penstock.yaml")), penstock("health", "--host", "localhost", "--port", str(server.port))):
        assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")


def test_health_asks_a_unix_socket(tmp_path):
    path = tmp_path / "socket"
    done = penstock("health", "--uds", str(path))
    assert done.returncode == 1 and done.stderr == f"penstock: no server answers on {path}: No such file or directory\n"
    assert penstock("health", "--uds", "/" + 200 * "x").returncode == 1
    with subprocess.Popen([BINARY, "serve", MODEL, "--uds", str(path), "--max-model-len", "512"], stderr=subprocess.PIPE, text=True,
                          env=environment()) as server:
        for line in server.stderr:
            if "ready on" in line:
                break
        assert penstock("health", "--uds", str(path)).stdout == "ready\n"
        server.terminate()


def test_health_fails_without_a_server_and_while_one_drains(start):
    port = free_port()
    done = penstock("health", "--port", str(port))
    assert done.returncode == 1 and done.stderr == f"penstock: no server answers on 127.0.0.1 port {port}: Connection refused\n"
    server = start("--drain-delay", "300", "--admin-key", "admin")
    assert server.http.post("/drain", headers={"authorization": "Bearer admin"}).status_code == 200
    done = penstock("health", "--port", str(server.port))
    assert done.returncode == 1 and done.stderr.startswith("penstock: the server is not ready: ") and "shutting down" in done.stderr
    server.process.kill()  # a signal would not end the delay
    server.process.wait()


def test_check_ends_without_serving():
    port = free_port()
    done = penstock("serve", MODEL, "--check", "--port", str(port))
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.startswith(f"{MODEL} can be served: weights ")
    assert penstock("health", "--port", str(port)).returncode == 1


@pytest.mark.parametrize("flags, code, words", [
    (["--kv-cache-memory", "1MB"], 2, "--kv-cache-memory of 1000000 bytes is too small"),
    (["--chat-template", "/nowhere"], 1, "/nowhere"),
    (["--max-model-len", "9000000"], 2, "--max-model-len"),
    (["--api-key-file", "/nowhere"], 1, "/nowhere"),
    (["--wgmma"], 2, "--wgmma"),
    (["--no-such-flag"], 2, "unknown flag"),
])
def test_check_names_what_a_start_would_refuse(flags, code, words):
    checked, started = penstock("serve", MODEL, "--check", *flags), penstock("serve", MODEL, "--port", str(free_port()), *flags)
    assert (checked.returncode, checked.stdout) == (code, "") and words in checked.stderr
    assert started.returncode == code and checked.stderr in started.stderr
