"""A terminal for the program: a pseudo-terminal, and the contents of its screen."""
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

import pyte

from conftest import BINARY, environment

PATIENCE_S = 60


class Terminal:
    """One program in a separate terminal. `raw` holds all of its output, `text()` returns the visible screen."""

    def __init__(self, *arguments, rows=50, columns=100, env=None, stdout=None, stderr=None, term="xterm-256color"):
        self.columns, self.rows = columns, rows
        self.has_editor = term != "dumb"
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.master, slave = pty.openpty()
        self.size(rows, columns)
        variables = {**environment(), "TERM": term, "LANG": "C.UTF-8", **(env or {})}
        for name in ("NO_COLOR", "LC_ALL", "LC_CTYPE", "EDITRC"):
            if name not in (env or {}):
                variables.pop(name, None)
        self.process = subprocess.Popen([BINARY, *arguments], stdin=slave, stdout=stdout or slave, stderr=stderr or slave,
                                        env=variables, start_new_session=True,
                                        preexec_fn=self.begin)
        os.close(slave)

    @staticmethod
    def begin():
        """Prepares the process as a shell does. Tests may run in the background, where the signals of keys are ignored."""
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def size(self, rows, columns):
        """Sets the size of the window, and notifies the program by a signal."""
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, text):
        os.write(self.master, text.encode() if isinstance(text, str) else text)

    def read(self, seconds):
        """Processes the program's output for some seconds. Returns False if it has ended and all output was read."""
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            part = os.read(self.master, 65536)
        except OSError:  # the other side is closed
            part = b""
        self.raw += part
        self.stream.feed(part)
        return bool(part)

    def text(self):
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    def wait(self, condition, what, seconds=PATIENCE_S):
        end = time.monotonic() + seconds
        while not condition():
            assert self.read(0.1) or condition(), f"the program ended without {what}\n{self.text()}"
            assert time.monotonic() < end, f"no {what}\n{self.text()}\n{self.raw[-2000:]}"
        return self

    def wait_for(self, text, seconds=PATIENCE_S):
        return self.wait(lambda: text in self.text(), repr(text), seconds)

    def edits(self):
        """Does the program's editor read the keys?"""
        return not self.has_editor or not termios.tcgetattr(self.master)[3] & termios.ICANON

    def wait_drawn(self, text, act):
        """Waits until the editor has drawn the text because of `act`, and reads keys again."""
        before = len(self.raw)
        act()
        return self.wait(lambda: text.encode() in self.raw[before:] and self.edits(), f"{text!r} drawn again")

    def at_prompt(self, prompt=">"):
        """Is the cursor after an empty prompt, in the last line with text, and does the editor read keys?"""
        return self.edits() and self.text().split("\n")[-1] == prompt and self.screen.cursor.x == len(prompt) + 1

    def wait_prompt(self, prompt=">"):
        return self.wait(lambda: self.at_prompt(prompt), f"prompt {prompt!r}")

    def type(self, text, prompt=">"):
        """Types a line, and waits for the next prompt."""
        before = len(self.raw)
        self.send((text if isinstance(text, bytes) else text.encode()) + b"\r")
        self.wait(lambda: b"\n" in self.raw[before:] and self.at_prompt(prompt), f"prompt after {text!r}")
        return self

    def end(self):
        """Waits for the end of the program, and returns its exit code."""
        end = time.monotonic() + PATIENCE_S
        while self.read(0.1):
            assert time.monotonic() < end, f"the program does not end\n{self.text()}"
        return self.process.wait(PATIENCE_S)

    def signal(self, number):
        self.process.send_signal(number)

    def close(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.master)
