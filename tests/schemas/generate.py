"""Random schemas, each with instances that are valid by construction, for test_generated.py.

    python tests/schemas/generate.py --seed 7 --count 3     prints some

Names of properties are used once in a schema, so that its keys have one order.
"""
import argparse
import json
import random

TEXTS = ["", "a", "Ada", "two words", "é", "日本語", "😀 yes", "\"quoted\"", "back\\slash", "new\nline", "tab\t", "\u0001", "\u2028", "</s>", "a/b", "0"]
PATTERNS = [
    ("^[a-z]+$", lambda r: "".join(r.choice("abcxyz") for _ in range(r.randint(1, 8)))),
    ("^[A-Z]{2}-[0-9]{3}$", lambda r: r.choice(["AB", "XY"]) + f"-{r.randint(0, 999):03}"),
    ("[0-9]", lambda r: r.choice(["", "no ", "\""]) + str(r.randint(0, 9)) + r.choice(["", "é"])),
    ("^(foo|bar)", lambda r: r.choice(["foo", "bar", "foo😀", "bar\\"])),
    ("z$", lambda r: r.choice(["z", "az", "é\"z"])),
    ("^a[^b]*c$", lambda r: "a" + r.choice(["", "x", "日"]) + "c"),
    (r"^\+?[1-9][0-9]{1,6}$", lambda r: r.choice(["", "+"]) + str(r.randint(10, 9999999))),
    (r"^\S+@\S+$", lambda r: r.choice(["a@b", "é@x.y", "\"@\\"])),
    (r"^\w{2,5}( \w{2,5})*$", lambda r: " ".join(r.choice(["ab", "cde", "x_9", "hello"]) for _ in range(r.randint(1, 3)))),
]
FORMATS = {
    "date": ["2024-02-29", "1999-12-31"], "time": ["00:00:00Z", "23:59:59.25+01:00"], "date-time": ["2024-02-29T12:00:00Z", "2001-01-01T00:00:00.5-08:00"],
    "email": ["a@b.org", "x.y+z@example.com"], "hostname": ["example.org", "a"], "ipv4": ["1.2.3.4", "255.255.255.255"],
    "ipv6": ["::1", "1:2:3:4:5:6:7:8"], "uuid": ["123e4567-e89b-12d3-a456-426614174000"], "uri": ["https://example.org/a?b#c", "urn:x:y"],
    "duration": ["P1D", "PT5M1S"],
}


class Generator:
    """One schema at a time: make() returns it, value() returns an instance of it."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def make(self):
        self.n_names, self.defs = 0, {}
        for i in range(self.random.choice([0, 0, 1, 2])):
            self.defs[f"d{i}"] = self.node(f"d{i}") if self.random.random() < 0.4 else self.schema(1)
        schema = self.schema(3)
        if self.defs and isinstance(schema, dict):
            schema["$defs"] = self.defs
        return schema

    def name(self):
        self.n_names += 1
        return self.random.choice(["name", "id", "straße", "a b", "x-", "k\"", "_", "日"]) + str(self.n_names)

    def node(self, own):
        """A definition that refers to itself."""
        value, children = self.name(), self.name()
        return {"type": "object", "properties": {value: self.scalar(), children: {"type": "array", "items": {"$ref": f"#/$defs/{own}"}, "maxItems": 2}},
                "required": [value, children], "additionalProperties": False}

    # ---- schemas ---------------------------------------------------------------------------------------------

    def schema(self, depth):
        kinds = [self.scalar] * (3 if depth else 6)
        if depth:
            kinds += [lambda: self.object(depth - 1)] * 5 + [lambda: self.array(depth - 1)] * 3 + [lambda: self.any_of(depth - 1)] * 2
            kinds += [lambda: self.one_of(depth - 1), lambda: self.all_of(depth - 1), lambda: self.overlapping(depth - 1)]
            kinds += [lambda: self.without(depth - 1), lambda: self.conditional(depth - 1), self.dependent, self.counted]
        if self.defs:
            kinds.append(lambda: {"$ref": "#/$defs/" + self.random.choice(list(self.defs))})
        return self.random.choice(kinds)()

    def scalar(self):
        return self.random.choice([self.number, self.number, self.string, self.string, self.listed, lambda: {"type": "boolean"}, lambda: {"type": "null"},
                                   lambda: {"type": ["string", "null"]}, lambda: {"title": "a note", "type": ["integer", "boolean"]}])()

    def number(self):
        r = self.random
        kind = r.choice(["integer", "number"])
        schema = {"type": kind}
        low, high = sorted(r.choice([r.randint(-1000, 1000), r.randint(-9, 9), round(r.uniform(-50, 50), r.randint(1, 3))]) for _ in range(2))
        if r.random() < 0.5:
            schema[r.choice(["minimum", "exclusiveMinimum"])] = low
        if r.random() < 0.5:
            schema[r.choice(["maximum", "exclusiveMaximum"])] = high + 3
        if r.random() < 0.25:
            schema["multipleOf"] = r.choice([1, 2, 3, 5, 7] if kind == "integer" or high - low < 20 else [1, 5, 0.5, 0.25, 0.01, 2.5])
        return schema

    def string(self):
        r, schema = self.random, {"type": "string"}
        kind = r.random()
        if kind < 0.25:
            schema["format"] = r.choice(list(FORMATS))
        elif kind < 0.55:
            schema["pattern"] = r.choice(PATTERNS)[0]
        if kind > 0.45 and r.random() < 0.6:
            schema["minLength"] = r.randint(0, 3)
            schema["maxLength"] = r.randint(8, 40)
        return schema

    def listed(self):
        values = self.random.sample([None, True, False, 0, -1, 3.5, 10**12, *TEXTS, [], [1, "a"], {}, {"k": None, "l": [2]}], self.random.randint(1, 6))
        return {"const": values[0]} if self.random.random() < 0.3 else {"enum": values}

    def array(self, depth):
        r, schema = self.random, {"type": "array"}
        if r.random() < 0.3:
            schema["prefixItems"] = [self.schema(depth) for _ in range(r.randint(1, 3))]
        if r.random() < 0.8:
            schema["items"] = False if "prefixItems" in schema and r.random() < 0.3 else self.schema(depth)
        if r.random() < 0.4 and schema.get("items") is not False:
            schema["minItems"] = r.randint(0, 3)
        if r.random() < 0.4:
            schema["maxItems"] = r.randint(3, 6)
        return schema

    def object(self, depth):
        r = self.random
        names = [self.name() for _ in range(r.choice([0, 1, 2, 3, 5]))]
        schema = {"type": "object", "properties": {name: self.schema(depth) for name in names}} if names else {"type": "object"}
        if names and r.random() < 0.7:
            schema["required"] = r.sample(names, r.randint(1, len(names)))
        if r.random() < 0.6:
            schema["additionalProperties"] = r.choice([False, False, True, self.schema(0)])
        if r.random() < 0.15:
            schema["patternProperties"] = {"^p[0-9]": self.schema(0)}
        if r.random() < 0.15:
            schema["maxProperties"] = len(names) + r.randint(0, 2)
        if r.random() < 0.1 and schema.get("additionalProperties") is False and names:
            schema["minProperties"] = r.randint(1, len(names))
        if not names and r.random() < 0.2:
            schema["propertyNames"] = r.choice([{"pattern": "^[a-z]+[0-9]*$"}, {"maxLength": 6}, {"enum": ["o1", "o2", "o3"]}])
        return schema

    def any_of(self, depth):
        return {"anyOf": [self.schema(depth) for _ in range(self.random.randint(2, 4))]}

    def one_of(self, depth):
        """Branches of different types, or with a const that distinguishes them."""
        if self.random.random() < 0.5:
            kinds = [self.number(), self.string(), {"type": "null"}, self.array(depth), self.object(depth)]
            return {"oneOf": self.random.sample(kinds, self.random.randint(2, 4))}
        key = self.name()
        branches = []
        for i in range(self.random.randint(2, 4)):
            branch = {"type": "object", "properties": {key: {"const": f"v{i}"}}, "required": [key]}
            for _ in range(self.random.randint(0, 2)):
                branch["properties"][self.name()] = self.scalar()
            branches.append(branch)
        return {"oneOf": branches, "discriminator": {"propertyName": key}}

    def all_of(self, depth):
        if self.random.random() < 0.4:
            return {"allOf": [{"type": "number", "minimum": self.random.randint(-9, 0)}, {"maximum": self.random.randint(1, 99)}]}
        first, second = self.object(depth), {"type": "object", "properties": {self.name(): self.scalar()}}
        first = {key: value for key, value in first.items() if key in ("type", "properties", "required")}
        return {**first, "allOf": [second, {"required": list(second["properties"])}]}

    def without(self, depth):
        """A schema with exceptions, which may be of any type."""
        return {"allOf": [self.schema(depth)], "not": self.random.choice([self.scalar, lambda: self.object(0), lambda: self.array(0), self.counted])()}

    def overlapping(self, depth):
        """Branches that share values: a value of two of them is not valid."""
        names = [self.name() for _ in range(3)]
        either = [{"required": [name]} for name in names]
        choice = self.random.choice([[self.scalar(), self.scalar()], [self.number(), self.number(), self.string()], either[:2], either, [self.object(depth), self.object(0)]])
        if choice[0] in either:
            return {"type": "object", "properties": {name: self.scalar() for name in names}, "oneOf": choice}
        return {"oneOf": choice}

    def conditional(self, depth):
        key, other = self.name(), self.name()
        schema = {"type": "object", "properties": {key: {"enum": ["x", "y", 1]}, other: self.scalar()},
                  "if": {"properties": {key: {"const": "x"}}}, "then": {"required": [other]}}
        if self.random.random() < 0.5:
            schema["if"]["required"] = [key]
        if self.random.random() < 0.5:
            schema["else"] = self.random.choice([{"required": [key]}, {"properties": {other: False}}, {"maxProperties": 1}])
        return schema

    def dependent(self):
        names = [self.name() for _ in range(3)]
        schema = {"type": "object", "properties": {name: self.scalar() for name in names}}
        return {**schema, **self.random.choice([
            {"dependentRequired": {names[0]: names[1:], names[1]: [names[0]]}},
            {"dependentSchemas": {names[0]: {"required": [names[2]]}, names[1]: {"properties": {names[2]: self.scalar()}}}},
            {"dependentSchemas": {names[1]: {"minProperties": 3}}, "additionalProperties": False}])}

    def counted(self):
        """An array with contains or uniqueItems."""
        r = self.random
        if r.random() < 0.4:
            return {"type": "array", "items": {"enum": r.sample([1, 2, "a", "b", None, True, [], {"k": 1}], r.randint(1, 5))}, "uniqueItems": True}
        schema = {"type": "array", "contains": r.choice([{"type": "integer"}, {"const": "a"}, {"type": "string", "maxLength": 2}, {"minimum": 2}])}
        if r.random() < 0.5:
            schema["items"] = {"type": r.choice([["integer", "string"], ["number", "null"], "integer"])}
        if r.random() < 0.6:
            schema["minContains"] = r.randint(0, 2)
        if r.random() < 0.5:
            schema["maxContains"] = r.randint(2, 3)
        if r.random() < 0.3:
            schema["maxItems"] = r.randint(2, 5)
        return schema

    # ---- instances -------------------------------------------------------------------------------------------

    def value(self, schema, depth=0):
        """Returns a mostly valid value: if several keywords apply, an oracle decides."""
        r = self.random
        if schema is True or schema == {}:
            return r.choice([None, 1, "x", [], {"q": 1}])
        if "$ref" in schema:
            return self.value(self.defs[schema["$ref"].split("/")[-1]], depth + 1)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self.value(r.choice(schema[keyword]), depth)
        if "const" in schema or "enum" in schema:
            return schema["const"] if "const" in schema else r.choice(schema["enum"])
        if "not" in schema:
            return self.value(schema["allOf"][0], depth)
        if "allOf" in schema:
            merged = {**schema, "allOf": None}
            for part in schema["allOf"]:
                merged = {**merged, **part, "properties": {**merged.get("properties", {}), **part.get("properties", {})},
                          "required": merged.get("required", []) + part.get("required", [])}
            del merged["allOf"]
            return self.value(merged, depth)
        if "type" not in schema:
            return r.choice([1, "x", None])
        kind = r.choice(schema["type"]) if isinstance(schema["type"], list) else schema["type"]
        return getattr(self, "value_" + kind)(schema, depth)

    def value_null(self, schema, depth):
        return None

    def value_boolean(self, schema, depth):
        return self.random.random() < 0.5

    def value_integer(self, schema, depth):
        low = schema.get("minimum", schema.get("exclusiveMinimum", -10**self.random.randint(0, 9)))
        high = schema.get("maximum", schema.get("exclusiveMaximum", max(low, 0) + 10**self.random.randint(0, 9)))
        step = schema.get("multipleOf", 1)
        return self.random.randint(int(low // step) + 1, max(int(low // step) + 1, int(high // step))) * step

    def value_number(self, schema, depth):
        if self.random.random() < 0.4 or "multipleOf" in schema:
            return self.value_integer(schema, depth)
        low = schema.get("minimum", schema.get("exclusiveMinimum", -1000))
        return round(self.random.uniform(low, schema.get("maximum", schema.get("exclusiveMaximum", max(low, 0) + 5))), self.random.randint(1, 4))

    def value_string(self, schema, depth):
        if "format" in schema:
            return self.random.choice(FORMATS[schema["format"]])
        if "pattern" in schema:
            return dict(PATTERNS)[schema["pattern"]](self.random)
        return self.random.choice(TEXTS)[:schema.get("maxLength")] + "x" * self.random.choice([0, schema.get("minLength", 0)])

    def value_array(self, schema, depth):
        prefix = schema.get("prefixItems", [])
        least = max(schema.get("minItems", 0), schema.get("minContains", 0))
        n = self.random.randint(least, max(least, min(schema.get("maxItems", 4), 4 if depth < 3 else 1)))
        items = [self.value(item, depth + 1) for item in prefix[:n]]
        rest = schema.get("items", True)
        while len(items) < n and rest is not False:
            items.append(self.value(rest, depth + 1))
        if "contains" in schema and self.random.random() < 0.7:
            items = (items + [2, "a", 7, 2])[-self.random.randint(1, 5):]
        return items

    def value_object(self, schema, depth):
        r, required, out = self.random, schema.get("required", []), {}
        for name, part in schema.get("properties", {}).items():
            if name in required or r.random() < 0.5:
                out[name] = self.value(part, depth + 1)
        others = schema.get("additionalProperties", True)
        if others is not False and r.random() < 0.4:
            out[r.choice(["o1", "o2"])] = self.value(others, depth + 1)
        for part in schema.get("patternProperties", {}).values():
            if r.random() < 0.5:
                out["p1x"] = self.value(part, depth + 1)
        return out

    # ---- possibly invalid values -------------------------------------------------------------------------------

    def spoiled(self, value):
        """Returns the value with a change at one place."""
        r = self.random
        if isinstance(value, (list, dict)) and value and r.random() < 0.7:
            at = r.choice(list(value)) if isinstance(value, dict) else r.randrange(len(value))
            copy = value.copy()
            if r.random() < 0.3:
                del copy[at]
            else:
                copy[at] = self.spoiled(value[at])
            return copy
        if isinstance(value, dict) and r.random() < 0.5:
            return {**value, "zz": r.choice([1, None, "x"])}
        if isinstance(value, list) and r.random() < 0.5:
            return [*value, r.choice([1, None, "x"])]
        if isinstance(value, str) and r.random() < 0.6:
            return r.choice([value + "b", value[:-1], value * 12, "-" + value])
        if isinstance(value, (int, float)) and not isinstance(value, bool) and r.random() < 0.7:
            return r.choice([value + 1, value - 1, -value, value * 1000, value + 0.5])
        return r.choice([None, True, 0, -7, 1.25, "", "text", [], {}])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1)
    args = parser.parse_args()
    for seed in range(args.seed, args.seed + args.count):
        generator = Generator(seed)
        schema = generator.make()
        print(json.dumps({"schema": schema, "value": generator.value(schema)}, ensure_ascii=False))


if __name__ == "__main__":
    main()
