"""Writes tests/vectors/ngrams.txt: the ids that transformers forbids after histories, so that no n-gram repeats.

    python -m pip install torch==2.15.0 transformers==5.23.0
    python tests/vectors/make_ngrams.py

A case is a line: n, the seed of the history, its length, the number of ids from which it is drawn, the number of
forbidden ids, and the sum of these ids. Histories are made from the seed by the generator that
tests/engine/test_changes.c has too.
"""
import pathlib

import torch
from transformers.generation.logits_process import NoRepeatNGramLogitsProcessor

V = 40


def history(seed, length, kinds):
    """Ids from a linear congruential generator's upper 31 bits."""
    out, state = [], seed
    for _ in range(length):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append((state >> 33) % kinds)
    return out


def main():
    lines = []
    for n in (1, 2, 3, 4, 6):
        for seed, (length, kinds) in enumerate(((1, 1), (2, 2), (5, 2), (7, 1), (30, 2), (30, 5), (200, 3), (200, 30), (n - 1, 2), (n, 1))):
            if length == 0:
                continue
            ids = torch.tensor([history(seed, length, kinds)])
            scores = NoRepeatNGramLogitsProcessor(n)(ids, torch.zeros(1, V))[0]
            out = [i for i in range(V) if scores[i] == -float("inf")]
            lines.append(f"{n} {seed} {length} {kinds} {len(out)} {sum(out)}")
    pathlib.Path(__file__).with_name("ngrams.txt").write_text("\n".join(lines) + "\n")


main()
