"""vLLM's own tests of its parsers of calls and reasoning, with `penstock parse` in the place of the parsers.

    build/clients/agents/bin/python tests/clients/vllm_parsers.py FOLDER [--write] [-k WORDS]

FOLDER is vLLM's source package or repository. Nothing of vLLM is imported but its tests: its modules are replaced by stand-ins.
Only whole answers are compared: parts of answers are tested by tests/server/test_message_parsers.c, at all places where a text can
be cut. A test that asks for anything else of vLLM's code is not counted. vllm_parsers.txt lists the tests that differ by a
rule of docs/api.md, or because the command line has no schemas of tools; a run fails if another test differs, or if one of
the list does not. --write writes the list. White space around content and reasoning does not count, nor do ids.
"""
import argparse
import ast
import functools
import importlib.abc
import importlib.machinery
import json
import os
import pathlib
import subprocess
import sys
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("PENSTOCK_BINARY", str(ROOT / "build/penstock"))
LIST = pathlib.Path(__file__).with_suffix(".txt")
FOLDERS = ["tests/tool_parsers", "tests/reasoning"]
REPLACED = {"vllm", "transformers", "xgrammar", "mistral_common", "partial_json_parser", "openai_harmony", "torch", "huggingface_hub"}


class Text(str):
    """Content or reasoning, equal to texts that differ in white space around them."""

    def __eq__(self, other):
        return isinstance(other, str) and str.strip(self) == str.strip(other)

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


class Record:
    """Any of vLLM's classes of fields; a field that was not given is None."""

    def __init__(self, *_, **fields):
        self.__dict__.update(fields)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    def __eq__(self, other):
        """Ids are random, and JSON may be spelled otherwise."""
        names = (set(self.__dict__) | set(other.__dict__)) - {"id", "type"}
        return all(json_of(getattr(self, name)) == json_of(getattr(other, name)) for name in names)


def json_of(value):
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


class Foreign(type):
    """Classes and functions of vLLM without a stand-in: a test that uses one is not counted."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Foreign(name, (), {})

    def __call__(cls, *_, **__):
        pytest.skip("asks for vLLM's own code")

    def __or__(cls, other):
        return cls

    __ror__ = __or__

    def __getitem__(cls, _):
        return cls

    def __iter__(cls):
        return iter(())


# ---- tokenizers and parsers ---------------------------------------------------------------------------------------------------


class Vocabulary(dict):
    """Every text is a token."""

    def __contains__(self, _):
        return True

    def __missing__(self, token):
        self[token] = len(self)
        return self[token]

    def get(self, token, default=None):
        return self[token]


class Tokenizer:
    """A token per character."""

    def __init__(self, *_, **__):
        self.vocab = Vocabulary()

    def add_tokens(self, tokens):
        """Every text is a token already."""

    def get_vocab(self):
        return self.vocab

    def tokenize(self, text):
        return list(text)

    def encode(self, text, **_):
        return [ord(c) for c in text]

    def decode(self, ids, **_):
        return "".join(map(chr, [ids] if isinstance(ids, int) else ids))


def message_of(text, *flags):
    done = subprocess.run([BINARY, "parse", *flags], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(done.stderr.strip())
    return json.loads(done.stdout)


@functools.cache
def parser_of(flag, name):
    """The class that stands in for the parser of this name."""
    class Parser:
        def __init__(self, tokenizer=None, tools=None, **_):
            self.model_tokenizer, self.tools = tokenizer, tools
            self.vocab = Vocabulary()

        def extract_tool_calls(self, model_output, request=None):
            found = message_of(model_output, "--tool-call-parser", name)
            calls = [Record(id=call["id"], type="function", function=Record(name=call["name"], arguments=call["arguments"]))
                     for call in found["tool_calls"]]
            content = found["content"]
            return Record(tools_called=bool(calls), tool_calls=calls, content=content and Text(content))

        def extract_reasoning(self, model_output, request=None):
            found = message_of(model_output, "--reasoning-parser", name)
            return [text and Text(text) for text in (found["reasoning"], found["content"])]

        def __getattr__(self, asked):
            if asked.startswith("__"):
                raise AttributeError(asked)
            pytest.skip(f"asks for {asked}")

    Parser.__name__ = f"{flag} {name}"
    return Parser


class Registry:
    """A manager's parsers, from the table in vLLM's package: {name: (file, class)}."""

    def __init__(self, folder, kind):
        tree = ast.parse((folder / f"vllm/{kind}/__init__.py").read_text())
        table, = (node.value for node in ast.walk(tree) if isinstance(node, ast.Assign) and node.targets[0].id.endswith("_TO_REGISTER"))
        self.rows, self.flag = ast.literal_eval(table), kind

    def of_name(self, name):
        return self.of_class(self.rows[name][1])

    def of_class(self, name):
        names = [row for row, (_, of) in self.rows.items() if of == name]
        return parser_of(self.flag, names[0]) if names else None


class Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Replaces the packages of REPLACED."""

    def __init__(self, folder):
        self.tools, self.reasoning = Registry(folder, "tool_parsers"), Registry(folder, "reasoning")

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] in REPLACED else None

    def create_module(self, spec):
        return types.ModuleType(spec.name)

    def exec_module(self, module):
        module.__getattr__ = lambda name: self.member(module.__name__, name)

    def member(self, module, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("ToolParserManager", "ReasoningParserManager"):
            get = (self.tools if name[0] == "T" else self.reasoning).of_name
            return types.SimpleNamespace(get_tool_parser=get, get_reasoning_parser=get)
        if name == "get_tokenizer":
            return Tokenizer
        if name == "AutoTokenizer":
            return types.SimpleNamespace(from_pretrained=Tokenizer)
        if "protocol" in module:
            return Record
        return self.tools.of_class(name) or self.reasoning.of_class(name) or Foreign(name, (), {})


# ---- the run ------------------------------------------------------------------------------------------------------------------


class Results:
    """A plugin of pytest that keeps the outcome of each test."""

    def __init__(self):
        self.outcomes = {}

    @pytest.fixture(scope="module")
    def default_tokenizer(self):
        return Tokenizer()

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            is_foreign = report.when != "call" or report.outcome == "skipped" or not self.is_about_results(report)
            self.outcomes[report.nodeid] = "foreign" if is_foreign and report.outcome != "passed" else report.outcome

    @staticmethod
    def is_about_results(report):
        """Did an assertion fail, and not vLLM's code around the parser?"""
        crash = getattr(report.longrepr, "reprcrash", None)
        return crash is not None and crash.message.startswith(("AssertionError", "assert"))


def run(folder, words):
    results = Results()
    sys.meta_path.insert(0, Modules(folder))
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    places = [place for place in FOLDERS if (folder / place).is_dir()]
    pytest.main([*places, "-q", "--noconftest", "-p", "no:cacheprovider", "--continue-on-collection-errors", "--tb=line", "-o", "addopts=",
                 "--show-capture=no", *(["-k", words] if words else [])], plugins=[results])
    return results.outcomes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="vLLM's source package or repository")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("-k", dest="words", default="", help="only tests with these words, as pytest selects them")
    args = parser.parse_args()
    folder = args.folder.resolve()
    if not (folder / FOLDERS[0]).is_dir():
        parser.error(f"{folder} has no {FOLDERS[0]}: unpack the source package of vllm from PyPI there")
    outcomes = run(folder, args.words)
    judged = {test for test, outcome in outcomes.items() if outcome != "foreign"}
    differing = {test for test in judged if outcomes[test] == "failed"}
    if args.write:
        LIST.write_text("\n".join(["Made by tests/clients/vllm_parsers.py --write: vLLM's tests that differ by a rule of docs/api.md or for lack of schemas.", *sorted(differing)]) + "\n")
    known = set(LIST.read_text().splitlines()[1:]) if LIST.exists() else set()
    wrong = (differing - known) | (known & judged - differing)
    print("".join(f"{'differs' if test in differing else 'no longer differs'}: {test}\n" for test in sorted(wrong)), end="")
    print(f"{len(judged)} of vLLM's tests judge whole answers: {len(judged - differing)} pass, {len(differing)} differ; "
          f"{len(outcomes) - len(judged)} ask for vLLM's own code or for parts of answers")
    return 1 if wrong or not judged else 0


if __name__ == "__main__":
    sys.exit(main())
