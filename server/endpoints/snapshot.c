/* Writes the snapshots of GET /penstock/live. They have numbers and ids, and no text. */
#include <assert.h>
#include <string.h>

#include "server/endpoints/live.h"
#include "server/json/json.h"

double live_quantile(const struct histogram *histogram, const struct histogram_bounds *bounds,
                     double q) {
    uint64_t total = 0, below = 0;
    assert(q > 0 && q <= 1 && bounds->n > 0);
    for (int i = 0; i <= bounds->n; i++) total += histogram->counts[i];
    if (total == 0) return -1;
    for (int i = 0; i < bounds->n; i++) {
        double rank = q * (double)total - (double)below, count = (double)histogram->counts[i];
        double low = i > 0 ? bounds->at[i - 1] : 0;
        if (count > 0 && rank <= count) return low + (bounds->at[i] - low) * rank / count;
        below += histogram->counts[i];
    }
    return bounds->at[bounds->n - 1]; /* above all bounds: the largest that is known */
}

static void write_latency(struct buf *out, const char *name, const struct histogram *histogram,
                          enum histogram_id id) {
    const struct histogram_bounds *bounds = metrics_bounds(id);
    uint64_t n = 0;
    for (int i = 0; i <= bounds->n; i++) n += histogram->counts[i];
    buf_printf(out, "\"%s\":{\"count\":%llu", name, (unsigned long long)n);
    if (n > 0) {
        buf_printf(out, ",\"p50_ms\":%.3f,\"p99_ms\":%.3f",
                   live_quantile(histogram, bounds, 0.5) * 1e3,
                   live_quantile(histogram, bounds, 0.99) * 1e3);
    }
    buf_puts(out, "}");
}

static void write_blocks(struct buf *out, const struct live_snapshot *snapshot) {
    const struct scheduler_stats *stats = &snapshot->stats;
    int free = stats->blocks_total - stats->blocks_used - stats->blocks_cached;
    assert(free >= 0);
    buf_printf(out, ",\"blocks\":{\"size\":%d,\"total\":%d,\"used\":%d,\"cached\":%d,\"free\":%d}",
               snapshot->block_size, stats->blocks_total, stats->blocks_used, stats->blocks_cached,
               free);
    buf_printf(out, ",\"host_blocks\":{\"total\":%d,\"used\":%d,\"cached\":%d}",
               stats->host_blocks_total, stats->host_blocks_used, stats->host_blocks_cached);
}

static const char *const part_names[N_STEP_PARTS] = {"plan", "forward", "sample", "commit"};

/* The means over the steps since the snapshot before. */
static void write_steps(struct buf *out, const struct live_snapshot *snapshot) {
    const struct scheduler_stats *now = &snapshot->stats, *then = &snapshot->before.stats;
    bool has_before = snapshot->before.at_ns > 0;
    uint64_t steps = now->steps - then->steps;
    double n = steps > 0 ? (double)steps : 1, seconds = 1;
    if (has_before) seconds = (double)(snapshot->at_ns - snapshot->before.at_ns) * 1e-9;
    buf_printf(out, ",\"step\":{\"count\":%llu", (unsigned long long)now->steps);
    if (has_before && seconds > 0) {
        uint64_t tokens = now->generated_tokens - then->generated_tokens;
        uint64_t prompts = now->prompt_tokens - then->prompt_tokens;
        buf_printf(out, ",\"rows\":%.2f,\"ms\":{", (double)(now->step_rows - then->step_rows) / n);
        for (int i = 0; i < N_STEP_PARTS; i++) {
            double ns = steps > 0 ? (double)(now->part_ns[i] - then->part_ns[i]) : 0;
            buf_printf(out, "%s\"%s\":%.4f", i > 0 ? "," : "", part_names[i], ns / n * 1e-6);
        }
        buf_printf(out, "},\"tokens_per_s\":%.2f,\"prompt_tokens_per_s\":%.2f",
                   (double)tokens / seconds, (double)prompts / seconds);
    }
    buf_puts(out, "}");
}

static void write_sequence(struct buf *out, const struct sequence_view *row, uint64_t at_ns) {
    static const char *const states[] = {"prefill", "decode", "waiting", "swapped"};
    uint64_t since = row->received_ns;
    double age_s = at_ns > since ? (double)(at_ns - since) * 1e-9 : 0;
    buf_puts(out, "{\"id\":");
    json_write_string(out, row->name, strlen(row->name));
    buf_printf(out, ",\"choice\":%d,\"state\":\"%s\",\"prompt\":%d,\"computed\":%d", row->choice,
               states[row->state], row->prompt, row->computed);
    buf_printf(out, ",\"output\":%d,\"cached\":%d,\"blocks\":%d,\"age_s\":%.3f}", row->output,
               row->cached, row->blocks, age_s);
}

static void write_sequences(struct buf *out, const struct live_snapshot *snapshot,
                            const struct live_reader *reader) {
    const struct scheduler_view *view = snapshot->view;
    const char *comma = "";
    assert(!reader->all || reader->client == 0);
    buf_printf(out, ",\"listed\":\"%s\",\"sequences\":[", reader->all ? "all" : "own");
    for (int i = 0; view && i < view->n; i++) {
        if (!reader->all && view->sequences[i].client != reader->client) continue;
        buf_puts(out, comma);
        write_sequence(out, &view->sequences[i], snapshot->at_ns);
        comma = ",";
    }
    buf_puts(out, "]");
}

const char *model_state_name(enum model_state state) {
    static const char *const names[] = {"loaded", "unloaded", "loading"};
    assert(state >= MODEL_LOADED && state <= MODEL_LOADING);
    return names[state];
}

void live_write(struct buf *out, const struct live_snapshot *snapshot,
                const struct live_reader *reader) {
    const struct scheduler_stats *stats = &snapshot->stats;
    buf_printf(out, "{\"running\":%d,\"waiting\":%d,\"swapped\":%d,\"preparing\":%d",
               stats->running, stats->waiting, stats->swapped, snapshot->preparing);
    buf_printf(out, ",\"queued_tokens\":%d,\"model\":\"%s\"", stats->queued_tokens,
               model_state_name(stats->model));
    write_blocks(out, snapshot);
    write_steps(out, snapshot);
    buf_printf(out, ",\"tokens\":{\"prompt\":%llu,\"cached\":%llu,\"generated\":%llu}",
               (unsigned long long)stats->prompt_tokens, (unsigned long long)stats->cached_tokens,
               (unsigned long long)stats->generated_tokens);
    buf_printf(out, ",\"drafts\":{\"verified\":%llu,\"accepted\":%llu}",
               (unsigned long long)stats->draft_tokens, (unsigned long long)stats->accepted_tokens);
    buf_printf(out, ",\"preemptions\":%llu,\"refused\":%llu,\"last_minute\":{",
               (unsigned long long)stats->preemptions, (unsigned long long)snapshot->refused);
    write_latency(out, "first_token", &snapshot->first_token, HISTOGRAM_FIRST_TOKEN);
    buf_puts(out, ",");
    write_latency(out, "inter_token", &snapshot->inter_token, HISTOGRAM_INTER_TOKEN);
    buf_puts(out, "}");
    if (reader->all || reader->client) write_sequences(out, snapshot, reader);
    buf_puts(out, "}");
}
