"""The Prometheus queries of Grafana boards: vLLM's published ones, and this project's.

EXPRESSIONS holds vLLM's, in a compact form: the metrics with their labels, and the computations. <name> or <name
label="value"> is a selector, to which a board adds the model, the engine, the job and the instance; $t is a span of
time. The list lacks expressions for which vLLM has data only with a KV connector, with --kv-cache-metrics, or with
adapters, images or speculative decoding.
"""
import json
import pathlib
import re

OWN_BOARD = pathlib.Path(__file__).resolve().parents[2] / "deploy/grafana/penstock.json"
SELECTOR = re.compile(r"<([a-z0-9:_]+)((?: [a-z_]+=\"[^\"]*\")*)>")
LABEL = re.compile(r"([a-z_]+)=\"([^\"]*)\"")

# Upper bounds that a board's user may select as a goal, as vLLM writes them.
FIRST_TOKEN_GOALS = ("0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0 160.0 640.0 "
                     "2560.0").split()
OUTPUT_TOKEN_GOALS = ("0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0").split()
REQUEST_BOUNDS = ("0.3 0.5 0.8 1.0 1.5 2.0 2.5 5.0 10.0 15.0 20.0 30.0 40.0 50.0 60.0 120.0 240.0 480.0 960.0 1920.0 "
                  "7680.0").split()

LATENCIES = ["time_to_first_token_seconds", "inter_token_latency_seconds", "time_per_output_token_seconds",
             "request_time_per_output_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds"]
PHASES = ["request_prefill_time_seconds", "request_decode_time_seconds", "request_inference_time_seconds"]
SIZES = ["request_prompt_tokens", "request_prefill_kv_computed_tokens", "request_generation_tokens",
         "request_max_num_generation_tokens", "request_params_n", "request_params_max_tokens", "iteration_tokens_total"]


def of_histogram(name):
    bucket, total, count = (f"rate(<{name}{end}>[$t])" for end in ("_bucket", "_sum", "_count"))
    quantiles = [f"histogram_quantile({q}, sum by ({by}) ({bucket}))" for q in (0.5, 0.9, 0.95, 0.99)
                 for by in ("le", "le, model_name", "le, instance")]
    return [*quantiles, f"sum({total}) / (sum({count}) > 0)", f"{total} / {count}", f"sum by (le) ({bucket})",
            f"sum by (le) (increase(<{name}_bucket>[$t])) / on () group_left () (sum(increase(<{name}_count>[$t])) > 0)"]


def rates(name):
    return [f"rate(<{name}>[$t])", f"sum(rate(<{name}>[$t]))", f"sum by (model_name) (rate(<{name}>[$t]))"]


def gauges(name):
    return [f"<{name}>", *(f"{how}(<{name}>)" for how in ("sum", "max", "avg", "min", "count")),
            f"max by (instance, engine) (<{name}>)", f"max by (model_name) (max_over_time(<{name}>[$t]))"]


def ratio(part, whole):
    return f"sum(rate(<{part}>[$t])) / (sum(rate(<{whole}>[$t])) > 0)"


EXPRESSIONS = [
    *(e for name in LATENCIES + PHASES + SIZES for e in of_histogram("vllm:" + name)),
    *(e for name in ("prompt_tokens_total", "generation_tokens_total", "num_preemptions_total", "prefix_cache_hits_total",
                     "prefix_cache_queries_total", "gpu_prefix_cache_hits_total", "gpu_prefix_cache_queries_total",
                     "prompt_tokens_cached_total", "request_success_total") for e in rates("vllm:" + name)),
    *(e for name in ("num_requests_running", "num_requests_waiting", "num_requests_swapped", "kv_cache_usage_perc",
                     "gpu_cache_usage_perc", "cpu_cache_usage_perc") for e in gauges("vllm:" + name)),
    *(f'sum(<vllm:num_requests_waiting_by_reason reason="{reason}">)' for reason in ("capacity", "deferred")),
    *(f'sum(rate(<vllm:prompt_tokens_by_source_total source="{source}">[$t]))'
      for source in ("local_compute", "local_cache_hit", "external_kv_transfer")),
    ratio("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"),
    ratio("vllm:prompt_tokens_cached_total", "vllm:prompt_tokens_total"),
    ratio("vllm:prompt_tokens_total", "vllm:request_success_total"),
    *(ratio(f'vllm:request_success_total finished_reason="{reason}"', "vllm:request_success_total")
      for reason in ("stop", "length", "abort", "error")),
    *(ratio(f'vllm:time_to_first_token_seconds_bucket le="{le}"', "vllm:time_to_first_token_seconds_count")
      for le in FIRST_TOKEN_GOALS),
    *(ratio(f'vllm:request_time_per_output_token_seconds_bucket le="{le}"',
            "vllm:request_time_per_output_token_seconds_count") for le in OUTPUT_TOKEN_GOALS),
    *(f'sum(rate(<vllm:e2e_request_latency_seconds_bucket le="{le}">[$t]))' for le in REQUEST_BOUNDS),
    "sum by (finished_reason) (increase(<vllm:request_success_total>[$t]))",
    "sum by (finished_reason) (rate(<vllm:request_success_total>[$t])) / ignoring (finished_reason) group_left () "
    "(sum(rate(<vllm:request_success_total>[$t])) > 0)",
    "round(sum by (model_name) (increase(<vllm:num_preemptions_total>[$t])))",
    "count by (model_name) (group by (model_name, instance) (last_over_time(<vllm:num_requests_running>[$t])))",
    '(2 - (max(<vllm:engine_sleep_state sleep_state="awake">) == bool 0)) or vector(0)',
    '(1 - max by (instance, engine) (<vllm:engine_sleep_state sleep_state="awake">)) * '
    '(1 + max by (instance, engine) (<vllm:engine_sleep_state sleep_state="discard_all">))',
    "histogram_quantile(0.5, sum by (le) (rate(<vllm:time_to_first_token_seconds_bucket>[$t]))) and on () "
    "count(<vllm:num_requests_running>)",
    "sum(rate(<vllm:generation_tokens_total>[$t])) / (sum(avg_over_time(<vllm:num_requests_running>[$t])) > 0)",
    "max by (model_name, instance) ((time() - <process_start_time_seconds>) * on (job, instance) group_left (model_name) "
    "group by (job, instance, model_name) (<vllm:num_requests_running>))",
    "sum by (instance, engine, reason) (<vllm:num_requests_waiting_by_reason>)",
    "<vllm:cache_config_info>",
    "count by (block_size, num_gpu_blocks) (<vllm:cache_config_info>)",
    "sum by (status) (rate(<http_requests_total>[$t]))",
    "sum by (handler) (rate(<http_requests_total>[$t]))",
    '(sum(rate(<http_requests_total status="5xx">[$t])) or vector(0)) / (sum(rate(<http_requests_total>[$t])) > 0)',
    "sum by (handler) (rate(<http_request_duration_seconds_sum>[$t])) / "
    "(sum by (handler) (rate(<http_request_duration_seconds_count>[$t])) > 0)",
    "rate(<process_cpu_seconds_total>[$t])", "<process_resident_memory_bytes>", "<process_virtual_memory_bytes>",
    "time() - <process_start_time_seconds>", "<process_open_fds> / <process_max_fds>",
]


def selectors(expression):
    """Returns the (name, {label: value}) of an expression's selectors."""
    return [(name, dict(LABEL.findall(labels))) for name, labels in SELECTOR.findall(expression)]


def promql(expression, span, **labels):
    """Returns the expression in PromQL: with the labels that a board adds, and over a span of time."""
    def selector(match):
        own = dict(LABEL.findall(match[2]))
        added = {k: v for k, v in labels.items() if match[1].startswith("vllm:") or k not in ("model_name", "engine")}
        return match[1] + "{" + ",".join(f'{k}="{v}"' for k, v in {**added, **own}.items()) + "}"
    return SELECTOR.sub(selector, expression).replace("$t", span)


def own_expressions():
    """Returns the expressions of this project's board, with its variables for labels and span."""
    with open(OWN_BOARD, encoding="utf-8") as file:
        return [target["expr"] for panel in json.load(file)["panels"] for target in panel.get("targets", ())]


def own_selectors():
    """Returns their (name, {label: value}), without labels that a user selects."""
    found = re.findall(r"([a-z0-9_]+:[a-z0-9_]+|[a-z0-9_]+)\{([^}]*)\}", " ".join(own_expressions()))
    return [(name, {k: v for k, v in LABEL.findall(labels) if not v.startswith("$")}) for name, labels in found]


def own_promql(expression, span):
    """Returns the expression for all models and instances."""
    return re.sub(r"\$(model|instance)\b", ".*", expression).replace("$__rate_interval", span)
