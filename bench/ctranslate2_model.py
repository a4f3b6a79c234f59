"""Writes a GGUF file of the Llama family as a folder that CTranslate2 can run, with int8 weights: one scale per row.

build/peers/ctranslate2/bin/python bench/ctranslate2_model.py models/NAME.gguf FOLDER
"""
import os
import sys

import ctranslate2
import numpy as np
from ctranslate2.specs import common_spec, transformer_spec

import gguf_file



class Converter:
    """Fills CTranslate2's description of a model (its "spec") from a GGUF file."""

    def __init__(self, path):
        self.file = gguf_file.GGUF(path)
        family = self.file.metadata["general.architecture"]
        if family != "llama":
            raise SystemExit(f"ctranslate2_model.py: reads the family llama, not {family}")
        self.values = {name.removeprefix(family + "."): v for name, v in self.file.metadata.items()}

    def empty(self):
        values = self.values
        heads = values["attention.head_count"]
        # In a GGUF file of this family the two numbers of a rotated pair are adjacent, which CTranslate2 calls
        # "interleaved".
        return transformer_spec.TransformerDecoderModelSpec.from_config(
            values["block_count"], heads, activation=common_spec.Activation.SWISH, pre_norm=True, ffn_glu=True, rms_norm=True,
            rotary_dim=values.get("rope.dimension_count", values["embedding_length"] // heads), rotary_interleave=True,
            rotary_base=values.get("rope.freq_base", 10000.), num_heads_kv=values["attention.head_count_kv"])

    def fill_layer(self, layer, i):
        def weight(name):
            return self.file[f"blk.{i}.{name}.weight"]

        attention, ffn = layer.self_attention, layer.ffn
        attention.layer_norm.gamma, ffn.layer_norm.gamma = weight("attn_norm"), weight("ffn_norm")
        attention.linear[0].weight = np.concatenate([weight(f"attn_{name}") for name in "qkv"])
        attention.linear[1].weight = weight("attn_output")
        ffn.linear_0.weight, ffn.linear_0_noact.weight = weight("ffn_gate"), weight("ffn_up")
        ffn.linear_1.weight = weight("ffn_down")

    def spec(self):
        spec = self.empty()
        decoder = spec.decoder
        decoder.scale_embeddings = False
        decoder.embeddings.weight = self.file["token_embd.weight"]
        decoder.layer_norm.gamma = self.file["output_norm.weight"]
        decoder.projection.weight = self.file["output.weight" if "output.weight" in self.file else "token_embd.weight"]
        for i, layer in enumerate(decoder.layer):
            self.fill_layer(layer, i)
        # Two tokens may have the same text, but the vocabulary needs different ones. The bench sends ids.
        spec.register_vocabulary([str(i) for i in range(len(decoder.embeddings.weight))])
        spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = "0"
        spec.config.layer_norm_epsilon = self.values["attention.layer_norm_rms_epsilon"]
        return spec


def main():
    path, out = sys.argv[1:]
    spec = Converter(path).spec()
    spec.validate()
    spec.optimize(quantization="int8")
    os.makedirs(out, exist_ok=True)
    spec.save(out)
    print(f"{out}: CTranslate2 {ctranslate2.__version__}, int8")


main()
