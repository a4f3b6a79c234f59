"""Which suites find the mutants of which sources: tests/mutate.py runs them.

SUITES names, for a folder or a file, the quick and likely suites first: those of the longest entry that fits a file, then
those of its folder. Suites are named without test_, as in "text_lexer"; one test case of a suite as in "text_tokenizer:core".
After them come the suites that call a function of the file by its name, except those of SLOW and those that take
mutate_build.QUICK_S without a mutant. At last come the test files of tests/e2e that SERVED names, without test_, which run
whole servers.

CUDA names, for a folder or a file of kernels/cuda, the units that are compiled with the mutant and the test programs of
tests/cuda, without cuda_.
"""
import functools
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# What shortens long suites, and fills freed memory with bytes.
ENVIRONMENT = {"SCHEDULER_STEPS": "300000", "PROPERTY_CASES": "150", "MALLOC_PERTURB_": "165"}
SLOW = {"engine_grammar_growth", "engine_sampling_work", "scheduler_work", "scheduler_same_bytes", "engine_golden",
        "server_body_growth", "engine_published", "engine_ranks", "kernels_threads"}
ANY = 5  # the most suites that are run because they call a function of the file

FOLDER = ["engine_hf_config", "engine_folder_broken", "engine_folder_text", "engine_folder_forms", "engine_families"]
HTTP = ["server_http", "server_http_stream", "server_http_limits", "server_http_faults", "server_http_stop"]
KERNELS = ["kernels_rows", "kernels_op_options", "kernels_matmul", "kernels_attention", "kernels_layer_kinds"]
PLANNED = ["scheduler_plan", "scheduler_overlap", "scheduler_simulation"]
REQUEST = ["server_request", "server_request_refused", "server_fields"]
TOKENIZER = ["engine_hf_tokenizer", "engine_hf_tokenizer_broken", "text_vocabulary", "text_tokenizer:core"]

SUITES = {
    "bench/command/": ["server_progress"],
    "config/": ["config_status", "config_log", "config_memory"],
    "config/buf.c": ["config_buf", "config_memory"],
    "config/json": ["config_json", "config_json_names", "server_request", "server_request_refused"],
    "config/memory.c": ["config_memory", "config_memory_scope"],
    "config/name_index.c": ["engine_gguf", "engine_safetensors", "config_json_names"],
    "config/pace.c": ["config_pace"],
    "config/terminal.c": ["config_terminal", "server_progress", "server_history"],
    "config/utf8.c": ["config_utf8", "config_json", "text_string"],
    "engine/": ["engine_tiny_model", "engine_draft_engine", "engine_memory_plan", "engine_ranks", "engine_families"],
    "engine/adapters": ["engine_adapters"],
    "engine/config/": ["engine_hf_config", "engine_memory_plan"],
    "engine/config/head.h": ["engine_ends", "engine_hf_config"],
    "engine/convert/": ["engine_quantised_type", "engine_families", "engine_published"],
    "engine/files/": ["engine_gguf", "engine_gguf_config", "engine_weights", "engine_families"],
    "engine/files/gguf_bert.c": ["engine_gguf_bert", "engine_gguf_config", "engine_gguf"],
    "engine/files/gguf_config.c": ["engine_gguf_config", "engine_gguf", "engine_gguf_parts"],
    "engine/files/gguf_own_keys.c": ["engine_delta_keys", "engine_gguf_config", "engine_embeddings", "engine_families"],
    "engine/files/gguf_tokenizer.c": ["engine_gguf_vocabulary", "engine_gguf"],
    "engine/files/hf_": FOLDER,
    "engine/files/hf_encoder.c": ["engine_embeddings", *FOLDER],
    "engine/files/hf_packing.c": ["engine_packed", "engine_packed_broken", "engine_families"],
    "engine/files/hf_rope.c": ["engine_rope_forms", "engine_rope", *FOLDER],
    "engine/files/model_file.c": ["engine_inspect", "engine_gguf", "engine_families"],
    "engine/files/tensors/": ["engine_weights", "engine_gguf", "engine_safetensors", "engine_families"],
    "engine/files/tensors/gguf": ["engine_gguf", "engine_gguf_broken", "engine_gguf_parts"],
    "engine/files/tensors/mapping.c": ["engine_mapping", "engine_weights", "engine_gguf"],
    "engine/files/tensors/packed.c": ["engine_packed", "engine_packed_broken", "engine_families"],
    "engine/files/tensors/safetensors.c": ["engine_safetensors", "engine_folder_broken", "engine_families"],
    "engine/files/hf_eagle.c": ["engine_eagle"],
    "engine/files/text/": ["engine_folder_text", "engine_hf_tokenizer", "engine_hf_tokenizer_broken", "engine_folder_broken"],
    "engine/grammar/": ["engine_grammar", "engine_grammar_matcher", "engine_grammar_masks", "engine_grammar_types",
                        "engine_grammar_bounds", "engine_grammar_hostile"],
    "engine/grammar/build/": ["engine_grammar", "engine_grammar_build", "engine_grammar_combined", "engine_grammar_counts",
                              "engine_grammar_ahead", "server_stop_regex"],
    "engine/grammar/compile.c": ["engine_grammar", "server_stop_regex"],
    "engine/grammar/read/": ["engine_grammar", "engine_grammar_docs", "engine_grammar_ahead", "engine_grammar_types",
                             "engine_grammar_hostile", "server_stop_regex"],
    "engine/grammar/run/search.c": ["server_stop_regex", "engine_grammar"],
    "engine/grammar/run/states.c": ["engine_grammar_counts"],
    "engine/inspect.c": ["engine_inspect"],
    "engine/memory/": ["engine_memory_plan", "engine_memory_scratch", "engine_memory_windows", "engine_memory_machine"],
    "engine/models/": ["engine_families", "engine_hf_config", "engine_gguf_config", "engine_folder_broken", "engine_tiny_model"],
    "engine/models/adapter_copies.c": ["engine_adapters", "scheduler_adapters"],
    "engine/models/adapters.c": ["engine_adapters", "scheduler_adapters"],
    "engine/models/ahead.c": ["engine_ahead", "scheduler_ahead"],
    "engine/models/buffers.c": ["engine_eagle", "engine_memory_scratch"],
    "engine/models/eagle.c": ["engine_eagle", "scheduler_ahead"],
    "engine/models/forward_ahead.c": ["scheduler_ahead"],
    "engine/models/layers.c": ["engine_eagle"],
    "engine/models/load/": ["engine_weight_cache", "engine_weight_index"],
    "engine/models/load/load_check.c": ["engine_scales_broken"],
    "engine/models/load/load_eagle.c": ["engine_eagle", "scheduler_ahead"],
    "engine/models/rope.c": ["engine_rope", "engine_rope_forms"],
    "engine/models/shard.c": ["engine_shard", "engine_eagle", "engine_families"],
    "engine/open_draft.c": ["engine_draft_engine"],
    "engine/quantise/": ["engine_quantised_type", "kernels_quantise"],
    "engine/ranks/": ["engine_ranks", "engine_rank_adapters", "engine_rank_messages", "engine_shard"],
    "engine/run.c": ["scheduler_ahead:guesses", "engine_tiny_model", "engine_draft_engine", "engine_families"],
    "engine/sampling/": ["engine_sampling", "engine_cuts", "engine_changes", "engine_sampling_same", "engine_host_sampler"],
    "engine/text/template/": ["text_value", "text_string", "text_format", "text_lexer", "text_parser", "text_filters",
                              "text_template"],
    "engine/text/tokenizer/": ["text_vocabulary", "text_merge", "text_tokenizer_pieces", "text_detokenizer",
                               "text_pretokenizer:core", *TOKENIZER],
    "engine/text/tokenizer/fim": ["text_fim"],
    "engine/unload.c": ["engine_unload"],
    "kernels/": ["kernels_op_options", "kernels_missing_ops", "kernels_types_table"],
    "kernels/cpu/": ["kernels_topology", "kernels_sharing", "kernels_pool", "kernels_paths", *KERNELS],
    "kernels/cpu/all_reduce.c": ["kernels_all_reduce"],
    "kernels/cpu/ops/": [*KERNELS, "kernels_experts", "kernels_mlp", "kernels_quantise", "kernels_nodes"],
    "kernels/cpu/ops/attention.c": ["kernels_long_attention", *KERNELS, "engine_embeddings"],
    "kernels/cpu/ops/delta_rule.c": ["kernels_delta_rule"],
    "kernels/cpu/ops/low_rank.c": ["kernels_low_rank"],
    "kernels/cpu/ops/matmul_heads.c": ["kernels_latent"],
    "kernels/cpu/ops/rope.c": ["kernels_kv_rows", "kernels_op_options", "kernels_rows"],
    "kernels/cpu/ops/rows.c": ["kernels_op_numbers", *KERNELS],
    "kernels/cpu/ops/short_conv.c": ["kernels_short_conv", "kernels_delta_rule"],
    "kernels/cpu/ops/state_space.c": ["kernels_state_space"],
    "kernels/cpu/plain/": [*KERNELS, "kernels_logits", "kernels_experts"],
    "kernels/cpu/plain/delta_rule.c": ["kernels_delta_rule", "kernels_state_space"],
    "kernels/cpu/plain/kv_rows.c": ["kernels_kv_rows", "kernels_attention"],
    "kernels/cpu/plain/low_rank.c": ["kernels_low_rank"],
    "kernels/cpu/plain/rows.c": ["kernels_op_numbers", *KERNELS],
    "kernels/cpu/plain/short_conv.c": ["kernels_short_conv", "kernels_state_space"],
    "kernels/cpu/simd/": ["kernels_paths", "kernels_quantise", "kernels_logits", *KERNELS],
    "kernels/cpu/simd/attention/kv_rows.inc": ["kernels_kv_rows", "kernels_attention"],
    "kernels/cpu/threads.c": ["kernels_pool", "kernels_sharing"],
    "kernels/cpu/weights/": ["kernels_dtype", "kernels_types_table", "kernels_pack_fast", "kernels_pack_half", "kernels_quantise",
                             "kernels_matmul"],
    "kernels/cpu/weights/broken.c": ["engine_scales_broken"],
    "kernels/cpu/weights/lookup.c": ["engine_looked_up", "kernels_dtype"],
    "scheduler/": [*PLANNED, "scheduler_inbox", "scheduler_unready_masks", "scheduler_forced"],
    "scheduler/batch.c": [*PLANNED, "scheduler_encoders", "scheduler_adapters", "scheduler_ahead:guesses"],
    "scheduler/beams/": ["scheduler_beams", "scheduler_simulation"],
    "scheduler/commit.c": ["scheduler_forced", "scheduler_ahead:guesses"],
    "scheduler/constraint.c": ["scheduler_forced", "scheduler_unready_masks"],
    "scheduler/deadline.c": ["scheduler_deadlines"],
    "scheduler/draft/": ["scheduler_speculate", "scheduler_suffix", "scheduler_draft_model", "scheduler_draft_use",
                         "scheduler_simulation"],
    "scheduler/draft/ahead.c": ["scheduler_draft_ahead", "scheduler_ahead"],
    "scheduler/engine_port.c": ["scheduler_engine_port"],
    "scheduler/finish.c": ["scheduler_ownership"],
    "scheduler/fork.c": ["scheduler_beams"],
    "scheduler/inbox.c": ["scheduler_inbox"],
    "scheduler/inflight.c": ["scheduler_unready_masks", "scheduler_forced"],
    "scheduler/kv/": ["scheduler_block_pool", "scheduler_prefix_cache", "scheduler_host_cache", "scheduler_swap",
                      "scheduler_window_pool", "scheduler_checkpoints", *PLANNED],
    "scheduler/kv/event_ring.c": ["scheduler_event_ring"],
    "scheduler/plan/plan.c": ["scheduler_plan", "scheduler_plan_shares", "scheduler_beams"],
    "scheduler/plan/plan_": ["scheduler_plan", "scheduler_plan_shares", "scheduler_plan_time", "scheduler_questions", "scheduler_shares"],
    "scheduler/plan/shares.c": ["scheduler_shares"],
    "scheduler/plan/step_cost.c": ["scheduler_step_cost", "scheduler_plan"],
    "scheduler/scheduler.c": ["scheduler_threads", "scheduler_ownership"],
    "scheduler/sequence/drafts.c": ["scheduler_speculate"],
    "scheduler/sequence/thoughts.c": ["scheduler_thoughts"],
    "scheduler/speculate.c": ["scheduler_ahead:guesses", "scheduler_speculate"],
    "scheduler/store/": ["scheduler_prefix_store", "scheduler_store_parts"],
    "scheduler/store/redis": ["scheduler_redis_store"],
    "scheduler/unload.c": ["scheduler_unload"],
    "scheduler/view.c": ["scheduler_inbox"],
    "server/": ["server_lanes", "server_lifecycle", "server_supervisor", "server_departures", "server_routes", "server_answers",
                "server_memory_short", "server_memory_server"],
    "server/anthropic/": ["server_messages", "server_message"],
    "server/apis/batch_lines.c": ["server_batch"],
    "server/app/adapters.c": ["server_adapters"],
    "server/app/auth.c": ["server_keys", "server_route_rules"],
    "server/app/metrics.c": ["server_metrics"],
    "server/app/promised/": ["server_stored"],
    "server/app/tool_probe.c": ["server_tool_probe"],
    "server/cassette/": ["server_cassette"],
    "server/commands/": ["server_history", "server_progress", "server_batch", "server_options"],
    "server/commands/reload.c": ["server_reload"],
    "server/decisions/": ["server_decisions"],
    "server/endpoints/": ["server_metrics", "server_routes", "server_keys", "server_route_rules", "server_proxies",
                          "server_page", "server_live"],
    "server/endpoints/adapters.c": ["server_adapters", "server_routes"],
    "server/endpoints/llama.c": ["server_llama", "server_routes"],
    "server/endpoints/ollama.c": ["server_ollama", "server_routes"],
    "server/endpoints/openapi.c": ["server_openapi", "server_routes"],
    "server/fingerprint/": ["server_fingerprint", "server_receipts"],
    "server/generation/": ["server_stop_matcher", "server_stop_regex", "server_prompt", "server_choice", "server_job",
                           "server_grammar_store", "server_grammar_sharing", "server_choice_message", "server_answers"],
    "server/generation/constrain.c": ["server_job", "server_memory_short"],
    "server/generation/prompt.c": ["server_prompt", "server_truncation"],
    "server/generation/reply": ["server_memory_server"],
    "server/http/": [*HTTP, "server_wire", "server_http_readers"],
    "server/http/limits.c": ["server_http_limits", "server_http_readers"],
    "server/http/receive.c": ["server_http_faults", "server_http_limits"],
    "server/http/stream.c": ["server_http_stream"],
    "server/http/wire.c": ["server_wire"],
    "server/hub/": ["server_hub", "server_hub_cache"],
    "server/json/": [*REQUEST, "server_response", "server_request_doubled"],
    "server/keys/": ["server_keys", "server_key_file"],
    "server/kv_events/": ["server_kv_events"],
    "server/llama/": ["server_llama"],
    "server/message/": ["server_message", "server_message_states", "server_tool_grammar", "server_tool_choices",
                        "server_tool_schemas", "server_tool_round_trips", "server_choice_message",
                        "server_message_parsers", "server_message_thoughts"],
    "server/ollama/": ["server_ollama"],
    "server/openai/": [*REQUEST, "server_response", "server_batch", "server_prompt", "server_request_tools",
                       "server_request_forbidden"],
    "server/openai/chat.c": ["server_response_message"],
    "server/openai/classify.c": ["server_classify"],
    "server/openai/embeddings.c": ["server_embeddings"],
    "server/openai/render.c": ["server_render_search"],
    "server/openai/request_structured.c": ["server_request_structured"],
    "server/openai/response.c": ["server_response", "server_request"],
    "server/options/": ["server_options", "server_options_speculation", "server_options_settled", "server_options_help",
                        "server_scheduler_settings"],
    "server/page/": ["server_page"],
    "server/promises/": ["server_journal", "server_promise_records", "server_stored"],
    "server/receipts/": ["server_receipts"],
    "server/responses/": ["server_responses"],
    "server/traces/": ["server_traces", "server_traces_thread"],
}

SERVED = {
    "engine/files/": ["folders"],
    "scheduler/restore.c": ["prefix_store"],
    "scheduler/store/": ["prefix_store"],
    "server/anthropic/": ["messages"],
    "server/apis/": ["contract", "openai", "ollama"],
    "server/app/": ["lifecycle", "contract"],
    "server/app/adapters.c": ["adapters"],
    "server/app/auth.c": ["keys"],
    "server/app/event_bridge.c": ["kv_events"],
    "server/app/promised/": ["promises"],
    "server/app/reasoning_probe.c": ["tools"],
    "server/app/receipts.c": ["receipts"],
    "server/app/supervisor.c": ["supervisor", "lifecycle"],
    "server/app/tool_probe.c": ["tools"],
    "server/app/tracing.c": ["traces"],
    "server/cassette/": ["cassettes"],
    "server/client/": ["health"],
    "server/commands/": ["command_line", "folders", "terminal"],
    "server/commands/grammar": ["tools", "structured"],
    "server/commands/parse.c": ["tools"],
    "server/commands/pull.c": ["pull"],
    "server/commands/reload.c": ["reload"],
    "server/commands/replay.c": ["cassettes"],
    "server/commands/serve.c": ["lifecycle", "command_line", "supervisor"],
    "server/decisions/": ["reading"],
    "server/endpoints/": ["contract", "llama_server", "ollama"],
    "server/endpoints/adapters.c": ["adapters"],
    "server/endpoints/exposition.c": ["metrics"],
    "server/endpoints/health.c": ["health", "lifecycle"],
    "server/endpoints/live.c": ["live"],
    "server/endpoints/metrics": ["metrics"],
    "server/endpoints/openapi.c": ["openapi"],
    "server/endpoints/stored.c": ["promises"],
    "server/fingerprint/": ["receipts", "promises"],
    "server/generation/": ["contract", "openai", "structured"],
    "server/generation/constrain.c": ["structured", "tools"],
    "server/generation/infill.c": ["infill"],
    "server/generation/reply_promise.c": ["promises"],
    "server/http/": ["abuse", "contract"],
    "server/hub/": ["pull"],
    "server/keys/": ["keys"],
    "server/kv_events/": ["kv_events"],
    "server/llama/": ["llama_server"],
    "server/main.c": ["command_line"],
    "server/message/": ["tools", "harmony"],
    "server/offline/": ["batch"],
    "server/ollama/": ["ollama"],
    "server/ollama/embed.c": ["ollama", "reading"],
    "server/openai/": ["contract", "openai"],
    "server/openai/embeddings.c": ["reading"],
    "server/options/": ["command_line"],
    "server/promises/": ["promises"],
    "server/receipts/": ["receipts"],
    "server/responses/": ["responses"],
    "server/traces/": ["traces"],
}

CUDA = {
    "": ([], ["launches"]),
    "attention/": (["attention/dispatch", "attention/plan", "attention/float", "attention/f16", "attention/bf16",
                    "attention/e4m3"], ["attention", "attention_bits", "both_ways"]),
    "attention/heads.cuh": (["attention/rope"], ["rope", "kv_e4m3"]),
    "attention/kv": (["attention/kv", "attention/kv_swap"], ["kv", "swap", "windows", "latent"]),
    "attention/latent": (["attention/latent"], ["latent"]),
    "attention/rope": (["attention/rope"], ["rope", "kv_e4m3"]),
    "attention/workspace": (["attention/workspace"], ["windows", "engine_encoders"]),
    "backend_compute.cu": (["backend_compute"], ["graph", "persistent", "windows", "op_options", "engine_ahead"]),
    "experts/": (["experts/experts", "experts/route"], ["experts"]),
    "gemm/": (["gemm/dispatch", "gemm/skinny", "gemm/tiled", "gemm/float", "gemm/pack", "gemm/matrix", "gemm/ops"],
              ["gemm", "gemm_fused", "products", "gemm_cublas", "wgmma"]),
    "gemm/embed": (["gemm/embed"], ["weights", "op_options"]),
    "gemm/grouped": (["gemm/grouped"], ["experts"]),
    "gemm/heads": (["gemm/heads"], ["latent"]),
    "gemm/pack": (["gemm/pack"], ["weights", "gemm"]),
    "gemm/random": (["gemm/random"], ["random"]),
    "graph": (["graph", "step"], ["graph", "engine_graphs", "launches", "engine_ahead"]),
    "low_rank/": (["low_rank/low_rank", "low_rank/tiles"], ["low_rank"]),
    "persistent/": (["persistent/bf16", "persistent/persistent"], ["persistent", "engine_persistent", "start"]),
    "recurrent/": (["recurrent/short_conv", "recurrent/matrices", "recurrent/gates", "recurrent/states"], ["recurrent"]),
    "rows/": (["rows/rows"], ["rows"]),
    "runtime/": (["runtime/memory", "runtime/staging", "runtime/orders", "runtime/cublas"], ["weights", "graph", "products"]),
    "runtime/all_reduce": (["runtime/all_reduce", "runtime/nccl"], ["all_reduce"]),
    "runtime/device.cuh": (["rows/rows"], ["rows"]),
    "runtime/nccl": (["runtime/all_reduce", "runtime/nccl"], ["all_reduce"]),
    "sampling/": (["sampling/kernel"], ["sample"]),
    "sampling/op": (["sampling/op", "sampling/passage"], ["sampler"]),
    "sampling/passage": (["sampling/op", "sampling/passage"], ["sampler"]),
    "step": (["step", "graph"], ["graph", "windows", "swap", "engine_encoders"]),
    "wgmma/": (["wgmma/wide", "wgmma/e4m3", "wgmma/chunks"], ["wgmma", "e4m3"]),
    "wgmma/chunks": (["wgmma/chunks"], ["chunks", "both_ways"]),
    "wgmma/e4m3": (["wgmma/e4m3"], ["e4m3"]),
    "wide_heads/": (["wide_heads/bf16", "wide_heads/f16", "wide_heads/wide_heads"], ["wide_heads"]),
}


def longest(table, path):
    """The longest place of a table that the path begins with; None if no place fits."""
    return max((place for place in table if path.startswith(place)), key=len, default=None)


@functools.lru_cache(maxsize=None)
def calls_of_suites():
    """{suite: the words of its source} of all suites in C."""
    found = {}
    for folder in ("config", "kernels", "text", "engine", "scheduler", "server"):
        for name in sorted(os.listdir(os.path.join(ROOT, "tests", folder))):
            if name.startswith("test_") and name.endswith(".c"):
                with open(os.path.join(ROOT, "tests", folder, name), encoding="utf-8") as file:
                    found[f"{folder}_{name[5:-2]}"] = set(re.findall(r"\w+(?=\()", file.read()))
    return found


def suites_of(path, functions=()):
    """Two lists of suites that judge a file's mutants: those of the table, and those that call one of the functions."""
    likely, room = longest(SUITES, path), longest([place for place in SUITES if place.endswith("/")], path)
    named = list(dict.fromkeys(SUITES.get(likely, []) + SUITES.get(room, [])))
    plain = {suite.partition(":")[0] for suite in named} | SLOW
    calling = [suite for suite, calls in calls_of_suites().items() if suite not in plain and calls & set(functions)]
    return named, calling[:ANY]


def served_of(path):
    """The test files of tests/e2e that judge a file's mutants after the suites."""
    return SERVED.get(longest(SERVED, path), [])


def named_suites():
    """The suites of SUITES and SLOW."""
    return {suite.partition(":")[0] for suites in SUITES.values() for suite in suites} | SLOW


def unnamed():
    """Suites that no table names, so that they judge only what they call by name."""
    return sorted(set(calls_of_suites()) - named_suites())


def gone():
    """Notes about suites and test files of the tables that do not exist any more."""
    lost = sorted(named_suites() - set(calls_of_suites()))
    lost += sorted(name for name in {name for names in SERVED.values() for name in names}
                   if not os.path.exists(os.path.join(ROOT, "tests", "e2e", f"test_{name}.py")))
    return [f"tests/mutate_rooms.py names test_{name}, which does not exist" for name in lost]
