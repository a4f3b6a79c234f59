"""Tools that measure such servers: guidellm, aiperf, locust, ab and wrk. Their reports are compared with the server's
metrics."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from e2e.conftest import MODEL, NAME, ROOT

HERE = pathlib.Path(__file__).parent
TORCH = pathlib.Path(os.environ.get("TORCH_VENV", ROOT / "build/clients/torch"), "bin")
AIPERF = pathlib.Path(os.environ.get("AIPERF_VENV", ROOT / "build/clients/aiperf"), "bin/aiperf")
OUTPUT = 8  # tokens of each answer
BODY = {"model": NAME, "prompt": "Once upon a time", "max_tokens": OUTPUT, "temperature": 0, "ignore_eos": True}


def run(*command, codes=(0,), **environment):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL, timeout=300,
                          env={**os.environ, **environment}, check=False)
    assert done.returncode in codes, done.stdout[-5000:]
    return done.stdout


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A folder with the model's tokenizer, with which tools make prompts of a given length."""
    folder = tmp_path_factory.mktemp("tokenizer")
    run(TORCH / "python", HERE / "hf_model.py", MODEL, folder, "--tokenizer-only", HF_HUB_OFFLINE="1")
    return folder


class Counted:
    """The server's work since a moment."""

    def __init__(self, server):
        self.server = server
        self.before = self.now()

    def now(self):
        self.server.wait_until_idle()
        return [self.server.metric("vllm:" + name) for name in ("request_success_total", "generation_tokens_total")]

    def since(self):
        return tuple(int(b - a) for a, b in zip(self.before, self.now()))


# ---- tools made for language models ------------------------------------------------------------------


@pytest.mark.parametrize("profile,request_format", [("kind=synchronous", "/v1/chat/completions"),
                                                    ("kind=concurrent,streams=3", "/v1/completions")])
def test_guidellm(server, tokenizer, tmp_path, saw, profile, request_format):
    counted, n = Counted(server), 6
    report = tmp_path / "report.json"
    run(TORCH / "guidellm", "run", "--backend", f"kind=openai_http,target={server.url},model={NAME},request_format={request_format}",
        "--profile", profile, "--constraint", f"kind=max_requests,count={n}", "--tokenizer", f"kind=hf_auto,model={tokenizer}",
        "--data", f"kind=synthetic_text,prompt_tokens=32,output_tokens={OUTPUT}", "--disable-console-interactive",
        "--output", f"kind=json,path={report}", HF_HUB_OFFLINE="1")
    one, = json.loads(report.read_text(encoding="utf-8"))["benchmarks"]
    totals, requests = one["metrics"]["request_totals"], one["requests"]["successful"]
    assert totals["errored"] == 0 and totals["successful"] >= n == len(requests) or totals["successful"] == len(requests), totals
    assert all(r["output_tokens"] == OUTPUT and r["output"] and r["time_to_first_token_ms"] < r["request_latency"] * 1e3 for r in requests)
    requests_done, tokens = counted.since()
    assert requests_done >= n and tokens >= n * OUTPUT
    kind = "one by one" if "synchronous" in profile else "concurrent"
    saw.works("guidellm", f"{kind} streams of `{request_format}` with TTFT, ITL and usage")


def test_aiperf(server, tokenizer, tmp_path, saw):
    counted, n = Counted(server), 6
    for kind in ("chat", "completions"):
        run(AIPERF, "profile", "--model", NAME, "--url", server.url, "--endpoint-type", kind, "--streaming", "--concurrency", "2",
            "--request-count", str(n), "--tokenizer", tokenizer, "--synthetic-input-tokens-mean", "32", "--output-tokens-mean",
            str(OUTPUT), "--extra-inputs", "ignore_eos:true", "--ui", "simple", "--artifact-dir", tmp_path / kind, "--no-gpu-telemetry")
        found = json.loads((tmp_path / kind / "profile_export_aiperf.json").read_text(encoding="utf-8"))
        assert found["request_count"]["avg"] == n and not found["error_summary"]
        assert found["usage_completion_tokens"]["min"] == found["usage_completion_tokens"]["max"] == OUTPUT
        assert 0 < found["time_to_first_token"]["avg"] < found["request_latency"]["avg"]
        metrics = json.loads((tmp_path / kind / "server_metrics_export.json").read_text(encoding="utf-8"))
        assert "vllm:time_to_first_token_seconds" in metrics["metrics"]
    assert counted.since() == (2 * n, 2 * n * OUTPUT)
    saw.works("aiperf", "streams of `/v1/chat/completions` and `/v1/completions` with TTFT, ITL and usage", "the server's own metrics")


# ---- tools for any HTTP server -----------------------------------------------------------------------


def test_locust(server, saw):
    counted = Counted(server)
    text = run(sys.executable, "-m", "locust", "-f", HERE / "locustfile.py", "--headless", "--host", server.url, "-u", "4", "-r", "4",
        "-t", "6s", "--stop-timeout", "60", "--json", "--skip-log")
    found = {one["name"]: one for one in json.loads(text)}
    assert found["whole"]["num_requests"] > 0 and found["stream"]["num_requests"] > 0
    assert not any(one["num_failures"] for one in found.values())
    assert counted.since()[0] == sum(one["num_requests"] for one in found.values())
    saw.works("locust", "whole answers and streams of several users, without failures")


def test_ab(server, tmp_path, saw):
    """ab speaks HTTP/1.0, with and without keep-alive."""
    (tmp_path / "body.json").write_text(json.dumps(BODY), encoding="utf-8")
    n = 24
    for flags in ([], ["-k"]):
        counted = Counted(server)
        text = run("ab", *flags, "-n", str(n), "-c", "4", "-p", tmp_path / "body.json", "-T", "application/json", server.url + "/v1/completions")
        number = {name: int(value) for name, value in re.findall(r"^([\w -]+?):? +(\d+)(?: |$)", text.replace(":", ": "), re.M)}
        assert number["Complete requests"] == n and number["Failed requests"] == 0 and "Non-2xx responses" not in number, text
        assert number.get("Keep-Alive requests", 0) == (n if flags else 0), text
        assert counted.since() == (n, n * OUTPUT)
    saw.works("ab", "HTTP/1.0 with and without keep-alive: answers of equal length, without failures")


WRK = """
wrk.method, wrk.body = "POST", '{body}'
wrk.headers["Content-Type"] = "application/json"
local threads = {{}}
function setup(thread) table.insert(threads, thread) end
function init() good, bad = 0, 0 end
function response(status, headers, body)
    if status == 200 and body:find('"finish_reason":"length"', 1, true) then good = good + 1 else bad = bad + 1 end
end
function done(summary, latency, requests)
    local all, wrong = 0, 0
    for _, thread in ipairs(threads) do
        all, wrong = all + thread:get("good"), wrong + thread:get("bad")
    end
    local e = summary.errors
    print(("good=%d bad=%d errors=%d"):format(all, wrong, e.connect + e.read + e.write + e.status))
end
"""


def test_wrk(server, tmp_path, saw):
    (tmp_path / "post.lua").write_text(WRK.format(body=json.dumps(BODY)), encoding="utf-8")
    counted = Counted(server)
    text = run("wrk", "-t", "2", "-c", "4", "-d", "5s", "--timeout", "60s", "-s", tmp_path / "post.lua", server.url + "/v1/completions")
    good, bad, errors = map(int, re.search(r"good=(\d+) bad=(\d+) errors=(\d+)", text).groups())
    assert good > 0 and bad == errors == 0, text
    assert good <= counted.since()[0] <= good + 4  # wrk disconnects during the last ones
    saw.works("wrk", "keep-alive connections with complete answers")
