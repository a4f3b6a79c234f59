"""The Python wheel in a fresh virtual environment: its tag, its libraries, its bytes, a server, and a model by its name."""
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import zipfile

import pytest
from conftest import BUILD, ROOT, run, serving, stream

sys.path += [str(ROOT / "tests")]
from e2e.conftest import free_port  # noqa: E402
from e2e.hub import Hub  # noqa: E402

MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"


def make(folder):
    run("docker/wheel.sh", folder, BUILD, cwd=ROOT)
    path, = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return make(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """The folder of programs of a virtual environment that has the wheel and nothing else, not even pip."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    run(sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "-q", "--no-index", wheel)
    return folder / "bin"


def test_the_tag_names_the_glibc_of_this_machine(wheel):
    glibc = platform.libc_ver()[1].replace(".", "_")
    assert wheel.name == f"penstock-0.1.0-py3-none-manylinux_{glibc}_{platform.machine()}.whl"
    shown = run(ROOT / "build/release/venv/bin/python", "-m", "auditwheel", "show", wheel)
    assert f"manylinux_{glibc}_{platform.machine()}" in shown, shown


def test_it_holds_each_library_with_its_licence(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    libraries = {re.sub(r"-[0-9a-f]{8}\.so.*", "", name.removeprefix("penstock.libs/")) for name in names if name.startswith("penstock.libs/lib")}
    assert {"libuv", "libmicrohttpd", "libpcre2-8", "libsystemd", "libgnutls"} <= libraries and "libc" not in libraries
    licences = [name.split("/licenses/")[1] for name in names if "/licenses/" in name and not name.endswith("/")]
    for library in libraries:
        start = "libraries/" + library.removesuffix("-8").removesuffix("-0")
        assert [name for name in licences if name.startswith(start)], (library, licences)
    assert "LICENSE" in licences and "libraries/libc6" not in licences and "libraries/libzmq5" not in licences


def test_the_same_program_gives_the_same_bytes(wheel, tmp_path):
    assert hashlib.sha256(make(tmp_path).read_bytes()).digest() == hashlib.sha256(wheel.read_bytes()).digest()


def test_it_serves_a_stream_with_its_own_libraries(environment, tmp_path):
    port = free_port()
    for command in ([environment / "penstock"], [environment / "python", "-m", "penstock"]):
        assert run(*command, "--version", cwd=tmp_path).startswith("penstock 0.1.0 ")
        refused = subprocess.run([*command, "serve", "--model", tmp_path / "none.gguf"], capture_output=True, text=True, check=False)
        assert refused.returncode == 1 and "none.gguf" in refused.stderr
        flags = ["--model", MODEL, "--max-model-len", "256", "--port", port, "--drain-delay", "0"]
        with serving([*command, "serve", *flags], port, cwd=tmp_path) as server:
            with open(f"/proc/{server.pid}/maps", encoding="utf-8") as file:
                libraries = set(re.findall(r"/\S+/lib[^/\s]+\.so\S*", file.read()))
            foreign = [path for path in libraries if "penstock.libs/" not in path]
            assert len(libraries) > 20 and {os.path.basename(path) for path in foreign} == {"libc.so.6", "libm.so.6"}, foreign
            text, events = stream(port)
            assert text and events > 4
            server.terminate()
            assert server.wait(timeout=30) == 0


def test_it_fetches_a_model_with_the_libcurl_of_the_system(environment, tmp_path):
    hub = Hub()
    hub.files = {"some/model/config.json": json.dumps({}).encode(), "some/model/model-q4_k_m.gguf": MODEL.read_bytes()}
    try:
        run(environment / "penstock", "pull", "some/model", "--models-dir", tmp_path, env={"HF_ENDPOINT": hub.url})
    finally:
        hub.shutdown()
        hub.server_close()
    fetched, = tmp_path.rglob("model-q4_k_m.gguf")
    assert fetched.stat().st_size == MODEL.stat().st_size
