"""The units of the Debian package in a bare Debian whose systemd runs: started, upgraded, and kept when penstock and penstock-cuda
take each other's place. It needs root."""
import os
import pathlib
import re
import shutil
import sys

import httpx
import pytest
from bare import MODEL, MODELS
from booted import booted
from conftest import BUILD, ROOT, run, stream

sys.path += [str(ROOT / "tests")]
from e2e.conftest import free_port  # noqa: E402

UNITS = ("penstock", "penstock@other")


def build_package(folder, **environment):
    run("docker/package.sh", folder, BUILD, cwd=ROOT, env={**os.environ, **environment})
    path, = folder.glob("*.deb")
    return path


def renamed(deb, folder):
    """The package as penstock-cuda. The scripts of both are the same; only the fields that make them exclude each other differ."""
    run("dpkg-deb", "-R", deb, folder)
    control = folder / "DEBIAN/control"
    text = re.sub(r"^(Conflicts|Replaces): penstock-cuda$", r"\1: penstock", control.read_text(), flags=re.M)
    control.write_text(re.sub(r"^Package: penstock$", "Package: penstock-cuda\nProvides: penstock", text, flags=re.M))
    path = folder.with_name("penstock-cuda.deb")
    run("dpkg-deb", "-b", folder, path)
    fields = run("dpkg-deb", "-f", path, "Package", "Conflicts", "Provides", "Replaces").splitlines()
    assert sorted(fields) == ["Conflicts: penstock", "Package: penstock-cuda", "Provides: penstock", "Replaces: penstock"]
    return path


@pytest.fixture(scope="module")
def debs(deb, tmp_path_factory):
    folder = tmp_path_factory.mktemp("debs")
    (folder / "newer").mkdir()
    return {"first": deb, "newer": build_package(folder / "newer", DEBIAN_REVISION="2"), "cuda": renamed(deb, folder / "cuda")}


@pytest.fixture(scope="module")
def ports():
    return {"penstock": free_port(), "penstock@other": free_port()}


@pytest.fixture(scope="module")
def one(debs, ports, tmp_path_factory):
    """A machine with the package, on which nothing has been started."""
    with booted(tmp_path_factory.mktemp("booted") / "root") as machine:
        machine.install(debs["first"])
        machine.root.configure(ports["penstock"])
        shutil.copy(MODEL, machine.folder / MODELS / "other.gguf")
        (machine.folder / "etc/penstock/other.env").write_text(f"PENSTOCK_PORT={ports['penstock@other']}\n")
        yield machine


def running(one, ports):
    """{unit: its process}, of those that serve a stream."""
    found = {unit: one.main_pid(unit) for unit in UNITS}
    for unit, pid in found.items():
        if pid:
            text, events = stream(ports[unit])
            assert text and events > 4
    return {unit: pid for unit, pid in found.items() if pid}


def ask_socket(one):
    """The models of the instance `third`, by its socket."""
    with httpx.Client(transport=httpx.HTTPTransport(uds=f"/proc/{one.pid}/root/run/penstock/third.sock"), timeout=60) as http:
        return http.get("http://localhost/v1/models").json()


def links(one):
    return sorted(path.name for path in pathlib.Path(one.folder, "etc/systemd/system").glob("*.wants/penstock*"))


def test_units_run_as_their_user_and_only_when_started(one, ports):
    assert running(one, ports) == {}
    one.run("systemctl enable --now penstock && systemctl start penstock@other")
    pids = running(one, ports)
    assert set(pids) == set(UNITS) and links(one) == ["penstock.service"]
    assert {one.run(f"stat -c %U /proc/{pid}").strip() for pid in pids.values()} == {"penstock"}


def test_the_first_connection_to_a_socket_starts_its_service(one):
    shutil.copy(MODEL, one.folder / MODELS / "third.gguf")
    one.run("systemctl start penstock@third.socket")
    assert one.main_pid("penstock@third") == 0
    assert ask_socket(one)["data"][0]["id"] == "third" and one.main_pid("penstock@third") > 0
    one.run("systemctl stop penstock@third.service")
    assert ask_socket(one)["data"][0]["id"] == "third"
    one.run("systemctl stop penstock@third.service")


def test_an_upgrade_restarts_those_that_run(one, debs, ports):
    before = running(one, ports)
    one.install(debs["newer"])
    assert one.run("dpkg-query -W -f '${Version}' penstock").endswith("-2")
    after = running(one, ports)
    assert set(after) == set(UNITS) and not set(after.values()) & set(before.values())


def test_a_package_that_takes_the_place_of_the_other_keeps_what_ran(one, debs, ports):
    before = running(one, ports)
    assert len(before) == 2
    one.install(debs["cuda"])
    assert one.run("dpkg-query -W -f '${Package} ${db:Status-Status},' 'penstock*'") == "penstock config-files,penstock-cuda installed,"
    after = running(one, ports)
    assert set(after) == set(UNITS) and not set(after.values()) & set(before.values())
    one.run("systemctl stop penstock@other")
    assert one.run("systemctl is-active penstock@third.socket") == "active\n" and ask_socket(one)
    one.run("systemctl stop penstock@third.socket penstock@third.service")
    one.install(debs["newer"])
    back = running(one, ports)
    assert set(back) == {"penstock"} and back["penstock"] != after["penstock"] and links(one) == ["penstock.service"]
    assert not (one.folder / "run/penstock.units").exists()


def test_what_was_stopped_stays_stopped(one, debs, ports):
    one.run("systemctl disable --now penstock")
    one.install(debs["cuda"])
    one.install(debs["newer"])
    assert running(one, ports) == {}


def test_a_removal_stops_all_and_a_purge_leaves_no_link(one, ports):
    one.run("systemctl enable --now penstock")
    assert set(running(one, ports)) == {"penstock"}
    one.run("apt-get -qy purge penstock penstock-cuda")
    assert one.main_pid("penstock") == 0 and links(one) == []
    assert (one.folder / MODELS / "other.gguf").stat().st_size == MODEL.stat().st_size
