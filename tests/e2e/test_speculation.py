"""Draft tokens change no byte of an answer: servers with and without them are compared."""
import concurrent.futures
import json
import re
import subprocess

import httpx
import openai
from conftest import BINARY, MODEL, ROOT

TEXT = "The river runs past the mill. The mill stands by the bridge. The bridge leads to the town. "
BODIES = [
    {"prompt": TEXT + "Once more: " + TEXT[:40], "temperature": 0},
    {"prompt": TEXT * 3, "temperature": 0.7, "top_p": 0.9, "seed": 7},
    {"prompt": TEXT * 2, "temperature": 1.0, "seed": 3, "n": 3},
    {"prompt": "1, 2, 3, 4, 1, 2, 3, 4, 1, 2,", "temperature": 0, "presence_penalty": 0.5, "repetition_penalty": 1.1},
    {"prompt": "a b c a b c a b", "temperature": 0, "stop": [" c a b c a"], "min_tokens": 8},
    {"prompt": TEXT, "temperature": 0, "echo": True, "max_tokens": 20},
]


def ask(server, body):
    body = {"max_tokens": 60, "logprobs": 3, "return_token_ids": True, **body}
    answer = httpx.post(server.url + "/v1/completions", json=body, timeout=300)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"]


def counter(server, name):
    text = server.http.get("/metrics").text
    return float(re.search(rf"^vllm:{name}_total\{{[^}}]*\}} (\S+)$", text, re.M)[1])


def test_guesses_change_no_byte(server, start):
    wanted = [ask(server, body) for body in BODIES]
    for flags in (["--always-speculate"], [], ["--kv-cache-dtype", "int16"]):
        guessing = start("--speculative-config", "ngram", *flags)
        assert [ask(guessing, body) for body in BODIES] == wanted
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            assert list(pool.map(lambda body: ask(guessing, body), BODIES)) == wanted
        assert counter(guessing, "spec_decode_num_draft_tokens") > 0


def test_guesses_save_steps(start):
    guessing = start("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 7}', "--always-speculate")
    body = {"prompt": TEXT * 4, "temperature": 0, "max_tokens": 80}
    ask(guessing, body)
    drafts = counter(guessing, "spec_decode_num_drafts")
    held = counter(guessing, "spec_decode_num_accepted_tokens")
    assert 0 < drafts and held > 40, "a text that repeats itself is foreseen"
    ask(guessing, {**body, "speculative_tokens": 0})
    assert counter(guessing, "spec_decode_num_drafts") == drafts, "a request may refuse guesses"


def test_one_sequence_at_a_time_is_guessed_too(server, start):
    body = {"prompt": TEXT * 4, "temperature": 0, "max_tokens": 80}
    guessing = start("--speculative-config", "ngram", "--always-speculate", "--max-num-seqs", "1")
    assert ask(guessing, body) == ask(server, body)
    assert counter(guessing, "spec_decode_num_accepted_tokens") > 40


def drafting(model, n):
    return json.dumps({"method": "draft_model", "model": str(model), "num_speculative_tokens": n})


def test_a_draft_model_changes_no_byte_and_saves_steps(server, start):
    """The model drafts for itself, so nearly all drafts are accepted, drawn ones too."""
    wanted = [ask(server, body) for body in BODIES]
    guessing = start("--speculative-config", drafting(MODEL, 3), "--always-speculate", "--no-enable-prefix-caching")
    assert [ask(guessing, body) for body in BODIES] == wanted
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda body: ask(guessing, body), BODIES)) == wanted
    for temperature in (0, 0.8):
        names = ("spec_decode_num_drafts", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens")
        before = [counter(guessing, name) for name in names]
        ask(guessing, {"prompt": TEXT, "temperature": temperature, "seed": 5, "max_tokens": 41, "ignore_eos": True})
        assert [counter(guessing, name) - old for name, old in zip(names, before)] == [10, 30, 30], "1 + 10 steps for 41 tokens"
    assert re.search(r"draft model .*: llama, .* KV cache \d+ MiB of \d+ tokens", guessing.log_tail())


def refusal(*flags):
    done = subprocess.run([BINARY, "serve", "--model", MODEL, "--port", "0", *flags], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stderr


def test_a_draft_model_that_cannot_be_used_is_told(tmp_path):
    code, said = refusal("--speculative-config", drafting(tmp_path / "none.gguf", 3))
    assert code == 1 and "cannot find the model" in said and "none.gguf" in said
    code, said = refusal("--speculative-config", drafting(ROOT / "tests/vectors/families/gemma.gguf", 3))
    assert code == 1 and "differs from the model's" in said
    code, said = refusal("--speculative-config", '{"method": "draft_model"}')
    assert code == 2 and "needs a model" in said


def predict(server, prediction, **fields):
    """A greedy chat of 64 tokens through OpenAI's client."""
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none")
    return client.chat.completions.create(model="smol", messages=[{"role": "user", "content": "List ten colours."}], temperature=0,
                                          max_completion_tokens=64, prediction={"type": "content", "content": prediction}, **fields)


def test_predicted_output(server, start):
    plain = predict(server, "")
    wanted = plain.choices[0].message.content
    details = predict(server, wanted).usage.completion_tokens_details
    assert (details.accepted_prediction_tokens, details.rejected_prediction_tokens) == (0, 0), "this server does not guess"
    guessing = start("--speculative-config", "ngram", "--always-speculate")
    right = predict(guessing, wanted)
    parts = predict(guessing, [{"type": "text", "text": wanted[:90]}, {"type": "text", "text": wanted[90:]}])
    wrong = predict(guessing, wanted[:30] + " and nothing of this is said at any place, whatever was asked.")
    both = predict(guessing, wanted, n=2)
    assert [one.message.content for answer in (right, parts, wrong, both) for one in answer.choices] == [wanted] * 5
    counts = [(one.accepted_prediction_tokens, one.rejected_prediction_tokens)
              for one in (answer.usage.completion_tokens_details for answer in (right, parts, wrong, both))]
    assert counts[0][0] > 45 and counts[0] == counts[1]
    assert counts[2][0] < 20 and counts[2][1] > 0
    assert counts[3][0] > 90, "of both choices"
    assert counter(guessing, "spec_decode_num_drafts") > 0


def test_bad_fields_and_flags(server, start):
    for value in (-1, 16, 1.5, "4"):
        answer = server.post("/v1/completions", {"prompt": "a", "speculative_tokens": value})
        assert answer.status_code == 400 and "speculative_tokens" in answer.json()["error"]["message"]
