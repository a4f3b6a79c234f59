"""Compares GGUF files that `penstock quantize` makes from folders with those that llama.cpp's converter makes from
them.

    build/oracle/venv/bin/python tests/vectors/compare_gguf.py OUT END FOLDER...

OUT has NAME.END.gguf of each FOLDER, as tests/vectors/convert.py writes them (build/penstock makes the others). Vectors
must have the same bits, tensors the same shapes, and keys of the model the same values, except for differences that
EXPLAINED gives a reason for.
"""
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
# Keys, by their ends, that only one file has or that differ, and why both files mean the same.
EXPLAINED = {
    "vocab_size": "the number of tokens, which the tokenizer has too",
    "attention.key_length": "the size of a head, written though it is width / heads",
    "attention.value_length": "as key_length",
    "rope.dimension_count": "written though it is the whole head",
    "rope.freq_base": "written though it is 10000",
    "rope.freq_base_swa": "written though it is that of the other layers",
    "expert_feed_forward_length": "written though it is feed_forward_length",
    "expert_shared_feed_forward_length": "written though it is expert_shared_count times an expert's",
    "expert_weights_norm": "said though the family's files mean it, or because they mean the other",
    "feed_forward_length": "of a model whose layers all have experts nothing has that width",
    "use_parallel_residual": "written though it is false",
    "attention.layer_norm_rms_epsilon": "written beside layer_norm_epsilon, which counts",
    "attention.scale": "of folders whose query_pre_attn_scalar is not the size of a head; the converter loses it",
    "attention.sliding_window": "of folders with windows that the converter loses",
    "attention.sliding_window_pattern": "a number where layers take turns, or a list; the converter loses Gemma 3's",
    "rope.scaling.attn_factor": "the divisor of YaRN's own factor, or its multiplier as yarn_log_multiplier or yarn_attn_factor",
    "rope.scaling.yarn_log_multiplier": "as attn_factor",
    "rope.scaling.yarn_attn_factor": "as attn_factor",
    "rope.scaling.type": "longrope, which other programs see by the lists of factors",
    "rope.scaling.original_context_length": "written though it is the context",
    "rope.scaling.yarn_beta_fast": "written though it is 32",
    "rope.scaling.yarn_beta_slow": "written though it is 1",
    "expert_gating_func": "written though the family's files mean it",
    "expert_group_count": "written though it is 1",
    "expert_group_used_count": "as expert_group_count",
    "block_count": "with nextn_predict_layers, which ours leaves out with their tensors",
    "nextn_predict_layers": "as block_count",
}
# Tensors, by a part of their names.
EXPLAINED_TENSORS = {
    "nextn.": "as block_count",
    "token_embd.weight": "the converter cuts Gemma 3's to the tokens that have a name",
    "ffn_gate_inp_shexp.weight": "a vector, or a matrix of one row",
    "exp_probs_b.bias": "a vector, or a matrix of one row",
}


def parts(path):
    """Returns the keys of the model, and the tensors."""
    reader = gguf.GGUFReader(path)
    architecture = reader.fields["general.architecture"].contents()
    keys = {name.removeprefix(architecture + "."): field.contents() for name, field in reader.fields.items()
            if name.startswith(architecture + ".")}
    return {"architecture": architecture, **keys}, {tensor.name: tensor for tensor in reader.tensors}


def is_same(a, b):
    if isinstance(a, float) and isinstance(b, (int, float)):
        return abs(a - b) <= 1e-6 * max(1, abs(a))
    return a == b


def is_same_tensor(a, b):
    if a is None or b is None or list(a.shape) != list(b.shape):
        return False
    both_floats = a.tensor_type == b.tensor_type == gguf.GGMLQuantizationType.F32
    return not both_floats or np.array_equal(a.data, b.data)


def differences(ours, theirs):
    (keys, tensors), (other_keys, other_tensors) = parts(ours), parts(theirs)
    for name in sorted({*keys, *other_keys}):
        a, b = keys.get(name), other_keys.get(name)
        if not is_same(a, b) and name not in EXPLAINED:
            yield f"key {name}: ours {a}, the converter's {b}"
    for name in sorted({*tensors, *other_tensors}):
        if not is_same_tensor(tensors.get(name), other_tensors.get(name)) and not any(part in name for part in EXPLAINED_TENSORS):
            yield f"tensor {name}: one is missing, or shapes or numbers differ"


def main():
    out, end, found = Path(sys.argv[1]), sys.argv[2], []
    for folder in map(Path, sys.argv[3:]):
        theirs = out / f"{folder.name}.{end}.gguf"
        with tempfile.TemporaryDirectory() as room:
            ours = Path(room, "ours.gguf")
            done = subprocess.run([ROOT / "build/penstock", "quantize", folder, ours, "--type", "q8_0"], capture_output=True, text=True)
            if done.returncode or not theirs.exists():
                print(f"{folder.name}: {done.stderr.strip() or 'the converter made no file of it'}")
                continue
            found += [f"{folder.name}: {what}" for what in differences(ours, theirs)]
        print(f"{folder.name}: compared")
    print(*found, sep="\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
