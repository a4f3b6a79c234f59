"""Compiles, links and runs mutants; tests/mutate.py says which.

Only the mutant's object is compiled, by the file's command in compile_commands.json but with little optimisation, and linked
before the libraries of the build folder (build, or BUILD from the environment) into one suite after another, until one fails.
The build folder must be up to date: `cmake --build build --target suites`. A header's mutant is compiled into the .c files
that include it: those of its folder, or all if none of those does. If the object equals the one without the mutant, the
mutant is the same program. Each run is bounded: BOUND times the processor time that the suite needs without a mutant. Tests
of whole servers judge what no suite has found (mutate_served.py).
"""
import functools
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import threading

import mutate_rooms
import mutate_served
from mutate_rooms import ROOT

BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
WORK = os.environ.get("WORK", os.path.join(BUILD, "mutants", str(os.getpid())))
BOUND, LEAST_CPU_S, MAX_CPU_S, MAX_S = 6, 5, 60, 300
QUICK_S = 3  # of the processor, for a suite that no table names for the file
MAX_MEMORY = 8 << 30
FLAGS = ["-O1", "-g0", "-w"]


def read(path):
    """A file of the tree; "" if it is gone."""
    if not os.path.exists(os.path.join(ROOT, path)):
        return ""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


@functools.lru_cache(maxsize=None)
def includes_of(path):
    """The files that a file includes, by their names from the root or from its own folder."""
    found = []
    for name in re.findall(r'^\s*#\s*include "([^"]+)"', read(path), re.M):
        beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
        found += [p for p in (name, beside) if os.path.exists(os.path.join(ROOT, p))][:1]
    return found


@functools.lru_cache(maxsize=None)
def included(path):
    """The file, and all files that it includes, directly or through others."""
    seen, todo = {path}, [path]
    while todo:
        fresh = set(includes_of(todo.pop())) - seen
        seen |= fresh
        todo += fresh
    return seen


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def run(program, max_cpu_s, environment):
    """Runs a program from the root of the tree. Returns None if it took too long, else the completed process."""
    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (max_cpu_s, max_cpu_s))
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        done = subprocess.run([program], cwd=ROOT, capture_output=True, text=True, timeout=max(MAX_S, 3 * max_cpu_s),
                              errors="replace", env={**os.environ, **mutate_rooms.ENVIRONMENT, "CK_FORK": "no", **environment},
                              preexec_fn=limit)
    except subprocess.TimeoutExpired:
        return None
    return None if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL) else done


class Builder:
    """Judges mutants of C. Threads may share one."""

    def __init__(self, names_of):
        """`names_of` returns the names of the functions that a file defines."""
        with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
            commands = [(os.path.relpath(entry["file"], ROOT), entry["command"]) for entry in json.load(file)]
        # a suite that counts work has its own copies of files, which link with nothing else
        self.compiles = {path: command for path, command in commands if "/counted_" not in command.split(" -o ")[1].split()[0]}
        self.names_of, self.served = names_of, mutate_served.Served(BUILD)
        self.links, self.plain, self.allowed, self.lock = {}, {}, {}, threading.Lock()

    # ---- objects

    def units_of(self, path):
        """The .c files that are compiled anew when this file changes."""
        if path in self.compiles:
            return [path]
        units = [unit for unit in self.compiles if path in included(unit) and not unit.startswith(("tests/", "bench/gpu/"))]
        near = [unit for unit in units if unit.startswith(os.path.dirname(path) + "/")]
        return near or units

    def compile_unit(self, unit, overlay, out):
        """Compiles a unit with the files of an overlay in front of the tree's. Returns whether that worked."""
        source = os.path.join(overlay, unit)
        if not os.path.exists(source):
            write(source, read(unit))
        words = shlex.split(self.compiles[unit])
        words = words[words[0].endswith("ccache"):]
        words[words.index("-o") + 1] = out
        beside = os.path.join(ROOT, os.path.dirname(unit))
        command = [words[0], "-iquote", os.path.dirname(source), "-iquote", beside, "-I" + overlay, *words[1:-1], *FLAGS,
                   f"-fmacro-prefix-map={overlay}=.", source]
        return subprocess.run(command, cwd=BUILD, capture_output=True).returncode == 0

    def plain_object(self, unit):
        """The bytes of the unit's object without a mutant."""
        with self.lock:
            if unit not in self.plain:
                folder = os.path.join(WORK, "plain")
                shutil.rmtree(folder, ignore_errors=True)
                os.makedirs(folder)
                out = os.path.join(folder, "plain.o")
                if not self.compile_unit(unit, os.path.join(folder, "overlay"), out):
                    raise RuntimeError(f"{unit} does not compile; is {BUILD} up to date?")
                with open(out, "rb") as file:
                    self.plain[unit] = file.read()
            return self.plain[unit]

    def compile(self, mutant, work):
        """The objects that differ because of the mutant: [] if none does, None if one does not compile."""
        overlay, objects = os.path.join(work, "overlay"), []
        write(os.path.join(overlay, mutant.path), mutant.source())
        for i, unit in enumerate(self.units_of(mutant.path)):
            out = os.path.join(work, f"{i}.o")
            if not self.compile_unit(unit, overlay, out):
                return None
            with open(out, "rb") as file:
                if file.read() != self.plain_object(unit):
                    objects.append(out)
        return objects

    # ---- suites

    def link(self, program, objects, work):
        with self.lock:
            if program not in self.links:
                done = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", "-s", program], capture_output=True, text=True,
                                      check=True)
                self.links[program] = done.stdout.strip().split("\n")[-1]
        command = self.links[program].replace(f" -o {program} ", f" {' '.join(objects)} -o {work}/{program} ")
        return subprocess.run(command, shell=True, cwd=BUILD, capture_output=True).returncode == 0

    def allowed_for(self, suite, is_named):
        """The processor's seconds that a suite may take; 0 if it fails without a mutant, or takes too long for its place."""
        with self.lock:
            if (suite, is_named) not in self.allowed:
                self.allowed[suite, is_named] = self.measure(suite, MAX_CPU_S if is_named else QUICK_S, is_named)
            return self.allowed[suite, is_named]

    def measure(self, suite, max_cpu_s, is_named):
        """What allowed_for returns. Callers must hold the lock."""
        program, _, case = f"test_{suite}".partition(":")
        if not os.path.exists(os.path.join(BUILD, program)):
            print(f"note: {program} is not in {BUILD}; it is left out", flush=True)
            return 0
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = run(os.path.join(BUILD, program), max_cpu_s, {"CK_RUN_CASE": case} if case else {})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if done is not None and done.returncode == 0:
            return min(MAX_CPU_S, LEAST_CPU_S + int(BOUND * used))
        if done is not None or is_named:
            print(f"note: {program} fails without a mutant or takes too long; it is left out", flush=True)
        return 0

    def judge(self, mutant, number):
        """("found", suite), ("survived", ""), ("same", "") or ("does not compile", "")."""
        work = os.path.join(WORK, str(number))
        os.makedirs(work, exist_ok=True)
        try:
            return self.judged(mutant, work)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def judged(self, mutant, work):
        objects = self.compile(mutant, work)
        if not objects:
            return ("does not compile", "") if objects is None else ("same", "")
        named, calling = mutate_rooms.suites_of(mutant.path, self.names_of(mutant.path))
        for suite in named + calling:
            program, _, case = f"test_{suite}".partition(":")
            allowed = self.allowed_for(suite, suite in named)
            if not allowed:
                continue
            if not self.link(program, objects, work):
                print(f"note: {program} does not link with {mutant.key}; it is left out", flush=True)
                continue
            done = run(os.path.join(work, program), allowed, {"CK_RUN_CASE": case} if case else {})
            os.remove(os.path.join(work, program))
            if not done or done.returncode:
                how = "no end" if not done else "aborted" if done.returncode < 0 else "failed"
                return "found", f"{suite} [{how}]"
        test = self.served.finds(mutant.path, lambda: self.server(mutant, objects, work))
        return ("found", f"e2e {test}") if test else ("survived", "")

    def server(self, mutant, objects, work):
        """The path of the server with the mutant; "" if it does not link."""
        if self.link(mutate_served.PROGRAM, objects, work):
            return os.path.join(work, mutate_served.PROGRAM)
        print(f"note: {mutate_served.PROGRAM} does not link with {mutant.key}", flush=True)
        return ""
