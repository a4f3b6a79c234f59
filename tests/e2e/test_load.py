"""Many requests at a time: none fails, and each gets the same bytes as without the others."""
import concurrent.futures
import json
import subprocess

import pytest

from conftest import NAME

REQUESTS = 1000
ROUND_SECONDS, MOST_ROUNDS = 10, 12
SCRIPT = """
wrk.method = "POST"
wrk.body = [[%s]]
wrk.headers["Content-Type"] = "application/json"
function done(summary)
    local e = summary.errors
    io.write(string.format('{"requests":%%d,"errors":%%d}\\n', summary.requests,
             e.connect + e.read + e.write + e.status + e.timeout))
end
"""


def wrk_round(server, script):
    """One run of wrk and its counts. wrk runs for a number of seconds, not of requests."""
    command = ["wrk", "-t1", "-c16", f"-d{ROUND_SECONDS}s", "--timeout", "60s", "-s", script,
               server.url + "/v1/completions"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ROUND_SECONDS + 60)
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_a_thousand_requests(server, tmp_path):
    body = {"model": NAME, "prompt": "Once upon a time", "max_tokens": 2, "temperature": 0}
    script = tmp_path / "load.lua"
    script.write_text(SCRIPT % json.dumps(body))
    total = 0
    for _ in range(MOST_ROUNDS):
        found = wrk_round(server, script)
        assert found["errors"] == 0
        total += found["requests"]
        if total >= REQUESTS:
            break
    assert total >= REQUESTS
    server.wait_until_idle()


def answers(server, bodies, at_once):
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        found = list(pool.map(lambda body: server.post("/v1/completions", body), bodies))
    assert [answer.status_code for answer in found] == [200] * len(bodies)
    return [[(c["text"], c["logprobs"], c["token_ids"]) for c in answer.json()["choices"]] for answer in found]


def test_the_same_bytes_alone_and_together(server):
    bodies = [{"model": NAME, "prompt": f"Chapter {i}. " + "It was a dark night. " * (i % 5), "max_tokens": 12 + i,
               "temperature": 0.9 if i % 2 else 0, "seed": i, "n": 1 + i % 3, "logprobs": 2, "return_token_ids": True}
              for i in range(16)]
    alone = answers(server, bodies, 1)
    assert answers(server, bodies, 16) == alone
    assert answers(server, bodies[::-1], 16) == alone[::-1]
    server.wait_until_idle()


@pytest.mark.parametrize("target", ["1", "30"])
def test_a_target_between_tokens_changes_no_byte(server, start, target):
    """Long prompts and streams, in steps that are cut to fit a time, which differ from run to run."""
    bodies = [{"model": NAME, "prompt": f"Chapter {i}. " + "It was a dark night. " * (90 if i % 4 == 3 else 1),
               "max_tokens": 30, "temperature": 0.8, "seed": i, "logprobs": 1, "return_token_ids": True}
              for i in range(8)]
    timed = start("--itl-target-ms", target)
    assert answers(timed, bodies, 8) == answers(server, bodies, 1)
