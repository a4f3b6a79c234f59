"""The serving part of bench/gpu.sh: gpu_serve's parts, each in its own process, then the peers. run.py calls it."""
import os
import sys

import points
import tools

# When a part begins, it gets this share of the remaining time, relative to the parts after it. Those by wgmma follow all
# others of the program.
SHARES = {"limits": 0.03, "tokens": 0.09, "small": 0.05, "fp8": 0.07, "llama": 0.31, "wgmma_tokens": 0.05, "wgmma": 0.2,
          "peers": 0.2}
PEER = [sys.executable, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "gpu_peer.py")]


def time_part(report, programs, part, deadline):
    """Runs one part and reads its figures."""
    program = PEER if part == "peers" else [os.path.join(programs, "gpu_serve"), part]
    points.run_part(report, f"serve, {part}", "id", points.command_of(*program), deadline, programs)


def there(report, programs):
    """Is there a gpu_serve? If not, the report says so."""
    report.setdefault("served", [])
    if os.access(os.path.join(programs, "gpu_serve"), os.X_OK):
        return True
    report.step("serve", "failed", 0.0, "gpu_serve is missing: build it next to the program's libraries (docs/cuda/measuring.md)")
    return False


def small(report, programs, deadline):
    """Small models only: a decode step as a graph of launches, and as one grid."""
    if there(report, programs):
        time_part(report, programs, "small", deadline)


def serve(report, programs, deadline):
    """All parts."""
    if not there(report, programs):
        return
    watch, parts = tools.ClockWatch(), list(SHARES)
    for i, part in enumerate(parts):
        own = deadline.part(SHARES[part] / sum(SHARES[p] for p in parts[i:]))
        (points.time_part if part == "limits" else time_part)(report, programs, part, own)
    report.add("clocks", watch.stop())
