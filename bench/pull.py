#!/usr/bin/env python3
"""Times `penstock pull` beside curl followed by sha256sum, from a hub on loopback.

    bench/pull.py [--megabytes 500] [--rounds 5] [--folder /dev/shm/penstock-pull]

The two take turns. The last line has the medians, the share of curl's speed and the largest resident memory of a pull.
"""
import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests/e2e"))
import hub as hubs  # noqa: E402

REPO, FILE = "river/bank", "bank-Q4_K_M.gguf"


class Peak(threading.Thread):
    """Reads the largest resident memory of a process until it ends."""

    def __init__(self, pid):
        super().__init__()
        self.path, self.kib = f"/proc/{pid}/status", 0
        self.start()

    def run(self):
        while True:
            try:
                lines = pathlib.Path(self.path).read_text().splitlines()
            except OSError:
                return
            sizes = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
            if not sizes:  # it has ended
                return
            self.kib = sizes[0]
            time.sleep(0.01)


def timed(command, folder, **variables):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.sync()
    began = time.perf_counter()
    process = subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = Peak(process.pid)
    if process.wait() != 0:
        sys.exit(f"{command[0]} failed")
    return time.perf_counter() - began, peak.kib


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("/dev/shm/penstock-pull"))
    args = parser.parse_args()
    hub = hubs.Hub()
    hub.files = {f"{REPO}/{FILE}": os.urandom(1_000_000) * args.megabytes}
    known = {name: getattr(hubs, name)(hub.files[f"{REPO}/{FILE}"]) for name in ("sha256", "git_sha1")}
    for name, value in known.items():  # hashed once, and not at each request
        setattr(hubs, name, lambda _, value=value: value)
    curl, pull, kib = [], [], 0
    for _ in range(args.rounds):
        shell = f"curl -sf {hub.url}/{REPO}/resolve/main/{FILE} -o {args.folder}/file && sha256sum {args.folder}/file"
        curl.append(timed(["sh", "-c", shell], args.folder)[0])
        seconds, peak = timed([str(ROOT / "build/penstock"), "pull", REPO], args.folder, HF_ENDPOINT=hub.url, HF_HOME=str(args.folder))
        pull.append(seconds)
        kib = max(kib, peak)
    shutil.rmtree(args.folder)
    ours, theirs = statistics.median(pull), statistics.median(curl)
    print(f"curl and sha256sum {theirs:.2f} s, pull {ours:.2f} s: {theirs / ours:.0%} of curl's speed, {kib / 1000:.1f} MB resident")


if __name__ == "__main__":
    main()
