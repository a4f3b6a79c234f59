"""The tools of published MCP servers, each alone and 200 together, against the built server.

    git clone https://github.com/github/github-mcp-server
    git clone https://github.com/icip-cas/LiveMCPBench
    .venv/bin/python tests/schemas/published_tools.py github-mcp-server LiveMCPBench/tools/LiveMCPTool [--refused] [--most 698]

Needs build/penstock and the test model. A tool is an object with a name and a schema of its input, anywhere in a file that is JSON
(*.json, and *.snap of servers that keep their tools as snapshots). Each tool is sent as agents send it, without `strict`, and a call of
it is required; then again with `strict`, where a schema that cannot be enforced is refused.
"""
import argparse
import collections
import hashlib
import json
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "e2e")]

from e2e.conftest import Server  # noqa: E402
from e2e.test_mcp import TEMPLATE  # noqa: E402

AT_ONCE = 200
SCHEMA_FIELDS = ("inputSchema", "input_schema", "parameters")


def tools_in(value):
    """Yields (name, schema) of each tool in a JSON value."""
    if isinstance(value, dict):
        schema = next((value[field] for field in SCHEMA_FIELDS if isinstance(value.get(field), dict)), None)
        if isinstance(value.get("name"), str) and schema is not None and schema.get("type", "object") == "object":
            yield value["name"], schema
            return
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from tools_in(inner)


def read_tools(folders):
    """Returns [(name, schema)] without duplicates. A name gets the characters and the length that the API takes, and is used once."""
    found, names = {}, collections.Counter()
    for path in sorted(path for folder in folders for path in folder.rglob("*") if path.suffix in (".json", ".snap")):
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, UnicodeDecodeError):
            continue
        for name, schema in tools_in(value):
            found.setdefault(hashlib.sha256(json.dumps([name, schema]).encode()).hexdigest(), (name, schema))
    tools = []
    for name, schema in found.values():
        plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:56] or "tool"
        names[plain] += 1
        tools.append((plain if names[plain] == 1 else f"{plain}_{names[plain]}", schema))
    return tools


def ask(server, tools, strict):
    """Returns the refusal of a request with these tools, or None."""
    functions = [{"type": "function", "function": {"name": name, "parameters": schema, **({"strict": True} if strict else {})}}
                 for name, schema in tools]
    answer = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Go."}], "tools": functions, "temperature": 0,
                                                  "tool_choice": "required", "max_tokens": 1})
    return None if answer.status_code == 200 else f"{answer.status_code}: {answer.json()['error']['message']}"


def refusals(server, sets, strict, print_them):
    found = 0
    for tools in sets:
        refusal = ask(server, tools, strict)
        found += refusal is not None
        if refusal and print_them:
            print(f"{tools[0][0]}{' and others' if len(tools) > 1 else ''}{', strict' if strict else ''}: {refusal}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=pathlib.Path, nargs="+")
    parser.add_argument("--refused", action="store_true", help="print each refusal")
    parser.add_argument("--most", type=int, help="only so many tools")
    args = parser.parse_args()
    tools = read_tools(args.folders)[:args.most]
    if not tools:
        parser.error("no tools in these folders")
    with tempfile.TemporaryDirectory() as folder:
        template = pathlib.Path(folder, "names.jinja")
        template.write_text(TEMPLATE, encoding="utf-8")
        server = Server("--max-model-len", "8192", "--kv-cache-memory", "256MiB", "--chat-template", str(template))
        try:
            server.wait_until_ready()
            single = [[tool] for tool in tools]
            sets = [tools[at:at + AT_ONCE] for at in range(0, len(tools), AT_ONCE)]
            alone, strict = (refusals(server, single, is_strict, args.refused) for is_strict in (False, True))
            together = refusals(server, sets, False, args.refused)
        finally:
            server.stop()
    print(f"{len(tools)} tools: {len(tools) - alone} served alone, {len(tools) - strict} with strict; "
          f"{len(sets) - together} of {len(sets)} sets of {AT_ONCE} served")
    sys.exit(1 if alone or together else 0)


if __name__ == "__main__":
    main()
