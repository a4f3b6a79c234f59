"""Adapters on the emulated GPU over HTTP: PEFT's tokens in float32, the same bytes beside others, with drafts, and after loads and
unloads."""
import concurrent.futures
import shutil

import pytest

from conftest import EMULATED, Server
from test_adapters import ADAPTERS, ADMIN, BASE, ask, change, golden

SMALL = ("--device", "cuda", "--max-model-len", "96", "--kv-cache-memory", "1MiB", "--max-num-batched-tokens", "64", "--max-num-seqs", "8")


def serve(*flags):
    if not EMULATED.exists():
        pytest.fail("the emulated device was not built: there was no C++ compiler, which docker/setup.sh test installs")
    return Server(*SMALL, *flags, binary=EMULATED, model=BASE).wait_until_ready()


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    """A server that may load adapters, with "eight" and "one" loaded."""
    folder = tmp_path_factory.mktemp("adapters")
    shutil.copytree(ADAPTERS["eight"], folder / "eight")
    shutil.copy(ADAPTERS["one"], folder / "one.gguf")
    server = serve("--dtype", "float32", "--enable-runtime-lora", "--lora-dir", str(folder), "--admin-key", "boss", "--max-loras", "3",
                   "--lora", f"eight={ADAPTERS['eight']}", "--lora", f"one={ADAPTERS['one']}")
    yield server
    server.stop()


def test_a_request_chooses_by_name(runtime):
    for name, vectors in (("eight", "qwen2-8"), ("one", "qwen2-1")):
        for prompt, tokens in golden(vectors):
            assert ask(runtime, name, prompt)["token_ids"] == tokens


def test_the_tokens_are_those_of_the_cpu(runtime, start):
    cpu = start("--model", BASE, "--max-model-len", "96", "--dtype", "float32", "--lora", f"eight={ADAPTERS['eight']}")
    prompt = [i * 7 % 250 for i in range(50)]
    for name in ("eight", "smol"):
        assert ask(runtime, name, prompt)["token_ids"] == ask(cpu, name, prompt)["token_ids"]


@pytest.mark.parametrize("flags", [("--dtype", "float32"), ("--dtype", "bfloat16"), ("--dtype", "float16", "--enforce-eager")],
                         ids=["float32", "bfloat16", "eager"])
def test_neighbours_do_not_change_bytes(flags):
    server = serve(*flags, "--lora", f"eight={ADAPTERS['eight']}", "--lora", f"one={ADAPTERS['one']}")
    try:
        asked = [(model, prompt, 10) for model in ("eight", "one", "smol") for prompt in ([7, 8, 9], [i % 250 for i in range(30)])]
        alone = [ask(server, *one) for one in asked]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            together = list(pool.map(lambda one: ask(server, *one), asked * 3))
        assert together == alone * 3
        bases = [answer for one, answer in zip(asked, alone) if one[0] == "smol"]
    finally:
        server.stop()
    plain = serve(*flags)
    try:
        assert [ask(plain, *one) for one in asked if one[0] == "smol"] == bases
    finally:
        plain.stop()


DRAFTS = ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 4}', "--always-speculate")


@pytest.mark.parametrize("flags", [("--dtype", "float32"), ("--dtype", "bfloat16"), ("--dtype", "float16", "--enforce-eager")],
                         ids=["float32", "bfloat16", "eager"])
def test_drafts_do_not_change_bytes(flags):
    """Prompt lookup drafts for rows of two adapters and of the base model in one step. Some drafts hold, and some do not."""
    loras = ("--lora", f"eight={ADAPTERS['eight']}", "--lora", f"one={ADAPTERS['one']}")
    asked = [(model, prompt, 30) for model in ("eight", "one", "smol") for prompt in ([7, 8, 9] * 6, [i % 5 for i in range(30)])]
    plain = serve(*flags, *loras)
    try:
        without = [ask(plain, *one) for one in asked]
    finally:
        plain.stop()
    guessing = serve(*flags, *DRAFTS, *loras)
    try:
        assert [ask(guessing, *one) for one in asked] == without
        with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
            assert list(pool.map(lambda one: ask(guessing, *one), asked)) == without
        drafts = guessing.metric("vllm:spec_decode_num_draft_tokens_total")
        assert 0 < guessing.metric("vllm:spec_decode_num_accepted_tokens_total") < drafts
    finally:
        guessing.stop()


def test_adapters_are_loaded_and_unloaded_beside_others(runtime):
    prompt, tokens = golden("qwen2-1")[0]
    long = [i % 250 for i in range(20)]
    alone = [ask(runtime, name, long, 40) for name in ("eight", "smol")]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        running = [pool.submit(ask, runtime, name, long, 40) for name in ("eight", "smol") for _ in range(2)]
        for path in ("one.gguf", "eight", "one.gguf"):
            assert change(runtime, "load", headers=ADMIN, lora_name="a", lora_path=path).status_code == 200
            answer = ask(runtime, "a", prompt)["token_ids"]
            assert (answer == tokens) == (path == "one.gguf")
            assert change(runtime, "unload", headers=ADMIN, lora_name="a").status_code == 200
        assert [one.result() for one in running] == [alone[0], alone[0], alone[1], alone[1]]
