"""Makes tests/vectors/classifiers/ and tests/vectors/classifiers.json: tiny models for sequence classification, and their
logits as transformers computes them in float32.

    /tmp/oracle/bin/python tests/vectors/make_classifiers.py [--seed N]

It needs the packages of make_families.py. `labels` has three labels, of which two have names. `scores` has one label, and
no head for text although config.json does not tie it. `pairs` is an encoder with two layers after the first token, like
bge-reranker. Both have no chat template, so a pair is two texts.
`reranker.gguf` is
the tiny qwen3 folder as `build/penstock quantize` converts it, with a head as llama.cpp's converter makes it for
Qwen3-Reranker: the rows of two tokens, here 84 and 97, and the text of a pair.
`bert_pairs` is a BERT whose second text has token type 1, with the tokenizer WordPiece, like ms-marco-MiniLM. `modern_pairs`
and `modern_labels` are ModernBERTs, whose head has a norm and sees the mean or the first vector; the tokenizer's types have
no effect there. `token_labels` and `modern_token_labels` have labels for each token. `bert_pairs.gguf` and `modern_pairs.gguf` are the same models in the layout of llama.cpp's converter.
"""

import argparse
import json
import shutil
from pathlib import Path

import gguf
import make_encoders
import pack
import safetensors.torch
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
    "bert_pairs": (transformers.BertConfig, transformers.BertForSequenceClassification, None,
                   dict(num_labels=1, vocab_size=600, num_key_value_heads=4)),
    "modern_pairs": (transformers.ModernBertConfig, transformers.ModernBertForSequenceClassification, "folders/qwen3",
                     dict(num_labels=1, classifier_pooling="mean", local_attention=24, num_hidden_layers=4, num_key_value_heads=4)),
    "modern_labels": (transformers.ModernBertConfig, transformers.ModernBertForSequenceClassification, "folders/qwen3",
                      dict(num_labels=3, classifier_pooling="cls", classifier_bias=True, classifier_activation="tanh", local_attention=16,
                           num_hidden_layers=4, num_key_value_heads=4, id2label={0: "bad", 1: "good", 2: "LABEL_2"})),
    "token_labels": (transformers.BertConfig, transformers.BertForTokenClassification, None,
                     dict(num_labels=3, vocab_size=600, num_key_value_heads=4, id2label={0: "bad", 1: "good", 2: "LABEL_2"})),
    "modern_token_labels": (transformers.ModernBertConfig, transformers.ModernBertForTokenClassification, "folders/qwen3",
                            dict(num_labels=1, local_attention=24, num_hidden_layers=4, num_key_value_heads=4)),
    "scores": (transformers.LlamaConfig, transformers.LlamaForSequenceClassification, "folders/llama", dict(num_labels=1, tie_word_embeddings=False)),
}
TEXTS = ["The sun shines over the harbour.", "Rain."]
PAIRS = [("sun", "The sun shines."), ("rain", "A cat."), ("rain", "It rains on the hills.")]


RANDOMISED = ("bert_pairs", "modern_pairs", "modern_labels", "token_labels", "modern_token_labels")
WITHOUT_SCORES = ("labels", "modern_labels", "token_labels", "modern_token_labels")
BASE = {"bert_pairs": "bert.", "modern_pairs": "model."}


def write_types(path):
    """The post-processor of ModernBERT's tokenizer: the second text has type 1, which the model ignores."""
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    first, last = ({"SpecialToken": {"id": text, "type_id": 0}} for text in ("<|endoftext|>", "<|im_end|>"))
    one, two = ({"Sequence": {"id": text, "type_id": i}} for i, text in enumerate("AB"))
    end = {"SpecialToken": {"id": "<|im_end|>", "type_id": 1}}
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing", "single": [first, one, last], "pair": [first, one, last, two, end],
        "special_tokens": {text: {"id": text, "ids": [i], "tokens": [text]} for text, i in (("<|endoftext|>", 256), ("<|im_end|>", 257))}}
    (path / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False) + "\n")


def make(name, seed):
    kind, model_class, folder, options = MODELS[name]
    path = HERE / "classifiers" / name
    torch.manual_seed(seed)
    shutil.rmtree(path, ignore_errors=True)
    model = model_class(kind(**{"pad_token_id": 0, **SHAPE, **options})).eval()
    if name in RANDOMISED:
        make_encoders.randomise(model)
    else:
        for layer in [model.score] if hasattr(model, "score") else [model.classifier.dense, model.classifier.out_proj]:
            torch.nn.init.normal_(layer.weight, std=0.5)
            if layer.bias is not None:
                torch.nn.init.normal_(layer.bias, std=0.5)
    model.save_pretrained(path)
    if not folder:
        shutil.copy(HERE / "hf_tokenizers/bert_uncased.json", path / "tokenizer.json")
        (path / "tokenizer_config.json").write_text(json.dumps(
            {"tokenizer_class": "BertTokenizer", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]",
             "mask_token": "[MASK]", "do_lower_case": True, "model_max_length": 96}, indent=2) + "\n")
        return path
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(HERE / folder / file, path / file)
    settings = json.loads((path / "tokenizer_config.json").read_text())
    if name in RANDOMISED:
        write_types(path)
    if name != "labels":
        settings.pop("chat_template", None)
    if name == "pairs":  # the tokens around and between two texts
        tokenizer = json.loads((path / "tokenizer.json").read_text())
        tokenizer["post_processor"] = {"type": "RobertaProcessing", "sep": ["<|im_end|>", 257], "cls": ["<|endoftext|>", 256],
                                       "trim_offsets": True, "add_prefix_space": False}
        (path / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False) + "\n")
    (path / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    return path


def add_wordpiece(writer, path):
    """The vocabulary as the converter spells it: the start of a word with U+2581, later parts bare."""
    vocabulary = json.loads((path / "tokenizer.json").read_text())["model"]["vocab"]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("bert")
    specials = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    writer.add_token_list([name if name in specials else name[2:] if name.startswith("##") else "\u2581" + name for name in vocabulary])
    writer.add_token_types([3 if name in specials else 1 for name in vocabulary])
    for key, name in (("unknown", "[UNK]"), ("seperator", "[SEP]"), ("padding", "[PAD]"), ("cls", "[CLS]"), ("mask", "[MASK]")):
        writer.add_uint32(f"tokenizer.ggml.{key}_token_id", vocabulary[name])
    writer.add_token_type_count(2)


def add_byte_bpe(writer, path):
    """The folder's vocabulary; a text stands between its begin and end tokens."""
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    tokens = {i: token for token, i in tokenizer["model"]["vocab"].items()}
    added = {entry["id"]: entry["content"] for entry in tokenizer["added_tokens"]}
    tokens |= added
    n = COMMON["vocab_size"]
    kind = gguf.TokenType
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([tokens.get(i, f"[PAD{i}]") for i in range(n)])
    writer.add_token_types([kind.CONTROL if i in added else kind.NORMAL if i in tokens else kind.UNUSED for i in range(n)])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)
    writer.add_sep_token_id(257)
    writer.add_add_sep_token(True)


def write_gguf(name, model):
    """The encoder with its head: cls, cls.norm and cls.output."""
    path = HERE / "classifiers" / name
    architecture, names = make_encoders.GGUF["bert" if name == "bert_pairs" else "modernbert"]
    config = model.config
    writer = gguf.GGUFWriter(HERE / "classifiers" / f"{name}.gguf", architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.RANK)
    writer.add_layer_norm_eps(getattr(config, "layer_norm_eps", getattr(config, "norm_eps", None)))
    if name == "bert_pairs":
        add_wordpiece(writer, path)
    else:
        writer.add_rope_freq_base(160000.0)
        writer.add_sliding_window(config.local_attention)
        writer.add_sliding_window_pattern(3)
        add_byte_bpe(writer, path)
    heads = {"bert.pooler.dense": "cls", "head.dense": "cls", "head.norm": "cls.norm", "classifier": "cls.output"}
    for key, tensor in safetensors.torch.load_file(path / "model.safetensors").items():
        base, end = key.rsplit(".", 1)
        to = f"{heads[base]}.{end}" if base in heads else make_encoders.gguf_name(key.removeprefix(BASE[name]), names)
        writer.add_tensor(to, tensor.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_reranker(path):
    import subprocess
    import tempfile

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


def rounded(logits):
    """Of a text, or of each token."""
    return [rounded(row) for row in logits] if logits.dim() > 1 else [float(f"{x:.9g}") for x in logits]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=7)
    seed, cases = parser.parse_args().seed, []
    for name in MODELS:
        path = make(name, seed)
        model = MODELS[name][1].from_pretrained(path, dtype=torch.float32).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        for texts in [(text,) for text in TEXTS] + (PAIRS if name not in WITHOUT_SCORES else []):
            inputs = tokenizer(*texts, return_tensors="pt")
            assert ("token_type_ids" in inputs) == (name in ("bert_pairs", "token_labels")), name
            ids = inputs["input_ids"][0].tolist()
            with torch.no_grad():
                logits = model(**inputs).logits[0]
            for file in [name, f"{name}.gguf"] if name in BASE else [name]:
                cases.append({"model": file, "texts": texts, "ids": ids, "logits": rounded(logits)})
        if name in BASE:
            write_gguf(name, model)
    make_reranker(HERE / "classifiers/reranker.gguf")
    (HERE / "classifiers.json").write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
    pack.pack("classifiers")


if __name__ == "__main__":
    main()
