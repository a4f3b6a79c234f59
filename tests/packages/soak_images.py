"""The images, built by buildah without an engine from a base that debootstrap made: size, another user, a read-only root, health.

It needs root, for chroot. The CUDA toolkit is NVIDIA's, from PyPI; its kernels are compiled for one architecture, in the quick mode.
"""
import json
import pathlib
import shlex
import subprocess
import sys

import pytest
from bare import BASE, Root, make_base
from conftest import ROOT, run, serving, stream
from toolkit import make_toolkit

sys.path += [str(ROOT / "tests")]
from e2e.conftest import free_port  # noqa: E402

NAMES = ["cpu", "cuda"]
SOMEBODY = "12345:12345"
MODELS = (ROOT / "models").resolve()
READ_ONLY = f'mount --bind "$0" "$0"; mount --bind {shlex.quote(str(MODELS))} "$0/models"; mount -o remount,ro,bind "$0";'
FILES = {"base": "FROM scratch\nADD base.tar /\n",
         "toolkit": "FROM localhost/base\nCOPY cu13 /usr/local/cuda\nCOPY nccl/lib /usr/lib/x86_64-linux-gnu\n"}


class Store:
    """A folder with images."""

    def __init__(self, folder):
        self.folder, self.roots = folder, {}

    def command(self, *words):
        return ["buildah", "--root", self.folder / "images", "--runroot", self.folder / "run", "--storage-driver", "vfs", *words]

    def build_command(self, name, file, context, **arguments):
        given = [word for argument, value in arguments.items() for word in ("--build-arg", f"{argument}={value}")]
        return self.command("build", "--isolation", "chroot", "--pull-never", "--format", "docker", "-t", f"localhost/{name}", "-f", file, *given, context)

    def make(self, name, context):
        """Builds an image of FILES."""
        (self.folder / name).write_text(FILES[name])
        run(*self.build_command(name, self.folder / name, context))

    def root(self, name):
        """The folder at which the root of an image is mounted."""
        if name not in self.roots:
            container = run(*self.command("from", "--pull-never", f"localhost/{name}")).strip()
            self.roots[name] = pathlib.Path(run(*self.command("mount", container)).strip())
        return self.roots[name]

    def config(self, name):
        return json.loads(run(*self.command("inspect", "--type", "image", f"localhost/{name}")))["Docker"]["config"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with the images base and toolkit."""
    make_base()
    one = Store(tmp_path_factory.mktemp("store"))
    context = one.folder / "context"
    context.mkdir()
    left_out = [f"--exclude=./{path}/*" for path in ("dev", "var/lib/apt/lists", "var/cache/apt")]
    run("tar", "-C", BASE, "--numeric-owner", *left_out, "-cf", context / "base.tar", ".")
    one.make("base", context)
    one.make("toolkit", make_toolkit().parent)
    yield one
    run(*one.command("rm", "--all"))
    run(*one.command("rmi", "--all", "--force"))


def build_command(store, name, **arguments):
    arguments = {"BASE": "localhost/base", "MODEL": "none", "COMMIT": "tested", **arguments}
    return store.build_command(name, ROOT / f"docker/Dockerfile.{name}", ROOT, **arguments)


@pytest.fixture(scope="module")
def images(store):
    """The store, with both images."""
    run(*build_command(store, "cpu"))
    run(*build_command(store, "cuda", TOOLKIT="localhost/toolkit", LIBRARIES="libnccl",
                       OPTIONS="-DPENSTOCK_CUDA_ONLY=90-real -DPENSTOCK_CUDA_QUICK=ON"))
    return store


def children(process):
    return pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()


def size(folder):
    return int(run("du", "-sb", folder).split()[0])


@pytest.mark.parametrize("name", NAMES)
def test_an_image_is_at_most_50_mb_larger_than_its_base(images, name):
    """Without a model, and without the CUDA libraries."""
    added = size(images.root(name)) - size(images.root("base")) - size(images.root(name) / "usr/local/lib") + size(images.root("base") / "usr/local/lib")
    print(f"{name}: {added / 1e6:.1f} MB above the base")
    assert 1e6 < added <= 50e6
    assert list((images.root(name) / "models").iterdir()) == [] and not (images.root(name) / "src").exists()


@pytest.mark.parametrize("name", NAMES)
def test_an_image_serves_as_any_user_on_a_read_only_root(images, name):
    config, port = images.config(name), free_port()
    assert config["User"] == "10001:10001" and config["Healthcheck"]["Test"][0] == "CMD"
    root = Root(images.root(name), READ_ONLY, [*config["Env"], f"PENSTOCK_PORT={port}"])
    health = root.command(shlex.join(config["Healthcheck"]["Test"][1:]), user=SOMEBODY)
    touched = subprocess.run(root.command("touch /somewhere"), capture_output=True, text=True, check=False)
    assert touched.returncode == 1 and "Read-only file system" in touched.stderr
    start = shlex.join([*config["Entrypoint"], *config["Cmd"], "--drain-delay", "0"])
    with serving(root.command("exec", start, user=SOMEBODY), port) as server:
        shell, = children(server.pid)
        program, = children(shell)
        assert "Uid:\t12345\t12345\t12345\t12345\n" in pathlib.Path(f"/proc/{program}/status").read_text()
        run(*health)
        text, events = stream(port)
        assert text and events > 4
    assert subprocess.run(health, capture_output=True, check=False).returncode == 1


def test_the_image_for_gpus_has_their_kernels_and_the_libraries_that_are_asked_for(images):
    root = Root(images.root("cuda"), READ_ONLY, images.config("cuda")["Env"])
    assert "libnccl.so.2 " in root.run("/sbin/ldconfig -p")
    refused = subprocess.run(root.command("penstock serve --device cuda", user=SOMEBODY), capture_output=True, text=True, check=False)
    assert refused.returncode != 0 and "no usable GPU" in refused.stderr, refused.stderr
    cpu = Root(images.root("cpu"), READ_ONLY, images.config("cpu")["Env"])
    absent = subprocess.run(cpu.command("penstock serve --device cuda", user=SOMEBODY), capture_output=True, text=True, check=False)
    assert absent.returncode != 0 and "no usable GPU" not in absent.stderr, absent.stderr


def test_a_toolkit_without_a_library_ends_the_build_before_it_compiles(store):
    """The message is not looked for: on a busy machine buildah may lose the last lines of a step that fails."""
    done = subprocess.run(build_command(store, "cuda", TOOLKIT="localhost/toolkit"), capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "[1/3] STEP" in done.stdout and "[2/3] STEP" not in done.stdout, done.stderr
