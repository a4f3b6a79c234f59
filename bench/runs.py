"""What the programs of this folder share: their options, a server of Penstock, the spread of repeats, and their report."""
import argparse
import datetime
import json
import os
import socket
import statistics
import subprocess
import time
import urllib.request

import machine

MODEL = "models/SmolLM2-135M-Instruct.Q4_1.gguf"


def options(doc, repeats=None, threads=None, flags=False, model=True):
    """The parser of a program: --program, --model and --out, and those of the others that are asked for. Each program adds its own."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", "--binary", default="build/penstock")
    if model:
        parser.add_argument("--model", default=MODEL)
    if repeats:
        parser.add_argument("--repeats", type=int, default=repeats)
    if threads:
        parser.add_argument("--threads", type=int, default=threads)
    if flags:
        parser.add_argument("flags", nargs="*", help="more flags for the server, after --")
    parser.add_argument("--out", "--json", metavar="FILE", help="write the figures there, as JSON")
    return parser


def two_threads():
    return min(2, len(os.sched_getaffinity(0)))


def commit():
    done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True)
    return done.stdout.strip()


def begin(args):
    """The first members of a report: the run and its machine. `args` may lack some of the options."""
    asked = {name: getattr(args, name) for name in ("threads", "repeats") if hasattr(args, name)}
    return {"date": datetime.date.today().isoformat(), "commit": commit(), "machine": machine.describe(), **asked,
            "load_before": machine.load()}


def write(args, report):
    """Writes the report to --out, if it was given."""
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")


def spread(values, digits=2):
    """The median, and the range."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


class Server:
    """A server on a port of its own. It is ready when the block is entered."""

    def __init__(self, args, *flags, program=None):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.url = "http://127.0.0.1:%d" % probe.getsockname()[1]
        port = self.url.rsplit(":", 1)[1]
        self.process = subprocess.Popen([program or args.program, "serve", "--model", args.model, "--port", port, "--drain-delay", "0",
                                         "--log-level", "warning", *flags])

    def __enter__(self):
        while self.process.poll() is None:
            try:
                urllib.request.urlopen(self.url + "/health/ready").close()
                return self
            except OSError:
                time.sleep(0.01)
        raise RuntimeError(f"the server ended with code {self.process.returncode}")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
