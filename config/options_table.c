#include "config/options.h"

#define GENERATE (COMMAND_SERVE | COMMAND_RUN | COMMAND_BATCH)
#define ENGINE (GENERATE | COMMAND_BENCH | COMMAND_INSPECT)
#define ANY (ENGINE | COMMAND_TOKENIZE)
#define SERVE COMMAND_SERVE
#define BATCH COMMAND_BATCH
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
     "  penstock bench model.gguf --bench-prompt 1024 --bench-batch 1,32\n"},
    {"inspect", COMMAND_INSPECT, "PATH", 1, true, "show the contents of a model file",
     "  penstock inspect model.gguf\n"
     "  penstock inspect --tensors --max-model-len 4096 model.gguf\n"
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
    {"version", COMMAND_VERSION, "", 0, false, "show version, commit, build and CPU path", ""},
};
const int command_count = sizeof command_table / sizeof *command_table;

/* ---- settings with named values ------------------------------------------------------------- */

const struct named_value device_names[] = {
    {"auto", DEVICE_AUTO}, {"cpu", DEVICE_CPU}, {"cuda", DEVICE_CUDA}, {NULL, 0}};

const struct named_value compute_dtype_names[] = {{"auto", COMPUTE_AUTO},
                                                  {"bfloat16", COMPUTE_BFLOAT16},
                                                  {"float16", COMPUTE_FLOAT16},
                                                  {"float32", COMPUTE_FLOAT32},
                                                  {NULL, 0}};

/* Types to which float weights are quantised. */
#define BLOCK_TYPES                                                                                \
    {"q8_0", QUANTIZATION_Q8_0}, {"q4_0", QUANTIZATION_Q4_0}, {"q4_1", QUANTIZATION_Q4_1},         \
        {"q5_0", QUANTIZATION_Q5_0}, {"q5_1", QUANTIZATION_Q5_1}, {"q4_k", QUANTIZATION_Q4_K}, {   \
        "q6_k", QUANTIZATION_Q6_K                                                                  \
    }

const struct named_value quantization_names[] = {
    {"none", QUANTIZATION_NONE}, {"fp8", QUANTIZATION_FP8}, BLOCK_TYPES, {NULL, 0}};
const struct named_value block_type_names[] = {BLOCK_TYPES, {NULL, 0}};

const struct named_value kv_dtype_names[] = {
    {"auto", KV_DTYPE_AUTO},       {"int16", KV_DTYPE_INT16},     {"q8_0", KV_DTYPE_Q8_0},
    {"float16", KV_DTYPE_FLOAT16}, {"float32", KV_DTYPE_FLOAT32}, {"bfloat16", KV_DTYPE_BFLOAT16},
    {"fp8", KV_DTYPE_FP8},         {"fp8_e4m3", KV_DTYPE_FP8},    {NULL, 0}};

const struct named_value load_format_names[] = {
    {"auto", LOAD_AUTO}, {"dummy", LOAD_DUMMY}, {NULL, 0}};

const struct named_value generation_config_names[] = {
    {"auto", GENERATION_CONFIG_AUTO}, {"none", GENERATION_CONFIG_NONE}, {NULL, 0}};

const struct named_value log_level_names[] = {{"debug", LOG_DEBUG},
                                              {"info", LOG_INFO},
                                              {"warning", LOG_WARNING},
                                              {"error", LOG_ERROR},
                                              {NULL, 0}};

const struct named_value log_format_names[] = {{"text", LOG_TEXT}, {"json", LOG_JSON}, {NULL, 0}};

const struct named_value grammar_file_names[] = {
    {"auto", GRAMMAR_FILE_AUTO},          {"json_object", GRAMMAR_FILE_OBJECT},
    {"json", GRAMMAR_FILE_SCHEMA},        {"regex", GRAMMAR_FILE_REGEX},
    {"choice", GRAMMAR_FILE_CHOICE},      {"grammar", GRAMMAR_FILE_GRAMMAR},
    {"structural_tag", GRAMMAR_FILE_TAG}, {NULL, 0}};

/* ---- commands and options ------------------------------------------------------------------- */

/* The maximum counts are far above sensible values. They prevent overflows of sizes. */
const struct option option_table[] = {
    {"model", "PATH", OPTION_TEXT, AT(model), NULL, 0, 0, NULL, ANY, "Model",
     "a .gguf file, or a folder with config.json, safetensors and tokenizer"},
    {"served-model-name", "NAMES", OPTION_NAMES, AT(served_model_name), NULL, 0, 0, NULL,
     SERVE | BATCH, "Model",
     "names of the model in the API; the first is shown; default: the file's"},
    {"any-model-name", NULL, OPTION_BOOL, AT(any_model_name), "false", 0, 0, NULL, SERVE | BATCH,
     "Model", "serve every request, whatever model it names"},
    {"chat-template", "FILE", OPTION_TEXT, AT(chat_template), NULL, 0, 0, NULL, GENERATE, "Model",
     "Jinja file that replaces the model's chat template"},
    {"tool-call-parser", "NAME", OPTION_TEXT, AT(tool_call_parser), "auto", 0, 0, NULL,
     SERVE | BATCH | COMMAND_PARSE, "Model",
     "form of the model's tool calls; auto: as its template shows"},
    {"reasoning-parser", "NAME", OPTION_TEXT, AT(reasoning_parser), "auto", 0, 0, NULL,
     SERVE | BATCH | COMMAND_PARSE, "Model",
     "form of the model's reasoning; auto: as its template shows; none: not parsed"},
    {"load-format", NULL, OPTION_ENUM, AT(load_format), "auto", 0, 0, load_format_names, ENGINE,
     "Model", "dummy: random weights in the shapes of --model, to measure speed"},
    {"generation-config", NULL, OPTION_ENUM, AT(generation_config), "auto", 0, 0,
     generation_config_names, SERVE | BATCH, "Model",
     "auto: take the sampling defaults from the model's files"},
    {"max-model-len", "TOKENS", OPTION_INT, AT(max_model_len), "0", 0, 1 << 24, NULL, ENGINE,
     "Model", "prompt and output together; 0: the length the model was trained for"},
    {"dtype", NULL, OPTION_ENUM, AT(dtype), "auto", 0, 0, compute_dtype_names, ENGINE, "Model",
     "type of a GPU's activations; float32, also on the CPU: full precision, slow"},
    {"quantization", NULL, OPTION_ENUM, AT(quantization), "none", 0, 0, quantization_names, ENGINE,
     "Model", "quantise float weights to this type when they are loaded; fp8: GPU only"},
    {"weight-cache", "FOLDER", OPTION_TEXT, AT(weight_cache), NULL, 0, 0, NULL,
     GENERATE | COMMAND_BENCH, "Model",
     "keep weights there in the CPU's layout: later starts map them in milliseconds"},
    {"deterministic", NULL, OPTION_BOOL, AT(deterministic), "true", 0, 0, NULL, ENGINE, "Model",
     "let a GPU's answers depend on the batch (cuBLAS, faster); no effect on a CPU"},
    {"wgmma", NULL, OPTION_BOOL, AT(wgmma), "false", 0, 0, NULL, ENGINE, "Model",
     "H100, H200: wgmma above 64 rows, and fp8 activations; not measured on a GPU yet"},
    {"persistent-step", NULL, OPTION_BOOL, AT(persistent_step), "false", 0, 0, NULL, ENGINE,
     "Model", "small models on a GPU: a decode step is one grid; not measured on a GPU yet"},

    {"device", NULL, OPTION_ENUM, AT(device), "auto", 0, 0, device_names, ENGINE, "Machine",
     "auto: a GPU if one can be used, otherwise the CPU"},
    {"threads", "N", OPTION_INT, AT(threads), "0", 0, 1024, NULL, ENGINE | COMMAND_QUANTIZE,
     "Machine", "compute threads; 0: one for each core that the process may use"},
    {"cpu-affinity", "WHERE", OPTION_TEXT, AT(cpu_affinity), NULL, 0, 0, NULL, ENGINE, "Machine",
     "bind threads to nodes, cores or a list such as 0-7,16; nodes hold their own weights"},
    {"tensor-parallel-size", "N", OPTION_INT, AT(tensor_parallel_size), "1", 1, 64, NULL, ENGINE,
     "Machine", "ranks that share the model: GPUs, or groups of threads on the CPU"},
    {"kv-cache-memory", "SIZE", OPTION_SIZE, AT(kv_cache_memory), "0", 0, 64 * TIB, NULL, ENGINE,
     "Machine", "memory of the KV cache; 0: chosen from the free memory"},
    {"gpu-memory-utilization", "SHARE", OPTION_REAL, AT(gpu_memory_utilization), "0.9", 0, 1, NULL,
     ENGINE, "Machine", "share of the GPU's memory that this process may use"},
    {"swap-space", "SIZE", OPTION_SIZE, AT(swap_space), "auto", -1, 64 * TIB, NULL,
     GENERATE | COMMAND_INSPECT, "Machine",
     "host memory for KV blocks swapped out of the GPU; 0: they are recomputed"},
    {"kv-cache-dtype", NULL, OPTION_ENUM, AT(kv_cache_dtype), "auto", 0, 0, kv_dtype_names, ENGINE,
     "Machine", "type of keys and values; q8_0 (CPU) and fp8 (GPU) need half the memory"},
    {"block-size", "TOKENS", OPTION_INT, AT(block_size), "16", 1, 256, NULL, ENGINE, "Machine",
     "tokens in a block of the KV cache"},

    {"max-num-seqs", "N", OPTION_INT, AT(max_num_seqs), "64", 1, 4096, NULL, ENGINE, "Scheduling",
     "limit of sequences in a step"},
    {"max-num-batched-tokens", "N", OPTION_INT, AT(max_num_batched_tokens), "512", 1, 1 << 20, NULL,
     ENGINE, "Scheduling", "limit of tokens in a step; longer prompts take several steps"},
    {"max-mixed-prefill-tokens", "N", OPTION_INT, AT(max_mixed_prefill_tokens), "0", 0, 1 << 20,
     NULL, GENERATE, "Scheduling",
     "limit of prompt tokens in a step with decodes; 0: 16 on the CPU, 512 on a GPU"},
    {"itl-target-ms", "MS", OPTION_INT, AT(itl_target_ms), "0", 0, 60000, NULL, GENERATE,
     "Scheduling", "target time between tokens; replaces --max-mixed-prefill-tokens; 0: off"},
    {"enable-prefix-caching", NULL, OPTION_BOOL, AT(enable_prefix_caching), "true", 0, 0, NULL,
     GENERATE, "Scheduling", "do not share the KV blocks of equal prompt prefixes"},
    {"share-prefixes", NULL, OPTION_BOOL, AT(share_prefixes), "false", 0, 0, NULL, SERVE,
     "Scheduling", "share prefixes among API keys too: all keys belong to one tenant"},
    {"grammar-cache", "SIZE", OPTION_SIZE, AT(grammar_cache), "64M", 0, 64 * TIB, NULL,
     SERVE | BATCH, "Scheduling",
     "memory for compiled grammars and schemas, so that equal ones compile once"},
    {"grammar-memory", "SIZE", OPTION_SIZE, AT(grammar_memory), "512M", 0, 64 * TIB, NULL, SERVE,
     "Scheduling", "memory of all grammars in use; more are refused with 429; 0: no limit"},
    {"max-queued-requests", "N", OPTION_INT, AT(max_queued_requests), "1024", 1, 1 << 24, NULL,
     SERVE, "Scheduling", "limit of waiting requests; more are refused with 429"},
    {"max-queued-tokens", "N", OPTION_INT, AT(max_queued_tokens), "1048576", 1, 1 << 30, NULL,
     SERVE, "Scheduling", "limit of waiting prompt tokens; more are refused with 429"},
    {"speculative-config", "JSON", OPTION_SPECULATION, AT(speculation), "none", 0, 0, NULL,
     GENERATE, "Scheduling",
     "draft and verify tokens: none, ngram, suffix or JSON; answers do not change"},
    {"always-speculate", NULL, OPTION_BOOL, AT(always_speculate), "false", 0, 0, NULL, GENERATE,
     "Scheduling", "verify every draft, even if that is slower; for measurements"},
    {"steps-in-flight", "N", OPTION_INT, AT(steps_in_flight), "0", 0, 2, NULL, GENERATE,
     "Scheduling", "2: plan the next step while one runs; 0: 2 on a GPU without drafts, else 1"},
    {"enforce-eager", NULL, OPTION_BOOL, AT(enforce_eager), "false", 0, 0, NULL, ENGINE,
     "Scheduling", "on a GPU: launch kernels one by one, without CUDA graphs"},
    {"warm-up", NULL, OPTION_BOOL, AT(warm_up), "false", 0, 0, NULL, GENERATE, "Scheduling",
     "before the start, allocate the cache; on a GPU also load kernels, record graphs"},
    {"seed", "N", OPTION_INT64, AT(seed), "-1", -1, INT64_MAX, NULL, GENERATE, "Scheduling",
     "default seed of requests; -1: a random seed for each request"},

    {"host", "ADDRESS", OPTION_TEXT, AT(host), "127.0.0.1", 0, 0, NULL, SERVE, "HTTP",
     "address to listen on; 0.0.0.0: all addresses"},
    {"port", "PORT", OPTION_INT, AT(port), "8080", 0, 65535, NULL, SERVE, "HTTP",
     "port to listen on; 0: any free port"},
    {"api-key", "KEYS", OPTION_TEXT, AT(api_key), NULL, 0, 0, NULL, SERVE, "HTTP",
     "accepted API keys, separated by commas"},
    {"api-key-file", "FILE", OPTION_TEXT, AT(api_key_file), NULL, 0, 0, NULL, SERVE, "HTTP",
     "file of accepted API keys, one per line"},
    {"admin-key", "KEYS", OPTION_TEXT, AT(admin_key), NULL, 0, 0, NULL, SERVE, "HTTP",
     "keys that may also POST /drain, separated by commas"},
    {"metrics-key", "KEYS", OPTION_TEXT, AT(metrics_key), NULL, 0, 0, NULL, SERVE, "HTTP",
     "keys for /metrics and /version, separated by commas; default: both are open"},
    {"cors-origins", "ORIGINS", OPTION_NAMES, AT(cors_origins), NULL, 0, 0, NULL, SERVE, "HTTP",
     "origins whose web pages may use the API, e.g. https://example.org, or *"},
    {"trusted-proxies", "ADDRESSES", OPTION_NAMES, AT(trusted_proxies), NULL, 0, 0, NULL, SERVE,
     "HTTP", "proxies whose X-Forwarded-For names the client, e.g. 10.0.0.0/8"},
    {"max-body-size", "SIZE", OPTION_SIZE, AT(max_body_size), "16MiB", KIB, TIB, NULL,
     SERVE | BATCH, "HTTP", "largest request body, or line of a batch file"},
    {"max-connections", "N", OPTION_INT, AT(max_connections), "1024", 1, 1 << 20, NULL, SERVE,
     "HTTP", "limit of open connections"},
    {"request-timeout", "SECONDS", OPTION_INT, AT(request_timeout_s), "30", 1, 86400, NULL, SERVE,
     "HTTP", "time for the headers and body of a request to arrive"},
    {"drain-delay", "SECONDS", OPTION_INT, AT(drain_delay_s), "5", 0, 86400, NULL, SERVE, "HTTP",
     "time after SIGTERM in which the port stays open and generations get 503"},
    {"drain-timeout", "SECONDS", OPTION_INT, AT(drain_timeout_s), "30", 0, 86400, NULL, SERVE,
     "HTTP", "time for running requests to finish after --drain-delay"},

    {"chat", NULL, OPTION_BOOL, AT(chat), "false", 0, 0, NULL, COMMAND_RUN, "Run",
     "hold a conversation, with the model's chat template"},
    {"history", NULL, OPTION_BOOL, AT(history), "true", 0, 0, NULL, COMMAND_RUN, "Run",
     "do not save the lines typed in --chat to a history file"},
    {"max-tokens", "N", OPTION_INT, AT(max_tokens), "256", 1, 1 << 24, NULL, COMMAND_RUN, "Run",
     "limit of generated tokens"},
    {"temperature", "T", OPTION_REAL, AT(temperature), "0", 0, 2, NULL, COMMAND_RUN, "Run",
     "0: always the likeliest token; higher values vary more"},

    {"grammar-file", "FILE", OPTION_TEXT, AT(grammar_path), NULL, 0, 0, NULL, COMMAND_RUN, "Run",
     "the answer matches this grammar: GBNF, EBNF or Lark, or a schema in a .json file"},
    {"json-schema", "SCHEMA", OPTION_TEXT, AT(json_schema), NULL, 0, 0, NULL, COMMAND_RUN, "Run",
     "the answer is JSON that matches this schema: {...}, or a file that holds it"},
    {"regex", "REGEX", OPTION_TEXT, AT(regex), NULL, 0, 0, NULL, COMMAND_RUN, "Run",
     "the whole answer matches this regular expression"},
    {"stop-regex", "REGEX", OPTION_TEXT, AT(stop_regex), NULL, 0, 0, NULL, COMMAND_RUN, "Run",
     "the answer ends before the first match of this regular expression"},

    {"type", NULL, OPTION_ENUM, AT(type), "q8_0", 0, 0, block_type_names, COMMAND_QUANTIZE,
     "Quantize", "type of the quantised matrices; below 8 bits embedding and head are q6_k"},

    {"tensors", NULL, OPTION_BOOL, AT(tensors), "false", 0, 0, NULL, COMMAND_INSPECT, "Inspect",
     "list each tensor with its type, shape and size"},

    {"deltas", NULL, OPTION_BOOL, AT(deltas), "false", 0, 0, NULL, COMMAND_PARSE, "Parse",
     "print the part of the message that each byte of the text adds, one per line"},

    {"input-file", "FILE", OPTION_TEXT, AT(input_file), NULL, 0, 0, NULL, BATCH, "Batch",
     "-i: requests in OpenAI's batch format, one per line"},
    {"output-file", "FILE", OPTION_TEXT, AT(output_file), NULL, 0, 0, NULL, BATCH, "Batch",
     "-o: answers; requests that have an answer in it already are skipped"},

    {"bench-prompt", "LIST", OPTION_LIST, AT(bench_prompt), "128,512", 1, 1 << 24, NULL,
     COMMAND_BENCH, "Bench", "prompt lengths to measure, in tokens"},
    {"bench-batch", "LIST", OPTION_LIST, AT(bench_batch), "1,2,4,8,16", 1, 4096, NULL,
     COMMAND_BENCH, "Bench", "batch sizes to measure, in sequences"},
    {"bench-generate", "N", OPTION_INT, AT(bench_generate), "64", 1, 1 << 20, NULL, COMMAND_BENCH,
     "Bench", "tokens that each sequence decodes"},
    {"bench-repeats", "N", OPTION_INT, AT(bench_repeats), "3", 1, 1000, NULL, COMMAND_BENCH,
     "Bench", "runs; the median is reported"},

    {"kind", NULL, OPTION_ENUM, AT(grammar_file), "auto", 0, 0, grammar_file_names, COMMAND_GRAMMAR,
     "Grammar", "kind of grammar in FILE; auto: from its name and content"},

    {"log-level", NULL, OPTION_ENUM, AT(log_level), "info", 0, 0, log_level_names, ANY,
     "Log and settings", "lowest level that is written"},
    {"log-format", NULL, OPTION_ENUM, AT(log_format), "text", 0, 0, log_format_names, ANY,
     "Log and settings", "json: one object per line"},
    {"config", "FILE", OPTION_TEXT, AT(config), NULL, 0, 0, NULL, ANY, "Log and settings",
     "YAML file with options, e.g. `max-num-seqs: 32`"},
};
const int option_count = sizeof option_table / sizeof *option_table;
