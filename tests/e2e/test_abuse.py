"""For any bytes that a client sends, withholds or does not read, the server continues and frees its memory."""
import concurrent.futures
import contextlib
import json
import random
import re
import socket
import time

from conftest import NAME
from streams import until

LONG = {"model": NAME, "prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "stream": True,
        "temperature": 0}


def connect(server, receive_buffer=None):
    client = socket.socket()
    if receive_buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.settimeout(120)
    client.connect(("127.0.0.1", server.port))
    return client


def request_bytes(body, path="/v1/completions"):
    text = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    return head.encode() + text


def read_all(client):
    """All bytes until the server closes the connection."""
    parts = []
    try:
        while part := client.recv(65536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def read_until(client, mark):
    text = b""
    while mark not in text:
        part = client.recv(4096)
        assert part, text
        text += part
    return text


def check_alive(server):
    assert server.process.poll() is None
    assert server.http.get("/health").status_code == 200


def send_garbage(server, text):
    with connect(server) as client:
        client.sendall(text)
        with contextlib.suppress(OSError):  # the server may have closed the connection
            client.shutdown(socket.SHUT_WR)
        answer = read_all(client)
        assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 505")), (text, answer)


def test_garbage(start):
    server = start("--request-timeout", "2")  # how long the server waits for an incomplete request
    source = random.Random(1)
    texts = [bytes(source.randrange(256) for _ in range(source.randrange(1, 2000))) for _ in range(60)]
    texts += [b"\r\n" * 100, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET  HTTP/1.1\r\n\r\n", b"\0" * 100,
              b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
              b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
              b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
              b"GET /%00%ff%2e%2e/ HTTP/1.1\r\nConnection: close\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"]
    with concurrent.futures.ThreadPoolExecutor(len(texts)) as pool:
        list(pool.map(lambda text: send_garbage(server, text), texts))
    check_alive(server)


def test_slow_senders_are_timed_out(start):
    server = start("--request-timeout", "1")
    starts = {"headers": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Slow: ",
              "body": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                      b"Content-Length: 1000\r\n\r\n{"}
    for what, text in starts.items():
        with connect(server) as client:
            begun = time.monotonic()
            client.sendall(text)
            client.settimeout(0.3)
            answer = b""
            while time.monotonic() - begun < 120:  # an occasional byte must not extend the time: it would never end
                try:
                    part = client.recv(4096)
                    answer += part
                    if not part:
                        break
                except TimeoutError:
                    client.sendall(b" ")
                except ConnectionError:
                    break
            assert answer.startswith(b"HTTP/1.1 408"), (what, answer)
            assert b"timeout_error" in answer
    check_alive(server)


def test_large_headers_and_bodies(server):
    with connect(server) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Large: " + b"a" * 100_000 + b"\r\n\r\n")
        assert b" 431 " in read_all(client).split(b"\r\n")[0]
    with connect(server) as client:  # refused by its Content-Length, before the body is sent
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                       b"Content-Length: 20000000\r\n\r\n")
        answer = read_until(client, b"request_too_large")
        assert b" 413 " in answer.split(b"\r\n")[0]
    with connect(server) as client:  # and by the bytes that arrive, if there is no Content-Length
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                       b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        try:
            for _ in range(18):
                client.sendall(chunk)
        except ConnectionError:
            pass
        answer = read_all(client)
        assert not answer or b" 413 " in answer.split(b"\r\n")[0]
    check_alive(server)


def test_large_documents(server):
    deep = {"messages": [{"role": "user", "content": "x"}], "metadata": json.loads("[" * 100 + "]" * 100)}
    assert server.post("/v1/chat/completions", {**deep, "max_tokens": 1}).status_code == 200
    many = b'{"prompt":[' + b"1," * 4_000_000 + b"1]}"
    answer = server.http.post("/v1/completions", content=many, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    check_alive(server)


def resident_bytes(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def test_documents_are_not_kept_while_their_requests_wait(server):
    """A million values take 2 MB as text and 80 MB as a tree; both are needed until the prompt is tokenized."""
    before = resident_bytes(server)
    body = json.dumps(LONG)[:-1].encode() + b', "metadata": [' + b"1," * 1_000_000 + b"1]}"
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    clients = [connect(server) for _ in range(12)]
    for client in clients:
        client.sendall(head % len(body) + body)
    for client in clients:
        read_until(client, b"data: ")
    assert resident_bytes(server) - before < 600 << 20  # 12 trees are 960 MB; 4 workers make one each
    for client in clients:
        client.close()
    server.wait_until_idle()


def test_large_bodies_leave_no_memory_behind(start):
    """Each kind of body alone, because the next one would use what it left, and then many at once."""
    server = start("--log-level", "error")
    server.complete("Hello", max_tokens=2)
    before = resident_bytes(server)
    bodies = [b'{"prompt":[' + b"1," * 1_000_000 + b"1]}", b'{"prompt":"x","max_tokens":1,"metadata":[' + b"1," * 500_000 + b"1]}",
              json.dumps({"prompt": "a " * 400_000, "max_tokens": 1}).encode()]

    def send(body):
        server.http.post("/v1/completions", content=body, headers={"content-type": "application/json"})

    for body in bodies:
        send(body)
        until(lambda: resident_bytes(server) - before <= 16 << 20)  # with fast bins, 45 MB stay for each thread
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda i: send(bodies[i % 3]), range(36)))
    until(lambda: resident_bytes(server) - before <= 16 << 20)


def leave_in_mid_stream(server):
    with connect(server) as client:
        client.sendall(request_bytes(LONG))
        read_until(client, b"data: ")


def test_clients_that_leave(server):
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        list(pool.map(lambda _: leave_in_mid_stream(server), range(200)))
    server.wait_until_idle()
    check_alive(server)


def test_clients_that_leave_before_the_answer(server):
    for _ in range(20):
        with connect(server) as client:
            client.sendall(request_bytes({**LONG, "stream": False}))
    time.sleep(0.1)  # the server may not have read them yet; then there is less to free
    server.wait_until_idle()
    check_alive(server)


def test_slow_readers_hold_nobody(server):
    body = {**LONG, "n": 4, "logprobs": 5}
    slow = [connect(server, receive_buffer=4096) for _ in range(2)]
    for client in slow:
        client.sendall(request_bytes(body))
    assert server.complete("Hello", max_tokens=4)["usage"]["completion_tokens"] == 4
    for client in slow:
        client.close()
    server.wait_until_idle()
    check_alive(server)


def test_half_closed_and_pipelined(server):
    with connect(server) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 5
                       + b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert read_all(client).count(b"HTTP/1.1 200") == 6
    check_alive(server)


def test_targets_in_absolute_form(server):
    for target, status in ((b"http://any.host:1/health", b"200"), (b"HTTP://h/v1/models?x", b"200"), (b"http://h", b"200"),
                           (b"http://h/x", b"404"), (b"http:///health", b"200"), (b"ftp://h/health", b"404")):
        with connect(server) as client:
            client.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert read_all(client).startswith(b"HTTP/1.1 " + status), target


def gauge(server, name):
    return float(re.search(rf"^{name} (\S+)$", server.http.get("/metrics").text, re.MULTILINE).group(1))


def longest_token(server):
    """Returns a token with the longest text."""
    texts = server.post("/tokenize", {"prompt": "    " * 64, "return_token_strs": True}).json()
    return max(zip(map(len, texts["token_strs"]), texts["tokens"]))[1]


def test_an_answer_that_would_be_too_large_is_refused(server):
    answer = server.post("/detokenize", {"tokens": [longest_token(server)] * 1000000})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "tokens", answer.text
    fields = {"model": NAME, "max_tokens": 1, "prompt": [[1] * 1000] * 20, "prompt_logprobs": 20}
    answer = server.post("/v1/completions", fields)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "prompt_logprobs", answer.text
    schema = {"type": "string", "description": "x" * 250000}
    answer = server.post("/v1/completions/render", {"model": NAME, "prompt": ["x"] * 200, "guided_json": schema})
    assert answer.status_code == 400 and "the limit is 33554432" in answer.json()["error"]["message"], answer.text
    until(lambda: gauge(server, "penstock_answer_bytes") == 0)


def test_answers_that_nobody_reads_have_a_bound(start):
    server = start()
    body = request_bytes({"tokens": [longest_token(server)] * 250000}, "/detokenize")
    answers = []
    with contextlib.ExitStack() as open_clients:
        before = gauge(server, "process_resident_memory_bytes")
        clients = [open_clients.enter_context(connect(server, 4096)) for _ in range(20)]
        for client in clients:
            client.sendall(body)
            answers.append(client.recv(1024))
            if answers[-1].startswith(b"HTTP/1.1 503"):
                answers[-1] += read_until(client, b"}}") if b"}}" not in answers[-1] else b""
        taken = [answer for answer in answers if answer.startswith(b"HTTP/1.1 200")]
        refused = [answer for answer in answers if answer.startswith(b"HTTP/1.1 503")]
        assert taken and refused and len(taken) + len(refused) == 20
        assert all(b"too_many_answers" in answer and b"Retry-After: " in answer for answer in refused)
        assert 0 < gauge(server, "penstock_answer_bytes") <= 256 << 20
        assert gauge(server, "process_resident_memory_bytes") - before < 400 << 20
        assert server.complete(max_tokens=4)["choices"][0]["text"]
        assert server.post("/tokenize", {"prompt": "Water"}).status_code == 200
    until(lambda: gauge(server, "penstock_answer_bytes") == 0)
    assert server.post("/detokenize", {"tokens": [longest_token(server)] * 250000}).status_code == 200
