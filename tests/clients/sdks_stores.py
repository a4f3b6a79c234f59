"""Stores of vectors, fed by the clients of Ollama's paths: 200 passages are indexed, a question finds the nearest ones, and the server
ranks these.

build/clients/agents/bin/python -m pytest tests/clients/sdks_stores.py
"""
import chromadb
import ollama
import pytest
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_ollama import OllamaEmbeddings

from e2e.conftest import NAME
from sdk_contract import N_NEAREST, PASSAGES, QUESTION, nearest_by_http, ranked_by_http


def test_langchain_ollama_fills_a_store(server, saw):
    store = InMemoryVectorStore(OllamaEmbeddings(model=NAME, base_url=server.url))
    store.add_texts(PASSAGES)
    found = [document.page_content for document in store.similarity_search(QUESTION, k=N_NEAREST)]
    assert found == nearest_by_http(server)
    assert sorted(passage for _, passage in ranked_by_http(server, found)) == sorted(found)
    saw.works("langchain-ollama", "200 passages as embeddings, in a store of vectors")


@pytest.fixture
def collection():
    """A collection in memory that compares by inner products."""
    one = chromadb.EphemeralClient(chromadb.config.Settings(anonymized_telemetry=False)).create_collection(
        "passages", metadata={"hnsw:space": "ip"}, embedding_function=None)
    yield one
    chromadb.EphemeralClient(chromadb.config.Settings(anonymized_telemetry=False)).delete_collection("passages")


def test_ollama_fills_chroma(server, collection, saw):
    client = ollama.Client(host=server.url)
    vectors = client.embed(NAME, PASSAGES).embeddings
    collection.add(ids=[str(at) for at in range(len(PASSAGES))], documents=PASSAGES, embeddings=vectors)
    asked = client.embed(NAME, QUESTION).embeddings
    found = collection.query(query_embeddings=asked, n_results=N_NEAREST)["documents"][0]
    assert found == nearest_by_http(server)
    assert client.embeddings(NAME, QUESTION).embedding == pytest.approx(asked[0], abs=1e-5)
    best = [passage for _, passage in ranked_by_http(server, found)]
    assert sorted(best) == sorted(found)
    saw.works("ollama", "`/api/embed` and `/api/embeddings`")
    saw.works("chroma", "an index of embeddings: the nearest passages")
