"""Makes encoders of random weights in build/bench-models: a GGUF file in Q8_0 and an ONNX model in int8 with the same weights.

    build/peers/onnxruntime/bin/python bench/encoder_files.py [NAME ...]

NAME is bert-base (12 layers of 768) or minilm (6 layers of 384); without one, both are made. The ONNX model has onnxruntime's
own fused ops (Attention, SkipLayerNormalization, Gelu), its best form, averages all rows and has no mask: texts of a batch have
one length. Words of the vocabulary are WORDS texts of three syllables, each one token.
"""
import itertools
import os
import sys

import gguf
import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

FOLDER = "build/bench-models"
V, POSITIONS, EPSILON = 30522, 512, 1e-12
SHAPES = {"bert-base": (12, 768, 3072, 12), "minilm": (6, 384, 1536, 12)}  # L, K, F, H
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def words():
    """V - 5 different words of letters."""
    syllables = [a + b for a in "bcdfghjklmnpqrstvwxz" for b in "aeiou"]
    return ["".join(parts) for parts in itertools.islice(itertools.product(syllables, repeat=3), V - len(SPECIAL))]


def weights(name):
    """{name in GGUF files: array}, with a seed of its own for each name, so that a file is the same each time."""
    L, K, F, _ = SHAPES[name]
    shapes = {"token_embd.weight": (V, K), "position_embd.weight": (POSITIONS, K), "token_types.weight": (2, K), "token_embd_norm": K}
    for i in range(L):
        shapes |= {f"blk.{i}.{part}": shape for part, shape in {
            "attn_q": (K, K), "attn_k": (K, K), "attn_v": (K, K), "attn_output": (K, K), "attn_output_norm": K, "ffn_up": (F, K),
            "ffn_down": (K, F), "layer_output_norm": K}.items()}
    draw, made = np.random.default_rng(7), {}
    for key, shape in shapes.items():
        if isinstance(shape, int):
            made |= {f"{key}.weight": np.ones(shape, np.float32), f"{key}.bias": np.zeros(shape, np.float32)}
            continue
        whole = key if key.endswith(".weight") else f"{key}.weight"
        made[whole] = draw.standard_normal(shape, np.float32) * np.float32(shape[1] ** -0.5)
        if key.startswith("blk."):
            made[f"{key}.bias"] = np.zeros(shape[0], np.float32)
    return made


# ---- GGUF -----------------------------------------------------------------------------------------------------------

def write_gguf(path, name, made):
    L, K, F, H = SHAPES[name]
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_name(name)
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(K)
    writer.add_block_count(L)
    writer.add_feed_forward_length(F)
    writer.add_head_count(H)
    writer.add_layer_norm_eps(EPSILON)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("bert")
    writer.add_token_list(SPECIAL + ["\u2581" + word for word in words()])
    writer.add_token_types([3] * len(SPECIAL) + [1] * (V - len(SPECIAL)))
    writer.add_token_type_count(2)
    for key, i in (("padding", 0), ("unknown", 1), ("cls", 2), ("seperator", 3), ("mask", 4)):
        writer.add_uint32(f"tokenizer.ggml.{key}_token_id", i)
    kind = gguf.GGMLQuantizationType.Q8_0
    for key, array in made.items():
        if array.ndim == 2 and not key.startswith(("position", "token_types")):
            writer.add_tensor(key, gguf.quants.quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(key, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ---- ONNX -----------------------------------------------------------------------------------------------------------

class Graph:
    """Collects nodes; each has one output, whose name is a number."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def constant(self, array):
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def add(self, op, *inputs, domain="", **attributes):
        out = f"n{len(self.nodes)}"
        names = [name if isinstance(name, str) else self.constant(name) for name in inputs]
        self.nodes.append(helper.make_node(op, names, [out], domain=domain, **attributes))
        return out

    def fused(self, op, *inputs, **attributes):
        return self.add(op, *inputs, domain="com.microsoft", **attributes)


def layer(graph, x, w, H):
    """w(NAME) is a tensor of the layer."""
    qkv = np.concatenate([w(f"attn_{part}.weight").T for part in "qkv"], axis=1)
    bias = np.concatenate([w(f"attn_{part}.bias") for part in "qkv"])
    heads = graph.fused("Attention", x, qkv, bias, num_heads=H)
    out = graph.add("MatMul", heads, w("attn_output.weight").T)
    x = graph.fused("SkipLayerNormalization", out, x, w("attn_output_norm.weight"), w("attn_output_norm.bias"), w("attn_output.bias"),
                    epsilon=EPSILON)
    up = graph.fused("Gelu", graph.add("Add", graph.add("MatMul", x, w("ffn_up.weight").T), w("ffn_up.bias")))
    down = graph.add("MatMul", up, w("ffn_down.weight").T)
    return graph.fused("SkipLayerNormalization", down, x, w("layer_output_norm.weight"), w("layer_output_norm.bias"), w("ffn_down.bias"),
                       epsilon=EPSILON)


def write_onnx(path, name, made):
    L, _, _, H = SHAPES[name]
    graph = Graph()
    tokens = graph.add("Gather", made["token_embd.weight"], "ids")
    length = graph.add("Gather", graph.add("Shape", "ids"), np.int64([1]))
    rows = graph.add("Slice", made["position_embd.weight"] + made["token_types.weight"][0], np.int64([0]), length, np.int64([0]))
    x = graph.add("LayerNormalization", graph.add("Add", tokens, rows), made["token_embd_norm.weight"], made["token_embd_norm.bias"],
                  axis=-1, epsilon=EPSILON)
    for i in range(L):
        x = layer(graph, x, lambda part, i=i: made[f"blk.{i}.{part}"], H)
    mean = graph.add("ReduceMean", x, np.int64([1]), keepdims=0)
    graph.nodes.append(helper.make_node("LpNormalization", [mean], ["embedding"], axis=-1, p=2))
    value = helper.make_tensor_value_info
    body = helper.make_graph(graph.nodes, name, [value("ids", onnx.TensorProto.INT64, ["texts", "tokens"])],
                             [value("embedding", onnx.TensorProto.FLOAT, ["texts", SHAPES[name][1]])], graph.constants)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(body, opset_imports=opsets, ir_version=9), path + ".float")
    quantize_dynamic(path + ".float", path, weight_type=QuantType.QInt8, extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT})
    os.remove(path + ".float")


def main():
    os.makedirs(FOLDER, exist_ok=True)
    for name in sys.argv[1:] or SHAPES:
        made = weights(name)
        write_gguf(f"{FOLDER}/{name}.gguf", name, made)
        write_onnx(f"{FOLDER}/{name}.onnx", name, made)
        print(f"{FOLDER}/{name}.gguf, {FOLDER}/{name}.onnx")


if __name__ == "__main__":
    main()
