"""--otlp-traces-endpoint: spans as a collector gets them, decoded by OTLP's own definitions."""
import base64
import contextlib
import http.server
import json
import signal
import threading
import time

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from conftest import NAME, Server, free_port
from sse import stream
from streams import ENDLESS, until

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADERS = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1, other=2"}
SERVER, INTERNAL = 2, 1  # kinds of spans
SECRET = "The password is xyzzy"  # a prompt that no span may show
ENVIRONMENT = {"OTEL_SERVICE_NAME": "tests", "OTEL_EXPORTER_OTLP_HEADERS": "api-key=one%20two"}


def with_base64_ids(value):
    """OTLP's JSON has ids in hex, the JSON of Protobuf has them in base64."""
    if isinstance(value, list):
        return [with_base64_ids(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: base64.b64encode(bytes.fromhex(one)).decode() if key in ("traceId", "spanId", "parentSpanId") else with_base64_ids(one)
            for key, one in value.items()}


def plain(value):
    """The Python value of an AnyValue."""
    kind = value.WhichOneof("value")
    return [plain(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)


def attributes(owner):
    return {one.key: plain(one.value) for one in owner.attributes}


class Collector:
    """Keeps the messages that it gets. `answer` is a status code, or None: it never answers."""

    def __init__(self, answer=200):
        self.messages, self.headers, self.answer, self.freed = [], [], answer, threading.Event()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json"
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.headers.append(dict(self.headers))
                collector.messages.append(body)
                if collector.answer is None:
                    collector.freed.wait(60)
                    self.close_connection = True
                    return
                self.send_response(collector.answer)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *arguments):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1/traces"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def spans(self):
        found = []
        for body in list(self.messages):
            message = json_format.Parse(json.dumps(with_base64_ids(json.loads(body))), ExportTraceServiceRequest())
            for resource in message.resource_spans:
                assert attributes(resource.resource)["service.name"] == "tests"
                found += [span for scope in resource.scope_spans for span in scope.spans]
        return found

    def trace(self, response):
        """Waits for the trace of an answer. Returns its own span, and its children by name."""
        version, trace, span, flags = response.headers["traceresponse"].split("-")
        assert (version, flags) == ("00", "01")
        end = time.monotonic() + 60
        while time.monotonic() < end:
            spans = [one for one in self.spans() if one.trace_id.hex() == trace]
            own = [one for one in spans if one.span_id.hex() == span]
            if own:
                children = {one.name: one for one in spans if one.parent_span_id.hex() == span}
                check_times(own[0], children)
                return own[0], children
            time.sleep(0.05)
        raise AssertionError("the collector got no span of the request")

    def close(self):
        self.freed.set()
        self.http.shutdown()
        self.http.server_close()


def check_times(own, children):
    order = [name for name in ("received", "prepared", "queued", "prefill", "decode") if name in children]
    assert own.kind == SERVER and set(order) == set(children)
    assert time.time() - 600 < own.start_time_unix_nano / 1e9 <= own.end_time_unix_nano / 1e9 < time.time() + 1
    last = own.start_time_unix_nano
    for name in order:
        child = children[name]
        assert child.kind == INTERNAL and child.start_time_unix_nano == last
        assert child.end_time_unix_nano >= child.start_time_unix_nano
        last = child.end_time_unix_nano
    assert last <= own.end_time_unix_nano


@pytest.fixture(scope="module")
def collector():
    one = Collector()
    yield one
    one.close()


@pytest.fixture(scope="module")
def traced(collector):
    """A server whose spans the module's collector gets."""
    one = Server(*ENDLESS, "--kv-cache-memory", "256MiB", "--max-num-seqs", "2",
                 "--otlp-traces-endpoint", collector.url, env=ENVIRONMENT)
    try:
        yield one.wait_until_ready()
        assert one.process.poll() is None
    finally:
        one.stop()
    for body in collector.messages:
        assert b"xyzzy" not in body and b"password" not in body


def test_a_whole_answer(traced, collector):
    body = {"model": NAME, "prompt": SECRET, "max_tokens": 5, "temperature": 0, "ignore_eos": True}
    answer = traced.post("/v1/completions", body, headers=HEADERS)
    own, children = collector.trace(answer)
    assert own.trace_id.hex() == TRACE and own.parent_span_id.hex() == PARENT
    assert own.trace_state == "vendor=1,other=2" and own.flags == 0x301
    assert own.name == "POST /v1/completions" and own.status.code == 0
    assert list(children) == ["received", "prepared", "queued", "prefill", "decode"]
    found, usage = attributes(own), answer.json()["usage"]
    assert found["http.request.method"] == "POST" and found["http.route"] == "/v1/completions"
    assert found["http.response.status_code"] == 200 and "error.type" not in found
    assert found["gen_ai.operation.name"] == "text_completion" and found["gen_ai.request.model"] == NAME
    assert found["gen_ai.response.id"] == answer.json()["id"]
    assert found["gen_ai.response.finish_reasons"] == ["length"]
    assert found["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert found["gen_ai.usage.output_tokens"] == usage["completion_tokens"] == 5
    assert found["gen_ai.request.max_tokens"] == 5 and found["gen_ai.request.temperature"] == 0
    assert 0 < found["gen_ai.latency.time_to_first_token"] < found["gen_ai.latency.e2e"] < 60
    assert collector.headers[-1]["api-key"] == "one two"
    assert f"trace_id={TRACE}" in traced.log_tail()


def test_a_stream(traced, collector):
    body = {"model": NAME, "messages": [{"role": "user", "content": SECRET}], "max_tokens": 6, "n": 2, "ignore_eos": True}
    answer, events = stream(traced, "/v1/chat/completions", body)
    assert len(events) > 6
    own, children = collector.trace(answer)
    assert not own.parent_span_id and own.flags == 0x101 and set(children) >= {"prefill", "decode"}
    found = attributes(own)
    assert found["gen_ai.operation.name"] == "chat" and found["gen_ai.request.choice.count"] == 2
    assert len(found["gen_ai.response.finish_reasons"]) == 2


def test_other_requests_have_a_span_without_children(traced, collector):
    for answer in (traced.http.get("/v1/models"), traced.post("/tokenize", {"prompt": SECRET})):
        own, children = collector.trace(answer)
        assert not children and attributes(own)["http.response.status_code"] == 200
        assert not [key for key in attributes(own) if key.startswith("gen_ai.")]
    own, _ = collector.trace(traced.post("/v1/embeddings", {"model": NAME, "input": SECRET}))
    assert attributes(own)["gen_ai.operation.name"] == "embeddings"
    assert "traceresponse" not in traced.http.get("/health").headers
    assert "traceresponse" not in traced.http.get("/metrics").headers


def test_refused_requests(traced, collector):
    answer = traced.post("/v1/completions", {"model": NAME, "prompt": SECRET, "temperature": "warm"})
    own, children = collector.trace(answer)
    found = attributes(own)
    assert answer.status_code == 400 and own.status.code == 0 and list(children) == ["received", "prepared"]
    assert found["http.response.status_code"] == 400 and found["error.type"] == "invalid_request_error"
    own, _ = collector.trace(traced.post("/v1/completions", {"model": "another", "prompt": SECRET}))
    assert attributes(own)["error.type"] == "model_not_found"
    own, children = collector.trace(traced.http.get("/xyzzy-is-no-path"))
    assert own.name == "GET" and "http.route" not in attributes(own) and not children
    assert attributes(own)["http.response.status_code"] == 404
    own, _ = collector.trace(traced.http.request("BREW", "/v1/models"))
    assert attributes(own)["http.request.method"] == "_OTHER" and attributes(own)["http.response.status_code"] == 405


def test_a_client_that_leaves(traced, collector):
    body = {"model": NAME, "prompt": SECRET, "max_tokens": 7000, "stream": True, "ignore_eos": True}
    with traced.http.stream("POST", "/v1/completions", json=body) as answer:
        next(answer.iter_lines())
    own, children = collector.trace(answer)
    found = attributes(own)
    assert found["error.type"] == "client_closed_request" and "http.response.status_code" not in found
    assert "decode" in children and 0 < found["gen_ai.usage.output_tokens"] < 7000
    traced.wait_until_idle()


def test_a_request_that_waits_has_no_prefill(traced, collector):
    long = {"model": NAME, "prompt": "Count:", "max_tokens": 7000, "stream": True, "ignore_eos": True}
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(traced.http.stream("POST", "/v1/completions", json=long)).iter_lines() for _ in range(2)]
        for lines in streams:
            next(lines)
        late = traced.post("/v1/completions", {"model": NAME, "prompt": SECRET, "max_tokens": 4, "deadline_ms": 300})
    own, children = collector.trace(late)
    assert "prefill" not in children and attributes(own)["error.type"] in ("deadline_exceeded", "deadline_unreachable")
    traced.wait_until_idle()


def test_a_deadline_that_passes(traced, collector):
    answer = traced.post("/v1/completions", {"model": NAME, "prompt": SECRET, "max_tokens": 7000, "ignore_eos": True,
                                             "deadline_ms": 3000})
    own, children = collector.trace(answer)
    found = attributes(own)
    assert answer.status_code == 200 and found["gen_ai.response.finish_reasons"] == ["timeout"]
    assert found["error.type"] == "deadline_exceeded" and "decode" in children


def test_clients_decide_whether_they_are_traced(traced, collector):
    answer = traced.http.get("/v1/models", headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})
    assert "traceresponse" not in answer.headers
    for value in (f"00-{TRACE}-{'0' * 16}-01", f"ff-{TRACE}-{PARENT}-01", "junk"):
        own, _ = collector.trace(traced.http.get("/v1/models", headers={"traceparent": value, "tracestate": "a=1"}))
        assert own.trace_id.hex() != TRACE and not own.parent_span_id and not own.trace_state
    twice = [("traceparent", HEADERS["traceparent"])] * 2
    own, _ = collector.trace(traced.http.get("/v1/models", headers=twice))
    assert own.trace_id.hex() != TRACE  # two parents are none
    own, _ = collector.trace(traced.http.get("/v1/models", headers={**HEADERS, "tracestate": "no state"}))
    assert own.trace_id.hex() == TRACE and not own.trace_state


def processor_seconds(server):
    with open(f"/proc/{server.process.pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_an_idle_server_does_nothing(traced, collector):
    collector.trace(traced.http.get("/v1/models"))
    traced.wait_until_idle()

    def rests():
        before, messages = processor_seconds(traced), len(collector.messages)
        time.sleep(3)
        return processor_seconds(traced) - before <= 0.02 and len(collector.messages) == messages
    until(rests)  # at first the threads may be awake after the request


def test_the_count_of_traced_requests(traced, collector):
    collector.trace(traced.http.get("/v1/models"))
    own = [span for span in collector.spans() if span.kind == SERVER]
    until(lambda: traced.metrics()['penstock_traced_requests_total{result="sent"}'] == len(own))  # after the collector's answer
    metrics = traced.metrics()
    assert metrics["penstock_trace_rejected_spans_total"] == 0
    assert metrics['penstock_traced_requests_total{result="failed"}'] == 0


def median_ms(servers, n=15):
    """The median time of a request to each of the servers, which are asked in turn."""
    times = [[] for _ in servers]
    for _ in range(n):
        for server, own in zip(servers, times):
            begin = time.monotonic()
            server.complete(max_tokens=4, ignore_eos=True)
            own.append((time.monotonic() - begin) * 1e3)
    return [sorted(own)[n // 2] for own in times]


def end_seconds(server):
    begin = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0
    return time.monotonic() - begin


@pytest.mark.parametrize("kind", ["hangs", "refuses", "is dead"])
def test_a_collector_that_fails_delays_nothing(start, kind):
    collector = Collector(answer=None if kind == "hangs" else 503)
    url = f"http://127.0.0.1:{free_port()}/v1/traces" if kind == "is dead" else collector.url
    try:
        plain_server, server = start(), start("--otlp-traces-endpoint", url)
        server.complete(max_tokens=4)
        if kind != "is dead":
            until(lambda: collector.messages)  # the message is under way, or waits for its next try
        without, with_traces = median_ms([plain_server, server])
        assert with_traces < 3 * without + 500  # less than any pause of the sender
        alone, seconds = end_seconds(plain_server), end_seconds(server)
        assert seconds < alone + 8  # less than the limit of a message
        assert "the spans of the last" in server.log_tail()
    finally:
        collector.close()


def test_a_full_queue_loses_spans_and_counts_them(start):
    server = start("--otlp-traces-endpoint", f"http://127.0.0.1:{free_port()}")
    for _ in range(2300):
        assert server.http.get("/v1/models").status_code == 200
    until(lambda: sum(server.metrics()[f'penstock_traced_requests_total{{result="{one}"}}'] for one in ("queue_full", "failed")) >= 2300 - 2048)
    assert server.metrics()['penstock_traced_requests_total{result="sent"}'] == 0
    assert server.http.get("/v1/models").status_code == 200


def threads(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("Threads:"))


def has_library(server):
    with open(f"/proc/{server.process.pid}/maps") as maps:
        return "libcurl" in maps.read()


def test_without_the_option_there_is_no_thread_and_no_library(start, traced):
    server = start("--max-num-seqs", "2", *ENDLESS)
    answer = server.http.get("/v1/models", headers=HEADERS)
    assert "traceresponse" not in answer.headers
    assert not has_library(server) and has_library(traced)
    until(lambda: threads(server) == threads(traced) - 1)  # a thread that has ended may still be listed


@pytest.mark.parametrize("flags, text", [
    (["--otlp-traces-endpoint", "127.0.0.1:4317"], "must begin with http"),
    (["--otlp-traces-sampler-ratio", "0.5"], "is used with --otlp-traces-endpoint"),
    (["--otlp-traces-endpoint", "http://a/", "--otlp-traces-sampler-ratio", "1.5"], "--otlp-traces-sampler-ratio")])
def test_wrong_options_are_named(start, flags, text):
    server = start(*flags, ready=False)
    assert server.process.wait(60) in (1, 2) and text in server.log_tail()
