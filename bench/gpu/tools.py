"""Processes under one deadline, the machine, and the report on disk: what all parts of bench/gpu.sh share."""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sysconfig
import threading
import time

import report as report_page

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAIL = 1500  # characters of a program's output in the report
ASK_S, KILL_S = 5, 3  # limits of a question to nvidia-smi, and of the wait for a killed process


class Deadline:
    """The moment at which everything must have ended. A part's deadline is never later than that of the whole."""

    def __init__(self, seconds, whole=None):
        self.end = time.monotonic() + max(seconds, 0)
        if whole:
            self.end = min(self.end, whole.end)

    def left(self):
        return self.end - time.monotonic()

    def part(self, share):
        """The deadline of a part that gets this share of the remaining time."""
        return Deadline(self.left() * share, self)


# ---- processes ------------------------------------------------------------------------------------------------

def text_of(command, seconds=ASK_S):
    """What a program prints, or "" if it cannot be run or does not end."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, errors="replace", check=False)
        return done.stdout.strip() if done.returncode == 0 else ""
    except (OSError, subprocess.TimeoutExpired):
        return ""


def tool(name):
    """The path of a program of the toolkit, or None."""
    places = [os.path.join(folder, name) for folder in ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer")]
    return shutil.which(name) or next((p for p in places if os.access(p, os.X_OK)), None)


def kill(process):
    """Kills a process and its children. A process that is stuck in the driver is left alone after KILL_S."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=KILL_S)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass


def wait(process, deadline, stalled):
    """The exit code; None if the deadline has passed or stalled() says that nothing happens any more."""
    while deadline.left() > 0 and not stalled():
        try:
            return process.wait(timeout=min(0.2, max(deadline.left(), 0.01)))
        except subprocess.TimeoutExpired:
            continue
    return process.poll()


def run(command, deadline, log, environment=None, stalled=lambda: False):
    """Runs a command until a deadline, its output in a file. Returns exit code (None: it was killed), seconds, output."""
    started = time.monotonic()
    if deadline.left() <= 0:
        return None, 0.0, "the time was up before it began"
    with open(log, "w+", encoding="utf-8", errors="replace") as file:
        try:
            process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
                                       env={**os.environ, **(environment or {})})
        except OSError as error:
            return 127, 0.0, str(error)
        code = wait(process, deadline, stalled)
        if code is None:
            kill(process)
        file.seek(0)
        return code, time.monotonic() - started, file.read()


def libraries(programs):
    """Where cuBLAS may be: in this Python's packages, which need their own, or in the toolkit."""
    packages = sorted(glob.glob(os.path.join(sysconfig.get_path("purelib"), "nvidia", "*", "lib")))
    toolkit = ["/usr/local/cuda/lib64", "/usr/local/cuda/lib"]
    paths = [os.path.join(programs, "lib"), os.environ.get("LD_LIBRARY_PATH", ""), *packages, *toolkit]
    return {"LD_LIBRARY_PATH": ":".join(p for p in paths if p), "CK_FORK": "no"}


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


class ClockWatch:
    """Reads the clocks every second while kernels are timed. A GPU that does not answer delays nothing."""

    def __init__(self):
        self.found, self.ended = [], threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        self.found.append(self.parse(ask_gpu(list(CLOCKS.values()))))
        while not self.ended.wait(1):
            self.found.append(self.parse(ask_gpu(list(CLOCKS.values()))))

    def stop(self):
        self.ended.set()
        self.thread.join(timeout=0.5)
        return [c for c in list(self.found) if c]

    @staticmethod
    def parse(values):
        try:
            return dict(zip(CLOCKS, map(float, values), strict=True))
        except ValueError:
            return None


# ---- the report -----------------------------------------------------------------------------------------------

class Report(dict):
    """The results so far, as report.json and report.md in `out`. Both are written after each addition, so that they survive
    whatever ends this script. Logs are in `out`/logs."""

    def __init__(self, out, started, **fields):
        super().__init__(steps=[], points=[], seconds=0.0, **fields)
        self.out, self.logs, self.started = out, os.path.join(out, "logs"), started
        self.lock = threading.Lock()
        os.makedirs(self.logs, exist_ok=True)

    def log(self, name):
        return os.path.join(self.logs, name)

    def add(self, key, found):
        with self.lock:
            self[key] = self.get(key, []) + list(found)
            self.save()

    def step(self, name, result, seconds, output=""):
        self.add("steps", [{"name": name, "result": result, "seconds": seconds, "output": output[-TAIL:]}])

    def save(self):
        self["seconds"] = time.monotonic() - self.started
        self.replace("report.json", json.dumps(self, indent=1))
        try:
            text = report_page.page(self)
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:  # figures that nobody foresaw must not cost the others
            text = f"# The page cannot be made of report.json\n\n{type(error).__name__}: {error}\n"
        self.replace("report.md", text)

    def replace(self, name, text):
        """A reader never sees half a file."""
        path = os.path.join(self.out, name)
        with open(path + ".part", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(path + ".part", path)
