"""A strict reader of server-sent events."""
import json


def events(raw):
    """Returns the JSON of each event in a stream's raw bytes. The final [DONE] is required and left out."""
    text = raw.decode("utf-8")
    assert text.endswith("\n\n")
    blocks = text[:-2].replace(": keep-alive\n", "").split("\n\n")
    for block in blocks:
        assert block.startswith("data: ") and "\n" not in block and "\r" not in block, block
    assert blocks[-1] == "data: [DONE]"
    return [json.loads(block[len("data: "):]) for block in blocks[:-1]]


def stream(server, path, body):
    """Posts a streaming request. Returns its response (with headers) and its events."""
    with server.http.stream("POST", path, json={**body, "stream": True}) as response:
        raw = response.read()
    assert response.status_code == 200, raw
    return response, events(raw)


def texts(chunks):
    """Returns {index: text} for all choices of a stream."""
    whole = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            text = choice["text"] if "text" in choice else choice["delta"].get("content", "")
            whole[choice["index"]] = whole.get(choice["index"], "") + text
    return whole
