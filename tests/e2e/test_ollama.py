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
    answer = server.http.get("/api/chat")
    assert answer.status_code == 405 and answer.json().keys() == {"error"}


def test_lines_without_a_client(server):
    with httpx.stream("POST", server.url + "/api/chat", timeout=120,
                      json={"model": NAME, "messages": MESSAGES, "options": OPTIONS}) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(line) for line in answer.iter_lines()]
    assert all("message" in line and line["model"] == NAME for line in lines) and lines[-1]["done"]


def test_the_server_and_its_model_are_found(client, server):
    assert server.http.get("/").text == "Ollama is running" and server.http.head("/").status_code == 200
    assert [int(part) for part in server.http.get("/api/version").json()["version"].split(".")] > [0, 6, 4]
    [listed], [running] = client.list().models, client.ps().models
    assert listed.model == running.model == NAME and listed.size == running.size > 1e7
    assert listed.details.family == "llama" and listed.details.quantization_level == "Q4_1" and listed.details.format == "gguf"
    assert running.context_length == server.http.get("/v1/models").json()["data"][0]["max_model_len"]
    assert running.size_vram == 0 and running.expires_at.year == 9999
    shown = client.show(NAME + ":latest")
    assert shown.modelinfo["llama.context_length"] == running.context_length and "completion" in shown.capabilities
    assert 'stop "<|im_end|>"' in shown.parameters.split("\n") and "<|im_start|>" in shown.template
    assert server.post("/api/show", {"name": NAME}).json()["details"] == listed.details.model_dump()


def test_a_model_is_loaded_by_an_empty_prompt(client):
    for stream in (False, True):
        loaded = client.generate(NAME, "", stream=stream, keep_alive=-1)
        [loaded] = loaded if stream else [loaded]
        assert loaded.done and loaded.done_reason == "load" and loaded.response == ""
    loaded = client.chat(NAME, [])
    assert loaded.done and loaded.done_reason == "load" and loaded.message.content == ""


def test_models_cannot_be_changed(client):
    for call in (lambda: client.pull("x"), lambda: client.push("x"), lambda: client.create("x", from_=NAME),
                 lambda: client.copy(NAME, "x"), lambda: client.delete(NAME)):
        with pytest.raises(ollama.ResponseError) as caught:
            call()
        assert caught.value.status_code == 501 and caught.value.error.startswith("This server ")
    with pytest.raises(ollama.ResponseError) as caught:
        client.show("another")
    assert caught.value.status_code == 404 and "another" in caught.value.error
