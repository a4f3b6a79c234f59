"""The servers of the chaos: a small random model, a setup for each format of calls, and the checks of a server at its end."""
import dataclasses
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import tempfile
import time

import sources
from answers import Bad
from cases import request
from routes import MODEL
from ways import Link

FAMILY = "qwen3"
CONTEXT = 512
KEYS = ["key-one", "key-two"]
TEMPLATE = """{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}
{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}{% endfor %}{{ reasoning_effort }}{{ begin }}"""
# The cache holds one sequence of full length and little more. Half requests end soon.
FLAGS = ["--served-model-name", f"{MODEL},other", "--max-model-len", str(CONTEXT), "--kv-cache-memory", "340000",
         "--max-num-seqs", "8",
         "--max-num-batched-tokens", "64", "--threads", "2", "--request-timeout", "3", "--max-body-size", "4MiB",
         "--grammar-cache", "1MiB",
         "--max-queued-requests", "64", "--max-connections", "200", "--drain-delay", "0", "--seed", "1", "--log-level",
         "warning"]
# Each list is taken in turn from one setup to the next; lengths without a common divisor make all pairs in time.
OTHERS = [[["--speculative-config", "ngram"], ["--speculative-config", "suffix"],
           ["--speculative-config", "none", "--steps-in-flight", "2"],
           ["--speculative-config", "DRAFT"], ["--speculative-config", "ngram", "--always-speculate"]],
          [["--api-key", ",".join(KEYS), "--metrics-key", "monitor"], ["--otlp-traces-endpoint", "http://127.0.0.1:9"]],
          [["--cors-origins", "*"], ["--trusted-proxies", "127.0.0.0/8"], []],
          [["--reasoning-parser", "qwen3", "--reasoning-budget", "3"], ["--reasoning-parser", "none"], ["--reasoning-parser", "mistral"],
           ["--no-enable-prefix-caching"],
           ["--log-format", "json", "--log-level", "info"], ["--itl-target-ms", "5"], ["--any-model-name"]]]
SPELLINGS = ["qwen3_coder", "seed_oss", "pythonic", "glm45", "hermes", "olmo3", "openai",
             "kimi_k2"]  # each writes arguments by itself: first
REPORT = re.compile(rb"ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error:|Assertion|stack smashing|SUMMARY: ")
CHANGING = re.compile(r"process_|penstock_grammar_bytes|.*state=\"cached\"")  # gauges that may have other values after the chaos
START_SECONDS, SETTLE_SECONDS, END_SECONDS = 60, 60, 60


@dataclasses.dataclass(frozen=True)
class Setup:
    name: str
    flags: tuple
    fills: bool = True  # the model has tokens for filling in

    @property
    def key(self):
        return KEYS[0] if "--api-key" in self.flags else None


def setups():
    formats = sources.tool_formats()
    assert set(SPELLINGS) <= set(formats), set(SPELLINGS) - set(formats)
    names = SPELLINGS + [name for name in formats if name not in SPELLINGS]
    return [Setup(name, tuple(["--tool-call-parser", name, *(flag for one in OTHERS for flag in one[i % len(one)])]), i % 4 != 3)
            for i, name in enumerate(names)]


def member(key, kind, value):
    """A key of a GGUF file with its value; the kinds are numbers of the format."""
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value


def token_id(data, text):
    """The id of a token in the bytes of a GGUF file."""
    at = data.index(b"tokenizer.ggml.tokens") + len(b"tokenizer.ggml.tokens")
    n, = struct.unpack_from("<Q", data, at + 8)
    at += 16
    for i in range(n):
        length, = struct.unpack_from("<Q", data, at)
        if data[at + 8:at + 8 + length] == text:
            return i
        at += 8 + length
    raise ValueError(f"no token {text}")


def with_fim(data):
    """The file with tokens for filling in. The members are inserted before the first one; a text fills up the alignment of the tensors."""
    kinds = ("pre", "suf", "mid", "sep")
    added = b"".join(member(f"tokenizer.ggml.fim_{kind}_token_id", 4, struct.pack("<I", token_id(data, b"[PAD%d]" % i)))
                     for i, kind in enumerate(kinds))
    left = -len(added + member("chaos.fill", 8, struct.pack("<Q", 0))) % 32
    added += member("chaos.fill", 8, struct.pack("<Q", left) + b"x" * left)
    n, = struct.unpack_from("<Q", data, 16)
    return data[:16] + struct.pack("<Q", n + len(kinds) + 1) + added + data[24:]


def write_model(path, fills):
    """The tests' model of a family, with a longer context, and if it fills in with the tokens for that."""
    data = bytearray((sources.ROOT / f"tests/vectors/families/{FAMILY}.gguf").read_bytes())
    key = f"{FAMILY}.context_length".encode()
    place = data.index(key) + len(key)
    assert struct.unpack_from("<I", data, place)[0] == 4  # a u32
    struct.pack_into("<I", data, place + 4, 4 * CONTEXT)
    path.write_bytes(with_fim(bytes(data)) if fills else data)


class Server:
    """One running `penstock serve`."""

    def __init__(self, binary, setup):
        self.setup, self.folder = setup, tempfile.TemporaryDirectory(prefix="penstock-chaos-")
        folder = pathlib.Path(self.folder.name)
        write_model(folder / "tiny.gguf", setup.fills)
        (folder / "chat.jinja").write_text(TEMPLATE)
        draft = json.dumps({"method": "draft_model", "model": str(folder / "tiny.gguf"), "num_speculative_tokens": 3})
        flags = [draft if flag == "DRAFT" else flag for flag in setup.flags]
        self.log = open(folder / "log", "w+b")
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}
        environment["ASAN_OPTIONS"] = "detect_leaks=1:abort_on_error=0:exitcode=99"
        environment["UBSAN_OPTIONS"] = "print_stacktrace=1"
        environment["TSAN_OPTIONS"] = "history_size=4:exitcode=99"
        self.command = [binary, "serve", "--model", str(folder / "tiny.gguf"), "--chat-template", str(folder / "chat.jinja"), "--port", "0",
                        *FLAGS, *flags]
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log, env=environment)
        self.port = self.wait_for_port()

    def text(self):
        """The log without the lines of requests."""
        lines = pathlib.Path(self.log.name).read_bytes().splitlines(keepends=True)
        return b"".join(line for line in lines if b'"message":"request"' not in line and b" INFO  request " not in line)

    def wait_for_port(self):
        """The port that the server chose, from what it listens on."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            port = listening(self.process.pid)
            if port:
                return port
            time.sleep(0.02)
        raise Bad(f"the server does not start: {self.process.poll()}\n{self.text().decode(errors='replace')[-3000:]}")

    def report(self):
        """What is wrong by the process or its log; None: nothing."""
        code, text = self.process.poll(), self.text()
        match = REPORT.search(text)
        if match:
            return f"a report (exit code {code}):\n{text[max(0, match.start() - 200):][:6000].decode(errors='replace')}"
        return f"the server ended by itself with {code}:\n{text[-3000:].decode(errors='replace')}" if code is not None else None

    def get(self, path):
        with Link(self.port) as link:
            link.send(request("GET", path, key="monitor" if "--metrics-key" in self.setup.flags else None))
            answer = link.answer()
        if not answer or answer.status != 200:
            raise Bad(f"{path} of a quiet server: {answer}")
        return answer.body.decode()

    def gauges(self):
        """{'name{labels}': value} of what must be as before."""
        text = self.get("/metrics")
        kinds = dict(re.findall(r"# TYPE (\S+) (\w+)", text))
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        found = {name: float(value) for name, value in lines if kinds.get(name.split("{")[0]) == "gauge" and not CHANGING.match(name)}
        assert len(found) > 12, text
        time.sleep(0.2)  # the connection of the scrape ends
        found["server_load"] = float(json.loads(self.get("/load"))["server_load"])
        time.sleep(0.2)
        found["open files"] = len(os.listdir(f"/proc/{self.process.pid}/fd"))
        found["threads"] = len(os.listdir(f"/proc/{self.process.pid}/task"))
        return found

    def steady(self):
        """The gauges, once they stand still and no other connection is open."""
        last, end = None, time.monotonic() + SETTLE_SECONDS
        while (found := self.gauges()) != last or found["penstock_http_connections"] > 1:
            if time.monotonic() > end:
                raise Bad(f"gauges that keep changing: {last}, {found}")
            last = found
            time.sleep(0.1)
        return found

    def resident_mib(self):
        return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{self.process.pid}/status").read_text())[1]) / 1024

    def settle(self, before):
        """Waits until all gauges are as before."""
        end = time.monotonic() + SETTLE_SECONDS
        while changed := {name: (before.get(name), value) for name, value in self.gauges().items() if before.get(name) != value}:
            if time.monotonic() > end:
                raise Bad(f"gauges that do not return to their old values (before, after): {changed}")
            time.sleep(0.1)

    def stop(self):
        """SIGTERM; the code must be 0 and the log without a report. Memory that leaks is reported here."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            raise Bad(f"the server does not end within {END_SECONDS} s of SIGTERM") from None
        match = REPORT.search(self.text())
        if code or match:
            raise Bad(f"exit code {code} after SIGTERM:\n{self.text()[match.start() if match else -3000:][:6000].decode(errors='replace')}")

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()
        self.folder.cleanup()


def listening(pid):
    """The port on which a process listens, or None."""
    inodes = set()
    for one in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(os.readlink(one))
        except OSError:
            continue
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
            return int(fields[1].split(":")[1], 16)
    return None
