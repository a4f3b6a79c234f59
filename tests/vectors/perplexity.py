"""Perplexity of the default model as folders in float32, bfloat16 and float16, compared with transformers on the same
weights.

    docker/build.sh release 2 logits && build/oracle/venv/bin/python tests/vectors/perplexity.py [--windows 3]

The weights are those of models/SmolLM2-135M-Instruct.Q4_1.gguf, each changed a little, because folders of floats have
many different values. bench/accuracy.txt is divided into windows of 512 tokens, and the prediction after each token
from the 64th is scored. Transformers computes in float32 from the folder's weights. Ends with an error if the
difference is above 0.1 %.
"""
import argparse
import math
import pathlib
import subprocess
import sys

import gguf
import numpy as np
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WINDOW, FIRST, MOST = 512, 63, 1e-3
NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
         "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def number(reader, key):
    return reader.fields[key].contents()


def model_of(path):
    reader = gguf.GGUFReader(path)
    heads, kv_heads = number(reader, "llama.attention.head_count"), number(reader, "llama.attention.head_count_kv")
    state = {}
    for tensor in reader.tensors:
        weight = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
        *layer, name, _ = tensor.name.split(".")
        n_heads = {"attn_q": heads, "attn_k": kv_heads}.get(name)
        if n_heads:  # in such files the two numbers of a rotated pair are adjacent
            weight = weight.view(n_heads, -1, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
        state[("model.layers." + layer[1] + "." if layer else "") + NAMES[name] + ".weight"] = weight
    config = transformers.LlamaConfig(
        vocab_size=state["model.embed_tokens.weight"].shape[0], hidden_size=number(reader, "llama.embedding_length"),
        intermediate_size=number(reader, "llama.feed_forward_length"), num_hidden_layers=number(reader, "llama.block_count"),
        num_attention_heads=heads, num_key_value_heads=kv_heads, rms_norm_eps=number(reader, "llama.attention.layer_norm_rms_epsilon"),
        rope_theta=number(reader, "llama.rope.freq_base"), max_position_embeddings=number(reader, "llama.context_length"),
        bos_token_id=1, eos_token_id=2, tie_word_embeddings=True)
    torch.manual_seed(5)
    model = transformers.LlamaForCausalLM(config)
    model.load_state_dict({name: weight * (1 + 0.003 * torch.randn_like(weight)) for name, weight in state.items()}, strict=False)
    model.tie_weights()
    return model


def perplexity(rows_of, windows):
    total = 0
    for window in windows:
        scores = torch.log_softmax(torch.as_tensor(rows_of(window)).double()[FIRST:-1], -1)
        total -= scores[torch.arange(len(scores)), torch.tensor(window[FIRST + 1:])].sum().item()
    return math.exp(total / (len(windows) * (WINDOW - 1 - FIRST)))


def ours(folder, dtype, windows, V):
    with subprocess.Popen([ROOT / "build/logits", folder, dtype, "2", "auto"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        def rows_of(window):
            process.stdin.write((" ".join(map(str, window)) + "\n").encode())
            process.stdin.flush()
            return np.frombuffer(process.stdout.read(WINDOW * V * 4), np.float32).reshape(WINDOW, V).copy()

        found = perplexity(rows_of, windows)
        process.stdin.close()
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--windows", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    path = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
    text = subprocess.run([ROOT / "build/penstock", "tokenize", "--model", path, (ROOT / "bench/accuracy.txt").read_text()[:100000]],
                          capture_output=True, check=True).stdout.decode(errors="replace")
    ids = [int(line.split()[0]) for line in text.splitlines() if line[:6].strip().isdigit()]
    windows = [ids[i * WINDOW:(i + 1) * WINDOW] for i in range(options.windows)]
    model, worst = model_of(path), 0
    for name in ["float32", "bfloat16", "float16"]:
        folder = ROOT / "build/perplexity" / name
        rounded = transformers.LlamaForCausalLM(model.config)
        rounded.load_state_dict(model.state_dict())
        rounded.to(getattr(torch, name)).save_pretrained(folder, max_shard_size="120MB")
        (folder / "tokenizer.json").write_text((ROOT / "tests/vectors/hf_tokenizers/gpt2.json").read_text())
        rounded.float().eval()
        with torch.no_grad():
            theirs = perplexity(lambda window: rounded(torch.tensor([window])).logits[0], windows)
        for dtype in ["float32", "auto"]:
            found = ours(folder, dtype, windows, model.config.vocab_size)
            worst = max(worst, abs(found / theirs - 1))
            print(f"{name}, --dtype {dtype}: {found:.4f}, transformers {theirs:.4f}: {100 * (found / theirs - 1):+.4f} %", flush=True)
    sys.exit(worst > MOST)


if __name__ == "__main__":
    main()
