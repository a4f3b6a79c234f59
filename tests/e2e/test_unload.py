"""--unload-when-idle: weights and cache are given back, the port stays open, and the next request loads again."""
import concurrent.futures
import os
import shutil
import signal
import subprocess
import time

import httpx
import pytest
from conftest import BINARY, MODEL, ROOT, Server, environment, free_port
from streams import load, until as until_true
from test_supervisor import manager, process, until

VECTORS = ROOT / "tests/vectors"
FLAGS = ["--max-model-len", "1024", "--kv-cache-memory", "64MiB", "--unload-when-idle", "1"]


def resident(server):
    return server.metric("process_resident_memory_bytes")


def state(server):
    return server.http.get("/health/ready").json().get("model", "loaded")


def unloaded(server, seconds=60):
    """Waits until the server has given its model back."""
    end = time.monotonic() + seconds
    while state(server) != "unloaded":
        assert time.monotonic() < end
        time.sleep(0.05)
    return server


def test_memory_is_given_back_and_bytes_stay(start):
    server = start(*FLAGS)
    before = server.continue_by(24, "Once upon a time")
    with load(server, 1) as ids:  # a server with a stream cannot unload
        until_true(lambda: ids)
        loaded = resident(server)
    unloaded(server)
    idle = resident(server)
    assert loaded - idle > 60 << 20  # the weights have 92 MiB
    assert server.http.get("/v1/models").status_code == 200
    assert server.post("/tokenize", {"prompt": "Water"}).status_code == 200
    assert state(server) == "unloaded"  # neither of them needs the weights
    live = server.http.get("/penstock/live").json()
    assert live["model"] == "unloaded" and live["blocks"]["used"] == live["blocks"]["cached"] == 0
    metrics = server.metrics()
    asleep = [v for k, v in metrics.items() if k.startswith("vllm:engine_sleep_state") and "discard_all" in k]
    assert asleep == [1] and metrics["penstock_model_unloads_total"] == 1
    assert server.continue_by(24, "Once upon a time") == before
    assert server.metric("penstock_model_loads_total") == 1
    with load(server, 1) as ids:
        until_true(lambda: ids)
        assert state(server) == "loaded"


def test_requests_at_once_load_once_and_none_is_lost(start):
    server = start(*FLAGS)
    alone = {n: server.continue_by(8, f"The number {n} is") for n in range(3)}
    unloaded(server)
    loads = server.metric("penstock_model_loads_total")  # a busy machine may have unloaded before
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        asked = [n % 3 for n in range(12)]
        answers = list(pool.map(lambda n: server.continue_by(8, f"The number {n} is"), asked))
    assert answers == [alone[n] for n in asked]
    assert server.metric("penstock_model_loads_total") == loads + 1


def test_a_failed_load_answers_503_and_is_tried_again(start, tmp_path):
    model = tmp_path / "model.gguf"
    shutil.copy2(MODEL, model)
    server = start(*FLAGS, "--model", str(model))
    before = server.continue_by(8, "Water")
    unloaded(server)
    model.rename(tmp_path / "away")
    for _ in range(2):
        answer = server.post("/v1/completions", {"model": "smol", "prompt": "Water", "max_tokens": 4})
        assert answer.status_code == 503, answer.text
        error = answer.json()["error"]
        assert error["code"] == "model_not_loaded" and "cannot be loaded again" in error["message"]
        assert int(answer.headers["Retry-After"]) > 0
    assert server.http.get("/health/ready").status_code == 200
    (tmp_path / "away").rename(model)
    assert server.continue_by(8, "Water") == before
    unloaded(server)
    os.utime(model)  # another file, for all that the server can know
    answer = server.post("/v1/completions", {"model": "smol", "prompt": "Water", "max_tokens": 4})
    assert answer.status_code == 503 and "restart the server" in answer.json()["error"]["message"]


def test_the_manager_hears_of_it_and_stops_it(tmp_path):
    port = free_port()
    command = [BINARY, "serve", "--model", MODEL, "--served-model-name", "smol", "--port", str(port), "--drain-delay", "0",
               *FLAGS]
    with manager(tmp_path) as (env, read), process(command, env=env, start_new_session=True) as server:
        until(read, "READY=1")
        until(read, "the model is unloaded")
        server.send_signal(signal.SIGHUP)
        until(read, "RELOADING=1")
        assert "unloaded" in until(read, "READY=1")
        body = {"model": "smol", "prompt": "Water", "max_tokens": 4}
        assert httpx.post(f"http://127.0.0.1:{port}/v1/completions", json=body, timeout=60).status_code == 200
        until(read, "Loading the model again")
        until(read, "Serving smol")
        until(read, "the model is unloaded")
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0


def test_an_adapter_arrives_while_the_model_is_away(start):
    base, adapter = VECTORS / "folders/qwen2", VECTORS / "adapters/qwen2-8"
    ask = {"model": "a", "prompt": [1, 2, 3], "max_tokens": 8, "temperature": 0, "return_token_ids": True}
    flags = ["--model", str(base), "--max-model-len", "96", "--unload-when-idle", "1", "--enable-runtime-lora", "--lora-dir", str(VECTORS / "adapters"),
             "--admin-key", "root"]
    keys = {"headers": {"Authorization": "Bearer root"}}
    plain = start("--model", str(base), "--max-model-len", "96", "--lora", f"a={adapter}")
    expected = plain.post("/v1/completions", ask).json()["choices"][0]["token_ids"]
    server = unloaded(start(*flags))
    load = server.post("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "qwen2-8"}, **keys)
    assert load.status_code == 200, load.text
    assert state(server) == "unloaded"
    for _ in range(2):
        assert server.post("/v1/completions", ask, **keys).json()["choices"][0]["token_ids"] == expected
        unloaded(server)


def test_promises_and_streams_are_not_idle(start, tmp_path):
    server = start(*FLAGS, "--state-dir", str(tmp_path / "state"))
    body = {"model": "smol", "input": "Tell me of rivers.", "background": True, "store": True, "max_output_tokens": 500,
            "temperature": 0, "ignore_eos": True}
    made = server.post("/v1/responses", body).json()
    until_true(lambda: state(server) == "loaded")  # a busy machine may have unloaded before
    states, end = set(), time.monotonic() + 300
    while True:
        now = state(server)
        answer = server.http.get(f"/v1/responses/{made['id']}").json()
        if answer["status"] not in ("queued", "in_progress"):
            break  # it may have ended long before `now`
        states.add(now)
        assert time.monotonic() < end
        time.sleep(0.05)
    assert answer["status"] == "incomplete" and states <= {"loaded"}
    unloaded(server)
    assert server.http.get(f"/v1/responses/{made['id']}").json() == answer  # from the journal
    assert state(server) == "unloaded"


def test_a_time_that_never_comes_is_refused():
    command = [BINARY, "serve", "--model", MODEL, "--unload-when-idle", "30", "--exit-when-idle", "30"]
    end = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert end.returncode == 2 and "--unload-when-idle 30 never happens with --exit-when-idle 30" in end.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_unloaded_server_stops(number):
    server = unloaded(Server(*FLAGS).wait_until_ready())
    server.process.send_signal(number)
    assert server.process.wait(60) == 0
    server.stop()
