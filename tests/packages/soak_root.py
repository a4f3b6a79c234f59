"""The Debian package in a root folder of a bare Debian: installed, checked, served as its user, upgraded, purged.

It needs root, for chroot. The root folder is made once by debootstrap, in build/packages/base.
"""
import hashlib
import os
import re
import shutil
import subprocess
import sys

import pytest
from bare import ETC, MODEL, MODELS, machine
from conftest import BUILD, ROOT, run

sys.path += [str(ROOT / "tests")]
from e2e.conftest import free_port  # noqa: E402
from e2e.hub import Hub  # noqa: E402


def test_lintian_finds_nothing(deb):
    assert run("lintian", "--no-cfg", "--allow-root", "--fail-on", "error,warning", deb) == ""


def test_the_same_sources_give_the_same_bytes(deb, tmp_path):
    run("docker/package.sh", tmp_path, BUILD, cwd=ROOT)
    again, = tmp_path.glob("*.deb")
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(deb.read_bytes()).digest()


# ---- a root folder ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    with machine(tmp_path_factory.mktemp("machine") / "root") as one:
        yield one


def test_install_serve_upgrade_purge(root, deb, tmp_path):
    port, etc = free_port(), root.folder / ETC
    root.install(deb)
    assert "penstock 0.1.0" in root.run("penstock version") and "penstock" in root.run("getent passwd penstock")
    changed = root.configure(port)
    assert "can be served" in root.run(f"penstock serve --check --config /{ETC}", user="penstock:penstock")
    root.serve_and_stream(port)
    run("docker/package.sh", tmp_path, BUILD, cwd=ROOT, env={**os.environ, "DEBIAN_REVISION": "2"})
    newer, = tmp_path.glob("*-2_*.deb")
    root.install(newer)
    assert root.run("dpkg-query -W -f '${Version}' penstock") == "0.1.0-2" and etc.read_text() == changed
    root.serve_and_stream(port)
    root.run("apt-get -qy purge penstock")
    assert not etc.parent.exists() and not (root.folder / "usr/bin/penstock").exists()
    assert (root.folder / MODELS / "model.gguf").stat().st_size == MODEL.stat().st_size


def test_libraries_loaded_by_dlopen_come_with_the_package(root, deb):
    """Alone it fetches models; without its recommendation --kv-events names what is missing, and then it serves."""
    root.install(deb)
    hub, port = Hub(), free_port()
    hub.files = {"some/model/model-q4_k_m.gguf": MODEL.read_bytes()}
    try:
        root.run(f"HF_ENDPOINT={hub.url} penstock pull some/model --models-dir /var/lib/penstock/hub")
    finally:
        hub.shutdown()
        hub.server_close()
    flags = (f"--model some/model --models-dir /var/lib/penstock/hub --offline --port {port} --max-model-len 512 "
             f"--kv-events tcp://127.0.0.1:{free_port()}")
    refused = subprocess.run(root.command("penstock serve", flags, user="penstock:penstock"), capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "libzmq5" in refused.stderr, refused.stderr
    package, = run("dpkg-deb", "-f", deb, "Recommends").split()
    root.run("apt-get", "-qy", "install", "--no-install-recommends", package)
    root.serve_and_stream(port, flags)


def test_readme_leads_from_the_package_to_a_chat_in_three_commands(deb, tmp_path):
    """On a machine that never had the package, by a user who may become root. The hub is one on loopback."""
    text = (ROOT / "README.md").read_text()
    lines = re.search(r"from the \.deb to a chat.*?\n\n((?:    .+\n)+)", text)[1].splitlines()
    assert len(lines) == 3 and lines[0].strip() == f"sudo apt install ./build/package/{deb.name}"
    name = re.search(r"penstock pull (\S+)", lines[1])[1]
    hub = Hub()
    hub.files = {f"{name}/model-q4_k_m.gguf": MODEL.read_bytes()}
    try:
        with machine(tmp_path / "root") as root:
            root.run("apt-get -qy install --no-install-recommends sudo; adduser --quiet --disabled-password --gecos '' newcomer")
            (root.folder / "etc/sudoers.d/newcomer").write_text("newcomer ALL=(ALL) NOPASSWD: ALL\n")
            (root.folder / "etc/apt/apt.conf.d/99yes").write_text('APT::Get::Assume-Yes "true";\n')  # nobody is there to answer
            home = root.folder / "home/newcomer"
            (home / "build/package").mkdir(parents=True)
            shutil.copy(deb, home / "build/package")
            before = f"export HOME=/home/newcomer HF_ENDPOINT={hub.url}; cd;"
            for line in lines[:2]:
                root.run(before, line, user="newcomer:newcomer")
            command = root.command(before, lines[2], user="newcomer:newcomer")
            chat = subprocess.run(command, input="Name a river.\n", capture_output=True, text=True, timeout=120, check=False)
            assert chat.returncode == 0 and chat.stdout.strip(), chat.stderr
            assert list(home.glob(".cache/huggingface/hub/models--*"))
    finally:
        hub.shutdown()
        hub.server_close()
