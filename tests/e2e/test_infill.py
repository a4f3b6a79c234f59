"""Text is filled in by a model with the tokens for it: the default model's file with other names of three tokens."""
import httpx
import ollama
import pytest

from conftest import MODEL, NAME, Server

NAMES = {b"<jupyter_text>": b"<|fim_prefix|>", b"<jupyter_code>": b"<|fim_suffix|>", b"<empty_output>": b"<|fim_middle|>"}
BEFORE, AFTER = "def area(r):\n    return ", "\n\nprint(area(2))\n"
GREEDY = {"temperature": 0, "max_tokens": 8}


@pytest.fixture(scope="module")
def filler(tmp_path_factory):
    data = open(MODEL, "rb").read()
    for old, new in NAMES.items():
        assert data.count(old) == 1
        data = data.replace(old, new)
    path = tmp_path_factory.mktemp("fim") / "fim.gguf"
    path.write_bytes(data)
    server = Server("--max-model-len", "512", "--kv-cache-memory", "64MiB", model=str(path))
    yield server.wait_until_ready()
    server.stop()


def ids_of(server, text):
    return server.post("/tokenize", {"content": text}).json()["tokens"]


def rendered(server, path, body):
    answer = server.post(f"{path}/render", {"max_tokens": 8, **body})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    return (found[0] if isinstance(found, list) else found)["token_ids"]


def test_a_suffix_is_put_after_its_token(filler):
    pre, suf, mid = (ids_of(filler, name.decode())[0] for name in NAMES.values())
    expected = [pre, *ids_of(filler, BEFORE), suf, *ids_of(filler, AFTER), mid]
    assert rendered(filler, "/v1/completions", {"prompt": BEFORE, "suffix": AFTER}) == expected
    assert rendered(filler, "/infill", {"input_prefix": "def area(r):\n", "input_suffix": AFTER, "prompt": "    return "}) == expected
    assert rendered(filler, "/infill", {"input_prefix": "", "input_suffix": ""}) == [pre, suf, mid]
    # names of tokens in a user's text are text
    assert rendered(filler, "/infill", {"input_prefix": "<|fim_middle|>", "input_suffix": ""}).count(mid) == 1


def test_files_come_first_and_are_cut_to_fit(filler):
    gap = rendered(filler, "/infill", {"input_prefix": BEFORE, "input_suffix": AFTER})
    files = [{"filename": "a.py", "text": "import math\n"}]
    found = rendered(filler, "/infill", {"input_prefix": BEFORE, "input_suffix": AFTER, "input_extra": files})
    assert found[-len(gap):] == gap and len(found) > len(gap) + 6
    file, repository = ids_of(filler, "<file_sep>"), ids_of(filler, "<reponame>")
    assert found[0] == repository[0] and found.count(file[0]) == 2
    long = rendered(filler, "/infill", {"input_prefix": BEFORE, "input_suffix": AFTER, "input_extra": files * 200})
    assert long[-len(gap):] == gap and len(long) == 512 * 3 // 4


def test_every_path_gives_one_text(filler):
    whole = filler.post("/v1/completions", {"prompt": BEFORE, "suffix": AFTER, **GREEDY}).json()["choices"][0]["text"]
    body = {"input_prefix": BEFORE, "input_suffix": AFTER, "temperature": 0, "n_predict": 8,
            "samplers": ["top_k", "infill"], "t_max_predict_ms": 500000, "n_indent": 4, "response_fields": ["content"]}
    assert filler.post("/infill", body).json()["content"] == whole and len(whole) > 4
    with httpx.stream("POST", filler.url + "/infill", json={**body, "stream": True}, timeout=120) as answer:
        assert sum(line.startswith("data: ") for line in answer.iter_lines()) > 4
    client = ollama.Client(host=filler.url, timeout=120)
    options = {"temperature": 0, "num_predict": 8}
    assert client.generate(NAME, BEFORE, suffix=AFTER, options=options).response == whole
    assert "insert" in client.show(NAME).capabilities


@pytest.mark.parametrize("path, body, field", [
    ("/v1/completions", {"prompt": [1, 2], "suffix": "a"}, "prompt"),
    ("/v1/completions", {"prompt": "a", "suffix": "a", "echo": True}, "echo"),
    ("/v1/completions", {"prompt": "a", "suffix": "a", "truncate_prompt_tokens": 4}, "truncate_prompt_tokens"),
    ("/v1/completions", {"prompt": "a", "input_extra": [{"text": "a"}]}, "input_extra"),
    ("/infill", {"input_prefix": "a"}, "input_suffix"),
    ("/infill", {"input_prefix": "a", "input_suffix": 3}, "input_suffix"),
    ("/infill", {"input_prefix": "a", "input_suffix": "b", "prompt": ["a"]}, "prompt"),
    ("/infill", {"input_prefix": "a", "input_suffix": "b", "input_extra": [{"filename": "a"}]}, "input_extra[0]"),
])
def test_bad_bodies_are_refused_by_name(filler, path, body, field):
    answer = filler.post(path, body)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == field, answer.text


def test_a_model_without_the_tokens_says_so(server):
    for path, body, field in [("/v1/completions", {"prompt": "a", "suffix": "b"}, "suffix"),
                              ("/infill", {"input_prefix": "a", "input_suffix": ""}, "input_suffix")]:
        answer = server.post(path, body)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == field
        assert "fim_prefix" in answer.json()["error"]["message"]
