#include "server/options/table.h"

#define CHOOSE (COMMAND_SERVE | COMMAND_RUN | COMMAND_BATCH)
#define GENERATE (CHOOSE | COMMAND_VERIFY)
#define ANSWER (SERVE | BATCH | COMMAND_VERIFY)
#define ENGINE (GENERATE | COMMAND_BENCH | COMMAND_INSPECT)
#define ANY (ENGINE | COMMAND_TOKENIZE)
#define HUB (COMMAND_PULL | COMMAND_LIST | COMMAND_RM)
#define SERVE COMMAND_SERVE
#define BATCH COMMAND_BATCH
#define HEALTH COMMAND_HEALTH
#define AT(field) offsetof(struct options, field)
#define KIB ((int64_t)1 << 10)
#define TIB ((int64_t)1 << 40)

const struct command command_table[] = {
    {"serve", COMMAND_SERVE, "[PATH]", 1, true, "serve a model over HTTP",
     "  penstock serve model.gguf\n"
     "  penstock serve model.gguf --host 0.0.0.0 --port 9000 --api-key-file keys\n"
     "It answers the requests of OpenAI's clients, with http://127.0.0.1:8080/v1 as their base "
     "URL.\n"
     "The start ends with a curl command to try it. Ctrl-C ends it, after the running requests.\n"},
    {"run", COMMAND_RUN, "[PROMPT]", 1, false, "complete one prompt, or chat, in the terminal",
     "  penstock run --model model.gguf \"Water flows\"\n"
     "  penstock run --model model.gguf <prompt.txt >answer.txt\n"
     "  penstock run --model model.gguf --chat --temperature 0.7\n"
     "  penstock run --model model.gguf --regex \" (yes|no)\" \"Is water wet? Answer:\"\n"
     "In --chat, /help lists the commands and keys.\n"},
    {"batch", COMMAND_BATCH, "-i IN -o OUT", 0, false, "answer a file of requests",
     "  penstock batch --model model.gguf -i requests.jsonl -o answers.jsonl\n"
     "Each input line is a request in OpenAI's batch format:\n"
     "  {\"custom_id\": \"1\", \"url\": \"/v1/completions\", \"body\": {\"prompt\": \"Water "
     "flows\"}}\n"
     "Each output line is an answer with the custom_id of its request, in the order in which they "
     "finish.\n"
     "After an interruption, run the command again with the same files: it answers the other "
     "requests.\n"},
    {"bench", COMMAND_BENCH, "[PATH]", 1, true, "measure prefill and decode on this machine",
     "  penstock bench model.gguf\n"
     "  penstock bench model.gguf --bench-prompt 1024 --bench-batch 1,32\n"
     "  penstock bench model.gguf --scaling\n"},
    {"inspect", COMMAND_INSPECT, "PATH", 1, true, "show the contents of a model file",
     "  penstock inspect model.gguf\n"
     "  penstock inspect --tensors --max-model-len 4096 model.gguf\n"
     "  penstock inspect --program model.gguf\n"
     "It shows the model, its tokenizer, the memory that serving it takes with these options, and "
     "the\n"
     "file's keys.\n"},
    {"quantize", COMMAND_QUANTIZE, "IN OUT", 2, true,
     "make a smaller GGUF file from a float one or from a folder",
     "  penstock quantize model-f16.gguf model-q8_0.gguf\n"
     "  penstock quantize model-bf16.gguf model-q4_k.gguf --type q4_k\n"
     "  penstock quantize folder model-q8_0.gguf\n"
     "IN is a .gguf file or a folder. Keys, tokenizer and vectors do not change, nor do\n"
     "matrices of a .gguf file that are quantised already.\n"
     "OUT appears when it is complete; an existing file is not replaced.\n"},
    {"tokenize", COMMAND_TOKENIZE, "[TEXT]", 1, false, "show a text's token ids",
     "  penstock tokenize --model model.gguf \"Water flows\"\n"
     "  penstock tokenize --model model.gguf <text.txt\n"
     "Each line is a token: its id and its text in the vocabulary. Special tokens in the text are\n"
     "recognised, and the tokens that the model puts around a prompt are added.\n"},
    {"parse", COMMAND_PARSE, "", 0, false, "show the message in an answer's text",
     "  penstock parse --tool-call-parser hermes <answer.txt\n"
     "  penstock parse --tool-call-parser hermes --reasoning-parser qwen3 --deltas <answer.txt\n"
     "It reads standard input and prints the message as JSON: content, reasoning and tool "
     "calls.\n"},
    {"grammar", COMMAND_GRAMMAR, "FILE", 1, false, "check texts against a grammar",
     "  penstock grammar schema.json <answers.jsonl\n"
     "  penstock grammar --kind regex pattern.txt <answers.jsonl\n"
     "Each input line is a JSON string. Its output line says whether the grammar accepts the "
     "string, or\n"
     "which byte is the first that it does not accept. FILE holds the grammar as in a request.\n"},
    {"verify", COMMAND_VERIFY, "RECEIPT...", MAX_ARGUMENTS, false,
     "compute answers again and compare them with their receipts",
     "  penstock verify answer.json --model model.gguf\n"
     "  penstock verify *.json --model model.gguf --public-key receipts.pub\n"
     "  penstock verify answer.json --model model.gguf --lora poet=adapters/poet\n"
     "A file holds a receipt, an answer with one, a saved stream, or one of these per line; -: "
     "standard\n"
     "input. Each receipt gets a line. Exit codes: 0 all the same, 1 a file or the model cannot be "
     "used,\n"
     "4 another token, 5 another fingerprint or setting, 6 broken or wrongly signed; the largest "
     "counts.\n"},
    {"pull", COMMAND_PULL, "NAME", 1, false, "fetch a model from a model hub",
     "  penstock pull Qwen/Qwen2.5-0.5B-Instruct-GGUF\n"
     "  penstock pull Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q8_0\n"
     "  penstock pull Qwen/Qwen2.5-0.5B-Instruct\n"
     "NAME is org/repo, org/repo:TAG or org/repo/file.gguf. Without a tag it is Q4_K_M, or else "
     "the\n"
     "folder of safetensors, or else the first .gguf file. The model's path is printed. The files "
     "go "
     "to\n"
     "the cache that huggingface_hub also uses, and a broken pull continues. Other commands take "
     "the "
     "same\n"
     "names as --model, and fetch a model that is not there. HF_TOKEN, HF_ENDPOINT, HF_HOME and\n"
     "HF_HUB_OFFLINE are used.\n"},
    {"list", COMMAND_LIST, "", 0, false, "show the models that were fetched",
     "Each line has a model's size, the day on which it was fetched, and its name for --model.\n"},
    {"rm", COMMAND_RM, "NAME", 1, false, "delete a model that was fetched",
     "  penstock rm Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q8_0\n"
     "  penstock rm Qwen/Qwen2.5-0.5B-Instruct\n"
     "org/repo deletes all files of the repository, other names those of one model.\n"},
    {"health", COMMAND_HEALTH, "", 0, false, "ask a running server whether it is ready",
     "  penstock health --port 9000\n"
     "It asks the server of these options, environment and file. It ends with code 0 if the server "
     "is\n"
     "ready, otherwise with code 1 and the reason.\n"},
    {"version", COMMAND_VERSION, "", 0, false, "show version, commit, build and CPU path", ""},
};
const int command_count = sizeof command_table / sizeof *command_table;

/* ---- options -------------------------------------------------------------------------------- */

/* The maximum counts are far above sensible values. They prevent overflows of sizes. */
const struct option option_table[] = {
    {"model", "PATH", OPTION_TEXT, AT(engine.model), NULL, 0, 0, NULL, ANY, "Model",
     "a .gguf file, a folder of safetensors, or a name on a model hub: org/repo[:TAG]"},
    {"models-dir", "FOLDER", OPTION_TEXT, AT(hub.folder), NULL, 0, 0, NULL,
     ANY | COMMAND_QUANTIZE | HUB, "Model",
     "folder of models by name; default: HF_HUB_CACHE, the cache of huggingface_hub"},
    {"offline", NULL, OPTION_BOOL, AT(hub.offline), "false", 0, 0, NULL,
     ANY | COMMAND_QUANTIZE | COMMAND_PULL, "Model",
     "never fetch a model; HF_HUB_OFFLINE=1 does the same"},
    {"served-model-name", "NAMES", OPTION_NAMES, AT(api.served_model_name), NULL, 0, 0, NULL,
     SERVE | BATCH, "Model",
     "names of the model in the API; the first is shown; default: --model's name or file"},
    {"any-model-name", NULL, OPTION_BOOL, AT(api.any_model_name), "false", 0, 0, NULL,
     SERVE | BATCH, "Model", "serve every request, whatever model it names"},
    {"chat-template", "FILE", OPTION_TEXT, AT(engine.chat_template), NULL, 0, 0, NULL, GENERATE,
     "Model", "Jinja file that replaces the model's chat template"},
    {"tool-call-parser", "NAME", OPTION_TEXT, AT(api.tool_call_parser), "auto", 0, 0, NULL,
     ANSWER | COMMAND_PARSE, "Model",
     "form of the model's tool calls; auto: as its template shows"},
    {"reasoning-parser", "NAME", OPTION_TEXT, AT(api.reasoning_parser), "auto", 0, 0, NULL,
     ANSWER | COMMAND_PARSE, "Model",
     "form of the model's reasoning; auto: as its template shows; none: not parsed"},
    {"reasoning-budget", "TOKENS", OPTION_INT, AT(api.reasoning_budget), "-1", -1, INT32_MAX, NULL,
     ANSWER, "Model",
     "maximum reasoning tokens of a chat's answer without an own limit; -1: no limit"},
    {"lora", "NAME=PATH", OPTION_PAIRS, AT(lora.adapters), NULL, 0, 0, NULL, SERVE | COMMAND_VERIFY,
     "Adapters", "serve this LoRA adapter, a PEFT folder or a GGUF file, as model NAME; repeatable",
     true},
    {"enable-runtime-lora", NULL, OPTION_BOOL, AT(lora.may_load), "false", 0, 0, NULL, SERVE,
     "Adapters", "let clients with an admin key load and unload adapters"},
    {"lora-dir", "FOLDER", OPTION_TEXT, AT(lora.folder), NULL, 0, 0, NULL, SERVE, "Adapters",
     "clients load adapters from this folder only"},
    {"max-loras", "N", OPTION_INT, AT(engine.max_adapters), "0", 0, 255, NULL,
     SERVE | COMMAND_VERIFY, "Adapters",
     "adapters in memory at once; 0: those of --lora, and 4 to load at runtime"},
    {"max-lora-rank", "N", OPTION_INT, AT(engine.max_adapter_rank), "16", 1, 256, NULL,
     SERVE | COMMAND_VERIFY, "Adapters", "largest rank of an adapter"},
    {"lora-memory", "SIZE", OPTION_SIZE, AT(engine.adapter_memory), "0", 0, TIB, NULL,
     SERVE | COMMAND_VERIFY, "Adapters",
     "memory of all adapters; 0: --max-loras adapters of the largest rank"},
    {"load-format", NULL, OPTION_ENUM, AT(stated.load_format), "auto", 0, 0, load_format_names,
     ENGINE, "Model", "dummy: random weights in the shapes of --model, to measure speed"},
    {"generation-config", NULL, OPTION_ENUM, AT(api.generation_config), "auto", 0, 0,
     generation_config_names, ANSWER, "Model",
     "auto: take the sampling defaults from the model's files"},
    {"max-model-len", "TOKENS", OPTION_INT, AT(engine.max_model_len), "0", 0, 1 << 24, NULL, ENGINE,
     "Model", "prompt and output together; 0: the length the model was trained for"},
    {"dtype", NULL, OPTION_ENUM, AT(engine.dtype), "auto", 0, 0, compute_dtype_names, ENGINE,
     "Model", "type of a GPU's activations; float32, also on the CPU: full precision, slow"},
    {"quantization", NULL, OPTION_ENUM, AT(engine.quantization), "none", 0, 0, quantization_names,
     ENGINE, "Model", "quantise float weights to this type when they are loaded; fp8: GPU only"},
    {"weight-cache", "FOLDER", OPTION_TEXT, AT(engine.weight_cache), NULL, 0, 0, NULL,
     GENERATE | COMMAND_BENCH, "Model",
     "keep weights there in the CPU's layout: later starts map them in milliseconds"},
    {"deterministic", NULL, OPTION_BOOL, AT(stated.deterministic), "true", 0, 0, NULL, ENGINE,
     "Model", "let a GPU's answers depend on the batch (cuBLAS, faster); no effect on a CPU"},
    {"wgmma", NULL, OPTION_BOOL, AT(engine.wgmma), "false", 0, 0, NULL, ENGINE, "Model",
     "H100, H200: wgmma from 17 rows on, and fp8 activations; not measured on a GPU yet"},
    {"persistent-step", NULL, OPTION_BOOL, AT(engine.persistent_step), "false", 0, 0, NULL, ENGINE,
     "Model", "small models on a GPU: a decode step is one grid; not measured on a GPU yet"},

    {"device", NULL, OPTION_ENUM, AT(engine.device), "auto", 0, 0, device_names, ENGINE, "Machine",
     "auto: a GPU if one can be used, otherwise the CPU"},
    {"threads", "N", OPTION_INT, AT(engine.threads), "0", 0, 1024, NULL, ENGINE | COMMAND_QUANTIZE,
     "Machine", "compute threads; 0: one for each core that the process may use"},
    {"cpu-affinity", "WHERE", OPTION_TEXT, AT(engine.cpu_affinity), NULL, 0, 0, NULL, ENGINE,
     "Machine",
     "bind threads to nodes, cores or a list such as 0-7,16; nodes hold their own weights"},
    {"tensor-parallel-size", "N", OPTION_INT, AT(engine.ranks), "1", 1, 64, NULL, ENGINE, "Machine",
     "ranks that share the model: GPUs, threads on the CPU, or processes of mpirun"},
    {"rank-timeout", "SECONDS", OPTION_INT, AT(engine.rank_timeout_s), "10", 1, 3600, NULL, SERVE,
     "Machine", "with mpirun: time without a sign of life after which a rank is lost"},
    {"kv-cache-memory", "SIZE", OPTION_SIZE, AT(engine.kv_memory), "0", 0, 64 * TIB, NULL, ENGINE,
     "Machine", "memory of the KV cache; 0: chosen from the free memory"},
    {"gpu-memory-utilization", "SHARE", OPTION_REAL, AT(engine.gpu_memory_utilization), "0.9", 0, 1,
     NULL, ENGINE, "Machine", "share of the GPU's memory that this process may use"},
    {"swap-space", "SIZE", OPTION_SIZE, AT(engine.swap_space), "auto", -1, 64 * TIB, NULL,
     GENERATE | COMMAND_INSPECT, "Machine",
     "host memory for KV blocks swapped out of the GPU; 0: they are recomputed"},
    {"state-checkpoints", "SIZE", OPTION_SIZE, AT(engine.state_checkpoints), "auto", -1, 64 * TIB,
     NULL, GENERATE | COMMAND_INSPECT, "Machine",
     "memory for states of recurrent layers in cached prefixes; 0: off"},
    {"kv-cache-dtype", NULL, OPTION_ENUM, AT(engine.kv_dtype), "auto", 0, 0, kv_dtype_names, ENGINE,
     "Machine", "type of keys and values; q8_0 (CPU) and fp8 (GPU) need half the memory"},
    {"pooling", NULL, OPTION_ENUM, AT(engine.pooling), "auto", 0, 0, pooling_names, GENERATE,
     "Model", "rows that make an embedding; auto: as the model's files say, or the last"},
    {"block-size", "TOKENS", OPTION_INT, AT(engine.block_size), "16", 1, 256, NULL, ENGINE,
     "Machine", "tokens in a block of the KV cache"},

    {"max-num-seqs", "N", OPTION_INT, AT(engine.max_num_seqs), "64", 1, 4096, NULL, ENGINE,
     "Scheduling", "limit of sequences in a step"},
    {"max-num-batched-tokens", "N", OPTION_INT, AT(engine.max_num_batched_tokens), "512", 1,
     1 << 20, NULL, ENGINE, "Scheduling",
     "limit of tokens in a step; longer prompts take several steps"},
    {"max-mixed-prefill-tokens", "N", OPTION_INT, AT(scheduler.max_mixed_prefill_tokens), "0", 0,
     1 << 20, NULL, GENERATE, "Scheduling",
     "limit of prompt tokens in a step with decodes; 0: 16 on the CPU, 512 on a GPU"},
    {"itl-target-ms", "MS", OPTION_INT, AT(stated.itl_target_ms), "auto", -1, 60000, NULL, GENERATE,
     "Scheduling", "longest step with prompts and decodes; auto: twice its decodes (CPU); 0: off"},
    {"enable-prefix-caching", NULL, OPTION_BOOL, AT(scheduler.prefix_caching), "true", 0, 0, NULL,
     GENERATE, "Scheduling", "do not share the KV blocks of equal prompt prefixes"},
    {"prefix-store", "PLACE", OPTION_TEXT, AT(prefix_store.place), NULL, 0, 0, NULL, SERVE,
     "Scheduling",
     "a folder, or redis://HOST:PORT, that keeps the prefix cache for later servers (CPU)"},
    {"prefix-store-size", "SIZE", OPTION_SIZE, AT(prefix_store.bytes), "8G", KIB, 64 * TIB, NULL,
     SERVE, "Scheduling", "largest size of the files in a folder; the oldest are removed"},
    {"share-prefixes", NULL, OPTION_BOOL, AT(access.share_prefixes), "false", 0, 0, NULL, SERVE,
     "Scheduling", "share prefixes among API keys too: all keys belong to one tenant"},
    {"grammar-cache", "SIZE", OPTION_SIZE, AT(api.grammar_cache), "64M", 0, 64 * TIB, NULL, ANSWER,
     "Scheduling", "memory for compiled grammars and schemas, so that equal ones compile once"},
    {"grammar-memory", "SIZE", OPTION_SIZE, AT(api.grammar_memory), "512M", 0, 64 * TIB, NULL,
     SERVE, "Scheduling", "memory of all grammars in use; more are refused with 429; 0: no limit"},
    {"open-objects", NULL, OPTION_BOOL, AT(api.open_objects), "false", 0, 0, NULL,
     GENERATE | COMMAND_GRAMMAR, "Scheduling",
     "schemas: objects may have properties that are not listed"},
    {"max-queued-requests", "N", OPTION_INT, AT(scheduler.max_queued_requests), "1024", 1, 1 << 24,
     NULL, SERVE, "Scheduling", "limit of waiting requests; more are refused with 429"},
    {"max-queued-tokens", "N", OPTION_INT, AT(scheduler.max_queued_tokens), "1048576", 1, 1 << 30,
     NULL, SERVE, "Scheduling", "limit of waiting prompt tokens; more are refused with 429"},
    {"speculative-config", "JSON", OPTION_SPECULATION, AT(scheduler.speculation), "none", 0, 0,
     NULL, GENERATE | COMMAND_INSPECT, "Scheduling",
     "draft tokens: none, ngram, suffix, mtp or JSON; answers do not change"},
    {"always-speculate", NULL, OPTION_BOOL, AT(scheduler.fixed_drafts), "false", 0, 0, NULL,
     GENERATE, "Scheduling", "verify every draft, even if that is slower; for measurements"},
    {"steps-in-flight", "N", OPTION_INT, AT(engine.in_flight), "0", 0, 2, NULL, GENERATE,
     "Scheduling", "2: plan the next step while one runs; 0: 2 on a GPU without drafts, else 1"},
    {"enforce-eager", NULL, OPTION_BOOL, AT(engine.enforce_eager), "false", 0, 0, NULL, ENGINE,
     "Scheduling", "on a GPU: launch kernels one by one, without CUDA graphs"},
    {"warm-up", NULL, OPTION_BOOL, AT(engine.warm_up), "false", 0, 0, NULL, GENERATE, "Scheduling",
     "before the start, allocate the cache; on a GPU also load kernels, record graphs"},
    {"seed", "N", OPTION_INT64, AT(api.seed), "-1", -1, INT64_MAX, NULL, CHOOSE, "Scheduling",
     "default seed of requests; -1: a random seed for each request"},

    {"host", "ADDRESS", OPTION_TEXT, AT(http.host), "127.0.0.1", 0, 0, NULL, SERVE | HEALTH, "HTTP",
     "address to listen on; 0.0.0.0: all addresses"},
    {"port", "PORT", OPTION_INT, AT(http.port), "8080", 0, 65535, NULL, SERVE | HEALTH, "HTTP",
     "port to listen on; 0: any free port"},
    {"uds", "PATH", OPTION_TEXT, AT(http.socket_path), NULL, 0, 0, NULL, SERVE | HEALTH, "HTTP",
     "Unix socket to listen on instead of --host and --port"},
    {"api-key", "KEYS", OPTION_TEXT, AT(access.api_key), NULL, 0, 0, NULL, SERVE, "HTTP",
     "accepted API keys, separated by commas", true},
    {"api-key-file", "FILE", OPTION_TEXT, AT(access.api_key_file), NULL, 0, 0, NULL, SERVE, "HTTP",
     "file of accepted API keys, one per line, or YAML with names, weights and limits", true},
    {"admin-key", "KEYS", OPTION_TEXT, AT(access.admin_key), NULL, 0, 0, NULL, SERVE, "HTTP",
     "keys that may also POST /drain, separated by commas", true},
    {"metrics-key", "KEYS", OPTION_TEXT, AT(access.metrics_key), NULL, 0, 0, NULL, SERVE, "HTTP",
     "keys for /metrics, /version and paths of routers, by commas; default: open", true},
    {"cors-origins", "ORIGINS", OPTION_NAMES, AT(access.cors_origins), NULL, 0, 0, NULL, SERVE,
     "HTTP", "origins whose web pages may use the API, e.g. https://example.org, or *", true},
    {"trusted-proxies", "ADDRESSES", OPTION_NAMES, AT(access.trusted_proxies), NULL, 0, 0, NULL,
     SERVE, "HTTP", "proxies whose X-Forwarded-For names the client, e.g. 10.0.0.0/8; unix: --uds"},
    {"page", NULL, OPTION_BOOL, AT(access.page), "true", 0, 0, NULL, SERVE, "HTTP",
     "do not serve the web page at /"},
    {"kv-events", "ENDPOINT", OPTION_TEXT, AT(kv_events.endpoint), NULL, 0, 0, NULL, SERVE, "HTTP",
     "tcp://HOST:PORT where routers hear of the prefix cache's blocks, as from vLLM"},
    {"kv-events-replay", "ENDPOINT", OPTION_TEXT, AT(kv_events.replay_endpoint), NULL, 0, 0, NULL,
     SERVE, "HTTP", "tcp://HOST:PORT where subscribers ask for recent events again"},
    {"kv-events-topic", "TOPIC", OPTION_TEXT, AT(kv_events.topic), NULL, 0, 0, NULL, SERVE, "HTTP",
     "topic of all events, e.g. kv@HOST:PORT@MODEL for llm-d; vllm-router wants none"},
    {"otlp-traces-endpoint", "URL", OPTION_TEXT, AT(traces.endpoint), NULL, 0, 0, NULL, SERVE,
     "HTTP", "collector that gets a trace of each request, e.g. http://127.0.0.1:4318/v1/traces"},
    {"otlp-traces-sampler-ratio", "SHARE", OPTION_REAL, AT(traces.ratio), "1", 0, 1, NULL, SERVE,
     "HTTP", "share of requests that get a trace if their client does not decide it"},
    {"max-body-size", "SIZE", OPTION_SIZE, AT(http.max_body_bytes), "16MiB", KIB, TIB, NULL,
     SERVE | BATCH, "HTTP", "largest request body, or line of a batch file"},
    {"max-connections", "N", OPTION_INT, AT(http.max_connections), "1024", 1, 1 << 20, NULL, SERVE,
     "HTTP", "limit of open connections"},
    {"request-timeout", "SECONDS", OPTION_INT, AT(stated.request_timeout_s), "30", 1, 86400, NULL,
     SERVE, "HTTP", "time for the headers and body of a request to arrive"},
    {"drain-delay", "SECONDS", OPTION_INT, AT(drain.delay_s), "5", 0, 86400, NULL, SERVE, "HTTP",
     "time after SIGTERM in which the port stays open and generations get 503"},
    {"drain-timeout", "SECONDS", OPTION_INT, AT(drain.timeout_s), "30", 0, 86400, NULL, SERVE,
     "HTTP", "time for running requests to finish after --drain-delay"},
    {"state-dir", "FOLDER", OPTION_TEXT, AT(state.folder), NULL, 0, 0, NULL, SERVE, "HTTP",
     "keep stored responses and requests with an Idempotency-Key there, also after a crash"},
    {"state-size", "SIZE", OPTION_SIZE, AT(state.size), "1GiB", KIB *KIB, TIB, NULL, SERVE, "HTTP",
     "limit of --state-dir; the answers that were finished first are deleted first"},
    {"exit-when-idle", "SECONDS", OPTION_INT, AT(drain.idle_s), "0", 0, 1 << 30, NULL, SERVE,
     "HTTP", "end after this time without requests, for socket activation; 0: never"},
    {"unload-when-idle", "SECONDS", OPTION_INT, AT(drain.unload_s), "0", 0, 1 << 30, NULL, SERVE,
     "HTTP", "free weights and cache after this time; the next request loads them; 0: never"},

    {"chat", NULL, OPTION_BOOL, AT(run.chat), "false", 0, 0, NULL, COMMAND_RUN, "Run",
     "hold a conversation, with the model's chat template"},
    {"history", NULL, OPTION_BOOL, AT(run.history), "true", 0, 0, NULL, COMMAND_RUN, "Run",
     "do not save the lines typed in --chat to a history file"},
    {"max-tokens", "N", OPTION_INT, AT(run.max_tokens), "256", 1, 1 << 24, NULL, COMMAND_RUN, "Run",
     "limit of generated tokens"},
    {"temperature", "T", OPTION_REAL, AT(run.temperature), "0", 0, 2, NULL, COMMAND_RUN, "Run",
     "0: always the likeliest token; higher values vary more"},

    {"grammar-file", "FILE", OPTION_TEXT, AT(run.grammar_path), NULL, 0, 0, NULL, COMMAND_RUN,
     "Run", "the answer matches this grammar: GBNF, EBNF or Lark, or a schema in a .json file"},
    {"json-schema", "SCHEMA", OPTION_TEXT, AT(run.json_schema), NULL, 0, 0, NULL, COMMAND_RUN,
     "Run", "the answer is JSON that matches this schema: {...}, or a file that holds it"},
    {"regex", "REGEX", OPTION_TEXT, AT(run.regex), NULL, 0, 0, NULL, COMMAND_RUN, "Run",
     "the whole answer matches this regular expression"},
    {"stop-regex", "REGEX", OPTION_TEXT, AT(run.stop_regex), NULL, 0, 0, NULL, COMMAND_RUN, "Run",
     "the answer ends before the first match of this regular expression"},

    {"type", NULL, OPTION_ENUM, AT(type), "q8_0", 0, 0, block_type_names, COMMAND_QUANTIZE,
     "Quantize", "type of the quantised matrices; below 8 bits embedding and head are q6_k"},

    {"tensors", NULL, OPTION_BOOL, AT(inspected.tensors), "false", 0, 0, NULL, COMMAND_INSPECT,
     "Inspect", "list each tensor with its type, shape and size"},
    {"program", NULL, OPTION_BOOL, AT(inspected.program), "false", 0, 0, NULL, COMMAND_INSPECT,
     "Inspect", "list each op of the forward pass: its layer, rows, inputs, matrices and outputs"},

    {"deltas", NULL, OPTION_BOOL, AT(deltas), "false", 0, 0, NULL, COMMAND_PARSE, "Parse",
     "print the part of the message that each byte of the text adds, one per line"},

    {"input-file", "FILE", OPTION_TEXT, AT(batch.input_file), NULL, 0, 0, NULL, BATCH, "Batch",
     "-i: requests in OpenAI's batch format, one per line"},
    {"output-file", "FILE", OPTION_TEXT, AT(batch.output_file), NULL, 0, 0, NULL, BATCH, "Batch",
     "-o: answers; requests that have an answer in it already are skipped"},

    {"record", "FILE", OPTION_TEXT, AT(receipts.record), NULL, 0, 0, NULL, SERVE, "Receipts",
     "append each answer to this cassette, with its request and receipt"},
    {"replay", "FILE", OPTION_TEXT, AT(receipts.replay), NULL, 0, 0, NULL, SERVE, "Receipts",
     "answer from this cassette; without --model, other requests get a 404"},
    {"receipt-key", "FILE", OPTION_TEXT, AT(receipts.key), NULL, 0, 0, NULL, SERVE | BATCH,
     "Receipts",
     "private Ed25519 key in PEM form, which signs receipts; default: they are unsigned"},
    {"public-key", "FILE", OPTION_TEXT, AT(receipts.public_key), NULL, 0, 0, NULL, COMMAND_VERIFY,
     "Receipts", "public Ed25519 key in PEM form, which must have signed the receipts"},

    {"bench-prompt", "LIST", OPTION_LIST, AT(bench.prompt), "128,512", 1, 1 << 24, NULL,
     COMMAND_BENCH, "Bench", "prompt lengths to measure, in tokens"},
    {"bench-batch", "LIST", OPTION_LIST, AT(bench.batch), "1,2,4,8,16", 1, 4096, NULL,
     COMMAND_BENCH, "Bench", "batch sizes to measure, in sequences"},
    {"bench-generate", "N", OPTION_INT, AT(bench.generate), "64", 1, 1 << 20, NULL, COMMAND_BENCH,
     "Bench", "tokens that each sequence decodes"},
    {"bench-repeats", "N", OPTION_INT, AT(bench.repeats), "3", 1, 1000, NULL, COMMAND_BENCH,
     "Bench", "runs; the median is reported"},
    {"scaling", NULL, OPTION_BOOL, AT(bench.scaling), "false", 0, 0, NULL, COMMAND_BENCH, "Bench",
     "instead, a report of the speed with 1, 2, 4 threads and so on, up to --threads"},

    {"kind", NULL, OPTION_ENUM, AT(grammar_file), "auto", 0, 0, grammar_file_names, COMMAND_GRAMMAR,
     "Grammar", "kind of grammar in FILE; auto: from its name and content"},

    {"log-level", NULL, OPTION_ENUM, AT(log.level), "info", 0, 0, log_level_names, ANY | HUB,
     "Log and settings", "lowest level that is written", true},
    {"log-format", NULL, OPTION_ENUM, AT(log.format), "text", 0, 0, log_format_names, ANY | HUB,
     "Log and settings", "json: one object per line"},
    {"check", NULL, OPTION_BOOL, AT(check), "false", 0, 0, NULL, SERVE, "Log and settings",
     "check options, model and memory, then end without serving"},
    {"config", "FILE", OPTION_TEXT, AT(config), NULL, 0, 0, NULL, ANY | HUB | HEALTH,
     "Log and settings", "YAML file with options, e.g. `max-num-seqs: 32`"},
};
const int option_count = sizeof option_table / sizeof *option_table;
