"""Writes a GGUF file as a folder for OpenVINO whose products have int8 weights: one scale per row.

    build/peers/openvino/bin/python bench/openvino_model.py models/NAME.gguf FOLDER

OpenVINO GenAI reads the file with its weights decoded to halves, and writes its graph. This script converts the weights
of all products in that graph to int8, like OpenVINO's exporters, which need the original model and some GB of packages.
(The graph of a Q4_1 file is not suitable: its minima are rounded to whole multiples of the scales.)
"""
import os
import sys

import numpy as np
import openvino
import openvino_genai
from openvino import opset13

import gguf_file


def folded(output):
    """Returns the value of a part of the graph without inputs."""
    model = openvino.Model([opset13.result(output)], [])
    return openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})({})[0]


def int8(weights, kind):
    """Returns the node weights [outputs][inputs], from codes and one scale per row."""
    weights = weights.astype(np.float32)
    scales = np.maximum(np.abs(weights).max(axis=1, keepdims=True) / 127, 1e-30)
    codes = np.clip(np.rint(weights / scales), -127, 127).astype(np.int8)
    node = opset13.multiply(opset13.convert(opset13.constant(codes), "f16"),
                            opset13.constant(scales.astype(np.float16)))
    return node if kind == "f16" else opset13.convert(node, kind)


def products(model):
    """The nodes that multiply by weights."""
    for node in model.get_ordered_ops():
        if node.get_type_name() == "MatMul" and node.get_attributes()["transpose_b"]:
            shape = node.input_value(1).get_partial_shape()
            if shape.is_static and len(shape) == 2:
                yield node


def main():
    path, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    halves = os.path.join(out, "halves.gguf")
    gguf_file.GGUF(path).write_halves(halves)
    openvino_genai.ContinuousBatchingPipeline(halves, openvino_genai.SchedulerConfig(), "CPU",
                                              {"enable_save_ov_model": True})
    core = openvino.Core()
    core.set_property({"ENABLE_MMAP": False})
    model = core.read_model(f"{out}/openvino_model.xml")
    found = list(products(model))
    for node in found:
        source = node.input_value(1)
        node.input(1).replace_source_output(int8(folded(source), source.get_element_type().get_type_name()).output(0))
    openvino.save_model(model, f"{out}/openvino_model.xml", compress_to_fp16=False)
    print(f"{out}: {len(found)} products with int8 weights, files {sorted(os.listdir(out))}")


main()
