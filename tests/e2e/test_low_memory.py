"""If the server cannot get memory, it refuses the request that needs it, and continues."""
import json
import resource

import pytest

# Requests with a large need: an answer of 66 MB, and a tree of a million values.
LARGE_ANSWER = ("/detokenize", json.dumps({"tokens": [49000] * 900_000}))
MANY_VALUES = ("/v1/completions", json.dumps({"prompt": "x", "unknown": [1] * 1_000_000}))
MANY_ARRAYS = ("/v1/completions", json.dumps({"prompt": "x", "unknown": [[]] * 900_000}))
LONG_TEXT = ("/tokenize", json.dumps({"prompt": "a b " * 1_000_000}))


def mapped_bytes(server):
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
        return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmSize"))


def limit_memory(server, limit):
    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


@pytest.mark.parametrize("more", [1 << 20, 8 << 20, 20 << 20, 60 << 20])
def test_lack_of_memory_ends_requests_and_not_the_server(start, more):
    server = start("--threads", "1", "--kv-cache-memory", "64MiB")
    expected = server.complete(max_tokens=8)["choices"]
    limit = mapped_bytes(server) + more
    for path, body in [LARGE_ANSWER, MANY_VALUES, MANY_ARRAYS, LONG_TEXT]:
        limit_memory(server, limit)
        answer = server.http.post(path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code in (200, 400, 503), (path, answer.text[:500])
        if more < 8 << 20:
            assert answer.status_code == 503, (path, answer.text[:500])
            assert answer.json()["error"]["code"] == "out_of_memory"
        assert server.process.poll() is None
        limit_memory(server, resource.RLIM_INFINITY)
        assert server.complete(max_tokens=8)["choices"] == expected
