"""Each weight type of GGUF files over HTTP: the greedy tokens and logprobs of transformers in float32 for a tiny model
of random bytes of the type (type_files.py, tests/vectors/make_types.py), on the CPU and on the emulated GPU. Also
the number of these tokens that are equal with the CPU's default settings, whose inputs have 8 bits. A complete run
checks the table of types in docs/formats.md; PENSTOCK_WRITE_TABLE=1 writes it."""
import os

import pytest

import type_files
from conftest import BINARY, EMULATED, ROOT, Server

DOCS = ROOT / "docs/formats.md"
HEAD = "| type | in float32 on the CPU | in float32 on the emulated GPU | as served on the CPU |\n|---|---|---|---|\n"
DEVICES = {"cpu": (BINARY, ("--device", "cpu", "--kv-cache-memory", "4MiB")),
           "emulated": (str(EMULATED), ("--device", "cuda", "--kv-cache-memory", "1MiB"))}
LENGTHS = {"cpu": 32, "emulated": 8}  # of answers; an emulated step is slow
FLAGS = ("--max-num-batched-tokens", "24", "--max-num-seqs", "2")  # prompts are cut into chunks
RUNS = [("cpu", "float32"), ("emulated", "float32"), ("cpu", "auto")]  # device and --dtype
found = {}  # (type, device, dtype): number of equal tokens, in words


def golden():
    """Returns {type: (seed, pairs of a prompt's ids and of the following tokens, each (id, logprob))}"""
    types, name, prompt = {}, "", []
    for words in map(str.split, (ROOT / "tests/vectors/types.txt").read_text().splitlines()[1:]):
        if words[0] == "type":
            name = words[1]
            types[name] = int(words[2]), []
        elif words[0] == "prompt":
            prompt = [int(word) for word in words[1:]]
        else:
            tokens = [word.split(":") for word in words[1:]]
            types[name][1].append((prompt, [(int(token), float(logprob)) for token, logprob in tokens]))
    return types


GOLDEN = golden()


def expected_of(name, device):
    """Returns pairs of a prompt and the tokens that must follow."""
    return [(prompt, tokens[:LENGTHS[device]]) for prompt, tokens in GOLDEN[name][1]]


def answers(file, device, dtype):
    """Returns the answers to all prompts for the file's type."""
    binary, flags = DEVICES[device]
    server = Server(*FLAGS, *flags, "--dtype", dtype, binary=binary, model=file).wait_until_ready()
    try:
        return [server.continue_by(len(tokens), prompt) for prompt, tokens in expected_of(file.stem, device)]
    finally:
        server.stop()


def equal_leading(choice, tokens):
    """Returns the number of equal tokens before the first different one. After that the texts diverge."""
    ids = [token for token, _ in tokens]
    return next((i for i, (a, b) in enumerate(zip(choice["token_ids"], ids)) if a != b), len(ids))


@pytest.mark.parametrize("device,dtype", RUNS)
@pytest.mark.parametrize("name", GOLDEN)
def test_tokens_are_those_of_transformers(name, device, dtype, tmp_path):
    file, expected = tmp_path / f"{name}.gguf", expected_of(name, device)
    type_files.write(file, name, GOLDEN[name][0])
    choices = answers(file, device, dtype)
    equal = [equal_leading(choice, tokens) for choice, (_, tokens) in zip(choices, expected)]
    if dtype == "float32":
        assert equal == [len(tokens) for _, tokens in expected]
        for choice, (_, tokens) in zip(choices, expected):
            for logprob, (_, wanted) in zip(choice["logprobs"]["token_logprobs"], tokens):
                assert abs(logprob - wanted) < 1e-4
    assert min(equal) > 0  # no first token is a near tie
    found[name, device, dtype] = f"{sum(equal)} of {sum(len(tokens) for _, tokens in expected)} tokens"


def test_each_type_of_a_file_is_run():
    """All types in the table that a file can contain."""
    rows = DOCS.read_text().split("| type | bits a weight in the file")[1].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    assert {name for row in cells if row[2] for name in row[1].split(", ")} == set(type_files.KINDS) == set(GOLDEN)


def table():
    rows = [[name, *(found.get((name, *run), "not equal") for run in RUNS)] for name in GOLDEN]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def test_the_table_says_what_this_run_found(request):
    if len(request.session.items) < len(RUNS) * len(GOLDEN):
        pytest.skip("only some of the types were run")
    text = DOCS.read_text()
    begin = text.index(HEAD) + len(HEAD)
    end = text.index("\n\n", begin) + 1
    if os.environ.get("PENSTOCK_WRITE_TABLE"):
        DOCS.write_text(text[:begin] + table() + text[end:])
    else:
        assert text[begin:end] == table()
