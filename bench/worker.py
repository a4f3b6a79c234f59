"""The loop of a peer's worker process: bench/direct.py starts such processes with the peer's Python.

Reads JSON objects from standard input, one per line, {"do": NAME, ...}, and answers each with one on standard output.
"""
import json
import os
import sys
import time

STARTED = time.perf_counter()


def answer(acts):
    """Runs acts[NAME] with the other members of each line as its arguments, until the input ends."""
    # The library's own output must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            result = acts[command.pop("do")](**command)
        except (RuntimeError, ValueError) as error:
            result = {"error": str(error)}
        answers.write(json.dumps(result) + "\n")
        answers.flush()


def memory():
    return {"pid": os.getpid(), "since_import_s": time.perf_counter() - STARTED}
