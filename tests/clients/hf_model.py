"""The default model for transformers: the tokenizer of the GGUF file, and its weights in float32.

    hf_model.py MODEL.gguf FOLDER [--tokenizer-only]

transformers reads a GGUF file's tokenizer without the pre-tokenizer that the file names. SmolLM2's splits digits, so
the script adds it again.
"""
import argparse
import os

from tokenizers import pre_tokenizers
from transformers import AutoTokenizer


def save_tokenizer(folder, file, to):
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.save_pretrained(to)


def save_weights(folder, file, to):
    import torch
    from transformers import AutoModelForCausalLM
    read = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    del read.config.quantization_config  # the weights are float32 by now
    model = AutoModelForCausalLM.from_config(read.config, dtype=torch.float32)
    model.load_state_dict(read.state_dict())
    model.save_pretrained(to)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("model")
    parser.add_argument("folder")
    parser.add_argument("--tokenizer-only", action="store_true")
    args = parser.parse_args()
    folder, file = os.path.split(os.path.abspath(args.model))
    save_tokenizer(folder, file, args.folder)
    if not args.tokenizer_only:
        save_weights(folder, file, args.folder)


if __name__ == "__main__":
    main()
