"""docker/build.sh: the architectures for which the CUDA kernels are compiled, and the compiler. nvidia-smi, nvcc and
cmake are stand-ins."""
import os
import shutil
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KNOWN = "sm_75\nsm_80\nsm_86\nsm_90\nsm_120"


class Machine:
    """A tree with build.sh and the programs that it calls, and the GPUs of a machine."""

    def __init__(self, tree, capabilities, known=KNOWN):
        self.tree, self.bin = tree, tree / "bin"
        (tree / "docker").mkdir()
        self.bin.mkdir()
        for script in ("build.sh", "gpus.sh", "nvcc.sh"):
            shutil.copy(os.path.join(ROOT, "docker", script), tree / "docker")
        self.tool("cmake", f'[ "$1" = --preset ] || exit 0\necho "$@" >>{tree}/configured\nmkdir -p build\n: >build/build.ninja\n'
                  'for word in "$@"; do\n    case $word in\n'
                  '    -DPENSTOCK_CUDA=*) echo "PENSTOCK_CUDA:STRING=${word#*=}" >build/CMakeCache.txt ;;\n'
                  '    -DPENSTOCK_CUDA_ONLY=*) echo "PENSTOCK_CUDA_ONLY:STRING=${word#*=}" >>build/CMakeCache.txt ;;\n'
                  '    -DPENSTOCK_CUDA_QUICK=*) echo "PENSTOCK_CUDA_QUICK:BOOL=${word#*=}" >>build/CMakeCache.txt ;;\n    esac\ndone')
        self.gpus(capabilities)
        if known:
            self.tool("nvcc", f'[ "$1" = --list-gpu-code ] && echo "{known}"')

    def tool(self, name, text):
        (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.bin / name).chmod(0o755)

    def gpus(self, capabilities):
        self.tool("nvidia-smi", "\n".join(f"echo {c}" for c in capabilities) or "exit 9")

    def build(self, **settings):
        """Builds. Returns the architectures with which the folder is now configured, or None if it is not."""
        log = self.tree / "configured"
        log.write_text("")
        environment = {"PATH": f"{self.bin}:/usr/bin:/bin", "CUDA_PATH": "/nowhere", **settings}
        done = subprocess.run(["docker/build.sh", "release", "1", "penstock"], cwd=self.tree, env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        self.said = done.stdout
        words = log.read_text().split()
        self.quick = "-DPENSTOCK_CUDA_QUICK=ON" in words
        return next((word.split("=", 1)[1] for word in words if word.startswith("-DPENSTOCK_CUDA_ONLY=")), None)


NATIVE = {"PENSTOCK_CUDA_ONLY": "native"}


@pytest.mark.parametrize("capabilities, known, only", [
    (["9.0"], KNOWN, "90-real"),
    (["9.0", "9.0"], KNOWN, "90-real"),
    (["12.0", "8.6"], KNOWN, "120-real;86-real"),
    (["7.5", "8.0"], KNOWN, "80-real"),
    (["7.5"], KNOWN, ""),          # the kernels do not support it
    (["13.4"], KNOWN, ""),         # newer than nvcc: it runs the PTX
    (["9.0", "13.4"], KNOWN, ""),
    ([], KNOWN, ""),
    (["9.0"], None, ""),           # no toolkit
])
def test_make_run_compiles_for_the_machines_own_gpus(tmp_path, capabilities, known, only):
    assert Machine(tmp_path, capabilities, known).build(**NATIVE) == only


def test_a_folder_is_configured_again_when_it_lacks_something(tmp_path):
    machine = Machine(tmp_path, ["9.0"])
    assert machine.build(**NATIVE) == "90-real"
    assert machine.build(**NATIVE) is None
    machine.gpus(["8.6"])  # the folder has moved
    assert machine.build(**NATIVE) == "86-real"
    assert machine.build() == ""  # a package's build has all architectures
    assert machine.build(**NATIVE) is None
    assert machine.build() is None


def test_without_a_gpu_no_folder_is_configured_again(tmp_path):
    machine = Machine(tmp_path, [])
    off = {"PENSTOCK_CUDA": "OFF", **NATIVE}
    assert machine.build(**off) == ""
    assert machine.build(**off) is None
    assert machine.build(PENSTOCK_CUDA_ONLY="90-real") == "90-real"  # the tests compile the kernels
    assert machine.build(**off) is None


def test_make_build_without_a_gpu_compiles_one_architecture_and_says_how_to_compile_all(tmp_path):
    machine = Machine(tmp_path, [])
    default, every = {"PENSTOCK_CUDA_ONLY": "default"}, {"PENSTOCK_CUDA_ONLY": "all"}
    for only in "90-real", None:  # the second build finds the folder configured
        assert machine.build(**default) == only
        assert machine.said == "No GPU: CUDA kernels for one architecture (90-real); for all: make build PENSTOCK_CUDA_ONLY=all\n"
    assert (machine.build(**every), machine.said) == ("", "")
    assert (machine.build(**default), machine.said) == (None, "")  # a folder with all keeps them


def test_kernels_that_only_had_to_compile_are_compiled_in_full_for_a_build(tmp_path):
    machine = Machine(tmp_path, [])
    quick = {"PENSTOCK_CUDA_ONLY": "90-real", "PENSTOCK_CUDA_QUICK": "ON"}
    assert (machine.build(**quick), machine.quick) == ("90-real", True)
    assert machine.build(**quick) is None
    assert machine.build(PENSTOCK_CUDA="OFF") is None  # it needs no kernels
    assert (machine.build(PENSTOCK_CUDA_ONLY="default"), machine.quick) == ("90-real", False)
    assert machine.build(**quick) is None  # kernels that are compiled in full stay


@pytest.mark.parametrize("capabilities, known, settings", [
    (["9.0"], KNOWN, {}),
    ([], None, {}),  # no toolkit
    ([], KNOWN, {"PENSTOCK_CUDA": "OFF"}),
])
def test_other_machines_make_build_compiles_all_it_can(tmp_path, capabilities, known, settings):
    machine = Machine(tmp_path, capabilities, known)
    assert machine.build(PENSTOCK_CUDA_ONLY="default", **settings) == ""
    assert machine.said == ""


@pytest.mark.parametrize("device, capabilities, code, said", [
    ("nvidiactl", ["9.0", "8.6", "9.0"], 0, "8.6\n9.0\n"),
    ("nvidiactl", [], 0, ""),      # a driver without nvidia-smi
    ("dxg", ["8.9"], 0, "8.9\n"),  # WSL 2
    ("dxg", [], 1, ""),            # also present with other makers' GPUs
    ("null", [], 1, ""),
])
def test_a_gpu_is_found_by_its_drivers_device(tmp_path, device, capabilities, code, said):
    machine = Machine(tmp_path, capabilities)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / device).write_text("")
    done = subprocess.run([tmp_path / "docker/gpus.sh", tmp_path / "dev"], env={"PATH": f"{machine.bin}:/usr/bin:/bin"},
                          capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (code, said, "")


def test_one_compiler_is_every_builds(tmp_path):
    machine = Machine(tmp_path, ["9.0"])
    own = tmp_path / "cuda/bin"
    own.mkdir(parents=True)
    shutil.copy(machine.bin / "nvcc", own / "nvcc")

    def chosen(**settings):
        environment = {"PATH": f"{machine.bin}:/usr/bin:/bin", **settings}
        return subprocess.run([tmp_path / "docker/nvcc.sh"], env=environment, capture_output=True, text=True).stdout
    assert chosen(CUDA_PATH=str(tmp_path / "cuda")) == f"{own}/nvcc\n"
    assert chosen(CUDA_PATH="/nowhere") == f"{machine.bin}/nvcc\n"
    (machine.bin / "nvcc").unlink()
    assert chosen(CUDA_PATH="/nowhere") == ""
    with open(os.path.join(ROOT, "CMakeLists.txt")) as file:
        assert "docker/nvcc.sh" in file.read()
