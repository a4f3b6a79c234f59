"""Sends hostile requests to servers of a sanitizer's build, beside valid ones whose answers must not change.

    python3 tests/chaos/chaos.py --binary build/asan/penstock --minutes 3 [--seed 1]
    python3 tests/chaos/chaos.py --replay build/chaos/FILE.json

Each round has a server of its own, with the next setup of servers.py. After a round all gauges and open files are as before,
and the server ends with code 0 and without a report. A failure writes the requests that may have caused it into a file, which
--replay sends again.
"""
import argparse
import collections
import json
import pathlib
import random
import sys
import time

import crowd
import routes
from answers import Bad, normal
from cases import Case
from servers import Server, setups
from sources import ROOT
from ways import send

FOLDER = ROOT / "build/chaos"
MAX_SUSPECTS = 60
GROWTH_MIB = 48  # of a plain build, after the first half of a round


class Failure(Exception):
    """A failure and the cases that may have caused it."""

    def __init__(self, what, cases):
        super().__init__(what)
        self.cases = cases


# ---- one round ---------------------------------------------------------------------------------------------

def run_round(args, setup, seed, seconds, total):
    server = Server(args.binary, setup)
    try:
        world = crowd.World(server, seed)
        crowd.warm_up(world)
        expected = crowd.quiet_answers(world)
        before = server.steady()
        parts = 2 if args.memory else 1
        memory = []
        for part in range(parts):
            world.stopping.clear()
            crowd.run(world, expected, seconds / parts)
            total.update(world.sent)
            world.sent.clear()
            if world.failures or server.report():
                what, cases = (world.failures or [("a report", everything_recent(world))])[0]
                raise Failure(f"{what}\n{server.report() or ''}", cases)
            server.settle(before)
            time.sleep(2 if args.memory else 0)
            memory.append(server.resident_mib())
        if memory[-1] > memory[0] + GROWTH_MIB:
            raise Failure(f"memory grows: {memory} MiB", [])
        check_quiet(world, expected)
        server.stop()
        return world
    except Bad as error:
        raise Failure(f"{error}\n{server.report() or ''}", everything_recent(world) if "world" in locals() else []) from None
    finally:
        server.close()


def everything_recent(world):
    return [case for batches in list(world.recent.values()) for batch in list(batches) for case in batch]


def check_quiet(world, expected):
    """Afterwards each valid request has the answer that it had before."""
    for row in routes.ROWS:
        answer = normal(crowd.ask_valid(world, row))
        if answer != expected[row[0]]:
            raise Bad(f"{row[0]} has another answer after the chaos:\n  {answer}\n  {expected[row[0]]}")


# ---- failures ----------------------------------------------------------------------------------------------

def send_to(server, world, case):
    """Sends a case, and returns what is wrong then; None: nothing."""
    try:
        send(world, case, random.Random(case.name))
    except (Bad, OSError) as error:
        time.sleep(0.5)  # a report takes time
        return f"{case.name}: {error}\n{server.report() or ''}"
    time.sleep(0.05)
    return server.report()


def replay(binary, setup, cases):
    """Sends the cases to a new server as a round does, and returns what is wrong; None: nothing."""
    server = Server(binary, setup)
    try:
        world = crowd.World(server, 0)
        crowd.warm_up(world)
        before = server.steady()
        for case in cases:
            if what := send_to(server, world, case):
                return what
        server.settle(before)
        server.stop()
        return None
    except (Bad, OSError) as error:
        return f"{error}\n{server.report() or ''}"
    finally:
        server.close()


def write_cases(path, setup, cases):
    rows = [{"name": case.name, "how": case.how, "data": case.data.decode("latin-1")} for case in cases]
    path.write_text(json.dumps({"setup": setup.name, "cases": rows}, indent=1))


def read_cases(path):
    data = json.loads(path.read_text())
    setup = next(one for one in setups() if one.name == data["setup"])
    return setup, [Case(one["name"], one["data"].encode("latin-1"), one["how"]) for one in data["cases"]]


def curl_line(case, path):
    """A line for a plain request, whose body lies in a file."""
    head, _, body = case.data.partition(b"\r\n\r\n")
    method, target, *_ = head.split(b"\r\n")[0].decode("latin-1").split(" ") + ["", ""]
    path.write_bytes(body)
    return f"curl -X {method} -H 'Content-Type: application/json' --data-binary @{path} 'http://HOST{target}'"


def narrow(binary, setup, cases):
    """The one case that fails by itself, if there is one, and what it does; otherwise all."""
    left = cases[-MAX_SUSPECTS:]
    while left:
        server = Server(binary, setup)
        try:
            world, found = crowd.World(server, 0), None
            while left and not found:
                case = left.pop()
                found = case if send_to(server, world, case) else None
        finally:
            server.close()
        if found and (what := replay(binary, setup, [found])):
            return [found], what
    return cases, None


def tell(args, setup, seed, failure):
    FOLDER.mkdir(parents=True, exist_ok=True)
    print(f"FAILED with --seed {seed}, setup {setup.name} ({' '.join(setup.flags)}):\n{failure}", flush=True)
    cases, what = narrow(args.binary, setup, failure.cases)
    path = FOLDER / f"{setup.name}-{seed}.json"
    write_cases(path, setup, cases)
    if what:
        print(f"one request is enough: {cases[0].name}\n{what[:3000]}\n{cases[0].data[:3000]!r}")
        if cases[0].how == "ask":
            print(curl_line(cases[0], path.with_suffix(".body")))
    print(f"again: python3 tests/chaos/chaos.py --binary {args.binary} --replay {path}", flush=True)


# ---- the program -------------------------------------------------------------------------------------------

def run_all(args):
    """Rounds until the time is over or the requests are sent. Returns how many failed."""
    routes.check()
    all_setups, total, checked, failed = setups(), collections.Counter(), 0, 0
    chosen = [one for one in all_setups if args.setup in (None, one.name)]
    begun = time.monotonic()
    n_rounds = 0
    while (left := args.minutes * 60 - (time.monotonic() - begun)) > 0 and (not args.requests or total.total() < args.requests):
        setup, seed = chosen[n_rounds % len(chosen)], args.seed + n_rounds
        n_rounds += 1
        try:
            world = run_round(args, setup, seed, min(args.round, left), total)
            checked += world.checked
            print(f"{time.monotonic() - begun:6.0f} s  {setup.name}: {total.total()} hostile requests, {checked} valid answers "
                  f"compared, {world.busy} times refused as busy", flush=True)
        except Failure as failure:
            failed += 1
            tell(args, setup, seed, failure)
            if not args.keep_going:
                break
    print("hostile requests by deck: " + ", ".join(f"{name} {n}" for name, n in total.most_common()))
    rate = total.total() / max(time.monotonic() - begun, 1) * 60
    print(f"{total.total()} hostile requests in {n_rounds} rounds, {rate:.0f} a minute, {checked} valid answers compared, {failed} failures")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--binary", default=str(ROOT / "build/asan/penstock"))
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--requests", type=int, default=0, help="end after a round in which this number is reached")
    parser.add_argument("--round", type=float, default=15, help="seconds of chaos for each server")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--setup", help="only this one of servers.py")
    parser.add_argument("--memory", action="store_true", help="memory may not grow: of a build without a sanitizer")
    parser.add_argument("--keep-going", action="store_true", help="after a failure too")
    parser.add_argument("--replay", type=pathlib.Path, help="send the requests of this file, and nothing else")
    args = parser.parse_args()
    if args.replay:
        what = replay(args.binary, *read_cases(args.replay))
        print(what or "nothing is wrong")
        return 1 if what else 0
    return 1 if run_all(args) else 0


if __name__ == "__main__":
    sys.exit(main())
