"""The serving part of the page: the figures of gpu_serve and gpu_peer.py, with the goals. `--self-test` checks it."""
import sys

# id, words of the figure's `what`, goal, stretch, unit, whether more is better, and the shares of the goal's time that a
# copy's rate and a large product's rate determine; the rest does not depend on the device. G5's value is its share of the
# product rate, G9's the time of a token. Goals are those of an H200, whose rates are in REFERENCE: bytes and flops per us.
REFERENCE = (4.3e6, 7.9e8)
GOALS = [
    ("G1", "decodes", 240, 255, "tok/s", True, (1, 0)),
    ("G2", "", 5500, None, "tok/s", True, (0.93, 0.07)),
    ("G4", "", 9000, 11000, "tok/s", True, (0.8, 0.2)),
    ("G5", "", 75, None, "% of the product rate", True, (0, 0)),
    ("G6", "", 25, None, "ms", False, (0.2, 0.8)),
    ("G7", "", 20, None, "us", False, (0, 0)),
    ("G8", "decodes", 430, None, "tok/s", True, (1, 0)),
    ("G8", "requests of", 8000, None, "tok/s", True, (0.93, 0.07)),
    ("G9", "", 200, 130, "us a token", False, (0.3, 0)),
    ("G10", "", 3, None, "% of the step", False, (0, 0)),
]


def longer(shares, limits):
    """The time that a goal's work takes here, as a multiple of an H200's; None if a rate that it needs was not measured."""
    times, rest = 0, 1
    for share, reference, rate in zip(shares, REFERENCE, (limits.bytes_per_us, limits.flops_per_us)):
        if share and not rate:
            return None
        times, rest = times + (share * reference / rate if share else 0), rest - share
    return times + rest


def scaled(bound, more, times):
    """A goal for this device, with three digits."""
    return bound and float(f"{bound / times if more else bound * times:.3g}")


def number(value):
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def value_of(figure, limits):
    """A figure's value in its goal's unit; None if a limit that it needs was not measured."""
    if figure["id"] == "G5":
        by_flops = limits.flops_per_us and figure["us"]
        return 100 * figure["flops"] / figure["us"] / limits.flops_per_us if by_flops else None
    return figure["us"] if figure["id"] == "G9" else figure["value"]


def share(figure, limits):
    """The share of the limit that applies, for figures that have bytes or flops."""
    if not figure.get("us") or not (figure.get("bytes") or figure.get("flops")):
        return ""
    least, by_flops = limits.least_us(figure)
    return f"{least / figure['us']:.0%} of {'the product rate' if by_flops else 'the bandwidth'}" if least else ""


def verdict(value, goal, stretch, more):
    def reached(least):
        return value >= least if more else value <= least
    if stretch is not None and reached(stretch):
        return "stretch reached"
    return "reached" if reached(goal) else f"missed: {value / goal:.2f} of it"


def goal_here(goal, limits):
    """A goal and its stretch on this device, and their words."""
    _, _, least, stretch, _, more, shares = goal
    times = longer(shares, limits)
    here = [scaled(bound, more, times or 1) for bound in (least, stretch)]
    words = f"{'≥' if more else '≤'} {here[0]:,.6g}" + (f", stretch {here[1]:,.6g}" if stretch is not None else "")
    if times is None:
        words += " (an H200's)"
    elif shares != (0, 0):
        words += f" (H200: {least:,})"
    return here, words


def goal_rows(figures, limits):
    rows = []
    for goal in GOALS:
        name, words, _, _, unit, more, _ = goal
        (least, stretch), bound = goal_here(goal, limits)
        mine = [f for f in figures if f["id"] == name and (words in f.get("what", "") or "what" not in f)]
        for f in mine or [{"id": name}]:
            if "value" in f:
                value = value_of(f, limits)
                found = [f"{number(value)} {unit}", verdict(value, least, stretch, more)] if value is not None else ["", "no limit"]
                rows.append([name, f"{f['model']}: {f['what']}", bound, *found, share(f, limits), f["note"]])
            else:
                why = f.get("failed") or f.get("why") or "not reached"
                rows.append([name, "", bound, "", ("**failed**: " if f.get("failed") else "left out: ") + why, "", ""])
    return rows


def plain_rows(figures, limits):
    rows = []
    for f in figures:
        if "value" in f:
            rows.append([f["model"], f["what"], f"{number(f['value'])} {f['unit']}", share(f, limits), f["note"]])
        else:
            rows.append([f.get("model", ""), f.get("what", f["id"]), "",
                         "", f"**failed**: {f['failed']}" if f.get("failed") else f"left out: {f.get('why', '')}"])
    return rows


def page(figures, limits):
    """The sections on serving."""
    out = ["## Serving, without HTTP", limits.lines(),
           "Models of random weights, through the scheduler. A share is the time that what must move or be computed would take at "
           "the limits, over the time that it took."]
    tokens = [f for f in figures if f["part"] in ("tokens", "wgmma_tokens")]
    if tokens:
        out.append("### The same tokens\n\n" + table(["model", "compared", "", "", ""], plain_rows(tokens, limits)))
    measured = [f for f in figures if f["part"] in ("llama", "fp8", "small", "wgmma")]
    out.append("### Goals\n\nThe goals are an H200's, with 4.3 TB/s for copies and 790 TFLOP/s, scaled by the rates that this run "
               "has measured.\n\n" + table(["id", "figure", "goal", "found", "verdict", "share", "note"], goal_rows(measured, limits)))
    others = [f for f in measured if not f["id"].startswith("G") and f["id"] != "warm"]
    if others:
        out.append("### Besides\n\n" + table(["model", "figure", "found", "share", "note"], plain_rows(others, limits)))
    peers = [f for f in figures if f["part"] == "peers"]
    out.append("### Peers\n\n" + (table(["model", "figure", "found", "share", "note"], plain_rows(peers, limits)) if peers
                                  else "None was measured: the parts' results say why."))
    return out


# ---- self-test ------------------------------------------------------------------------------------------------

class MadeUpLimits:
    bytes_per_us, flops_per_us = REFERENCE[0], 8e8

    @staticmethod
    def least_us(figure):
        return max((figure["bytes"] / 4e6, False), (figure["flops"] / 8e8, True))

    @staticmethod
    def lines():
        return "limits"


def made_up():
    def figure(part, name, value, us=0.0, size=0.0, flops=0.0, what="one request decodes"):
        return {"part": part, "id": name, "model": "m", "what": what, "value": value, "unit": "tok/s", "us": us, "bytes": size,
                "flops": flops, "note": "n"}
    return [figure("llama", "G1", 250, 4000, 1.4e10), figure("llama", "G2", 2750, what="32 requests of 256 in, 1024 out"),
            figure("llama", "G5", 9e3, 100000, 1e9, 4e13, what="a prompt"), figure("llama", "G7", 25, what="nothing runs"),
            figure("fp8", "G8", 500, what="one request decodes"), figure("fp8", "G8", 9000, what="32 requests of"),
            figure("small", "G9", 8000, 125, 1e8), figure("small", "warm", 1), figure("small", "start", 9, what="weights"),
            {"part": "llama", "id": "G4", "left_out": True, "why": "3 s were left, and it takes about 20"},
            {"part": "llama", "id": "G6", "failed": "a request failed"},
            figure("wgmma", "G2", 5600, what="32 requests of 256 in, 1024 out, wgmma"),
            figure("wgmma", "G4", 9100, what="512 requests of 1000 in, 1000 out, wgmma"),
            {**figure("tokens", "T1", 12, what="float32"), "unit": "tokens the same", "note": "all"},
            {"part": "peers", "id": "P2", "model": "m", "what": "generate_batch", "failed": "RuntimeError: no"}]


EXPECTED = [
    "| G1 | m: one request decodes | ≥ 240, stretch 255 (H200: 240) | 250 tok/s | reached | 88% of the bandwidth | n |",
    "| ≥ 5,500 (H200: 5,500) | 2,750 tok/s | missed: 0.50 of it |  | n |", "left out: 3 s were left", "| **failed**: a request failed |",
    "| ≥ 75 | 50.0 % of the product rate | missed: 0.67 of it | 50% of the product rate | n |",
    "| ≤ 20 | 25.0 us | missed: 1.25 of it |", "| ≥ 430 (H200: 430) | 500 tok/s | reached |", "| ≥ 8,010 (H200: 8,000) | 9,000 tok/s | reached |",
    "| ≤ 200, stretch 130 (H200: 200) | 125 us a token | stretch reached | 20% of the bandwidth | n |",
    "1024 out, wgmma | ≥ 5,500 (H200: 5,500) | 5,600 tok/s | reached |",
    "1000 out, wgmma | ≥ 9,020, stretch 11,000 (H200: 9,000) | 9,100 tok/s | reached |", "| G10 |  | ≤ 3 |  | left out: not reached |", "| m | float32 | 12.0 tokens the same |  | all |",
    "| m | weights | 9.00 tok/s |  | n |", "**failed**: RuntimeError: no",
]


def self_test():
    text = "\n\n".join(page(made_up(), MadeUpLimits))
    for words in EXPECTED:
        assert words in text, f"{words!r} is missing in:\n{text}"
    assert "None was measured" in "\n".join(page(made_up()[:-1], MadeUpLimits))
    slower = type("Slower", (MadeUpLimits,), {"bytes_per_us": REFERENCE[0] / 2, "flops_per_us": REFERENCE[1]})
    assert "| ≥ 120, stretch 128 (H200: 240) | 250 tok/s | stretch reached |" in "\n".join(page(made_up(), slower))
    assert "| ≤ 30 (H200: 25) |" in "\n".join(page(made_up(), slower))  # a fifth of G6 takes twice as long
    unknown = type("Unknown", (MadeUpLimits,), {"bytes_per_us": None})
    assert "| ≥ 240, stretch 255 (an H200's) |" in "\n".join(page(made_up(), unknown))
    print(f"gpu serve report: self-test of {len(EXPECTED) + 4} findings passed")
    return 0


if __name__ == "__main__":
    sys.exit(self_test() if sys.argv[1:] == ["--self-test"] else 2)
