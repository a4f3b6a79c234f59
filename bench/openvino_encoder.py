"""Embeds texts with OpenVINO, without a server: its best case. bench/reading.py starts it with the peer's Python.

    {"do": "load", "model": PATH, "threads": N, "batch": N}   builds the graphs of a GGUF file of bench/encoder_files.py; answers with the version
    {"do": "embed", "ids": [[...], ...]}                      embeds texts of one length, `batch` at a time; answers with the seconds,
                                                              the first embedding, and the form that was the faster one at the first call

Both forms have int8 weights with one scale per row. In one the CPU plugin quantises the rows of activations itself, in groups. In the
other each product's input has a fixed range, measured on the first batch, as OpenVINO's quantiser (NNCF) writes it.
"""
import time

import numpy as np
import openvino
from openvino import opset13 as ops

import gguf_file
import worker

GROUP = 32  # activations of a row that share a scale
FORMS = ("rows", "ranges")
state = {}


class Graph:
    """The graph of a BERT in a GGUF file. `ranges`: None, "measure" (the products' inputs are outputs), or their (low, high)."""

    def __init__(self, file, ranges=None):
        self.file, self.ranges, self.inputs = file, ranges, []

    def norm(self, x, name):
        epsilon = self.file.metadata["bert.attention.layer_norm_epsilon"]
        scaled = ops.mvn(x, np.array([-1]), True, epsilon, "inside_sqrt")
        return ops.add(ops.multiply(scaled, self.file[f"{name}.weight"]), self.file[f"{name}.bias"])

    def product(self, x, *names):
        """x times the rows of one or several matrices, plus their biases."""
        if isinstance(self.ranges, list):
            low, high = (np.float32(value) for value in self.ranges[len(self.inputs)])
            x = ops.fake_quantize(x, low, high, low, high, 256)
        self.inputs.append(x)
        rows = np.concatenate([self.file[f"{name}.weight"] for name in names])
        scales = np.maximum(np.abs(rows).max(axis=1, keepdims=True) / 127, np.float32(1e-30))
        codes = ops.convert(ops.constant(np.clip(np.rint(rows / scales), -127, 127).astype(np.int8)), "f32")
        y = ops.matmul(x, ops.multiply(codes, scales.astype(np.float32)), False, True)
        return ops.add(y, np.concatenate([self.file[f"{name}.bias"] for name in names]))

    def attention(self, x, layer, n_heads, size):
        qkv = self.product(x, *(f"{layer}.attn_{part}" for part in "qkv"))
        heads = ops.reshape(qkv, np.array([0, 0, 3, n_heads, size]), True)
        q, k, v = (ops.squeeze(part, np.array([0])) for part in ops.split(ops.transpose(heads, np.array([2, 0, 3, 1, 4])), 0, 3).outputs())
        mixed = ops.transpose(ops.scaled_dot_product_attention(q, k, v), np.array([0, 2, 1, 3]))
        return self.product(ops.reshape(mixed, np.array([0, 0, n_heads * size]), True), f"{layer}.attn_output")

    def model(self, n_texts, n_tokens):
        file, keys = self.file, self.file.metadata
        n_heads = keys["bert.attention.head_count"]
        ids = ops.parameter([n_texts, n_tokens], np.int64, "ids")
        rows = file["position_embd.weight"][:n_tokens] + file["token_types.weight"][0]
        x = self.norm(ops.add(ops.gather(file["token_embd.weight"], ids, np.int64(0)), rows), "token_embd_norm")
        for i in range(keys["bert.block_count"]):
            layer = f"blk.{i}"
            x = self.norm(ops.add(x, self.attention(x, layer, n_heads, keys["bert.embedding_length"] // n_heads)), f"{layer}.attn_output_norm")
            up = ops.gelu(self.product(x, f"{layer}.ffn_up"), "erf")
            x = self.norm(ops.add(x, self.product(up, f"{layer}.ffn_down")), f"{layer}.layer_output_norm")
        embedding = ops.normalize_l2(ops.reduce_mean(x, np.array([1])), np.array([1]), 1e-12, "max")
        outputs = self.inputs if self.ranges == "measure" else []
        return openvino.Model([ops.result(embedding), *map(ops.result, outputs)], [ids])


def compiled(model, **more):
    properties = {"INFERENCE_NUM_THREADS": state["threads"], "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", **more}
    return openvino.Core().compile_model(model, "CPU", properties).create_infer_request()


def prepare(rows):
    """Makes the request of each form for texts of this shape, and keeps the faster one."""
    file, shape = gguf_file.GGUF(state["path"]), rows.shape
    measured = list(compiled(Graph(file, "measure").model(*shape)).infer([rows]).values())[1:]
    ranges = [(float(part.min()), float(part.max())) for part in measured]
    requests = {"rows": compiled(Graph(file).model(*shape), DYNAMIC_QUANTIZATION_GROUP_SIZE=GROUP), "ranges": compiled(Graph(file, ranges).model(*shape))}
    taken = {}
    for form in FORMS * 2:  # the first time warms up
        began = time.perf_counter()
        requests[form].infer([rows])
        taken[form] = time.perf_counter() - began
    state["form"] = min(FORMS, key=taken.get)
    state["request"], state["shape"] = requests[state["form"]], shape


def load(model, threads, batch):
    state.update(path=model, threads=threads, batch=batch, shape=None)
    return {"version": openvino.__version__}


def embed(ids):
    rows, batch = np.array(ids, np.int64), state["batch"]
    if len(rows) % batch:
        raise ValueError(f"{len(rows)} texts are no whole batches of {batch}")
    if state["shape"] != (batch, rows.shape[1]):
        prepare(rows[:batch])
    began = time.perf_counter()
    found = [next(iter(state["request"].infer([rows[i:i + batch]]).values())).copy() for i in range(0, len(rows), batch)]
    return {"seconds": time.perf_counter() - began, "first": found[0][0].tolist(), "form": state["form"]}


if __name__ == "__main__":
    worker.answer({"load": load, "embed": embed, "memory": worker.memory})
