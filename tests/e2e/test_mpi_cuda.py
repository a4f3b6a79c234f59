"""One model over several processes with a GPU each: emulated devices, and a stand-in for NCCL. The answers have the bytes of as
many ranks in one process, with CUDA graphs and without them. Lost ranks, GPUs that fail, and GPUs that are shared."""
import concurrent.futures
import os
import re
import signal
import time

import pytest

from conftest import EMULATED, Server
from test_mpi import (COMMON, DRAFTS, EXIT_DEVICE_FAILED, LONG_FORM, MPIRUN, STREAM, all_at_once, answer, check_lost, even_model,  # noqa: F401
                      exit_code, ranks, read_all, requests, start_two)

# mpirun lets rank 0 end by itself.
PATIENT = [*MPIRUN, "--enable-recovery"]
FAR = EMULATED.parent / "penstock_emulated_mpi"
GPUS = {"CUDA_EMU_DEVICES": "2"}
CUDA = ["--device", "cuda", "--dtype", "float32", *COMMON]
FEW = ["--kv-cache-memory", "136KiB", "--max-model-len", "256"]


@pytest.fixture(scope="module")
def near(even_model):  # noqa: F811
    """near(flags...) starts two ranks in one process, without CUDA graphs."""
    own = []

    def begin(*flags):
        own.append(Server("--tensor-parallel-size", "2", *CUDA, "--enforce-eager", *flags, model=even_model, binary=EMULATED, env=GPUS))
        return own[-1].wait_until_ready()

    yield begin
    for one in own:
        one.stop()
        assert one.process.returncode == 0


@pytest.mark.parametrize("flags", [["--warm-up"], [*FEW, *DRAFTS], [*FEW, "--enforce-eager"]], ids=["graphs", "drafts", "eager"])
def test_two_processes_give_the_bytes_of_two_threads(ranks, near, even_model, flags):  # noqa: F811
    asked = requests(120 if LONG_FORM else 16, 3)
    # Three of these fit together at first, and not at their end: one may be preempted.
    asked += [{**STREAM, "stream": False, "prompt": [4 + i * k % 251 for k in range(70)], "max_tokens": 60, "temperature": 0} for i in range(1, 4)]
    far = ranks(2, *CUDA, *flags, model=even_model, binary=FAR, env=GPUS)
    assert "GPU 1: emulated" in far.log_tail() and "in the first of 2 ranks" in far.log_tail(), far.log_tail()
    recorded = re.search(r"warmed up .* and (\d+) shapes of decode steps", far.log_tail())
    got = all_at_once(far, asked, 3)
    far.wait_until_idle()
    far.end()
    assert bool(recorded) == ("--warm-up" in flags) and (not recorded or int(recorded[1]) >= 4)
    one = near(*flags)
    assert got == [answer(one, body) for body in asked]


@pytest.mark.parametrize("when", ["prefill", "decode", "idle"])
def test_a_killed_rank_ends_the_server(ranks, even_model, tmp_path, when):  # noqa: F811
    """Rank 0's GPU waits for the lost one: the wait is aborted, and each request ends with an error."""
    server = ranks(2, *CUDA, *FEW, model=even_model, binary=FAR, codes=tmp_path, mpirun=PATIENT, env=GPUS)
    prompt = {"prompt": [4 + i % 250 for i in range(200)], "max_tokens": 1} if when == "prefill" else {}
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        streams = [pool.submit(read_all, server, {**STREAM, **prompt, "seed": i}) for i in range(60 if when != "idle" else 0)]
        counter = "vllm:prompt_tokens_total" if when == "prefill" else "vllm:generation_tokens_total"
        while streams and server.metric(counter) < 12:
            time.sleep(0.01)
        os.kill(server.pids[1], signal.SIGKILL)
        check_lost(server, "its process has ended")
        found = [one.exception() or one.result() for one in streams]
    told = [one for one in found if isinstance(one, tuple) and b'"rank_lost"' in one[1]]
    assert told or when == "idle", found


def test_a_gpu_that_fails_ends_both_ranks(ranks, even_model, tmp_path):  # noqa: F811
    """The GPU of rank 1 fails. Rank 0 would wait for it."""
    breaks = 'test $OMPI_COMM_WORLD_RANK = 0 || export CUDA_EMU_BREAK=launch:100'
    server = ranks(2, *CUDA, *FEW, model=even_model, binary=FAR, codes=tmp_path, mpirun=PATIENT, first=breaks, env=GPUS)
    status, raw = read_all(server, {**STREAM, "n": 4})
    assert status == 200 and b'"rank_lost"' in raw, raw[-300:]
    assert exit_code(server, 0) == EXIT_DEVICE_FAILED and exit_code(server, 1) == EXIT_DEVICE_FAILED
    server.process.wait(60)
    assert "Rank 1 of 2 is lost: The GPU has failed: a kernel's launch" in server.log_text(), server.log_tail()


def test_rank_0_s_own_gpu_may_fail(ranks, even_model, tmp_path):  # noqa: F811
    breaks = 'test $OMPI_COMM_WORLD_RANK = 1 || export CUDA_EMU_BREAK=launch:100'
    server = ranks(2, *CUDA, *FEW, model=even_model, binary=FAR, codes=tmp_path, mpirun=PATIENT, first=breaks, env=GPUS)
    status, raw = read_all(server, {**STREAM, "n": 4})
    assert status == 200 and b"The GPU has failed" in raw, raw[-300:]
    assert exit_code(server, 0) == EXIT_DEVICE_FAILED and exit_code(server, 1) == EXIT_DEVICE_FAILED


@pytest.mark.parametrize("first, second, words", [
    ([], ["--device", "cpu", "--dtype", "auto"], "--device is cpu on rank 1"),
    ([], ["--enforce-eager"], "--enforce-eager is on on rank 1"),
    (["--swap-space", "1MiB"], ["--swap-space", "1MiB"], "--swap-space is for one GPU"),
])
def test_ranks_that_cannot_share_a_model_are_refused(even_model, first, second, words, monkeypatch):  # noqa: F811
    monkeypatch.setenv("CUDA_EMU_DEVICES", "2")
    both = ["--tensor-parallel-size", "2", "--model", even_model, *CUDA]
    code, messages = start_two([*both, *first], [*both, *second], binary=FAR)
    assert code == 2 and len(messages) == 1 and words in messages[0], messages


def test_a_gpu_that_two_ranks_would_share_is_refused(even_model):  # noqa: F811
    """Both processes see the same single GPU."""
    both = ["--tensor-parallel-size", "2", "--model", even_model, *CUDA]
    code, messages = start_two(both, both, binary=FAR)
    assert code in (2, 3) and any("NCCL cannot join the GPUs: invalid usage. Each rank needs a GPU" in line for line in messages), messages


def test_an_unknown_gpu_of_rank_1_is_named(even_model, monkeypatch):  # noqa: F811
    """Rank 1 sees no GPU at all."""
    monkeypatch.setenv("CUDA_EMU_DEVICES", "0")
    both = ["--tensor-parallel-size", "2", "--model", even_model, *CUDA]
    code, messages = start_two(both, both, binary=FAR)
    assert code == 2 and "no usable GPU was found" in messages[0], messages
