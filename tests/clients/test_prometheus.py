"""A real Prometheus scrapes a busy server and answers the queries of boards."""
import contextlib
import math
import pathlib
import subprocess
import threading
import time

import boards
import httpx
import pytest
from e2e.conftest import NAME, ROOT, free_port

PACKAGE = pathlib.Path(ROOT, "build/clients/prometheus/usr/bin")
LOAD_SECONDS, SPAN, START_SECONDS = 15, "30s", 30
CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
- job_name: penstock
  authorization: {{credentials: scrape}}
  static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


class Prometheus:
    """A running Prometheus with one target."""

    def __init__(self, folder, target):
        port = free_port()
        (folder / "prometheus.yml").write_text(CONFIG.format(port=target), encoding="utf-8")
        self.log = open(folder / "log", "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [PACKAGE / "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{port}"], stdout=self.log, stderr=self.log)
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=30)

    def wait_until_scraping(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                answer = self.http.get("/targets")  # 503 before it has started
                targets = answer.json()["data"]["activeTargets"] if answer.status_code == 200 else []
                if targets and targets[0]["health"] == "up":
                    return
            time.sleep(0.1)
        raise AssertionError(f"Prometheus did not scrape:\n{self.read_log()}")

    def query(self, expression):
        """Returns [(labels, value)] of an expression, now."""
        answer = self.http.post("/query", data={"query": expression})
        assert answer.status_code == 200, f"{expression}: {answer.text}"
        return [(one["metric"], float(one["value"][1])) for one in answer.json()["data"]["result"]]

    def number(self, expression):
        (_, value), = self.query(expression)
        return value

    def read_log(self):
        self.log.seek(0)
        return self.log.read()

    def stop(self):
        self.http.close()
        self.process.terminate()
        self.process.wait(30)
        self.log.close()


def ask_until(server, end, tokens, number):
    """Sends requests of several kinds, one after another, and counts the tokens of the answers."""
    with httpx.Client(base_url=server.url, timeout=60) as http:
        while time.monotonic() < end:
            body = {"model": NAME, "prompt": f"Once upon a time, far away in the mountains, there lived {number} dragons",
                    "max_tokens": 12, "n": 1 + number % 2, "ignore_eos": number % 3 > 0}
            answer = http.post("/v1/completions", json=body)
            assert answer.status_code == 200, answer.text
            tokens[number] += answer.json()["usage"]["completion_tokens"]


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    """(server, Prometheus, tokens that clients got) after some seconds of load with scrapes. Some requests still run."""
    from e2e.conftest import Server
    server = Server("--max-model-len", "1024", "--kv-cache-memory", "256MiB", "--metrics-key", "scrape", "--max-num-seqs", "4",
                    "--drain-delay", "0")
    prometheus = None
    try:
        server.wait_until_ready()
        prometheus = Prometheus(tmp_path_factory.mktemp("prometheus"), server.port)
        prometheus.wait_until_scraping()
        end, tokens = time.monotonic() + LOAD_SECONDS, [0] * 6
        clients = [threading.Thread(target=ask_until, args=(server, end, tokens, i)) for i in range(len(tokens))]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        assert all(tokens), tokens
        time.sleep(2.5)  # two more scrapes after the end
        yield server, prometheus, sum(tokens)
    finally:
        if prometheus:
            prometheus.stop()
        server.stop()


def test_every_scrape_succeeds(busy):
    _, prometheus, _ = busy
    target, = prometheus.http.get("/targets").json()["data"]["activeTargets"]
    assert target["health"] == "up" and target["lastError"] == ""
    assert prometheus.number("count_over_time(up[1m])") >= 0.7 * LOAD_SECONDS
    assert prometheus.number("min_over_time(up[1m])") == 1
    assert prometheus.number("max_over_time(scrape_duration_seconds[1m])") < 1
    assert prometheus.number("scrape_samples_scraped") == prometheus.number("scrape_samples_post_metric_relabeling") > 300
    bad = [line for line in prometheus.read_log().splitlines() if "level=warn" in line or "level=error" in line]
    assert not bad, bad


def test_boards_have_data(busy, saw):
    _, prometheus, _ = busy
    vllm = [boards.promql(e, SPAN, job="penstock", model_name=NAME, engine="0") for e in boards.EXPRESSIONS]
    own = [boards.own_promql(e, SPAN) for e in boards.own_expressions()]
    assert len(vllm) > 200 and len(own) > 25
    for query in vllm + own:
        found = prometheus.query(query)
        assert found, f"no samples: {query}"
        assert not any(math.isnan(value) for _, value in found), f"{query}: {found}"
    saw.works("Prometheus", "scrapes under load", f"{len(vllm)} expressions of vLLM's boards and {len(own)} of `deploy/grafana` have data")


def test_types_and_help_arrive(busy, saw):
    _, prometheus, _ = busy
    told = {m["metric"]: m for m in prometheus.http.get("/targets/metadata").json()["data"]}
    assert told["vllm:prompt_tokens"]["type"] == "counter" and told["vllm:kv_cache_usage_perc"]["type"] == "gauge"
    assert told["vllm:time_to_first_token_seconds"]["type"] == "histogram" and told["penstock_build"]["type"] == "info"
    assert told["process_cpu_seconds"]["unit"] == "seconds"
    own = [m for name, m in told.items() if not name.startswith(("scrape_", "up"))]
    assert len(own) > 40 and all(m["help"] for m in own)
    saw.works("Prometheus", "OpenMetrics with types, units and help")


def test_numbers_are_those_of_the_clients(busy):
    _, prometheus, tokens = busy
    assert prometheus.number("vllm:generation_tokens_total") == tokens
    assert prometheus.number("vllm:request_generation_tokens_sum") == tokens
    assert prometheus.number("sum(vllm:request_success_total)") == prometheus.number("vllm:request_generation_tokens_count")
    assert prometheus.number("vllm:request_prompt_tokens_sum") == prometheus.number("vllm:prompt_tokens_total")
    answers = prometheus.number('http_requests_total{handler="/v1/completions",method="POST",status="2xx"}')
    assert answers == prometheus.number("vllm:request_params_n_count") == prometheus.number("vllm:e2e_request_latency_seconds_count")


def test_promtool_finds_nothing_but_the_names_of_vllm(busy):
    server, _, _ = busy
    text = server.http.get("/metrics", headers={"authorization": "Bearer scrape"}).text
    done = subprocess.run([PACKAGE / "promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    # A colon is reserved for recorded rules, but vLLM's names contain one; its histogram of tokens ends like a counter.
    known = ("metric names should not contain ':'", 'non-counter metrics should not have "_total" suffix',
             "metric names should not contain abbreviated units")
    found = [line for line in done.stderr.splitlines() if not (line.startswith("vllm:") and line.split(" ", 1)[1] in known)]
    assert not found and done.returncode in (0, 3), done.stderr
