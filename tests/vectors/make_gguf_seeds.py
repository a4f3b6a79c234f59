#!/usr/bin/env python3
"""Writes the seed corpus of tests/fuzz/fuzz_gguf.c with the gguf package (0.19.0), the reference writer of the format:

    python tests/vectors/make_gguf_seeds.py tests/fuzz/corpus/gguf
"""
import os
import sys

import numpy
from gguf import GGMLQuantizationType, GGUFEndian, GGUFValueType, GGUFWriter, quantize


def add_shape(writer):
    for key, value in (("block_count", 1), ("context_length", 64), ("embedding_length", 32),
                       ("feed_forward_length", 32), ("attention.head_count", 2),
                       ("attention.head_count_kv", 1), ("rope.dimension_count", 16), ("vocab_size", 5)):
        writer.add_uint32("llama." + key, value)
    writer.add_float32("llama.rope.freq_base", 10000.0)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)


def add_tokenizer(writer, model):
    writer.add_string("tokenizer.ggml.model", model)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b", "ab", "<|im_start|>", "<|im_end|>"])
    writer.add_array("tokenizer.ggml.token_type", [1, 1, 1, 3, 3])
    writer.add_uint32("tokenizer.ggml.bos_token_id", 3)
    writer.add_uint32("tokenizer.ggml.eos_token_id", 4)
    if model == "gpt2":
        writer.add_string("tokenizer.ggml.pre", "smollm")
        writer.add_array("tokenizer.ggml.merges", ["a b"])
    else:
        writer.add_array("tokenizer.ggml.scores", [0.0, -1.0, -2.0, -3.0, -4.0])
    writer.add_string("tokenizer.chat_template", "{{ messages[0]['content'] }}")


def add_bert(writer):
    writer.add_string("tokenizer.ggml.model", "bert")
    writer.add_array("tokenizer.ggml.tokens", ["[UNK]", "[CLS]", "[SEP]", "\u2581a", "b"])
    writer.add_array("tokenizer.ggml.token_type", [3, 3, 3, 1, 1])
    writer.add_uint32("tokenizer.ggml.seperator_token_id", 2)
    writer.add_bool("tokenizer.ggml.normalizer.lowercase", False)


def add_tensors(writer):
    rows = numpy.arange(5 * 32, dtype=numpy.float32).reshape(5, 32)
    for name, kind in (("token_embd", GGMLQuantizationType.Q4_1), ("output", GGMLQuantizationType.Q8_0)):
        writer.add_tensor(name + ".weight", quantize(rows, kind), raw_dtype=kind)
    writer.add_tensor("output_norm.weight", rows[0])
    writer.add_tensor("half.weight", rows.astype(numpy.float16))


def add_values(writer):
    for number, kind in enumerate((GGUFValueType.UINT8, GGUFValueType.INT8, GGUFValueType.UINT16,
                                   GGUFValueType.INT16, GGUFValueType.UINT32, GGUFValueType.INT32,
                                   GGUFValueType.UINT64, GGUFValueType.INT64)):
        writer.add_key_value(f"number.{number}", 100 + number, kind)
    writer.add_key_value("float32", 0.5, GGUFValueType.FLOAT32)
    writer.add_key_value("float64", 0.25, GGUFValueType.FLOAT64)
    writer.add_bool("bool", True)
    writer.add_array("bools", [True, False])
    writer.add_array("nested", [[1, 2], [3]])
    writer.add_array("words", ["", "x", "\u20ac"])


def write(folder, name, *parts, alignment=None, version=3, endian=GGUFEndian.LITTLE):
    path = os.path.join(folder, name + ".gguf")
    writer = GGUFWriter(path, "llama", endianess=endian)
    if alignment:
        writer.add_custom_alignment(alignment)
    for part in parts:
        part(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if version != 3:
        with open(path, "r+b") as file:
            file.seek(4)
            file.write(version.to_bytes(4, "little"))


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    write(folder, "empty")
    write(folder, "values", add_values)
    write(folder, "big_endian", add_values, endian=GGUFEndian.BIG)
    write(folder, "byte_bpe", add_shape, lambda writer: add_tokenizer(writer, "gpt2"), add_tensors)
    write(folder, "sentencepiece", add_shape, lambda writer: add_tokenizer(writer, "llama"))
    write(folder, "bert", add_shape, add_bert)
    write(folder, "version_2", add_shape, add_tensors, version=2)
    write(folder, "alignment_8", add_tensors, alignment=8)


main()
