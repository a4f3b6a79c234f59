"""Measures what watchers of the live view cost: 16 streams (C3) with 0 and with 16 watchers, in turns (A B B A).

    python3 bench/watchers.py [--program build/penstock] [--model models/....gguf] [--repeats 9] [--watchers 16] [--out FILE]

One server does both turns. A watcher reads the events of `GET /penstock/live` as they arrive. The figure is the ratio of the
median tokens/s, with the lowest ratio of adjacent turns. The ratio of the server's processor time is for a machine that
others use. The client and the watchers share the machine with the server.
"""
import selectors
import socket
import statistics
import threading

import machine
import runs
import served
import works

REQUEST = b"GET /penstock/live HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n"


class Watchers:
    """`n` watchers, from the time when each has a snapshot until the end of the block."""

    def __init__(self, address, n):
        self.address, self.n, self.events, self.is_over = address, n, [0] * n, False
        self.all_see, self.thread = threading.Event(), threading.Thread(target=self.read)

    def read(self):
        with selectors.DefaultSelector() as selector:
            for i in range(self.n):
                link = socket.create_connection(self.address, timeout=60)
                link.sendall(REQUEST)
                selector.register(link, selectors.EVENT_READ, i)
            while not self.is_over:
                for key, _ in selector.select(0.2):
                    data = key.fileobj.recv(1 << 16)
                    if not data or data.startswith(b"HTTP/") and b" 200 " not in data[:20]:
                        raise RuntimeError(f"a watcher was refused or cut off: {data[:300]!r}")
                    self.events[key.data] += data.count(b"data: ")
                if all(self.events):
                    self.all_see.set()
            for key in list(selector.get_map().values()):
                key.fileobj.close()

    def __enter__(self):
        if self.n:
            self.thread.start()
            if not self.all_see.wait(60):
                raise RuntimeError("a watcher got no snapshot within a minute")
        return self

    def __exit__(self, *_):
        self.is_over = True
        if self.n:
            self.thread.join()


def turn(server, client, n, repeat):
    """Tokens/s of the streams, the server's processor time, and the snapshots that the watchers got."""
    with Watchers(client.address, n) as watchers:
        before, used = sum(watchers.events), machine.process_seconds(server.process.pid)
        speed = works.tokens_per_s(client.run(works.TOGETHER, repeat))
        return speed, machine.process_seconds(server.process.pid) - used, sum(watchers.events) - before


def measure(args):
    """[(without, with)] of each repeat, each as of turn()."""
    found = []
    with runs.Server(args, "--served-model-name", "m", "--warm-up", "--no-enable-prefix-caching") as server:
        client = served.Served("penstock", server.url, "m")
        client.run(works.WARM_UP, 0)
        for repeat in range(args.repeats):
            order = (0, args.watchers) if repeat % 2 == 0 else (args.watchers, 0)
            pair = {n: turn(server, client, n, 2 * repeat + i) for i, n in enumerate(order)}
            found.append((pair[0], pair[args.watchers]))
            print(f"without {pair[0][0]:.1f} tokens/s, with {args.watchers} watchers {pair[args.watchers][0]:.1f}", flush=True)
    return found


def main():
    parser = runs.options(__doc__, repeats=9)
    parser.add_argument("--watchers", type=int, default=16)
    args = parser.parse_args()
    if not 1 <= args.watchers <= 16 or args.repeats < 1:
        parser.error("--watchers is from 1 to 16, which the server allows, and --repeats at least 1")
    figures, found = runs.begin(args), measure(args)
    without, watched = ([pair[i] for pair in found] for i in (0, 1))
    median = [statistics.median(one[0] for one in side) for side in (without, watched)]
    lowest = min(b[0] / a[0] for a, b in found)
    figures |= {"watchers": args.watchers, "tokens_s": median[0], "tokens_s_watched": median[1], "ratio": median[1] / median[0],
                "lowest_ratio": lowest, "processor_ratio": sum(one[1] for one in watched) / max(sum(one[1] for one in without), 1e-9),
                "snapshots": sum(one[2] for one in watched)}
    print(f"{median[0]:.1f} tokens/s alone, {median[1]:.1f} with {args.watchers} watchers: ratio {figures['ratio']:.3f} (lowest {lowest:.3f}), "
          f"processor time {figures['processor_ratio']:.3f}, {figures['snapshots']} snapshots")
    runs.write(args, figures)


if __name__ == "__main__":
    main()
