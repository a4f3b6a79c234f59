"""The tools of several MCP servers in one request. The template lists their names only, so that the prompt fits the model's context."""
import json

import jsonschema
import pytest

from conftest import Server
from mcp_tools import COUNTS, SHAPES, differing, mcp_tools

TEMPLATE = ("{% for tool in tools or [] %}{{ tool.function.name }} {% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
            "{{ m.content or '' }}{% for c in m.tool_calls or [] %}<tool_call>\n{{ {'name': c.function.name, 'arguments': "
            "c.function.arguments} | tojson }}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n")
GRAMMAR_BYTES = 64 << 20  # of the requests that this file has sent: about half


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    path = tmp_path_factory.mktemp("template") / "names.jinja"
    path.write_text(TEMPLATE, encoding="utf-8")
    server = Server("--max-model-len", "4096", "--kv-cache-memory", "192MiB", "--chat-template", str(path))
    yield server.wait_until_ready()
    server.stop()


def ask(server, tools, **fields):
    answer = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Go."}], "tools": tools, "temperature": 0, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


@pytest.mark.parametrize("tools", [mcp_tools(), differing(mcp_tools())], ids=["same names", "other names"])
def test_two_hundred_tools_are_served_together(agent, tools):
    assert len({tool["function"]["name"] for tool in tools}) == COUNTS
    for choice in ("auto", "required"):
        ask(agent, tools, tool_choice=choice, max_tokens=4)
    assert agent.metrics()["penstock_grammar_bytes{state=\"live\"}"] < GRAMMAR_BYTES


def test_a_call_of_one_of_many_follows_its_schema(agent):
    tools = mcp_tools()
    for tool in (tools[0], tools[-1]):
        name = tool["function"]["name"]
        choice = ask(agent, tools, tool_choice={"type": "function", "function": {"name": name}}, max_tokens=100)
        for call in choice["message"].get("tool_calls", []):
            assert call["function"]["name"] == name
            if choice["finish_reason"] != "length":
                jsonschema.validate(json.loads(call["function"]["arguments"]), tool["function"]["parameters"])


def test_each_form_is_served_alone(agent):
    for name, schema in SHAPES.items():
        tool = {"type": "function", "function": {"name": name, "parameters": schema}}
        ask(agent, [tool], tool_choice="required", max_tokens=2)
