"""OpenAI's client, sync and async, works unchanged."""
import asyncio
import re

import openai
import pytest

from conftest import NAME

STORY = "Once upon a time, there was a"
MESSAGES = [{"role": "user", "content": "Name three colours."}]


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120) as one:
        yield one


def complete(client, prompt=STORY, **fields):
    return client.completions.create(model=NAME, prompt=prompt, **{"temperature": 0, "max_tokens": 16, **fields})


def chat(client, **fields):
    return client.chat.completions.create(
        model=NAME, messages=MESSAGES, **{"temperature": 0, "max_tokens": 16, **fields})


# ---- models ---------------------------------------------------------------------------------------


def test_models(client):
    listed = client.models.list().data
    assert [model.id for model in listed] == [NAME]
    model = client.models.retrieve(NAME)
    assert model.object == "model" and model.max_model_len == 1024 and model.owned_by
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("another")
    assert caught.value.body["type"] == "not_found_error"


# ---- completions ----------------------------------------------------------------------------------


def test_completion(client):
    answer = complete(client)
    choice = answer.choices[0]
    assert answer.id.startswith("cmpl-") and answer.object == "text_completion" and answer.model == NAME
    assert choice.text and choice.finish_reason == "length" and choice.index == 0 and choice.logprobs is None
    assert answer.usage.completion_tokens == 16
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 16
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0
    assert complete(client).choices[0].text == choice.text


def test_completion_stream(client):
    whole = complete(client, max_tokens=32).choices[0].text
    chunks = list(complete(client, max_tokens=32, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole
    assert len(chunks) > 8
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "length"
    assert all(chunk.choices[0].finish_reason is None for chunk in chunks[:-1])


def test_choices_differ_and_come_in_order(client):
    answer = complete(client, n=4, temperature=1, seed=5)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert len({choice.text for choice in answer.choices}) > 1
    assert answer.usage.completion_tokens <= 4 * 16
    streamed = ["", "", "", ""]
    for chunk in complete(client, n=4, temperature=1, seed=5, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].text
    assert streamed == [choice.text for choice in answer.choices]


def test_batch_of_prompts(client):
    prompts = ["One two three", "The sky is"]
    answer = complete(client, prompts, n=2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    alone = [complete(client, prompt).choices[0].text for prompt in prompts]
    assert [choice.text for choice in answer.choices] == [alone[0], alone[0], alone[1], alone[1]]


def test_completion_logprobs(client):
    choice = complete(client, logprobs=3).choices[0]
    found = choice.logprobs
    assert len(found.tokens) == len(found.token_logprobs) == len(found.top_logprobs) == 16
    assert "".join(found.tokens) == choice.text
    assert found.text_offset[0] == 0 or found.text_offset[0] == len(STORY)
    assert all(b - a == len(token) for a, b, token in
               zip(found.text_offset, found.text_offset[1:], found.tokens))
    for token, logprob, top in zip(found.tokens, found.token_logprobs, found.top_logprobs):
        assert logprob <= 0 and 3 <= len(top) <= 4
        assert top[token] == logprob == max(top.values())  # greedy takes the best


def test_echo(client):
    choice = complete(client, echo=True).choices[0]
    assert choice.text == STORY + complete(client).choices[0].text
    scored = complete(client, echo=True, max_tokens=0, logprobs=0)
    choice = scored.choices[0]
    assert choice.text == STORY and scored.usage.completion_tokens == 0
    assert "".join(choice.logprobs.tokens) == STORY and choice.logprobs.text_offset[0] == 0
    assert choice.logprobs.token_logprobs[0] is None
    assert all(logprob < 0 for logprob in choice.logprobs.token_logprobs[1:])


def test_stop(client):
    whole = complete(client, max_tokens=40).choices[0].text
    stop = whole[len(whole) // 2:][:5]
    choice = complete(client, max_tokens=40, stop=[stop, "never seen"]).choices[0]
    assert choice.text == whole[:whole.index(stop)]
    assert choice.finish_reason == "stop" and choice.stop_reason == stop
    chunks = list(complete(client, max_tokens=40, stop=stop, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == choice.text
    kept = complete(client, max_tokens=40, stop=stop, extra_body={"include_stop_str_in_output": True}).choices[0]
    assert kept.text == choice.text + stop


def test_stop_regex(client, server):
    whole = complete(client, max_tokens=40).choices[0].text
    regex = r"[a-z]{5}\W+[a-z]"
    found = re.search(regex, whole)
    assert found
    choice = complete(client, max_tokens=40, extra_body={"stop_regex": [regex, "[0-9]{9}"]}).choices[0]
    assert choice.text == whole[:found.start()]
    assert choice.finish_reason == "stop" and choice.stop_reason == regex
    chunks = list(complete(client, max_tokens=40, stream=True, extra_body={"stop_regex": regex}))
    assert "".join(chunk.choices[0].text for chunk in chunks) == choice.text
    kept = complete(client, max_tokens=40, extra_body={"stop_regex": regex, "include_stop_str_in_output": True}).choices[0]
    assert kept.text == whole[:found.end()]
    said = chat(client, extra_body={"stop_regex": r"[\s,.]"}).choices[0]
    assert said.message.content == re.split(r"[\s,.]", chat(client).choices[0].message.content)[0]
    refused = server.post("/v1/completions", {"prompt": "x", "stop_regex": "a(b"})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "stop_regex"
    assert "a '(' without its ')' at byte 1" in refused.json()["error"]["message"]


def test_seed(client):
    same = [complete(client, temperature=1, seed=-7).choices[0].text for _ in range(2)]
    others = {complete(client, temperature=1, seed=seed).choices[0].text for seed in range(4)}
    assert same[0] == same[1] and len(others) > 1


def test_logit_bias(client, server):
    wanted = server.post("/tokenize", {"prompt": " cat", "add_special_tokens": False}).json()["tokens"]
    assert len(wanted) == 1
    choice = complete(client, max_tokens=3, logit_bias={str(wanted[0]): 100}).choices[0]
    assert choice.text == " cat cat cat"


# ---- chat -----------------------------------------------------------------------------------------


def test_chat(client):
    answer = chat(client)
    choice = answer.choices[0]
    assert answer.id.startswith("chatcmpl-") and answer.object == "chat.completion"
    assert choice.message.role == "assistant" and choice.message.content and choice.message.tool_calls is None
    assert choice.finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_chat_stream_with_usage(client):
    whole = chat(client)
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[0].choices[0].delta.content == ""
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


def test_chat_stream_helper(client):
    """The helper combines the chunks of several choices; each choice must begin with its role."""
    short = {"model": NAME, "messages": MESSAGES, "temperature": 0, "stop": [" "]}
    with client.chat.completions.stream(**short, n=2) as events:
        kinds = [event.type for event in events]
        final = events.get_final_completion()
    whole = client.chat.completions.create(**short).choices[0].message.content
    assert whole and "content.delta" in kinds and kinds.count("content.done") == 2
    assert [(choice.message.role, choice.message.content) for choice in final.choices] == [("assistant", whole)] * 2


def test_tools_without_calls(client):
    """With "none" the answer is text. This model's template does not show calls, so one in the history is refused."""
    tools = [{"type": "function", "function": {"name": "sum", "parameters": {"type": "object", "properties": {}}}}]
    answer = chat(client, tools=tools, tool_choice="none")
    assert answer.choices[0].message.content == chat(client).choices[0].message.content
    for choice in ("auto", "required", {"type": "function", "function": {"name": "sum"}}, openai.omit):
        with pytest.raises(openai.BadRequestError) as caught:
            chat(client, tools=tools, tool_choice=choice)
        assert caught.value.param in ("tools", "tool_choice") and "none" in str(caught.value)
    call = {"id": "1", "type": "function", "function": {"name": "sum", "arguments": "{}"}}
    for message, param in (({"role": "assistant", "tool_calls": [call]}, "messages[1].tool_calls"),
                           ({"role": "user", "content": "x", "refusal": "No."}, "messages[1].refusal")):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model=NAME, messages=[*MESSAGES, message], max_tokens=4)
        assert caught.value.param == param
    result = {"role": "tool", "tool_call_id": "1", "content": "4"}
    for message in (result, {"role": "developer", "content": "Be short."}, {"role": "assistant", "content": None},
                    {"role": "assistant", "content": "x", "refusal": "No."}):
        assert client.chat.completions.create(model=NAME, messages=[*MESSAGES, message], max_tokens=4).choices


def test_unserved_fields_are_named(client, server):
    for fields in ({"web_search_options": {}}, {"modalities": ["text", "audio"]},
                   {"extra_body": {"prompt_logprob_token_ids": [1]}}, {"extra_body": {"lora": [{"id": 0}]}}):
        with pytest.raises(openai.BadRequestError) as caught:
            chat(client, **fields)
        assert caught.value.param == list(fields.get("extra_body", fields))[0]
        assert "is not served" in str(caught.value)
    wishes = {"reasoning_effort": "low", "verbosity": "low"}  # agents cannot leave them out
    for stream in (False, True):
        answer = client.chat.completions.with_raw_response.create(model=NAME, messages=MESSAGES, max_tokens=4, stream=stream, **wishes)
        assert answer.headers["x-penstock-ignored"] == "reasoning_effort, verbosity"
    for path, fields, ignored in (("/v1/chat/completions/render", {"messages": MESSAGES, **wishes}, "reasoning_effort, verbosity"),
                                  ("/v1/responses/input_tokens", {"input": "a", "reasoning": {"effort": "low"}}, "reasoning.effort"),
                                  ("/v1/messages/count_tokens", {"messages": MESSAGES, "thinking": {"type": "adaptive"}}, "thinking")):
        answer = server.post(path, {"model": NAME, **fields})
        assert (answer.status_code, answer.headers["x-penstock-ignored"]) == (200, ignored)
    assert chat(client, store=True, metadata={"a": "b"}, service_tier="auto", prompt_cache_key="k",
                extra_body={"use_beam_search": False, "grammar": "", "cache_prompt": True}).choices


def test_chat_logprobs(client):
    choice = chat(client, logprobs=True, top_logprobs=2).choices[0]
    assert choice.logprobs.content
    for entry in choice.logprobs.content:
        assert entry.logprob <= 0 and len(entry.top_logprobs) == 2
        assert bytes(entry.bytes).decode(errors="replace") == entry.token
        assert entry.top_logprobs[0].token == entry.token  # greedy takes the best
    text = b"".join(bytes(entry.bytes) for entry in choice.logprobs.content)
    assert text.decode().startswith(choice.message.content)
    plain = chat(client, logprobs=True).choices[0].logprobs.content[0]
    assert plain.top_logprobs == []
    streamed = [entry for chunk in chat(client, logprobs=True, top_logprobs=2, stream=True)
                for entry in (chunk.choices[0].logprobs.content if chunk.choices[0].logprobs else [])]
    assert streamed == choice.logprobs.content


def test_chat_content_parts(client):
    parts = [{"role": "user", "content": [{"type": "text", "text": "Name three colours."}]}]
    answer = client.chat.completions.create(model=NAME, messages=parts, temperature=0, max_tokens=16)
    assert answer.choices[0].message.content == chat(client).choices[0].message.content


# ---- errors ---------------------------------------------------------------------------------------


def test_bad_requests(client):
    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, temperature=3)
    assert caught.value.param == "temperature" and caught.value.type == "invalid_request_error"
    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, "word " * 3000)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError):
        chat(client, response_format={"type": "json"})
    with pytest.raises(openai.BadRequestError):
        complete(client, temperature=3, stream=True)


def test_unknown_model(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(model="another", prompt="x")
    assert caught.value.code == "model_not_found"


def test_keys(start):
    server = start("--api-key", "one,two")
    wrong = openai.OpenAI(base_url=server.url + "/v1", api_key="three", max_retries=0)
    with pytest.raises(openai.AuthenticationError) as caught:
        wrong.models.list()
    assert caught.value.body["type"] == "authentication_error"
    for key in ("one", "two"):
        right = openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0)
        assert right.models.list().data


# ---- async ----------------------------------------------------------------------------------------


async def ask_at_once(url, n):
    async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120) as client:
        async def one(i):
            stream = await client.chat.completions.create(
                model=NAME, messages=[{"role": "user", "content": f"Count from {i}."}], temperature=0,
                max_tokens=12, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        return await asyncio.gather(*(one(i) for i in range(n)))


def test_async_streams_at_once(server):
    texts = asyncio.run(ask_at_once(server.url, 8))
    alone = [server.chat(f"Count from {i}.", max_tokens=12)["choices"][0]["message"]["content"] for i in range(8)]
    assert texts == alone
