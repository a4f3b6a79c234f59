"""The ways in which a case travels: whole, cut, reset, in pieces, unread. Each returns how many requests were sent."""
import socket
import struct
import time

from answers import NEVER, Bad, Reader, judge
from cases import Case, request

PATIENCE_SECONDS = 120
SENTINEL = b"GET /health/live HTTP/1.1\r\nHost: chaos\r\nConnection: close\r\n\r\n"
LINGER = struct.pack("ii", 1, 0)  # close() sends a reset


class Link:
    """One connection. A server that closes it while we send may still have answered."""

    def __init__(self, port, receive_buffer=None):
        self.sock = socket.socket()
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(PATIENCE_SECONDS)
        self.sock.connect(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader, self.broken = Reader(self.sock), False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, data):
        try:
            self.sock.sendall(data)
        except ConnectionError:
            self.broken = True
        except TimeoutError:
            raise Bad(f"the server reads nothing for {PATIENCE_SECONDS} s") from None
        return not self.broken

    def answer(self, bodiless=NEVER):
        """The next answer, judged; None if the connection ends."""
        try:
            answer = self.reader.answer(bodiless)
        except ConnectionError:
            self.broken = True
            return None
        if answer:
            judge(answer)
        return answer

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
        self.sock.close()

    def drain(self, bodiless=NEVER):
        """Reads answers until the server closes, and returns them. Bytes that were cut by a reset are no fault."""
        found = []
        try:
            while answer := self.answer(bodiless):
                found.append(answer)
        except Bad:
            if not self.broken:
                raise
        return found


def ask_all(world, cases):
    """Plain requests, sent together on one connection: each has its answer, until one says that the connection ends."""
    link, left, tries = None, list(cases), 0
    while left:
        with Link(world.port) as link:
            link.send(b"".join(case.data for case in left))
            n = 0
            for case in left:
                answer = link.answer(case.bodiless)
                if not answer:
                    break
                n += 1
                if answer.field("x-request-id") is None and answer.status != 503:
                    raise Bad(f"an answer without X-Request-Id to {case.name}: {answer}")
                if answer.closes:
                    break
        left = left[n:]
        tries = 0 if n else tries + 1
        if tries > 2:
            raise Bad(f"no answer to {left[0].name}, three times")
    return len(cases)


def ask(world, case, rng):
    return ask_all(world, [case])


def closing(world, case, rng):
    """Bytes that may be anything, then a plain request: what returns is whole answers, until the server closes.

    The plain request is sent twice, as the first may be trailers of a body."""
    with Link(world.port) as link:
        link.send(case.data + SENTINEL + SENTINEL)
        link.drain(case.bodiless)
    return 1


def cut(world, case, rng):
    with Link(world.port) as link:
        link.send(case.data[:rng.randrange(len(case.data) + 1)])
        if rng.random() < 0.5:
            time.sleep(rng.random() * 0.02)
    return 1


def reset(world, case, rng):
    link = Link(world.port)
    link.send(case.data[:rng.randrange(len(case.data) + 1)])
    if rng.random() < 0.5:
        time.sleep(rng.random() * 0.02)
    link.reset()
    return 1


def half(world, case, rng):
    """Waits for what the server makes of half a request."""
    with Link(world.port) as link:
        link.send(case.data[:rng.randrange(len(case.data))])
        link.drain(case.bodiless)
    return 1


def leave(world, case, rng):
    """Sends all and goes, while a worker or the engine has it."""
    link = Link(world.port)
    link.send(case.data)
    time.sleep(rng.choice([0, 0.001, 0.01, 0.05, 0.2]))
    link.reset() if rng.random() < 0.5 else link.sock.close()
    return 1


def leave_in_stream(world, case, rng):
    link = Link(world.port)
    link.send(case.data)
    link.sock.settimeout(0.5)
    try:
        for _ in range(rng.randrange(4)):
            link.sock.recv(rng.choice([1, 100, 4096]))
    except (ConnectionError, TimeoutError):
        pass
    link.reset() if rng.random() < 0.5 else link.sock.close()
    return 1


def half_close(world, case, rng):
    """Such a client counts as gone, so its answer may be cut."""
    with Link(world.port) as link:
        link.send(case.data)
        if not link.broken:
            link.sock.shutdown(socket.SHUT_WR)
            link.broken = True
        link.drain(case.bodiless)
    return 1


def slow_write(world, case, rng):
    """In pieces, down to single bytes; the server may have lost its patience."""
    with Link(world.port) as link:
        n, end = 0, time.monotonic() + rng.choice([0.5, 2, 6])
        while n < len(case.data) and time.monotonic() < end and not link.broken:
            size = rng.choice([1, 1, 2, 7, 50])
            link.send(case.data[n:n + size])
            n += size
            time.sleep(rng.choice([0, 0, 0.005, 0.05]))
        if n >= len(case.data) and not link.broken:
            link.send(SENTINEL)
            link.drain(case.bodiless)
    return 1


def slow_read(world, case, rng):
    """Asks often, and reads late or nothing."""
    n = rng.choice([1, 4, 12])
    with Link(world.port, receive_buffer=4096) as link:
        link.sock.settimeout(5)
        try:
            link.sock.sendall(case.data * n)
        except OSError:
            return n
        time.sleep(rng.choice([0.3, 1, 3]))
        link.sock.settimeout(PATIENCE_SECONDS)
        if rng.random() < 0.4:
            link.send(SENTINEL)
            link.drain(case.bodiless)
    return n


def pipeline(world, case, rng):
    """Many requests at once; reads all answers, some, or none."""
    n = rng.choice([2, 8, 16, 64])
    with Link(world.port) as link:
        link.sock.settimeout(20)
        try:
            link.sock.sendall((case.data + request("GET", "/health")) * (n // 2))
        except OSError:
            return n
        link.sock.settimeout(PATIENCE_SECONDS)
        if rng.random() < 0.5:
            link.send(SENTINEL)
            link.drain(case.bodiless)
        elif rng.random() < 0.5:
            link.answer(case.bodiless)
    return n


def crowd(world, case, rng):
    """Many connections, each with half the request; then some send the rest."""
    n = rng.choice([5, 20, 60])
    links = []
    try:
        for _ in range(n):
            links.append(Link(world.port))
            links[-1].send(case.data[:-1])
        for link in links:
            if rng.random() < 0.7:
                link.send(case.data[-1:] + SENTINEL)
                link.drain(case.bodiless)
    finally:
        for link in links:
            link.sock.close()
    return n


WAYS = {way.__name__: way for way in (ask, closing, cut, reset, half, leave, leave_in_stream, half_close, slow_write, slow_read,
                                      pipeline, crowd)}
QUICK = {"ask", "closing", "cut", "reset", "leave", "leave_in_stream",
         "half_close"}  # others wait, and have threads of their own


def send(world, case, rng):
    return WAYS[case.how](world, case, rng)
