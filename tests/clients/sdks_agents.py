"""SDKs of agents, each through every API that it speaks: whole answers, streams, streams that the client leaves, wrong keys, and
each error. They have a separate environment:

build/clients/agents/bin/python -m pytest tests/clients/sdks_agents.py
"""
import asyncio
import json
import os
from typing import NamedTuple

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise it asks the network for prices
os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

import agents  # noqa: E402
import anthropic  # noqa: E402
import instructor  # noqa: E402
import litellm  # noqa: E402
import ollama  # noqa: E402
import openai  # noqa: E402
import pytest  # noqa: E402
from instructor.core.exceptions import InstructorRetryException  # noqa: E402
from langchain_anthropic import ChatAnthropic  # noqa: E402
from langchain_ollama import ChatOllama  # noqa: E402
from langchain_openai import ChatOpenAI  # noqa: E402
from pydantic import BaseModel  # noqa: E402
from pydantic_ai import Agent  # noqa: E402
from pydantic_ai.models.anthropic import AnthropicModel  # noqa: E402
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel  # noqa: E402
from pydantic_ai.providers.anthropic import AnthropicProvider  # noqa: E402
from pydantic_ai.providers.openai import OpenAIProvider  # noqa: E402

from e2e.conftest import NAME, Server  # noqa: E402
from sdk_contract import tooled  # noqa: E402, F401

litellm.suppress_debug_info = True
litellm.telemetry = False
QUESTION, N_TOKENS, KEY = "Name three colours.", 16, "right"
STORY, LONG = "Write a long story about a ship, its crew and a storm.", 900
DOORS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages", "ollama": "/api/chat",
         "vllm": "/v1/chat/completions"}


class Place(NamedTuple):
    """What a client is told."""

    url: str
    door: str
    key: str = KEY
    model: str = NAME
    n_tokens: int = N_TOKENS
    temperature: float = 0
    question: str = QUESTION

    @property
    def messages(self):
        return [{"role": "user", "content": self.question}]


@pytest.fixture(scope="module")
def keyed():
    one = Server("--max-model-len", "1024", "--kv-cache-memory", "128MiB", "--api-key", KEY)
    one.http.headers["authorization"] = f"Bearer {KEY}"
    try:
        yield one.wait_until_ready()
    finally:
        one.stop()


# ---- the SDKs: `whole` returns a text, `stream` yields at most so many pieces and then leaves -----------------


def taken(pieces, most):
    """The first pieces of a stream, which is then closed."""
    found = [piece for piece, _ in zip((piece for piece in pieces if piece), range(most))]
    getattr(pieces, "close", lambda: None)()
    return found


class Agents:
    name, doors = "openai-agents", ["chat", "responses"]

    def agent(self, place):
        client = openai.AsyncOpenAI(base_url=place.url + "/v1", api_key=place.key, max_retries=0)
        kind = agents.OpenAIResponsesModel if place.door == "responses" else agents.OpenAIChatCompletionsModel
        # an answer that max_output_tokens ends is an error of this SDK
        settings = agents.ModelSettings(temperature=place.temperature, max_tokens=None if place.door == "responses" else place.n_tokens)
        return agents.Agent(name="a", model=kind(place.model, client), model_settings=settings)

    def whole(self, place):
        return asyncio.run(agents.Runner.run(self.agent(place), place.question)).final_output

    def stream(self, place, most):
        async def read():
            run, found = agents.Runner.run_streamed(self.agent(place), place.question), []
            async for event in run.stream_events():
                if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                    found.append(event.data.delta)
                if len(found) == most:
                    run.cancel()
                    break
            return found
        return asyncio.run(read())


class PydanticAi:
    name, doors = "pydantic-ai", ["chat", "responses", "messages"]

    def agent(self, place):
        if place.door == "messages":
            client = anthropic.AsyncAnthropic(base_url=place.url, api_key=place.key, max_retries=0)
            model = AnthropicModel(place.model, provider=AnthropicProvider(anthropic_client=client))
        else:
            client = openai.AsyncOpenAI(base_url=place.url + "/v1", api_key=place.key, max_retries=0)
            kind = OpenAIResponsesModel if place.door == "responses" else OpenAIChatModel
            model = kind(place.model, provider=OpenAIProvider(openai_client=client))
        return Agent(model, model_settings={"max_tokens": place.n_tokens, "temperature": place.temperature})

    def whole(self, place):
        return asyncio.run(self.agent(place).run(place.question)).output

    def stream(self, place, most):
        async def read():
            found = []
            async with self.agent(place).run_stream(place.question) as run:
                async for piece in run.stream_text(delta=True, debounce_by=None):
                    found.append(piece)
                    if len(found) == most:
                        break
            return found
        return asyncio.run(read())


class Langchain:
    """Its packages for OpenAI's, Anthropic's and Ollama's servers."""

    def __init__(self, name, doors, make):
        self.name, self.doors, self.make = name, doors, make

    def whole(self, place):
        return self.make(place).invoke(place.question).text

    def stream(self, place, most):
        return taken((chunk.text for chunk in self.make(place).stream(place.question)), most)


def langchain_openai(place):
    return ChatOpenAI(model=place.model, base_url=place.url + "/v1", api_key=place.key, max_retries=0, temperature=place.temperature,
                      max_tokens=place.n_tokens, use_responses_api=place.door == "responses")


def langchain_anthropic(place):
    return ChatAnthropic(model=place.model, base_url=place.url, api_key=place.key, max_retries=0, temperature=place.temperature,
                         max_tokens=place.n_tokens)


def langchain_ollama(place):
    return ChatOllama(model=place.model, base_url=place.url, temperature=place.temperature, num_predict=place.n_tokens,
                      client_kwargs={"headers": {"Authorization": f"Bearer {place.key}"}})


class Litellm:
    name, doors = "litellm", ["chat", "responses", "messages", "ollama", "vllm"]
    kept = ["responses", "messages"]  # it has no way to close these streams
    prefixes = {"chat": "openai", "responses": "openai", "messages": "anthropic", "ollama": "ollama_chat", "vllm": "hosted_vllm"}

    def fields(self, place):
        base = place.url + "/v1" if place.door in ("chat", "responses", "vllm") else place.url
        return {"model": f"{self.prefixes[place.door]}/{place.model}", "api_base": base, "api_key": place.key,
                "temperature": place.temperature, "max_retries": 0}

    def ask(self, place, **more):
        if place.door == "responses":
            return litellm.responses(**self.fields(place), input=place.question, max_output_tokens=place.n_tokens, **more)
        return litellm.completion(**self.fields(place), messages=place.messages, max_tokens=place.n_tokens, **more)

    def whole(self, place):
        answer = self.ask(place)
        return answer.output[0].content[0].text if place.door == "responses" else answer.choices[0].message.content

    def stream(self, place, most):
        pieces = self.ask(place, stream=True)
        if place.door == "responses":
            texts = (getattr(event, "delta", "") for event in pieces if event.type == "response.output_text.delta")
        else:
            texts = (chunk.choices[0].delta.content for chunk in pieces)
        found = taken(texts, most)
        if hasattr(getattr(pieces, "completion_stream", None), "close"):
            pieces.completion_stream.close()
        return found


class Openai:
    name, doors = "openai", ["chat", "responses"]

    def ask(self, place, stream):
        client = openai.OpenAI(base_url=place.url + "/v1", api_key=place.key, max_retries=0)
        common = {"model": place.model, "temperature": place.temperature, "stream": stream}
        if place.door == "responses":
            return client.responses.create(**common, input=place.question, max_output_tokens=place.n_tokens)
        return client.chat.completions.create(**common, messages=place.messages, max_tokens=place.n_tokens)

    def whole(self, place):
        answer = self.ask(place, False)
        return answer.output_text if place.door == "responses" else answer.choices[0].message.content

    def stream(self, place, most):
        with self.ask(place, True) as events:
            if place.door == "responses":
                return taken((event.delta for event in events if event.type == "response.output_text.delta"), most)
            return taken((chunk.choices[0].delta.content for chunk in events), most)


class Anthropic:
    name, doors = "anthropic", ["messages"]

    def fields(self, place):
        return {"model": place.model, "max_tokens": place.n_tokens, "messages": place.messages, "temperature": place.temperature}

    def client(self, place):
        return anthropic.Anthropic(base_url=place.url, api_key=place.key, max_retries=0)

    def whole(self, place):
        return self.client(place).messages.create(**self.fields(place)).content[0].text

    def stream(self, place, most):
        with self.client(place).messages.stream(**self.fields(place)) as events:
            return taken(events.text_stream, most)


class Ollama:
    """Home Assistant's integration uses its client too."""

    name, doors = "ollama", ["ollama"]

    def ask(self, place, stream):
        client = ollama.Client(host=place.url, headers={"Authorization": f"Bearer {place.key}"})
        return client.chat(place.model, place.messages, stream=stream, keep_alive="-1",
                           options={"temperature": place.temperature, "num_predict": place.n_tokens, "num_ctx": 8192})

    def whole(self, place):
        return self.ask(place, False).message.content

    def stream(self, place, most):
        return taken((part.message.content for part in self.ask(place, True)), most)


SDKS = [Openai(), Anthropic(), Ollama(), Agents(), PydanticAi(), Langchain("langchain-openai", ["chat", "responses"], langchain_openai),
        Langchain("langchain-anthropic", ["messages"], langchain_anthropic),
        Langchain("langchain-ollama", ["ollama"], langchain_ollama), Litellm()]
CASES = [pytest.param(sdk, door, id=f"{sdk.name}-{door}") for sdk in SDKS for door in sdk.doors]


# ---- the tests ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sdk, door", CASES)
def test_each_door(sdk, door, keyed, saw):
    place = Place(keyed.url, door)
    right = keyed.chat(QUESTION, max_tokens=N_TOKENS)["choices"][0]["message"]["content"]
    whole = sdk.whole(place)
    assert whole.startswith(right.rstrip()[:20]) and whole.strip()
    pieces = [piece for piece in sdk.stream(place, 500) if piece]
    assert "".join(pieces) == whole and len(pieces) > 3
    with pytest.raises(Exception) as caught:
        sdk.whole(place._replace(key="wrong"))
    assert "API key is needed" in str(caught.value)
    saw.works(sdk.name, f"whole answers, streams and wrong keys through `{DOORS[door]}`")


def left(keyed):
    """How many answers ended because their client left."""
    return keyed.metrics()[f'vllm:request_success_total{{engine="0",finished_reason="abort",model_name="{NAME}"}}']


@pytest.mark.parametrize("sdk, door", [case for case in CASES if case.values[1] not in getattr(case.values[0], "kept", [])])
def test_leaving_a_stream_cancels(sdk, door, keyed, saw):
    before = left(keyed)
    assert len(sdk.stream(Place(keyed.url, door, question=STORY, n_tokens=LONG), 3)) == 3
    keyed.wait_until_idle()
    assert left(keyed) == before + 1
    saw.works(sdk.name, "a closed stream ends the computation")


ERRORS = [({"temperature": 9}, "temperature"), ({"model": "another"}, "another"), ({"question": "word " * 2000}, "1024 tokens")]


@pytest.mark.parametrize("sdk, door", CASES)
def test_errors_reach_the_user(sdk, door, keyed, saw):
    """The message of each error is in the exception, of a whole answer and of a stream."""
    for fields, words in ERRORS:
        place = Place(keyed.url, door)._replace(**fields)
        for ask in (sdk.whole, lambda place: sdk.stream(place, 3)):
            with pytest.raises(Exception) as caught:
                ask(place)
            assert words in str(caught.value), (fields, caught.value)
    saw.works(sdk.name, "errors name the field")


class Colour(BaseModel):
    """The contents of a structured answer."""

    name: str


def instructor_client(url, mode):
    """Instructor over the SDK that the mode is for, and the method that asks."""
    if mode.name.startswith("ANTHROPIC"):
        return instructor.from_anthropic(anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0), mode=mode)
    return instructor.from_openai(openai.OpenAI(base_url=url + "/v1", api_key=KEY, max_retries=0), mode=mode)


# Its modes JSON and ANTHROPIC_JSON ask for any JSON: whether that follows the schema is up to the model.
MODES = [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA, instructor.Mode.ANTHROPIC_TOOLS, instructor.Mode.RESPONSES_TOOLS]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_instructor(mode, tooled, saw):
    fields = {"model": NAME, "response_model": Colour, "max_tokens": 150, "extra_body": {"temperature": 0}, "max_retries": 0,
              "messages": [{"role": "user", "content": 'Write this object: {"name": "red"}'}]}
    found = instructor_client(tooled.url, mode).create(**fields)
    assert isinstance(found, Colour)
    saw.works("instructor", f"models by its mode `{mode.name}`")


def test_instructor_gets_json(tooled, saw):
    client = instructor_client(tooled.url, instructor.Mode.JSON)
    try:
        text = client.create(model=NAME, response_model=Colour, max_tokens=150, temperature=0, max_retries=0,
                             messages=[{"role": "user", "content": "Name a colour."}]).model_dump_json()
    except InstructorRetryException as error:
        text = error.last_completion.choices[0].message.content
    assert isinstance(json.loads(text), dict)
    saw.works("instructor", "objects by its mode `JSON`")


def test_instructor_streams(keyed, saw):
    client = instructor_client(keyed.url, instructor.Mode.JSON_SCHEMA)
    parts = client.create_partial(model=NAME, response_model=Colour, max_tokens=64, temperature=0, max_retries=0,
                                  messages=[{"role": "user", "content": "Name a colour."}])
    assert [part.name for part in parts][-1]
    saw.works("instructor", "models of streams (`create_partial`)")
