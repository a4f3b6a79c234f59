"""Deadlines: late answers end with the text so far, and requests that cannot be in time are refused at once."""
import concurrent.futures
import json
import time

import httpx
import pytest
from conftest import NAME

LONG = {"model": NAME, "prompt": "Once upon a time", "max_tokens": 900, "ignore_eos": True, "temperature": 0}
CHAT = [{"role": "user", "content": "Tell a long story, and never stop."}]


@pytest.fixture(scope="module")
def one_at_a_time():
    from conftest import Server
    server = Server("--max-model-len", "1024", "--kv-cache-memory", "64MiB", "--max-num-seqs", "1")
    yield server.wait_until_ready()
    server.stop()


def post(server, path, body, **headers):
    return httpx.post(server.url + path, json=body, headers=headers, timeout=60)


def test_a_late_answer_is_the_beginning_of_the_whole_one(server):
    whole = server.complete(**{**LONG, "max_tokens": 60})["choices"][0]["text"]
    for fields, headers in [({"deadline_ms": 300}, {}), ({}, {"X-Deadline-Ms": "300"}),
                            ({"deadline_ms": 86400000}, {"X-Deadline-Ms": "300"})]:
        begun = time.monotonic()
        choice = post(server, "/v1/completions", {**LONG, **fields}, **headers).json()["choices"][0]
        assert choice["finish_reason"] == "timeout"
        assert time.monotonic() - begun < 5
        short = min(len(whole), len(choice["text"]))
        assert choice["text"][:short] == whole[:short]
    in_time = post(server, "/v1/completions", {**LONG, "max_tokens": 3, "deadline_ms": 60000}).json()
    assert in_time["choices"][0]["finish_reason"] == "length"
    assert server.metrics()['vllm:request_success_total{engine="0",finished_reason="timeout",model_name="%s"}' % NAME] >= 3


def test_a_stream_ends_with_its_reason(server):
    with httpx.stream("POST", server.url + "/v1/completions", json={**LONG, "stream": True, "deadline_ms": 250},
                      timeout=60) as stream:
        lines = [line[6:] for line in stream.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    assert json.loads(lines[-2])["choices"][0]["finish_reason"] == "timeout"


@pytest.mark.parametrize("path,body,end", [
    ("/v1/messages", {"messages": CHAT, "max_tokens": 900, "ignore_eos": True}, ("stop_reason", "max_tokens")),
    ("/v1/responses", {"input": CHAT[0]["content"], "max_output_tokens": 900, "ignore_eos": True}, ("status", "incomplete")),
    ("/api/generate", {"prompt": "Once", "stream": False, "options": {"num_predict": 900, "ignore_eos": True}},
     ("done_reason", "timeout")),
    ("/completion", {"prompt": "Once", "n_predict": 900, "ignore_eos": True}, ("stop_type", "limit")),
])
def test_each_api_has_its_own_word(server, path, body, end):
    answer = post(server, path, {"model": NAME, "temperature": 0, **body}, **{"X-Deadline-Ms": "150"})
    assert answer.status_code == 200, answer.text
    assert answer.json()[end[0]] == end[1]


def test_a_queue_that_is_too_long_refuses_at_once(one_at_a_time):
    server = one_at_a_time
    server.complete(max_tokens=8)
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        waiting = [pool.submit(post, server, "/v1/completions", {**LONG, "max_tokens": 50, "seed": i}) for i in range(4)]
        while server.metrics()['vllm:num_requests_waiting{engine="0",model_name="%s"}' % NAME] < 2:
            time.sleep(0.02)
        begun = time.monotonic()
        refused = post(server, "/v1/completions", {**LONG, "deadline_ms": 20})
        assert refused.status_code == 429, refused.text
        assert time.monotonic() - begun < 1
        assert refused.json()["error"]["code"] == "deadline_unreachable"
        assert 1 <= int(refused.headers["Retry-After"]) <= 60
        late = post(server, "/v1/embeddings", {"model": NAME, "input": "x", "deadline_ms": 86400000})
        assert late.status_code == 200
        assert {one.result().status_code for one in waiting} == {200}
    assert server.metrics()["penstock_refused_deadline_total"] >= 1


def test_what_is_not_a_deadline(server):
    for value in ["0", "-1", "1.5", "soon", "86400001", "99999999999"]:
        refused = post(server, "/v1/completions", LONG, **{"X-Deadline-Ms": value})
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "X-Deadline-Ms", value
    for value in [0, 86400001, "5", 1.5]:
        refused = post(server, "/v1/completions", {**LONG, "deadline_ms": value})
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "deadline_ms", value
    refused = post(server, "/v1/completions", {**LONG, "receipt": True}, **{"X-Deadline-Ms": "1000"})
    assert refused.status_code == 400 and "receipt" in refused.json()["error"]["message"]
