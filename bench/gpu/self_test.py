"""Checks run.py and its parts on stand-ins: made-up programs that are fast or slow, hang, fail, or print lines that are not results."""
import glob
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import time

import carry
import points
import run
import serving
import suites
import tools

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
# A program whose points follow the protocol of points.py: PART OUT SECONDS [from=N].
POINTS = """n=0; for a in "$@"; do case $a in from=*) n=${a#from=} ;; esac; done
while [ $n -lt 4 ]; do
    echo '{"part": "'$1'", "PLACE, "starts": '$n'}' >>$2
    case KIND$n in hanging1) sleep 600 ;; slow*) sleep 0.4 ;; failing1) kill -SEGV $$ ;; lost*) kill -ABRT $$ ;;
        wrong1) echo '{"part": "'$1'", "PLACE, "us": "quick"}' >>$2; echo '[1]' >>$2; n=2; continue ;; esac
    echo '{"part": "'$1'", "PLACE, RESULT}' >>$2
    n=$((n + 1))
done
echo '{"ends": 4}' >>$2"""
KERNEL = '"us": 1000, "min_us": 1, "max_us": 1, "bytes": 4e9, "flops": 0'
NAMES = '"model": "m", "kind": "x", "matrix": "o", "N": 64, "K": 32, "format": "bf16", "step": "decode", "cache": "c", "context": 8'
FIGURE = '"model": "m", "what": "decodes '"'$n'"'", "value": 250, "unit": "tok/s", "us": 4000, "bytes": 1.4e10, "flops": 0, "note": ""'
ASKED = "[ $2 = --format=csv,noheader,nounits ] && case $1 in *clocks.sm*) echo 1980, 3201, 210.5, 40 ;; " \
        "*) echo made up, 1.2, 100, 1980, 700 ;; esac"
SUITES = {"good": "echo 'good: Checks: 3, Failures: 0'",
          "bad": "echo 'bad.cpp:7:F: it broke'; echo 'bad: Checks: 2, Failures: 1'; exit 1",
          "hangs": "echo started; sleep 600", "crashes": "kill -SEGV $$"}
SUITE_OF = {"fast": "good", "slow": "good", "hanging": "hangs", "failing": "bad", "wrong": "crashes", "lost": "good"}

# A server that answers, never is ready, ends at once, answers otherwise, or does not end.
SERVER = """import http.server, json, signal, sys
kind = sys.argv[1]
if kind == "ends":
    sys.exit("libx.so.1: cannot open shared object file")
signal.signal(signal.SIGTERM, signal.SIG_IGN if kind == "stays" else lambda *_: sys.exit(0))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"usage": {"completion_tokens": 3 if kind == "wrong" else 4}}).encode())
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
if kind != "silent":
    print(f"ready on http://127.0.0.1:{server.server_port} after 4 ms", flush=True)
server.serve_forever()
"""


def times_of(kind):
    device = """[ "$4" ] || echo '{"device": "made up", "multiprocessors": 132, "l2_bytes": 62914560, "cublas": 1, "early_grids": 1}' >>$2\n"""
    kernel = """kernel": "'$([ $1$n = limits0 ] && echo copy || echo k$n)'", "rows": '$n', """
    return device + POINTS.replace("PLACE", kernel + NAMES).replace("KIND", kind).replace("RESULT", KERNEL)


def serve_of(kind):
    return POINTS.replace("PLACE", 'id": "G1"').replace("KIND", kind).replace("RESULT", FIGURE)


def stand_ins(folder, kind, tests):
    """Makes the programs of this kind in a folder. `tests` maps names of suites to their behaviour."""
    programs = {"gpu_times": times_of(kind), "gpu_serve": serve_of(kind), "gpu_peer": "echo 'gpu_peer: torch is missing'; exit 77",
                "nvidia-smi": "sleep 600" if kind == "hanging" else ASKED,
                "compute-sanitizer": """tool=$2; shift 6; [ $tool = racecheck ] || shift 2; case $tool$1 in
                    memcheck*gpu_good) echo '========= ERROR SUMMARY: 0 errors' ;;
                    racecheck*gpu_good) echo '========= Error: Race reported'; exit 66 ;; *) exec $1 ;; esac"""}
    programs |= {f"gpu_{name}": SUITES[behaviour] for name, behaviour in tests.items()}
    os.makedirs(folder)
    for name, script in programs.items():
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + script + "\n")
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    return folder


def lacking_checks():
    """The functions of Check that the suites for a device and their support use and its stand-in lacks. Where there is no nvcc, no
    other test builds them."""
    def read(*path):
        with open(os.path.join(tools.ROOT, "tests", *path), encoding="utf-8") as file:
            return file.read()
    made = read("cuda", "device", "CMakeLists.txt")
    not_there = re.findall(r'EXCLUDE REGEX "test_\(?([a-z_|]+)\)?"', made)
    suites = [name for name in os.listdir(os.path.join(tools.ROOT, "tests/cuda"))
              if re.match(r"test_\w+\.(c|cpp)$", name) and not re.match(f"test_({'|'.join(not_there)})", name)]
    support = re.search(r"set\(engine_support ([^)]+)\)", made)[1].split()
    texts = [read("cuda", name) for name in suites] + [read("support", name + ".c") for name in support]
    asked = set(re.findall(r"\b((?:tcase|suite|srunner|ck)_\w+)\(", "".join(texts)))
    there = set(re.findall(r"\w+", read("cuda", "device", "check.h") + read("support", "suite_main.h")))
    assert len(suites) > 15 and len(support) > 10 and len(asked) > 10, (suites, support, asked)
    return sorted(asked - there)


def text_of(out):
    with open(os.path.join(out, "report.md"), encoding="utf-8") as file:
        return file.read()


def whole_report(out):
    with open(os.path.join(out, "report.json"), encoding="utf-8") as file:
        return json.load(file)


def wants(text, *sentences):
    for words in sentences:
        assert words in text, f"{words!r} is missing in:\n{text}"


def results_of(report):
    return {s["name"]: s["result"] for s in report["steps"]}


# ---- all, kernels, serve ----------------------------------------------------------------------------------------

def test_all(folder):
    programs, out = stand_ins(os.path.join(folder, "p"), "fast", {name: name for name in SUITES}), os.path.join(folder, "out")
    report = run.measure("all", programs, out, 40)
    found = {r["name"]: r["result"] for r in report["suites"]}
    assert found == {"gpu_good": "passed", "gpu_bad": "exit 1", "gpu_hangs": "no end", "gpu_crashes": "exit -11"}, found
    sanitized, steps = {r["name"]: r["result"] for r in report["sanitizer"]}, results_of(report)
    assert steps["suites"] == "failed" and steps["products"] == "done", steps
    assert sanitized["gpu_good, memcheck"] == "clean" and sanitized["gpu_good, racecheck"] == "1 errors", sanitized
    assert sanitized["gpu_hangs, memcheck"] == "not finished" and steps["compute-sanitizer"] == "failed", sanitized
    machine = report["machine"]
    assert machine["GPU"] == "made up" and machine["L2, MiB"] == 60 and machine["grids"] == "begin early", machine
    assert report["clocks"][0]["sm_mhz"] == 1980, report["clocks"]
    wants(text_of(out), "**Failed: suites", "it broke", "a copy moves 4.00 TB/s")


def test_serving(folder):
    """A program that crashes at each start loses the device: the part ends, and the others run."""
    programs, out = stand_ins(os.path.join(folder, "p"), "fast", {}), os.path.join(folder, "out")
    serving.PEER = [os.path.join(programs, "gpu_peer")]
    with open(os.path.join(programs, "gpu_serve"), "a", encoding="utf-8") as file:
        file.write("case $1 in llama) kill -SEGV $$ ;; fp8) exit 3 ;; small) exit 1 ;; esac")
    report = run.measure("serve", programs, out, 60)
    assert results_of(report) == {
        "limits": "done", "serve, tokens": "done", "serve, small": "failed", "serve, fp8": "done, with points left out",
        "serve, llama": "failed", "serve, wgmma_tokens": "done", "serve, wgmma": "done", "serve, peers": "not here"}, report["steps"]
    wants(text_of(out), "**Failed: serve, small, serve, llama", "None was measured")


# ---- first ------------------------------------------------------------------------------------------------------

FIRST = {  # the results of steps, and words of the page
    "fast": ({"suites, mma.sync": "done", "limits": "done", "mma": "done", "serve, small": "done", "suites, wgmma": "done",
              "wgmma": "done"}, ["All parts went well."]),
    "slow": ({}, ["the time was up"]),
    "hanging": ({"suites, mma.sync": "failed", "limits": "failed", "mma": "failed", "serve, small": "failed",
                 "suites, wgmma": "failed", "wgmma": "failed"}, ["gpu_ptx: no end", "it hung at point 1", "decodes 3"]),
    "failing": ({"mma": "failed", "wgmma": "failed"}, ["it broke", "it ended with code -11 at point 1", "decodes 3"]),
    "wrong": ({"mma": "failed", "serve, small": "failed"}, ["1 lines are not results", "decodes 3"]),
    "lost": ({"mma": "failed", "wgmma": "failed"}, ["at point 2; no more were tried"]),
}


LATE_S = 1  # the most that a busy machine may delay the end of a call


def test_first(folder, kind):
    """Whatever the programs do, the steps are there in their order, a bad point costs itself alone, and the report is whole."""
    programs = stand_ins(os.path.join(folder, "p"), kind, {name: SUITE_OF[kind] for name in ("ptx", "rows", "ptx90", "chunks")})
    out = os.path.join(folder, "out")
    made, total = [], 6 if kind == "slow" else 60
    tools.run, end = recorded(made), time.monotonic() + total
    report = run.measure("first", programs, out, total)
    steps, (wanted, words) = results_of(report), FIRST[kind]
    assert time.monotonic() < end + LATE_S and whole_report(out) == report, kind
    assert len(made) > 6 and max(made) < end, (kind, made, end)
    assert list(steps) == ["suites, mma.sync", "limits", "mma", "serve, small", "suites, wgmma", "wgmma"], steps
    assert wanted.items() <= steps.items(), (kind, steps)
    wants(text_of(out) + str(report["steps"]), *words)
    if kind in ("hanging", "failing"):
        for part in ("limits", "mma", "wgmma"):
            mine = [(p["kernel"], "failed" in p) for p in report["points"] if p["part"] == part]
            assert [bad for _, bad in mine] == [False, True, False, False], (kind, mine)
        assert [("failed" in f) for f in report["served"]] == [False, True, False, False], report["served"]


def test_cut(folder):
    """If the limit is shorter than the programs hang, the report is there within the limit, and names the parts without time."""
    programs = stand_ins(os.path.join(folder, "p"), "hanging", {"ptx": "hangs", "rows": "hangs"})
    out, total = os.path.join(folder, "out"), 12
    end = time.monotonic() + total
    report = run.measure("first", programs, out, total)
    assert time.monotonic() < end + LATE_S and whole_report(out) == report, (time.monotonic(), end)
    steps = results_of(report)
    assert list(steps)[:3] == ["suites, mma.sync", "limits", "mma"] and "done" not in steps.values(), steps
    wants(text_of(out), "**Failed: suites, mma.sync", "| gpu_ptx | no end |")


def recorded(made):
    """A tools.run that notes the deadline of each process."""
    run_it = tools.run

    def noting(command, deadline, *rest):
        made.append(deadline.end)
        return run_it(command, deadline, *rest)
    return noting


def test_words():
    """What needs no programs."""
    assert not lacking_checks(), lacking_checks()
    for code, said, wanted in SANITIZED:
        assert suites.judge_sanitizer(code, said) == wanted, (said, suites.judge_sanitizer(code, said))
    assert tools.ClockWatch.parse(["1980", "3201", "210.5", "40"])["watts"] == 210.5
    assert tools.ClockWatch.parse(["[N/A]", "1", "2", "3"]) is None and tools.ClockWatch.parse([""] * 4) is None


def test_carry(folder):
    """A program with libraries runs where only its folder and the C library exist, and not without its libraries."""
    app = os.path.join(folder, "app")
    program = shutil.which("ninja") or shutil.which("cmake")
    name, c_library = os.path.basename(program), carry.add_program(program, app)
    assert any("libc.so" in path for path in c_library) and os.listdir(os.path.join(app, "lib")), c_library
    assert not [name for name in os.listdir(os.path.join(app, "lib")) if name.startswith(("libc.", "ld-"))]
    found = carry.runs_alone(app, name, ["--version"], c_library)
    assert found in ("", None), found
    assert carry.loads_alone(app, [name], c_library) == found
    os.unlink(glob.glob(os.path.join(app, "lib", "libstdc++*"))[0])
    for without in (carry.runs_alone(app, name, ["--version"], c_library), carry.loads_alone(app, [name], c_library)):
        assert found is None or "libstdc++" in without, without
    shutil.rmtree(os.path.join(app, "lib"))
    size = carry.pack([app], os.path.join(folder, "a.txz"))
    with tarfile.open(os.path.join(folder, "a.txz")) as tar:
        assert f"app/{name}" in tar.getnames(), tar.getnames()
    assert size > 1000 and carry.judge_size(size, 0)[1] and not carry.judge_size(size, carry.LIMIT)[1]
    assert "64.0 of 64" in carry.judge_size(0, carry.LIMIT)[0] and carry.judge_size(0, carry.LIMIT)[1]
    over, words = carry.judge_size(carry.ARCHIVE_LIMIT + 1, 0), carry.tree_says(carry.tree_bytes())
    assert not over[1] and "10.0 MiB of 10" in over[0], over
    assert carry.tree_says(54 << 20) == ("the tree has 54.0 MiB of 54, beside an archive of at most 10", True)
    assert not carry.tree_says((54 << 20) + 1)[1]
    assert carry.tree_bytes() > 1 << 20 and words[1], words[0] + "; pack folders of vectors (tests/vectors/pack.py)"


def test_carried_server(folder):
    """A carried server must become ready, answer with as many tokens as asked for, and end."""
    for kind, seconds, wanted in (("answers", 20, None), ("silent", 2, "it is not ready"), ("ends", 20, "libx.so.1: cannot open"),
                                  ("wrong", 20, "3 tokens instead of 4"), ("stays", 2, "did not end within 2 s")):
        log = os.path.join(folder, kind)
        found = carry.answers([sys.executable, "-c", SERVER, kind], {}, log, seconds)
        assert wanted in found if wanted else found == "", (kind, found)
    assert carry.judge_run(1, "chroot: cannot change root directory") is None and carry.judge_run(0, "") == ""


TESTS = {"all": test_all, "carry": test_carry, "carried": test_carried_server, "serve": test_serving, "cut": test_cut} | {kind: lambda folder, kind=kind: test_first(folder, kind) for kind in FIRST}


def run_test(folder, name):
    """Runs one test in this process, whose path begins with the folder of its stand-ins."""
    suites.SUITE_S, suites.LEAST_S, points.POINT_S, points.SLACK_S, tools.ASK_S = 2, 0.2, 3, 0.5, 0.5
    os.environ["PATH"] = os.path.join(folder, "p") + ":" + os.environ["PATH"]
    TESTS[name](folder)


def main():
    """All tests side by side: most of their time they wait for programs that hang."""
    test_words()
    with tempfile.TemporaryDirectory() as top:
        folders = {name: os.path.join(top, name) for name in TESTS}
        for folder in folders.values():
            os.mkdir(folder)
        tests = [subprocess.Popen([sys.executable, __file__, folder, name], stdout=subprocess.DEVNULL)
                 for name, folder in folders.items()]
        failed = [name for name, test in zip(folders, tests) if test.wait() != 0]
    print(f"gpu run: self-test of {len(SANITIZED)} findings and {len(TESTS)} calls " + (f"failed: {failed}" if failed else "passed")
          + f"; {carry.tree_says(carry.tree_bytes())[0]}")
    return 1 if failed else 0


if __name__ == "__main__":
    run_test(*sys.argv[1:])
