"""vllm-router with its policy kv_aware: conversations return to the server that has their beginning."""
import contextlib
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

import httpx
import pytest

from e2e.conftest import NAME, ROOT, free_port
from fleet import PATIENCE_SECONDS, START_SECONDS, Replica, accepts, replicas, running

EVENTS = ["--kv-events", "tcp://127.0.0.1:*", "--kv-events-replay", "tcp://127.0.0.1:*"]
# An odd number of conversations: each changes its server with each turn behind round_robin.
# `make soak` has 41 of 6 turns.
N_CONVERSATIONS, N_TURNS = int(os.environ.get("KV_AWARE_CONVERSATIONS", 5)), int(os.environ.get("KV_AWARE_TURNS", 4))
# Of each of two servers: the conversations fit with room. With 192 MiB, 41 fill both caches, and kv_aware keeps 0.62 of one
# server's cached tokens: it does not fill the caches equally.
CACHE_MIB = 128 if N_CONVERSATIONS < 12 else 256
# Behind round_robin each turn finds the turn before the last one: the more turns, the smaller the difference. A router that
# always finds the last turn gains 1.41 with 6 turns (docs/scale-out.md, What the choice of a server saves).
LEAST_GAIN = 1.5 if N_TURNS < 6 else 1.3
WORDS = "river mill boat bridge summer winter stone letter garden window music paper silver market harbour mountain".split()


@pytest.fixture(scope="module")
def servers():
    with replicas(*EVENTS, "--kv-cache-memory", f"{CACHE_MIB}MiB") as both:
        yield both


def source_flags(servers):
    for one in servers:
        source = one.server.http.get("/kv_event_sources").json()["0"]
        yield f"--kv-event-source=http://{one.address}={source['endpoint']}"
        yield f"--kv-event-replay-source=http://{one.address}={source['replay_endpoint']}"


@contextlib.contextmanager
def router(policy, servers):
    """Yields the address of a router after all servers answer through it, and its metrics' address."""
    port, metrics = free_port(), free_port()
    urls = [f"http://{one.address}" for one in servers]
    command = [str(pathlib.Path(sys.executable).parent / "vllm-router"), "--port", str(port), "--prometheus-port", str(metrics),
               "--worker-urls", *urls, "--policy", policy, "--disable-circuit-breaker"]
    if policy == "kv_aware":
        command += ["--kv-event-model", NAME, *source_flags(servers)]
    with tempfile.TemporaryFile() as log, running(command, port, log) as url:
        until = time.monotonic() + START_SECONDS
        while httpx.get(url + "/v1/models").status_code != 200:
            assert time.monotonic() < until, "the router passes no requests on"
            time.sleep(0.05)
        yield url, f"http://127.0.0.1:{metrics}/metrics"


def converse(url, seed):
    """Several conversations in turns. Each begins with its own words. Returns the cached prompt tokens of all answers."""
    draw, cached = random.Random(seed), 0
    talks = [[] for _ in range(N_CONVERSATIONS)]
    with httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as http:
        for _ in range(N_TURNS):
            for talk in talks:
                talk.append({"role": "user", "content": " ".join(draw.choices(WORDS, k=30))})
                body = {"model": NAME, "messages": talk, "max_tokens": 6, "temperature": 0}
                answer = http.post("/v1/chat/completions", json=body)
                assert answer.status_code == 200, answer.text
                talk.append({"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]})
                cached += answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
                time.sleep(0.05)  # the router hears of the blocks meanwhile
    return cached, talks


def test_conversations_return_to_their_blocks(servers, capsys, saw):
    with router("round_robin", servers) as (url, _):
        by_turns, _ = converse(url, 1)
    with router("kv_aware", servers) as (url, metrics):
        aware, talks = converse(url, 2)
        hits = re.search(r'placement_lookups_total\{result="hit"\} (\d+)', httpx.get(metrics).text)
        assert hits and int(hits[1]) >= N_CONVERSATIONS * (N_TURNS - 1) // 2
    both = Replica("--kv-cache-memory", f"{2 * CACHE_MIB}MiB")
    try:
        alone, same = converse(f"http://{both.address}", 2)
    finally:
        both.server.stop()
    with capsys.disabled():
        print(f"\ncached prompt tokens: {aware} behind kv_aware, {by_turns} behind round_robin, {alone} of one server")
    assert aware >= 0.9 * alone and aware >= LEAST_GAIN * by_turns
    assert talks == same, "answers depend on the server that gave them"
    saw.works("vllm-router", "its policy kv_aware finds the server that has a conversation's blocks")


def lookups(metrics):
    """{"hit", "miss": how often the router's index had blocks of a prompt, and none}"""
    text = httpx.get(metrics).text
    return {kind: int(found[1]) if (found := re.search(rf'placement_lookups_total{{result="{kind}"}} (\d+)', text)) else 0
            for kind in ("hit", "miss")}


def looked_up(url, metrics, word, wanted):
    """Asks for a prompt that begins with a word until the router's index has its blocks, or lacks all of them, as wanted."""
    until = time.monotonic() + START_SECONDS
    while True:
        before = lookups(metrics)
        body = {"model": NAME, "prompt": f"{word} " * 40, "max_tokens": 1, "temperature": 0}
        answer = httpx.post(url + "/v1/completions", json=body, timeout=PATIENCE_SECONDS)
        assert answer.status_code == 200, answer.text
        after = lookups(metrics)
        if after[wanted] == before[wanted] + 1:
            return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert wanted == "hit" and time.monotonic() < until, (before, after)
        time.sleep(0.2)  # its events are on the way


def test_the_router_forgets_blocks_that_are_lost():
    """By evictions, and by a restart."""
    flags = ["--kv-events", f"tcp://127.0.0.1:{free_port()}", "--kv-events-replay", "tcp://127.0.0.1:*", "--max-model-len", "256"]
    one = Replica(*flags, "--kv-cache-memory", "8MiB")
    try:
        with router("kv_aware", [one]) as (url, metrics):
            looked_up(url, metrics, "river", "miss")
            assert looked_up(url, metrics, "river", "hit") > 0
            for word in WORDS[1:]:
                looked_up(url, metrics, word, "miss")
            time.sleep(1)
            assert looked_up(url, metrics, "river", "miss") == 0, "its blocks were evicted"
            assert looked_up(url, metrics, "river", "hit") > 0
            one.restart()
            time.sleep(3)
            assert looked_up(url, metrics, "river", "miss") == 0, "the server is a new one"
            assert looked_up(url, metrics, "river", "hit") > 0
    finally:
        one.server.process.kill()
        one.server.process.wait()
        one.server.stop()


def test_the_commands_of_the_page(tmp_path):
    """docs/scale-out.md as it is written, except for ports, the model's path and vllm-router, which is installed already."""
    page = (ROOT / "docs/scale-out.md").read_text()
    commands = re.findall(r"^    (.*)$", page.split("## Three servers")[1].split("\n## ")[0], re.M)
    assert len(commands) <= 10 and any("pip install" in line for line in commands)
    text = "\n".join(line for line in commands if "pip install" not in line)
    ports = {f"{kind}{i}": free_port() for kind in ("808", "558", "568") for i in (1, 2, 3)}
    script = text.replace("808$1", "${P808[$1]}").replace("558$1", "${P558[$1]}").replace("568$1", "${P568[$1]}")
    script = script.replace("http://127.0.0.1:808{1,2,3}", " ".join(f"http://127.0.0.1:{ports[f'808{i}']}" for i in (1, 2, 3)))
    front = free_port()
    calls = [line for line in script.splitlines() if line.startswith("curl")]
    script = "\n".join(line for line in script.splitlines() if not line.startswith("curl"))
    arrays = "".join(f"P{kind}=(0 {' '.join(str(ports[f'{kind}{i}']) for i in (1, 2, 3))})\n" for kind in ("808", "558", "568"))
    script = script.replace("penstock serve", "penstock serve --max-model-len 512 --threads 1 --kv-cache-memory 64MiB")
    script = script.replace("--policy kv_aware", f"--policy kv_aware --port {front} --prometheus-port {free_port()}")
    path = f"{ROOT / 'build'}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    with open(tmp_path / "log", "w+b") as log:
        shell = subprocess.Popen(["bash", "-c", f"{arrays}{script}\nwait"], cwd=ROOT, env={**os.environ, "PATH": path}, stdout=log,
                                 stderr=log, start_new_session=True)
        try:
            until = time.monotonic() + START_SECONDS
            while not accepts(front):
                assert time.monotonic() < until, (tmp_path / "log").read_text()
                time.sleep(0.1)
            for call in calls:
                time.sleep(2)
                answer = subprocess.run(["bash", "-c", call.replace("8080", str(front))], capture_output=True, text=True, check=True)
            assert re.search(r'"cached_tokens":[1-9]', answer.stdout), answer.stdout + (tmp_path / "log").read_text()[-3000:]
        finally:
            os.killpg(shell.pid, 15)
            shell.wait(60)


def test_the_bench_of_clusters(tmp_path):
    """bench/cluster.py in its short form: the router finds the blocks of simulated replicas, too."""
    out = tmp_path / "cluster.json"
    command = [sys.executable, str(ROOT / "bench/cluster.py"), "--replicas", "3", "--conversations", "24", "--turns", "4", "--active", "8",
               "--policies", "round_robin,cache_aware,kv_aware", "--requests-a-second", "40", "--out", str(out)]
    subprocess.run(command, check=True, timeout=300)
    rate = {row["policy"]: row["hit_rate"] for row in json.loads(out.read_text())["rows"]}
    assert min(rate["cache_aware"], rate["kv_aware"]) > 1.2 * rate["round_robin"], rate
