"""The suites of tests/cuda on the device: alone, then under compute-sanitizer."""
import concurrent.futures
import glob
import os
import re
import time

import tools

AT_ONCE = max(4, min(8, (os.cpu_count() or 1) // 2))  # suites and the sanitizer work mostly on the CPU
SUITE_S, LEAST_S = 90, 5  # a suite's time limit; the least time left for which one more process is started


def tests_of(programs):
    """Returns the suites, quick ones first, so that the sanitizer reaches most of them."""
    slow = ["engine", "engine_graphs", "engine_sampling", "gemm", "sample", "attention_bits", "attention"]
    found = [p for p in glob.glob(os.path.join(programs, "gpu_*"))
             if os.access(p, os.X_OK) and not p.endswith(("gpu_times", "gpu_serve", "gpu_peer"))]
    rank = {f"gpu_{name}": i for i, name in enumerate(reversed(slow), 1)}
    return sorted(found, key=lambda p: (rank.get(os.path.basename(p), 0), p))


def check_suite(report, program, deadline):
    name = os.path.basename(program)
    if deadline.left() < min(1, LEAST_S):
        return {"name": name, "result": "no time", "seconds": 0.0}
    code, seconds, said = tools.run([program], tools.Deadline(SUITE_S, deadline), report.log(name + ".log"),
                                    tools.libraries(os.path.dirname(program)))
    checks = re.search(r"Checks: (\d+), Failures: (\d+)", said)
    result = "passed" if code == 0 else "no end" if code is None else f"exit {code}"
    return {"name": name, "result": result, "seconds": seconds, "checks": int(checks[1]) if checks else "",
            "output": said[-tools.TAIL:]}


def judge_sanitizer(code, said):
    """Returns the findings of a run of compute-sanitizer."""
    if re.search(r"Device not supported|No attachable process|not supported on this|Failed to initialize", said):
        return "does not work here"
    errors = len(re.findall(r"^=+ (?:Invalid|Error: |Race|Warning: Race|Uninitialized|Barrier)", said, re.M))
    summary = re.search(r"(?:ERROR SUMMARY: |RACECHECK SUMMARY: )(\d+)", said)
    if errors or (summary and int(summary[1])):
        return f"{max(errors, int(summary[1]) if summary else 0)} errors"
    return "not finished" if code is None else "clean" if summary and code == 0 else f"exit {code}"


def check_sanitized(report, sanitizer, kind, program, deadline):
    name = os.path.basename(program)
    if deadline.left() < LEAST_S:
        return {"name": f"{name}, {kind}", "result": "no time", "seconds": 0.0, "output": ""}
    # A request that a test expects to fail, such as too much memory, is not a kernel's error.
    options = ["--report-api-errors", "no"] if kind == "memcheck" else []
    command = [sanitizer, "--tool", kind, "--error-exitcode", "66", "--print-limit", "10", *options, program]
    code, seconds, said = tools.run(command, deadline, report.log(f"{name}.{kind}.log"), tools.libraries(os.path.dirname(program)))
    return {"name": f"{name}, {kind}", "result": judge_sanitizer(code, said), "seconds": seconds, "output": said[-tools.TAIL:]}


def in_parallel(report, key, jobs):
    """Adds the result of each job to the report as soon as it ends. Returns all of them."""
    found = []

    def run(job):
        found.append(job())
        report.add(key, found[-1:])
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as workers:
        list(workers.map(run, jobs))
    return found


def note_step(report, name, started, found, good):
    bad = [f"{r['name']}: {r['result']}" for r in found if r["result"] not in good]
    report.step(name, "failed" if bad or not found else "done", time.monotonic() - started, ", ".join(bad))


def check_suites(report, name, tests, deadline):
    """Runs suites side by side. A suite without time counts as failed: nobody knows whether it would pass."""
    started = time.monotonic()
    found = in_parallel(report, "suites", [lambda p=p: check_suite(report, p, deadline) for p in tests])
    note_step(report, name, started, found, ("passed",))


def correctness(report, programs, deadline):
    tests = tests_of(programs)
    check_suites(report, "suites", tests, deadline.part(0.5))
    sanitizer = tools.tool("compute-sanitizer")
    if not sanitizer:
        report.step("compute-sanitizer", "not installed", 0.0)
        return
    # The engine's suites add nothing to those of its kernels here, and take minutes.
    tests = [p for p in tests if not re.search("gpu_(engine.*|gemm_cublas)$", p)]
    begun = time.monotonic()
    kinds = (("memcheck", deadline.part(0.5)), ("racecheck", deadline))
    found = in_parallel(report, "sanitizer", [lambda k=k, p=p, d=d: check_sanitized(report, sanitizer, k, p, d)
                                              for k, d in kinds for p in tests])
    note_step(report, "compute-sanitizer", begun, found, ("clean", "not finished", "no time", "does not work here"))
