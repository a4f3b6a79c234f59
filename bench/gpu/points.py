"""Runs gpu_times, gpu_serve and gpu_peer.py, whose points are independent: a point that hangs or crashes costs itself alone.

The programs append lines of JSON to a file. A line with "starts" stands before the results of each point: its number, its
names, and "within_s" if it may take longer than POINT_S. A line with "ends" follows the last one. If the program dies or
writes nothing for too long, the point that had started is noted as failed, and the program starts again with "from=N", the
number after it.
"""
import json
import math
import os
import time

import tools

BEGIN_S, POINT_S, SLACK_S = 60, 20, 10  # limits: until the first point, of a point, beyond the point's own limit
IN_A_ROW = 3  # after this many failures one after another, the part ends: the device is lost
RESULTS = {0: "done", 3: "done, with points left out", 77: "not here"}


def read_lines(path):
    """The lines of a part; an incomplete line, from a crash, is left out."""
    lines = []
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    lines.append(json.loads(line))
                except ValueError:
                    pass
    except OSError:
        pass
    return [line for line in lines if isinstance(line, dict)]


def results_of(lines):
    return [line for line in lines if "starts" not in line and "ends" not in line]


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


NUMBERS = {"kernel": ("us", "min_us", "max_us", "bytes", "flops"), "id": ("value", "us", "bytes", "flops")}
TEXTS = {"kernel": ("part",), "id": ("part", "model", "what", "unit", "note")}


def is_result(line, key):
    """Is this line a point (key "kernel") or a figure (key "id") that the report can show?"""
    if not isinstance(line.get(key), str) or not isinstance(line.get("part"), str):
        return False
    if line.get("left_out") or line.get("failed"):
        return True
    return all(is_number(line.get(k)) for k in NUMBERS[key]) and all(isinstance(line.get(k), str) for k in TEXTS[key])


def sorted_out(path, key):
    """The results of a part, and a sentence about other lines."""
    lines = [line for line in results_of(read_lines(path)) if "device" not in line]
    good = [line for line in lines if is_result(line, key)]
    wrong = len(lines) - len(good)
    return good, f"\n{wrong} lines are not results: {json.dumps([x for x in lines if x not in good][0])[:200]}" if wrong else ""


class Watch:
    """Says that a program is stalled if its file has not grown within the limit of the current point."""

    def __init__(self, path):
        self.path, self.limit, self.grew = path, BEGIN_S, time.monotonic()
        self.size = self.size_now()

    def size_now(self):
        return os.path.getsize(self.path) if os.path.exists(self.path) else 0

    def __call__(self):
        size = self.size_now()
        if size != self.size:
            last = (read_lines(self.path) or [{}])[-1]
            self.limit = max(POINT_S, last["within_s"] + SLACK_S) if "within_s" in last else POINT_S
            self.size, self.grew = size, time.monotonic()
        return time.monotonic() - self.grew > self.limit


def append(path, line):
    """A line of its own, even after half a line."""
    with open(path, "a", encoding="utf-8") as file:
        file.write("\n" + json.dumps(line) + "\n")


def note_failure(path, first, why):
    """Notes the point that was under way in the run that began with point `first`. Returns the number of the point after it
    and whether it had no result; the number is None if no point had started."""
    lines = read_lines(path)
    started = [i for i, line in enumerate(lines) if line.get("starts", -1) >= first]
    if not started:
        return None, False
    last = lines[started[-1]]
    had_none = not results_of(lines[started[-1] + 1:])
    if had_none:
        append(path, {**{k: v for k, v in last.items() if k not in ("starts", "within_s")}, "failed": why})
    return last["starts"] + 1, had_none


def run_points(command, deadline, path, log, environment):
    """Runs command(N, seconds), which leaves out its first N points, until all points have a result or the time is up. Returns
    result, seconds, output."""
    started, first, failed, output = time.monotonic(), 0, [], ""
    if os.path.exists(path):
        os.unlink(path)
    while True:
        code, _, said = tools.run(command(first, max(deadline.left() - 2, 1)), deadline, log, environment, Watch(path))
        output = (output + said)[-tools.TAIL:]
        if code in RESULTS or code == 127 or any("ends" in line for line in read_lines(path)):
            break
        late = code is None and deadline.left() <= 0
        why = "the time was up" if late else "it hung" if code is None else f"it ended with code {code}"
        following, none = note_failure(path, first, why)
        failed.append(first if following is None else following - 1)
        if late or following is None or failed[-IN_A_ROW:] == list(range(failed[-1] - IN_A_ROW + 1, failed[-1] + 1)):
            output += f"\n{why} at point {failed[-1]}; no more were tried"
            break
        output += f"\n{why} at point {following - 1}{', which has no result' if none else ''}; it went on after it\n"
        first = following
    result = "failed" if failed or code not in RESULTS else RESULTS[code]
    return result, time.monotonic() - started, output


def note_device(report, lines):
    for device in [line for line in lines if isinstance(line.get("device"), str)]:
        report["machine"] |= {"multiprocessors": device["multiprocessors"], "L2, MiB": device["l2_bytes"] >> 20,
                              "cuBLAS": "loaded" if device["cublas"] else "not found",
                              "grids": "begin early" if device.get("early_grids") else "follow one another"}


def run_part(report, name, key, command, deadline, programs):
    """Runs a part of a program and reads its results. A part with a line that is no result counts as failed."""
    path = report.log(f"{name}.jsonl".replace(", ", "_"))
    result, took, said = run_points(lambda first, seconds: command(path, first, seconds), deadline, path,
                                    path.replace(".jsonl", ".log"), tools.libraries(programs))
    found, complaint = sorted_out(path, key)
    note_device(report, read_lines(path))
    report.add("points" if key == "kernel" else "served", found)
    report.step(name, "failed" if complaint else result, took, said + complaint)
    if (said + complaint).strip():
        print(f"{name}: {(said + complaint)[-tools.TAIL:].strip()}", flush=True)


def command_of(*program):
    """The command of a program whose arguments are OUT SECONDS [from=N]."""
    return lambda path, first, seconds: [*program, path, f"{seconds:.0f}"] + ([f"from={first}"] if first else [])


def time_part(report, programs, part, deadline):
    """Kernel times: one part of gpu_times."""
    run_part(report, part, "kernel", command_of(os.path.join(programs, "gpu_times"), part), deadline, programs)
