"""A client whose grammars take long to compile does not delay other clients, and nothing compiles for clients that have
left."""
import json
import socket

from conftest import NAME
from streams import until


N_SLOW = 24  # on a fast machine too, they compile much longer than a plain request takes


def slow_schema(number):
    """This schema takes some tenths of a second to compile, and is then refused."""
    properties = {f"p{i}": {"type": "string", "allOf": [{"pattern": f"^.*{chr(97 + i)}.{{11}}$"}, {"pattern": f"^.*{chr(98 + i)}.{{11}}$"}]}
                  for i in range(20)}
    return {"title": str(number), "type": "object", "properties": properties}


def send_slow(server, number):
    body = json.dumps({"model": NAME, "prompt": "x", "max_tokens": 1, "guided_json": slow_schema(number)}).encode()
    client = socket.create_connection(("127.0.0.1", server.port))
    client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return client


def compilations(server, result):
    return server.metrics()[f'penstock_grammar_compilations_total{{result="{result}"}}']


def grammar_requests(server):
    return server.metric("penstock_grammar_requests")


def test_a_plain_request_ends_before_the_grammars_that_came_first(start):
    server = start()
    clients = [send_slow(server, i) for i in range(N_SLOW)]
    until(lambda: grammar_requests(server) >= 6)
    assert server.complete("Hi", max_tokens=1)
    assert compilations(server, "refused") < N_SLOW  # the others still compile
    for client in clients:
        client.settimeout(300)
        assert client.recv(4096).startswith(b"HTTP/1.1 400 ")
        client.close()
    assert compilations(server, "refused") == N_SLOW
    again = send_slow(server, 3)  # a refusal is remembered
    again.settimeout(120)
    assert again.recv(4096).startswith(b"HTTP/1.1 400 ")
    again.close()
    assert compilations(server, "refused") == N_SLOW


def test_nothing_compiles_for_clients_that_have_left(start):
    server = start()
    clients = [send_slow(server, i) for i in range(60)]
    until(lambda: grammar_requests(server) >= 10)
    for client in clients:
        client.close()
    ended = compilations(server, "refused") + compilations(server, "cancelled")  # the server knows now that all have left
    until(lambda: grammar_requests(server) == 0)
    assert compilations(server, "refused") + compilations(server, "cancelled") <= ended + 6  # others never began
    assert server.complete("Hi", max_tokens=1)
    server.wait_until_idle()
