"""Files that are truncated while a process uses them: it ends with exit code 1 and a message that names the file."""
import os
import random
import shutil
import subprocess
import time

import httpx
import pytest

from conftest import BINARY, MODEL, NAME, environment

STARTS = 25
EXIT_BAD_FILE = 1
# What a message says, by the part that is missing: tensors before or during their use, or keys.
CAUSES = ("cut short", "written to while it was read", "the file ends", "past the file's end")


def check_sentence(log, path):
    """Fails unless there is one message about the file."""
    assert log.count(str(path)) == 1, log
    assert any(cause in log for cause in CAUSES), log


@pytest.fixture(scope="module")
def load_seconds(tmp_path_factory):
    """The shortest time of three starts without generation. The first one may read the file from the disk."""
    took = []
    for _ in range(3):
        begun = time.monotonic()
        subprocess.run([BINARY, "run", "--model", MODEL, "--max-tokens", "1", "x"], env=environment(), check=True,
                       capture_output=True)
        took.append(time.monotonic() - begun)
    return min(took)


def cut_while_it_starts(path, after, size):
    """Starts on a copy of the model, which is truncated at that moment. Returns the exit code and the messages."""
    shutil.copyfile(MODEL, path)
    process = subprocess.Popen([BINARY, "run", "--model", path, "--max-tokens", "1", "x"], env=environment(), text=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    time.sleep(after)
    os.truncate(path, size)
    _, log = process.communicate(timeout=300)
    return process.returncode, log


def end(server):
    server.process.terminate()
    assert server.process.wait(120) == 0


def test_a_model_cut_at_any_moment_of_its_load_is_named(tmp_path, load_seconds):
    moments, codes = random.Random(31), []
    path = tmp_path / "model.gguf"
    for i in range(STARTS):
        after = moments.random() * load_seconds if i % 5 else 0  # the machine's speed may change meanwhile
        code, log = cut_while_it_starts(path, after, moments.randrange(os.path.getsize(MODEL)))
        codes.append(code)
        if code != 0:  # all was read before the truncation
            assert code == EXIT_BAD_FILE, (code, log)
            check_sentence(log, path)
    assert EXIT_BAD_FILE in codes


def test_a_weight_cache_cut_while_it_serves_is_named(start, tmp_path):
    flags = ["--weight-cache", str(tmp_path)]
    first = start(*flags)
    right = first.continue_by(8, "Once upon a time")
    end(first)
    kept, = tmp_path.iterdir()
    server = start(*flags)
    assert server.continue_by(8, "Once upon a time") == right
    os.truncate(kept, 4096)
    with pytest.raises(httpx.TransportError):
        server.post("/v1/completions", {"model": NAME, "prompt": "Water flows", "max_tokens": 8})
    assert server.process.wait(120) == EXIT_BAD_FILE
    assert server.log_tail().count(" ERROR ") == 1 and f"{kept}: byte " in server.log_tail(), server.log_tail()
    assert start(*flags).continue_by(8, "Once upon a time") == right  # the file is written again


def test_models_and_weights_that_are_replaced_by_renaming_are_served_on(start, tmp_path):
    model, flags = tmp_path / "model.gguf", ["--weight-cache", str(tmp_path)]
    shutil.copyfile(MODEL, model)
    end(start(*flags, "--model", str(model)))
    kept, = tmp_path.glob("*.weights")
    server = start(*flags, "--model", str(model))
    right = server.continue_by(8, "Once upon a time")
    for path in (model, kept):
        other = tmp_path / "other"
        other.write_bytes(b"not a model")
        other.rename(path)
    assert server.continue_by(8, "Once upon a time") == right
