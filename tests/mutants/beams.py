"""Mutants of beam search: the search, forks, and how beams are planned; tests/mutate.py says what the names mean."""
S = "scheduler/"
B = S + "beams/beams.c"
SUITES = {
    S: ["scheduler_beams", "scheduler_plan", "scheduler_swap", "scheduler_simulation"],
    "engine/": ["engine_sampling"],
}
ENVIRONMENT = {"SCHEDULER_STEPS": "200000"}

MUTANTS = [
    # the search
    (B, "return width * max_int(2, 1 + n_stop_ids);", "return width * 2;"),
    (B, "a->beam != b->beam ? a->beam < b->beam : a->id < b->id", "a->id < b->id"),
    (B, "a->beam != b->beam ? a->beam < b->beam : a->id < b->id", "a->beam < b->beam"),
    (B, "if (!isfinite(one.score)) break;", ""),
    (B, "if (n == b->n_best && one.score < best[n - 1].score) break;",
     "if (n == b->n_best && one.score <= best[n - 1].score) break;"),
    (B, "if (ends && i < width)", "if (ends)"),
    (B, "bool ends = full || is_stop_id(b, one->id);", "bool ends = is_stop_id(b, one->id);"),
    (B, "score_of(b, candidate->score, length + 1)", "score_of(b, candidate->score, length)"),
    (B, "if (at == width && !(score > b->finished[width - 1].score)) return;", "if (at == width) return;"),
    (B, "for (; at > 0 && score > b->finished[at - 1].score; at--)", "for (; at > 0 && score >= b->finished[at - 1].score; at--)"),
    (B, "if (b->n_finished < search->width) return true;", ""),
    (B, "if (search->stopping == BEAMS_STOP_EARLY) return false;", ""),
    (B, "search->stopping == BEAMS_NEVER_STOP_EARLY && search->length_penalty > 0", "search->stopping == BEAMS_NEVER_STOP_EARLY"),
    (B, "could_improve(b, next[0].score, length + 1)", "could_improve(b, next[0].score, length)"),
    # forks
    (S + "fork.c", "if (!kept[i]) spare(s, &request->sequence[i]);", ""),
    (S + "fork.c", "    if (sequence->n_tokens == 0) kept = 0;", "    if (sequence->n_tokens == 0) kept = size;"),
    (S + "fork.c", "batch_rows_claimed(&s->running) < s->max_seqs", "s->running.n < s->max_seqs"),
    (S + "apply.c", "beams->known[sequence_beam(sequence)] = false;", "(void)beams;"),
    (S + "apply.c", " && !complete)", ")"),
    # plans
    (S + "plan.c", "if (plan->n_kept - 1 <= i || search_together(sequence, last)) break;", "if (plan->n_kept - 1 <= i) break;"),
    (S + "plan.c", "    } while (next && search_together(last, next));", "    } while (next && !last);"),
    (S + "plan.c", "    plan->batch_rows += batch_rows;\n", ""),
    (S + "sequence.c", "n += !request->beams ? 1 : request != before ? request->n : 0;", "n += 1;"),
    (S + "inflight.c", "samples[inflight->n_samples - 1].part = true;", "samples[inflight->n_samples - 1].part = false;"),
    # the sampler
    ("engine/sampling/sampling.c", "bound_of_best(sampler, &row, sample->n_best)", "bound_of_best(sampler, &row, 20)"),
    ("engine/sampling/sampling.c", "logits[i] = logprob_of(logits[i], lse);", "logits[i] = logits[i];"),
]
