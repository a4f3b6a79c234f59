"""Writes a GGUF file's weights, decoded to bf16, as a folder that vLLM can serve.

    build/peers/vllm/bin/python bench/vllm_model.py models/NAME.gguf FOLDER

bench/peers.sh runs it with vLLM's Python, for its transformers. It writes the tokenizer too, because the server
requires one; the bench itself sends token ids only.
"""
import os
import sys

import torch
import transformers

path, out = sys.argv[1:]
folder, name = os.path.split(os.path.abspath(path))
decoded = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.bfloat16)
# transformers treats a model read from GGUF as quantised and cannot save it: copy the weights into a plain model.
config = transformers.AutoConfig.from_pretrained(folder, gguf_file=name)
if hasattr(config, "quantization_config"):
    del config.quantization_config
model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
model.load_state_dict(decoded.state_dict())
model.save_pretrained(out)
transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(out)
