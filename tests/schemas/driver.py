"""Runs schema_driver (driver.c), which matches texts with schemas, and makes the vocabulary of the tests."""
import itertools
import json
import os
import pathlib
import random
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
FRAGMENTS = ['{"', '":', '": ', '",', '", "', '"}', "}}", "},", "[]", "{}", '["', '"]', "],", "[{", "}]", ", ", ": ", "\n", "true", "false", "null",
             "rue", "ull", "name", "id", "type", "value", "the", " the", "ing", "1.", "0.", ".5", "-1", "10", "00", "2024-", "-01", "\\n", "\\u00", "\\\"",
             "é", "日本", "😀", "\\u", "://", ".com", "@", "a-", "_id"]


def small_vocabulary():
    """All bytes, frequent parts of JSON, and pieces of three letters: 600 tokens."""
    draw = random.Random(1)
    tokens = [bytes([byte]) for byte in range(256)] + [text.encode() for text in FRAGMENTS]
    while len(tokens) < 600:
        tokens.append("".join(draw.choice('abcdefghij"{}[],: 0123456789-') for _ in range(draw.randint(2, 4))).encode())
    return tokens


class Driver:
    """One schema_driver; ask() sends it a task and returns its result."""

    def __init__(self, tokens=None, folder=ROOT / "build" / "schemas"):
        folder.mkdir(parents=True, exist_ok=True)
        tokens = tokens or small_vocabulary()
        path = folder / f"vocabulary_{len(tokens)}_{os.getpid()}.txt"
        path.write_text("".join(token.hex() + "\n" for token in tokens))
        self.process = subprocess.Popen([ROOT / "build" / "schema_driver", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.trie_us = float(self.process.stderr.readline().split()[1])
        path.unlink()

    def ask(self, schema, texts=(), kind="json_schema", **fields):
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.process.stdin.write(json.dumps({"kind": kind, "text": text, "texts": list(texts), **fields}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"{self.process.stderr.read()}\n{text}"
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0, self.process.stderr.read()


# ---- the spelling of a value -----------------------------------------------------------------------------------------------------


def plain(value):
    """Returns the value with its whole numbers as integers: 1.0 is a whole number for a schema, and is written 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return value


def order_of(schema):
    """Returns the names of a schema's properties at all places, in the order of the text: those of `properties` first."""
    named, required = [], []

    def visit(part):
        if isinstance(part, dict):
            properties = part.get("properties")
            named.extend(properties if isinstance(properties, dict) else ())
            names = part.get("required")
            required.extend(name for name in (names if isinstance(names, list) else ()) if isinstance(name, str))
        for item in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            visit(item)

    visit(schema)
    return {name: at for at, name in reversed(list(enumerate(named + required)))}


def in_order(value, order):
    if isinstance(value, list):
        return [in_order(item, order) for item in value]
    if isinstance(value, dict):
        return {name: in_order(value[name], order) for name in sorted(value, key=lambda name: order.get(name, 1 << 30))}
    return value


def orders(value, limit=5000):
    """Yields the value with the members of its objects in all orders, up to a limit."""
    def each(value):
        if isinstance(value, list):
            return [list(items) for items in itertools.islice(itertools.product(*map(each, value)), limit)]
        if isinstance(value, dict):
            found = []
            for names in itertools.permutations(value):
                for items in itertools.product(*(each(value[name]) for name in names)):
                    found.append(dict(zip(names, items)))
                    if len(found) >= limit:
                        return found
            return found
        return [value]
    return each(value)


def spellings(value):
    """Spellings that models use: compact, with blanks, and over lines; characters beyond ASCII are not escaped."""
    return [json.dumps(value, ensure_ascii=False, **style) for style in ({"separators": (",", ":")}, {}, {"indent": 2})]
