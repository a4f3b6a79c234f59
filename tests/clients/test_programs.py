"""Programs with which people use a model: simonw's llm, aider, and inspect-ai's evaluations."""
import asyncio
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
from inspect_ai import Task
from inspect_ai import eval as evaluate
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, ResponseSchema, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate
from inspect_ai.tool import ToolFunction, ToolInfo, ToolParam, ToolParams
from inspect_ai.util import JSONSchema

from e2e.conftest import NAME, ROOT
from sdk_contract import KEY, LONG, N_TOKENS, QUESTION, crowded, narrow, tooled  # noqa: F401

AIDER = pathlib.Path(os.environ.get("AIDER_VENV", ROOT / "build/clients/aider"), "bin/aider")
LLM = pathlib.Path(sys.executable).parent / "llm"
ABORTED = f'vllm:request_success_total{{engine="0",finished_reason="abort",model_name="{NAME}"}}'


class Failed(Exception):
    """A program ended with an error; its text is the program's output."""


def run(command, folder, **environment):
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=folder, timeout=300, check=False,
                          env={**os.environ, "HOME": str(folder), **environment})
    if done.returncode != 0:
        raise Failed(done.stdout[-3000:] + done.stderr[-3000:])
    return done.stdout, done.stderr


# ---- llm ----------------------------------------------------------------------------------------------

LLM_MODELS = """
- {{model_id: chat, model_name: {name}, api_base: "{url}", api_key_name: penstock, supports_tools: true, supports_schema: true}}
- {{model_id: text, model_name: {name}, api_base: "{url}", api_key_name: penstock, completion: true}}
"""


@pytest.fixture
def llm(tmp_path):
    """llm(server, arguments...) returns the program's output and errors."""
    def ask(server, *arguments, key="none"):
        (tmp_path / "extra-openai-models.yaml").write_text(LLM_MODELS.format(name=NAME, url=server.url + "/v1"), encoding="utf-8")
        return run([LLM, *arguments, "--key", key, "-o", "temperature", "0"], tmp_path, LLM_USER_PATH=str(tmp_path))
    return ask


def test_llm_answers(llm, server, saw):
    right = server.chat(QUESTION, max_tokens=N_TOKENS)
    for more in ([], ["--no-stream"]):
        answer, usage = llm(server, "-m", "chat", QUESTION, "-o", "max_tokens", str(N_TOKENS), "-u", *more)
        assert answer.rstrip("\n") == right["choices"][0]["message"]["content"].rstrip("\n")
        assert f"{right['usage']['completion_tokens']} output" in usage
    again, _ = llm(server, "-c", "And one more?", "-o", "max_tokens", str(N_TOKENS))  # continues the conversation
    messages = [{"role": "user", "content": QUESTION}, right["choices"][0]["message"], {"role": "user", "content": "And one more?"}]
    found = server.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": N_TOKENS}).json()
    assert again.rstrip("\n") == found["choices"][0]["message"]["content"].rstrip("\n")
    text, _ = llm(server, "-m", "text", "Once upon a time", "-o", "max_tokens", "8")
    assert text.rstrip("\n") == server.complete(max_tokens=8)["choices"][0]["text"].rstrip("\n")
    saw.works("llm", "whole answers and streams with their usage", "conversations", "completions")


def test_llm_shows_errors(llm, server, narrow, saw):  # noqa: F811
    with pytest.raises(Failed, match="maximum context length is 1024 tokens"):
        llm(server, "-m", "chat", "word " * 2000)
    with pytest.raises(Failed, match="401"):
        llm(narrow, "-m", "chat", QUESTION, key="wrong")
    with crowded(narrow), pytest.raises(Failed, match="429.*queue is full"):
        llm(narrow, "-m", "chat", QUESTION, key=KEY)
    saw.works("llm", "errors are shown: a prompt beyond the context, a wrong key, a full queue")


def test_llm_interrupted(narrow, tmp_path, saw):  # noqa: F811
    (tmp_path / "extra-openai-models.yaml").write_text(LLM_MODELS.format(name=NAME, url=narrow.url + "/v1"), encoding="utf-8")
    process = subprocess.Popen([LLM, "-m", "text", "Once", "--key", KEY, "-o", "max_tokens", str(LONG)], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, env={**os.environ, "LLM_USER_PATH": str(tmp_path), "PYTHONUNBUFFERED": "1"})
    assert process.stdout.read(1)
    aborted = narrow.metrics().get(ABORTED, 0)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    narrow.wait_until_idle()
    assert process.returncode != 0 and narrow.metrics()[ABORTED] == aborted + 1
    saw.works("llm", "Ctrl-C ends the computation")


def test_llm_tools_and_schemas(llm, server, tooled, saw):
    arguments = ["-m", "chat", "-o", "max_tokens", "64", "What time is it?"]
    assert llm(tooled, *arguments, "-T", "llm_time")[0].strip()
    saw.works("llm", "tools")
    with pytest.raises(Failed, match="tool"):  # the test model's template does not render them
        llm(server, *arguments, "-T", "llm_time")
    saw.served_or_refused("llm", "schemas", ["response_format"], lambda: llm(server, *arguments, "--schema", "name, age int"),
                          lambda found: '"name"' in found[0], Failed)


# ---- aider --------------------------------------------------------------------------------------------

AIDER_SETTINGS = "- {{name: openai/{name}, extra_params: {{max_tokens: {n}, temperature: 0}}, streaming: {streaming}}}\n"


@pytest.fixture
def aider(tmp_path):
    """aider(server, streaming, question, file) returns the program's answer to one question about a file."""
    def ask(server, streaming, question, text="def add(a, b): return a - b\n", key="none"):
        (tmp_path / "settings.yml").write_text(AIDER_SETTINGS.format(name=NAME, n=N_TOKENS, streaming=str(streaming).lower()), encoding="utf-8")
        (tmp_path / "sum.py").write_text(text, encoding="utf-8")
        command = [AIDER, "--model", f"openai/{NAME}", "--openai-api-base", server.url + "/v1", "--openai-api-key", key,
                   "--model-settings-file", "settings.yml", "--no-git", "--yes-always", "--no-check-update", "--no-show-model-warnings",
                   "--no-show-release-notes", "--analytics-disable", "--no-pretty", "--no-fancy-input", "--map-tokens", "0",
                   "--chat-mode", "ask", "--message", question, "sum.py"]
        return "".join(run(command, tmp_path, LITELLM_LOCAL_MODEL_COST_MAP="True"))
    return ask


@pytest.mark.parametrize("streaming", [False, True])
def test_aider_answers(aider, server, saw, streaming):
    before = server.metric("vllm:request_success_total"), server.metric("vllm:generation_tokens_total")
    said = aider(server, streaming, "What does it do?")
    after = server.metric("vllm:request_success_total"), server.metric("vllm:generation_tokens_total")
    received = int(re.search(r"Tokens: \d+ sent, (\d+) received", said)[1])  # for a stream it counts them itself
    assert after[0] == before[0] + 1 and after[1] - before[1] - received in ([0, 1] if streaming else [0]), said
    saw.works("aider", "streams" if streaming else "whole answers with their usage")


def test_aider_shows_errors(aider, server, narrow, saw):  # noqa: F811
    said = aider(server, True, "What does it do?", text="x = 1\n" * 1000)
    assert "ContextWindowExceededError" in said or "token limit" in said, said
    assert "AuthenticationError" in aider(narrow, True, "What does it do?", key="wrong")
    saw.works("aider", "a prompt beyond the context is recognised", "a wrong key too")


# ---- inspect-ai ---------------------------------------------------------------------------------------


def model_of(server, provider="openai-api/penstock", key="none", n_tokens=N_TOKENS, **config):
    return get_model(f"{provider}/{NAME}", base_url=server.url + "/v1", api_key=key, memoize=False,
                     config=GenerateConfig(temperature=0, max_tokens=n_tokens, max_retries=0, **config))


def outcome(model, text, **more):
    return asyncio.run(model.generate(text, **more))


def run_task(model, tmp_path, **config):
    samples = [Sample(input=QUESTION, target="e"), Sample(input="Name a river.", target="~nowhere~")]
    task = Task(dataset=samples, solver=generate(), scorer=includes())
    return evaluate(task, model=model, display="none", log_dir=str(tmp_path), max_connections=2, **config)[0]


def test_inspect_evaluates(server, tmp_path, saw):
    log = run_task(model_of(server, logprobs=True, top_logprobs=2), tmp_path)
    assert log.status == "success", log.error
    right = [server.chat(text, max_tokens=N_TOKENS)["choices"][0]["message"]["content"] for text in (QUESTION, "Name a river.")]
    assert [sample.output.completion for sample in log.samples] == right
    assert log.results.scores[0].metrics["accuracy"].value == 0.5
    usage, = log.stats.model_usage.values()
    assert usage.output_tokens == 2 * N_TOKENS
    assert all(len(sample.output.choices[0].logprobs.content) == N_TOKENS for sample in log.samples)
    saw.works("inspect-ai", "evaluations (`openai-api/`) with usage and logprobs")
    assert outcome(model_of(server, "vllm"), QUESTION).completion == right[0]
    saw.works("inspect-ai", "its provider for vLLM's servers (`vllm/`)")


def test_inspect_recognises_errors(server, narrow, tmp_path, saw):  # noqa: F811
    found = outcome(model_of(server), "word " * 2000)
    assert found.stop_reason == "model_length" and "maximum context length" in found.completion
    log = run_task(model_of(narrow, key="wrong"), tmp_path)
    assert log.status == "error" and "401" in log.error.message
    saw.works("inspect-ai", "a prompt beyond the context is its stop reason `model_length`", "keys")


def test_inspect_tries_again(narrow, tmp_path, saw):  # noqa: F811
    model = get_model(f"openai-api/penstock/{NAME}", base_url=narrow.url + "/v1", api_key=KEY, memoize=False,
                      config=GenerateConfig(temperature=0, max_tokens=4, max_retries=8))
    with crowded(narrow) as leave:
        async def ask():
            answer = asyncio.create_task(model.generate(QUESTION))
            await asyncio.sleep(1)
            assert not answer.done()
            leave()
            return await answer
        begun = time.monotonic()
        assert asyncio.run(ask()).completion and time.monotonic() - begun > 1
    saw.works("inspect-ai", "429 of a full queue is tried again")


def test_inspect_tools_and_schemas(server, tooled, saw):
    tool = ToolInfo(name="paint", description="Paints a wall.", parameters=ToolParams(
        properties={"name": ToolParam(type="string", description="The colour.")}, required=["name"]))
    found = outcome_or_raise(model_of(tooled, n_tokens=64), "Paint it red.", tools=[tool], tool_choice=ToolFunction("paint"))
    assert found.message.tool_calls[0].function == "paint"
    saw.works("inspect-ai", "tools")
    schema = JSONSchema(type="object", properties={"name": JSONSchema(type="string")}, required=["name"])
    model = model_of(server, response_schema=ResponseSchema(name="colour", json_schema=schema))
    saw.served_or_refused("inspect-ai", "structured output", ["response_format"], lambda: outcome_or_raise(model, "Name a colour."),
                          lambda found: '"name"' in found.completion, RuntimeError)


def outcome_or_raise(model, text, **more):
    """inspect-ai returns some errors of the server as outputs, and raises others."""
    found = outcome(model, text, **more)
    if found.error or found.stop_reason in ("unknown", "content_filter"):
        raise RuntimeError(f"{found.error} {found.completion}")
    return found


def test_inspect_responses(server, saw):
    saw.served_or_missing("inspect-ai", "its provider `openai/`", "/v1/responses", lambda: outcome_or_raise(model_of(server, "openai"), QUESTION),
                          lambda found: found.completion, Exception)
