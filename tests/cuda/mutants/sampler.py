"""Mutants of the op that samples; tests/cuda_mutate.py says what the names mean."""
UNITS = ["sampling/op"]

MUTANTS = [
    ("sampling/op.cu", "slot->n_prompt == sample->n_prompt && slot->n_output == sample->n_output", "slot->n_prompt == sample->n_prompt"),
    ("sampling/op.cu", "sample->n_output + 1, !sample->shared,", "sample->n_output + 1, true,"),
    ("sampling/op.cu", "sample->n_output + 1, !sample->shared,", "sample->n_output, !sample->shared,"),
    ("sampling/op.cu", "        if (s->slot[i] >= 0) s->slots[s->slot[i]].launch = s->n_launches;\n", ""),
    ("sampling/op.cu", "s->slots[slot].launch < s->slots[oldest].launch", "s->slots[slot].launch > s->slots[oldest].launch"),
    ("sampling/op.cu", "NO_WAVE : changed ? i - first : 0;", "NO_WAVE : 0;"),
    ("sampling/op.cu", "first ? sample->row : -1", "first || sample->row >= 0 ? sample->row : -1"),
    ("sampling/op.cu", "!sample->shared};", "true};"),
    ("sampling/op.cu", "    at->n_bias += how->n_bias;\n", ""),
    ("sampling/op.cu", "(size_t)at->n_masks++ * bytes", "(size_t)at->n_masks * bytes"),
    ("sampling/op.cu", "at.past = at.masks + masks * bits_of(s)", "at.past = at.masks + masks * (bits_of(s) - 1)"),
    ("sampling/op.cu", "        past += size.history;\n", ""),
    ("sampling/op.cu", "        past += size.words;\n", ""),
    ("sampling/op.cu", "if (size.allowed > 0) from.allowed", "if (size.allowed > 1) from.allowed"),
    ("sampling/op.cu", "at.bias + bias * sizeof(struct logit_bias)", "at.bias + bias * sizeof(int32_t)"),
    ("sampling/op.cu", "    row.slot = -1;\n", ""),
    ("sampling/op.cu", "changed |= how && (how->n_bias", "changed |= n < 0 && how && (how->n_bias"),
    ("sampling/op.cu", "s->anew[i] = lent || !next;", "s->anew[i] = lent || (n < 0 && !next);"),
]
