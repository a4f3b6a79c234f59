"""A hostile request, its JSON, and decks of them: a deck makes its cases from their numbers, as it is too long to write out."""
import dataclasses
import json
import random

from answers import MAYBE, NEVER


class Raw(bytes):
    """JSON as it is to be sent, however wrong."""


class Pairs(list):
    """The members of an object, in which a name may come twice."""


def write(value):
    """JSON of a value that may hold Raw and Pairs."""
    if isinstance(value, Raw):
        return bytes(value)
    if isinstance(value, (dict, Pairs)):
        pairs = value.items() if isinstance(value, dict) else value
        return b"{" + b",".join(json.dumps(name).encode() + b":" + write(member) for name, member in pairs) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(write, value)) + b"]"
    return json.dumps(value).encode()


def places(value, path=()):
    """The path of each place in a value, the whole first."""
    yield path
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, member in steps:
        yield from places(member, (*path, step))


def put(value, path, new):
    """A copy of a value with another one at a place."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = put(value[path[0]], path[1:], new)
    return copy


def at(value, path):
    for step in path:
        value = value[step]
    return value


@dataclasses.dataclass(frozen=True)
class Case:
    """`data` are the bytes; `how` names a row of ways.WAYS, which sends them."""
    name: str
    data: bytes
    how: str = "ask"

    @property
    def bodiless(self):
        return MAYBE if b"HEAD" in self.data else NEVER


@dataclasses.dataclass(frozen=True)
class Deck:
    """`n` cases. `make(i, rng)` returns case i as (bytes or what makes them of a key, how, words) with a rng of the case's own.
    `weight` is the deck's share of the requests."""
    name: str
    n: int
    make: object
    weight: int = 1

    def case(self, seed, i, key):
        data, how, what = self.make(i, random.Random(f"{seed} {self.name} {i}"))
        return Case(f"{self.name}:{i} {what}", data(key) if callable(data) else data, how)


class Shuffled:
    """The cases of a deck in an order of the seed's; after the last the first again, with other draws."""

    def __init__(self, deck, seed):
        self.deck, self.seed, self.dealt = deck, seed, 0
        self.order = list(range(deck.n))
        random.Random(f"{seed} {deck.name}").shuffle(self.order)

    def next(self, key):
        turn, i = divmod(self.dealt, self.deck.n)
        self.dealt += 1
        return self.deck.case(f"{self.seed} {turn}", self.order[i], key)


def request(method, path, body=None, fields=(), key=None):
    """A plain request."""
    head = [f"{method} {path} HTTP/1.1", "Host: chaos", *fields]
    head += [f"Authorization: Bearer {key}"] * bool(key)
    if body is not None:
        head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + (body or b"")
