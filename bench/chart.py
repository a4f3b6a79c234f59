"""Draws docs/performance.svg from the figures of a run of bench/compare.py.

    build/chart/bin/python bench/chart.py docs/measurements/NAME.json [...] docs/performance.svg

The same figures give the same file, byte for byte, so that it can be committed.
"""
import sys

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402 (the backend is chosen first)

import figures  # noqa: E402

COLOURS = {"llama.cpp": "#2f6f9f", "vllm": "#c07830", "openvino": "#5a8f3c", "openvino int8": "#8fbf6a",
           "openvino bf16": "#3c8f80", "openvino int8 bf16": "#6abfae", "ctranslate2": "#8a5a9f"}
GOAL, INK = "#b01818", "#333333"


def rows_with_peers(report):
    return [row for row in report["rows"] if any(peer in row["ratios"] for peer in COLOURS)]


def label(row):
    metric = "" if row["metric"] == "throughput" else f" ({row['metric']})"
    return f"{row['id']}  {row['what']}, {row['file_type']}{metric}"


def draw(report, path):
    rows = rows_with_peers(report)
    peers = [peer for peer in COLOURS if any(peer in row["ratios"] for row in rows)]
    height = .8 / len(peers)
    figure, axes = pyplot.subplots(figsize=(10, 1.2 + .34 * len(rows)))
    for i, peer in enumerate(peers):
        found = [(n + (i - (len(peers) - 1) / 2) * height, row) for n, row in enumerate(rows) if peer in row["ratios"]]
        at, middle = [y for y, _ in found], [row["ratios"][peer]["median"] for _, row in found]
        axes.barh(at, middle, height * .9, color=COLOURS[peer], label=f"times as good as {peer}")
        for y, value in zip(at, middle):
            axes.text(value * 1.03, y, f"{value:.1f}", va="center", fontsize=7, color=INK)
    goals = [(n, goal["hard"]) for n, row in enumerate(rows) for goal in row["goals"] if goal["against"] in COLOURS]
    axes.plot([g for _, g in goals], [n for n, _ in goals], "|", color=GOAL, markersize=12,
              markeredgewidth=2, label="goal")
    axes.axvline(1, color=INK, linewidth=.8)
    axes.set_xscale("log")
    axes.set_xlim(.4, 1.4 * max(row["ratios"][p]["median"] for row in rows for p in peers if p in row["ratios"]))
    axes.xaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%gx"))
    axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
    axes.set_yticks(range(len(rows)), [label(row) for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0, -.5 / len(rows)), ncols=3)
    machine = report["machine"]
    axes.set_title(f"Penstock beside its peers: {machine['cpu']}, {report['threads']} threads, {report['date']}",
                   fontsize=9)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None, "Creator": None})


def main():
    # Text stays text, and names inside the file are made from this word instead of at random.
    matplotlib.rcParams.update({"svg.hashsalt": "penstock", "svg.fonttype": "none", "font.family": "sans-serif"})
    *paths, picture = sys.argv[1:]
    draw(figures.read(paths)[1], picture)


main()
