"""Writes the figures of one or more runs between the markers of docs/performance.md and docs/accuracy.md.

    python3 bench/report.py [docs/measurements/NAME.json ...] [--accuracy docs/measurements/NAME-accuracy.json]
                            [--quantised docs/measurements/NAME-quantised.json]
                            [--quantize-accuracy docs/measurements/NAME-accuracy.json]
"""
import argparse
import json
import re

import figures

SPEED, ACCURACY = "docs/performance.md", "docs/accuracy.md"
PICTURE = "![how many times as good as each peer](performance.svg)\n\n"


def number(value):
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def machine_lines(report):
    machine = report["machine"]
    ids = list(dict.fromkeys(re.match(r"C\d+", row["id"])[0] for row in report["rows"]))
    lines = [f"{', '.join(ids)}: measured on {report['date']} at commit {report['commit']}: {machine['cpu']} ({' '.join(machine['flags'])}), "
             f"{machine['cores']} cores, {machine['l3_mib']} MiB of L3, {machine['memory_gib']:.0f} GiB, "
             f"{machine['system']}; {report['threads']} threads, {report['repeats']} repeats; "
             f"load {report['load_before']:.1f} before and {report['load_after']:.1f} after the run."]
    if report["quick"]:
        lines.append("**The works were cut short (`--quick`): this shows the form of the page; do not quote its figures.**")
    disturbed = f"{report['thrown_away']} disturbed repeats were discarded"
    if report["kept_disturbed"]:
        disturbed += (f", and **{report['kept_disturbed']} disturbed ones were kept** because no repeat was quiet: "
                      "take this run as a first look")
    lines.append(disturbed + ".")
    limits = report.get("limits")
    if limits:
        names = (("read_gb_s", "memory read", "GB/s"), ("int8_g_s", "int8", "G multiply-adds/s"),
                 ("float_g_s", "float32", "G multiply-adds/s"))
        lines.append("The machine's limits in the run, median (least to most): " + ", ".join(
            f"{what} {number(limits[n]['median'])} ({number(limits[n]['least'])} to {number(limits[n]['most'])}) {unit}"
            for n, what, unit in names if n in limits) + ".")
    return "\n".join(lines)


def goal_cell(goal, row):
    """ "1.5 / 1.8: reached", or for an absolute value "60,000: reached"."""
    wanted = number(goal["hard"]) + (f" / {number(goal['stretch'])}" if goal["stretch"] else "")
    reached = {"no": "not reached", "hard": "reached", "stretch": "stretch reached"}[goal["reached"]]
    return f"{wanted}: {reached}" + (f" ({goal['against']})" if goal["against"] not in (None, *row["ratios"]) else "")


def result_line(row):
    others = "; ".join(f"{name} {number(v)}" for name, v in row["median"].items() if name != "penstock")
    ratios = "; ".join(f"{number(r['median'])} ({number(r['least'])}) {name}" for name, r in row["ratios"].items())
    goals = "; ".join(goal_cell(goal, row) for goal in row["goals"])
    share = f"{row['share_of_limit']:.0%}" if row.get("share_of_limit") else ""
    return [row["id"], f"{row['what']}, {row['file_type']}", f"{row['metric']}, {row['unit']}",
            number(row["median"]["penstock"]), others, ratios, goals, share]


def result_table(report):
    head = ["id", "work", "figure", "Penstock", "peers", "times as good (least)", "goal / stretch", "of the limit"]
    return table(head, [result_line(row) for row in report["rows"]])


def tokens_table(report):
    rows = []
    for file_type, found in report["tokens"].items():
        gaps = sorted(entry["gap"] for entry in found if "gap" in entry)
        rows.append([file_type, f"{sum(e['equal'] for e in found):,} of {sum(e['of'] for e in found):,}",
                     f"{len(gaps)} of {len(found)}", f"{gaps[len(gaps) // 2]:.3f}, {gaps[-1]:.3f}" if gaps else ""])
    return table(["file", "tokens before a first difference", "answers that part", "gap there: median, greatest"], rows)


def with_error(values, form):
    """The mean and its standard error."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return format(mean, form)
    error = (sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values)) ** .5
    return f"{mean:{form}} ± {error:{form.lstrip('+')}}"


def less_llama(who, kept, form):
    """Returns how far a side's values are above llama.cpp's, pair by pair."""
    if not who.startswith("penstock") or not kept.get("llama.cpp"):
        return ""
    return with_error([a - b for a, b in zip(kept[who], kept["llama.cpp"])], form)


def accuracy_table(accuracy):
    rows = []
    for entry in accuracy["types"]:
        paths = ", ".join(f"{p['path']}: {'the same bytes' if p['same_bytes'] else 'other bytes'}" for p in entry["paths"])
        windows = {score["who"]: score.get("window_kl", []) for score in entry["scores"]}
        for score in entry["scores"]:
            kl = with_error(score.get("window_kl") or [score["mean_kl"]], ".6f")
            rows.append([entry["type"], score["who"], f"{score['perplexity']:.4f}", kl,
                         less_llama(score["who"], windows, "+.6f"), f"{score['p99_kl']:.4f}", f"{score['best_token_differs']:.2%}",
                         paths if score["who"].startswith("penstock") else ""])
    head = ["file", "engine", "perplexity", "mean KL", "less llama.cpp's", "p99 of KL", "best token differs", "other paths"]
    return table(head, rows)


def greedy_table(accuracy):
    rows = []
    for entry in accuracy["types"]:
        of, equal = entry["greedy"]["of"], entry["greedy"]["equal"]
        rows += [[entry["type"], who, f"{with_error(n, '.1f')} of {of}", less_llama(who, equal, "+.1f"),
                  f"{sum(one == of for one in n)} of {len(n)}"] for who, n in equal.items() if who != "float32"]
    return table(["file", "engine", "greedy tokens before a first difference", "less llama.cpp's", "answers equal to the end"], rows)


def quality_table(report):
    """The table of bench/quantised.py: the loss of each type, and whether llama.cpp's results for Penstock's files
    agree."""
    apart = {(row["type"], row["from"]): row for row in report["loads"]["rows"]}
    source, *types = report["quality"]["rows"]
    rows = [["halves, the source", "", f"{source['perplexity']:.4f}", "", "", "", "", ""]]
    for row in types:
        ours, theirs, same = row["penstock"], row["llama.cpp"], row["equal_tensors"]
        loads = [apart[row["type"], of] for of in ("GGUF", "folder")]
        rows.append([row["type"].upper(), f"{loads[0]['bytes'] / 1e6:.1f}", f"{ours['perplexity']:.4f}",
                     f"{theirs['perplexity']:.4f} ({row['perplexity_ratio'] - 1:+.2%})", f"{ours['mean_kl']:.6f}",
                     f"{theirs['mean_kl']:.6f}", f"{same['same']} of {same['of']}",
                     ", ".join(f"{load['mean_kl']:.4f}" if load["loads"] else "NO" for load in loads)])
    return table(["type", "MB", "perplexity", "llama.cpp's file (ours against it)", "mean KL", "llama.cpp's file", "tensors with its bytes",
                  "llama.cpp runs ours: KL of file, of folder"], rows)


def making_table(report):
    rows = [[row["type"].upper(), f"{row['penstock']['seconds']:.2f}", f"{row['llama.cpp']['seconds']:.2f}",
             f"{row['penstock']['cpu_s']:.2f}", f"{row['llama.cpp']['cpu_s']:.2f}",
             f"{row['llama.cpp']['cpu_s'] / row['penstock']['cpu_s']:.2f}", f"{row['penstock']['memory_bytes'] / 2**20:.0f}",
             f"{row['llama.cpp']['memory_bytes'] / 2**20:.0f}"] for row in report["making"]["rows"]]
    return table(["type", "seconds", "llama.cpp", "processor time, s", "llama.cpp", "times as good", "memory, MiB", "llama.cpp"], rows)


def loading_table(report):
    reading = report["loading"]["rows"][0]["seconds"]
    rows = [[row["what"], f"{row['seconds']:.2f}", f"{row['seconds'] / reading:.1f}", f"{row['cpu_s']:.2f}"]
            for row in report["loading"]["rows"]]
    return table(["what", "seconds", "times reading", "processor time, s"], rows)


def quantised_text(report):
    machine = report["machine"]
    where = f"{machine['cpu']}, {machine['cores']} cores, {report['threads']} threads; load " + ", ".join(
        f"{report[part]['load']:.1f} ({part})" for part in ("quality", "making", "loading"))
    return "\n\n".join([quality_table(report), f"Made and loaded on {where}.", making_table(report), loading_table(report)])


def put(path, name, text):
    """Replaces the text between a page's markers for `name`."""
    pattern = rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)"
    with open(path, encoding="utf-8") as f:
        page = f.read()
    if not re.search(pattern, page, re.S):
        raise SystemExit(f"report.py: {path} lacks markers for {name}")
    with open(path, "w", encoding="utf-8") as f:
        f.write(re.sub(pattern, lambda m: f"{m[1]}{text}\n{m[2]}", page, flags=re.S))


def put_accuracy(name, path):
    with open(path) as f:
        accuracy = json.load(f)
    put(ACCURACY, name, accuracy_table(accuracy) + "\n\n" + greedy_table(accuracy))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*")
    parser.add_argument("--accuracy")
    parser.add_argument("--quantised")
    parser.add_argument("--quantize-accuracy")
    args = parser.parse_args()
    if args.figures:
        runs, report = figures.read(args.figures)
        put(SPEED, "machine", "\n\n".join(machine_lines(run) for run in runs))
        put(SPEED, "results", PICTURE + result_table(report))
        put(ACCURACY, "tokens", tokens_table(report))
    if args.accuracy:
        put_accuracy("accuracy", args.accuracy)
    if args.quantize_accuracy:
        put_accuracy("accuracy of quantize", args.quantize_accuracy)
    if args.quantised:
        with open(args.quantised) as f:
            put(ACCURACY, "quantised", quantised_text(json.load(f)))


main()
