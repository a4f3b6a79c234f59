"""Writes the results of bench/gpu.sh as a page: python3 bench/gpu/report.py REPORT.json > REPORT.md

`--self-test` checks it on made-up results. The share of the limit is the time that the kernel's bytes would need at the
bandwidth of a copy, or its flops at the rate of a large product, whichever is longer, divided by the measured time. All
limits are from the same run.
"""
import json
import sys

import serve_report

NOISY = 0.2  # a figure is marked if its repeats differ by more than this share of its median


# ---- numbers --------------------------------------------------------------------------------------------------

def number(value):
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def in_order(values):
    return list(dict.fromkeys(values))


class Limits:
    """The device's limits, from the points of the part "limits"; a limit that was not measured is None."""

    def __init__(self, points):
        by_kernel = {p["kernel"]: p for p in points if p["part"] == "limits" and p.get("us")}
        copy, product = by_kernel.get("copy"), by_kernel.get("large product")
        self.bytes_per_us = copy["bytes"] / copy["us"] if copy else None
        self.flops_per_us = product["flops"] / product["us"] if product else None
        self.smallest_us = by_kernel.get("smallest", {}).get("us")

    def least_us(self, point):
        """The time that the point would take at the limits, and whether flops set it; None without a limit."""
        times = [(point["bytes"] / self.bytes_per_us, False)] if self.bytes_per_us else []
        times += [(point["flops"] / self.flops_per_us, True)] if self.flops_per_us else []
        return max(times, default=(None, False))

    def lines(self):
        found = []
        if self.bytes_per_us:
            found.append(f"a copy moves {self.bytes_per_us / 1e6:.2f} TB/s (read and written bytes together)")
        if self.flops_per_us:
            found.append(f"cuBLAS's product of 8192 x 8192 x 8192 in bfloat16 reaches {self.flops_per_us / 1e6:.0f} TFLOP/s")
        if self.smallest_us:
            found.append(f"a kernel of one warp takes {self.smallest_us:.2f} us in a graph")
        return "Limits of this run: " + "; ".join(found) + "." if found else "**No limit was measured.**"


def cell(point, limits, other=None):
    """Time, rate, share of the limit, and how many times as fast as another."""
    if point is None:
        return ""
    if not point.get("us"):
        return "left out" if point.get("left_out") else f"**failed**: {point['failed']}" if point.get("failed") else "no time"
    us = point["us"]
    parts = [f"{number(us)} us" + ("~" if (point["max_us"] - point["min_us"]) > NOISY * us else "")]
    least, by_flops = limits.least_us(point)
    parts.append(f"{point['flops'] / us / 1e6:.0f} TFLOP/s" if by_flops else f"{point['bytes'] / us / 1e3:,.0f} GB/s")
    if least:
        parts.append(f"{least / us:.0%}")
    if other and other.get("us"):
        parts.append(f"{other['us'] / us:.2f}x")
    return ", ".join(parts)


# ---- kernels --------------------------------------------------------------------------------------------------

def grid(points, across, down, limits, other=None):
    """A table of cells; `other` maps each column to the point that its cells are compared with."""
    by_place = {(p[down], p[across]): p for p in points}
    columns, lines = in_order(p[across] for p in points), in_order(p[down] for p in points)
    rows = [[line] + [cell(by_place.get((line, c)), limits, (other or {}).get(c)) for c in columns] for line in lines]
    return table([down + " \\ " + across] + [str(c) for c in columns], rows)


def products(points, limits):
    out = ["Time, rate, share of the limit, and how many times as fast as cuBLAS's product of bfloat16 (without epilogue) of "
           "the same shape. Weights come from memory, not from the L2 cache."]
    for model in in_order(p["model"] for p in points):
        for matrix in in_order(p["matrix"] for p in points if p["model"] == model):
            mine = [p for p in points if p["model"] == model and p["matrix"] == matrix]
            ours = [p for p in mine if p["kernel"] == "product"]
            theirs = {p["rows"]: p for p in mine if p["kernel"] == "cublas"}
            named = [{**p, "format": "cuBLAS bf16"} for p in theirs.values()]
            out.append(f"**{model}, {matrix}: N {mine[0]['N']}, K {mine[0]['K']}**\n\n"
                       + grid(ours + named, "rows", "format", limits, theirs))
    return out


def layer_sum(points, model, kernel, form, rows, key="us"):
    """Returns the sum over the matrices of a layer; None if one is missing."""
    mine = [p for p in points if p["part"] == "products" and p["model"] == model and p["kernel"] == kernel
            and p["format"] == form and p["rows"] == rows and p["matrix"] != "head"]
    wanted = {p["matrix"] for p in points if p["part"] == "products" and p["model"] == model} - {"head"}
    if not wanted or {p["matrix"] for p in mine if p.get("us")} != wanted:
        return None
    return sum(p[key] for p in mine)


def same_bits(points, limits):
    """The cost of equal bits in all batches: the project's bfloat16 products compared with cuBLAS's free choice."""
    all_products = [p for p in points if p["part"] == "products"]
    counts = in_order(p["rows"] for p in all_products)
    lines = []
    for model in in_order(p["model"] for p in all_products):
        line = [model]
        for rows in counts:
            ours, theirs = (layer_sum(points, model, kernel, "bf16", rows) for kernel in ("product", "cublas"))
            line.append(f"{number(ours)} / {number(theirs)} us, {ours / theirs:.2f}" if ours and theirs else "")
        lines.append(line)
    return ["A row's bits do not depend on the batch: what that costs against cuBLAS, which chooses freely. A layer's four "
            "products in bfloat16, ours / cuBLAS's, and ours as a multiple (above 1 it costs, below 1 ours are faster).\n\n"
            + table(["model \\ rows"] + [str(c) for c in counts], lines)]


def attention(points, limits):
    out = []
    for model in in_order(p["model"] for p in points):
        for cache in in_order(p["cache"] for p in points if p["model"] == model):
            mine = [p for p in points if p["model"] == model and p["cache"] == cache]
            decode = [p for p in mine if p["step"] == "decode"]
            if decode:
                out.append(f"**{model}, decode, cache {cache}**\n\n" + grid(decode, "context", "rows", limits))
            others = [[f"{p['step']}, {p['rows']} rows", p["context"], cell(p, limits)] for p in mine if p["step"] != "decode"]
            if others:
                out.append(f"**{model}, prompts, cache {cache}**\n\n" + table(["step", "context", "figure"], others))
    return out


def other_bits(point):
    """How many numbers of a product have other bits by wgmma than by mma.sync, and the size of the largest difference."""
    if point is None or "differ" not in point:
        return "not compared"
    return f"**{point['differ'] / point['numbers']:.2%}, up to {point['largest']:.1e} of the row**" if point["differ"] else "none"


def two_ways(points, limits):
    """Both ways to multiply rows, of 16 bits and of fp8 weights, and whether the bits of the former are equal."""
    lines, points = {"bf16": [], "fp8": []}, [p for p in points if {"weights", "matrix", "rows"} <= set(p)]
    for place in in_order((p["weights"], p["matrix"], p["rows"]) for p in points):
        mma, wgmma, differ = (next((p for p in points if (p["weights"], p["matrix"], p["rows"]) == place and p["kernel"] == kernel), None)
                              for kernel in ("mma.sync", "wgmma", "differ"))
        lines[place[0]].append([*place[1:], cell(mma, limits), cell(wgmma, limits, mma), other_bits(differ)])
    return ["Numbers of a product that have other bits by wgmma than by mma.sync. There must be none: a row's bits do not depend "
            "on which of them multiplied it.\n\n" + table(["matrix", "rows", "mma.sync", "wgmma", "other bits"], lines["bf16"]),
            "fp8 weights with rows of 16 bits by mma.sync and of e4m3, made of them, by wgmma.\n\n"
            + table(["matrix", "rows", "mma.sync", "wgmma, e4m3"], [line[:-1] for line in lines["fp8"]])]


def by_model(down):
    def pages(points, limits):
        return [f"**{model}**\n\n" + grid([p for p in points if p["model"] == model], "rows", down, limits)
                for model in in_order(p["model"] for p in points)]
    return pages


PARTS = [
    (("products",), "The cost of the same bits", same_bits),
    (("products",), "Products", products),
    (("attention",), "Attention", attention),
    (("rows",), "Between the products", by_model("kernel")),
    (("sampling",), "Sampling", by_model("kind")),
    (("mma", "wgmma"), "wgmma beside mma.sync", two_ways),
]


def kernels(points):
    limits = Limits(points)
    out = ["## Kernels", limits.lines(), "A figure with ~ had repeats that lie more than a fifth apart."]
    for part, title, page in PARTS:
        mine = [p for p in points if p["part"] in part]
        if mine:
            out += [f"### {title}"] + page(mine, limits)
    left_out = [p for p in points if p.get("left_out")]
    if left_out:
        out.append(f"### Left out\n\nThe time was up before {len(left_out)} points: " + ", ".join(
            in_order(" ".join(str(p[k]) for k in ("kernel", "model", "matrix", "format") if k in p) for p in left_out)) + ".")
    return out


# ---- the page -------------------------------------------------------------------------------------------------

def machine(report):
    lines = [[name, value] for name, value in report["machine"].items()]
    clocks = report.get("clocks", [])
    for name, key in (("SM clock while timing, MHz", "sm_mhz"), ("memory clock, MHz", "memory_mhz"), ("power, W", "watts"),
                      ("temperature, C", "celsius")):
        values = sorted(c[key] for c in clocks if c.get(key) is not None)
        if values:
            lines.append([name, f"{number(values[len(values) // 2])} (from {number(values[0])} to {number(values[-1])})"])
    return table(["", f"{report['date']}, commit {report['commit']}, {report['seconds']:.0f} s"], lines)


def runs(title, found):
    """The output of programs; if one failed, its last lines."""
    if not found:
        return []
    rows = [[r["name"], r["result"], r.get("checks", ""), f"{r['seconds']:.1f}"] for r in found]
    out = [f"## {title}", table(["program", "result", "checks", "s"], rows)]
    for r in found:
        if r["result"] not in ("passed", "clean", "not finished") and r.get("output"):
            out.append(f"{r['name']}:\n\n```\n{r['output'].strip()}\n```")
    return out


def page(report):
    bad = [s["name"] for s in report["steps"] if s["result"] == "failed"]
    verdict = "All parts went well." if not bad else "**Failed: " + ", ".join(bad) + ".**"
    out = ["# The CUDA kernels on a GPU", machine(report), verdict,
           table(["part", "result", "s"], [[s["name"], s["result"], f"{s['seconds']:.0f}"] for s in report["steps"]])]
    out += runs("Op tests on the device, against the CPU", report.get("suites", []))
    out += runs("compute-sanitizer", report.get("sanitizer", []))
    if "served" in report:
        out += serve_report.page(report["served"], Limits(report["points"]))
    if [p for p in report.get("points", []) if p["part"] != "limits" or "served" not in report]:
        out += kernels(report["points"])
    return "\n\n".join(out) + "\n"


# ---- self-test ------------------------------------------------------------------------------------------------

def made_up():
    def point(part, us, size, flops, **names):
        return {"part": part, **names, "us": us, "min_us": us, "max_us": us, "calls": 2, "repeats": 3, "copies": 1,
                "bytes": size, "flops": flops}
    points = [point("limits", 1000, 4e9, 0, kernel="copy"), point("limits", 1000, 1e6, 8e11, kernel="large product"),
              point("limits", 2, 0, 0, kernel="smallest")]
    for matrix in ("qkv", "o", "head"):
        names = {"model": "m", "matrix": matrix, "N": 64, "K": 32}
        points += [point("products", 20, 4e7, 1e6, kernel="product", format="bf16", rows=1, **names),
                   point("products", 30, 4e7, 1e6, kernel="cublas", format="bf16", rows=1, **names),
                   point("products", 100, 4e7, 4e10, kernel="product", format="bf16", rows=512, **names),
                   {"part": "products", "kernel": "cublas", "format": "bf16", "rows": 512, "left_out": True, **names}]
    points += [point("attention", 10, 4e6, 0, kernel="attention", step="decode", model="m", cache="bf16", rows=1, context=128),
               point("attention", 10, 4e6, 0, kernel="attention", step="chunk", model="m", cache="bf16", rows=8, context=8),
               point("rows", 5, 1e6, 0, kernel="add", model="m", rows=1),
               point("sampling", 5, 1e6, 0, kernel="sampling", kind="greedy", model="m", rows=1)]
    points[-1]["max_us"] = 50
    points += [point(part, us, 1e6, 4e10, kernel=kernel, weights=weights, matrix="o", rows=512)
               for part, us, kernel, weights in (("mma", 100, "mma.sync", "bf16"), ("wgmma", 80, "wgmma", "bf16"),
                                                 ("mma", 60, "mma.sync", "fp8"), ("wgmma", 30, "wgmma", "fp8"))]
    points += [point("wgmma", 9, 1, 1, kernel="differ", weights="bf16", matrix="o", rows=512, numbers=1000, differ=5, largest=0.0078),
               {"part": "mma", "kernel": "mma.sync", "weights": "bf16", "matrix": "o", "rows": 64, "failed": "it hung"}]
    return {"date": "2000-01-01", "commit": "abc", "seconds": 100.0, "machine": {"GPU": "made up", "driver": "1.2"},
            "clocks": [{"sm_mhz": 1980.0, "memory_mhz": None, "watts": 300.0}, {"sm_mhz": 1700.0}],
            "steps": [{"name": "suites", "result": "failed", "seconds": 3.0}, {"name": "products", "result": "done", "seconds": 9}],
            "suites": [{"name": "gpu_rows", "result": "passed", "checks": 3, "seconds": 1.0},
                       {"name": "gpu_kv", "result": "exit 1", "checks": 2, "seconds": 1.0, "output": "here: it broke"}],
            "sanitizer": [{"name": "gpu_kv, racecheck", "result": "not finished", "seconds": 9.0, "output": "quiet"}],
            "points": points}


EXPECTED = [
    "| GPU | made up |", "| SM clock while timing, MHz | 1,980 (from 1,700 to 1,980) |", "**Failed: suites.**",
    "| gpu_kv | exit 1 | 2 | 1.0 |", "here: it broke", "| gpu_kv, racecheck | not finished |  | 9.0 |",
    "a copy moves 4.00 TB/s", "reaches 800 TFLOP/s",
    "| bf16 | 20.0 us, 2,000 GB/s, 50%, 1.50x | 100 us, 400 TFLOP/s, 50% |",  # cuBLAS at 512 rows is missing
    "| cuBLAS bf16 | 30.0 us, 1,333 GB/s, 33%, 1.00x | left out |", "| m | 40.0 / 60.0 us, 0.67 |  |",
    "before 3 points: cublas m qkv bf16, cublas m o bf16, cublas m head bf16.", "| 1 | 10.0 us, 400 GB/s, 10% |",
    "| o | 512 | 100 us, 400 TFLOP/s, 50% | 80.0 us, 500 TFLOP/s, 62%, 1.25x | **0.50%, up to 7.8e-03 of the row** |",
    "| o | 64 | **failed**: it hung |  | not compared |",
    "| o | 512 | 60.0 us, 667 TFLOP/s, 83% | 30.0 us, 1333 TFLOP/s, 167%, 2.00x |",
    "| chunk, 8 rows | 8 | 10.0 us, 400 GB/s, 10% |", "| greedy | 5.00 us~, 200 GB/s, 5% |",
]


def self_test():
    text = page(made_up())
    for words in EXPECTED:
        assert words in text, f"{words!r} is missing in:\n{text}"
    bare = {**made_up(), "points": [p for p in made_up()["points"] if p["part"] != "limits"], "suites": [], "clocks": []}
    text = page(bare)
    assert "No limit was measured" in text and "20.0 us, 2,000 GB/s, 1.50x" in text, text
    assert "Kernels" not in page({**bare, "points": []})
    timeless = [{**p, "us": 0} for p in made_up()["points"]]  # the emulation does not measure time
    assert "no time" in page({**bare, "points": timeless})
    print(f"gpu report: self-test of {len(EXPECTED) + 4} findings passed")


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    with open(sys.argv[1], encoding="utf-8") as file:
        print(page(json.load(file)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
