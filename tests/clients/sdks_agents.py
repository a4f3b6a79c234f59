"""SDKs of agents, each through every API that it speaks: whole answers, streams, and a wrong key. They have a separate environment:

build/clients/agents/bin/python -m pytest tests/clients/sdks_agents.py
"""
import asyncio
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise it asks the network for prices
os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

import agents  # noqa: E402
import instructor  # noqa: E402
import litellm  # noqa: E402
import openai  # noqa: E402
import pytest  # noqa: E402
from langchain_anthropic import ChatAnthropic  # noqa: E402
from langchain_ollama import ChatOllama  # noqa: E402
from langchain_openai import ChatOpenAI  # noqa: E402
from pydantic import BaseModel  # noqa: E402
from pydantic_ai import Agent  # noqa: E402
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel  # noqa: E402
from pydantic_ai.providers.openai import OpenAIProvider  # noqa: E402

from e2e.conftest import NAME, Server  # noqa: E402

litellm.suppress_debug_info = True
litellm.telemetry = False
QUESTION, N_TOKENS, KEY = "Name three colours.", 16, "right"
DOORS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages", "ollama": "/api/chat"}


@pytest.fixture(scope="module")
def keyed():
    one = Server("--max-model-len", "1024", "--kv-cache-memory", "128MiB", "--api-key", KEY)
    one.http.headers["authorization"] = f"Bearer {KEY}"
    try:
        yield one.wait_until_ready()
    finally:
        one.stop()


class Agents:
    name, doors = "openai-agents", ["chat", "responses"]

    def agent(self, url, key, door):
        client = openai.AsyncOpenAI(base_url=url + "/v1", api_key=key, max_retries=0)
        kind = agents.OpenAIResponsesModel if door == "responses" else agents.OpenAIChatCompletionsModel
        # an answer that max_output_tokens ends is an error of this SDK
        settings = agents.ModelSettings(temperature=0, max_tokens=None if door == "responses" else N_TOKENS)
        return agents.Agent(name="a", model=kind(NAME, client), model_settings=settings)

    def whole(self, *place):
        return asyncio.run(agents.Runner.run(self.agent(*place), QUESTION)).final_output

    def stream(self, *place):
        async def read():
            run = agents.Runner.run_streamed(self.agent(*place), QUESTION)
            return [event.data.delta async for event in run.stream_events()
                    if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"]
        return asyncio.run(read())


class PydanticAi:
    name, doors = "pydantic-ai", ["chat", "responses"]

    def agent(self, url, key, door):
        kind = OpenAIResponsesModel if door == "responses" else OpenAIChatModel
        model = kind(NAME, provider=OpenAIProvider(base_url=url + "/v1", api_key=key))
        return Agent(model, model_settings={"max_tokens": N_TOKENS, "temperature": 0})

    def whole(self, *place):
        return asyncio.run(self.agent(*place).run(QUESTION)).output

    def stream(self, *place):
        async def read():
            async with self.agent(*place).run_stream(QUESTION) as run:
                return [piece async for piece in run.stream_text(delta=True, debounce_by=None)]
        return asyncio.run(read())


class Langchain:
    """Its packages for OpenAI's, Anthropic's and Ollama's servers."""

    def __init__(self, name, doors, make):
        self.name, self.doors, self.make = name, doors, make

    def whole(self, *place):
        return self.make(*place).invoke(QUESTION).text

    def stream(self, *place):
        return [chunk.text for chunk in self.make(*place).stream(QUESTION)]


def langchain_openai(url, key, door):
    return ChatOpenAI(model=NAME, base_url=url + "/v1", api_key=key, max_retries=0, temperature=0, max_tokens=N_TOKENS,
                      use_responses_api=door == "responses")


def langchain_anthropic(url, key, _):
    return ChatAnthropic(model=NAME, base_url=url, api_key=key, max_retries=0, temperature=0, max_tokens=N_TOKENS)


def langchain_ollama(url, key, _):
    return ChatOllama(model=NAME, base_url=url, temperature=0, num_predict=N_TOKENS,
                      client_kwargs={"headers": {"Authorization": f"Bearer {key}"}})


class Litellm:
    name, doors = "litellm", ["chat", "messages", "ollama"]

    def ask(self, url, key, door, **fields):
        prefix = {"chat": "openai", "messages": "anthropic", "ollama": "ollama_chat"}[door]
        base = {"chat": url + "/v1", "messages": url, "ollama": url}[door]
        return litellm.completion(model=f"{prefix}/{NAME}", api_base=base, api_key=key, max_tokens=N_TOKENS, temperature=0,
                                  max_retries=0, messages=[{"role": "user", "content": QUESTION}], **fields)

    def whole(self, *place):
        return self.ask(*place).choices[0].message.content

    def stream(self, *place):
        return [chunk.choices[0].delta.content or "" for chunk in self.ask(*place, stream=True)]


SDKS = [Agents(), PydanticAi(), Langchain("langchain-openai", ["chat", "responses"], langchain_openai),
        Langchain("langchain-anthropic", ["messages"], langchain_anthropic),
        Langchain("langchain-ollama", ["ollama"], langchain_ollama), Litellm()]
CASES = [pytest.param(sdk, door, id=f"{sdk.name}-{door}") for sdk in SDKS for door in sdk.doors]


@pytest.mark.parametrize("sdk, door", CASES)
def test_each_door(sdk, door, keyed, saw):
    place = keyed.url, KEY, door
    right = keyed.chat(QUESTION, max_tokens=N_TOKENS)["choices"][0]["message"]["content"]
    whole = sdk.whole(*place)
    assert whole.startswith(right.rstrip()[:20]) and whole.strip()
    pieces = [piece for piece in sdk.stream(*place) if piece]
    assert "".join(pieces) == whole and len(pieces) > 3
    with pytest.raises(Exception) as caught:
        sdk.whole(keyed.url, "wrong", door)
    assert "API key is needed" in str(caught.value)
    saw.works(sdk.name, f"whole answers, streams and wrong keys through `{DOORS[door]}`")


class Colour(BaseModel):
    """The contents of a structured answer."""

    name: str


def test_instructor(keyed, saw):
    client = instructor.from_openai(openai.OpenAI(base_url=keyed.url + "/v1", api_key=KEY, max_retries=0), mode=instructor.Mode.JSON_SCHEMA)
    fields = {"model": NAME, "response_model": Colour, "max_tokens": 64, "temperature": 0, "max_retries": 0,
              "messages": [{"role": "user", "content": "Name a colour."}]}
    assert isinstance(client.chat.completions.create(**fields).name, str)
    assert [part.name for part in client.chat.completions.create_partial(**fields)][-1]
    saw.works("instructor", "models of streams (`create_partial`)")
