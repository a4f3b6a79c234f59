"""Ollama's client works unchanged."""
import json

import httpx
import ollama
import pytest

from conftest import NAME

MESSAGES = [{"role": "user", "content": "Name three colours."}]
OPTIONS = {"temperature": 0, "num_predict": 16, "num_ctx": 1 << 20}


@pytest.fixture(scope="module")
def client(server):
    return ollama.Client(host=server.url, timeout=120)


def test_chat_has_the_text_of_openais_path(client, server):
    whole = client.chat(NAME, MESSAGES, options=OPTIONS, keep_alive="5m")
    same = httpx.post(server.url + "/v1/chat/completions", timeout=120,
                      json={"messages": MESSAGES, "temperature": 0, "max_tokens": 16}).json()
    assert whole.message.content == same["choices"][0]["message"]["content"]
    assert whole.done and whole.done_reason == "length" and whole.eval_count == 16
    assert whole.prompt_eval_count == same["usage"]["prompt_tokens"] and whole.total_duration > 0
    parts = list(client.chat(NAME + ":latest", MESSAGES, options=OPTIONS, stream=True))
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True] and len(parts) > 8


def test_generate_raw_and_rendered(client, server):
    text = "Once upon a time, there was a"
    raw = client.generate(NAME, text, raw=True, options=OPTIONS)
    same = httpx.post(server.url + "/v1/completions", timeout=120,
                      json={"prompt": text, "temperature": 0, "max_tokens": 16}).json()
    assert raw.response == same["choices"][0]["text"]
    rendered = client.generate(NAME, MESSAGES[0]["content"], options=OPTIONS)
    assert rendered.response == client.chat(NAME, MESSAGES, options=OPTIONS).message.content
    parts = list(client.generate(NAME, text, raw=True, options=OPTIONS, stream=True))
    assert "".join(part.response for part in parts) == raw.response and parts[-1].done


def test_a_schema_is_kept(client):
    schema = {"type": "object", "properties": {"age": {"type": "integer", "maximum": 99}}, "required": ["age"],
              "additionalProperties": False}
    answer = client.chat(NAME, MESSAGES, format=schema, options={"temperature": 0, "num_predict": 64})
    assert json.loads(answer.message.content).keys() == {"age"}


def test_errors_have_ollamas_form(client, server):
    with pytest.raises(ollama.ResponseError) as caught:
        client.chat("another", MESSAGES)
    assert caught.value.status_code == 404 and "another" in caught.value.error
    with pytest.raises(ollama.ResponseError) as caught:
        client.generate(NAME, "a", options={"temperature": 9})
    assert caught.value.status_code == 400 and "options.temperature" in caught.value.error
    answer = httpx.get(server.url + "/api/chat")
    assert answer.status_code == 405 and answer.json().keys() == {"error"}


def test_lines_without_a_client(server):
    with httpx.stream("POST", server.url + "/api/chat", timeout=120,
                      json={"model": NAME, "messages": MESSAGES, "options": OPTIONS}) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(line) for line in answer.iter_lines()]
    assert all("message" in line and line["model"] == NAME for line in lines) and lines[-1]["done"]
