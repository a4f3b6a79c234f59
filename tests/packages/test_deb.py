"""The content of the Debian package. soak_root.py installs it (`make soak`)."""
import re

from conftest import ROOT, run

# Files with names of libraries that the program loads by dlopen, and the field of the package that has each one's package.
LOADED = {"server/hub/library.c": "Depends", "server/kv_events/library.c": "Recommends", "server/traces/library.c": "Depends"}


def test_the_package_has_its_libraries_and_configuration(deb):
    depends = run("dpkg-deb", "-f", deb, "Depends")
    for library in ("libmicrohttpd12", "libuv1", "libpcre2-8-0", "libutf8proc2", "libxxhash0", "libyaml-0-2", "libedit2", "libc6", "libcurl4",
                    "adduser"):
        assert library in depends, depends
    assert run("dpkg-deb", "--info", deb, "conffiles") == "/etc/penstock/penstock.yaml\n"
    names = run("dpkg-deb", "-c", deb)
    for path in ("./usr/bin/penstock", "./usr/lib/systemd/system/penstock@.socket", "./var/lib/penstock/models/",
                 "./usr/share/man/man5/penstock.yaml.5.gz", "./usr/share/bash-completion/completions/penstock"):
        assert f" {path}\n" in names, names
    assert "root/root" in names and " /home" not in names


def test_libraries_loaded_by_dlopen_are_in_the_package_too(deb):
    """dpkg-shlibdeps finds only linked libraries, so the others are listed by hand."""
    loaders = {str(path.relative_to(ROOT)) for folder in ("config", "engine", "kernels/cpu", "scheduler", "server", "bench")
               for path in (ROOT / folder).rglob("*.c") if "dlopen(" in path.read_text()}
    assert loaders == set(LOADED)
    for source, field in LOADED.items():
        names = run("dpkg-deb", "-f", deb, field).strip().split(", ")
        for first in re.findall(r'[{(]"(lib[\w-]+\.so\.\d+)"', (ROOT / source).read_text()):
            owner = run("dpkg-query", "-S", f"*/{first}").split(":")[0]
            assert owner in names, (source, first, field, names)
