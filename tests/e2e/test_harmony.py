"""gpt-oss's harmony format through the engine: a made-up model writes answers of several messages. <|end|> ends a
message, <|call|> and <|return|> end the answer."""
import pytest

import scripted_file
from conftest import Server

WORDS = ["<|return|>", "<|constrain|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>", "<|call|>"]
TEMPLATE = ("{% set forms = '<|channel|>analysis<|channel|>commentary<|call|>' %}"
            "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}<|start|>assistant")
THOUGHTS = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
COMPILED = 'penstock_grammar_compilations_total{result="compiled"}'
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


def test_a_schema_is_compiled_once(scripted):
    schema = {**SCHEMA, "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}}
    before = scripted.metrics()[COMPILED]
    answer(scripted, 180, response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": schema}})
    assert scripted.metrics()[COMPILED] == before + 1


@pytest.mark.parametrize("fields, place", [
    ({"json": {"properties": {"a": {"$ref": "#/nowhere"}}}}, 'The schema at "/properties/a/$ref"'),
    ({"json": '{"type":"object"'}, "The schema is not valid JSON: no ',' or '}' at line 1, column 17"),
    ({"json": '{}},{"type":"any_text"'}, "The schema is not valid JSON"),
    ({"regex": "a(b"}, "The regular expression has a '(' without its ')' at byte 1"),
    ({"grammar": "root ::= x"}, "at line 1, column 10"),
    ({"structural_tag": '{"format":{"type":"none"}}'}, 'The structural tag at "/format/type"'),
    ({"regex": "a[^\\s\\S]"}, "no text matches"),
])
def test_an_error_names_the_place_in_the_clients_text(scripted, fields, place):
    body = {"model": "smol", "messages": [{"role": "user", "content": "x"}], "structured_outputs": fields}
    answered = scripted.post("/v1/chat/completions", body)
    error = answered.json()["error"]
    assert answered.status_code == 400 and place in error["message"]
    assert error["param"] == "structured_outputs." + next(iter(fields))


def test_a_budget_ends_thoughts(scripted):
    assert answer(scripted, 30, thinking_token_budget=1)["message"]["reasoning_content"] == "H"
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
    message = answer(scripted, 180, reasoning_budget=1, response_format=schema)["message"]
    assert message["reasoning_content"] == "H" and message["content"].startswith("{")
