"""Draws the pictures of docs/performance.md from the figures of bench/compare.py, and one also from those of bench/accuracy.py.

    build/chart/bin/python bench/chart.py docs/measurements/NAME.json [...] --ratios docs/performance.svg
    build/chart/bin/python bench/chart.py docs/measurements/NAME.json --accuracy docs/measurements/OTHER.json --dots docs/divergence.svg

The same figures give the same file, byte for byte, so that it can be committed.
"""
import argparse
import json

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402 (the backend is chosen first)

import figures  # noqa: E402

COLOURS = {"llama.cpp": "#2f6f9f", "vllm": "#c07830", "vllm int8": "#d8a868", "openvino": "#5a8f3c", "openvino int8": "#8fbf6a",
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


def dots(report, accuracy, path):
    """Speed against divergence, with a dot per engine whose logits are known."""
    row = next(row for row in report["rows"] if row["id"] == "C3")
    scores = next(result["scores"] for result in accuracy["types"] if result["type"] == row["file_type"])
    known = {"penstock" if score["who"].startswith("penstock") else score["who"]: score["mean_kl"] for score in scores}
    figure, axes = pyplot.subplots(figsize=(7, 4))
    for who in ("penstock", *COLOURS):
        if who in known and who in row["median"]:
            axes.plot(known[who], row["median"][who], "o", markersize=9, color=COLOURS.get(who, GOAL))
            axes.annotate(who, (known[who], row["median"][who]), (8, 5), textcoords="offset points", fontsize=8, color=INK)
    axes.set_xscale("log")
    axes.set_ylim(0)
    axes.set_xlabel("mean KL from the model in float32 (less is nearer)", fontsize=8)
    axes.set_ylabel(f"{row['what']}: {row['unit']}", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"Speed against divergence, {row['file_type']}: {report['machine']['cpu']}, {report['date']}", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None, "Creator": None})


def main():
    # Text stays text, and names inside the file are made from this word instead of at random.
    matplotlib.rcParams.update({"svg.hashsalt": "penstock", "svg.fonttype": "none", "font.family": "sans-serif"})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+")
    parser.add_argument("--ratios", metavar="SVG", help="draw how many times as good each row is")
    parser.add_argument("--dots", metavar="SVG", help="draw C3 against the divergence from float32")
    parser.add_argument("--accuracy", help="the output of bench/accuracy.py, for --dots")
    args = parser.parse_args()
    report = figures.read(args.reports)[1]
    if args.ratios:
        draw(report, args.ratios)
    if args.dots:
        with open(args.accuracy) as file:
            dots(report, json.load(file), args.dots)


main()
