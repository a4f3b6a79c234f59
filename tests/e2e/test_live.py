"""/penstock/live under load: its counts are those of /metrics, and it says nothing about texts."""
import json
import pathlib
import re
import time

import pytest

from streams import SECRET, load, until

GAUGES = {"running": "vllm:num_requests_running", "waiting": "vllm:num_requests_waiting", "swapped": "vllm:num_requests_swapped"}
BLOCKS = {state: f'penstock_kv_blocks{{state="{state}"}}' for state in ("total", "used", "cached")}


def snapshot(server, **headers):
    answer = server.http.get("/penstock/live", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def counts(live):
    return {**{name: live[name] for name in GAUGES}, "total": live["blocks"]["total"]}


@pytest.fixture
def busy(start):
    return start("--max-num-seqs", "3")


def test_counts_are_those_of_the_metrics(busy):
    with load(busy, 5):
        until(lambda: busy.metric(GAUGES["running"]) == 3 and busy.metric(GAUGES["waiting"]) == 2)
        live = snapshot(busy)
        assert [live[name] for name in GAUGES] == [busy.metric(metric) for metric in GAUGES.values()] == [3, 2, 0]
        states = [one["state"] for one in live["sequences"]]
        assert len(states) == 5 and states.count("waiting") == 2
        assert all(one["computed"] <= one["prompt"] and one["age_s"] > 0 for one in live["sequences"])
        # The list may be some steps older than the counts: meanwhile each running sequence may get one more block.
        assert sum(one["blocks"] for one in live["sequences"]) + 3 >= live["blocks"]["used"] > 0
    busy.wait_until_idle()
    live, metrics = snapshot(busy), busy.metrics()
    blocks = live["blocks"]
    assert {state: blocks[state] for state in BLOCKS} == {state: metrics[name] for state, name in BLOCKS.items()}
    assert blocks["used"] + blocks["cached"] + blocks["free"] == blocks["total"]
    assert live["tokens"]["generated"] == busy.metric("vllm:generation_tokens_total") > 0
    assert live["step"]["count"] == busy.metric("penstock_steps_total") and live["sequences"] == []


def test_a_stream_shows_progress_and_no_text(busy):
    with load(busy, 2) as ids, busy.http.stream("GET", "/penstock/live", headers={"Accept": "text/event-stream"}) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        seen, text = [], ""
        for line in answer.iter_lines():
            text += line
            if line.startswith("data: "):
                seen.append(json.loads(line[6:]))
            if len(seen) >= 4 and seen[-1]["last_minute"]["inter_token"]["count"] > 4:
                break
    assert SECRET not in text and "prompt" in text
    first, last = seen[-2], seen[-1]
    assert last["step"]["tokens_per_s"] > 0 and last["step"]["rows"] > 1 and last["step"]["ms"]["forward"] > 0
    assert last["last_minute"]["inter_token"]["p99_ms"] >= last["last_minute"]["inter_token"]["p50_ms"] > 0
    assert {one["id"] for one in last["sequences"]} <= set(ids) and len(last["sequences"]) == 2
    before = {one["id"]: one["output"] for one in first["sequences"]}
    assert all(one["output"] > before[one["id"]] for one in last["sequences"] if one["id"] in before)


def switches(server):
    """How often the threads of the server have gone to sleep."""
    tasks = pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()
    return sum(int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", (task / "status").read_text(), re.M)[1]) for task in tasks)


def test_nothing_runs_without_a_watcher(start):
    server = start()
    with server.http.stream("GET", "/penstock/live", headers={"Accept": "text/event-stream"}) as answer:
        lines, before = answer.iter_lines(), switches(server)
        for _ in range(4):
            assert next(line for line in lines if line).startswith("data: ")
        watched = switches(server) - before
    server.http.close()
    time.sleep(1)
    before = switches(server)
    time.sleep(2)
    assert switches(server) - before <= 2 < watched


def test_a_key_with_a_name_sees_its_own_requests_only(start, tmp_path):
    (tmp_path / "keys.yaml").write_text("keys:\n- {name: alice, key: one}\n- {name: bob, key: two}\n- {name: ops, key: three, admin: true}\n")
    server = start("--api-key-file", str(tmp_path / "keys.yaml"))
    alice, bob, ops = ({"Authorization": f"Bearer {key}"} for key in ("one", "two", "three"))
    with load(server, 2, alice) as of_alice, load(server, 1, bob) as of_bob:
        until(lambda: len(set(of_alice)) == 2 and len(set(of_bob)) == 1)
        until(lambda: len(snapshot(server, **ops)["sequences"]) == 3)
        for headers, ids in ((alice, of_alice), (bob, of_bob), (ops, of_alice + of_bob)):
            seen = snapshot(server, **headers)
            assert {one["id"] for one in seen["sequences"]} == set(ids) and seen["running"] == 3
            assert seen["listed"] == ("all" if headers is ops else "own")
            assert not any(one in json.dumps(seen) for one in {*of_alice, *of_bob} - set(ids))


def test_a_user_key_never_sees_a_request(start):
    server = start("--api-key", "user", "--admin-key", "boss")
    user, boss = {"Authorization": "Bearer user"}, {"Authorization": "Bearer boss"}
    assert server.http.get("/penstock/live").status_code == 401
    with load(server, 2, user) as ids:
        listed = until(lambda: snapshot(server, **boss)["sequences"])
        seen = until(lambda: (live := snapshot(server, **user))["running"] == 2 and live)
        assert {one["id"] for one in listed} <= set(ids) and "sequences" not in seen
        assert not any(one in json.dumps(seen) for one in ids)
