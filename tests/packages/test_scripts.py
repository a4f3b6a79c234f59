"""Scripts of the shell: shellcheck finds nothing."""
import re

from conftest import ROOT, run


def test_shellcheck_finds_nothing():
    names = run("git", "ls-files", cwd=ROOT).splitlines()
    scripts = [name for name in names if (ROOT / name).is_file() and re.match(rb"#!\S*(/| )(ba)?sh\b", (ROOT / name).read_bytes()[:80])]
    assert len(scripts) > 15 and {"docker/setup.sh", "deploy/debian/postinst", "tests/run.sh"} <= set(scripts)
    run("shellcheck", *scripts, cwd=ROOT)
