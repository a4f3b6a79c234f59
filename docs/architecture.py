#!/usr/bin/env python3
"""Draws the architecture from the rooms of the tree: docs/architecture.svg.

    docs/architecture.py           writes the picture
    docs/architecture.py --check   fails if the picture is not what the tree would give

The rooms are the folders with sources. A room's subject is the first phrase of its row in docs/layout.md, so a room without
a row there is an error.
"""
import argparse
import html
import os
import pathlib
import re
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICTURE, LAYOUT = ROOT / "docs/architecture.svg", ROOT / "docs/layout.md"

# The layers from top to bottom: folder, threads, colour, what passes down to the next layer, and what comes back from it.
LAYERS = (
    ("server", "HTTP in, JSON out: loop thread and workers", "#dbe9f6", "prompt ids", "events: tokens, logprobs, finish reasons"),
    ("scheduler", "one batch per step: engine thread", "#e3f1dc", "one step: rows, block tables, samples", "one token per sequence"),
    ("engine", "models, tokens, grammars: engine thread", "#fbeedb", "ops on tensors", "logits"),
    ("kernels", "arithmetic: compute threads, or a GPU", "#f6dfdf", "", ""),
    ("config", "used by all rooms", "#ececec", "", ""),
)
SUFFIXES = (".c", ".h", ".cu", ".cuh")
WIDTH, COLUMNS, BOX_HEIGHT, GAP, MARGIN, HEAD = 1000, 4, 58, 8, 16, 26
FLOW = 34  # the height of the arrows between two layers
LETTERS = 37  # of a subject in one line of a box


def rooms():
    names = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", *(layer[0] for layer in LAYERS)],
                           cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return sorted({os.path.dirname(name) for name in names if name.endswith(SUFFIXES) and (ROOT / name).exists()})


def subjects(text):
    """room -> the first phrase of its row."""
    found = {}
    for row in re.findall(r"^\| (`.*?) \| (.*?) \|", text, re.M):
        for room in re.findall(r"`([^`]+)/`", row[0]):
            found[room] = re.split(r"[;:]", row[1].replace("`", ""))[0]
    return found


def box(x, y, width, name, subject, colour):
    lines = textwrap.wrap(subject, LETTERS)
    if len(lines) > 2:
        lines = [lines[0], textwrap.shorten(" ".join(lines[1:]), LETTERS, placeholder=" …")]
    yield f'<rect x="{x}" y="{y}" width="{width}" height="{BOX_HEIGHT}" rx="4" fill="white" stroke="{colour}" stroke-width="2"/>'
    yield f'<text x="{x + 8}" y="{y + 18}" class="room">{html.escape(name)}</text>'
    for i, line in enumerate(lines):
        yield f'<text x="{x + 8}" y="{y + 35 + 14 * i}" class="subject">{html.escape(line)}</text>'


def layer_height(n):
    return HEAD + -(-n // COLUMNS) * (BOX_HEIGHT + GAP) + GAP


def draw_layer(layer, y, members, names):
    folder, threads, colour = layer[:3]
    width = (WIDTH - 2 * MARGIN - (COLUMNS + 1) * GAP) // COLUMNS
    yield f'<rect x="{MARGIN}" y="{y}" width="{WIDTH - 2 * MARGIN}" height="{layer_height(len(members))}" rx="6" fill="{colour}"/>'
    yield f'<text x="{MARGIN + GAP}" y="{y + 18}" class="layer">{folder}/</text>'
    yield f'<text x="{WIDTH - MARGIN - GAP}" y="{y + 18}" class="threads">{html.escape(threads)}</text>'
    for i, room in enumerate(members):
        x = MARGIN + GAP + i % COLUMNS * (width + GAP)
        yield from box(x, y + HEAD + i // COLUMNS * (BOX_HEIGHT + GAP), width, room, names[room], colour)


def draw_flow(y, down, up):
    """The arrows from a layer to the next one and back."""
    for x, from_y, to_y, label in ((250, y + 2, y + FLOW - 4, down), (620, y + FLOW - 2, y + 4, up)):
        yield f'<line x1="{x}" y1="{from_y}" x2="{x}" y2="{to_y}" class="arrow"/>'
        yield f'<text x="{x + 10}" y="{y + FLOW // 2 + 4}" class="subject">{html.escape(label)}</text>'


STYLE = """<defs><marker id="head" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0L10 5L0 10z" fill="#444"/></marker></defs>
<style>text{font-family:sans-serif;fill:#222}.layer{font-size:15px;font-weight:bold}.threads{font-size:12px;text-anchor:end}
.room{font-size:13px;font-weight:bold}.subject{font-size:11px}.arrow{stroke:#444;stroke-width:1.5;marker-end:url(#head)}</style>"""


def picture():
    found, names = rooms(), subjects(LAYOUT.read_text())
    missing = [room for room in found if room not in names]
    if missing:
        sys.exit(f"docs/layout.md: no row names {', '.join(missing)}")
    y, parts = MARGIN, []
    parts += draw_flow(y, "requests over HTTP", "server-sent events, or one JSON answer")
    y += FLOW
    for layer in LAYERS:
        members = [room for room in found if room.split("/")[0] == layer[0]]
        parts += draw_layer(layer, y, members, names)
        y += layer_height(len(members))
        if layer[3]:
            parts += draw_flow(y, layer[3], layer[4])
            y += FLOW
        else:
            y += GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + MARGIN}" viewBox="0 0 {WIDTH} {y + MARGIN}">'
    return "\n".join([head, STYLE, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    made = picture()
    if not parser.parse_args().check:
        PICTURE.write_text(made)
    elif not PICTURE.exists() or PICTURE.read_text() != made:
        sys.exit("docs/architecture.svg is not current: run docs/architecture.py")


if __name__ == "__main__":
    main()
