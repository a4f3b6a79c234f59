"""Cassettes: the loops of OpenAI's and Anthropic's clients are replayed without a model, with equal bytes."""
import json
import signal
import socket
import subprocess
import time

import anthropic
import httpx
import openai
import pytest

from conftest import BINARY, MODEL, NAME, Server, environment, free_port

LIMITS = ["--max-model-len", "512", "--kv-cache-memory", "64MiB"]


class Replay:
    """A `penstock serve --replay` without a model."""

    def __init__(self, cassette):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = subprocess.Popen([BINARY, "serve", "--replay", str(cassette), "--port", str(self.port)], env=environment(),
                                        stderr=subprocess.DEVNULL)

    def __enter__(self):
        end = time.monotonic() + 120
        while time.monotonic() < end:
            try:
                if httpx.get(self.url + "/health/ready").status_code == 200:
                    return self
            except httpx.TransportError:
                time.sleep(0.02)
        raise AssertionError("the server was not ready")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0


def openai_loop(url):
    """Two turns, whole and streamed, and a list of completions: what the client saw."""
    seen = []
    with openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120) as client:
        messages = [{"role": "user", "content": "Name a river."}]
        for _ in range(2):
            done = client.chat.completions.create(model=NAME, messages=messages, max_tokens=5, temperature=0.9, user="someone")
            seen.append(done.model_dump())
            messages += [{"role": "assistant", "content": done.choices[0].message.content}, {"role": "user", "content": "And a lake?"}]
        stream = client.chat.completions.create(model=NAME, messages=messages, max_tokens=5, stream=True, n=2,
                                                stream_options={"include_usage": True})
        seen += [chunk.model_dump() for chunk in stream]
        seen.append(client.completions.create(model=NAME, prompt=["Once", "The"], max_tokens=4, logprobs=2).model_dump())
        seen.append(client.embeddings.create(model=NAME, input="Once").model_dump())
        with pytest.raises(openai.BadRequestError) as error:
            client.completions.create(model=NAME, prompt="x", max_tokens=100000, temperature=9)
        seen.append(error.value.body)
    return seen


def anthropic_loop(url):
    seen = []
    with anthropic.Anthropic(base_url=url, auth_token="none", max_retries=0, timeout=120) as client:
        asked = {"model": NAME, "max_tokens": 5, "messages": [{"role": "user", "content": "Name a river."}]}
        seen.append(client.messages.create(**asked, metadata={"user_id": "u"}).model_dump())
        with client.messages.stream(**asked) as stream:
            seen += [event.model_dump() for event in stream]
    return seen


def raw(port, path, body):
    """The bytes of an answer, chunk borders included, without the head's date."""
    text = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", port)) as one:
        one.sendall(b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
                    % (path.encode(), len(text)) + text)
        answer = b"".join(iter(lambda: one.recv(65536), b""))
    return b"\r\n".join(line for line in answer.split(b"\r\n") if not line.startswith(b"Date: "))


STREAMS = [("/v1/chat/completions", {"model": NAME, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6, "stream": True, "receipt": True}),
           ("/v1/messages", {"model": NAME, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6, "stream": True}),
           ("/v1/completions", {"model": NAME, "prompt": ["a", "b"], "n": 2, "max_tokens": 6, "stream": True}),
           ("/v1/responses", {"model": NAME, "input": "Hi", "max_output_tokens": 6, "stream": True})]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A cassette, and what the clients saw while it was recorded."""
    path = tmp_path_factory.mktemp("cassette") / "answers.jsonl"
    server = Server(*LIMITS, "--record", str(path))
    try:
        server.wait_until_ready()
        seen = openai_loop(server.url), anthropic_loop(server.url), [raw(server.port, *one) for one in STREAMS]
    finally:
        server.stop()
    return path, seen


def test_loops_are_replayed_without_a_model(recorded):
    path, seen = recorded
    with Replay(path) as replay:
        assert openai_loop(replay.url) == seen[0]
        assert anthropic_loop(replay.url) == seen[1]
        for (route, body), expected in zip(STREAMS, seen[2]):
            assert raw(replay.port, route, body) == expected, route


def test_an_answer_is_replayed_beside_a_model_and_a_miss_is_computed(recorded, tmp_path):
    path, seen = recorded
    added = tmp_path / "added.jsonl"
    server = Server(*LIMITS, "--replay", str(path), "--record", str(added))
    try:
        server.wait_until_ready()
        assert raw(server.port, *STREAMS[0]) == seen[2][0]
        assert server.metric("vllm:prompt_tokens_total") == 0
        answer = server.complete("Never recorded", max_tokens=4)
        assert server.metric("vllm:generation_tokens_total") == 4
    finally:
        server.stop()
    records = [json.loads(line) for line in added.read_text().splitlines()]
    assert len(records) == 1 and json.loads(records[0]["pieces"][0]) == answer


def test_a_miss_without_a_model_shows_the_nearest_request(recorded):
    with Replay(recorded[0]) as replay:
        body = {**STREAMS[0][1], "messages": [{"role": "user", "content": "Ho"}]}
        missed = httpx.post(replay.url + STREAMS[0][0], json=body)
        error = missed.json()["error"]
        assert missed.status_code == 404 and error["code"] == "not_recorded"
        assert "differs first at 'messages[0].content': \"Hi\" is recorded, \"Ho\" was sent." in error["message"]
        assert httpx.get(replay.url + "/v1/models").json()["data"][0]["id"] == NAME
        assert httpx.post(replay.url + "/tokenize", json={}).status_code == 404
        assert httpx.get(replay.url + "/metrics").status_code == 404
        assert httpx.post(replay.url + "/v1/messages", content=b"{").json()["type"] == "error"


def test_records_have_receipts_that_hold(recorded, tmp_path):
    lines = recorded[0].read_text().splitlines()
    receipts = [json.loads(line)["receipt"] for line in lines]
    assert sum(receipt is not None for receipt in receipts) == len(lines) - 2  # not of the embedding and the refused request
    done = subprocess.run([BINARY, "verify", str(recorded[0]), "--model", MODEL, *LIMITS, "--threads", "1"], capture_output=True, text=True,
                          env=environment(), timeout=600)
    assert done.returncode == 0 and done.stdout.count("the same") == len(lines) - 2, done.stdout + done.stderr


@pytest.mark.parametrize("flags, text", [
    (["--replay", "{}"], "1: the line is no record"),
    (["--replay", "/nowhere.jsonl"], "No such file"),
    (["--model", MODEL, "--record", "/nowhere/x.jsonl"], "No such file"),
    (["--replay", "/dev/null", "--api-key", "k"], "--api-key needs a model"),
    (["--replay", "/dev/null", "--record", "FILE"], "--record needs a model"),
    (["--model", MODEL, "--record", "FILE", "--state-dir", "/tmp"], "--record does not work with --state-dir")])
def test_wrong_cassettes_are_named(flags, text, tmp_path):
    broken = tmp_path / "broken.jsonl"
    broken.write_text("not a record\n")
    flags = [str(broken) if flag == "{}" else str(tmp_path / "new") if flag == "FILE" else flag for flag in flags]
    done = subprocess.run([BINARY, "serve", "--port", str(free_port()), *flags], capture_output=True, text=True, env=environment(), timeout=120)
    assert done.returncode in (1, 2) and text in done.stderr, done.stderr
