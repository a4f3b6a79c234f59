"""Calls of tools and thoughts over HTTP, with OpenAI's own client, and `penstock parse`.

The default model calls no tools by itself. A template that says the last message several times over lets it repeat that text,
so that the answer is known.
"""
import json
import subprocess

import openai
import pytest

from conftest import BINARY, NAME

TEMPLATE = ("{% if tools %}{% set times = 6 %}{% else %}{% set times = 4 %}{% endif %}"
            "{% for i in range(times) %}{{ messages[-1].content }}\n{% endfor %}{{ begin }}")
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    from conftest import Server
    template = tmp_path_factory.mktemp("template") / "echo.jinja"
    template.write_text(TEMPLATE)
    server = Server("--max-model-len", "1024", "--chat-template", str(template), "--tool-call-parser", "hermes",
                    "--reasoning-parser", "qwen3", "--kv-cache-memory", "128MiB")
    try:
        server.wait_until_ready()
        with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120) as one:
            yield one
    finally:
        server.stop()


def ask(client, text, **fields):
    return client.chat.completions.create(model=NAME, messages=[{"role": "user", "content": text}], temperature=0,
                                          **{"max_tokens": 60, **fields})


def joined(stream):
    """A stream's sum: (reasoning, content, calls, finish_reason); each delta only adds."""
    reasoning, content, calls, reason = "", "", [], None
    for chunk in stream:
        for choice in chunk.choices:
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            content += choice.delta.content or ""
            reason = choice.finish_reason or reason
            for call in choice.delta.tool_calls or []:
                if call.id:
                    assert call.index == len(calls) and call.type == "function"
                    calls.append([call.id, call.function.name, ""])
                calls[call.index][2] += call.function.arguments
    return reasoning, content, [tuple(call) for call in calls], reason


def test_a_call_is_found(client):
    answer = ask(client, CALL, tools=TOOLS, parallel_tool_calls=False).choices[0]
    assert answer.finish_reason == "tool_calls" and answer.message.content is None
    [call] = answer.message.tool_calls
    assert call.id.startswith("call_") and call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}


def test_a_stream_has_the_same_call(client):
    fields = {"tools": TOOLS, "parallel_tool_calls": False, "extra_body": {"request_id": "same"}}
    whole = ask(client, CALL, **fields).choices[0].message.tool_calls[0]
    reasoning, content, calls, reason = joined(ask(client, CALL, stream=True, **fields))
    assert (reasoning, content, reason) == ("", "", "tool_calls")
    assert calls == [(whole.id, "get_weather", whole.function.arguments)]


def test_calls_of_other_tools_are_content(client):
    other = [{"type": "function", "function": {"name": "another"}}]
    for fields in [{"tools": other}, {}, {"tools": TOOLS, "tool_choice": "none"}]:
        answer = ask(client, CALL, **fields).choices[0]
        assert answer.message.tool_calls is None and "<tool_call>" in answer.message.content
        assert answer.finish_reason in ("stop", "length")


def test_a_tool_loop(client):
    messages = [{"role": "user", "content": CALL}]
    message = ask(client, CALL, tools=TOOLS, parallel_tool_calls=False).choices[0].message
    messages += [message.model_dump(exclude_none=True),
                 {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}]
    with pytest.raises(openai.BadRequestError, match="leaves calls of tools out|leaves such messages out"):
        client.chat.completions.create(model=NAME, messages=messages, tools=TOOLS)  # of this template


def test_thoughts_are_split_off(client):
    text = "<think>\nTwo and two.\n</think>\n\nFour."
    answer = ask(client, text, stop="Four")
    message = answer.choices[0].message
    assert message.reasoning_content == message.reasoning == "Two and two."
    assert not message.content and answer.choices[0].finish_reason == "stop"
    assert 5 < answer.usage.completion_tokens_details.reasoning_tokens < answer.usage.completion_tokens
    stream = ask(client, text, stop="Four", stream=True)
    assert joined(stream) == ("Two and two.", "", [], "stop")
    begun = ask(client, text, stop="Four", extra_body={"chat_template_kwargs": {"begin": "<think>\n"}})
    assert begun.choices[0].message.reasoning_content == "Two and two."
    kept = ask(client, text, stop="Four", extra_body={"reasoning_format": "none"})
    assert kept.choices[0].message.content.startswith("<think>")


def test_what_cannot_be_promised_is_refused(client, server):
    for choice in ["required", {"type": "function", "function": {"name": "get_weather"}}]:
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, CALL, tools=TOOLS, tool_choice=choice)
        assert caught.value.body["param"] == "tool_choice"
    answer = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "tools": TOOLS})
    assert answer.status_code == 400 and "--tool-call-parser" in answer.json()["error"]["message"]


# ---- penstock parse -------------------------------------------------------------------------------


def parse(*flags, text=CALL, code=0):
    done = subprocess.run([BINARY, "parse", *flags], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()] if code == 0 else done.stderr


def test_parse():
    [message] = parse("--tool-call-parser", "hermes", "--reasoning-parser", "qwen3",
                      text="<think>a</think>b\n" + CALL)
    assert (message["reasoning"], message["content"]) == ("a", "b")
    [call] = message["tool_calls"]
    assert (call["name"], call["arguments"]) == ("get_weather", '{"city": "Paris"}')
    assert parse(text=CALL)[0]["content"] == CALL
    assert "one of openai, deepseek_v3" in parse("--tool-call-parser", "hermess", code=2)


def test_parse_deltas():
    deltas = [call for line in parse("--tool-call-parser", "hermes", "--deltas") for call in line["tool_calls"]]
    assert deltas[0]["name"] == "get_weather" and all("name" not in delta for delta in deltas[1:])
    assert "".join(delta["arguments"] for delta in deltas) == '{"city": "Paris"}'
    assert len(deltas) > 10
