"""Hostile request lines, header fields and framings, on every route with every method."""
from cases import Deck, request, write
from routes import ADAPTERS, DRAIN, PATHS, ROWS, completion

METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "get", "POSTS", "X" * 300, "GE\tT",
           ""]
BODIES = {path: write(body) for _, method, path, body in ROWS if method == "POST"} | {path: b"{}" for path in (DRAIN[0], *ADAPTERS)}
SMALL = write(completion(max_tokens=2))
PATH_FORMS = [
    lambda p: p, lambda p: p + "/", lambda p: p + "//", lambda p: "/" + p, lambda p: p.replace("/", "//"), lambda p: p.upper(),
    lambda p: p.title(),
    lambda p: p + "?", lambda p: p + "?a=b&c", lambda p: p + "?" + "a&" * 250, lambda p: p + "?a=%00", lambda p: p + "#x",
    lambda p: p + "/?x",
    lambda p: p + "%2f", lambda p: p + "%2F/", lambda p: p.replace("e", "%65"), lambda p: p.replace("/", "%2f"),
    lambda p: p + "%", lambda p: p + "%a",
    lambda p: p + "%zz", lambda p: p + "%00", lambda p: p + "\0", lambda p: p + "/.", lambda p: p + "/..",
    lambda p: "/x/.." + p, lambda p: "/." + p,
    lambda p: p + "/render", lambda p: p + "/render/", lambda p: p + "/render/render", lambda p: p + "/render?",
    lambda p: p + "/" + "a" * 600,
    lambda p: p + "x" * 8000, lambda p: p + "y" * 70000, lambda p: p[1:], lambda p: "", lambda p: "*",
    lambda p: "http://chaos" + p,
    lambda p: "HTTP://chaos:1" + p + "/", lambda p: "http://" + p, lambda p: "ftp://chaos" + p, lambda p: p + " ",
    lambda p: p + "\t", lambda p: p + "\xff",
    lambda p: p + "\x7f", lambda p: p.replace("/v1", ""), lambda p: "/v1" + p, lambda p: p + ";a=b", lambda p: p[:-1],
    lambda p: p + "s", lambda p: p + "\\"]
FIELDS = [
    "Content-Length: 0", "Content-Length: 5", "Content-Length: -1", "Content-Length: +5", "Content-Length: 0x5",
    "Content-Length: 5,5", "Content-Length: 5 5",
    "Content-Length:", "Content-Length: ", "Content-Length: 99999999999999999999", "Content-Length: 18446744073709551616",
    "Content-Length: 3000000000",
    "Content-Length: 4194304", "Content-Length: 4194305", "Content-Length: 1e2", "Content-Length: 05", "Content-Length : 5",
    " Content-Length: 5",
    "Transfer-Encoding: chunked", "Transfer-Encoding: Chunked", "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: chunked, gzip",
    "Transfer-Encoding: identity", "Transfer-Encoding: xchunked", "Transfer-Encoding:", "Transfer-Encoding: chunked;q=1",
    "Transfer-Encoding\t: chunked",
    "Transfer-Encoding: chunked, chunked", "TE: trailers", "Trailer: X", "Connection: close", "Connection: keep-alive",
    "Connection: c,close",
    "Connection: close,c", "Connection: closed", "Connection: " + "a" * 57 + ",close", "Connection: " + "a" * 56 + ",close,x",
    "Connection: ,,,close",
    "Connection: CLOSE", "Connection: upgrade", "Connection: keep-alive, close", "Connection:", "Connection: \"close\"",
    "Connection: close\tx",
    "Connection: Host", "Upgrade: h2c", "Upgrade: websocket", "HTTP2-Settings: AAMAAABkAAQAAP__", "Expect: 100-continue",
    "Expect: 100-Continue", "Expect: x",
    "Expect:", "Expect: 100-continue, x", "Host: other", "Host:", "Host: a b", "host: chaos", "Host: chaos:99999", "Host: [::1",
    "Content-Type: text/plain",
    "Content-Type:", "Content-Type: application/json; charset=utf-16", "Content-Type: application/x-www-form-urlencoded",
    "Content-Type: " + "a" * 9000,
    "Content-Encoding: gzip", "Content-Encoding: identity", "Content-Encoding:",
    "Accept: application/openmetrics-text; version=1.0.0; q=0.5",
    "Accept: " + "a/b;q=0.1," * 900, "Accept: ;q=;version=", "Accept: text/plain;q=9e999", "Accept-Encoding: gzip",
    "Origin: https://a.example",
    "Origin: null", "Origin:", "Origin: " + "o" * 5000, "Access-Control-Request-Method: POST",
    "Access-Control-Request-Headers: " + "x," * 2000,
    "Authorization:", "Authorization: Bearer", "Authorization: Bearer ", "Authorization: Basic YTpi",
    "Authorization: Bearer wrong",
    "Authorization: bearer key-one", "Authorization: Bearer key-one,key-two", "Authorization: Bearer " + "k" * 5000,
    "x-api-key: key-two", "x-api-key:",
    "api-key: key-one", "X-Request-Id: mine", "X-Request-Id:", "X-Request-Id: " + "i" * 129, "X-Request-Id: a\tb",
    "X-Request-Id: \xff", "X-Request-Id: a\x01b",
    "traceparent: 00-" + "a" * 32 + "-" + "b" * 16 + "-01", "traceparent: 00-" + "0" * 52, "traceparent: ff-" + "g" * 60,
    "traceparent:",
    "X-Forwarded-For: 1.2.3.4", "X-Forwarded-For: ,,,", "X-Forwarded-For: [::1]:5, 127.0.0.1", "X-Forwarded-For: " + "9" * 3000,
    "X-Forwarded-For:",
    "X-Forwarded-For: " + "127.0.0.1, " * 500, "Cookie: a=b", "Cookie: " + "a=b;" * 150, "Cookie: " + "a" * 9000,
    "Cookie: =;=;;", "Range: bytes=0-1",
    "If-None-Match: *", "X: " + "x" * 66000, ": empty", "No colon", "X-\xe9: y", "X:\0", "X: a\rb", "X: a\nb", "X:", "\r",
    "X: a\r\n folded", "X: a\r\n\tfolded",
    "\r\n".join(f"X-{i}: y" for i in range(210)), "\r\n".join(f"X: {i}" for i in range(190)), "(): y", "X\"Y: z",
    "X" * 5000 + ": y", "Content-Length: 5\r\nContent-Length: 6",
    "Transfer-Encoding: chunked\r\nContent-Length: 5", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "Host: a\r\nHost: b", "Authorization: Bearer a\r\nAuthorization: Bearer b"]
LINES = ["{m} {p} HTTP/1.0", "{m} {p} HTTP/0.9", "{m} {p} HTTP/2.0", "{m} {p} HTTP/1.2", "{m} {p} HTTP/1.10",
         "{m} {p} http/1.1", "{m} {p} HTTP/1", "{m} {p} HTTP/",
         "{m} {p} HTTP/-1.1", "{m} {p}", "{m}", "{m}  {p} HTTP/1.1", "{m} {p}  HTTP/1.1", " {m} {p} HTTP/1.1",
         "{m}\t{p}\tHTTP/1.1", "{m} {p} HTTP/1.1 ",
         "{m} {p} HTTP/1.1 x", "{m} {p} HTTP/9.9", "\r\n\r\n{m} {p} HTTP/1.1", "\0{m} {p} HTTP/1.1", "{m} {p} XTTP/1.1",
         "PRI * HTTP/2.0", "\x16\x03\x01{m}", "{p} {m} HTTP/1.1",
         "{m} {p} HTTP/1.1\r\nHost: chaos\r\n\r\n{m} {p} HTTP/1.1"]
CHUNKS = [b"5\r\nhello\r\n0\r\n\r\n", b"5;a=b\r\nhello\r\n0\r\n\r\n", b"5\r\nhello\r\n0\r\nX: y\r\n\r\n", b"zz\r\n", b"-1\r\n",
          b"ffffffffffffffff\r\n", b"fffffffffffffffff\r\n",
          b"5\nhello\n0\n\n", b"5\r\nhelloX\r\n0\r\n\r\n", b"5\r\nhello", b"0\r\n\r\n", b"00000000000000000000\r\n\r\n",
          b"5 \r\nhello\r\n0\r\n\r\n", b"0x5\r\nhello\r\n0\r\n\r\n",
          b"5;" + b"e" * 300 + b"\r\nhello\r\n0\r\n\r\n", b"\r\n", b"400001\r\n", b"7fffffffffffffff\r\nx",
          b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", b"5\r\rhello\r\r0\r\r\r\r",
          b"5\r\nhello\r\n0\r\n" + b"T: x\r\n" * 300 + b"\r\n", b"0\r\nContent-Length: 5\r\n\r\n",
          b"5\r\nhello\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n"]
ENDS = ["\r\n", "\n", "\r", "\r\n\r\n", "\n\r", "\0\r\n"]


def sent(method, path, head, body, what):
    """The request, with a key unless a field is about keys."""
    own = any("uthorization" in one or "api-key" in one for one in head)
    return lambda key: request(method, path, body, head, None if own else key), "closing", what


def path(i, rng):
    i, form = divmod(i, len(PATH_FORMS))
    method, p = METHODS[i % len(METHODS)], PATHS[i // len(METHODS)]
    body = BODIES.get(p, b"{}") if method == "POST" else None
    return sent(method, PATH_FORMS[form](p), (), body, f"{method[:9]} {p} in form {form}")


def field(i, rng):
    """A field more, on any route; the body has a Content-Length of its own."""
    i, n = divmod(i, len(FIELDS))
    p = PATHS[i]
    method = "POST" if p in BODIES else "GET"
    fields = [FIELDS[n]] + ([rng.choice(FIELDS)] if rng.random() < 0.2 else [])
    return sent(method, p, fields, BODIES.get(p), f"{method} {p} with {FIELDS[n][:60]!r}")


def framed(i, rng):
    """The field alone says how long the body is, and that may be wrong."""
    i, n = divmod(i, len(FIELDS))
    p = PATHS[i]
    method = rng.choice(["POST", "POST", "GET", "OPTIONS", "PUT"])
    data = f"{method} {p} HTTP/1.1\r\nHost: chaos\r\nContent-Type: application/json\r\n{FIELDS[n]}\r\n\r\n".encode("latin-1")
    return data + rng.choice([b"", b"hello", BODIES.get(p, b"{}"),
                              rng.choice(CHUNKS)]), "closing", f"{method} {p} framed by {FIELDS[n][:60]!r}"


def line(i, rng):
    i, n = divmod(i, len(LINES))
    p = PATHS[i]
    end = rng.choice(ENDS + ["\r\n"] * 8)
    text = LINES[n].format(m=rng.choice(METHODS[:6]), p=p) + end + "Host: chaos\r\n" * rng.choice([1, 1, 1, 0,
                                        2]) + rng.choice(["", "X: y"]) + end + "\r\n"
    return text.encode("latin-1"), "closing", f"{p} by {LINES[n]!r}"


def chunked(i, rng):
    p = PATHS[i // len(CHUNKS)]
    head = f"POST {p} HTTP/1.1\r\nHost: chaos\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return head + CHUNKS[i % len(CHUNKS)], "closing", f"{p} in chunks"


def noise(i, rng):
    data = bytearray(request("POST", rng.choice(PATHS), SMALL, key="key-one"))
    for _ in range(rng.choice([1, 1, 2, 5, 40])):
        data[rng.randrange(len(data))] = rng.choice([0, 10, 13, 32, 58, 9, 44, 255, rng.randrange(256)])
    cut = rng.randrange(len(data)) if rng.random() < 0.2 else len(data)
    return bytes(data[:cut]), "closing", "bytes changed"


DECKS = [Deck("path", len(PATHS) * len(METHODS) * len(PATH_FORMS), path, 25),
         Deck("head field", len(PATHS) * len(FIELDS), field, 14),
         Deck("framed", len(PATHS) * len(FIELDS), framed, 8), Deck("line", len(PATHS) * len(LINES), line, 8),
         Deck("chunked", len(PATHS) * len(CHUNKS), chunked, 5), Deck("noise", 100_000, noise, 10)]
