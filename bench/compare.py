"""Compares Penstock with its peers, on this machine, in one run: `make bench`.

    python3 bench/compare.py [--only C1 C2 ...] [--repeats 5] [--out docs/measurements/NAME.json]

Sides take turns in the order A B B A. If other processes ran during a repeat, or the host took CPU time, the repeat is
discarded and done again. docs/measuring.md explains the works and the method.
"""
import os
import statistics

import direct
import extras
import judge
import llama
import machine
import runs
import served
import works

MODEL_FOLDER = "build/bench-models"


class Bench:
    """The available sides, and how a measurement is made."""

    def __init__(self, args):
        self.args = args
        self.thrown = self.kept = 0
        self.sides, self.seen = {}, []
        self.urls = dict(pair.split("=", 1) for pair in args.url)

    def model(self, file_type):
        if file_type == "Q4_1":
            return self.args.model
        if file_type == works.W8A8:
            return f"{served.VLLM}/model/int8"
        return f"{MODEL_FOLDER}/{file_type}" + ("" if file_type in works.FOLDERS else ".gguf")

    def flags(self):
        # As much cache as the largest work needs: the peers' contexts are also sized for the work.
        # Its memory is taken at the start; otherwise the first repeats would measure how fast a host finds pages.
        return ["--kv-cache-memory", "512MiB", "--warm-up"]

    def start(self, file_type):
        self.stop()
        args, path = self.args, self.model(file_type)
        self.sides["penstock"] = served.penstock(args.program, path, args.threads, *self.flags())
        if file_type in works.FOLDERS:
            self.sides[works.SAME_CODES] = served.penstock(args.program, self.model("Q4_1-halves"), args.threads, *self.flags())
            self.sides[works.SAME_CODES].name = works.SAME_CODES
        elif file_type == works.W8A8:
            self.sides["vllm int8"] = served.vllm("vllm int8", "int8", args.threads)
        elif self.wants("llama.cpp") and llama.is_installed():
            self.sides["llama.cpp"] = llama.Llama(args.threads, not args.no_tune)
            self.system = self.sides["llama.cpp"].load(path)
        if file_type == "Q4_1":
            self.start_others(path)
        for side in self.sides.values():
            side.prepare(works.WARM_UP)
            side.run(works.WARM_UP, 0)

    def start_others(self, path):
        """The peers that run the default model only."""
        args = self.args
        for name, form in {"vllm": "bf16", "vllm int8": "int8"}.items():
            if self.wants(name) and os.path.exists(f"{served.VLLM}/model/{form}/config.json"):
                self.sides[name] = served.vllm(name, form, args.threads)
        for name, make in direct.available(path, args.threads).items():
            if self.wants(name):
                self.sides[name] = make()
        for name, url in self.urls.items():
            self.sides[name] = served.Served(name, url, args.url_model)

    def wants(self, peer):
        return self.args.peers is None or peer in self.args.peers

    def stop(self):
        for side in self.sides.values():
            side.close()
        self.sides = {}

    def measure(self, side, act, pids=()):
        """Runs act(attempt) until a run was undisturbed, at most --patience times. An attempt has prompts of its own: those of
        one before are in a server's prefix cache."""
        for attempt in range(self.args.patience + 1):
            known = side.pids()
            with machine.Watch(known and [*known, *pids]) as watch:
                result = act(attempt)
            if not watch.is_disturbed(self.args.limit):
                return result
            if attempt < self.args.patience:
                self.thrown += 1
        self.kept += 1
        return result

    def in_turn(self, sides, act, pids=()):
        """Repeats act(side, repeat) in the order A B B A; returns each side's results, and the processor time of each in
        seconds, if the side's processes are known."""
        results = {side.name: [] for side in sides}
        costs = {side.name: [] for side in sides if side.pids()}
        for repeat in range(self.args.repeats):
            for side in sides if repeat % 2 == 0 else reversed(sides):
                result, seconds = self.measure(side, lambda attempt, s=side: with_cost(s, lambda: act(s, repeat + works.AGAIN * attempt)), pids)
                results[side.name].append(result)
                if side.name in costs:
                    costs[side.name].append(seconds)
        return results, costs

    def form(self, work):
        return work.shortened() if self.args.quick else work

    def limits(self):
        """The machine's limits now: on a shared machine they change."""
        self.seen.append(machine.limits(self.args.program, self.args.model, self.args.threads))
        return self.seen[-1]

    def limits_seen(self):
        found = {name: [seen[name] for seen in self.seen] for name in (self.seen[0] if self.seen else [])}
        return {name: {"median": statistics.median(v), "least": min(v), "most": max(v)} for name, v in found.items()}

    def row(self, *parts):
        return judge.make_row(*parts, machine.kind())

    def chosen(self, peers):
        names = ["penstock", *peers, *self.urls]
        return [side for name, side in self.sides.items() if name in names]


def with_cost(side, act):
    """(result, seconds of the side's processes)"""
    pids = side.pids() or []
    before = sum(machine.process_seconds(pid) for pid in pids)
    return act(), sum(machine.process_seconds(pid) for pid in pids) - before


def share_of_limit(bench, file_type, work, runs, limit):
    """The least time that the machine's limits allow, divided by the measured time, of the median run."""
    if not {"read_gb_s", "int8_g_s", "float_g_s"} <= set(limit):
        return None
    shape = machine.model_shape(bench.args.program, bench.model(file_type))
    taken = statistics.median(max(r["times"][-1] for r in run) - min(r["start"] for r in run) for run in runs)
    is_float = file_type in ("BF16", "F16")
    return machine.least_seconds(limit, shape, work, is_float) / taken


def measure_work(bench, work, rows):
    """Yields the results of the table's rows that share the runs of one work and file type."""
    work = bench.form(work)
    sides = bench.chosen({peer for row in rows for peer in row.peers})
    settings = {side.name: side.prepare(work) for side in sides}
    for side in sides:
        side.run(work.shortened(), -1)
    before = bench.limits()
    results, costs = bench.in_turn(sides, lambda side, repeat: side.run(work, repeat))
    limit = machine.mean_limits(before, bench.limits())
    share = share_of_limit(bench, rows[0].file_type, work, results["penstock"], limit)
    for row in rows:
        values = {name: [row.metric.of(requests) for requests in runs] for name, runs in results.items()}
        found = bench.row(row.id, row.file_type, work.what, row.metric, values, row.goals)
        found["goals"] += judge.judge_share(row.share, share, machine.kind())
        yield {**found, "cpu_s": costs, "share_of_limit": share, "limits": limit,
               "settings": settings.get("llama.cpp")}


def measure_rows(bench, rows):
    for work in dict.fromkeys(row.work for row in rows):
        yield from measure_work(bench, work, [row for row in rows if row.work == work])


def add_rows(report, rows):
    report["rows"] += rows
    for row in rows:
        judge.print_row(row)


def file_types_of(args):
    """The results of the wanted rows; C7 is measured with the default file's servers."""
    types = [row.file_type for row in works.ROWS if is_wanted(args, row.id)]
    return list(dict.fromkeys((["Q4_1"] if is_wanted(args, "C7") else []) + types))


def is_wanted(args, id):
    """--only C5 selects C5.1 to C5.3, --only C4 also its ITL."""
    return not args.only or any(id == name or id.startswith((name + ".", name + " ")) or
                                (id.startswith(name) and id[len(name):len(name) + 1].isalpha()) for name in args.only)


def run_all(bench, report):
    args = bench.args
    for file_type in file_types_of(args):
        if not os.path.exists(bench.model(file_type)):
            print(f"{file_type}: cannot find {bench.model(file_type)}; bench/models.py or bench/random_files.py makes it")
            continue
        bench.start(file_type)
        rows = [row for row in works.ROWS if row.file_type == file_type and is_wanted(args, row.id)]
        for result in measure_rows(bench, rows):
            add_rows(report, [result])
        if "llama.cpp" in bench.sides:
            report["tokens"][file_type] = extras.compare_tokens(bench.sides["penstock"], bench.sides["llama.cpp"],
                                                                      args.quick)
            print(f"{'':8} tokens: {extras.tokens_line(report['tokens'][file_type])}")
        if file_type == "Q4_1" and is_wanted(args, "C7"):
            add_rows(report, extras.one_core_taken(bench))
    bench.stop()
    for id, act in (("C10", extras.health), ("C11", extras.start_up)):
        if is_wanted(args, id):
            add_rows(report, act(bench))
    report["limits"] = bench.limits_seen()
    print("limits: " + ", ".join(f"{name} {v['median']:.1f} ({v['least']:.1f} to {v['most']:.1f})"
                                 for name, v in report["limits"].items()))


def parse_arguments():
    parser = runs.options(__doc__, repeats=5, threads=runs.two_threads())
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="rows of the table, such as C1 C5")
    parser.add_argument("--peers", nargs="*", metavar="NAME", choices=works.ALL,
                        help=f"of those that are installed, all if left out: {', '.join(works.ALL)}")
    parser.add_argument("--url", nargs="*", default=[], metavar="NAME=URL", help="other servers, for C1 to C4 and C8")
    parser.add_argument("--url-model", default="m", help="the model's name at those servers")
    parser.add_argument("--limit", type=float, default=.05,
                        help="share of the machine's time that others and the host may take in a repeat")
    parser.add_argument("--patience", type=int, default=3, help="how often a disturbed repeat is done again")
    parser.add_argument("--no-tune", action="store_true", help="take llama.cpp's usual settings, not its best")
    parser.add_argument("--quick", action="store_true", help="short works, to try the bench itself: no figures to quote")
    return parser.parse_args()


def main():
    args = parse_arguments()
    bench = Bench(args)
    report = {**runs.begin(args), "quick": args.quick, "rows": [], "tokens": {}}
    print(f"{report['machine']['cpu']}, {report['machine']['cores']} cores, {' '.join(report['machine']['flags'])}, "
          f"load {report['load_before']:.1f}")
    try:
        run_all(bench, report)
    finally:
        bench.stop()
    report.update({"load_after": machine.load(), "thrown_away": bench.thrown, "kept_disturbed": bench.kept})
    print(f"{bench.thrown} disturbed repeats were discarded, {bench.kept} were kept for lack of a quiet one; load "
          f"{report['load_after']:.1f}")
    runs.write(args, report)


main()
