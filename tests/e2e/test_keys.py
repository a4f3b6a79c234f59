"""Keys with names, weights and limits: fair shares of the steps, refusals, metrics, the log."""
import concurrent.futures
import hashlib
import math
import time

import httpx
import pytest

from conftest import NAME
from streams import ENDLESS, endless, until

FILE = f"""\
# keys of the team
keys:
- {{name: alice, key: a, weight: 3, best_priority: 0}}
- {{name: bob, sha256: {hashlib.sha256(b"b").hexdigest()}}}
- {{name: carol, key: c, max_requests: 1}}
- {{name: dave, key: d, tokens_per_minute: 60}}
- {{name: erin, key: e, admin: true}}
"""


@pytest.fixture
def keyed(start, tmp_path):
    path = tmp_path / "keys.yaml"
    path.write_text(FILE)
    return start("--api-key-file", str(path), "--max-num-seqs", "4", "--metrics-key", "m", *ENDLESS)


def ask(server, key, path="/v1/completions", **fields):
    body = {"model": NAME, "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, "ignore_eos": True, **fields}
    return httpx.post(server.url + path, json=body, headers={"Authorization": f"Bearer {key}"}, timeout=120)


def metrics(server):
    text = httpx.get(server.url + "/metrics", headers={"Authorization": "Bearer m"}).text
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line[:1] != "#"}


def test_keys_of_a_file(keyed):
    texts = {ask(keyed, key).json()["choices"][0]["text"] for key in "abcde"}
    assert len(texts) == 1
    assert ask(keyed, "x").status_code == 401
    assert ask(keyed, hashlib.sha256(b"b").hexdigest()).status_code == 401
    until(lambda: metrics(keyed)['penstock_key_requests{key="erin"}'] == 0)
    counts = metrics(keyed)
    assert counts['penstock_key_requests_total{key="alice"}'] == 1
    assert counts['penstock_key_output_tokens_total{key="bob"}'] == 8
    assert counts['penstock_key_prompt_tokens_total{key="bob"}'] == 4
    assert counts['penstock_key_requests{key="carol"}'] == 0
    until(lambda: "key=alice" in keyed.log_tail())


def test_urgent_requests_need_a_key_that_may(keyed):
    assert ask(keyed, "a", priority=0).status_code == 200
    refused = ask(keyed, "a", priority=-1)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "priority"
    assert ask(keyed, "b", priority=-1).status_code == 200


def test_an_admin_in_the_file(keyed):
    assert httpx.post(keyed.url + "/drain", headers={"Authorization": "Bearer a"}).status_code == 401
    assert httpx.post(keyed.url + "/drain", headers={"Authorization": "Bearer e"}).status_code == 200


def test_requests_at_once(keyed):
    with endless(keyed, 1, {"Authorization": "Bearer c"}) as ids:
        until(lambda: ids)
        refused = ask(keyed, "c")
        assert refused.status_code == 429 and 1 <= int(refused.headers["Retry-After"]) <= 60
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert "1 requests of this key are running" in refused.json()["error"]["message"]
        assert ask(keyed, "b").status_code == 200
    until(lambda: ask(keyed, "c").status_code == 200)  # the stream's client has left
    assert metrics(keyed)['penstock_key_refused_total{key="carol"}'] >= 1


def test_tokens_a_minute(keyed):
    begun = time.monotonic()
    assert ask(keyed, "d", max_tokens=100).status_code == 200  # an answer is not cut
    refused = ask(keyed, "d")
    assert refused.status_code == 429
    refilled = math.ceil(time.monotonic() - begun)  # 104 tokens at one a second, 60 of them saved up
    assert 44 - refilled <= int(refused.headers["Retry-After"]) <= 45
    message = ask(keyed, "d", "/v1/messages", prompt=None, messages=[{"role": "user", "content": "Hi"}])
    assert message.status_code == 429 and message.json()["error"]["type"] == "rate_limit_error"


def test_a_queue_of_one_key_delays_no_other(keyed):
    """Bob's request is served long before the forty of Alice that came before it: four long ones that run, and others."""
    def of_alice():
        return metrics(keyed)['penstock_key_requests{key="alice"}']

    with concurrent.futures.ThreadPoolExecutor(41) as pool:
        crowd = [pool.submit(ask, keyed, "a", max_tokens=400) for _ in range(4)]
        until(lambda: of_alice() == 4)
        crowd += [pool.submit(ask, keyed, "a", max_tokens=12) for _ in range(36)]
        until(lambda: of_alice() == 40)
        assert ask(keyed, "b", max_tokens=4).status_code == 200
        left = of_alice()
        assert left > 20, left
        assert all(one.result().status_code == 200 for one in crowd)


def test_a_file_that_is_wrong_is_named(tmp_path, start):
    path = tmp_path / "keys"
    path.write_text("keys:\n- {name: a, key: b, weight: heavy}\n")
    server = start("--api-key-file", str(path), ready=False)
    assert server.process.wait(120) == 1
    assert f"{path}:2: weight is a whole number from 1 to 1000, not heavy" in server.log_tail()
