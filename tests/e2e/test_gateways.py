"""Servers with proxies and gateways: the address that is logged, and the ids that identify a request."""
import itertools
import re

from streams import until
from test_abuse import connect, read_all

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


NUMBER = itertools.count(1000)


def ask(server, *lines):
    """Returns the log line of one request with these headers."""
    mark = f"r-{next(NUMBER)}-r"
    head = "".join(line + "\r\n" for line in lines)
    with connect(server) as client:
        client.sendall(f"GET /v1/models HTTP/1.1\r\nHost: x\r\nX-Request-Id: {mark}\r\nConnection: close\r\n{head}\r\n".encode())
        answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 200") and f"X-Request-Id: {mark}\r\n".encode() in answer
    # the line may be written after the connection's end
    return until(lambda: [line for line in server.log_tail().splitlines(keepends=True) if mark in line and line.endswith("\n")])[0]


def client_of(server, *lines):
    return re.search(r"client=(\S+)", ask(server, *lines))[1]


def test_the_client_behind_proxies(start):
    server = start("--trusted-proxies", "127.0.0.1,10.0.0.0/8", "2001:db8::/33")
    for value, client in (("1.2.3.4", "1.2.3.4"), ("6.6.6.6, 1.2.3.4", "1.2.3.4"), ("1.2.3.4, 10.9.8.7", "1.2.3.4"),
                          ("1.2.3.4,2001:db8:7fff::1", "1.2.3.4"), ("1.2.3.4,2001:db8:8000::1", "2001:db8:8000::1"),
                          ("10.1.1.1, 10.2.2.2", "10.1.1.1"), ("1.2.3.4:5678", "1.2.3.4"), ('"[2001:db9::5]:80"', "2001:db9::5"),
                          ("1.2.3.4, forged name", "127.0.0.1"), ("", "127.0.0.1"), ("1.2.3.4,,10.1.1.1", "10.1.1.1")):
        assert client_of(server, f"X-Forwarded-For: {value}") == client, value
    # a proxy that adds a separate header instead of extending the client's
    assert client_of(server, "X-Forwarded-For: 6.6.6.6", "x-forwarded-for: 1.2.3.4") == "1.2.3.4"


def test_nobody_is_trusted_by_default(server):
    assert client_of(server, "X-Forwarded-For: 1.2.3.4") == "127.0.0.1"


def test_traces(server):
    for value, kept in ((TRACE, True), ("01" + TRACE[2:] + "-more", True), (TRACE + "-more", False), ("ff" + TRACE[2:], False),
                        (TRACE.upper(), False), (TRACE[:-1], False), (TRACE.replace("-", "_"), False),
                        ("00-" + "0" * 32 + TRACE[35:], False), (TRACE[:36] + "0" * 16 + "-01", False), ("x", False)):
        line = ask(server, f"traceparent: {value}")
        assert (f"traceparent={value}" in line) == kept, line
        assert kept or "traceparent" not in line


def test_a_wrong_proxy_is_named(start):
    server = start("--trusted-proxies", "10.0.0.0/99", ready=False)
    assert server.process.wait(120) == 2
    assert "10.0.0.0/99" in server.log_tail()
