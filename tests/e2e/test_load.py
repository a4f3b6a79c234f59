"""Many at once: no request fails, and each gets the bytes it would have got alone."""
import concurrent.futures
import json
import shutil
import subprocess

import pytest

from conftest import NAME

REQUESTS = 1000
SCRIPT = """
local count, failed = 0, 0
wrk.method = "POST"
wrk.body = [[%s]]
wrk.headers["Content-Type"] = "application/json"
function response(status)
    count = count + 1
    if status ~= 200 then failed = failed + 1 end
    if count == %d then wrk.thread:stop() end
end
function done(summary)
    local e = summary.errors
    io.write(string.format('{"requests":%%d,"errors":%%d}\\n', summary.requests,
             e.connect + e.read + e.write + e.status + e.timeout))
end
"""


@pytest.mark.skipif(not shutil.which("wrk"), reason="wrk is not installed")
def test_a_thousand_requests(server, tmp_path):
    body = {"model": NAME, "prompt": "Once upon a time", "max_tokens": 2, "temperature": 0}
    script = tmp_path / "load.lua"
    script.write_text(SCRIPT % (json.dumps(body), REQUESTS))
    command = ["wrk", "-t1", "-c16", "-d300s", "--timeout", "60s", "-s", script, server.url + "/v1/completions"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=360)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found["requests"] >= REQUESTS and found["errors"] == 0, done.stdout
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
