"""Measures the product's figures the same way each time: sizes, helpers with one caller, asserts, folders, names.

`tests/house.py` prints the table for its tree, `--root DIR` for another one, `--json` for programs.
`tests/house.py --list one-caller` (or structs, long, short-files) lists the items of a figure.
`tests/house.py --recipe family --commit REV` counts the product files that a commit touched.
`tests/house.py --check-recipes` prints the median of product files of the last commits that added a family, a rule, an option, ...
`tests/house.py --self-test` proves on small fake trees that each figure is counted.

The rules of counting, by which commit 37697ce has its published figures (functions 7 / 18 / 46, 28 % with one caller,
asserts .10, 25 structs, comments 7 and 27 %):
- Product: .c .h .inc .cu .cuh under server, scheduler, engine, kernels, config and, if it exists, bench/command.
- Lines of a function: from the first line of its signature (without a preceding `template <...>`) to its closing
  brace, both counted. Methods count, macros that define functions do not.
- One caller: a static function (not a method) that its file mentions exactly once in addition to definition and prototype,
  by any use of the name outside of comments and strings, and that has at most 8 lines. For a header or an .inc file,
  the search covers all files that include it, directly or through others, and the .inc and .cuh that those include.
  The share is of all static functions. "called" counts those whose mention is a call. The others are in a table, are
  passed as a callback or are named by a macro: they cannot be merged into a caller.
- Asserts per function: `assert(`, without static_assert.
- Structs defined twice: names of structs with a body in more than one file.
- Comments: the share of lines with only a comment among the lines that are not blank, in .c .cu and in .h .cuh.
"""
import argparse
import collections
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

PRODUCT = ("server", "scheduler", "engine", "kernels", "config", "bench/command")
CODE = (".c", ".h", ".inc", ".cu", ".cuh")
INCLUDED = (".h", ".inc", ".cuh")
# Groups whose asserts are counted separately: a file belongs to the longest of these that contains it.
ASSERT_GROUPS = PRODUCT + ("engine/text", "kernels/cpu", "kernels/cuda")
SMALL, SHORT_FILE, MAX_FOLDER, USUAL = 8, 30, 22, 45
# Structs of kernels/ that have one definition in each backend or instruction set, behind one declaration.
SAME_ON_PURPOSE = {"call", "kv_cache", "kv_layer", "matrix"}
# The rows of the tables that a recipe extends: the files, and a pattern whose group is the row's name.
ROWS = {
    "family": (["engine/models/*.c"], r"&(model_\w+)"),
    "sampling-rule": (["kernels/sampling.h", "kernels/kernels.h", "engine/sampling/sampling.h"],
                      r"^ +(?:float|int) (\w+(?:, \w+)*);.*\boff\b"),
    "option": (["server/*.c", "config/*.c"],
               r'^ +\{"([a-z][\w-]*)", (?:"[^"]*"|NULL), OPTION_'),
    "field": (["server/*.c", "server/*.h"], r'\{"(\w+)", FIELD_\w+'),
    "weight-type": (["kernels/*.h"], r"^ +X\((\w+), \w+, \d+"),
}
LAST, MAX_ROWS = 10, 6  # the commits of a median; a commit with more new rows does more than follow a recipe
RECIPES = {"family": "3 and a row", "field": "2", "weight-type": "4", "api": "3", "sampling-rule": "4", "op": "5", "metric": "3",
           "endpoint": "3", "option": "3"}
DEFINITION = "lines of a function: signature to closing brace; one caller: one mention besides definition and prototype"

Function = collections.namedtuple("Function", "path line name length is_static is_method")


class Source:
    """One file: its text, the text without comments and strings, and that without preprocessor lines too."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.masked = masked(text)
        self.code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: blank(m[0]), self.masked, flags=re.M)
        self.functions, self.prototypes = functions_of(self)
        self.words = collections.Counter(re.findall(r"\w+", self.masked))
        self.calls = collections.Counter(re.findall(r"(\w+)\(", self.masked))

    def line_of(self, offset):
        return self.code.count("\n", 0, offset) + 1

    def n_lines(self):
        return self.text.count("\n") + (not self.text.endswith("\n") and self.text != "")


# ---- reading C ----------------------------------------------------------------------------------------------

def blank(text):
    return re.sub(r"[^\n]", " ", text)


def masked(text):
    """Returns the text with blanks for comments and strings; lines keep their places."""
    def mask(match):
        return blank(match[0]) if match[0][0] == "/" else match[0][0] + blank(match[0][1:-1]) + match[0][0]
    pattern = r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])*'"""
    return re.sub(pattern, mask, text, flags=re.S)


def declared(head):
    """Returns the match of the function's name in a declaration's head: the name before its last parentheses."""
    depth, found = 0, None
    for match in re.finditer(r"[()]", head):
        if match[0] == ")":
            depth -= 1
            continue
        if depth == 0:
            name = re.search(r"(\w+)\s*(?:<[^()]*>)?\s*$", head[:match.start()])
            if name and not re.match(r"__attribute__|__launch_bounds__|__align__|alignas", name[1]):
                found = name
        depth += 1
    return found


def assigns(head):
    """Is there a '=' outside of parentheses and template arguments? Then an initialiser follows."""
    for pattern in (r"\([^()]*\)", r"\([^()]*\)", r"<[^<>]*>"):
        head = re.sub(pattern, "", head)
    return "=" in head


def begins_function(head):
    """Is this the head of a function, or of its prototype?"""
    return re.search(r"\)\s*(const|noexcept)?\s*$", head) and not assigns(head) and declared(head)


def kind_of(head, stack):
    """Returns the kind of block that a brace after `head` opens: a function, a type (or namespace), or another block."""
    if "function" in stack or assigns(head):
        return "block"
    if begins_function(head):
        return "function"
    return "type" if re.search(r"\b(struct|union|class|enum|namespace|extern)\b", head) else "block"


def signature_at(head):
    """Returns the start of the signature in a head: after macro calls on separate lines, and a template's line."""
    at, depth = 0, 0
    while True:
        match = re.compile(r"\s*(?:[A-Za-z]\w*(?=\()|template\s*(?=<))").match(head, at)
        if not match:
            return at + len(head[at:]) - len(head[at:].lstrip())
        at = match.end()
        for end in range(at, len(head)):
            depth += (head[end] in "(<") - (head[end] in ")>")
            if not depth:
                break
        at = end + 1


def function_of(source, begin, brace, end, stack):
    head = source.code[begin:brace]
    first = source.line_of(begin + signature_at(head))
    length = source.line_of(end) - first + 1
    is_static = bool(re.search(r"\bstatic\b", head))
    return Function(source.path, first, declared(head)[1], length, is_static, "type" in stack)


def closed(stack, in_column_0):
    """Returns the kind of block that a closing brace ends. In column 0 it ends a function, even if #if has opened one
    brace too many."""
    kind = stack.pop() if stack else "block"
    while in_column_0 and "function" in stack:
        kind = stack.pop()
    return kind


def functions_of(source):
    """Returns all functions of a file, and a count of prototypes by name. Braces mark their starts and ends."""
    functions, prototypes, stack, begin, opened, depth = [], collections.Counter(), [], 0, (0, 0), 0
    for match in re.finditer(r"[{};()]", source.code):
        at, outside = match.start(), "function" not in stack and "block" not in stack
        if match[0] in "()":
            depth += 1 if match[0] == "(" else -1
        elif match[0] == "{":
            stack.append(kind_of(source.code[begin:at], stack) if outside else "block")
            if stack[-1] == "function":
                opened = (begin, at)
            begin = at + 1 if stack[-1] != "block" else begin
        elif match[0] == "}":
            kind = closed(stack, source.code[at - 1:at] == "\n")
            if kind == "function":
                functions.append(function_of(source, *opened, at, stack))
            begin = at + 1 if kind != "block" and "function" not in stack else begin
        elif outside and depth == 0:
            head, begin = source.code[begin:at], at + 1
            if begins_function(head):
                prototypes[declared(head)[1]] += 1
    return functions, prototypes


# ---- the tree -----------------------------------------------------------------------------------------------

class House:
    """The product's files of a tree, and their includes."""

    def __init__(self, root):
        self.sources = {}
        for top in PRODUCT:
            for folder, folders, names in os.walk(os.path.join(root, top)):
                folders.sort()
                for name in sorted(names):
                    path = os.path.relpath(os.path.join(folder, name), root)
                    if path.endswith(CODE):
                        with open(os.path.join(root, path), encoding="utf-8") as file:
                            self.sources[path] = Source(path, file.read())
        self.includes = {path: set(self.included_by(path)) for path in self.sources}
        self.includers = collections.defaultdict(set)
        for path, targets in self.includes.items():
            for target in targets:
                self.includers[target].add(path)

    def included_by(self, path):
        """The product's files that a file includes, by a name from the root or from its folder."""
        for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', self.sources[path].text, re.M):
            beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
            yield from [p for p in (name, beside) if p in self.sources][:1]

    def scope_of(self, path):
        """The files in which a static function of this file may be mentioned."""
        if not path.endswith(INCLUDED):
            return {path}
        scope, todo = {path}, [path]
        while todo:
            fresh = self.includers[todo.pop()] - scope
            scope |= fresh
            todo += fresh
        return scope | {p for user in scope for p in self.includes[user] if p.endswith((".inc", ".cuh"))}

    def functions(self):
        return [function for source in self.sources.values() for function in source.functions]

    def static_functions(self):
        """By file and name: the same function under #if and #else counts once."""
        found = collections.defaultdict(list)
        for function in self.functions():
            if function.is_static and not function.is_method:
                found[function.path, function.name].append(function)
        return found

    def one_callers(self):
        """[(function, whether its one mention is a call)] of the small static functions with one caller."""
        found, scopes = [], {}
        for (path, name), versions in self.static_functions().items():
            scope = scopes.setdefault(path, [self.sources[p] for p in self.scope_of(path)])
            own = len(versions) + sum(source.prototypes[name] for source in scope)
            longest = max(versions, key=lambda function: function.length)
            if longest.length <= SMALL and sum(source.words[name] for source in scope) - own == 1:
                found.append((longest, sum(source.calls[name] for source in scope) - own == 1))
        return found

    def structs(self):
        """{name: files} of the structs that more than one file defines, except SAME_ON_PURPOSE."""
        found = collections.defaultdict(set)
        for path, source in self.sources.items():
            pattern = r"\bstruct\s+(?:(?:alignas|__align__|__attribute__)\s*\([^{;]*\)\s*)?(\w+)\s*(?::[^{;]*)?\{"
            for name in re.findall(pattern, source.masked):
                found[name].add(path)
        return {name: sorted(paths) for name, paths in sorted(found.items())
                if len(paths) > 1 and not (name in SAME_ON_PURPOSE and all(p.startswith("kernels/") for p in paths))}

    def folders(self):
        return collections.Counter(os.path.dirname(path) for path in self.sources)

    def short_files(self):
        return {path: source.n_lines() for path, source in self.sources.items() if source.n_lines() < SHORT_FILE}


# ---- figures ------------------------------------------------------------------------------------------------

def share(part, whole):
    return round(part / whole, 4) if whole else 0


def sizes(lengths):
    """Count, median, 90th percentile and maximum."""
    known = sorted(lengths) or [0]
    return {"count": len(lengths), "median": statistics.median(known), "p90": known[int(0.9 * len(known))],
            "max": known[-1]}


def comment_share(sources):
    """The share of comment lines among the lines that are not blank."""
    comments = lines = 0
    for source in sources:
        for line, code in zip(source.text.split("\n"), source.masked.split("\n")):
            lines += bool(line.strip())
            comments += bool(line.strip()) and not code.strip()
    return share(comments, lines)


def assert_shares(house):
    """Returns {group: asserts per function}, of the groups that have functions, and of "all"."""
    asserts, functions = collections.Counter(), collections.Counter()
    for path, source in house.sources.items():
        group = max((g for g in ASSERT_GROUPS if path.startswith(g + "/")), key=len)
        for name in (group, "all"):
            asserts[name] += source.calls["assert"]
            functions[name] += len(source.functions)
    return {group: share(asserts[group], functions[group]) for group in sorted(functions) if functions[group]}


def one_caller_figures(house):
    found, statics = house.one_callers(), len(house.static_functions())
    called = sum(is_call for _, is_call in found)
    return {"static": statics, "count": len(found), "share": share(len(found), statics), "called": called,
            "called_share": share(called, statics)}


def figures(house):
    """Returns all figures of a tree, for JSON."""
    sources = list(house.sources.values())
    lengths = [function.length for function in house.functions()]
    return {
        "files": sizes([source.n_lines() for source in sources]),
        "functions": {**sizes(lengths), "under_45": share(sum(n < USUAL for n in lengths), len(lengths))},
        "one_caller": one_caller_figures(house),
        "asserts": assert_shares(house),
        "folders": dict(sorted(house.folders().items())),
        "crowded": {folder: n for folder, n in sorted(house.folders().items()) if n > MAX_FOLDER},
        "short_files": len(house.short_files()),
        "structs_twice": len(house.structs()),
        "comments": {"sources": comment_share([s for s in sources if s.path.endswith((".c", ".cu"))]),
                     "headers": comment_share([s for s in sources if s.path.endswith((".h", ".cuh"))])},
    }


def rows_of(found):
    """Returns the table's rows: a name and its figures."""
    files, functions, one = found["files"], found["functions"], found["one_caller"]
    yield "files", f"{files['count']}, median {files['median']:g} lines, longest {files['max']}"
    yield "functions", (f"{functions['count']}, median {functions['median']:g} lines, p90 {functions['p90']}, "
                        f"longest {functions['max']}, {functions['under_45']:.1%} under {USUAL}")
    yield f"one caller, <= {SMALL} lines", (f"{one['share']:.1%} ({one['count']} of {one['static']} static functions), "
                                            f"called {one['called_share']:.1%} ({one['called']})")
    yield "asserts a function", ", ".join(f"{group} {value:.2f}" for group, value in found["asserts"].items())
    yield "files in folders", ", ".join(f"{folder} {n}" for folder, n in found["folders"].items())
    yield f"folders over {MAX_FOLDER} files", f"{len(found['crowded'])}: {', '.join(found['crowded']) or 'none'}"
    yield f"files under {SHORT_FILE} lines", str(found["short_files"])
    yield "struct names defined twice", str(found["structs_twice"])
    yield "comments", f"sources {found['comments']['sources']:.0%}, headers {found['comments']['headers']:.0%}"


# ---- lists --------------------------------------------------------------------------------------------------

def list_one_caller(house):
    for function, is_call in sorted(house.one_callers()):
        how = "" if is_call else " (not called: in a table, a callback or a macro)"
        yield f"{function.path}:{function.line} {function.name} {function.length}{how}"


def list_structs(house):
    for name, paths in house.structs().items():
        yield f"{name}: {', '.join(paths)}"


def list_long(house):
    for function in sorted(house.functions(), key=lambda f: -f.length):
        if function.length >= USUAL:
            yield f"{function.path}:{function.line} {function.name} {function.length}"


def list_short_files(house):
    for path, length in sorted(house.short_files().items()):
        yield f"{path} {length}"


LISTS = {"one-caller": list_one_caller, "structs": list_structs, "long": list_long, "short-files": list_short_files}


# ---- recipes ------------------------------------------------------------------------------------------------

def kind_of_path(path):
    """Returns the group of a touched file."""
    if path.startswith("docs/") or path.endswith(".md"):
        return "docs"
    if path.endswith(("CMakeLists.txt", ".cmake")) or path in ("Makefile", "CMakePresets.json"):
        return "build"
    if path.startswith(tuple(folder + "/" for folder in PRODUCT)):
        return "product"
    return "tests" if path.startswith(("tests/", "bench/")) else "others"


def touched(root, commit):
    """Returns {group: paths} of the files that a commit (or A..B) changes; a merge is compared with its first parent."""
    command = ["git", "-C", root, "show", "--name-only", "--format=", "-m", "--first-parent", commit, "--"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    piles = collections.defaultdict(list)
    for path in sorted(set(done.stdout.split("\n")) - {""}):
        piles[kind_of_path(path)].append(path)
    return piles


def followers(root, recipe):
    """Yields the commits that added one to MAX_ROWS rows to the recipe's tables, newest first: commit, names of the rows."""
    files, pattern = ROWS[recipe]
    command = ["git", "-C", root, "log", "-p", "-U0", "--no-renames", "--format=commit %h", "--", *files]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    for part in re.split(r"^commit ", done.stdout, flags=re.M)[1:]:
        rows = {sign: {name for line in part.split("\n") if line[:1] == sign for found in re.findall(pattern, line[1:])
                       for name in found.split(", ")} for sign in "+-"}
        new = rows["+"] - rows["-"]
        if 1 <= len(new) <= MAX_ROWS:
            yield part.split("\n", 1)[0], sorted(new)


def recipe_medians(root):
    """Yields for each recipe: its name, the median of product files, and (commit, rows, product files) of its last commits."""
    for recipe in ROWS:
        last = [(commit, rows, len(touched(root, commit)["product"]))
                for commit, rows in itertools.islice(followers(root, recipe), LAST)]
        yield recipe, statistics.median(files for _, _, files in last) if last else None, last


def print_medians(root):
    for recipe, median, last in recipe_medians(root):
        if not last:  # an archive or a shallow clone
            print(f"{recipe:14} no commit of the history adds one")
            continue
        print(f"{recipe:14} {median:g} product files, the median of {len(last)} commits; {RECIPES[recipe]} is the aim")
        for commit, rows, files in last:
            print(f"    {commit} {files:3} {' '.join(rows)}")


def print_recipe(root, recipe, commit):
    piles = touched(root, commit)
    product = piles.pop("product", [])
    print(f"{recipe}: {len(product)} product files in {commit}; {RECIPES[recipe]} is the aim")
    for path in product:
        print(f"  {path}")
    rest = ", ".join(f"{len(paths)} of {pile}" for pile, paths in sorted(piles.items()))
    print(f"  and {rest or 'no other files'}")


# ---- self-test ----------------------------------------------------------------------------------------------

GOOD = {
    "config/config.h": "/* Adds. */\nint add(int a, int b);\n" + "int a;\n" * 30,
    "config/add.c": '#include "config/config.h"\n\nint add(int a, int b) {\n    assert(a);\n    return a + b;\n}\n'
                    + "int a;\n" * 30,
    "tests/test_add.c": "static int f(void) {\n}\n" * 40,
    "config/commit.cmake": "",
}
SMALL_HELPER = "static int f(int a) {\n    return a;\n}\n"
CALLER = "int g(void) {\n    return f(1); /* f */\n}\n"
PADDING = "int a;\n" * 30
STRUCT = "struct s {\n    int a;\n};\n"
# Files to add to the good tree, and the resulting figures: keys with dots, and their values.
TREES = [
    ({}, {"files.count": 2, "files.max": 36, "functions.count": 1, "functions.max": 4, "one_caller.share": 0,
          "asserts.all": 1, "short_files": 0, "structs_twice": 0, "folders": {"config": 2}, "crowded": {}}),
    ({"config/b.c": "int a;\n" * 40}, {"files.count": 3, "files.median": 36, "files.max": 40}),
    ({"server/http/b.cuh": "int a;\n" * 29}, {"short_files": 1, "folders": {"config": 2, "server/http": 1}}),
    ({"server/http/b.cuh": PADDING}, {"short_files": 0}),
    ({"bench/command/b.c": PADDING, "bench/gpu/b.cu": PADDING}, {"files.count": 3}),
    ({"config/config.h": "", "config/add.c": "\n"}, {"files.count": 2, "files.max": 1, "functions.count": 0}),
    ({f"server/b{i}.c": PADDING for i in range(25)}, {"crowded": {"server": 25}}),
    ({f"server/b{i}.c": PADDING for i in range(22)}, {"crowded": {}}),
    ({"server/b.c": "static int f(int a,\n             int b)\n{\n" + "    g();\n" * 42 + "}\n"},
     {"functions.max": 46, "functions.under_45": 0.5, "functions.p90": 46, "functions.median": 25}),
    ({"server/b.c": CALLER * 8 + "int h(void) {\n" + "    g();\n" * 7 + "}\n"},
     {"functions.median": 3, "functions.p90": 9}),
    ({"server/b.c": "struct s f = {\n    F(1)\n    {2},\n};\n"}, {"functions.count": 1}),
    ({"server/b.cu": "MAKE(a, (b))\ntemplate <class T, int N = f(1)>\n__global__ void __launch_bounds__(32)\n"
                     "    f(int a) {\n    if (a) {\n    }\n}\n"}, {"functions.max": 5}),
    ({"server/b.cuh": "struct s {\n    static int f(int a) {\n        return a;\n    }\n};\n" + CALLER},
     {"functions.count": 3, "one_caller.static": 0}),
    ({"server/b.c": "#define F(x) int x(void) { }\nF(a)\nint f[] = {\n    g(1),\n};\nenum e {\n    A = (1),\n};\n"
      + "enum e h(void) { return '{'; }\n"}, {"functions.count": 2, "functions.max": 4}),
    ({"server/b.c": SMALL_HELPER + CALLER}, {"one_caller.share": 1, "one_caller.called": 1, "functions.count": 3}),
    ({"server/b.c": "static int f(int a);\n" + CALLER + SMALL_HELPER}, {"one_caller.share": 1}),
    ({"server/b.c": "static int f(int a) __attribute__((cold));\n" + CALLER + SMALL_HELPER}, {"one_caller.share": 1}),
    ({"server/b.c": SMALL_HELPER + "int x = f(1);\n"}, {"one_caller.share": 1, "one_caller.called": 1}),
    ({"server/b.c": SMALL_HELPER + '#include "b.inc"\n' + CALLER, "server/b.inc": CALLER}, {"one_caller.share": 1}),
    ({"server/b.c": SMALL_HELPER + "fn *const table[] = {f};\n"}, {"one_caller.share": 1, "one_caller.called": 0}),
    ({"server/b.c": SMALL_HELPER + CALLER + CALLER}, {"one_caller.share": 0, "one_caller.static": 1}),
    ({"server/b.c": SMALL_HELPER + 'int g(void) {\n    return "f"; // f\n}\n'}, {"one_caller.share": 0}),
    ({"server/b.c": SMALL_HELPER.replace("static ", "") + CALLER}, {"one_caller.static": 0}),
    ({"server/b.c": SMALL_HELPER.replace("a;", ";\n" * 6) + CALLER}, {"one_caller.share": 0, "functions.max": 9}),
    ({"server/b.c": SMALL_HELPER.replace("a;", ";\n" * 5) + CALLER}, {"one_caller.share": 1, "functions.max": 8}),
    ({"server/b.c": "#if A\n" + SMALL_HELPER + "#else\n" + SMALL_HELPER + "#endif\n" + CALLER},
     {"one_caller.static": 1, "one_caller.share": 1}),
    ({"server/b.inc": SMALL_HELPER, "server/b.c": '#include "b.inc"\n' + CALLER}, {"one_caller.share": 1}),
    ({"server/b.inc": SMALL_HELPER, "server/c.inc": CALLER, "server/b.c": '#include "b.inc"\n#include "c.inc"\n'},
     {"one_caller.share": 1}),
    ({"server/b.inc": SMALL_HELPER, "server/b.c": '#include "b.inc"\n' + CALLER, "server/c.inc": '#include "b.inc"\n',
      "server/c.c": '#include "server/c.inc"\n' + CALLER}, {"one_caller.share": 0}),
    ({"server/b.c": SMALL_HELPER, "server/c.c": CALLER}, {"one_caller.share": 0}),
    ({"engine/text/b.c": CALLER, "engine/b.c": CALLER},
     {"asserts": {"all": 0.3333, "config": 1, "engine": 0, "engine/text": 0}}),
    ({"engine/b.c": "int g(void) {\n    assert(1);\n    assert(2);\n    static_assert(1);\n}\n"},
     {"asserts.engine": 2}),
    ({"server/b.c": STRUCT, "engine/b.c": STRUCT.replace("int a", "int b")}, {"structs_twice": 1}),
    ({"server/b.c": STRUCT, "engine/b.c": "struct s a = f(&(struct s){1});\n"}, {"structs_twice": 0}),
    ({"server/b.c": STRUCT + STRUCT}, {"structs_twice": 0}),
    ({"server/b.c": "#if A\nint f(int a) {\n#else\nint f(void) {\n#endif\n    g();\n}\n" + CALLER},
     {"functions.count": 3}),
    ({"server/b.c": "/* a\n * b */\n\nint a; /* c */\n", "config/add.c": "", "config/config.h": "// a\n"},
     {"comments.sources": 0.6667, "comments.headers": 1}),
]


def house_of(files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        return House(root)


def test_lists():
    house = house_of({**GOOD, "server/b.c": SMALL_HELPER + CALLER, "engine/c.c": "struct s {\n};\n",
                      "engine/d.c": "struct s {\n};\nint h(void) {\n" + "    g();\n" * 43 + "}\n"})
    found = {name: list(of(house)) for name, of in LISTS.items()}
    assert found["one-caller"] == ["server/b.c:1 f 3"], found
    assert found["structs"] == ["s: engine/c.c, engine/d.c"], found
    assert found["long"] == ["engine/d.c:3 h 45"], found
    assert found["short-files"] == ["engine/c.c 2", "server/b.c 6"], found


def test_recipe():
    """A commit of a fake repository: only its product files count."""
    paths = ["engine/models/gpt2.c", "config/config.h", "config/commit.cmake", "kernels/cpu/order.md", "CMakeLists.txt",
             "tests/test_gpt2.c", "docs/design.md", "bench/command/b.c", "bench/gpu/b.cu", "LICENSE"]
    with tempfile.TemporaryDirectory() as root:
        for path in paths:
            os.makedirs(os.path.dirname(os.path.join(root, path)) or root, exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write("a\n")
        git = ["git", "-C", root, "-c", "user.name=a", "-c", "user.email=a@a", "-c", "commit.gpgsign=false"]
        for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"]):
            subprocess.run(git + command, check=True)
        piles = touched(root, "HEAD")
    assert piles["product"] == ["bench/command/b.c", "config/config.h", "engine/models/gpt2.c"], piles
    assert {pile: len(found) for pile, found in piles.items()} == {
        "product": 3, "build": 2, "docs": 2, "tests": 2, "others": 1}, piles


def test_medians():
    """A fake history: commits that add rows, move one, and add too many."""
    table = "engine/models/family.c"
    steps = [{table: "&model_a,\n"}, {table: "&model_a,\n&model_b,\n", "engine/b.c": "b\n", "tests/b.c": "b\n"},
             {table: "&model_b,\n&model_a,\n", "engine/b.c": "c\n"},
             {table: "".join(f"&model_{c},\n" for c in "abcdefgijklm")},
             {table: "".join(f"&model_{c},\n" for c in "abcdefgijklmh"), "engine/b.c": "h\n", "config/h.c": "h\n"}]
    with tempfile.TemporaryDirectory() as root:
        git = ["git", "-C", root, "-c", "user.name=a", "-c", "user.email=a@a", "-c", "commit.gpgsign=false"]
        subprocess.run([*git, "init", "-q"], check=True)
        for files in steps:
            for path, text in files.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            for command in (["add", "."], ["commit", "-qm", "a"]):
                subprocess.run(git + command, check=True)
        found = {recipe: (median, [rows for _, rows, _ in last]) for recipe, median, last in recipe_medians(root)}
    assert found["family"] == (2, [["model_h"], ["model_b"], ["model_a"]]), found
    assert found["option"] == (None, []), found


def self_test():
    for files, wanted in TREES:
        found = figures(house_of({**GOOD, **files}))
        for key, value in wanted.items():
            part = found
            for name in key.split("."):
                part = part[name]
            assert part == value, (files, key, part, value)
        assert len(list(rows_of(found))) == 9
    test_lists()
    test_recipe()
    test_medians()
    print(f"house: self-test of {len(TREES) + 3} trees passed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--list", choices=LISTS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--recipe", choices=RECIPES)
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--check-recipes", action="store_true", help="the median of files of the last commits of a kind")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        self_test()
    elif args.check_recipes:
        print_medians(args.root)
    elif args.recipe:
        print_recipe(args.root, args.recipe, args.commit)
    elif args.list:
        for line in LISTS[args.list](House(args.root)):
            print(line)
    elif args.json:
        print(json.dumps(figures(House(args.root)), indent=2))
    else:
        for name, text in rows_of(figures(House(args.root))):
            print(f"{name:27} {text}")
        print(f"({DEFINITION})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
