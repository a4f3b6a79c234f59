"""Installs the built program for the tests of packages."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests/e2e")]


def run(*command, **options):
    """Runs a command that must succeed, and returns what it prints."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """The folder into which everything was installed as by `make install DESTDIR=FOLDER PREFIX=/usr`."""
    folder = tmp_path_factory.mktemp("installed")
    run("cmake", "--install", "build", "--prefix", "/usr", cwd=ROOT, env={**os.environ, "DESTDIR": str(folder)})
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
    run("docker/package.sh", tmp_path_factory.getbasetemp() / "deb", cwd=ROOT)
    path, = (tmp_path_factory.getbasetemp() / "deb").glob("*.deb")
    return path
