"""The special rows of the table: equal tokens, a busy core, GET /health, start-up and memory."""
import os
import re
import shutil
import subprocess
import sys
import time

import direct
import llama
import machine
import served
import works


def equal_leading(a, b):
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


def compare_tokens(own, peer, is_quick):
    """Compares greedy tokens of the same prompts on both sides. Where they diverge, the gap is the difference, in the
    peer's logits, between its token and Penstock's: small if the two were nearly tied."""
    found = []
    for whole, repeats in ((works.STREAM, 3), (works.TOGETHER, 1)):
        peer.prepare(whole)
        work = whole.shortened() if is_quick else whole
        for repeat in range(repeats):
            by_user = {r["user"]: r["tokens"] for r in own.tokens(work, repeat)}
            theirs = {r["user"]: r["tokens"] for r in peer.run(work, repeat)}
            for user, prompt in enumerate(queue[0] for queue in work.queues(repeat)):
                n = equal_leading(by_user[user], theirs[user])
                entry = {"equal": n, "of": work.n_out}
                if n < work.n_out and by_user[user]:
                    ids = prompt + by_user[user][:n + 1]
                    entry["gap"] = peer.worker.ask("logits", ids=ids, first=len(ids) - 1)["gap"][0]
                found.append(entry)
    return found


def tokens_line(found):
    gaps = sorted(entry["gap"] for entry in found if "gap" in entry)
    total = sum(entry["of"] for entry in found)
    equal = sum(entry["equal"] for entry in found)
    text = f"{equal} of {total} equal before a first difference, {len(gaps)} of {len(found)} answers part"
    return text + (f", at gaps of {gaps[0]:.3f} to {gaps[-1]:.3f}" if gaps else "")


# ---- C7: another process uses a core ---------------------------------------------------------------------------

class Burner:
    """A process that runs an empty loop."""

    def __enter__(self):
        self.process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        time.sleep(0.2)
        return self.process.pid

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


QUIET = "penstock, quiet"


def one_core_taken(bench):
    """C1 while a busy loop runs, compared with Penstock's quiet figure and with the peer under the same load."""
    work, sides = bench.form(works.STREAM), bench.chosen(["llama.cpp"])
    values = {QUIET: [], **{side.name: [] for side in sides}}
    for side in sides:
        side.prepare(work)
    for repeat in range(bench.args.repeats):
        own = bench.sides["penstock"]
        values[QUIET].append(works.tokens_per_s(bench.measure(own, lambda attempt: own.run(work, 100 + repeat + works.AGAIN * attempt))))
        with Burner() as pid:
            for side in sides if repeat % 2 == 0 else reversed(sides):
                requests = bench.measure(side, lambda attempt, s=side: s.run(work, 200 + repeat + works.AGAIN * attempt), [pid])
                values[side.name].append(works.tokens_per_s(requests))
    goals = [works.Goal(QUIET, (.45, None), (.45, None)), works.Goal("llama.cpp", (5, None), (5, None))]
    return [bench.row("C7", "Q4_1", "C1 while another process takes one core", works.TOKENS, values, goals)]


# ---- C10: GET /health -------------------------------------------------------------------------------------------

def health(bench):
    """wrk on one core, the server on another. The goal is a rate, because this row has only one side."""
    if not shutil.which("wrk"):
        print("C10: wrk is not installed")
        return []
    cores = sorted(os.sched_getaffinity(0))
    server = served.penstock(bench.args.binary, bench.args.model, 1, *bench.flags(),
                             prefix=["taskset", "-c", str(cores[0])])
    command = ["taskset", "-c", str(cores[-1]), "wrk", "-t1", "-c16", "-d4s",
               f"http://127.0.0.1:{server.address[1]}/health"]

    def rate(_attempt):
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return float(re.search(r"Requests/sec: +([\d.]+)", text)[1])

    rates = [bench.measure(server, rate) for _ in range(bench.args.repeats)]
    server.close()
    metric = works.Metric("GET /health", "requests/s", None)
    return [bench.row("C10", "Q4_1", "GET /health, one core for each side", metric, {"penstock": rates},
                      [works.Goal(None, (80e3, None), (60e3, None))])]


# ---- C11: start and memory --------------------------------------------------------------------------------------

CONTEXT = 8192  # tokens that both caches hold
FIRST = works.Work("first token", "", 16, 1)
FILL = works.Work("fill", "", 256, 32, users=8)


def resident(pid, model):
    """A process's resident bytes: (all, those that are pages of the model's file)."""
    total = mapped = 0
    is_model = False
    with open(f"/proc/{pid}/smaps") as f:
        for line in f:
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                is_model = line.rstrip().endswith(os.path.basename(os.path.realpath(model)))
            elif line.startswith("Rss:"):
                total += int(line.split()[1]) * 1024
                mapped += int(line.split()[1]) * 1024 * is_model
    return total, mapped


def start_penstock(bench, repeat, kv_bytes):
    server = served.penstock(bench.args.binary, bench.args.model, bench.args.threads, "--kv-cache-memory", str(kv_bytes))
    before = time.perf_counter() - server.began
    seconds = before + server.run(FIRST, repeat)[0]["times"][0]
    server.run(FILL, repeat)
    time.sleep(1)  # the cache's memory becomes resident during the first requests
    total, mapped = resident(server.process.pid, bench.args.model)
    server.close()
    return seconds, total, mapped


def start_llama(bench, repeat):
    """Only the library: counted from the end of the imports, without the memory that Python held then."""
    worker, threads = direct.Worker("llama.cpp", "llama_worker.py"), bench.args.threads
    pid = worker.ask("memory")["pid"]
    baseline, _ = resident(pid, bench.args.model)
    waited = worker.ask("memory")["since_import_s"]
    worker.ask("load", model=bench.args.model)
    worker.ask("context", n_ctx=CONTEXT, n_seq_max=8, n_batch=2048, n_ubatch=512, n_threads=threads,
               n_threads_batch=threads, flash_attn_type=1, kv_unified=True)
    worker.ask("run", queues=FIRST.queues(repeat), n_out=1)
    seconds = worker.ask("memory")["since_import_s"] - waited
    worker.ask("run", queues=FILL.queues(repeat), n_out=FILL.n_out)
    total, mapped = resident(pid, bench.args.model)
    worker.close()
    return seconds, total - baseline, mapped


def start_up(bench):
    """exec to the first token, with the file in the page cache, and the memory beyond one copy of the weights."""
    shape = machine.model_shape(bench.args.binary, bench.args.model)
    kv_bytes = CONTEXT * shape["kv_bytes_per_token"] + (1 << 20)
    acts = {"penstock": lambda repeat: start_penstock(bench, repeat, kv_bytes)}
    if bench.wants("llama.cpp") and llama.is_installed():
        acts["llama.cpp"] = lambda repeat: start_llama(bench, repeat)
    found = {name: [] for name in acts}
    for repeat in range(bench.args.repeats):
        for name in list(acts) if repeat % 2 == 0 else reversed(acts):
            found[name].append(acts[name](repeat))
    mib = 1 << 20
    seconds = {name: [one[0] * 1e3 for one in runs] for name, runs in found.items()}
    beyond = {name: [(one[1] - shape["file_bytes"]) / mib for one in runs] for name, runs in found.items()}
    rows = [bench.row("C11", "Q4_1", "exec to first token", works.Metric("start", "ms", None, True), seconds,
                      [works.Goal("llama.cpp", (3, None), (3, None))]),
            bench.row("C11 memory", "Q4_1", f"resident memory beyond the file, cache for {CONTEXT:,} tokens",
                      works.Metric("memory", "MiB", None, True), beyond, [works.Goal("llama.cpp", (2, None), (2, None))])]
    rows[1]["mapped_mib"] = {name: runs[-1][2] / mib for name, runs in found.items()}
    rows[1]["resident_mib"] = {name: runs[-1][1] / mib for name, runs in found.items()}
    return rows
