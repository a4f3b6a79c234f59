"""Makes the EAGLE-3 heads in tests/vectors/ahead/: tiny random models, a small trained head for each, and what it guesses.

Run it again only when a shape changes; it needs no GPU and the packages of make_families.py:

    /tmp/oracle/bin/python tests/vectors/make_eagle.py [--out FOLDER] [--seed N] [NAME ...]

For each name there is the model's folder NAME, the head's folder NAME_head, and NAME.txt in the form of make_ahead.py. transformers has no such
heads. So they are computed here in float32, by the formulas of the paper (Li et al. 2025, "EAGLE-3") as vLLM's llama_eagle3.py has them:

    h[p]    fc(cat(three vectors of the model's stream at p)); vector i is the input of layer i
    row p   x = cat(input_layernorm(embedding(token p + 1)), hidden_norm(h[p])), position p
            s = h[p] + o(attention(q, k, v of x)), over rows 0..p; with norm_before_residual hidden_norm(h[p]) + ..
            s = s + mlp(post_attention_layernorm(s))
    guess   id + d2t[id] of id = argmax(lm_head(norm(s))), of token p + 2
    the next guess: row p + 1, of (the guess, s in place of h)

A head is trained for a few steps on texts of its model, so that some guesses are right. Then its weights are rounded to bfloat16.
"""

import json
import math
import shutil

import make_ahead
import make_families
import make_folders
import safetensors.torch
import torch
import transformers
from family_models import SMALL, V
from make_ahead import N_GUESSES, N_TOKENS, rounded
from make_families import MIN_GAP, PROMPTS, randomise
from torch.nn import functional

N_TEXTS, N_STEPS, N_TRIES = 24, 150, 40


class Head(torch.nn.Module):
    def __init__(self, K, c):
        super().__init__()
        self.c, self.K = c, K
        q, kv, F = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"], c["intermediate_size"]
        shapes = {"fc.weight": (K, 3 * K), "midlayer.self_attn.q_proj.weight": (q, 2 * K), "midlayer.self_attn.k_proj.weight": (kv, 2 * K),
                  "midlayer.self_attn.v_proj.weight": (kv, 2 * K), "midlayer.self_attn.o_proj.weight": (K, q),
                  "midlayer.mlp.gate_proj.weight": (F, K), "midlayer.mlp.up_proj.weight": (F, K), "midlayer.mlp.down_proj.weight": (K, F),
                  "lm_head.weight": (c["draft_vocab_size"], K), "midlayer.input_layernorm.weight": (K,), "midlayer.hidden_norm.weight": (K,),
                  "midlayer.post_attention_layernorm.weight": (K,), "norm.weight": (K,)}
        self.w = torch.nn.ParameterDict({name.replace(".", "/"): torch.nn.Parameter(torch.empty(shape)) for name, shape in shapes.items()})

    def __getitem__(self, name):
        return self.w[name.replace(".", "/") + "/weight"]

    def draw(self, seed):
        draw = torch.Generator().manual_seed(seed)
        for _, p in sorted(self.w.items()):
            u = torch.rand(p.shape, generator=draw) * 2 - 1
            p.data = u * math.sqrt(3 / p.shape[1]) if p.dim() == 2 else u * 0.5 + 1
        return self

    def gain(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.c["rms_norm_eps"]) * self[name]

    def rotated(self, x):
        """x[..][n][heads][D], row p at position p; the halves of a head are the pairs."""
        n, _, D = x.shape[-3:]
        angle = torch.arange(n)[:, None] * self.c["rope_theta"] ** (-torch.arange(0, D, 2) / D)
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def rows(self, embedded, h):
        """The streams after the layer, of the rows of sequences, [..][n][K]."""
        H, G, D, n = self.c["num_attention_heads"], self.c["num_key_value_heads"], self.c["head_dim"], h.shape[-2]
        normed = self.gain(h, "midlayer.hidden_norm")
        x = torch.cat([self.gain(embedded, "midlayer.input_layernorm"), normed], -1)
        q, k, v = (functional.linear(x, self[f"midlayer.self_attn.{i}_proj"]).unflatten(-1, (-1, D)) for i in "qkv")
        q, k = self.rotated(q), self.rotated(k)
        k, v = (i.repeat_interleave(H // G, -2) for i in (k, v))
        scores = torch.einsum("...qhd,...khd->...hqk", q, k) / math.sqrt(D)
        scores = scores + torch.full((n, n), -math.inf).triu(1)
        mixed = torch.einsum("...hqk,...khd->...qhd", scores.softmax(-1), v).flatten(-2)
        s = (normed if self.c.get("norm_before_residual") else h) + functional.linear(mixed, self["midlayer.self_attn.o_proj"])
        y = self.gain(s, "midlayer.post_attention_layernorm")
        up = functional.silu(functional.linear(y, self["midlayer.mlp.gate_proj"])) * functional.linear(y, self["midlayer.mlp.up_proj"])
        return s + functional.linear(up, self["midlayer.mlp.down_proj"])

    def logits(self, s):
        return functional.linear(self.gain(s, "norm"), self["lm_head"])


class Drafter:
    """A model, its head, and the ids of the head's tokens."""

    def __init__(self, model, head, taps, ids, embedding):
        self.model, self.head, self.taps, self.ids, self.embedding = model, head, taps, ids, embedding

    def embed(self, tokens):
        return functional.embedding(torch.tensor(tokens), self.embedding)

    def streams(self, tokens):
        """Three vectors beside each other for each token, and the logits of the last one."""
        with torch.no_grad():
            out = self.model(torch.tensor([tokens]), use_cache=False, output_hidden_states=True)
        return torch.cat([out.hidden_states[i][0] for i in self.taps], -1), out.logits[0, -1].double()

    def guesses(self, tokens, streams):
        """Three guesses after the tokens, of which all but the last one have streams. None: nearly tied."""
        h, embedded, found = functional.linear(streams, self.head["fc"]), self.embed(tokens[1:]), []
        for _ in range(N_GUESSES):
            s = self.head.rows(embedded, h)[-1]
            logits = self.head.logits(s).double()
            best = torch.topk(logits, 2)
            if best.values[0] - best.values[1] < MIN_GAP:
                return None
            i = best.indices[0].item()
            found.append((self.ids[i].item(), torch.log_softmax(logits, 0)[i].item()))
            h, embedded = torch.cat([h, s[None]]), torch.cat([embedded, self.embed([found[-1][0]])])
        return found

    def is_clear(self, prompt):
        """Is none of the model's own tokens nearly tied?"""
        tokens = list(prompt)
        for _ in range(N_TOKENS):
            best = torch.topk(self.streams(tokens)[1], 2)
            tokens.append(best.indices[0].item())
            if best.values[0] - best.values[1] < MIN_GAP:
                return False
        return True

    def run(self, prompt):
        tokens, found = list(prompt), []
        with torch.no_grad():
            for _ in range(N_TOKENS):
                streams, logits = self.streams(tokens)
                best = torch.topk(logits, 2)
                if best.values[0] - best.values[1] < MIN_GAP:
                    return None
                tokens.append(best.indices[0].item())
                found.append(self.guesses(tokens, streams))
                if not found[-1]:
                    return None
        return tokens[len(prompt):], found

    def texts(self, seed):
        """Greedy texts of the model in groups of equal length: embeddings, streams, and the head's ids of the tokens that row p should guess."""
        draw = torch.Generator().manual_seed(seed)
        place = torch.full((V,), -100)
        place[self.ids] = torch.arange(len(self.ids))
        groups = []
        for start in ([PROMPTS[0]], [PROMPTS[1]], torch.randint(0, V, (N_TEXTS, 6), generator=draw).tolist()):
            text = torch.tensor(start)
            with torch.no_grad():
                for _ in range(N_TOKENS + 4):
                    out = self.model(text, use_cache=False, output_hidden_states=True)
                    text = torch.cat([text, out.logits[:, -1].argmax(-1, keepdim=True)], 1)
            streams = torch.cat([out.hidden_states[i] for i in self.taps], -1)[:, :text.shape[1] - 2]
            groups.append((functional.embedding(text[:, 1:-1], self.embedding), streams, place[text[:, 2:]]))
        return groups

    def train(self, groups, n_steps):
        """Steps of Adam: row p should guess token p + 2."""
        optimizer = torch.optim.Adam(self.head.parameters(), lr=4e-3)
        for _ in range(n_steps):
            logits = [self.head.logits(self.head.rows(e, functional.linear(s, self.head["fc"]))).flatten(0, 1) for e, s, _ in groups]
            loss = functional.cross_entropy(torch.cat(logits), torch.cat([wanted.flatten() for _, _, wanted in groups]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        rounded(self.head)
        return loss.item()


# ---- the models ---------------------------------------------------------------------------------------------

def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        num_hidden_layers=6, rms_norm_eps=1e-5, tie_word_embeddings=False, rope_theta=5e5, **SMALL))


def qwen3():
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(
        num_hidden_layers=5, rms_norm_eps=1e-6, head_dim=12, tie_word_embeddings=True, rope_theta=1e6, **SMALL))


# As the authors' heads: the default layers and rotation, the model's embedding, few tokens
LLAMA = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 32, "intermediate_size": 40,
         "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "vocab_size": V,
         "draft_vocab_size": 150, "max_position_embeddings": 96, "torch_dtype": "bfloat16"}
# Other heads than the model's, its own embedding, all tokens, and the layers that it reads
QWEN3 = {**LLAMA, "architectures": ["Eagle3LlamaForCausalLM"], "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 8,
         "intermediate_size": 56, "rms_norm_eps": 1e-6, "rope_theta": 1e4 * 7, "draft_vocab_size": V, "norm_before_residual": True,
         "attention_bias": False, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [3, 0, 1], "use_aux_hidden_state": True}}

# name: (model, config of the head, vectors that it reads, names of its layer, it has an embedding)
HEADS = {"eagle_llama": (llama, LLAMA, (2, 3, 3), "midlayer.", False),
         "eagle_qwen3": (qwen3, QWEN3, (4, 1, 2), "model.layers.0.", True)}


def draw(name, seed):
    make, config, taps, _, has_embedding = HEADS[name]
    model = rounded(randomise(make(), seed))
    c = {"head_dim": config["hidden_size"] // config["num_attention_heads"], "rope_theta": 1e4, **config}
    few = torch.Generator().manual_seed(seed)
    ids = torch.randperm(V, generator=few)[:c["draft_vocab_size"]].sort().values
    embedding = model.model.embed_tokens.weight.detach()
    if has_embedding:
        embedding = (embedding + 0.1 * torch.randn(embedding.shape, generator=few)).bfloat16().float()
    drafter = Drafter(model, Head(config["hidden_size"], c).draw(seed + 1), taps, ids, embedding)
    if not all(drafter.is_clear(prompt) for prompt in PROMPTS):
        return None
    groups = drafter.texts(seed)
    loss = drafter.train(groups, N_STEPS)
    for _ in range(N_TRIES):  # a few more steps change the guesses that are nearly tied
        runs = [drafter.run(prompt) for prompt in PROMPTS]
        if all(runs):
            print(f"{name}: seed {seed}, loss {loss:.3f}", flush=True)
            return drafter, runs
        loss = drafter.train(groups, 3)
    return None


def write_head(folder, name, drafter):
    _, config, _, layer, has_embedding = HEADS[name]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    stem = "model." if layer.startswith("model.") else ""
    tensors = {}
    for key, data in drafter.head.w.items():
        key = key.replace("/", ".")
        own = layer + key.removeprefix("midlayer.") if key.startswith("midlayer.") else key if key.startswith("lm_head") else stem + key
        tensors[own] = data.detach().bfloat16().contiguous()
    if has_embedding:
        tensors[stem + "embed_tokens.weight"] = drafter.embedding.bfloat16()
    if len(drafter.ids) < V:
        tensors["d2t"] = drafter.ids - torch.arange(len(drafter.ids))
        tensors["t2d"] = torch.isin(torch.arange(V), drafter.ids)
    safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def main():
    torch.set_num_threads(1)
    names, out = make_families.begin(HEADS, "ahead")
    for name in names:
        seed = make_families.FIRST_SEED
        while not (drawn := draw(name, seed)):
            seed += 2
        drafter, runs = drawn
        write_head(out / f"{name}_head", name, drafter)
        folder = out / name
        shutil.rmtree(folder, ignore_errors=True)
        drafter.model.to(torch.bfloat16).save_pretrained(folder)
        make_folders.write_tokenizer(folder)
        make_ahead.write_results(out / f"{name}.txt", name, runs, seed)
        for file in [*folder.iterdir(), *(out / f"{name}_head").iterdir()]:
            file.chmod(0o644)
        right = [found[0][0] == token for tokens, all_found in runs for found, token in zip(all_found, tokens[1:])]
        print(f"{name}: {sum(right)} of {len(right)} first guesses are right")


if __name__ == "__main__":
    main()
