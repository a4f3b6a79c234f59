"""Turns measurements into lines of the table: medians, ratios, and which goals were reached."""
import statistics
import sys


def compare_values(values, metric_is_less):
    """Returns the ratios of Penstock to each peer: that of the medians, and the lowest of repeats that were measured in
    the same turn."""
    own, ratios = values["penstock"], {}
    for name, others in values.items():
        if name != "penstock":
            pairs = [(b / a if metric_is_less else a / b) for a, b in zip(own, others)]
            middle = statistics.median(own) / statistics.median(others)
            ratios[name] = {"median": 1 / middle if metric_is_less else middle, "least": min(pairs)}
    return ratios


def judge(goal, own, ratios, kind):
    """A goal's value on this machine, and whether it was reached; None if there is no figure or no peer."""
    wanted = goal.amx if kind == "amx" else goal.vnni
    if goal.against is None:
        against = {None: {"median": statistics.median(own), "least": min(own)}}
    else:
        against = ratios if goal.against == "fastest" else {n: r for n, r in ratios.items() if n == goal.against}
    if wanted is None or not against:
        return None
    hard, stretch = wanted
    name = min(against, key=lambda n: against[n]["median"])
    ratio = against[name]["median"]
    reached = "stretch" if stretch and ratio >= stretch else "hard" if ratio >= hard else "no"
    return {"against": name, "ratio": ratio, "least": against[name]["least"], "hard": hard, "stretch": stretch,
            "reached": reached}


def judge_share(wanted, share, kind):
    """A goal for the share of the machine's limit, in the same form."""
    hard = wanted[0 if kind == "amx" else 1] if wanted else None
    if not hard or share is None:
        return []
    return [{"against": "the limit", "ratio": share, "least": share, "hard": hard, "stretch": None,
             "reached": "hard" if share >= hard else "no"}]


def make_row(id, file_type, what, metric, values, goals, kind):
    """One line of the table, from each side's values of all repeats."""
    ratios = compare_values(values, metric.is_less_better)
    judged = [judge(goal, values["penstock"], ratios, kind) for goal in goals]
    return {"id": id, "file_type": file_type, "what": what, "metric": metric.name, "unit": metric.unit,
            "less_is_better": metric.is_less_better, "values": values,
            "median": {name: statistics.median(v) for name, v in values.items()}, "ratios": ratios,
            "goals": [goal for goal in judged if goal]}


def print_row(row):
    medians = "  ".join(f"{name} {value:,.1f}" for name, value in row["median"].items())
    print(f"{row['id']:<8} {row['file_type']:<7} {row['metric']} ({row['unit']}): {medians}")
    least = "  ".join(f"{name} {min(values):.2f}" for name, values in row.get("cpu_s", {}).items())
    if least:
        print(f"{'':16} processor time (s), least of the repeats: {least}")
    for goal in row["goals"]:
        stretch = f" / {goal['stretch']:.2f}" if goal["stretch"] else ""
        ratio = f"{goal['ratio']:.2f}x {goal['against']} (least {goal['least']:.2f}x)" if goal["against"] else "by itself"
        print(f"{'':16} {ratio}, goal {goal['hard']:,.2f}{stretch}: {goal['reached']}")
    if row.get("share_of_limit"):
        print(f"{'':16} {row['share_of_limit']:.0%} of the machine's limit")
    sys.stdout.flush()
