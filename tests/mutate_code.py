"""Makes mutants from the code itself: tests/mutate.py judges them.

A mutant is one edit of one function. Its key is "FILE:FUNCTION:OPERATOR:ORDINAL": the ordinal counts the operator's edits in
that function, so a key stays when the function moves in its file or other functions change. The operators:

    delete      a statement is gone: a call, an assignment, break; or an `if` without `else` that only leaves
    negate      the condition of an if, a while or a ?: is negated; a `!` inside a condition is gone
    compare     < and <=, > and >=, == and != are exchanged
    bound       the right side of <, >, <=, >= is one less or one more, in the direction that `compare` does not take
    index       a subscript is one more
    swap        two arguments of a call that have the same type change places
    constant    n is n + 1, but 1 is 0; true and false are exchanged; a character is the next one
    arithmetic  + and -, += and -=, ++ and -- are exchanged (no ++ in the head of a for: that only never ends)
    logic       && and || are exchanged
    term        the right side of && or || is gone

No operator touches an assert, a line of the log, a hint to the kernel or the processor, or a call that only releases memory,
of the program or of a library: tests/run.sh asan finds leaks. Nor does one touch the 0 of
`= {0}` or `(struct name){0}`, which clears the whole.
"""
import re

import house

OPERATORS = ("delete", "negate", "compare", "bound", "index", "swap", "constant", "arithmetic", "logic", "term")
TOKEN = re.compile(r"""[A-Za-z_]\w*|0[xX][\da-fA-F]+\w*|(?:\d|\.\d)(?:[eE][+-]\d|[\w.])*|"[^"\n]*"|'[^'\n]*'"""
                   r"|<<=|>>=|<<<|>>>|->|\+\+|--|<=|>=|==|!=|&&|\|\||<<|>>|[-+*/%&|^]=|::|\S")
PAIRS = {"(": ")", "[": "]", "{": "}"}
COMPARED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
BOUND = {"<": "- 1", ">=": "- 1", ">": "+ 1", "<=": "+ 1"}
ARITHMETIC = {"+": "-", "-": "+", "+=": "-=", "-=": "+=", "++": "--", "--": "++"}
LOGIC = {"&&": "||", "||": "&&"}
HEADS = {"if", "for", "while", "switch"}
LEAVES = {"return", "break", "continue", "goto"}
TYPES = set("const static struct union enum int char bool float double void unsigned signed long short size_t auto extern "
            "volatile register typedef alignas _Alignas __shared__ constexpr using template typename static_assert "
            "_Static_assert".split())
# Calls that no suite of the release build can miss: they check, log, release memory, or only change the speed.
SILENT = re.compile(r"assert|static_assert|_Static_assert|log_line|free|\w+_free|p_curl_\w+_(free_all|cleanup)|freeaddrinfo|closedir"
                    r"|yaml_\w+_delete|MHD_destroy_response|(pthread|sem)_(\w+_)?destroy|madvise|_(_builtin|mm)_prefetch")
WORD, NUMBER = re.compile(r"[A-Za-z_]\w*$"), re.compile(r"\.?\d")
# Calls whose arguments do not change places: a product of two sizes, and the texts of an error.
UNORDERED = {"mem_calloc", "err_set"}
# Types of the parameters of functions that the tree does not define.
KNOWN = {"memcpy": ["void *", "void *", "size_t"], "memmove": ["void *", "void *", "size_t"]}


class Mutant:
    """One edit of one file: what stands in [begin, end) is replaced."""

    def __init__(self, key, path, text, begin, end, new):
        self.key, self.path, self.text, self.begin, self.end, self.new = key, path, text, begin, end, new

    def source(self):
        return self.text[:self.begin] + self.new + self.text[self.end:]

    def line(self):
        return self.text.count("\n", 0, self.begin) + 1

    def shown(self):
        """The place, the line, and the line as the mutant has it."""
        first, last = self.text.rfind("\n", 0, self.begin) + 1, self.text.find("\n", self.end)
        old = self.text[first:last]
        new = self.text[first:self.begin] + self.new + self.text[self.end:last]
        return f"{self.path}:{self.line()}", " ".join(old.split()), " ".join(new.split())


# ---- a function as tokens -------------------------------------------------------------------------------------

class Body:
    """The tokens of a function's body, its pairs of brackets, and where no operator may edit."""

    def __init__(self, source, begin, end):
        self.source = source
        self.tokens = list(TOKEN.finditer(source.code, begin, end))
        self.words = [token[0] for token in self.tokens]
        self.match, stack = {}, []
        for i, word in enumerate(self.words):
            if word in PAIRS:
                stack.append(i)
            elif stack and word == PAIRS[self.words[stack[-1]]]:
                self.match[i] = stack[-1]
                self.match[stack.pop()] = i
        self.closed, self.for_heads = set(), set()
        for i, word in enumerate(self.words):
            if i + 1 in self.match and self.words[i + 1] == "(":
                if SILENT.fullmatch(word):
                    self.closed.update(range(i, self.match[i + 1] + 1))
                if word == "for":
                    self.for_heads.update(range(i, self.match[i + 1]))
        self.statements, self.leaving = [], []
        self.walk()

    def word(self, i):
        return self.words[i] if 0 <= i < len(self.words) else ""

    def text(self, first, last):
        """The source from token `first` to token `last`, both included."""
        return self.source.text[self.tokens[first].start():self.tokens[last].end()]

    def spaced(self, i):
        code, token = self.source.code, self.tokens[i]
        return code[token.start() - 1].isspace() and code[token.end():token.end() + 1].isspace()

    def end_of(self, i):
        """The index of the ';' that ends the statement at i, or None."""
        while i < len(self.words) and self.words[i] != ";":
            if self.words[i] in PAIRS:
                if i not in self.match:
                    return None
                i = self.match[i]
            elif self.words[i] in ")]}":
                return None
            i += 1
        return i if i < len(self.words) else None

    def declares(self, i):
        """Is the statement at i a declaration?"""
        if self.word(i) in TYPES:
            return True
        while WORD.match(self.word(i)) and self.word(i + 1) == "::":
            i += 2
        if not WORD.match(self.word(i)):
            return False
        i += 1
        while self.word(i) == "*":
            i += 1
        return bool(WORD.match(self.word(i)))

    def head_end(self, i):
        """The index after the head of a loop or an if at i (also of a macro's loop), or None."""
        at = i + 1 + (self.word(i + 1) == "constexpr")
        if self.word(at) != "(" or at not in self.match:
            return None
        after = self.match[at] + 1
        if self.word(i) in HEADS or self.word(after) == "{" or WORD.match(self.word(after)):
            return after
        return None

    def walk(self):
        """Finds the statements, one after another."""
        i = 0
        while i < len(self.words):
            word = self.words[i]
            if word in ("{", "}", "else", "do", ";"):
                i += 1
            elif word in ("case", "default"):
                while i < len(self.words) and self.words[i] != ":":
                    i += 1
                i += 1
            elif WORD.match(word) and self.word(i + 1) == ":":
                i += 2
            elif WORD.match(word) and word not in LEAVES and self.head_end(i):
                self.note_leaving(i)
                i = self.head_end(i)
            else:
                end = self.end_of(i)
                if end is None:
                    i += 1
                else:
                    self.note(i, end)
                    i = end + 1

    def note(self, i, end):
        if not self.declares(i) or self.words[i] in LEAVES:
            self.statements.append((i, end))
            return
        for at in range(i, end):  # sizes of arrays
            if self.words[at] == "=":
                break
            if self.words[at] == "[" and at in self.match:
                self.closed.update(range(at, self.match[at] + 1))

    def note_leaving(self, i):
        """`if (...) return x;` without an else can go as a whole."""
        after = self.head_end(i)
        end = self.end_of(after) if self.word(i) == "if" and self.word(after) in LEAVES else None
        if end is not None and self.word(end + 1) != "else":
            self.leaving.append((i, end))

    def operand_end(self, i):
        """The last token of the operand that begins at i: it ends where a weaker operator or a bracket stands."""
        first = i
        while i < len(self.words) and self.words[i] not in (")", "]", "}", ";", ",", "?", ":", "&&", "||"):
            if self.words[i] in PAIRS:
                if i not in self.match:
                    return None
                i = self.match[i]
            i += 1
        return i - 1 if i > first else None

    def arguments(self, at):
        """The first and last tokens of each argument in the parentheses that open at `at`."""
        found, first, i = [], at + 1, at + 1
        while i <= self.match[at]:
            if self.words[i] == "," or i == self.match[at]:
                if i > first:
                    found.append((first, i - 1))
                first = i + 1
            elif self.words[i] in PAIRS:
                if i not in self.match:
                    return []
                i = self.match[i]
            i += 1
        return found


# ---- operators: each yields (first token, last token, what replaces them) -----------------------------------------

def delete(body, _):
    for first, last in sorted(body.statements + body.leaving):
        word = body.words[first]
        if first in body.closed or (word == "(" and body.word(first + 1) == "void"):
            continue
        if word != "return" or body.word(first + 1) == ";":
            yield first, last, ";"


def condition_before(body, i):
    """The first token of the condition that a '?' at i asks."""
    at = i - 1
    while at >= 0 and body.words[at] not in ("(", "[", "{", ",", ";", "=", "return", "?", ":", "}"):
        at = body.match.get(at, at) if body.words[at] in (")", "]") else at
        at -= 1
    return at + 1


def negate(body, _):
    for i, word in enumerate(body.words):
        if word in ("if", "while") and body.word(i + 1) == "(" and i + 1 in body.match:
            first, last = i + 2, body.match[i + 1] - 1
            inside = body.words[first:last + 1]
            if not ({"==", "!="} & set(inside)) or {"&&", "||"} & set(inside):  # else `compare` does it
                yield first, last, f"!({body.text(first, last)})"
        elif word == "?" and condition_before(body, i) < i:
            first = condition_before(body, i)
            inside = body.words[first:i]
            if not ({"==", "!="} & set(inside)) or {"&&", "||"} & set(inside):
                yield first, i - 1, f"!({body.text(first, i - 1)})"
        elif word == "!" and not (body.word(i - 1) == "(" and body.word(i - 2) in ("if", "while")):
            yield i, i, ""


def is_extreme(body, i):
    """Is this the comparison of `a < b ? a : b`? Then equality changes nothing."""
    first, last = condition_before(body, i), body.operand_end(i + 1)
    if last is None or body.word(last + 1) != "?":
        return False
    sides = [body.words[first:i], body.words[i + 1:last + 1]]
    n, at = len(sides[0]) + len(sides[1]) + 1, last + 2
    return body.words[at:at + n] in (sides[0] + [":"] + sides[1], sides[1] + [":"] + sides[0])


def compare(body, _):
    for i, word in enumerate(body.words):
        if word in COMPARED and body.spaced(i) and not is_extreme(body, i):
            yield i, i, COMPARED[word]


def bound(body, _):
    for i, word in enumerate(body.words):
        last = body.operand_end(i + 1) if word in BOUND and body.spaced(i) else None
        if last and not (last == i + 1 and NUMBER.match(body.words[last])):  # else `constant` does it
            yield i + 1, last, f"({body.text(i + 1, last)}) {BOUND[word]}"


def index(body, _):
    for i, word in enumerate(body.words):
        if word == "[" and body.match.get(i, i) > i + 1 and (WORD.match(body.word(i - 1)) or body.word(i - 1) in (")", "]")):
            last = body.match[i] - 1
            yield i + 1, last, f"({body.text(i + 1, last)}) + 1"


def swap(body, types_of):
    for i, word in enumerate(body.words):
        if not WORD.match(word) or word in UNORDERED or body.word(i + 1) != "(" or i + 1 not in body.match:
            continue
        types, given = types_of(word), body.arguments(i + 1)
        for a in range(min(len(types), len(given)) - 1):
            b = next((b for b in range(a + 1, min(len(types), len(given))) if types[b] == types[a]), None)
            if b is not None and body.text(*given[a]) != body.text(*given[b]):
                between = body.source.text[body.tokens[given[a][1]].end():body.tokens[given[b][0]].start()]
                yield given[a][0], given[b][1], body.text(*given[b]) + between + body.text(*given[a])


def clears(body, i):
    """Is this the 0 of `= {0}` or `(struct name){0}`, and not the only value of an array?"""
    if body.words[i - 1:i + 2] != ["{", "0", "}"]:
        return False
    before = body.words[max(i - 4, 0):i - 1]
    return before[-1:] in (["="], [")"]) and before[-3:-1] != ["[", "]"]


def constant(body, _):
    for i, word in enumerate(body.words):
        if word in ("true", "false"):
            yield i, i, {"true": "false", "false": "true"}[word]
        elif word[0] == "'" and len(word) > 2:
            yield i, i, f"({body.text(i, i)} + 1)"
        elif clears(body, i):
            continue
        elif NUMBER.match(word) and not (body.word(i - 1) == "[" and body.word(i + 1) == "]"):  # else `index` does it
            yield i, i, re.sub("1", "0", word) if re.fullmatch("1[uUlL]*", word) else f"({word} + 1)"


def arithmetic(body, _):
    for i, word in enumerate(body.words):
        if word in ("++", "--") and i not in body.for_heads:
            yield i, i, ARITHMETIC[word]
        elif word in ("+", "-", "+=", "-=") and body.spaced(i) and i not in body.for_heads:
            yield i, i, ARITHMETIC[word]


def logic(body, _):
    for i, word in enumerate(body.words):
        if word in LOGIC and body.spaced(i):
            yield i, i, LOGIC[word]


def term(body, _):
    for i, word in enumerate(body.words):
        last = body.operand_end(i + 1) if word in LOGIC and body.spaced(i) else None
        if last:
            yield i, last, ""


# ---- all of a tree ------------------------------------------------------------------------------------------------

def type_of(parameter):
    """A parameter's type without its name: "const char *s" is "char *"."""
    if "(" in parameter or parameter.strip() in ("", "void", "..."):
        return parameter
    words = re.findall(r"\w+|\*|&|\[|<[^>]*>|::", re.sub(r"\b(const|restrict|struct|enum)\b", " ", parameter))
    stars = "*" if "[" in words else ""
    words = words[:words.index("[")] if "[" in words else words
    return " ".join(words[:-1]) + stars if len(words) > 1 else " ".join(words)


class Tree:
    """The functions of the product's files, and their parameters' types by name."""

    def __init__(self, root):
        self.house = house.House(root)
        self.types = {}
        for path, source in self.house.sources.items():
            for function, begin, brace, _ in self.functions(source):
                types = self.parameters(source.code[begin:brace])
                self.types[path, function.name] = types
                same = self.types.setdefault(function.name, types)
                self.types[function.name] = types if same == types else []  # two functions of one name: do not guess

    def functions(self, source):
        """(function, where it begins, its opening brace, its end), as offsets."""
        starts = [0] + [match.end() for match in re.finditer("\n", source.text)] + [len(source.text)]
        for function in source.functions:
            begin, end = starts[function.line - 1], starts[min(function.line - 1 + function.length, len(starts) - 1)]
            brace = source.code.find("{", begin, end)
            if brace >= 0:
                yield function, begin, brace, end

    @staticmethod
    def parameters(head):
        close = head.rfind(")")
        depth, at = 0, close
        while at >= 0:
            depth += (head[at] == ")") - (head[at] == "(")
            if depth == 0:
                break
            at -= 1
        parts, depth, last = [], 0, at + 1
        for i in range(at + 1, close + 1):
            if i == close or (head[i] == "," and depth == 0):
                parts.append(head[last:i])
                last = i + 1
            depth += (head[i] in "(<[") - (head[i] in ")>]")
        return [type_of(part) for part in parts]

    def types_of(self, path, name):
        return self.types.get((path, name)) or self.types.get(name) or KNOWN.get(name, [])

    def mutants_of(self, path):
        """Every mutant of a file, in order."""
        source, seen = self.house.sources[path], {}
        for function, _, brace, end in self.functions(source):
            seen[function.name] = seen.get(function.name, 0) + 1
            again = f"~{seen[function.name]}" if seen[function.name] > 1 else ""
            body = Body(source, brace, end)
            for name in OPERATORS:
                edits = globals()[name](body, lambda called: self.types_of(path, called))
                edits = [edit for edit in edits if edit[0] not in body.closed]
                for ordinal, (first, last, new) in enumerate(edits):
                    yield Mutant(f"{path}:{function.name}{again}:{name}:{ordinal}", path, source.text,
                                 body.tokens[first].start(), body.tokens[last].end(), new)
