"""Plants bugs in the sources, one at a time, and shows which of them the unit suites find.

    tests/mutate.py server/json --sample 50 --seed 1   a random sample of a room's mutants
    tests/mutate.py --sample 10 --minutes 30           of each room, until the time is up
    tests/mutate.py --all server/json                  every mutant of a room
    tests/mutate.py config/buf.c:buf_add:delete:1      single ones, by their keys
    tests/mutate.py --list server/json                 prints keys and edits
    tests/mutate.py --patches scheduler                the bugs that no operator makes: tests/mutants/patches
    tests/mutate.py --kind cuda kernels/cuda/rows ...  the same for the CUDA kernels, under emulation
    tests/mutate.py --self-test                        proves the operators on a made-up tree

A room is a folder with the folders in it, or a file. mutate_code.py makes the mutants and says what a key is; mutate_build.py
and mutate_cuda.py judge them by the suites of mutate_rooms.py.

Judgements of survivors are in tests/mutants/ROOM.json, as {key: reason}: "equivalent: ..." if the program does the same, or
the reason that no suite looks for it. A key that no mutant has any more is noted and otherwise ignored, as is a patch that
does not apply. A patch also applies to a file that its text has moved to. The program fails if it judges nothing, if too
few mutants are found or explained, or if a patch survives.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import random
import re
import shutil
import sys
import time

import mutate_build
import mutate_code
import mutate_cuda
import mutate_rooms
import mutate_served
from mutate_rooms import ROOT

JUDGED = os.path.join(ROOT, "tests/mutants")
MIN_SHARE = 0.75  # of a sample, found or explained
AT_A_TIME = int(os.environ.get("JOBS", "2"))
BUILDERS = {"c": mutate_build.Builder, "cuda": mutate_cuda.Builder}


def room_of(path):
    return os.path.dirname(path)


def is_of_kind(path, kind):
    return path.startswith(mutate_cuda.PLACE) == (kind == "cuda")


def lies_in(path, room):
    return path == room or path.startswith(room.rstrip("/") + "/")


# ---- judgements and patches --------------------------------------------------------------------------------------

def judgements(folder=JUDGED):
    """{key: reason} of all rooms."""
    found = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if name.endswith(".json"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                found.update(json.load(file))
    return found


def patches_in(text):
    """[(line, file, old text, new text)] of a file of patches: `FILE: the bug`, lines that begin with - and lines with +."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        if line[:1] in ("-", "+") and found:
            found[-1][2 if line[0] == "-" else 3].append(line[1:])
        elif line.strip() and not line.startswith("#"):
            found.append((number, line.partition(":")[0], [], []))
    return [(number, path, "\n".join(old), "\n".join(new)) for number, path, old, new in found]


def patch_mutant(key, path, text, old, new):
    """The mutant that a patch makes, or None if its text does not stand just once in the file; spaces do not count."""
    places = list(re.finditer(r"\s+".join(re.escape(word) for word in old.split()), text)) if old.strip() else []
    if len(places) != 1:
        return None
    return mutate_code.Mutant(key, path, text, places[0].start(), places[0].end(), new.strip())


def patch_in_tree(tree, key, path, old, new):
    """The mutant of a patch in its file, or in the one file of the same top folder that has its text: code moves."""
    if path in tree.house.sources:
        mutant = patch_mutant(key, path, tree.house.sources[path].text, old, new)
        if mutant:
            return mutant
    top = path.partition("/")[0] + "/"
    found = [patch_mutant(key, other, source.text, old, new) for other, source in tree.house.sources.items()
             if other.startswith(top)]
    found = [mutant for mutant in found if mutant]
    return found[0] if len(found) == 1 else None


def all_patches(tree, rooms, kind):
    """The mutants of the patches that apply, and notes about the others."""
    mutants, notes = [], []
    folder = os.path.join(JUDGED, "patches")
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            patches = patches_in(file.read())
        for line, path, old, new in patches:
            if not is_of_kind(path, kind) or not (not rooms or any(lies_in(path, room) for room in rooms)):
                continue
            mutant = patch_in_tree(tree, f"tests/mutants/patches/{name}:{line}", path, old, new)
            mutants += [mutant] if mutant else []
            notes += [] if mutant else [f"tests/mutants/patches/{name}:{line} does not apply to {path}"]
    return mutants, notes


# ---- what is judged -------------------------------------------------------------------------------------------------

def mutants_by_room(tree, rooms, kind):
    """{room: mutants} of the files that lie in the rooms, or have one of these keys."""
    found = collections.defaultdict(list)
    keys = {room for room in rooms if ":" in room}
    files = {key.partition(":")[0] for key in keys}
    for path in tree.house.sources:
        whole = not rooms or any(lies_in(path, room) for room in rooms)
        if is_of_kind(path, kind) and (whole or path in files):
            found[room_of(path)] += [m for m in tree.mutants_of(path) if whole or m.key in keys]
    return {room: mutants for room, mutants in found.items() if mutants}


def sampled(by_room, n, seed):
    """At most n mutants of each room, at random."""
    return {room: random.Random(f"{seed}:{room}").sample(mutants, min(n, len(mutants))) for room, mutants in by_room.items()}


def in_turn(by_room):
    """One mutant of each room after another, so that a run that is cut short has judged all rooms alike."""
    longest = max((len(mutants) for mutants in by_room.values()), default=0)
    return [mutants[i] for i in range(longest) for mutants in by_room.values() if i < len(mutants)]


def notes_of(reasons, tree, rooms):
    """Judgements of keys that do not exist any more."""
    stale = []
    for path in sorted({key.partition(":")[0] for key in reasons}):
        if not rooms or any(lies_in(path, room.partition(":")[0]) for room in rooms):
            known = {m.key for m in tree.mutants_of(path)} if path in tree.house.sources else set()
            stale += [f"{key} does not exist any more; its judgement can go"
                      for key in reasons if key.startswith(path + ":") and key not in known]
    return stale


# ---- judging ------------------------------------------------------------------------------------------------------

def show(mutant, verdict, by, reason):
    place, old, new = mutant.shown()
    print(f"{place}: {verdict} {by}", mutant.key, f"- {old}", f"+ {new}", *([reason] if reason else []), sep="\n    ", flush=True)


def judge_all(builder, mutants, reasons, minutes, is_verbose):
    """{room: counts by verdict}."""
    counts, until = collections.defaultdict(collections.Counter), time.monotonic() + 60 * minutes

    def judge(i):
        return builder.judge(mutants[i], i) if time.monotonic() < until else ("", "")
    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        for mutant, (verdict, by) in zip(mutants, pool.map(judge, range(len(mutants)))):
            reason = reasons.get(mutant.key)
            counted = "explained" if verdict == "survived" and reason else verdict
            counts[room_of(mutant.path)][counted] += bool(verdict)
            if verdict == "survived" or (is_verbose and verdict):
                show(mutant, verdict, by, reason)
            elif verdict == "found" and reason:
                show(mutant, verdict, by, "note: it has a judgement, which can go: " + reason)
    shutil.rmtree(mutate_build.WORK, ignore_errors=True)
    return counts


def rate(found, of):
    return f"{found / of:.0%}" if of else "-"


def print_rooms(counts):
    """The table, and one line at the end. Returns (found, explained, survived)."""
    print(f"{'room':26} {'judged':>7} {'found':>6} {'rate':>5} {'explained':>10} {'survived':>9} {'same':>5} {'broken':>7}")
    total = collections.Counter()
    for room, c in sorted(counts.items()):
        total += c
        judged = c["found"] + c["explained"] + c["survived"]
        print(f"{room:26} {judged:7} {c['found']:6} {rate(c['found'], judged):>5} {c['explained']:10} {c['survived']:9} "
              f"{c['same']:5} {c['does not compile']:7}")
    judged = total["found"] + total["explained"] + total["survived"]
    print(f"{judged} mutants of {len(counts)} rooms: {total['found']} found ({rate(total['found'], judged)}), "
          f"{total['explained']} explained, {total['survived']} survived")
    return total["found"], total["explained"], total["survived"]


# ---- the program ----------------------------------------------------------------------------------------------------

def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help="a folder, a file or a key; default: all")
    parser.add_argument("--kind", choices=sorted(BUILDERS), default="c", help="cuda: the kernels of kernels/cuda")
    parser.add_argument("--sample", type=int, metavar="N", help="judge N mutants of each room, at random")
    parser.add_argument("--seed", default="1", help="of the sample (1)")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no mutant after this time")
    parser.add_argument("--all", action="store_true", help="judge every mutant")
    parser.add_argument("--patches", action="store_true", help="judge the patches instead")
    parser.add_argument("--list", action="store_true", help="print the mutants and judge none")
    parser.add_argument("--verbose", action="store_true", help="print the mutants that are found, too")
    parser.add_argument("--self-test", action="store_true", help="prove the operators on a made-up tree")
    options = parser.parse_args()
    single = options.rooms and all(":" in room for room in options.rooms)
    if not (options.sample or options.all or options.patches or options.list or options.self_test or single):
        parser.error("say --sample N, --all, --patches or --list, or name mutants by their keys")
    return options


def main():
    options = arguments()
    if options.self_test:
        import mutate_self_test
        return mutate_self_test.main()
    tree, reasons, notes = mutate_code.Tree(ROOT), judgements(), []
    if options.patches:
        mutants, notes = all_patches(tree, options.rooms, options.kind)
    else:
        by_room = mutants_by_room(tree, options.rooms, options.kind)
        mutants = in_turn(sampled(by_room, options.sample, options.seed) if options.sample else by_room)
        notes = notes_of(reasons, tree, options.rooms)
    for note in notes + mutate_rooms.gone():
        print("note:", note)
    if options.list:
        for mutant in mutants:
            print(mutant.key, *mutant.shown()[1:], sep="\n    ")
        return 0
    if any(mutate_rooms.served_of(mutant.path) for mutant in mutants):
        mutate_served.need_python()
    builder = BUILDERS[options.kind](lambda path: [f.name for f in tree.house.sources[path].functions])
    found, explained, survived = print_rooms(judge_all(builder, mutants, reasons, options.minutes, options.verbose))
    least = 1 if options.patches else MIN_SHARE
    return 0 if found and found + explained >= least * (found + explained + survived) else 1


if __name__ == "__main__":
    sys.exit(main())
