"""/openapi.json is a valid document, and the server's answers to requests that schemathesis makes from it agree with it.

OPENAPI_EXAMPLES=1000 makes so many random requests to each path, as `make soak` does.
"""
import json
import os
import pathlib
import struct
import subprocess
import sys

import pytest
from openapi_spec_validator import validate

from conftest import ROOT, Server

KEY = "admin"
CONTEXT = 256
FAMILY = "qwen3"
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
# A schema does not state the form of nested objects, so bodies that conform to it may be refused.
EXCLUDED = "positive_data_acceptance"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A server of a small random model with keys."""
    folder = tmp_path_factory.mktemp("tiny")
    data = bytearray((ROOT / f"tests/vectors/families/{FAMILY}.gguf").read_bytes())
    key = f"{FAMILY}.context_length".encode()
    struct.pack_into("<I", data, data.index(key) + len(key) + 4, CONTEXT)
    (folder / "tiny.gguf").write_bytes(data)
    (folder / "chat.jinja").write_text(TEMPLATE)
    server = Server("--chat-template", str(folder / "chat.jinja"), "--kv-cache-memory", "4MiB", "--any-model-name",
                    "--api-key", "user", "--metrics-key", "monitor", "--admin-key", KEY, model=str(folder / "tiny.gguf"))
    try:
        yield server.wait_until_ready()
    finally:
        server.stop()


def run(server, *flags):
    """Runs schemathesis on all paths except /drain, which would end the server."""
    command = [pathlib.Path(sys.executable).parent / "schemathesis", "run", f"{server.url}/openapi.json", "--exclude-path", "/drain",
               "--checks", "all", "--exclude-checks", EXCLUDED, "-H", f"Authorization: Bearer {KEY}", "--no-color", "--seed", "1",
               "--request-timeout", "60", "--continue-on-failure", *flags]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=os.environ.get("TMPDIR", "/tmp"))
    assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-2000:]


def test_the_document_is_valid_and_names_what_a_client_needs(tiny):
    answer = tiny.http.get("/openapi.json")
    document = json.loads(answer.content)
    validate(document)
    assert answer.headers["content-type"] == "application/json" and len(answer.content) < 100_000
    assert document["paths"]["/v1/models"]["get"]["security"] == [{"key": []}]
    assert document["paths"]["/health"]["get"]["security"] == []
    assert document["components"]["schemas"]["v1_chat_completions"]["required"] == ["messages"]


def test_requests_at_the_bounds_of_the_schemas_are_answered_as_stated(tiny):
    run(tiny, "--phases", "examples,coverage")


def test_random_requests_are_answered_as_stated(tiny):
    run(tiny, "--phases", "fuzzing", "--max-examples", os.environ.get("OPENAPI_EXAMPLES", "10"))
    assert tiny.http.get("/health").status_code == 200
