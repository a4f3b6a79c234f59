"""Makes tests/vectors/adapters/: low-rank adapters of tiny models, and the results of PEFT with them.

    python3 -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch==2.15.0 transformers peft==0.21.2 gguf==0.19.0
    /tmp/oracle/bin/python tests/vectors/make_adapters.py [NAME ...]

The bases are tiny models of this folder: three folders and three GGUF files, the latter made again from the seed in
their .txt. NAME is a base and a rank, "llama-8". For each there are three results: NAME/ as PEFT saves it (in
float16), NAME.gguf with the same numbers in the layout of llama.cpp's convert_lora_to_gguf.py, and NAME.txt with the
base, two prompts and 24 greedy tokens each, computed by PEFT in float32. Rank 8 uses rsLoRA, or patterns of ranks and
alphas; seeds are selected so that greedy tokens are never nearly tied and differ from those of the base.
"""
import pathlib
import shutil
import sys

import gguf
import numpy
import peft
import safetensors.torch
import torch
import transformers
from family_models import FAMILIES
from make_families import ARCHITECTURES, MIN_GAP, PROMPTS, adjacent, gguf_name, randomise

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "adapters"
N_GREEDY = 24
BASES = {"llama": "folders/llama", "qwen2": "folders/qwen2", "gpt2": "folders/gpt2",
         "granite": "families/granite.gguf", "qwen2_file": "families/qwen2.gguf", "gpt2_file": "families/gpt2.gguf"}
RANKS = {"granite": [8], "qwen2_file": [8], "gpt2_file": [8]}
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def open_base(base):
    path = BASES[base]
    if path.startswith("folders"):
        return transformers.AutoModelForCausalLM.from_pretrained(
            HERE / path, dtype=torch.float32, attn_implementation="eager").eval()
    family = pathlib.Path(path).stem
    seed = int((HERE / "families" / f"{family}.txt").read_text().split("\n")[0].split("seed ")[1])
    return randomise(FAMILIES[family](), seed)


def settings(base, rank):
    is_gpt2 = "gpt2" in base
    how = {"r": rank, "lora_alpha": 2 * rank, "target_modules": ["c_attn", "c_proj", "c_fc"] if is_gpt2 else PROJECTIONS,
           "fan_in_fan_out": is_gpt2, "lora_dropout": 0.0, "task_type": "CAUSAL_LM"}
    if rank == 8 and base == "qwen2":
        how |= {"rank_pattern": {"q_proj": 4, "layers.1.mlp.up_proj": 16}, "alpha_pattern": {"down_proj": 40}}
    elif rank == 8:
        how |= {"use_rslora": True, "lora_alpha": 6}
    return peft.LoraConfig(**how)


def draw(model, seed):
    """Random numbers that float16 can hold, of a size at which an adapter changes most tokens."""
    random = torch.Generator().manual_seed(seed)
    for name, p in sorted(model.named_parameters()):
        if "lora_" not in name:
            continue
        u = torch.rand(p.shape, generator=random) * 2 - 1
        p.data = (u * (0.9 if "lora_A" in name else 0.6) / p.shape[1] ** 0.5).half().float()


def greedy(model, prompt):
    ids, tokens = list(prompt), []
    with torch.no_grad():
        for _ in range(N_GREEDY):
            row = model(torch.tensor([ids]), use_cache=False).logits[0, -1].double()
            best = torch.topk(row, 2)
            if best.values[0] - best.values[1] < MIN_GAP:
                return None
            token = best.indices[0].item()
            tokens.append((token, torch.log_softmax(row, 0)[token].item()))
            ids.append(token)
    return tokens


def find_runs(model):
    for seed in range(10000):
        draw(model, seed)
        runs = [greedy(model, prompt) for prompt in PROMPTS]
        if not all(runs) or any(len({token for token, _ in run}) < N_GREEDY // 4 for run in runs):
            continue
        with model.disable_adapter():
            base = [greedy(model, prompt) for prompt in PROMPTS]
        if all(b is None or [t for t, _ in b] != [t for t, _ in r] for b, r in zip(base, runs)):
            return runs, seed
    raise SystemExit("every seed has tokens that are nearly tied")


def save_folder(model, folder):
    shutil.rmtree(folder, ignore_errors=True)
    model.peft_config["default"].base_model_name_or_path = None
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_model.safetensors"
    tensors = {name: t.half() for name, t in safetensors.torch.load_file(path).items()}
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


def save_gguf(model, base, path, scale_of):
    """The file has one alpha, so b is multiplied where a module's scale differs."""
    family = pathlib.Path(BASES[base]).stem
    c = model.config
    writer = gguf.GGUFWriter(path, ARCHITECTURES.get(family, family))
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 16.0)
    for name, module in sorted(model.named_modules()):
        if not isinstance(module, peft.tuners.lora.LoraLayer):
            continue
        a, b = (getattr(module, half)["default"].weight.data.numpy() for half in ("lora_A", "lora_B"))
        b = b * numpy.float32(scale_of(module) * a.shape[0] / 16.0)
        if family in ("llama", "granite") and name.endswith(("q_proj", "k_proj")):
            b = adjacent(b, c)
        whole = gguf_name({"llama": "granite"}.get(family, family), name + ".weight")
        writer.add_tensor(whole + ".lora_a", numpy.ascontiguousarray(a))
        writer.add_tensor(whole + ".lora_b", numpy.ascontiguousarray(b))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(name):
    base, rank = name.rsplit("-", 1)
    model = peft.get_peft_model(open_base(base), settings(base, int(rank))).eval()
    runs, seed = find_runs(model)
    save_folder(model, OUT / name)
    save_gguf(model.base_model.model, base, OUT / f"{name}.gguf", lambda module: module.scaling["default"])
    lines = [f"# {name}: torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}, "
             f"peft {peft.__version__}, seed {seed}", f"base {BASES[base]}"]
    for prompt, tokens in zip(PROMPTS, runs):
        lines.append("prompt " + " ".join(map(str, prompt)))
        lines.append("tokens " + " ".join(f"{token}:{logprob:.7f}" for token, logprob in tokens))
    (OUT / f"{name}.txt").write_text("\n".join(lines) + "\n")
    print(f"{name}: seed {seed}", flush=True)


def main():
    torch.set_num_threads(1)
    OUT.mkdir(exist_ok=True)
    names = [f"{base}-{rank}" for base in BASES for rank in RANKS.get(base, [1, 8, 64])]
    for name in sys.argv[1:] or names:
        make(name)


if __name__ == "__main__":
    main()
