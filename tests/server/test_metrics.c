/* Prometheus' text: every line has its form, histograms add up, dashboards find the names they
 * read. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/metrics.h"
#include "support/suite_main.h"

static struct buf written(const struct metrics *metrics, const char *model) {
    struct buf out = {0};
    struct scheduler_stats stats = {
        .running = 3, .waiting = 4, .blocks_total = 8, .blocks_used = 2};
    stats.swapped = 2;
    stats.host_blocks_total = 10;
    stats.host_blocks_used = 4;
    stats.host_blocks_cached = 5;
    stats.swapped_out = 9;
    stats.swapped_in = 7;
    stats.prompt_tokens = 12345678901234;
    stats.prefix_hits = 5;
    stats.part_ns[PART_FORWARD] = 2500000000;
    stats.part_ns[PART_SAMPLE] = 125000000;
    metrics_write(&out, metrics, &stats, model, 6);
    return out;
}

static void check_holds(const struct buf *out, const char *line) {
    ck_assert_msg(strstr(out->data, line), "no '%s' in:\n%s", line, out->data);
}

START_TEST(names_and_values) {
    struct metrics metrics = {.finished_stop = 7,
                              .http_requests = {0, 0, 9},
                              .refused_overload = 2,
                              .answer_ns = 500000000};
    struct buf out = written(&metrics, "m");
    check_holds(&out, "\nvllm:num_requests_running{model_name=\"m\"} 3\n");
    check_holds(&out, "\nvllm:num_requests_waiting{model_name=\"m\"} 4\n");
    check_holds(&out, "\nvllm:kv_cache_usage_perc{model_name=\"m\"} 0.25\n");
    check_holds(&out, "\nvllm:num_requests_swapped{model_name=\"m\"} 2\n");
    check_holds(&out, "\nvllm:cpu_cache_usage_perc{model_name=\"m\"} 0.4\n");
    check_holds(&out, "\npenstock_swap_blocks{state=\"total\"} 10\n");
    check_holds(&out, "\npenstock_swap_blocks{state=\"used\"} 4\n");
    check_holds(&out, "\npenstock_swap_blocks{state=\"cached\"} 5\n");
    check_holds(&out, "\npenstock_swapped_blocks_total{direction=\"out\"} 9\n");
    check_holds(&out, "\npenstock_swapped_blocks_total{direction=\"in\"} 7\n");
    check_holds(&out, "\nvllm:prefix_cache_queries_total{model_name=\"m\"} 0\n");
    check_holds(&out, "\nvllm:prefix_cache_hits_total{model_name=\"m\"} 5\n");
    check_holds(&out, "\nvllm:num_preemptions_total{model_name=\"m\"} 0\n");
    check_holds(&out, "\nvllm:prompt_tokens_total{model_name=\"m\"} 12345678901234\n");
    check_holds(&out, "\nvllm:generation_tokens_total{model_name=\"m\"} 0\n");
    check_holds(&out,
                "\nvllm:request_success_total{finished_reason=\"stop\",model_name=\"m\"} 7\n");
    check_holds(&out, "\npenstock_http_requests_total{class=\"2xx\"} 9\n");
    check_holds(&out, "\npenstock_refused_overload_total 2\n");
    check_holds(&out, "\npenstock_http_connections 6\n");
    check_holds(&out, "\npenstock_answer_seconds_total 0.5\n");
    check_holds(&out, "\npenstock_step_part_seconds_total{part=\"plan\"} 0\n");
    check_holds(&out, "\npenstock_step_part_seconds_total{part=\"forward\"} 2.5\n");
    check_holds(&out, "\npenstock_step_part_seconds_total{part=\"sample\"} 0.125\n");
    check_holds(&out, "\npenstock_step_part_seconds_total{part=\"commit\"} 0\n");
    check_holds(&out, "\npenstock_kv_blocks{state=\"total\"} 8\n");
    check_holds(&out, "\n# TYPE vllm:time_to_first_token_seconds histogram\n");
    check_holds(&out, "\n# TYPE vllm:inter_token_latency_seconds histogram\n");
    check_holds(&out, "\n# TYPE vllm:e2e_request_latency_seconds histogram\n");
    check_holds(&out, "\n# TYPE vllm:request_queue_time_seconds histogram\n");
    ck_assert_int_eq(out.data[out.length - 1], '\n');
    buf_free(&out);
}
END_TEST

START_TEST(histograms_are_cumulative) {
    struct metrics metrics = {0};
    histogram_add(&metrics.ttft, 0.0004);
    histogram_add(&metrics.ttft, 0.0005); /* a bound belongs to its bucket */
    histogram_add(&metrics.ttft, 0.004);
    histogram_add(&metrics.ttft, 1000);
    histogram_add(&metrics.ttft, -1);
    histogram_add(&metrics.ttft, NAN);
    struct buf out = written(&metrics, "m");
#define BUCKET "\nvllm:time_to_first_token_seconds_bucket{le="
    check_holds(&out, BUCKET "\"0.0005\",model_name=\"m\"} 4\n");
    check_holds(&out, BUCKET "\"0.003\",model_name=\"m\"} 4\n");
    check_holds(&out, BUCKET "\"0.005\",model_name=\"m\"} 5\n");
    check_holds(&out, BUCKET "\"120\",model_name=\"m\"} 5\n");
    check_holds(&out, BUCKET "\"+Inf\",model_name=\"m\"} 6\n");
    check_holds(&out, "\nvllm:time_to_first_token_seconds_sum{model_name=\"m\"} 1000.0049\n");
    check_holds(&out, "\nvllm:time_to_first_token_seconds_count{model_name=\"m\"} 6\n");
    buf_free(&out);
}
END_TEST

START_TEST(labels_are_escaped) {
    struct metrics metrics = {0};
    struct buf out = written(&metrics, "a\"b\\c\nd");
    check_holds(&out, "\nvllm:num_requests_running{model_name=\"a\\\"b\\\\c\\nd\"} 3\n");
    buf_free(&out);
    out = written(&metrics, "");
    check_holds(&out, "\nvllm:num_requests_running{model_name=\"\"} 3\n");
    buf_free(&out);
}
END_TEST

/* Each name has its HELP and TYPE once, before its samples. */
START_TEST(each_name_is_declared_once) {
    struct metrics metrics = {0};
    struct buf out = written(&metrics, "m");
    int declared = 0;
    for (const char *p = out.data; (p = strstr(p, "# TYPE ")); p++) {
        char line[128];
        size_t n = strcspn(p + 7, " ");
        ck_assert_uint_lt(n, 100);
        snprintf(line, sizeof line, "# TYPE %.*s ", (int)n, p + 7);
        ck_assert_ptr_eq(strstr(out.data, line), p);
        ck_assert_ptr_null(strstr(p + 1, line));
        snprintf(line, sizeof line, "# HELP %.*s ", (int)n, p + 7);
        ck_assert_ptr_nonnull(strstr(out.data, line));
        declared++;
    }
    ck_assert_int_eq(declared, 27);
    buf_free(&out);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_api_metrics");
    TCase *core = tcase_create("core");
    tcase_add_test(core, names_and_values);
    tcase_add_test(core, histograms_are_cumulative);
    tcase_add_test(core, labels_are_escaped);
    tcase_add_test(core, each_name_is_declared_once);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
