"""Builds the programs that check and time the CUDA kernels; with "carry", an archive of them for a machine without a build."""
import glob
import os
import re
import shutil
import subprocess
import time

import tools

BUILD = "build/kernels"


def architecture():
    """The architecture to build for: that of the GPU here, or Hopper."""
    capability = tools.ask_gpu(["compute_cap"])[0].replace(".", "")
    return f"{capability}-real" if capability.isdigit() else "90-real"


def has_libraries():
    """Can the whole program be built? One suite needs the engine."""
    names = ["check", "libmicrohttpd", "libuv", "libcjson", "libpcre2-8", "libutf8proc", "libxxhash", "yaml-0.1"]
    return bool(shutil.which("pkg-config")) and subprocess.run(["pkg-config", "--exists", *names], check=False).returncode == 0


def copy_libraries(programs):
    """Copies the libraries that programs need, except the system's own, beside them, so that the folder can be moved."""
    folder = os.path.join(programs, "lib")
    os.makedirs(folder, exist_ok=True)
    for program in glob.glob(os.path.join(programs, "gpu_*")):
        for name, path in re.findall(r"^\s*(\S+) => (/\S+)", tools.text_of(["ldd", program]), re.M):
            if not re.match(r"lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so", name):
                shutil.copy(path, os.path.join(folder, name))


def configure(architectures, deadline, log, *options):
    """Configures BUILD for these architectures alone. Returns exit code and output."""
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    compiler = [f"-DCMAKE_CUDA_COMPILER={tools.tool('nvcc')}"] if tools.tool("nvcc") else []
    code, _, said = tools.run(["cmake", "-S", ".", "-B", BUILD, *generator, "-DCMAKE_BUILD_TYPE=Release", "-DPENSTOCK_CUDA=ON",
                               f"-DPENSTOCK_KERNELS_ONLY={'OFF' if has_libraries() else 'ON'}",
                               "-DPENSTOCK_WERROR=OFF",  # warnings of another compiler must not cost the figures
                               f"-DPENSTOCK_CUDA_ONLY={architectures}", *compiler, *options], deadline, log)
    return code, said


def make(targets, deadline, log):
    """Builds everything that can be built, even if a part fails. Returns exit code and output."""
    on = ["-k", "0"] if os.path.exists(os.path.join(tools.ROOT, BUILD, "build.ninja")) else ["-k"]
    code, _, said = tools.run(["cmake", "--build", BUILD, "--parallel", os.environ.get("JOBS", str(os.cpu_count())), "--target",
                               *targets, "--", *on], deadline, log)
    return code, said


def build(report, deadline, architectures=None, targets=("gpu_programs",)):
    """Builds the programs for the GPU here, or other architectures. Returns their folder."""
    started = time.monotonic()
    code, said = configure(architectures or architecture(), deadline, report.log("configure.log"))
    if code == 0:
        code, said = make(targets, deadline, report.log("build.log"))
    programs = os.path.join(tools.ROOT, BUILD, "gpu")
    if os.path.isdir(programs):
        copy_libraries(programs)
        with open(os.path.join(programs, "commit.txt"), "w", encoding="utf-8") as file:
            file.write(tools.text_of(["git", "describe", "--always", "--dirty"]) + "\n")
    report["commit"] = commit_of(programs)
    report.step("build", "done" if code == 0 else "failed", time.monotonic() - started, said)
    return programs


def commit_of(programs):
    """The commit that the programs were built from; if none is recorded, the tree's."""
    try:
        with open(os.path.join(programs, "commit.txt"), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return tools.text_of(["git", "describe", "--always", "--dirty"]) or "unknown"
