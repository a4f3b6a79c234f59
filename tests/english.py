#!/usr/bin/env python3
"""Counts turns of phrase that make readers stumble, in comments, messages, pages and names of tests.

    tests/english.py              checks the limits below; prints each room or page above its limit
    tests/english.py --rooms      prints the figure of each room
    tests/english.py --worst 20   prints the 20 worst sentences (of FOLDER or FILE, if given)
    tests/english.py --self-test  checks that each pattern finds its example

The figure is the number of idioms per 1,000 words. It finds sentences to rewrite; it does not judge them. A sentence that
must be read twice is a defect even if no pattern finds it.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMITS = {"comments": 5.0, "messages": 4.0, "pages": 4.0, "names": 12.0}  # per 1,000 words, the whole tree
ROOM_LIMIT = 5.0                                            # the comments of one folder
MIN_WORDS = 300                                             # smaller rooms and pages are too small for a figure

# name: (pattern, a sentence that it finds)
PATTERNS = {
    "a clause with 'what' as a noun": (
        r"(?:^|[.:;,(] ?|\b(?:of|with|by|from|for|and|or|but|to|on|in|at|as|is) )"
        r"[Ww]hat (?!is|are|if|happens|does|do\b|to\b|kind)[a-z]+",
        "The end of what follows."),
    "'what is' as a noun": (r"\b[Ww]hat (?:is|are|was|of|becomes|came|comes|stands)\b", "Keeps what is left."),
    "'so many'": (r"\b[Ss]o many\b", "It takes so many rows."),
    "'behind' for after": (r"\bbehind\b", "The token behind the last one."),
    "'that it has'": (r"\bthat (?:it|they|one) (?:has|have|had)\b", "All rows that it has."),
    "a person for code": (r"\b(?:[Ww]hoever|[Nn]obody|[Ss]omebody|[Ww]ho)\b", "Who reads it must have the lock."),
    "'come' for anything but motion": (r"\b(?:comes?|came|coming)\b", "The token that comes next."),
    "'where' for if": (r"(?:^|[.:;] )Where\b|\bwhere (?:there|it|that|no|none|a|the|some|one|they)\b",
                       "Where none is left, it fails."),
    "'has no', 'is none'": (
        r"\b(?:is|are|has|have|there is|there are|needs?|gets?|takes?) (?:none|no [a-z]+)\b", "The list has no end."),
    "a negation without a verb": (r"(?:^|[.] )(?:Not|None|No [a-z]+|Nor|Neither)\b", "Not for a GPU."),
    "'of which', 'of those'": (r"\bof (?:which|whom|those|these|them|that)\b", "Ten rows, of which two are new."),
}
SOURCES = (".c", ".h", ".cu", ".cuh", ".inc", ".cpp")
SKIPPED = ("tests/vectors/", "tests/fuzz/corpus/", "docs/measurements/", "LICENSE")
STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.S)


def words_of(text):
    return len(re.findall(r"[A-Za-z']+", text))


def idioms_in(text):
    return sum(len(re.findall(pattern, text)) for pattern, _ in PATTERNS.values())


def prose(path, text):
    """Yields (kind, text) for each comment and message of a source, or the text of a page without its code."""
    if path.endswith(".md"):
        yield "pages", re.sub(r"```.*?```|^ {4}[^\n]*$|`[^`]*`|\]\([^)]*\)", " ", text, flags=re.S | re.M)
        return
    for match in re.finditer(r"^START_TEST\((\w+)\)", text, re.M):
        yield "names", match[1].replace("_", " ")
    for match in STRING_OR_COMMENT.finditer(text):
        token = match[0]
        if token[0] != '"':
            yield "comments", re.sub(r"\n[ \t]*\*? ?", " ", re.sub(r"^/\*|\*/$|^//", "", token))
        elif len(token.split()) > 4:
            yield "messages", token[1:-1]


def sources(place):
    listed = subprocess.run(["git", "ls-files", "--", place], cwd=ROOT, capture_output=True, text=True, check=True)
    for path in listed.stdout.split("\n"):
        if path.endswith(SOURCES + (".md",)) and not path.startswith(SKIPPED):
            yield path, (ROOT / path).read_text(encoding="utf-8", errors="replace")


class Count:
    """Words and idioms, and their figure."""

    def __init__(self):
        self.words = self.idioms = 0

    def add(self, text):
        self.words += words_of(text)
        self.idioms += idioms_in(text)

    def figure(self):
        return 1000 * self.idioms / max(1, self.words)


def measure(place="."):
    """Counts by kind for the whole place, and by room (comments) and page."""
    kinds, parts = collections.defaultdict(Count), collections.defaultdict(Count)
    for path, text in sources(place):
        for kind, piece in prose(path, text):
            kinds[kind].add(piece)
            if kind == "comments":
                parts[path.rpartition("/")[0] or "."].add(piece)
            elif kind == "pages":
                parts[path].add(piece)
    return kinds, parts


def limit_of(part):
    return LIMITS["pages"] if part.endswith(".md") else ROOM_LIMIT


def findings(kinds, parts):
    for kind, count in sorted(kinds.items()):
        if count.figure() > LIMITS[kind]:
            yield f"{kind}: {count.figure():.1f} idioms per 1,000 words; the limit is {LIMITS[kind]:.0f}"
    for part, count in sorted(parts.items()):
        if count.words >= MIN_WORDS and count.figure() > limit_of(part):
            yield f"{part}: {count.figure():.1f} idioms per 1,000 words; the limit is {limit_of(part):.0f}"


def worst(place, n):
    sentences = []
    for path, text in sources(place):
        for _, piece in prose(path, text):
            for sentence in re.split(r"(?<=[.:;]) ", piece):
                count = idioms_in(sentence)
                if count:
                    sentences.append((count / words_of(sentence) ** 0.5, path, " ".join(sentence.split())))
    for _, path, sentence in sorted(sentences, reverse=True)[:n]:
        print(f"{path}: {sentence[:200]}")


def self_test():
    for name, (pattern, example) in PATTERNS.items():
        assert re.search(pattern, example), f"'{example}' is an example of {name}, and its pattern misses it"
    plain = "Returns the number of free blocks. Fails with STATUS_BAD_FILE if the header is truncated."
    assert idioms_in(plain) == 0, "plain sentences have idioms"
    source = '/* Keeps what is left. */ f("a word"); g("It stands at the end of what follows."); // so many'
    assert [kind for kind, _ in prose("a.c", source)] == ["comments", "messages", "comments"]
    assert list(prose("a.c", "START_TEST(what_is_left) {\n")) == [("names", "what is left")]
    assert next(prose("a.md", "what is\n\n    what is\n`what is`\n\nwhat is"))[1].count("what is") == 2, "code is no prose"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place", nargs="?", default=".")
    parser.add_argument("--rooms", action="store_true")
    parser.add_argument("--worst", type=int, default=0)
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    if args.worst:
        return worst(args.place, args.worst)
    kinds, parts = measure(args.place)
    if args.rooms:
        for part, count in sorted(parts.items(), key=lambda item: -item[1].figure()):
            print(f"{part:36} {count.figure():5.1f} per 1,000 of {count.words} words")
    found = list(findings(kinds, parts))
    print("\n".join(found))
    print("english: " + ", ".join(f"{kind} {count.figure():.1f}" for kind, count in sorted(kinds.items())))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
