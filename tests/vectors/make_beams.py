"""Makes tests/vectors/beams.txt: the results of transformers' beam search with tiny random models.

Run it again only when the models of tests/vectors/folders or the cases change; it needs no GPU:

    python3 -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch==2.15.0 transformers==5.23.0
    /tmp/oracle/bin/python tests/vectors/make_beams.py

A case is a line "case MODEL WIDTH N LENGTH_PENALTY RULE MAX_TOKENS MIN_TOKENS REPETITION_PENALTY", a line "stops" with
the ids that end a text, a line "prompt", and for each of the N best texts a line "text SCORE IDS": its ids up to the
first that ends it. A case is kept only if float32 and float64 find the same texts, so that no result depends on a
rounding.
"""

import pathlib
import random

import torch
import transformers
from transformers.generation import GenerationMode

HERE = pathlib.Path(__file__).resolve().parent
MODELS = ["llama", "qwen3", "gpt2"]
RULES = [False, True, "never"]
PENALTIES = [1.0, 0.0, 2.0, -1.0, 0.6, -0.4]
N_CASES, V = 90, 299


def search(model, case):
    """Returns the n best texts with their scores. A width of 1 is a search too, although generate makes it a greedy
    choice."""
    config = transformers.GenerationConfig(
        num_beams=case["width"], num_return_sequences=case["n"], length_penalty=case["penalty"], do_sample=False,
        early_stopping=case["rule"], max_new_tokens=case["max"], min_new_tokens=case["min"] or None,
        repetition_penalty=case["repetition"], eos_token_id=case["stops"] or None, pad_token_id=0,
        return_dict_in_generate=True, output_scores=True)
    config.get_generation_mode = lambda *_: GenerationMode.BEAM_SEARCH
    prompt = torch.tensor([case["prompt"]])
    model.generation_config = transformers.GenerationConfig(eos_token_id=None, bos_token_id=None)
    with torch.no_grad():
        found = model.generate(prompt, generation_config=config, attention_mask=torch.ones_like(prompt))
    texts = []
    for ids, score in zip(found.sequences[:, prompt.shape[1]:].tolist(), found.sequences_scores.tolist()):
        end = next((i + 1 for i, id in enumerate(ids) if id in case["stops"] and i >= case["min"]), len(ids))
        texts.append((ids[:end], score))
    return texts


def draw(chooser, number):
    width, most = 1 + number % 8, chooser.choice([1, 2, 7, 16, 30])
    return {"model": MODELS[number % len(MODELS)], "width": width, "n": chooser.randint(1, width), "max": most,
            "penalty": PENALTIES[number // 2 % len(PENALTIES)], "rule": RULES[number // 3 % 3],
            "min": min(chooser.choice([0, 0, 0, 5]), most - 1), "repetition": chooser.choice([1.0, 1.0, 1.0, 1.4]),
            "prompt": [chooser.randrange(V) for _ in range(chooser.choice([1, 5, 16, 33]))]}


def cases(models):
    """Ids that end texts are drawn from the texts of the same prompt without such ids, so that they occur."""
    chooser, number = random.Random(5), 0
    while number < N_CASES:
        case = draw(chooser, number)
        single, double = models[case["model"]]
        free = search(single, case | {"stops": [], "min": 0, "n": case["width"]})
        likely = sorted({id for text, _ in free for id in text})
        case["stops"] = sorted(chooser.sample(likely, min(len(likely), chooser.randint(0, 3))))
        texts = search(single, case)
        if [text for text, _ in texts] == [text for text, _ in search(double, case)]:
            number += 1
            yield case, texts


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    folder = HERE / "folders"
    models = {}
    for name in MODELS:
        load = transformers.AutoModelForCausalLM.from_pretrained
        models[name] = [load(folder / name, dtype=dtype, attn_implementation="eager").eval()
                        for dtype in (torch.float32, torch.float64)]
    rules = {False: "score", True: "early", "never": "never"}
    with open(HERE / "beams.txt", "w", buffering=1) as out:
        print(f"# transformers {transformers.__version__}, torch {torch.__version__}: tests/vectors/make_beams.py",
              file=out)
        for case, texts in cases(models):
            print("case", case["model"], case["width"], case["n"], case["penalty"], rules[case["rule"]], case["max"],
                  case["min"], case["repetition"], file=out)
            print("stops", *case["stops"], file=out)
            print("prompt", *case["prompt"], file=out)
            for ids, score in texts:
                print("text", f"{score:.6f}", *ids, file=out)


main()
