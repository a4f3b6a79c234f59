"""Writes tests/vectors/warpers.txt: the ids that transformers' warpers keep from rows of logits.

    python -m pip install torch==2.15.0 transformers==5.23.0
    python tests/vectors/make_warpers.py

A case is a line: the rule, its value, the temperature, the seed and spread of its row, the number of kept ids, and the
sum of these ids. Rows are made from the seed by the generator that tests/engine/test_cuts.c has too. Values are chosen
so that no id is at the edge: adjacent float32 values keep the same ids.
"""
import pathlib

import numpy
import torch
from transformers.generation.logits_process import (EpsilonLogitsWarper, EtaLogitsWarper, TemperatureLogitsWarper,
                                                    TypicalLogitsWarper)

V = 500
WARPERS = {"typical_p": lambda x: TypicalLogitsWarper(mass=x), "epsilon_cutoff": EpsilonLogitsWarper,
           "eta_cutoff": EtaLogitsWarper}
VALUES = {"typical_p": (0.02, 0.2, 0.5, 0.9, 0.99), "epsilon_cutoff": (1e-5, 3e-4, 2e-3, 0.05),
          "eta_cutoff": (1e-5, 3e-4, 2e-3, 0.05)}


def row(seed, spread):
    """Numbers in [-spread, spread): a linear congruential generator's upper 24 bits."""
    out, state = [], seed
    for _ in range(V):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(((state >> 40) / 2**23 - 1) * spread)
    return numpy.array(out, dtype=numpy.float32)


def kept(rule, value, temperature, logits):
    scores = torch.from_numpy(logits).to(torch.float64)[None]
    scores = TemperatureLogitsWarper(temperature)(None, scores) if temperature != 1 else scores
    scores = WARPERS[rule](value)(None, scores)[0]
    return [i for i in range(V) if torch.isfinite(scores[i])]


def main():
    lines = []
    for rule, values in VALUES.items():
        for value in values:
            for seed, spread, temperature in ((1, 1, 1.0), (2, 8, 1.0), (3, 8, 0.5), (4, 20, 1.5), (5, 3, 0.8)):
                logits = row(seed, spread)
                ids = kept(rule, value, temperature, logits)
                assert ids == kept(rule, value * (1 + 1e-5), temperature, logits), "an id at the edge: choose another value"
                lines.append(f"{rule} {value:g} {temperature:g} {seed} {spread} {len(ids)} {sum(ids)}")
    pathlib.Path(__file__).with_name("warpers.txt").write_text("\n".join(lines) + "\n")


main()
