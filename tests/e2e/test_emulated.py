"""The whole server on the emulated GPU, with a tiny model: answers equal the CPU's in float32, and do not depend on
other requests."""
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import time

import httpx
import pytest

from conftest import EMULATED, NAME, Server
from sse import stream, texts
from streams import until
from test_lifecycle import PATIENCE_S, begin, check_whole

COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"
FLOAT32 = ("--dtype", "float32", "--max-num-seqs", "8")
FEW_ROWS = ("--max-num-batched-tokens", "24")  # so that prompts are cut into chunks
PROMPTS = ["hello the", "in the thing and on the other", "x", "the hello and the thing " * 6, "\u00e9\u4e2d and", "12 34",
           "ring, ring, ring the bell", "hello hello " * 9]


def bodies(n):
    """Requests of all kinds: greedy and drawn, penalties, several choices, logprobs, stop strings, biases."""
    made = []
    for i in range(n):
        body = {"model": NAME, "prompt": PROMPTS[i % len(PROMPTS)], "max_tokens": 6 + 3 * (i % 4), "seed": i,
                "temperature": 0 if i % 3 == 0 else 0.6 + 0.1 * (i % 5), "return_token_ids": True, "logprobs": i % 3}
        if i % 2:
            body |= {"n": 1 + i % 3, "top_p": 0.9}
        if i % 4 == 1:
            body |= {"presence_penalty": 1, "frequency_penalty": 0.5, "repetition_penalty": 1.2}
        if i % 4 == 2:
            body |= {"stop": ["e", "zz"], "logit_bias": {"10": 3, "104": -100}}
        if i % 8 == 3:
            body |= {"echo": True}
        if i % 5 == 3:
            body |= {"structured_outputs": {"regex": "([a-z]+ ?){2,3}[.]"}}
        made.append(body)
    return made


def choices(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"]


def answers(server, asked, at_once):
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        return [choices(answer) for answer in pool.map(lambda body: server.post(COMPLETIONS, body), asked)]


@pytest.fixture(scope="module")
def gpu(emulated):
    return emulated(*FLOAT32, *FEW_ROWS, "--kv-cache-memory", "256KiB")


@pytest.fixture(scope="module")
def cpu(tiny_model):
    one = Server("--device", "cpu", *FLOAT32, "--kv-cache-memory", "8MiB", binary=EMULATED, model=tiny_model)
    yield one.wait_until_ready()
    one.stop()


@pytest.fixture(scope="module")
def alone(gpu):
    """The answer to each request when no other request runs."""
    asked = bodies(12)
    return asked, answers(gpu, asked, 1)


# ---- the CPU's tokens -------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", range(len(PROMPTS)))
def test_greedy_tokens_are_the_cpu_s(gpu, cpu, prompt):
    fields = {"prompt": PROMPTS[prompt], "max_tokens": 24, "ignore_eos": True, "return_token_ids": True}
    ids = [server.complete(**fields)["choices"][0]["token_ids"] for server in (gpu, cpu)]
    assert ids[0] == ids[1] and len(ids[0]) == 24


def test_chats_are_the_cpu_s(gpu, cpu):
    said = [server.chat("hello the thing", max_tokens=12) for server in (gpu, cpu)]
    assert said[0]["choices"] == said[1]["choices"] and said[0]["usage"] == said[1]["usage"]


def test_logprobs_are_near_the_cpu_s(gpu, cpu):
    fields = {"prompt": PROMPTS[3], "max_tokens": 6, "logprobs": 3, "echo": True}
    found = [server.complete(**fields)["choices"][0]["logprobs"] for server in (gpu, cpu)]
    assert found[0]["tokens"] == found[1]["tokens"] and found[0]["text_offset"] == found[1]["text_offset"]
    assert found[0]["token_logprobs"][1:] == pytest.approx(found[1]["token_logprobs"][1:], abs=1e-3)


def test_two_ranks_of_the_cpu_say_what_one_says(cpu, tiny_model):
    two = Server("--device", "cpu", *FLOAT32, "--tensor-parallel-size", "2", "--threads", "2", "--kv-cache-memory", "8MiB",
                 binary=EMULATED, model=tiny_model).wait_until_ready()
    assert "2 ranks" in two.http.get("/version").text
    asked = [{"model": NAME, "prompt": prompt, "max_tokens": 16, "ignore_eos": True, "temperature": 0.7 * (i % 2), "seed": i,
              "n": 1 + i % 2, "return_token_ids": True} for i, prompt in enumerate(PROMPTS)]
    assert answers(two, asked, 8) == answers(cpu, asked, 1)
    two.wait_until_idle()
    two.stop()
    assert two.process.returncode == 0


def test_a_draft_model_changes_no_byte(gpu, emulated, tiny_model):
    """The model drafts for itself on the same device, also for a request with penalties."""
    drafting = json.dumps({"method": "draft_model", "model": str(tiny_model), "num_speculative_tokens": 3})
    guessing = emulated(*FLOAT32, *FEW_ROWS, "--speculative-config", drafting, "--always-speculate")
    assert re.search(r"draft model .*: .* KV cache \d+ MiB of \d+ tokens", guessing.log_tail())
    asked = [{"model": NAME, "prompt": prompt, "max_tokens": 16, "ignore_eos": True, "temperature": 0.7 * (i % 2), "seed": i,
              "frequency_penalty": i % 3 * 0.5, "return_token_ids": True} for i, prompt in enumerate(PROMPTS)]
    assert answers(guessing, asked, 1) == answers(gpu, asked, 1)
    held = re.search(r"^vllm:spec_decode_num_accepted_tokens_total\{.*\} (\S+)$", guessing.http.get("/metrics").text, re.M)[1]
    assert float(held) > 4 * len(asked)


# ---- streams ----------------------------------------------------------------------------------------


def test_streams_give_what_whole_answers_give(gpu):
    for body in bodies(4):
        whole = {choice["index"]: choice for choice in choices(gpu.post(COMPLETIONS, body))}
        _, chunks = stream(gpu, COMPLETIONS, body)
        assert texts(chunks) == {index: choice["text"] for index, choice in whole.items()}
        ends = {c["index"]: c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"]}
        assert ends == {index: choice["finish_reason"] for index, choice in whole.items()}


def test_a_chat_streams(gpu):
    body = {"model": NAME, "messages": [{"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 9, "n": 2,
            "stream_options": {"include_usage": True}}
    _, chunks = stream(gpu, CHATS, body)
    whole = gpu.chat("hello", max_tokens=9)["choices"][0]["message"]["content"]
    assert texts(chunks) == {0: whole, 1: whole} and chunks[-1]["usage"]["completion_tokens"] == 18


# ---- settings of a request --------------------------------------------------------------------------


def test_seeds_and_filters(gpu):
    fields = {"prompt": "hello the", "max_tokens": 16, "ignore_eos": True}

    def said(**more):
        return gpu.complete(**{**fields, **more})["choices"][0]["text"]

    assert said(temperature=1, seed=5) == said(temperature=1, seed=5) != said(temperature=1, seed=6)
    plain = said()
    for more in ({"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1}):  # each leaves only the best token
        assert said(temperature=1.5, seed=3, **more) == plain
    for more in ({"repetition_penalty": 1.9}, {"frequency_penalty": 2}, {"presence_penalty": 2}):
        assert said(max_tokens=24, **more) != said(max_tokens=24)


def test_stops(gpu):
    fields = {"prompt": "in the thing", "max_tokens": 24, "ignore_eos": True, "temperature": 1, "seed": 2,
              "logit_bias": {str(i): 4 for i in range(70, 110)}}  # bytes that are letters
    whole = gpu.complete(**fields, return_token_ids=True)["choices"][0]
    text, ids = whole["text"], whole["token_ids"]
    stop = text[5:8]
    cut = gpu.complete(**fields, stop=[stop])["choices"][0]
    assert cut["text"] == text[:text.index(stop)] and cut["stop_reason"] == stop
    assert cut["finish_reason"] == "stop"
    cut = gpu.complete(**fields, stop_token_ids=[ids[6]], return_token_ids=True)["choices"][0]
    assert cut["finish_reason"] == "stop" and cut["token_ids"] == ids[:ids.index(ids[6]) + 1]
    ended = gpu.complete(**{**fields, "ignore_eos": False, "logit_bias": {"1": 100}})["choices"][0]
    assert ended["finish_reason"] == "stop" and ended["text"] == ""


# ---- the same bytes ---------------------------------------------------------------------------------


def test_the_same_bytes_amid_others(gpu, alone):
    asked, right = alone
    before = gpu.metric("vllm:generation_tokens_total")
    assert answers(gpu, asked[::-1], 12) == right[::-1]
    assert gpu.metric("vllm:generation_tokens_total") > before + 150
    gpu.wait_until_idle()


@pytest.mark.parametrize("flags", [
    ("--steps-in-flight", "1", "--enforce-eager", *FEW_ROWS, "--kv-cache-memory", "256KiB"),
    ("--steps-in-flight", "2", "--kv-cache-memory", "256KiB", "--no-enable-prefix-caching"),
], ids=["one-in-flight-no-graphs", "whole-prompts"])
def test_the_same_bytes_from_other_servers(emulated, alone, flags):
    asked, right = alone
    server = emulated(*FLOAT32, *flags)
    assert answers(server, asked, 12) == right
    server.wait_until_idle()


def test_the_same_bytes_after_giving_way(emulated, gpu):
    """More sequences at a time than there are blocks for: some are preempted and continue later."""
    server = emulated(*FLOAT32, "--max-model-len", "96", "--kv-cache-memory", "96KiB")
    asked = [{"model": NAME, "prompt": PROMPTS[i], "max_tokens": 36, "ignore_eos": True, "temperature": 0.7 * (i % 2),
              "seed": i, "return_token_ids": True, "frequency_penalty": 0.1 * i} for i in (0, 1, 2, 4, 5, 6)]
    assert answers(server, asked, 6) == answers(gpu, asked, 6)
    assert server.metric("vllm:num_preemptions_total") > 0
    server.wait_until_idle()


def test_the_same_bytes_after_swapping(emulated, gpu):
    """One of three running sequences is swapped to the host's memory and back."""
    server = emulated(*FLOAT32, "--max-model-len", "128", "--kv-cache-memory", "136KiB", "--swap-space", "1MiB")
    asked = [{"model": NAME, "prompt": [f"{word} " + "hello hello " * 16 for word in ("in", "the", "ring")], "max_tokens": 34,
              "ignore_eos": True, "seed": 4, "temperature": 0.8, "return_token_ids": True, "presence_penalty": 0.5}]
    assert answers(server, asked, 1) == answers(gpu, asked, 1)
    moved = [server.metrics()[f'penstock_swapped_blocks_total{{direction="{way}"}}'] for way in ("out", "in")]
    assert moved[0] >= moved[1] > 0
    server.wait_until_idle()


def test_the_same_bytes_in_16_bits(emulated):
    server = emulated("--max-num-seqs", "8", "--kv-cache-dtype", "fp8", "--kv-cache-memory", "1MiB", *FEW_ROWS)
    asked = bodies(8)
    right = answers(server, asked, 1)
    assert answers(server, asked, 8) == right
    server.wait_until_idle()


# ---- clients that leave, and numbers ----------------------------------------------------------------


def test_clients_that_leave_give_their_blocks_back(gpu):
    body = {"model": NAME, "prompt": "hello the", "max_tokens": 400, "ignore_eos": True, "stream": True, "n": 2}
    done = gpu.metric("vllm:generation_tokens_total")
    for _ in range(3):
        with httpx.stream("POST", gpu.url + COMPLETIONS, json=body, timeout=120) as response:
            next(response.iter_raw())
            assert gpu.metric("vllm:num_requests_running") > 0
    gpu.wait_until_idle()
    assert gpu.metric("vllm:generation_tokens_total") - done < 3 * 2 * 400
    assert gpu.complete("hello", max_tokens=3)["usage"]["completion_tokens"] == 3


def test_health_and_metrics(gpu):
    assert gpu.http.get("/health").status_code == 200 and "cuda" in gpu.http.get("/version").text
    prompts, tokens = "vllm:prompt_tokens_total", "vllm:generation_tokens_total"
    before = gpu.metric(prompts), gpu.metric(tokens)
    usage = gpu.complete(PROMPTS[3], max_tokens=7, ignore_eos=True)["usage"]
    gpu.wait_until_idle()
    assert gpu.metric(prompts) - before[0] == usage["prompt_tokens"] > 24
    assert gpu.metric(tokens) - before[1] == usage["completion_tokens"] == 7


def test_refusals(gpu):
    answer = gpu.post(COMPLETIONS, {"model": NAME, "prompt": "the " * 600, "max_tokens": 4})
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "context_length_exceeded"


def cpu_ticks(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def ticks_of_a_second(pid):
    before = cpu_ticks(pid)
    time.sleep(1)
    return cpu_ticks(pid) - before


def test_idle_servers_cost_nothing(gpu):
    """Work after the last answer may take some time on a busy machine. Then the server rests."""
    gpu.wait_until_idle()
    until(lambda: ticks_of_a_second(gpu.process.pid) <= os.sysconf("SC_CLK_TCK") // 50)


# ---- the end ----------------------------------------------------------------------------------------


def test_sigterm_lets_streams_finish(tiny_model):
    server = Server("--device", "cuda", *FLOAT32, "--drain-timeout", "600", binary=EMULATED, model=tiny_model).wait_until_ready()
    body = {"model": NAME, "prompt": "hello the", "max_tokens": 60, "ignore_eos": True, "stream": True}
    streams = begin(server, 4, body)
    server.process.send_signal(signal.SIGTERM)
    check_whole(streams)
    assert server.process.wait(PATIENCE_S) == 0
    server.stop()


def test_signals_to_the_last_change_no_exit_code(tiny_model):
    server = Server("--device", "cuda", *FLOAT32, binary=EMULATED, model=tiny_model).wait_until_ready()
    while server.process.poll() is None:
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.0005)
    assert server.process.returncode == 0
    server.stop()


def test_run_from_the_command_line(tiny_model):
    said = [subprocess.run([EMULATED, "run", "--model", tiny_model, "--device", device, "--dtype", "float32", "--max-tokens",
                            "12", "--temperature", "0", "hello"], capture_output=True, timeout=PATIENCE_S, check=True).stdout
            for device in ("cuda", "cpu")]
    assert said[0] == said[1] and said[0]
