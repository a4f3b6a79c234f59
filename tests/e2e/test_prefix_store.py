"""The prefix store in a server: a later server has the prefixes of an earlier one, and answers are unchanged."""
import os
import pathlib
import random
import signal
import subprocess
import time

import pytest

from conftest import BINARY, MODEL, ROOT, Server, environment, free_port
from streams import until

STORY = "The river flows past the old mill, and the miller's daughter counts the boats that pass. " * 6


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def stored(folder):
    return sum(file.stat().st_size for file in folder.iterdir()) if folder.exists() else 0


def sleeps(server):
    """Do all threads of the server sleep?"""
    tasks = pathlib.Path(f"/proc/{server.process.pid}/task").glob("*/stat")
    return all(task.read_text().rpartition(")")[2].split()[0] == "S" for task in tasks)


def settle(server):
    """Waits until the writer is done: it has a queue, and sleeps only if that is empty."""
    until(lambda: all([sleeps(server), time.sleep(0.02)][0] for _ in range(5)))


def answer_of(server, prompt=STORY, n=12):
    return server.complete(prompt, max_tokens=n, logprobs=2, ignore_eos=True, return_token_ids=True)


def test_a_later_server_has_the_prefixes_and_the_same_bytes(start, tmp_path):
    folder = tmp_path / "store"
    flags = ["--prefix-store", str(folder), "--prefix-store-size", "1G"]
    first = start(*flags)
    before = answer_of(first)
    private = first.complete(STORY + "mine", max_tokens=1, cache_salt="mine")
    assert cached(before) == cached(private) == 0
    settle(first)
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    second = start(*flags)
    after = answer_of(second)
    assert cached(after) > before["usage"]["prompt_tokens"] - 32 and after["choices"] == before["choices"]
    assert cached(second.complete(STORY + "mine", max_tokens=1, cache_salt="mine")) == 0
    other = start(*flags, "--kv-cache-dtype", "q8_0")
    assert cached(answer_of(other)) == 0, "another type of cache is a miss"


# The options make window blocks and checkpoints within the 96 tokens of these models.
KINDS = {"gemma2": ["--max-num-batched-tokens", "16"], "gpt_oss": ["--max-num-batched-tokens", "16"], "lfm2": [],
         "qwen3_5": [], "mamba2": []}


@pytest.mark.parametrize("family", KINDS)
def test_window_blocks_and_states_return_with_the_same_bytes(family, tmp_path):
    """80 tokens are 19 full blocks of 4 and the rest. Only their end needs window blocks and a state."""
    folder, ids = tmp_path / "store", [i * 37 % 200 + 5 for i in range(80)]
    flags = ["--prefix-store", str(folder), "--prefix-store-size", "1G", "--block-size", "4", *KINDS[family]]
    answers = []
    for _ in range(2):
        one = Server(*flags, model=str(ROOT / f"tests/vectors/families/{family}.gguf")).wait_until_ready()
        try:
            longer = one.complete(ids + [9, 8, 7, 6, 5], max_tokens=4, ignore_eos=True, logprobs=2, return_token_ids=True)
            answers.append([answer_of(one, ids, 8), longer])
            settle(one)
            assert ("layers with windows keep" in one.log_tail()) == ("--max-num-batched-tokens" in flags)
            one.process.send_signal(signal.SIGKILL)
            one.process.wait()
        finally:
            one.stop()
    first, second = answers
    assert [each["choices"] for each in first] == [each["choices"] for each in second]
    assert cached(first[1]) == 0 and [cached(each) for each in second] == [76, 84]


def test_kills_at_random_leave_a_store_that_can_be_used(start, tmp_path):
    folder, draw = tmp_path / "store", random.Random(7)
    flags = ["--prefix-store", str(folder), "--prefix-store-size", "64M"]
    expected = None
    for _ in range(int(os.environ.get("STORE_KILLS", 3))):
        one = start(*flags)
        got = answer_of(one)["choices"]
        expected = expected or got
        assert got == expected
        asked = subprocess.Popen(["curl", "-s", one.url + "/v1/completions", "-H", "Content-Type: application/json", "-d",
                                  '{"model": "smol", "prompt": "%s", "max_tokens": 1}' % ("word " * draw.randrange(100, 600))],
                                 stdout=subprocess.DEVNULL)
        time.sleep(draw.random())
        one.process.send_signal(signal.SIGKILL)
        one.process.wait()
        asked.wait()
    assert stored(folder) <= 64 << 20


def test_a_full_disk_is_a_warning(tmp_path, start):
    folder = tmp_path / "store"
    one = start("--prefix-store", str(folder), "--prefix-store-size", "1G")
    subprocess.run(["prlimit", "--pid", str(one.process.pid), "--fsize=100000"], check=True)
    expected = answer_of(one)["choices"]
    until(lambda: "cannot be written" in one.log_tail())
    assert answer_of(one)["choices"] == expected and one.process.poll() is None


@pytest.mark.parametrize("flags, text", [
    (["--prefix-store", "/proc/none"], "cannot be made"),
    (["--prefix-store", "/tmp/x", "--prefix-store-size", "1K"], "must be at least"),
    (["--prefix-store", "/tmp/x", "--no-enable-prefix-caching"], "--no-enable-prefix-caching turns that cache off"),
    (["--prefix-store", "/tmp/x", "--tensor-parallel-size", "3"], "divided between several ranks"),
    (["--prefix-store", "/tmp/x", "--state-checkpoints", "0", "--model", str(ROOT / "tests/vectors/families/lfm2.gguf"),
      "--max-model-len", "96"], "--state-checkpoints 0 leaves none"),
])
def test_stores_that_cannot_be_used_are_refused(flags, text):
    command = [BINARY, "serve", "--model", MODEL, "--port", str(free_port()), "--max-model-len", "256", *flags]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment())
    assert ended.returncode in (1, 2) and text in ended.stderr, ended.stderr


def test_evicted_blocks_return_from_the_store(start, server, tmp_path):
    """The cache holds one of the prompts; each one's blocks are evicted by the others."""
    folder = tmp_path / "store"
    own = start("--prefix-store", str(folder), "--max-model-len", "256", "--kv-cache-memory", "8MiB")
    prompts = [f"{i} {STORY[:400]}" for i in range(4)]
    expected = [answer_of(server, prompt, 4)["choices"] for prompt in prompts]
    for prompt in prompts:
        answer_of(own, prompt, 4)
    settle(own)
    assert until_cached(own, prompts, expected) > 4 * 32


def until_cached(server, prompts, expected):
    """Asks until many tokens came from the store. If a disk or Redis is slower than the processor, the server computes most of
    them, and reads one time in 16."""
    found = 0
    for _ in range(60):
        again = [answer_of(server, prompt, 4) for prompt in prompts]
        assert [one["choices"] for one in again] == expected
        found += sum(map(cached, again))
        if found > 4 * 32:
            break
    return found
