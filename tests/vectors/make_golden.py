"""Makes tests/vectors/golden.json: tokens and logits of the reference implementation for the default model.

Run it again only when the model or the prompts change:

    python3 -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch transformers accelerate gguf
    /tmp/oracle/bin/python tests/vectors/make_golden.py models/SmolLM2-135M-Instruct.Q4_1.gguf

The weights are dequantised to float32 and run by transformers without any other approximation. For each prompt the file
holds its ids, 64 greedy tokens, and at some positions the logits of the 64 best ids and of 64 fixed ones, with the log
of the sum of the exponentials of all.
"""

import json
import os
import random
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM

# (name, ids or text). Texts are encoded by the byte-level vocabulary read from the file itself.
TEXTS = {
    "fact": "The capital of France is",
    "story": "Once upon a time, in a small village by the sea, there lived",
    "code": "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "list": "Shopping list:\n1. Milk\n2. Bread\n3.",
    "numbers": "1 2 3 4 5 6 7 8 9 10 11 12",
    "german": "Die Hauptstadt von Deutschland ist",
    "json": "{\"name\": \"Alice\", \"age\": 30, \"city\":",
    "one_token": "Hello",
    "chat": "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
            "<|im_end|>\n<|im_start|>user\nWhat is gravity?<|im_end|>\n<|im_start|>assistant\n",
    "chat_two": "<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\nRed, green "
                "and blue.<|im_end|>\n<|im_start|>user\nAnd two more?<|im_end|>\n<|im_start|>assistant\n",
    "math": "Question: What is 12 times 12?\nAnswer:",
    "repeat": "one two three one two three one two three one two",
    "unicode": "Grüße aus Köln, 東京 und Москва: ",
    "long": "The history of the steam engine. " + " ".join(
        f"In the year {1700 + 7 * i}, an engineer improved part number {i} of the machine." for i in range(40)),
}
N_GREEDY = 64
N_BEST = 64


def fixed_ids(vocabulary):
    chooser = random.Random(7)
    return sorted(chooser.sample(range(vocabulary), 64))


def logits_at(row, fixed):
    best = torch.topk(row, N_BEST).indices.tolist()
    ids = best + [i for i in fixed if i not in best]
    return {"ids": ids, "logits": [round(row[i].item(), 6) for i in ids],
            "logsumexp": torch.logsumexp(row.double(), 0).item()}


def golden_of(model, name, ids, fixed):
    sequence, gaps = list(ids), []
    with torch.no_grad():
        past = model(torch.tensor([ids]), use_cache=True)
        first = past.logits[0]
        for _ in range(N_GREEDY):
            row = past.logits[0, -1]
            top = torch.topk(row, 2)
            gaps.append((top.values[0] - top.values[1]).item())
            sequence.append(top.indices[0].item())
            past = model(torch.tensor([[sequence[-1]]]), past_key_values=past.past_key_values, use_cache=True)
        whole = model(torch.tensor([sequence])).logits[0]
    n = len(ids)
    positions = sorted({0, n // 2, n - 1, n + 7, n + N_GREEDY - 2})
    assert torch.allclose(first[n - 1], whole[n - 1], atol=1e-3)
    return {"name": name, "prompt": ids, "greedy": sequence[n:], "gaps": [round(g, 5) for g in gaps],
            "positions": [{"position": p, **logits_at(whole[p], fixed)} for p in positions]}


def main():
    path = sys.argv[1]
    torch.set_num_threads(2)
    folder, file = os.path.split(os.path.abspath(path))
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    model.eval()
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from reference_tokenizer import smollm2_tokenizer
    tokenizer = smollm2_tokenizer(path)
    fixed = fixed_ids(model.config.vocab_size)
    prompts = []
    for name, text in TEXTS.items():
        prompts.append(golden_of(model, name, tokenizer.encode(text).ids, fixed))
        print(name, len(prompts[-1]["prompt"]), "tokens; smallest gap", min(prompts[-1]["gaps"]),
              repr(tokenizer.decode(prompts[-1]["greedy"]))[:70], flush=True)
    out = {"provenance": f"transformers {transformers.__version__}, torch {torch.__version__}, float32, {file}",
           "prompts": prompts}
    with open(os.path.join(os.path.dirname(__file__), "golden.json"), "w") as f:
        json.dump(out, f, separators=(",", ":"))


main()
