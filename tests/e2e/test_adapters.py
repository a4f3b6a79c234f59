"""Adapters over HTTP: chosen by name, PEFT's tokens, the same bytes beside others, names in lists and errors."""
import concurrent.futures
import shutil
import subprocess
import time

import httpx
import pytest

from conftest import BINARY, ROOT, Server, environment
from streams import until

VECTORS = ROOT / "tests/vectors"
BASE = str(VECTORS / "folders/qwen2")
ADAPTERS = {"eight": VECTORS / "adapters/qwen2-8", "one": VECTORS / "adapters/qwen2-1.gguf"}


@pytest.fixture
def adapted(start):
    flags = [flag for name, path in ADAPTERS.items() for flag in ("--lora", f"{name}={path}")]
    return start("--model", BASE, "--max-model-len", "96", "--dtype", "float32", *flags)


def golden(name):
    """Pairs of a prompt and PEFT's tokens."""
    lines = (VECTORS / f"adapters/{name}.txt").read_text().splitlines()[2:]
    prompts = [[int(word) for word in line.split()[1:]] for line in lines if line.startswith("prompt")]
    tokens = [[int(word.split(":")[0]) for word in line.split()[1:]] for line in lines if line.startswith("tokens")]
    return list(zip(prompts, tokens))


def ask(server, model, prompt, n=24):
    body = {"model": model, "prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": True, "return_token_ids": True,
            "logprobs": 3}
    answer = httpx.post(server.url + "/v1/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == model
    return answer.json()["choices"][0]


def test_a_request_chooses_by_name(adapted):
    for name, vectors in (("eight", "qwen2-8"), ("one", "qwen2-1")):
        for prompt, tokens in golden(vectors):
            assert ask(adapted, name, prompt)["token_ids"] == tokens


def test_two_ranks_give_pefts_tokens(start):
    server = start("--model", BASE, "--max-model-len", "96", "--dtype", "float32", "--tensor-parallel-size", "2",
                   "--lora", f"eight={ADAPTERS['eight']}")
    for prompt, tokens in golden("qwen2-8"):
        assert ask(server, "eight", prompt)["token_ids"] == tokens


def test_neighbours_do_not_change_bytes(adapted):
    asked = [(model, prompt) for model in ("eight", "one", "smol") for prompt in ([7, 8, 9], [i % 250 for i in range(40)])]
    alone = [ask(adapted, *one) for one in asked]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        together = list(pool.map(lambda one: ask(adapted, *one), asked * 4))
    assert together == alone * 4


def test_the_base_is_that_of_a_server_without_adapters(adapted, start):
    plain = start("--model", BASE, "--max-model-len", "96", "--dtype", "float32")
    assert ask(plain, "smol", [1, 2, 3]) == ask(adapted, "smol", [1, 2, 3])


def test_lists_and_unknown_names(adapted):
    models = {model["id"]: model for model in adapted.http.get("/v1/models").json()["data"]}
    assert list(models) == ["smol", "eight", "one"]
    assert models["smol"]["parent"] is None and models["smol"]["root"] == "smol"
    assert models["one"]["parent"] == "smol" and models["one"]["root"] == str(ADAPTERS["one"])
    assert adapted.http.get("/v1/models/one").json()["id"] == "one"
    for path, body in (("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", {"messages": []})):
        refused = adapted.post(path, {"model": "nine", **body})
        assert refused.status_code == 404 and refused.json()["error"]["code"] == "model_not_found"
        assert "'smol', 'eight', 'one'" in refused.json()["error"]["message"]


def refusal(*flags):
    run = subprocess.run([BINARY, "serve", BASE, "--port", "0", *flags], capture_output=True, text=True, timeout=120, env=environment())
    assert run.returncode != 0
    return run.stderr.splitlines()[-1]


def test_a_start_without_its_adapter_fails(tmp_path):
    one = f"one={ADAPTERS['one']}"
    assert "NAME=PATH" in refusal("--lora", "one")
    assert "no such adapter" in refusal("--lora", f"one={tmp_path}/none")
    assert "loaded already" in refusal("--lora", one, "--lora", one)
    assert "name of the base model" in refusal("--lora", f"qwen2={ADAPTERS['one']}")
    assert "--max-loras" in refusal("--lora", one, "--lora", f"eight={ADAPTERS['eight']}", "--max-loras", "1")
    assert "--max-lora-rank 8" in refusal("--lora", f"eight={ADAPTERS['eight']}", "--max-lora-rank", "4")
    assert "another base model" in refusal("--lora", f"g={VECTORS}/adapters/gpt2-1")


# ---- loading while the server runs ---------------------------------------------------------------------------

ADMIN = {"Authorization": "Bearer boss"}


@pytest.fixture
def runtime(start, tmp_path):
    folder = tmp_path / "adapters"
    folder.mkdir()
    shutil.copytree(ADAPTERS["eight"], folder / "eight")
    shutil.copy(ADAPTERS["one"], folder / "one.gguf")
    return start("--model", BASE, "--max-model-len", "96", "--dtype", "float32", "--enable-runtime-lora", "--lora-dir", str(folder),
                 "--admin-key", "boss", "--max-loras", "2"), folder


def change(server, verb, headers=ADMIN, **body):
    return server.http.post(f"/v1/{verb}_lora_adapter", json=body, headers=headers)


def test_adapters_are_loaded_and_unloaded(runtime):
    server, folder = runtime
    prompt, tokens = golden("qwen2-8")[0]
    answer = change(server, "load", lora_name="a", lora_path="eight")
    assert answer.status_code == 200 and answer.json() == "Success: LoRA adapter 'a' added successfully."
    assert ask(server, "a", prompt)["token_ids"] == tokens
    assert change(server, "load", lora_name="a", lora_path="one.gguf").status_code == 400
    assert change(server, "load", lora_name="a", lora_path=str(folder / "one.gguf"), load_inplace=True).status_code == 200
    assert ask(server, "a", prompt)["token_ids"] == golden("qwen2-1")[0][1]
    assert change(server, "load", lora_name="b", lora_path="eight").status_code == 200
    full = change(server, "load", lora_name="c", lora_path="eight")
    assert full.status_code == 400 and "max-loras" in full.json()["error"]["message"]
    assert change(server, "unload", lora_name="a").status_code == 200
    assert change(server, "unload", lora_name="a").status_code == 404
    gone = server.post("/v1/completions", {"model": "a", "prompt": [7]})
    assert gone.status_code == 404 and "'b'" in gone.json()["error"]["message"]
    assert change(server, "load", lora_name="c", lora_path="eight").status_code == 200


def test_paths_stay_below_the_folder(runtime):
    server, folder = runtime
    (folder / "out").symlink_to(ADAPTERS["eight"])
    (folder / "half").mkdir()
    shutil.copy(folder / "eight/adapter_config.json", folder / "half")
    (folder / "half/adapter_model.safetensors").symlink_to(ADAPTERS["eight"] / "adapter_model.safetensors")
    for path in ("out", "half", "../adapters/eight", "eight/../eight", str(ADAPTERS["eight"]), "/", ".", "none", "a\x00b"):
        refused = change(server, "load", lora_name="a", lora_path=path)
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "lora_path", path


def test_only_admins_load(runtime, adapted):
    server, _ = runtime
    body = {"lora_name": "a", "lora_path": "eight"}
    assert change(server, "load", headers={}, **body).status_code == 401
    assert change(server, "load", headers={"Authorization": "Bearer x"}, **body).status_code == 401
    assert change(adapted, "load", **body).status_code == 401
    for wrong in ({}, {"lora_name": "a"}, {"lora_name": 1, "lora_path": "eight"}, {"lora_name": "a,b", "lora_path": "eight"},
                  {"lora_name": "smol", "lora_path": "eight"}, {"lora_name": "", "lora_path": "eight"}):
        assert change(server, "load", **wrong).status_code == 400, wrong


def test_a_running_request_keeps_its_adapter(runtime):
    server, _ = runtime
    prompt = [7, 8, 9]
    change(server, "load", lora_name="a", lora_path="eight")
    alone = ask(server, "a", prompt, 80)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        running = [pool.submit(ask, server, "a", prompt, 80) for _ in range(8)]
        change(server, "load", lora_name="a", lora_path="one.gguf", load_inplace=True)
        after = ask(server, "a", prompt, 80)
        answers = [one.result() for one in running]
    assert all(answer in (alone, after) for answer in answers) and alone != after
    info = until(lambda: [name for name in server.metrics() if name.startswith("vllm:lora_requests_info")
                          and 'running_lora_adapters=""' in name])
    assert 'max_lora="2"' in info[0]


def test_runtime_loading_needs_a_folder():
    assert "--lora-dir" in refusal("--enable-runtime-lora")


# ---- promises ----------------------------------------------------------------------------------------------------

BODY = {"model": "eight", "prompt": [[7, 8, 9]] * 40, "max_tokens": 80, "temperature": 0, "ignore_eos": True, "return_token_ids": True}


def keep(server, key):
    """The answer to a request with an Idempotency-Key, or None if the server is gone."""
    try:
        while (answer := httpx.post(server.url + "/v1/completions", json=BODY, headers={"Idempotency-Key": key}, timeout=600)).status_code == 429:
            time.sleep(0.02)
        return answer
    except httpx.TransportError:
        return None


def serve_kept(folder, **adapters):
    flags = [flag for name, path in adapters.items() for flag in ("--lora", f"{name}={path}")]
    return Server("--model", BASE, "--max-model-len", "96", "--dtype", "float32", "--max-num-seqs", "1", "--state-dir", str(folder),
                  *flags).wait_until_ready()


def leave_promises(folder, keys):
    """Kills a server after its first answers. Returns the answers, None for those that are open."""
    server = serve_kept(folder, **ADAPTERS)
    with concurrent.futures.ThreadPoolExecutor(len(keys)) as pool:
        asked = [pool.submit(keep, server, key) for key in keys]
        concurrent.futures.wait(asked, return_when=concurrent.futures.FIRST_COMPLETED)
        until(lambda: server.metric("penstock_promises") == len(keys))
        server.process.kill()
        answers = [one.result() for one in asked]
    server.process.wait()
    server.stop()
    assert None in answers and any(answers), answers
    return answers


def test_promises_of_an_adapter_outlive_a_kill(tmp_path):
    keys = [f"k{i}" for i in range(12)]
    answers = leave_promises(tmp_path, keys)
    tokens = [choice["token_ids"] for choice in next(answer for answer in answers if answer).json()["choices"]]
    server = serve_kept(tmp_path, one=ADAPTERS["one"], eight=ADAPTERS["eight"])  # their numbers are exchanged
    try:
        for key, first in zip(keys, answers):
            again = keep(server, key)
            assert again.status_code == 200 and [choice["token_ids"] for choice in again.json()["choices"]] == tokens
            assert first is None or again.content == first.content
        assert server.metrics()["penstock_promises_recovered_total"] > 0
    finally:
        server.stop()


@pytest.mark.parametrize("adapters, text", [({"eight": ADAPTERS["one"]}, "the adapter 'eight' has other files"),
                                            ({"one": ADAPTERS["one"]}, "'eight' does not exist")])
def test_another_adapter_ends_promises_with_an_error(tmp_path, adapters, text):
    keys = [f"k{i}" for i in range(12)]
    answers = leave_promises(tmp_path, keys)
    server = serve_kept(tmp_path, **adapters)
    try:
        again = [keep(server, key) for key in keys]
        ended = [one for one in again if one.status_code != 200]
        assert ended and all(text in one.text for one in ended), [one.text for one in ended]
        # A client may have an answer that was not on the disk yet; it ended, too.
        assert all(a.content == b.content for a, b in zip(answers, again) if a and b.status_code == 200)
    finally:
        server.stop()
