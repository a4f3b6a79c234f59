"""Deadlines: late answers end with the text so far, and requests that cannot be in time are refused at once."""
import concurrent.futures
import json

import httpx
import pytest
from conftest import NAME, Server
from streams import ENDLESS, endless, until

# Longer than the preparation of a request on a busy machine, and much shorter than the answers below.
SOON_MS = 1000
N_LONG = 7000
LONG = {"model": NAME, "prompt": "Once upon a time", "max_tokens": N_LONG, "ignore_eos": True, "temperature": 0}
CHAT = [{"role": "user", "content": "Tell a long story, and never stop."}]


@pytest.fixture(scope="module")
def slow():
    """A server whose long answers end by their deadlines, also on a fast machine."""
    server = Server("--kv-cache-memory", "256MiB", *ENDLESS)
    yield server.wait_until_ready()
    server.stop()


@pytest.fixture(scope="module")
def one_at_a_time():
    server = Server("--kv-cache-memory", "256MiB", "--max-num-seqs", "1", *ENDLESS)
    yield server.wait_until_ready()
    server.stop()


def post(server, path, body, **headers):
    return httpx.post(server.url + path, json=body, headers=headers, timeout=120)


def test_a_late_answer_is_the_beginning_of_the_whole_one(slow):
    whole = slow.complete(**{**LONG, "max_tokens": 60})["choices"][0]["text"]
    for fields, headers in [({"deadline_ms": SOON_MS}, {}), ({}, {"X-Deadline-Ms": str(SOON_MS)}),
                            ({"deadline_ms": 86400000}, {"X-Deadline-Ms": str(SOON_MS)})]:
        answer = post(slow, "/v1/completions", {**LONG, **fields}, **headers).json()
        choice = answer["choices"][0]
        assert choice["finish_reason"] == "timeout" and answer["usage"]["completion_tokens"] < N_LONG
        short = min(len(whole), len(choice["text"]))
        assert choice["text"][:short] == whole[:short]
    in_time = post(slow, "/v1/completions", {**LONG, "max_tokens": 3, "deadline_ms": 600000}).json()
    assert in_time["choices"][0]["finish_reason"] == "length"
    assert slow.metrics()['vllm:request_success_total{engine="0",finished_reason="timeout",model_name="%s"}' % NAME] == 3


def test_a_stream_ends_with_its_reason(slow):
    with httpx.stream("POST", slow.url + "/v1/completions", json={**LONG, "stream": True, "deadline_ms": SOON_MS},
                      timeout=120) as stream:
        lines = [line[6:] for line in stream.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    assert json.loads(lines[-2])["choices"][0]["finish_reason"] == "timeout"


@pytest.mark.parametrize("path,body,end", [
    ("/v1/messages", {"messages": CHAT, "max_tokens": N_LONG, "ignore_eos": True}, ("stop_reason", "max_tokens")),
    ("/v1/responses", {"input": CHAT[0]["content"], "max_output_tokens": N_LONG, "ignore_eos": True}, ("status", "incomplete")),
    ("/api/generate", {"prompt": "Once", "stream": False, "options": {"num_predict": N_LONG, "ignore_eos": True}},
     ("done_reason", "timeout")),
    ("/completion", {"prompt": "Once", "n_predict": N_LONG, "ignore_eos": True}, ("stop_type", "limit")),
])
def test_each_api_has_its_own_word(slow, path, body, end):
    answer = post(slow, path, {"model": NAME, "temperature": 0, **body}, **{"X-Deadline-Ms": str(SOON_MS)})
    assert answer.status_code == 200, answer.text
    assert answer.json()[end[0]] == end[1]


def test_a_queue_that_is_too_long_refuses_at_once(one_at_a_time):
    """The waiting prompts take much longer than the deadline, on any machine: they have 1,800 tokens."""
    server = one_at_a_time
    server.complete("river " * 900, max_tokens=8)  # the cost of a prompt's token is known from now on

    def n_waiting():
        return server.metrics()['vllm:num_requests_waiting{engine="0",model_name="%s"}' % NAME]

    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        with endless(server, 1) as ids:
            until(lambda: ids)
            waiting = [pool.submit(post, server, "/v1/completions", {**LONG, "prompt": f"{i} " * 225, "max_tokens": 2})
                       for i in range(4)]
            until(lambda: n_waiting() == 4)
            refused = post(server, "/v1/completions", {**LONG, "deadline_ms": 100})
            assert refused.status_code == 429, refused.text
            assert refused.json()["error"]["code"] == "deadline_unreachable"
            assert 1 <= int(refused.headers["Retry-After"]) <= 60
            assert n_waiting() == 4, "the refusal waits for no other request"
            late = pool.submit(post, server, "/v1/embeddings", {"model": NAME, "input": "x", "deadline_ms": 86400000})
            until(lambda: n_waiting() == 5)
        assert late.result().status_code == 200
        assert {one.result().status_code for one in waiting} == {200}
    assert server.metrics()["penstock_refused_deadline_total"] == 1


def test_what_is_not_a_deadline(server):
    for value in ["0", "-1", "1.5", "soon", "86400001", "99999999999"]:
        refused = post(server, "/v1/completions", LONG, **{"X-Deadline-Ms": value})
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "X-Deadline-Ms", value
    for value in [0, 86400001, "5", 1.5]:
        refused = post(server, "/v1/completions", {**LONG, "deadline_ms": value})
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "deadline_ms", value
    refused = post(server, "/v1/completions", {**LONG, "receipt": True}, **{"X-Deadline-Ms": "1000"})
    assert refused.status_code == 400 and "receipt" in refused.json()["error"]["message"]
