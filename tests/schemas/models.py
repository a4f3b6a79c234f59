"""Types as users of pydantic write them, each with a value: what clients' parse helpers send as schemas."""
import datetime
import decimal
import enum
import ipaddress
import pathlib
import re
import uuid
from typing import Annotated, Any, Dict, Generic, List, Literal, NamedTuple, Optional, Tuple, TypeVar, Union

import pydantic
from pydantic import BaseModel, ConfigDict, Field, RootModel, StringConstraints
from typing_extensions import TypedDict

UTC = datetime.timezone.utc


class Colour(str, enum.Enum):
    red, green, dark_blue = "red", "green", "dark blue"


class Level(enum.IntEnum):
    low, high = 1, 10


class Point(BaseModel):
    x: float
    y: float


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    point: Point
    tags: List[str] = []


class Address(BaseModel):
    street: str = Field(min_length=1, max_length=80)
    number: Optional[str] = None
    postcode: str = Field(pattern=r"^\d{4,5}$")
    country: Literal["DE", "FR", "IT"] = "DE"


class Person(BaseModel):
    """A person, with nested parts."""
    name: str
    age: int = Field(ge=0, le=150)
    email: Optional[str] = Field(default=None, description="where to write to")
    addresses: List[Address] = Field(default_factory=list, max_length=3)
    born: Optional[datetime.date] = None
    favourite: Colour = Colour.red


class Step(BaseModel):
    explanation: str
    output: str


class Reasoning(BaseModel):
    steps: List[Step]
    final_answer: str


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=0, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    breed: Optional[str] = None


class Bird(BaseModel):
    kind: Literal["bird", "parrot"]
    can_talk: bool


Pet = Annotated[Union[Cat, Dog, Bird], Field(discriminator="kind")]


class Owner(BaseModel):
    pet: Pet
    others: List[Pet] = []


class Node(BaseModel):
    value: int
    children: List["Node"] = []


class Linked(BaseModel):
    item: str
    next: Optional["Linked"] = None


class Expression(BaseModel):
    operator: Literal["+", "-", "*", "/"]
    left: Union[float, "Expression"]
    right: Union[float, "Expression"]


class Event(BaseModel):
    model_config = ConfigDict(extra="forbid", title="An event")
    id: uuid.UUID
    at: datetime.datetime
    lasts: datetime.timedelta
    where: Union[Address, Point, None] = None
    attendees: Annotated[List[str], Field(min_length=1)]
    meta: Dict[str, Union[str, int, float, bool, None]] = {}


class Order(BaseModel):
    sku: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}-[0-9]{4}$")]
    quantity: pydantic.PositiveInt
    price: Annotated[float, Field(gt=0, le=100000, multiple_of=0.01)]
    discount: Annotated[int, Field(ge=0, le=50, multiple_of=5)] = 0
    currency: Literal["EUR", "USD"] = "EUR"


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=lambda name: name.split("_")[0] + name.split("_")[-1].title(), populate_by_name=True)
    first_name: str
    last_name: str


class Base(BaseModel):
    id: int


class Child(Base):
    parent: Base
    level: Level


class Move(TypedDict):
    piece: str
    to: Tuple[int, int]


class Pair(NamedTuple):
    left: str
    right: int


T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    items: List[T]
    next_page: Optional[int] = None


class Weather(BaseModel):
    location: str = Field(description="a city, as in 'Paris, France'")
    unit: Optional[Literal["celsius", "fahrenheit"]] = None
    days: Annotated[int, Field(ge=1, le=14)] = 1


class Filter(BaseModel):
    field: str
    op: Literal["eq", "ne", "lt", "in"]
    value: Union[str, int, float, bool, List[str], List[int], None]


class Query(BaseModel):
    filters: List[Filter]
    limit: Annotated[int, Field(gt=0, lt=1001)] = 10
    order: Dict[str, Literal["asc", "desc"]] = {}


class Invoice(BaseModel):
    number: str
    issued: datetime.date
    lines: List[Order]
    total: decimal.Decimal
    paid: bool = False
    note: Optional[str] = Field(None, max_length=500)


class Server(BaseModel):
    url: pydantic.HttpUrl
    address: ipaddress.IPv4Address
    port: Annotated[int, Field(ge=1, le=65535)]
    key: pydantic.SecretStr
    log: pathlib.Path


class Title(RootModel[Annotated[str, Field(min_length=3, max_length=20)]]):
    pass


class Scores(RootModel[Dict[str, Annotated[float, Field(ge=0, le=1)]]]):
    pass


CAT, DOG = {"kind": "cat", "lives": 7}, {"kind": "dog", "breed": None}
ADDRESS = {"street": "Hauptstraße", "number": None, "postcode": "12345", "country": "DE"}
ORDER = {"sku": "ABC-1234", "quantity": 2, "price": 3.25, "discount": 15, "currency": "EUR"}
TYPES = {
    "point": (Point, {"x": 1, "y": -2.5}), "strict": (Strict, {"name": "a", "point": {"x": 0, "y": 0.5}, "tags": ["b", ""]}),
    "address": (Address, ADDRESS), "reasoning": (Reasoning, {"steps": [{"explanation": "é", "output": "\n"}], "final_answer": "4"}),
    "person": (Person, {"name": "Ada", "age": 36, "email": None, "addresses": [ADDRESS], "born": "1815-12-10", "favourite": "dark blue"}),
    "cat": (Cat, CAT), "pet": (Pet, CAT), "owner": (Owner, {"pet": DOG, "others": [CAT, {"kind": "parrot", "can_talk": True}]}),
    "node": (Node, {"value": 1, "children": [{"value": 2, "children": []}, {"value": 3, "children": [{"value": 4, "children": []}]}]}),
    "linked": (Linked, {"item": "a", "next": {"item": "b", "next": None}}),
    "expression": (Expression, {"operator": "+", "left": 1.5, "right": {"operator": "*", "left": 2, "right": 3}}),
    "event": (Event, {"id": "12345678-1234-4234-8234-123456789abc", "at": "2026-11-22T10:00:00Z", "lasts": "P1DT2H", "where": {"x": 1, "y": 2},
                      "attendees": ["x"], "meta": {"a": 1, "b": None, "c": "d"}}),
    "order": (Order, ORDER), "camel": (Camel, {"firstName": "A", "lastName": "B"}), "child": (Child, {"id": 1, "parent": {"id": 2}, "level": 10}),
    "typed_dict": (Move, {"piece": "rook", "to": [1, 8]}), "named_tuple": (Pair, ["a", 1]), "page": (Page[Order], {"items": [ORDER], "next_page": 2}),
    "page_of_text": (Page[str], {"items": ["a"], "next_page": None}), "weather": (Weather, {"location": "Rome", "unit": "celsius", "days": 3}),
    "query": (Query, {"filters": [{"field": "a", "op": "in", "value": ["x"]}, {"field": "b", "op": "eq", "value": 1}], "limit": 5, "order": {"a": "asc"}}),
    "invoice": (Invoice, {"number": "1", "issued": "2024-02-29", "lines": [ORDER], "total": "12.50", "paid": True, "note": None}),
    "server": (Server, {"url": "https://example.org:8443/a?b=c#d", "address": "10.0.0.1", "port": 80, "key": "k", "log": "/var/log/x"}),
    "title": (Title, "abc"), "scores": (Scores, {"a": 0.5, "b": 1}), "any_model": (BaseModel, {}), "colour": (Colour, "green"), "level": (Level, 10),
    "int": (int, -12), "float": (float, 1.5e-7), "str": (str, "\"\\/\b\u2028😀"), "bool": (bool, True), "none": (None, None), "any": (Any, [{"a": None}]),
    "bytes": (bytes, "abc"), "decimal": (decimal.Decimal, "1.10"), "optional": (Optional[int], None), "union": (Union[int, str, List[int]], [1]),
    "literal": (Literal[1, "a", None, True], "a"), "date": (datetime.date, "2024-02-29"), "time": (datetime.time, "23:59:59.5Z"),
    "datetime": (datetime.datetime, "2024-02-29T00:00:00+05:30"), "timedelta": (datetime.timedelta, "PT5M"),
    "aware": (pydantic.AwareDatetime, "2024-02-29T00:00:00Z"), "uuid": (uuid.UUID, "12345678-1234-4234-8234-123456789abc"),
    "uuid4": (pydantic.UUID4, "12345678-1234-4234-8234-123456789abc"), "path": (pathlib.Path, "a/b"), "secret": (pydantic.SecretStr, "x"),
    "url": (pydantic.AnyUrl, "ftp://example.org/x"), "http_url": (pydantic.HttpUrl, "http://example.org/"), "ip": (pydantic.IPvAnyAddress, "::1"),
    "network": (ipaddress.IPv4Network, "10.0.0.0/8"), "base64": (pydantic.Base64Str, "YWI="), "list": (List[int], [1, 2]), "tuple": (Tuple[int, str], [1, "a"]),
    "tuple_any": (Tuple[int, ...], [1, 2, 3]), "dict": (Dict[str, List[int]], {"a": [], "é": [1]}), "dict_of_int": (Dict[int, str], {"1": "a"}),
    "dict_of_enum": (Dict[Colour, int], {"red": 1}), "dict_of_pattern": (Dict[Annotated[str, Field(pattern="^[a-z]{2}$")], int], {"de": 1}),
    "short_dict": (Annotated[Dict[str, int], Field(min_length=1, max_length=2)], {"a": 1}), "nested": (Dict[str, Dict[str, Optional[Point]]], {"a": {"b": None}}),
    "conint": (Annotated[int, Field(gt=-5, lt=5)], -4), "steps_of_5": (Annotated[int, Field(ge=0, le=100, multiple_of=5)], 95),
    "cents": (Annotated[float, Field(ge=0, multiple_of=0.01)], 12.34), "probability": (Annotated[float, Field(ge=0, le=1)], 0.25),
    "negative": (pydantic.NegativeFloat, -0.5), "money": (Annotated[decimal.Decimal, Field(max_digits=8, decimal_places=2)], "123.45"),
    "short": (Annotated[str, Field(max_length=3)], "aé😀"), "pattern": (Annotated[str, Field(pattern=r"^[A-Z][a-z]+( [A-Z][a-z]+)*$", max_length=200)], "Ada Lovelace"),
    "few": (Annotated[List[str], Field(min_length=1, max_length=3)], ["a"]), "past": (pydantic.PastDate, "2001-01-01"), "size": (pydantic.ByteSize, 1),
}
REFUSED = {"set": (set[int], "uniqueItems"), "frozenset": (frozenset[str], "uniqueItems")}
ANNOTATED = {"json": pydantic.Json[List[int]], "regex": re.Pattern}
