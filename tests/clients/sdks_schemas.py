"""Libraries that make a JSON Schema of a class, each with its own schema of the same classes: what comes back has to fit them.

build/clients/agents/bin/python -m pytest tests/clients/sdks_schemas.py

The test model does not follow instructions, so only the schemas make the answers right. Each text has a maximum length, so that an
answer ends before the limit of its tokens.
"""
import asyncio
import json
from datetime import date
from decimal import Decimal
from typing import Annotated, Literal
from uuid import UUID

import instructor
import openai
import outlines
import pytest
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field, StringConstraints
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from e2e.conftest import NAME
from sdk_contract import tooled  # noqa: F401

QUESTION, N_TOKENS = "Write an order.", 400
MESSAGES = [{"role": "user", "content": QUESTION}]


class Card(BaseModel):
    """A payment by card."""

    kind: Literal["card"]
    number: Annotated[str, StringConstraints(pattern=r"^[0-9]{4}$")]


class Cash(BaseModel):
    """A payment in cash."""

    kind: Literal["cash"]
    amount: Decimal = Field(ge=0, max_digits=5, decimal_places=2)


class Item(BaseModel):
    """A line of the order."""

    name: str = Field(min_length=1, max_length=12)
    n: int = Field(ge=1, le=9)


class Order(BaseModel):
    """Most of what pydantic writes: formats, bounds, a pattern with look-ahead, an optional field, and a choice by a discriminator."""

    id: UUID
    day: date
    items: list[Item] = Field(min_length=1, max_length=2)
    payment: Card | Cash = Field(discriminator="kind")
    size: Literal["small", "large"]
    note: str | None = Field(default=None, max_length=16)


class Plain(BaseModel):
    """What OpenAI's strict schemas may say."""

    day: date
    item: Item
    size: Literal["small", "large"]


def client(server, kind=openai.OpenAI):
    return kind(base_url=server.url + "/v1", api_key="none", max_retries=0)


def checked(text, kind=Order):
    """The text of an answer, read as the class."""
    return kind.model_validate_json(text)


# ---- pydantic's schema as it is ---------------------------------------------------------------------------------


@pytest.mark.parametrize("strict", [None, True])
def test_raw_schemas_of_pydantic(tooled, saw, strict):  # noqa: F811
    schema = {"name": "order", "schema": Order.model_json_schema(), **({} if strict is None else {"strict": strict})}
    answer = client(tooled).chat.completions.create(model=NAME, messages=MESSAGES, max_tokens=N_TOKENS, temperature=0,
                                                    response_format={"type": "json_schema", "json_schema": schema})
    checked(answer.choices[0].message.content)
    saw.works("openai", "schemas of pydantic's classes, as pydantic writes them")


@pytest.mark.parametrize("door", ["chat", "responses"])
def test_openai_parses_classes(tooled, saw, door):  # noqa: F811
    """The package makes its own schema of the class: closed objects, and all properties required."""
    if door == "chat":
        answer = client(tooled).chat.completions.parse(model=NAME, messages=MESSAGES, max_tokens=N_TOKENS, temperature=0, response_format=Order)
        found = answer.choices[0].message.parsed
    else:
        found = client(tooled).responses.parse(model=NAME, input=MESSAGES, max_output_tokens=N_TOKENS, temperature=0, text_format=Order).output_parsed
    assert isinstance(found, Order)
    saw.works("openai", f"classes by `{'chat.completions' if door == 'chat' else 'responses'}.parse`")


# ---- libraries ----------------------------------------------------------------------------------------------------

MODES = [instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS, instructor.Mode.RESPONSES_TOOLS]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_instructor(tooled, saw, mode):  # noqa: F811
    found = instructor.from_openai(client(tooled), mode=mode).create(model=NAME, messages=MESSAGES, response_model=Order, max_tokens=N_TOKENS,
                                                                     temperature=0, max_retries=0)
    assert isinstance(found, Order)
    saw.works("instructor", f"classes with formats, bounds and unions by its mode `{mode.name}`")


@pytest.mark.parametrize("make", [outlines.from_openai, outlines.from_vllm], ids=["from_openai", "from_vllm"])
def test_outlines(tooled, saw, make):  # noqa: F811
    model = make(client(tooled), NAME)
    checked(model(QUESTION, Order, max_tokens=N_TOKENS, temperature=0))
    saw.works("outlines", f"classes of pydantic by `{make.__name__}`")


def test_outlines_types_of_vllm(tooled, saw):  # noqa: F811
    """Its other types are fields of vLLM: choices, regular expressions and grammars."""
    model = outlines.from_vllm(client(tooled), NAME)
    assert model(QUESTION, Literal["red", "green"], max_tokens=8, temperature=0) in ("red", "green")
    assert model(QUESTION, outlines.regex("[0-9]{3}-[a-c]{2}"), max_tokens=16, temperature=0)[3] == "-"
    assert model(QUESTION, outlines.cfg('root ::= "a" ("b" | "c")'), max_tokens=8, temperature=0) in ("ab", "ac")
    assert json.loads("".join(model.stream(QUESTION, Item, max_tokens=64, temperature=0)))["n"] in range(1, 10)
    saw.works("outlines", "choices, regular expressions, grammars and streams")


@pytest.mark.parametrize("output", [NativeOutput, ToolOutput])
@pytest.mark.parametrize("model", [OpenAIChatModel, OpenAIResponsesModel])
def test_pydantic_ai(tooled, saw, model, output):  # noqa: F811
    one = model(NAME, provider=OpenAIProvider(openai_client=client(tooled, openai.AsyncOpenAI)))
    agent = Agent(one, output_type=output(Order), model_settings={"max_tokens": N_TOKENS, "temperature": 0}, retries=0)
    assert isinstance(asyncio.run(agent.run(QUESTION)).output, Order)
    saw.works("pydantic-ai", f"classes by `{output.__name__}` of `{model.__name__}`")


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
@pytest.mark.parametrize("strict", [None, True])
def test_langchain(tooled, saw, method, strict):  # noqa: F811
    chat = ChatOpenAI(model=NAME, base_url=tooled.url + "/v1", api_key="none", max_retries=0, temperature=0, max_tokens=N_TOKENS)
    kind = Plain if strict else Order
    found = chat.with_structured_output(kind, method=method, strict=strict).invoke(QUESTION)
    assert isinstance(found, kind)
    saw.works("langchain-openai", f"classes by `{method}`")
