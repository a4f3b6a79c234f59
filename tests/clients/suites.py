"""Suites of other projects, where they are: MaskBench, the JSON Schema Test Suite, and vLLM's tests of its parsers.

    build/schemas/venv/bin/python tests/clients/suites.py

pip fetches the JSON Schema Test Suite. The others are run if their folders exist; MASKBENCH and VLLM name other folders:

    git clone https://github.com/guidance-ai/jsonschemabench build/suites/jsonschemabench
    pip download --no-deps --no-binary vllm vllm==0.33.0     unpack it as build/suites/vllm

A suite fails if it gives another result than docs/structured-output.md and tests/clients/vllm_parsers.txt state: more wrong
results, or fewer schemas served.
"""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MASKBENCH = pathlib.Path(os.environ.get("MASKBENCH", ROOT / "build/suites/jsonschemabench/maskbench/data"))
VLLM = pathlib.Path(os.environ.get("VLLM", ROOT / "build/suites/vllm"))
AGENTS = pathlib.Path(os.environ.get("AGENTS_VENV", ROOT / "build/clients/agents"))
SERVED, WRONG_REJECTS = 10960, 3  # of MaskBench's 11,305 schemas, some near the limit of time; no wrong accept


def run(python, *arguments):
    """Returns the exit code and the last line of the output, all of which is shown if the script fails."""
    done = subprocess.run([python, *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        print(done.stdout[-6000:])
    return done.returncode, done.stdout.strip().splitlines()[-1]


def maskbench():
    code, line = run(sys.executable, "tests/schemas/maskbench.py", MASKBENCH)
    found = re.search(r"(\d+) served .*; (\d+) of \d+ valid instances rejected, (\d+) of", line)
    served, rejects, accepts = map(int, found.groups()) if found else (0, 0, 0)
    return code == 0 and served >= SERVED and rejects <= WRONG_REJECTS and accepts == 0, line


def json_schema():
    code, line = run(sys.executable, "tests/schemas/suite.py")
    return code == 0, line


def vllm():
    code, line = run(AGENTS / "bin/python", "tests/clients/vllm_parsers.py", VLLM)
    return code == 0, line


SUITES = [  # the suite, and the folder that it needs
    ("JSON Schema Test Suite", json_schema, None),
    ("MaskBench", maskbench, MASKBENCH),
    ("vLLM's parsers", vllm, VLLM),
]


def main():
    failed, n = [], 0
    for name, suite, folder in SUITES:
        if folder and not folder.is_dir():
            print(f"{name}: not run, because {folder} is missing (this script's first lines say where it is from)")
            continue
        is_right, line = suite()
        n += 1
        print(f"{name}: {line}", flush=True)
        failed += [] if is_right else [name]
    print(f"{n} suites of others ran" + (f"; wrong: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
