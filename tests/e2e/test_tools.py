"""Calls of tools and thoughts over HTTP, with OpenAI's client, and `penstock parse`.

The default model does not call tools. A template that repeats the last message several times makes it repeat that text,
so the answer is known.
"""
import json
import re
import subprocess

import openai
import pytest

from conftest import BINARY, MODEL, NAME

TEMPLATE = ("{% if tools %}{% set times = 6 %}{% else %}{% set times = 4 %}{% endif %}"
            "{% for i in range(times) %}{{ messages[-1].content }}\n{% endfor %}{{ reasoning_effort }}{{ begin }}")
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
    """Adds a stream up: (reasoning, content, calls, finish_reason). Deltas only append."""
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


def test_without_tools_calls_are_content(client):
    for fields in [{}, {"tools": TOOLS, "tool_choice": "none"}]:
        answer = ask(client, CALL, **fields).choices[0]
        assert answer.message.tool_calls is None and "<tool_call>" in answer.message.content
        assert answer.finish_reason in ("stop", "length")


def test_only_tools_of_the_request_are_called(client):
    other = [{"type": "function", "function": {"name": "another"}}]
    [call] = ask(client, CALL, tools=other, parallel_tool_calls=False).choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("another", "{}")


def test_a_tool_loop(client):
    messages = [{"role": "user", "content": CALL}]
    message = ask(client, CALL, tools=TOOLS, parallel_tool_calls=False).choices[0].message
    messages += [message.model_dump(exclude_none=True),
                 {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}]
    with pytest.raises(openai.BadRequestError, match="leaves tool calls out|leaves such messages out"):
        client.chat.completions.create(model=NAME, messages=messages, tools=TOOLS)  # for this template


def test_a_budget_ends_thoughts(client):
    text = "<think>\nOne and two and three and four and five.\n</think>\n\nFour."

    def thoughts(n=4, **fields):
        answer = ask(client, text, extra_body={"thinking_token_budget": n, **fields})
        return getattr(answer.choices[0].message, "reasoning_content", ""), answer

    free, _ = thoughts(-1)
    assert free == "One and two and three and four and five."
    for n in (0, 1, 4, 9):
        cut, answer = thoughts(n)
        assert free.startswith(cut) and len(cut) < len(free) and answer.choices[0].message.content
        assert thoughts(n, speculative_tokens=0)[0] == cut
        stream = ask(client, text, stream=True, extra_body={"reasoning_budget": n})
        assert joined(stream)[0] == cut
    said, answer = thoughts(4, reasoning_budget_message=" Enough thought.")
    assert said == thoughts(4)[0] + " Enough thought." and answer.choices[0].message.content
    begun = {"chat_template_kwargs": {"begin": "<think>\n"}}
    begun_free, _ = thoughts(-1, **begun)
    begun_cut, answer = thoughts(3, **begun)
    assert begun_cut and begun_free.startswith(begun_cut) and begun_cut != begun_free
    chosen = ask(client, text, extra_body={"thinking_token_budget": 3, "structured_outputs": {"choice": ["yes", "no"]}})
    assert chosen.choices[0].message.content in ("yes", "no")


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


KEPT_TO = [
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["a", "b"]}}}}, '"b"', r'"[ab]"'),
    ({"response_format": {"type": "json_object"}}, "{}", r"\{(?s:.*)"),
    ({"extra_body": {"guided_choice": ["yes", "no"]}}, "yes", "yes|no"),
    ({"extra_body": {"guided_regex": "[(][0-9][)]"}}, "(7)", "[(][0-9][)]"),
    ({"extra_body": {"guided_grammar": 'root ::= "(" [0-9] ")"'}}, "(7)", "[(][0-9][)]"),
    ({"extra_body": {"structured_outputs": {"structural_tag": {"type": "structural_tag", "format": {
        "type": "tag", "begin": "<a>", "content": {"type": "regex", "pattern": "[0-9]"}, "end": "</a>"}}}}}, "<a>7</a>", "<a>[0-9]</a>"),
]


@pytest.mark.parametrize("fields, text, right", KEPT_TO, ids=[text for _, text, _ in KEPT_TO])
def test_thoughts_come_before_what_is_kept_to(client, fields, text, right):
    answer = ask(client, f"<think>why</think>\n{text}", **fields)
    message = answer.choices[0].message
    assert message.reasoning_content == "why" and re.fullmatch(right, message.content), message
    assert answer.usage.completion_tokens_details.reasoning_tokens == 5 and answer.choices[0].finish_reason == "stop"
    assert joined(ask(client, f"<think>why</think>\n{text}", stream=True, **fields)) == ("why", message.content, [], "stop")
    plain = ask(client, text, **fields).choices[0].message
    assert not getattr(plain, "reasoning_content", None) and re.fullmatch(right, plain.content), plain
    none = {**fields, "extra_body": {**fields.get("extra_body", {}), "reasoning_format": "none"}}
    assert re.fullmatch(right, ask(client, f"<think>why</think>\n{text}", **none).choices[0].message.content)


def test_older_structural_tags_come_behind_thoughts(client):
    tag = {"type": "structural_tag", "structures": [{"begin": "<f>", "schema": {"type": "null"}, "end": "</f>"}], "triggers": ["<f"]}
    message = ask(client, "<think>why</think>\nx <f>nu", response_format=tag, max_tokens=20).choices[0].message
    assert message.reasoning_content == "why" and message.content.startswith("x <f>null</f>")
    with pytest.raises(openai.BadRequestError, match='at "/format/type" is not a served format'):
        ask(client, "x", response_format={"type": "structural_tag", "format": {"type": "magic"}})
    for part in ({"structures": [{}], "triggers": ["<"]}, {"structures": 5, "triggers": ["<"]}, {"triggers": ["<"]}, {}):
        with pytest.raises(openai.BadRequestError, match="structural tag"):
            ask(client, "x", response_format={"type": "structural_tag", **part})


def test_an_empty_text_may_follow_thoughts(client):
    assert not ask(client, "x", extra_body={"guided_choice": [""]}, max_tokens=20).choices[0].message.content


def test_thoughts_are_left_out(client):
    text = "<think>\nTwo and two.\n</think>\n\nFour."
    left = ask(client, text, stop="Four", extra_body={"include_reasoning": False})
    message = left.choices[0].message
    assert not message.content and not hasattr(message, "reasoning") and not hasattr(message, "reasoning_content")
    assert left.usage == ask(client, text, stop="Four").usage
    stream = ask(client, text, stop="Four", stream=True, extra_body={"include_reasoning": False})
    assert joined(stream) == ("", "", [], "stop")
    with pytest.raises(openai.BadRequestError, match="include_reasoning"):
        ask(client, text, extra_body={"include_reasoning": False, "reasoning_format": "none"})


def test_an_effort_reaches_the_template(client):
    answer = ask(client, "Hello.", reasoning_effort="high", extra_body={"return_token_ids": True})
    plain = ask(client, "Hello.", extra_body={"return_token_ids": True})
    assert len(answer.prompt_token_ids) > len(plain.prompt_token_ids)


# ---- required calls -------------------------------------------------------------------------------

BOOK = {"type": "function", "function": {"name": "book", "parameters": {
    "type": "object", "required": ["nights", "city", "room"], "additionalProperties": False, "properties": {
        "nights": {"type": "integer", "minimum": 1, "maximum": 9}, "city": {"type": "string", "maxLength": 12},
        "room": {"enum": ["single", "double"]}, "breakfast": {"type": "boolean"}}}}}


def check_book(call):
    arguments = json.loads(call[2])
    assert call[1] == "book" and set(arguments) <= {"nights", "city", "room", "breakfast"}
    assert 1 <= arguments["nights"] <= 9 and len(arguments["city"]) <= 12 and arguments["room"] in ("single", "double")


def test_required_calls_come(client):
    for n in (1, 3):
        fields = {"tools": [BOOK], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 120, "n": n}
        answer = ask(client, "Tell me a story.", **fields)
        assert len(answer.choices) == n
        for choice in answer.choices:
            assert choice.finish_reason == "tool_calls" and choice.message.content is None
            [call] = choice.message.tool_calls
            check_book((call.id, call.function.name, call.function.arguments))


def test_a_named_tool_is_called(client):
    named = {"type": "function", "function": {"name": "book"}}
    fields = {"tools": TOOLS + [BOOK], "tool_choice": named, "max_tokens": 120, "extra_body": {"request_id": "n"}}
    choice = ask(client, CALL, **fields).choices[0]
    [call] = choice.message.tool_calls
    check_book((call.id, call.function.name, call.function.arguments))
    assert choice.finish_reason == "stop"  # like OpenAI's for a named tool
    assert joined(ask(client, CALL, stream=True, **fields)) == (
        "", "", [(call.id, "book", call.function.arguments)], "stop")


def test_only_allowed_tools_are_called(client):
    """The model sees both tools, and may call only one of them; whether it must is set by the mode."""
    def allowed(mode):
        return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [
            {"type": "function", "function": {"name": "book"}}]}}

    fields = {"tools": TOOLS + [BOOK], "max_tokens": 120, "parallel_tool_calls": False}
    choice = ask(client, "Tell me a story.", tool_choice=allowed("required"), **fields).choices[0]
    [call] = choice.message.tool_calls
    check_book((call.id, call.function.name, call.function.arguments))
    assert choice.finish_reason == "tool_calls"
    for call in ask(client, CALL, tool_choice=allowed("auto"), **fields).choices[0].message.tool_calls or []:
        assert call.function.name == "book"
    story = ask(client, "Tell me a story.", tool_choice=allowed("auto"), **fields).choices[0].message
    assert story.content and not story.tool_calls


def test_a_stream_gives_the_name_first(client):
    fields = {"tools": [BOOK], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 120}
    deltas = [call for chunk in ask(client, "Hello.", stream=True, **fields) for choice in chunk.choices
              for call in choice.delta.tool_calls or []]
    assert deltas[0].id and deltas[0].function.name == "book" and len(deltas) > 5
    assert all(delta.id is None and delta.function.name is None for delta in deltas[1:])
    check_book(("", "book", "".join(delta.function.arguments for delta in deltas)))


def test_content_keeps_to_its_schema_beside_tools(client):
    fields = {"tools": TOOLS, "max_tokens": 40, "response_format": {
        "type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": ["yes", "no"]}}}}
    assert json.loads(ask(client, "Is it so?", **fields).choices[0].message.content) in ("yes", "no")
    assert ask(client, CALL, **fields, parallel_tool_calls=False).choices[0].message.tool_calls


def test_what_cannot_be_promised_is_refused(client, server):
    def refused(tools, **fields):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, "x", tools=tools, **fields)
        return caught.value.body["param"], caught.value.body["message"]

    def tool(parameters):
        return [{"type": "function", "function": {"name": "odd", "parameters": parameters, "strict": True}}]

    for choice in ("auto", "required"):
        param, message = refused(tool({"type": "object", "properties": {"a": {"uniqueItems": True}}}), tool_choice=choice)
        assert param == "tools" and 'The tool "odd"' in message and '"/properties/a/uniqueItems"' in message
    assert refused(tool([]))[0] == refused(tool({"type": "array"}))[0] == "tools[0].function.parameters"
    assert "not in 'tools'" in refused(TOOLS, tool_choice={"type": "function", "function": {"name": "f"}})[1]
    assert "use_beam_search" in refused(TOOLS, extra_body={"use_beam_search": True, "best_of": 2})[1]
    answer = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "tools": TOOLS})
    assert answer.status_code == 400 and "--tool-call-parser" in answer.json()["error"]["message"]


FAMILIES = ["openai", "kimi_k2", "deepseek_v3", "deepseek_v31", "mistral_v11", "mistral", "seed_oss", "qwen3_coder", "glm45", "olmo3", "phi4_mini_json",
            "granite", "granite-20b-fc", "jamba", "minimax", "functionary_v31", "firefunction_v2", "pythonic", "llama3_json",
            "gemma4", "deepseek_v32", "minimax_m2", "lfm2", "nemotron_json", "apertus", "cohere2",
            "functiongemma", "step3", "solar_open2", "dots", "hy_v3", "hy_v4", "xlam", "inkling", "muse_glimmer", "cohere_command4"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_calls(family, tmp_path):
    """A batch: for each family's form an answer that must call, drawn at a temperature, and one that may."""
    template, lines, answers = tmp_path / "t.jinja", tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    template.write_text("{% for m in messages %}{{ m.content }}\n{% endfor %}")
    body = {"model": NAME, "messages": [{"role": "user", "content": "Book a room in Paris."}], "tools": [BOOK],
            "max_tokens": 300, "parallel_tool_calls": False, "temperature": 0.8, "seed": 1}
    bodies = [{**body, "tool_choice": "required", "seed": seed} for seed in range(2)]
    bodies.append({**body, "tool_choice": "auto", "max_tokens": 40})
    lines.write_text("".join(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions", "body": one})
                             + "\n" for i, one in enumerate(bodies)))
    flags = ["--served-model-name", NAME, "--chat-template", str(template), "--tool-call-parser", family,
             "--reasoning-parser", "none", "--max-model-len", "512", "--kv-cache-memory", "128MiB"]
    done = subprocess.run([BINARY, "batch", "--model", MODEL, *flags, "-i", str(lines), "-o", str(answers)],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    results = {line["custom_id"]: line["response"] for line in map(json.loads, answers.read_text().splitlines())}
    assert len(results) == len(bodies)
    for i, one in enumerate(bodies):
        assert results[str(i)]["status_code"] == 200, results[str(i)]
        [choice] = results[str(i)]["body"]["choices"]
        if one["tool_choice"] == "required" and choice["finish_reason"] == "length":
            # they may reason first; gpt-oss may write text before it calls, too, or white space in the arguments
            assert family in ("openai", "inkling", "muse_glimmer")
        elif one["tool_choice"] == "required":
            assert choice["finish_reason"] == "tool_calls" and not choice["message"].get("content")
            [call] = choice["message"]["tool_calls"]
            if family == "kimi_k2":
                assert re.fullmatch(r"functions\.book:[0-9]{1,4}", call["id"])
            else:
                assert len(call["id"]) == (9 if family.startswith("mistral") else 29)
            check_book((call["id"], call["function"]["name"], call["function"]["arguments"]))


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
    assert "one of openai, kimi_k2, kimi_k3, gemma4" in parse("--tool-call-parser", "hermess", code=2)


def test_parse_deltas():
    deltas = [call for line in parse("--tool-call-parser", "hermes", "--deltas") for call in line["tool_calls"]]
    assert deltas[0]["name"] == "get_weather" and all("name" not in delta for delta in deltas[1:])
    assert "".join(delta["arguments"] for delta in deltas) == '{"city": "Paris"}'
    assert len(deltas) > 10
