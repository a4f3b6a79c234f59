"""MaskBench's schemas, each with its valid and invalid instances, against our compiler.

    git clone https://github.com/guidance-ai/jsonschemabench
    build/schemas/venv/bin/python tests/schemas/maskbench.py jsonschemabench/maskbench/data [--jobs 2] [--refused] [--wrong] [--match TEXT]

Needs build/schema_driver (`ninja -C build schema_driver`). A schema is served if it compiles. A wrong reject is a valid
instance that no order of its keys and no spelling makes acceptable; a wrong accept is an invalid instance that one does.
Labels that `jsonschema` contradicts do not count: some stand for formats that are annotations, or for drafts 3 and 4.
Schemas are read as `response_format` reads them without `strict`, and objects are open, as the specification says.
"""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import re
import urllib.parse

import jsonschema
import referencing.exceptions

from driver import Driver, in_order, order_of, orders, plain, spellings

MAX_ORDERS = 200


class Refused(Exception):
    """The compiler's message."""


class Arranger:
    """Writes the members of a value in the order in which a schema's grammar takes them."""

    def __init__(self, schema):
        self.root, self.draft = schema, jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)

    def target(self, ref):
        at = self.root
        for step in urllib.parse.unquote(ref[1:]).split("/")[1:] if ref.startswith("#") else ():
            step = step.replace("~1", "/").replace("~0", "~")
            at = at[int(step)] if isinstance(at, list) else at[step]
        return at

    def holds(self, schema, value):
        try:
            return self.draft(self.root).evolve(schema=schema).is_valid(value)
        except (jsonschema.exceptions.RefResolutionError, referencing.exceptions.Unresolvable, TypeError, AttributeError, KeyError):
            return False

    def parts(self, schema, value, depth=0):
        """The schemas that the value matches together, in their order."""
        if not isinstance(schema, dict) or depth > 40:
            return []
        found, below = [schema], lambda part: self.parts(part, value, depth + 1)
        if "$ref" in schema and isinstance(schema["$ref"], str):
            found += below(self.target(schema["$ref"]))
        for part in schema.get("allOf") or ():
            found += below(part)
        if "if" in schema:
            is_so = self.holds(schema["if"], value)
            found += (below(schema["if"]) if is_so else []) + below(schema.get("then" if is_so else "else"))
        for keyword in ("dependentSchemas", "dependencies"):
            for name, part in (schema.get(keyword) or {}).items():
                found += below(part) if isinstance(value, dict) and name in value else []
        return found

    def chosen(self, parts, value):
        """Appends the branches that the value matches: each anyOf, then each oneOf, after all other schemas."""
        seen = []
        while True:
            choice = next((part[keyword] for keyword in ("anyOf", "oneOf") for part in parts
                           if isinstance(part.get(keyword), list) and not any(part[keyword] is other for other in seen)), None)
            if choice is None:
                return parts
            seen.append(choice)
            for part in [part for part in choice if self.holds(part, value)][:1]:
                parts = parts + self.parts(part, value)

    def arranged(self, schemas, value):
        parts = self.chosen([part for schema in schemas for part in self.parts(schema, value)], value)
        if isinstance(value, list):
            return [self.arranged([self.item(part, at) for part in parts], item) for at, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        names = [name for part in parts for name in part.get("properties") or ()]
        names += [name for part in parts for name in (part.get("required") if isinstance(part.get("required"), list) else ())]
        for part in parts:
            listed = [own["enum"] for own in self.parts(part.get("propertyNames"), "") if "enum" in own]
            names += [] if names else [name for names in listed for name in names if isinstance(name, str)]
        order = {name: at for at, name in reversed(list(enumerate(names)))}
        return {name: self.arranged(self.own(parts, name), value[name]) for name in sorted(value, key=lambda name: order.get(name, 1 << 30))}

    @staticmethod
    def item(part, at):
        first = part.get("prefixItems") or (part.get("items") if isinstance(part.get("items"), list) else [])
        rest = part.get("additionalItems") if isinstance(part.get("items"), list) else part.get("items")
        return first[at] if at < len(first) else rest

    @staticmethod
    def own(parts, name):
        found = []
        for part in parts:
            own = [(part.get("properties") or {}).get(name)]
            own += [schema for pattern, schema in (part.get("patternProperties") or {}).items() if re.search(pattern, name)]
            found += [schema for schema in own if schema is not None] or [part.get("additionalProperties")]
        return found


def first_texts(schema, value):
    """Spellings of the value in the order of the schema."""
    value, arranger = plain(value), Arranger(schema)
    try:
        value = arranger.arranged([schema], value)
    except (KeyError, IndexError, TypeError, ValueError, re.error):
        pass
    return spellings(value)


def other_texts(schema, test):
    """Spellings in other orders."""
    value = plain(test["data"])
    found = [value, in_order(value, order_of(schema)), *orders(value, MAX_ORDERS if test["valid"] else 3)]
    return list(dict.fromkeys(text for each in found for text in spellings(each)))


def accepted(driver, schema, lists):
    """For each list of texts: is one of them accepted?"""
    result = driver.ask(schema, [text for texts in lists for text in texts])
    if "error" in result:  # near the limit of time a schema may compile only once
        raise Refused(result["error"])
    answers = iter(result["accepted"])
    return [any([next(answers) for _ in texts]) for texts in lists]


def is_mislabelled(schema, test):
    """Does jsonschema, which reads formats as annotations, contradict the label? 12345.0 is an integer for us, as since draft 6."""
    try:
        own = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        return any(draft(schema).is_valid(plain(test["data"])) != test["valid"] for draft in (own, jsonschema.Draft202012Validator))
    except Exception:  # a schema that jsonschema does not take
        return False


def judge(driver, schema, tests):
    """Returns the compiler's message (None: served), and the wrong results as (is_valid, index)."""
    try:
        fits = accepted(driver, schema, [first_texts(schema, test["data"]) for test in tests])
        left = [at for at in range(len(tests)) if not fits[at]]
        for at, fit in zip(left, accepted(driver, schema, [other_texts(schema, tests[at]) for at in left])):
            fits[at] = fit
    except Refused as refusal:
        return str(refusal), []
    return None, [(test["valid"], at) for at, test in enumerate(tests) if fits[at] != test["valid"] and not is_mislabelled(schema, test)]


def run(paths):
    driver, results = Driver(), []
    for path in paths:
        case = json.loads(path.read_text())
        results.append((path.stem, *judge(driver, case["schema"], case["tests"]), case["tests"]))
    driver.close()
    return results


def kind_of(refusal):
    """A refusal without the names of its schema."""
    problem = re.sub(r'^The schema at ".*?" (?=[a-z])', "", refusal)
    keyword = re.search(r'/([^/"]*)" ', refusal)
    return re.sub(r'"[^"]*"', '"..."', f"{keyword[1] if keyword and 'keyword' in problem else ''} {problem}").strip()[:110]


def report(results, args):
    refused = collections.Counter(kind_of(refusal) for _, refusal, _, _ in results if refusal)
    valid = [f"{name} test {at}: {tests[at]['description']}" for name, _, wrong, tests in results for is_valid, at in wrong if is_valid]
    invalid = [f"{name} test {at}: {tests[at]['description']}" for name, _, wrong, tests in results for is_valid, at in wrong if not is_valid]
    if args.refused:
        for name, refusal, _, _ in results:
            if refusal:
                print(f"refused {name}: {refusal}")
    if args.wrong:
        print("".join(f"wrong reject: {line}\n" for line in valid) + "".join(f"wrong accept: {line}\n" for line in invalid), end="")
    for kind, n in refused.most_common(40):
        print(f"{n:6} {kind}")
    n, served = len(results), len(results) - sum(refused.values())
    judged = collections.Counter(test["valid"] for _, refusal, _, tests in results if not refusal for test in tests)
    print(f"{n} schemas: {served} served ({100 * served / n:.1f} %); {len(valid)} of {judged[True]} valid instances rejected, "
          f"{len(invalid)} of {judged[False]} invalid instances accepted")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="maskbench/data of github.com/guidance-ai/jsonschemabench")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--match", default="", help="only files whose name contains this text")
    parser.add_argument("--refused", action="store_true", help="print each refusal")
    parser.add_argument("--wrong", action="store_true", help="print each wrong result")
    args = parser.parse_args()
    paths = sorted(path for path in args.folder.glob("*.json") if args.match in path.name)
    if not paths:
        parser.error(f"{args.folder} has no such schemas; clone https://github.com/guidance-ai/jsonschemabench and name its maskbench/data")
    parts = [paths[at::64] for at in range(64)]
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        results = [result for part in pool.map(run, parts) for result in part]
    report(results, args)


if __name__ == "__main__":
    main()
