"""GET /metrics: both text formats read with Prometheus' parser, the numbers that requests change, and the metrics of
boards."""
import os
import re
import time

import boards
import pytest
from conftest import NAME
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser
from streams import ENDLESS, until

COMPLETIONS = "/v1/completions"
STORY = "Once upon a time"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
# The Accept header of Prometheus 2.42.
PROMETHEUS_ACCEPTS = ("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
                      "text/plain;version=0.0.4;q=0.5,*/*;q=0.1")
LABEL = f'{{engine="0",model_name="{NAME}"}}'


def families(server, accept=None):
    """Returns {name: family} of a scrape, read by the parser for the answer's content type."""
    answer = server.http.get("/metrics", headers={"accept": accept} if accept else {})
    assert answer.status_code == 200
    if answer.headers["content-type"] == OPENMETRICS:
        read = list(openmetrics_parser.text_string_to_metric_families(answer.text))
    else:
        assert answer.headers["content-type"] == TEXT
        read = list(parser.text_string_to_metric_families(answer.text))
    assert len({family.name for family in read}) == len(read)
    return {family.name: family for family in read}


def samples(read):
    return {(s.name, frozenset(s.labels.items())): s.value for family in read.values() for s in family.samples}


def test_both_formats_say_the_same(server):
    server.complete(max_tokens=3)
    server.wait_until_idle()
    text, strict = families(server), families(server, PROMETHEUS_ACCEPTS)
    moving = re.compile("process_|penstock_http_|penstock_answer_|penstock_.*seconds")
    first, second = ({key: value for key, value in samples(read).items() if not moving.match(key[0])} for read in (text, strict))
    assert first == second and len(first) > 300
    assert {f.type for f in strict.values()} == {"counter", "gauge", "histogram", "info"}
    assert all(f.documentation for f in strict.values())
    assert strict["process_cpu_seconds"].unit == "seconds" and strict["process_resident_memory_bytes"].unit == "bytes"


@pytest.mark.parametrize("accept, kind", [
    ("text/plain", TEXT), ("*/*", TEXT), ("", TEXT), (PROMETHEUS_ACCEPTS, OPENMETRICS),
    ("application/openmetrics-text", OPENMETRICS), ("application/openmetrics-text;version=2.0.0", TEXT),
    ("application/openmetrics-text;q=0.1, text/plain", TEXT)])
def test_the_format_is_the_client_s_choice(server, accept, kind):
    assert server.http.get("/metrics", headers={"accept": accept}).headers["content-type"] == kind


def test_boards_find_what_they_ask_for(server):
    server.complete(max_tokens=3)
    found = samples(families(server))
    wanted = {(name, tuple(labels.items())) for e in boards.EXPRESSIONS for name, labels in boards.selectors(e)
              if labels.get("status") != "5xx"}
    own = {(name, tuple(labels.items())) for name, labels in boards.own_selectors()}
    assert len(wanted) > 120 and len(own) > 25
    for name, labels in wanted | own:
        common = {"engine": "0", "model_name": NAME} if name.startswith("vllm:") else {}
        of_name = [dict(key[1]) for key in found if key[0] == name]
        assert any({**common, **dict(labels)}.items() <= own.items() for own in of_name), (name, labels, of_name[:2])


def test_a_request_moves_the_numbers(server):
    server.wait_until_idle()
    before = server.metrics()
    server.complete(STORY, max_tokens=5)
    server.wait_until_idle()
    after = server.metrics()

    def grown(name, label=LABEL):
        return after[name + label] - before[name + label]
    assert grown("vllm:generation_tokens_total") == 5
    assert grown("vllm:request_success_total", f'{{engine="0",finished_reason="length",model_name="{NAME}"}}') == 1
    for name in ("time_to_first_token", "e2e_request_latency", "request_queue_time", "request_prefill_time", "request_decode_time",
                 "request_inference_time", "request_time_per_output_token"):
        assert grown(f"vllm:{name}_seconds_count") == 1, name
    assert grown("vllm:inter_token_latency_seconds_count") == 4
    assert grown("vllm:request_prompt_tokens_sum") == grown("vllm:prompt_tokens_total") > 0
    assert grown("vllm:request_generation_tokens_sum") == grown("vllm:request_params_max_tokens_sum") == 5
    assert grown("vllm:request_max_num_generation_tokens_sum") == 5
    assert grown("vllm:request_params_n_sum") == 1
    assert grown("vllm:iteration_tokens_total_count") >= 5
    queue, prefill, decode, whole, both = (grown(f"vllm:{name}_seconds_sum") for name in (
        "request_queue_time", "request_prefill_time", "request_decode_time", "e2e_request_latency", "request_inference_time"))
    assert 0 <= queue and 0 < prefill and 0 < decode
    assert both == pytest.approx(prefill + decode) and whole == pytest.approx(queue + both)
    assert grown("vllm:request_time_per_output_token_seconds_sum") == pytest.approx(
        grown("vllm:inter_token_latency_seconds_sum") / 4)


def test_choices_and_prompts_are_counted_apart(server):
    server.wait_until_idle()
    before = server.metrics()
    body = {"model": NAME, "prompt": [STORY, "Hello"], "n": 3, "max_tokens": 4, "ignore_eos": True}
    assert server.post(COMPLETIONS, body).status_code == 200
    server.wait_until_idle()
    after = server.metrics()
    counts = {"request_prompt_tokens": 2, "e2e_request_latency_seconds": 2, "request_params_n": 2, "time_to_first_token_seconds": 2,
              "request_max_num_generation_tokens": 2, "request_generation_tokens": 6,
              "request_time_per_output_token_seconds": 6}
    for name, count in counts.items():
        key = f"vllm:{name}_count{LABEL}"
        assert after[key] - before[key] == count, name
    assert after[f"vllm:request_params_n_sum{LABEL}"] - before[f"vllm:request_params_n_sum{LABEL}"] == 6


def test_a_found_prompt_is_counted_as_cached(server):
    prompt = "The metrics of a prompt that comes twice, and is longer than a block of the cache. " * 3
    server.complete(prompt, max_tokens=1)
    before = server.metrics()
    server.complete(prompt, max_tokens=1)
    after = server.metrics()

    def grown(name, label=""):
        return sum(after[key] - before[key] for key in after if key.startswith(name + "{") and label in key)
    whole, cached = grown("vllm:prompt_tokens_total"), grown("vllm:prompt_tokens_cached_total")
    assert 0 < cached < whole and cached % 16 == 0
    assert grown("vllm:prompt_tokens_by_source_total", 'source="local_cache_hit"') == cached
    assert grown("vllm:prompt_tokens_by_source_total", 'source="local_compute"') == whole - cached
    assert grown("vllm:prompt_tokens_by_source_total") == whole
    assert grown("vllm:request_prefill_kv_computed_tokens_sum") == whole - cached


def test_choices_of_clients_that_left_are_counted(start):
    server = start(*ENDLESS)
    body = {"model": NAME, "prompt": STORY, "n": 3, "max_tokens": 7000, "ignore_eos": True, "stream": True}
    with server.http.stream("POST", COMPLETIONS, json=body) as response:
        next(response.iter_raw())
    server.wait_until_idle()
    label = f'{{engine="0",finished_reason="abort",model_name="{NAME}"}}'
    assert server.metrics()["vllm:request_success_total" + label] == server.metric("vllm:request_success_total") == 3


def age_of(pid):
    """The seconds since a process began, as the kernel tells them."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat, open("/proc/uptime", encoding="utf-8") as uptime:
        began = int(stat.read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
        return float(uptime.read().split()[0]) - began


def test_the_process_is_told(server):
    read = server.metrics()
    age = time.time() - read["process_start_time_seconds"]
    assert age == pytest.approx(age_of(server.process.pid), abs=2)
    assert 0 < read["process_cpu_seconds_total"] < os.cpu_count() * (age + 2)
    status = open(f"/proc/{server.process.pid}/status", encoding="utf-8").read()
    resident = int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024
    assert read["process_resident_memory_bytes"] == pytest.approx(resident, rel=0.2)
    assert read["process_virtual_memory_bytes"] > read["process_resident_memory_bytes"]
    assert 5 < read["process_open_fds"] < read["process_max_fds"]


def test_keys_leave_scrapes_open_unless_they_have_their_own(start):
    server = start("--api-key", "secret")
    for path in ("/metrics", "/version", "/get_server_info"):
        assert server.http.get(path).status_code == 200
    server = start("--api-key", "secret", "--metrics-key", "scrape,other")
    for path in ("/metrics", "/version", "/get_server_info"):
        for value in ("", "Bearer secret", "Bearer scrape,other"):
            answer = server.http.get(path, headers={"authorization": value})
            assert answer.status_code == 401 and "metrics key" in answer.json()["error"]["message"]
        for key in ("scrape", "other"):
            assert server.http.get(path, headers={"authorization": f"Bearer {key}"}).status_code == 200
    assert server.http.get("/v1/models", headers={"authorization": "Bearer scrape"}).status_code == 401


def test_scrapes_and_probes_are_not_in_the_log(start):
    server = start("--metrics-key", "scrape")
    for path in ("/health", "/health/live", "/health/ready"):
        assert server.http.get(path).status_code == 200
    assert server.http.get("/metrics", headers={"authorization": "Bearer scrape"}).status_code == 200
    assert server.http.get("/metrics").status_code == 401
    assert server.http.get("/v1/models").status_code == 200
    until(lambda: "path=/v1/models " in server.log_tail())  # the log is written after an answer
    logged = re.findall(r"path=(\S+) status=(\d+)", server.log_tail())
    assert logged == [("/metrics", "401"), ("/v1/models", "200")]
