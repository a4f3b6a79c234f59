"""One model over several processes that mpirun starts: the bytes of as many ranks in one process, whatever is asked; a rank
that is killed; processes that differ; idle processes.

PENSTOCK_MPI names another program than that of the tree, MPI_SOAK=1 runs the long form."""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import time

import httpx
import pytest

from conftest import EMULATED, MODEL, NAME, ROOT, Server, environment, free_port
from sse import events
from streams import until

BINARY = pathlib.Path(os.environ.get("PENSTOCK_MPI", ROOT / "build/penstock_mpi"))
LONG_FORM = os.environ.get("MPI_SOAK") == "1"
COMPLETIONS = "/v1/completions"
EXIT_DEVICE_FAILED = 3
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "btl", "vader,self"]
# mpirun lets rank 0 end by itself. Otherwise it ends rank 0 a second after the loss, which a busy machine needs for its answers.
LOCAL = [*MPIRUN, "--enable-recovery"]
# As between machines: TCP in place of shared memory.
NETWORK = [*MPIRUN[:-1], "tcp,self", "--mca", "osc", "^sm", "--enable-recovery"]
# Shared by both servers of a comparison. Few blocks, so that sequences are preempted.
COMMON = ["--max-num-seqs", "8", "--max-num-batched-tokens", "64"]
SMALL = ["--kv-cache-memory", "1MiB", "--max-model-len", "256"]
DRAFTS = ["--speculative-config", '{"method": "ngram", "num_speculative_tokens": 4}', "--always-speculate"]
SCHEMA = {"type": "object", "properties": {"a": {"enum": ["x", "yy"]}, "b": {"type": "boolean"}}, "required": ["a", "b"],
          "additionalProperties": False}


def ranks_of(port, binary=BINARY):
    """{rank: pid} of the processes of that program with that port."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            words = (folder / "cmdline").read_text().split("\0")
            variables = dict(part.partition("=")[::2] for part in (folder / "environ").read_text().split("\0"))
            if words[0] == str(binary) and str(port) in words and "OMPI_COMM_WORLD_RANK" in variables:
                found[int(variables["OMPI_COMM_WORLD_RANK"])] = int(folder.name)
    return found


class Ranks(Server):
    """A server whose ranks are processes. `process` is mpirun."""

    def __init__(self, n, *flags, model=MODEL, codes=None, mpirun=MPIRUN, binary=BINARY, first="", env=None):
        """With `codes`, a folder, each rank is the child of a shell that writes its exit code there; `first` is its first command."""
        if not binary.exists():
            pytest.fail(f"{binary} was not built: there was no Open MPI, which docker/setup.sh test installs")
        self.n, self.codes, self.binary = n, codes, binary
        shell = ["sh", "-c", f'{first}\ntrap : TERM; "$0" "$@"; echo $? >{codes}/$OMPI_COMM_WORLD_RANK'] if codes else []
        super().__init__("--tensor-parallel-size", str(n), "--threads", "1", *flags, binary=binary, model=model,
                         launcher=[*mpirun, "-n", str(n), *shell], env=env)

    def wait_until_ready(self):
        super().wait_until_ready()
        self.pids = ranks_of(self.port, self.binary)
        assert sorted(self.pids) == list(range(self.n)), self.pids
        return self

    def end(self):
        """Ends rank 0, as an operator does; the others and mpirun follow."""
        os.kill(self.pids[0], signal.SIGTERM)
        assert self.process.wait(60) == 0, self.log_tail()


@pytest.fixture(scope="module")
def even_model(tmp_path_factory):
    """Two ranks can share it: it has two key-value heads."""
    path = tmp_path_factory.mktemp("even") / "tiny.gguf"
    subprocess.run([EMULATED.parent / "make_tiny_model", path], check=True)
    return path


@pytest.fixture
def ranks():
    """ranks(n, flags...) starts a server; the fixture ends it if the test does not."""
    own = []

    def begin(n, *flags, **options):
        own.append(Ranks(n, *flags, **options))
        return own[-1].wait_until_ready()

    yield begin
    for one in own:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
        one.stop()


# ---- the same bytes ----------------------------------------------------------------------------------------------------

def requests(n, seed):
    """Requests of all kinds, whose answers depend only on them."""
    draw = random.Random(seed)
    words = ["hello", "the", "water", "river", "flows", "and", "one", "two", "a", "to"]
    asked = []
    for i in range(n):
        body = {"model": NAME, "prompt": " ".join(draw.choices(words, k=draw.randint(1, 60))), "max_tokens": draw.randint(4, 40),
                "temperature": draw.choice([0, 0.8]), "seed": i, "return_token_ids": True, "ignore_eos": True}
        kind = i % 8
        if kind == 1:
            body |= {"n": 2, "logprobs": 2, "temperature": 0.9}
        elif kind == 2:
            body |= {"structured_outputs": {"json": SCHEMA}, "ignore_eos": False}
        elif kind == 3:
            body |= {"use_beam_search": True, "best_of": 3, "n": 2, "temperature": 0, "max_tokens": 8, "prompt": body["prompt"][:40]}
            del body["ignore_eos"]
        elif kind == 4:
            body |= {"frequency_penalty": 0.7, "presence_penalty": 0.3}
        elif kind == 5:
            body |= {"structured_outputs": {"regex": "(yes|no)( (yes|no))*"}, "max_tokens": 12, "ignore_eos": False}
        elif kind == 6:
            body |= {"prompt": "one two three " * 8, "max_tokens": 30, "temperature": 0}
        elif kind == 7:
            body |= {"logit_bias": {"20": 3}, "echo": True, "logprobs": 1}
        asked.append(body)
    return asked


def answer(server, body):
    got = server.post(COMPLETIONS, body)
    assert got.status_code == 200, (body, got.text)
    return [{key: value for key, value in choice.items()} for choice in got.json()["choices"]]


def cancel(server, body):
    """Leaves a stream after its first event."""
    with httpx.stream("POST", server.url + COMPLETIONS, json={**body, "stream": True, "max_tokens": 150, "ignore_eos": True},
                      timeout=60) as response:
        next(response.iter_raw())


def all_at_once(server, asked, n_cancelled):
    """The answers to all requests, while other clients leave."""
    left = [{"model": NAME, "prompt": "river " * (5 + i), "temperature": 0.5, "seed": i} for i in range(n_cancelled)]
    with concurrent.futures.ThreadPoolExecutor(len(asked) + n_cancelled) as pool:
        gone = [pool.submit(cancel, server, body) for body in left]
        answers = list(pool.map(lambda body: answer(server, body), asked))
        for one in gone:
            one.result()
    return answers


# One request whose sequences need more blocks together than a small cache has, however slowly the others arrive.
CROWD = {"model": NAME, "prompt": "hello the", "n": 8, "max_tokens": 120, "temperature": 0.8, "seed": 1, "return_token_ids": True,
         "ignore_eos": True}


def check_same(ranks, n, model, flags, n_requests, mpirun=MPIRUN):
    """Compares with as many ranks in one process, which get the requests one by one. Returns the number of preemptions."""
    asked = [*requests(n_requests, n), CROWD]
    far = ranks(n, *COMMON, *flags, model=model, mpirun=mpirun)
    got = all_at_once(far, asked, 6)
    far.wait_until_idle()
    preempted = far.metric("vllm:num_preemptions_total")
    far.end()
    near = Server("--tensor-parallel-size", str(n), "--threads", str(n), *COMMON, *flags, model=model).wait_until_ready()
    try:
        expected = [answer(near, body) for body in asked]
    finally:
        near.stop()
    for body, one, other in zip(asked, got, expected, strict=True):
        assert one == other, body
    return preempted


def test_two_processes_give_the_bytes_of_two_threads(ranks, even_model):
    flags = ["--kv-cache-memory", "76KiB", "--max-model-len", "256", *DRAFTS]
    assert check_same(ranks, 2, even_model, flags, 400 if LONG_FORM else 40) > 0


def test_two_processes_over_a_network_give_the_bytes_of_two_threads(ranks, even_model):
    check_same(ranks, 2, even_model, [*SMALL, *DRAFTS], 80 if LONG_FORM else 16, NETWORK)


def test_a_draft_model_gives_the_bytes_of_two_threads(ranks, even_model):
    """Rank 0 alone has the draft model. Some of its drafts are accepted: it is the same model."""
    drafting = json.dumps({"method": "draft_model", "model": str(even_model), "num_speculative_tokens": 3})
    flags = [*SMALL, "--speculative-config", drafting, "--always-speculate"]
    check_same(ranks, 2, even_model, flags, 80 if LONG_FORM else 16)


def test_three_processes_give_the_bytes_of_three_threads(ranks):
    flags = ["--kv-cache-memory", "24MiB", "--max-model-len", "512", "--warm-up"]
    check_same(ranks, 3, MODEL, flags, 80 if LONG_FORM else 8)


# ---- recurrent layers --------------------------------------------------------------------------------------------------

START = [(i * 37 + 11) % 256 for i in range(90)]
# The first one keeps its state after 80 tokens, which the next two share. The last one has a long answer, with drafts.
STATEFUL = [START[:82], START[:80] + [3, 4], START[:90], START[:70] + [5] * 12, START[:56]]


def stateful_answers(server, drafts=True):
    """Hits at kept states, forks, and drafts."""
    bodies = [{"model": NAME, "prompt": prompt, "max_tokens": 94 - len(prompt), "ignore_eos": True, "return_token_ids": True,
               "logprobs": 2, **more}
              for prompt in STATEFUL for more in ({"temperature": 0}, {"temperature": 0.8, "seed": 3, "n": 3})]
    alone = [answer(server, body) for body in bodies]
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        assert list(pool.map(lambda body: answer(server, body), bodies)) == alone
    assert server.metric("vllm:prefix_cache_hits_total") > 0
    assert not drafts or server.metric("vllm:spec_decode_num_draft_tokens_total") > 0
    return alone


@pytest.mark.parametrize("name", ["families/qwen3_5.gguf", "families/lfm2.gguf", "families/granite4_h.gguf"])
def test_states_give_the_bytes_of_two_threads(ranks, name):
    guess = '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 1}'
    flags = ["--max-num-seqs", "8", "--max-model-len", "96", "--dtype", "float32", "--speculative-config", guess, "--always-speculate"]
    model = ROOT / "tests/vectors" / name
    far = ranks(2, *flags, model=model)
    got = stateful_answers(far)
    far.end()
    near, one = [Server("--tensor-parallel-size", n, "--threads", "2", *flags, model=model).wait_until_ready() for n in ("2", "1")]
    try:
        expected, alone = stateful_answers(near), stateful_answers(one)
    finally:
        near.stop()
        one.stop()
    assert got == expected
    tokens = [[[choice["token_ids"] for choice in choices] for choices in answers] for answers in (got, alone)]
    assert tokens[0] == tokens[1]


@pytest.mark.parametrize("name, guess", [("qwen3_5", {"method": "mtp"}),
                                         ("eagle_llama", {"method": "eagle3", "model": str(ROOT / "tests/vectors/ahead/eagle_llama_head")})])
def test_guesses_of_a_layer_give_the_bytes_of_two_threads(ranks, name, guess):
    """The model's own layer (mtp), or that of an EAGLE-3 head, which both ranks share."""
    flags = ["--max-num-seqs", "8", "--max-model-len", "96", "--dtype", "float32"]
    drafts = ["--speculative-config", json.dumps({**guess, "num_speculative_tokens": 3}), "--always-speculate"]
    model = ROOT / "tests/vectors/ahead" / name
    far = ranks(2, *flags, *drafts, model=model)
    got = stateful_answers(far)
    far.end()
    near = Server("--tensor-parallel-size", "2", "--threads", "2", *flags, *drafts, model=model).wait_until_ready()
    plain = Server("--tensor-parallel-size", "2", "--threads", "2", *flags, model=model).wait_until_ready()
    try:
        assert got == stateful_answers(near)
        assert got == stateful_answers(plain, drafts=False)
    finally:
        near.stop()
        plain.stop()


# ---- adapters ----------------------------------------------------------------------------------------------------------

ADAPTED = str(ROOT / "tests/vectors/folders/qwen2")
ADAPTERS = ROOT / "tests/vectors/adapters"
RUNTIME = ["--enable-runtime-lora", "--lora-dir", str(ADAPTERS), "--admin-key", "admin", "--max-loras", "3", "--max-lora-rank", "64"]


def of_models(names, n):
    """Requests of these models in turn."""
    return [{"model": names[i % len(names)], "prompt": [(7 * i + k) % 250 for k in range(1 + 5 * i % 50)], "max_tokens": 12,
             "temperature": 0.7 * (i % 2), "seed": i, "ignore_eos": True, "return_token_ids": True, "logprobs": 2} for i in range(n)]


def change_adapter(server, what, **body):
    answered = server.post(f"/v1/{what}_lora_adapter", body, headers={"Authorization": "Bearer admin"})
    assert answered.status_code == 200, answered.text


def adapted_answers(server, answer_all):
    """Answers before and after adapters change at run time, while others are asked."""
    found = [answer_all(of_models([NAME, "eight"], 16))]
    change_adapter(server, "load", lora_name="one", lora_path="qwen2-1")
    change_adapter(server, "load", lora_name="wide", lora_path="qwen2-64.gguf")
    found.append(answer_all(of_models([NAME, "eight", "one", "wide"], 24)))
    change_adapter(server, "unload", lora_name="one")
    change_adapter(server, "load", lora_name="eight", lora_path="qwen2-1", load_inplace=True)
    found.append(answer_all(of_models(["eight", "wide", NAME], 18)))
    return found


def test_adapters_give_the_bytes_of_two_threads(ranks):
    """Rank 0 alone reads the files. Number 2 is given to another adapter while requests run."""
    flags = [*COMMON, "--dtype", "float32", "--lora", f"eight={ADAPTERS / 'qwen2-8'}", *RUNTIME]
    far = ranks(2, *flags, model=ADAPTED)

    def all_of(asked):
        with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
            return list(pool.map(lambda body: answer(far, body), asked))

    got = adapted_answers(far, all_of)
    far.end()
    near = Server("--tensor-parallel-size", "2", "--threads", "2", *flags, model=ADAPTED).wait_until_ready()
    try:
        expected = adapted_answers(near, lambda asked: [answer(near, body) for body in asked])
    finally:
        near.stop()
    assert got == expected
    assert got[1][1] != got[1][2] != got[1][3]


def test_an_adapter_loads_while_streams_run(ranks):
    """Each load and each drop passes between two steps. The streams' bytes do not change."""
    flags = [*COMMON, "--dtype", "float32", "--lora", f"eight={ADAPTERS / 'qwen2-8'}", *RUNTIME]
    server = ranks(2, *flags, model=ADAPTED)
    body = {"model": "eight", "prompt": [1, 2, 3], "max_tokens": 80, "ignore_eos": True, "return_token_ids": True, "temperature": 0}
    alone = answer(server, body)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        streams = [pool.submit(answer, server, body) for _ in range(12)]
        for i in range(8):
            change_adapter(server, "load", lora_name="one", lora_path=["qwen2-1", "qwen2-64"][i % 2], load_inplace=True)
        assert all(one.result() == alone for one in streams)


# ---- lost ranks --------------------------------------------------------------------------------------------------------

STREAM = {"model": NAME, "prompt": "hello the", "max_tokens": 200, "ignore_eos": True, "stream": True}


def read_all(server, body):
    with httpx.stream("POST", server.url + COMPLETIONS, json=body, timeout=60) as response:
        return response.status_code, response.read()


def exit_code(server, rank):
    """The exit code of a rank that has ended, which its shell has written."""
    end = time.monotonic() + 60
    while not (text := (server.codes / str(rank)).read_text() if (server.codes / str(rank)).exists() else ""):
        assert time.monotonic() < end, server.log_tail()
        time.sleep(0.05)
    return int(text)


def check_lost(server, reason):
    """Readiness says no or the port is closed, rank 0 ends with its code, and the log has one reason."""
    end = time.monotonic() + 60
    with contextlib.suppress(httpx.TransportError):
        while (status := server.http.get("/health/ready").status_code) != 503:
            assert status == 200 and time.monotonic() < end
    assert exit_code(server, 0) == EXIT_DEVICE_FAILED
    server.process.wait(60)  # mpirun, which passes the log on
    assert re.search(f"ERROR Rank 1 of 2 is lost: {reason}", server.log_text()), server.log_tail()


ROUNDS = int(os.environ.get("RANK_KILLS", "200")) // 4 if LONG_FORM else 1


@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("when, mpirun", [("prefill", LOCAL), ("decode", LOCAL), ("idle", MPIRUN), ("decode", NETWORK)])
def test_a_killed_rank_ends_the_server(ranks, even_model, tmp_path, when, mpirun, seed):
    """Each request ends with an error, wherever its sequence is."""
    server = ranks(2, *COMMON, *SMALL, model=even_model, codes=tmp_path, mpirun=mpirun)
    asked = [{**STREAM, "seed": i, "n": 2} for i in range(120)]  # more than end before the kill
    if when == "prefill":
        asked = [{**STREAM, "prompt": [4 + i * k % 251 for k in range(200)], "max_tokens": 1, "seed": i} for i in range(1, 400)]
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        streams = [pool.submit(read_all, server, body) for body in asked if when != "idle"]
        counter = "vllm:prompt_tokens_total" if when == "prefill" else "vllm:generation_tokens_total"
        while streams and server.metric(counter) < 12:
            time.sleep(0.01)
        time.sleep(random.Random(seed).uniform(0, 0.05) if seed else 0)
        os.kill(server.pids[1], signal.SIGKILL)
        check_lost(server, "its process has ended")
        found = [one.exception() or one.result() for one in streams]
    told = 0
    for result in found:
        if isinstance(result, Exception):  # a request that found the port closed
            assert isinstance(result, httpx.TransportError), result
            continue
        status, raw = result
        if status == 200 and b"[DONE]" in raw and b'"error"' not in raw:
            continue  # it had ended before
        error = (events(raw)[-1] if status == 200 else httpx.Response(status, content=raw).json())["error"]
        assert error["code"] == "rank_lost" or status == 503, error
        told += error["code"] == "rank_lost"
    assert told > 0 or when == "idle"


def test_a_silent_rank_is_lost_after_the_timeout(ranks, even_model, tmp_path):
    """A stopped process sends no beats: as from a machine that is gone."""
    server = ranks(2, *COMMON, *SMALL, "--rank-timeout", "2", model=even_model, codes=tmp_path)
    os.kill(server.pids[1], signal.SIGSTOP)
    try:
        check_lost(server, "it gave no sign of life")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server.pids[1], signal.SIGKILL)


# ---- processes that differ ---------------------------------------------------------------------------------------------

def start_two(first, second, binary=BINARY):
    """Starts a process with each list of flags. Returns the exit code of mpirun and the program's messages."""
    command = [*MPIRUN]
    for i, flags in enumerate((first, second)):
        command += [*([":"] if i else []), "-n", "1", binary, "serve", "--port", str(free_port()), *flags]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, env=environment())
    lines = [line for line in done.stderr.splitlines() if line.strip("penstock: -")]  # mpirun's own lines may be mixed with a message
    return done.returncode, [line for line in lines if line.startswith("penstock") or " ERROR " in line]


def changed(path, folder, at):
    """A copy of a model with another byte, counted from its end."""
    copy = folder / "changed.gguf"
    shutil.copy(path, copy)
    with open(copy, "r+b") as file:
        file.seek(at, os.SEEK_END)
        file.write(b"\x01\x02")
    return copy


TWO = ["--tensor-parallel-size", "2"]
LORA = ["--lora", "a=/nowhere"]


@pytest.mark.parametrize("first, second, words", [
    ([*TWO, "--max-num-seqs", "8"], [*TWO, "--max-num-seqs", "4"], "--max-num-seqs is 4 on rank 1"),
    ([*TWO, "--block-size", "8"], TWO, "--block-size is 16 on rank 1"),
    (["--tensor-parallel-size", "4"], ["--tensor-parallel-size", "4"], "mpirun started 2 processes, and --tensor-parallel-size is 4"),
    ([], [], "mpirun started 2 processes, and --tensor-parallel-size is 1"),
    ([*TWO, "--max-loras", "2", *LORA], [*TWO, "--max-loras", "3", *LORA], "--max-loras is 3 on rank 1"),
    ([*TWO, "--prefix-store", "/tmp"], [*TWO, "--prefix-store", "/tmp"], "--prefix-store keeps the prefix cache on the CPU, and the cache is divided between several ranks"),
])
def test_other_options_are_refused_by_name(even_model, first, second, words):
    code, messages = start_two([*first, "--model", even_model], [*second, "--model", even_model])
    assert code == 2 and len(messages) == 1 and words in messages[0], messages


def test_another_model_is_refused(even_model, tmp_path):
    other = changed(even_model, tmp_path, -40)
    code, messages = start_two([*TWO, "--model", even_model], [*TWO, "--model", other])
    assert code == 2 and len(messages) == 1 and "rank 1 (on " in messages[0] and "another model" in messages[0], messages


def test_a_broken_model_of_another_rank_is_named(even_model, tmp_path):
    other = tmp_path / "broken.gguf"
    other.write_bytes(even_model.read_bytes()[:3000])
    code, messages = start_two([*TWO, "--model", even_model], [*TWO, "--model", other])
    assert code == 1 and any("rank 1 (on " in line for line in messages), messages


def test_a_program_without_mpi_and_other_commands_are_refused(even_model):
    flags = [*TWO, "--model", even_model]
    code, messages = start_two(flags, flags, binary=ROOT / "build/penstock")
    assert code == 2 and all("was built without MPI" in line for line in messages), messages
    done = subprocess.run([*MPIRUN, "-n", "2", BINARY, "run", "--model", even_model, "hello"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "only for `penstock serve`" in done.stderr, done


# ---- idle --------------------------------------------------------------------------------------------------------------

def computed(pid):
    """The seconds for which the threads of a process have run. The clock ticks of /proc/PID/stat are samples, and a rank that
    wakes by a timer is often seen at a tick."""
    tasks = pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def test_idle_ranks_sleep(ranks, even_model):
    """At most a hundredth of a core each, after a request and without one."""
    seconds = 10
    server = ranks(2, *COMMON, *SMALL, model=even_model)
    server.complete("hello the", max_tokens=20)

    def used():
        """The seconds for which each rank computes in a span of time."""
        before = {rank: computed(pid) for rank, pid in server.pids.items()}
        assert all(before.values()), before
        time.sleep(seconds)
        return [computed(pid) - before[rank] for rank, pid in server.pids.items()]

    until(lambda: max(used()) <= seconds / 100)  # on a busy machine the ranks may still be awake in the first span
    server.end()


# ---- the page ----------------------------------------------------------------------------------------------------------

def test_the_commands_of_the_page(even_model, tmp_path):
    """docs/scale-out.md as it is written, except for the port, the model and the program's path; the build is there already."""
    page = (ROOT / "docs/scale-out.md").read_text()
    commands = re.findall(r"^    (.*)$", page.split("## One model on several machines")[1].split("\n#")[0], re.M)[:3]
    assert len(commands) == 3 and "PENSTOCK_MPI=ON" in commands[0] and "mpirun" in commands[1] and commands[2].startswith("curl")
    port = free_port()
    run = commands[1].replace("build/penstock", str(BINARY)).replace("$MODEL", str(even_model)).removesuffix("&")
    run = run.replace("mpirun", "exec mpirun --allow-run-as-root --oversubscribe") + f" --port {port} --max-model-len 256"
    with open(tmp_path / "log", "w+b") as log:
        shell = subprocess.Popen(["bash", "-c", run], cwd=ROOT, stdout=log, stderr=log, env=environment())
        try:
            end = time.monotonic() + 120
            while "ready on" not in (tmp_path / "log").read_text():
                assert time.monotonic() < end and shell.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.1)
            answer = subprocess.run(["bash", "-c", commands[2].replace("8080", str(port))], capture_output=True, text=True, check=True)
            assert '"choices"' in answer.stdout, answer.stdout
            assert "in the first of 2 ranks" in (tmp_path / "log").read_text()
        finally:
            shell.terminate()
            shell.wait(60)
