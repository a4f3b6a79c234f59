"""OpenAI's client works unchanged with the Responses API, and so does a body of Codex."""
import json

import httpx
import openai
import pytest

from conftest import NAME

INPUT = "Name three colours."
MESSAGES = [{"role": "user", "content": INPUT}]
# The model repeats the last message: a tool call that is written there is called.
TEMPLATE = ("{% for message in messages %}{% if message.tool_calls %}{{ message.tool_calls[0].function.name }} {% endif %}"
            "{% if message.role == 'tool' %}{{ message.content }} {% endif %}{% endfor %}"
            "{% if tools %} {% endif %}{% for i in range(6) %}{{ messages[-1].content }}\n{% endfor %}")
# the same after the whole conversation, so that each turn's prompt begins with the turns before it
REPEAT = ("{% if tools %}You are a coding agent. {% endif %}{% for message in messages %}{{ message.role }}: {{ message.content }}"
          "{% if message.tool_calls %}{{ message.tool_calls[0].function.name }}{% endif %}\n{% endfor %}"
          "{% for i in range(6) %}{{ messages[-1].content.split('loop: ')[-1] }}\n{% endfor %}")
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TOOLS = [{"type": "function", "name": "get_weather", "strict": False, "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}]


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120) as one:
        yield one


@pytest.fixture(scope="module")
def caller(tmp_path_factory):
    """A client whose server has keys, a format of calls, and a model that repeats."""
    from conftest import Server
    template = tmp_path_factory.mktemp("template") / "echo.jinja"
    template.write_text(TEMPLATE)
    server = Server("--max-model-len", "1024", "--chat-template", str(template), "--tool-call-parser", "hermes",
                    "--reasoning-parser", "qwen3", "--kv-cache-memory", "128MiB", "--api-key", "secret")
    try:
        server.wait_until_ready()
        with openai.OpenAI(base_url=server.url + "/v1", api_key="secret", max_retries=0, timeout=120) as one:
            yield one
    finally:
        server.stop()


def create(client, said=INPUT, max_output_tokens=16, **fields):
    return client.responses.create(model=NAME, input=said, max_output_tokens=max_output_tokens, temperature=0, **fields)


def stream(client, said=INPUT, max_output_tokens=16, **fields):
    """(events, final response) of the client's helper, which checks the order and the ids of events."""
    with client.responses.stream(model=NAME, input=said, max_output_tokens=max_output_tokens, temperature=0, **fields) as events:
        return list(events), events.get_final_response()


def test_a_response_has_the_text_of_chat(client, server):
    response = create(client)
    same = httpx.post(server.url + "/v1/chat/completions", timeout=120,
                      json={"messages": MESSAGES, "temperature": 0, "max_tokens": 16}).json()
    assert response.output_text == same["choices"][0]["message"]["content"] and response.id.startswith("resp_")
    assert response.status == "incomplete" and response.incomplete_details.reason == "max_output_tokens"
    assert response.usage.input_tokens == same["usage"]["prompt_tokens"] and response.usage.output_tokens == 16
    assert response.usage.total_tokens == response.usage.input_tokens + 16
    assert create(client, [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": INPUT}]}],
                  ).output_text == response.output_text


def test_a_stream_adds_up(client):
    whole = create(client, max_output_tokens=300)
    events, final = stream(client, max_output_tokens=300)
    kinds = [event.type for event in events]
    assert final.output_text == whole.output_text and final.status == whole.status == "completed", final
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert kinds[:4] == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
    assert kinds[-4:] == ["response.output_text.done", "response.content_part.done", "response.output_item.done",
                          "response.completed"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert len({event.item_id for event in events if hasattr(event, "item_id")}) == 1


def test_a_cut_stream_is_incomplete(client):
    events = list(create(client, stream=True, max_output_tokens=4))
    assert events[-1].type == "response.incomplete" and events[-1].response.incomplete_details.reason == "max_output_tokens"
    assert events[-1].response.output[0].content[0].text == create(client, max_output_tokens=4).output_text


def test_a_schema_is_kept(client):
    schema = {"type": "object", "properties": {"age": {"type": "integer", "maximum": 99}}, "required": ["age"],
              "additionalProperties": False}
    response = create(client, max_output_tokens=64,
                      text={"format": {"type": "json_schema", "name": "n", "strict": True, "schema": schema}})
    assert json.loads(response.output_text).keys() == {"age"}


def test_counting_generates_nothing(client, server):
    counted = server.post("/v1/responses/input_tokens", {"model": NAME, "input": INPUT}).json()
    assert counted == {"object": "response.input_tokens", "input_tokens": create(client, max_output_tokens=1).usage.input_tokens}


def test_a_loop_of_calls(caller):
    response = create(caller, CALL, tools=TOOLS, max_output_tokens=60, parallel_tool_calls=False)
    [call] = [item for item in response.output if item.type == "function_call"]
    assert call.name == "get_weather" and json.loads(call.arguments) == {"city": "Paris"} and response.status == "completed"
    events, final = stream(caller, CALL, tools=TOOLS, max_output_tokens=60, parallel_tool_calls=False)
    [again] = [item for item in final.output if item.type == "function_call"]
    assert (again.name, again.arguments) == (call.name, call.arguments)
    history = [{"role": "user", "content": CALL}, *[item.model_dump() for item in response.output],
               {"type": "function_call_output", "call_id": call.call_id, "output": "sunny and warm"}]
    assert "sunny" in create(caller, history, tools=TOOLS).output_text


def test_thoughts_are_an_item(caller):
    response = create(caller, "<think>so it is</think>yes", max_output_tokens=40)
    assert response.output[0].type == "reasoning" and "so it is" in response.output[0].content[0].text
    events = list(create(caller, "<think>so it is</think>yes", max_output_tokens=40, stream=True))
    assert any(event.type == "response.reasoning_text.delta" for event in events)
    assert events[-1].response.output[0].content[0].text == response.output[0].content[0].text
    history = [{"role": "user", "content": "a"}, *[item.model_dump() for item in response.output],
               {"role": "user", "content": "go on"}]
    assert create(caller, history).output_text


def test_errors_name_the_field(client, caller):
    for fields, name in (({"previous_response_id": "resp_1"}, "previous_response_id"), ({"background": True}, "background"),
                         ({"top_logprobs": 3}, "top_logprobs"), ({"truncation": "x"}, "truncation")):
        with pytest.raises(openai.BadRequestError) as caught:
            create(client, **fields)
        assert caught.value.body["param"] == name and name in caught.value.body["message"]
    with pytest.raises(openai.BadRequestError) as caught:
        create(client, [{"role": "user", "content": [{"type": "input_image"}]}])
    assert caught.value.body["param"] == "input[0].content[0]"
    with pytest.raises(openai.BadRequestError) as caught:
        create(client, "word " * 3000)
    assert caught.value.body["code"] == "context_length_exceeded" and caught.value.body["param"] == "input"
    with pytest.raises(openai.AuthenticationError):
        create(caller.with_options(api_key="wrong"))
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_1")


def codex(items):
    """A body of Codex: the whole conversation in each turn, and tools that a server cannot run."""
    return {"model": NAME, "instructions": "You are a coding agent. " * 20, "input": items, "stream": True, "store": False,
            "tools": [*TOOLS, {"type": "web_search"}, {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}}],
            "tool_choice": "auto", "parallel_tool_calls": False, "reasoning": {"effort": "high", "summary": "auto"},
            "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k", "client_metadata": {"a": "b"},
            "max_output_tokens": 60, "temperature": 0, "text": {"verbosity": "low"}}


def events_of(answer):
    assert answer.status_code == 200, answer.text
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]


@pytest.fixture(scope="module")
def repeater(tmp_path_factory):
    """A server whose model repeats the last message after the whole conversation."""
    from conftest import Server
    template = tmp_path_factory.mktemp("repeater") / "repeat.jinja"
    template.write_text(REPEAT)
    server = Server("--max-model-len", "2048", "--chat-template", str(template), "--tool-call-parser", "hermes",
                    "--kv-cache-memory", "128MiB")
    try:
        yield server.wait_until_ready()
    finally:
        server.stop()


def test_codexs_turns_share_their_prefix(repeater):
    """Five turns of calls and outputs: each finds all of the conversation before it in the cache."""
    url = repeater.url + "/v1/responses"
    assert events_of(httpx.post(url, json={**codex([]), "max_output_tokens": 1}, timeout=120))[-1]["type"] == "response.incomplete"
    items = [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
             {"type": "message", "role": "user", "content": [{"type": "input_text", "text": CALL}]}]
    cached = []
    for turn in range(5):
        final = events_of(httpx.post(url, json=codex(items), timeout=120))[-1]["response"]
        [call] = [item for item in final["output"] if item["type"] == "function_call"]
        assert (call["name"], json.loads(call["arguments"])) == ("get_weather", {"city": "Paris"}), final
        cached.append(final["usage"]["input_tokens_details"]["cached_tokens"])
        items += [*final["output"], {"type": "function_call_output", "call_id": call["call_id"],
                                     "output": f"Turn {turn} of the loop: " + CALL}]
    assert cached[1] >= 80 and all(a < b for a, b in zip(cached[1:], cached[2:])), cached
