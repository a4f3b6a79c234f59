"""Plants bugs in the CUDA kernels, one at a time, and shows that the tests under emulation find them.

    tests/cuda_mutate.py              every mutant
    tests/cuda_mutate.py rows kv      those of some subjects
    tests/cuda_mutate.py rows:3       one
    tests/cuda_mutate.py --check      only looks that every mutant's place is still there; takes no time

A mutant is an edit of one place of a source file. The tables are tests/cuda/mutants/SUBJECT.py:

    UNITS     kernel files, without .cu, that the subject's test programs are about
    PROGRAMS  the test programs, without cuda_; without this, the subject itself
    DROPS     files whose synchronisation is dropped, call by call
    MUTANTS   file, what stands there (once), what is put in its place; and where it cannot be found, why
    DROPPED   why a dropped call cannot be found: {(file, number among the file's): why}

The units that include the place are compiled with it, and linked into the test programs; the others' objects are those of
the build folder (build, or BUILD from the environment), which must be up to date (`cmake --build build --target
cuda_suites`). The plain programs run with two seeds of the thread order; where they find nothing, the checked ones run with
one. A mutant that every run lets pass has survived, which the table must expect and give the reason for. Each takes from
seconds to a minute, so this is no part of `make test`, but --check is; it is run when kernels or their tests change.
"""
import os
import re
import shlex
import subprocess
import sys

import mutate
from mutate import BUILD, ROOT, read

TABLES = os.path.join(ROOT, "tests/cuda/mutants")
WORK = os.environ.get("WORK", os.path.join(BUILD, "mutate"))
MAX_CPU_S, MAX_S = 300, 3600
MIN_SHARE = 0.85
K = "kernels/cuda/"

SYNC = re.compile(r"__syncthreads\(\);|__syncwarp\(\);|__threadfence\(\);|cp_async_wait<[^;]*>\(\);|cp_async_commit\(\);")


# ---- tables ---------------------------------------------------------------------------------------------------

class Table(mutate.Table):
    """A table of tests/cuda/mutants."""

    def __init__(self, subject):
        super().__init__(subject)
        module = mutate.module_of(TABLES, subject)
        self.units = module.UNITS
        self.programs = [f"cuda_{name}" for name in getattr(module, "PROGRAMS", [subject])]
        self.drop(getattr(module, "DROPS", []), dict(getattr(module, "DROPPED", {})))
        for name, old, new, *reason in module.MUTANTS:
            self.plant(K + name, old, new, reason[0] if reason else None)
        self.findings += [f"{K}{unit}.cu, a unit of {subject}, is gone" for unit in self.units if not read(f"{K}{unit}.cu")]
        for mutant in self.mutants:
            if not self.units_with(mutant.path):
                self.findings.append(f"{subject}: none of the units includes {mutant.path}")

    def drop(self, names, reasons):
        for name in names:
            for number, match in enumerate(SYNC.finditer(read(K + name))):
                reason = reasons.pop((name, number), None)
                self.mutants.append(mutate.Mutant(self, K + name, match.start(), match[0], ";", reason))
        self.findings += [f"{name} has no call {number} to drop" for name, number in reasons]

    def units_with(self, path):
        return [unit for unit in self.units if path in mutate.included(f"{K}{unit}.cu", set(), K)]


# ---- building -------------------------------------------------------------------------------------------------

def commands_of(program):
    """The commands that build a program, the link last."""
    done = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", program], capture_output=True, text=True, check=True)
    return done.stdout.strip().split("\n")


def compile_unit(command, unit, mutant, path):
    """Compiles one kernel file with the mutant. Returns the object that it replaces and the new one, or None."""
    words = shlex.split(command)
    words = words[words[0].endswith("ccache"):]
    out = words.index("-o") + 1
    old, new = words[out], os.path.join(WORK, f"{unit}.o")
    os.makedirs(os.path.dirname(new), exist_ok=True)
    words[out] = new
    if mutant.path == f"{K}{unit}.cu":
        words[-1] = path
    at = words.index("-MF")
    del words[at:at + 2]
    done = subprocess.run([words[0], "-I" + os.path.join(WORK, "overlay"), *words[1:]], cwd=BUILD, capture_output=True, text=True)
    print(done.stderr, end="")
    return None if done.returncode else (old, new)


def build(program, mutant, path):
    """Builds a test program with the mutant; False where that does not compile."""
    commands = commands_of(program)
    link = commands[-1].replace(f"-o tests/cuda/{program} ", f"-o {WORK}/{program} ")
    for unit in mutant.table.units_with(mutant.path):
        command = next(c for c in commands if c.endswith(f"/{K}{unit}.cu"))
        objects = compile_unit(command, unit, mutant, path)
        if not objects:
            return False
        link = link.replace(f" {objects[0]} ", f" {objects[1]} ")
    return subprocess.run(link, shell=True, cwd=BUILD).returncode == 0


# ---- judging --------------------------------------------------------------------------------------------------

def run(program, seed):
    """What a run says: "" when all is well."""
    done = mutate.run(program, WORK, MAX_CPU_S, MAX_S, {"CUDA_EMU_SEED": str(seed)})
    if not done:
        return "no end"
    kinds = sorted(set(re.findall(r"cuda_emu: ([a-z ]+[a-zA-Z]*):", done.stderr)))
    wrong = ["wrong result"] if re.search(r":[FE]:", done.stdout) else []
    return "" if done.returncode == 0 else ", ".join(kinds + wrong) or f"exit {done.returncode}"


def found_by(mutant, path, suffix, seeds):
    """What the programs of one kind say; None where they do not compile."""
    for program in mutant.table.programs:
        if not build(program + suffix, mutant, path):
            return None
        for seed in seeds:
            said = run(program + suffix, seed)
            if said:
                return said
    return ""


def judge(mutant):
    """Who finds it: ("plain", what it says), ("checked", ...), ("", ""); None where it does not compile."""
    path = mutant.write(os.path.join(WORK, "overlay"))
    for kind, suffix, seeds in (("plain", "", (1, 2)), ("checked", "_checked", (1,))):
        said = found_by(mutant, path, suffix, seeds)
        if said is None:
            return None
        if said:
            return kind, said
    return "", ""


def judge_all(mutants):
    """Returns how many were found by which kind of build, and how many are not as the table says."""
    found, bad = {"plain": 0, "checked": 0, "": 0}, 0
    for name, mutant in mutants:
        kind, said = judge(mutant) or ("", None)
        if said is None:
            verdict = "DOES NOT COMPILE"
            bad += 1
        else:
            found[kind] += 1
            bad += bool(kind) == bool(mutant.reason)
            verdict = f"{kind} [{said}]" if kind else "SURVIVED"
        print(f"{name:22} {mutant.text()}\n    {verdict}{': ' + mutant.reason if mutant.reason else ''}", flush=True)
    return found, bad


def main():
    options = mutate.arguments_of(__doc__).parse_args()
    mutants = mutate.chosen(options.mutants, TABLES, Table)  # all are looked up before the first is made
    if options.check:
        mutate.print_check(mutants, TABLES)
        return 0
    found, bad = judge_all(mutants)
    total, caught = len(mutants), found["plain"] + found["checked"]
    print(f"{total} mutants: {caught} found ({caught / max(total, 1):.0%}), {found['plain']} of them by the plain build; "
          f"{total - caught} survived, {bad} not as the table says")
    return 1 if bad or caught < MIN_SHARE * total else 0


if __name__ == "__main__":
    sys.exit(main())
