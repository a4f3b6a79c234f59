"""Makes tests/vectors/sentences.json: embeddings, token embeddings and scores of pairs as sentence-transformers gives them for
the folders of make_encoders.py and make_classifiers.py, in float32.

    /tmp/oracle/bin/python tests/vectors/make_sentences.py

It needs the packages of make_families.py and sentence-transformers. The library's own pipeline reads modules.json, pools and
normalises a batch with padding; the e2e test reads the file, so it needs neither torch nor the library. Vectors of tokens are
those before pooling, divided by their length if the folder normalises.
"""

import json
import math
from pathlib import Path

import sentence_transformers

HERE = Path(__file__).resolve().parent
EMBEDDERS = ["encoders/bert", "encoders/xlm_roberta", "encoders/nomic_bert", "encoders/modernbert", "encoders/gemma3", "embedders/qwen3"]
RANKERS = ["classifiers/bert_pairs", "classifiers/modern_pairs", "classifiers/pairs"]
TEXTS = ["The sun shines.", "a", "Rain falls on the hills, and the river rises over the old stone bridge."]
PAIRS = [("sun", "The sun shines."), ("rain", "A cat."), ("rain and wind", "It rains on the hills, and the river rises.")]


def shown(vector):
    return [float(f"{float(x):.9g}") for x in vector]


def unit(vector):
    length = math.sqrt(sum(float(x) ** 2 for x in vector))
    return [float(x) / length for x in vector]


def main():
    cases = []
    for name in EMBEDDERS:
        model = sentence_transformers.SentenceTransformer(str(HERE / name), device="cpu")
        if not model.tokenizer.pad_token:
            model.tokenizer.pad_token = model.tokenizer.convert_ids_to_tokens(0)  # of the padding, which the mask hides
        vectors = model.encode(TEXTS)
        tokens = [[unit(row) for row in rows] for rows in model.encode(TEXTS[:2], output_value="token_embeddings")]
        cases += [{"model": name, "text": text, "embedding": shown(vector)} for text, vector in zip(TEXTS, vectors)]
        cases += [{"model": name, "text": text, "tokens": [shown(row) for row in rows]} for text, rows in zip(TEXTS, tokens)]
    for name in RANKERS:
        model = sentence_transformers.CrossEncoder(str(HERE / name), device="cpu")
        if not model.tokenizer.pad_token:
            model.tokenizer.pad_token = model.tokenizer.convert_ids_to_tokens(0)
        scores = model.predict(PAIRS)
        cases += [{"model": name, "pair": pair, "score": shown([score])[0]} for pair, score in zip(PAIRS, scores)]
    (HERE / "sentences.json").write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
