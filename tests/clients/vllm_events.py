"""The types of events of the newest vLLM on PyPI, for msgspec.

pip says where the newest wheel is. It has 340 MB, so only its needed files are read, by requests for ranges of bytes. No other
code of vLLM runs: it would need torch.
"""
import ast
import io
import json
import subprocess
import sys
import typing
import urllib.request
import zipfile

EVENTS = "vllm/distributed/kv_events.py"
PATIENCE_SECONDS, BUFFER = 60, 1 << 20


class RemoteFile(io.RawIOBase):
    """A file of a web server that answers requests for ranges."""

    def __init__(self, url):
        self.url, self.at = url, 0
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=PATIENCE_SECONDS) as answer:
            self.size = int(answer.headers["Content-Length"])

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=io.SEEK_SET):
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        return self.at

    def readinto(self, buffer):
        end = min(self.at + len(buffer), self.size)
        if end <= self.at:
            return 0
        asked = urllib.request.Request(self.url, headers={"Range": f"bytes={self.at}-{end - 1}"})
        with urllib.request.urlopen(asked, timeout=PATIENCE_SECONDS) as answer:
            assert answer.status == 206, f"{self.url}: the server does not answer requests for ranges"
            data = answer.read()
        buffer[:len(data)] = data
        self.at += len(data)
        return len(data)


def newest_wheel():
    """Returns the version and the URL of the wheel that pip would install."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run", "--no-deps",
               "--ignore-installed", "--only-binary", ":all:", "--report", "-", "vllm"]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    found, = report["install"]
    return found["metadata"]["version"], found["download_info"]["url"]


def values_of(source, names):
    """The assignments to these names at a module's top level."""
    for node in ast.parse(source).body:
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Name) and target.id in names:
            yield ast.copy_location(ast.Assign([target], node.value), node)


def structs_of(read):
    """Runs the classes of kv_events.py that are structs of msgspec, with the types that they import. Returns them by name."""
    kept, structs = [], {"msgspec.Struct"}
    for node in ast.parse(read(EVENTS)).body:
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "vllm":
            kept += values_of(read(node.module.replace(".", "/") + ".py"), {name.name for name in node.names})
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            kept.append(node)
        elif isinstance(node, ast.ClassDef) and structs & {ast.unparse(base) for base in node.bases}:
            structs.add(node.name)
            kept.append(node)
    space = {"__name__": "vllm_events", **{name: getattr(typing, name) for name in typing.__all__}}
    exec(compile(ast.fix_missing_locations(ast.Module(kept, [])), EVENTS, "exec"), space)
    return {name: space[name] for name in structs - {"msgspec.Struct"}}


def newest_types():
    """Returns vLLM's version and its structs of events by name."""
    version, url = newest_wheel()
    with zipfile.ZipFile(io.BufferedReader(RemoteFile(url), BUFFER)) as wheel:
        return version, structs_of(lambda path: wheel.read(path).decode())
