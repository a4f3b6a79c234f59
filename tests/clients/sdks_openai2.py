"""SDKs that need version 2 of openai: LiteLLM, LlamaIndex and Instructor. They have a separate environment, so this
file is run separately:

build/clients/openai2/bin/python -m pytest tests/clients/sdks_openai2.py
"""
import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise it asks the network for prices

import instructor  # noqa: E402
import litellm  # noqa: E402
import openai  # noqa: E402
import pytest  # noqa: E402
from llama_index.core import VectorStoreIndex  # noqa: E402
from llama_index.core.llms import ChatMessage  # noqa: E402
from llama_index.core.schema import TextNode  # noqa: E402
from llama_index.core.tools import FunctionTool  # noqa: E402
from llama_index.embeddings.openai_like import OpenAILikeEmbedding  # noqa: E402
from llama_index.llms.openai_like import OpenAILike  # noqa: E402
from pydantic import BaseModel  # noqa: E402

from e2e.conftest import NAME  # noqa: E402
from sdk_contract import (COLOUR, N_NEAREST, N_TOKENS, PASSAGES, QUESTION, TOOL, Answer, Contract, narrow,  # noqa: E402, F401
                          nearest_by_http, ranked_by_http, tooled)

litellm.suppress_debug_info = True
litellm.telemetry = False
FORMAT = {"type": "json_schema", "json_schema": {"name": "colour", "strict": True, "schema": COLOUR}}


class Litellm:
    name, too_long, provider = "litellm", litellm.ContextWindowExceededError, "openai"

    def __init__(self, url, key, timeout, retries):
        self.options = {"api_base": url, "api_key": key, "timeout": timeout, "max_retries": retries}

    def fields(self, text, n_tokens, extra=None):
        return {"model": f"{self.provider}/{NAME}", "messages": [{"role": "user", "content": text}], "max_tokens": n_tokens,
                "temperature": 0, **self.options, **({"extra_body": extra} if extra else {})}

    def chat(self, text, n_tokens, extra=None):
        answer = litellm.completion(**self.fields(text, n_tokens, extra))
        return Answer(answer.choices[0].message.content, answer.usage.prompt_tokens, answer.usage.completion_tokens)

    def stream(self, text, n_tokens, extra=None):
        chunks = litellm.completion(**self.fields(text, n_tokens, extra), stream=True)
        try:
            for chunk in chunks:
                yield chunk.choices[0].delta.content
        except GeneratorExit:
            chunks.completion_stream.close()
            raise

    async def chat_async(self, text, n_tokens):
        return (await litellm.acompletion(**self.fields(text, n_tokens))).choices[0].message.content

    def tools(self, text):
        answer = litellm.completion(**self.fields(text, 64), tools=[{"type": "function", "function": TOOL}],
                                    tool_choice={"type": "function", "function": {"name": TOOL["name"]}})
        return [(call.function.name, json.loads(call.function.arguments)) for call in answer.choices[0].message.tool_calls or []]

    def structured(self, text):
        return json.loads(litellm.completion(**self.fields(text, 64), response_format=FORMAT).choices[0].message.content)

    def embed(self, text):
        return litellm.embedding(model=f"openai/{NAME}", input=[text], **self.options).data[0]["embedding"]


class Colour(BaseModel):
    """The contents of a structured answer."""

    name: str


def paint(name: str) -> str:
    """Paints a wall."""
    return name


class LlamaIndex:
    name, too_long = "llama-index", openai.BadRequestError

    def __init__(self, url, key, timeout, retries):
        self.options = {"model": NAME, "api_base": url, "api_key": key, "timeout": timeout, "max_retries": retries,
                        "temperature": 0, "context_window": 8192}

    def model(self, n_tokens, extra=None, **fields):
        return OpenAILike(**self.options, max_tokens=n_tokens, is_chat_model=True, reuse_client=False,
                          additional_kwargs={"extra_body": extra} if extra else {}, **fields)

    def chat(self, text, n_tokens, extra=None):
        answer = self.model(n_tokens, extra).chat([ChatMessage(role="user", content=text)])
        return Answer(answer.message.content, answer.raw.usage.prompt_tokens, answer.raw.usage.completion_tokens)

    def stream(self, text, n_tokens, extra=None):
        for chunk in self.model(n_tokens, extra).stream_chat([ChatMessage(role="user", content=text)]):
            yield chunk.delta

    async def chat_async(self, text, n_tokens):
        return (await self.model(n_tokens).achat([ChatMessage(role="user", content=text)])).message.content

    def tools(self, text):
        model = self.model(64, is_function_calling_model=True)
        answer = model.chat_with_tools([FunctionTool.from_defaults(paint)], text, tool_required=True)
        return [(call.tool_name, call.tool_kwargs) for call in model.get_tool_calls_from_response(answer)]

    def structured(self, text):
        model = self.model(64, should_use_structured_outputs=True)
        return model.as_structured_llm(Colour).chat([ChatMessage(role="user", content=text)]).raw.model_dump()

    def embed(self, text):
        return OpenAILikeEmbedding(model_name=NAME, api_base=self.options["api_base"], api_key="none", max_retries=0).get_text_embedding(text)


class TestLitellm(Contract):
    sdk = Litellm

    def test_as_vllm(self, server, saw):
        """Its provider for vLLM's servers, which has other code for errors and streams."""
        class Vllm(Litellm):
            provider = "hosted_vllm"
        client = Vllm(server.url + "/v1", "none", 60, 0)
        right = server.chat("Name a river.", max_tokens=N_TOKENS)["choices"][0]["message"]["content"]
        assert client.chat("Name a river.", N_TOKENS).text == right
        assert "".join(piece or "" for piece in client.stream("Name a river.", N_TOKENS)) == right
        with pytest.raises(litellm.ContextWindowExceededError):
            client.chat("word " * 2000, N_TOKENS)
        saw.works("litellm", "the same through `hosted_vllm/`")

    def test_completions(self, server, saw):
        found = litellm.text_completion(model=f"text-completion-openai/{NAME}", prompt="Once upon a time", max_tokens=8, temperature=0,
                                        api_base=server.url + "/v1", api_key="none", max_retries=0)
        assert found.choices[0].text == server.complete(max_tokens=8)["choices"][0]["text"]
        saw.works("litellm", "completions")


    def test_embeddings_and_rankings_as_vllm(self, server, saw):
        options = {"model": f"hosted_vllm/{NAME}", "api_base": server.url + "/v1", "api_key": "none"}
        rows = litellm.embedding(input=PASSAGES[:3], max_retries=0, **options).data
        right = server.post("/v1/embeddings", {"model": NAME, "input": PASSAGES[:3]}).json()["data"]
        assert [row["embedding"] for row in rows] == [row["embedding"] for row in right]
        documents = PASSAGES[:N_NEAREST]
        results = litellm.rerank(query=QUESTION, documents=documents, top_n=3, **options).results
        found = [(row["relevance_score"], documents[row["index"]]) for row in results]
        assert found == ranked_by_http(server, documents)[:3]
        saw.works("litellm", "rankings through `hosted_vllm/`")


class TestLlamaIndex(Contract):
    sdk = LlamaIndex

    def test_completions(self, server, saw):
        model = OpenAILike(model=NAME, api_base=server.url + "/v1", api_key="none", max_retries=0, temperature=0, max_tokens=8,
                           is_chat_model=False)
        right = server.complete(max_tokens=8)["choices"][0]["text"]
        assert model.complete("Once upon a time").text == right
        assert "".join(chunk.delta for chunk in model.stream_complete("Once upon a time")) == right
        saw.works("llama-index", "completions")


    def test_an_index_of_passages(self, server, saw):
        embedder = OpenAILikeEmbedding(model_name=NAME, api_base=server.url + "/v1", api_key="none", max_retries=0, embed_batch_size=64)
        index = VectorStoreIndex([TextNode(text=passage) for passage in PASSAGES], embed_model=embedder)
        found = index.as_retriever(similarity_top_k=N_NEAREST).retrieve(QUESTION)
        assert [node.text for node in found] == nearest_by_http(server)
        saw.works("llama-index", "an index of 200 passages: the nearest ones")


# ---- Instructor -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode,what", [(instructor.Mode.TOOLS, "tools"), (instructor.Mode.JSON_SCHEMA, "structured output")])
def test_instructor_gives_a_model(tooled, saw, mode, what):
    with openai.OpenAI(base_url=tooled.url + "/v1", api_key="none", max_retries=0) as client:
        found = instructor.from_openai(client, mode=mode).create(
            model=NAME, messages=[{"role": "user", "content": "Name a colour."}], response_model=Colour, max_retries=0,
            max_tokens=150, temperature=0)
    assert isinstance(found, Colour)
    saw.works("instructor", f"models by {what}")
