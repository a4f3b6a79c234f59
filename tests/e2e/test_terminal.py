"""A conversation in a terminal: editing of lines, commands, Ctrl-C and colours."""
import json
import os
import re
import signal
import stat
import subprocess
import termios

import pytest

from conftest import BINARY, MODEL, environment
from terminal import Terminal

CODES = b"\033"
LEFT, RIGHT, UP, DOWN, HOME, END, DELETE = "\033[D", "\033[C", "\033[A", "\033[B", "\033[H", "\033[F", "\033[3~"
ALT_ENTER, PASTE, PASTE_END = "\033\r", "\033[200~", "\033[201~"
CHAT = ["run", "--model", MODEL, "--chat", "--max-model-len", "1024", "--kv-cache-memory", "128MiB"]


@pytest.fixture
def chat(tmp_path):
    """chat(flags...) starts a conversation in a terminal. Its history is in the test's folder."""
    own = []

    def begin(*flags, env=None, **options):
        home = {"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
        flags = flags if "--max-tokens" in flags else ("--max-tokens", "2", *flags)
        own.append(Terminal(*CHAT, *flags, env={**home, **(env or {})}, **options))
        return own[-1]

    yield begin
    for one in own:
        one.close()


def said(terminal, tmp_path, role="user"):
    """Returns the messages of one role in the conversation, as /save writes them."""
    path = tmp_path / f"said{len(list(tmp_path.iterdir()))}.json"
    terminal.type(f"/save {path}")
    return [m["content"] for m in json.loads(path.read_text())["messages"] if m["role"] == role]


def history_of(tmp_path):
    return (tmp_path / "state/penstock/history").read_text().splitlines()


# ---- editing ------------------------------------------------------------------------------------------


def test_the_banner_names_the_model_and_the_way_out(chat):
    text = chat().wait_prompt().text()
    assert "llama, 134.5 M parameters, q4_1" in text and "/help" in text and "Ctrl-D ends the program" in text


@pytest.mark.parametrize("keys, line", [
    ("river" + LEFT * 5 + "A ", "A river"),
    ("A rivver" + LEFT * 2 + "\x7f", "A river"),
    ("river" + HOME + "A " + END + "!", "A river!"),
    ("xA river" + HOME + DELETE, "A river"),
    ("river\x01A \x05!", "A river!"),
    ("A river and more\x17\x17", "A river "),
    ("A river\x01\x0bB river", "B river"),
    ("one two\033b\033[1;5DA ", "A one two"),
    ("river" + LEFT * 3 + RIGHT + "-", "riv-er"),
])
def test_keys_edit_the_line(chat, tmp_path, keys, line):
    terminal = chat().wait_prompt().type(keys)
    assert [text.rstrip() for text in said(terminal, tmp_path)] == [line.rstrip()]


def test_wide_characters_are_edited_whole(chat, tmp_path):
    """The screen shows the contents of the line: a character of two columns is passed and removed as one."""
    terminal = chat().wait_prompt()
    terminal.send("水は流れる é🙂x" + LEFT * 2 + "\x7f" + "ü")
    terminal.wait_for("> 水は流れる ü🙂x")
    terminal.send("\r")
    terminal.wait_prompt()
    assert said(terminal, tmp_path) == ["水は流れる ü🙂x"]


def test_bytes_that_are_no_text_do_no_harm(chat, tmp_path):
    terminal = chat().wait_prompt().type(b"a\xffb\xc3(c")
    (line,) = said(terminal, tmp_path)
    assert line.startswith("a\ufffdb") and line.endswith("(c")


def test_arrow_up_and_ctrl_r_find_lines_again(chat, tmp_path):
    terminal = chat().wait_prompt()
    for line in ("first river", "second lake"):
        terminal.type(line)
    terminal.type(UP + UP + "s")
    terminal.type(UP + UP + UP + DOWN + "t")
    terminal.send("\x12sec")
    terminal.wait_for("second lake")
    terminal.type("\x05!")  # Ctrl-E
    assert said(terminal, tmp_path) == ["first river", "second lake", "first rivers", "second laket", "second laket!"]


def test_history_is_kept_for_this_user_alone(chat, tmp_path):
    first = chat().wait_prompt().type("a river\\", prompt=".").type("of \\n two lines")
    first.send("\x04")
    assert first.end() == 0
    path = tmp_path / "state/penstock/history"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert history_of(tmp_path) == ["a river\\nof \\\\n two lines"]
    second = chat().wait_prompt().type(UP)
    assert said(second, tmp_path) == ["a river\nof \\n two lines"]


def test_history_is_bounded(chat, tmp_path):
    path = tmp_path / "state/penstock/history"
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"line {i}\n" for i in range(2500)) + "x" * 20000 + "\n")
    terminal = chat().wait_prompt()
    assert history_of(tmp_path) == [f"line {i}" for i in range(1500, 2500)]
    terminal.type(UP)
    assert history_of(tmp_path)[-1] == "line 2499" and len(history_of(tmp_path)) == 1001
    terminal.type("/clear " + "y" * 20000)
    assert len(history_of(tmp_path)) == 1001


def test_history_may_be_off(chat, tmp_path):
    terminal = chat("--no-history").wait_prompt().type("a river").type("/help")
    assert not (tmp_path / "state").exists() and "are saved in" not in terminal.text()
    assert said(terminal.type(UP + UP), tmp_path) == ["a river", "a river"]  # within the conversation it works


def test_history_that_cannot_be_written_is_told_once(chat, tmp_path):
    (tmp_path / "state").write_text("a file where a folder should be")
    terminal = chat().wait_prompt().type("a river").type("a lake")
    text = "".join(terminal.text().split())
    assert text.count("arenotsaved") == 1 and "Notadirectory" in text


def test_lines_typed_ahead_are_not_lost(chat, tmp_path):
    """Typed in one go, and while an answer is written."""
    terminal = chat("--max-tokens", "60").wait_prompt()
    terminal.send("Name a river.\rName a lake.\r")
    terminal.wait_for("Name a lake.\n")
    terminal.send("Name a sea.\r")
    terminal.wait(lambda: terminal.text().count("> Name a") == 3 and terminal.at_prompt(), "three turns")
    assert said(terminal, tmp_path) == ["Name a river.", "Name a lake.", "Name a sea."]


# ---- several lines ------------------------------------------------------------------------------------


def test_a_backslash_goes_on_in_the_next_line(chat, tmp_path):
    terminal = chat().wait_prompt().type("one\\", prompt=".").type("two \\", prompt=".").type("three")
    assert said(terminal, tmp_path) == ["one\ntwo \nthree"]


def test_a_block_of_several_lines(chat, tmp_path):
    terminal = chat().wait_prompt().type('"""def f():', prompt=".").type("", prompt=".").type("    pass\\", prompt=".")
    terminal.type('/help"""').type('"""one"""').type('"""', prompt=".").type('x"""')
    assert said(terminal, tmp_path) == ["def f():\n\n    pass\\\n/help", "one", "\nx"]


def test_alt_enter_and_pasted_line_ends_stay_in_the_message(chat, tmp_path):
    terminal = chat().wait_prompt().type("one" + ALT_ENTER + "two")
    terminal.type("see: " + PASTE + "a\rb\tc\r\r\x07\x1b[31mred\r" + PASTE_END + LEFT + "X")
    assert said(terminal, tmp_path) == ["one\ntwo", "see: a\nb\tc\n\n[31mreXd"]
    terminal.type(UP + UP + UP + "!")
    assert said(terminal, tmp_path)[-1] == "one\ntwo!"


def test_a_large_paste_arrives_whole(chat, tmp_path):
    lines = [f"line {i} of what is pasted" for i in range(150)]
    terminal = chat("--max-model-len", "4096", rows=200).wait_prompt()
    terminal.send(PASTE + "\r".join(lines) + PASTE_END)
    terminal.wait_for(lines[-1])
    terminal.send("\r")
    terminal.wait_prompt()
    assert said(terminal, tmp_path) == ["\n".join(lines)]


# ---- Ctrl-C, Ctrl-D, signals ---------------------------------------------------------------------------


def test_ctrl_c_stops_the_answer_and_not_the_program(chat, tmp_path):
    terminal = chat("--max-tokens", "7000", "--max-model-len", "8192", "--kv-cache-memory", "256MiB").wait_prompt()
    terminal.send("Write a long story about a river.\r")
    terminal.wait(lambda: len(terminal.text().partition("river.\n")[2]) > 60, "beginning of an answer")
    terminal.send("\x03")
    terminal.wait_for("[stopped]").wait_prompt()
    (answer,) = said(terminal, tmp_path, "assistant")
    assert 20 < len(answer) and " ".join(answer.split())[:40] in " ".join(terminal.text().split())
    terminal.type("/stats")
    assert "1 answer of" in terminal.text()


def test_ctrl_c_clears_the_line_and_twice_ends(chat, tmp_path):
    terminal = chat().wait_prompt()
    terminal.send("something")
    terminal.wait_for("something").send("\x03")  # sent together, the terminal would discard unread bytes
    terminal.wait_prompt()
    assert "Ctrl-C again" not in terminal.text()
    terminal.send("\x03")  # the first on an empty line
    terminal.wait_for("Ctrl-C again").wait_prompt()
    assert said(terminal.type("a river"), tmp_path) == ["a river"]
    terminal.send("\x03")
    terminal.wait(lambda: terminal.text().count("Ctrl-C again") == 2, "a second note").wait_prompt()
    terminal.type("/stats")  # a line between them, so it is not the second
    terminal.send("\x03")
    terminal.wait(lambda: terminal.text().count("Ctrl-C again") == 3, "a third note").wait_prompt()
    assert terminal.process.poll() is None
    terminal.send("\x03")
    assert terminal.end() == 0


def test_ctrl_c_leaves_a_message_of_several_lines(chat, tmp_path):
    terminal = chat().wait_prompt().type('"""one', prompt=".")
    terminal.send("two\x03")
    terminal.wait_prompt()
    assert said(terminal.type("three"), tmp_path) == ["three"]


def test_ctrl_d_ends_on_an_empty_line_only(chat):
    terminal = chat().wait_prompt()
    terminal.send("ab" + HOME + "\x04")  # deletes the character under the cursor
    terminal.wait_for("> b")
    terminal.send("\x04\x04")
    assert terminal.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_and_leaves_the_terminal_in_order(chat, number):
    terminal = chat()
    before = termios.tcgetattr(terminal.master)[3]
    terminal.wait_prompt()
    assert termios.tcgetattr(terminal.master)[3] & termios.ICANON == 0  # edited here
    terminal.signal(number)
    assert terminal.end() == 128 + number
    assert termios.tcgetattr(terminal.master)[3] == before


def test_a_stop_and_its_end_draw_the_line_again(chat, tmp_path):
    terminal = chat().wait_prompt()
    terminal.send("a riv")
    terminal.wait_for("> a riv")
    terminal.send("\x1a")  # Ctrl-Z
    os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED)
    terminal.wait_drawn("> a riv", lambda: terminal.signal(signal.SIGCONT))
    terminal.send("er\r")
    terminal.wait_prompt()
    assert said(terminal, tmp_path) == ["a river"]


def test_the_window_may_change_its_size(chat, tmp_path):
    words = " ".join(f"word{i}" for i in range(20))
    terminal = chat(columns=120).wait_prompt()
    terminal.send(words[:70])
    terminal.wait_for(words[:70])
    terminal.wait_drawn("> word0", lambda: terminal.size(50, 40))
    terminal.send(words[70:])
    terminal.wait(lambda: words in terminal.text().replace("\n", ""), "the line in its new width")
    terminal.wait_drawn("> word0", lambda: terminal.size(50, 120))
    terminal.send("\r")
    terminal.wait_prompt()
    assert said(terminal, tmp_path) == [words]


# ---- commands -----------------------------------------------------------------------------------------


def test_help_lists_every_command(chat, tmp_path):
    text = chat().wait_prompt().type("/help").text()
    for name in ("/help", "/clear", "/system", "/save", "/stats", "/quit", "Ctrl-C", "Alt-Enter", '"""'):
        assert name in text, name
    assert str(tmp_path / "state/penstock/history") in text.replace("\n", "")


def test_clear_forgets_and_system_stays(chat, tmp_path):
    terminal = chat().wait_prompt().type("/system You speak like a pirate.").type("a river").type("/system")
    assert "message: You speak like a pirate." in terminal.text()
    assert said(terminal, tmp_path, "system") == ["You speak like a pirate."]
    terminal.type("/clear").type("a lake")
    assert said(terminal, tmp_path) == ["a lake"]
    assert said(terminal, tmp_path, "system") == ["You speak like a pirate."]
    terminal.type("/system none")
    assert said(terminal, tmp_path, "system") == []


def test_a_system_message_reaches_the_model(chat, server):
    """The answer equals the API's for the same messages."""
    terminal = chat("--max-tokens", "12").wait_prompt().type("/system You answer in French.").type("Name a river.")
    messages = [{"role": "system", "content": "You answer in French."}, {"role": "user", "content": "Name a river."}]
    answer = server.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 12}).json()
    text = answer["choices"][0]["message"]["content"]
    assert " ".join(text.split()) in " ".join(terminal.text().split())


def test_save_writes_a_request_and_replaces_no_other_file(chat, tmp_path, server):
    path, other = tmp_path / "talk.json", tmp_path / "other.json"
    other.write_text("mine")
    terminal = chat().wait_prompt().type('A "river"?').type(f"/save {path}").type("And a lake?").type(f"/save {path}")
    body = json.loads(path.read_text())
    assert [m["role"] for m in body["messages"]] == ["user", "assistant"] * 2
    assert server.post("/v1/chat/completions", {**body, "max_tokens": 1}).status_code == 200
    terminal.type(f"/save {other}").type("/save").type("/save /nowhere/talk.json").type("/save ~/home.json")
    assert other.read_text() == "mine" and (tmp_path / "home.json").exists()
    text = "".join(terminal.text().split())  # the terminal may break a message at any of its spaces
    assert "existsalready" in text and "needsthenameofafile" in text and "Nosuchfile" in text


def test_stats_count_tokens(chat):
    terminal = chat("--max-tokens", "5").wait_prompt().type("/stats")
    assert "The model has not answered yet; the context holds 1024 tokens" in terminal.text()
    terminal.type("Name a river.").type("Name another river, a long one, and say where it flows.").type("/stats")
    text = " ".join(terminal.text().split())
    assert "Last answer: 5 tokens after a prompt of" in text and "2 answers of 10 tokens together" in text
    assert "of the context's 1024 tokens" in text and "tokens/s" in text
    terminal.type("/clear").type("/stats")
    assert terminal.text().count("The model has not answered yet") == 2


def test_unknown_commands_and_messages_that_begin_with_a_slash(chat, tmp_path):
    terminal = chat().wait_prompt().type("/sta").type("/zebra").type("//usr/bin/env is what?")
    text = terminal.text()
    assert "Unknown command /sta; did you mean /stats?" in text and "Unknown command /zebra; /help lists them" in text
    assert said(terminal, tmp_path) == ["/usr/bin/env is what?"]


def test_quit_ends(chat):
    terminal = chat().wait_prompt()
    terminal.send("/quit\r")
    assert terminal.end() == 0


def test_a_question_that_is_too_long_ends_only_its_turn(chat, tmp_path):
    terminal = chat("--max-model-len", "128").wait_prompt().type("river " * 300)
    assert "128" in terminal.text() and "question is forgotten" in terminal.text()
    assert said(terminal.type("a river"), tmp_path) == ["a river"]


def test_an_answer_that_is_cut_off_says_so(chat):
    assert "[cut off after 2 tokens: --max-tokens]" in chat().wait_prompt().type("Name a river.").text()


# ---- the terminal's features ---------------------------------------------------------------------------


def test_colours_are_for_terminals_that_want_them(chat):
    assert b"\033[1m" in chat().wait_prompt().raw and b"\033[2m" in chat().wait_prompt().raw
    plain = chat(env={"NO_COLOR": "1"}).wait_prompt().type("a river")
    assert b"\033[1m" not in plain.raw and b"\033[2m" not in plain.raw and b"\033[31m" not in plain.raw
    assert b"\033[2m" in chat(env={"NO_COLOR": ""}).wait_prompt().raw  # empty counts as not set


def test_a_dumb_terminal_gets_no_codes(chat, tmp_path):
    """The terminal's line editing is used, and everything else works."""
    terminal = chat(term="dumb").wait_prompt()
    terminal.send("a rix\x7fver\\\r")
    terminal.wait_prompt(".")
    terminal.type("of two").type("/stats")
    assert said(terminal, tmp_path) == ["a river\nof two"] and CODES not in terminal.raw.replace(b"^[", b"")
    assert not (tmp_path / "state").exists()
    terminal.send("abc\x03")
    terminal.wait_prompt()
    terminal.send("\x04")
    assert terminal.end() == 0


def test_a_terminal_that_nobody_knows_still_works(chat, tmp_path):
    terminal = chat(term="no-such-terminal").wait_prompt()
    terminal.send("a river\r")
    terminal.wait_for("cut off")
    terminal.send("/quit\r")
    assert terminal.end() == 0


@pytest.mark.parametrize("lang", ["C", "POSIX", "de_XX.ISO-8859-1"])
def test_text_is_utf8_in_every_locale(chat, tmp_path, lang):
    terminal = chat(env={"LANG": lang}).wait_prompt().type("äöü 水")
    assert said(terminal, tmp_path) == ["äöü 水"]


def test_a_pipe_is_a_script(tmp_path):
    """One line per turn; commands are text; only answers are written, without escape codes. (A slow machine prints that
    it loads.)"""
    done = subprocess.run([BINARY, *CHAT, "--max-tokens", "3"], input=b"Name a river.\n\n/stats\nAnd one\\\nlast one",
                          capture_output=True, timeout=120, env={**environment(), "XDG_STATE_HOME": str(tmp_path)})
    assert done.returncode == 0 and CODES not in done.stdout + done.stderr
    assert all(b"loading weights: " in line for line in done.stderr.splitlines())
    assert len(done.stdout.decode().splitlines()) == 4 and not list(tmp_path.iterdir())


def test_answers_alone_go_to_standard_output(chat, tmp_path):
    with open(tmp_path / "answers", "wb") as file:
        terminal = chat(stdout=file).wait_prompt().type("Name a river.").type("/stats")
        terminal.send("\x04")
        assert terminal.end() == 0
    text = (tmp_path / "answers").read_bytes()
    assert CODES not in text and len(text.splitlines()) == 1 and b"Last answer" in terminal.raw


def test_a_script_learns_that_a_nul_cannot_be_said():
    done = subprocess.run([BINARY, *CHAT, "--max-tokens", "3"], input=b"one\0two\nthree\n", capture_output=True, timeout=120,
                          env=environment())
    assert done.returncode == 1 and done.stdout == b"" and b"a message holds a NUL character" in done.stderr


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_closed_standard_file_is_not_taken_by_another(closed):
    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}>&-', "sh", BINARY, *CHAT, "--max-tokens", "3", "Water"],
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=120, env=environment())
    assert done.returncode == (1 if closed == 1 else 0)
    assert bool(done.stdout) == (closed != 1) and (b"could not be written" in done.stderr) == (closed == 1)


def test_one_completion_needs_no_terminal():
    done = subprocess.run([BINARY, "run", "--model", MODEL, "--max-tokens", "3", "Water"], capture_output=True, timeout=120,
                          env=environment())
    assert done.returncode == 0 and CODES not in done.stdout + done.stderr and b"3 tokens after" in done.stderr


def complete(*flags, prompt="Is water wet? Answer:", code=0, text=None):
    done = subprocess.run([BINARY, "run", "--model", MODEL, "--max-tokens", "60", *flags, *([prompt] if text is None else [])],
                          input=text, capture_output=True, text=True, timeout=120, env=environment())
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def test_answers_keep_to_what_the_flags_say(tmp_path):
    assert complete("--regex", " (yes|no)") in (" yes\n", " no\n")
    grammar, schema = tmp_path / "colours.txt", tmp_path / "schema"
    grammar.write_text('root ::= " " colour ("," colour){2}\ncolour ::= "red" | "blue"\n')
    assert re.fullmatch(r" (red|blue)(,(red|blue)){2}\n", complete("--grammar-file", str(grammar)))
    schema.write_text('{"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": false}')
    for value in (str(schema), " " + schema.read_text()):
        assert json.loads(complete("--json-schema", value)) in ({"n": 1}, {"n": 2})
    answers = complete("--chat", "--grammar-file", str(grammar), "--stop-regex", ",[a-z]", text="Two colours?\nAgain?\n")
    assert re.fullmatch(r"( (red|blue)\n){2}", answers)


def test_an_answer_ends_where_a_regex_has_matched():
    whole = complete(prompt="Once upon a time")
    cut = complete("--stop-regex", "[a-z]{4}, ?[a-z]", prompt="Once upon a time")
    assert len(cut) < len(whole) and cut.strip("\n") == re.split("[a-z]{4}, ?[a-z]", whole)[0].strip("\n")


@pytest.mark.parametrize("flags, says", [
    (["--regex", "(a"], "--regex cannot be enforced: The regular expression has a '(' without its ')' at byte 0"),
    (["--json-schema", '{"uniqueItems": true}'], '--json-schema cannot be enforced: The schema at "/uniqueItems"'),
    (["--json-schema", '{"not": {}}'], "--json-schema cannot be enforced: Nothing can match this grammar"),
    (["--json-schema", "nothing.json"], "nothing.json: No such file or directory"),
    (["--stop-regex", "a*"], "'--stop-regex' cannot be searched for: The regular expression matches the empty text"),
    (["--regex", "a", "--grammar-file", "x"], "give only one"),
])
def test_rules_that_cannot_be_kept_to_are_refused(flags, says):
    assert says in complete(*flags, code=1 if "nothing.json" in flags else 2)


@pytest.mark.parametrize("command", [["run", "--max-tokens", "3"], ["tokenize"]])
def test_a_text_is_typed_where_none_was_given(command):
    for keys, code in [("Water flows\r\x04", 0), ("Water\x03", None)]:
        terminal = Terminal(*command, "--model", MODEL)
        try:
            terminal.wait_for("Ctrl-D at the beginning of a line ends it").send(keys)
            got = terminal.end()
            assert got == code if code is not None else got in (130, -signal.SIGINT)
            assert code != 0 or "tokens" in terminal.text()
        finally:
            terminal.close()
