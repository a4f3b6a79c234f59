"""Judges mutants by the tests of tests/e2e: mutate_build.py asks after the suites have found nothing.

The mutant's objects are linked into a server, and the test files that mutate_rooms.SERVED names for its source run against
that server until a test fails. A test file that fails without a mutant judges none. Python is that of .venv, or PYTHON from
the environment.
"""
import contextlib
import glob
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid

import mutate_rooms
from mutate_rooms import ROOT

PYTHON = os.environ.get("PYTHON", os.path.join(ROOT, ".venv", "bin", "python"))
PROGRAM = "penstock"
MARK = "MUTATE_RUN"  # in the environment of pytest and of all processes that its tests start
BOUND, LEAST_S, MAX_S = 4, 60, 600  # of a test file: times its seconds without a mutant
PASSED, FAILED = 0, 1  # exit codes of pytest


def need_python():
    """Ends the program if there is no Python for the tests."""
    if not shutil.which(PYTHON):
        sys.exit(f"tests/mutate_served.py: there is no Python at {PYTHON}, which runs tests/e2e; "
                 "run docker/venv.sh, or set PYTHON to one with the packages of tests/requirements.txt")


def run_command(command, max_s, **variables):
    """Returns the exit code of a command, FAILED if it took too long. Ends all processes that it has started."""
    mark = f"{MARK}={uuid.uuid4()}"
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                               env={**os.environ, **variables, MARK: mark.partition("=")[2]})
    try:
        return process.wait(max_s)
    except subprocess.TimeoutExpired:
        return FAILED
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        while end_marked(mark):
            time.sleep(0.01)


def end_marked(mark):
    """Kills the processes with a mark, also those in sessions of their own. Returns how many there were."""
    n = 0
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                if mark.encode() not in file.read().split(b"\0"):
                    continue
            os.kill(int(path.split("/")[2]), signal.SIGKILL)
            n += 1
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue  # another user's, or it has ended
    return n


def run(test, program, max_s):
    """Runs a test file with the program. Returns pytest's exit code, FAILED if it took too long."""
    command = [PYTHON, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-o",
               "asyncio_default_fixture_loop_scope=function", f"tests/e2e/test_{test}.py"]
    return run_command(command, max_s, PENSTOCK_BINARY=program)


class Served:
    """Threads may share one."""

    def __init__(self, build):
        self.build, self.allowed, self.lock = build, {}, threading.Lock()

    def allowed_for(self, test):
        """The seconds that a test file may take; 0 if it fails without a mutant."""
        with self.lock:
            if test not in self.allowed:
                begun = time.monotonic()
                code = run(test, os.path.join(self.build, PROGRAM), MAX_S)
                took = time.monotonic() - begun
                if code != PASSED:
                    print(f"note: tests/e2e/test_{test}.py fails without a mutant; it is left out", flush=True)
                self.allowed[test] = min(MAX_S, max(LEAST_S, BOUND * took)) if code == PASSED else 0
            return self.allowed[test]

    def finds(self, path, link):
        """The first test file that fails with a mutant of a source, or "". link() makes the program and returns its path."""
        program = None
        for test in mutate_rooms.served_of(path):
            allowed = self.allowed_for(test)
            program = program or (allowed and link())
            if allowed and program and run(test, program, allowed) == FAILED:
                return test
        return ""
