"""Mutants of the op that samples; tests/cuda_mutate.py says what the names mean."""
UNITS = ["sampler"]

MUTANTS = [
    ("sampler.cu", "slot->n_prompt == sample->n_prompt && slot->n_output == sample->n_output", "slot->n_prompt == sample->n_prompt"),
    ("sampler.cu", "sample->n_output + 1, !sample->shared,", "sample->n_output + 1, true,"),
    ("sampler.cu", "sample->n_output + 1, !sample->shared,", "sample->n_output, !sample->shared,"),
    ("sampler.cu", "        if (s->slot[i] >= 0) s->slots[s->slot[i]].launch = s->n_launches;\n", ""),
    ("sampler.cu", "s->slots[slot].launch < s->slots[oldest].launch", "s->slots[slot].launch > s->slots[oldest].launch"),
    ("sampler.cu", "s->wave[i] = changed ? i - first : 0;", "s->wave[i] = 0;"),
    ("sampler.cu", "first ? sample->row : -1", "first || sample->row >= 0 ? sample->row : -1"),
    ("sampler.cu", "!sample->shared};", "true};"),
    ("sampler.cu", "    at->n_bias += how->n_bias;\n", ""),
    ("sampler.cu", "        history += samples[i].n_prompt + samples[i].n_output;\n", ""),
    ("sampler.cu", "at.bias + bias * sizeof(struct sample_bias)", "at.bias + bias * sizeof(int32_t)"),
    ("sampler.cu", "    row.slot = -1;\n", ""),
    ("sampler.cu", "changed |= changes_logits(&samples[end]);", "changed |= n < 0 && changes_logits(&samples[end]);"),
    ("sampler.cu", "s->anew[i] = lent || !is_next(slot, sample);", "s->anew[i] = lent || (n < 0 && !is_next(slot, sample));"),
]
