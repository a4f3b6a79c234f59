"""Events of the prefix cache, read with the types of the newest vLLM: a subscriber and a request for a replay."""
import msgspec
import pytest

from event_subscriber import Subscriber, request_replay, source
from vllm_events import newest_types

STORY = "The river flows past the old mill, and the miller's daughter counts the boats that pass. "
KINDS = {"BlockStored", "BlockRemoved", "AllBlocksCleared"}
PATIENCE_MS = 1500


@pytest.fixture(scope="module")
def types():
    return newest_types()


@pytest.fixture(scope="module")
def decoder(types):
    return msgspec.msgpack.Decoder(types[1]["KVEventBatch"], strict=True)


@pytest.fixture
def seen(start, decoder):
    """A subscriber of a server whose cache is too small for its prompts, and the server."""
    own = start("--kv-events", "tcp://127.0.0.1:*", "--kv-events-replay", "tcp://127.0.0.1:*", "--max-model-len", "256",
                "--kv-cache-memory", "8MiB")
    subscriber = Subscriber(source(own)["endpoint"], decoder.decode)
    subscriber.receive(PATIENCE_MS)
    for i in range(6):
        own.complete(f"{i} {STORY * 5}", max_tokens=20)
    own.wait_until_idle()
    subscriber.receive(PATIENCE_MS)
    yield subscriber, own
    subscriber.close()


def check_fields(event, sent):
    """vLLM has a field for each one that was sent, with the sent value. Decoders ignore unknown fields."""
    sent = dict(sent)
    assert sent.pop("type") == type(event).__name__
    assert sent == {name: msgspec.to_builtins(getattr(event, name)) for name in sent if name in event.__struct_fields__}


def check_batch(batch, payload):
    """Returns the kinds of its events."""
    ts, events, rank = msgspec.msgpack.decode(payload)
    assert (batch.ts, batch.data_parallel_rank) == (ts, rank) and len(batch.events) == len(events)
    for event, sent in zip(batch.events, events):
        check_fields(event, sent)
    return {type(event).__name__ for event in batch.events}


def test_the_newest_vllm_reads_every_event(types, decoder, seen, capsys):
    subscriber, own = seen
    with capsys.disabled():
        print(f"\nvLLM {types[0]}: {len(subscriber.batches)} batches", flush=True)
    kinds = set().union(*(check_batch(decoder.decode(payload), payload) for _, _, payload in subscriber.batches))
    assert kinds == KINDS
    assert len(subscriber.blocks) == own.metrics()['penstock_kv_blocks{state="cached"}'] > 0
    parents = {parent is None for parent, _ in subscriber.blocks.values()}
    assert parents == {True, False}, "blocks with and without a parent"


def test_the_newest_vllm_reads_every_batch_of_a_replay(decoder, seen):
    subscriber, own = seen
    replayed = request_replay(source(own)["replay_endpoint"], b"", (0).to_bytes(8, "big"))
    assert replayed == [(number, payload) for _, number, payload in subscriber.batches]
    assert set().union(*(check_batch(decoder.decode(payload), payload) for _, payload in replayed)) == KINDS


@pytest.mark.parametrize("events", [
    [{"type": "BlockRemoved", "block_hashes": ["1"], "medium": "GPU"}],
    [{"type": "BlockRemoved", "medium": "GPU"}],
    [{"type": "BlockMoved"}],
    [["AllBlocksCleared"]],
])
def test_the_types_refuse_other_events(decoder, events):
    """So a batch that is decoded has the right types."""
    with pytest.raises(msgspec.ValidationError):
        decoder.decode(msgspec.msgpack.encode([1.0, events, 0]))
