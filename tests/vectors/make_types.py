"""Makes tests/vectors/types.txt: the results of transformers with the weights of each type of GGUF files.

Run it again only when a type is added (docker/venv.sh /tmp/oracle tests/vectors/requirements.txt):

    /tmp/oracle/bin/python tests/vectors/make_types.py

The files are those of tests/e2e/type_files.py, with random bytes from a seed. The `gguf` package converts them to
floats (ggml_blocks.py reads two types by ggml's library), from which a tiny Qwen3 of transformers computes in float32. For each type there is a line "type" with its name
and seed, and for each prompt a line "prompt" and a line "tokens" as make_families.py writes them.
"""
import pathlib
import sys

import gguf
import numpy as np
import torch
import transformers

import family_models
import make_families
from ggml_blocks import weights_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import type_files as files  # noqa: E402 - found by the line above

PLACES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
          "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
          "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q_norm": "self_attn.q_norm",
          "attn_k_norm": "self_attn.k_norm"}
OUTER = {"token_embd": "model.embed_tokens", "output": "lm_head", "output_norm": "model.norm"}


def name_in_transformers(name):
    parts = name.removesuffix(".weight").split(".")
    return (f"model.layers.{parts[1]}.{PLACES[parts[2]]}" if parts[0] == "blk" else OUTER[parts[0]]) + ".weight"


def model_of(name, seed):
    config = transformers.Qwen3Config(
        hidden_size=files.K, intermediate_size=files.F, num_hidden_layers=files.LAYERS, num_attention_heads=files.H,
        num_key_value_heads=files.G, head_dim=files.D, rms_norm_eps=files.EPSILON, tie_word_embeddings=False,
        rope_theta=files.THETA, **family_models.COMMON)
    model, weights = transformers.Qwen3ForCausalLM(config), {}
    for word, rows, columns, data in files.tensors(name, seed):
        word_type = "F32" if rows is None else name
        kind = getattr(gguf.GGMLQuantizationType, word_type, None)
        numbers = weights_of(word_type, kind, np.frombuffer(data, np.uint8))
        weights[name_in_transformers(word)] = torch.from_numpy(numbers.reshape([columns] if rows is None else [rows, columns]))
    model.load_state_dict(weights, strict=True)
    return model.float().eval()


def golden(name):
    """Finds the first seed for which no token is nearly tied."""
    for seed in range(1000):
        model, runs = model_of(name, seed), []
        for prompt in make_families.PROMPTS:
            tokens = make_families.greedy(model, prompt)
            if not tokens or len({token for token, _ in tokens}) < make_families.N_GREEDY // 4:
                break
            runs.append(tokens)
        if len(runs) == len(make_families.PROMPTS):
            return seed, runs
    raise SystemExit(f"{name}: every seed has tokens that are nearly tied")


def main():
    torch.set_num_threads(1)
    lines = [f"# torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}"]
    for name in files.KINDS:
        seed, runs = golden(name)
        lines.append(f"type {name} {seed}")
        for prompt, tokens in zip(make_families.PROMPTS, runs):
            lines.append("prompt " + " ".join(map(str, prompt)))
            lines.append("tokens " + " ".join(f"{token}:{logprob:.7f}" for token, logprob in tokens))
        print(lines[-5], flush=True)
    (ROOT / "tests/vectors/types.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
