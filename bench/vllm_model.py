"""Writes a GGUF file's weights as folders that vLLM can serve: FOLDER/bf16, and FOLDER/int8, whose products are W8A8.

    build/peers/vllm/bin/python bench/vllm_model.py models/NAME.gguf FOLDER

bench/peers.sh runs it with vLLM's Python, for its transformers. It writes the tokenizer too, because the server
requires one; the bench itself sends token ids only.

W8A8 is vLLM's fastest form on a CPU, in the layout of compressed-tensors: int8 weights with one scale per row, and
inputs that are converted to int8 by row at run time. The head stays bf16, as in vLLM's own tools.
"""
import json
import os
import sys

import safetensors.torch
import torch
import transformers

INT8 = {"num_bits": 8, "type": "int", "symmetric": True}
W8A8 = {"quant_method": "compressed-tensors", "format": "int-quantized", "quantization_status": "compressed", "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {**INT8, "strategy": "channel", "dynamic": False},
                                      "input_activations": {**INT8, "strategy": "token", "dynamic": True}}}}


def decoded(path):
    """Returns the model and its config as unquantised ones: transformers treats those read from GGUF as quantised and
    cannot save them."""
    folder, name = os.path.split(path)
    weights = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.bfloat16).state_dict()
    config = transformers.AutoConfig.from_pretrained(folder, gguf_file=name)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.load_state_dict(weights)
    return model


def int8(tensors):
    """Returns each product's weights as codes and one scale per row."""
    made = {}
    for name, tensor in tensors.items():
        if not name.endswith("_proj.weight"):
            made[name] = tensor
            continue
        scales = (tensor.float().abs().amax(dim=1, keepdim=True) / 127).clamp(min=1e-30)
        made[name] = torch.round(tensor.float() / scales).clamp(-127, 127).to(torch.int8)
        made[name + "_scale"] = scales.to(torch.bfloat16)
    return made


def main():
    path, out = os.path.abspath(sys.argv[1]), sys.argv[2]
    model = decoded(path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(os.path.dirname(path), gguf_file=os.path.basename(path))
    for form in ("bf16", "int8"):
        model.save_pretrained(f"{out}/{form}")
        tokenizer.save_pretrained(f"{out}/{form}")
    weights = f"{out}/int8/model.safetensors"
    safetensors.torch.save_file(int8(safetensors.torch.load_file(weights)), weights, {"format": "pt"})
    with open(f"{out}/int8/config.json") as file:
        config = json.load(file)
    with open(f"{out}/int8/config.json", "w") as file:
        json.dump({**config, "quantization_config": W8A8}, file, indent=1)


main()
