"""Folders instead of files: all commands accept them, and use their names, end tokens and sampling settings."""
import json
import subprocess

import pytest

from conftest import BINARY, NAME, ROOT, Server, environment

FOLDER = ROOT / "tests/vectors/folders/llama"
SMALL = ("--max-num-seqs", "4", "--threads", "1")


def penstock(*words, cwd=ROOT):
    done = subprocess.run([BINARY, *map(str, words)], env=environment(), capture_output=True, text=True, timeout=600, cwd=cwd,
                          errors="replace")
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(server, **fields):
    answer = server.post("/v1/completions/render", {"model": NAME, "prompt": [1, 2], **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()[0]["sampling_params"]


def test_every_command_takes_a_folder(tmp_path):
    shown = penstock("inspect", "--tensors", FOLDER)
    assert "safetensors, 3 files" in shown and "model.layers.0.self_attn.q_proj.weight" in shown
    assert "ends a generation: 257" in shown
    assert "259" in penstock("tokenize", "--model", FOLDER, "the").split()
    assert penstock("run", "--model", FOLDER, "--max-tokens", "4", "the")
    assert "| tg 1 " in penstock("bench", "--bench-prompt", "8", "--bench-batch", "1", "--bench-repeats", "1",
                                 "--bench-generate", "4", FOLDER)
    lines = [{"custom_id": "a", "method": "POST", "url": "/v1/completions",
              "body": {"prompt": "the", "max_tokens": 3, "temperature": 0}}]
    (tmp_path / "in").write_text("".join(json.dumps(line) + "\n" for line in lines))
    penstock("batch", "--model", FOLDER, "-i", tmp_path / "in", "-o", tmp_path / "out")
    answer = json.loads((tmp_path / "out").read_text())
    assert answer["response"]["status_code"] == 200 and answer["response"]["body"]["model"] == "llama"


def test_random_weights_in_the_shapes_of_a_folder(tmp_path):
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((FOLDER / name).read_bytes())
    assert "random weights" in penstock("inspect", "--load-format", "dummy", tmp_path)
    assert penstock("run", "--load-format", "dummy", "--model", tmp_path, "--max-tokens", "4", "the")


def test_layers_that_are_not_used_are_told():
    server = Server(*SMALL, model=ROOT / "tests/vectors/folders/glm4moe").wait_until_ready()
    assert "1 layer of the file guesses tokens beyond the next one (nextn); it is not used" in server.log_tail()
    assert len(server.complete(prompt=[1, 2, 3], max_tokens=4, ignore_eos=True, return_token_ids=True)["choices"][0]["token_ids"]) == 4
    server.stop()


@pytest.mark.parametrize("path", [".", "../llama/", "../llama"])
def test_a_folder_gives_the_name(path, tmp_path):
    lines = json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": [1], "max_tokens": 1}})
    (tmp_path / "in").write_text(lines + "\n")
    penstock("batch", "--model", path, "-i", tmp_path / "in", "-o", tmp_path / "out", cwd=FOLDER)
    assert json.loads((tmp_path / "out").read_text())["response"]["body"]["model"] == "llama"


def test_the_cache_of_the_hub_gives_the_name(tmp_path):
    snapshot = tmp_path / "models--org--tiny-llama/snapshots/0123abc"
    snapshot.mkdir(parents=True)
    for path in FOLDER.iterdir():
        (snapshot / path.name).symlink_to(path)
    (tmp_path / "in").write_text(json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/completions",
                                             "body": {"prompt": [1], "max_tokens": 1}}) + "\n")
    penstock("batch", "--model", snapshot, "-i", tmp_path / "in", "-o", tmp_path / "out")
    assert json.loads((tmp_path / "out").read_text())["response"]["body"]["model"] == "org/tiny-llama"


def test_sampling_and_chats_are_as_the_folder_says():
    server = Server(*SMALL, model=FOLDER).wait_until_ready()
    try:
        chat = {"model": NAME, "messages": [{"role": "user", "content": "the"}]}
        ids = server.post("/v1/chat/completions/render", chat).json()["token_ids"]
        assert server.post("/detokenize", {"model": NAME, "tokens": ids}).json()["prompt"] == "user: the\nassistant: "
        found = rendered(server)
        assert (found["temperature"], found["top_p"], found["top_k"]) == pytest.approx((0.6, 0.9, 50))
        found = rendered(server, temperature=0, top_k=-1)
        assert found["temperature"] == 0 and found["top_p"] == pytest.approx(0.9) and found["top_k"] in (0, -1)
    finally:
        server.stop()


def first_tokens(folder, *flags, **fields):
    """Returns the ids of a greedy answer."""
    server = Server(*SMALL, *flags, model=folder).wait_until_ready()
    try:
        body = server.complete(prompt=[1, 2], max_tokens=8, return_token_ids=True, **fields)
        return body["choices"][0]["token_ids"]
    finally:
        server.stop()


def test_suppressed_tokens_are_never_chosen(tmp_path):
    for path in FOLDER.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    usual = first_tokens(FOLDER, ignore_eos=True)
    settings = tmp_path / "generation_config.json"
    listed = {**json.loads(settings.read_text()), "suppress_tokens": [*usual, 100000]}
    settings.write_text(json.dumps(listed))
    for fields in ({"ignore_eos": True}, {"min_tokens": 8}):
        assert not set(usual) & set(first_tokens(tmp_path, **fields))
    assert first_tokens(tmp_path, "--generation-config", "none", ignore_eos=True) == usual


def test_sampling_is_the_apis_where_the_folder_may_not_say():
    server = Server(*SMALL, "--generation-config", "none", model=FOLDER).wait_until_ready()
    try:
        found = rendered(server)
        assert (found["temperature"], found["top_p"]) == (1, 1) and found["top_k"] in (0, -1)
    finally:
        server.stop()
