"""`make install`: the files, their paths in the units, man pages, and completion in three shells."""
import os
import pathlib
import pty
import re
import select
import subprocess
import time

import pytest
import yaml
from conftest import BUILD, ROOT, run

SCRIPTS = {"bash": "usr/share/bash-completion/completions/penstock", "zsh": "usr/share/zsh/vendor-completions/_penstock",
           "fish": "usr/share/fish/vendor_completions.d/penstock.fish"}
UNITS = ("penstock.service", "penstock@.service", "penstock@.socket")


def test_everything_is_installed_below_the_prefix(installed, tmp_path):
    expected = ["usr/bin/penstock", "etc/penstock/penstock.yaml", "usr/share/licenses/penstock/LICENSE",
                "usr/share/man/man1/penstock.1.gz", "usr/share/man/man5/penstock.yaml.5.gz", *SCRIPTS.values(),
                *(f"usr/lib/systemd/system/{unit}" for unit in UNITS)]
    assert [path for path in expected if not (installed / path).is_file()] == []
    run("cmake", "--install", BUILD, "--prefix", tmp_path / "opt", cwd=ROOT)
    assert (tmp_path / "opt/etc/penstock/penstock.yaml").is_file()
    unit = (tmp_path / "opt/lib/systemd/system/penstock.service").read_text()
    assert f"ExecStart={tmp_path}/opt/bin/penstock serve --config {tmp_path}/opt/etc/penstock/penstock.yaml\n" in unit
    assert [path for path in tmp_path.iterdir() if path.name != "opt"] == []


def test_the_example_has_only_options_that_exist(installed, tmp_path):
    text = (installed / "etc/penstock/penstock.yaml").read_text()
    assert yaml.safe_load(text) is None  # everything is a comment
    shown = re.sub(r"^#(?=[a-z])", "", text, flags=re.M)
    (tmp_path / "shown.yaml").write_text(shown)
    assert len(yaml.safe_load(shown)) > 5
    done = subprocess.run([installed / "usr/bin/penstock", "serve", "--check", "--config", tmp_path / "shown.yaml"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "/etc/penstock/keys" in done.stderr


# ---- units -----------------------------------------------------------------------------------------------------


HARDENED = {"DynamicUser=yes", "ProtectSystem=strict", "CapabilityBoundingSet=", "AmbientCapabilities=", "NoNewPrivileges=yes",
            "SystemCallFilter=@system-service", "LimitNOFILE=65536"}


def test_services_have_no_rights_and_end_after_the_drain(installed):
    """Only the driver of a GPU needs memory that is written and executed."""
    text = run(installed / "usr/bin/penstock", "help", "serve")
    drain_s = sum(int(re.search(rf"^  --drain-{name} SECONDS .*\[(\d+)\]$", text, re.M)[1]) for name in ("delay", "timeout"))
    for unit in UNITS[:2]:
        lines = set((installed / "usr/lib/systemd/system" / unit).read_text().splitlines())
        assert HARDENED <= lines, HARDENED - lines
        assert ("MemoryDenyWriteExecute=yes" in lines) == ("PrivateDevices=yes" in lines)
        stop_s, = (int(line.split("=")[1]) for line in lines if line.startswith("TimeoutStopSec="))
        assert drain_s == 35 < stop_s


def test_units_are_correct_and_hardened(installed, tmp_path):
    root = installed / "usr/lib/systemd/system"
    for unit in UNITS:
        text = (root / unit).read_text()
        assert "@PENSTOCK" not in text
        (tmp_path / unit.replace("@", "@model")).write_text(text.replace("/usr/bin/penstock", "/usr/bin/true"))
    found = subprocess.run(["systemd-analyze", "verify", "--man=no", *sorted(tmp_path.iterdir())], capture_output=True, text=True, check=False)
    assert [line for line in found.stderr.splitlines() if "penstock" in line] == [], found.stderr
    for unit in UNITS[:2]:
        report = run("systemd-analyze", "security", "--offline=yes", "--no-pager", root / unit)
        assert float(re.search(r"exposure level for \S+: ([0-9.]+)", report)[1]) <= 2.0, report


# ---- man pages -------------------------------------------------------------------------------------------------


def test_man_pages_give_no_warning_and_have_every_flag(installed, commands):
    pages = sorted((installed / "usr/share/man").glob("man*/*.gz"))
    assert len(pages) == len(commands) + 2
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "100", "MANROFFSEQ": ""}
    for page in pages:
        done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", str(page)], capture_output=True, text=True,
                              env=environment, check=False)
        assert (done.returncode, done.stderr) == (0, ""), page
        text = re.sub(r".\x08|\x1b\[[0-9;]*m", "", done.stdout)
        command = page.name.removesuffix(".1.gz").removeprefix("penstock-")
        for flag, value in commands.get(command, {}).items():
            assert re.search(rf"^ +{re.escape(flag)}{' ' if value else ''}{re.escape(value)}(?= |$)", text, re.M), (page, flag, value)


# ---- completion ------------------------------------------------------------------------------------------------


def values_of(value):
    return set(value.split("|")) if "|" in value else None


def questions(commands):
    """(words of a command line, the answers that it must get) for every command, flag and listed value."""
    yield ["penstock", ""], {"help", *commands}
    for name, flags in commands.items():
        yield ["penstock", name[:3]], {n for n in commands if n.startswith(name[:3])} | ({"help"} if name.startswith("hel") else set())
        yield ["penstock", name, "-"], {"--help", *flags}
        for flag, value in flags.items():
            if values_of(value):
                yield ["penstock", name, flag, ""], values_of(value)


def ask_bash(script, asked, folder):
    lines = [f"source {script}"]
    for words in asked:
        quoted = " ".join(f"'{word}'" for word in words)
        lines.append(f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _penstock 2>/dev/null; echo ${{COMPREPLY[@]}}")
    (folder / "ask.bash").write_text("\n".join(lines))
    return [line.split() for line in run("bash", "--norc", folder / "ask.bash").splitlines()]


def ask_fish(script, asked, folder):
    lines = [f"source {script}", *(f"complete -C '{' '.join(words)}'; echo END" for words in asked)]
    (folder / "ask.fish").write_text("\n".join(lines))
    out = run("fish", "--no-config", folder / "ask.fish", cwd=folder, env={**os.environ, "HOME": str(folder)})
    return [[line.split("\t")[0] for line in answer.splitlines()] for answer in out.split("END\n")[:-1]]


# Zsh completes only in its line editor, so a shell on a terminal does it. Its compadd prints the matches.
ZSH = r"""
PROMPT= RPROMPT= ; unsetopt zle_bracketed_paste beep; stty -echo
fpath=({folder} $fpath); autoload -U compinit; compinit -u -D
zstyle ':completion:*' list-grouped false; zstyle ':completion:*' verbose no
compadd() {{
    local -a __found
    if [[ ${{@[1,(i)(-|--)]}} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
    builtin compadd -A __found "$@"
    print -rl -- $__found >>{folder}/answers
    builtin compadd "$@" >/dev/null
}}
ask() {{ LISTMAX=0; BUFFER=''; CURSOR=0; while IFS= read -r line; do BUFFER=$line; CURSOR=$#line; zle _ask_complete
    print END >>{folder}/answers; done <{folder}/questions; BUFFER=''; print DONE >>{folder}/answers; zle accept-line }}
_main() {{ _main_complete; compstate[insert]=''; compstate[list]='' }}
zle -C _ask_complete complete-word _main; zle -N ask; bindkey '^X^A' ask; print READY
"""


def ask_zsh(script, asked, folder):
    (folder / "questions").write_text("".join(" ".join(words) + "\n" for words in asked))
    (folder / "_penstock").write_text(pathlib.Path(script).read_text())
    (folder / ".zshrc").write_text(ZSH.format(folder=folder))
    process, terminal = pty.fork()
    if process == 0:
        os.environ.update(ZDOTDIR=str(folder), TERM="xterm", HOME=str(folder), COLUMNS="300")
        os.chdir(folder)
        os.execvp("zsh", ["zsh", "-i"])
    answers, sent, end = folder / "answers", False, time.monotonic() + 300
    shown = b""
    while time.monotonic() < end and not (answers.exists() and answers.read_text().endswith("DONE\n")):
        if select.select([terminal], [], [], 0.05)[0]:
            shown += os.read(terminal, 65536)
        if b"READY" in shown and not sent:
            sent = True
            os.write(terminal, b"\x18\x01")
    os.close(terminal)
    os.waitpid(process, 0)
    assert answers.exists(), shown
    return [answer.split("\n") for answer in answers.read_text().split("END\n")[:-1]]


@pytest.mark.parametrize("shell, ask", [("bash", ask_bash), ("zsh", ask_zsh), ("fish", ask_fish)])
def test_completion_knows_every_command_flag_and_value(installed, commands, tmp_path, shell, ask):
    asked = list(questions(commands))
    assert len(asked) > 60
    answers = ask(installed / SCRIPTS[shell], [words for words, _ in asked], tmp_path)
    assert len(answers) == len(asked)
    for (words, expected), answer in zip(asked, answers):
        found = {word.split(":")[0].rstrip("=") for word in answer} - {""}
        if shell == "fish" and words[-1] == "-":
            found -= {"-h"}
        if words[-1]:
            found = {word for word in found if word.startswith(words[-1])}
        assert found == expected, (words, found ^ expected)


def test_bash_completes_after_an_equals_sign_and_files(installed, tmp_path):
    (tmp_path / "a model.gguf").write_text("")
    asked = [["penstock", "serve", "--device", "=", "c"], ["penstock", "serve", "--device", "="], ["penstock", "help", "ser"]]
    assert ask_bash(installed / SCRIPTS["bash"], asked, tmp_path) == [["cpu", "cuda"], ["auto", "cpu", "cuda"], ["serve"]]
    run("bash", "-n", installed / SCRIPTS["bash"])
    script = f"cd {tmp_path}; source {installed / SCRIPTS['bash']}; compopt() {{ :; }}\n"
    for words in ("penstock serve a", "penstock run --model a"):
        ask = f"COMP_WORDS=({words}); COMP_CWORD={len(words.split()) - 1}; _penstock; echo \"${{COMPREPLY[0]}}\""
        assert run("bash", "--norc", "-c", script + ask) == "a model.gguf\n"
