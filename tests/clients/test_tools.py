"""Calls of tools with OpenAI's client and LangChain. The model is small, so its text is nonsense; the server ensures
that it is a call and matches its schema."""
import json
from typing import Literal

import openai
import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, ConfigDict, Field

from e2e.conftest import NAME
from sdk_contract import tooled  # noqa: F401

class Booking(BaseModel):
    """Books a room."""
    model_config = ConfigDict(extra="forbid")  # otherwise answers that are not calls may have more members
    nights: int = Field(ge=1, le=9)
    room: Literal["single", "double"]
    city: str = Field(max_length=12)


class Weather(BaseModel):
    """Tells the weather."""
    city: Literal["Paris", "Rome"]


TOOLS = [openai.pydantic_function_tool(Booking, name="book"), openai.pydantic_function_tool(Weather, name="weather")]
QUESTION = [{"role": "user", "content": "Book me a room in Rome."}]


@pytest.fixture
def url(tooled):
    return tooled.url + "/v1"


@pytest.fixture
def client(url):
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=120) as one:
        yield one


def body(**fields):
    return {"model": NAME, "messages": QUESTION, "tools": TOOLS, "max_tokens": 150, "temperature": 0, **fields}


# ---- openai ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "book"}}])
def test_parse_gives_the_tools_own_objects(client, choice):
    answer = client.chat.completions.parse(**body(tool_choice=choice, parallel_tool_calls=False)).choices[0]
    [call] = answer.message.tool_calls
    assert isinstance(call.function.parsed_arguments, Booking if call.function.name == "book" else Weather)
    assert answer.finish_reason == ("tool_calls" if choice == "required" else "stop")


def test_the_stream_helper_sees_the_same_call(client):
    fields = body(tool_choice="required", parallel_tool_calls=False)
    whole = client.chat.completions.parse(**fields).choices[0].message.tool_calls[0].function
    with client.chat.completions.stream(**fields) as stream:
        kinds = [event.type for event in stream]
        streamed = stream.get_final_completion().choices[0].message.tool_calls[0].function
    assert (streamed.name, streamed.arguments) == (whole.name, whole.arguments)
    assert kinds.count("tool_calls.function.arguments.delta") > 3 and "tool_calls.function.arguments.done" in kinds


def test_a_loop_of_tools(client):
    messages = list(QUESTION)
    for turn, choice in enumerate(["required", {"type": "function", "function": {"name": "weather"}}, "none"]):
        answer = client.chat.completions.create(**body(messages=messages, tool_choice=choice, max_tokens=100))
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if choice == "none":
            assert message.content is not None and not message.tool_calls
            break
        assert message.tool_calls and (turn == 0 or message.tool_calls[0].function.name == "weather")
        for call in message.tool_calls:
            if answer.choices[0].finish_reason != "length":
                json.loads(call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "done"})
        if answer.choices[0].finish_reason == "length":  # the last of several calls may be cut: its arguments are then not JSON
            messages[-len(message.tool_calls) - 1]["tool_calls"][-1]["function"]["arguments"] = "{}"


# ---- LangChain ------------------------------------------------------------------------------------


def langchain(url):
    return ChatOpenAI(model=NAME, base_url=url, api_key="none", max_retries=0, timeout=120, temperature=0, max_tokens=150)


def test_langchain_gives_structured_output_by_calls(url):
    found = langchain(url).with_structured_output(Booking, method="function_calling").invoke("Book me a room in Rome.")
    assert isinstance(found, Booking)


@pytest.mark.parametrize("choice", ["any", "Weather"])
def test_langchain_binds_tools(url, choice):
    model = langchain(url).bind_tools([Booking, Weather], tool_choice=choice, parallel_tool_calls=False)
    found = model.invoke("Book me a room in Rome.")
    [call] = found.tool_calls
    {"Booking": Booking, "Weather": Weather}[call["name"]](**call["args"])
    assert choice == "any" or call["name"] == choice
    after = langchain(url).invoke([HumanMessage("Book me a room."), found, ToolMessage("done", tool_call_id=call["id"])])
    assert isinstance(after.content, str)


def test_langchain_streams_a_call(url):
    model = langchain(url).bind_tools([Booking], tool_choice="Booking")
    chunks = list(model.stream("Book me a room in Rome."))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    [call] = whole.tool_calls
    Booking(**call["args"])
    assert len(chunks) > 5
