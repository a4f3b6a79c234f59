"""Builds the programs that check and time the CUDA kernels, runs them on the GPU and writes a report; see bench/gpu.sh.

    GPU_PROGRAMS  a folder of programs that `bench/gpu.sh build` made (build/kernels/gpu); then nothing is built
    GPU_OUT       the folder of report.json and report.md; default build/gpu-report. Logs go to build/gpu-logs
    GPU_SECONDS   how long everything together may take; default 540

Every part runs in its own processes with its own time limit, so a part that fails or hangs does not affect the others. The
exit code is 1 if a part failed. `--self-test` checks that on made-up programs.
"""
import concurrent.futures
import datetime
import glob
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time

import report as report_page
import serving

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD, LOGS = "build/kernels", os.path.join(ROOT, "build/gpu-logs")
MAX_S, BUILD_SHARE, CORRECTNESS_SHARE, RESERVE_S = 540, 0.5, 0.45, 8
AT_ONCE = max(4, min(8, (os.cpu_count() or 1) // 2))  # suites and the sanitizer work mostly on the CPU
SUITE_S, LEAST_S = 90, 5  # a suite's time limit; the least time left for which the sanitizer is started
PARTS = {"limits": 0.05, "products": 0.5, "attention": 0.2, "rows": 0.15, "sampling": 0.1}  # share of the time for kernels
TAIL = 1500


def text_of(command):
    """What a program prints, or "" if it cannot be run."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, errors="replace")
        return done.stdout.strip() if done.returncode == 0 else ""
    except (OSError, subprocess.TimeoutExpired):
        return ""


def tool(name):
    """The path of a program of the toolkit, or None."""
    places = [os.path.join(folder, name) for folder in ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer")]
    return shutil.which(name) or next((p for p in places if os.access(p, os.X_OK)), None)


def run(command, seconds, log, environment=None):
    """Runs a command with a time limit in seconds, its output in a file. Returns exit code (None: it did not end), seconds, output."""
    started = time.monotonic()
    with open(log, "w+", encoding="utf-8", errors="replace") as file:
        try:
            process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
                                       env={**os.environ, **(environment or {})})
        except OSError as error:
            return 127, 0.0, str(error)
        try:
            code = process.wait(timeout=max(seconds, 1))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = None
        file.seek(0)
        return code, time.monotonic() - started, file.read()


# ---- machine --------------------------------------------------------------------------------------------------

CLOCKS = {"sm_mhz": "clocks.sm", "memory_mhz": "clocks.mem", "watts": "power.draw", "celsius": "temperature.gpu"}


def ask_gpu(fields):
    line = text_of(["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]).split("\n")[0]
    values = [value.strip() for value in line.split(",")]
    return values if len(values) == len(fields) else [""] * len(fields)


def machine():
    fields = {"GPU": "name", "driver": "driver_version", "memory, MiB": "memory.total", "most SM clock, MHz": "clocks.max.sm",
              "power limit, W": "power.limit"}
    found = dict(zip(fields, ask_gpu(list(fields.values()))))
    toolkit = re.search(r"release ([\d.]+)", text_of([tool("nvcc") or "nvcc", "--version"]))
    found["toolkit"] = toolkit[1] if toolkit else ""
    found["host"] = f"{os.cpu_count()} cores, {os.uname().release}"
    return found


def commit_of(programs):
    """The commit that the programs were built from; if none is recorded, the tree's."""
    try:
        with open(os.path.join(programs, "commit.txt"), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return text_of(["git", "describe", "--always", "--dirty"]) or "unknown"


class ClockWatch:
    """Reads the clocks every second while kernels are timed."""

    def __init__(self):
        self.found, self.ended = [], threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def watch(self):
        self.found.append(self.parse(ask_gpu(list(CLOCKS.values()))))
        while not self.ended.wait(1):
            self.found.append(self.parse(ask_gpu(list(CLOCKS.values()))))

    def stop(self):
        self.ended.set()
        self.thread.join()
        return [c for c in self.found if c]

    @staticmethod
    def parse(values):
        try:
            return dict(zip(CLOCKS, map(float, values), strict=True))
        except ValueError:
            return None


# ---- building -------------------------------------------------------------------------------------------------

def architecture():
    """The architecture to build for: that of the GPU here, or Hopper."""
    capability = ask_gpu(["compute_cap"])[0].replace(".", "")
    return f"{capability}-real" if capability.isdigit() else "90-real"


def has_libraries():
    """Can the whole program be built? One suite needs the engine."""
    names = ["check", "libmicrohttpd", "libuv", "libcjson", "libpcre2-8", "libutf8proc", "libxxhash", "yaml-0.1"]
    return bool(shutil.which("pkg-config")) and subprocess.run(["pkg-config", "--exists", *names], check=False).returncode == 0


def copy_libraries(programs):
    """Copies the libraries that programs need, except the system's own, beside them, so that the folder can be moved."""
    folder = os.path.join(programs, "lib")
    os.makedirs(folder, exist_ok=True)
    for program in glob.glob(os.path.join(programs, "gpu_*")):
        for name, path in re.findall(r"^\s*(\S+) => (/\S+)", text_of(["ldd", program]), re.M):
            if not re.match(r"lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so", name):
                shutil.copy(path, os.path.join(folder, name))


def build(seconds):
    """Returns the folder of programs, and a step."""
    only = "OFF" if has_libraries() else "ON"
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    compiler = [f"-DCMAKE_CUDA_COMPILER={tool('nvcc')}"] if tool("nvcc") else []
    started, log = time.monotonic(), os.path.join(LOGS, "build.log")
    code, _, said = run(["cmake", "-S", ".", "-B", BUILD, *generator, "-DCMAKE_BUILD_TYPE=Release",
                         f"-DPENSTOCK_KERNELS_ONLY={only}", "-DPENSTOCK_CUDA=ON",
                         "-DPENSTOCK_WERROR=OFF",  # warnings of another compiler must not cost the figures
                         f"-DCMAKE_CUDA_ARCHITECTURES={architecture()}", *compiler], seconds, log)
    if code == 0:
        left = seconds - (time.monotonic() - started)
        command = ["cmake", "--build", BUILD, "--parallel", os.environ.get("JOBS", str(os.cpu_count())), "--target"]
        # build everything that can be built, even if a part fails
        code, _, said = run([*command, "gpu_programs", "--"] + (["-k", "0"] if generator else ["-k"]), left, log)
    programs = os.path.join(ROOT, BUILD, "gpu")
    if os.path.isdir(programs):
        copy_libraries(programs)
        with open(os.path.join(programs, "commit.txt"), "w", encoding="utf-8") as file:
            file.write(text_of(["git", "describe", "--always", "--dirty"]) + "\n")
    result = "done" if code == 0 else "failed"
    return programs, {"name": "build", "result": result, "seconds": time.monotonic() - started, "output": said[-TAIL:]}


def libraries(programs):
    """Where cuBLAS may be: in this Python's packages, which need their own, or in the toolkit."""
    packages = sorted(glob.glob(os.path.join(sysconfig.get_path("purelib"), "nvidia", "*", "lib")))
    toolkit = ["/usr/local/cuda/lib64", "/usr/local/cuda/lib"]
    paths = [os.path.join(programs, "lib"), os.environ.get("LD_LIBRARY_PATH", ""), *packages, *toolkit]
    return {"LD_LIBRARY_PATH": ":".join(p for p in paths if p), "CK_FORK": "no"}


# ---- correctness ----------------------------------------------------------------------------------------------

def tests_of(programs):
    """Returns the suites, quick ones first, so that the sanitizer reaches most of them."""
    slow = ["engine", "engine_graphs", "engine_sampling", "gemm", "sample", "attention_bits", "attention"]
    found = [p for p in glob.glob(os.path.join(programs, "gpu_*"))
             if os.access(p, os.X_OK) and not p.endswith(("gpu_times", "gpu_serve", "gpu_peer"))]
    rank = {f"gpu_{name}": i for i, name in enumerate(reversed(slow), 1)}
    return sorted(found, key=lambda p: (rank.get(os.path.basename(p), 0), p))


def check_suite(program, deadline):
    name = os.path.basename(program)
    code, seconds, said = run([program], min(SUITE_S, deadline - time.monotonic()), os.path.join(LOGS, name + ".log"),
                              libraries(os.path.dirname(program)))
    checks = re.search(r"Checks: (\d+), Failures: (\d+)", said)
    result = "passed" if code == 0 else "no end" if code is None else f"exit {code}"
    return {"name": name, "result": result, "seconds": seconds, "checks": int(checks[1]) if checks else "",
            "output": said[-TAIL:]}


def judge_sanitizer(code, said):
    """Returns the findings of a run of compute-sanitizer."""
    if re.search(r"Device not supported|No attachable process|not supported on this|Failed to initialize", said):
        return "does not work here"
    errors = len(re.findall(r"^=+ (?:Invalid|Error: |Race|Warning: Race|Uninitialized|Barrier)", said, re.M))
    summary = re.search(r"(?:ERROR SUMMARY: |RACECHECK SUMMARY: )(\d+)", said)
    if errors or (summary and int(summary[1])):
        return f"{max(errors, int(summary[1]) if summary else 0)} errors"
    return "not finished" if code is None else "clean" if summary and code == 0 else f"exit {code}"


def check_sanitized(sanitizer, kind, program, deadline):
    name = os.path.basename(program)
    left = deadline - time.monotonic()
    if left < LEAST_S:
        return {"name": f"{name}, {kind}", "result": "no time", "seconds": 0.0, "output": ""}
    # A request that a test expects to fail, such as too much memory, is not a kernel's error.
    options = ["--report-api-errors", "no"] if kind == "memcheck" else []
    code, seconds, said = run([sanitizer, "--tool", kind, "--error-exitcode", "66", "--print-limit", "10", *options, program], left,
                              os.path.join(LOGS, f"{name}.{kind}.log"), libraries(os.path.dirname(program)))
    return {"name": f"{name}, {kind}", "result": judge_sanitizer(code, said), "seconds": seconds, "output": said[-TAIL:]}


def in_parallel(jobs):
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as workers:
        return list(workers.map(lambda job: job(), jobs))


def step_of(name, started, found, good):
    bad = [r["name"] for r in found if r["result"] not in good]
    result = "failed" if bad or not found else "done"
    return {"name": name, "result": result, "seconds": time.monotonic() - started, "output": ", ".join(bad)}


def correctness(report, programs, seconds):
    started, tests = time.monotonic(), tests_of(programs)
    report["suites"] = in_parallel([lambda p=p: check_suite(p, started + 0.5 * seconds) for p in tests])
    report["steps"].append(step_of("suites", started, report["suites"], ("passed",)))
    sanitizer = tool("compute-sanitizer")
    if not sanitizer:
        report["steps"].append({"name": "compute-sanitizer", "result": "not installed", "seconds": 0.0})
        return
    # The engine's suites add nothing to those of its kernels here, and take minutes.
    tests = [p for p in tests if not re.search("gpu_(engine.*|gemm_cublas)$", p)]
    begun = time.monotonic()
    last = started + seconds
    kinds = (("memcheck", begun + (last - begun) / 2), ("racecheck", last))
    report["sanitizer"] = in_parallel([lambda k=k, p=p, d=d: check_sanitized(sanitizer, k, p, d)
                                       for k, d in kinds for p in tests])
    good = ("clean", "not finished", "no time", "does not work here")
    report["steps"].append(step_of("compute-sanitizer", begun, report["sanitizer"], good))


# ---- kernels --------------------------------------------------------------------------------------------------

def read_points(path):
    """The points of a part; an incomplete line, from a crash, is left out."""
    points = []
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                try:
                    points.append(json.loads(line))
                except ValueError:
                    pass
    except OSError:
        pass
    return points


def time_part(report, programs, part, seconds):
    path = os.path.join(LOGS, f"{part}.jsonl")
    code, took, said = run([os.path.join(programs, "gpu_times"), part, path, f"{seconds:.0f}"], 1.25 * seconds + 15,
                           os.path.join(LOGS, f"{part}.log"), libraries(programs))
    found = read_points(path)
    for device in [p for p in found if "device" in p]:
        report["machine"] |= {"multiprocessors": device["multiprocessors"], "L2, MiB": device["l2_bytes"] >> 20,
                              "cuBLAS": "loaded" if device["cublas"] else "not found"}
    report["points"] += [p for p in found if "kernel" in p]
    result = {0: "done", 3: "done, with points left out"}.get(code, "failed")
    report["steps"].append({"name": part, "result": result, "seconds": took, "output": said[-TAIL:]})
    if said.strip():
        print(f"{part}: {said[-TAIL:].strip()}", flush=True)


def kernels(report, programs, seconds):
    watch = ClockWatch()
    end = time.monotonic() + seconds
    for i, (part, share) in enumerate(PARTS.items()):
        still = sum(list(PARTS.values())[i:])  # time that an earlier part did not use goes to the later ones
        time_part(report, programs, part, max((end - time.monotonic()) * share / still - 2, 2))
    report["clocks"] = watch.stop()


def first(report, programs, seconds):
    """Measures unknowns of the emulation: wgmma's descriptors and registers, its bits, its speed; the gain of one grid
    per step."""
    started = time.monotonic()
    suites = [os.path.join(programs, name) for name in ("gpu_ptx90", "gpu_chunks")]
    if all(os.access(suite, os.X_OK) for suite in suites):  # built for devices of capability 9.0 only
        report["suites"] = [check_suite(suite, started + 0.3 * seconds) for suite in suites]
        report["steps"].append(step_of("suites", started, report["suites"], ("passed",)))
    watch = ClockWatch()
    for part, share in (("limits", 0.25), ("wgmma", 0.45)):
        time_part(report, programs, part, share * seconds)
    serving.small(report, programs, 0.15 * seconds, sys.modules[__name__])
    report["clocks"] = watch.stop()


# ---- all ------------------------------------------------------------------------------------------------------

def write(report, out):
    with open(os.path.join(out, "report.json"), "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
    with open(os.path.join(out, "report.md"), "w", encoding="utf-8") as file:
        file.write(report_page.page(report))


def summary(report, out):
    for step in report["steps"]:
        print(f"{step['name']:20} {step['result']}, {step['seconds']:.0f} s"
              + (f": {step['output'][-300:].strip()}" if step["result"] == "failed" else ""))
    for line in [report_page.Limits(report["points"]).lines()] if report["points"] else []:
        print(line)
    print(f"{len(report['points'])} points in {report['seconds']:.0f} s; {os.path.join(out, 'report.md')}")


def measure(what, programs, out, started, total):
    """Runs the requested parts and writes the report after each. Returns the report."""
    report = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "commit": "",
              "machine": machine(), "steps": [], "points": [], "seconds": 0.0}
    if not programs:
        programs, step = build(total * (1.0 if what == "build" else BUILD_SHARE))
        report["steps"].append(step)
    report["commit"] = commit_of(programs)
    every = (("correctness", correctness), ("kernels", kernels), ("first", first),
             ("serve", lambda *rest: serving.serve(*rest, sys.modules[__name__])))
    parts = [p for p in every if p[0] == what or (what == "all" and p[0] in ("correctness", "kernels"))]
    for i, (_, part) in enumerate(parts):
        left = total - (time.monotonic() - started) - RESERVE_S
        part(report, programs, left * CORRECTNESS_SHARE if len(parts) - i == 2 else left)
        report["seconds"] = time.monotonic() - started
        write(report, out)
    report["seconds"] = time.monotonic() - started
    write(report, out)
    return report


def main():
    started = time.monotonic()
    what = (sys.argv[1:] or ["all"])[0]
    if what == "--self-test":
        return self_test()
    if what not in ("all", "correctness", "kernels", "first", "serve", "build"):
        print(__doc__)
        return 2
    out = os.path.abspath(os.environ.get("GPU_OUT") or os.path.join(ROOT, "build/gpu-report"))
    os.makedirs(out, exist_ok=True)
    os.makedirs(LOGS, exist_ok=True)
    programs = os.environ.get("GPU_PROGRAMS")
    total = float(os.environ.get("GPU_SECONDS", MAX_S if what != "build" else 3600))
    report = measure(what, os.path.abspath(programs) if programs else None, out, started, total)
    summary(report, out)
    return 1 if any(step["result"] == "failed" for step in report["steps"]) else 0


# ---- self-test ------------------------------------------------------------------------------------------------

SANITIZED = [
    (0, "========= ERROR SUMMARY: 0 errors\n", "clean"),
    (0, "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n", "clean"),
    (66, "========= Invalid __global__ write of size 4 bytes\n========= ERROR SUMMARY: 1 error\n", "1 errors"),
    (66, "========= Error: Race reported between Write access at a and Read access at b\n"
         "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n", "1 errors"),
    (None, "========= COMPUTE-SANITIZER\nfoo:0 passed", "not finished"),
    (None, "========= Invalid __shared__ read of size 4 bytes\n", "1 errors"),
    (1, "========= Error: Device not supported.\n", "does not work here"),
    (1, "foo:0 FAILED\n========= ERROR SUMMARY: 0 errors\n", "exit 1"),
]
PROGRAMS = {
    "nvidia-smi": "[ $2 = --format=csv,noheader,nounits ] && case $1 in *clocks.sm*) echo 1980, 3201, 210.5, 40 ;; "
                  "*) echo made up, 1.2, 100, 1980, 700 ;; esac",
    "compute-sanitizer": """tool=$2; shift 6; [ $tool = racecheck ] || shift 2; case $tool$1 in
                            memcheck*gpu_good) echo '========= ERROR SUMMARY: 0 errors' ;;
                            racecheck*gpu_good) echo '========= Error: Race reported'; exit 66 ;; *) exec $1 ;; esac""",
    "gpu_good": "echo 'good: Checks: 3, Failures: 0'",
    "gpu_bad": "echo 'bad.cpp:7:F: it broke'; echo 'bad: Checks: 2, Failures: 1'; exit 1",
    "gpu_hangs": "echo started; sleep 600",
    "gpu_crashes": "kill -SEGV $$",
    "gpu_serve": """echo '{"part": "'$1'", "id": "G1", "model": "m", "what": "one request decodes", "value": 250, "unit": "tok/s",
                    "us": 4000, "bytes": 1.4e10, "flops": 0, "note": ""}' | tr -d '\\n' >$2
                    case $1 in llama) echo >>$2; echo '{"id": "G2", "val' >>$2; kill -SEGV $$ ;; fp8) exit 3 ;; esac""",
    "gpu_peer": "echo 'gpu_peer: torch is missing'; exit 77",
    "gpu_times": """[ $1 != attention ] || { echo '{"part": "attention", "kern' >$2; kill -ABRT $$; }
                    echo '{"device": "made up", "multiprocessors": 132, "l2_bytes": 62914560, "cublas": 1}' >$2
                    case $1 in limits) echo '{"part": "limits", "kernel": "copy", "us": 1000, "min_us": 1, "max_us": 1,
                    "bytes": 4e9, "flops": 0}' | tr -d '\\n' >>$2 ;;
                    rows) echo '{"part": "rows", "kernel": "add", "model": "m", "rows": 1, "left_out": true}' >>$2; exit 3 ;;
                    esac""",
}


def lacking_checks():
    """The functions of Check that the suites for a device use and its stand-in lacks; no other test builds them."""
    def read(*path):
        with open(os.path.join(ROOT, "tests", *path), encoding="utf-8") as file:
            return file.read()
    not_there = re.findall(r'EXCLUDE REGEX "test_\(?([a-z_|]+)\)?"', read("cuda", "device", "CMakeLists.txt"))
    suites = [name for name in os.listdir(os.path.join(ROOT, "tests/cuda"))
              if re.match(r"test_\w+\.(c|cpp)$", name) and not re.match(f"test_({'|'.join(not_there)})", name)]
    asked = set(re.findall(r"\b((?:tcase|suite|srunner|ck)_\w+)\(", "".join(read("cuda", name) for name in suites)))
    there = set(re.findall(r"\w+", read("cuda", "device", "check.h") + read("support", "suite_main.h")))
    assert len(suites) > 15 and len(asked) > 10, (suites, asked)
    return sorted(asked - there)


def test_serving(folder, out):
    serving.PEER = [os.path.join(folder, "gpu_peer")]
    report = measure("serve", folder, out, time.monotonic(), 30)
    steps = {s["name"]: s["result"] for s in report["steps"]}
    assert steps == {"limits": "done", "serve, tokens": "done", "serve, small": "done", "serve, peers": "not here",
                     "serve, fp8": "done, with figures left out", "serve, llama": "failed"}, steps
    assert [f["part"] for f in report["served"]] == ["tokens", "small", "fp8", "llama"], report["served"]
    with open(os.path.join(out, "report.md"), encoding="utf-8") as file:
        text = file.read()
    for words in ("**Failed: serve, llama", "| 250 tok/s | reached | 88% of the bandwidth |", "None was measured"):
        assert words in text, text


def test_first(folder, out):
    report = measure("first", folder, out, time.monotonic(), 16)
    assert [s["name"] for s in report["steps"]] == ["limits", "wgmma", "serve, small"], report["steps"]
    assert [f["part"] for f in report["served"]] == ["small"], report["served"]


def self_test():
    global SUITE_S, LEAST_S, LOGS
    assert not lacking_checks(), lacking_checks()
    for code, said, wanted in SANITIZED:
        assert judge_sanitizer(code, said) == wanted, (said, judge_sanitizer(code, said))
    assert ClockWatch.parse(["1980", "3201", "210.5", "40"])["watts"] == 210.5
    assert ClockWatch.parse(["[N/A]", "1", "2", "3"]) is None and ClockWatch.parse([""] * 4) is None
    SUITE_S, LEAST_S = 1, 0.5
    with tempfile.TemporaryDirectory() as folder:
        for name, script in PROGRAMS.items():
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\n" + script + "\n")
            os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        out = LOGS = os.path.join(folder, "out")
        os.mkdir(out)
        os.environ["PATH"] = folder + ":" + os.environ["PATH"]
        report = measure("all", folder, out, time.monotonic(), 16)
        results = {r["name"]: r["result"] for r in report["suites"]}
        assert results == {"gpu_good": "passed", "gpu_bad": "exit 1", "gpu_hangs": "no end", "gpu_crashes": "exit -11"}, results
        steps = {s["name"]: s["result"] for s in report["steps"]}
        assert steps["suites"] == "failed" and steps["attention"] == "failed" and steps["products"] == "done", steps
        sanitized = {r["name"]: r["result"] for r in report["sanitizer"]}
        assert sanitized["gpu_good, memcheck"] == "clean" and sanitized["gpu_good, racecheck"] == "1 errors", sanitized
        assert sanitized["gpu_hangs, memcheck"] == "not finished" and steps["compute-sanitizer"] == "failed", sanitized
        assert report["machine"]["GPU"] == "made up" and report["machine"]["L2, MiB"] == 60, report["machine"]
        assert report["clocks"][0]["sm_mhz"] == 1980, report["machine"]
        assert steps["rows"] == "done, with points left out", steps
        assert [p["kernel"] for p in report["points"]] == ["copy", "add"], report["points"]
        with open(os.path.join(out, "report.md"), encoding="utf-8") as file:
            text = file.read()
        for words in ("**Failed: suites", "it broke", "a copy moves 4.00 TB/s", "left out"):
            assert words in text, text
        test_serving(folder, out)
        test_first(folder, out)
    print(f"gpu run: self-test of {len(SANITIZED)} findings and {len(PROGRAMS)} programs passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
