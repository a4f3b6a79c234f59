"""Beam search and best_of over HTTP: texts have the reported scores, do not depend on other requests, and free their
memory."""
import concurrent.futures
import math

import httpx
import pytest

PROMPT = "The water flows past the mill and"
SEARCH = {"use_beam_search": True, "best_of": 4, "n": 3, "max_tokens": 12, "return_token_ids": True}


def ask(server, **fields):
    answer = server.post("/v1/completions", {"prompt": PROMPT, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def refusal(server, **fields):
    answer = server.post("/v1/completions", {"prompt": PROMPT, **fields})
    assert answer.status_code == 400, answer.text
    return answer.json()["error"]


def worth(server, choice):
    """Returns the sum of the logprobs of a choice's tokens, from a request that only reads them."""
    prompt, ids = choice["prompt_token_ids"], choice["token_ids"]
    read = ask(server, prompt=prompt + ids, prompt_logprobs=0, max_tokens=1)["choices"][0]["prompt_logprobs"]
    return sum(read[len(prompt) + i][str(id)]["logprob"] for i, id in enumerate(ids))


def test_texts_come_best_first(server):
    choices = ask(server, **SEARCH)["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert len({choice["text"] for choice in choices}) == 3
    values = [worth(server, choice) / len(choice["token_ids"]) for choice in choices]
    assert values == sorted(values, reverse=True)
    greedy = ask(server, temperature=0, max_tokens=12, return_token_ids=True)["choices"][0]
    assert values[0] > worth(server, greedy) / 12, "four beams see further than one"


def test_length_penalty_and_rules_change_what_wins(server):
    found = {}
    for penalty in (-2, 3):
        for rule in (True, "never"):
            body = {**SEARCH, "length_penalty": penalty, "early_stopping": rule, "max_tokens": 30, "stop_token_ids": [30]}
            found[penalty, rule] = [len(choice["token_ids"]) for choice in ask(server, **body)["choices"]]
    assert sum(found[3, "never"]) > sum(found[-2, "never"])


def test_beams_in_company(server, start):
    alone = ask(server, **SEARCH)["choices"]
    small = start("--max-num-seqs", "9", "--max-num-batched-tokens", "24", "--no-enable-prefix-caching",
                  "--max-model-len", "512", "--kv-cache-memory", "64M")
    bodies = [SEARCH, {"temperature": 0.9, "seed": 1, "n": 3, "max_tokens": 20}] * 4
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda body: ask(small, **body), bodies))
    assert all(answer["choices"] == alone for answer in answers[::2])
    usage = answers[0]["usage"]
    assert usage["completion_tokens"] == sum(len(choice["token_ids"]) for choice in alone)


def test_clients_that_leave_hold_no_block(server):
    for _ in range(3):
        with pytest.raises(httpx.TimeoutException):
            server.post("/v1/completions", {"prompt": PROMPT, **SEARCH, "best_of": 8, "max_tokens": 1500, "ignore_eos": True},
                        timeout=0.3)
    server.wait_until_idle()


def test_best_of_is_the_best_mean_logprob(server):
    body = {"temperature": 1, "seed": 5, "max_tokens": 10}
    every = ask(server, **body, n=6, logprobs=0)["choices"]
    means = [math.fsum(choice["logprobs"]["token_logprobs"]) / len(choice["logprobs"]["token_logprobs"]) for choice in every]
    order = sorted(range(6), key=lambda i: -means[i])
    best = ask(server, **body, n=2, best_of=6)
    assert [choice["text"] for choice in best["choices"]] == [every[i]["text"] for i in order[:2]]
    assert [choice["index"] for choice in best["choices"]] == [0, 1]
    assert best["choices"][0]["logprobs"] is None, "they were not asked for"
    assert best["usage"]["completion_tokens"] == sum(len(choice["logprobs"]["tokens"]) for choice in every)


def test_best_of_of_chats(server):
    body = {"messages": [{"role": "user", "content": "Name a colour."}], "max_tokens": 8, "seed": 2}
    answer = server.post("/v1/chat/completions", {**body, "n": 2, "best_of": 4, "use_beam_search": True}).json()
    assert len(answer["choices"]) == 2
    assert len(server.post("/v1/chat/completions", {**body, "best_of": 4}).json()["choices"]) == 1


def test_wrong_pairs(server):
    assert refusal(server, **SEARCH, stream=True)["param"] == "stream"
    assert refusal(server, **SEARCH, temperature=0.7)["param"] == "temperature"
    assert refusal(server, **SEARCH, logprobs=2)["param"] == "logprobs"
    assert refusal(server, **SEARCH, stop="a")["param"] == "stop"
    assert refusal(server, **{**SEARCH, "best_of": 17})["param"] == "best_of"
    assert refusal(server, **{**SEARCH, "best_of": 2})["param"] == "best_of"
    assert refusal(server, best_of=3, stream=True)["param"] == "best_of"
    assert refusal(server, length_penalty=2)["param"] == "length_penalty"
    many = refusal(server, **{**SEARCH, "best_of": 16}, stop_token_ids=[5, 6, 7, 8])
    assert many["param"] == "best_of" and "candidates" in many["message"]
    for field, value in {"num_beam_groups": 2, "penalty_alpha": 0.6, "dola_layers": "high", "mirostat": 1}.items():
        assert refusal(server, **{field: value})["param"] == field
