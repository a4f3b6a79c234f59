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
from bare import BASE, Root, make_base
from conftest import BUILD, ROOT, run, serving, stream

sys.path += [str(ROOT / "tests")]
from e2e.conftest import free_port  # noqa: E402
from e2e.hub import Hub  # noqa: E402

MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"


def test_lintian_finds_nothing(deb):
    assert run("lintian", "--no-cfg", "--allow-root", "--fail-on", "error,warning", deb) == ""


def test_the_same_sources_give_the_same_bytes(deb, tmp_path):
    run("docker/package.sh", tmp_path, BUILD, cwd=ROOT)
    again, = tmp_path.glob("*.deb")
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(deb.read_bytes()).digest()


# ---- a root folder ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    make_base()
    folder = tmp_path_factory.mktemp("machine") / "root"
    run("cp", "-a", BASE, folder)
    yield Root(folder)
    shutil.rmtree(folder)


def serve_and_stream(root, port, flags="--config /etc/penstock/penstock.yaml"):
    with serving(root.command(f"exec penstock serve {flags} --drain-delay 0", user="penstock:penstock"), port):
        root.run(f"penstock health --port {port}")
        text, events = stream(port)
        assert text and events > 4


def test_install_serve_upgrade_purge(root, deb, tmp_path):
    port, etc, models = free_port(), root.folder / "etc/penstock/penstock.yaml", root.folder / "var/lib/penstock/models"
    root.run("apt-get", "-qq", "update")
    root.install(deb)
    assert "penstock 0.1.0" in root.run("penstock version") and "penstock" in root.run("getent passwd penstock")
    shutil.copy(MODEL, models / "model.gguf")
    etc.write_text(etc.read_text().replace("#model:", "model:").replace("#port: 8080", f"port: {port}"))
    assert "can be served" in root.run("penstock serve --check --config /etc/penstock/penstock.yaml", user="penstock:penstock")
    serve_and_stream(root, port)
    changed = etc.read_text()
    run("docker/package.sh", tmp_path, BUILD, cwd=ROOT, env={**os.environ, "DEBIAN_REVISION": "2"})
    newer, = tmp_path.glob("*-2_*.deb")
    root.install(newer)
    assert root.run("dpkg-query -W -f '${Version}' penstock") == "0.1.0-2" and etc.read_text() == changed
    serve_and_stream(root, port)
    root.run("apt-get -qy purge penstock")
    assert not etc.parent.exists() and not (root.folder / "usr/bin/penstock").exists()
    assert (models / "model.gguf").stat().st_size == MODEL.stat().st_size


def test_libraries_loaded_by_dlopen_come_with_the_package(root, deb):
    """Alone it fetches models; without its recommendation --kv-events names what is missing, and then it serves."""
    root.run("apt-get", "-qq", "update")
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
    serve_and_stream(root, port, flags)


def test_readme_leads_from_the_package_to_a_chat_in_three_commands(root, deb):
    text = (ROOT / "README.md").read_text()
    lines = re.search(r"from the \.deb to a chat.*?\n\n((?:    .+\n)+)", text)[1].splitlines()
    assert len(lines) == 3 and lines[0].strip() == f"sudo apt install ./build/package/{deb.name}"
    name = re.search(r"penstock pull (\S+)", lines[1])[1]
    hub = Hub()
    hub.files = {f"{name}/model-q4_k_m.gguf": MODEL.read_bytes()}
    try:
        (root.folder / "root/build/package").mkdir(parents=True)
        shutil.copy(deb, root.folder / "root/build/package")
        (root.folder / "usr/bin/sudo").write_text("#!/bin/sh\nexec \"$@\"\n")
        (root.folder / "usr/bin/sudo").chmod(0o755)
        (root.folder / "etc/apt/apt.conf.d/99yes").write_text('APT::Get::Assume-Yes "true"; APT::Install-Recommends "false";')
        before = f"cd /root; export HF_ENDPOINT={hub.url};"
        root.run("apt-get", "-qq", "update")
        for line in lines[:2]:
            root.run(before, line)
        chat = subprocess.run(root.command(before, lines[2]), input="Name a river.\n", capture_output=True, text=True, timeout=120, check=False)
        assert chat.returncode == 0 and chat.stdout.strip(), chat.stderr
    finally:
        hub.shutdown()
        hub.server_close()
