"""Measures what events of the prefix cache and the prefix store cost, and what the store saves, in turns (A B B A).

    python3 bench/prefixes.py [--program build/penstock] [--model models/....gguf] [--repeats 9] [--only C21a ...] [--out FILE]

C21a  16 streams on a server with --kv-events and no subscriber, and on one without: tokens/s, with / without
C21b  the same with a subscriber that stalls: its queue is full before the first turn, so the server drops messages
C21c  TTFT of 4,000 tokens, the first prompt of a server that was restarted: recomputed / read from --prefix-store
C21d  16 streams whose blocks are all written to --prefix-store and never found there: tokens/s, with / without

A figure is the median of the ratios of the repeats, with their range; C21c has fewer repeats, because each starts two servers.
The store's files are in the system's page cache, as after a restart of a server on the same machine. A row fails if its
server did not do what the row measures.
"""
import contextlib
import pathlib
import re
import shutil
import socket
import struct
import tempfile
import time
import urllib.request

import costs
import runs
import works

ROWS = [
    costs.Row("C21a", "events without a subscriber / no events", .99),
    costs.Row("C21b", "events with a subscriber that stalls / no events", .99),
    costs.Row("C21c", "TTFT in ms after a restart: recomputed / from the store", 5, works.ttft_p50_ms,
              works.Work("long", "one prompt of 4,000 tokens", 4000, 1)),
    costs.Row("C21d", "prefix store, all misses / no store", .98),
]
MAX_RESTARTS = 5  # repeats of C21c
CACHE, STORE = "512MiB", "2G"
# One message a prompt: more than the server's queue of one subscriber (1,000) and its socket hold.
FILLING = works.Work("filling", "", 17, 1, queue_length=1300)
SETTLE_SECONDS = 0.5


def server(args, *flags):
    return runs.Server(args, "--served-model-name", "m", "--warm-up", "--kv-cache-memory", CACHE, *map(str, flags))


def counter(one, name, label):
    """A number of /metrics."""
    with urllib.request.urlopen(one.url + "/metrics") as answer:
        return float(re.search(rf'^{name}{{{label}}} (\S+)$', answer.read().decode(), re.MULTILINE)[1])


def written(one):
    return counter(one, "penstock_prefix_store_bytes_total", 'direction="written"')


def hits(one):
    return counter(one, "penstock_prefix_store_blocks_total", 'result="hit"')


# ---- events -------------------------------------------------------------------------------------------------------------

class Stalled:
    """A subscriber that reads nothing before `check`. It speaks ZMTP 3.0 by itself, because its segments must be small: then
    the server's socket holds little, and the server's queue fills."""

    GREETING = b"\xff" + bytes(8) + b"\x7f\3\0" + b"NULL".ljust(20, b"\0") + bytes(32)
    READY = b"\5READY\x0bSocket-Type" + struct.pack(">I", 3) + b"SUB"
    EVERY_TOPIC = b"\0\1\1"
    SEGMENT, COMMAND, LONG = 536, 4, 2  # bytes; flags of a frame

    def __init__(self, endpoint):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, self.SEGMENT)
        host, port = endpoint.removeprefix("tcp://").split(":")
        self.socket.connect((host, int(port)))
        self.socket.sendall(self.GREETING)
        self.read(len(self.GREETING))
        self.socket.sendall(bytes([self.COMMAND, len(self.READY)]) + self.READY)
        self.frame()
        self.socket.sendall(self.EVERY_TOPIC)

    def read(self, n):
        data = b""
        while len(data) < n:
            part = self.socket.recv(n - len(data))
            if not part:
                raise RuntimeError("the server has closed the connection of its subscriber")
            data += part
        return data

    def frame(self):
        is_long = self.read(1)[0] & self.LONG
        return self.read(int.from_bytes(self.read(8 if is_long else 1), "big"))

    def number(self, wait_s):
        """The number of the next message, which has three frames. None after wait_s without one."""
        self.socket.settimeout(wait_s)
        try:
            _topic, number, _events = (self.frame() for _ in range(3))
        except TimeoutError:
            return None
        return int.from_bytes(number, "big")

    def check(self, client):
        """Reads all that the server has kept, and the next message. Fails if none was lost between them."""
        numbers = []
        while (number := self.number(2)) is not None:
            numbers.append(number)
        client.run(works.WARM_UP, 1)
        last = self.number(10)
        if last is None or not numbers or last <= numbers[-1] + 1:
            raise RuntimeError(f"the subscriber got {len(numbers)} messages and then number {last}: it did not stall the server")
        print(f"the subscriber lost {last - numbers[-1] - 1} messages", flush=True)

    def close(self):
        self.socket.close()


def endpoint_of(one):
    with urllib.request.urlopen(one.url + "/kv_event_sources") as answer:
        return re.search(r'"endpoint": *"([^"]+)"', answer.read().decode())[1]


def measure_events(row, args, stalls):
    nothing = contextlib.nullcontext()
    with server(args, "--kv-events", "tcp://127.0.0.1:*") as first, server(args) as second:
        clients = costs.Client(first), costs.Client(second)
        with contextlib.closing(Stalled(endpoint_of(first))) if stalls else nothing as subscriber:
            for client in clients:  # both caches have the same blocks
                client.run(FILLING if stalls else works.WARM_UP, 0)
            found = costs.measure(row, nothing_else([(client, nothing) for client in clients]), args.repeats)
            if stalls:
                subscriber.check(clients[0])
    return found


@contextlib.contextmanager
def nothing_else(pair):
    yield pair


# ---- store --------------------------------------------------------------------------------------------------------------

def settle(one):
    """Waits until the store's writer is done."""
    before = -1
    while before != (now := written(one)):
        before = now
        time.sleep(SETTLE_SECONDS)
    return now


def first_prompt(row, args, repeat, *flags):
    """(TTFT, processor time) of a long prompt, and the store's hits. Small prompts were answered before it."""
    with server(args, *flags) as one:
        client = costs.Client(one)
        client.run(works.WARM_UP, repeat + 1)
        found = costs.turn(row, (client, contextlib.nullcontext()), repeat)
        return found, hits(one) if flags else 0


def measure_restarts(row, args, folder):
    n, flags = min(args.repeats, MAX_RESTARTS), ("--prefix-store", folder, "--prefix-store-size", STORE)
    with server(args, *flags) as one:
        for repeat in range(n):
            costs.Client(one).run(row.work, repeat)
            settle(one)
    found = []
    for repeat in range(n):
        sides = {}
        for stored in ((True, False) if repeat % 2 == 0 else (False, True)):
            sides[stored], n_hits = first_prompt(row, args, repeat, *(flags if stored else ()))
            if stored and n_hits < row.work.n_in // 16 - 1:
                raise RuntimeError(f"{n_hits:.0f} blocks of {row.work.n_in} tokens were read from the store")
        found.append((sides[False], sides[True]))
    return found


def measure_misses(row, args, folder):
    nothing = contextlib.nullcontext()
    with server(args, "--prefix-store", folder, "--prefix-store-size", STORE) as first, server(args) as second:
        found = costs.measure(row, nothing_else([(costs.Client(one), nothing) for one in (first, second)]), args.repeats)
        if hits(first) or not settle(first):
            raise RuntimeError(f"the store had {hits(first):.0f} hits and {written(first):.0f} written bytes")
        dropped = counter(first, "penstock_prefix_store_dropped_records_total", 'reason="queue_full"')
        print(f"{written(first) / 1e6:.0f} MB were written, {dropped:.0f} records dropped", flush=True)
    return found


# ---- the program --------------------------------------------------------------------------------------------------------

def measure(row, args):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-prefixes-"))
    try:
        if row.id in ("C21a", "C21b"):
            return measure_events(row, args, stalls=row.id == "C21b")
        return (measure_restarts if row.id == "C21c" else measure_misses)(row, args, folder)
    finally:
        shutil.rmtree(folder)


def main():
    parser = runs.options(__doc__, repeats=9)
    parser.add_argument("--only", nargs="+", choices=[row.id for row in ROWS], help="these rows")
    args = parser.parse_args()
    if args.repeats < 1:
        parser.error("--repeats is at least 1")
    figures = runs.begin(args)
    for row in ROWS:
        if not args.only or row.id in args.only:
            figures[row.id] = costs.report(row, measure(row, args))
    runs.write(args, figures)


if __name__ == "__main__":
    main()
