"""The machine during a measurement: its description, what else ran on it, and its limits."""
import os
import platform
import re
import subprocess
import time

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_flags():
    with open("/proc/cpuinfo") as f:
        return next((set(line.split(":")[1].split()) for line in f if line.startswith("flags")), set())


def kind():
    """The column of the goals for this machine: "amx", or "vnni" for all others."""
    return "amx" if "amx_int8" in cpu_flags() else "vnni"


def l3_mib():
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index3/size") as f:
            return int(f.read().strip().rstrip("K")) // 1024
    except OSError:
        return None


def describe():
    flags = cpu_flags()
    with open("/proc/cpuinfo") as f:
        name = next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), platform.machine())
    with open("/proc/meminfo") as f:
        memory_gib = int(f.readline().split()[1]) / (1 << 20)
    shown = [f for f in ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16") if f in flags]
    return {"cpu": name, "cores": len(os.sched_getaffinity(0)), "flags": shown, "kind": kind(), "l3_mib": l3_mib(),
            "memory_gib": round(memory_gib, 1), "system": f"{platform.system()} {platform.release()}"}


# ---- other processes --------------------------------------------------------------------------------------------

def cpu_times():
    """(busy, stolen) seconds of all cores since boot."""
    with open("/proc/stat") as f:
        user, nice, system, _idle, _iowait, irq, softirq, steal = (int(v) for v in f.readline().split()[1:9])
    return (user + nice + system + irq + softirq) * TICK_S, steal * TICK_S


def process_seconds(pid):
    """CPU time of a process and of its children, including those that have ended."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        total = sum(int(v) for v in fields[11:15]) * TICK_S
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as f:
                total += sum(process_seconds(child) for child in f.read().split())
        return total
    except (FileNotFoundError, ProcessLookupError):
        return 0


class Watch:
    """Measures, during a run, how much of the machine's time went to other processes and how much the host took. If the
    processes of a side are not known (None), only the host's part counts."""

    def __init__(self, pids):
        self.pids = pids

    def own_seconds(self):
        # Child processes that still run are servers, and only the measured side's count. Those that ended did a
        # repeat's work, such as wrk.
        own = os.times()
        return sum(own[:4]) + sum(process_seconds(pid) for pid in self.pids or [])

    def __enter__(self):
        self.began, self.own, self.times = time.perf_counter(), self.own_seconds(), cpu_times()
        return self

    def __exit__(self, *_):
        wall = time.perf_counter() - self.began
        busy, steal = (after - before for after, before in zip(cpu_times(), self.times))
        # The counters have a coarse tick: less than two ticks means nothing.
        foreign = max(0, busy - (self.own_seconds() - self.own) - 2 * TICK_S)
        if self.pids is None:
            foreign = 0
        everything = wall * os.cpu_count()
        self.foreign_share, self.steal_share = foreign / everything, max(0, steal - TICK_S) / everything

    def is_disturbed(self, limit):
        return self.foreign_share + self.steal_share > limit


def load():
    return os.getloadavg()[0]


# ---- limits -------------------------------------------------------------------------------------------------------

def limits(binary, model, threads):
    """The limits that `penstock bench` measures, with as many threads as the comparison uses."""
    command = [binary, "bench", "--model", model, "--threads", str(threads), "--bench-prompt", "16", "--bench-batch", "1",
               "--bench-generate", "1", "--bench-repeats", "1", "--log-level", "error"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {}
    for name, pattern in (("read_gb_s", r"memory read: +([\d.]+) GB/s"), ("int8_g_s", r"int8: +([\d.]+) G"),
                          ("float_g_s", r"float32: +([\d.]+) G")):
        match = re.search(pattern, text)
        if match:
            found[name] = float(match[1])
    return found


def mean_limits(before, after):
    return {name: (before[name] + after[name]) / 2 for name in before}


def least_seconds(limit, model, work, is_float):
    """The least time that the machine's limits allow for a run of `work`: each step needs the time to read its weights and its
    keys and values, or that of its multiply-adds at the peak rate, whichever is longer."""
    rate = limit["float_g_s" if is_float else "int8_g_s"] * 1e9
    read = limit["read_gb_s"] * 1e9
    own = work.n_in - work.shared
    prompts = work.users * work.queue_length
    computed = prompts * own + (work.shared if work.shared else 0)
    prefill = max(computed * model["body_parameters"] / rate, model["weight_bytes"] / read)
    context = work.n_in + work.n_out / 2
    step_bytes = model["weight_bytes"] + work.users * context * model["kv_bytes_per_token"]
    step_macs = work.users * model["parameters"]
    steps = (work.n_out - 1) * work.queue_length
    return prefill + steps * max(step_bytes / read, step_macs / rate)


def model_shape(binary, path):
    """Returns the sizes for the limits, from `penstock inspect`."""
    text = subprocess.run([binary, "inspect", "--tensors", path], check=True, capture_output=True, text=True).stdout
    tensors = re.findall(r"^  (\S+)\s+(\S+)\s+\[([^\]]*)\]\s+(\d+) bytes", text, re.M)
    sizes = {name: eval_product(shape) for name, _, shape, _ in tensors}
    head = sizes.get("output.weight", sizes.get("token_embd.weight", 0))
    body = sum(n for name, n in sizes.items() if name.startswith("blk."))
    read = sum(int(b) for name, _, _, b in tensors if name != "token_embd.weight" or "output.weight" not in sizes)
    types = {}
    for name, dtype, _, _ in tensors:
        if not dtype == "f32":
            types.setdefault(dtype, []).append(name)
    return {"parameters": body + head, "body_parameters": body, "weight_bytes": read,
            "kv_bytes_per_token": int(re.search(r"(\d+) bytes a token", text)[1]),
            "file_bytes": os.path.getsize(path), "types": {t: len(names) for t, names in types.items()}}


def eval_product(shape):
    product = 1
    for n in shape.split("x"):
        product *= int(n)
    return product
