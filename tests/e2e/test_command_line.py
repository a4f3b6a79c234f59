"""The program from a user's side: the last line of a server's start, progress, and error messages."""
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

from conftest import BINARY, MODEL, environment, free_port
from terminal import Terminal

# ---- serving -------------------------------------------------------------------------------------------


def example_of(text):
    """Returns the command line that the server suggests for a first request."""
    return next(line[line.index("curl "):] for line in text.replace("\r", "").splitlines() if "curl " in line)


@pytest.mark.parametrize("host, url", [("127.0.0.1", "http://127.0.0.1:"), ("0.0.0.0", "http://127.0.0.1:"), ("::1", "http://[::1]:")])
def test_serve_ends_its_start_with_a_line_to_copy(host, url):
    port = free_port()
    terminal = Terminal("serve", "--model", MODEL, "--host", host, "--port", str(port), rows=60, columns=250)
    try:
        terminal.wait_for('"max_tokens": 32}\'')  # the end of the line to copy
        text = terminal.text()
        assert text.index("loading ") < text.index("ready on ")
        command = example_of(text)
        assert f"curl {url}{port}/v1/chat/completions" in command
        done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=120)
        answer = json.loads(done.stdout)  # of random text, which may be empty
        assert answer["choices"][0]["message"]["role"] == "assistant" and answer["usage"]["completion_tokens"] > 0
        terminal.send("\x03")
        assert terminal.end() == 0
    finally:
        terminal.close()


def test_the_line_to_copy_works_with_a_key(start, tmp_path):
    keys = tmp_path / "my keys"
    keys.write_text("# a comment\n\nfirst\nsecond\n")
    for flags, env in [(["--api-key-file", str(keys)], {}), (["--api-key", "k1"], {"PENSTOCK_API_KEY": "k1"})]:
        server = start(*flags)
        command = example_of(server.log_text())
        assert "k1" not in command and "first" not in command
        done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=120, env={**os.environ, **env})
        assert "choices" in json.loads(done.stdout)


def test_a_log_has_no_codes_and_every_line_its_time(start):
    server = start()
    lines = server.log_text().splitlines()
    assert all(line[:4].isdigit() and line[10] == "T" for line in lines) and "\033" not in "".join(lines)
    assert " INFO  loading " in lines[0] and any(" INFO  try it: curl " in line for line in lines)


def dummy(tmp_path):
    """A shape whose random weights take some seconds to make, on a fast machine too."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 36,
        "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 1000, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 512}))
    return ["serve", "--model", str(path), "--load-format", "dummy", "--kv-cache-memory", "64MiB", "--threads", "1"]


def test_progress_is_one_line_on_a_terminal(tmp_path):
    terminal = Terminal(*dummy(tmp_path), "--port", str(free_port()), columns=250)
    try:
        terminal.wait_for("ready on", seconds=240)
        shown = terminal.raw.count(b"\rloading weights [")
        assert shown > 1 and b"\r\033[K" in terminal.raw and "[=" not in terminal.text()
    finally:
        terminal.close()


def test_progress_is_a_few_lines_in_a_log(tmp_path):
    began, lines = time.monotonic(), []
    process = subprocess.Popen([BINARY, *dummy(tmp_path), "--port", str(free_port())], stderr=subprocess.PIPE, text=True,
                               env=environment())
    try:
        for line in process.stderr:
            lines.append(line)
            if "ready on" in line:
                break
        shown = [line for line in lines if "loading weights: " in line]
        assert 1 <= len(shown) <= 1 + (time.monotonic() - began) / 5 and "\r" not in "".join(lines)
    finally:
        process.terminate()
        process.wait(120)
        process.stderr.close()


# ---- errors and their remedies ---------------------------------------------------------------------------


def run(*arguments, cwd=None):
    done = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=120, env=environment(), cwd=cwd,
                          stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def folder(tmp_path):
    """A folder with files that a user could have meant."""
    (tmp_path / "models").mkdir()
    for name in ("river.gguf", "models/lake.GGUF", "models/readme.txt", "models/evil\033[2J.gguf"):
        (tmp_path / name).write_bytes(b"this is no model")
    (tmp_path / "transformers").mkdir()
    (tmp_path / "transformers/model.safetensors").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    (tmp_path / "models/sea").mkdir()
    (tmp_path / "models/sea/config.json").write_bytes(b"{}")
    return tmp_path


@pytest.mark.parametrize("model, sentences", [
    ("nothing.gguf", ["cannot find the model nothing.gguf: No such file", "file in the GGUF format", "Near here: river.gguf, models/lake.GGUF, models/sea"]),
    ("models/nothing.gguf", ["cannot find the model models/nothing.gguf", "Near here: models/lake.GGUF, models/sea, river.gguf"]),
    ("models", ["models is a folder; name one of its files", "In it: models/lake.GGUF, models/sea"]),
    ("empty", ["empty is a folder without a model", "Near here: river.gguf"]),
    ("transformers", ["a folder with weights, but without config.json", "a whole folder"]),
    ("transformers/model.safetensors", ["is one file of a model", "Give the folder"]),
    ("Qwen/Qwen2.5-0.5B", ["no file or folder here, and as a name on a model hub", "forbids to fetch it", "Near here: river.gguf"]),
    ("models/readme.txt", ["not a GGUF file"]),
    ("models/sea", ["penstock: models/sea"]),
])
def test_a_model_that_is_none(folder, model, sentences, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for command in (["serve", "--port", "0"], ["run", "hello"], ["inspect"], ["tokenize", "hello"]):
        code, out, err = run(*command, "--model", model, cwd=folder)
        assert code == 1 and not out and "penstock: " in err
        for sentence in sentences:
            assert sentence in err, err
        assert "\033" not in err and "Traceback" not in err


def test_what_stands_where_a_command_belongs(folder):
    assert "penstock serve river.gguf" in run("river.gguf", cwd=folder)[2]
    code, _, err = run("--model", "river.gguf", cwd=folder)
    assert code == 2 and "a command must come before --model" in err


def test_the_help_of_batch_shows_a_line_that_works(tmp_path):
    """And an interrupted batch continues as the help says."""
    _, out, _ = run("help", "batch")
    (tmp_path / "in").write_text(next(line for line in out.splitlines() if line.startswith("  {")) + "\n")
    for _ in range(2):
        code, _, err = run("batch", "--model", MODEL, "-i", str(tmp_path / "in"), "-o", str(tmp_path / "out"))
        assert code == 0, err
    (answer,) = (tmp_path / "out").read_text().splitlines()
    assert json.loads(answer)["response"]["status_code"] == 200


def test_no_model_at_all(folder):
    code, _, err = run("run", cwd=folder)
    assert code == 2 and "run needs a model" in err and "river.gguf, models/lake.GGUF" in err and "make model" in err


def test_a_port_in_use_is_found_before_the_model_is_loaded(server):
    code, _, err = run("serve", "--model", MODEL, "--port", str(server.port))
    assert code == 1 and "in use" in err and "loading" not in err


@pytest.mark.parametrize("arguments, code, text", [
    ([], 2, "usage: penstock COMMAND"),
    (["help"], 0, "usage: penstock COMMAND"),
    (["-h"], 0, "usage: penstock COMMAND"),
    (["help", "run"], 0, "usage: penstock run"),
    (["run", "--help"], 0, "usage: penstock run"),
    (["help", "tokenize"], 0, "penstock tokenize --model model.gguf"),
    (["help", "sevre"], 2, "did you mean serve?"),
    (["-v"], 0, "penstock 0."),
    (["--version"], 0, "penstock 0."),
    (["version"], 0, "penstock 0."),
    (["sevre"], 2, "did you mean serve?"),
    (["run", "--max-token", "3"], 2, "did you mean --max-tokens?"),
])
def test_asking_the_program_for_help(arguments, code, text):
    got, out, err = run(*arguments)
    assert got == code and text in (err if code else out)


def test_inspect_begins_with_the_summary():
    _, short, _ = run("inspect", MODEL)
    _, whole, _ = run("inspect", "--tensors", MODEL)
    parts = ["GGUF version 3", "\nModel: ", "\nTokenizer: ", "\nMemory when serving", "\nTensors by type: 272", "\nKeys: "]
    places = [short.index(part) for part in parts]
    assert places == sorted(places) and places[0] < 200
    assert "blk.0.attn_q.weight" not in short and "blk.0.attn_q.weight" in whole


def test_errors_are_red_on_a_terminal_only():
    terminal = Terminal("serve", "--prot", "1")
    assert terminal.end() == 2 and b"\033[1;31mpenstock:\033[0m serve: unknown flag" in terminal.raw
    terminal.close()
    terminal = Terminal("serve", "--prot", "1", env={"NO_COLOR": "1"})
    assert terminal.end() == 2 and terminal.raw.startswith(b"penstock: serve: unknown flag")
    terminal.close()


@pytest.mark.parametrize("script", ["format.py", "mutate.py"])
def test_scripts_have_help(script):
    done = subprocess.run([sys.executable, pathlib.Path(__file__).parents[1] / script, "--help"], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0 and done.stdout.startswith(f"usage: {script}")
