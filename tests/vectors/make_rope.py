"""Makes tests/vectors/rope.txt: the frequencies of rotary positions in transformers, for each kind of stretch.

Run it again only when a kind is added; it needs no GPU and the packages of make_families.py:

    /tmp/oracle/bin/python tests/vectors/make_rope.py

A case is four lines: "config" with a config.json, "length" with the longest context that is served, "scale" with the
factor of cosines and sines, and "frequencies". dynamic and longrope have cases on both sides of the length at which
they change.
"""

import json
import pathlib

import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

OUT = pathlib.Path(__file__).resolve().parent / "rope.txt"
SHAPE = {"vocab_size": 300, "hidden_size": 96, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4,
         "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096}
FACTORS = {"short_factor": [1 + i / 8 for i in range(12)], "long_factor": [1 + i * i / 3 for i in range(12)]}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
LONG = {"rope_type": "longrope", "original_max_position_embeddings": 1024, **FACTORS}
CASES = [
    ({"rope_type": "default"}, 4096),
    ({"rope_type": "linear", "factor": 2.5}, 4096),
    ({"rope_type": "dynamic", "factor": 2.0}, 4096),
    ({"rope_type": "dynamic", "factor": 2.0}, 8000),
    (YARN, 4096),
    ({**YARN, "beta_fast": 8.0, "beta_slow": 2.0, "truncate": False}, 4096),
    ({**YARN, "mscale": 0.7, "mscale_all_dim": 1.5}, 4096),
    ({**YARN, "attention_factor": 1.25}, 4096),
    ({**YARN, "factor": 1.0}, 4096),
    ({**YARN, "rope_theta": 30.0}, 4096),  # the range ends beyond the last pair, and then beyond the head
    ({**YARN, "rope_theta": 8.0}, 4096),
    (LONG, 1024),
    (LONG, 1025),
    ({**LONG, "factor": 3.0}, 4096),
    ({**LONG, "attention_factor": 1.5}, 4096),
    ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 512}, 4096),
    ({"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}, 4096),
]


def compute(scaling, length):
    rope = {"rope_theta": 10000.0, **scaling}
    config = transformers.LlamaConfig(**SHAPE, rope_parameters=dict(rope))
    if scaling["rope_type"] == "default":
        head = SHAPE["hidden_size"] // SHAPE["num_attention_heads"]
        inv_freq, scale = 1 / 10000 ** (torch.arange(0, head, 2).double() / head), 1.0
    else:
        inv_freq, scale = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, seq_len=length)
    text = json.dumps({"architectures": ["LlamaForCausalLM"], **SHAPE, "rope_parameters": rope})
    return [f"config {text}", f"length {length}", f"scale {scale:.9g}",
            "frequencies " + " ".join(f"{value:.9g}" for value in inv_freq.tolist())]


def main():
    lines = [f"# torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}"]
    for case in CASES:
        lines += compute(*case)
    OUT.write_text("\n".join(lines) + "\n")
    print(f"{len(CASES)} cases")


if __name__ == "__main__":
    main()
