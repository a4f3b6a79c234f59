"""Mutants of speculation: drafting, choosing drafts, verifying them; tests/mutate.py says what the names mean."""
S = "scheduler/"
SUITES = {
    S: ["scheduler_speculate", "scheduler_suffix", "scheduler_simulation"],
}
ENVIRONMENT = {"SCHEDULER_STEPS": "300000"}

MUTANTS = [
    # predicted output
    (S + "draft/predicted.c", "p->match = FIRST_MATCH;", "p->match = 0;"),
    (S + "draft/predicted.c", "        p->at += follows;\n", ""),
    (S + "draft/predicted.c", "if (match > best)", "if (match >= best)"),
    (S + "draft/predicted.c", "p->match = best >= MIN_MATCH ? best : 0;", "p->match = best;"),
    (S + "draft/predicted.c", "min_int(min_int(place, c->n - n_prompt), MAX_DRAFT_MATCH)", "min_int(place, MAX_DRAFT_MATCH)"),
    (S + "draft/predicted.c", "p->n_seen = n_prompt, p->match", "p->match"),
    # verifying
    (S + "commit.c", "taken < n && results[taken].id == sequence->tokens[sequence->n_tokens];",
     "taken < n;"),
    (S + "commit.c", "taken < n && results[taken].id == sequence->tokens[sequence->n_tokens];",
     "results[taken].id == sequence->tokens[sequence->n_tokens];"),
    (S + "commit.c", "taken < n && results[taken].id == sequence->tokens[sequence->n_tokens];",
     "taken + 1 < n && results[taken].id == sequence->tokens[sequence->n_tokens];"),
    (S + "commit.c", "if (!holds || sequence->state == SEQUENCE_ENDED) break;", "if (!holds) break;"),
    (S + "commit.c", "    sequence->n_computed = sequence->n_committed;\n", ""),
    (S + "commit.c", "while (sequence->n_blocks > blocks) release_last_block(s, sequence);", "sequence->n_blocks = blocks;"),
    (S + "commit.c", "    while (sequence->n_blocks > blocks)", "    while (sequence->n_blocks > blocks + 1)"),
    (S + "commit.c", "rows->from + rows->n - rows->drafts;", "rows->from + rows->n;"),
    (S + "commit.c", "end_rows(s, sequence, sequence->n_committed - 1);", ""),
    (S + "commit.c", "    sequence->n_drafts = 0;\n", ""),
    (S + "commit.c", "i += commit_drafts(", "commit_drafts("),
    (S + "commit.c", "    speculate_learn(sequence, taken);\n", ""),
    # preempted while drafts are in flight
    (S + "apply.c", "n_computed >= s->config.swap_from && sequence->n_drafts == 0", "n_computed >= s->config.swap_from"),
    # rows and samples
    (S + "batch.c", "position < sequence->n_tokens + sequence->n_drafts", "position <= sequence->n_tokens + sequence->n_drafts"),
    (S + "batch.c", "for (position = end - drafts; position <= end; position++)", "for (position = end; position <= end; position++)"),
    (S + "inflight.c", "request->n_unforked > 0 || sequence->n_drafts > 0) return -1;", "request->n_unforked > 0) return -1;",
     "with drafts in flight n_computed is beyond what can be scheduled, so nobody asks for the row"),
    (S + "inflight.c", "int wanted = sequence_n_schedulable(sequence) + sequence->n_drafts;", "int wanted = sequence_n_schedulable(sequence);",
     "with drafts in flight n_computed is beyond what can be scheduled, so nobody asks what is pending"),
    (S + "inflight.c", ".late = !shared && sequence->n_pending > 0", ".late = false"),
    # who may draft
    (S + "speculate.c", "sequence->n_tokens - sequence->n_computed == 1 &&", "sequence->n_tokens > sequence->n_computed &&"),
    (S + "speculate.c", "request->n_unforked == 0 && ", ""),
    (S + "speculate.c", "request->max_tokens - sequence->n_tokens - 1;", "request->max_tokens - sequence->n_tokens;"),
    (S + "speculate.c", "min_int(min_int(request->max_drafts, s->config.speculation.max_tokens), room)", "min_int(s->config.speculation.max_tokens, room)"),
    (S + "speculate.c", "        sequence->n_proposed = 0;\n", ""),
    # choosing
    (S + "speculate.c", "if (item->rows != 1 || drafts > item->sequence->n_proposed) return false;", "if (item->rows != 1) return false;"),
    (S + "speculate.c", "return c->blocks + more <= min_int(plan->available, plan->windows);", "return true;"),
    (S + "speculate.c", "plan->shape.prefill_rows == 0 && ", ""),
    (S + "speculate.c", "s->waiting.n == 0 && s->running.n > 0", "s->running.n > 0"),
    (S + "speculate.c", "min_int(view->max_rows - plan->rows, view->max_logit_rows - plan->logit_rows)", "view->max_rows - plan->rows"),
    (S + "speculate.c", "min_int(view->max_rows - plan->rows, view->max_logit_rows - plan->logit_rows)", "view->max_logit_rows - plan->logit_rows"),
    (S + "speculate.c", "    plan->available -= blocks;\n", ""),
    (S + "speculate.c", "        if (rate <= best && !view->fixed_drafts) continue;\n", ""),
    (S + "speculate.c", "    *chance -= *chance * loss;\n", ""),
    (S + "speculate.c", "        *chance += (1 - *chance) * gain;\n", ""),
    # lookup
    (S + "draft/lookup.c", "        if (place < min_match) continue;\n", "",
     "it reads what lies before the tokens, for chains that no search follows"),
    (S + "draft/lookup.c", "if (found > match) best = place", "if (found >= match) best = place"),
    (S + "draft/lookup.c", "        before[place - 1] = head[bucket];\n", "        before[place - 1] = 0;\n"),
    (S + "draft/lookup.c", "        place = before[place - 1];\n", "        place = before[place];\n"),
    (S + "draft/lookup.c", "min_int(c->n, lookup->n_indexed + MAX_ADDED)", "c->n"),
    # texts that have ended
    (S + "draft/suffix.c", "has_salt(one, c->salt) ? match_at(s, c, place) : 0;", "match_at(s, c, place);",
     "texts of another salt are in other chains, but for one in many"),
    (S + "draft/suffix.c", "    uint64_t hash = salt[0] ^ salt[1];\n", "    uint64_t hash = salt[0] & 0;\n",
     "chains are longer, and texts of another salt are left out all the same"),
    (S + "draft/suffix.c", "if (own > *match) n = 0, *match = own;", "if (own > *match) *match = own;"),
    (S + "draft/suffix.c", "next[i] != GAP && votes > most", "votes > most"),
    (S + "draft/suffix.c", "next[i] != GAP && votes > most", "next[i] != GAP && votes >= most"),
    (S + "draft/suffix.c", "        if (next[i] == chosen) place[left++]", "        place[left++]"),
    (S + "draft/suffix.c", "place + RING > s->end + MAX_DRAFT_MATCH;", "place + 3 * RING > s->end;"),
    (S + "draft/suffix.c", "    add_gap(s);\n", ""),
    (S + "draft/suffix.c", "own.n > 0 && own.match >= match", "own.n > 0 && own.match > match"),
    (S + "draft/suffix.c", "max_int(n_prompt - MAX_DRAFT_MATCH, 0)", "n_prompt"),
    (S + "finish.c", "    speculate_end(s, sequence);\n", ""),
    # costs
    (S + "step_cost.c", "    if (cost->known && now > 2 * cost->ns[rows]) now = 2 * cost->ns[rows];\n", ""),
    (S + "step_cost.c", "    forget_others(cost, rows);\n", ""),
    (S + "step_cost.c", "(scale_below + (scale - scale_below) * share)", "scale_below"),
    (S + "step_cost.c", "if (rows > MAX_COST_ROWS || ns == 0) return;", "if (ns == 0) return;"),
]
