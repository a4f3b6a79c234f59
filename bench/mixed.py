"""Measures C4 by the number of prompt rows in a step that also decodes: the price of a shorter inter-token latency.

    python3 bench/mixed.py [--program build/penstock] [--model models/....gguf] [--rows 4 8 16 ...] [--repeats 3] [--out FILE]

Each server has a fixed number of prompt rows (--itl-target-ms 0 --max-mixed-prefill-tokens N), the last one the default
--itl-target-ms auto. All servers run at once and take turns, so idle ones cost nothing. A figure is the median of the repeats.
"""
import contextlib
import statistics

import runs
import served
import works

ROWS = (4, 8, 16, 24, 32, 48, 64, 128, 512)
AUTO = "auto"
METRICS = {"requests_per_s": works.requests_per_s, "itl_p99_ms": works.itl_p99_ms, "ttft_p50_ms": works.ttft_p50_ms}


def server(args, rows):
    flags = () if rows == AUTO else ("--itl-target-ms", "0", "--max-mixed-prefill-tokens", str(rows))
    return served.penstock(args.program, args.model, args.threads, "--kv-cache-memory", "256MiB", "--warm-up", *flags)


def measure(args, sides):
    """The figures of each side, in the order A B B A."""
    found = {rows: {name: [] for name in METRICS} for rows in sides}
    for repeat in range(args.repeats):
        for rows in sides if repeat % 2 == 0 else reversed(sides):
            requests = sides[rows].run(works.CLOSED_LOOP, repeat)
            for name, of in METRICS.items():
                found[rows][name].append(of(requests))
    return found


def main():
    parser = runs.options(__doc__, repeats=3, threads=runs.two_threads())
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, help="prompt rows of a step with decodes")
    args = parser.parse_args()
    report = runs.begin(args)
    with contextlib.ExitStack() as stack:
        sides = {rows: server(args, rows) for rows in (*args.rows, AUTO)}
        for side in sides.values():
            stack.callback(side.close)
            side.run(works.WARM_UP, 0)
        report["rows"] = measure(args, sides)
    print("| prompt rows | requests/s | ITL p99, ms | TTFT p50, ms |\n|---|---|---|---|")
    for rows, figures in report["rows"].items():
        print(f"| {rows} | " + " | ".join(f"{statistics.median(values):.1f}" for values in figures.values()) + " |")
    runs.write(args, report)


main()
