"""Reads answers from a socket, and judges each: its form, its status, and what it says."""
import dataclasses
import json
import re

STATUSES = {200, 204, 304, 400, 401, 403, 404, 405, 408, 413, 414, 415, 417, 422, 429, 431, 501, 503, 505}
MAX_HEAD = 65536
VARYING = {"id", "created", "request_id", "seed", "digest", "cached_tokens", "accepted_prediction_tokens", "rejected_prediction_tokens",
           "server_load", "created_at", "completed_at", "total_duration", "prompt_eval_duration", "eval_duration", "item_id", "call_id",
           "signature", "cache_read_input_tokens", "input_tokens", "tokens_cached", "tokens_predicted", "prompt_n", "prompt_ms",
           "prompt_per_token_ms", "prompt_per_second", "predicted_n", "predicted_ms", "predicted_per_token_ms",
           "predicted_per_second", "is_processing"}
# A snapshot of the batch differs each time: only its members' names stay.
LIVE = b'{"running":'
# The types of events that end a stream of named events.
ENDS = {"message_stop", "error", "response.completed", "response.incomplete", "response.failed"}
# Does an answer lack its body? That to a HEAD does, if the server took the request for a HEAD.
NEVER, MAYBE, ALWAYS = "never", "maybe", "always"


class Bad(Exception):
    """An answer that no server may give, or none."""


@dataclasses.dataclass
class Answer:
    status: int
    fields: list  # (lower-case name, value)
    body: bytes

    def field(self, name):
        return next((value for known, value in self.fields if known == name), None)

    @property
    def closes(self):
        return "close" in (self.field("connection") or "").lower()

    @property
    def kind(self):
        return (self.field("content-type") or "").split(";")[0]


class Reader:
    """Reads the answers on one connection."""

    def __init__(self, sock):
        self.sock, self.data = sock, b""

    def more(self):
        try:
            part = self.sock.recv(65536)
        except TimeoutError:
            raise Bad(f"no answer within {self.sock.gettimeout():g} s; so far {self.data[:300]!r}") from None
        self.data += part
        return bool(part)

    def until(self, mark):
        while mark not in self.data:
            if len(self.data) > MAX_HEAD and mark == b"\r\n\r\n":
                raise Bad(f"a head without an end: {self.data[:300]!r}")
            if not self.more():
                raise Bad(f"the connection ends in the middle of an answer: {self.data[-300:]!r}")
        part, self.data = self.data.split(mark, 1)
        return part

    def exactly(self, n):
        while len(self.data) < n:
            if not self.more():
                raise Bad(f"the connection ends {n - len(self.data)} bytes before the end of a body: {self.data[-300:]!r}")
        part, self.data = self.data[:n], self.data[n:]
        return part

    def chunks(self):
        body = b""
        while size := int(self.until(b"\r\n"), 16):
            body += self.exactly(size)
            if self.exactly(2) != b"\r\n":
                raise Bad("a chunk has another size than it says")
        if self.exactly(2) != b"\r\n":
            raise Bad("trailers after a body")
        return body

    def follows(self, text):
        """Does an answer or nothing follow?"""
        while len(self.data) < len(text) and text.startswith(self.data):
            if not self.more():
                return not self.data
        return self.data.startswith(text)

    def answer(self, bodiless=NEVER):
        """The next answer; None if the connection ends before it."""
        if not self.data and not self.more():
            return None
        status, fields = parse_head(self.until(b"\r\n\r\n"))
        if status == 100:
            return self.answer(bodiless)
        names = [name for name, _ in fields]
        if len(set(names)) != len(names):
            raise Bad(f"a header field twice: {fields}")
        known = dict(fields)
        has_body = status not in (204, 304) and (bodiless is NEVER or bodiless is MAYBE and not self.follows(b"HTTP/1.1 "))
        if has_body and "chunked" in known.get("transfer-encoding", ""):
            body = self.chunks()
        elif has_body and "content-length" in known:
            body = self.exactly(int(known["content-length"]))
        elif has_body:
            raise Bad(f"an answer without a length: {fields}")
        else:
            body = b""
        return Answer(status, fields, body)


def parse_head(head):
    line, *rest = head.split(b"\r\n")
    match = re.fullmatch(rb"HTTP/1\.1 (\d\d\d) [A-Za-z -]+", line)
    if not match:
        raise Bad(f"no status line of HTTP/1.1: {line[:300]!r}")
    fields = []
    for one in rest:
        name = re.fullmatch(rb"([A-Za-z0-9-]+): ([\x20-\x7e]*)", one)
        if not name:
            raise Bad(f"no header field: {one[:300]!r}")
        fields.append((name[1].decode().lower(), name[2].decode()))
    return int(match[1]), fields


# ---- judging -----------------------------------------------------------------------------------------------

def unique(pairs):
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise ValueError(f"a member twice in an answer: {names}")
    return dict(pairs)


def load(body):
    """A JSON value without doubled members, NaN and broken UTF-8."""
    def refuse(word):
        raise ValueError(f"{word} in JSON")
    return json.loads(body.decode("utf-8"), object_pairs_hook=unique, parse_constant=refuse)


def judge_error(answer, value):
    """An error of OpenAI's, Anthropic's, Ollama's or TypeSafe's API."""
    error = value.get("error") if isinstance(value, dict) else None
    if isinstance(value, dict) and set(value) == {"detail"}:
        detail = value["detail"]
        error = detail[0]["msg"] if isinstance(detail, list) else detail
    if isinstance(error, str):
        error = {"message": error, "type": "", "param": None, "code": None}
    if isinstance(error, dict) and value.get("type") == "error":
        error = {"param": None, "code": None, **error}
    if not isinstance(error, dict) or not {"message", "type", "param", "code"} <= set(error):
        raise Bad(f"{answer.status} without an error object: {answer.body[:300]!r}")
    message = error["message"]
    if not isinstance(message, str) or len(message) < 8 or "(null)" in message:
        raise Bad(f"{answer.status} does not name a problem: {answer.body[:300]!r}")
    if error["type"] in ("server_error", "api_error"):
        raise Bad(f"an error of the server's own: {answer.body[:300]!r}")


KEEP_ALIVE = b": keep-alive\n"


def events_of(body):
    return body.replace(KEEP_ALIVE, b"").decode("utf-8").split("\n\n")


def judge_named_events(body):
    """A stream whose events have names, each the type of its data."""
    events = events_of(body)
    if events.pop():
        raise Bad(f"a stream without its end: {body[-300:]!r}")
    values = []
    for event in events:
        name, data = event.split("\n", 1)
        values.append(load(data.removeprefix("data: ").encode()))
        if name != f"event: {values[-1]['type']}":
            raise Bad(f"an event under another name: {event[:300]!r}")
    if values[-1]["type"] not in ENDS:
        raise Bad(f"a stream without its end: {body[-300:]!r}")


def judge_lines(body):
    values = [load(line) for line in body.splitlines()]
    if "error" in values[-1]:
        judge_error(Answer(400, [], body), values.pop())
    elif not values[-1]["done"]:
        raise Bad(f"a stream without its end: {body[-300:]!r}")
    if any("error" in value for value in values):
        raise Bad(f"an error before a stream's end: {body[-300:]!r}")


def judge_events(body):
    if body.removeprefix(KEEP_ALIVE).startswith(b"event: "):
        judge_named_events(body)
        return
    events = events_of(body)
    last = events[-2].removeprefix("data: ") if len(events) > 1 else ""
    is_llamas = last.startswith("{") and (load(last.encode()).get("stop") is True or "error" in load(last.encode()))
    if events.pop() or last != "[DONE]" and not is_llamas:
        raise Bad(f"a stream without its end: {body[-300:]!r}")
    for event in events if is_llamas else events[:-1]:
        value = load(event.removeprefix("data: ").encode())
        if "error" in value:
            judge_error(Answer(400, [], event.encode()), value)


def judge(answer):
    """Raises Bad if no server may answer so to any request."""
    if answer.status not in STATUSES:
        raise Bad(f"status {answer.status}: {answer.body[:300]!r}")
    if b"<html" in answer.body.lower():
        raise Bad(f"a page of HTML: {answer.body[:300]!r}")
    try:
        if answer.kind == "text/event-stream":
            judge_events(answer.body)
        elif answer.kind == "application/x-ndjson":
            judge_lines(answer.body)
        elif answer.body and (answer.status >= 400 or answer.kind == "application/json"):
            value = load(answer.body)
            if answer.status >= 400 and not (isinstance(value, dict) and "status" in value):  # health checks
                judge_error(answer, value)
    except (ValueError, RecursionError) as error:
        raise Bad(f"{answer.status} {answer.kind}: {error}: {answer.body[:300]!r}") from None


# ---- comparing ---------------------------------------------------------------------------------------------

def plain(value, name=""):
    """A value without what differs from one run to the next."""
    if name in VARYING and not isinstance(value, (dict, list)):
        return f"<{name}>" if value is not None else None
    if isinstance(value, dict):
        return {key: plain(member, key) for key, member in value.items()}
    return [plain(element) for element in value] if isinstance(value, list) else value


def by_choice(events):
    """The chunks of each choice in order; which choice is first in a step depends on what else runs."""
    found = {}
    for event in events:
        choices = event.get("choices") or [{"index": event.get("index", -1)}]
        for choice in choices:
            found.setdefault(choice.get("index", -1), []).append({**event, "choices": choice})
    return found


def normal(answer):
    """What must be equal whenever the same request is sent."""
    fields = sorted(name for name, _ in answer.fields if name != "traceresponse")  # while a span is free
    if answer.kind == "application/x-ndjson":
        return answer.status, fields, [plain(load(line)) for line in answer.body.splitlines()]
    if answer.body.startswith(b"event: "):
        data = re.findall(rb"^data: (.*)$", answer.body, re.M)
        return answer.status, fields, [plain(load(one)) for one in data if b'"type":"ping"' not in one]
    if answer.kind == "text/event-stream":
        events = [event.removeprefix("data: ") for event in answer.body.decode().split("\n\n")]
        return answer.status, fields, by_choice([plain(load(event.encode())) for event in events if event.startswith("{")])
    if answer.body.startswith(LIVE):
        return answer.status, fields, sorted(load(answer.body))
    if answer.kind == "application/json" and answer.body:
        return answer.status, fields, plain(load(answer.body))
    if answer.status == 200 and answer.kind != "application/json":  # metrics: their names
        lines = answer.body.decode().splitlines()
        return answer.status, fields, sorted({line.split("{")[0].split(" ")[0] for line in lines if not line.startswith("#")})
    return answer.status, fields, answer.body
