"""Plants bugs in the C sources, one at a time, and shows that the unit suites find them.

    tests/mutate.py                   every mutant of every subject
    tests/mutate.py text http         those of some subjects
    tests/mutate.py text:3 text:9     single ones
    tests/mutate.py --survivors       only those that are expected to survive
    tests/mutate.py --check           only looks that every mutant's place is still there; takes no time
    tests/mutate.py --kind cuda ...   the same for the CUDA kernels: tests/cuda_mutate.py

A mutant is an edit of one place of a source file. The tables are tests/mutants/SUBJECT.py:

    SUITES       {folder or file: suites}: which suites find the mutants of these sources, quick and likely ones first; the
                 longest entry that fits a file counts. Suites are named without test_, as in "text_lexer"; one test case
                 of a suite as in "text_tokenizer:core".
    ENVIRONMENT  {name: value} for the suites; may be left out
    MUTANTS      file, what stands there (once), what replaces it; and, if no test can find it, the reason

Only the mutant's object is compiled, by the file's command in compile_commands.json but without optimisation, and linked
before the libraries of the build folder (build, or BUILD from the environment) into one suite after another, until one
fails. The build folder must be up to date (`cmake --build build --target suites`). A mutant of a header is compiled into
every .c file of the folders in SUITES that includes it. Two mutants (or JOBS) are judged at a time, each run within a
bounded time of the processor. A mutant that all suites let pass has survived, which the table must expect and give the reason for.

A mutant takes about three seconds, so this is no part of `make test`, but --check is.
"""
import argparse
import concurrent.futures
import importlib.util
import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TABLES = os.path.join(ROOT, "tests/mutants")
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
WORK = os.environ.get("WORK", os.path.join(BUILD, "mutants", str(os.getpid())))
MAX_CPU_S, MAX_S = 60, 150  # of the processor's time first, so that a busy machine judges as an idle one does
MIN_SHARE = 0.95
AT_A_TIME = int(os.environ.get("JOBS", "2"))


def read(path):
    """A file of the tree; "" if it is gone, so that what is looked for in it is missed."""
    if not os.path.exists(os.path.join(ROOT, path)):
        return ""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def one_line(text):
    return " ".join(text.split())[:60]


# ---- tables ---------------------------------------------------------------------------------------------------

class Mutant:
    """One edit. `reason` says why no test can find it; None: one must."""

    def __init__(self, table, path, at, old, new, reason):
        self.table, self.path, self.at, self.old, self.new, self.reason = table, path, at, old, new, reason

    def text(self):
        line = read(self.path).count("\n", 0, self.at) + 1
        return f"{self.path}:{line}: {one_line(self.old)} -> {one_line(self.new) or '(nothing)'}"

    def source(self):
        source = read(self.path)
        return source[:self.at] + self.new + source[self.at + len(self.old):]

    def write(self, folder):
        """Writes the mutated file alone, into a tree that is searched first. Returns its path."""
        path = os.path.join(folder, self.path)
        subprocess.run(["rm", "-rf", folder], check=True)
        os.makedirs(os.path.dirname(path))
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.source())
        return path


def module_of(folder, subject):
    """The table of a subject, as Python reads it."""
    spec = importlib.util.spec_from_file_location(subject, os.path.join(folder, f"{subject}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Table:
    """One subject's mutants, and what is wrong with them."""

    def __init__(self, subject):
        self.subject, self.mutants, self.findings = subject, [], []

    def plant(self, path, old, new, reason):
        source = read(path)
        if source.count(old) == 1 and old != new:
            self.mutants.append(Mutant(self, path, source.index(old), old, new, reason))
        else:
            self.findings.append(f"{path}: {source.count(old)} places hold {old!r}; a mutant needs one")


class SuiteTable(Table):
    """A table of tests/mutants."""

    def __init__(self, subject):
        super().__init__(subject)
        module = module_of(TABLES, subject)
        self.suites = module.SUITES
        self.environment = getattr(module, "ENVIRONMENT", {})
        for path, old, new, *reason in module.MUTANTS:
            self.plant(path, old, new, reason[0] if reason else None)
            if not self.suites_of(path):
                self.findings.append(f"{subject}: no suite is named for {path}")
        for suites in self.suites.values():
            for suite in suites:
                folder, _, name = suite.partition(":")[0].partition("_")
                if not read(f"tests/{folder}/test_{name}.c"):
                    self.findings.append(f"{subject}: there is no suite {suite}")

    def suites_of(self, path):
        fitting = [place for place in self.suites if path.startswith(place)]
        return self.suites[max(fitting, key=len)] if fitting else []

    def units_of(self, path):
        """The .c files that are compiled anew when this file changes."""
        if path.endswith(".c"):
            return [path]
        units = []
        for place in self.suites:
            for folder, _, names in os.walk(os.path.join(ROOT, place)):
                units += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names if name.endswith(".c")]
        return sorted(unit for unit in set(units) if path in included(unit, set(), ""))


def included(path, seen, only):
    """The file, and all files under `only` that it includes by their names from the root or from its own folder."""
    if path not in seen:
        seen.add(path)
        for name in re.findall(r'^#include "([^"]+)"', read(path), re.M):
            for target in (name, os.path.join(os.path.dirname(path), name)):
                if target.startswith(only) and read(target):
                    included(target, seen, only)
                    break
    return seen


def subjects(folder):
    return sorted(name[:-3] for name in os.listdir(folder) if name.endswith(".py"))


def chosen(arguments, folder, table_of):
    """What the arguments name, as (name, mutant); ends the process if a table does not fit the sources."""
    mutants, findings = [], []
    for argument in arguments or subjects(folder):
        subject, _, number = argument.partition(":")
        if subject not in subjects(folder):
            sys.exit(f"there is no subject {subject}; the subjects are {', '.join(subjects(folder))}")
        table = table_of(subject)
        findings += table.findings
        mutants += [(f"{subject}:{i}", m) for i, m in enumerate(table.mutants) if not number or int(number) == i]
    for finding in findings:
        print(finding)
    if findings:
        sys.exit(f"{len(findings)} mutants do not fit the sources")
    return mutants


def print_check(mutants, folder):
    expected = sum(m.reason is not None for _, m in mutants)
    print(f"{len(mutants)} mutants of {len(subjects(folder))} subjects fit the sources; {expected} are expected to survive")


# ---- building -------------------------------------------------------------------------------------------------

def link_command(program):
    """The command that links a program of the build folder."""
    done = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", "-s", program], capture_output=True, text=True, check=True)
    return done.stdout.strip().split("\n")[-1]


def compile_commands():
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        return {os.path.relpath(entry["file"], ROOT): entry for entry in json.load(file)}


class Builder:
    """Compiles and links mutants."""

    def __init__(self):
        self.compiles = compile_commands()
        self.links = {}

    def link_of(self, program):
        if program not in self.links:
            self.links[program] = link_command(program)
        return self.links[program]

    def compile(self, mutant, work):
        """The objects of the units that hold the mutant, or None if they do not compile."""
        path = mutant.write(os.path.join(work, "overlay"))
        objects = []
        for unit in mutant.table.units_of(mutant.path):
            words = shlex.split(self.compiles[unit]["command"])
            words = words[words[0].endswith("ccache"):]
            words[words.index("-o") + 1] = os.path.join(work, f"{len(objects)}.o")
            objects.append(words[words.index("-o") + 1])
            if unit == mutant.path:
                words[-1] = path
            command = [words[0], "-I" + os.path.join(work, "overlay"), *words[1:-1], "-O1", "-g0", "-w", words[-1]]
            done = subprocess.run(command, cwd=BUILD, capture_output=True, text=True)
            if done.returncode:
                print(done.stderr, end="")
                return None
        return objects

    def link(self, program, objects, work):
        command = self.link_of(program).replace(f" -o {program} ", f" {' '.join(objects)} -o {work}/{program} ")
        return subprocess.run(command, shell=True, cwd=BUILD, capture_output=True).returncode == 0


# ---- judging --------------------------------------------------------------------------------------------------

def run(program, work, max_cpu_s=MAX_CPU_S, max_s=MAX_S, environment=()):
    """Runs a linked suite from the root of the tree. Returns None if it took too long, else what came of it."""
    try:
        done = subprocess.run([os.path.join(work, program)], cwd=ROOT, capture_output=True, text=True, timeout=max_s,
                              errors="replace", env={**os.environ, "CK_FORK": "no", **dict(environment)},
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (max_cpu_s, max_cpu_s)))
    except subprocess.TimeoutExpired:
        return None
    return None if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL) else done


def judge(builder, number, mutant):
    """Who finds it, "" if nobody does; None if it does not compile."""
    work = os.path.join(WORK, str(number))
    objects = builder.compile(mutant, work)
    if not objects:
        return None
    for suite in mutant.table.suites_of(mutant.path):
        program, _, case = f"test_{suite}".partition(":")
        if not builder.link(program, objects, work):
            return None
        environment = {**mutant.table.environment, **({"CK_RUN_CASE": case} if case else {})}
        done = run(program, work, environment=environment)
        os.remove(os.path.join(work, program))
        if not done:
            return f"{suite} [no end]"
        if done.returncode:
            return f"{suite} [{'aborted' if done.returncode < 0 else 'failed'}]"
    return ""


def verdict(name, mutant, found):
    """One mutant's line, and whether it is as the table says."""
    said = "DOES NOT COMPILE" if found is None else found or "SURVIVED"
    print(f"{name:16} {mutant.text()}\n    {said}{': ' + mutant.reason if mutant.reason else ''}", flush=True)
    return found is not None and bool(found) != bool(mutant.reason)


def judge_all(mutants):
    """Returns how many were found, and how many are not as the table says."""
    builder, n_found, n_bad = Builder(), 0, 0
    for mutant in {m.table.subject: m for _, m in mutants}.values():
        for suites in mutant.table.suites.values():
            for suite in suites:
                builder.link_of(f"test_{suite.partition(':')[0]}")
    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        found = pool.map(lambda i: judge(builder, i, mutants[i][1]), range(len(mutants)))
        for (name, mutant), one in zip(mutants, found):
            n_found += bool(one)
            n_bad += not verdict(name, mutant, one)
    subprocess.run(["rm", "-rf", WORK], check=True)
    return n_found, n_bad


def arguments_of(doc):
    """A parser with what both programs take."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mutants", nargs="*", metavar="SUBJECT[:NUMBER]", help="default: all of every subject")
    parser.add_argument("--check", action="store_true", help="only look that the place of each is still there")
    return parser


def main():
    if sys.argv[1:3] == ["--kind", "cuda"]:
        return subprocess.run([sys.executable, os.path.join(ROOT, "tests/cuda_mutate.py"), *sys.argv[3:]]).returncode
    parser = arguments_of(__doc__)
    parser.add_argument("--survivors", action="store_true", help="only those that are expected to survive")
    parser.add_argument("--kind", choices=["cuda"], help="as the first argument: tests/cuda_mutate.py with the others")
    options = parser.parse_args()
    if options.kind:
        parser.error("--kind cuda must be the first argument")
    mutants = chosen(options.mutants, TABLES, SuiteTable)  # all are looked up before the first is made
    if options.check:
        print_check(mutants, TABLES)
        return 0
    if options.survivors:
        mutants = [(name, mutant) for name, mutant in mutants if mutant.reason]
    found, bad = judge_all(mutants)
    total = len(mutants)
    print(f"{total} mutants: {found} found ({found / max(total, 1):.0%}); {total - found} survived, {bad} not as the table says")
    return 1 if bad or (found < MIN_SHARE * total and not options.survivors) else 0


if __name__ == "__main__":
    sys.exit(main())
