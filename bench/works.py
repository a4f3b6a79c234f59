"""The works that `make bench` measures, and the goals of each: its table."""
import dataclasses
import random
import statistics


@dataclasses.dataclass(frozen=True)
class Work:
    """Users in a closed loop, each with a queue of prompts; greedy decoding to fixed lengths."""
    name: str
    what: str
    n_in: int
    n_out: int
    users: int = 1
    queue_length: int = 1
    shared: int = 0  # leading tokens that all prompts share

    def queues(self, repeat):
        """The prompts of a repeat, the same for all sides; no two repeats share a beginning."""
        common = token_ids(self.shared, f"{self.name} {repeat}")
        return [[common + token_ids(self.n_in - self.shared, f"{self.name} {repeat} {user} {i}")
                 for i in range(self.queue_length)] for user in range(self.users)]

    def shortened(self):
        """A work of the same kind that takes less time, to try settings with."""
        return dataclasses.replace(self, name=self.name + " short", n_out=min(self.n_out, 24),
                                   queue_length=min(self.queue_length, 2))


def token_ids(n, seed):
    """Ids of ordinary words: control tokens come first in a vocabulary."""
    draw = random.Random(seed)
    return [draw.randrange(1000, 40000) for _ in range(n)]


STREAM = Work("stream", "one stream, 16 in 256 out", 16, 256)
PROMPT = Work("prompt", "one prompt of 512 tokens", 512, 1, queue_length=3)
TOGETHER = Work("together", "16 at once, 64 in 128 out", 64, 128, users=16)
CLOSED_LOOP = Work("closed loop", "8 users in a closed loop, 256 in 64 out", 256, 64, users=8, queue_length=4)
SHARED = Work("shared prefix", "1,024 shared + 32 own tokens, 20 requests", 1056, 8, queue_length=20, shared=1024)
WARM_UP = Work("warm-up", "", 64, 32, users=4)


# ---- metrics of a run's requests: [{"user", "start", "times", "tokens"}], times in seconds -------------------------

def percentile(values, p):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * p))]


def tokens_per_s(requests):
    span = max(r["times"][-1] for r in requests) - min(r["start"] for r in requests)
    return sum(len(r["times"]) for r in requests) / span


def requests_per_s(requests):
    return len(requests) / (max(r["times"][-1] for r in requests) - min(r["start"] for r in requests))


def ttft_p50_ms(requests):
    return statistics.median(r["times"][0] - r["start"] for r in requests) * 1e3


def itl_p99_ms(requests):
    return percentile([b - a for r in requests for a, b in zip(r["times"], r["times"][1:])], .99) * 1e3


@dataclasses.dataclass(frozen=True)
class Metric:
    name: str
    unit: str
    of: object  # a function of a run's requests
    is_less_better: bool = False


TOKENS = Metric("throughput", "tok/s", tokens_per_s)
REQUESTS = Metric("throughput", "req/s", requests_per_s)
TTFT = Metric("TTFT p50", "ms", ttft_p50_ms, True)
ITL = Metric("ITL p99", "ms", itl_p99_ms, True)


# ---- the table ------------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Goal:
    """The wanted ratio to `against`, for a machine with AMX and one with AVX-512 VNNI: (hard, stretch). If `against` is
    None, the goal is an absolute value."""
    against: str  # "llama.cpp", or "fastest": the fastest of all installed peers
    amx: tuple
    vnni: tuple


@dataclasses.dataclass(frozen=True)
class Row:
    id: str
    file_type: str
    work: Work
    metric: Metric
    goals: tuple
    peers: tuple = ("llama.cpp",)
    share: tuple = None  # share of the machine's limit, on a machine with AMX and one with VNNI


AGAIN = 1000  # a repeat that is measured again has a number this much higher: its prompts are in no cache
CONTINUOUS = ("llama.cpp", "vllm", "vllm int8", "openvino", "openvino int8", "openvino bf16", "openvino int8 bf16")
ALL = (*CONTINUOUS, "ctranslate2")  # CTranslate2 answers one batch after the other, so it cannot do C4
LLAMA, FASTEST = "llama.cpp", "fastest"


FOLDERS = ("gptq", "awq")  # compared with Penstock on a Q4_1 file of the same shapes
SAME_CODES = "Q4_1 file"
W8A8 = "w8a8"  # the folder that bench/vllm_model.py made from the default model, served by both
SMALL = ((1.2, None), (1.5, None), (1.5, None))
AHEAD = ((1, None), (1, None), (1, None))
SAME = ((.95, None), (.95, None), (.95, None))


def three(id, file_type, amx, vnni, against=LLAMA):
    """C1 to C3 with another file type: goals for the stream, the prompt and 16 at once."""
    works = ((STREAM, TOKENS), (PROMPT, TTFT), (TOGETHER, TOKENS))
    return [Row(f"{id}.{i + 1}", file_type, work, metric, (Goal(against, amx[i], vnni[i]),), (against,))
            for i, (work, metric) in enumerate(works)]


ROWS = [
    Row("C1", "Q4_1", STREAM, TOKENS, (Goal(FASTEST, (1.5, None), (2.4, None)),), ALL, share=(None, .75)),
    Row("C2", "Q4_1", PROMPT, TTFT, (Goal(FASTEST, (1.5, None), (1.4, None)),), ALL),
    Row("C3", "Q4_1", TOGETHER, TOKENS, (Goal(FASTEST, (3, None), (2.5, None)),), ALL),
    Row("C4", "Q4_1", CLOSED_LOOP, REQUESTS, (Goal(FASTEST, (3, None), (2.5, None)),), CONTINUOUS),
    Row("C4 ITL", "Q4_1", CLOSED_LOOP, ITL, (Goal(FASTEST, (1 / .5, None), (1 / .5, None)),), CONTINUOUS),
    Row("C8", "Q4_1", SHARED, TTFT, (Goal(FASTEST, (3, None), (2.5, None)),), ALL),
    *three("C5", "Q4_0", ((1.2, None), (3.5, None), (5, None)), ((1.1, 1.3), (1.7, 2.1), (1.7, 2.1))),
    *three("C6", "Q8_0", ((1.4, None), (3.5, None), (5, None)), ((1.5, None), (2, None), (2, None))),
    *(row for i, file_type in enumerate(("Q4_K_M", "BF16", "F16"))
      for row in three(f"C12{'abc'[i]}", file_type, ((1.2, None), (2, None), (2, None)),
                       ((1.2, None), (1.5, None), (1.5, None)))),
    *(row for i, file_type in enumerate(("Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS", "MXFP4"))
      for row in three(f"C15{'abcde'[i]}", file_type, SMALL, SMALL)),
    *(row for i, folder in enumerate(FOLDERS) for row in three(f"C16{'ab'[i]}", folder, SAME, SAME, SAME_CODES)),
    *three("C17", W8A8, AHEAD, AHEAD, "vllm int8"),
]
