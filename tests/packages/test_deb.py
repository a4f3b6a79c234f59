"""The content of the Debian package. soak_root.py installs it (`make soak`)."""
from conftest import run


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
