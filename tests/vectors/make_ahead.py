"""Makes tests/vectors/ahead/: tiny random checkpoints with a layer that guesses ahead (MTP), and what it guesses.

Run it again only when a family is added or a shape changes; it needs no GPU and the packages of make_families.py:

    /tmp/oracle/bin/python tests/vectors/make_ahead.py [--out FOLDER] [--seed N] [NAME ...]

For each name there is a folder in the form of Hugging Face's hub, and NAME.txt; for some also NAME.gguf. transformers has no forward pass of
such layers, so they are computed here, from vLLM's formulas, with transformers' module for the layer itself:

    h[p]    the output of the model's last norm
    row p   layer(eh_proj(cat(norm(embedding(token p + 1)), norm(h[p])))), which attends to rows 0..p
    guess   argmax(head(norm(row p))), of token p + 2
    the next guess: row p + 1, of (the guess, row p), or of (the guess, norm(row p)) for Qwen

NAME.txt has two prompts. For each: "prompt" with its ids, "tokens" with 20 greedy tokens of the model, and a line
"guesses" for each of these: three guesses after it, id:logprob. Seeds are selected so that no guess is nearly tied.
"""

import shutil

import family_models
import gguf
import make_families
import make_folders
import safetensors.torch
import torch
from make_families import MIN_GAP, PROMPTS, randomise
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3DecoderLayer
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeDecoderLayer
from transformers.models.glm4_moe_lite.modeling_glm4_moe_lite import Glm4MoeLiteDecoderLayer
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5DecoderLayer
from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import Qwen3_5MoeDecoderLayer
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextDecoderLayer

N_TOKENS, N_GUESSES = 20, 3


class Ahead(torch.nn.Module):
    """A layer that guesses ahead, with gains as the folder stores them."""

    def __init__(self, model, layer, adds_one):
        super().__init__()
        self.config, self.adds_one = model.config, adds_one
        K = model.config.hidden_size
        self.enorm, self.hnorm, self.norm = (torch.nn.Parameter(torch.ones(K)) for _ in range(3))
        self.eh_proj = torch.nn.Parameter(torch.ones(K, 2 * K))
        self.layer = layer

    def gain(self, x, weight):
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config.rms_norm_eps)
        return x * (weight + 1 if self.adds_one else weight)

    def joined(self, model, token, hidden):
        both = torch.cat([self.gain(model.model.embed_tokens(token), self.enorm), self.gain(hidden, self.hnorm)], -1)
        return both @ self.eh_proj.T

    def rows(self, model, x):
        """The layer's output for rows x[n][K] of one sequence."""
        n = x.shape[0]
        places = torch.arange(n)[None]
        mask = torch.full((n, n), torch.finfo(torch.float32).min).triu(1)[None, None]
        out = self.layer(x[None], attention_mask=mask, position_ids=places, position_embeddings=model.model.rotary_emb(x[None], places))
        return (out[0] if isinstance(out, tuple) else out)[0]


def guesses(model, ahead, ids, h, normed):
    """Three guesses after the tokens ids, of which h has the hidden vectors but the last one's. None: nearly tied."""
    x = ahead.joined(model, torch.tensor(ids[1:]), h)
    found = []
    for _ in range(N_GUESSES):
        row = ahead.rows(model, x)[-1]
        last = ahead.gain(row, ahead.norm)
        logits = model.lm_head(last).double()
        best = torch.topk(logits, 2)
        if best.values[0] - best.values[1] < MIN_GAP:
            return None
        token = best.indices[0].item()
        found.append((token, torch.log_softmax(logits, 0)[token].item()))
        x = torch.cat([x, ahead.joined(model, torch.tensor([token]), (last if normed else row)[None])])
    return found


def run(model, ahead, prompt, normed):
    ids, all_guesses = list(prompt), []
    with torch.no_grad():
        for _ in range(N_TOKENS):
            h = model.model(torch.tensor([ids]), use_cache=False).last_hidden_state[0]
            best = torch.topk(model.lm_head(h[-1]).double(), 2)
            if best.values[0] - best.values[1] < MIN_GAP:
                return None
            ids.append(best.indices[0].item())
            found = guesses(model, ahead, ids, h, normed)
            if not found:
                return None
            all_guesses.append(found)
    return ids[len(prompt):], all_guesses


# ---- names --------------------------------------------------------------------------------------------------

def layer_tensors(layer):
    """The tensors of a layer by the names of published folders, which have one matrix per expert."""
    out = {}
    for name, data in {**dict(layer.named_parameters()), **dict(layer.named_buffers())}.items():
        if name.endswith("experts.gate_up_proj"):
            for i, both in enumerate(data):
                stem = name.removesuffix("gate_up_proj")
                out[f"{stem}{i}.gate_proj.weight"], out[f"{stem}{i}.up_proj.weight"] = both.chunk(2)
        elif name.endswith("experts.down_proj"):
            for i, one in enumerate(data):
                out[f"{name.removesuffix('down_proj')}{i}.down_proj.weight"] = one
        else:
            out[name] = data
    return out


def numbered(model, ahead):
    """As DeepSeek and GLM: a layer after the last one, with copies of the embedding and the head."""
    stem = f"model.layers.{model.config.num_hidden_layers}."
    own = {"enorm.weight": ahead.enorm, "hnorm.weight": ahead.hnorm, "eh_proj.weight": ahead.eh_proj,
           "shared_head.norm.weight": ahead.norm, "shared_head.head.weight": model.lm_head.weight,
           "embed_tokens.weight": model.model.embed_tokens.weight}
    return {stem + name: data for name, data in {**own, **layer_tensors(ahead.layer)}.items()}


def named(model, ahead):
    """As Qwen."""
    own = {"mtp.fc.weight": ahead.eh_proj, "mtp.pre_fc_norm_embedding.weight": ahead.enorm,
           "mtp.pre_fc_norm_hidden.weight": ahead.hnorm, "mtp.norm.weight": ahead.norm}
    return {**own, **{"mtp.layers.0." + name: data for name, data in layer_tensors(ahead.layer).items()}}


# ---- the GGUF file ------------------------------------------------------------------------------------------

class Whole:
    """The model and the layer, as make_families.py writes tensors."""

    def __init__(self, model, ahead):
        self.model, self.ahead, self.config = model, ahead, model.config
        self.stem = f"model.layers.{model.config.num_hidden_layers}."

    def named_parameters(self):
        return [*self.model.named_parameters(), *((self.stem + name, p) for name, p in self.ahead.layer.named_parameters())]

    def named_buffers(self):
        return [*self.model.named_buffers(), *((self.stem + name, b) for name, b in self.ahead.layer.named_buffers())]


def write_gguf(path, family, model, ahead):
    """In the form of llama.cpp's converter: the layer is one of the blocks, and a key counts such layers."""
    L, whole = model.config.num_hidden_layers, Whole(model, ahead)
    types = getattr(model.config, "layer_types", None)
    architecture = make_families.ARCHITECTURES.get(family, family)
    writer = gguf.GGUFWriter(path, architecture)
    model.config.num_hidden_layers = L + 1
    if types:
        model.config.layer_types = [*types, "full_attention"]
    make_families.add_keys(writer, family, model.config)
    model.config.num_hidden_layers = L
    if types:
        model.config.layer_types = types
    writer.add_uint32(f"{architecture}.nextn_predict_layers", 1)
    make_families.add_byte_bpe(writer, "qwen2")
    make_families.add_tensors(writer, family, whole)
    make_families.add_corrections(writer, whole)
    own = {"eh_proj": ahead.eh_proj, "enorm": ahead.enorm, "hnorm": ahead.hnorm, "shared_head_norm": ahead.norm,
           "shared_head_head": model.lm_head.weight, "embed_tokens": model.model.embed_tokens.weight}
    for name, data in own.items():
        gain = 1 if ahead.adds_one and name.endswith("norm") else 0
        writer.add_tensor(f"blk.{L}.nextn.{name}.weight", (data.detach() + gain).contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ---- models -------------------------------------------------------------------------------------------------

def glm4moe_layer(config):
    return Glm4MoeDecoderLayer(config, config.num_hidden_layers)


def deepseek_layer(config):
    return DeepseekV3DecoderLayer(config, config.num_hidden_layers)


def glm_lite_layer(config):
    return Glm4MoeLiteDecoderLayer(config, config.num_hidden_layers - 1)  # with experts


def qwen3_5_moe_layer(config):
    return Qwen3_5MoeDecoderLayer(config, config.layer_types.index("full_attention"))


def qwen3_5_layer(config):
    return Qwen3_5DecoderLayer(config, config.layer_types.index("full_attention"))


def qwen3_next_layer(config):
    return Qwen3NextDecoderLayer(config, config.layer_types.index("full_attention"))


# of these also a GGUF file
FILES = ("glm4moe", "qwen3_5", "deepseek_v3")

# name: (model, its layer, names, keys of config.json, continues from the norm)
FOLDERS = {
    "glm4moe": (make_folders.glm4moe, glm4moe_layer, numbered, {"num_nextn_predict_layers": 1}, False),
    "deepseek_v3": (family_models.deepseek_v3, deepseek_layer, numbered,
                    {"num_nextn_predict_layers": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc"}, False),
    "glm4_moe_lite": (family_models.glm4_moe_lite, glm_lite_layer, numbered, {"num_nextn_predict_layers": 1}, False),
    "qwen3_5_moe": (family_models.qwen3_5_moe, qwen3_5_moe_layer, named, {"mtp_num_hidden_layers": 1}, True),
    "qwen3_next": (family_models.qwen3_next, qwen3_next_layer, named, {}, True),
    "qwen3_5": (family_models.qwen3_5, qwen3_5_layer, named, {"mtp_num_hidden_layers": 1}, True),
}


def rounded(model):
    """The weights as the folder stores them, in bfloat16."""
    for data in [*model.parameters(), *model.buffers()]:
        if data.is_floating_point():
            data.data = data.data.bfloat16().float()
    return model


def draw(name, seed):
    make, make_layer, _, _, normed = FOLDERS[name]
    model = rounded(randomise(make(), seed))
    layer = make_layer(model.config)
    ahead = rounded(randomise(Ahead(model, layer, adds_one=normed), seed + 1))
    runs = []
    for prompt in PROMPTS:
        runs.append(run(model, ahead, prompt, normed))
        if not runs[-1]:
            return None
    return model, ahead, runs


def write_results(path, name, runs, seed):
    lines = [f"# {name}: torch {torch.__version__.split('+')[0]}, seed {seed}"]
    for prompt, (tokens, found) in zip(PROMPTS, runs):
        lines += ["prompt " + " ".join(map(str, prompt)), "tokens " + " ".join(map(str, tokens))]
        lines += ["guesses " + " ".join(f"{token}:{logprob:.6f}" for token, logprob in one) for one in found]
    path.write_text("\n".join(lines) + "\n")


def write_folder(out, name):
    seed = make_families.FIRST_SEED
    while not (drawn := draw(name, seed)):
        seed += 2
    model, ahead, runs = drawn
    _, _, names, keys, _ = FOLDERS[name]
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if name in FILES:
        write_gguf(out / f"{name}.gguf", name, model, ahead)
    model.to(torch.bfloat16).save_pretrained(folder)
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    tensors |= {name: data.detach().bfloat16().clone().contiguous() for name, data in names(model, ahead).items()}
    safetensors.torch.save_file(tensors, path, {"format": "pt"})
    make_folders.edit_json(folder / "config.json", lambda config: config.update(keys))
    make_folders.write_tokenizer(folder)
    write_results(out / f"{name}.txt", name, runs, seed)
    for file in folder.iterdir():
        file.chmod(0o644)
    print(f"{name}: seed {seed}, {sum(file.stat().st_size for file in folder.iterdir())} bytes", flush=True)


def main():
    names, out = make_families.begin(FOLDERS, "ahead")
    for name in names:
        write_folder(out, name)


if __name__ == "__main__":
    main()
