"""The default model as lm-eval's own transformers backend reads it: the GGUF file in float32, and its tokenizer.

    lm_eval_model.py MODEL.gguf FOLDER

transformers reads a GGUF file's tokenizer without the pre-tokenizer that the file names. SmolLM2's splits digits, so that
is put back.
"""
import os
import sys

import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer


def main():
    path, to = sys.argv[1:]
    folder, file = os.path.split(os.path.abspath(path))
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.save_pretrained(to)
    read = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    del read.config.quantization_config  # the weights are float32 by now
    model = AutoModelForCausalLM.from_config(read.config, dtype=torch.float32)
    model.load_state_dict(read.state_dict())
    model.save_pretrained(to)


if __name__ == "__main__":
    main()
