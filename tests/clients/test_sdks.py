"""SDKs that speak OpenAI's API: OpenAI's, LangChain's and Haystack's. sdks_openai2.py tests those that need its version
2."""
import json

import faiss
import numpy
import openai
from haystack.components.embedders import OpenAITextEmbedder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from langchain_openai import OpenAI as LangchainCompletions

from e2e.conftest import NAME
from sdk_contract import (COLOUR, N_NEAREST, N_TOKENS, PASSAGES, QUESTION, TOOL, Answer, Contract, narrow, nearest_by_http,  # noqa: F401
                          ranked_by_http, tooled)

FORMAT = {"type": "json_schema", "json_schema": {"name": "colour", "strict": True, "schema": COLOUR}}
FORCED = {"type": "function", "function": {"name": TOOL["name"]}}
STORY = "Once upon a time, there was a"


def calls_of(calls):
    return [(call.function.name, json.loads(call.function.arguments)) for call in calls or []]


class Openai:
    name, too_long = "openai", openai.BadRequestError

    def __init__(self, url, key, timeout, retries):
        options = {"base_url": url, "api_key": key, "timeout": timeout, "max_retries": retries}
        self.client, self.options = openai.OpenAI(**options), options

    @staticmethod
    def body(text, n_tokens, extra=None):
        return {"model": NAME, "messages": [{"role": "user", "content": text}], "max_tokens": n_tokens, "temperature": 0,
                "extra_body": extra}

    def chat(self, text, n_tokens, extra=None):
        answer = self.client.chat.completions.create(**self.body(text, n_tokens, extra))
        return Answer(answer.choices[0].message.content, answer.usage.prompt_tokens, answer.usage.completion_tokens)

    def stream(self, text, n_tokens, extra=None):
        with self.client.chat.completions.create(**self.body(text, n_tokens, extra), stream=True) as chunks:
            for chunk in chunks:
                yield chunk.choices[0].delta.content

    async def chat_async(self, text, n_tokens):
        async with openai.AsyncOpenAI(**self.options) as client:
            return (await client.chat.completions.create(**self.body(text, n_tokens))).choices[0].message.content

    def tools(self, text):
        answer = self.client.chat.completions.create(**self.body(text, 64), tools=[{"type": "function", "function": TOOL}],
                                                     tool_choice=FORCED)
        return calls_of(answer.choices[0].message.tool_calls)

    def structured(self, text):
        answer = self.client.chat.completions.create(**self.body(text, 64), response_format=FORMAT)
        return json.loads(answer.choices[0].message.content)

    def embed(self, text):
        return self.client.embeddings.create(model=NAME, input=text).data[0].embedding


class Langchain:
    name, too_long = "langchain-openai", openai.BadRequestError

    def __init__(self, url, key, timeout, retries):
        self.options = {"model": NAME, "base_url": url, "api_key": key, "timeout": timeout, "max_retries": retries}

    def model(self, n_tokens, extra=None):
        return ChatOpenAI(**self.options, temperature=0, max_tokens=n_tokens, extra_body=extra)

    def chat(self, text, n_tokens, extra=None):
        found = self.model(n_tokens, extra).invoke(text)
        return Answer(found.content, found.usage_metadata["input_tokens"], found.usage_metadata["output_tokens"])

    def stream(self, text, n_tokens, extra=None):
        for chunk in self.model(n_tokens, extra).stream(text):
            yield chunk.content

    async def chat_async(self, text, n_tokens):
        return (await self.model(n_tokens).ainvoke(text)).content

    def tools(self, text):
        found = self.model(64).bind_tools([TOOL], tool_choice=TOOL["name"]).invoke(text)
        return [(call["name"], call["args"]) for call in found.tool_calls]

    def structured(self, text):
        return self.model(64).with_structured_output({"title": "colour", **COLOUR}, method="json_schema").invoke(text)

    def embed(self, text):
        return OpenAIEmbeddings(**self.options, check_embedding_ctx_length=False).embed_query(text)


class Left(Exception):
    """Ends a stream of Haystack's, which passes pieces to a function."""


class Haystack:
    name, too_long = "haystack", openai.BadRequestError

    def __init__(self, url, key, timeout, retries):
        self.options = {"api_key": Secret.from_token(key), "model": NAME, "api_base_url": url, "timeout": timeout,
                        "max_retries": retries}

    def generator(self, n_tokens, extra=None, **fields):
        return OpenAIChatGenerator(**self.options, generation_kwargs={
            "max_tokens": n_tokens, "temperature": 0, "extra_body": extra, **fields})

    def chat(self, text, n_tokens, extra=None):
        reply, = self.generator(n_tokens, extra).run([ChatMessage.from_user(text)])["replies"]
        return Answer(reply.text, reply.meta["usage"]["prompt_tokens"], reply.meta["usage"]["completion_tokens"])

    def stream(self, text, n_tokens, extra=None):
        pieces, most = [], 5 if extra else n_tokens + 2

        def take(chunk):
            pieces.append(chunk.content)
            if len(pieces) > most:
                raise Left
        try:
            self.generator(n_tokens, extra).run([ChatMessage.from_user(text)], streaming_callback=take)
        except Left:
            pass
        yield from pieces

    async def chat_async(self, text, n_tokens):
        return (await self.generator(n_tokens).run_async([ChatMessage.from_user(text)]))["replies"][0].text

    def tools(self, text):
        fields = {"tools": [{"type": "function", "function": TOOL}], "tool_choice": FORCED}
        reply, = self.generator(64, **fields).run([ChatMessage.from_user(text)])["replies"]
        return [(call.tool_name, call.arguments) for call in reply.tool_calls]

    def structured(self, text):
        reply, = self.generator(64, response_format=FORMAT).run([ChatMessage.from_user(text)])["replies"]
        return json.loads(reply.text)

    def embed(self, text):
        return OpenAITextEmbedder(**self.options).run(text)["embedding"]


class TestOpenai(Contract):
    sdk = Openai

    def test_helpers(self, server, saw):
        """Lists of models, texts with logprobs, several choices, and the helper that assembles a stream."""
        with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
            assert [model.id for model in client.models.list()] == [NAME]
            found = client.completions.create(model=NAME, prompt=STORY, max_tokens=8, temperature=0, logprobs=2, n=2)
            assert [choice.text for choice in found.choices] == [server.complete(STORY, max_tokens=8)["choices"][0]["text"]] * 2
            assert len(found.choices[0].logprobs.token_logprobs) == 8
            with client.chat.completions.stream(**Openai.body("Name a river.", N_TOKENS), stop=" ") as events:
                last = events.until_done().get_final_completion()
        right = server.chat("Name a river.", max_tokens=N_TOKENS, stop=" ")["choices"][0]["message"]["content"]
        assert right and last.choices[0].message.content == right
        saw.works("openai", "models", "completions with logprobs and several choices", "the stream helper")

    def test_responses(self, server, saw):
        with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
            saw.served_or_missing("openai", "responses", "/v1/responses", lambda: client.responses.create(model=NAME, input="Hello"),
                                  lambda answer: answer.output_text, openai.NotFoundError)


class TestLangchain(Contract):
    sdk = Langchain

    def test_batches_and_completions(self, server, saw):
        options = {"model": NAME, "base_url": server.url + "/v1", "api_key": "none", "max_retries": 0, "temperature": 0, "max_tokens": 8}
        right = [server.complete(text, max_tokens=8)["choices"][0]["text"] for text in (STORY, "The sky is")]
        model = LangchainCompletions(**options)
        assert model.batch([STORY, "The sky is"]) == right and "".join(model.stream(STORY)) == right[0]
        logprobs = ChatOpenAI(**options, logprobs=True, top_logprobs=2).invoke("Hello").response_metadata["logprobs"]["content"]
        assert len(logprobs) == 8 and all(len(one["top_logprobs"]) == 2 for one in logprobs)
        saw.works("langchain-openai", "completions", "batches", "logprobs")


class TestHaystack(Contract):
    sdk = Haystack


def test_faiss_finds_and_the_server_ranks(server, saw):
    """LangChain's embeddings in an index of FAISS, by inner products of vectors of length 1."""
    embeddings = OpenAIEmbeddings(model=NAME, base_url=server.url + "/v1", api_key="none", check_embedding_ctx_length=False, max_retries=0)
    vectors = numpy.array(embeddings.embed_documents(PASSAGES), dtype="float32")
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    _, found = index.search(numpy.array([embeddings.embed_query(QUESTION)], dtype="float32"), N_NEAREST)
    nearest = [PASSAGES[i] for i in found[0]]
    assert len(PASSAGES) == 200 and nearest == nearest_by_http(server)
    saw.works("langchain-openai", "200 passages as embeddings")
    saw.works("faiss", "an index of embeddings: the nearest passages")
    scores = [score for score, _ in ranked_by_http(server, nearest)]
    assert len(scores) == N_NEAREST and scores == sorted(scores, reverse=True)
