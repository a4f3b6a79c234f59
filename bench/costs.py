"""Measures what promises, receipts, adapters and other keys cost: each beside the same work without it, in turns (A B B A).

    python3 bench/costs.py [--program build/penstock] [--model models/....gguf] [--repeats 9] [--only C20a ...] [--out FILE]

C20a  16 streams with an Idempotency-Key each, and without, on a server with --state-dir: tokens/s, with / without
C20b  16 streams with a signed receipt each, and without: tokens/s, with / without
C20c  16 streams of 4 adapters of rank 16, and of the base model: tokens/s, adapters / base
C20d  16 streams of the base model, on a server with an adapter and --max-loras 8, and on one without: tokens/s, with / without
C20e  8 streams while an adapter of rank 16 is loaded again and again, and alone: ITL p99, loading / alone
C20g  one request at a time of a key, while another key has 100, and alone: TTFT p95, beside it / alone
C20h  the same, with prompts of 1,500 tokens for the other key
C20f  MiB that an idle server holds after 48 streams with Idempotency-Keys and receipts, more than after 48 plain ones

A figure is the median of the ratios of the repeats, with their range. The ratio of the processor time is for a machine that
others use. The client shares the machine with the server.
"""
import contextlib
import dataclasses
import itertools
import json
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

import adapter_files
import machine
import runs
import served
import works

RANK, N_ADAPTERS, ADMIN = 16, 4, "admin-key-of-the-bench"
EIGHT = dataclasses.replace(works.TOGETHER, name="eight", what="8 at once, 64 in 128 out", users=8)
SINGLE = works.Work("single", "one at a time, 64 in 8 out", 64, 8, queue_length=40)
N_CROWD = 100  # requests of the other key at once
CROWD_TOKENS = {"C20g": 64, "C20h": 1500}  # of each of its prompts
IDLE_SECONDS = 2  # after which the server has returned free memory


def ttft_p95_ms(requests):
    return 1e3 * works.percentile([one["times"][0] - one["start"] for one in requests], .95)


@dataclasses.dataclass(frozen=True)
class Row:
    id: str
    what: str
    goal: float
    metric: object = works.tokens_per_s
    work: works.Work = works.TOGETHER

    def is_met(self, ratio):
        return ratio <= self.goal if self.metric in (works.itl_p99_ms, ttft_p95_ms) else ratio >= self.goal


ROWS = [
    Row("C20a", "with Idempotency-Key / without", .97),
    Row("C20b", "with receipts / without", .99),
    Row("C20c", "4 adapters / base model", .75),
    Row("C20d", "base model: --max-loras 8 / without adapters", .98),
    Row("C20e", "ITL p99: adapters load / alone", 1.5, works.itl_p99_ms, EIGHT),
    Row("C20g", "TTFT p95: another key has 100 requests / alone", 1.5, ttft_p95_ms, SINGLE),
    Row("C20h", "TTFT p95: another key has 100 long prompts / alone", 1.5, ttft_p95_ms, SINGLE),
]
MEMORY, MEMORY_GOAL = "C20f", 3  # MiB


class Client(served.Served):
    """Streams of a server; `extras_of(i)` gives the members and header lines of the i-th request."""

    def __init__(self, server, extras_of=None):
        super().__init__("penstock", server.url, "m")
        self.server, self.extras_of, self.numbers = server, extras_of, itertools.count()

    def extras(self):
        return self.extras_of(next(self.numbers)) if self.extras_of else ({}, "")


class Folder:
    """A temporary folder with the adapters, a key for receipts, and room for journals."""

    def __init__(self, args):
        self.path, self.args = pathlib.Path(tempfile.mkdtemp(prefix="penstock-costs-")), args
        self.shapes = adapter_files.matrices(args.program, args.model)
        if not self.shapes:
            raise RuntimeError(f"{args.model} has no matrices with llama's names, so adapters cannot be made for it")
        self.key = self.path / "key.pem"
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", self.key], check=True, capture_output=True)

    def adapter(self, i):
        folder = self.path / f"adapter{i}"
        return folder if folder.exists() else adapter_files.write(folder, self.shapes, RANK, i)

    def loras(self, n):
        return [flag for i in range(n) for flag in ("--lora", f"a{i}={self.adapter(i)}")]

    def server(self, *flags):
        return runs.Server(self.args, "--served-model-name", "m", "--warm-up", "--no-enable-prefix-caching", *map(str, flags))

    def close(self):
        shutil.rmtree(self.path)


# ---- the two sides of each row: pairs of (client, what happens meanwhile) -----------------------------------------------

def with_key(i):
    return {}, f"Idempotency-Key: {time.time_ns()}-{i}\r\n"


def with_receipt(_i):
    return {"receipt": True}, ""


def with_own_key(_i):
    return {}, "Authorization: Bearer of-one\r\n"


def of_adapter(i):
    return {"model": f"a{i % N_ADAPTERS}"}, ""


class Meanwhile:
    """Sends requests again and again during a block, from some threads; body_of(n) is the n-th."""

    def __init__(self, url, key, n_threads=1):
        self.url, self.key, self.n_threads, self.n, self.error = url, key, n_threads, 0, None
        self.is_over, self.threads = threading.Event(), []

    def send(self):
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"}
        body = json.dumps(self.body_of(self.n)).encode()
        self.n += 1
        with urllib.request.urlopen(urllib.request.Request(self.url + self.path, body, headers)) as answer:
            answer.read()

    def repeat(self):
        try:
            while not self.is_over.is_set():
                self.send()
        except OSError as error:
            self.error = error

    def __enter__(self):
        self.is_over.clear()
        self.threads = [threading.Thread(target=self.repeat) for _ in range(self.n_threads)]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join()
        if self.error:
            raise RuntimeError(f"{self.path}: {self.error}")


class Loads(Meanwhile):
    """Loads an adapter, each time another one under the same name."""
    path, what = "/v1/load_lora_adapter", "adapters were loaded"

    def __init__(self, url, folders):
        super().__init__(url, ADMIN)
        self.folders = folders

    def body_of(self, n):
        return {"lora_name": "again", "lora_path": str(self.folders[n % len(self.folders)]), "load_inplace": True}


class Crowd(Meanwhile):
    """The requests of the other key, which all are there before the block begins."""
    path, what = "/v1/completions", "requests of the other key were sent"

    def __init__(self, url, n_prompt):
        super().__init__(url, "of-the-crowd", N_CROWD)
        self.n_prompt = n_prompt

    def body_of(self, n):
        return {"model": "m", "prompt": works.token_ids(self.n_prompt, f"crowd {n}"), "max_tokens": 128, "ignore_eos": True, "temperature": 0}

    def __enter__(self):
        super().__enter__()
        time.sleep(1)
        return self


@contextlib.contextmanager
def sides(row, folder):
    """Yields [(client, block)]: first the side with the feature, then the side without."""
    nothing = contextlib.nullcontext()
    with contextlib.ExitStack() as stack:
        if row.id == "C20a":
            server = stack.enter_context(folder.server("--state-dir", folder.path / "journal"))
            yield [(Client(server, with_key), nothing), (Client(server), nothing)]
        elif row.id == "C20b":
            server = stack.enter_context(folder.server("--receipt-key", folder.key))
            yield [(Client(server, with_receipt), nothing), (Client(server), nothing)]
        elif row.id == "C20c":
            server = stack.enter_context(folder.server(*folder.loras(N_ADAPTERS)))
            yield [(Client(server, of_adapter), nothing), (Client(server), nothing)]
        elif row.id == "C20d":
            first = stack.enter_context(folder.server("--max-loras", 8, *folder.loras(1)))
            second = stack.enter_context(folder.server())
            yield [(Client(first), nothing), (Client(second), nothing)]
        elif row.id in CROWD_TOKENS:
            keys = folder.path / "keys.yaml"
            keys.write_text("keys:\n  - name: quiet\n    key: of-one\n  - name: crowd\n    key: of-the-crowd\n")
            server = stack.enter_context(folder.server("--api-key-file", keys, "--max-queued-requests", 2 * N_CROWD,
                                                       "--kv-cache-memory", "4GiB"))
            quiet = Client(server, with_own_key)
            yield [(quiet, Crowd(server.url, CROWD_TOKENS[row.id])), (quiet, nothing)]
        else:
            adapters = [folder.adapter(i) for i in range(2)]
            server = stack.enter_context(folder.server("--enable-runtime-lora", "--lora-dir", folder.path, "--admin-key", ADMIN,
                                                       "--max-loras", 4))
            yield [(Client(server), Loads(server.url, adapters)), (Client(server), nothing)]


# ---- measuring ----------------------------------------------------------------------------------------------------------

def turn(row, side, repeat):
    """The row's figure, and the server's processor time."""
    client, block = side
    used = machine.process_seconds(client.server.process.pid)
    with block:
        requests = client.run(row.work, repeat)
    return row.metric(requests), machine.process_seconds(client.server.process.pid) - used


def measure(row, both, repeats):
    """[(with, without)] of each repeat, each as of turn(). `both` is a block that gives the two sides, as sides() does."""
    found = []
    with both as pair:
        for client, block in pair:
            with block:
                client.run(works.WARM_UP, 0)
        for repeat in range(repeats):
            order = (0, 1) if repeat % 2 == 0 else (1, 0)
            figures = {i: turn(row, pair[i], 2 * repeat + k) for k, i in enumerate(order)}
            found.append((figures[0], figures[1]))
        meanwhile = pair[0][1]
        if isinstance(meanwhile, Meanwhile):
            print(f"{meanwhile.n} {meanwhile.what}", flush=True)
    return found


def report(row, found):
    """Prints the line of a row, and returns its figures."""
    ratios = [a[0] / b[0] for a, b in found]
    figures = {"ratio": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios), "goal": row.goal,
               "with": statistics.median(a[0] for a, _ in found), "without": statistics.median(b[0] for _, b in found),
               "processor_ratio": sum(a[1] for a, _ in found) / max(sum(b[1] for _, b in found), 1e-9)}
    figures["is_met"] = row.is_met(figures["ratio"])
    print(f"{row.id} {row.what}: {runs.spread(ratios, 3)}, goal {row.goal} {'met' if figures['is_met'] else 'MISSED'}; "
          f"{figures['with']:.1f} and {figures['without']:.1f}, processor time {figures['processor_ratio']:.3f}", flush=True)
    return figures


def idle_mib(folder, *flags, extras_of=None):
    """The resident memory of a server, idle after 48 streams."""
    with folder.server(*flags) as server:
        client = Client(server, extras_of)
        for repeat in range(3):
            client.run(works.TOGETHER.shortened(), repeat)
        time.sleep(IDLE_SECONDS)
        with open(f"/proc/{server.process.pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:")) / 1024


def more_memory(folder):
    """MiB that journal and receipts hold: the median of three turns."""
    def with_both(i):
        return {"receipt": True}, with_key(i)[1]

    return statistics.median(idle_mib(folder, "--receipt-key", folder.key, "--state-dir", folder.path / f"journal{i}", extras_of=with_both)
                             - idle_mib(folder) for i in range(3))


def main():
    parser = runs.options(__doc__, repeats=9)
    parser.add_argument("--only", nargs="+", choices=[*(row.id for row in ROWS), MEMORY], help="these rows")
    args = parser.parse_args()
    if args.repeats < 1:
        parser.error("--repeats is at least 1")
    figures, folder = runs.begin(args), Folder(args)
    try:
        for row in ROWS:
            if not args.only or row.id in args.only:
                figures[row.id] = report(row, measure(row, sides(row, folder), args.repeats))
        if not args.only or MEMORY in args.only:
            more = figures[MEMORY] = more_memory(folder)
            print(f"{MEMORY} idle memory: {more:.2f} MiB more, goal {MEMORY_GOAL} {'met' if more <= MEMORY_GOAL else 'MISSED'}", flush=True)
    finally:
        folder.close()
    runs.write(args, figures)


if __name__ == "__main__":
    main()
