/* constraint: the state of a choice in the grammar of its text.
 *
 * DESIGN. A choice of a generation with a grammar has a matcher (engine/grammar/grammar.h). It is
 * made before the first sample and kept until the choice ends. A preempted sequence keeps its
 * tokens and its matcher. The allowed next tokens depend only on the tokens before:
 *
 *     plan, submit            the row of a pending token is computed like any other
 *     commit the step before  constraint_take: the matcher reads the token that was pending
 *     constraint_make_masks   on the compute threads; on a device while the step computes
 *     sample
 *     commit                  constraint_take: the matcher reads the token that was drawn
 *
 * Drafts end before the first that the grammar does not allow. In a run of drafts, sample i gets
 * the mask after i of them. Then the matcher rolls all of them back.
 *
 * The tokens that end a choice are allowed exactly if its grammar may end. The grammar takes
 * precedence over min_tokens and ignore_eos: if no token can follow, the choice ends. If only one
 * token is allowed, it is appended immediately, without sampling, and so on. The next step computes
 * the rows of all these tokens, like those of a prompt. If the step in flight was to sample the
 * first of them, its sample is removed. A token is sampled anyway if a setting other than the
 * grammar could refuse it, or if its logprobs are requested, since they need its logits.
 *
 * A mask is not ready if it needs more work than MASK_WORK allows. The limit is a count, not a
 * time. Its sequence then skips the step: its sample and its last row are removed, and the next
 * step computes the row again and continues the work on the mask. Which step that is depends on the
 * work of other sequences with the same grammar, but the tokens do not depend on it. A sequence
 * does not skip a step if no other sample would be left, after MAX_UNREADY skipped steps in a row,
 * or if several choices share the row. If only the mask after a draft is not ready, the sequence
 * continues without that draft and the later ones. If more work shows that only one token is
 * allowed, the token is sampled.
 *
 * If the grammar begins only after certain ids (the end of a model's reasoning), all tokens are
 * allowed until then, except those that end the choice.
 *
 * A limit on the thoughts (sequence/thoughts.h) forces tokens with the same means: a mask of one
 * token, drafts that end before it, and tokens that are appended without sampling. If a token
 * may reach the limit, the next row waits for its commit. If a grammar does not allow the forced
 * token, the grammar's mask stays. Without a grammar no other setting can refuse it. A beam at the
 * limit has this token as its only candidate.
 *
 * If memory runs out, the matcher may be missing or its grammar broken. Then no token is allowed,
 * and the choice ends with FINISH_NO_MEMORY; other choices continue.
 */
#include <string.h>

#include "engine/grammar/grammar.h"
#include "scheduler/internal.h"

/* MASK_WORK is about 0.2 ms of the walk for a mask (one thread of a Zen 4). If the mask is not
 * ready again, the limit doubles, up to a factor of 4, so a mask of 3 ms needs 5 steps, not 15.
 * It grows no further: a grammar with masks of 20 ms should slow only its sequence, not the steps
 * of all. */
enum { MASK_WORK = 30000, MAX_DOUBLINGS = 2, MAX_UNREADY = 64 };

void constraint_end(struct sequence *sequence) {
    matcher_free(sequence->constraint.matcher);
    sequence->constraint.matcher = NULL;
}

static void make_matcher(struct sequence *sequence) {
    const struct generation *generation = sequence->request->generation;
    if (sequence->constraint.matcher) return;
    sequence->constraint.matcher = matcher_new(generation->grammar, generation->vocabulary);
}

/* ---- moving --------------------------------------------------------------------------------- */

/* Does the output end with the ids after which the grammar begins? */
static bool begins_here(const struct sequence *sequence) {
    const struct generation *generation = sequence->request->generation;
    int n = generation->n_begin_ids, end = sequence->constraint.n_tokens;
    if (end - sequence->request->n_prompt < n) return false;
    const int32_t *ids = sequence->tokens + end - n;
    return memcmp(ids, generation->begin_ids, (size_t)n * sizeof *ids) == 0;
}

/* Reads the next token or draft of the sequence. If it is not allowed, returns false and changes
 * nothing. */
static bool constraint_advance(struct sequence *sequence) {
    struct constraint *c = &sequence->constraint;
    int32_t token = sequence->tokens[c->n_tokens];
    if (generation_stops_at(sequence->request->generation, token)) return false;
    if (c->begins_at >= 0 && (!c->matcher || !matcher_accept(c->matcher, token))) return false;
    c->n_tokens++;
    if (c->begins_at < 0 && begins_here(sequence)) c->begins_at = c->n_tokens;
    return true;
}

static void go_back(struct sequence *sequence, int n) {
    struct constraint *c = &sequence->constraint;
    int begins_at = c->begins_at;
    c->n_tokens -= n;
    assert(c->n_tokens >= sequence->request->n_prompt);
    if (begins_at < 0) return;
    bool before = c->n_tokens < begins_at;
    int taken = before ? c->n_tokens + n - begins_at : n;
    if (taken > 0) matcher_roll_back(c->matcher, taken);
    if (before) c->begins_at = -1;
}

/* ---- thoughts ------------------------------------------------------------------------------- */

static const struct thought_limit *limit_of(const struct sequence *sequence) {
    return &sequence->request->generation->thoughts;
}

/* Returns the token that must be at `position`, or -1. */
static int32_t thought_at(const struct sequence *sequence, int position) {
    struct thoughts thoughts = sequence_thoughts_at(sequence, position);
    return thoughts_next(&thoughts, limit_of(sequence));
}

/* Returns the token that a sample must yield without a grammar, or -1. A token is never pending
 * before a forced one (inflight.c). */
static int32_t thought_of(const struct inflight *inflight, int i) {
    const struct sample *sample = &inflight->samples[i];
    const struct sequence *sequence = inflight->owner[i];
    bool is_free = !sequence->request->beams && !sequence->request->generation->grammar;
    if (!sample->sampling || !is_free || !limit_of(sequence)->is_set) return -1;
    return thought_at(sequence, sample->position);
}

/* Returns how many of n drafts come before a forced token. */
static int cut_at_thoughts(const struct sequence *sequence, int n) {
    struct thoughts thoughts = sequence->thoughts;
    for (int i = 0; i < n; i++) {
        if (thoughts_next(&thoughts, limit_of(sequence)) >= 0) return i;
        thoughts_take(&thoughts, limit_of(sequence), sequence->tokens[sequence->n_tokens + i]);
    }
    return n;
}

int32_t constraint_only(const struct sequence *sequence) {
    if (sequence->request->generation->grammar) return -1;
    return thoughts_next(&sequence->thoughts, limit_of(sequence));
}

/* Leaves only this token in a mask. */
static void mask_all_but(uint32_t *mask, int words, int32_t id) {
    memset(mask, 0, (size_t)words * sizeof *mask);
    mask[id / 32] = (uint32_t)1 << id % 32;
}

/* Makes the masks of forced tokens of sequences without a grammar. The sequence's own settings
 * could refuse such a token, so its sample uses neither them nor the counts on a device. */
static void mask_thoughts(struct inflight *inflight) {
    for (int i = 0; i < inflight->n_samples; i++) {
        int32_t id = thought_of(inflight, i);
        if (id < 0) continue;
        uint32_t *mask = inflight->masks + (size_t)i * (size_t)inflight->mask_words;
        mask_all_but(mask, inflight->mask_words, id);
        inflight->samples[i].mask = mask;
        inflight->samples[i].sampling = &inflight->owner[i]->request->sampling_forced;
    }
}

/* ---- drafts --------------------------------------------------------------------------------- */

int constraint_cut_drafts(struct sequence *sequence, int n) {
    int allowed = 0;
    n = cut_at_thoughts(sequence, n);
    if (!sequence->request->generation->grammar) return n;
    make_matcher(sequence);
    assert(sequence->constraint.n_tokens == sequence->n_tokens);
    while (allowed < n && constraint_advance(sequence)) allowed++;
    go_back(sequence, allowed);
    return allowed;
}

/* ---- masks ---------------------------------------------------------------------------------- */

/* Before the grammar begins, all tokens are allowed except those that end the choice. */
static void make_mask(const struct sequence *sequence, uint32_t *mask, int words) {
    const struct constraint *c = &sequence->constraint;
    const struct generation *generation = sequence->request->generation;
    bool may_end = false;
    if (c->begins_at < 0) {
        memset(mask, 0xff, (size_t)words * sizeof *mask);
    } else if (c->matcher) {
        matcher_mask(c->matcher, mask);
        may_end = matcher_may_end(c->matcher);
    } else {
        memset(mask, 0, (size_t)words * sizeof *mask);
    }
    for (int i = 0; i < generation->n_stop_ids; i++) {
        int32_t id = generation->stop_ids[i];
        uint32_t bit = (uint32_t)1 << id % 32;
        mask[id / 32] = may_end ? mask[id / 32] | bit : mask[id / 32] & ~bit;
    }
    int32_t forced = thought_at(sequence, c->n_tokens);
    if (forced >= 0 && (mask[forced / 32] >> forced % 32 & 1)) mask_all_but(mask, words, forced);
}

/* Is the mask ready within the allowed work? */
static bool is_in_time(const struct inflight *inflight, int at, const struct constraint *c) {
    bool may_wait = inflight->max_mask_work > 0 && !inflight->samples[at].shared &&
                    c->n_unready < MAX_UNREADY && c->begins_at >= 0 && c->matcher;
    int max_work = inflight->max_mask_work << min_int(c->n_unready, MAX_DOUBLINGS);
    return !may_wait || matcher_prepare(c->matcher, max_work);
}

/* Makes the masks of one sequence: after its last token, and after each draft, up to the first that
 * is not ready. */
static void make_masks(void *arg, int i) {
    struct inflight *inflight = arg;
    int at = inflight->constrained[i], drafts = 0;
    struct sequence *sequence = inflight->owner[at];
    make_matcher(sequence);
    for (;; at++, drafts++) {
        if (!is_in_time(inflight, at, &sequence->constraint)) break;
        uint32_t *mask = inflight->masks + (size_t)at * (size_t)inflight->mask_words;
        make_mask(sequence, mask, inflight->mask_words);
        inflight->samples[at].mask = mask;
        if (at + 1 == inflight->n_samples || inflight->owner[at + 1] != sequence) break;
        bool may_come = constraint_advance(sequence); /* the drafts were cut */
        assert(may_come);
        (void)may_come;
    }
    go_back(sequence, drafts);
}

static bool keeps_to_grammar(const struct inflight *inflight, int i) {
    return inflight->samples[i].sampling && inflight->owner[i]->request->generation->grammar;
}

bool constraint_masks(const struct inflight *inflight) {
    for (int i = 0; i < inflight->n_samples; i++) {
        if (keeps_to_grammar(inflight, i) || thought_of(inflight, i) >= 0) return true;
    }
    return false;
}

bool constraint_waits(const struct inflight *inflight) {
    for (int i = 0; i < inflight->n_samples; i++) {
        if (inflight->samples[i].last_is_pending && keeps_to_grammar(inflight, i)) return true;
    }
    return false;
}

/* Removes the part of a sequence without masks: its drafts from the first one without a mask on, or
 * all of it. `samples` are its samples. */
static void postpone(struct scheduler *s, struct inflight *inflight, struct sequence *sequence,
                     const struct sample *samples) {
    int masks = 0;
    while (masks <= sequence->drafts.n && samples[masks].mask) masks++;
    if (masks > sequence->drafts.n) return;
    if (masks > 0) {
        inflight_cut_drafts(inflight, sequence, masks - 1);
    } else {
        inflight_postpone(inflight, sequence);
        sequence->constraint.n_unready++;
    }
    int blocks = block_pool_blocks_for(&s->pool, sequence->n_computed);
    while (sequence->kv.n_blocks > blocks) release_last_block(s, sequence);
    s->stats.unready_masks++;
}

/* Continues without the samples whose masks are not ready, of the n constrained sequences. It
 * starts with the last, since later samples move up. */
static void postpone_unready(struct scheduler *s, struct inflight *inflight, int n) {
    for (int i = n - 1; i >= 0; i--) {
        int first = inflight->constrained[i];
        postpone(s, inflight, inflight->owner[first], &inflight->samples[first]);
    }
}

/* Are samples of other sequences left if those whose masks are not ready skip the step? n is the
 * number of constrained sequences. */
static bool others_go_on(const struct inflight *inflight, int n) {
    int unready = 0, owners = 0;
    for (int i = 0; i < n; i++) unready += !inflight->samples[inflight->constrained[i]].mask;
    for (int i = 0; i < inflight->n_samples; i++)
        owners += i == 0 || inflight->owner[i] != inflight->owner[i - 1];
    return owners > unready;
}

static int max_mask_work(const struct scheduler *s) {
    return s->config.max_mask_work ? s->config.max_mask_work : MASK_WORK;
}

void constraint_make_masks(struct scheduler *s, struct inflight *inflight) {
    int n = 0;
    mask_thoughts(inflight);
    for (int i = 0; i < inflight->n_samples; i++) {
        const struct sequence *owner = inflight->owner[i];
        bool chooses = keeps_to_grammar(inflight, i);
        bool first = n == 0 || inflight->owner[inflight->constrained[n - 1]] != owner;
        if (chooses && first) inflight->constrained[n++] = i;
    }
    if (n == 0) return;
    /* A row that skips the step is computed again, but a state cannot be set back. */
    inflight->max_mask_work = s->states.n > 0 ? 0 : max_mask_work(s);
    s->port.parallel(s->port.self, make_masks, inflight, n);
    if (others_go_on(inflight, n)) {
        postpone_unready(s, inflight, n);
        return;
    }
    inflight->max_mask_work = 0;
    s->port.parallel(s->port.self, make_masks, inflight, n);
}

/* ---- committing ----------------------------------------------------------------------------- */

/* Does a token need more from its sample than an id, or could the settings refuse every token? On a
 * device, penalties need the count of each sampled token. */
static bool needs_sample(const struct scheduler *s, const struct sampling *sampling) {
    return sampling->n_logprobs >= 0 || sampling->allowed || sampling->n_banned > 0 ||
           sampling->n_bad_words > 0 || sampling->no_repeat_ngram > 0 ||
           sampling->mirostat_tau > 0 || (!s->port.on_host && sampling_takes_slot(sampling));
}

int32_t constraint_forced(struct scheduler *s, const struct sequence *sequence) {
    const struct constraint *c = &sequence->constraint;
    char byte;
    int32_t found = -1;
    const int32_t thought = thoughts_next(&sequence->thoughts, limit_of(sequence));
    const struct generation *generation = sequence->request->generation;
    const bool has_grammar = generation->grammar, is_free = !has_grammar || c->begins_at < 0;
    if (s->config.samples_forced || (is_free && thought < 0)) return -1;
    if (needs_sample(s, &sequence->request->sampling)) return -1;
    if (is_free) return has_grammar && generation_stops_at(generation, thought) ? -1 : thought;
    if (!c->matcher) return -1;
    if (thought < 0 && matcher_forced(c->matcher, &byte, 1) == 0)
        return -1; /* several, or the end */
    if (!matcher_prepare(c->matcher, max_mask_work(s))) return -1;
    make_mask(sequence, s->spare_mask, mask_words(s->port.V));
    for (int i = 0; i < mask_words(s->port.V); i++) {
        uint32_t word = s->spare_mask[i];
        if (word && (found >= 0 || (word & (word - 1)))) return -1;
        if (word) found = 32 * i + __builtin_ctz(word);
    }
    return found;
}

enum finish constraint_stuck(const struct sequence *sequence) {
    const struct constraint *c = &sequence->constraint;
    bool is_short = !c->matcher || grammar_is_broken(sequence->request->generation->grammar);
    return is_short ? FINISH_NO_MEMORY : FINISH_STUCK;
}

enum finish constraint_take(struct sequence *sequence) {
    struct constraint *c = &sequence->constraint;
    assert(c->n_tokens == sequence->n_tokens - 1);
    if (!constraint_advance(sequence)) return constraint_stuck(sequence);
    assert(c->n_tokens == sequence->n_tokens);
    c->n_unready = 0;
    if (c->begins_at < 0 || !matcher_may_end(c->matcher)) return FINISH_NONE;
    if (matcher_may_go_on(c->matcher)) return FINISH_NONE;
    return grammar_is_broken(sequence->request->generation->grammar) ? FINISH_NO_MEMORY
                                                                     : FINISH_COMPLETE;
}
