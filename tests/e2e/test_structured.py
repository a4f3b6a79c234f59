"""Answers that follow a schema, a pattern or a choice, over HTTP with the real model: all complete ones are valid, and
the bytes of other requests do not change."""
import concurrent.futures
import json
import re
import subprocess
from typing import Literal

import openai
import pydantic
import pytest

from conftest import BINARY, MODEL, NAME, environment
from sse import stream, texts

COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"
USER = [{"role": "user", "content": "Describe a town: its name, its country, how many people live there, and what it is known for."}]


class Place(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=16)
    kind: Literal["town", "village", "city"]
    people: int = pydantic.Field(ge=0, le=99999)
    by_the_sea: bool
    known_for: list[Literal["fish", "cheese", "music"]] = pydantic.Field(max_length=3)


SCHEMA = {"type": "object", "additionalProperties": False, "required": ["name", "people"],
          "properties": {"name": {"type": "string", "maxLength": 12}, "people": {"type": "integer", "minimum": 0, "maximum": 9999},
                         "tags": {"type": "array", "items": {"enum": ["old", "new"]}, "maxItems": 2}}}


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120) as one:
        yield one


def is_place(text):
    """Does the text match SCHEMA? Checked without a library."""
    value = json.loads(text)
    return (list(value) in (["name", "people"], ["name", "people", "tags"])
            and isinstance(value["name"], str) and len(value["name"]) <= 12
            and isinstance(value["people"], int) and 0 <= value["people"] <= 9999
            and len(value.get("tags", [])) <= 2 and set(value.get("tags", [])) <= {"old", "new"})


# ---- OpenAI's client ------------------------------------------------------------------------------


def test_parse_returns_the_class(client):
    for seed in range(4):
        answer = client.chat.completions.parse(model=NAME, messages=USER, response_format=Place, seed=seed, temperature=1)
        place = answer.choices[0].message.parsed
        assert isinstance(place, Place) and answer.choices[0].finish_reason == "stop"
        assert Place.model_validate_json(answer.choices[0].message.content) == place


def test_the_stream_helper_gives_the_same(client):
    asked = {"model": NAME, "messages": USER, "response_format": Place, "seed": 5, "temperature": 1}
    with client.chat.completions.stream(**asked) as events_:
        pieces = [event.delta for event in events_ if event.type == "content.delta"]
        final = events_.get_final_completion()
    whole = client.chat.completions.parse(**asked)
    assert final.choices[0].message.parsed == whole.choices[0].message.parsed
    assert "".join(pieces) == whole.choices[0].message.content and len(pieces) > 4


def test_strict_schemas_and_json_objects(client):
    schema = {"name": "place", "strict": True, "schema": SCHEMA}
    for seed in range(4):
        answer = client.chat.completions.create(model=NAME, messages=USER, seed=seed, temperature=1,
                                                response_format={"type": "json_schema", "json_schema": schema})
        assert answer.choices[0].finish_reason == "stop"
        assert is_place(answer.choices[0].message.content)
        answer = client.chat.completions.create(model=NAME, messages=USER, seed=seed, temperature=0.7, max_tokens=200,
                                                response_format={"type": "json_object"})
        if answer.choices[0].finish_reason == "stop":
            assert isinstance(json.loads(answer.choices[0].message.content), dict)
        else:
            assert answer.choices[0].message.content.startswith("{")


def test_an_answer_that_is_cut_says_so(client):
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model=NAME, messages=USER, response_format=Place, max_tokens=5, temperature=0)


# ---- vLLM's and llama-server's fields -------------------------------------------------------------

DIGITS = "[0-9]{3}-[0-9]{4}"
FIELDS = [
    ({"structured_outputs": {"regex": DIGITS}}, re.compile(DIGITS).fullmatch),
    ({"guided_regex": DIGITS}, re.compile(DIGITS).fullmatch),
    ({"structured_outputs": {"choice": ["yes", "no", "not yet"]}}, {"yes", "no", "not yet"}.__contains__),
    ({"guided_choice": ["a", "ab", "abc"]}, {"a", "ab", "abc"}.__contains__),
    ({"structured_outputs": {"json": SCHEMA}}, is_place),
    ({"structured_outputs": {"json": json.dumps(SCHEMA), "disable_any_whitespace": False}}, is_place),
    ({"guided_json": SCHEMA}, is_place),
    ({"grammar": 'root ::= sum\nsum ::= num ("+" num)?\nnum ::= [0-9]{1,2}'}, re.compile(r"\d{1,2}(\+\d{1,2})?").fullmatch),
    ({"structured_outputs": {"grammar": 'root ::= "<" ("a" | "b"){1,5} ">"'}}, re.compile("<[ab]{1,5}>").fullmatch),
    ({"structured_outputs": {"structural_tag": {"type": "structural_tag", "format": {"type": "sequence", "elements": [
        {"type": "const_string", "value": "["}, {"type": "regex", "pattern": "[0-9]{2}"}, {"type": "const_string", "value": "]"}]}}}},
     re.compile(r"\[\d\d\]").fullmatch),
    ({"json_schema": SCHEMA}, is_place),
    ({"response_format": {"type": "json_object", "schema": SCHEMA}}, is_place),
]


@pytest.mark.parametrize("fields, right", FIELDS, ids=[json.dumps(fields)[:40] for fields, _ in FIELDS])
@pytest.mark.parametrize("path", [COMPLETIONS, CHATS])
def test_every_field_is_kept_to(server, path, fields, right):
    asked = {"prompt": "Answer: "} if path == COMPLETIONS else {"messages": USER}
    body = {"model": NAME, **asked, "max_tokens": 120, "temperature": 1, "n": 3, "seed": 3, "ignore_eos": True, **fields}
    answer = server.post(path, body)
    assert answer.status_code == 200, answer.text
    written = {}
    for choice in answer.json()["choices"]:
        text = choice["text"] if path == COMPLETIONS else choice["message"]["content"]
        assert choice["finish_reason"] == "stop" and choice["stop_reason"] is None, choice
        assert right(text), text
        written[choice["index"]] = text
    assert texts(stream(server, path, body)[1]) == written


def test_logprobs_are_the_models_own(server):
    free = server.complete("The capital of France is", max_tokens=1, logprobs=5)["choices"][0]["logprobs"]
    bound = server.complete("The capital of France is", max_tokens=1, logprobs=5, guided_regex="[0-9]+")["choices"][0]["logprobs"]
    assert set(free["top_logprobs"][0].items()) <= set(bound["top_logprobs"][0].items())
    assert re.fullmatch("[0-9]+", bound["tokens"][0]) and bound["token_logprobs"][0] < free["token_logprobs"][0]


def test_other_settings_hold_beside_a_grammar(server):
    cut = server.complete("x", guided_regex="[a-z]{40}", max_tokens=3)["choices"][0]
    assert cut["finish_reason"] == "length" and re.fullmatch("[a-z]{3,40}", cut["text"])
    stopped = server.complete("One, two,", guided_regex="[a-z, ]{60}", max_tokens=64, stop=[","])["choices"][0]
    assert stopped["finish_reason"] == "stop" and (stopped["stop_reason"] == "," or len(stopped["text"]) == 60)
    long = server.complete("x", guided_regex="[a-z]+", min_tokens=12, max_tokens=30)["choices"][0]["text"]
    assert re.fullmatch("[a-z]{12,}", long)
    short = server.complete("x", guided_choice=["abc"], min_tokens=12)["choices"][0]
    assert short["text"] == "abc" and short["finish_reason"] == "stop"  # the grammar has priority over min_tokens
    batch = server.complete(["1, 2, 3,", "a, b, c,"], guided_regex=" [0-9a-z]", max_tokens=8)["choices"]
    assert all(re.fullmatch(" [0-9a-z]", one["text"]) for one in batch)


# ---- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields, param, says", [
    ({"guided_regex": "(a"}, "guided_regex", "cannot be enforced"),
    ({"guided_regex": "a(?=b)"}, "guided_regex", "cannot be enforced"),
    ({"guided_json": {"type": "object", "properties": {"a": {"type": "strin"}}}}, "guided_json", "/properties/a/type"),
    ({"guided_json": {"not": {"uniqueItems": True}}}, "guided_json", "/not"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {
        "properties": {"a": {"type": "array", "items": {}, "uniqueItems": True}}}}}}, "response_format.json_schema.schema", '"/properties/a/uniqueItems"'),
    ({"guided_json": "{"}, "guided_json", "cannot be enforced"),
    ({"guided_regex": ""}, None, None),
    ({"guided_choice": [""]}, "guided_choice", "any text of one token"),
    ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs", "exactly one"),
    ({"guided_regex": "a", "allowed_token_ids": [5]}, "guided_regex", "No next token is allowed"),
])
def test_what_cannot_be_kept_to_is_refused(server, fields, param, says):
    answer = server.post(COMPLETIONS, {"prompt": "x", "max_tokens": 4, **fields})
    if param is None:
        assert answer.status_code == 200
        return
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param and says in error["message"], error


def test_a_stream_that_is_stuck_ends_with_an_error(server):
    body = {"prompt": "x", "guided_regex": "[0-9]a", "allowed_token_ids": [33], "max_tokens": 4, "stream": True}
    with server.http.stream("POST", COMPLETIONS, json=body) as answer:
        text = answer.read().decode()
    assert "No next token is allowed" in text and text.endswith("data: [DONE]\n\n")


# ---- other requests -------------------------------------------------------------------------------


def test_others_get_the_same_bytes(server):
    free = [{"prompt": f"Number {i}:", "max_tokens": 24, "seed": i, "temperature": 0.8, "logprobs": 2} for i in range(4)]
    bound = [{"prompt": f"Item {i}:", "max_tokens": 60, "seed": i, "temperature": 1, "logprobs": 1, **FIELDS[i][0]} for i in range(5)]

    def ask(body):
        answer = server.post(COMPLETIONS, {"model": NAME, **body})
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"]

    alone = [ask(body) for body in free + bound]
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        for _ in range(2):
            assert list(pool.map(ask, free + bound)) == alone


def test_a_batch_keeps_to_them_too(server, tmp_path):
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    bodies = [{"model": NAME, "prompt": "x", "max_tokens": 60, "temperature": 0, **fields} for fields, _ in FIELDS[:5]]
    source.write_text("".join(json.dumps({"custom_id": str(i), "method": "POST", "url": COMPLETIONS, "body": body}) + "\n"
                              for i, body in enumerate(bodies)))
    subprocess.run([BINARY, "batch", "--model", MODEL, "--served-model-name", NAME, "--max-model-len", "1024",
                    "--kv-cache-memory", "256MiB", "-i", str(source), "-o", str(target)], check=True, timeout=120,
                   capture_output=True, env=environment())
    answers = {one["custom_id"]: one["response"]["body"] for one in map(json.loads, target.read_text().splitlines())}
    for i, body in enumerate(bodies):
        assert answers[str(i)]["choices"] == server.post(COMPLETIONS, body).json()["choices"]
