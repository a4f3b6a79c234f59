"""Checks of the tree that no compiler makes: include direction, sizes, comments above prototypes, dead files.

`tests/tidy.py` checks the tree it stands in, prints a line for each finding and ends with exit code 1 when there is one.
`tests/tidy.py --self-test` proves on small made-up trees that each rule can fail.
"""
import fnmatch
import os
import re
import sys
import tempfile

# What each folder may include, by the folders' public headers. config is a leaf; engine/text knows no tensors.
MAY_INCLUDE = {
    "config": {"config"},
    "kernels": {"kernels", "config"},
    "engine/text": {"engine/text", "config"},
    "engine": {"engine", "engine/text", "kernels", "config"},
    "scheduler": {"scheduler", "engine", "engine/text", "kernels", "config"},
    "server": {"server", "scheduler", "engine", "engine/text", "kernels", "config"},
}
PUBLIC_HEADERS = {
    "config/config.h", "kernels/kernels.h", "engine/text/text.h", "engine/engine.h", "scheduler/scheduler.h",
}
# Whose prototypes each have a comment: the headers that other folders or the program's main file read.
COMMENTED_HEADERS = PUBLIC_HEADERS | {"server/http.h", "server/api.h"}
# Which folders may know which library.
LIBRARIES = {
    r"uv\.h": ["server/"],
    r"microhttpd\.h": ["server/"],
    r"cjson/.*": ["server/", "engine/text/", "engine/hf_config.c"],
    r"yaml\.h": ["config/"],
    r"pcre2\.h": ["engine/text/"],
    r"utf8proc\.h": ["engine/"],
    r"xxhash\.h": ["scheduler/", "server/"],
    r"check\.h": [],
    r"(cuda|cublas|nv).*": ["kernels/cuda/", "bench/gpu/"],
}
# Who times a folder's internals: it includes them as tests do.
TIMES_INTERNALS = "bench/gpu/"
MAX_FUNCTION, USUAL_FUNCTION, USUAL_SHARE = 70, 45, 0.9
MAX_FILE, MAX_TEST_FILE, MAX_WIDTH = 500, 800, 100

# Files that may be longer or wider, each with its reason. An entry that is not needed any more is a finding itself.
LONG_FILES = {"kernels/kernels.h": "the folder's one public header: a table of contents"}
WIDE_FILES = {}

EMULATED_HEADERS = "tests/cuda_emu/include/"
SKIPPED_FOLDERS = {".git", ".venv", "build", "models", "__pycache__", "corpus"}
CODE = (".c", ".h", ".inc", ".cu", ".cuh", ".cpp")
INCLUDED = (".h", ".inc", ".cuh")


class Tree:
    """The files of one tree, and what was found in them."""

    def __init__(self, root):
        self.root = root
        self.findings = []
        self.lines = {}
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS)
            for name in sorted(names):
                path = os.path.relpath(os.path.join(folder, name), root)
                if path.endswith(CODE + (".py", ".sh")) or name == "CMakeLists.txt":
                    with open(os.path.join(root, path), encoding="utf-8") as file:
                        self.lines[path] = file.read().split("\n")

    def find(self, path, number, text):
        self.findings.append(f"{path}:{number}: {text}")

    def code(self):
        return {path: lines for path, lines in self.lines.items() if path.endswith(CODE)}


def folder_of(path):
    """The folder of MAY_INCLUDE that a path belongs to, or None for tests and others."""
    names = [name for name in MAY_INCLUDE if path.startswith(name + "/")]
    return max(names, key=len) if names else None


def includes_of(lines):
    for number, line in enumerate(lines, 1):
        match = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
        if match:
            yield number, match[1] == '"', match[2]


def resolve(tree, path, name):
    """The path in the tree of a quoted include, which is named from the root or from beside its file; or None."""
    beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
    return next((p for p in (name, beside, "tests/" + name) if p in tree.lines), None)


def resolve_system(tree, name):
    """The header of ours that stands in for a system's, or None: the CUDA emulation has such a folder."""
    path = EMULATED_HEADERS + name
    return path if path in tree.lines else None


def check_project_include(tree, path, number, target):
    source, wanted = folder_of(path), folder_of(target)
    if path.startswith("tests/"):
        return
    if target.startswith("tests/"):
        tree.find(path, number, f"{target} belongs to the tests")
    elif source and wanted not in MAY_INCLUDE[source]:
        tree.find(path, number, f"{source} may not include {target}: includes point one way")
    elif source != wanted and target not in PUBLIC_HEADERS and not path.startswith(TIMES_INTERNALS):
        tree.find(path, number, f"{target} is internal to {wanted}")


def check_library_include(tree, path, number, name):
    if path.startswith("tests/"):
        return
    for pattern, folders in LIBRARIES.items():
        if re.fullmatch(pattern, name) and not path.startswith(tuple(folders) or "\0"):
            tree.find(path, number, f"<{name}> may only be included in {', '.join(folders) or 'tests'}")


def check_includes(tree):
    included = set()
    for path, lines in tree.code().items():
        for number, quoted, name in includes_of(lines):
            target = resolve(tree, path, name) if quoted else None
            if not quoted and resolve_system(tree, name):
                included.add(resolve_system(tree, name))
            if target:
                included.add(target)
                check_project_include(tree, path, number, target)
            elif not quoted:
                check_library_include(tree, path, number, name)
            if name.startswith("cjson/") and path.endswith(".c") and not any("cJSON_" in s for s in lines):
                tree.find(path, number, "cJSON is included, but no JSON is read or written here")
    for path in tree.code():
        if path.endswith(INCLUDED) and path not in included:
            tree.find(path, 1, "no file includes this header")


def functions_of(lines):
    """Yields (first line, count of lines) of each function body: from a signature in column 0 to a brace in column 0."""
    start, opened = None, False
    for number, line in enumerate(lines, 1):
        if start is None:
            if re.match(r"[A-Za-z_][^=;{]*\(", line) and not line.startswith("typedef"):
                start, opened = number, False
        if start is None:
            continue
        opened = opened or "{" in line
        if line.startswith("}"):
            yield start, number - start + 1
            start = None
        elif not opened and line.rstrip().endswith(";"):
            start = None


def check_functions(tree):
    """Returns the lengths of all functions."""
    lengths = []
    for path, lines in tree.code().items():
        for number, length in functions_of(lines):
            lengths.append(length)
            if length > MAX_FUNCTION:
                tree.find(path, number, f"a function of {length} lines; {MAX_FUNCTION} is the most")
    share = sum(length < USUAL_FUNCTION for length in lengths) / len(lengths) if lengths else 1
    if share < USUAL_SHARE:
        tree.find("tree", 0, f"only {share:.0%} of the functions are under {USUAL_FUNCTION} lines")
    return lengths


def check_sizes(tree):
    for path, lines in tree.lines.items():
        most = MAX_TEST_FILE if path.startswith("tests/") else MAX_FILE
        length = len(lines) - (lines[-1] == "")
        if length > most and path not in LONG_FILES:
            tree.find(path, length, f"{length} lines; {most} is the most, or list it with its reason")
        if length <= most and path in LONG_FILES:
            tree.find(path, length, "is listed as long, but is not: take it off the list")
    for path, lines in tree.code().items():
        wide = [number for number, line in enumerate(lines, 1) if len(line) > MAX_WIDTH]
        if wide and path not in WIDE_FILES:
            for number in wide:
                tree.find(path, number, f"{len(lines[number - 1])} columns; {MAX_WIDTH} is the most")
        if not wide and path in WIDE_FILES:
            tree.find(path, 1, "is listed as wide, but is not: take it off the list")
    for path in set(LONG_FILES) | set(WIDE_FILES):
        if path not in tree.lines:
            tree.find(path, 0, "is listed, but does not exist")


def prototypes_of(lines):
    """Yields the first line of each function prototype in a header."""
    start = None
    for number, line in enumerate(lines, 1):
        if start is None and re.match(r"[A-Za-z_][^=;{}]*\(", line):
            start = number
        if start and "{" in line:
            start = None
        elif start and line.rstrip().endswith(";"):
            yield start
            start = None
        elif start and re.search(r";\s*/\*.*\*/\s*$", line):
            yield start
            start = None


def check_comments(tree):
    """Each prototype stands in a paragraph that begins with a comment, or has one behind it."""
    for path, lines in tree.code().items():
        if path not in COMMENTED_HEADERS:
            continue
        for number in prototypes_of(lines):
            top = number
            while top > 1 and lines[top - 2].strip():
                top -= 1
            if not any("/*" in line or "*/" in line for line in lines[top - 1:number]):
                tree.find(path, number, "a public prototype without a comment above it")


def built_patterns(tree):
    """The patterns of the sources that the CMakeLists.txt name, their folders filled in."""
    text = "\n".join("\n".join(lines) for path, lines in tree.lines.items() if path.endswith("CMakeLists.txt"))
    folders = re.findall(r"^penstock_library\(\w+ ([\w/]+)", text, re.M)
    for pattern in re.findall(r"[\w${}/*.]+\.(?:c|cu|cpp)\b", text):
        pattern = pattern.replace("${CMAKE_SOURCE_DIR}/", "")
        if "${folder}" in pattern:
            yield from (pattern.replace("${folder}", folder) for folder in folders)
        else:
            yield re.sub(r"\$\{\w+\}", "*", pattern)


def check_built(tree):
    patterns = list(built_patterns(tree))
    for path in tree.code():
        if path.endswith(INCLUDED):
            continue
        # fnmatch lets '*' cross folders, a glob does not.
        if not any(fnmatch.fnmatchcase(path, p) and path.count("/") == p.count("/") for p in patterns):
            tree.find(path, 1, "CMakeLists.txt does not build this file")


def check(root):
    tree = Tree(root)
    check_includes(tree)
    lengths = check_functions(tree)
    check_sizes(tree)
    check_comments(tree)
    check_built(tree)
    return tree, lengths


# ---- self-test ----------------------------------------------------------------------------------------------

GOOD = {
    "CMakeLists.txt": "penstock_library(config config)\npenstock_library(server server)\n"
                      "file(GLOB sources ${folder}/*.c)\nfile(GLOB suites tests/test_*.c)\n",
    "config/config.h": "/* Adds. */\nint add(int a, int b);\nint sub(int a,\n        int b);\n",
    "config/add.c": '#include "config/config.h"\n#include <yaml.h>\n\nint add(int a, int b) {\n    return a + b;\n}\n',
    "server/serve.h": "/* Serves. */\nvoid serve(void);\n",
    "server/serve.c": '#include <uv.h>\n\n#include "config/config.h"\n#include "server/serve.h"\n',
    "tests/test_serve.c": '#include <check.h>\n#include "server/serve.h"\n',
}
LONG = "int f(void) {\n" + "    g();\n" * 69 + "}\n"
MIDDLE = "int f(void) {\n" + "    g();\n" * 44 + "}\n"
# Files to lay over the good tree, and words of the one finding they must bring.
BAD = [
    ({"config/b.c": '#include "server/serve.h"\n'}, "config may not include server/serve.h"),
    ({"server/b.c": '#include "config/internal.h"\n', "config/internal.h": ""}, "is internal to config"),
    ({"config/b.c": "#include <uv.h>\n"}, "<uv.h> may only be included in server/"),
    ({"server/b.c": "#include <check.h>\n"}, "<check.h> may only be included in tests"),
    ({"config/b.c": '#include "tests/help.h"\n', "tests/help.h": ""}, "belongs to the tests"),
    ({"server/b.c": "#include <cjson/cJSON.h>\n"}, "no JSON is read or written"),
    ({"config/lonely.h": ""}, "no file includes this header"),
    ({"config/lonely.inc": ""}, "no file includes this header"),
    ({"config/sub/b.c": ""}, "does not build this file"),
    ({"tests/helper.c": ""}, "does not build this file"),
    ({"config/b.c": LONG + "int h(void) {\n}\n" * 20}, "a function of 71 lines"),
    ({"config/b.c": "static int f(int a,\n             int b)\n{\n" + "    g();\n" * 68 + "}\n"
      + "int h(void) {\n}\n" * 20}, "a function of 72 lines"),
    ({"config/b.c": MIDDLE + "int h(void) {\n}\n" * 3}, "only 80% of the functions"),
    ({"config/b.c": "int a;\n" * 501}, "501 lines"),
    ({"tests/test_b.c": "int a;\n" * 801}, "801 lines"),
    ({"config/b.c": "//" + "x" * 99 + "\n"}, "101 columns"),
    ({"config/config.h": "/* Adds. */\nint add(int a, int b);\n\nint sub(int a, int b);\n"}, "without a comment"),
    ({"config/config.h": "/* Adds. */\nint add(int a, int b);\n\nint sub(int a,\n        int b);\n"},
     "config/config.h:4: a public prototype"),
]


def findings_of(files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)) or root, exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        return check(root)[0].findings


def self_test():
    LONG_FILES.clear()
    WIDE_FILES.clear()
    good = dict(GOOD)
    good["config/b.c"] = LONG.replace("    g();\n", "", 1) + "int h(void) {\n}\n" * 20 + "int a = f(\n    1);\n"
    good["config/c.c"] = "//" + "\u00e9" * 98 + "\n" + "int a;\n" * 499
    assert findings_of(good) == [], findings_of(good)
    for files, words in BAD:
        findings = findings_of({**GOOD, **files})
        assert len(findings) == 1 and words in findings[0], (words, findings)
    LONG_FILES["config/add.c"] = WIDE_FILES["gone.c"] = "for the self-test"
    findings = findings_of(GOOD)
    assert len(findings) == 2 and "take it off" in findings[0] and "does not exist" in findings[1], findings
    print(f"tidy: self-test of {len(BAD) + 3} trees passed")


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    tree, lengths = check(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for finding in tree.findings:
        print(finding)
    share = sum(length < USUAL_FUNCTION for length in lengths) / max(len(lengths), 1)
    print(f"{len(tree.code())} files, {len(lengths)} functions, {share:.1%} under {USUAL_FUNCTION} lines, "
          f"longest {max(lengths, default=0)}, {len(tree.findings)} findings")
    return 1 if tree.findings else 0


if __name__ == "__main__":
    sys.exit(main())
