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
    {"serve", COMMAND_SERVE, "[PATH]", 1, true, "serve a model over HTTP"},
    {"run", COMMAND_RUN, "[PROMPT]", 1, false, "complete one prompt, or chat, in the terminal"},
    {"batch", COMMAND_BATCH, "-i IN -o OUT", 0, false, "answer a file of requests"},
    {"bench", COMMAND_BENCH, "[PATH]", 1, true, "measure prefill and decode on this machine"},
    {"inspect", COMMAND_INSPECT, "PATH", 1, true, "show what a model file holds"},
    {"tokenize", COMMAND_TOKENIZE, "[TEXT]", 1, false, "show a text's token ids"},
    {"version", COMMAND_VERSION, "", 0, false, "show version, commit, build and CPU path"},
};
const int command_count = sizeof command_table / sizeof *command_table;

/* The largest counts are far above what is sensible; they keep sums and products of sizes inside
 * their types. */
const struct option option_table[] = {
    {"model", "PATH", OPTION_TEXT, AT(model), NULL, 0, 0, NULL, ANY, "Model",
     "a .gguf file, or with --load-format dummy a config.json"},
    {"served-model-name", "NAME", OPTION_TEXT, AT(served_model_name), NULL, 0, 0, NULL,
     SERVE | BATCH, "Model", "the model's name in the API; without it, the name of its file"},
    {"load-format", NULL, OPTION_CHOICE, AT(load_format), "auto", 0, 0, "auto|dummy", ENGINE,
     "Model", "dummy: random weights in the shapes of --model, to measure speed"},
    {"max-model-len", "TOKENS", OPTION_INT, AT(max_model_len), "0", 0, 1 << 24, NULL, ENGINE,
     "Model", "prompt and output together; 0: what the model was trained for"},
    {"dtype", NULL, OPTION_CHOICE, AT(dtype), "auto", 0, 0, "auto|bfloat16|float16|float32", ENGINE,
     "Model", "float32: full precision, slow, to compare with; 16 bits: a GPU's activations"},
    {"quantization", NULL, OPTION_CHOICE, AT(quantization), "none", 0, 0, "none|fp8", ENGINE,
     "Model", "fp8: the layers' float weights become e4m3 as they are loaded; on a GPU only"},
    {"deterministic", NULL, OPTION_BOOL, AT(deterministic), "true", 0, 0, NULL, ENGINE, "Model",
     "keep a GPU's answers the same in any batch (cuBLAS); nothing changes on a CPU"},

    {"device", NULL, OPTION_CHOICE, AT(device), "auto", 0, 0, "auto|cpu|cuda", ENGINE, "Machine",
     "what computes; auto: a GPU where one can be used, else the CPU"},
    {"threads", "N", OPTION_INT, AT(threads), "0", 0, 1024, NULL, ENGINE, "Machine",
     "compute threads; 0: as many as this process may use"},
    {"tensor-parallel-size", "N", OPTION_INT, AT(tensor_parallel_size), "1", 1, 64, NULL, ENGINE,
     "Machine", "ranks that share the model: GPUs, or on the CPU groups of threads"},
    {"kv-cache-memory", "SIZE", OPTION_SIZE, AT(kv_cache_memory), "0", 0, 64 * TIB, NULL, ENGINE,
     "Machine", "memory for keys and values; 0: chosen from the machine's memory"},
    {"gpu-memory-utilization", "SHARE", OPTION_REAL, AT(gpu_memory_utilization), "0.9", 0, 1, NULL,
     ENGINE, "Machine",
     "share of a GPU's memory for weights, activations and keys and values together"},
    {"swap-space", "SIZE", OPTION_SIZE, AT(swap_space), "auto", -1, 64 * TIB, NULL,
     GENERATE | COMMAND_INSPECT, "Machine",
     "host memory for what a GPU has no room for; 0: computed again"},
    {"kv-cache-dtype", NULL, OPTION_CHOICE, AT(kv_cache_dtype), "auto", 0, 0,
     "auto|int16|q8_0|float16|float32|bfloat16|fp8|fp8_e4m3", ENGINE, "Machine",
     "how keys and values are stored; q8_0 (CPU) and fp8 (GPU) take half the memory"},
    {"block-size", "TOKENS", OPTION_INT, AT(block_size), "16", 1, 256, NULL, ENGINE, "Machine",
     "tokens in one block of the KV cache"},

    {"max-num-seqs", "N", OPTION_INT, AT(max_num_seqs), "64", 1, 4096, NULL, ENGINE, "Scheduling",
     "sequences in one step"},
    {"max-num-batched-tokens", "N", OPTION_INT, AT(max_num_batched_tokens), "512", 1, 1 << 20, NULL,
     ENGINE, "Scheduling", "tokens in one step; longer prompts take several steps"},
    {"max-mixed-prefill-tokens", "N", OPTION_INT, AT(max_mixed_prefill_tokens), "0", 0, 1 << 20,
     NULL, GENERATE, "Scheduling",
     "prompt tokens in a step where others decode; 0: 16 on the CPU, 512 on a GPU"},
    {"enable-prefix-caching", NULL, OPTION_BOOL, AT(enable_prefix_caching), "true", 0, 0, NULL,
     GENERATE, "Scheduling", "share the KV blocks of equal prompt beginnings"},
    {"max-queued-requests", "N", OPTION_INT, AT(max_queued_requests), "1024", 1, 1 << 24, NULL,
     SERVE, "Scheduling", "requests that may wait; more are refused with 429"},
    {"max-queued-tokens", "N", OPTION_INT, AT(max_queued_tokens), "1048576", 1, 1 << 30, NULL,
     SERVE, "Scheduling", "prompt tokens that may wait; more are refused with 429"},
    {"steps-in-flight", "N", OPTION_INT, AT(steps_in_flight), "0", 0, 2, NULL, GENERATE,
     "Scheduling", "2: the next step is planned while one runs; 0: 2 on a GPU, 1 on the CPU"},
    {"enforce-eager", NULL, OPTION_BOOL, AT(enforce_eager), "false", 0, 0, NULL, ENGINE,
     "Scheduling", "on a GPU: launch every kernel by itself, no CUDA graphs"},
    {"seed", "N", OPTION_INT64, AT(seed), "-1", -1, INT64_MAX, NULL, GENERATE, "Scheduling",
     "for requests that bring none; -1: a new one for each"},

    {"host", "ADDRESS", OPTION_TEXT, AT(host), "127.0.0.1", 0, 0, NULL, SERVE, "HTTP",
     "address to listen on; 0.0.0.0: all of them"},
    {"port", "PORT", OPTION_INT, AT(port), "8080", 0, 65535, NULL, SERVE, "HTTP",
     "port to listen on; 0: any free one"},
    {"api-key", "KEYS", OPTION_TEXT, AT(api_key), NULL, 0, 0, NULL, SERVE, "HTTP",
     "keys with commas between them, of which clients must send one"},
    {"api-key-file", "FILE", OPTION_TEXT, AT(api_key_file), NULL, 0, 0, NULL, SERVE, "HTTP",
     "file of such keys, one a line"},
    {"max-body-size", "SIZE", OPTION_SIZE, AT(max_body_size), "16MiB", KIB, TIB, NULL,
     SERVE | BATCH, "HTTP", "larger request bodies, or lines of a batch, are refused"},
    {"max-connections", "N", OPTION_INT, AT(max_connections), "1024", 1, 1 << 20, NULL, SERVE,
     "HTTP", "connections open at a time"},
    {"request-timeout", "SECONDS", OPTION_INT, AT(request_timeout_s), "30", 1, 86400, NULL, SERVE,
     "HTTP", "time for a request's headers and body to arrive"},
    {"drain-timeout", "SECONDS", OPTION_INT, AT(drain_timeout_s), "30", 0, 86400, NULL, SERVE,
     "HTTP", "time that running requests have to finish after SIGTERM"},

    {"chat", NULL, OPTION_BOOL, AT(chat), "false", 0, 0, NULL, COMMAND_RUN, "Run",
     "a conversation in the terminal, through the model's chat template"},
    {"max-tokens", "N", OPTION_INT, AT(max_tokens), "256", 1, 1 << 24, NULL, COMMAND_RUN, "Run",
     "tokens to generate at most"},
    {"temperature", "T", OPTION_REAL, AT(temperature), "0", 0, 2, NULL, COMMAND_RUN, "Run",
     "0 takes the likeliest token every time; higher values vary more"},

    {"input-file", "FILE", OPTION_TEXT, AT(input_file), NULL, 0, 0, NULL, BATCH, "Batch",
     "-i: requests, one a line, in the form of OpenAI's batches"},
    {"output-file", "FILE", OPTION_TEXT, AT(output_file), NULL, 0, 0, NULL, BATCH, "Batch",
     "-o: their answers; lines that it has already are not computed again"},

    {"bench-prompt", "LIST", OPTION_LIST, AT(bench_prompt), "128,512", 1, 1 << 24, NULL,
     COMMAND_BENCH, "Bench", "prompt lengths to measure, in tokens"},
    {"bench-batch", "LIST", OPTION_LIST, AT(bench_batch), "1,2,4,8,16", 1, 4096, NULL,
     COMMAND_BENCH, "Bench", "batch sizes to measure, in sequences"},
    {"bench-generate", "N", OPTION_INT, AT(bench_generate), "64", 1, 1 << 20, NULL, COMMAND_BENCH,
     "Bench", "tokens that each sequence decodes"},
    {"bench-repeats", "N", OPTION_INT, AT(bench_repeats), "3", 1, 1000, NULL, COMMAND_BENCH,
     "Bench", "runs of which the median is reported"},

    {"log-level", NULL, OPTION_CHOICE, AT(log_level), "info", 0, 0, "debug|info|warning|error", ANY,
     "Log and settings", "the least important lines to write"},
    {"log-format", NULL, OPTION_CHOICE, AT(log_format), "text", 0, 0, "text|json", ANY,
     "Log and settings", "json: one object a line"},
    {"config", "FILE", OPTION_TEXT, AT(config), NULL, 0, 0, NULL, ANY, "Log and settings",
     "YAML file of these options, e.g. `max-num-seqs: 32`"},
};
const int option_count = sizeof option_table / sizeof *option_table;
