"""Makes tests/vectors/answers.jsonl: 300 requests with the program's whole answers.

The answers were first recorded at commit 37697ce, before a refactoring, from SmolLM2-135M-Instruct.Q4_1.gguf; the first
line of the file names the program, the model and the command. A change that keeps the behaviour keeps every byte of
them.

    python3 tests/vectors/make_answers.py                                  records the answers of build/penstock
    python3 tests/vectors/make_answers.py --check                          compares build/penstock with the file
    python3 tests/vectors/make_answers.py --check --program /other/build/penstock
    python3 tests/vectors/make_answers.py --check -- --max-num-seqs 3      passes more flags to the server

The script starts a server on a free port and keeps 8 requests under way at a time. Each line of the file is a request
and its answer. `answer` is the text of a body. `events` are the events of a stream; each ended with an empty line. A
word replaces each value that differs from run to run (VOLATILE). The choices of one stream may take turns in any order,
so the script groups the events by choice; within a choice they keep their order.

The variable PENSTOCK_CPU is passed on to the server; other settings of the server in the environment are not.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import hashlib
import http.client
import itertools
import json
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from answer_cases import CHAT, CHATS, COMPLETIONS, CONTEXT, MODEL, OTHERS, TEXTS  # noqa: E402

FILE = pathlib.Path(__file__).with_name("answers.jsonl")
KEY = "answers"
FLAGS = ["--device", "cpu", "--served-model-name", MODEL, "--max-model-len", str(CONTEXT),
         "--kv-cache-memory", "256MiB", "--api-key", KEY]
AT_ONCE = 8
START_SECONDS, ANSWER_SECONDS, STOP_SECONDS = 60, 120, 20
SHOWN, AROUND = 5, 100  # differences that are printed, and characters before and after the place of each

# Values that depend on the run, on the version or on the contents of the cache. The limit of `n` is the server's
# --max-num-seqs.
ID = (r"\b(cmpl|chatcmpl)-[0-9a-f]{32}\b", r"\1-ID")
OWN_ID = (r"^(X-Request-Id): [0-9a-f]{32}$", r"\1: ID")  # of an answer that is not a generation
VOLATILE = [
    ID,
    (r'"created":\d+', '"created":TIME'),
    (r'"created_at":"[^"]+"', '"created_at":"TIME"'),
    (r'"system_fingerprint":"penstock-[^"]*"', '"system_fingerprint":"penstock-VERSION"'),
    (r'"cached_tokens":\d+', '"cached_tokens":CACHED'),
    (r"'n' must be between 1 and \d+,", "'n' must be between 1 and LIMIT,"),
]
VOLATILE_AT = {
    "/version": [(r'"(version|commit|build|backend)":"[^"]*"', r'"\1":"ANY"')],
    "/metrics": [(r'(version|commit|build)="[^"]*"', r'\1="ANY"'),
                 (r"(?m)^http_\S+ [-+.0-9e]+\n", ""),  # by path: the first ones to arrive of those sent at the same time
                 (r"(?m)^((?:penstock_|process_|vllm:)\S+) [-+.0-9e]+$", r"\1 NUMBER")],
}
LEFT_OUT = {"date", "content-length"}  # headers that are left out: the length depends on volatile values

# ---- requests ----------------------------------------------------------------------------------------

Request = collections.namedtuple("Request", "method path body headers")


def as_stream(body, number):
    """Returns the body of the same request as a stream; every third stream reports the usage, some of them in each
    chunk."""
    streamed = {**body, "stream": True}
    if number % 3 == 0:
        each = number % 2 == 0 and body.get("n", 1) in (1, None) and len(choices_of(body)) == 1
        streamed["stream_options"] = {"include_usage": True, "continuous_usage_stats": each}
    return streamed


def choices_of(body):
    """The prompts of a body, one or several."""
    prompt = body.get("prompt")
    several = isinstance(prompt, list) and not isinstance(prompt[0], int)
    return prompt if several else [prompt]


def text_of(body, plain):
    """Returns the text of a body: with characters beyond ASCII unchanged, or escaped. A body that is a text already is
    kept."""
    if body is None or isinstance(body, str):
        return body
    return json.dumps(body, ensure_ascii=not plain)


def requests():
    """All requests in the order of the file."""
    made = []
    for path, cases in ((COMPLETIONS, TEXTS), (CHAT, CHATS)):
        for number, fields in enumerate(cases):
            body = {"model": MODEL, "temperature": 0, "max_tokens": 8, **fields}
            made.append(Request("POST", path, text_of(body, False), {}))
            made.append(Request("POST", path, text_of(as_stream(body, number), True), {}))
    for method, path, body, *headers in OTHERS:
        made.append(Request(method, path, text_of(body, True), dict(*headers)))
    return made


# ---- answers -----------------------------------------------------------------------------------------


def fixed(text, volatile):
    """Returns the text with a word instead of each volatile value."""
    for pattern, word in volatile:
        text = re.sub(pattern, word, text)
    return text


def by_choice(events):
    """Returns the events, those of several choices grouped by choice. Other events keep their places."""
    pattern = re.compile(r'"choices":\[\{"index":(\d+),(?!"delta":\{"role":)')
    found = [pattern.search(event) for event in events]
    places = [place for place, match in enumerate(found) if match]
    grouped = sorted(places, key=lambda place: int(found[place][1]))
    result = list(events)
    for place, source in zip(places, grouped):
        result[place] = events[source]
    return result


def events_of(text):
    """Returns the events of a stream. Text after the last empty line counts as an event."""
    events = text.replace(": keep-alive\n", "").split("\n\n")
    if events[-1] == "":
        events.pop()
    return by_choice(events)


def ask(port, request):
    """Sends a request on a separate connection. Returns status, header fields and the body's bytes."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
    headers = {"Authorization": f"Bearer {KEY}", **request.headers}
    body = None
    if request.body is not None:
        body = request.body.encode("utf-8", "surrogateescape")
        headers = {"Content-Type": "application/json", **headers}
    try:
        connection.request(request.method, request.path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()


def record(port, request):
    """Returns the request and its answer in the form of the file."""
    status, headers, raw = ask(port, request)
    kept = [fixed(f"{name}: {value}", [ID, OWN_ID]) for name, value in headers if name.lower() not in LEFT_OUT]
    volatile = VOLATILE + VOLATILE_AT.get(request.path, [])
    text = fixed(raw.decode("utf-8", "surrogateescape"), volatile)
    entry = {"method": request.method, "path": request.path}
    if request.headers:
        entry["headers"] = request.headers
    entry |= {"body": request.body, "status": status, "answer_headers": kept}
    if "Content-Type: text/event-stream" in kept:
        entry["events"] = events_of(text)
    else:
        entry["answer"] = text
    return entry


def answers(port):
    """The entries of all requests, in their order. Several requests are under way at a time, so they share batches."""
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda request: record(port, request), requests()))


# ---- the file ----------------------------------------------------------------------------------------


def write(provenance, entries):
    with FILE.open("w", encoding="ascii") as file:
        for entry in [provenance, *entries]:
            file.write(json.dumps(entry, separators=(",", ":")) + "\n")


def recorded():
    """Returns the entries of the file without its first line, which states their origin."""
    with FILE.open(encoding="ascii") as file:
        return [json.loads(line) for line in file][1:]


def around(text, place):
    """The text near a place, on one line and in ASCII."""
    start, end = max(place - AROUND, 0), place + AROUND
    dots = "..." if start else "", "..." if end < len(text) else ""
    return dots[0] + ascii(text[start:end])[1:-1] + dots[1]


def as_text(entry):
    """Returns an entry as one text, in which the events of a stream end as they did on the wire."""
    parts = [[f"{key}:", *value] if isinstance(value, list) else [f"{key}: {value}"] for key, value in entry.items()]
    return "\n\n".join(itertools.chain(*parts))


def difference(number, old, new):
    """Describes the place where an entry differs from the recorded one."""
    old_text, new_text = as_text(old), as_text(new)
    pairs = enumerate(itertools.zip_longest(old_text, new_text))
    place = next((place for place, (one, other) in pairs if one != other), 0)
    return (f"answer {number}: {old['method']} {old['path']} {around(old['body'] or '', 0)}\n"
            f"  differs at character {place}\n"
            f"  recorded: {around(old_text, place)}\n"
            f"  now:      {around(new_text, place)}")


def differences(port):
    """Returns a text for each answer of the server that differs from the recorded one."""
    old, new = recorded(), answers(port)
    found = [difference(number, *pair) for number, pair in enumerate(zip(old, new), 1) if pair[0] != pair[1]]
    if len(old) != len(new):
        found.append(f"{len(old)} answers are recorded, but there are {len(new)} requests: record them again")
    return found


# ---- the server --------------------------------------------------------------------------------------


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_ready(process, port):
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError):
            if ask(port, Request("GET", "/health/ready", None, {}))[0] == 200:
                return
        time.sleep(0.05)
    raise SystemExit(f"the server was not ready; exit code {process.poll()}")


def stop(process):
    process.send_signal(signal.SIGINT)  # without the delay of SIGTERM
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def served(program, model, flags):
    """Runs a server and yields its port. If something fails, the server's log is printed."""
    port = free_port()
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith("PENSTOCK_") or key == "PENSTOCK_CPU"}
    command = [program, "serve", "--model", model, "--port", str(port), *FLAGS, *flags]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            wait_until_ready(process, port)
            yield port
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read()[-4000:].decode(errors="replace"))
            raise
        finally:
            stop(process)
    if process.returncode:
        raise SystemExit(f"the server ended with exit code {process.returncode}")


def provenance_of(port, args):
    version = json.loads(ask(port, Request("GET", "/version", None, {}))[2])
    digest = hashlib.sha256(pathlib.Path(args.model).read_bytes()).hexdigest()
    return {"made_by": shlex.join(["python3", *sys.argv]), "program": version, "model": os.path.basename(args.model),
            "sha256": digest, "flags": FLAGS + args.flags}


def main():
    parser = argparse.ArgumentParser(description="Records the answers of a program, or compares them with the file.")
    parser.add_argument("--program", default="build/penstock")
    parser.add_argument("--model", default="models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    parser.add_argument("flags", nargs="*", help="more flags for the server, after --")
    args = parser.parse_args()
    began = time.monotonic()
    with served(args.program, args.model, args.flags) as port:
        if args.check:
            found = differences(port)
        else:
            entries = answers(port)
            write(provenance_of(port, args), entries)
    seconds = time.monotonic() - began
    if not args.check:
        print(f"{len(entries)} answers, {FILE.stat().st_size} bytes, {seconds:.1f} s")
        return 0
    print("\n\n".join(found[:SHOWN] + [f"{len(found)} of {len(recorded())} answers differ, {seconds:.1f} s"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
