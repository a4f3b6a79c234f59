"""Packs the programs for a GPU and the server with their libraries, for a machine that has neither: bench/gpu.sh carry

The archive has gpu/ (suites and timing programs) and app/ (penstock); each has lib/. Both run if LD_LIBRARY_PATH names their
lib/. Both are tried in a folder that holds nothing else but the C library: the loader must find all libraries of each
program for a GPU, and the server must answer a completion on the CPU.
"""
import contextlib
import glob
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
import urllib.request

import build
import tools

LIMIT = 64 << 20  # bytes of the archive and of the tree together: what is often carried
ARCHIVE_LIMIT = 10 << 20  # of the archive alone; the self-test checks that the tree leaves these
MODEL = "tests/vectors/families/qwen2.gguf"
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


NO_ROOT = "cannot change root|Operation not permitted|unshare failed"  # this user cannot change the root
ALONE = {"LD_LIBRARY_PATH": "/app/lib"}


@contextlib.contextmanager
def bare_root(folder, c_library):
    """A folder with app/, a copy of `folder`, and the C library. Yields the folder and the command that makes it the root."""
    with tempfile.TemporaryDirectory() as root:
        shutil.copytree(folder, os.path.join(root, "app"))
        for path in c_library:
            os.makedirs(root + os.path.dirname(path), exist_ok=True)
            shutil.copy(path, root + path)
        yield root, ["chroot", root] if os.geteuid() == 0 else ["unshare", "-r", "chroot", root]


def judge_run(code, said):
    """Returns a sentence about a program that failed, "" for one that did not, None if the root cannot be changed."""
    if code and re.search(NO_ROOT, said):
        return None
    return f"exit {code}: {said.strip()[-300:]}" if code else ""


def runs_alone(folder, program, arguments, c_library):
    """Does folder/program run where only the folder and the C library exist? Returns what judge_run() says."""
    with bare_root(folder, c_library) as (_, change):
        done = subprocess.run([*change, f"/app/{program}", *arguments], env={**os.environ, **ALONE}, text=True, capture_output=True,
                              timeout=60, check=False)
        return judge_run(done.returncode, done.stderr or done.stdout)


def loads_alone(folder, programs, c_library):
    """Does the loader find the libraries of all these programs of a folder there? Returns what judge_run() says."""
    loader = next(path for path in c_library if os.path.basename(path).startswith("ld-linux"))
    with bare_root(folder, c_library) as (_, change):
        for program in programs:
            done = subprocess.run([*change, loader, "--list", f"/app/{program}"], env={**os.environ, **ALONE}, text=True,
                                  capture_output=True, timeout=60, check=False)
            if found := judge_run(done.returncode, done.stderr):
                return f"{program}: {found}"
            if found is None:
                return None
    return ""


# ---- a server that answers ------------------------------------------------------------------------------------

def wait_for_url(process, log, deadline):
    """The address in a server's line "ready on", or None if the server ends before or the time is up."""
    while deadline.left() > 0:
        ended = process.poll() is not None
        with open(log, encoding="utf-8", errors="replace") as file:
            if ready := re.search(r"ready on (http://\S+)", file.read()):
                return ready[1]
        if ended:
            return None
        time.sleep(0.05)
    return None


def complete(url, deadline):
    """Asks a server for four tokens. Returns "" or a sentence."""
    asked = urllib.request.Request(url + "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 4, "ignore_eos": True}).encode(),
                                   {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=max(deadline.left(), 0.1)) as answer:
            tokens = json.load(answer)["usage"]["completion_tokens"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"no completion: {type(error).__name__}: {error}"
    return "" if tokens == 4 else f"{tokens} tokens instead of 4"


def answers(command, environment, log, seconds=60):
    """Starts a server, asks for a completion, and ends it. Returns what judge_run() says."""
    deadline = tools.Deadline(seconds)
    with open(log, "w", encoding="utf-8") as said:
        process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=said, stderr=subprocess.STDOUT,
                                   start_new_session=True)
    try:
        url = wait_for_url(process, log, deadline)
        found = complete(url, deadline) if url else "it is not ready"
        process.terminate()
        code = process.wait(timeout=max(deadline.left(), 1))
    except subprocess.TimeoutExpired:
        found, code = f"it did not end within {seconds} s", 1
    finally:
        tools.kill(process)
    with open(log, encoding="utf-8", errors="replace") as file:
        text = file.read()
    return judge_run(code or 1, f"{found}: {text}") if found else judge_run(code, text)


def serves_alone(folder, model, c_library, log):
    """Does folder/penstock serve a model on the CPU where only the folder and the C library exist?"""
    with bare_root(folder, c_library) as (root, change):
        shutil.copy(model, os.path.join(root, "model.gguf"))
        return answers([*change, "/app/penstock", "serve", "--model", "/model.gguf", "--device", "cpu", "--port", "0"], ALONE, log)


# ---- the archive ----------------------------------------------------------------------------------------------


def tree_bytes(root=tools.ROOT):
    """The bytes of the files that git knows or does not ignore."""
    names = subprocess.run(["git", "-C", root, "ls-files", "-z", "-co", "--exclude-standard"], capture_output=True, text=True,
                           check=False).stdout.split("\0")
    return sum(os.lstat(path).st_size for path in {os.path.join(root, n) for n in names if n} if os.path.lexists(path))


def pack(folders, archive):
    """Packs folders. The dictionary of preset 9, 64 MiB, holds both copies of the libraries, so that the second costs nothing."""
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for folder in folders:
            tar.add(folder, arcname=os.path.basename(folder))
    return os.path.getsize(archive)


def judge_size(archive_bytes, bytes_of_tree):
    """Returns a sentence with the sizes, and whether they fit."""
    both = archive_bytes + bytes_of_tree
    return (f"the archive has {archive_bytes / 2**20:.1f} MiB of {ARCHIVE_LIMIT >> 20}, with the tree {both / 2**20:.1f} of {LIMIT >> 20}",
            archive_bytes <= ARCHIVE_LIMIT and both <= LIMIT)


def tree_says(bytes_of_tree):
    """Returns a sentence with the size of the tree, and whether an archive fits beside it."""
    room = LIMIT - ARCHIVE_LIMIT
    return (f"the tree has {bytes_of_tree / 2**20:.1f} MiB of {room >> 20}, beside an archive of at most {ARCHIVE_LIMIT >> 20}",
            bytes_of_tree <= room)


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
    c_library, made = add_program(server, app), sorted(glob.glob(os.path.join(programs, "gpu_*")))
    for program in made:
        c_library = sorted({*c_library, *add_libraries(program, programs)})
    tried = {"run alone": runs_alone(app, "penstock", ["version"], c_library),
             "serve alone": serves_alone(app, os.path.join(tools.ROOT, MODEL), c_library, report.log("serve.log")),
             "load alone": loads_alone(programs, [os.path.basename(program) for program in made], c_library)}
    for name, found in tried.items():
        report.step(name, "not tried: this user cannot change the root" if found is None else "failed" if found else "done", 0.0,
                    found or "")
    sentence, fits = judge_size(pack([programs, app], archive), tree_bytes())
    report.step("pack", "done" if fits else "failed", 0.0, sentence)
    print(sentence)
    return archive
