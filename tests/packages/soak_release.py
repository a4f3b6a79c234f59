"""`make release`: what is in it, and the same bytes from two clones in different folders, the second without ccache."""
import hashlib
import os
import pathlib
import re
import subprocess
import tarfile

import pytest
from conftest import ROOT, run


def release_of(clone, **environment):
    run("git", "clone", "-q", ROOT, clone)
    run(clone / "docker/release.sh", clone / "build/made", env={**os.environ, **environment})
    return clone / "build/made"


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    return release_of(tmp_path_factory.mktemp("one") / "penstock")


def hashes(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_it_has_all_parts_with_their_hashes(release):
    found = hashes(release)
    assert [re.sub(r"[-_]0\.1\.0.*(\.tar\.gz|\.deb|\.whl|\.spdx\.json)", r"\1", name) for name in sorted(found)] == [
        "SHA256SUMS", "penstock.whl", "penstock.spdx.json", "penstock.tar.gz", "penstock.deb"]
    del found["SHA256SUMS"]
    listed = dict(reversed(line.split("  ")) for line in (release / "SHA256SUMS").read_text().splitlines())
    assert listed == found
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=release)


def test_the_tarball_has_all_files_of_the_commit(release):
    with tarfile.open(release / "penstock-0.1.0.tar.gz") as archive:
        names = {member.name.removeprefix("penstock-0.1.0/") for member in archive if not member.isdir()}
    assert names == set(run("git", "ls-files", cwd=ROOT).splitlines()) and len(names) > 1000


def test_spdx_tools_accept_the_document_and_it_names_every_library(release):
    document = release / "penstock-0.1.0.spdx.json"
    run(release.parent / "release/venv/bin/pyspdxtools", "-i", document, "-o", release.parent / "again.spdx")
    tags = (release.parent / "again.spdx").read_text()
    by_package = {package: way for way, package in re.findall(r"^Relationship: SPDXRef-penstock (\w+) SPDXRef-(\S+)$", tags, re.M)}
    depends = run("dpkg-deb", "-f", next(release.glob("*.deb")), "Depends", "Recommends")
    for package in set(re.findall(r"\b(lib[\w.-]+)", depends)):
        is_loaded = package in ("libcurl4", "libssl3", "libzmq5")
        assert by_package.get(package) == ("DEPENDS_ON" if is_loaded else "DYNAMIC_LINK"), package
    assert by_package["libgnutls30"] == "DEPENDS_ON" and {"STATIC_LINK"} == {way for name, way in by_package.items() if name.startswith("libgcc-")}
    assert "PackageLicenseDeclared: Apache-2.0" in tags


def test_another_folder_gives_the_same_bytes(release, tmp_path):
    again = release_of(tmp_path / "a_folder_with_a_longer_name", CCACHE_DISABLE="1")
    assert hashes(again) == hashes(release)


def test_changes_that_are_not_committed_are_refused(tmp_path):
    run("git", "clone", "-q", ROOT, tmp_path / "clone")
    pathlib.Path(tmp_path / "clone/README.md").write_text("changed")
    done = subprocess.run([tmp_path / "clone/docker/release.sh", tmp_path / "made"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "commit the changes" in done.stderr
