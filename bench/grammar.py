"""Measures masks: the program's grammars compared with llguidance and xgrammar from their wheels, for the same schemas
and vocabularies.

    python3 bench/grammar.py [--peers build/peers/grammar/bin/python] [--vocabularies 49k,152k,256k] [--repeats 3]

Schemas are those of tests/schemas/models.py and a part of tests/schemas/generate.py. Each has a value, whose compact
JSON is walked in the longest tokens, with a mask before each token and one at the end. All figures are CPU time of one
thread in microseconds, so that other work on the machine changes them little. Of the repeats, each mask's smallest time
counts. A first visit is a mask that is not known yet; the peers keep no masks between calls. Vocabularies: 49k is the
default model's, 152k Qwen's (from the wheel of dashscope), 256k is made from Qwen's and pairs of its tokens.
"""
import argparse
import base64
import json
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "schemas"))
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
FOLDER = ROOT / "build" / "peers" / "data"
QWEN = "dashscope==2.0.2"
N_GENERATED = 60


# ---- vocabularies -----------------------------------------------------------------------------------------------------------------


def byte_alphabet():
    """GPT-2's letters for bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [byte for byte in range(256) if byte not in plain]
    return {**{chr(byte): byte for byte in plain}, **{chr(256 + at): byte for at, byte in enumerate(other)}}


def gguf_tokens(path):
    """The texts of tokenizer.ggml.tokens."""
    with open(path, "rb") as file:
        def number(form):
            return struct.unpack("<" + form, file.read(struct.calcsize(form)))[0]

        def value(kind):
            if kind == 8:
                return file.read(number("Q")).decode()
            if kind == 9:
                item = number("I")
                return [value(item) for _ in range(number("Q"))]
            return number({0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}[kind])

        file.read(16)
        for _ in range(number("Q")):
            name = file.read(number("Q")).decode()
            found = value(number("I"))
            if name == "tokenizer.ggml.tokens":
                return found
    raise SystemExit(f"{path} has no tokens")


def qwen_tokens():
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not list(FOLDER.glob("dashscope*.whl")):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", QWEN, "-d", FOLDER], check=True)
    with zipfile.ZipFile(next(FOLDER.glob("dashscope*.whl"))) as wheel:
        return [base64.b64decode(line.split()[0]) for line in wheel.read("dashscope/resources/qwen.tiktoken").splitlines()]


def vocabulary(name):
    """Returns tokens as bytes; control tokens are empty. The last one ends a text."""
    if name == "49k":
        letters = byte_alphabet()
        tokens = [b"" if token.startswith("<|") else bytes(letters[c] for c in token if c in letters) for token in gguf_tokens(MODEL)]
        known = set(tokens)
        return tokens + [bytes([byte]) for byte in range(256) if bytes([byte]) not in known] + [b""]
    tokens = qwen_tokens()
    if name == "256k":
        draw, known = random.Random(1), set(tokens)
        while len(tokens) < 262144 - 1:
            pair = tokens[draw.randrange(20000)] + tokens[draw.randrange(20000)]
            if pair not in known:
                known.add(pair)
                tokens.append(pair)
    return tokens + [b""]


# ---- the tasks --------------------------------------------------------------------------------------------------------------------


def tasks():
    """Schemas, each with a text. Needs pydantic: main() runs it in the venv of tests/schemas."""
    import models
    import pydantic
    from driver import in_order, order_of, plain
    from generate import Generator
    from oracle import Oracle

    found = [(pydantic.TypeAdapter(kind).json_schema(), value) for kind, value in models.TYPES.values()]
    seed = 0
    while len(found) < len(models.TYPES) + N_GENERATED:
        generator = Generator(seed := seed + 1)
        schema = generator.make()
        value = in_order(plain(generator.value(schema)), order_of(schema))
        if len(json.dumps(value)) > 30 and not Oracle(schema).error(json.dumps(value)):
            found.append((schema, value))
    return [(schema, json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))) for schema, value in found]


class Tokeniser:
    """Splits a text into the longest tokens, like schema_driver."""

    def __init__(self, tokens):
        self.ids, self.longest = {}, max(map(len, tokens))
        for id, token in enumerate(tokens):
            self.ids.setdefault(token, id)

    def encode(self, text):
        data, at, out = text.encode(), 0, []
        while at < len(data):
            n = next(n for n in range(min(self.longest, len(data) - at), 0, -1) if data[at:at + n] in self.ids)
            out.append(self.ids[data[at:at + n]])
            at += n
        return out


# ---- the sides: each returns microseconds of compiling and of each mask for a task, or None -----------------------------------------


def cpu_us(since=0.0):
    return time.thread_time_ns() / 1e3 - since


def walk(ids, mask, accept):
    """Computes the masks before each token and after the last one."""
    times = []
    for id in [*ids, None]:
        began = cpu_us()
        mask()
        times.append(cpu_us(began))
        if id is not None:
            assert accept(id), "the peer does not accept the text"
    return times


class Llguidance:
    def __init__(self, tokens):
        import llguidance
        import llguidance.numpy
        self.module, self.numpy = llguidance, llguidance.numpy

        class Tokens:
            eos_token_id = bos_token_id = len(tokens) - 1
            special_token_ids = [len(tokens) - 1]

            def __call__(self, text):
                return Tokeniser(tokens).encode(text.decode() if isinstance(text, bytes) else text)

        Tokens.tokens = [token or f"<{id}>".encode() for id, token in enumerate(tokens)]
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokens()), slices=llguidance.LLTokenizer.json_slices())
        self.bits = self.numpy.allocate_token_bitmask(1, len(tokens))

    def ask(self, schema, ids):
        began = cpu_us()
        grammar = self.module.LLMatcher.grammar_from_json_schema(schema)
        matcher = self.module.LLMatcher(self.tokenizer, grammar)
        if matcher.is_error():
            return None
        self.numpy.fill_next_token_bitmask(matcher, self.bits)
        compiling = cpu_us(began)
        matcher.reset()
        return compiling, walk(ids, lambda: self.numpy.fill_next_token_bitmask(matcher, self.bits), matcher.consume_token)


class Xgrammar:
    def __init__(self, tokens):
        import xgrammar
        self.module = xgrammar
        self.info = xgrammar.TokenizerInfo(tokens, xgrammar.VocabType.RAW, vocab_size=len(tokens), stop_token_ids=[len(tokens) - 1])
        self.bits = xgrammar.allocate_token_bitmask(1, len(tokens))

    def ask(self, schema, ids):
        compiler = self.module.GrammarCompiler(self.info, max_threads=1, cache_enabled=False)
        began = time.process_time_ns() / 1e3  # it may use a separate thread
        try:
            compiled = compiler.compile_json_schema(json.dumps(schema), any_whitespace=True)
        except Exception:
            return None
        matcher = self.module.GrammarMatcher(compiled)
        matcher.fill_next_token_bitmask(self.bits)
        compiling = time.process_time_ns() / 1e3 - began
        return compiling, walk(ids, lambda: matcher.fill_next_token_bitmask(self.bits), matcher.accept_token)


def ask_peer(kind, name, asked, repeats):
    tokens = vocabulary(name)
    tokeniser, peer = Tokeniser(tokens), {"llguidance": Llguidance, "xgrammar": Xgrammar}[kind](tokens)
    found = {"compiling": [], "first": [], "refused": 0, "wrong": 0}
    for schema, text in asked:
        try:
            rounds = [peer.ask(schema, tokeniser.encode(text)) for _ in range(repeats)]
        except AssertionError:
            found["wrong"] += 1
            continue
        if rounds[0] is None:
            found["refused"] += 1
            continue
        found["compiling"].append(min(one[0] for one in rounds))
        found["first"] += [min(times) for times in zip(*(one[1] for one in rounds))]
    return found


def ask_us(name, asked, repeats):
    from driver import Driver

    driver = Driver([token or b"" for token in vocabulary(name)], FOLDER)
    found = {"compiling": [], "first": [], "again": [], "refused": 0, "wrong": 0, "trie": driver.trie_us}
    for schema, text in asked:
        rounds = [driver.ask(schema, [text], times=True) for _ in range(repeats)]
        if "error" in rounds[0]:
            found["refused"] += 1
            continue
        found["wrong"] += not rounds[0]["accepted"][0]
        found["compiling"].append(min(one["compile"] for one in rounds))
        for times in ("first", "again"):
            found[times] += [min(each) for each in zip(*(one[times] for one in rounds))]
    driver.close()
    return found


# ---- the table ----------------------------------------------------------------------------------------------------------------------


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share / 100))] if values else float("nan")


def row(name, who, found):
    cells = [name, who, *(f"{percentile(found['first'], share):,.1f}" for share in (50, 90, 99)), f"{max(found['first']):,.0f}"]
    cells.append(f"{statistics.median(found['again']):.1f}" if "again" in found else "")
    cells += [f"{percentile(found['compiling'], share):,.0f}" for share in (50, 90, 99)]
    cells.append(f"{found['trie'] / 1000:.0f}" if "trie" in found else "")
    return "| " + " | ".join([*cells, str(found["refused"]), str(found["wrong"])]) + " |"


HEADER = """| vocabulary | who | mask p50 | p90 | p99 | greatest | known mask | schema to first mask p50 | p90 | p99 | trie, ms | refused | text not accepted |
|---|---|---|---|---|---|---|---|---|---|---|---|---|"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default=str(ROOT / "build" / "peers" / "grammar" / "bin" / "python"))
    parser.add_argument("--vocabularies", default="49k,152k,256k")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ask", help="a peer's name: for the processes that this one starts")
    args = parser.parse_args()
    if args.ask:
        asked = json.load(sys.stdin)
        print(json.dumps(ask_peer(args.ask, args.vocabularies, asked, args.repeats)))
        return
    asked = tasks()
    print(f"{len(asked)} schemas, {sum(len(text) for _, text in asked)} characters\n\n{HEADER}", flush=True)
    for name in args.vocabularies.split(","):
        print(row(name, "Penstock", ask_us(name, asked, args.repeats)), flush=True)
        for peer in ("llguidance", "xgrammar"):
            if not pathlib.Path(args.peers).exists():
                continue
            command = [args.peers, __file__, "--ask", peer, "--vocabularies", name, "--repeats", str(args.repeats)]
            done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True)
            print(row(name, peer, json.loads(done.stdout)) if done.returncode == 0 else f"{peer} failed: {done.stderr[-500:]}", flush=True)


if __name__ == "__main__":
    main()
