"""`penstock quantize`, and `--quantization` at load: the same answers, files that are complete or absent, and refusals."""
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import struct
import subprocess
import tempfile

import pytest

from conftest import BINARY, ROOT

FLOATS = ROOT / "tests/vectors/families/phi3.gguf"
FOLDER = ROOT / "tests/vectors/folders/llama"
TYPES = ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q6_k"]


def penstock(*words, **more):
    return subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True, timeout=60, **more)


def answer(model, *flags):
    """Returns a model's answer to a prompt of bytes, as text."""
    done = penstock("run", "--model", model, "--device", "cpu", "--temperature", 0, "--max-tokens", 24, *flags, "water flows")
    assert done.returncode == 0, done.stderr
    return done.stdout


def tensor_types(path):
    lines = penstock("inspect", "--tensors", path).stdout.splitlines()
    return {words[0]: words[1] for words in map(str.split, lines) if len(words) > 2 and words[0].endswith(".weight")}


@pytest.mark.parametrize("kind", TYPES)
def test_a_file_answers_as_its_source_quantised_at_load(kind, tmp_path):
    out = tmp_path / "small.gguf"
    done = penstock("quantize", FLOATS, out, "--type", kind)
    assert done.returncode == 0, done.stderr
    assert out.stat().st_size < FLOATS.stat().st_size
    assert answer(out) == answer(FLOATS, "--quantization", kind)
    assert answer(out, "--dtype", "float32") == answer(FLOATS, "--quantization", kind, "--dtype", "float32")
    assert os.listdir(tmp_path) == ["small.gguf"]


@pytest.mark.parametrize("flags", [(), ("--quantization", "q4_1", "--tensor-parallel-size", 2)])
def test_kept_weights_answer_as_loaded_ones(flags, tmp_path):
    """--weight-cache: the first start writes one file per rank, the second one maps them; a damaged one is written
    again."""
    wanted = answer(FLOATS, *flags)
    assert answer(FLOATS, *flags, "--weight-cache", tmp_path) == wanted
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(kept) == (2 if flags else 1)
    assert answer(FLOATS, *flags, "--weight-cache", tmp_path) == wanted
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == kept
    damaged = min(kept)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    done = penstock("run", "--model", FLOATS, "--device", "cpu", *flags, "--weight-cache", tmp_path, "--max-tokens", 1, "a")
    assert done.returncode == 0 and f"{damaged} is damaged" in done.stderr
    assert damaged.stat().st_mtime_ns != kept[damaged]


def test_biases_of_experts_stay(tmp_path):
    """They are one row per expert, and not a matrix."""
    out, source = tmp_path / "small.gguf", FLOATS.with_name("gpt_oss.gguf")
    assert penstock("quantize", source, out, "--type", "q8_0").returncode == 0
    assert answer(out) == answer(source, "--quantization", "q8_0")


def test_types_follow_the_tensors_and_their_rows(tmp_path):
    """Rows of 32 numbers are not whole blocks of 256, and rows of 40 are not whole blocks of 32."""
    out = tmp_path / "small.gguf"
    assert penstock("quantize", FLOATS, out, "--type", "q4_k").returncode == 0
    types = tensor_types(out)
    assert types["token_embd.weight"] == "q8_0" and types["blk.0.attn_qkv.weight"] == "q5_0"
    assert types["blk.0.ffn_down.weight"] == "f32" and types["blk.0.attn_norm.weight"] == "f32"


def test_what_is_no_matrix_stays_though_it_has_two_dimensions(tmp_path):
    """Biases of experts, and gains of a norm per head."""
    out = tmp_path / "small.gguf"
    for family, tensor in ("gpt_oss", "blk.0.ffn_down_exps.bias"), ("stablelm_12b", "blk.0.attn_q_norm.weight"):
        source = FLOATS.with_name(f"{family}.gguf")
        assert penstock("quantize", source, out, "--type", "q8_0").returncode == 0
        lines = penstock("inspect", "--tensors", out).stdout.splitlines()
        assert [line.split()[1] for line in lines if line.split()[:1] == [tensor]] == ["f32"]
        assert answer(out) == answer(source, "--quantization", "q8_0")
        out.unlink()


def test_keys_are_kept_and_the_file_says_its_type(tmp_path):
    out = tmp_path / "small.gguf"
    assert penstock("quantize", FLOATS, out, "--type", "q4_0").returncode == 0
    keys = [{line.split("=")[0].strip(): line for line in penstock("inspect", path).stdout.split("Keys:")[1].splitlines()}
            for path in (FLOATS, out)]
    changed = {key for key in {*keys[0], *keys[1]} if keys[0].get(key) != keys[1].get(key)}
    assert all("general.file_type" in key or "general.quantization_version" in key or key[:1].isdigit() for key in changed)
    assert out.read_bytes()[:8] == b"GGUF" + struct.pack("<I", 3)


def test_a_folder_is_quantised_as_it_is_loaded():
    assert answer(FOLDER, "--quantization", "q8_0", "--dtype", "float32")


# Folders that a GGUF file cannot represent, or that are quantised already.
REFUSED = {
    "cwm": "GGUF files do not support the architecture \"cwm\"",
    "opt": "GGUF files do not support the architecture \"opt\"",
    **dict.fromkeys(["qwen3_5", "qwen3_5_moe", "qwen3_next"], "cannot be made into GGUF files here, because those order value heads otherwise"),
    **dict.fromkeys(["kimi_linear", "kimi_linear_wide"], "cannot be made into GGUF files here, because latent attention is not written"),
    **dict.fromkeys(["granite4_h", "granite4_h_moe", "bamba", "mamba2", "nemotron_h", "falcon_h1", "falcon_h1_norm"], "cannot be made into GGUF files here, because state spaces are not written"),
    **dict.fromkeys(["deepseek_v2", "deepseek_v2_lite", "deepseek_v3", "kimi_k2", "glm4_moe_lite", "mistral4",
                     "float8-mistral4", "float8-mistral4-blocks"],
                    "cannot be made into GGUF files here, because latent attention is not written"),
    "opt_350m": "GGUF files do not support the architecture \"opt\"",
    **dict.fromkeys(["mistral", "ministral"], "a sliding window is not supported in a model of the architecture \"llama\""),
    "smollm3": "layer without positions: 1 in the folder, 0 in the file",  # the tiny model's are not each fourth layer
    "qwen2moe_mixed": "layer 2 is without experts (mlp_only_layers, decoder_sparse_step), but layer 1 is not; GGUF files support this for the "
    "first layers only",
    **dict.fromkeys(["awq", "awq-experts", "gptq", "gptq-act-order", "gptq-falcon", "packed-int4", "packed-int4-middle", "packed-int8", "int8", "float8-rows",
                     "float8-blocks", "float8-structure", "float8-exponents", "float8-ministral3", "float8-128-llama", "float8-128-qwen3", "float8-128-experts",
                     "gpt_oss_mxfp4", "nvfp4", "nvfp4-modelopt", "bnb-nf4", "bnb-fp4", "bnb-int8", "float8-modelopt"], "is quantised already; quantize makes a GGUF file of floats"),
}
FOLDERS = sorted(path.parent for path in FOLDER.parent.glob("*/config.json"))


def complete(model, prompts, *flags):
    """Returns the ids and logprobs that follow each prompt, without a server."""
    work = [{"custom_id": str(i), "method": "POST", "url": "/v1/completions",
             "body": {"prompt": prompt, "max_tokens": 16, "temperature": 0, "logprobs": 1, "ignore_eos": True,
                      "return_token_ids": True}} for i, prompt in enumerate(prompts)]
    with tempfile.TemporaryDirectory() as room:
        asked, answered = pathlib.Path(room, "in.jsonl"), pathlib.Path(room, "out.jsonl")
        asked.write_text("".join(json.dumps(line) + "\n" for line in work))
        done = penstock("batch", "--model", model, "-i", asked, "-o", answered, "--device", "cpu", *flags)
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in answered.read_text().splitlines()]
    answers = {line["custom_id"]: line["response"]["body"]["choices"][0] for line in lines}
    return [(answers[str(i)]["token_ids"], answers[str(i)]["logprobs"]["token_logprobs"]) for i in range(len(prompts))]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_folder_becomes_a_file_that_answers_as_it_does(folder, tmp_path):
    """The same bits for all types: the order of a product's inputs is the folder's. If the family's GGUF files store
    heads in another order, float sums have another order, too."""
    out = tmp_path / "small.gguf"
    kind = TYPES[FOLDERS.index(folder) % len(TYPES)]
    done = penstock("quantize", folder, out, "--type", kind)
    if folder.name in REFUSED:
        assert done.returncode in (1, 2) and REFUSED[folder.name] in done.stderr and os.listdir(tmp_path) == []
        return
    assert done.returncode == 0, done.stderr
    lines = folder.with_suffix(".txt").read_text().splitlines()
    prompts = [[int(word) for word in line.split()[1:]] for line in lines if line.startswith("prompt")]
    assert complete(out, prompts) == complete(folder, prompts, "--quantization", kind)
    exact, loaded = (complete(model, prompts, "--dtype", "float32", *flags)
                     for model, flags in ((out, ()), (folder, ("--quantization", kind))))
    for (ids, logprobs), (wanted_ids, wanted) in zip(exact, loaded):
        assert ids == wanted_ids and max(abs(a - b) for a, b in zip(logprobs, wanted)) < 2e-5


ENCODERS = sorted(path.parent for path in (ROOT / "tests/vectors/encoders").glob("*/config.json"))
assert ENCODERS, "a build unpacks tests/vectors/encoders.tar.xz"


@pytest.mark.parametrize("folder", ENCODERS, ids=lambda folder: folder.name)
def test_a_folder_of_an_encoder_is_refused(folder, tmp_path):
    done = penstock("quantize", folder, tmp_path / "small.gguf", "--type", "q8_0")
    assert done.returncode == 2 and "folders of encoders are not written as GGUF files" in done.stderr and os.listdir(tmp_path) == []


def test_a_folder_says_in_keys_what_its_files_do(tmp_path):
    out = tmp_path / "small.gguf"
    assert penstock("quantize", FOLDER, out, "--type", "q8_0").returncode == 0
    shown = penstock("inspect", out).stdout
    for line in ('general.architecture = "llama"', "general.file_type = 7", 'tokenizer.ggml.model = "gpt2"',
                 "tokenizer.ggml.eos_token_id = 256", "rope.dimension_count = ", "tokenizer.chat_template = ",
                 "general.sampling.temp = 0.600000", "general.sampling.top_p = 0.8999", "general.sampling.top_k = 50"):
        assert line in shown, shown


def test_lists_of_factors_stand_without_a_factor(tmp_path):
    """Other programs also divide by the factor."""
    folder, out = tmp_path / "phi3", tmp_path / "small.gguf"
    shutil.copytree(FOLDER.parent / "phi3", folder)
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.75,
                                 "short_factor": [1, 1.5, 2], "long_factor": [2, 3, 4], "original_max_position_embeddings": 72}
    config["original_max_position_embeddings"] = 72
    (folder / "config.json").write_text(json.dumps(config))
    done = penstock("quantize", folder, out, "--type", "q8_0")
    assert done.returncode == 0, done.stderr
    shown = penstock("inspect", "--tensors", out).stdout
    assert "rope.scaling.attn_factor" in shown and "rope_factors_long.weight" in shown
    assert "rope.scaling.factor" not in shown


def write_llama(folder, tokenizer):
    """A folder of random weights with a tokenizer.json or a tokenizer.model."""
    folder.mkdir()
    vocabulary = 1200
    if tokenizer.name == "tekken.json":
        shutil.copy(tokenizer, folder)
    elif tokenizer.suffix == ".json":
        file = json.loads(tokenizer.read_text())
        file["added_tokens"] = [token for token in file["added_tokens"] if token["special"]]
        (folder / "tokenizer.json").write_text(json.dumps(file))
    else:
        shutil.copy(tokenizer, folder / "tokenizer.model")
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2, "vocab_size": vocabulary, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16"}))
    shapes = {"embed_tokens.weight": [vocabulary, 32], "norm.weight": [32]}
    for name in ("input_layernorm", "post_attention_layernorm"):
        shapes[f"layers.0.{name}.weight"] = [32]
    for name in (*(f"self_attn.{x}_proj" for x in "qkvo"), "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
        shapes[f"layers.0.{name}.weight"] = [32, 32]
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header["model." + name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    numbers = random.Random(1)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(
        struct.pack("<H", numbers.choice([0x3c00, 0xbc00]) + numbers.randrange(256)) for _ in range(at // 2)))


@pytest.mark.parametrize("name, said", [
    ("gpt2.json", "gpt-2"), ("llama3.json", "llama-bpe"), ("qwen.json", "qwen2"), ("o200k.json", "gpt-4o"),
    ("falcon.json", "falcon"), ("llama2.json", "default"), ("gemma.json", "default"), ("sp_bpe.model", "default"),
    ("sp_unigram.model", "default"), ("sp_unigram_bare.model", "default"), ("sp_unigram_rules.model", "default"), ("tekken.json", "tekken"),
    ("words_nfkc.json", None), ("unigram.json", None), ("t5.json", None),
])
def test_tokenizers_are_named_or_refused(name, said, tmp_path):
    folder, out = tmp_path / "folder", tmp_path / "small.gguf"
    write_llama(folder, ROOT / "tests/vectors/hf_tokenizers" / name)
    done = penstock("quantize", folder, out, "--type", "q8_0")
    if said is None:
        assert done.returncode == 2 and "no tokenizer type of GGUF files gives the same ids" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    assert f'tokenizer.ggml.pre = "{said}"' in penstock("inspect", out).stdout
    texts = ["It's 1234 o'clock;  we\u2019ll see\n\n the \u4f60\u597d caf\u00e9", "<s>a</s> b"]
    for text in texts:
        ids = [penstock("tokenize", "--model", model, text).stdout for model in (folder, out)]
        assert ids[0] == ids[1] != ""


@pytest.mark.parametrize("name", ["tekken.json", "sp_unigram.model"])
def test_a_file_encodes_as_its_folder(name, tmp_path):
    """5,000 lines: the texts of the tokenizers' tests, and random letters."""
    folder, out, numbers = tmp_path / "folder", tmp_path / "small.gguf", random.Random(3)
    write_llama(folder, ROOT / "tests/vectors/hf_tokenizers" / name)
    assert penstock("quantize", folder, out, "--type", "q8_0").returncode == 0
    known = [json.loads(line) for line in (ROOT / "tests/vectors/hf_tokenizers" / name).with_suffix(".jsonl").read_text().strip().split("\n")]
    known = [line["text"] for line in known if line.get("text")]
    letters = "aAbeEtTnX019 .,'\"\n\t/_-\u00e9\u0301\u4f60\u0434\u1e9e\u00bd\u2028\U0001f600\u200b"
    texts = [numbers.choice(known)[:numbers.randrange(40)] + "".join(numbers.choices(letters, k=numbers.randrange(1, 24)))
             for _ in range(5000)]
    for i in range(0, len(texts), 500):
        given = "\n".join(texts[i:i + 500])
        ids = [penstock("tokenize", "--model", model, input=given).stdout for model in (folder, out)]
        assert ids[0] == ids[1] and ids[0].count("\n") > 500


def test_a_file_is_never_written_over(tmp_path):
    copy = tmp_path / "in.gguf"
    copy.write_bytes(FLOATS.read_bytes())
    done = penstock("quantize", copy, copy)
    assert done.returncode == 2 and "exists already; remove it, or give another name" in done.stderr
    assert copy.read_bytes() == FLOATS.read_bytes()


def test_a_full_disk_leaves_nothing(tmp_path):
    out = tmp_path / "small.gguf"

    def small_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

    done = penstock("quantize", FLOATS, out, preexec_fn=small_files)
    assert done.returncode == 1 and "cannot be written: File too large" in done.stderr
    assert os.listdir(tmp_path) == []


def test_a_killed_run_leaves_nothing_under_the_name(tmp_path):
    """Killed after different times: the file is absent or complete."""
    for i in range(8):
        out = tmp_path / f"small{i}.gguf"
        process = subprocess.Popen([BINARY, "quantize", str(FLOATS), str(out)], stdout=subprocess.DEVNULL)
        try:
            process.wait(timeout=0.0005 * (i + 1) ** 2)
        except subprocess.TimeoutExpired:
            process.kill()
        process.wait()
        assert not out.exists() or penstock("inspect", out).returncode == 0


@pytest.mark.parametrize("words, sentence", [
    (["quantize", "a.gguf"], "quantize needs two files"),
    (["quantize", "a.gguf", "b.gguf", "c.gguf"], "quantize takes two arguments"),
    (["quantize", str(FLOATS), "b.gguf", "--type", "q3_k"], "q3_k"),
    (["quantize", str(FLOATS), "/nowhere/b.gguf"], "/nowhere/b.gguf cannot be made: No such file or directory"),
])
def test_what_cannot_be_is_refused(words, sentence):
    done = penstock(*words)
    assert done.returncode in (1, 2) and sentence in done.stderr, done.stderr


def test_a_model_that_is_quantised_already_is_refused(tmp_path):
    out = tmp_path / "small.gguf"
    assert penstock("quantize", FLOATS, out, "--type", "q8_0").returncode == 0
    done = penstock("quantize", out, tmp_path / "smaller.gguf", "--type", "q4_0")
    # the rows of 40 numbers stay floats with all types
    assert done.returncode == 2 and "does not contain a float matrix that can be quantised to q4_0" in done.stderr
    done = penstock("run", "--model", out, "--quantization", "q4_0", "a")
    assert done.returncode == 2 and "--quantization q4_0 is for float matrices" in done.stderr
