"""gpt-oss's harmony format through the engine: a made-up model writes answers of several messages. <|end|> ends a
message, <|call|> and <|return|> end the answer."""
import pytest

import scripted_file
from conftest import Server

WORDS = ["<|return|>", "<|constrain|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>", "<|call|>"]
TEMPLATE = ("{% set forms = '<|channel|>analysis<|channel|>commentary<|call|>' %}"
            "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}<|start|>assistant")
THOUGHTS = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
ANSWERS = {30: THOUGHTS + "<|channel|>final<|message|>Yes.<|return|>",
           90: THOUGHTS + "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
           180: THOUGHTS + '<|channel|>final<|message|>{"a":1}<|return|>'}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    path = tmp_path_factory.mktemp("harmony") / "harmony.gguf"
    scripted_file.write(path, WORDS, TEMPLATE, "<|return|>", ANSWERS)
    server = Server("--device", "cpu", "--kv-cache-memory", "8MiB", model=path).wait_until_ready()
    yield server
    server.stop()


def answer(server, length, **fields):
    """Returns the choice for a prompt of this many tokens."""
    around = len(scripted_file.ids_of(WORDS, "<|start|>user<|message|><|end|><|start|>assistant"))
    body = server.chat("x" * (length - around), max_tokens=75, **fields)
    assert body["usage"]["prompt_tokens"] == length
    return body["choices"][0]


def test_the_answer_goes_on_after_its_thoughts(scripted):
    choice = answer(scripted, 30)
    assert choice["message"]["content"] == "Yes." and choice["message"]["reasoning_content"] == "Hm."
    assert choice["finish_reason"] == "stop"


def test_a_call_ends_the_answer(scripted):
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    choice = answer(scripted, 90, tools=[tool])
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "f", "arguments": "{}"} and choice["finish_reason"] == "tool_calls"


def test_thoughts_end_under_a_grammar(scripted):
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
    choice = answer(scripted, 180, response_format=schema)
    assert choice["message"]["content"] == '{"a":1}' and choice["message"]["reasoning_content"] == "Hm."
    assert choice["finish_reason"] == "stop"


def test_a_budget_ends_thoughts(scripted):
    assert answer(scripted, 30, thinking_token_budget=1)["message"]["reasoning_content"] == "H"
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
    message = answer(scripted, 180, reasoning_budget=1, response_format=schema)["message"]
    assert message["reasoning_content"] == "H" and message["content"].startswith("{")
