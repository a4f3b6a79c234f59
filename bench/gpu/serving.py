"""The serving part of bench/gpu.sh: gpu_serve's parts, each in its own process, then the peers. run.py calls it."""
import os
import sys
import time

# When a part begins, it gets this share of the remaining time, relative to the parts after it.
SHARES = {"limits": 0.04, "tokens": 0.16, "small": 0.06, "fp8": 0.12, "llama": 0.4, "peers": 0.22}
PEER = [sys.executable, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "gpu_peer.py")]
RESULTS = {0: "done", 3: "done, with figures left out", 77: "not here"}


def command_of(part, programs, path, seconds):
    tail = [path, f"{seconds:.0f}"]
    return [*PEER, *tail] if part == "peers" else [os.path.join(programs, "gpu_serve"), part, *tail]


def time_part(report, tools, programs, part, seconds):
    """Runs one part and reads its figures. It is killed when it exceeds its time by a quarter."""
    path = os.path.join(tools.LOGS, f"serve_{part}.jsonl")
    if os.path.exists(path):
        os.unlink(path)
    code, took, said = tools.run(command_of(part, programs, path, seconds), 1.25 * seconds + 15,
                                 os.path.join(tools.LOGS, f"serve_{part}.log"), tools.libraries(programs))
    report["served"] += tools.read_points(path)
    result = "failed" if code not in RESULTS else RESULTS[code]
    report["steps"].append({"name": f"serve, {part}", "result": result, "seconds": took, "output": said[-tools.TAIL:]})
    if said.strip():
        print(f"{part}: {said[-tools.TAIL:].strip()}", flush=True)


def there(report, programs):
    """Is there a gpu_serve? If not, the report says so."""
    report["served"] = []
    if os.access(os.path.join(programs, "gpu_serve"), os.X_OK):
        return True
    report["steps"].append({"name": "serve", "result": "failed", "seconds": 0.0, "output":
                            "gpu_serve is missing: build it next to the program's libraries (docs/cuda/measuring.md)"})
    return False


def small(report, programs, seconds, tools):
    """Small models only: a decode step as a graph of launches, and as one grid. `tools` is run.py."""
    if there(report, programs):
        time_part(report, tools, programs, "small", seconds)


def serve(report, programs, seconds, tools):
    """All parts."""
    if not there(report, programs):
        return
    watch, end, parts = tools.ClockWatch(), time.monotonic() + seconds, list(SHARES)
    for i, part in enumerate(parts):
        share = SHARES[part] / sum(SHARES[p] for p in parts[i:])
        left = max((end - time.monotonic()) * share - 2, 2)
        if part == "limits":
            tools.time_part(report, programs, part, left)
        else:
            time_part(report, tools, programs, part, left)
    report["clocks"] = report.get("clocks", []) + watch.stop()
