"""Makes tests/vectors/families/: a tiny random model of each family, and the results of transformers with it.

Run it again only when a family is added or a shape changes; it needs no GPU:

    python3 -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch==2.15.0 transformers==5.23.0 gguf==0.19.0
    /tmp/oracle/bin/python tests/vectors/make_families.py [--out FOLDER] [--seed N] [FAMILY ...]

For each family there are two files. FAMILY.gguf holds the weights in float32, in the layout of llama.cpp's converter,
and a small vocabulary. FAMILY.txt holds two prompts; for each the line "prompt" with its ids and the line "tokens" with
32 greedy tokens as id:logprob, computed by transformers in float32 on the CPU with eager attention. Gains and biases
are far from 1 and 0, so that a missing one is found. Seeds are selected so that greedy tokens are never nearly tied.
"""

import argparse
import math
import pathlib

import gguf
import family_models
import kimi_files
import newer_models
import space_files
import torch
import transformers
from delta_files import add_qkvz, delta_tensor
from family_models import CONTEXT, SHORT_CONTEXT, V
from latent_files import add_latent_keys, add_latent_matrices

OUT = pathlib.Path(__file__).resolve().parent / "families"
FAMILIES = {**family_models.FAMILIES, **newer_models.FAMILIES}
N_GREEDY = 32
PROMPTS = [[7], [(i * 37 + 11) % V for i in range(40)]]
FIRST_SEED = 0
CORRECTIONS = ("e_score_correction_bias", "expert_bias")
MIN_GAP = 0.005  # between the best and the second best logit
MERGES = ["t h", "th e", "\u0120 the", "i n", "a n", "an d", "\u0120 a", "e r", "o n", "r e", "l l", "e ll"]


# ---- weights ------------------------------------------------------------------------------------------------

def has_plus_one(kind):
    """Do the norms of the models of this type or family add 1 to their gains?"""
    return "gemma" in kind and "gemma4" not in kind or kind == "nemotron" or has_delta(kind)


def has_delta(kind):
    """Do the models of this type or family have gated delta rules?"""
    return "qwen3_5" in kind or "qwen3_next" in kind


def randomise(model, seed):
    """Matrices whose products with unit inputs have about unit size; gains 0.5 to 1.5, or -0.5 to 0.5 if the model adds
    1; biases up to 0.5. Experts of gpt_oss are larger, so that its clamps are reached."""
    draw = torch.Generator().manual_seed(seed)
    adds_one = has_plus_one(model.config.model_type)
    scales = "gemma" in model.config.model_type or model.config.model_type == "afmoe"
    is_clamped = model.config.model_type == "gpt_oss"
    for name, p in sorted(model.named_parameters()):
        u = torch.rand(p.shape, generator=draw) * 2 - 1
        if p.dim() == 3:  # experts, each [out][in], or [in][out]
            p.data = u * math.sqrt(3 / p.shape[1 if is_clamped else 2]) * (4 if is_clamped and "gate" in name else 1.5)
        elif name.endswith("moe_statics.e_score_correction_bias"):
            p.data = u * 0.1
        elif p.dim() == 2 and name.endswith("bias"):
            p.data = u * 0.5
        elif p.dim() == 2:
            # GPT-2 stores its matrices as [in][out]; in other models the last axis is the inputs
            inputs = p.shape[0] if ".c_" in name else p.shape[1]
            # a large embedding that is scaled and tied to the head would only repeat the last token
            p.data = u * math.sqrt(3 / inputs) * (0.5 if scales and "embed" in name else 1.5)
        elif name.endswith("bias") or ".act_fn." in name:
            p.data = u * 0.5
        elif name.endswith("A_log"):
            p.data = u * 1.5 - 1.5  # states that fade slowly, and some that do not
        elif name.endswith("linear_attn.norm.weight"):
            p.data = u * 0.5 + 1
        else:
            p.data = u * 0.5 + (0 if adds_one else 1)
    for name, b in sorted(model.named_buffers()):
        if name.endswith("expert_bias"):
            b.data = ((torch.rand(b.shape, generator=draw) * 2 - 1) * 0.3).bfloat16().float()
        if name.endswith("e_score_correction_bias"):
            b.data = (torch.rand(b.shape, generator=draw) * 2 - 1) * 0.3
            if model.config.model_type == "kimi_linear":  # exact in folders of bfloat16
                b.data = b.data.bfloat16().float()
        if name.endswith("act_fn.beta"):
            b.data = (torch.rand(b.shape, generator=draw) + 0.25).bfloat16().float()
        if name.endswith("layer_scalar"):
            b.data = (torch.rand(b.shape, generator=draw) + 0.5).bfloat16().float()  # exact in folders of bfloat16, too
    return model.float().eval()


# ---- golden vectors -----------------------------------------------------------------------------------------

def text_config(model):
    return getattr(model.config, "text_config", model.config)


def greedy(model, prompt):
    """Returns tokens with their logprobs; None as soon as a token or a choice of experts is nearly tied."""
    ids, tokens = list(prompt), []
    scores = router_scores(model)
    c = text_config(model)
    has_experts = hasattr(c, "num_experts_per_tok") and getattr(c, "num_local_experts", 1) > 0 and c.model_type != "nemotron_h"
    routed = {"output_router_logits": True} if has_experts else {}
    with torch.no_grad():
        for _ in range(N_GREEDY):
            out = model(torch.tensor([ids]), use_cache=False, **routed)
            row = out.logits[0, -1].double()
            if routed and tied_rule(model)(out.router_logits, model):
                return None
            if scores and last_chosen_tied(torch.cat(scores), model.config.top_k_experts):
                return None
            best = torch.topk(row, 2)
            if best.values[0] - best.values[1] < MIN_GAP:
                return None
            token = best.indices[0].item()
            tokens.append((token, torch.log_softmax(row, 0)[token].item()))
            ids.append(token)
    return tokens


def router_scores(model):
    """Returns a list that receives the router scores of Gemma 4, which its models do not return."""
    scores = []
    for module in model.modules():
        if type(module).__name__ == "Gemma4TextRouter":
            module.register_forward_hook(lambda module, given, made: scores.append(made[0]))
    return scores


def last_chosen_tied(scores, used):
    best = scores.topk(min(used + 1, scores.shape[1])).values
    return used < scores.shape[1] and (best[:, used - 1] - best[:, used]).min() < 1e-4


def experts_tied(router_logits, model):
    """Are the last chosen expert and the first one left out nearly tied in any row?"""
    c = text_config(model)
    if c.model_type == "deepseek_v2":
        return groups_tied(torch.cat(router_logits).softmax(-1), c)
    return last_chosen_tied(torch.cat(router_logits).float(), c.num_experts_per_tok)


def softmax_corrections(model):
    return [p for name, p in model.named_parameters() if name.endswith("e_score_correction_bias")]


def softmaxes_tied(router_logits, model):
    """The same for softmaxes with a correction."""
    scores = [logits.softmax(-1) + correction for logits, correction in zip(router_logits, softmax_corrections(model))]
    return last_chosen_tied(torch.cat(scores), model.config.num_experts_per_tok)


def tied_rule(model):
    if softmax_corrections(model):
        return softmaxes_tied
    return sigmoids_tied if corrections(model) else experts_tied


def named_corrections(model):
    """Returns buffers, and the parameters of AFMoE."""
    return [(name, b) for name, b in model.named_buffers() if name.endswith(CORRECTIONS)] + [
        (name, p) for name, p in model.named_parameters() if name.endswith(".expert_bias")]


def corrections(model):
    return [correction for _, correction in named_corrections(model)]


def sigmoids_tied(router_logits, model):
    """The same for groups, and for the experts in the chosen ones."""
    c = model.config
    scores = torch.cat([logits.sigmoid() + correction for logits, correction in zip(router_logits, corrections(model))])
    return groups_tied(scores, c)


def groups_tied(scores, c):
    """Are groups, or the experts in the chosen groups, nearly tied? A group of a softmax ranks by its best expert."""
    groups = scores.unflatten(1, (getattr(c, "n_group", 1), -1))
    counted = 1 if c.model_type == "deepseek_v2" else min(2, groups.shape[-1])
    best, used = groups.topk(counted).values.sum(dim=-1), getattr(c, "topk_group", 1)
    dropped = best < best.topk(used).values[:, -1:]
    groups = groups.masked_fill(dropped.unsqueeze(-1), -1)
    return last_chosen_tied(best, used) or last_chosen_tied(groups.flatten(1), c.num_experts_per_tok)


def golden(make):
    """Finds the first suitable seed from FIRST_SEED; for granite one in some hundreds is."""
    for seed in range(FIRST_SEED, FIRST_SEED + 10000):
        model = randomise(make(), seed)
        runs = []
        for prompt in PROMPTS:
            tokens = greedy(model, prompt)
            if not tokens or len({token for token, _ in tokens}) < N_GREEDY // 4:
                break
            runs.append(tokens)
        if len(runs) == len(PROMPTS):
            return model, runs, seed
    raise SystemExit("every seed has tokens that are nearly tied, or goes round in circles")


def write_golden(path, family, runs, seed):
    lines = [f"# {family}: torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}, seed {seed}"]
    for prompt, tokens in zip(PROMPTS, runs):
        lines.append("prompt " + " ".join(map(str, prompt)))
        lines.append("tokens " + " ".join(f"{token}:{logprob:.7f}" for token, logprob in tokens))
    path.write_text("\n".join(lines) + "\n")


# ---- the vocabulary -----------------------------------------------------------------------------------------

def byte_letters():
    """GPT-2's alphabet: printable bytes are their own letters, the others are U+0100 and up, in order."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xa1, 0xad), *range(0xae, 0x100)]
    hidden = [b for b in range(256) if b not in shown]
    return [chr(b) if b in shown else chr(0x100 + hidden.index(b)) for b in range(256)]


def add_byte_bpe(writer, pre):
    tokens = byte_letters() + ["<|endoftext|>"] + [merge.replace(" ", "", 1) for merge in MERGES]
    types = [gguf.TokenType.NORMAL] * len(tokens)
    types[256] = gguf.TokenType.CONTROL
    unused = V - len(tokens)
    tokens += [f"[PAD{i}]" for i in range(unused)]
    types += [gguf.TokenType.UNUSED] * unused
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(256)
    writer.add_add_bos_token(False)


def add_sentencepiece(writer):
    words = ["\u2581the", "\u2581a", "th", "he", "in", "er", "on", "an"]
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{b:02X}>" for b in range(256)] + ["\u2581", *words, *letters][:V - 260]
    control, byte = gguf.TokenType.CONTROL, gguf.TokenType.BYTE
    types = [control, control, control, gguf.TokenType.UNKNOWN] + [byte] * 256 + [gguf.TokenType.NORMAL] * (V - 260)
    tokens += [f"[PAD{i}]" for i in range(V - len(tokens))]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * 260 + [-float(i) for i in range(V - 260)])
    writer.add_token_types(types)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)


def add_gemma4_vocabulary(writer):
    """BPE over characters, with U+2581 for a space, and bytes for characters without a token."""
    merges = ["\u2581 t", "\u2581t h", "\u2581th e", "i n", "a n", "\u2581 a", "e r", "o n", "\n \n"]
    letters = ["\u2581", "\n", *map(chr, range(ord("a"), ord("z") + 1))]
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{b:02X}>" for b in range(256)] + letters
    tokens += [merge.replace(" ", "", 1) for merge in merges]
    control, byte = gguf.TokenType.CONTROL, gguf.TokenType.BYTE
    types = [control, control, control, gguf.TokenType.UNKNOWN] + [byte] * 256
    types += [gguf.TokenType.NORMAL] * (len(tokens) - len(types))
    tokens, types = tokens + ["<|channel>"], types + [gguf.TokenType.USER_DEFINED]
    assert len(tokens) <= V
    types += [gguf.TokenType.UNUSED] * (V - len(tokens))
    tokens += [f"[PAD{i}]" for i in range(V - len(tokens))]
    writer.add_tokenizer_model("gemma4")
    writer.add_token_list(tokens)
    writer.add_token_scores([-1000.0] * V)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)


# ---- the GGUF file ------------------------------------------------------------------------------------------

# Endings of transformers' names in a layer, and their names in GGUF; ".weight" and ".bias" stay.
LLAMA_LIKE = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up",
}
MOE = {**LLAMA_LIKE, "mlp.gate": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
       **{f"mlp.shared_expert.{kind}_proj": f"ffn_{kind}_shexp" for kind in ("gate", "up", "down")}}
NAMES = {
    "qwen2": LLAMA_LIKE,
    "qwen3": LLAMA_LIKE,
    "gemma": LLAMA_LIKE,
    "phi3": LLAMA_LIKE,
    "smollm3": LLAMA_LIKE,
    "granite": LLAMA_LIKE,
    "olmo2": {**LLAMA_LIKE, "post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"},
    "mixtral": MOE,
    "qwen2moe": MOE,
    "qwen3moe": MOE,
    "olmoe": MOE,
    "granitemoe": {**MOE, "block_sparse_moe.router": "ffn_gate_inp"},
    "gpt2": {"ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm",
             "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
    "gemma2": {**LLAMA_LIKE, "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"},
}
NAMES["glm4"] = {**LLAMA_LIKE, "post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"}
NAMES["starcoder2"] = {**LLAMA_LIKE, "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
NAMES.update(arcee=LLAMA_LIKE, nemotron=LLAMA_LIKE, jais2=LLAMA_LIKE)
NAMES["hunyuan"] = {**LLAMA_LIKE, "self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm"}
NAMES["hunyuan_moe"] = {**MOE, **NAMES["hunyuan"], "mlp.gate.wg": "ffn_gate_inp",
                        **{f"mlp.shared_mlp.{kind}_proj": f"ffn_{kind}_shexp" for kind in ("gate", "up", "down")}}
NAMES["afmoe"] = {**NAMES["olmo2"], **{f"mlp.shared_experts.{kind}_proj": f"ffn_{kind}_shexp" for kind in ("gate", "up", "down")},
                  "pre_mlp_layernorm": "ffn_norm", "post_mlp_layernorm": "post_ffw_norm", "mlp.router.gate": "ffn_gate_inp",
                  "self_attn.gate_proj": "attn_gate"}
NAMES["apertus"] = {**LLAMA_LIKE, "attention_layernorm": "attn_norm", "feedforward_layernorm": "ffn_norm"}
NAMES["ernie4_5_moe"] = {**MOE, **{f"mlp.shared_experts.{kind}_proj": f"ffn_{kind}_shexp" for kind in ("gate", "up", "down")}}
NAMES.update(ernie4_5=LLAMA_LIKE, mistral3=LLAMA_LIKE, stablelm=LLAMA_LIKE, stablelm_12b=LLAMA_LIKE, cohere2=LLAMA_LIKE, exaone4=NAMES["olmo2"])
NAMES.update(olmo3=NAMES["olmo2"], gemma3=NAMES["gemma2"], phi3_long=LLAMA_LIKE, phi3_short=LLAMA_LIKE)
NAMES["gpt_oss"] = {**MOE, "post_attention_layernorm": "post_attention_norm", "mlp.router": "ffn_gate_inp"}
NAMES["seed_oss"] = {**LLAMA_LIKE, "post_attention_layernorm": "post_attention_norm"}
NAMES["glm4moe"] = {**MOE, "post_attention_layernorm": "post_attention_norm",
                    **{f"mlp.shared_experts.{kind}_proj": f"ffn_{kind}_shexp" for kind in ("gate", "up", "down")}}
NAMES["dots1"] = NAMES["exaone_moe"] = {**NAMES["glm4moe"], "post_attention_layernorm": "ffn_norm"}
ARCHITECTURES = {"gpt_oss": "gpt-oss", "olmo3": "olmo2", "phi3_long": "phi3", "phi3_short": "phi3", "mixtral": "llama",
                 "stablelm_12b": "stablelm", "hunyuan": "hunyuan-dense",
                 "ernie4_5_moe": "ernie4_5-moe"}  # families with another name in GGUF
EXPERTS = ("gpt_oss", "glm4moe", "mixtral", "qwen2moe", "qwen3moe", "olmoe", "granitemoe", "qwen3_vl_moe")
GEMMA4 = {**NAMES["gemma2"], "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj",
          "post_per_layer_input_norm": "post_norm"}
NAMES.update(gemma4=GEMMA4, gemma4_large=GEMMA4)
NAMES["gemma4_moe"] = {**GEMMA4, "router": "ffn_gate_inp", "router.proj": "ffn_gate_inp", "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
                       "post_feedforward_layernorm_1": "post_ffw_norm_1", "post_feedforward_layernorm_2": "post_ffw_norm_2"}
ARCHITECTURES.update(gemma4_large="gemma4", gemma4_moe="gemma4")
NAMES.update(phi={**LLAMA_LIKE, "self_attn.dense": "attn_output", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}, glm=LLAMA_LIKE,
             command_r=LLAMA_LIKE, command_r_plus=LLAMA_LIKE, minimax_m2=MOE)
NAMES["granite4"] = NAMES["granite4_nope"] = {**LLAMA_LIKE, "shared_mlp.output_linear": "ffn_down"}
ARCHITECTURES.update(phi="phi2", glm="chatglm", command_r="command-r", command_r_plus="command-r", granite4="granitehybrid",
                     granite4_nope="granite", minimax_m2="minimax-m2")
NAMES.update(qwen2_5_vl=LLAMA_LIKE, qwen3_vl=LLAMA_LIKE, qwen3_vl_moe=MOE)
ARCHITECTURES.update(qwen2_5_vl="qwen2vl", qwen3_vl="qwen3vl", qwen3_vl_moe="qwen3vlmoe")
NAMES["lfm2"] = {**LLAMA_LIKE, "operator_norm": "attn_norm", "ffn_norm": "ffn_norm", "self_attn.out_proj": "attn_output",
                 "self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm", "feed_forward.w1": "ffn_gate",
                 "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down", "conv.conv": "shortconv.conv",
                 "conv.in_proj": "shortconv.in_proj", "conv.out_proj": "shortconv.out_proj"}
NAMES["lfm2_moe"] = {**NAMES["lfm2"], "feed_forward.gate": "ffn_gate_inp"}
ARCHITECTURES.update(lfm2_moe="lfm2moe", exaone_moe="exaone-moe", hunyuan_moe="hunyuan-moe")
DELTA = {**MOE, "post_attention_layernorm": "post_attention_norm", "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate",
         "linear_attn.in_proj_b": "ssm_beta", "linear_attn.in_proj_a": "ssm_alpha", "linear_attn.conv1d": "ssm_conv1d",
         "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out", "linear_attn.in_proj_ba": "ssm_ba"}
NAMES.update(qwen3_5=DELTA, qwen3_5_moe=DELTA, qwen3_next=DELTA)
ARCHITECTURES.update(qwen3_5="qwen35", qwen3_5_moe="qwen35moe", qwen3_next="qwen3next")
DEEPSEEK = {**NAMES["glm4moe"], "post_attention_layernorm": "ffn_norm", "self_attn.q_a_proj": "attn_q_a",
            "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
            "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b"}
LATENT = ("deepseek_v3", "deepseek_v2", "deepseek_v2_lite", "glm4_moe_lite")
NAMES.update({name: DEEPSEEK for name in LATENT})
ARCHITECTURES.update({name: "deepseek2" for name in LATENT})
NAMES["kimi_linear"] = {**DEEPSEEK, **kimi_files.NAMES}
ARCHITECTURES["kimi_linear"] = "kimi-linear"
LATENT += ("mistral4",)
NAMES["mistral4"] = DEEPSEEK
ARCHITECTURES.update(space_files.ARCHITECTURES)
NEOX = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "attention.query_key_value": "attn_qkv",
        "attention.dense": "attn_output", "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"}
FALCON = {**NEOX, "self_attention.query_key_value": "attn_qkv", "self_attention.dense": "attn_output", "ln_mlp": "attn_norm",
          "ln_attn": "attn_norm_2"}
NAMES.update(falcon=FALCON, falcon_40b=FALCON, gptneox=NEOX, gptneox_sequential=NEOX)
ARCHITECTURES.update(falcon_40b="falcon", gptneox_sequential="gptneox")
ENDS = {"embedding_norm": "token_embd_norm", "embed_tokens": "token_embd", "wte": "token_embd", "wpe": "position_embd", "norm": "output_norm",
        "ln_f": "output_norm", "final_layernorm": "output_norm", "final_layer_norm": "output_norm",
        "word_embeddings": "token_embd", "embed_in": "token_embd", "embed_out": "output", "lm_head": "output", "embed_tokens_per_layer": "per_layer_token_embd",
        "per_layer_model_projection": "per_layer_model_proj", "per_layer_projection_norm": "per_layer_proj_norm"}


def gguf_name(family, name):
    parts = name.removeprefix("model.").removeprefix("language_model.").removeprefix("transformer.").removeprefix("gpt_neox.").split(".")
    if parts[-1] == "sinks":
        return f"blk.{parts[1]}.attn_sinks.weight"
    if parts[-1] == "per_expert_scale":
        return f"blk.{parts[1]}.ffn_down_exps.scale"
    if parts[-1] in ("A_log", "dt_bias"):
        return f"blk.{parts[1]}." + {"A_log": "ssm_a", "dt_bias": "ssm_dt.bias"}[parts[-1]]
    kind = parts.pop()
    if parts[0] in ("layers", "h"):
        return f"blk.{parts[1]}.{NAMES[family]['.'.join(parts[2:])]}.{kind}"
    return f"{ENDS['.'.join(parts)]}.{kind}"


def adjacent(data, c):
    """Returns the rows of a head in the order in which llama.cpp rotates llama's: the two of a pair are adjacent."""
    D = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    heads = data.shape[0] // D
    return data.reshape(heads, 2, D // 2, data.shape[1]).swapaxes(1, 2).reshape(data.shape)


def key_heads(c):
    if hasattr(c, "new_decoder_architecture"):
        return c.num_kv_heads if c.new_decoder_architecture else 1
    return getattr(c, "num_key_value_heads", c.num_attention_heads)


def ungrouped(data, c):
    """Folders hold the rows of a key head together: its queries, its keys, its values. GGUF files hold all queries first."""
    groups = data.unflatten(0, (key_heads(c), -1, c.hidden_size // c.num_attention_heads))
    return torch.cat([part.flatten(0, 2) for part in (groups[:, :-2], groups[:, -2:-1], groups[:, -1:])])


def add_experts(writer, name, data):
    """transformers stores gate and up of all experts in one tensor; GGUF has one tensor each, except for Gemma 4."""
    parts = name.replace(".language_model", "").split(".")
    kinds = {"gate_up_proj": ("gate", "up"), "down_proj": ("down",)}[parts[-1]]
    if parts[3] == "experts":
        kinds = (parts[-1].removesuffix("_proj"),)
    for kind, part in zip(kinds, data.chunk(len(kinds), dim=1)):
        writer.add_tensor(f"blk.{parts[2]}.ffn_{kind}_exps.weight", part.contiguous().numpy())


def add_gpt_oss_experts(writer, name, data):
    """Columns of gate and up alternate, and so do their biases."""
    parts = name.split(".")
    kind, end = parts[-1].removesuffix("_bias"), "bias" if parts[-1].endswith("_bias") else "weight"
    rows = data.transpose(1, 2) if end == "weight" else data
    for i, to in enumerate({"gate_up_proj": ("gate", "up"), "down_proj": ("down",)}[kind]):
        part = rows[:, i::2] if kind == "gate_up_proj" else rows
        writer.add_tensor(f"blk.{parts[2]}.ffn_{to}_exps.{end}", part.contiguous().numpy())


def add_tensors(writer, family, model):
    for name, p in model.named_parameters():  # a tied head is not a separate parameter
        data = p.data
        if family in space_files.NAMES:
            space_files.add_space_tensor(writer, family, name, data, model.config)
            continue
        if family == "kimi_linear" and kimi_files.add_tensor(writer, name, data):
            continue
        if ".visual." in name:  # converters write a file of its own
            continue
        if ".experts." in name:
            (add_gpt_oss_experts if family == "gpt_oss" else add_experts)(writer, name, data)
            continue
        if "kv_b_proj" in name and family != "deepseek_v2":  # older files have both in one tensor
            add_latent_matrices(writer, name, data, model.config)
            continue
        if name.endswith("conv.conv.weight"):
            data = data.squeeze(1)
        if family == "gpt2" and ".c_" in name and data.dim() == 2:
            data = data.T
        if family == "glm" and "self_attn.q_proj" in name:  # as in files of the model's first folders
            data = torch.cat([data, *(model.get_parameter(name.replace("q_proj", kind)).data for kind in ("k_proj", "v_proj"))])
            name = name.replace("q_proj", "qkv_proj")
        if family == "glm" and ("self_attn.k_proj" in name or "self_attn.v_proj" in name):
            continue
        if "layernorm.norms." in name or ".act_fn." in name or name.endswith(".expert_bias"):
            continue
        if "moe_statics" in name:
            writer.add_tensor(f"blk.{name.split('.')[2]}.exp_probs_b.bias", data.numpy())
            continue
        if "query_key_value" in name:
            data = ungrouped(data, model.config)
        if name.endswith("in_proj_qkvz.weight"):
            add_qkvz(writer, name, data, model.config)
            continue
        if "linear_attn." in name:
            data = delta_tensor(family, name, data, text_config(model))
        elif has_plus_one(family) and name.endswith("norm.weight"):
            data = data + 1
        if "shared_mlp.input_linear" in name:
            for kind, part in zip(("gate", "up"), data.chunk(2)):
                writer.add_tensor(f"blk.{name.split('.')[2]}.ffn_{kind}.weight", part.contiguous().numpy())
            continue
        if family in ("smollm3", "granite", "granite4", "granite4_nope", "mixtral", "granitemoe", "mistral3", "arcee") and ("q_proj" in name or "k_proj" in name):
            data = adjacent(data, model.config)
        writer.add_tensor(gguf_name(family, name), data.contiguous().numpy())


def add_head_norms(writer, model):
    """The gains of all heads become one tensor, as in llama.cpp's converter."""
    tensors = dict(model.named_parameters())
    for layer in range(model.config.num_hidden_layers):
        for kind, n in (("q", model.config.num_attention_heads), ("k", model.config.num_key_value_heads)):
            gains = [tensors[f"model.layers.{layer}.self_attn.{kind}_layernorm.norms.{i}.weight"].data for i in range(n)]
            writer.add_tensor(f"blk.{layer}.attn_{kind}_norm.weight", torch.stack(gains).numpy())


def add_corrections(writer, model):
    for name, b in named_corrections(model):
        writer.add_tensor(f"blk.{name.split('.')[2]}.exp_probs_b.bias", b.data.numpy())


def add_xielu(writer, model):
    numbers = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for kind, add in (("alpha_p", writer.add_xielu_alpha_p), ("alpha_n", writer.add_xielu_alpha_n),
                      ("beta", writer.add_xielu_beta), ("eps", writer.add_xielu_eps)):
        add([numbers[f"model.layers.{i}.mlp.act_fn.{kind}"].item() for i in range(model.config.num_hidden_layers)])


def add_rope_factors(writer, c):
    for kind in ("long", "short"):
        values = torch.tensor(c.rope_parameters[kind + "_factor"], dtype=torch.float32)
        writer.add_tensor(f"rope_factors_{kind}.weight", values.numpy())


def add_rope_keys(writer, family, c):
    rope = c.rope_parameters
    head = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(int(head * rope.get("partial_rotary_factor", 1)))
    writer.add_rope_freq_base(rope["rope_theta"] * rope.get("alpha", 1) ** (head / (head - 2)))
    if family in ("cohere2", "exaone4", "exaone_moe", "afmoe"):
        writer.add_sliding_window(c.sliding_window)
    if family == "exaone_moe":  # with a layer that guesses ahead, of which the pattern does not know
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in c.layer_types])
        writer.add_nextn_predict_layers(1)
    if family.startswith("granite4"):
        add_granite_keys(writer, c)
        writer.add_rope_scaling_finetuned(c.position_embedding_type == "rope")
    if family == "minimax_m2":
        writer.add_expert_feed_forward_length(c.intermediate_size)
        writer.add_expert_count(c.num_local_experts)
        writer.add_expert_used_count(c.num_experts_per_tok)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if family in ("cohere2", "command_r", "command_r_plus"):
        writer.add_logit_scale(c.logit_scale)
    if family.startswith("stablelm"):
        writer.add_parallel_residual(c.use_parallel_residual)
    if family == "mistral3":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])


def add_granite_keys(writer, c):
    writer.add_embedding_scale(c.embedding_multiplier)
    writer.add_residual_scale(c.residual_multiplier)
    writer.add_attention_scale(c.attention_multiplier)
    writer.add_logit_scale(c.logits_scaling)


def add_gemma4(writer, model):
    """Adds values that are not parameters: numbers by which layers are multiplied, and factors of the rotated pairs."""
    for name, b in model.named_buffers():
        if name.endswith("layer_scalar"):
            writer.add_tensor(f"blk.{name.split('.')[2]}.layer_output_scale.weight", b.data.numpy())
    pairs = model.config.per_layer_config["full_attention"].head_dim // 2
    turning = int(model.config.rope_parameters["full_attention"]["partial_rotary_factor"] * pairs)
    writer.add_tensor("rope_freqs.weight", torch.tensor([1.0] * turning + [1e30] * (pairs - turning)).numpy())


def add_gemma4_keys(writer, c):
    full, slides = c.per_layer_config["full_attention"], c.per_layer_config["sliding_attention"]
    is_sliding = [kind == "sliding_attention" for kind in c.layer_types]
    owners = c.num_hidden_layers - c.num_kv_shared_layers
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_feed_forward_length([c.intermediate_size * (2 if c.use_double_wide_mlp and i >= owners else 1)
                                    for i in range(c.num_hidden_layers)])
    writer.add_head_count_kv([(slides if s else full).num_key_value_heads for s in is_sliding])
    writer.add_key_length(full.head_dim)
    writer.add_value_length(full.head_dim)
    writer.add_key_length_swa(slides.head_dim)
    writer.add_value_length_swa(slides.head_dim)
    writer.add_rope_dimension_count(full.head_dim)
    writer.add_rope_dimension_count_swa(slides.head_dim)
    writer.add_rope_freq_base(c.rope_parameters["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(c.rope_parameters["sliding_attention"]["rope_theta"])
    writer.add_sliding_window(c.sliding_window)
    writer.add_sliding_window_pattern(is_sliding)
    writer.add_shared_kv_layers(c.num_kv_shared_layers)
    writer.add_embedding_length_per_layer_input(c.hidden_size_per_layer_input)
    writer.add_final_logit_softcapping(c.final_logit_softcapping)
    if c.enable_moe_block:
        writer.add_expert_feed_forward_length(c.moe_intermediate_size)
        writer.add_expert_count(c.num_experts)
        writer.add_expert_used_count(c.top_k_experts)


def add_delta_keys(writer, family, c):
    """The list of recurrent layers is newer than the interval, which is 4."""
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_ssm_conv_kernel(c.linear_conv_kernel_dim)
    writer.add_ssm_state_size(c.linear_key_head_dim)
    writer.add_ssm_group_count(c.linear_num_key_heads)
    writer.add_ssm_time_step_rank(c.linear_num_value_heads)
    writer.add_ssm_inner_size(c.linear_num_value_heads * c.linear_value_head_dim)
    recurrent = [kind == "linear_attention" for kind in c.layer_types]
    if recurrent != [i % 4 != 3 for i in range(len(recurrent))]:
        writer.add_array(f"{writer.arch}.attention.recurrent_layers", recurrent)
    if family != "qwen3_next":
        writer.add_rope_dimension_sections([*c.rope_parameters["mrope_section"], 0])
    add_rope_keys(writer, family, c)
    if hasattr(c, "num_experts"):
        writer.add_expert_count(c.num_experts)
        writer.add_expert_used_count(c.num_experts_per_tok)
        writer.add_expert_feed_forward_length(c.moe_intermediate_size)
        writer.add_expert_shared_feed_forward_length(c.shared_expert_intermediate_size)


def add_keys(writer, family, c):
    writer.add_name(f"tiny {family}")
    if family in space_files.NAMES:
        space_files.add_space_keys(writer, family, c)
        return
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(c.hidden_size)
    writer.add_block_count(c.num_hidden_layers + (family == "exaone_moe"))
    writer.add_head_count(c.num_attention_heads)
    if "gemma4" in family:
        add_gemma4_keys(writer, c)
        return
    if has_delta(family) and not hasattr(c, "intermediate_size"):
        c.intermediate_size = c.moe_intermediate_size
    widths = ("n_inner", "shared_intermediate_size", "ffn_hidden_size", "intermediate_size")
    writer.add_feed_forward_length(next(getattr(c, name) for name in widths if hasattr(c, name)))
    if family == "gpt2":
        writer.add_layer_norm_eps(c.layer_norm_epsilon)
        return
    if family in ("lfm2", "lfm2_moe"):
        writer.add_head_count_kv([c.num_key_value_heads if kind != "conv" else 0 for kind in c.layer_types])
        writer.add_layer_norm_rms_eps(c.norm_eps)
        writer.add_rope_freq_base(c.rope_parameters["rope_theta"])
        writer.add_shortconv_l_cache(c.conv_L_cache)
        if family == "lfm2_moe":
            writer.add_expert_feed_forward_length(c.moe_intermediate_size)
            writer.add_expert_count(c.num_experts)
            writer.add_expert_used_count(c.num_experts_per_tok)
            writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
            writer.add_leading_dense_block_count(c.num_dense_layers)
        return
    if family == "kimi_linear":
        kimi_files.add_keys(writer, c)
        return
    if family in LATENT:
        add_latent_keys(writer, family, c)
        return
    writer.add_head_count_kv(key_heads(c))
    if has_delta(family):
        add_delta_keys(writer, family, c)
        return
    if "falcon" in family or "gptneox" in family:
        writer.add_layer_norm_eps(1e-5)
        if "gptneox" in family:
            writer.add_rope_dimension_count(int(c.rope_parameters["partial_rotary_factor"] * c.hidden_size) // c.num_attention_heads)
            writer.add_parallel_residual(c.use_parallel_residual)
        return
    if hasattr(c, "rms_norm_eps"):
        writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    else:
        name = {"starcoder2": "norm_epsilon", "nemotron": "norm_eps"}.get(family, "layer_norm_eps")
        writer.add_layer_norm_eps(getattr(c, name))
    if family == "ernie4_5_moe":
        add_rope_keys(writer, family, c)
        writer.add_expert_count(c.moe_num_experts)
        writer.add_expert_used_count(c.moe_k)
        writer.add_interleave_moe_layer_step(c.moe_layer_interval)
        writer.add_leading_dense_block_count(c.moe_layer_start_index)
        writer.add_expert_feed_forward_length(c.moe_intermediate_size)
        writer.add_expert_shared_count(c.moe_num_shared_experts)
        writer.add_expert_shared_feed_forward_length(c.moe_num_shared_experts * c.moe_intermediate_size)
        return
    if family in ("glm4", "ernie4_5", "starcoder2", "stablelm", "stablelm_12b", "cohere2", "exaone4", "seed_oss",
                  "mistral3", "phi", "glm", "command_r", "command_r_plus", "granite4", "granite4_nope", "minimax_m2",
                  "arcee", "nemotron", "hunyuan", "apertus", "jais2"):
        add_rope_keys(writer, family, c)
        return
    if family.startswith("phi3"):
        writer.add_sliding_window(c.sliding_window or 0)
        writer.add_rope_dimension_count(c.hidden_size // c.num_attention_heads)
        writer.add_rope_freq_base(c.rope_parameters["rope_theta"])
    if family in ("phi3_long", "phi3_short"):
        if family == "phi3_short":  # llama.cpp's converter does not name a type
            writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)
        writer.add_rope_scaling_orig_ctx_len(SHORT_CONTEXT)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(CONTEXT / SHORT_CONTEXT) / math.log(SHORT_CONTEXT)))
        return
    if family == "phi3":
        return
    if family in ("granite", "granitemoe"):
        add_granite_keys(writer, c)
    if family in newer_models.EXPERTS or family == "glm4moe":
        add_rope_keys(writer, family, c)
        newer_models.EXPERTS.get(family, newer_models.add_sigmoid_experts)(writer, c)
        return
    if family == "gpt_oss":
        writer.add_key_length(c.head_dim)
        writer.add_value_length(c.head_dim)
        writer.add_sliding_window(c.sliding_window)
        writer.add_expert_feed_forward_length(c.intermediate_size)
        writer.add_expert_count(c.num_local_experts)
        writer.add_expert_used_count(c.num_experts_per_tok)
        writer.add_rope_freq_base(c.rope_parameters["rope_theta"])
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(c.rope_parameters["factor"])
        writer.add_rope_scaling_orig_ctx_len(c.rope_parameters["original_max_position_embeddings"])
        return
    if family in ("olmo3", "gemma3"):
        writer.add_sliding_window(c.sliding_window)
        full = c.rope_parameters["full_attention"]
        writer.add_rope_scaling_type(gguf.RopeScalingType(full["rope_type"]))
        writer.add_rope_scaling_factor(full["factor"])
    if family == "olmo3":
        writer.add_rope_scaling_orig_ctx_len(full["original_max_position_embeddings"])
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in c.layer_types])
    if family in ("olmo2", "olmo3"):
        writer.add_rope_freq_base(5e5)
        return
    if family in EXPERTS:
        writer.add_expert_count(c.num_experts if family in ("qwen2moe", "olmoe") else c.num_local_experts)
        writer.add_expert_used_count(c.num_experts_per_tok)
    if family in ("qwen2moe", "qwen3moe", "qwen3_vl_moe"):
        writer.add_expert_feed_forward_length(c.moe_intermediate_size)
    if family == "qwen2moe":
        writer.add_expert_shared_feed_forward_length(c.shared_expert_intermediate_size)
    if family in ("mixtral", "olmoe", "granitemoe"):
        writer.add_rope_freq_base(c.rope_parameters["rope_theta"])
        return
    if "mrope_section" in c.rope_parameters:
        writer.add_rope_dimension_sections([*c.rope_parameters["mrope_section"], 0])
    if family not in ("qwen2", "qwen2moe", "smollm3", "granite", "qwen2_5_vl"):
        writer.add_key_length(c.head_dim)
        writer.add_value_length(c.head_dim)
    if family == "gemma2":
        writer.add_attn_logit_softcapping(c.attn_logit_softcapping)
        writer.add_final_logit_softcapping(c.final_logit_softcapping)
        writer.add_sliding_window(c.sliding_window)
    elif family != "gemma":
        writer.add_rope_freq_base(1e6)


def write_gguf(path, family, model):
    writer = gguf.GGUFWriter(path, ARCHITECTURES.get(family, family))
    add_keys(writer, family, text_config(model))
    if "gemma4" in family:
        add_gemma4_vocabulary(writer)
    elif "gemma" in family or family.startswith("phi3"):
        add_sentencepiece(writer)
    else:
        add_byte_bpe(writer, {"gpt2": "gpt-2"}.get(family, "qwen2"))
    add_tensors(writer, family, model)
    add_corrections(writer, model)
    if "gemma4" in family:
        add_gemma4(writer, model)
    if family == "exaone_moe":
        writer.add_tensor(f"blk.{model.config.num_hidden_layers}.nextn.enorm.weight", torch.ones(model.config.hidden_size).numpy())
    if family == "stablelm_12b":
        add_head_norms(writer, model)
    if family == "apertus":
        add_xielu(writer, model)
    if family in ("phi3_long", "phi3_short"):
        add_rope_factors(writer, model.config)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def begin(names, folder):
    """Reads the arguments that the scripts of this folder share. Returns the wanted names and their destination."""
    global FIRST_SEED
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=OUT.parent)
    parser.add_argument("--seed", type=int, default=0, help="weights are drawn from 1000 times this number on")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    FIRST_SEED = 1000 * options.seed
    torch.set_num_threads(1)
    out = options.out / folder
    out.mkdir(parents=True, exist_ok=True)
    return options.names or list(names), out


def main():
    families, out = begin(FAMILIES, "families")
    for family in families:
        model, runs, seed = golden(FAMILIES[family])
        write_gguf(out / f"{family}.gguf", family, model)
        write_golden(out / f"{family}.txt", family, runs, seed)
        size = (out / f"{family}.gguf").stat().st_size
        print(f"{family}: seed {seed}, {size} bytes", flush=True)


if __name__ == "__main__":
    main()
