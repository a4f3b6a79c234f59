/* GET /metrics: its numbers and their names, in Prometheus' format and in OpenMetrics; the
 * selection of the format; and that histograms add up. */
#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "server/endpoints/exposition.h"
#include "server/endpoints/metrics_view.h"
#include "support/suite_main.h"

static struct metrics metrics;
static struct scheduler_stats stats;
static struct metrics_view view;
static struct buf out;

static void setup(void) {
    metrics = (struct metrics){0};
    stats = (struct scheduler_stats){.running = 3, .waiting = 4, .blocks_total = 8};
    view = (struct metrics_view){.metrics = &metrics,
                                 .stats = &stats,
                                 .process = {NAN, NAN, NAN, NAN, NAN, NAN},
                                 .connections = 6,
                                 .model = "m",
                                 .max_model_len = 1024,
                                 .block_size = 16,
                                 .cache_dtype = "auto"};
}

static void teardown(void) {
    buf_free(&out);
}

static void write_as(bool openmetrics) {
    buf_clear(&out);
    metrics_write(&out, openmetrics, &view);
}

static void expect(const char *text) {
    ck_assert_msg(strstr(out.data, text), "no '%s' in:\n%s", text, out.data);
}

static void refute(const char *text) {
    ck_assert_msg(!strstr(out.data, text), "'%s' in:\n%s", text, out.data);
}

#define E "{engine=\"0\","
#define M "model_name=\"m\"}"

/* ---- numbers -------------------------------------------------------------------------------- */

START_TEST(the_scheduler_is_shown) {
    stats.blocks_used = 2;
    stats.swapped = 2;
    stats.window_blocks_total = 8;
    stats.window_blocks_used = 6;
    stats.window_blocks_cached = 1;
    stats.host_blocks_total = 10;
    stats.host_blocks_used = 4;
    stats.host_blocks_cached = 5;
    stats.swapped_out = 9;
    stats.swapped_in = 7;
    stats.prompt_tokens = 12345678901234;
    stats.cached_tokens = 12345678901230;
    stats.prefix_hits = 5;
    stats.part_ns[PART_FORWARD] = 2500000000;
    stats.part_ns[PART_SAMPLE] = 125000000;
    write_as(false);
    expect("\nvllm:engine_sleep_state" E "sleep_state=\"awake\"," M " 1\n");
    expect("\nvllm:engine_sleep_state" E "sleep_state=\"discard_all\"," M " 0\n");
    stats.model = MODEL_LOADING;
    stats.failed_loads = 3;
    stats.load_ns = 1500000000;
    write_as(false);
    expect("\nvllm:engine_sleep_state" E "sleep_state=\"awake\"," M " 0\n");
    expect("\nvllm:engine_sleep_state" E "sleep_state=\"discard_all\"," M " 1\n");
    expect("\npenstock_model_loads_total{result=\"failed\"} 3\n");
    expect("\npenstock_model_load_seconds_total 1.5\n");
    expect("\nvllm:num_requests_running" E M " 3\n");
    expect("\nvllm:num_requests_waiting" E M " 4\n");
    expect("\nvllm:num_requests_waiting_by_reason" E "reason=\"capacity\"," M " 4\n");
    expect("\nvllm:num_requests_waiting_by_reason" E "reason=\"deferred\"," M " 0\n");
    expect("\nvllm:kv_cache_usage_perc" E M " 0.75\n");
    expect("\nvllm:gpu_cache_usage_perc" E M " 0.75\n");
    expect("\nvllm:num_requests_swapped" E M " 2\n");
    expect("\nvllm:cpu_cache_usage_perc" E M " 0.4\n");
    expect("\npenstock_kv_window_blocks{state=\"total\"} 8\n");
    expect("\npenstock_kv_window_blocks{state=\"used\"} 6\n");
    expect("\npenstock_kv_window_blocks{state=\"cached\"} 1\n");
    expect("\npenstock_swap_blocks{state=\"total\"} 10\n");
    expect("\npenstock_swap_blocks{state=\"used\"} 4\n");
    expect("\npenstock_swap_blocks{state=\"cached\"} 5\n");
    expect("\npenstock_swapped_blocks_total{direction=\"out\"} 9\n");
    expect("\npenstock_swapped_blocks_total{direction=\"in\"} 7\n");
    expect("\nvllm:prefix_cache_queries_total" E M " 0\n");
    expect("\nvllm:prefix_cache_hits_total" E M " 5\n");
    expect("\nvllm:gpu_prefix_cache_hits_total" E M " 5\n");
    expect("\nvllm:num_preemptions_total" E M " 0\n");
    expect("\nvllm:prompt_tokens_total" E M " 12345678901234\n");
    expect("\nvllm:prompt_tokens_cached_total" E M " 12345678901230\n");
    expect("\nvllm:prompt_tokens_by_source_total" E "source=\"local_compute\"," M " 4\n");
    expect("\nvllm:generation_tokens_total" E M " 0\n");
    expect("\npenstock_step_part_seconds_total{part=\"plan\"} 0\n");
    expect("\npenstock_step_part_seconds_total{part=\"forward\"} 2.5\n");
    expect("\npenstock_step_part_seconds_total{part=\"sample\"} 0.125\n");
    expect("\npenstock_kv_blocks{state=\"total\"} 8\n");
}
END_TEST

START_TEST(the_loop_is_shown) {
    metrics.finished_stop = 7;
    metrics.finished_error = 1;
    metrics.http_requests[2] = 9;
    metrics.refused_overload = 2;
    metrics.answer_ns = 500000000;
    view.lanes[LANE_PREPARE] = (struct lane_stats){.waiting = 2, .running = 3};
    view.lanes[LANE_GRAMMAR] = (struct lane_stats){.waiting = 4, .running = 5, .parked = 6};
    view.lanes[LANE_TEXT] = (struct lane_stats){.waiting = 7, .running = 8};
    view.grammars = (struct grammar_store_stats){
        .compiled = 1, .refused = 2, .cancelled = 3, .kept_bytes = 4096, .live_bytes = 8192};
    write_as(false);
    expect("\npenstock_prepare_requests{state=\"waiting\"} 2\n");
    expect("\npenstock_prepare_requests{state=\"running\"} 3\n");
    expect("\npenstock_grammar_requests{state=\"waiting\"} 4\n");
    expect("\npenstock_grammar_requests{state=\"running\"} 5\n");
    expect("\npenstock_grammar_requests{state=\"parked\"} 6\n");
    expect("\npenstock_text_requests{state=\"waiting\"} 7\n");
    expect("\npenstock_text_requests{state=\"running\"} 8\n");
    expect("\npenstock_grammar_compilations_total{result=\"compiled\"} 1\n");
    expect("\npenstock_grammar_compilations_total{result=\"refused\"} 2\n");
    expect("\npenstock_grammar_compilations_total{result=\"cancelled\"} 3\n");
    expect("\npenstock_grammar_bytes{state=\"live\"} 8192\n");
    expect("\npenstock_grammar_bytes{state=\"cached\"} 4096\n");
    expect("\nvllm:request_success_total" E "finished_reason=\"stop\"," M " 7\n");
    expect("\nvllm:request_success_total" E "finished_reason=\"length\"," M " 0\n");
    expect("\nvllm:request_success_total" E "finished_reason=\"error\"," M " 1\n");
    expect("\npenstock_http_requests_total{class=\"2xx\"} 9\n");
    expect("\npenstock_http_requests_total{class=\"5xx\"} 0\n");
    expect("\npenstock_refused_overload_total 2\n");
    expect("\npenstock_http_connections 6\n");
    expect("\npenstock_answer_seconds_total 0.5\n");
}
END_TEST

START_TEST(the_prefix_store_is_shown) {
    const struct prefix_store_stats store = {.n_hits = 5,
                                             .n_misses = 6,
                                             .bytes_read = 12345678901,
                                             .bytes_written = 8,
                                             .dropped = {9, 10, 11},
                                             .n_errors = 12};
    write_as(false);
    refute("penstock_prefix_store_up");
    expect("\npenstock_prefix_store_errors_total 0\n");
    view.store = &store;
    write_as(false);
    expect("\npenstock_prefix_store_up 0\n");
    expect("\npenstock_prefix_store_blocks_total{result=\"hit\"} 5\n");
    expect("\npenstock_prefix_store_blocks_total{result=\"miss\"} 6\n");
    expect("\npenstock_prefix_store_bytes_total{direction=\"read\"} 12345678901\n");
    expect("\npenstock_prefix_store_bytes_total{direction=\"written\"} 8\n");
    expect("\npenstock_prefix_store_dropped_records_total{reason=\"queue_full\"} 9\n");
    expect("\npenstock_prefix_store_dropped_records_total{reason=\"unavailable\"} 10\n");
    expect("\npenstock_prefix_store_dropped_records_total{reason=\"damaged\"} 11\n");
    expect("\npenstock_prefix_store_errors_total 12\n");
}
END_TEST

START_TEST(the_journal_is_shown) {
    const struct journal_stats journal = {.running = 2,
                                          .finished = 3,
                                          .bytes = 12345678901,
                                          .evicted = 4,
                                          .recovered = 5,
                                          .syncs = 6,
                                          .refused = {7, 8, 9},
                                          .lost_answers = 10};
    write_as(false);
    expect("\npenstock_promises{state=\"open\"} 0\n");
    view.journal = &journal;
    write_as(false);
    expect("\npenstock_promises{state=\"open\"} 2\n");
    expect("\npenstock_promises{state=\"finished\"} 3\n");
    expect("\npenstock_promises_evicted_total 4\n");
    expect("\npenstock_promises_recovered_total 5\n");
    expect("\npenstock_promises_refused_total{reason=\"disk\"} 7\n");
    expect("\npenstock_promises_refused_total{reason=\"state_size\"} 8\n");
    expect("\npenstock_promises_refused_total{reason=\"too_many\"} 9\n");
    expect("\npenstock_journal_bytes 12345678901\n");
    expect("\npenstock_journal_syncs_total 6\n");
    expect("\npenstock_journal_lost_answers_total 10\n");
}
END_TEST

START_TEST(the_cache_and_the_build_are_told) {
    view.prefix_caching = true;
    write_as(false);
    expect("\nvllm:cache_config_info" E "block_size=\"16\",model_name=\"m\",num_gpu_blocks=\"8\","
           "num_cpu_blocks=\"0\","
           "cache_dtype=\"auto\",enable_prefix_caching=\"True\"} 1\n");
    expect("\npenstock_build_info{version=\"");
    view.prefix_caching = false;
    write_as(false);
    expect("enable_prefix_caching=\"False\"} 1\n");
}
END_TEST

START_TEST(http_requests_are_told_apart) {
    metrics_count_http(&metrics, "/a", "GET", 200, 0.005);
    metrics_count_http(&metrics, "/a", "GET", 204, 0.5);
    metrics_count_http(&metrics, "/a", "GET", 503, 200);
    metrics_count_http(&metrics, "/a", "POST", 404, 0.02);
    ck_assert_int_eq(metrics.n_http, 2);
    write_as(false);
    expect("\nhttp_requests_total{handler=\"/a\",method=\"GET\",status=\"2xx\"} 2\n");
    expect("\nhttp_requests_total{handler=\"/a\",method=\"GET\",status=\"5xx\"} 1\n");
    expect("\nhttp_requests_total{handler=\"/a\",method=\"POST\",status=\"4xx\"} 1\n");
    refute("method=\"POST\",status=\"2xx\"");
#define DURATION "\nhttp_request_duration_seconds"
    expect(DURATION "_bucket{handler=\"/a\",method=\"GET\",le=\"0.01\"} 1\n");
    expect(DURATION "_bucket{handler=\"/a\",method=\"GET\",le=\"0.5\"} 2\n");
    expect(DURATION "_bucket{handler=\"/a\",method=\"GET\",le=\"+Inf\"} 3\n");
    expect(DURATION "_sum{handler=\"/a\",method=\"GET\"} 200.505\n");
}
END_TEST

/* The list of paths is bounded. */
START_TEST(http_counts_are_bounded) {
    static char paths[MAX_HTTP_COUNTS + 10][16];
    uint64_t sum = 0;
    for (int i = 0; i < MAX_HTTP_COUNTS + 10; i++) {
        snprintf(paths[i], sizeof *paths, "/%d", i);
        metrics_count_http(&metrics, paths[i], "GET", 200, 1);
    }
    ck_assert_int_eq(metrics.n_http, MAX_HTTP_COUNTS);
    for (int i = 0; i < metrics.n_http; i++) sum += metrics.http[i].by_class[2];
    ck_assert_uint_eq(sum, MAX_HTTP_COUNTS + 10);
    ck_assert_uint_eq(metrics.http[0].by_class[2], 1);
}
END_TEST

START_TEST(unknown_numbers_are_left_out) {
    write_as(false);
    refute("process_");
    view.process = (struct process_stats){1.25, 1795358339.5, 4096, 2048, 16, 1024};
    write_as(false);
    expect("\n# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1.25\n");
    expect("\nprocess_start_time_seconds 1795358339.5\n");
    expect("\nprocess_virtual_memory_bytes 4096\n");
    expect("\nprocess_resident_memory_bytes 2048\n");
    expect("\nprocess_open_fds 16\n");
    expect("\nprocess_max_fds 1024\n");
}
END_TEST

static int open_files(void) {
    int n = 0;
    for (int fd = 0; fd < 4096; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static double used_cpu_s(void) {
    struct rusage used;
    ck_assert_int_eq(getrusage(RUSAGE_SELF, &used), 0);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

START_TEST(this_process_is_known) {
    struct process_stats before, after;
    FILE *file;
    for (double from_s = used_cpu_s(); used_cpu_s() < from_s + 0.2;) {
    }
    process_stats(&before);
    ck_assert_double_eq_tol(before.cpu_s, used_cpu_s(), 0.05);
    ck_assert(before.virtual_bytes >= before.resident_bytes && before.resident_bytes > 100e3);
    ck_assert(before.open_files == open_files() && before.open_files <= before.max_files);
    double now = (double)time(NULL);
    ck_assert(before.start_s < now + 1 && before.start_s > now - 3600);
    ck_assert_ptr_nonnull(file = fopen("/dev/null", "r"));
    process_stats(&after);
    ck_assert(after.open_files == before.open_files + 1);
    ck_assert(fabs(after.start_s - before.start_s) < 0.1);
    fclose(file);
}
END_TEST

/* ---- histograms ----------------------------------------------------------------------------- */

START_TEST(histograms_are_cumulative) {
    metrics_observe(&metrics, HISTOGRAM_FIRST_TOKEN, 0.0004);
    metrics_observe(&metrics, HISTOGRAM_FIRST_TOKEN, 0.0005); /* a bound belongs to its bucket */
    metrics_observe(&metrics, HISTOGRAM_FIRST_TOKEN, 0.004);
    metrics_observe(&metrics, HISTOGRAM_FIRST_TOKEN, 10000);
    metrics_observe(&metrics, HISTOGRAM_FIRST_TOKEN, -1);
    metrics_observe(&metrics, HISTOGRAM_FIRST_TOKEN, NAN);
    write_as(false);
#define FIRST "\nvllm:time_to_first_token_seconds"
    expect(FIRST "_bucket" E "model_name=\"m\",le=\"0.0005\"} 4\n");
    expect(FIRST "_bucket" E "model_name=\"m\",le=\"0.002\"} 4\n");
    expect(FIRST "_bucket" E "model_name=\"m\",le=\"0.005\"} 5\n");
    expect(FIRST "_bucket" E "model_name=\"m\",le=\"1.0\"} 5\n");
    expect(FIRST "_bucket" E "model_name=\"m\",le=\"2560.0\"} 5\n");
    expect(FIRST "_bucket" E "model_name=\"m\",le=\"+Inf\"} 6\n");
    expect(FIRST "_sum" E M " 10000.0049\n");
    expect(FIRST "_count" E M " 6\n");
}
END_TEST

/* The same histogram has two names. */
START_TEST(older_names_have_the_same_numbers) {
    metrics_observe(&metrics, HISTOGRAM_INTER_TOKEN, 0.25);
    write_as(false);
    expect("\nvllm:inter_token_latency_seconds_sum" E M " 0.25\n");
    expect("\nvllm:time_per_output_token_seconds_sum" E M " 0.25\n");
    expect("\nvllm:request_time_per_output_token_seconds_count" E M " 0\n");
}
END_TEST

/* Bounds of tokens end at the model's context. Larger values count as above the last bound. */
START_TEST(bounds_of_tokens_end_at_the_context) {
    metrics_observe(&metrics, HISTOGRAM_PROMPT, 1000);
    metrics_observe(&metrics, HISTOGRAM_PROMPT, 1001);
    metrics_observe(&metrics, HISTOGRAM_PROMPT, 1e9);
    write_as(false);
#define PROMPT "\nvllm:request_prompt_tokens_bucket" E "model_name=\"m\",le="
    expect(PROMPT "\"500.0\"} 0\n");
    expect(PROMPT "\"1000.0\"} 1\n");
    expect(PROMPT "\"+Inf\"} 3\n");
    refute(PROMPT "\"2000.0\"}");
    view.max_model_len = 2000;
    write_as(false);
    expect(PROMPT "\"2000.0\"} 2\n");
}
END_TEST

START_TEST(steps_are_shown_by_their_rows) {
    stats.steps_by_rows[0] = 5;
    stats.steps_by_rows[2] = 3;
    stats.steps_by_rows[STEP_ROW_BOUNDS] = 1;
    stats.step_rows = 20050;
    ck_assert(step_row_bound(0) == 1 && step_row_bound(1) == 8 && step_row_bound(2) == 16);
    ck_assert_int_eq(step_row_bound(STEP_ROW_BOUNDS - 1), 16384);
    write_as(false);
#define STEP "\nvllm:iteration_tokens_total"
    expect(STEP "_bucket" E "model_name=\"m\",le=\"1.0\"} 5\n");
    expect(STEP "_bucket" E "model_name=\"m\",le=\"8.0\"} 5\n");
    expect(STEP "_bucket" E "model_name=\"m\",le=\"16.0\"} 8\n");
    expect(STEP "_bucket" E "model_name=\"m\",le=\"16384.0\"} 8\n");
    expect(STEP "_bucket" E "model_name=\"m\",le=\"+Inf\"} 9\n");
    expect(STEP "_sum" E M " 20050\n");
    expect(STEP "_count" E M " 9\n");
}
END_TEST

/* ---- formats -------------------------------------------------------------------------------- */

START_TEST(labels_are_escaped) {
    view.model = "a\"b\\c\nd\xff\xc3\xa9";
    write_as(false);
    expect("\nvllm:num_requests_running" E
           "model_name=\"a\\\"b\\\\c\\nd\xef\xbf\xbd\xc3\xa9\"} 3\n");
    view.model = "";
    write_as(false);
    expect("\nvllm:num_requests_running" E "model_name=\"\"} 3\n");
}
END_TEST

/* Each family is declared once, before its samples, in both formats. */
START_TEST(each_name_is_declared_once) {
    for (int openmetrics = 0; openmetrics < 2; openmetrics++) {
        int declared = 0;
        write_as(openmetrics);
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
        ck_assert_int_eq(declared, 77); /* and one with a store */
        ck_assert_int_eq(out.data[out.length - 1], '\n');
    }
}
END_TEST

START_TEST(openmetrics_has_its_own_lines) {
    view.process = (struct process_stats){1.25, 1795358339.5, 4096, 2048, 16, 1024};
    write_as(true);
    expect("# TYPE penstock_build info\n# HELP penstock_build ");
    expect("\npenstock_build_info{version=");
    expect("\n# TYPE vllm:prompt_tokens counter\n# HELP vllm:prompt_tokens ");
    expect("\nvllm:prompt_tokens_total" E M " 0\n");
    expect("\n# TYPE process_cpu_seconds counter\n# UNIT process_cpu_seconds seconds\n");
    expect("\n# UNIT process_resident_memory_bytes bytes\n");
    expect("\n# UNIT vllm:time_to_first_token_seconds seconds\n");
    expect("\n# TYPE vllm:iteration_tokens_total histogram\n");
    ck_assert_str_eq(out.data + out.length - 6, "# EOF\n");
    write_as(false);
    expect("\n# TYPE vllm:prompt_tokens_total counter\n");
    expect("# TYPE penstock_build_info gauge\n");
    refute("# UNIT");
    refute("# EOF");
}
END_TEST

START_TEST(a_client_gets_its_preferred_format) {
    static const struct {
        const char *accept;
        bool openmetrics;
    } cases[] = {
        {NULL, false},
        {"", false},
        {"*/*", false},
        {"text/plain", false},
        {"application/openmetrics-text", true},
        {"Application/OpenMetrics-Text; version=1.0.0; charset=utf-8", true},
        {"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;"
         "q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
         true},
        {"text/plain;version=0.0.4;q=0.5, application/openmetrics-text; version=1.0.0", true},
        {"text/plain;q=0.5,application/openmetrics-text;q=0.5", true},
        {"text/plain;q=0.5,application/openmetrics-text;q=0.4", false},
        {"text/plain,application/openmetrics-text;q=0.9", false},
        {"application/openmetrics-text;q=0", false},
        {"application/openmetrics-text;q=-1", false},
        {"application/openmetrics-text;q=nan", false},
        {"application/openmetrics-text;version=0.0.1", false},
        {"application/openmetrics-text; \tversion=0.0.1", false},
        {"application/openmetrics-text; q=0", false},
        {"application/openmetrics-text;q=2,text/plain;q=0.1", false},
        {"application/openmetrics-text;version=1.0.01", false},
        {"application/openmetrics-textual", false},
        {"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;q=0.7,"
         "text/plain;version=0.0.4;q=0.3",
         false},
        {"application/openmetrics-text;qq=0;q=0.2,text/plain;q=0.1", true},
        {",,;;q=,application/openmetrics-text;", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool openmetrics = exposition_prefers_openmetrics(cases[i].accept);
        ck_assert_msg(openmetrics == cases[i].openmetrics, "%s", cases[i].accept);
    }
    ck_assert_str_eq(exposition_content_type(true),
                     "application/openmetrics-text; version=1.0.0; charset=utf-8");
    ck_assert_str_eq(exposition_content_type(false), "text/plain; version=0.0.4; charset=utf-8");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server/metrics");
    TCase *core = tcase_create("core");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, the_scheduler_is_shown);
    tcase_add_test(core, the_loop_is_shown);
    tcase_add_test(core, the_prefix_store_is_shown);
    tcase_add_test(core, the_journal_is_shown);
    tcase_add_test(core, the_cache_and_the_build_are_told);
    tcase_add_test(core, http_requests_are_told_apart);
    tcase_add_test(core, http_counts_are_bounded);
    tcase_add_test(core, unknown_numbers_are_left_out);
    tcase_add_test(core, this_process_is_known);
    tcase_add_test(core, histograms_are_cumulative);
    tcase_add_test(core, older_names_have_the_same_numbers);
    tcase_add_test(core, bounds_of_tokens_end_at_the_context);
    tcase_add_test(core, steps_are_shown_by_their_rows);
    tcase_add_test(core, labels_are_escaped);
    tcase_add_test(core, each_name_is_declared_once);
    tcase_add_test(core, openmetrics_has_its_own_lines);
    tcase_add_test(core, a_client_gets_its_preferred_format);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
