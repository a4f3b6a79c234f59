"""Measures how speed grows with the number of compute threads, by `penstock bench`, in turns.

    python3 bench/scaling.py [--threads 1,2,4,8,16] [--affinity nodes] [--repeats 3] [--out FILE] [--markdown FILE]

One stream and 16 streams (tokens per second while decoding), a prompt of 512 (tokens per second), each as the median of
the repeats, and its ratio to the first number of threads. Without --threads: 1, 2, 4 and so on, up to all processors
that this process may use. More threads than processors may be given; the report says so.
"""
import os
import re
import statistics
import subprocess

import machine
import runs

ROWS = (("one stream", r"tg 1"), ("16 streams", r"tg 16"), ("prompt of 512", r"pp 512"))


def all_threads():
    cores, threads = len(os.sched_getaffinity(0)), [1]
    while threads[-1] * 2 <= cores:
        threads.append(threads[-1] * 2)
    return threads + ([cores] if threads[-1] < cores else [])


def measure(args, threads):
    """Returns tokens per second by row, and processor seconds of the whole run."""
    command = [args.program, "bench", "--model", args.model, "--threads", str(threads), "--bench-prompt", "512", "--bench-batch",
               "1,16", "--bench-generate", str(args.generate), "--bench-repeats", "1", "--log-level", "error"]
    before = os.times()
    text = subprocess.run(command + (["--cpu-affinity", args.affinity] if args.affinity else []), check=True,
                          capture_output=True, text=True).stdout
    after = os.times()
    found = {name: re.search(rf"^\| {row} +\| +([\d.]+) \|", text, re.MULTILINE) for name, row in ROWS}
    missing = [name for name, match in found.items() if not match]
    if missing:
        raise RuntimeError(f"penstock bench printed no line of {', '.join(missing)}:\n{text}")
    spent = after.children_user - before.children_user + after.children_system - before.children_system
    return {**{name: float(match[1]) for name, match in found.items()}, "cpu_s": spent}


def markdown(report):
    here, by_threads = report["machine"], report["threads"]
    first = by_threads[0]
    lines = [f"{here['cpu']}, {here['cores']} processors, {report['repeats']} repeats in turns, threads "
             + (f"bound to {report['affinity']}" if report["affinity"] else "not bound")
             + f"; load {report['load_before']:.1f} before and {report['load_after']:.1f} after the run", "",
             "| threads | " + " | ".join(f"{name}, tok/s | times" for name, _ in ROWS) + " | processor time, s |",
             "|---|" + "---|" * (2 * len(ROWS) + 1)]
    for one in by_threads:
        cells = [f"{one[name]:.1f} | {one[name] / first[name]:.2f}" for name, _ in ROWS]
        more = " (more than processors)" if one["n"] > here["cores"] else ""
        lines.append(f"| {one['n']}{more} | " + " | ".join(cells) + f" | {one['cpu_s']:.1f} |")
    return "\n".join(lines) + "\n"


def main():
    parser = runs.options(__doc__, repeats=3)
    parser.add_argument("--threads", help="numbers of threads, as in 1,2,4,16")
    parser.add_argument("--affinity", help="value of the server's --cpu-affinity; default: none")
    parser.add_argument("--generate", type=int, default=64, help="tokens that each stream decodes")
    parser.add_argument("--markdown", help="write the table there, too")
    args = parser.parse_args()
    numbers = [int(n) for n in args.threads.split(",")] if args.threads else all_threads()
    report, found = runs.begin(args), {n: [] for n in numbers}
    for repeat in range(args.repeats):
        for n in numbers if repeat % 2 == 0 else reversed(numbers):
            found[n].append(measure(args, n))
    by_threads = [{"n": n, **{key: statistics.median(run[key] for run in found[n]) for key in found[n][0]}, "runs": found[n]}
                  for n in numbers]
    report |= {"model": os.path.basename(args.model), "affinity": args.affinity, "load_after": machine.load(), "threads": by_threads}
    table = markdown(report)
    print(table, end="")
    runs.write(args, report)
    if args.markdown:
        with open(args.markdown, "w", encoding="utf-8") as file:
            file.write(table)


if __name__ == "__main__":
    main()
