"""Mutants of metrics, of their formats and of who may read them; tests/mutate.py says what the names mean."""
E = "server/endpoints/"
X, M, P = E + "exposition.c", E + "metrics.c", E + "process.c"
R = "server/generation/reply.c"
C = "scheduler/commit.c"
SUITES = {
    E: ["server_metrics", "server_routes", "server_keys"],
    E + "auth.c": ["server_keys"],
    E + "routes.c": ["server_routes", "server_keys"],
    R: ["server_routes"],
    C: ["scheduler_inbox"],
}

MUTANTS = [
    # formats
    (X, "return openmetrics > 0 && openmetrics >= text;", "return openmetrics > 0 && openmetrics > text;"),
    (X, "return openmetrics > 0 && openmetrics >= text;", "return openmetrics >= text;"),
    (X, "if (!(q >= 0 && q <= 1)) q = 0;", "if (!(q >= 0)) q = 0;"),
    (X, "if (n > n_type && !strchr(\"; \\t\", item[n_type])) return false;", ""),
    (X, "(length == 5 && memcmp(version, \"1.0.0\", 5) == 0)", "memcmp(version, \"1.0.0\", 5) == 0"),
    (X, "if (p[n_name] != '=') continue;", ""),
    (X, "while (p < item + n && (*p == ' ' || *p == '\\t')) p++;", ""),
    (X, "words[type == METRIC_INFO ? METRIC_GAUGE : type]", "words[type]"),
    (X, "    n -= strlen(ends[type]);\n", ""),
    (X, "if (!strpbrk(bound, \".e\"))", "if (false)"),
    (X, "below += counts[i];", "below = counts[i];"),
    (X, "if (to->openmetrics) buf_puts(to->out, \"# EOF\\n\");", ""),
    (X, "n = utf8_maximal_subpart(p, left);", "n = left;"),
    (X, "if (*p == '\\\\' || *p == '\"') buf_puts(labels, \"\\\\\");", "if (*p == '\"') buf_puts(labels, \"\\\\\");"),
    # numbers
    (M, "if (!(value > 0)) value = 0;", ""),
    (M, "while (i < bounds->n && value > bounds->at[i]) i++;", "while (i < bounds->n && value >= bounds->at[i]) i++;"),
    (M, "    if (i == MAX_HTTP_COUNTS) i--;\n", "    if (i == MAX_HTTP_COUNTS) i = 0;\n"),
    (M, "strcmp(metrics->http[i].method, method) != 0)) {", "false)) {"),
    (M, "if (is_vllm) exposition_label(&writer->labels, \"engine\", \"0\");", ""),
    (M, "bounds->at[n] <= writer->view->max_model_len", "bounds->at[n] < writer->view->max_model_len"),
    (M, "for (int i = n + 1; i <= bounds->n; i++) counts[n] += counts[i];", ""),
    (M, "(double)*(const uint64_t *)at * 1e-9;", "(double)*(const uint64_t *)at * 1e-6;"),
    (M, "if (isnan(number)) return;", ""),
    (M, "if (count->by_class[class] == 0) continue;", ""),
    (M, ".computed_tokens = stats->prompt_tokens - stats->cached_tokens,", ".computed_tokens = stats->prompt_tokens,"),
    (P, "int n = -1; /* the folder itself is open */", "int n = 0;"),
    (P, "    closedir(folder);\n", ""),
    (P, "(double)(utime + stime) / ticks;", "(double)(utime + stime);"),
    (P, "booted + (double)start / ticks;", "booted;"),
    # requests
    (R, "    if (run->first_token_ns) return;\n", ""),
    (R, "        choice->first_token_ns = now;\n", "        choice->first_token_ns = run->generation.received_ns;\n"),
    (R, "uint64_t now = now_ns(), first = run->first_token_ns ? run->first_token_ns : now;", "uint64_t now = now_ns(), first = now;"),
    (R, "    if (n > 1) {\n        double seconds", "    if (n > 0) {\n        double seconds"),
    (R, "seconds / (n - 1)", "seconds / n"),
    (R, "metrics_observe(metrics, HISTOGRAM_COMPUTED, run->n_ids - run->n_cached);", ""),
    (M, ".one = 1,", ""),
    (R, "        if (!run->choices[i].done) return;\n", ""),
    (R, "longest = max_int(longest, run->choices[i].n_tokens);", "longest += run->choices[i].n_tokens;"),
    (R, "if (!run->first_scheduled_ns && event->first_scheduled_ns) {", "if (event->first_scheduled_ns) {"),
    (R, "i < job->n_prompts && !job->err.status; i++) {", "i < 1 && !job->err.status; i++) {"),
    # who may read them, and what is counted
    (E + "auth.c", "if (keys->length == 0) return true;", ""),
    (E + "routes.c", "route.monitored ? &app->metrics_keys : &app->keys", "&app->keys"),
    (E + "routes.c", "if (is_counted && !quiet) {", "if (is_counted) {"),
    (E + "routes.c", "route.answer == render_start ? http->path : route.path;", "route.path;"),
    (E + "routes.c", "    return \"other\";\n", "    return method;\n"),
    (C, "s->stats.cached_tokens += (uint64_t)leader->n_cached;", ""),
    (C, "while (i < STEP_ROW_BOUNDS && rows > step_row_bound(i)) i++;", "while (i < STEP_ROW_BOUNDS && rows >= step_row_bound(i)) i++;"),
    (C, "s->stats.step_rows += (uint64_t)rows;", "s->stats.step_rows++;"),
]
