"""NVIDIA's CUDA toolkit from PyPI: the compiler, the headers and libraries that a build needs, and NCCL."""
import shutil
import sys

from conftest import ROOT, run

FOLDER = ROOT / "build/packages/toolkit"


def make_toolkit():
    """Returns the folder of a CUDA toolkit, in the form that NVIDIA's own packages have. It is fetched once."""
    if not FOLDER.exists():
        half = FOLDER.with_name("half_toolkit")
        shutil.rmtree(half, ignore_errors=True)
        run(sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps", "--target", half, "-r",
            ROOT / "tests/packages/requirements_toolkit.txt")
        cuda = half / "nvidia/cu13"
        (cuda / "lib64").symlink_to("lib")
        (cuda / "lib/libcudart.so").symlink_to("libcudart.so.13")
        half.rename(FOLDER)
    return FOLDER / "nvidia/cu13"
