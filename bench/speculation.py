"""Measures the savings of speculation (C13a, b, c), whether its cost is known (C13d), and that it costs nothing when
off (C13e).

    python3 bench/speculation.py [--out docs/measurements/NAME.json] [--before PROGRAM] [--rows C13a C13b C13c C13d C13e]

It takes about five minutes on a quiet machine. C13a to C13c: the same requests on a server with --speculative-config
ngram and on one without, in turns. Answers must have the same bytes. The figure is the time without drafts divided by
the time with them, the median of the repeats. C13a is the geometric mean of four tasks whose answers repeat their
prompts. It is also compared with the possible gain: a simulation of the same drafts on the answers, with the measured
cost of steps by their rows. llama.cpp's lookup gets the same prompts, if build/peers/llama.cpp exists. C13b is free
prose, C13c the tasks of C13a for 8 and 16 users. C13d is build/replay: the time of steps compared with the scheduler's
estimate. C13e runs the works C1, C3 and C4 on this program and on one built from an older commit (--before), both
without drafts.

--cpu measures the processor time of the servers instead of wall time, with one thread: for a machine that others use
too.
"""

import concurrent.futures
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import time
import urllib.request

import machine
import runs
import works

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEER = ROOT / "build/peers/llama.cpp/bin/python"
N_OUT, N_OUT_OF_MANY, MIN_MATCH, MAX_MATCH = 192, 64, 2, 8
GOALS = {"C13a": 1.8, "C13a of the simulation": .8, "C13b": .98, "C13c, 8 users": 1.1, "C13c, 16 users": .99, "C13d": .1, "C13e": .01}


def tasks():
    """Fixed prompts, which do not change: the project's licence and made-up texts. The text to copy is so simple that a
    model of 135 M parameters nearly copies it: an answer that is not a copy would not be the task."""
    day = ("The keeper of the lighthouse got up before the sun. She made tea, fed the grey cat and climbed the stairs to the lamp. "
           "The sea was calm and the wind came from the west. Two boats left the harbour and went north to fish for cod. At noon a "
           "letter came from the town: the new lens would be sent by train on Monday. She read it twice, put it in the drawer and "
           "painted the door green. In the evening the cat slept on the chair, the lamp turned and the boats came home with full nets.")
    text = (ROOT / "LICENSE").read_text()[1200:2700]
    code = "\n".join(f"def area_{n}(width, height):\n    total = width * height + {n}\n    print(total)\n    return total\n"
                     for n in range(8))
    items = "\n".join(f"item {n}: price {n * 37 % 91}, stock {n * 7 % 13}" for n in range(24))
    story = "Write a long story about a lighthouse keeper and her cat."
    return {
        "copy": ("C13a", f"Repeat this text word for word:\n\n{day}", {"max_tokens": 104}),
        "rename": ("C13a", f"Rename the variable total to result in this code and print the whole code:\n\n{code}", {}),
        "json": ("C13a", f"Write this list as JSON, an object with name, price and stock for each item:\n\n{items}", {}),
        "summary": ("C13a", f"Summarise this text:\n\n{text}", {}),
        "prose": ("C13b", story, {}),
        "prose at 0.7": ("C13b", story, {"temperature": 0.7}),
    }


class Server(runs.Server):
    """One that counts drafts."""

    def ask(self, prompt, fields):
        body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": N_OUT, "temperature": 0, "seed": 1,
                "ignore_eos": True, "return_token_ids": True, **fields}
        return self.post("/v1/chat/completions", body)["choices"][0]["token_ids"]

    def prompt_ids(self, prompt):
        return self.post("/tokenize", {"messages": [{"role": "user", "content": prompt}]})["tokens"]

    def drafts(self):
        with urllib.request.urlopen(self.url + "/metrics") as answer:
            text = answer.read().decode()
        names = ("num_draft_tokens", "num_accepted_tokens")
        return [float(re.search(rf"^vllm:spec_decode_{name}_total\{{.*\}} (\S+)$", text, re.M)[1]) for name in names]

    def seconds(self, on_cpu):
        """Returns wall time, or the server's processor time."""
        return machine.process_seconds(self.process.pid) if on_cpu else time.perf_counter()


# ---- C13a, C13b, C13c -----------------------------------------------------------------------------------------------------

def measure(args, server, users, prompt, fields):
    """Returns the seconds until all users have their answers, and the answers."""
    with concurrent.futures.ThreadPoolExecutor(users) as pool:
        began = server.seconds(args.cpu)
        answers = list(pool.map(lambda user: server.ask(prompt, {**fields, "seed": user}), range(users)))
        return server.seconds(args.cpu) - began, answers


def compare(args, off, on, users, prompt, fields, repeats):
    """Returns the ratios of the repeats, the share of accepted drafts, drafts per token, and the answers."""
    ratios = []
    before = on.drafts()
    n_out = fields.get("max_tokens", N_OUT)
    for repeat in range(repeats + 1):  # the first one warms up: the prompt is in both prefix caches afterwards
        sides = (off, on) if repeat % 2 else (on, off)
        seconds = {}
        for side in sides:
            seconds[side], answers = measure(args, side, users, prompt, fields)
            if repeat == 0 and side is sides[0]:
                wanted = answers
            assert answers == wanted, "guesses have changed an answer"
        if repeat > 0:
            ratios.append(seconds[off] / seconds[on])
    drafts, held = (after - b for after, b in zip(on.drafts(), before))
    return ratios, held / drafts if drafts else 0, drafts / ((repeats + 1) * users * n_out), wanted


def geometric_mean(values):
    return math.exp(statistics.fmean(math.log(value) for value in values))


def guesses(args, costs, rows):
    """The parts of C13a, C13b and C13c that are in `rows`."""
    with Server(args, *args.flags) as off, Server(args, "--speculative-config", "ngram", *args.flags) as on:
        for users in (1, 8, 16):
            row_of = {"C13a": "C13a", "C13b": "C13b"} if users == 1 else {"C13a": f"C13c, {users} users"}
            found, simulated = {}, []
            for name, (kind, prompt, fields) in tasks().items():
                row = row_of.get(kind)
                if row is None or row[:4] not in args.rows:
                    continue
                if users > 1:
                    fields = {**fields, "max_tokens": N_OUT_OF_MANY}
                ratios, held, share, answers = compare(args, off, on, users, prompt, fields, args.repeats if users == 1 else 2)
                found.setdefault(row, {})[name] = ratios
                note = ""
                if row == "C13a":
                    simulated.append(simulate(off.prompt_ids(prompt), answers[0], costs))
                    note = f"; simulated {simulated[-1]:.2f}"
                print(f"{users:2} users, {name:12} {statistics.median(ratios):5.2f} times as fast ({min(ratios):.2f} to "
                      f"{max(ratios):.2f}); {held:4.0%} of {share:.2f} drafts a token held{note}", flush=True)
            for row, ratios in found.items():
                rows[row] = {"value": geometric_mean([statistics.median(r) for r in ratios.values()]), "ratios": ratios}
            if simulated and "C13a" in found:
                rows["C13a"]["simulated"] = geometric_mean(simulated)
                rows["C13a of the simulation"] = {"value": rows["C13a"]["value"] / rows["C13a"]["simulated"]}


# ---- the simulation -------------------------------------------------------------------------------------------------------

def looked_up(places, known, most):
    """Returns the drafts of prompt lookup, the tokens after the longest match (the latest of equal ones), and the
    match."""
    best, match = None, MIN_MATCH - 1
    for place in reversed(places.get(tuple(known[-MIN_MATCH:]), ())):
        n = MIN_MATCH
        while n < MAX_MATCH and n < place and known[place - n - 1] == known[-n - 1]:
            n += 1
        if n > match:
            best, match = place, n
    if best is None:
        return [], 0
    text = list(known)
    for i in range(most):
        text.append(text[best + i])
    return text[len(known):], match


def depth_of(chances, match, n, costs):
    """Returns the number of drafts with the most tokens per time, if the chances are right."""
    best, depth, tokens, all_hold = 1 / costs[1], 0, 1, 1
    for i in range(1, n + 1):
        all_hold *= chances[min(match + i - 1, MAX_MATCH)]
        tokens += all_hold
        if tokens / costs[1 + i] > best:
            best, depth = tokens / costs[1 + i], i
    return depth


def simulate(prompt, answer, costs):
    """Returns the speedup with drafts whose chances are known: learnt by match in a first pass over the same answer."""
    tried, held = [1] * (MAX_MATCH + 1), [.5] * (MAX_MATCH + 1)
    for last in (False, True):
        chances = [h / t for h, t in zip(held, tried)]
        known, places, spent = list(prompt), {}, 0
        for place in range(MIN_MATCH, len(known)):
            places.setdefault(tuple(known[place - MIN_MATCH:place]), []).append(place)
        while len(known) < len(prompt) + len(answer):
            at = len(known) - len(prompt)
            drafts, match = looked_up(places, known, min(max(costs) - 1, len(answer) - at - 1))
            right = 0
            while right < len(drafts) and drafts[right] == answer[at + right]:
                right += 1
            for i in range(min(right + 1, len(drafts))):
                tried[min(match + i, MAX_MATCH)] += not last
                held[min(match + i, MAX_MATCH)] += not last and i < right
            depth = depth_of(chances, match, len(drafts), costs) if last else len(drafts)
            spent += costs[1 + depth]
            for token in answer[at:at + min(right, depth) + 1]:
                places.setdefault(tuple(known[-MIN_MATCH:]), []).append(len(known))
                known.append(token)
    return (len(answer)) * costs[1] / spent


def between(measured):
    """Interpolates the cost of each number of rows between the measured ones."""
    points = sorted((int(rows), cost) for rows, cost in measured.items())
    costs = {}
    for (a, low), (b, high) in zip(points, points[1:]):
        for rows in range(a, b + 1):
            costs[rows] = low + (high - low) * (rows - a) / (b - a)
    return costs


# ---- C13d, C13e, the peer ---------------------------------------------------------------------------------------------------

def replay(args, rows):
    """The cost of steps by their rows. C13d: the relative error of the estimate, as the median of each share's runs."""
    command = [args.replay, args.model, str(args.threads), *(["cpu"] if args.cpu else [])]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print("a step's cost in us by rows:", ", ".join(f"{n}: {us:.0f}" for n, us in found["costs"].items()), flush=True)
    runs = {}
    for run in found["replay"]:
        runs.setdefault(run["right"], []).append(run["us"] / run["believed_us"] - 1)
    for right, apart in runs.items():
        print(f"C13d, {right:3} % right: {statistics.median(apart):+.1%} of what was believed", flush=True)
    if runs:
        rows["C13d"] = {"value": max(abs(statistics.median(apart)) for apart in runs.values()), "runs": runs}
    rows["costs"] = {"us": found["costs"]}
    return between(found["costs"])


def run_work(args, server, work, repeat):
    def user(queue):
        for ids in queue:
            server.post("/v1/completions", {"prompt": ids, "max_tokens": work.n_out, "temperature": 0, "ignore_eos": True})

    with concurrent.futures.ThreadPoolExecutor(work.users) as pool:
        began = server.seconds(args.cpu)
        list(pool.map(user, work.queues(repeat)))
        return server.seconds(args.cpu) - began


def beside_before(args, rows):
    """C13e: times of this program divided by those of the older one, in turns."""
    found = {}
    with Server(args, *args.flags) as now, Server(args, *args.flags, program=args.before) as before:
        for name, work in (("C1", works.STREAM), ("C3", works.TOGETHER), ("C4", works.CLOSED_LOOP)):
            ratios = []
            for repeat in range(args.repeats + 1):
                sides = (now, before) if repeat % 2 else (before, now)
                seconds = {side: run_work(args, side, work, repeat) for side in sides}
                if repeat > 0:
                    ratios.append(seconds[now] / seconds[before])
            found[name] = ratios
            print(f"C13e, {name}: {statistics.median(ratios):.3f} of the time of before ({min(ratios):.3f} to {max(ratios):.3f})",
                  flush=True)
    rows["C13e"] = {"value": max(statistics.median(ratios) - 1 for ratios in found.values()), "ratios": found}


def peer(args, rows):
    """llama.cpp's prompt lookup on the same ids, as a speedup over llama.cpp without it."""
    with Server(args) as server:
        prompts = {name: server.prompt_ids(prompt) for name, (kind, prompt, _) in tasks().items() if kind == "C13a"}
    asked = {"model": args.model, "threads": args.threads, "cpu": args.cpu, "n_out": N_OUT, "repeats": 2, "prompts": prompts}
    done = subprocess.run([PEER, ROOT / "bench/llama_lookup.py"], input=json.dumps(asked), capture_output=True, text=True)
    if done.returncode:
        print("llama.cpp's lookup could not be measured:", done.stderr.strip().splitlines()[-1:], flush=True)
        return
    found = json.loads(done.stdout)
    for name, times in found.items():
        print(f"llama.cpp, {name:12} {times['ratio']:5.2f} times as fast", flush=True)
    rows["llama.cpp"] = {"value": geometric_mean([times["ratio"] for times in found.values()]), "runs": found}


# ---- all --------------------------------------------------------------------------------------------------------------------

def is_reached(row, value):
    goal = GOALS[row]
    return value <= goal if row in ("C13d", "C13e") else value >= goal


def main():
    parser = runs.options(__doc__, repeats=3, threads=os.cpu_count(), flags=True)
    parser.add_argument("--replay", default="build/replay", help="built of tests/scheduler/replay.c")
    parser.add_argument("--before", help="a program of an older commit, for C13e")
    parser.add_argument("--rows", nargs="+", default=["C13a", "C13b", "C13c", "C13d", "C13e"])
    parser.add_argument("--cpu", action="store_true", help="the processor's time, of one thread")
    args = parser.parse_args()
    args.threads = 1 if args.cpu else args.threads
    args.flags = ["--threads", str(args.threads), *args.flags]
    report, rows = runs.begin(args), {}
    if not os.path.exists(args.replay):
        raise SystemExit(f"{args.replay} is not there: cmake --build build --target replay")
    costs = replay(args, rows)
    guesses(args, costs, rows)
    if args.before and "C13e" in args.rows:
        beside_before(args, rows)
    if PEER.exists() and "C13a" in args.rows:
        peer(args, rows)
    for row, of in rows.items():
        if row in GOALS:
            print(f"{row}: {of['value']:.3f}; goal {GOALS[row]}: {'reached' if is_reached(row, of['value']) else 'not reached'}")
        elif "value" in of:
            print(f"{row}: {of['value']:.2f}")
    runs.write(args, {**report, "cpu_time": args.cpu, "rows": rows})


if __name__ == "__main__":
    main()
