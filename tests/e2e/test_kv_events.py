"""Events of the prefix cache as subscribers see them: vLLM's wire form, and sets of blocks that are those of the server."""
import contextlib
import signal
import subprocess

import msgspec
import pytest
import zmq

from conftest import BINARY, MODEL, NAME, environment, free_port
from event_subscriber import Subscriber, request_replay, source

STORY = "The river flows past the old mill, and the miller's daughter counts the boats that pass. "
KNOWN = 'penstock_kv_blocks{state="cached"}'  # of an idle server: all blocks that it knows


class Event(msgspec.Struct, omit_defaults=True, gc=False, tag=True, kw_only=True):
    """vLLM's base of events: maps whose `type` is the name of the class."""


class BlockStored(Event, forbid_unknown_fields=True):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None


class BlockRemoved(Event, forbid_unknown_fields=True):
    block_hashes: list[int]
    medium: str | None
    group_idx: int | None = None


class AllBlocksCleared(Event, forbid_unknown_fields=True):
    pass


class Batch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


def decode(payload):
    return msgspec.msgpack.decode(payload, type=Batch)


@pytest.fixture
def subscribe():
    own = []

    def begin(endpoint, **options):
        own.append(Subscriber(endpoint, decode, **options))
        return own[-1]

    yield begin
    for one in own:
        one.close()


def prompt_of(server, text):
    return server.post("/tokenize", {"prompt": text}).json()["tokens"]


def check_same_blocks(server, *subscribers):
    """Waits until all subscribers know as many blocks as the idle server."""
    server.wait_until_idle()
    known = server.metrics()[KNOWN]
    assert known > 0
    for one in subscribers:
        one.receive_until(lambda one=one: len(one.blocks) == known)


def publishing(start, *flags):
    return start("--kv-events", "tcp://127.0.0.1:*", "--kv-events-replay", "tcp://127.0.0.1:*", *flags)


def test_events_are_the_blocks_of_the_server_and_answers_are_unchanged(start, server, subscribe):
    own = publishing(start)
    seen = subscribe(source(own)["endpoint"]).receive_start()
    assert not seen.blocks
    text = STORY * 5
    answer = own.complete(text, max_tokens=20, return_token_ids=True)["choices"][0]
    assert answer["text"] == server.complete(text, max_tokens=20)["choices"][0]["text"]
    own.complete(text[:-20] + "another end", max_tokens=1)
    check_same_blocks(own, seen)
    prompt = prompt_of(own, text)
    longest = max(seen.prefixes(), key=len)
    assert longest == (prompt + answer["token_ids"])[:len(longest)] and len(longest) > len(prompt)
    assert any(parent is None for parent, _ in seen.blocks.values())


def test_a_late_subscriber_gets_all_blocks_after_evictions(start, subscribe):
    own = publishing(start, "--max-model-len", "256", "--kv-cache-memory", "8MiB")
    early = subscribe(source(own)["endpoint"]).receive_start()
    for i in range(6):
        own.complete(f"{i} {STORY * 5}", max_tokens=2)
    check_same_blocks(own, early)
    late = subscribe(source(own)["endpoint"]).receive_start()
    early.receive_until(lambda: early.cleared == 2)
    check_same_blocks(own, late, early)
    assert late.cleared == 1 and early.cleared == 2 and set(late.blocks) == set(early.blocks)
    assert any(isinstance(decode(payload).events[0], BlockRemoved) for _, _, payload in early.batches)


def test_private_prefixes_are_not_published(start, subscribe):
    own = publishing(start)
    seen = subscribe(source(own)["endpoint"]).receive_start()
    own.complete(STORY * 5, max_tokens=2, cache_salt="mine")
    own.wait_until_idle()
    private = own.metrics()[KNOWN]
    assert private > 0
    own.complete(STORY * 7, max_tokens=2)
    own.wait_until_idle()
    public = own.metrics()[KNOWN] - private
    seen.receive_until(lambda: len(seen.blocks) >= public)
    seen.receive()
    assert len(seen.blocks) == public > private


def test_a_replay_has_the_published_batches(start, subscribe):
    own = publishing(start, "--kv-events-topic", "kv@here@smol")
    seen = subscribe(source(own)["endpoint"], topic=b"kv@").receive_start()
    for i in range(4):
        own.complete(f"{i} {STORY * 3}", max_tokens=2)
        seen.receive(100)
    check_same_blocks(own, seen)
    assert {topic for topic, _, _ in seen.batches} == {b"kv@here@smol"} and source(own)["topic"] == "kv@here@smol"
    replay = source(own)["replay_endpoint"]
    sent = [(number, payload) for _, number, payload in seen.batches]
    assert request_replay(replay, b"", (0).to_bytes(8, "big")) == sent and len(sent) > 4
    assert request_replay(replay, b"", (3).to_bytes(8, "big")) == sent[3:]
    assert request_replay(replay, b"", (10 ** 9).to_bytes(8, "big")) == []
    for frames in ([b"", b"short"], [b"", b"x" * 500], [(0).to_bytes(8, "big")], [b"", (0).to_bytes(8, "big"), b""], [b"no", bytes(8)]):
        assert request_replay(replay, *frames) == []
    assert own.complete(max_tokens=1)


def test_the_blocks_of_a_killed_server_are_cleared_when_it_is_back(start, subscribe):
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    first = start("--kv-events", endpoint)
    seen = subscribe(endpoint)
    first.complete(STORY * 3, max_tokens=2)
    check_same_blocks(first, seen)
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    second = start("--kv-events", endpoint)
    seen.receive_until(lambda: not seen.blocks)
    second.complete("Another " + STORY * 2, max_tokens=2)
    check_same_blocks(second, seen)
    second.process.terminate()
    second.process.wait()
    seen.receive_until(lambda: not seen.blocks)  # a server that ends clears its blocks


def test_a_subscriber_that_stalls_does_not_hold_the_server(start):
    own = publishing(start)
    context = zmq.Context.instance()
    with contextlib.closing(context.socket(zmq.SUB)) as stalled:
        stalled.setsockopt(zmq.RCVHWM, 1)
        stalled.setsockopt(zmq.RCVBUF, 1024)
        stalled.setsockopt(zmq.LINGER, 0)
        stalled.connect(source(own)["endpoint"])
        stalled.subscribe(b"")
        for i in range(20):
            own.complete(f"{i} {STORY}", max_tokens=4)
    assert own.http.get("/health").status_code == 200


def test_no_socket_and_no_thread_without_the_option(server):
    assert server.http.get("/kv_event_sources").json() == {}
    with open(f"/proc/{server.process.pid}/maps") as maps:
        assert "libzmq" not in maps.read()


@pytest.mark.parametrize("flags, text", [
    (["--kv-events", "http://127.0.0.1:1"], "must be tcp://HOST:PORT"),
    (["--kv-events", "tcp://192.0.2.1:5557"], "cannot be bound"),
    (["--kv-events-replay", "tcp://127.0.0.1:*"], "are used with --kv-events"),
    (["--kv-events", "tcp://127.0.0.1:*", "--no-enable-prefix-caching"], "has none"),
])
def test_endpoints_that_cannot_be_served_are_refused(flags, text):
    command = [BINARY, "serve", "--model", MODEL, "--port", str(free_port()), "--max-model-len", "256", *flags]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment())
    assert ended.returncode in (1, 2) and text in ended.stderr, ended.stderr


def test_routers_learn_the_sizes(server):
    info = server.http.get("/get_server_info").json()
    assert info["model_id"] == info["served_model_name"] == NAME and info["kv_block_size"] == 16
    assert info["max_model_len"] == 1024 and info["max_num_seqs"] == 16 and info["max_total_num_tokens"] % 16 == 0
