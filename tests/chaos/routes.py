"""The table of routes: a valid request of each kind on each route, which the chaos mutates.

A row is (name, method, path, body). `check` compares the table with the server's sources: a route or field without a row fails.
"""
import sources

MODEL = "tiny"
GET, POST, HEAD, OPTIONS = "GET", "POST", "HEAD", "OPTIONS"
USER = [{"role": "user", "content": "hello"}]
SCHEMA = {"type": "object", "additionalProperties": False, "required": ["a"],
          "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": ["x", "y", None]},
                         "c": {"type": "array", "items": {"$ref": "#/$defs/d"}, "maxItems": 2}},
          "$defs": {"d": {"type": "string", "maxLength": 3}}}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string", "maxLength": 4}}, "required": ["a"]}}}
OTHER = {"type": "function", "function": {"name": "g", "parameters": {"type": "object",
                                        "properties": {"c": {"enum": [True, "z"]}}}}}
GBNF = 'root ::= "a" digit+ tail?\ndigit ::= [0-9]\ntail ::= " " root | "x"{1,2}'
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function",
                                                              "function": {"name": "f", "arguments": "{\"a\": 1}"}}]}


def completion(prompt="the ant", **fields):
    return {"model": MODEL, "prompt": prompt, "max_tokens": 12, "temperature": 0, **fields}


def chat(**fields):
    return {"model": MODEL, "messages": USER, "max_tokens": 12, "temperature": 0, **fields}


def tag(form):
    return {"type": "structural_tag", "format": form}


def style(name):
    return tag({"type": "json_schema", "style": name, "json_schema": SCHEMA["properties"]["b"] if name == "json" else {
        "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string", "maxLength": 3}},
        "required": ["a"]}})


COMPLETIONS = {
    "plain": completion(), "ids": completion([3, 1, 4, 1, 5]), "several": completion(["the", "ant", "and"]),
    "lists of ids": completion([[9, 2], [6, 5, 3]]), "n": completion(n=3, seed=5, temperature=0.9),
    "stream": completion(stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True}),
    "logprobs": completion(logprobs=3), "stream of logprobs": completion(logprobs=2, stream=True, n=2, seed=1, temperature=1),
    "echo": completion(echo=True, logprobs=2, max_tokens=4), "only echo": completion(echo=True, max_tokens=0),
    "given ids": completion(logprob_token_ids=[5, 6, 7]),
    "prompt_logprobs": completion("the ant and the ant", prompt_logprobs=2),
    "best_of": completion(best_of=4, n=2, seed=3, temperature=1),
    "beams": completion(use_beam_search=True, best_of=4, n=2, length_penalty=0.5, early_stopping=True),
    "beams never": completion(use_beam_search=True, best_of=3, n=3, early_stopping="never"),
    "bias": completion(logit_bias={"7": 5, "8": -100}, allowed_token_ids=list(range(60, 120))),
    "bad words": completion(bad_words=["a", "th", "xyz"]), "stops": completion(stop=["a", "zz"],
                                        include_stop_str_in_output=True),
    "stop_regex": completion(stop_regex="[b-y]+", max_tokens=40),
    "stop ids": completion(stop_token_ids=[50, 60, 70], min_tokens=3),
    "n-grams": completion("th th th th", no_repeat_ngram_size=2, dry_multiplier=1, dry_base=2, dry_allowed_length=1,
                          dry_penalty_last_n=20, dry_sequence_breakers=["x", "\n"]),
    "penalties": completion(presence_penalty=1, frequency_penalty=0.5, repetition_penalty=1.2, repeat_last_n=8),
    "names": {"prompt": "the", "n_predict": 5, "n_cmpl": 1, "temperature": 0, "repeat_penalty": 1.1},
    "cuts": completion(seed=9, deadline_ms=86400000, temperature=1.5, top_p=0.9, top_k=40, min_p=0.01, typical_p=0.9, top_n_sigma=2,
                       epsilon_cutoff=0.0001,
                       eta_cutoff=0.001, xtc_probability=0.5, xtc_threshold=0.05),
    "mirostat": completion(seed=2, temperature=1, mirostat=2, mirostat_tau=4, mirostat_eta=0.2),
    "delivery": completion(suffix="", return_token_ids=True, receipt=True, user="u", priority=-1, request_id="mine", cache_salt="s",
                           speculative_tokens=3,
                           ignore_eos=True, skip_special_tokens=False, add_special_tokens=False, max_completion_tokens=6),
    "repeats": completion("th the th the th the th the", max_tokens=30),
    "truncated": completion("word " * 90, truncate_prompt_tokens=20, truncation_side="right"),
    "guided_json": completion(guided_json=SCHEMA, max_tokens=40), "json_schema": completion(json_schema=SCHEMA, max_tokens=20),
    "guided_regex": completion(guided_regex="a[0-9]{1,3}(b|cd)*"),
    "guided_choice": completion(guided_choice=["one", "two", "th"]),
    "guided_grammar": completion(guided_grammar=GBNF),
    "grammar": completion(grammar="start: \"a\" /[b-d]+/ INT?\n%import common.INT\n"),
    "object": completion(response_format={"type": "json_object"}, max_tokens=30),
    "text": completion(response_format={"type": "text"}),
    "response_format": completion(response_format={"type": "json_schema",
                                        "json_schema": {"name": "n", "strict": True, "schema": SCHEMA}}),
    **{f"structured {name}": completion(structured_outputs={name: value}, max_tokens=24) for name, value in {
        "json": SCHEMA, "json_object": True, "regex": "[a-c]+x", "choice": ["yes", "no"], "grammar": GBNF,
        "structural_tag": tag({"type": "const_string", "value": "th"})}.items()},
    **{f"tag {form['type']}": completion(structural_tag=tag(form), max_tokens=24) for form in [
        {"type": "json_schema", "json_schema": SCHEMA}, {"type": "any_text", "excludes": ["x"], "not_at_start": "[a-f]"},
        {"type": "regex", "pattern": "a+b"}, {"type": "grammar", "grammar": GBNF},
        {"type": "sequence", "elements": [{"type": "const_string", "value": "a"}, {"type": "regex", "pattern": "[0-9]"}]},
        {"type": "or", "elements": [{"type": "const_string", "value": "a"}, {"type": "const_string", "value": "b"}]},
        {"type": "tag", "begin": "<", "content": {"type": "regex", "pattern": "[ab]+"}, "end": ">"},
        {"type": "triggered_tags", "triggers": ["t"], "at_least_one": True, "stop_after_first": False, "tags": [
            {"type": "tag", "begin": "th", "content": {"type": "json_schema", "json_schema": {"type": "integer"}},
             "end": ";"}]},
        {"type": "tags_with_separator", "separator": ",", "at_least_one": True, "stop_after_first": False, "tags": [
            {"type": "tag", "begin": "[", "content": {"type": "const_string", "value": "q"}, "end": "]"}]}]},
    **{f"style {name}": completion(structural_tag=style(name), max_tokens=24)
       for name in ("json", "qwen_xml", "glm_xml", "seed_xml", "minimax_xml", "param_xml", "deepseek_xml", "xtml", "elements", "gemma",
         "step_xml", "solar", "hunyuan3_xml", "hunyuan4_xml", "atem_xml", "functiongemma",
         "python")},
    "older tag": completion(max_tokens=24, structural_tag={"triggers": ["<f"],
                                        "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}]}),
}
CHATS = {
    "plain": chat(), "stream": chat(stream=True, stream_options={"include_usage": True}), "parts": chat(messages=[
        {"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "a"},
                                        {"type": "text", "text": "b"}]}]),
    "logprobs": chat(logprobs=True, top_logprobs=2, n=2, seed=4, temperature=1),
    "stops": chat(stop="a", max_completion_tokens=9),
    "history": chat(messages=[*USER, CALL, {"role": "tool", "tool_call_id": "call_1", "content": "7"}], tools=[TOOL]),
    **{f"tools {choice if isinstance(choice, str) else choice['type']}": chat(tools=[TOOL, OTHER], tool_choice=choice,
                                        max_tokens=60, seed=1)
       for choice in ("auto", "none", "required", {"type": "function", "function": {"name": "f"}}, {
           "type": "allowed_tools", "allowed_tools": {"mode": "required",
                                        "tools": [{"type": "function", "function": {"name": "g"}}]}})},
    "stream of calls": chat(tools=[TOOL, OTHER], tool_choice="required", stream=True, parallel_tool_calls=False, max_tokens=60),
    "wishes": chat(thinking={"type": "enabled"}, verbosity="low", reasoning_effort="none"),
    "thoughts": chat(reasoning_effort="low", stop_in_reasoning=True, include_reasoning=False, reasoning_format="deepseek", max_tokens=30),
    "budget": chat(thinking_token_budget=-1, reasoning_budget_message="So.", chat_template_kwargs={"begin": "<think>"}, max_tokens=30),
    **{name: chat(**{name: -1}) for name in ("thinking_budget_tokens", "reasoning_budget_tokens", "reasoning_budget")},
    "kwargs": chat(chat_template_kwargs={"begin": "<think>", "x": [1, {"y": None}]}, add_special_tokens=True, max_tokens=30),
    "continued": chat(messages=[*USER, {"role": "assistant", "content": "the"}], add_generation_prompt=False,
                      continue_final_message=True),
    "prediction": chat(prediction={"type": "content", "content": [{"type": "text", "text": "the ant"}]}, max_tokens=30),
    "schema": chat(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}, max_tokens=40),
    "functions": chat(functions=[TOOL["function"]], function_call="auto"), "guided_json": chat(guided_json=SCHEMA),
}
TOKENIZE = {"content": {"content": "the ant", "with_pieces": True, "add_special": True},
            "text": {"prompt": "the ant", "return_token_strs": True, "add_special_tokens": True},
            "chat": {"model": MODEL, "messages": USER, "tools": [TOOL], "add_generation_prompt": True,
                     "continue_final_message": False,
                     "chat_template_kwargs": {"begin": "b"}}}
OLLAMA = {"num_predict": 12, "temperature": 0.5, "top_k": 9, "seed": 3, "stop": ["q"], "num_ctx": 64, "repeat_penalty": 1.1}
OLLAMA_CALL = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}
OLLAMA_CHATS = {
    "stream": {"messages": USER, "options": OLLAMA, "keep_alive": "5m", "think": True},
    "whole": {"messages": USER, "options": OLLAMA, "stream": False, "format": SCHEMA, "think": "low"},
    "history": {"messages": [*USER, OLLAMA_CALL, {"role": "tool", "tool_name": "f", "content": "7"}], "tools": [TOOL],
                "options": OLLAMA, "format": "json", "logprobs": False},
}
OLLAMA_GENERATES = {
    "rendered": {"prompt": "the ant", "system": "s", "options": OLLAMA},
    "raw": {"prompt": "the ant", "raw": True, "stream": False, "options": OLLAMA, "template": "", "context": [], "images": []},
}
LLAMA = {
    "whole": {"prompt": "the ant", "n_predict": 9, "n_probs": 2, "return_tokens": True, "cache_prompt": True, "seed": 3},
    "stream": {"prompt": ["the", "ant"], "n_predict": 9, "stream": True, "stop": ["q"], "id_slot": -1, "temperature": 0.5,
               "seed": 4},
}
BLOCKS = [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
          {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": "b"},
                                            {"type": "tool_use", "id": "i", "name": "f", "input": {"a": 1}}]},
          {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i", "content": [{"type": "text", "text": "7"}]}]}]
ANTHROPIC_TOOL = {"name": "f", "description": "d", "input_schema": TOOL["function"]["parameters"]}
ANTHROPIC = {
    "whole": {"messages": USER, "temperature": 0.5, "seed": 3, "stop_sequences": ["q"], "system": "s", "top_k": 9, "top_p": 0.9,
              "mcp_servers": [], "output_format": None},
    "stream": {"messages": BLOCKS[:1], "stream": True, "thinking": {"type": "adaptive"}, "metadata": {"user_id": "u"},
               "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}}, "seed": 3},
    "history": {"messages": BLOCKS, "tools": [ANTHROPIC_TOOL], "stream": True, "seed": 4,
                "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
                "system": [{"type": "text", "text": "x-anthropic-billing-header: a"}, {"type": "text", "text": "s"}]},
    "client tools": {"messages": [*BLOCKS[:1], {"role": "assistant", "content": [{"type": "tool_use", "id": "i", "name": "bash",
                                                "input": {"command": "ls"}}]},
                                  {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i", "is_error": True,
                                                                "content": "no"}]}],
                     "tools": [{"type": "bash_20250124", "name": "bash"}], "seed": 5},
}
ITEMS = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
         {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
         {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
         {"type": "function_call", "call_id": "i", "name": "f", "arguments": "{}"},
         {"type": "function_call_output", "call_id": "i", "output": "7"}]
FLAT_TOOL = {"type": "function", **TOOL["function"]}
RESPONSES = {
    "whole": {"input": "a", "instructions": "s", "temperature": 0.5, "top_p": 0.9, "seed": 3, "truncation": "auto",
              "top_logprobs": 0, "background": False, "previous_response_id": None, "conversation": None, "prompt": None},
    "stream": {"input": ITEMS[:1], "stream": True, "reasoning": {"effort": "low", "summary": "auto"}, "seed": 3,
               "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}, "verbosity": "low"}},
    "history": {"input": [{"role": "developer", "content": "s"}, *ITEMS], "tools": [FLAT_TOOL, {"type": "web_search"}],
                "stream": True, "seed": 4, "tool_choice": "required", "parallel_tool_calls": False,
                "include": ["reasoning.encrypted_content"], "store": False},
    "agents": {"input": [*ITEMS[:1], {"type": "compaction", "encrypted_content": "c"},
                         {"type": "local_shell_call", "call_id": "i", "action": {"type": "exec", "command": ["ls"]}},
                         {"type": "local_shell_call_output", "id": "i", "output": "7"}], "tools": [FLAT_TOOL],
               "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}, "seed": 5},
}
QUESTIONS = [{"type": "predicate", "instructions": "a", "name": "p"},
             {"type": "choice", "instructions": [{"type": "input_text", "text": "b"}],
              "choices": [{"value": "x", "description": "d"}, {"value": True}, {"value": "z"}]},
             {"type": "score", "instructions": "c", "levels": [{"label": "x", "description": "d"}, {"label": "y"}]}]
DECISION = {"model": MODEL, "input": ITEMS[:1], "questions": QUESTIONS, "prompt_cache_key": "k", "prompt_cache_options": {},
            "safety_identifier": "s", "cache_salt": "a", "priority": 1, "deadline_ms": 86400000}
SYSTEMONE = {"model": MODEL, "state": {"a": ["b"]}, "cache_salt": "a", "priority": 1, "deadline_ms": 86400000, "questions": {
    "p": {"type": "noul", "instructions": "a", "criteria": {"true": "b", "false": None}},
    "q": {"type": "choice", "instructions": {"c": "d"}, "criteria": {"x": "d", "y": None, "z": ["e"]}},
    "r": {"type": "score", "instructions": ["c"], "criteria": ["x", {"y": "z"}]}}}
RANKING = {"model": MODEL, "query": "a", "documents": ["b", {"text": "c"}], "top_n": 1, "return_documents": True,
           "use_activation": False, "instruction": "d", "cache_salt": "a", "priority": 1, "deadline_ms": 86400000}
EMBEDDING = {"model": MODEL, "input": ["a", "b c"], "encoding_format": "float", "dimensions": 4, "truncate_prompt_tokens": 8, "prompt_name": None, "truncation_side": "left",
             "use_activation": False, "add_special_tokens": True, "user": "u", "priority": 1, "deadline_ms": 86400000, "cache_salt": "a"}
SCORE = {"model": MODEL, "text_1": "a", "text_2": ["b", "c"], "use_activation": False, "instruction": "d", "cache_salt": "a", "priority": 1, "deadline_ms": 86400000}
PAIRS = {"model": MODEL, "queries": ["a", "b"], "documents": ["c", "d"]}
ITEMS_SCORED, DATA = {"model": MODEL, "queries": "a", "items": ["c", "d"]}, {"model": MODEL, "data_1": "a", "data_2": "c"}
CLASSIFY = {"model": MODEL, "input": ["a", "b"], "use_activation": False, "truncate_prompt_tokens": 8, "add_special_tokens": True, "user": "u",
            "priority": 1, "deadline_ms": 86400000, "cache_salt": "a"}
POOLING = {"model": MODEL, "input": "a", "task": "embed", "use_activation": True, "dimensions": 4}
OLLAMA_EMBED = {"model": MODEL, "input": ["a", "b"], "dimensions": 4, "truncate": True, "options": {"num_ctx": 64}}
READS = [("/v1/embeddings", EMBEDDING), ("/v1/decisions", DECISION), ("/v1/systemone", SYSTEMONE), ("/v1/rerank", RANKING), ("/rerank", RANKING),
         ("/v2/rerank", RANKING), ("/v1/reranking", RANKING), ("/v1/score", SCORE), ("/v1/score", PAIRS), ("/v1/score", ITEMS_SCORED), ("/v1/score", DATA),
         ("/v1/classify", CLASSIFY), ("/v1/pooling", POOLING), ("/api/embed", OLLAMA_EMBED), ("/api/embeddings", {"model": MODEL, "prompt": "a", "options": {}}),
         ("/embedding", {"model": MODEL, "content": "a", "dimensions": 4})]
ROWS = [
    *((f"reads: {path}", POST, path, body) for path, body in READS),
    *((f"render of {path}", POST, f"{path}/render", body) for path, body in READS),
    ("embeddings as base64", POST, "/v1/embeddings", {**EMBEDDING, "input": [[72, 73], [74]], "encoding_format": "base64"}),
    *((f"responses: {name}", POST, "/v1/responses", {"model": MODEL, "max_output_tokens": 20, **body})
      for name, body in RESPONSES.items()),
    *((f"after {path}", POST, path, {"model": MODEL, "input": ITEMS[:1], "seed": 3})
      for path in ("/v1/responses/render", "/v1/responses/input_tokens")),
    *((f"messages: {name}", POST, "/v1/messages", {"model": MODEL, "max_tokens": 20, **body}) for name, body in ANTHROPIC.items()),
    *((f"after {path}", POST, path, {"model": MODEL, "messages": BLOCKS[:1], "seed": 3})
      for path in ("/v1/messages/render", "/v1/messages/count_tokens")),
    *((f"llama: {name}", POST, "/completion", {"model": MODEL, **body}) for name, body in LLAMA.items()),
    *((f"infill to {path}", POST, path, {"model": MODEL, "input_prefix": "a", "input_suffix": "b", "prompt": "c", "n_predict": 3, "seed": 3,
                                         "input_extra": [{"filename": "a.py", "text": "d"}]}) for path in ("/infill", "/infill/render")),
    ("render of /completion", POST, "/completion/render", {"model": MODEL, "prompt": "a", "n_predict": 3}),
    *((f"ollama chat: {name}", POST, "/api/chat", {"model": MODEL, **body}) for name, body in OLLAMA_CHATS.items()),
    *((f"ollama generate: {name}", POST, "/api/generate", {"model": MODEL, **body}) for name, body in OLLAMA_GENERATES.items()),
    *((f"render of {path}", POST, f"{path}/render", {"model": MODEL, "messages": USER, "prompt": "a"})
      for path in ("/api/chat", "/api/generate")),
    *((f"completion: {name}", POST, "/v1/completions", body) for name, body in COMPLETIONS.items()),
    *((f"chat: {name}", POST, "/v1/chat/completions", body) for name, body in CHATS.items()),
    ("render", POST, "/v1/completions/render", completion(seed=1, guided_regex="a+")),
    ("render of a chat", POST, "/v1/chat/completions/render", chat(seed=1, tools=[TOOL])),
    *((f"tokenize: {name}", POST, "/tokenize", body) for name, body in TOKENIZE.items()),
    ("detokenize", POST, "/detokenize", {"model": MODEL, "tokens": [72, 73, 257, 74]}),
    *((path, GET, path, None) for path in ("/v1/models", "/tokenizer_info", "/health", "/health/live", "/health/ready", "/ping",
                                        "/load", "/openapi.json",
                                           "/metrics", "/version", "/kv_event_sources", "/get_server_info")),
    *((path, GET, path, None) for path in ("/", "/page/main.js", "/page/page.css", "/penstock/live", "/api/version", "/api/tags", "/api/ps", "/props", "/slots")),
    ("apply-template", POST, "/apply-template", {"model": MODEL, "messages": USER, "add_generation_prompt": True}),
    ("show", POST, "/api/show", {"model": MODEL, "verbose": True}), ("show by its old name", POST, "/api/show", {"name": MODEL}),
    ("load by generate", POST, "/api/generate", {"model": MODEL}), ("load by chat", POST, "/api/chat", {"model": MODEL, "messages": []}),
    ("a model", GET, f"/v1/models/{MODEL}", None), ("head", HEAD, "/v1/models", None),
    ("head of metrics", HEAD, "/metrics", None),
    *((f"options of {path}", OPTIONS, path, None) for path in ("/v1/chat/completions", "/v1/models", "/health", "/drain")),
]
ADAPTERS = ("/v1/load_lora_adapter", "/v1/unload_lora_adapter")  # the same
DRAIN = ("/drain", POST)  # answered 401 by every server of the chaos: it has no admin key, or the clients do not know it
# with --state-dir, which the servers of the chaos do not have: 404
STORED = {("/v1/responses/resp_1", GET), ("/v1/responses/resp_1/input_items", GET), ("/v1/responses/resp_1", "DELETE"),
          ("/v1/responses/resp_1/cancel", POST)}
PATHS = sorted({row[2] for row in ROWS} | {DRAIN[0], *ADAPTERS})


def members(value):
    """All member names in a value."""
    if isinstance(value, dict):
        return set(value).union(*map(members, value.values()))
    return set().union(*map(members, value)) if isinstance(value, list) else set()


def check():
    """Fails if the server has a route, or serves a field, that no row speaks of."""
    known = {(path, method) for _, method, path, _ in ROWS} | {DRAIN, *((path, POST) for path in ADAPTERS)} | STORED
    for path, method in sources.routes():
        covered = any(method == m and (p == path or path.endswith("/") and p.startswith(path)) for p, m in known)
        assert covered, f"tests/chaos/routes.py has no row for {method} {path}"
    assert not sources.unlisted_fields(), f"read fields by messages_field and its like: {sources.unlisted_fields()}"
    left = set(sources.served_fields()) - set().union(*(members(body) for *_, body in ROWS))
    assert not left, f"tests/chaos/routes.py has no valid request with the fields {sorted(left)}"
