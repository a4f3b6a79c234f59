"""Builds the programs that check and time the CUDA kernels, runs them on the GPU and writes a report; see bench/gpu.sh.

    GPU_PROGRAMS  a folder of programs that `bench/gpu.sh build` made (build/kernels/gpu); then nothing is built
    GPU_OUT       the folder of report.json, report.md and logs/; default build/gpu-report
    GPU_SECONDS   how long everything together may take; default 540

One deadline holds for everything. Every part runs in its own processes, so a part that fails or hangs does not affect the
others, and the report is written again after every result. The exit code is 1 if a part failed. `--self-test` checks that on
made-up programs.
"""
import datetime
import os
import sys
import time

import build
import carry
import points
import report as report_page
import serving
import suites
import tools

MAX_S, BUILD_SHARE, CORRECTNESS_SHARE, RESERVE_S = 540, 0.5, 0.45, 8
PARTS = {"limits": 0.05, "products": 0.5, "attention": 0.2, "rows": 0.15, "sampling": 0.1}  # share of the time for kernels
# The suites of `first`: what every GPU runs, then the instructions that no test but these has ever compared with a device.
BY_MMA = ("ptx", "rows", "gemm_fused", "attention_bits", "graph", "persistent", "engine")
BY_WGMMA = ("ptx90", "wgmma", "chunks", "e4m3")


def in_shares(shares, deadline, run):
    """Calls run(part, its deadline) for each part; time that an earlier part did not use goes to the later ones."""
    for i, part in enumerate(shares):
        run(part, deadline.part(shares[part] / sum(list(shares.values())[i:])))


def kernels(report, programs, deadline):
    watch = tools.ClockWatch()
    in_shares(PARTS, deadline, lambda part, own: points.time_part(report, programs, part, own))
    report.add("clocks", watch.stop())


def some_suites(names, title):
    """A part that runs those of these suites that were built: some are for devices of capability 9.0 only."""
    def run(report, programs, deadline):
        there = [p for p in suites.tests_of(programs) if os.path.basename(p)[4:] in names]
        if there:
            suites.check_suites(report, title, there, deadline)
    return run


def timed(part):
    return lambda report, programs, deadline: points.time_part(report, programs, part, deadline)


# The parts of `first` in their order: whatever wgmma does, the figures of mma.sync are there.
FIRST = [(0.22, some_suites(BY_MMA, "suites, mma.sync")), (0.06, timed("limits")), (0.16, timed("mma")), (0.14, serving.small),
         (0.2, some_suites(BY_WGMMA, "suites, wgmma")), (0.22, timed("wgmma"))]


def first(report, programs, deadline):
    """Measures unknowns of the emulation: wgmma's descriptors and registers, its bits, its speed; the gain of one grid
    per step."""
    watch = tools.ClockWatch()
    in_shares({run: share for share, run in FIRST}, deadline, lambda run, own: run(report, programs, own))
    report.add("clocks", watch.stop())


# ---- all ------------------------------------------------------------------------------------------------------

def summary(report):
    for step in report["steps"]:
        print(f"{step['name']:20} {step['result']}, {step['seconds']:.0f} s"
              + (f": {step['output'][-300:].strip()}" if step["result"] == "failed" else ""))
    for line in [report_page.Limits(report["points"]).lines()] if report["points"] else []:
        print(line)
    print(f"{len(report['points'])} points in {report['seconds']:.0f} s; {os.path.join(report.out, 'report.md')}")


def measure(what, programs, out, total):
    """Runs the requested parts within `total` seconds. Returns the report, which `out` has at every moment."""
    started, deadline = time.monotonic(), tools.Deadline(total - min(RESERVE_S, 0.2 * total))
    report = tools.Report(out, started, date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
                          commit="", machine={})
    report["machine"] |= tools.machine()
    report.save()
    if what == "carry":
        carry.carry(report, deadline)
        return report
    if not programs:
        programs = build.build(report, deadline if what == "build" else deadline.part(BUILD_SHARE))
    report["commit"] = build.commit_of(programs)
    parts = {"all": [suites.correctness, kernels], "correctness": [suites.correctness], "kernels": [kernels], "first": [first],
             "serve": [serving.serve], "build": []}[what]
    for i, part in enumerate(parts):
        part(report, programs, deadline.part(CORRECTNESS_SHARE) if len(parts) - i == 2 else deadline)
    report.save()
    return report


def main():
    what = (sys.argv[1:] or ["all"])[0]
    if what == "--self-test":
        import self_test  # the made-up programs are of no use elsewhere
        return self_test.main()
    if what not in ("all", "correctness", "kernels", "first", "serve", "build", "carry"):
        print(__doc__)
        return 2
    out = os.path.abspath(os.environ.get("GPU_OUT") or os.path.join(tools.ROOT, "build/gpu-report"))
    programs = os.environ.get("GPU_PROGRAMS")
    total = float(os.environ.get("GPU_SECONDS", MAX_S if what not in ("build", "carry") else 7200))
    report = measure(what, os.path.abspath(programs) if programs else None, out, total)
    summary(report)
    return 1 if any(step["result"] == "failed" for step in report["steps"]) else 0


if __name__ == "__main__":
    sys.exit(main())
