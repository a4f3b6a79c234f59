"""/penstock/live under load: its counts are those of /metrics, and it says nothing about texts."""
import contextlib
import json
import os
import pathlib
import re
import time

import httpx
import pytest

from streams import ENDLESS, SECRET, endless, until
from test_abuse import connect, read_all, request_bytes

GAUGES = {"running": "vllm:num_requests_running", "waiting": "vllm:num_requests_waiting", "swapped": "vllm:num_requests_swapped"}
BLOCKS = {state: f'penstock_kv_blocks{{state="{state}"}}' for state in ("total", "used", "cached")}


EVENTS = {"Accept": "text/event-stream"}


def server_memory(http):
    return float(re.search(r"^process_resident_memory_bytes (\S+)$", http.get("/metrics").text, re.M)[1])


def snapshot(server, **headers):
    answer = server.http.get("/penstock/live", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def listing(server, n, **headers):
    """A snapshot that lists n sequences. During a long step the list is older than the counts, and at first it is empty."""
    return until(lambda: len((live := snapshot(server, **headers))["sequences"]) == n and live)


@pytest.fixture
def busy(start):
    return start("--max-num-seqs", "3", *ENDLESS)


def test_counts_are_those_of_the_metrics(busy):
    with endless(busy, 5):
        until(lambda: busy.metric(GAUGES["running"]) == 3 and busy.metric(GAUGES["waiting"]) == 2)
        used = busy.metrics()[BLOCKS["used"]]
        live = listing(busy, 5)
        assert [live[name] for name in GAUGES] == [busy.metric(metric) for metric in GAUGES.values()] == [3, 2, 0]
        assert [one["state"] for one in live["sequences"]].count("waiting") == 2
        assert all(one["computed"] <= one["prompt"] and one["age_s"] >= 0 for one in live["sequences"])
        # The list is older than the counts by a few steps or by a long one: it lies between two counts.
        assert used <= sum(one["blocks"] for one in live["sequences"]) <= live["blocks"]["used"]
    busy.wait_until_idle()
    live, metrics = snapshot(busy), busy.metrics()
    blocks = live["blocks"]
    assert {state: blocks[state] for state in BLOCKS} == {state: metrics[name] for state, name in BLOCKS.items()}
    assert blocks["used"] + blocks["cached"] + blocks["free"] == blocks["total"]
    assert live["tokens"]["generated"] == busy.metric("vllm:generation_tokens_total") > 0
    assert live["step"]["count"] == busy.metric("penstock_steps_total") and live["sequences"] == []


def test_a_stream_shows_progress_and_no_text(busy):
    with endless(busy, 2) as ids:
        until(lambda: len(set(ids)) == 2)
        with busy.http.stream("GET", "/penstock/live", headers=EVENTS) as answer:
            assert answer.headers["content-type"] == "text/event-stream"
            seen, text = [], ""
            for line in answer.iter_lines():
                text += line
                if line.startswith("data: "):
                    seen.append(json.loads(line[6:]))
                    if len(seen) >= 4 and has_progress(seen):
                        break
    assert SECRET not in text and "prompt" in text
    last = seen[-1]
    assert last["step"]["tokens_per_s"] > 0 and last["step"]["rows"] > 1 and last["step"]["ms"]["forward"] > 0
    assert last["last_minute"]["inter_token"]["p99_ms"] >= last["last_minute"]["inter_token"]["p50_ms"] > 0
    assert {one["id"] for one in last["sequences"]} == set(ids)


def has_progress(seen):
    """Have both sequences more tokens in the last snapshot than in the one before? Between two snapshots a busy machine may
    compute nothing."""
    before, after = ({one["id"]: one["output"] for one in live["sequences"]} for live in seen[-2:])
    grown = len(after) == 2 and after.keys() == before.keys() and all(after[one] > before[one] for one in after)
    return grown and seen[-1]["last_minute"]["inter_token"]["count"] > 4


def watch(server):
    """A connection that asks for snapshots and has a small buffer for them."""
    client = connect(server, receive_buffer=4096)
    client.sendall(b"GET /penstock/live HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
    return client


def logged(server, status):
    """How many watchers have ended with this status."""
    text = os.pread(server.log.fileno(), 1 << 20, 0).decode(errors="replace")
    return len(re.findall(rf"path=/penstock/live status={status} ", text))


def test_watchers_that_do_not_read_are_cut_off(start):
    """A snapshot lists 256 sequences, 40 KB, and a stream may leave 1 MiB unread. A watcher that reads misses nothing meanwhile."""
    server = start("--max-num-seqs", "1", "--kv-cache-memory", "32MiB", "--threads", "1")
    body = {"prompt": SECRET, "max_tokens": 900, "ignore_eos": True, "stream": True}
    with contextlib.ExitStack() as clients:
        for _ in range(400):  # some end during the test
            clients.enter_context(connect(server)).sendall(request_bytes(body))
        until(lambda: len(snapshot(server)["sequences"]) == 256)
        before = server_memory(server.http)
        idle = [clients.enter_context(watch(server)) for _ in range(15)]
        reader = clients.enter_context(server.http.stream("GET", "/penstock/live", headers=EVENTS))
        began, seen, most = time.monotonic(), 0, before
        with httpx.Client(base_url=server.url, timeout=60) as other:
            refused = other.get("/penstock/live")
            assert refused.status_code == 503 and "16 clients watch" in refused.json()["error"]["message"]
            for line in reader.iter_lines():
                if not line.startswith("data: "):
                    continue
                seen += 1
                assert len(json.loads(line[6:])["sequences"]) == 256
                most = max(most, server_memory(other))
                if logged(server, 499) == 15:
                    break
                assert time.monotonic() - began < 300
            assert other.get("/penstock/live").status_code == 200
        assert most - before < (32 << 20) + 15 * (3 << 20)  # of the KV cache, and of each watcher
        for one in idle:
            text = read_all(one)
            assert text.startswith(b"HTTP/1.1 200 ") and 0 < text.count(b"data: ") <= seen and not text.endswith(b"\r\n0\r\n\r\n")
    server.wait_until_idle()


def switches(server):
    """How often the threads of the server have gone to sleep."""
    tasks = pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()
    return sum(int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", (task / "status").read_text(), re.M)[1]) for task in tasks)


def switches_in(server, seconds):
    before = switches(server)
    time.sleep(seconds)
    return switches(server) - before


def test_nothing_runs_without_a_watcher(start):
    server = start()
    with server.http.stream("GET", "/penstock/live", headers=EVENTS) as answer:
        lines, before = answer.iter_lines(), switches(server)
        for _ in range(4):
            assert next(line for line in lines if line).startswith("data: ")
        watched = switches(server) - before
    server.http.close()
    assert watched > 2
    until(lambda: switches_in(server, 2) <= 2)  # also a busy server takes notice of the end


def test_a_key_with_a_name_sees_its_own_requests_only(start, tmp_path):
    (tmp_path / "keys.yaml").write_text("keys:\n- {name: alice, key: one}\n- {name: bob, key: two}\n- {name: ops, key: three, admin: true}\n")
    server = start("--api-key-file", str(tmp_path / "keys.yaml"), *ENDLESS)
    alice, bob, ops = ({"Authorization": f"Bearer {key}"} for key in ("one", "two", "three"))
    with endless(server, 2, alice) as of_alice, endless(server, 1, bob) as of_bob:
        until(lambda: len(set(of_alice)) == 2 and len(set(of_bob)) == 1)
        for headers, ids in ((ops, of_alice + of_bob), (alice, of_alice), (bob, of_bob)):
            seen = listing(server, len(set(ids)), **headers)
            assert {one["id"] for one in seen["sequences"]} == set(ids) and seen["running"] == 3
            assert seen["listed"] == ("all" if headers is ops else "own")
            assert not any(one in json.dumps(seen) for one in {*of_alice, *of_bob} - set(ids))


def test_a_user_key_never_sees_a_request(start):
    server = start("--api-key", "user", "--admin-key", "boss", *ENDLESS)
    user, boss = {"Authorization": "Bearer user"}, {"Authorization": "Bearer boss"}
    assert server.http.get("/penstock/live").status_code == 401
    with endless(server, 2, user) as ids:
        until(lambda: len(set(ids)) == 2)
        listed, seen = listing(server, 2, **boss)["sequences"], snapshot(server, **user)
        assert {one["id"] for one in listed} == set(ids) and seen["running"] == 2 and "sequences" not in seen
        assert not any(one in json.dumps(seen) for one in ids)
