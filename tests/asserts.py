#!/usr/bin/env python3
"""Checks that every room has asserts, and docs/asserts.md, the table of the asserts whose conditions depend on data from outside.

    tests/asserts.py            fails if a room has fewer asserts per function than MIN_ROOM, or the product fewer than MIN_ALL; if a row
                                names a function that does not exist or has no assert; or if the number of asserts of a file
                                that reads outside data is not the one in tests/asserts.txt
    tests/asserts.py --update   writes tests/asserts.txt: look at the new asserts first, and add the rows that they need
    tests/asserts.py --self-test
"""
import argparse
import collections
import pathlib
import re
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).parent))
import house  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE, COUNTS = "docs/asserts.md", "tests/asserts.txt"
MIN_ALL, MIN_ROOM = 0.2, 0.05  # asserts per function

# The folders that read data from outside.
READERS = ("config/", "engine/files/", "engine/grammar/build/", "engine/grammar/read/", "engine/grammar/schema/", "engine/text/",
           "server/anthropic/", "server/apis/", "server/app/", "server/commands/", "server/endpoints/", "server/http/", "server/json/",
           "server/llama/", "server/message/", "server/ollama/", "server/openai/", "server/page/", "server/hub/",
            "server/options/", "server/responses/", "server/decisions/", "server/keys/", "server/kv_events/", "server/traces/",
            "server/fingerprint/", "server/promises/", "server/receipts/", "server/cassette/", "server/offline/")
ROW = re.compile(r"^\| `([\w/.]+)` `(\w+)` \| `.+` \| .+ \|$", re.M)


def asserts_of(source):
    """The lines with an assert, one entry per assert."""
    return [source.line_of(match.start()) for match in re.finditer(r"\bassert\(", source.code)]


def row_findings(sources, page):
    for path, name in ROW.findall(page):
        named = [f for f in sources[path].functions if f.name == name] if path in sources else []
        if not named:
            yield f"{PAGE}: {path} has no function {name}: correct the row or remove it"
        elif not any(f.line <= line < f.line + f.length for f in named for line in asserts_of(sources[path])):
            yield f"{PAGE}: {name} in {path} has no assert: remove the row"


def counts_of(sources):
    """The text of tests/asserts.txt."""
    counts = {path: len(asserts_of(source)) for path, source in sources.items() if path.startswith(READERS)}
    return "".join(f"{n} {path}\n" for path, n in sorted(counts.items()) if n)


def count_findings(sources, known):
    found = counts_of(sources)
    for line in sorted(set(found.splitlines()) - set(known.splitlines())):
        yield (f"{COUNTS}: now {line.replace(' ', ' asserts in ')}: if data from outside decides a new one, return an error or add a row "
               f"to {PAGE}; then run tests/asserts.py --update")
    gone = {line.split()[1] for line in known.splitlines()} - {line.split()[1] for line in found.splitlines()}
    yield from (f"{COUNTS}: {path} lost its asserts: run tests/asserts.py --update" for path in sorted(gone))


def share_findings(sources):
    functions, asserts = collections.Counter(), collections.Counter()
    for path, source in sources.items():
        for part in ("the product", path.rpartition("/")[0]):
            functions[part] += len(source.functions)
            asserts[part] += len(asserts_of(source))
    for part, n in sorted(functions.items()):
        least = MIN_ALL if part == "the product" else MIN_ROOM
        if asserts[part] < least * n:
            yield f"{part}: {asserts[part]} asserts in {n} functions; at least {least} per function are expected"


def findings_in(root):
    sources = house.House(root).sources
    page, known = (pathlib.Path(root, path).read_text(encoding="utf-8") for path in (PAGE, COUNTS))
    return [*share_findings(sources), *row_findings(sources, page), *count_findings(sources, known)]


def self_test():
    code = "int f(int a) {\n    assert(a > 0);\n    return a;\n}\n\nint g(void) {\n    return 0;\n}\n"
    row = "| `config/a.c` `{}` | `a > 0` | `g` checks it |\n"
    cases = [(row.format("f"), "1 config/a.c\n", None), (row.format("g"), "1 config/a.c\n", "g in config/a.c has no assert"),
             (row.format("h"), "1 config/a.c\n", "has no function h"), ("", "2 config/a.c\n", "now 1 asserts in config/a.c"),
             ("", "1 config/a.c\n1 config/b.c\n", "config/b.c lost its asserts"),
             ("", "1 config/a.c\n", "engine: 0 asserts in 1 functions", {"engine/a.c": "int h(void) {\n    return 0;\n}\n"}),
             ("", "1 config/a.c\n", "the product: 1 asserts in 6 functions", {"config/b.c": "int h(void) {\n}\n" * 4})]
    for page, known, words, *more in cases:
        with tempfile.TemporaryDirectory() as root:
            for path, text in (("config/a.c", code), (PAGE, page), (COUNTS, known), *(more[0] if more else {}).items()):
                pathlib.Path(root, path).parent.mkdir(exist_ok=True)
                pathlib.Path(root, path).write_text(text, encoding="utf-8")
            found = findings_in(root)
        assert len(found) == bool(words) and (not words or words in found[0]), (words, found)
    print(f"asserts: self-test of {len(cases)} trees passed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    if options.update:
        (ROOT / COUNTS).write_text(counts_of(house.House(str(ROOT)).sources), encoding="utf-8")
    found = findings_in(str(ROOT))
    print(*found, sep="\n", end="\n" * bool(found))
    print(f"asserts: {len(ROW.findall((ROOT / PAGE).read_text(encoding='utf-8')))} rows, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
