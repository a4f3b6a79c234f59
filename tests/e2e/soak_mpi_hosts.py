"""Two ranks on two hosts: a network namespace of Linux is the second one, with network devices of its own, and a program in
place of ssh starts processes there. Needs root, and a machine or container that may make namespaces. tests/run.sh ranks."""
import concurrent.futures
import os
import subprocess
import time
import uuid

import pytest

from conftest import Server
from test_mpi import (COMMON, DRAFTS, EXIT_DEVICE_FAILED, MPIRUN, SMALL, STREAM, answer, even_model, exit_code,  # noqa: F401
                      ranks, read_all, requests)

HERE, THERE = "10.77.43.1", "10.77.43.2"


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.fail(f"ip {' '.join(words)}: {done.stderr.strip()}; this test needs root and a machine that may make network namespaces")


@pytest.fixture(scope="module")
def host():
    """The name of a namespace that is joined with this one by a cable."""
    name = "pk" + uuid.uuid4().hex[:8]
    ip("netns", "add", name)
    try:
        ip("link", "add", name + "a", "type", "veth", "peer", "name", name + "b", "netns", name)
        ip("addr", "add", HERE + "/24", "dev", name + "a")
        ip("link", "set", name + "a", "up")
        ip("-n", name, "addr", "add", THERE + "/24", "dev", name + "b")
        ip("-n", name, "link", "set", name + "b", "up")
        ip("-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.fixture
def mpirun(host, tmp_path):
    """The command that starts rank 0 here and rank 1 on the other host. It replaces test_mpi.py's."""
    agent = tmp_path / "agent"
    agent.write_text(f'#!/bin/sh\n[ "$1" = {THERE} ] || exit 1\nshift\nexec ip netns exec {host} sh -c "$*"\n')
    agent.chmod(0o755)
    network = [word for kind in ("btl_tcp", "oob_tcp") for word in ("--mca", kind + "_if_include", "10.77.43.0/24")]
    return [*MPIRUN[:-1], "tcp,self", "--enable-recovery", *network, "--mca", "plm_rsh_agent", str(agent), "--host",
            f"{HERE},{THERE}", "--map-by", "node"]


def namespace_of(pid):
    return os.readlink(f"/proc/{pid}/ns/net")


def test_two_hosts_give_the_bytes_of_two_threads(ranks, even_model, mpirun):  # noqa: F811
    asked = requests(24, 5)
    far = ranks(2, *COMMON, *SMALL, *DRAFTS, model=even_model, mpirun=mpirun)
    assert namespace_of(far.pids[0]) == namespace_of("self") != namespace_of(far.pids[1])
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda body: answer(far, body), asked))
    far.end()
    near = Server("--tensor-parallel-size", "2", "--threads", "2", *COMMON, *SMALL, *DRAFTS, model=even_model).wait_until_ready()
    try:
        assert got == [answer(near, body) for body in asked]
    finally:
        near.stop()


def test_a_pulled_cable_ends_both_ranks(ranks, even_model, mpirun, host, tmp_path):  # noqa: F811
    """mpirun itself does not end: it waits for its own process on the other host."""
    server = ranks(2, *COMMON, *SMALL, "--rank-timeout", "2", model=even_model, codes=tmp_path, mpirun=mpirun)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        stream = pool.submit(read_all, server, {**STREAM, "n": 4})
        while server.metric("vllm:generation_tokens_total") < 4:
            time.sleep(0.005)
        ip("link", "set", host + "a", "down")
        try:
            assert exit_code(server, 0) == EXIT_DEVICE_FAILED
            exit_code(server, 1)
        finally:
            ip("link", "set", host + "a", "up")
        status, raw = stream.result()
    assert status == 200 and b'"rank_lost"' in raw, raw[-300:]
    assert "Rank 1 of 2 is lost: it gave no sign of life" in server.log_tail()
