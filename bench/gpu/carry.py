"""Packs the programs for a GPU and the server with their libraries, for a machine that has neither: bench/gpu.sh carry

The archive has gpu/ (suites and timing programs) and app/ (penstock); each has lib/. Both run if LD_LIBRARY_PATH names their
lib/. The server is tried in a folder that holds nothing else but the C library.
"""
import glob
import os
import re
import shutil
import subprocess
import tarfile
import tempfile

import build
import tools

LIMIT = 64 << 20  # bytes of the archive and of the tree together: what is often carried
C_LIBRARY = r"(ld-linux\S*|lib(c|m|dl|rt|pthread|resolv))\.so"


def libraries_of(program):
    """Returns {name: path} of what the loader finds, the loader itself among them."""
    return {os.path.basename(path): path for path in re.findall(r"(/\S+) \(0x", tools.text_of(["ldd", program]))}


def add_libraries(program, folder):
    """Copies the libraries of a program, except the C library's own, to folder/lib. Returns those left out."""
    os.makedirs(os.path.join(folder, "lib"), exist_ok=True)
    all_of_them = libraries_of(program)
    for name, path in all_of_them.items():
        if not re.match(C_LIBRARY, name):
            shutil.copy(path, os.path.join(folder, "lib", name))
    return [path for name, path in all_of_them.items() if re.match(C_LIBRARY, name)]


def add_program(program, folder):
    """Copies a program without its symbols, and its libraries. Returns the files of the C library that it needs."""
    os.makedirs(folder, exist_ok=True)
    copy = os.path.join(folder, os.path.basename(program))
    shutil.copy(program, copy)
    if tools.tool("strip"):
        subprocess.run(["strip", copy], check=False)
    return add_libraries(program, folder)


def runs_alone(folder, program, arguments, c_library):
    """Does folder/program run where only the folder and the C library exist? Returns a sentence if not, "" if it does; None if
    this user cannot change the root."""
    with tempfile.TemporaryDirectory() as root:
        shutil.copytree(folder, os.path.join(root, "app"))
        for path in c_library:
            os.makedirs(root + os.path.dirname(path), exist_ok=True)
            shutil.copy(path, root + path)
        change = ["chroot", root] if os.geteuid() == 0 else ["unshare", "-r", "chroot", root]
        done = subprocess.run([*change, f"/app/{program}", *arguments], env={**os.environ, "LD_LIBRARY_PATH": "/app/lib"}, text=True,
                              capture_output=True, timeout=60, check=False)
        if re.search("cannot change root|Operation not permitted|unshare failed", done.stderr):
            return None
        return "" if done.returncode == 0 else f"exit {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}"


def tree_bytes(root=tools.ROOT):
    """The bytes of the files that git knows or does not ignore."""
    names = subprocess.run(["git", "-C", root, "ls-files", "-z", "-co", "--exclude-standard"], capture_output=True, text=True,
                           check=False).stdout.split("\0")
    return sum(os.lstat(path).st_size for path in {os.path.join(root, n) for n in names if n} if os.path.lexists(path))


def pack(folders, archive):
    with tarfile.open(archive, "w:xz") as tar:
        for folder in folders:
            tar.add(folder, arcname=os.path.basename(folder))
    return os.path.getsize(archive)


def judge_size(archive_bytes, bytes_of_tree):
    """Returns a sentence with the sizes, and whether they fit."""
    both = archive_bytes + bytes_of_tree
    return (f"the archive has {archive_bytes / 2**20:.1f} MiB, with the tree {both / 2**20:.1f} of {LIMIT >> 20}", both <= LIMIT)


def carry(report, deadline):
    """Builds for sm_90 alone, packs, tries, and checks the size. Returns the archive's path."""
    programs = build.build(report, deadline, "90-real", ("gpu_programs", "penstock"))
    lacking = [name for name in ("gpu_times", "gpu_serve") if not os.path.exists(os.path.join(programs, name))]
    server = os.path.join(tools.ROOT, build.BUILD, "penstock")
    if lacking or not os.path.exists(server):
        report.step("pack", "failed", 0.0, f"not built: {', '.join(lacking) or 'penstock'} (configure.log names missing libraries)")
        return None
    app, archive = os.path.join(tools.ROOT, build.BUILD, "app"), os.path.join(report.out, "penstock-gpu.txz")
    shutil.rmtree(app, ignore_errors=True)
    c_library = add_program(server, app)
    for program in glob.glob(os.path.join(programs, "gpu_*")):
        add_libraries(program, programs)
    found = runs_alone(app, "penstock", ["version"], c_library)
    report.step("run alone", "not tried: this user cannot change the root" if found is None else "failed" if found else "done", 0.0,
                found or "")
    sentence, fits = judge_size(pack([programs, app], archive), tree_bytes())
    report.step("pack", "done" if fits else "failed", 0.0, sentence)
    print(sentence)
    return archive
