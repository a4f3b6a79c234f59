"""Root folders of a bare Debian, in which commands run by chroot. They need root."""
import contextlib
import pathlib
import shutil

from conftest import ROOT, run, serving, stream

BASE = ROOT / "build/packages/base"
MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
ETC, MODELS = "etc/penstock/penstock.yaml", "var/lib/penstock/models"  # of the installed package
ENVIRONMENT = ("PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive")


def make_base():
    """Makes BASE, a bare Debian with this machine's way to the registries, unless it exists."""
    if BASE.exists():
        return
    half = BASE.with_name("half_base")
    shutil.rmtree(half, ignore_errors=True)
    half.parent.mkdir(parents=True, exist_ok=True)
    mirrors = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Codename: bookworm", "Created-By: Packages").split()
    run("debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", half, (mirrors or ["http://deb.debian.org/debian"])[0])
    for name in ("sources.list", "sources.list.d"):
        source, target = pathlib.Path("/etc/apt", name), half / "etc/apt" / name
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True, ignore=lambda _, names: [n for n in names if "debian" not in n])
        elif source.is_file():
            shutil.copy(source, target)
    (half / "etc/apt/apt.conf.d/99host").write_text(run("apt-config", "dump", "Acquire"))
    for name in ("resolv.conf", "hosts", "ssl/certs/ca-certificates.crt"):
        shutil.copy(pathlib.Path("/etc", name).resolve(), half / "etc" / name)
    half.rename(BASE)


class Root:
    """A folder in which commands run as in a container: with processes, mounts and variables of their own.

    `mounts` are commands of shell, each with a semicolon, that run before all; "$0" is the folder. `environment` has NAME=VALUE.
    """

    def __init__(self, folder, mounts="", environment=ENVIRONMENT):
        self.folder, self.mounts, self.environment = folder, mounts, environment

    def command(self, *words, user="root"):
        """A command that runs a line of shell in the folder. The outer shell stays root: a process that changes its user is not
        killed with its parent, but all processes of a namespace end with the first one."""
        inside = (f'mount --make-rprivate /; {self.mounts} mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"; user=$1 line=$2; shift 2; '
                  'chroot --userspec="$user" "$0" env -i "$@" sh -c "$line"; exit $?')
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "sh", "-ec", inside, str(self.folder), user, " ".join(words),
                *self.environment]

    def run(self, *words, user="root"):
        return run(*self.command(*words, user=user))

    def install(self, deb):
        shutil.copy(deb, self.folder / "tmp")
        self.run("apt-get", "-qy", "install", "--no-install-recommends", f"/tmp/{deb.name}")

    def configure(self, port):
        """Gives the installed service a model and a port. Returns the text of its options."""
        shutil.copy(MODEL, self.folder / MODELS / "model.gguf")
        etc = self.folder / ETC
        etc.write_text(etc.read_text().replace("#model:", "model:").replace("#port: 8080", f"port: {port}"))
        return etc.read_text()

    def serve_and_stream(self, port, flags=f"--config /{ETC}"):
        """The installed program serves a stream as its user."""
        with serving(self.command(f"exec penstock serve {flags} --drain-delay 0", user="penstock:penstock"), port):
            self.run(f"penstock health --port {port}")
            text, events = stream(port)
            assert text and events > 4


@contextlib.contextmanager
def machine(folder):
    """A bare Debian with lists of packages, in a new folder that is removed at the end."""
    make_base()
    run("cp", "-a", BASE, folder)
    try:
        one = Root(folder)
        one.run("apt-get", "-qq", "update")
        yield one
    finally:
        shutil.rmtree(folder)
