#!/usr/bin/env python3
"""Checks that the rooms of the tree depend on each other in one direction, by includes and by calls.

    tests/rooms.py              prints each circle of rooms with its ties; fails if one has no stated reason
    tests/rooms.py --graph      prints all arrows: room -> room, and how many includes and calls
    tests/rooms.py --self-test

A room is a folder with sources. Room A depends on room B if a file of A includes a header of B, or if it calls a function that B
defines: a function declared in A's header and defined in B is a dependency that no include shows. Function pointers are not calls.
"""
import argparse
import collections
import os
import pathlib
import re
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).parent))
import house  # noqa: E402

ROOT = str(pathlib.Path(__file__).resolve().parent.parent)

# Circles that exist for a reason: the rooms, and the reason.
REASONS = {
    frozenset({"kernels/cpu", "kernels/cpu/ops", "kernels/cpu/plain", "kernels/cpu/weights"}):
        "cpu.h is the door of kernels/cpu and of its subrooms; backend.c opens and closes what they define",
}

Tie = collections.namedtuple("Tie", "path line text")


def room_of(path):
    return path.rpartition("/")[0]


def public_definitions(sources):
    """name -> the room that defines it, for functions with external linkage whose name is unique in the tree."""
    rooms, others = collections.defaultdict(set), set()
    for source in sources.values():
        for function in source.functions:
            if function.is_static or function.is_method:
                others.add(function.name)
            else:
                rooms[function.name].add(room_of(source.path))
    return {name: min(found) for name, found in rooms.items() if len(found) == 1 and name not in others}


def include_ties(sources):
    for source in sources.values():
        for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', source.text, re.M):
            target = match[1]
            beside = os.path.normpath(os.path.join(room_of(source.path), target))
            found = target if target in sources else beside
            if found in sources:
                line = source.text.count("\n", 0, match.start()) + 1
                yield room_of(source.path), room_of(found), Tie(source.path, line, f'includes "{target}"')


def call_ties(sources):
    defined = public_definitions(sources)
    for source in sources.values():
        own = {function.name for function in source.functions}
        if source.path.endswith(house.INCLUDED):
            continue  # a header's prototypes look like calls; the calls of its inline functions appear in its users
        for match in re.finditer(r"(?<![\w.>])([a-z]\w*)[ \t]*\(", source.code):
            name = match[1]
            if name in defined and name not in own:
                line = source.code.count("\n", 0, match.start()) + 1
                yield room_of(source.path), defined[name], Tie(source.path, line, f"calls {name}")


def graph_of(sources):
    """(room, room) -> ties, without ties inside a room."""
    ties = collections.defaultdict(list)
    for a, b, tie in [*include_ties(sources), *call_ties(sources)]:
        if a != b:
            ties[a, b].append(tie)
    return ties


def circles_of(ties):
    """The strongly connected sets of two rooms or more (Tarjan 1972)."""
    after = collections.defaultdict(set)
    for a, b in ties:
        after[a].add(b)
    order, low, stack, found = {}, {}, [], []

    def visit(room):
        order[room] = low[room] = len(order)
        stack.append(room)
        for other in sorted(after[room]):
            if other not in order:
                visit(other)
            if other in stack:
                low[room] = min(low[room], low[other])
        if low[room] == order[room]:
            component = set()
            while room not in component:
                component.add(stack.pop())
            if len(component) > 1:
                found.append(frozenset(component))

    for room in sorted({room for pair in ties for room in pair}):
        if room not in order:
            visit(room)
    return found


def report(circle, ties):
    print("circle: " + ", ".join(sorted(circle)))
    for (a, b), found in sorted(ties.items(), key=lambda item: len(item[1])):
        if a in circle and b in circle:
            print(f"  {a} -> {b}: {len(found)} ties, such as {found[0].path}:{found[0].line} {found[0].text}")


def check(root):
    ties = graph_of(house.House(root).sources)
    circles = circles_of(ties)
    wrong = [circle for circle in circles if circle not in REASONS]
    for circle in wrong:
        report(circle, ties)
    for stale in set(REASONS) - set(circles):
        print("a reason for a circle that does not exist: " + ", ".join(sorted(stale)))
    print(f"rooms: {len({room for pair in ties for room in pair})} rooms, {len(ties)} arrows, {len(wrong)} circles without a reason")
    return 1 if wrong or set(REASONS) - set(circles) else 0


def circles_in(files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.join(root, room_of(path)), exist_ok=True)
            pathlib.Path(root, path).write_text(text, encoding="utf-8")
        return circles_of(graph_of(house.House(root).sources))


def self_test():
    low = {"engine/low/a.h": "int low(void);\n", "engine/low/a.c": "int low(void) {\n    return 1;\n}\n"}
    user = {"engine/a.c": '#include "engine/low/a.h"\nint high(void) {\n    return low();\n}\n'}
    assert circles_in({**low, **user}) == [], "one direction is not a circle"
    back = {"engine/low/b.c": '#include "engine/a.h"\n', "engine/a.h": "int high(void);\n"}
    assert len(circles_in({**low, **user, **back})) == 1, "two includes are a circle"
    call = {"engine/low/a.h": "int low(void);\nint high(void);\n", "engine/low/b.c": "int b(void) {\n    return high();\n}\n",
            "engine/low/a.c": low["engine/low/a.c"]}
    assert len(circles_in({**call, **user})) == 1, "a call through a header of the caller's own room is a circle"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    if args.graph:
        for (a, b), ties in sorted(graph_of(house.House(ROOT).sources).items()):
            calls = sum(tie.text.startswith("calls") for tie in ties)
            print(f"{a} -> {b}: {len(ties) - calls} includes, {calls} calls")
        return 0
    return check(ROOT)


if __name__ == "__main__":
    sys.exit(main())
