"""Makes tests/vectors/classifiers/ and tests/vectors/classifiers.json: tiny models for sequence classification, and their
logits as transformers computes them in float32.

    /tmp/oracle/bin/python tests/vectors/make_classifiers.py [--seed N]

It needs the packages of make_families.py. `labels` has three labels, of which two have names. `scores` has one label, and
no head for text although config.json does not tie it. `pairs` is an encoder with two layers after the first token, like
bge-reranker. Both have no chat template, so a pair is two texts.
`reranker.gguf` is
the tiny qwen3 folder as `build/penstock quantize` converts it, with a head as llama.cpp's converter makes it for
Qwen3-Reranker: the rows of two tokens, here 84 and 97, and the text of a pair.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
import transformers
from family_models import COMMON

HERE = Path(__file__).resolve().parent
SHAPE = dict(hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, **COMMON)
MODELS = {
    "labels": (transformers.Qwen3Config, transformers.Qwen3ForSequenceClassification, "folders/qwen3",
               dict(head_dim=12, num_labels=3, tie_word_embeddings=True, id2label={0: "bad", 1: "good", 2: "LABEL_2"})),
    "pairs": (transformers.XLMRobertaConfig, transformers.XLMRobertaForSequenceClassification, "encoders/xlm_roberta",
              dict(num_labels=1, type_vocab_size=1, max_position_embeddings=98, pad_token_id=1, num_key_value_heads=4)),
    "scores": (transformers.LlamaConfig, transformers.LlamaForSequenceClassification, "folders/llama", dict(num_labels=1, tie_word_embeddings=False)),
}
TEXTS = ["The sun shines over the harbour.", "Rain."]
PAIRS = [("sun", "The sun shines."), ("rain", "A cat."), ("rain", "It rains on the hills.")]


def make(name, seed):
    kind, model_class, folder, options = MODELS[name]
    path = HERE / "classifiers" / name
    torch.manual_seed(seed)
    shutil.rmtree(path, ignore_errors=True)
    model = model_class(kind(**{"pad_token_id": 0, **SHAPE, **options})).eval()
    for layer in [model.score] if hasattr(model, "score") else [model.classifier.dense, model.classifier.out_proj]:
        torch.nn.init.normal_(layer.weight, std=0.5)
        if layer.bias is not None:
            torch.nn.init.normal_(layer.bias, std=0.5)
    model.save_pretrained(path)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(HERE / folder / file, path / file)
    settings = json.loads((path / "tokenizer_config.json").read_text())
    if name != "labels":
        settings.pop("chat_template", None)
    if name == "pairs":  # the tokens around and between two texts
        tokenizer = json.loads((path / "tokenizer.json").read_text())
        tokenizer["post_processor"] = {"type": "RobertaProcessing", "sep": ["<|im_end|>", 257], "cls": ["<|endoftext|>", 256],
                                       "trim_offsets": True, "add_prefix_space": False}
        (path / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False) + "\n")
    (path / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    return path


def make_reranker(path):
    import subprocess
    import tempfile

    import gguf

    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.gguf"
        subprocess.run([HERE.parents[1] / "build/penstock", "quantize", HERE / "folders/qwen3", made, "--type", "q8_0"], check=True)
        reader = gguf.GGUFReader(made)
        writer = gguf.GGUFWriter(path, "qwen3")
        for field in reader.fields.values():
            if field.name.startswith("GGUF.") or field.name == "general.architecture":
                continue
            kinds = [gguf.GGUFValueType(kind) for kind in field.types]
            writer.add_key_value(field.name, field.contents(), kinds[0], kinds[1] if len(kinds) > 1 else None)
        writer.add_array("qwen3.classifier.output_labels", ["yes", "no"])
        writer.add_uint32("qwen3.pooling_type", 4)
        writer.add_string("tokenizer.chat_template.rerank", "Q: {query}\nD: {document}\nA:")
        rows = {}
        for tensor in reader.tensors:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
            rows[tensor.name] = gguf.dequantize(tensor.data, tensor.tensor_type)
        head = rows.get("output.weight", rows["token_embd.weight"])
        writer.add_tensor("cls.output.weight", head[[84, 97]].astype("float32"))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=7)
    seed, cases = parser.parse_args().seed, []
    for name in MODELS:
        path = make(name, seed)
        model = MODELS[name][1].from_pretrained(path, dtype=torch.float32).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        for texts in [(text,) for text in TEXTS] + (PAIRS if name != "labels" else []):
            ids = tokenizer(*texts)["input_ids"]
            with torch.no_grad():
                logits = model(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids))).logits[0]
            cases.append({"model": name, "texts": texts, "ids": ids, "logits": [float(f"{x:.9g}") for x in logits]})
    make_reranker(HERE / "classifiers/reranker.gguf")
    (HERE / "classifiers.json").write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
