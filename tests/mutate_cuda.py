"""Compiles, links and runs mutants of the CUDA kernels under emulation; tests/mutate.py --kind cuda says which.

The units of mutate_rooms.CUDA that include the place are compiled with it, and linked into the test programs; the other
objects are those of the build folder, which must be up to date: `cmake --build build --target cuda_suites`. The plain
programs run with two seeds of the thread order; if they find nothing, the checked ones run with one. A mutant takes from
seconds to minutes.
"""
import os
import re
import shlex
import shutil
import subprocess
import threading

import mutate_build
import mutate_rooms
from mutate_build import BUILD, WORK, included, write

MAX_CPU_S = 300
PLACE = "kernels/cuda/"


def entry_of(path):
    """The units and the programs of a path."""
    return mutate_rooms.CUDA[mutate_rooms.longest(mutate_rooms.CUDA, path[len(PLACE):])]


def units_of(path):
    """The kernel files that are compiled anew: those of the table that include the path, and the path itself."""
    units, _ = entry_of(path)
    own = [path] if path.endswith(".cu") else []
    return own + [u for u in (f"{PLACE}{unit}.cu" for unit in units) if u != path and path in included(u)]


def programs_of(path):
    return [f"cuda_{name}" for name in entry_of(path)[1]]


class Builder:
    """Judges mutants of kernels. Threads may share one."""

    def __init__(self, _):
        self.commands, self.lock = {}, threading.Lock()

    def commands_of(self, program):
        """The commands that build a program, the link last."""
        with self.lock:
            if program not in self.commands:
                done = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", f"tests/cuda/{program}"], capture_output=True,
                                      text=True, check=True)
                self.commands[program] = done.stdout.strip().split("\n")
            return self.commands[program]

    def compile_unit(self, command, overlay, unit, out):
        """Compiles one kernel file with the overlay in front. Returns the object that it replaces, or None."""
        source = os.path.join(overlay, unit)
        if not os.path.exists(source):
            write(source, mutate_build.read(unit))
        words = shlex.split(command)
        words = words[words[0].endswith("ccache"):]
        old, words[words.index("-o") + 1] = words[words.index("-o") + 1], out
        if "-MF" in words:
            at = words.index("-MF")
            del words[at:at + 2]
        beside = os.path.join(mutate_build.ROOT, os.path.dirname(unit))
        command = [words[0], "-iquote", os.path.dirname(source), "-iquote", beside, "-I" + overlay, *words[1:-1], source]
        return None if subprocess.run(command, cwd=BUILD, capture_output=True).returncode else old

    def build(self, program, mutant, work):
        """Builds a test program with the mutant: True, False if that does not compile, None if it has none of the units."""
        commands, replaced = self.commands_of(program), 0
        link = commands[-1].replace(f"-o tests/cuda/{program} ", f"-o {work}/{program} ")
        overlay = os.path.join(work, "overlay")
        write(os.path.join(overlay, mutant.path), mutant.source())
        for i, unit in enumerate(units_of(mutant.path)):
            for j, command in enumerate(c for c in commands[:-1] if c.endswith(f"/{unit}")):
                out = os.path.join(work, f"{program}.{i}.{j}.o")
                old = self.compile_unit(command, overlay, unit, out)
                if not old:
                    return False
                replaced += f" {old} " in link
                link = link.replace(f" {old} ", f" {out} ")
        if not replaced:
            return None
        return subprocess.run(link, shell=True, cwd=BUILD, capture_output=True).returncode == 0

    def run(self, program, work, seed):
        """What a run says: "" if all is well."""
        done = mutate_build.run(os.path.join(work, program), MAX_CPU_S, {"CUDA_EMU_SEED": str(seed)})
        if not done:
            return "no end"
        kinds = sorted(set(re.findall(r"cuda_emu: ([a-z ]+[a-zA-Z]*):", done.stderr)))
        wrong = ["wrong result"] if re.search(r":[FE]:", done.stdout) else []
        return "" if done.returncode == 0 else ", ".join(kinds + wrong) or f"exit {done.returncode}"

    def judge(self, mutant, number):
        """("found", program), ("survived", "") or ("does not compile", "")."""
        work = os.path.join(WORK, str(number))
        os.makedirs(work, exist_ok=True)
        try:
            return self.judged(mutant, work)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def judged(self, mutant, work):
        n_built = 0
        for suffix, seeds in (("", (1, 2)), ("_checked", (1,))):
            for program in programs_of(mutant.path):
                built = self.build(program + suffix, mutant, work)
                if built is False:
                    return "does not compile", ""
                n_built += built is True
                for seed in seeds if built else ():
                    said = self.run(program + suffix, work, seed)
                    if said:
                        return "found", f"{program + suffix} [{said}]"
        return ("survived", "") if n_built else ("does not compile", "")
