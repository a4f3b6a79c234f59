"""Recurrent layers: hits at kept states and refused drafts change no byte of an answer."""
import concurrent.futures
import subprocess

import pytest
from conftest import BINARY, ROOT, Server

MODELS = ["families/lfm2.gguf", "folders/lfm2", "families/lfm2_moe.gguf"]
START = [(i * 37 + 11) % 256 for i in range(90)]
# The first one keeps its state after 80 tokens. The others share 80, 89, 81 and 70 tokens with it.
PROMPTS = [START[:82], START[:80] + [3, 4], START[:90], START[:81], START[:70] + [5] * 12]
LONG = START[:56]


def serve(model, *flags):
    return Server("--device", "cpu", "--max-model-len", "96", "--max-num-seqs", "8", *flags,
                  model=ROOT / "tests/vectors" / model).wait_until_ready()


def answers(server, prompts, n):
    return [server.continue_by(n, prompt) for prompt in prompts]


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    """A model, and its answers without cached prefixes and drafts."""
    server = serve(request.param, "--no-enable-prefix-caching")
    try:
        return request.param, answers(server, PROMPTS, 6), answers(server, [LONG], 36)
    finally:
        server.stop()


def test_a_hit_at_a_kept_state_changes_no_byte(model):
    name, wanted, _ = model
    server = serve(name)
    try:
        first = server.continue_by(6, PROMPTS[0])
        assert first == wanted[0] and server.metric("vllm:prefix_cache_hits_total") == 0
        cached = []
        for prompt, right in zip(PROMPTS, wanted):
            before = server.metric("vllm:prefix_cache_hits_total")
            assert server.continue_by(6, prompt) == right
            cached.append(server.metric("vllm:prefix_cache_hits_total") - before)
        assert cached == [80, 80, 80, 80, 0]
        assert server.metrics()['penstock_recurrent_states{state="cached"}'] >= 2
        assert server.metrics()['penstock_recurrent_states{state="used"}'] == 0
        with concurrent.futures.ThreadPoolExecutor(5) as pool:
            assert list(pool.map(lambda prompt: server.continue_by(6, prompt), PROMPTS * 3)) == wanted * 3
    finally:
        server.stop()


def test_drafts_change_no_byte(model):
    name, wanted, repeated = model
    guess = '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 1}'
    server = serve(name, "--speculative-config", guess, "--always-speculate")
    try:
        assert answers(server, PROMPTS, 6) == wanted
        assert answers(server, [LONG] * 2, 36) == repeated * 2
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lambda _: server.continue_by(36, LONG), range(4))) == repeated * 4
        assert server.metric("vllm:spec_decode_num_draft_tokens_total") > 0
    finally:
        server.stop()


def test_the_memory_of_kept_states_can_be_set():
    server = serve(MODELS[0], "--state-checkpoints", "0")
    try:
        answers(server, PROMPTS[:1] * 2, 6)
        assert server.metric("vllm:prefix_cache_hits_total") == 0
        assert server.metrics()['penstock_recurrent_states{state="total"}'] == 8
    finally:
        server.stop()
    said = subprocess.run([BINARY, "inspect", "--model", ROOT / "tests/vectors" / MODELS[0], "--state-checkpoints", "1K"],
                          capture_output=True, text=True)
    assert "65 states of 960 bytes: 1 of cached prefixes" in said.stdout, said
    for model, size, sentence in [(MODELS[0], "959", "give at least 960, or 0"),
                                  ("families/qwen3.gguf", "1M", "this model has none")]:
        said = subprocess.run([BINARY, "serve", "--device", "cpu", "--model", ROOT / "tests/vectors" / model,
                               "--state-checkpoints", size], capture_output=True, text=True)
        assert said.returncode != 0 and sentence in said.stderr, said.stderr


def test_a_recurrent_model_drafts_for_none():
    path = ROOT / "tests/vectors" / MODELS[0]
    config = f'{{"model": "{path}", "num_speculative_tokens": 3}}'
    said = subprocess.run([BINARY, "serve", "--device", "cpu", "--model", path, "--speculative-config", config],
                          capture_output=True, text=True)
    assert said.returncode != 0 and "name a draft model without such layers" in said.stderr, said.stderr
