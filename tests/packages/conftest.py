"""Installs the built program for the tests of packages, and asks servers that run from them."""
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import httpx
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = os.environ.get("PACKAGED", "build")  # the folder of the build that is packaged
sys.path += [str(ROOT / "tests/e2e")]


def run(*command, **options):
    """Runs a command that must succeed, and returns what it prints."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


@contextlib.contextmanager
def serving(command, port, **options):
    """Runs a command that serves at the port, from the time when it is ready until the end of the block. Its log is a file: a
    pipe without a reader would stop the server when it is full."""
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen([str(word) for word in command], stderr=log, text=True, **options)
        try:
            end = time.monotonic() + 120
            while not is_ready(port):
                assert time.monotonic() < end and server.poll() is None, (server.kill(), log.seek(0), log.read())
                time.sleep(0.1)
            yield server
        finally:
            server.kill()
            server.wait()


def is_ready(port):
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health/ready", timeout=10).status_code == 200
    except httpx.TransportError:
        return False


def stream(port):
    """The text of a streamed chat, and how many events it had."""
    text, events = "", 0
    body = {"messages": [{"role": "user", "content": "Name a river."}], "max_tokens": 16, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"http://127.0.0.1:{port}/v1/chat/completions", json=body, timeout=60) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                text += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
                events += 1
    return text, events


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """The folder into which everything was installed as by `make install DESTDIR=FOLDER PREFIX=/usr`."""
    folder = tmp_path_factory.mktemp("installed")
    run("cmake", "--install", BUILD, "--prefix", "/usr", cwd=ROOT, env={**os.environ, "DESTDIR": str(folder)})
    return folder


@pytest.fixture(scope="session")
def commands(installed):
    """{command: {flag: its value as `penstock help COMMAND` shows it}}"""
    program = installed / "usr/bin/penstock"
    names = re.findall(r"^  ([a-z]+) ", run(program, "--help").split("\n\n")[1], re.M)
    assert {"serve", "run", "health"} <= set(names) and len(names) > 9
    flags = re.compile(r"^  (--[a-z0-9-]+)((?: (?:[A-Z]+(?:=[A-Z]+)?|[a-z0-9_]+(?:\|[a-z0-9_]+)*))?)(?=  |$)", re.M)
    return {name: {flag: value.strip() for flag, value in flags.findall(run(program, "help", name))} for name in names}


@pytest.fixture(scope="session")
def deb(tmp_path_factory):
    """The Debian package of the built program."""
    run("docker/package.sh", tmp_path_factory.getbasetemp() / "deb", BUILD, cwd=ROOT)
    path, = (tmp_path_factory.getbasetemp() / "deb").glob("*.deb")
    return path
