"""Long streams that load a server while a test looks at it."""
import contextlib
import json
import threading
import time

import httpx

SECRET = "zanzibar"  # a word of the prompts
# Arguments of a server whose streams outlast a test, also on a fast machine: on one core, 7,000 tokens take tens of seconds.
ENDLESS = ["--max-model-len", "8192", "--threads", "1"]


@contextlib.contextmanager
def load(server, n, headers=None, tokens=900):
    """Runs n streams of so many tokens; yields the list of their ids, which grows as they begin."""
    ids, over = [], threading.Event()

    def stream(i):
        body = {"prompt": f"{SECRET} {i}", "max_tokens": tokens, "stream": True, "ignore_eos": True, "seed": i}
        with httpx.stream("POST", server.url + "/v1/completions", json=body, headers=headers, timeout=120) as answer:
            assert answer.status_code == 200, answer.read()
            for line in answer.iter_lines():
                if line.startswith("data: {") and not over.is_set():
                    ids.append(json.loads(line[6:])["id"])
                if over.is_set():
                    return

    threads = [threading.Thread(target=stream, args=[i]) for i in range(n)]
    for one in threads:
        one.start()
    try:
        yield ids
    finally:
        over.set()
        for one in threads:
            one.join()


def endless(server, n, headers=None):
    """load() for a server that has the arguments ENDLESS."""
    return load(server, n, headers, tokens=7000)


def until(condition, seconds=120):
    """Waits until the condition is true, and returns its value."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found
