"""The examples of README.md and docs/ are answered as they are written, but for the port."""
import contextlib
import io
import json
import math
import re
import subprocess

import pytest

from conftest import ROOT, Server

ADDRESS = "http://127.0.0.1:8080"


@pytest.fixture(scope="module")
def any_name():
    """A server that has its model's own name, as after `make run`."""
    server = Server(served=None).wait_until_ready()
    yield server
    server.stop()


def blocks(page):
    """The indented blocks of a page, each between empty lines."""
    found = re.findall(r"(?:^    .*\n)+", (ROOT / page).read_text(), re.MULTILINE)
    return ["\n".join(line[4:] for line in block.splitlines()) for block in found]


def commands():
    """(page, command) of each request with a body that a page shows; a stream without one may have no end."""
    pages = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
    return [(page, block) for page in pages for block in blocks(page) if block.startswith("curl ") and f"{ADDRESS}/" in block and " -d " in block]


def run(server, command):
    """The output. Some answers have no limit of tokens, which takes minutes on a slow machine."""
    return subprocess.run(["bash", "-c", f"set -e; {command.replace(ADDRESS, server.url)}"], capture_output=True, text=True, check=True,
                          timeout=600).stdout


@pytest.mark.parametrize("page, command", commands())
def test_a_command_is_answered(any_name, page, command):
    answer = run(any_name, command)
    assert answer and '"error":' not in answer, (page, answer)  # a quote in a text has a backslash


def answer_of(server, path):
    """The answer to the only example of a path in README.md."""
    one, = [command for page, command in commands() if page == "README.md" and f"{path} " in command]
    return json.loads(run(server, one))


def test_the_readme_shows_a_decision_an_embedding_and_a_ranking(any_name):
    predicate, choice = answer_of(any_name, "/v1/decisions")["answers"]
    assert 0 < predicate["probability"] < 1 and choice["choice"] in ("billing", "support")
    vectors = [row["embedding"] for row in answer_of(any_name, "/v1/embeddings")["data"]]
    assert len(vectors) == 2 and all(math.isclose(sum(x * x for x in v), 1, abs_tol=1e-6) for v in vectors)
    results = answer_of(any_name, "/v1/rerank")["results"]
    assert sorted(row["index"] for row in results) == [0, 1]
    assert results[0]["relevance_score"] >= results[1]["relevance_score"]


def test_the_example_in_python_prints_an_answer(any_name):
    code, = [block for block in blocks("README.md") if block.startswith("from openai")]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code.replace(ADDRESS, any_name.url), "README.md", "exec"), {})  # pylint: disable=exec-used
    assert printed.getvalue() not in ("", "None\n")  # a random answer may be empty
