"""`penstock quantize`, and `--quantization` at load: the same answers, files that are whole or not there, and refusals."""
import os
import resource
import signal
import struct
import subprocess

import pytest

from conftest import BINARY, ROOT

FLOATS = ROOT / "tests/vectors/families/phi3.gguf"
FOLDER = ROOT / "tests/vectors/folders/llama"
TYPES = ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q6_k"]


def penstock(*words, **more):
    return subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True, timeout=60, **more)


def answer(model, *flags):
    """What a model says to a prompt of bytes, as text that any model of the test's vocabulary can give."""
    done = penstock("run", "--model", model, "--device", "cpu", "--temperature", 0, "--max-tokens", 24, *flags, "water flows")
    assert done.returncode == 0, done.stderr
    return done.stdout


def tensor_types(path):
    lines = penstock("inspect", "--tensors", path).stdout.splitlines()
    return {words[0]: words[1] for words in map(str.split, lines) if len(words) > 2 and words[0].endswith(".weight")}


@pytest.mark.parametrize("kind", TYPES)
def test_a_file_answers_as_its_source_quantised_at_load(kind, tmp_path):
    out = tmp_path / "small.gguf"
    done = penstock("quantize", FLOATS, out, "--type", kind)
    assert done.returncode == 0, done.stderr
    assert out.stat().st_size < FLOATS.stat().st_size
    assert answer(out) == answer(FLOATS, "--quantization", kind)
    assert answer(out, "--dtype", "float32") == answer(FLOATS, "--quantization", kind, "--dtype", "float32")
    assert os.listdir(tmp_path) == ["small.gguf"]


def test_types_follow_the_tensors_and_their_rows(tmp_path):
    """Rows of 32 numbers are no whole blocks of 256, and rows of 40 none of 32."""
    out = tmp_path / "small.gguf"
    assert penstock("quantize", FLOATS, out, "--type", "q4_k").returncode == 0
    types = tensor_types(out)
    assert types["token_embd.weight"] == "q8_0" and types["blk.0.attn_qkv.weight"] == "q5_0"
    assert types["blk.0.ffn_down.weight"] == "f32" and types["blk.0.attn_norm.weight"] == "f32"


def test_keys_are_kept_and_the_file_says_its_type(tmp_path):
    out = tmp_path / "small.gguf"
    assert penstock("quantize", FLOATS, out, "--type", "q4_0").returncode == 0
    keys = [{line.split("=")[0].strip(): line for line in penstock("inspect", path).stdout.split("Keys:")[1].splitlines()}
            for path in (FLOATS, out)]
    changed = {key for key in {*keys[0], *keys[1]} if keys[0].get(key) != keys[1].get(key)}
    assert all("general.file_type" in key or "general.quantization_version" in key or key[:1].isdigit() for key in changed)
    assert out.read_bytes()[:8] == b"GGUF" + struct.pack("<I", 3)


def test_a_folder_is_quantised_as_it_is_loaded():
    assert answer(FOLDER, "--quantization", "q8_0", "--dtype", "float32")
    done = penstock("quantize", FOLDER, "/tmp/never.gguf")
    assert done.returncode == 2 and "is a folder; quantize reads a GGUF file" in done.stderr


def test_a_file_is_never_written_over(tmp_path):
    copy = tmp_path / "in.gguf"
    copy.write_bytes(FLOATS.read_bytes())
    done = penstock("quantize", copy, copy)
    assert done.returncode == 2 and "is there already; remove it, or give another name" in done.stderr
    assert copy.read_bytes() == FLOATS.read_bytes()


def test_a_full_disk_leaves_nothing(tmp_path):
    out = tmp_path / "small.gguf"

    def small_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

    done = penstock("quantize", FLOATS, out, preexec_fn=small_files)
    assert done.returncode == 1 and "cannot be written: File too large" in done.stderr
    assert os.listdir(tmp_path) == []


def test_a_killed_run_leaves_nothing_under_the_name(tmp_path):
    """Killed after different times: there is no file, or a whole one."""
    for i in range(8):
        out = tmp_path / f"small{i}.gguf"
        process = subprocess.Popen([BINARY, "quantize", str(FLOATS), str(out)], stdout=subprocess.DEVNULL)
        try:
            process.wait(timeout=0.0005 * (i + 1) ** 2)
        except subprocess.TimeoutExpired:
            process.kill()
        process.wait()
        assert not out.exists() or penstock("inspect", out).returncode == 0


@pytest.mark.parametrize("words, sentence", [
    (["quantize", "a.gguf"], "quantize needs two files"),
    (["quantize", "a.gguf", "b.gguf", "c.gguf"], "quantize takes two arguments"),
    (["quantize", str(FLOATS), "b.gguf", "--type", "q3_k"], "q3_k"),
    (["quantize", str(FLOATS), "/nowhere/b.gguf"], "/nowhere/b.gguf cannot be made: No such file or directory"),
])
def test_what_cannot_be_is_refused(words, sentence):
    done = penstock(*words)
    assert done.returncode in (1, 2) and sentence in done.stderr, done.stderr


def test_a_model_that_is_quantised_already_is_refused(tmp_path):
    out = tmp_path / "small.gguf"
    assert penstock("quantize", FLOATS, out, "--type", "q8_0").returncode == 0
    done = penstock("quantize", out, tmp_path / "smaller.gguf", "--type", "q4_0")
    # the rows of 40 numbers stay floats, whatever the type is
    assert done.returncode == 2 and "has no float matrix that could be quantised to q4_0" in done.stderr
    done = penstock("run", "--model", out, "--quantization", "q4_0", "a")
    assert done.returncode == 2 and "--quantization q4_0 is of float matrices" in done.stderr
