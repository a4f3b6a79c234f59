"""A subscriber of a server's events of the prefix cache, and its requests for a replay. The caller has the types of events."""
import time

import zmq

from streams import until

END = (2 ** 64 - 1).to_bytes(8, "big")


def source(server):
    return server.http.get("/kv_event_sources").json()["0"]


class Subscriber:
    """Applies all events to a set of blocks, and checks that each is possible. `decode` makes a batch of a payload."""

    def __init__(self, endpoint, decode, topic=b""):
        self.socket = zmq.Context.instance().socket(zmq.SUB)
        self.socket.setsockopt(zmq.RECONNECT_IVL_MAX, 200)
        self.socket.connect(endpoint)
        self.socket.subscribe(topic)
        self.decode, self.blocks, self.batches, self.next = decode, {}, [], None
        self.cleared = 0

    def receive(self, wait_ms=200):
        while self.socket.poll(wait_ms):
            topic, number, payload = self.socket.recv_multipart()
            number = int.from_bytes(number, "big")
            assert self.next in (None, number) or number == 0, "a number is missing"
            self.next = number + 1
            self.batches.append((topic, number, payload))
            self.apply(self.decode(payload))

    def receive_until(self, condition):
        """Receives events until the condition is true, however late they come."""
        until(lambda: self.receive(50) or condition())
        return self

    def receive_start(self):
        """Receives the events that a new subscription causes: all blocks are cleared, and those of the server follow."""
        return self.receive_until(lambda: self.cleared == 1)

    def apply(self, batch):
        assert abs(batch.ts - time.time()) < 120 and batch.data_parallel_rank == 0 and batch.events
        for event in batch.events:
            kind = type(event).__name__
            if kind == "AllBlocksCleared":
                self.blocks, self.cleared = {}, self.cleared + 1
            elif kind == "BlockRemoved":
                for block in event.block_hashes:
                    self.blocks.pop(block, None) if self.cleared == 0 else self.blocks.pop(block)
            else:
                assert kind == "BlockStored"
                self.store(event)

    def store(self, event):
        assert (event.medium, event.group_idx, event.kv_cache_spec_kind) == ("GPU", 0, "full_attention")
        assert len(event.token_ids) == event.block_size * len(event.block_hashes)
        parent = event.parent_block_hash
        assert parent is None or parent in self.blocks or self.cleared == 0
        for i, block in enumerate(event.block_hashes):
            assert block not in self.blocks
            self.blocks[block] = (parent, event.token_ids[i * event.block_size:][:event.block_size])
            parent = block

    def prefixes(self):
        """The whole prefixes that the blocks stand for."""
        def tokens(block):
            parent, own = self.blocks[block]
            return (tokens(parent) if parent is not None else []) + own
        return [tokens(block) for block in self.blocks]

    def close(self):
        self.socket.close(linger=0)


def request_replay(endpoint, *frames):
    """The numbers and batches of a replay up to its end."""
    socket = zmq.Context.instance().socket(zmq.DEALER)
    try:
        socket.connect(endpoint)
        socket.send_multipart(frames)
        answers = []
        while socket.poll(120000):
            empty, number, payload = socket.recv_multipart()
            assert empty == b""
            if number == END:
                assert payload == b""
                return answers
            answers.append((int.from_bytes(number, "big"), payload))
        raise AssertionError("the replay did not end")
    finally:
        socket.close(linger=0)
