"""A bare Debian whose systemd runs, in namespaces of its own. It needs root. It shares the network, so its servers are on this
machine's loopback."""
import contextlib
import subprocess
import time

from bare import ENVIRONMENT, machine
from conftest import run

# Runs in new namespaces. systemd wants its own /run and cgroups, and is told that it is in a container. The folder becomes the
# root by pivot_root: the kernel refuses PrivateUsers= to processes in a chroot.
BOOT = """mount --make-rprivate /; mount --bind "$0" "$0"; cd "$0"
mount -t proc proc proc; mount --rbind /sys sys; mount -t tmpfs tmpfs run; mount --rbind /dev dev
if [ "$(stat -fc %T /sys/fs/cgroup)" = tmpfs ]; then
    mount -t tmpfs tmpfs sys/fs/cgroup; mkdir sys/fs/cgroup/unified sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd; mount -t cgroup2 cgroup2 sys/fs/cgroup/unified
fi
pivot_root . mnt; cd /; umount -l mnt
exec env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --show-status=0"""


class Booted:
    """`root` is a bare.Root, and `pid` its systemd, as this machine sees it."""

    def __init__(self, root, pid):
        self.root, self.folder, self.pid = root, root.folder, pid

    def run(self, line):
        return run("nsenter", "-t", self.pid, "-m", "-u", "-i", "-p", "-C", "-r", "-w", "env", "-i", *ENVIRONMENT, "sh", "-c", line)

    def install(self, deb):
        run("cp", deb, self.folder / "var/cache")
        self.run(f"apt-get -qy install --no-install-recommends /var/cache/{deb.name}")

    def main_pid(self, unit):
        """The process of a unit in the machine's numbers; 0 if it does not run."""
        return int(self.run(f"systemctl show -P MainPID {unit}"))


def pid_of_child(pid):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()
        if found:
            return found[0]
        time.sleep(0.05)
    raise AssertionError("unshare started nothing")


@contextlib.contextmanager
def booted(folder):
    """A bare Debian in a new folder, whose systemd has started its units. All of it ends with the block."""
    with machine(folder) as root:
        root.run("apt-get -qy install --no-install-recommends systemd")
        outer = subprocess.Popen(["unshare", "--mount", "--pid", "--fork", "--ipc", "--uts", "--cgroup", "--kill-child=KILL",
                                  "sh", "-ec", BOOT, str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            one, end = Booted(root, pid_of_child(outer.pid)), time.monotonic() + 60
            state = ""
            while state != "running":
                assert time.monotonic() < end and outer.poll() is None, f"systemd is {state or 'not there'}"
                time.sleep(0.2)
                with contextlib.suppress(AssertionError):
                    state = one.run("systemctl is-system-running").strip()
            yield one
        finally:
            outer.kill()
            outer.wait()
