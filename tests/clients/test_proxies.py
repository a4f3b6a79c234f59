"""nginx, HAProxy and Envoy with the files of deploy/, vllm-router and sglang-router: tokens pass one by one, and restarts of
servers lose nothing."""
import pathlib
import socket
import sys
import tempfile
import time

import httpx
import pytest
import yaml

from e2e.conftest import NAME, ROOT, free_port
from fleet import PROMPTS, Crowd, chat, completion, in_front, replicas, running, wait_for_answers

SHIPPED = ["haproxy", "nginx", "envoy"]
ROWS = {"haproxy": "HAProxy", "nginx": "nginx", "envoy": "Envoy", "vllm-router": "vllm-router",
        "sglang-router": "sglang-router"}  # in docs/compatibility.md
SETTLE_SECONDS = 3  # until a restarted server gets requests again: longer than nginx excludes a server


@pytest.fixture(scope="module")
def servers():
    with replicas("--drain-delay", "3", "--admin-key", "boss") as both:
        yield both


@pytest.fixture(scope="module", params=SHIPPED)
def shipped_proxy(request, servers):
    with in_front(request.param, servers) as url:
        yield url


@pytest.fixture
def proxy_name(request, shipped_proxy):
    """The name in docs/compatibility.md."""
    return ROWS[request.node.callspec.params["shipped_proxy"]]


def reads_of(url, path, body):
    """Returns the contents of each read from a socket that contains events."""
    host, port = url.removeprefix("http://").split(":")
    text = httpx.Request("POST", url + path, json=body).content
    parts = []
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
                       f"Content-Length: {len(text)}\r\n\r\n".encode() + text)
        while part := client.recv(65536):
            parts.append(part)
    assert b" 200 " in parts[0].split(b"\r\n")[0]
    return [part for part in parts if b"data: " in part]


def test_a_token_a_read(shipped_proxy, proxy_name, saw):
    """Most reads hold one event. If a proxy waits for more, 12 tokens arrive in 3 reads. On a busy machine a few events
    may arrive together, but a proxy that waits does so in each stream."""
    for _ in range(8):
        counts = [part.count(b"data: ") for part in reads_of(shipped_proxy, *completion("Once upon a time", 40, stream=True))]
        assert sum(counts) == 41  # with [DONE]
        if counts.count(1) >= 30:
            break
    assert counts.count(1) >= 30, counts
    saw.works(proxy_name, "streams pass token by token with the configuration in `deploy/`")


def test_what_is_for_one_server_is_not_passed_on(shipped_proxy):
    for method, path in [("GET", "/metrics"), ("POST", "/drain")]:
        answer = httpx.request(method, shipped_proxy + path, headers={"authorization": "Bearer boss"})
        assert answer.status_code == 404, path
    assert httpx.get(shipped_proxy + "/health/ready").status_code == 200


def test_large_bodies_pass(shipped_proxy, proxy_name, saw):
    body = {"model": NAME, "prompt": "x" * (3 << 20), "max_tokens": 1}
    answer = httpx.post(shipped_proxy + "/v1/completions", json=body, timeout=60)
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "context_length_exceeded"
    saw.works(proxy_name, "large bodies")


@pytest.mark.parametrize("name", [*SHIPPED, "vllm-router", "sglang-router"])
def test_restarts_lose_nothing(servers, name, capsys, saw):
    """Eight clients, and each server is restarted three times."""
    requests = [ask(prompt, 20, stream=True) for prompt in PROMPTS for ask in [completion, chat]]
    with in_front(name, servers) as url, Crowd(url, 8, requests) as crowd:
        for one in servers * 3:
            wait_for_answers(crowd, 1)
            one.restart()
            time.sleep(SETTLE_SECONDS)
        wait_for_answers(crowd, 1)
    with capsys.disabled():
        print(f"\n{name}: {crowd.answered} streams, 6 restarts, {len(crowd.lost)} lost")
    assert not crowd.lost, crowd.lost[:5]
    saw.works(ROWS[name], "6 restarts of its servers lose no stream")


def test_the_router_in_kubernetes(servers):
    """vllm-router with the flags of deploy/kubernetes, except for the addresses and the discovery of pods."""
    text = (ROOT / "deploy/kubernetes/router/router.yaml").read_text().replace("8080", str(free_port())).replace("29000", str(free_port()))
    pod = next(yaml.safe_load_all(text))["spec"]["template"]
    box = pod["spec"]["containers"][0]
    flags = [flag for flag in box["args"] if "discovery" not in flag and "selector" not in flag and not flag.startswith("app.")]
    assert len(box["args"]) - len(flags) == 5
    urls = [f"http://{one.address}" for one in servers]
    port, metrics = (entry["containerPort"] for entry in box["ports"])
    command = [str(pathlib.Path(sys.executable).parent / "vllm-router"), *flags, "--worker-urls", *urls]
    with tempfile.TemporaryFile() as log, running(command, port, log) as url:
        for probe in "readinessProbe", "livenessProbe":
            assert httpx.get(url + box[probe]["httpGet"]["path"]).status_code == 200, probe
        path, body = completion("Water flows", 4)
        assert httpx.post(url + path, json=body, timeout=60).status_code == 200
        scrape = pod["metadata"]["annotations"]
        assert scrape["prometheus.io/port"] == str(metrics)
        assert "vllm_router_" in httpx.get(f"http://127.0.0.1:{metrics}{scrape['prometheus.io/path']}").text
