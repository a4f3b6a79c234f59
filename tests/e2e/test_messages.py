"""Anthropic's client works unchanged, and so does a body of Claude Code."""
import json
import signal

import anthropic
import httpx
import pytest

from conftest import NAME
from streams import ENDLESS, until

MESSAGES = [{"role": "user", "content": "Name three colours."}]
# The model repeats the last message: a tool call that is written there is called.
TEMPLATE = ("{% for message in messages %}{% if message.tool_calls %}{{ message.tool_calls[0].function.name }} {% endif %}"
            "{% if message.role == 'tool' %}{{ message.content }} {% endif %}{% endfor %}"
            "{% if tools %} {% endif %}{% for i in range(6) %}{{ messages[-1].content }}\n{% endfor %}")
# the same after the whole conversation, so that each turn's prompt begins with the turns before it
REPEAT = ("{% if tools %}You are a coding agent. {% endif %}{% for message in messages %}{{ message.role }}: {{ message.content }}"
          "{% if message.tool_calls %}{{ message.tool_calls[0].function.name }}{% endif %}\n{% endfor %}"
          "{% for i in range(6) %}{{ messages[-1].content.split('loop: ')[-1] }}\n{% endfor %}")
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TOOLS = [{"name": "get_weather", "description": "d", "input_schema": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}]


@pytest.fixture(scope="module")
def client(server):
    with anthropic.Anthropic(base_url=server.url, auth_token="none", max_retries=0, timeout=120) as one:
        yield one


@pytest.fixture(scope="module")
def caller(tmp_path_factory):
    """A client whose server has keys, a format of calls, and a model that repeats."""
    from conftest import Server
    template = tmp_path_factory.mktemp("template") / "echo.jinja"
    template.write_text(TEMPLATE)
    server = Server("--max-model-len", "1024", "--chat-template", str(template), "--tool-call-parser", "hermes",
                    "--reasoning-parser", "qwen3", "--kv-cache-memory", "128MiB", "--api-key", "secret", "--any-model-name")
    try:
        server.wait_until_ready()
        with anthropic.Anthropic(base_url=server.url, api_key="secret", max_retries=0, timeout=120) as one:
            yield one
    finally:
        server.stop()


GREEDY = {"temperature": 0}  # the client has no argument for it


@pytest.fixture(scope="module")
def repeater(tmp_path_factory):
    """A server whose model repeats the last message after the whole conversation."""
    from conftest import Server
    template = tmp_path_factory.mktemp("repeater") / "repeat.jinja"
    template.write_text(REPEAT)
    server = Server("--any-model-name", "--max-model-len", "2048", "--chat-template", str(template), "--tool-call-parser", "hermes",
                    "--kv-cache-memory", "128MiB")
    try:
        yield server.wait_until_ready()
    finally:
        server.stop()


def create(client, messages=MESSAGES, max_tokens=16, **fields):
    return client.messages.create(model=NAME, messages=messages, max_tokens=max_tokens, extra_body=GREEDY, **fields)


def test_models_are_a_page_of_anthropics(client):
    page = client.models.list(limit=1)
    assert [model.id for model in page] == [page.first_id] == [page.last_id] == [NAME] and page.has_more is False
    model = client.models.retrieve(NAME)
    assert model == page.data[0] and model.type == "model" and model.display_name == NAME and model.created_at.year > 2000
    assert model.max_input_tokens == model.max_model_len >= model.meta["n_ctx"]
    assert model.meta["n_vocab"] == 49152 and model.meta["n_embd"] == 576
    assert model.meta["size"] > model.meta["n_params"] / 2 > 5e7


def test_a_message_has_the_text_of_openais_path(client, server):
    message = create(client)
    same = httpx.post(server.url + "/v1/chat/completions", timeout=120,
                      json={"messages": MESSAGES, "temperature": 0, "max_tokens": 16}).json()
    assert message.content[0].text == same["choices"][0]["message"]["content"]
    assert message.stop_reason == "max_tokens" and message.id.startswith("msg_") and message.role == "assistant"
    used = message.usage
    assert used.input_tokens + used.cache_read_input_tokens == same["usage"]["prompt_tokens"] and used.output_tokens == 16


def test_a_stream_adds_up(client):
    whole = create(client)
    with client.messages.stream(model=NAME, messages=MESSAGES, max_tokens=16, extra_body=GREEDY) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert final.content[0].text == whole.content[0].text and final.stop_reason == "max_tokens"
    assert final.usage.output_tokens == 16
    assert kinds[0] == "message_start" and kinds[1] == "content_block_start" and kinds[-1] == "message_stop"


def test_counting_generates_nothing(client):
    counted = client.messages.count_tokens(model=NAME, messages=MESSAGES, system="Be brief.")
    used = create(client, system="Be brief.", max_tokens=1).usage
    assert counted.input_tokens == used.input_tokens + used.cache_read_input_tokens > 10


def test_a_stop_sequence_is_named(client):
    text = create(client).content[0].text
    word = text.split()[1]
    message = create(client, stop_sequences=[word])
    assert message.stop_reason == "stop_sequence" and message.stop_sequence == word
    assert message.content[0].text == text[:text.index(word)]


def test_a_schema_is_kept(client):
    schema = {"type": "object", "properties": {"age": {"type": "integer", "maximum": 99}}, "required": ["age"],
              "additionalProperties": False}
    message = create(client, max_tokens=64, output_config={"format": {"type": "json_schema", "schema": schema}})
    assert json.loads(message.content[0].text).keys() == {"age"}


def test_errors_have_anthropics_form(client, server, caller):
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.messages.create(model="another", messages=MESSAGES, max_tokens=4)
    assert caught.value.body["error"]["type"] == "not_found_error"
    assert caught.value.response.headers["request-id"] == caught.value.body["request_id"]
    with pytest.raises(anthropic.BadRequestError) as caught:
        create(client, [{"role": "user", "content": [{"type": "image", "source": {}}]}])
    assert "messages[0].content[0]" in caught.value.body["error"]["message"]
    with pytest.raises(anthropic.AuthenticationError) as caught:
        caller.with_options(api_key="wrong").messages.create(model=NAME, messages=MESSAGES, max_tokens=4)
    assert caught.value.body["error"]["type"] == "authentication_error"
    answer = server.http.get("/v1/messages")
    assert answer.status_code == 405 and answer.json()["type"] == "error"


def test_a_loop_of_calls(caller):
    first = create(caller, [{"role": "user", "content": CALL}], tools=TOOLS, max_tokens=60,
                   tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert first.stop_reason == "tool_use"
    [call] = [block for block in first.content if block.type == "tool_use"]
    assert call.name == "get_weather" and call.input == {"city": "Paris"}
    with caller.messages.stream(model=NAME, messages=[{"role": "user", "content": CALL}], tools=TOOLS, max_tokens=60,
                                extra_body=GREEDY, tool_choice={"type": "auto", "disable_parallel_tool_use": True}) as stream:
        final = stream.get_final_message()
    assert [(block.name, block.input) for block in final.content if block.type == "tool_use"] == [(call.name, call.input)]
    history = [{"role": "user", "content": CALL}, {"role": "assistant", "content": first.content},
               {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny and warm"}]}]
    assert "sunny" in create(caller, history, tools=TOOLS).content[0].text


def test_thoughts_are_blocks(caller):
    message = create(caller, [{"role": "user", "content": "<think>so it is</think>yes"}], max_tokens=40)
    thought = message.content[0]
    assert thought.type == "thinking" and "so it is" in thought.thinking and thought.signature
    again = create(caller, [{"role": "user", "content": "a"}, {"role": "assistant", "content": message.content},
                            {"role": "user", "content": "go on"}])
    assert again.content[0].text


def claude_code(turn, messages):
    """A body of Claude Code: its first block of the system prompt differs in each request."""
    return {"model": "claude-sonnet", "max_tokens": 60, "stream": True, "temperature": 0, "messages": messages,
            "system": [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2; cch={turn};"},
                       {"type": "text", "text": "You are a coding agent. " * 20, "cache_control": {"type": "ephemeral"}}],
            "tools": [*TOOLS, {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}],
            "metadata": {"user_id": "u"}, "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"},
            "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}, "context_management": {"edits": []}}


def events_of(answer):
    assert answer.status_code == 200, answer.text
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]


def test_claude_codes_turns_share_their_prefix(repeater):
    """Five turns of calls and results: each finds all of the conversation before it in the cache."""
    messages, cached = [{"role": "user", "content": [{"type": "text", "text": CALL, "cache_control": {"type": "ephemeral"}}]}], []
    for turn in range(5):
        answer = httpx.post(repeater.url + "/v1/messages?beta=true", json=claude_code(turn, messages), timeout=120,
                            headers={"anthropic-version": "2026-10-21", "anthropic-beta": "a,b"})
        events = events_of(answer)
        assert events[-1]["type"] == "message_stop" and events[-2]["delta"]["stop_reason"] == "tool_use", answer.text
        [call] = [event["content_block"] for event in events if event["type"] == "content_block_start"
                  and event["content_block"]["type"] == "tool_use"]
        arguments = "".join(event["delta"].get("partial_json", "") for event in events if event["type"] == "content_block_delta")
        assert (call["name"], json.loads(arguments)) == ("get_weather", {"city": "Paris"})
        cached.append(events[-2]["usage"]["cache_read_input_tokens"])
        messages += [{"role": "assistant", "content": [{**call, "input": json.loads(arguments)}]},
                     {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"],
                                                   "content": f"Turn {turn} of the loop: " + CALL}]}]
    assert cached[0] == 0 and cached[1] >= 80 and all(a < b for a, b in zip(cached[1:], cached[2:])), cached


def begin_stream(server):
    """A stream of a server with ENDLESS."""
    body = {"model": NAME, "messages": [{"role": "user", "content": "Tell a very long story."}], "max_tokens": 7000, "stream": True,
            "ignore_eos": True}
    return httpx.stream("POST", server.url + "/v1/messages", json=body, timeout=120)


def test_a_failing_stream_ends_with_an_error_event(start):
    server = start(*ENDLESS)
    with begin_stream(server) as response:
        parts = response.iter_text()
        said = next(parts)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: "draining" in server.log_tail())
        server.process.send_signal(signal.SIGTERM)  # the second one does not wait for streams
        said += "".join(parts)
    [name, data] = said.strip().split("\n\n")[-1].splitlines()
    error = json.loads(data.removeprefix("data: "))
    assert name == "event: error" and error["type"] == "error", said
    assert error["error"]["type"] in ("overloaded_error", "api_error") and error["error"]["message"] and "message_stop" not in said


def test_a_cancelled_stream_frees_the_server(start):
    server = start(*ENDLESS)
    with begin_stream(server) as response:
        assert next(response.iter_text()).startswith("event: message_start\n")
    server.wait_until_idle()
    assert server.metric("vllm:generation_tokens_total") < 7000
