"""The contract of all SDKs that speak OpenAI's API: tests that a class inherits with its SDK.

An SDK is a class whose objects are one client each:

    name                            in docs/compatibility.md
    Sdk(url, key, timeout, retries) seconds; the number of automatic retries
    chat(text, n_tokens, extra)     Answer; extra: fields of the body that the SDK does not know
    stream(text, n_tokens, extra)   yields pieces of text; closing the generator cancels
    chat_async(text, n_tokens)      a coroutine: the text
    tools(text), structured(text)   [(name, arguments as an object)] of calls; an object with a "name"
    embed(text)                     a list of numbers
    too_long                        the exception for a prompt beyond the context
"""
import asyncio
import concurrent.futures
import contextlib
import threading
import time
from typing import NamedTuple

import httpx
import openai
import pytest

from e2e.conftest import NAME, Server

QUESTION, N_TOKENS = "Name three colours.", 16
LONG = 4000  # tokens of an answer that is not read to its end
ENDLESS = {"ignore_eos": True}
COLOUR = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"], "additionalProperties": False}
TOOL = {"name": "paint", "description": "Paints a wall.", "parameters": COLOUR}
KEY = "right"
# The format of Hermes, with tools and their results.
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
            "<tool_call>\n{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}\n</tool_call>"
            "{% endfor %}<|im_end|>\n{% endfor %}{{ tools | tojson if tools }}<|im_start|>assistant\n")


class Answer(NamedTuple):
    text: str
    prompt_tokens: int
    completion_tokens: int


@pytest.fixture(scope="module")
def narrow():
    """A server with a key and with room for one running request and one that waits."""
    one = Server("--max-model-len", "8192", "--kv-cache-memory", "256MiB", "--max-num-seqs", "1", "--max-queued-requests", "1",
                 "--api-key", KEY)
    try:
        yield one.wait_until_ready()
    finally:
        one.stop()


@pytest.fixture(scope="module")
def tooled(tmp_path_factory):
    """A server whose template renders tools, unlike that of the test model."""
    template = tmp_path_factory.mktemp("template") / "hermes.jinja"
    template.write_text(TEMPLATE, encoding="utf-8")
    one = Server("--max-model-len", "1024", "--chat-template", str(template), "--kv-cache-memory", "128MiB")
    try:
        yield one.wait_until_ready()
    finally:
        one.stop()


@contextlib.contextmanager
def crowded(server):
    """Keeps a server full until the block ends, or until the yielded function is called."""
    body = {"model": NAME, "prompt": "Once", "max_tokens": LONG, "ignore_eos": True, "stream": True}
    with contextlib.ExitStack() as hogs:
        for _ in range(2):
            http = hogs.enter_context(httpx.Client(headers={"authorization": f"Bearer {KEY}"}, timeout=60))
            answer = hogs.enter_context(http.stream("POST", server.url + "/v1/completions", json=body))
            assert answer.status_code == 200
        yield hogs.close
    server.wait_until_idle()


class Contract:
    """The tests. A class that inherits them sets `sdk`."""

    sdk = None

    @pytest.fixture
    def client(self, server):
        return self.sdk(server.url + "/v1", "none", 60, 0)

    @pytest.fixture
    def right(self, server):
        """Returns the server's answer over plain HTTP."""
        answer = server.chat(QUESTION, max_tokens=N_TOKENS)
        return Answer(answer["choices"][0]["message"]["content"], answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"])

    def test_whole_answer(self, client, right, saw):
        assert client.chat(QUESTION, N_TOKENS) == right
        saw.works(self.sdk.name, "whole answers with their usage")

    def test_stream(self, client, right, saw):
        pieces = [piece for piece in client.stream(QUESTION, N_TOKENS) if piece]
        assert "".join(pieces) == right.text and len(pieces) > N_TOKENS // 2
        saw.works(self.sdk.name, "streams")

    def test_several_at_once(self, client, server, saw):
        texts = [f"Count from {i}." for i in range(4)]

        async def ask():
            return await asyncio.gather(*(client.chat_async(text, N_TOKENS) for text in texts))
        right = [server.chat(text, max_tokens=N_TOKENS)["choices"][0]["message"]["content"] for text in texts]
        assert asyncio.run(ask()) == right
        saw.works(self.sdk.name, "several at once (async)")

    def test_prompt_too_long(self, client, saw):
        with pytest.raises(self.sdk.too_long) as caught:
            client.chat("word " * 2000, N_TOKENS)
        assert "maximum context length is 1024 tokens" in str(caught.value)
        name = self.sdk.too_long.__name__
        saw.works(self.sdk.name, f"a prompt beyond the context is a `{name}`")

    def test_wrong_values_are_named(self, client, saw):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat(QUESTION, N_TOKENS, {"repetition_penalty": -1})
        assert "repetition_penalty" in str(caught.value)
        saw.works(self.sdk.name, "errors name the field")

    def test_wrong_key(self, narrow, saw):
        with pytest.raises(openai.AuthenticationError):
            self.sdk(narrow.url + "/v1", "wrong", 60, 0).chat(QUESTION, N_TOKENS)
        assert self.sdk(narrow.url + "/v1", KEY, 60, 0).chat(QUESTION, N_TOKENS).text
        saw.works(self.sdk.name, "keys")

    def test_full_queue(self, narrow, saw):
        """The error has a separate type, and a retry after the time that the server states succeeds."""
        impatient, patient = (self.sdk(narrow.url + "/v1", KEY, 60, retries) for retries in (0, 6))
        with crowded(narrow) as leave, concurrent.futures.ThreadPoolExecutor() as pool:
            with pytest.raises(openai.RateLimitError):
                impatient.chat(QUESTION, N_TOKENS)
            begun = time.monotonic()
            answer = pool.submit(patient.chat, QUESTION, N_TOKENS)
            time.sleep(0.3)
            assert not answer.done()
            leave()
            assert answer.result().text and time.monotonic() - begun >= 0.8  # Retry-After is at least 1 s
        saw.works(self.sdk.name, "429 of a full queue is a `RateLimitError` and is retried after `Retry-After`")

    def test_shutting_down(self, saw):
        server = Server("--max-model-len", "1024", "--kv-cache-memory", "64MiB", "--admin-key", "boss", "--drain-delay", "30")
        try:
            client = self.sdk(server.wait_until_ready().url + "/v1", "none", 60, 0)
            assert client.chat(QUESTION, 1).text
            assert server.http.post("/drain", headers={"authorization": "Bearer boss"}).status_code == 200
            with pytest.raises(openai.APIStatusError) as caught:
                client.chat(QUESTION, N_TOKENS)
            assert caught.value.status_code == 503 and "shutting down" in str(caught.value)
        finally:
            server.process.kill()
            server.process.wait()
            server.stop()
        saw.works(self.sdk.name, "503 of a server that shuts down")

    def test_timeout_cancels(self, narrow, saw):
        client = self.sdk(narrow.url + "/v1", KEY, 1.0, 0)
        with pytest.raises(openai.APITimeoutError):
            client.chat(QUESTION, LONG, ENDLESS)
        narrow.wait_until_idle()
        saw.works(self.sdk.name, "a timeout ends the computation")

    def test_leaving_a_stream_cancels(self, narrow, saw):
        pieces = self.sdk(narrow.url + "/v1", KEY, 60, 0).stream(QUESTION, LONG, ENDLESS)
        assert len([next(pieces) for _ in range(5)]) == 5
        pieces.close()
        narrow.wait_until_idle()
        saw.works(self.sdk.name, "a closed stream ends the computation")

    def test_threads_share_a_client(self, client, right):
        found = []
        threads = [threading.Thread(target=lambda: found.append(client.chat(QUESTION, N_TOKENS))) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert found == [right] * 4

    def test_tools(self, tooled, saw):
        calls = self.sdk(tooled.url + "/v1", "none", 60, 0).tools("Paint it red.")
        assert calls and all(name == "paint" and isinstance(arguments["name"], str) for name, arguments in calls)
        saw.works(self.sdk.name, "tools")

    def test_tools_that_no_template_renders(self, client):
        with pytest.raises(openai.BadRequestError) as caught:
            client.tools("Paint it red.")
        assert "tool" in str(caught.value)

    def test_structured_output(self, client, saw):
        saw.served_or_refused(self.sdk.name, "structured output", ["response_format"], lambda: client.structured("Name a colour."),
                              lambda found: isinstance(found["name"], str), openai.BadRequestError)

    def test_embeddings(self, client, saw):
        saw.served_or_missing(self.sdk.name, "embeddings", "/v1/embeddings", lambda: client.embed("red"),
                              lambda vector: len(vector) > 0, openai.APIStatusError)


# ---- retrieval: passages are embedded, the nearest to a question are found, and these are ranked ----

PASSAGES = [f"The river {name} runs {way} through {n} towns." for n, (name, way) in enumerate(
    (f"{first}{last}", way) for first in ("El", "Tor", "Mar", "Sil", "Dun") for last in ("be", "ne", "wy", "ga", "lo", "sen", "mar", "ta", "vik", "dor")
    for way in ("north", "south", "east", "west"))]
QUESTION = "Which way does the river Silga run?"
N_NEAREST = 8


def nearest_by_http(server):
    """The passages nearest to the question, the best first, by vectors from plain HTTP."""
    answer = server.post("/v1/embeddings", {"model": NAME, "input": [QUESTION, *PASSAGES]}).json()
    question, *vectors = [row["embedding"] for row in answer["data"]]
    near = sorted(((sum(x * y for x, y in zip(question, vector)), passage) for vector, passage in zip(vectors, PASSAGES)), reverse=True)
    return [passage for _, passage in near[:N_NEAREST]]


def ranked_by_http(server, passages):
    """[(score, passage)], the best first."""
    answer = server.post("/v1/rerank", {"model": NAME, "query": QUESTION, "documents": passages}).json()
    return [(row["relevance_score"], passages[row["index"]]) for row in answer["results"]]
