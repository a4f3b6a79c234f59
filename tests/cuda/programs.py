"""Checks the timing programs of bench/gpu on the emulated device: tests/cuda/programs.py GPU_TIMES GPU_SERVE

Their lines are those that bench/gpu/points.py expects, and a program that starts again after a point continues there. The
cache is planned from the device's memory.
"""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench/gpu"))
import points  # noqa: E402


def run(program, part, path, *options, **variables):
    """Returns exit code, error output, and the lines of the file."""
    done = subprocess.run([program, part, path, "3600", *options], cwd=ROOT, env={**os.environ, **variables}, capture_output=True,
                          text=True, check=False)
    return done.returncode, done.stderr, points.read_lines(path)


def check_lines(lines, key):
    """Each step begins with its number, and every other line is a result."""
    starts = [line["starts"] for line in lines if "starts" in line]
    assert starts == list(range(len(starts))) and lines[-1] == {"ends": len(starts)}, starts
    found = [line for line in points.results_of(lines) if "device" not in line]
    assert found and all(points.is_result(line, key) for line in found), found
    return starts


def check_again(program, part, path, lines, key):
    """After half a file, the program appends the rest."""
    starts = check_lines(lines, key)
    at = [i for i, line in enumerate(lines) if line.get("starts") == starts[-1]][0]
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines[:at])
    code, said, again = run(program, part, path, f"from={starts[-1]}", "tiny")
    assert code == 0 and [line.get("starts") for line in again if "starts" in line] == starts, (code, said, again)
    check_lines(again, key)


def check_times(times, path):
    code, said, lines = run(times, "wgmma", path, "tiny")
    assert code == 0 and lines[0]["early_grids"] == 1, (code, said, lines)
    differ = [line for line in lines if "differ" in line]
    assert differ and all(line["differ"] == 0 and line["largest"] == 0 and line["numbers"] > 1000 for line in differ), differ
    check_again(times, "wgmma", path, lines, "kernel")
    code, _, lines = run(times, "mma", path, "tiny", CUDA_EMU_ARCH="80")
    assert code == 0 and lines[0]["early_grids"] == 0 and lines[1:] == [{"ends": 0}], lines
    for wrong in ("from=-1", "from=", "from=1x", "tinny"):
        code, said, _ = run(times, "mma", path, wrong)
        assert code == 2 and "usage" in said, (wrong, code, said)


def held(lines):
    """How many sequences of a batch the cache holds, by the figure's note."""
    note = [line["note"] for line in lines if "requests of" in line.get("what", "")][-1]
    assert note.startswith("the cache holds ") and note.endswith(" requests at once"), note
    return int(note.split()[3])


def check_planned(serve, path, most):
    """Between a device that is too small and one with room for all blocks that can be useful, the cache takes what is free."""
    low, high = 1000, 16000  # KiB
    while high - low > 20:
        middle = (low + high) // 2
        code, said, lines = run(serve, "fp8", path, "tiny", CUDA_EMU_MEMORY=str(middle))
        if code == 0 and 0 < held(lines) < most:
            return
        assert code == 0 or "could not be opened" in said, (middle, code, said)
        low, high = (low, middle) if code == 0 else (middle, high)
    raise AssertionError(f"the cache is all or nothing: {low} to {high} KiB")


def check_serve(serve, path):
    code, said, lines = run(serve, "llama", path, "tiny")
    assert code == 0 and held(lines) > 1, (code, said, lines)
    assert [line for line in lines if line.get("id") == "G4" and "cache holds" in line.get("note", "")], lines
    check_again(serve, "llama", path, lines, "id")
    check_planned(serve, path, held(lines))
    code, said, lines = run(serve, "wgmma", path, "tiny", CUDA_EMU_ARCH="89")
    assert code == 77 and "wgmma" in said and lines == [{"ends": 0}], (code, said, lines)
    code, said, _ = run(serve, "llama", path, "form=2")
    assert code == 2 and "usage" in said, (code, said)


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "lines.jsonl")
        check_times(sys.argv[1], path)
        check_serve(sys.argv[2], path)
    print("the programs of bench/gpu: lines, restarts and planned cache passed")


if __name__ == "__main__":
    main()
