"""Adapters over HTTP: chosen by name, PEFT's tokens, the same bytes beside others, names in lists and errors."""
import concurrent.futures
import subprocess

import httpx
import pytest

from conftest import BINARY, ROOT, environment

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
    answer = httpx.post(server.url + "/v1/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == model
    return answer.json()["choices"][0]


def test_a_request_chooses_by_name(adapted):
    for name, vectors in (("eight", "qwen2-8"), ("one", "qwen2-1")):
        for prompt, tokens in golden(vectors):
            assert ask(adapted, name, prompt)["token_ids"] == tokens


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
    run = subprocess.run([BINARY, "serve", BASE, *flags], capture_output=True, text=True, timeout=60, env=environment())
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
    assert "ranks" in refusal("--lora", one, "--tensor-parallel-size", "2")
    assert "another base model" in refusal("--lora", f"g={VECTORS}/adapters/gpt2-1")
