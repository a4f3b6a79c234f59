"""Checks the server with new tiny models of all families: `make oracle SEED=n`.

    build/oracle/venv/bin/python tests/oracle.py --seed N [--python PYTHON] [NAME ...]

Makes the models of tests/vectors/make_families.py, make_folders.py and make_packed.py with other weights. llama.cpp's
converter (of the source package of llama-cpp-python) writes the folders' GGUF files, which must agree with those of
`penstock quantize` (tests/vectors/compare_gguf.py). Then tests/e2e/test_families.py serves each model, on the CPU and
on the emulated GPU, and compares tokens and log-probabilities with those of transformers. All files are kept in
build/oracle/N. If names are given, only those models are made and checked.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/vectors"))
import family_models  # noqa: E402
import make_families  # noqa: E402
import make_folders  # noqa: E402
import make_packed  # noqa: E402

WORK = ROOT / "build/oracle"
LLAMA = "llama-cpp-python==0.3.36"  # the version in bench/peers.sh
# Folders that llama.cpp's converter refuses, or converts with a loss.
UNCONVERTED = {
    "cwm": "llama.cpp does not support this architecture",
    **dict.fromkeys(["internvl", "smolvlm"], "its converter does not know the class of the whole model"),
    "opt": "llama.cpp does not support this architecture",
    "opt_350m": "llama.cpp does not support this architecture",
    "cohere2": "its converter wants an old key of config.json",
    "gpt2": "its converter does not pass over the masks of published folders",
    "stablelm_12b": "its converter loses the norms of heads",
    "mistral": "files of llama's architecture cannot hold a window",
    "ministral3": "its converter reads the picture settings of such folders, which ours lacks",
    "mixtral": "files of llama's architecture cannot hold a window",
    "starcoder2": "its files cannot hold a window",
    "gemma2": "its files cannot say how queries are scaled",
    "gemma3": "its files cannot say how queries are scaled",
    "gemma4": "its converter cuts the embedding to the tokenizer's tokens, and ours has fewer",
    "gemma4_large": "its converter cuts the embedding to the tokenizer's tokens, and ours has fewer",
    "gemma4_moe": "its converter cuts the embedding to the tokenizer's tokens, and ours has fewer",
    "olmoe": "its files mean weights that are not normalised",
    "qwen2moe": "its files mean weights that are not normalised",
    "qwen3moe": "its files mean weights that are normalised",
    **dict.fromkeys(["qwen2moe_mixed", "qwen3moe_mixed"], "its files cannot say which layers are without experts"),
    "ministral": "files of llama's architecture cannot hold a window",
    "glm": "its converter wants the published tokens",
    "phi": "in its files an MLP is four times as wide as the stream",
    "granite4_nope": "its files of models without recurrent layers have positions",
    **dict.fromkeys(["falcon", "falcon_11b", "falcon_40b"], "in its files an MLP is four times as wide as the stream"),
    **dict.fromkeys(["gptneox", "gptneox_sequential"], "its converter wants a key of config.json that transformers no longer writes"),
    "qwen3_vl_moe": "its converter takes experts in columns only",
    "gemma4_unified": "its converter cuts the embedding to the tokenizer's tokens, and ours has fewer",
    **dict.fromkeys(["hunyuan", "hunyuan_moe"], "its converter wants the published context"),
    "smollm3": "in its files each fourth layer is without positions",
    "afmoe": "in its files each fourth layer is without a window",
    "dots1": "its files cannot hold a window",
    "kimi_linear": "its converter loses the number of groups of experts",
    "kimi_linear_wide": "its files have as many heads in all layers",
    "mistral4": "its converter loses the scales of queries",
    "qwen3_next": "its converter does not support layers without experts",
    "bamba": "its files cannot say the size of a head",
    "granite4_h": "its files of models with recurrent layers have no positions",
    "falcon_h1_norm": "its files cannot say that the norm precedes the gate",
    "lfm2": "its converter takes taps of three dimensions only",
    "lfm2_moe": "its converter takes tied heads only",
}
# For make_families.py, whose models are those that GGUF files can represent.
UNCONVERTED_FAMILIES = {
    "cohere2": UNCONVERTED["cohere2"],
    "gpt2": "its converter wants a key of config.json that transformers no longer writes",
    "stablelm_12b": UNCONVERTED["stablelm_12b"],
    "gemma3": UNCONVERTED["gemma4"],
    **{name: UNCONVERTED[name] for name in ("glm", "phi", "granite4_nope", "qwen3_vl_moe", "falcon", "falcon_40b", "gptneox", "gptneox_sequential", "hunyuan")},
    "granite4": "its converter wants the published kinds of layers",
    "minimax_m2": "its converter wants a key of config.json that transformers no longer writes",
    "gemma4": UNCONVERTED["gemma4"],
    "gemma4_large": UNCONVERTED["gemma4_large"],
    "gemma4_moe": UNCONVERTED["gemma4_moe"],
    "phi3_short": "it is phi3_long for another context",
    **{name: UNCONVERTED[name] for name in ("kimi_linear", "mistral4")},
}
# Models that are made only for the converter, because it loses properties of the others of their families.
CONVERTED = {
    "kimi_linear_one": lambda: family_models.kimi_linear_of(layer_types=family_models.kimi_linear().config.layer_types,
                                                            num_attention_heads=3, num_key_value_heads=3, num_expert_group=1, topk_group=1),
    "mistral4_unscaled": lambda: family_models.mistral4_of(0.0),
}


def run(*command, **options):
    print("oracle.py:", *[str(part) for part in command], flush=True)
    return subprocess.run([str(part) for part in command], check=True, **options)


def llama_sources():
    """Returns llama.cpp's folder, from the source package."""
    found = list(WORK.glob("llama_cpp_python-*/vendor/llama.cpp"))
    if found:
        return found[0]
    run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "llama-cpp-python", "-d", WORK, LLAMA)
    with tarfile.open(next(WORK.glob("llama_cpp_python-*.tar.gz"))) as package:
        package.extractall(WORK, filter="data")
    return next(WORK.glob("llama_cpp_python-*/vendor/llama.cpp"))


def make(script, wanted, out, seed):
    if wanted:
        run(sys.executable, ROOT / "tests/vectors" / script, "--out", out, "--seed", seed, *wanted)


def make_families_too(names, out, seed):
    """Makes the files of make_families.py, and the folders from which the converter makes such files."""
    make_families.FIRST_SEED = 1000 * seed
    torch.set_num_threads(1)  # for models this small, threads only wait for each other
    (out / "families").mkdir(exist_ok=True)
    for name in names:
        model, runs, chosen = make_families.golden(make_families.FAMILIES.get(name) or CONVERTED[name])
        if name in make_families.FAMILIES:
            make_families.write_gguf(out / f"families/{name}.gguf", name, model)
        make_families.write_golden(out / f"families/{name}.txt", name, runs, chosen)
        model.save_pretrained(out / "sources" / name)
        make_folders.write_tokenizer(out / "sources" / name)
        print(f"oracle.py: {name}: seed {chosen}", flush=True)


def convert(kind, names, unconverted, out):
    """Converts folders to files next to those of make_families.py; their golden tokens are those of `kind`."""
    for name in names:
        if name in unconverted:
            print(f"oracle.py: {kind}/{name} is not converted: {unconverted[name]}")
    taken = [name for name in names if name not in unconverted]
    source, end = ("sources", "converted") if kind == "families" else (kind, "folder.converted")
    run(sys.executable, ROOT / "tests/vectors/convert.py", llama_sources(), out / "families", end,
        *[out / source / name for name in taken], stderr=subprocess.DEVNULL)
    for name in taken:
        if name in CONVERTED:
            (out / f"{kind}/{name}.txt").rename(out / f"families/{name}.{end}.txt")
            continue
        shutil.copy(out / f"{kind}/{name}.txt", out / f"families/{name}.{end}.txt")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--python", default=ROOT / ".venv/bin/python", help="has the packages of tests/requirements.txt")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    out = WORK / str(options.seed)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    families, folders, packed = ([name for name in names if not options.names or name in options.names] for names in
                                 ({**make_families.FAMILIES, **CONVERTED}, make_folders.FOLDERS, make_packed.FOLDERS))
    make_families_too(families, out, options.seed)
    make("make_folders.py", folders, out, options.seed)
    make("make_packed.py", packed, out, options.seed)
    convert("families", families, UNCONVERTED_FAMILIES, out)
    convert("folders", folders, UNCONVERTED, out)
    run(sys.executable, ROOT / "tests/vectors/compare_gguf.py", out / "families", "folder.converted",
        *[out / "folders" / name for name in folders if (out / f"families/{name}.folder.converted.gguf").exists()])
    run(options.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", ROOT / "tests/e2e/test_families.py",
        env={**os.environ, "PENSTOCK_VECTORS": str(out)})


if __name__ == "__main__":
    main()
