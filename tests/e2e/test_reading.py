"""Answers that are read and not generated: embeddings, decisions, rankings, logprobs of given ids."""
import base64
import json
import math
import shutil
import struct
import subprocess
import threading

import httpx
import ollama
import openai
import pytest

from conftest import BINARY, NAME, ROOT, Server
from streams import until

TEXTS = ["The sun shines over the harbour.", "a", "Rain falls on the hills, and the river rises." * 8]
INPUT = "The sun shines over the harbour, and the children swim in the warm sea. " * 4
QUESTIONS = [
    {"type": "predicate", "instructions": "The weather is good.", "name": "good"},
    {"type": "choice", "instructions": "Where is it?", "choices": [{"value": "sea", "description": "water"}, {"value": "hill"}, {"value": True}]},
    {"type": "score", "instructions": "How warm is it?", "levels": [{"label": "cold"}, {"label": "mild"}, {"label": "hot"}]},
]


def embed(server, texts, **fields):
    answer = server.post("/v1/embeddings", {"model": NAME, "input": texts, **fields})
    assert answer.status_code == 200, answer.text
    return [row["embedding"] for row in answer.json()["data"]]


def decide(server, questions, given=INPUT):
    answer = server.post("/v1/decisions", {"model": NAME, "input": given, "questions": questions})
    assert answer.status_code == 200, answer.text
    return answer.json()["answers"]


def refused(server, path, body):
    answer = server.post(path, {"model": NAME, **body})
    assert answer.status_code == 400, answer.text
    return answer.json()["error"]


def metric(server, name):
    return sum(float(line.split()[-1]) for line in server.http.get("/metrics").text.splitlines() if line.startswith((name + " ", name + "{")))


N_STREAMS = 16


@pytest.fixture()
def busy(server):
    """N_STREAMS streams run beside the test, one after the other in each thread; all threads have one before it begins."""
    stop, begun = threading.Event(), set()

    def run(i):
        while not stop.is_set():
            body = {"prompt": "Once upon a time", "max_tokens": 200, "ignore_eos": True, "stream": True}
            with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=120) as answer:
                for _ in answer.iter_lines():
                    begun.add(i)
                    if stop.is_set():
                        break

    threads = [threading.Thread(target=run, args=[i]) for i in range(N_STREAMS)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(begun) == N_STREAMS)
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


# ---- embeddings ---------------------------------------------------------------------------------

def test_an_embedding_is_the_same_alone_among_others_and_beside_load(server, busy):
    alone = [embed(server, text)[0] for text in TEXTS]
    assert embed(server, TEXTS) == alone and embed(server, TEXTS * 30) == alone * 30
    assert embed(server, TEXTS, cache_salt="another") == alone
    for vector in alone:
        assert math.isclose(sum(x * x for x in vector), 1, abs_tol=1e-6)


def test_the_first_dimensions_are_normalised_again(server):
    whole, cut = embed(server, "a")[0], embed(server, "a", dimensions=7)[0]
    length = math.sqrt(sum(x * x for x in whole[:7]))
    assert len(cut) == 7 and all(math.isclose(x / length, y, abs_tol=1e-6) for x, y in zip(whole, cut))


def test_base64_has_the_same_floats(server):
    whole, text = embed(server, "a")[0], embed(server, "a", encoding_format="base64")[0]
    data = base64.b64decode(text, validate=True)
    assert list(struct.unpack(f"<{len(data) // 4}f", data)) == [struct.unpack("<f", struct.pack("<f", x))[0] for x in whole]


def test_every_path_gives_the_same_vector(server):
    right = embed(server, TEXTS)
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="x")
    rows = client.embeddings.create(model=NAME, input=TEXTS).data  # the library asks for base64
    assert all(math.isclose(x, y, abs_tol=1e-7) for row, wanted in zip(rows, right) for x, y in zip(row.embedding, wanted))
    theirs = ollama.Client(host=server.url)
    assert [list(v) for v in theirs.embed(model=NAME, input=TEXTS).embeddings] == right
    assert list(theirs.embeddings(model=NAME, prompt="a").embedding) == right[1]
    assert [row["embedding"][0] for row in server.post("/embedding", {"content": TEXTS}).json()] == right
    ids = server.post("/tokenize", {"prompt": TEXTS[0]}).json()["tokens"]
    assert embed(server, [ids]) == right[:1]


def test_many_inputs_do_not_fill_the_queue(server):
    texts = [f"number {i}" for i in range(300)]
    many = threading.Thread(target=lambda: embed(server, texts))
    many.start()
    for _ in range(20):
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 1}).status_code == 200
    many.join()
    assert embed(server, texts)[7] == embed(server, texts[7])[0]


def test_a_client_that_leaves_ends_its_inputs(server):
    """1,800 inputs of 450 tokens, no two of which begin alike, take a minute."""
    with pytest.raises(httpx.TimeoutException):
        httpx.post(f"{server.url}/v1/embeddings", json={"input": [f"{i} {TEXTS[2] * 5}" for i in range(1800)]}, timeout=1)
    assert embed(server, "a")
    server.wait_until_idle(30)


@pytest.mark.parametrize("body, param", [
    ({}, "input"), ({"input": ""}, "input"), ({"input": []}, "input"), ({"input": [""]}, "input[0]"), ({"input": 5}, "input"),
    ({"input": ["a"] * 2049}, "input"), ({"input": "a", "dimensions": 0}, "dimensions"), ({"input": "a", "dimensions": 100000}, "dimensions"),
    ({"input": "a", "encoding_format": "int8"}, "encoding_format"), ({"input": [[1 << 30]]}, "input[0]"),
    ({"input": "word " * 20000}, "input"), ({"input": ["a", "word " * 2000]}, "input[1]"),
])
def test_wrong_inputs_are_named(server, body, param):
    assert refused(server, "/v1/embeddings", body)["param"] == param


def test_ollama_cuts_long_inputs_unless_told_not_to(server):
    for n in (2000, 200_000):
        long = {"model": NAME, "input": "word " * n}
        found = server.post("/api/embed", long).json()
        assert found["embeddings"] == [embed(server, "word " * n, truncate_prompt_tokens=-1)[0]] and found["prompt_eval_count"] == 1024
        assert server.post("/api/embed", {**long, "truncate": False}).status_code == 400


def test_a_long_input_keeps_its_beginning_or_its_end(server):
    words = ["one", " two", " three", " four", " five", " six"]
    ids = [server.post("/tokenize", {"prompt": word}).json()["tokens"][0] for word in words]
    for given in ("".join(words), [ids]):
        for n in range(1, 7):
            for side, kept in (({}, ids[:n]), ({"truncation_side": "right"}, ids[:n]), ({"truncation_side": "left"}, ids[-n:])):
                assert embed(server, given, truncate_prompt_tokens=n, **side) == embed(server, [kept])
    assert embed(server, [ids * 2000], truncate_prompt_tokens=3) == embed(server, [ids[:3]])


def test_an_empty_input_of_ollamas_loads_the_model(server):
    for given in ({}, {"input": None}, {"input": []}, {"input": ""}):
        answer = server.post("/api/embed", {"model": NAME, **given})
        assert answer.status_code == 200 and answer.json()["embeddings"] == [] and answer.json()["prompt_eval_count"] == 0
    assert ollama.Client(host=server.url).embed(model=NAME, input=[]).embeddings == []
    assert server.post("/api/embeddings", {"model": NAME, "prompt": ""}).json() == {"embedding": []}
    assert server.post("/api/embed", {"model": NAME, "input": [""]}).status_code == 400
    assert server.post("/api/embed", {"model": NAME, "input": [], "dimensions": 0}).status_code == 400


# ---- decisions ----------------------------------------------------------------------------------

def test_decisions_are_the_same_alone_among_others_and_beside_load(server, busy):
    alone = [decide(server, [question])[0] for question in QUESTIONS]
    assert decide(server, QUESTIONS) == alone and decide(server, QUESTIONS * 20) == alone * 20


def test_questions_over_one_state_share_its_rows_and_their_steps(start):
    """The state has more tokens than two steps, yet as many questions run together as fit into a step."""
    n_seqs, n_rows, n_questions = 16, 256, 64
    server = start("--max-num-seqs", str(n_seqs), "--max-num-batched-tokens", str(n_rows), "--max-model-len", "2048", "--kv-cache-memory", "128MiB")
    questions = [{"type": "predicate", "instructions": f"The number is {i}."} for i in range(n_questions)]
    state = "The harbour is quiet. " * 120
    alone = decide(server, questions[7:8], state)  # computes the state
    before = metric(server, "penstock_steps_total")
    answer = server.post("/v1/decisions", {"model": NAME, "input": state, "questions": questions}).json()
    taken = metric(server, "penstock_steps_total") - before
    assert answer["answers"][7:8] == alone
    usage = answer["usage"]
    rows = usage["input_tokens"] - usage["input_tokens_details"]["cached_tokens"]
    least = max(math.ceil(n_questions / n_seqs), math.ceil(rows / n_rows))
    # questions arrive one by one, so steps at the beginning may have a few of them, the more the busier the machine is
    assert rows < 40 * n_questions and least <= taken <= least + 8


def test_probabilities_are_those_of_the_labels(server):
    rendered = server.post("/v1/decisions/render", {"model": NAME, "input": INPUT, "questions": QUESTIONS[:1]}).json()[0]
    labels = [server.post("/tokenize", {"prompt": text, "add_special_tokens": False}).json()["tokens"][0] for text in ("yes", "no")]
    body = {"prompt": rendered["token_ids"], "max_tokens": 1, "ignore_eos": True, "logprob_token_ids": labels}
    top = server.post("/v1/completions", body).json()["choices"][0]["logprobs"]["top_logprobs"][0]
    right = math.exp(top["yes"]) / (math.exp(top["yes"]) + math.exp(top["no"]))
    assert math.isclose(decide(server, QUESTIONS[:1])[0]["probability"], right, rel_tol=1e-6)


def test_openais_library_reads_decisions(server):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="x")
    if not hasattr(client, "decisions"):
        pytest.fail("this version of openai has no decisions: update tests/requirements.txt")
    found = client.decisions.create(model=NAME, input=[{"role": "user", "content": INPUT}], questions=QUESTIONS)
    predicate, choice, score = found.answers
    assert predicate.name == "good" and 0 < predicate.probability < 1
    assert choice.choice in ("sea", "hill", True) and math.isclose(sum(p.probability for p in choice.probabilities), 1, abs_tol=1e-6)
    assert math.isclose(score.score, sum(p.value * p.probability for p in score.probabilities), abs_tol=1e-6)
    assert found.usage.total_tokens == found.usage.input_tokens > 0


def test_a_choice_has_up_to_255_options(start):
    server = start("--max-model-len", "4096")
    options = [{"value": f"option {i}"} for i in range(255)]
    answer = decide(server, [{"type": "choice", "instructions": "Which one?", "choices": options}])[0]
    assert len(answer["probabilities"]) == 255 and math.isclose(sum(p["probability"] for p in answer["probabilities"]), 1, abs_tol=1e-6)


PREDICATE = {"type": "predicate", "instructions": "a"}
CHOICE = {"type": "choice", "instructions": "a", "choices": [{"value": "x"}, {"value": "y"}]}


CALL = {"type": "function_call", "call_id": "x", "name": "f", "arguments": "{}"}


@pytest.mark.parametrize("body, param", [
    ({"input": [{"role": "user", "content": "a"}, CALL], "questions": [PREDICATE]}, "input[1]"),  # the template leaves calls out
    ({"questions": [PREDICATE]}, "input"), ({"input": "", "questions": [PREDICATE]}, "input"), ({"input": "a"}, "questions"),
    ({"input": "a", "questions": []}, "questions"), ({"input": "a", "questions": [PREDICATE] * 401}, "questions"),
    ({"input": "a", "questions": [5]}, "questions[0]"), ({"input": "a", "questions": [{}]}, "questions[0].type"),
    ({"input": "a", "questions": [PREDICATE, {"type": "predicate"}]}, "questions[1].instructions"),
    ({"input": "a", "questions": [{**PREDICATE, "instructions": "a\0"}]}, "questions[0]"),
    ({"input": "a", "questions": [PREDICATE, {**PREDICATE, "instructions": "a " * 2000}]}, "questions[1]"),
    ({"input": "a", "questions": [{**PREDICATE, "x": 1}]}, "questions[0].x"), ({"input": "a", "questions": [PREDICATE], "x": 1}, "x"),
    ({"input": "a", "questions": [{**CHOICE, "choices": [{"value": "x"}]}]}, "questions[0].choices"),
    ({"input": "a", "questions": [{**CHOICE, "choices": [{"value": "x"}, {"value": "x"}]}]}, "questions[0].choices[1]"),
    ({"input": "a", "questions": [{**CHOICE, "choices": [{"value": 5}, {"value": "x"}]}]}, "questions[0].choices[0]"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}], "questions": [PREDICATE]}, "input[0].content[0]"),
])
def test_wrong_questions_are_named(server, body, param):
    assert refused(server, "/v1/decisions", body)["param"] == param


NAMED = {
    "good": {"type": "noul", "instructions": "The weather is good."},
    "where": {"type": "choice", "instructions": "Where is it?", "criteria": {"sea": "water", "hill": None, "house": {"walls": 4}}},
    "warm": {"type": "score", "instructions": "How warm is it?", "criteria": ["cold", "mild", {"at least": "hot"}]},
}


def systemone(server, questions, state=INPUT):
    answer = server.post("/v1/systemone", {"model": NAME, "state": state, "questions": questions})
    assert answer.status_code == 200, answer.text
    return answer.json()["answers"]


def test_questions_by_name_have_the_answers_of_decisions(server):
    answers = systemone(server, NAMED)
    predicate, choice, score = decide(server, [
        QUESTIONS[0], {**QUESTIONS[1], "choices": [{"value": "sea", "description": "water"}, {"value": "hill"}, {"value": "house", "description": '{"walls":4}'}]},
        {**QUESTIONS[2], "levels": [{"label": "cold"}, {"label": "mild"}, {"label": '{"at least":"hot"}'}]}])
    assert list(answers) == ["good", "where", "warm"]
    assert answers["good"] == {"type": "noul", "noul": predicate["probability"]}
    assert answers["where"] == {"type": "choice", "choice": choice["choice"], "confidence": choice["confidence"],
                                "probabilities": {p["value"]: p["probability"] for p in choice["probabilities"]}}
    assert answers["warm"] == {"type": "score", "score": score["score"], "confidence": score["confidence"],
                               "legend": {"0": "cold", "1": "mild", "2": {"at least": "hot"}},
                               "probabilities": {str(p["value"]): p["probability"] for p in score["probabilities"]}}


def test_a_state_is_any_json_and_criteria_follow_the_instructions(server):
    state = {"weather": ["sun", 5, None, True]}
    assert systemone(server, NAMED, state) == systemone(server, NAMED, json.dumps(state, separators=(",", ":")))
    meanings = {**NAMED["good"], "criteria": {"true": "It is warm.", "false": None}}
    plain = {**NAMED["good"], "instructions": "The weather is good.\nyes: It is warm."}
    assert systemone(server, {"a": meanings}) == systemone(server, {"a": plain})
    many = {str(i): NAMED["warm"] for i in range(400)}
    assert systemone(server, many) == {name: systemone(server, {"a": NAMED["warm"]})["a"] for name in many}


NOUL = {"type": "noul", "instructions": "a"}


@pytest.mark.parametrize("body, place", [
    ({"questions": {"a": NOUL}}, ["state"]), ({"state": "", "questions": {"a": NOUL}}, ["state"]), ({"state": "a"}, ["questions"]),
    ({"state": "a", "questions": []}, ["questions"]), ({"state": "a", "questions": {}}, ["questions"]),
    ({"state": "a", "questions": {str(i): NOUL for i in range(401)}}, ["questions"]),
    ({"state": "a", "questions": {"b": 5}}, ["questions", "b"]), ({"state": "a", "questions": {"b": {"type": "predicate"}}}, ["questions", "b", "type"]),
    ({"state": "a", "questions": {"a": NOUL, "b": {"type": "noul"}}}, ["questions", "b", "instructions"]),
    ({"state": "a", "questions": {"a": {**NOUL, "criteria": {"maybe": "b"}}}}, ["questions", "a", "criteria"]),
    ({"state": "a", "questions": {"a": {**NOUL, "x": 1}}}, ["questions", "a"]),
    ({"state": "a", "questions": {"a": {**NOUL, "type": "choice", "criteria": {"x": None}}}}, ["questions", "a", "criteria"]),
    ({"state": "a", "questions": {"a": {**NOUL, "type": "choice", "criteria": {"": None, "x": None}}}}, ["questions", "a", "criteria", 0]),
    ({"state": "a", "questions": {"a": {**NOUL, "type": "score", "criteria": ["x", "x"]}}}, ["questions", "a", "criteria", 1]),
    ({"state": "a", "questions": {"a": {**NOUL, "type": "score", "criteria": ["x", 5]}}}, ["questions", "a", "criteria"]),
    ({"state": "a", "questions": {"7": NOUL, "8": {**NOUL, "instructions": "a " * 20000}}}, ["questions", "8"]),
    ({"state": "a", "questions": {"a": NOUL}, "images": ["b"]}, ["images"]), ([], []),
])
def test_a_bad_state_is_a_422_with_its_place(server, body, place):
    answer = server.post("/v1/systemone", {"model": NAME, **body} if body else body)
    assert answer.status_code == 422, answer.text
    found = answer.json()["detail"][0]
    assert found["loc"] == ["body", *place] and found["msg"] and found["type"] in ("value_error", "context_length_exceeded")
    missing = server.post("/v1/systemone", {"model": "other", "state": "a", "questions": {"a": NOUL}})
    assert missing.status_code == 404 and "other" in missing.json()["detail"]


# ---- rankings -----------------------------------------------------------------------------------

def test_documents_are_ranked_by_their_scores(server):
    documents = ["Paris is the capital of France.", {"text": "Cats sleep."}, "It rains."]
    answers = [server.post(path, {"model": NAME, "query": "The capital of France?", "documents": documents}).json()
               for path in ("/v1/rerank", "/rerank", "/v2/rerank")]
    results = answers[0]["results"]
    assert [a["results"] for a in answers] == [results] * 3
    assert sorted(r["index"] for r in results) == [0, 1, 2]
    scores = [r["relevance_score"] for r in results]
    assert scores == sorted(scores, reverse=True) and all(0 < s < 1 for s in scores)
    assert {r["index"]: r["document"]["text"] for r in results}[1] == "Cats sleep."
    few = server.post("/v1/rerank", {"model": NAME, "query": "The capital of France?", "documents": documents, "top_n": 1,
                                     "return_documents": False}).json()["results"]
    assert few == [{"index": results[0]["index"], "relevance_score": scores[0]}]


@pytest.mark.parametrize("body, param", [
    ({"documents": ["a"]}, "query"), ({"query": "", "documents": ["a"]}, "query"), ({"query": "a"}, "documents"),
    ({"query": "a", "documents": []}, "documents"), ({"query": "a", "documents": ["a", 5]}, "documents[1]"), ({"query": "a\0", "documents": ["a"]}, "query"),
    ({"query": "a", "documents": ["a\0"]}, "documents"), ({"query": "x" * 200000, "documents": ["a"] * 300}, "query"),
    ({"query": "a", "documents": ["a"], "top_n": -1}, "top_n"), ({"query": "a", "documents": 5}, "documents"), ({"query": "a", "documents": ""}, "documents[0]"), ({"query": "a", "documents": ["a"], "max_chunks_per_doc": 2}, "max_chunks_per_doc"),
    ({"query": "a", "documents": ["a"], "truncation_side": "left"}, "truncation_side"),
])
def test_wrong_rankings_are_named(server, body, param):
    assert refused(server, "/v1/rerank", body)["param"] == param


# ---- logprobs of given ids ----------------------------------------------------------------------

def test_given_ids_have_their_logprobs(server):
    body = {"prompt": "The capital of France is", "max_tokens": 3, "temperature": 0}
    best = server.post("/v1/completions", {**body, "logprobs": 20}).json()["choices"][0]
    ids = server.post("/tokenize", {"prompt": " Paris", "add_special_tokens": False}).json()["tokens"]
    given = server.post("/v1/completions", {**body, "logprob_token_ids": ids}).json()["choices"][0]
    assert given["text"] == best["text"] and given["logprobs"]["top_logprobs"][0][" Paris"] == best["logprobs"]["top_logprobs"][0][" Paris"]
    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "ignore_eos": True, "logprob_token_ids": [5, 7]}
    row = server.post("/v1/chat/completions", chat).json()["choices"][0]["logprobs"]["content"][0]
    assert len(row["top_logprobs"]) == 2
    assert refused(server, "/v1/completions", {**body, "logprob_token_ids": list(range(21))})["param"] == "logprob_token_ids"
    assert refused(server, "/v1/completions", {**body, "logprob_token_ids": [5], "use_beam_search": True})["param"] == "logprob_token_ids"


# ---- other models -------------------------------------------------------------------------------

EMBEDDER = ROOT / "tests/vectors/embedders/qwen3"


def vector_of(model, *flags):
    server = Server(*flags, model=str(model), env={}).wait_until_ready()
    try:
        answer = server.post("/v1/embeddings", {"input": [[7, 9, 11]]})
        return answer.json()["data"][0]["embedding"] if answer.status_code == 200 else answer.json()["error"]["message"]
    finally:
        server.stop()


def test_both_forms_of_a_pooling_are_read(tmp_path):
    right = vector_of(EMBEDDER)
    last = vector_of(EMBEDDER, "--pooling", "last")
    for settings, wanted in (({"embedding_dimension": 32, "pooling_mode": "mean"}, right), ({"pooling_mode": "lasttoken"}, last),
                             ({"pooling_mode": "max"}, None), ({}, None), ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, None)):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        shutil.copytree(EMBEDDER, folder)
        (folder / "1_Pooling/config.json").write_text(json.dumps(settings))
        found = vector_of(folder)
        assert found == wanted if wanted else "'pooling' is not served" in found, settings
    assert right != last


ENCODER = ROOT / "tests/vectors/encoders"


def test_an_encoder_gives_vectors_and_no_text():
    server = Server(model=str(ENCODER / "xlm_roberta"), env={}).wait_until_ready()
    try:
        inputs = [[5 + i % 200 for i in range(n)] for n in (1, 7, 150, 320)]
        together = embed(server, inputs)
        for ids, vector in zip(inputs, together):
            assert embed(server, [ids]) == [vector]
            assert abs(math.sqrt(sum(x * x for x in vector)) - 1) < 1e-6
        assert refused(server, "/v1/embeddings", {"input": [inputs[-1] + [5]]})["code"] == "context_length_exceeded"
        assert len(embed(server, [inputs[-1] + [5]], truncate_prompt_tokens=-1)) == 1
        messages = [{"role": "user", "content": "hi"}]
        for path, body in (("/v1/chat/completions", {"messages": messages}), ("/v1/completions", {"prompt": "hi"}),
                           ("/v1/completions", {"prompt": "hi", "max_tokens": 0, "echo": True, "logprobs": 1})):
            assert "encoder" in refused(server, path, body)["message"]
    finally:
        server.stop()


DENSE = ROOT / "tests/vectors/embedders/dense"


def test_dense_layers_and_prompts_are_those_of_sentence_transformers():
    server = Server("--dtype", "float32", model=str(DENSE), env={}).wait_until_ready()
    try:
        for case in json.loads((ROOT / "tests/vectors/sentence_embeddings.json").read_text()):
            name = {"prompt_name": case["prompt_name"]} if case["prompt_name"] else {}
            answer = server.post("/v1/embeddings", {"input": case["input"], **name}).json()["data"][0]["embedding"]
            assert len(answer) == 24 and max(abs(x - y) for x, y in zip(answer, case["embedding"])) < 1e-6, case["prompt_name"]
        assert '"query", "document"' in refused(server, "/v1/embeddings", {"input": "a", "prompt_name": "x"})["message"]
        assert "is for texts" in refused(server, "/v1/embeddings", {"input": [5], "prompt_name": "query"})["message"]
        assert refused(server, "/v1/embeddings", {"input": "a", "dimensions": 25})["param"] == "dimensions"
        assert len(embed(server, "a", dimensions=24)[0]) == 24
    finally:
        server.stop()


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


@pytest.mark.parametrize("model", [DENSE, ENCODER / "nomic_bert", EMBEDDER])
def test_embedding_models_score_pairs_by_the_cosine(model):
    server = Server("--dtype", "float32", "--max-model-len", "80", model=str(model), env={}).wait_until_ready()
    try:
        first, second = ["sun", "rain and wind"], ["The sun shines.", "A cat."]
        a, b = embed(server, first), embed(server, second)
        both = server.post("/score", {"text_1": first, "text_2": second}).json()
        assert all(math.isclose(row["score"], cosine(x, y), abs_tol=1e-6) for row, x, y in zip(both["data"], a, b)) and len(both["data"]) == 2
        one = server.post("/v1/score", {"queries": first[1], "documents": second}).json()
        assert all(math.isclose(row["score"], cosine(a[1], y), abs_tol=1e-6) for row, y in zip(one["data"], b)) and len(one["data"]) == 2
        assert one["data"][1]["score"] == both["data"][1]["score"] and one["usage"]["prompt_tokens"] < both["usage"]["prompt_tokens"]
        assert all(math.isclose(row["score"], 1, abs_tol=1e-9) for row in server.post("/score", {"text_1": first, "text_2": first}).json()["data"])
        ranked = server.post("/rerank", {"query": first[1], "documents": second}).json()["results"]
        assert {row["index"]: row["relevance_score"] for row in ranked} == {row["index"]: row["score"] for row in one["data"]}
        assert ranked[0]["relevance_score"] > ranked[1]["relevance_score"]
        long = "word " * 200
        for body, param in (({"text_1": long, "text_2": second}, "text_1"), ({"text_1": ["a", long], "text_2": second}, "text_1[1]"),
                            ({"text_1": "a", "text_2": ["b", long]}, "text_2[1]"), ({"text_1": "a", "text_2": "b", "instruction": "c"}, "instruction")):
            assert refused(server, "/score", body)["param"] == param
        assert refused(server, "/rerank", {"query": long, "documents": second})["param"] == "query"
    finally:
        server.stop()


def capabilities(model, *flags):
    server = Server(*flags, model=str(model), env={}).wait_until_ready()
    try:
        return server.post("/api/show", {"name": NAME}).json()["capabilities"]
    finally:
        server.stop()


def test_a_dense_layer_that_is_not_served_is_named(tmp_path):
    for i, (change, said) in enumerate(((lambda step: (step / "model.safetensors").rename(step / "pytorch_model.bin"), "'2_Dense' is not served"),
                                        (lambda step: (step / "config.json").write_text('{"activation_function": "torch.nn.Softplus"}'), "'2_Dense' is not served"))):
        folder = tmp_path / str(i)
        shutil.copytree(DENSE, folder)
        change(folder / "2_Dense")
        assert said in vector_of(folder)


def test_ollamas_clients_see_which_models_embed(server, tmp_path):
    assert "embedding" not in server.post("/api/show", {"name": NAME}).json()["capabilities"]
    assert "embedding" in capabilities(EMBEDDER)
    plain = tmp_path / "plain"
    shutil.copytree(EMBEDDER, plain)
    (plain / "modules.json").unlink()
    assert "embedding" not in capabilities(plain) and "embedding" in capabilities(plain, "--pooling", "mean")


@pytest.mark.parametrize("system", ["{{ raise_exception('no system') }}", "", None])
def test_a_template_without_a_system_role_ranks(tmp_path, system):
    shown = "{{ '[' + m.role + '] ' + m.content + '\n' }}"
    cases = f"{{% if m.role == 'system' %}}{system}{{% else %}}{shown}{{% endif %}}" if system is not None else shown
    template = tmp_path / "roles.jinja"
    template.write_text(f"{{% for m in messages %}}{cases}{{% endfor %}}[assistant] ")
    server = Server("--chat-template", str(template)).wait_until_ready()
    try:
        body = {"model": NAME, "query": "The capital of France?", "documents": ["Paris", "Cats sleep."]}
        assert len(server.post("/v1/rerank", body).json()["results"]) == 2
        ids = server.post("/v1/rerank/render", body).json()[0]["token_ids"]
        text = server.post("/detokenize", {"tokens": ids}).json()["prompt"]
        assert text.startswith("[system] Judge" if system is None else "[user] Judge") and text.count("[user]") == 1
    finally:
        server.stop()


CLASSIFIERS = ROOT / "tests/vectors/classifiers"


@pytest.fixture(scope="module", params=["labels", "scores", "pairs", "bert_pairs", "bert_pairs.gguf", "modern_pairs", "modern_pairs.gguf", "modern_labels"])
def classifier(request):
    server = Server("--dtype", "float32", model=str(CLASSIFIERS / request.param), env={}).wait_until_ready()
    server.kind = request.param
    yield server
    server.stop()


def test_labels_and_scores_are_those_of_transformers(classifier):
    for case in json.loads((ROOT / "tests/vectors/classifiers.json").read_text()):
        if case["model"] != classifier.kind:
            continue
        if len(case["texts"]) == 2:
            first, second = case["texts"]
            answer = classifier.post("/score", {"text_1": first, "text_2": second}).json()
            right = 1 / (1 + math.exp(-case["logits"][0]))
            assert math.isclose(answer["data"][0]["score"], right, abs_tol=1e-6)
            ranked = classifier.post("/rerank", {"query": first, "documents": [second]}).json()
            assert ranked["results"][0]["relevance_score"] == answer["data"][0]["score"]
            logit = classifier.post("/score", {"data_1": first, "data_2": second, "use_activation": False}).json()["data"][0]["score"]
            assert math.isclose(logit, case["logits"][0], abs_tol=1e-5)
            ranked = classifier.post("/v1/rerank", {"query": first, "documents": second, "top_n": 0, "use_activation": False}).json()
            assert [row["relevance_score"] for row in ranked["results"]] == [logit]
            continue
        rows = [classifier.post(path, {"input": case["texts"][0], "use_activation": False}).json()["data"][0] for path in ("/classify", "/pooling")]
        assert all(math.isclose(x, y, abs_tol=1e-5) for x, y in zip(rows[0]["probs"], case["logits"])) and rows[0]["probs"] == rows[1]["data"]
        row = classifier.post("/v1/classify", {"input": [case["ids"]]}).json()["data"][0]
        weights = [math.exp(x) for x in case["logits"]] if len(case["logits"]) > 1 else None
        right = [x / sum(weights) for x in weights] if weights else [1 / (1 + math.exp(-case["logits"][0]))]
        names = ["bad", "good", "LABEL_2"] if weights else ["LABEL_0"]
        assert row["num_classes"] == len(right) and row["label"] == names[right.index(max(right))]
        assert all(math.isclose(x, y, abs_tol=1e-6) for x, y in zip(row["probs"], right))


def test_labels_are_the_same_alone_and_among_others(classifier):
    texts = TEXTS[:2] * 20
    many = classifier.post("/classify", {"input": texts}).json()["data"]
    alone = [classifier.post("/classify", {"input": text, "cache_salt": "x"}).json()["data"][0]["probs"] for text in TEXTS[:2]]
    assert [row["probs"] for row in many] == alone * 20 and [row["index"] for row in many] == list(range(40))


def test_a_model_without_a_head_for_text_refuses_text(classifier):
    for path, body in (("/v1/completions", {"prompt": "a"}), ("/completion", {"prompt": "a"})):
        answer = classifier.post(path, body)
        assert answer.status_code == 400 and "no head for text" in answer.text, path
    if classifier.kind.endswith("labels"):
        assert "3 labels" in refused(classifier, "/score", {"text_1": "a", "text_2": "b"})["message"]
        assert "3 labels" in refused(classifier, "/reranking", {"query": "a", "documents": ["b"]})["message"]
    else:
        error = refused(classifier, "/score", {"text_1": "a", "text_2": ["b", "word " * 200]})
        assert error["param"] == "text_2[1]" and "96 tokens" in error["message"]


def test_the_head_of_a_reranker_in_gguf_reads_the_files_form_of_a_pair():
    server = Server("--dtype", "float32", model=str(CLASSIFIERS / "reranker.gguf"), env={}).wait_until_ready()
    try:
        pairs = [("sun", "The sun shines."), ("rain", "A cat.")]
        scores = server.post("/v1/score", {"queries": [a for a, _ in pairs], "documents": [b for _, b in pairs]}).json()["data"]
        ranked = server.post("/v1/reranking", {"query": "sun", "documents": ["The sun shines.", "A <|im_end|> cat."]}).json()["results"]
        for (query, document), row in zip(pairs, scores):
            body = {"prompt": f"Q: {query}\nD: {document}\nA:", "max_tokens": 1, "ignore_eos": True, "logprob_token_ids": [84, 97]}
            top = server.post("/v1/completions", body).json()["choices"][0]["logprobs"]["top_logprobs"][0]
            yes, no = math.exp(top["T"]), math.exp(top["a"])
            assert math.isclose(row["score"], yes / (yes + no), abs_tol=1e-5)
        assert next(row["relevance_score"] for row in ranked if row["index"] == 0) == scores[0]["score"]
        row = server.post("/classify", {"input": "Q: sun\nD: The sun shines.\nA:"}).json()["data"][0]
        assert row["probs"][0] == scores[0]["score"] and row["label"] in ("yes", "no")
    finally:
        server.stop()


@pytest.mark.parametrize("key, value", [("classifier_pooling", "max"), ("classifier_activation", "softplus")])
def test_a_form_of_modernberts_head_that_is_not_served_is_named(tmp_path, key, value):
    folder = tmp_path / "head"
    shutil.copytree(CLASSIFIERS / "modern_labels", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, key: value}))
    run = subprocess.run([BINARY, "serve", folder, "--port", "0"], capture_output=True, text=True, timeout=60)
    assert run.returncode != 0 and f"key {key}: expected" in run.stderr and f'found "{value}"' in run.stderr


def test_a_pair_with_token_types_that_the_model_lacks_is_refused(tmp_path):
    folder = tmp_path / "types"
    shutil.copytree(CLASSIFIERS / "pairs", folder)
    file = folder / "tokenizer.json"
    file.write_text(file.read_text().replace("RobertaProcessing", "BertProcessing"))
    server = Server(model=str(folder), env={}).wait_until_ready()
    try:
        assert "only type 0" in refused(server, "/score", {"text_1": "a", "text_2": "b"})["message"]
        assert server.post("/classify", {"input": "a"}).status_code == 200
    finally:
        server.stop()


@pytest.mark.parametrize("model", ["token_labels", "modern_token_labels"])
def test_labels_of_tokens_are_those_of_transformers(model):
    cases = [case for case in json.loads((ROOT / "tests/vectors/classifiers.json").read_text()) if case["model"] == model]
    server = Server("--dtype", "float32", model=str(CLASSIFIERS / model), env={}).wait_until_ready()
    try:
        inputs = [case["texts"][0] for case in cases]
        logits = server.post("/pooling", {"input": inputs, "task": "token_classify", "use_activation": False}).json()["data"]
        shares = server.post("/pooling", {"input": inputs}).json()["data"]  # the task of this head
        assert len(cases) == 2
        for case, row, share in zip(cases, logits, shares):
            assert len(row["data"]) == len(case["logits"]) == len(share["data"])
            for found, wanted, shown in zip(row["data"], case["logits"], share["data"]):
                weights = [math.exp(x) for x in wanted]
                right = [x / sum(weights) for x in weights] if len(wanted) > 1 else [1 / (1 + math.exp(-wanted[0]))]
                assert all(math.isclose(x, y, abs_tol=1e-5) for x, y in zip(found, wanted)) and len(found) == len(wanted)
                assert all(math.isclose(x, y, abs_tol=1e-6) for x, y in zip(shown, right))
        for path, body in (("/classify", {"input": "a"}), ("/score", {"text_1": "a", "text_2": "b"}), ("/pooling", {"input": "a", "task": "classify"})):
            assert "labels of tokens" in refused(server, path, body)["message"]
    finally:
        server.stop()


# ---- sentence-transformers ----------------------------------------------------------------------

SENTENCES = json.loads((ROOT / "tests/vectors/sentences.json").read_text())


@pytest.mark.parametrize("model", sorted({case["model"] for case in SENTENCES}))
def test_a_folder_gives_what_sentence_transformers_gives(model):
    cases = [case for case in SENTENCES if case["model"] == model]
    server = Server("--dtype", "float32", model=str(ROOT / "tests/vectors" / model), env={}).wait_until_ready()
    try:
        texts = [case for case in cases if "embedding" in case]
        for case, vector in zip(texts, embed(server, [case["text"] for case in texts]) if texts else []):
            assert len(vector) == len(case["embedding"])
            assert cosine(vector, case["embedding"]) > 0.999999 and max(abs(x - y) for x, y in zip(vector, case["embedding"])) < 1e-5
        for case in (case for case in cases if "tokens" in case):
            ask = {"input": case["text"], "task": "token_embed"}
            rows = server.post("/pooling", ask).json()["data"][0]["data"]
            assert len(rows) == len(case["tokens"])
            assert all(abs(x - y) < 1e-5 for row, wanted in zip(rows, case["tokens"]) for x, y in zip(row, wanted))
            floats = base64.b64decode(server.post("/pooling", {**ask, "encoding_format": "base64"}).json()["data"][0]["data"])
            assert struct.unpack(f"<{len(floats) // 4}f", floats) == struct.unpack(f"<{len(floats) // 4}f", b"".join(struct.pack("<f", x) for row in rows for x in row))
            assert server.post("/pooling", {**ask, "input": ["b", case["text"]], "dimensions": 8}).json()["data"][1]["data"][0] != rows[0]
            assert server.post("/pooling", {**ask, "input": ["b", case["text"]]}).json()["data"][1]["data"] == rows
        for case in (case for case in cases if "pair" in case):
            first, second = case["pair"]
            score = server.post("/score", {"text_1": first, "text_2": second}).json()["data"][0]["score"]
            assert math.isclose(score, case["score"], abs_tol=1e-5)
    finally:
        server.stop()


def test_a_model_without_such_a_head_names_the_path(server):
    for path in ("/classify", "/v1/classify"):
        assert refused(server, path, {"input": "a"})["message"].startswith("This model has no labels: /v1/classify needs")
    assert "has no labels: /v1/pooling needs" in refused(server, "/pooling", {"input": "a", "task": "classify"})["message"]
    assert "has no labels" in refused(server, "/pooling", {"input": "a", "task": "token_classify"})["message"]
    assert refused(server, "/pooling", {"input": "a", "task": "plugin"})["param"] == "task"
    assert server.post("/pooling", {"input": TEXTS}).json()["data"][1]["data"] == embed(server, TEXTS)[1]
    ranked = {row["index"]: row["relevance_score"] for row in server.post("/rerank", {"query": "sun", "documents": TEXTS[:2]}).json()["results"]}
    scores = [row["score"] for row in server.post("/score", {"text_1": "sun", "text_2": TEXTS[:2]}).json()["data"]]
    assert scores == [ranked[0], ranked[1]]
    part = {"content": [{"type": "text", "text": TEXTS[0]}]}
    for first, second in (("data_1", "data_2"), ("queries", "items"), ("queries", "documents")):
        logits = [row["score"] for row in server.post("/score", {first: "sun", second: [part, {"text": TEXTS[1]}], "use_activation": False}).json()["data"]]
        assert all(math.isclose(1 / (1 + math.exp(-x)), y, abs_tol=1e-5) for x, y in zip(logits, scores)) and len(logits) == 2
    rows = server.post("/rerank", {"query": {"text": "sun"}, "documents": part, "top_n": 0}).json()["results"]
    assert rows == [{"index": 0, "document": {"text": TEXTS[0]}, "relevance_score": scores[0]}]


@pytest.mark.parametrize("path", ["/v1/embeddings", "/pooling"])
def test_vectors_without_activation_are_not_normalised(server, path):
    def vectors(**fields):
        return [row["embedding" if path == "/v1/embeddings" else "data"] for row in server.post(path, {"input": TEXTS[:2], **fields}).json()["data"]]
    for plain, scaled in zip(vectors(use_activation=False), vectors()):
        length = math.sqrt(sum(x * x for x in plain))
        assert abs(length - 1) > 0.01 and all(abs(x / length - y) < 1e-6 for x, y in zip(plain, scaled))
    assert vectors(use_activation=None) == vectors(use_activation=True) == vectors()
    tokens = server.post("/pooling", {"input": "a b", "task": "token_embed", "use_activation": False}).json()["data"][0]["data"]
    assert all(abs(math.sqrt(sum(x * x for x in row)) - 1) > 0.01 for row in tokens)


@pytest.mark.parametrize("paths, fields", [
    (("/v1/embeddings", "/pooling", "/classify"), {"embed_dtype": "float16", "endianness": "big", "padding": "max_length", "mm_processor_kwargs": {"a": 1}, "normalize": False,
                                                   "messages": [{"role": "user", "content": "a"}]}),
    (("/score", "/rerank"), {"max_tokens_per_doc": 5, "max_tokens_per_query": 5, "chat_template_kwargs": {"instruction": "a"}, "padding": "max_length",
                             "mm_processor_kwargs": {"a": 1}, "truncate_prompt_tokens": -1, "truncation_side": "left"}),
])
def test_fields_of_vllm_that_are_not_served_are_named(server, paths, fields):
    idle = {"embed_dtype": "float32", "endianness": "native", "padding": "do_not_pad", "mm_processor_kwargs": None, "normalize": True, "messages": [],
            "max_tokens_per_doc": 0, "max_tokens_per_query": 0, "chat_template_kwargs": {}, "truncate_prompt_tokens": None, "truncation_side": None}
    bodies = {"/score": {"text_1": "a", "text_2": "b"}, "/rerank": {"query": "a", "documents": ["b"]}}
    for path in paths:
        body = bodies.get(path, {"input": "a"})
        for name, value in fields.items():
            error = refused(server, path, {**body, name: value})
            assert error["param"] == name and "is not served" in error["message"]
            if path != "/classify":
                assert server.post(path, {**body, name: idle[name]}).status_code == 200, name


@pytest.mark.parametrize("body, param", [
    ({"text_1": "a"}, "text_2"), ({"text_2": "a"}, "text_1"), ({"text_1": "a", "text_2": []}, "text_2"), ({"text_1": ["a", "b"], "text_2": ["c"]}, "text_2"),
    ({"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_1"), ({"text_1": "", "text_2": "a"}, "text_1"), ({"queries": 5, "documents": "a"}, "queries"),
    ({"text_1": "a", "text_2": ["a", "\0"]}, "text_2"), ({"data_1": "a", "items": []}, "items"), ({"data_1": "a", "data_2": {"content": []}}, "data_2"),
    ({"data_1": "a", "data_2": {"content": ["b"]}}, "data_2"), ({"data_1": "a", "data_2": {"content": [{"text": "b"}, {"text": "c"}]}}, "data_2"),
])
def test_wrong_pairs_are_named(server, body, param):
    assert refused(server, "/score", body)["param"] == param


def test_a_template_that_begins_with_reasoning_is_refused(tmp_path):
    template = tmp_path / "thinks.jinja"
    template.write_text("{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}assistant: <think>\n"
                        "{# </think> #}")
    server = Server("--chat-template", str(template), "--reasoning-parser", "qwen3").wait_until_ready()
    try:
        assert "begins every answer with reasoning" in refused(server, "/v1/decisions", {"input": "a", "questions": [PREDICATE]})["message"]
        assert "begins every answer with reasoning" in refused(server, "/v1/rerank", {"query": "a", "documents": ["b"]})["message"]
    finally:
        server.stop()
