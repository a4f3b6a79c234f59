"""The JSON Schema Test Suite, drafts 2020-12 and 7, from the source package of `jsonschema`, which pip fetches once.

    python tests/schemas/suite.py           checks all cases, and that suite.txt has the right results of each group
    python tests/schemas/suite.py --write   writes suite.txt

Each case passes (valid instances are accepted, others are not), or its schema is refused, or it is one of RULES: cases
with another rule than the suite's, or with fewer spellings. Other results are errors.
"""
import argparse
import collections
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tarfile

from driver import ROOT, Driver, in_order, order_of, orders, plain, spellings

PACKAGE, SHA256 = "jsonschema==4.26.0", "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326"
FOLDER = ROOT / "build" / "schemas"
KIND = "json_schema_strict"  # formats are enforced or refused
LIST = pathlib.Path(__file__).with_name("suite.txt")

# Valid in the suite but not accepted, or vice versa: (file, a part of the case's name, the reason).
RULES = [
    (r"format\.json$", "only an annotation by default", "formats are enforced"),
    (r"optional/format/(time|date-time)\.json$", "leap second", "seconds go up to 59, as in Python's datetime"),
    (r"optional/format/email\.json$", "quoted string|address-literal", "the obsolete forms of addresses are not written"),
    (r"dependencies\.json$", "valid object 2", "names that no schema lists count as one for minProperties"),
    (r"draft7/ref\.json$", "maxItems ignored", "what stands beside $ref holds, as in 2020-12"),
    (r"draft7/optional/content\.json$", "invalid", "contentEncoding and contentMediaType are annotations, as in 2020-12"),
]


def fetch():
    """Returns the source package, which is fetched unless it exists."""
    path = FOLDER / (PACKAGE.replace("==", "-") + ".tar.gz")
    if not path.exists():
        command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--no-binary", "jsonschema", PACKAGE]
        subprocess.run([*command, "-d", FOLDER], check=True)
    if hashlib.sha256(path.read_bytes()).hexdigest() != SHA256:
        path.unlink()
        raise SystemExit(f"suite.py: {path} was not the package that is expected; run it again")
    return path


def groups():
    """Returns the suite's groups of cases, each with its file's name."""
    with tarfile.open(fetch()) as archive:
        for member in archive.getmembers():
            name = re.search(r"/json/tests/(draft(?:2020-12|7)/.*\.json)$", member.name)
            if name:
                for group in json.load(archive.extractfile(member)):
                    yield name[1], group


def accepts(driver, schema, value):
    """Is the value accepted with its keys in the schema's order? If not: in which order, if any?"""
    def all_of(value):
        return all(driver.ask(schema, spellings(value), kind=KIND)["accepted"])

    if all_of(in_order(value, order_of(schema))):
        return "keys in the schema's order"
    return next(("keys in another order" for other in orders(value) if all_of(other)), None)


def outcome(driver, schema, case):
    value = plain(case["data"])
    if case["valid"]:
        return accepts(driver, schema, value) or "WRONG: a valid instance is not accepted"
    texts = [text for each in [case["data"], *orders(value, 200)] for text in spellings(each)]
    return "WRONG: an invalid instance is accepted" if any(driver.ask(schema, texts, kind=KIND)["accepted"]) else "not accepted"


def run(driver):
    """Returns counts of the cases by result, lines for the list, and lines about errors."""
    counts, lines, wrong = collections.Counter(), [], []
    for name, group in groups():
        place = f"{name} | {group['description']}"
        result = driver.ask(group["schema"], kind=KIND)
        if "error" in result:
            counts["schema refused"] += len(group["tests"])
            lines.append(f"refused  {place} | {result['error'][:100]}")
            continue
        for case in group["tests"]:
            found = outcome(driver, group["schema"], case)
            if found.startswith("WRONG"):
                rule = next((rule for rule in RULES if re.search(rule[0], name) and re.search(rule[1], case["description"])), None)
                if rule:
                    found = "by another rule"
                    lines.append(f"rule     {place} | {case['description']} | {rule[2]}")
                else:
                    wrong.append(f"{found}: {place} | {case['description']}: {json.dumps(group['schema'])} {json.dumps(case['data'])}")
            counts[found] += 1
    return counts, lines, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    driver = Driver()
    counts, lines, wrong = run(driver)
    driver.close()
    print("\n".join(wrong))
    print(f"{sum(counts.values())} cases: " + ", ".join(f"{n} {kind}" for kind, n in counts.most_common()))
    if args.write:
        LIST.write_text("\n".join(["Made by tests/schemas/suite.py --write: cases of the JSON Schema Test Suite that are refused or follow another rule.", *lines]) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
