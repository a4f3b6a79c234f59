"""Each family over HTTP, as a GGUF file and as a folder: the greedy tokens and logprobs of transformers for a tiny
random model in float32 (tests/vectors/make_families.py, make_folders.py), on the CPU and on the emulated GPU,
without and with other requests; and the vectors of encoders. A complete run checks the table of docs/models.md;
PENSTOCK_WRITE_TABLE=1 writes it.
PENSTOCK_VECTORS names another folder of such models: `make oracle` makes new ones."""
import concurrent.futures
import json
import math
import os
import pathlib
import re
import struct
import subprocess

import pytest

from conftest import BINARY, EMULATED, ROOT, Server

VECTORS = pathlib.Path(os.environ.get("PENSTOCK_VECTORS", ROOT / "tests/vectors"))
TABLE = ROOT / "docs/models.md"
HEAD = "| tiny model | as | on the CPU | on the emulated GPU |\n|---|---|---|---|\n"
FILES = sorted(f"families/{path.name}" for path in VECTORS.glob("families/*.gguf"))
FOLDERS = sorted(f"folders/{path.parent.name}" for path in VECTORS.glob("folders/*/config.json"))
ENCODERS = sorted(f"encoders/{path.parent.name}" for path in VECTORS.glob("encoders/*/config.json"))
ENCODER_FILES = sorted(f"encoders/{path.name}" for path in VECTORS.glob("encoders/*.gguf"))
RECURRENT = tuple(  # a prefix hit needs a state
    model for name in ("lfm2", "lfm2_moe", "qwen3_5", "qwen3_5_moe", "qwen3_next", "granite4_h", "granite4_h_moe",
                        "bamba", "mamba2", "nemotron_h", "falcon_h1", "falcon_h1_norm",
                        "kimi_linear", "kimi_linear_wide") for model in (f"families/{name}.gguf", f"folders/{name}"))
N_TOGETHER = 12  # tokens of a request that runs with others
LONGEST = {"cpu": 300, "emulated": 48}  # of an encoder's inputs
equal = {}  # (kind, model): number of equal tokens, or of equal vectors
# Prompts are cut into chunks.
FLAGS = ("--dtype", "float32", "--max-num-batched-tokens", "24", "--max-num-seqs", "8")
# In a context as short as transformers' in these tests, other factors stretch the positions.
# Falcon's folders do not state a context; the emulated GPU's cache has no room for the usual one.
OWN_FLAGS = {"families/phi3_short.gguf": ("--max-model-len", "72"), "folders/falcon": ("--max-model-len", "96")}


def golden(model):
    """Returns pairs of a prompt's ids and of the following tokens, each (id, logprob)."""
    text = (VECTORS / f"{model.removesuffix('.gguf')}.txt").read_text()
    lines = [line.split() for line in text.splitlines()]
    prompts = [[int(word) for word in words[1:]] for words in lines if words[0] == "prompt"]
    tokens = [[(int(word.split(":")[0]), float(word.split(":")[1])) for word in words[1:]] for words in lines
              if words[0] == "tokens"]
    assert len(prompts) == len(tokens) > 0
    return list(zip(prompts, tokens))


def program(kind):
    if kind == "cpu":
        return BINARY, ("--device", "cpu")
    assert EMULATED.exists(), f"{EMULATED} is not built: docker/setup.sh test brings the C++ compiler that it needs"
    return str(EMULATED), ("--device", "cuda", "--kv-cache-memory", "256KiB")


@pytest.mark.skipif("PENSTOCK_VECTORS" in os.environ, reason="no comparison with transformers")
@pytest.mark.parametrize("model", [*FILES, "folders/llama"])
def test_other_requests_and_the_prefix_cache_change_nothing(model):
    """With the default settings, a cache of integers: the second time the prompt's blocks are shared."""
    server = Server("--device", "cpu", *FLAGS[2:], model=VECTORS / model).wait_until_ready()
    try:
        prompts = [prompt for prompt, _ in golden(model)]
        alone = [server.continue_by(24, prompt) for prompt in prompts]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            together = list(pool.map(lambda prompt: server.continue_by(24, prompt), prompts * 4))
        assert together == alone * 4
        hits = [float(line.split()[-1]) for line in server.http.get("/metrics").text.splitlines()
                if line.startswith("vllm:prefix_cache_hits_total")]
        assert (sum(hits) > 0) == (model not in RECURRENT)
    finally:
        server.stop()


@pytest.mark.parametrize("kind,model", [(kind, model) for kind in ("cpu", "emulated") for model in FILES + FOLDERS])
def test_tokens_are_those_of_transformers(kind, model):
    binary, flags = program(kind)
    server = Server(*FLAGS, *flags, *OWN_FLAGS.get(model, ()), binary=binary, model=VECTORS / model).wait_until_ready()
    try:
        expected = golden(model)
        alone = [server.continue_by(len(tokens), prompt) for prompt, tokens in expected]
        for choice, (_, tokens) in zip(alone, expected):
            assert choice["token_ids"] == [token for token, _ in tokens]
            for found, (_, wanted) in zip(choice["logprobs"]["token_logprobs"], tokens):
                assert abs(found - wanted) < 1e-4
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            together = list(pool.map(lambda e: server.continue_by(N_TOGETHER, e[0]), expected * 2))
        for choice, one in zip(together, alone * 2):
            assert choice["token_ids"] == one["token_ids"][:N_TOGETHER]
            assert choice["logprobs"]["token_logprobs"] == one["logprobs"]["token_logprobs"][:N_TOGETHER]
        equal[kind, model] = sum(len(tokens) for _, tokens in expected)
    finally:
        server.stop()


def mean_vectors(model, longest):
    """Returns pairs of an encoder's ids and of the mean of their hidden vectors, scaled to length 1."""
    lines, pairs = (VECTORS / "encoders.txt").read_text().splitlines(), []
    for name, ids, _, _, total in zip(*(lines[i::5] for i in range(5))):
        ids, total = [int(word) for word in ids.split()], [float(word) for word in total.split()]
        if name == model and len(ids) <= longest:
            pairs.append((ids, [x / math.sqrt(sum(y * y for y in total)) for x in total]))
    assert pairs
    return pairs


@pytest.mark.parametrize("kind,model", [(kind, model) for kind in ("cpu", "emulated") for model in ENCODERS + ENCODER_FILES])
def test_vectors_are_those_of_transformers(kind, model):
    binary, flags = program(kind)
    flags = [flag if flag != "256KiB" else "2MiB" for flag in flags]
    pairs = mean_vectors(model, LONGEST[kind])
    server = Server(*FLAGS[:2], *FLAGS[4:], *flags, "--max-model-len", "320", "--pooling", "mean", binary=binary,
                    model=VECTORS / model, env={}).wait_until_ready()
    try:
        def embed(inputs):
            return [row["embedding"] for row in server.post("/v1/embeddings", {"input": inputs}).json()["data"]]
        alone = [embed([ids])[0] for ids, _ in pairs]
        for found, (_, wanted) in zip(alone, pairs):
            assert len(found) == len(wanted) and max(abs(x - y) for x, y in zip(found, wanted)) < 1e-5
        together = embed([ids for ids, _ in pairs] * 2)
        assert together == alone * 2
        equal[kind, model] = len(pairs)
    finally:
        server.stop()


def inspect(*words):
    return subprocess.run([BINARY, "inspect", *map(str, words)], capture_output=True, text=True)


def families_of_docs():
    """Rows of the first table of docs/models.md: the family, its folders' architectures, its name in GGUF files."""
    rows = []
    for line in TABLE.read_text().split("## Stretched positions")[0].splitlines():
        cells = line.split("|")
        if len(cells) != 7 or "`" not in cells[1]:
            continue
        family = cells[1].split("`")[1]
        said = cells[3].strip()
        assert cells[4].strip() == "yes" and (said in ("yes", "none exist", "not yet") or re.fullmatch("as `[a-z0-9]+`", said)), line
        rows.append((family, cells[2].split("`")[1::2], family if said == "yes" else said.split("`")[1] if "`" in said else None))
    assert rows
    return rows


def families_of_sources():
    """Returns the names that the rows of engine/models/families give to folders, and those that they give to GGUF files."""
    folders, files = set(), set()
    for source in (ROOT / "engine/models/families").glob("*.c"):
        text = source.read_text()
        for names in re.findall(r"char \*const \w+\[\] = \{(.*?)NULL\}", text, re.DOTALL):
            folders.update(re.findall(r'"(\w+)"', names))
        for row in re.findall(r"const struct model_family \w+ = \{(.*?)\n\};", text, re.DOTALL):
            if ".only_folders = true" not in row:
                files.add(re.search(r'\.gguf = "([^"]+)"', row).group(1))
    return folders, files


def wrappers():
    """Returns the classes whose text part may be of any family."""
    text = (ROOT / "engine/files/hf_config.c").read_text()
    names = re.search(r"wrappers\[\] = \{(.*?)\};", text, re.DOTALL).group(1)
    return re.findall(r'"(\w+)"', names)


def test_the_families_are_those_of_the_docs(tmp_path):
    config, file = tmp_path / "config.json", tmp_path / "none.gguf"
    config.write_text(json.dumps({"architectures": ["none"]}))
    texts = [struct.pack("<Q", len(text)) + text for text in (b"general.architecture", b"none")]
    file.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + texts[0] + struct.pack("<I", 8) + texts[1])
    rows = families_of_docs()
    folders, files = families_of_sources()
    assert {name for _, names, _ in rows for name in names} == folders
    assert all(f"`{name}`" in TABLE.read_text() for name in wrappers())
    assert {name for _, _, name in rows if name} == files
    for done in (inspect(config, "--load-format", "dummy"), inspect(file)):
        said = f'"none" is not supported; docs/models.md lists the {len(rows)} families that are'
        assert done.returncode != 0 and said in done.stderr, done.stderr
    readme = (ROOT / "README.md").read_text().split("## Models and formats")[1].split("## API")[0]
    for family, _, _ in rows:
        name = {"llama with expert_count": "Mixtral", "gpt-oss": "gpt-oss"}.get(family, f"`{family}`")
        assert name in readme, family


@pytest.mark.skipif("PENSTOCK_VECTORS" in os.environ, reason="the table is of the models in the tree")
def test_each_family_of_the_docs_is_run():
    """A tiny model of it, as a folder and as a GGUF file; `inspect` prints the name in the docs."""
    rows = families_of_docs()
    found = {"folders": set(), "families": set()}
    for model in FILES + FOLDERS + ENCODERS + ENCODER_FILES:
        folder = VECTORS / model
        shown = re.search(r"^  architecture ([a-z0-9_-]+), mostly", inspect(folder).stdout, re.MULTILINE).group(1)
        kind = "families" if model.endswith(".gguf") else "folders"
        found[kind].add(shown)
        if kind == "folders":
            named = json.loads((folder / "config.json").read_text())["architectures"][0]
            assert named in wrappers() or shown in [(gguf or family) if " " in family else family for family, names, gguf in rows if named in names], model
    assert found["folders"] >= {family for family, _, _ in rows if " " not in family}
    # SmolLM2, of this shape, is the default model of the other tests
    assert found["families"] | {"llama"} == {name for _, _, name in rows if name}


def table():
    """One row per model with the results of this run."""
    rows = []
    for model in FILES + FOLDERS + ENCODERS + ENCODER_FILES:
        folder, name = model.removesuffix(".gguf").split("/")
        what = "vectors" if folder == "encoders" else "tokens"
        said = [f"{equal[kind, model]} {what} equal" if (kind, model) in equal else "not equal" for kind in ("cpu", "emulated")]
        rows.append(f"| `{name}` | {'GGUF' if model.endswith('.gguf') else 'folder'} | {said[0]} | {said[1]} |\n")
    return "".join(sorted(rows))


@pytest.mark.skipif("PENSTOCK_VECTORS" in os.environ, reason="the table is of the models in the tree")
def test_the_table_says_what_this_run_found(request):
    if len(request.session.items) < 2 * len(FILES + FOLDERS + ENCODERS + ENCODER_FILES):
        pytest.skip("only some of the models were run")
    text = TABLE.read_text()
    begin = text.index(HEAD) + len(HEAD)
    if os.environ.get("PENSTOCK_WRITE_TABLE"):
        TABLE.write_text(text[:begin] + table())
    else:
        assert text[begin:] == table()
