"""The programs of docs/clients.md find the server and get an answer: the requests that each documents, in its order."""
import json

import pytest

from conftest import NAME

USER = [{"role": "user", "content": "Name a river."}]
CHAT = {"model": NAME, "messages": USER, "stream": True, "max_tokens": 8}
OLLAMA = {"model": NAME, "messages": USER, "stream": True, "options": {"num_predict": 8, "num_ctx": 1 << 20}, "keep_alive": "-1"}
PROGRAMS = {
    "Open WebUI": [("GET", "/v1/models", None, "data"),
                   ("POST", "/v1/chat/completions", {**CHAT, "stream_options": {"include_usage": True}}, None)],
    "Open WebUI with Ollama": [("GET", "/api/version", None, "version"), ("GET", "/api/tags", None, "models"),
                               ("GET", "/api/ps", None, "models"), ("POST", "/api/chat", OLLAMA, None)],
    "Zed": [("GET", "/v1/models", None, "data"), ("GET", "/props", None, "default_generation_settings"),
            ("POST", "/v1/chat/completions", {**CHAT, "stream_options": {"include_usage": True}}, None)],
    "Continue": [("POST", "/api/show", {"name": NAME}, "parameters"), ("POST", "/api/chat", {**OLLAMA, "think": False}, None)],
    "Home Assistant": [("GET", "/api/tags", None, "models"), ("POST", "/api/chat", {**OLLAMA, "think": False, "tools": []}, None)],
}


def text_of(answer):
    """The text of a stream of events or of lines."""
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line and line != "data: [DONE]"]
    parts = [json.loads(line) for line in lines]
    found = [choice["delta"].get("content") or "" for part in parts for choice in part.get("choices", [])]
    return "".join(found or [part["message"]["content"] for part in parts])


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_finds_the_server_and_gets_the_same_text(name, server):
    right = server.chat("Name a river.", max_tokens=8, seed=1)["choices"][0]["message"]["content"]
    for method, path, body, member in PROGRAMS[name]:
        sampling = {} if member else {"options": {**body["options"], "temperature": 0}} if "options" in body else {"temperature": 0}
        answer = server.http.request(method, path, json={**body, **sampling} if body else None)
        assert answer.status_code == 200, answer.text
        if member:
            assert answer.json()[member]
        else:
            assert text_of(answer) == right
