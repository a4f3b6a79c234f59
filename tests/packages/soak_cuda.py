"""The Debian package with kernels for GPUs: its dependencies, its units, and a bare Debian without a GPU, on which it takes the
place of the other package and serves from the CPU.

It needs root, for chroot, and nvcc: that of this machine, or NVIDIA's from PyPI. The kernels are compiled for one
architecture, in the quick mode, unless the build folder already has them for all.
"""
import os
import re
import subprocess
import sys

import pytest
from bare import ETC, MODEL, MODELS, machine
from conftest import ROOT, run
from toolkit import make_toolkit

sys.path += [str(ROOT / "tests")]
from e2e.conftest import free_port  # noqa: E402

BUILD = os.environ.get("PACKAGED_CUDA", "build/cuda")
ONE = {"PENSTOCK_CUDA": "ON", "PENSTOCK_CUDA_ONLY": "90-real", "PENSTOCK_CUDA_QUICK": "ON"}
OF_NVIDIA = r"(cuda|cudart|cublas|cublasLt|nccl|nvidia|nvrtc)"


@pytest.fixture(scope="module")
def cuda_deb(tmp_path_factory):
    environment = {**os.environ, **ONE}
    if not run("docker/nvcc.sh", cwd=ROOT).strip():
        environment["CUDA_PATH"] = str(make_toolkit())
    if "PACKAGED_CUDA" not in os.environ:
        run("docker/build.sh", "cuda", os.environ.get("JOBS", os.cpu_count()), "installed", cwd=ROOT, env=environment)
    folder = tmp_path_factory.mktemp("cuda")
    run("docker/package.sh", folder, BUILD, cwd=ROOT, env=environment)
    path, = folder.glob("penstock-cuda_*.deb")
    return path


@pytest.fixture(scope="module")
def files(cuda_deb, tmp_path_factory):
    """The folder into which the package was unpacked."""
    folder = tmp_path_factory.mktemp("unpacked")
    run("dpkg-deb", "-x", cuda_deb, folder)
    return folder


def names_of(deb, field):
    """The packages of a field, without their versions."""
    return re.findall(r"(?:^|, )([\w.+-]+)", run("dpkg-deb", "-f", deb, field).strip())


def test_lintian_finds_nothing(cuda_deb):
    assert run("lintian", "--no-cfg", "--allow-root", "--fail-on", "error,warning", cuda_deb) == ""


def test_it_depends_on_the_libraries_of_the_other_package_and_on_none_of_nvidia(deb, cuda_deb, files):
    """The runtime is part of the program, the driver's library is the machine's, cuBLAS and NCCL are suggestions."""
    for field in ("Depends", "Recommends"):
        assert sorted(names_of(cuda_deb, field)) == sorted(names_of(deb, field))
    assert len(names_of(cuda_deb, "Depends")) > 10
    suggested = names_of(cuda_deb, "Suggests")
    assert "libnccl2" in suggested and any(re.fullmatch(r"libcublas-\d+-\d+", name) for name in suggested), suggested
    linked = re.findall(r"NEEDED +(\S+)", run("objdump", "-p", files / "usr/bin/penstock"))
    assert "libc.so.6" in linked and [name for name in linked if re.match(rf"lib{OF_NVIDIA}\b", name)] == []
    program = (files / "usr/bin/penstock").read_bytes()
    assert b"libcuda.so.1" in program and b"libcublas.so." in program and b"libnccl.so." in program
    for field in ("Conflicts", "Replaces", "Provides"):
        assert names_of(cuda_deb, field) == ["penstock"]
    assert names_of(deb, "Conflicts") == names_of(deb, "Replaces") == ["penstock-cuda"]


def test_no_path_of_this_machine_is_in_the_program(files):
    program = (files / "usr/bin/penstock").read_bytes()
    assert str(ROOT).encode() not in program and b"kernels/cuda/" in program


def test_its_units_leave_the_devices_open_and_are_still_hardened(files):
    for unit in ("penstock.service", "penstock@.service"):
        path = files / "usr/lib/systemd/system" / unit
        text = path.read_text()
        assert "\nPrivateDevices=no\n" in text and "MemoryDenyWriteExecute" not in text
        report = run("systemd-analyze", "security", "--offline=yes", "--no-pager", path)
        assert float(re.search(r"exposure level for \S+: ([0-9.]+)", report)[1]) <= 2.0, report


def test_it_takes_the_place_of_the_other_package_and_serves_from_the_cpu(deb, cuda_deb, tmp_path):
    port, user = free_port(), "penstock:penstock"
    with machine(tmp_path / "root") as root:
        root.install(deb)
        changed, etc = root.configure(port), root.folder / ETC
        root.install(cuda_deb)
        assert root.run("dpkg-query -W -f '${db:Status-Status}' penstock-cuda") == "installed"
        assert root.run("penstock --version").startswith("penstock 0.1.0 ") and etc.read_text() == changed
        assert "can be served" in root.run(f"penstock serve --check --config /{ETC}", user=user)
        root.serve_and_stream(port)
        refused = subprocess.run(root.command(f"penstock serve --device cuda --config /{ETC}", user=user), capture_output=True, text=True, check=False)
        assert refused.returncode != 0 and "no usable GPU" in refused.stderr, refused.stderr
        fetched = root.folder / "var/cache/penstock/fetched"
        fetched.parent.mkdir()
        fetched.touch()
        root.run("apt-get -qy purge penstock")  # its remains
        assert etc.read_text() == changed and fetched.exists()
        root.serve_and_stream(port)
        root.run("apt-get -qy purge penstock-cuda")
        assert not etc.parent.exists() and not fetched.parent.exists() and not (root.folder / "usr/bin/penstock").exists()
        assert (root.folder / MODELS / "model.gguf").stat().st_size == MODEL.stat().st_size
