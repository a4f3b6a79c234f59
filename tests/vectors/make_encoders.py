"""Makes tests/vectors/encoders/ and encoders.txt: tiny random encoders, and their hidden vectors as transformers computes
them in float32.

    /tmp/oracle/bin/python tests/vectors/make_encoders.py [--seed N] [NAME ...]

It needs the packages of make_families.py. For each model and prompt there are five lines, in the form of
make_embeddings.py: the model's folder, the prompt's ids, and the sum of the hidden vectors of the first row, the last row
and all rows. The prompts have one token, a few, more than a window, and more than a chunk of the attention (256).
Checkpoints vary like published ones: with and without a prefix and a head, old and new names of norms. The models of GGUF
are also written as NAME.gguf, in the layout of llama.cpp's converter.
"""

import argparse
import copy
import json
import random
import shutil
from pathlib import Path

import gguf
import make_families
import pack
import safetensors.torch
import torch
import transformers

HERE = Path(__file__).resolve().parent
V, CONTEXT = 299, 320
SHAPE = {"vocab_size": V, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 56,
         "attn_implementation": "eager"}
LENGTHS = [1, 7, 48, 300]


def bert():
    return transformers.BertModel(transformers.BertConfig(max_position_embeddings=CONTEXT, **SHAPE))


def bert_masked():
    """With the head that predicts hidden tokens, and the names of the first checkpoints."""
    return transformers.BertForMaskedLM(transformers.BertConfig(max_position_embeddings=CONTEXT, type_vocab_size=3, **SHAPE))


def roberta():
    return transformers.RobertaForMaskedLM(transformers.RobertaConfig(
        max_position_embeddings=CONTEXT + 2, type_vocab_size=1, layer_norm_eps=1e-5, **SHAPE))


def xlm_roberta():
    return transformers.XLMRobertaModel(transformers.XLMRobertaConfig(
        max_position_embeddings=CONTEXT + 2, type_vocab_size=1, layer_norm_eps=1e-5, **SHAPE))


def nomic_bert():
    return transformers.NomicBertModel(transformers.NomicBertConfig(max_position_embeddings=CONTEXT, **SHAPE))


def modernbert():
    return transformers.ModernBertModel(transformers.ModernBertConfig(
        max_position_embeddings=CONTEXT, local_attention=24, bos_token_id=256, eos_token_id=256, cls_token_id=256, sep_token_id=256,
        pad_token_id=0, **{**SHAPE, "num_hidden_layers": 4}))


def modernbert_masked():
    """As published before version 5: with a head, and the older keys of windows and bases."""
    return transformers.ModernBertForMaskedLM(transformers.ModernBertConfig(
        max_position_embeddings=CONTEXT, local_attention=16, bos_token_id=256, eos_token_id=256, cls_token_id=256, sep_token_id=256,
        pad_token_id=0, global_attn_every_n_layers=2, global_rope_theta=5000.0, local_rope_theta=300.0,
        **{**SHAPE, "num_hidden_layers": 4}))


def gemma3():
    return transformers.Gemma3TextModel(transformers.Gemma3TextConfig(
        head_dim=16, query_pre_attn_scalar=24, sliding_window=24, rms_norm_eps=1e-6, sliding_window_pattern=2,
        num_key_value_heads=2, max_position_embeddings=CONTEXT, use_bidirectional_attention=True, pad_token_id=0, bos_token_id=256,
        eos_token_id=256, **SHAPE))


class JinaBert(torch.nn.Module):
    """Jina BERT 2 by its published formulas, because its code is not in transformers; with the names of its tensors."""
    H, D, F, L = 6, 8, 40, 3
    base_model_prefix = ""

    def __init__(self):
        super().__init__()
        K = self.H * self.D
        linear, norm = torch.nn.Linear, torch.nn.LayerNorm
        shapes = {"attention.self.query": linear(K, K), "attention.self.key": linear(K, K), "attention.self.value": linear(K, K),
                  "attention.output.dense": linear(K, K), "attention.output.LayerNorm": norm(K, eps=1e-12),
                  "mlp.gated_layers": linear(K, 2 * self.F, bias=False), "mlp.wo": linear(self.F, K),
                  "mlp.layernorm": norm(K, eps=1e-12)}
        shapes |= self.more_shapes(K)
        self.config = argparse.Namespace(hidden_size=K, num_hidden_layers=self.L, intermediate_size=self.F, num_attention_heads=self.H,
                                         layer_norm_eps=1e-12, type_vocab_size=2)
        self.parts = {"embeddings.word_embeddings": torch.nn.Embedding(V, K), "embeddings.token_type_embeddings": torch.nn.Embedding(2, K),
                      "embeddings.LayerNorm": norm(K, eps=1e-12)}
        for i in range(self.L):
            self.parts |= {f"encoder.layer.{i}.{name}": copy.deepcopy(module) for name, module in shapes.items() if module}

    def more_shapes(self, K):
        """Returns modules that replace some of a layer, or join them."""
        return {}

    def named_parameters(self):
        return [(f"{name}.{end}", parameter) for name, module in self.parts.items() for end, parameter in module.named_parameters()]

    def slopes(self):
        """Of 6 heads: those of 4 heads, then every second one of 8."""
        four, eight = ([2.0 ** (-8 * (i + 1) / n) for i in range(n)] for n in (4, 8))
        return torch.tensor(four + eight[0::2][:2])

    def save_pretrained(self, path):
        path.mkdir(parents=True)
        safetensors.torch.save_file({name: parameter.detach().clone() for name, parameter in self.named_parameters()},
                                    path / "model.safetensors", {"format": "pt"})
        (path / "config.json").write_text(json.dumps(
            {"architectures": ["JinaBertForMaskedLM"], "model_type": "bert", "position_embedding_type": "alibi",
             "feed_forward_type": "geglu", "hidden_act": "gelu", "hidden_size": self.H * self.D, "num_attention_heads": self.H,
             "num_hidden_layers": self.L, "intermediate_size": self.F, "layer_norm_eps": 1e-12, "max_position_embeddings": CONTEXT,
             "type_vocab_size": 2, "vocab_size": V, "torch_dtype": "float32", "emb_pooler": "mean"}, indent=2) + "\n")

    def forward(self, ids):
        p, n = self.parts, ids.shape[1]
        x = p["embeddings.LayerNorm"](p["embeddings.word_embeddings"](ids[0]) + p["embeddings.token_type_embeddings"].weight[0])
        away = (torch.arange(n)[:, None] - torch.arange(n)[None, :]).abs()
        for i in range(self.L):
            at = f"encoder.layer.{i}."
            q, k, v = (rows.view(n, self.H, self.D).transpose(0, 1) for rows in self.heads(at, x))
            scores = q @ k.transpose(1, 2) / self.D ** 0.5 - self.slopes()[:, None, None] * away
            heads = (scores.softmax(-1) @ v).transpose(0, 1).reshape(n, -1)
            x = self.mlp(at, x, p[at + "attention.output.LayerNorm"](x + p[at + "attention.output.dense"](heads)))
        return argparse.Namespace(last_hidden_state=x[None])

    def heads(self, at, x):
        return [self.parts[f"{at}attention.self.{name}"](x) for name in ("query", "key", "value")]

    def mlp(self, at, x, attended):
        p = self.parts
        gate, up = p[at + "mlp.gated_layers"](attended).chunk(2, dim=-1)
        return p[at + "mlp.layernorm"](attended + p[at + "mlp.wo"](torch.nn.functional.gelu(gate) * up))


class JinaBertCode(JinaBert):
    """Jina Embeddings 2 for code: norms of queries and keys over all heads, a second norm after attention, and up before the
    gate."""

    def more_shapes(self, K):
        linear, norm = torch.nn.Linear, torch.nn.LayerNorm
        norms = ("attention.self.layer_norm_q", "attention.self.layer_norm_k", "layer_norm_1", "layer_norm_2")
        return {"mlp.gated_layers": None, "mlp.wo": None, "mlp.layernorm": None, **{name: norm(K, eps=1e-12) for name in norms},
                "mlp.up_gated_layer": linear(K, 2 * self.F, bias=False), "mlp.down_layer": linear(self.F, K)}

    def heads(self, at, x):
        q, k, v = super().heads(at, x)
        return self.parts[at + "attention.self.layer_norm_q"](q), self.parts[at + "attention.self.layer_norm_k"](k), v

    def mlp(self, at, x, attended):
        p = self.parts
        h = p[at + "layer_norm_1"](x + attended)
        up, gate = p[at + "mlp.up_gated_layer"](h).chunk(2, dim=-1)
        return p[at + "layer_norm_2"](h + p[at + "mlp.down_layer"](up * torch.nn.functional.gelu(gate)))


# name: the model, and its pooling in 1_Pooling/config.json, or None
MODELS = {"bert": (bert, "cls"), "bert_masked": (bert_masked, None), "roberta": (roberta, None), "xlm_roberta": (xlm_roberta, "mean"),
          "nomic_bert": (nomic_bert, "mean"), "modernbert": (modernbert, "cls"), "modernbert_masked": (modernbert_masked, None),
          "gemma3": (gemma3, "mean"), "jina": (JinaBert, "mean"), "jina_code": (JinaBertCode, "mean")}


def randomise(model):
    """transformers leaves biases at 0 and gains at 1."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(torch.randn_like(parameter) * 0.2)
            elif parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
            else:
                parameter.copy_(torch.randn_like(parameter) * parameter.shape[1] ** -0.5 * 1.4)


def write_pooling(path, mode):
    steps = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    (path / "modules.json").write_text(json.dumps(
        [{"idx": i, "name": str(i), "path": name, "type": f"sentence_transformers.models.{kind}"}
         for i, (name, kind) in enumerate(steps)], indent=2) + "\n")
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling/config.json").write_text(json.dumps(
        {"word_embedding_dimension": 32, "pooling_mode_cls_token": mode == "cls", "pooling_mode_mean_tokens": mode == "mean",
         "pooling_mode_max_tokens": False}, indent=2) + "\n")


def rename_norms(path):
    """Gives gains and biases of norms the names of the first checkpoints."""
    tensors = safetensors.torch.load_file(path / "model.safetensors")
    renamed = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
               for name, tensor in tensors.items()}
    safetensors.torch.save_file(renamed, path / "model.safetensors", {"format": "pt"})


def write_old_keys(path):
    """Writes the keys of ModernBERT's configurations before version 5."""
    config = json.loads((path / "config.json").read_text())
    rope = config.pop("rope_parameters")
    del config["layer_types"]
    config |= {"global_attn_every_n_layers": 2, "global_rope_theta": rope["full_attention"]["rope_theta"],
               "local_rope_theta": rope["sliding_attention"]["rope_theta"]}
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")


# ---- GGUF files ---------------------------------------------------------------------------------------------

# name: the architecture, and the names of tensors
GGUF = {"bert": ("bert", {"encoder.layer": "blk", "attention.self.query": "attn_q", "attention.self.key": "attn_k",
                          "attention.self.value": "attn_v", "attention.output.dense": "attn_output",
                          "attention.output.LayerNorm": "attn_output_norm", "intermediate.dense": "ffn_up",
                          "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}),
        "nomic_bert": ("nomic-bert", {"encoder.layers": "blk", "attn.Wqkv": "attn_qkv", "attn.out_proj": "attn_output",
                                      "norm1": "attn_output_norm", "mlp.fc11": "ffn_up", "mlp.fc12": "ffn_gate", "mlp.fc2": "ffn_down",
                                      "norm2": "layer_output_norm"}),
        "modernbert": ("modern-bert", {"layers": "blk", "attn_norm": "attn_norm", "attn.Wqkv": "attn_qkv", "attn.Wo": "attn_output",
                                       "mlp_norm": "ffn_norm", "mlp.Wi": "ffn_up", "mlp.Wo": "ffn_down"}),
        "gemma3": ("gemma-embedding", {"layers": "blk", "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q",
                                       "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.q_norm": "attn_q_norm",
                                       "self_attn.k_norm": "attn_k_norm", "self_attn.o_proj": "attn_output",
                                       "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
                                       "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
                                       "post_feedforward_layernorm": "post_ffw_norm"})}
GGUF["xlm_roberta"] = GGUF["bert"]
GGUF["jina"] = ("jina-bert-v2", {**{name: to for name, to in GGUF["bert"][1].items() if "dense" not in name or "attention" in name},
                                 "mlp.gated_layers": "ffn_up", "mlp.wo": "ffn_down", "mlp.layernorm": "layer_output_norm"})
GGUF["jina_code"] = ("jina-bert-v2", {
    **GGUF["jina"][1], "attention.self.layer_norm_q": "attn_q_norm", "attention.self.layer_norm_k": "attn_k_norm", "layer_norm_1": "attn_norm_2",
    "layer_norm_2": "layer_output_norm", "mlp.up_gated_layer": "ffn_up", "mlp.down_layer": "ffn_down"})
# of earlier converters: gate and up are two tensors
SPLIT = {"jina": "jina_split", "jina_code": "jina_code_split"}
GGUF |= {split: GGUF[name] for name, split in SPLIT.items()}
FILES = {**{name: [name] for name in GGUF if name not in SPLIT.values()}, **{name: [name, split] for name, split in SPLIT.items()}}
OUTSIDE = {"embeddings.word_embeddings": "token_embd", "embeddings.tok_embeddings": "token_embd", "embed_tokens": "token_embd",
           "embeddings.position_embeddings": "position_embd", "embeddings.token_type_embeddings": "token_types",
           "embeddings.LayerNorm": "token_embd_norm", "emb_ln": "token_embd_norm", "embeddings.norm": "token_embd_norm",
           "final_norm": "output_norm", "norm": "output_norm"}


def gguf_name(name, names):
    base, end = name.rsplit(".", 1)
    if base in OUTSIDE:
        return f"{OUTSIDE[base]}.{end}"
    for layers, blk in [(key, value) for key, value in names.items() if value == "blk"]:
        if base.startswith(layers + "."):
            number, rest = base[len(layers) + 1:].split(".", 1)
            return f"{blk}.{number}.{names[rest]}.{end}"
    return None


def write_gguf(name, base, pooling):
    architecture, names = GGUF[name]
    config = base.config
    writer = gguf.GGUFWriter(HERE / "encoders" / f"{name}.gguf", architecture)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_causal_attention(False)
    writer.add_pooling_type({"cls": gguf.PoolingType.CLS, "mean": gguf.PoolingType.MEAN}[pooling])
    if name == "gemma3":
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_freq_base(1e6)
        writer.add_float32(f"{architecture}.attention.scale", config.query_pre_attn_scalar ** -0.5)
        writer.add_sliding_window((config.sliding_window - 1) * 2)
        writer.add_sliding_window_pattern(2)
    else:
        writer.add_layer_norm_eps(getattr(config, "layer_norm_eps", getattr(config, "norm_eps", None)))
    if name == "nomic_bert":
        writer.add_rope_freq_base(1000.0)
    if name == "modernbert":
        writer.add_rope_freq_base(160000.0)
        writer.add_sliding_window(config.local_attention)
        writer.add_sliding_window_pattern(3)
    if hasattr(config, "type_vocab_size"):
        writer.add_token_type_count(config.type_vocab_size)
    make_families.add_byte_bpe(writer, "gpt-2")
    for key, tensor in safetensors.torch.load_file(HERE / "encoders" / name.removesuffix("_split") / "model.safetensors").items():
        to = gguf_name(key, names)
        if not to:
            assert "pooler" in key, key
            continue
        if to.startswith("position_embd"):
            tensor = tensor[-CONTEXT:]
        if name == "gemma3" and to.endswith("norm.weight"):
            tensor = tensor + 1
        if name in SPLIT.values() and "ffn_up" in to:
            gate, tensor = tensor.chunk(2) if name == "jina_split" else reversed(tensor.chunk(2))
            writer.add_tensor(to.replace("ffn_up", "ffn_gate"), gate.contiguous().numpy())
        writer.add_tensor(to, tensor.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ---- folders ------------------------------------------------------------------------------------------------

def make(name, seed):
    build, pooling = MODELS[name]
    torch.manual_seed(seed)
    path = HERE / "encoders" / name
    shutil.rmtree(path, ignore_errors=True)
    model = build().eval()
    randomise(model)
    model.save_pretrained(path)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(HERE / "folders/qwen3" / file, path / file)
    if pooling:
        write_pooling(path, pooling)
    base = getattr(model, model.base_model_prefix, model) if model.base_model_prefix else model
    if name == "bert_masked":
        rename_norms(path)
    if name == "modernbert_masked":
        write_old_keys(path)
    (path / "model.safetensors").chmod(0o644)
    for file in FILES.get(name, []):
        write_gguf(file, base, pooling)
    return base


def vectors(name, base, seed):
    """The lines of a model's prompts. Ids below 3 are left out: RoBERTa pads with 1."""
    draw = random.Random(seed)
    lines = []
    for n in LENGTHS:
        ids = [draw.randrange(3, V) for _ in range(n)]
        with torch.no_grad():
            rows = base(torch.tensor([ids])).last_hidden_state[0].double()
        text = [" ".join(map(str, ids))]
        text += [" ".join(f"{x:.9g}" for x in vector) for vector in (rows[0], rows[-1], rows.sum(0))]
        for file in [name, *(f"{file}.gguf" for file in FILES.get(name, []))]:
            lines += [f"encoders/{file}", *text]
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    lines = []
    for name in args.names or MODELS:
        lines += vectors(name, make(name, args.seed), args.seed)
    (HERE / "encoders.txt").write_text("\n".join(lines) + "\n")
    pack.pack("encoders")


if __name__ == "__main__":
    main()
