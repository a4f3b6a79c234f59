"""Makes tests/vectors/embeddings.txt and tests/vectors/embedders/: hidden vectors of tiny models as transformers computes
them in float32.

    /tmp/oracle/bin/python tests/vectors/make_embeddings.py [--seed N]

It needs the packages of make_families.py. For each model and prompt there is a line with the model's folder, a line with
the prompt's ids, and three lines with the sum of the hidden vectors of the first row, the last row and all rows: the
output of the last norm, as sentence-transformers pools it. `embedders/qwen3` is a checkpoint as publishers of embedding
models write it: the tensors of the base model, without a head, with modules.json and a pooling of its own.

With --sentences it makes only tests/vectors/embedders/dense, a folder with dense layers and prompts, and
tests/vectors/sentence_embeddings.json, its embeddings by sentence-transformers 6.2.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
import transformers
from family_models import COMMON

HERE = Path(__file__).resolve().parent
FOLDERS = ["folders/llama", "folders/qwen3", "folders/gpt2", "folders/gemma2", "folders/opt_350m", "folders/cohere2",
           "embedders/qwen3"]


def make_embedder(path, seed):
    torch.manual_seed(seed)
    config = transformers.Qwen3Config(hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, head_dim=12, rms_norm_eps=1e-6, tie_word_embeddings=True,
                                      rope_theta=1e6, **COMMON)
    shutil.rmtree(path, ignore_errors=True)
    model = transformers.Qwen3Model(config).eval()
    model.config.architectures = ["Qwen3ForCausalLM"]
    model.save_pretrained(path)
    fixed = json.loads((path / "config.json").read_text())
    fixed["architectures"] = ["Qwen3ForCausalLM"]  # as published: the tensors are those of the base model all the same
    (path / "config.json").write_text(json.dumps(fixed, indent=2) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(HERE / "folders/qwen3" / name, path / name)
    steps = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    (path / "modules.json").write_text(json.dumps(
        [{"idx": i, "name": str(i), "path": name, "type": f"sentence_transformers.models.{kind}"}
         for i, (name, kind) in enumerate(steps)], indent=2) + "\n")
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling/config.json").write_text(json.dumps(
        {"word_embedding_dimension": 32, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True,
         "pooling_mode_max_tokens": False, "pooling_mode_lasttoken": False, "include_prompt": True}, indent=2) + "\n")


DENSE = HERE / "embedders/dense"
PROMPTS = {"query": "Find: ", "document": ""}


def make_dense(seed):
    """A folder with layers after the pooling and with prompts, like EmbeddingGemma's."""
    from safetensors.torch import save_file

    shutil.rmtree(DENSE, ignore_errors=True)
    shutil.copytree(HERE / "embedders/qwen3", DENSE)
    torch.manual_seed(seed)
    steps = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"), ("3_Dense", "Dense"), ("4_Normalize", "Normalize")]
    (DENSE / "modules.json").write_text(json.dumps(
        [{"idx": i, "name": str(i), "path": name, "type": f"sentence_transformers.models.{kind}"}
         for i, (name, kind) in enumerate(steps)], indent=2) + "\n")
    for name, n_in, n_out, bias, activation in (("2_Dense", 32, 50, True, "Tanh"), ("3_Dense", 50, 24, False, "Identity")):
        path = "torch.nn.modules." + ("linear." if activation == "Identity" else "activation.") + activation
        (DENSE / name).mkdir()
        (DENSE / name / "config.json").write_text(json.dumps(
            {"in_features": n_in, "out_features": n_out, "bias": bias, "activation_function": path}) + "\n")
        tensors = {"linear.weight": torch.randn(n_out, n_in) / 4} | ({"linear.bias": torch.randn(n_out) / 4} if bias else {})
        save_file(tensors, DENSE / name / "model.safetensors")
    (DENSE / "config_sentence_transformers.json").write_text(json.dumps(
        {"prompts": PROMPTS, "default_prompt_name": "query", "similarity_fn_name": "cosine"}, indent=2) + "\n")


def sentence_vectors():
    """Embeddings of texts by sentence-transformers, with each prompt and with the usual one."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(DENSE), device="cpu", model_kwargs={"dtype": "float32"})
    model.tokenizer.pad_token = model.tokenizer.convert_ids_to_tokens(0)  # it never pads one text
    texts = ["The sun shines over the harbour.", "Rain."]
    cases = [{"prompt_name": name, "input": text, "embedding": [float(f"{x:.9g}") for x in model.encode(text, prompt_name=name)]}
             for name in (None, "query", "document") for text in texts]
    (HERE / "sentence_embeddings.json").write_text(json.dumps(cases, indent=1) + "\n")


def prompts(name):
    """The ids of the two prompts of a folder's vectors."""
    text = (HERE / "folders" / f"{name}.txt").read_text().splitlines()
    return [[int(i) for i in line.split()[1:]] for line in text if line.startswith("prompt")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--sentences", action="store_true", help="only those of sentence-transformers")
    options = parser.parse_args()
    if options.sentences:
        make_dense(options.seed)
        sentence_vectors()
        return
    make_embedder(HERE / "embedders/qwen3", options.seed)
    lines = []
    for folder in FOLDERS:
        model = transformers.AutoModel.from_pretrained(HERE / folder, dtype=torch.float32).eval()
        for ids in prompts(Path(folder).name):
            with torch.no_grad():
                rows = model(torch.tensor([ids])).last_hidden_state[0].double()
            lines += [folder, " ".join(map(str, ids))]
            lines += [" ".join(f"{x:.9g}" for x in vector) for vector in (rows[0], rows[-1], rows.sum(0))]
    (HERE / "embeddings.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
