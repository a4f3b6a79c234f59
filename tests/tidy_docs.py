"""The part of tests/tidy.py that checks the docs: all names in a *.md exist.

Paths and ends of paths, make targets, flags (of the option table, of the tree's scripts, or of other programs),
variables PENSTOCK_..., links with their anchors, and single words with an underscore between backticks.
"""
import os
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).parent / "clients"))
import compatibility  # noqa: E402

# Names in the docs that are not in this tree, each with its owner: flags of other programs, and words with an
# underscore. An entry that is no longer used is a finding.
FOREIGN_FLAGS = {
    "args": "gdb", "build": "docker compose", "gpus": "docker run", "user": "docker run", "read-only": "docker run", "now": "systemctl",
    "preset": "ctest",
    "policy": "vllm-router's", "worker-urls": "vllm-router's", "kv-event-model": "vllm-router's", "kv-event-block-size": "vllm-router's",
    "bind-to": "mpirun's", "map-by": "mpirun's", "enable-recovery": "mpirun's", "mca": "mpirun's",
    "maxmemory": "redis-server's", "maxmemory-policy": "redis-server's",
    "kv-event-source": "vllm-router's", "router-temperature": "vllm-router's", "kv-event-replay-source": "vllm-router's",
}
FOREIGN_WORDS = {
    "llama.cpp": "the other program", "llama_memory_seq_cp": "llama.cpp's", "batch_req_1": "an example",
    "module_verb": "an example",
}

UNCHECKED = {"Makefile"}

DOC_FOLDERS = r"(?:config|kernels|engine|scheduler|server|bench|tests|docs|docker)/"
NAMED = r"[\w.*{},-]"
# A path from the top of the tree, or the end of one that ends in a source's name: `generation/job.c`, `plan.h`.
DOC_PATH = re.compile(rf"(?<![\w/.:-])(?:{DOC_FOLDERS}(?:{NAMED}+/)*{NAMED}*|(?:{NAMED}+/)*[\w*-]+\.(?:c|h|inc|cu|cuh|cpp|py|sh|md))"
                      r"(?![\w/])")
DOC_LINK = re.compile(r"\]\(([^)\s]+)\)")
DOC_MAKE = re.compile(r"(?:^|[`\s])make ([a-z][\w-]*)")
DOC_FLAG = re.compile(r"(?<![\w-])--([a-z][\w-]*)")
BUILT = ("build/", "models/", ".venv/")
DOC_VARIABLE = re.compile(r"\bPENSTOCK_[A-Z_]+\b")
DOC_WORD = re.compile(r"(?:struct |enum )?([A-Za-z]\w*_\w+)(?:\(\))?")
PLACEHOLDER = re.compile(r"(?<![A-Za-z])[A-Z]{3,}(?![A-Za-z])")


def code_spans(line):
    """Returns the parts of a line that are code: text between backticks, or an indented line without its comment."""
    if line.startswith("    "):
        return [re.sub(r"(^|\s)#.*", "", line)]
    return re.findall(r"`([^`]+)`", line)


def path_pattern(name):
    """Returns a path in the docs' form as a regular expression: `*` and words like NAME match anything but a slash, and
    {a,b} one of several."""
    pattern = ""
    for part in re.split(rf"(\*|\{{[^}}]*\}}|{PLACEHOLDER.pattern})", name):
        if part == "*" or PLACEHOLDER.fullmatch(part):
            pattern += "[^/]+"
        elif part.startswith("{"):
            pattern += "(?:" + "|".join(re.escape(p) for p in part[1:-1].split(",")) + ")"
        else:
            pattern += re.escape(part)
    return pattern


class Named:
    """All names that a doc may use."""

    def __init__(self, tree):
        self.tree = tree
        self.paths = "\n".join(sorted(tree.paths | {folder for path in tree.paths for folder in parents_of(path)}))
        text = "\n".join("\n".join(lines) for path, lines in tree.lines.items() if not path.startswith("tests/tidy"))
        self.words = set(re.findall(r"\w+", text)) | {program for path in tree.paths for program in programs_of(path)}
        table = "\n".join(tree.lines.get("server/options/table.c", []))
        self.flags = {f for name in re.findall(r'^    \{"([a-z][\w-]*)", ', table, re.M) for f in (name, "no-" + name)}
        scripts = "\n".join("\n".join(lines) for path, lines in tree.lines.items() if path.endswith(".py"))
        self.flags |= set(re.findall(r"[\"']--([a-z][\w-]*)[\"']", scripts)) | {"help"}
        self.words |= {"PENSTOCK_" + f.upper().replace("-", "_") for f in self.flags}
        self.targets = set(re.findall(r"^([a-z][\w-]*):", "\n".join(tree.docs.get("Makefile", [])), re.M))
        self.foreign = set()

    def has_path(self, name):
        return re.search(rf"^(?:.*/)?{path_pattern(name.rstrip('/'))}$", self.paths, re.M) is not None

    def has(self, known, foreign, name):
        self.foreign |= {name} & set(foreign)
        return name in known or name in foreign


def parents_of(path):
    while "/" in path:
        path = os.path.dirname(path)
        yield path


def programs_of(path):
    """Returns the names of the test programs that the build makes from a source."""
    if path.startswith("tests/fuzz/fuzz_"):
        yield os.path.basename(path)[:-2]
    match = re.fullmatch(r"tests/(\w+)/test_(\w+)\.(?:c|cpp)", path)
    if match:
        yield f"test_{match[1]}_{match[2]}"
        yield from (prefix + match[2] + suffix for prefix in ("cuda_", "gpu_") for suffix in ("", "_checked", "_asan"))


def heading_anchor(line):
    return re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).strip().replace(" ", "-")


def check_links(tree, path, number, line):
    for target in DOC_LINK.findall(line):
        if re.match(r"\w+:", target):
            continue
        file, _, anchor = target.partition("#")
        page = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
        if page not in tree.paths and not any(p.startswith(page + "/") for p in tree.paths):
            tree.find(path, number, f"the link to {target} leads nowhere")
        elif anchor and anchor not in map(heading_anchor, (s for s in tree.docs.get(page, []) if s.startswith("#"))):
            tree.find(path, number, f"{page} lacks a heading for the link to #{anchor}")


def check_names(named, path, number, line):
    """Checks one line of a doc: its paths, targets, flags, variables and, in backticks, words with an underscore."""
    tree = named.tree
    plain = DOC_LINK.sub("]", re.sub(r"\w+://\S+", "", line))
    for name in DOC_PATH.findall(plain):
        name = name.rstrip(".,")
        if not name.startswith(BUILT) and not named.has_path(name) and not named.has((), FOREIGN_WORDS, name):
            tree.find(path, number, f"names {name}, which does not exist")
    for span in code_spans(line):
        for target in DOC_MAKE.findall(span):
            if target not in named.targets:
                tree.find(path, number, f"names make {target}, which the Makefile does not have")
        word = DOC_WORD.fullmatch(span)
        if word and not PLACEHOLDER.search(word[1]) and not named.has(named.words, FOREIGN_WORDS, word[1]):
            tree.find(path, number, f"names {word[1]}, which is nowhere in the code")
    for flag in DOC_FLAG.findall(plain):
        if not named.has(named.flags, FOREIGN_FLAGS, flag):
            tree.find(path, number, f"names --{flag}, which is not an option or a tool's flag")
    for variable in DOC_VARIABLE.findall(plain):
        if variable not in named.words:
            tree.find(path, number, f"names {variable}, which nothing reads")


def check_fields(tree):
    """tests/server/test_fields.c has all refused fields except those of only /tokenize, and docs/api.md has all fields
    of that file."""
    tested, table, page = "tests/server/test_fields.c", "server/openai/unserved.c", "docs/api.md"

    def names(path, row):
        return {match[1] for match in map(re.compile(row).match, tree.lines.get(path, [])) if match}

    listed = names(tested, r'^    \{"(\w+)", (?:NONE|SERVED|REFUSED|IGNORED), ')
    described = set(re.findall(r"`(\w+)`", "\n".join(tree.docs.get(page, []))))
    for name in sorted(listed - described):
        tree.find(page, 0, f"does not name the field {name}, which {tested} has")
    for name in sorted(names(table, r'^    \{"(\w+)", [CH]') - listed):
        tree.find(tested, 0, f"does not try the field {name}, which {table} has")


def check_compatibility(tree):
    """docs/compatibility.md is as its script writes it, and has the clients of the tests in the pinned versions."""
    page = "docs/compatibility.md"
    if page in tree.docs:
        for finding in compatibility.findings("\n".join(tree.docs[page])):
            tree.find(page, 0, finding)


def check(tree):
    named = Named(tree)
    check_fields(tree)
    check_compatibility(tree)
    for path, lines in tree.docs.items():
        if path in UNCHECKED:
            continue
        for number, line in enumerate(lines, 1):
            check_links(tree, path, number, line)
            check_names(named, path, number, line)
    for name in sorted((set(FOREIGN_FLAGS) | set(FOREIGN_WORDS)) - named.foreign):
        tree.find("tests/tidy.py", 0, f"{name} is listed as foreign, but no doc names it: take it off the list")


# ---- self-test ----------------------------------------------------------------------------------------------

# A tree with names for the docs; lines of a doc in it, and words of the one finding that each must have; "": no
# finding.
NAMED_TREE = {
    "Makefile": "run: deps\n\t@true\nfresh-machine:\n",
    "server/options/table.c": 'const struct option option_table[] = {\n    {"max-num-seqs", "N"},\n};\n',
    "engine/models/llama.c": 'struct rope_layout { int a; };\nint n = getenv("PENSTOCK_OTHER");\n',
    "tests/engine/test_ranks.c": "",
    "tests/fuzz/corpus/gguf/seed": "",
    "bench/works.py": 'parser.add_argument("--only")\n',
    "docs/guide.md": "# Guide\n\n## Step by step\n",
}
CASES = [
    ("see engine/models/llama.c, `models/llama.c`, `llama.c`, engine/models/ and tests/fuzz/corpus.", ""),
    ("engine/models/*.c, `models/NAME.c`, engine/{models,files}, docs/x/../y, build/any/thing.c, /etc/own.sh", "names docs/x"),
    ("see engine/llama.c", "names engine/llama.c, which does not exist"),
    ("see `gpt2.c`", "names gpt2.c, which does not exist"),
    ("http://host/engine/none.c, https://host/none.c", ""),
    ("`make run` and `sudo make fresh-machine`, which make sense", ""),
    ("    make run ARGS=1   # and make sense", ""),
    ("    make tea", "names make tea"),
    ("`make tea`", "names make tea"),
    ("`--max-num-seqs 3`, --no-max-num-seqs, --only, --help, a--b", ""),
    ("--max-num-seq", "names --max-num-seq, which"),
    ("PENSTOCK_MAX_NUM_SEQS, PENSTOCK_OTHER", ""),
    ("`PENSTOCK_NONE`", "names PENSTOCK_NONE"),
    ("`struct rope_layout`, `test_engine_ranks`, `cuda_ranks_checked`, `test_ROOM_NAME`, `a_b = c_d`, no_word", ""),
    ("`struct rope_shape`", "names rope_shape, which is nowhere"),
    ("`rope_shape()`", "names rope_shape, which is nowhere"),
    ("[a](docs/guide.md), [b](docs/guide.md#step-by-step), [c](#top), [d](engine), [e](https://host/x)", ""),
    ("[a](docs/other.md)", "the link to docs/other.md leads nowhere"),
    ("[a](docs/guide.md#steps)", "lacks a heading"),
]


def self_test(findings_of):
    """`findings_of(files)` makes a tree of the files {path: text} and returns the findings of check() in it."""
    FOREIGN_FLAGS.clear()
    FOREIGN_WORDS.clear()
    for text, words in CASES:
        findings = findings_of({**NAMED_TREE, "README.md": f"# Top\n{text}\n"})
        assert len(findings) == bool(words) and words in "".join(findings), (text, words, findings)
    fields = {"tests/server/test_fields.c": '    {"top_p", SERVED, NONE, "1"},\n', "docs/api.md": "# API\n`topp`\n",
              "server/openai/unserved.c": '    {"xtc", C | H, "1"},\n    {"pieces", T, "1"},\n    {"top_p", C, "1"},\n'}
    findings = findings_of({**NAMED_TREE, **fields})
    assert len(findings) == 2 and "the field top_p" in findings[0] and "the field xtc" in findings[1], findings
    version = compatibility.pinned(compatibility.CLIENTS[0])
    whole = compatibility.page([(name, "works", "all") for name in compatibility.NAMES],
                               lambda client: compatibility.pinned(client) if client.pins else "1.0")
    for text, words in ((whole, ""), ("# Other\n" + whole, "does not begin"), (whole.replace("| litellm", "| lite"), "other clients"),
                        (whole.replace(version, "0.1"), "is pinned"), (whole.replace(" all |", "  |", 1), "says nothing")):
        named = {"Makefile": NAMED_TREE["Makefile"] + "clients:\n", "tests/clients/compatibility.py": ""}
        findings = findings_of({**NAMED_TREE, **named, "docs/compatibility.md": text})
        assert len(findings) == bool(words) and words in "".join(findings), (words, findings)
    FOREIGN_FLAGS["max-num-seq"] = FOREIGN_WORDS["a_b"] = "for the self-test"
    findings = findings_of({**NAMED_TREE, "README.md": "--max-num-seq\n"})
    assert len(findings) == 1 and "a_b is listed as foreign" in findings[0], findings
