#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/options/table.h"
#include "support/suite_main.h"

#define MAX_ARGUMENTS 32

/* The results of the last parse. */
static struct options options;
static struct err err;
static bool help;

/* Parses a command line in an environment. Both are texts that are split at spaces. */
static enum status parse_in(const char *environment, const char *line) {
    static char words[2][2048];
    char *lists[2][MAX_ARGUMENTS + 1] = {{0}};
    int counts[2] = {0};
    const char *texts[2] = {line, environment};
    for (int i = 0; i < 2; i++) {
        snprintf(words[i], sizeof words[i], "%s", texts[i]);
        for (char *word = strtok(words[i], " "); word; word = strtok(NULL, " ")) {
            ck_assert_int_lt(counts[i], MAX_ARGUMENTS);
            lists[i][counts[i]++] = word;
        }
    }
    memset(&err, 0, sizeof err);
    return options_parse(&options, lists[0][0], counts[0] - 1, lists[0] + 1, lists[1], &help, &err);
}

static enum status parse(const char *line) {
    return parse_in("", line);
}

/* Fails unless the parse fails with STATUS_USAGE and `expected` in its message. */
static void refused_in(const char *environment, const char *line, const char *expected) {
    enum status status = parse_in(environment, line);
    ck_assert_msg(status == STATUS_USAGE, "%s: status %d", line, status);
    ck_assert_int_eq(err.status, STATUS_USAGE);
    ck_assert_msg(strstr(err.message, expected), "%s: \"%s\" lacks \"%s\"", line, err.message,
                  expected);
    ck_assert_ptr_null(options.owned);
}

static void expect_refused(const char *line, const char *expected) {
    refused_in("", line, expected);
}

static void accepted(const char *line) {
    enum status status = parse(line);
    ck_assert_msg(status == STATUS_OK, "%s: %s", line, err.message);
}

/* ---- flags ---------------------------------------------------------------------------------- */

START_TEST(defaults_hold) {
    accepted("serve --model m.gguf");
    ck_assert_str_eq(options.engine.model, "m.gguf");
    ck_assert_str_eq(options.http.host, "127.0.0.1");
    ck_assert_int_eq(options.http.port, 8080);
    ck_assert_ptr_null(options.access.api_key);
    ck_assert_ptr_null(options.access.metrics_key);
    ck_assert_ptr_null(options.api.served_model_name);
    ck_assert_int_eq(options.engine.max_num_seqs, 64);
    ck_assert_int_eq(options.engine.max_num_batched_tokens, 512);
    ck_assert_int_eq(options.engine.block_size, 16);
    ck_assert(options.scheduler.prefix_caching && !options.access.share_prefixes);
    ck_assert_int_eq(options.api.grammar_cache, 64 << 20);
    ck_assert_int_eq(options.api.grammar_memory, 512 << 20);
    ck_assert(!options.api.open_objects);
    ck_assert_int_eq(options.http.max_body_bytes, 16 << 20);
    ck_assert_int_eq(options.http.request_timeout_ms, 30000);
    ck_assert_int_eq(options.drain.delay_s, 5);
    ck_assert_int_eq(options.drain.timeout_s, 30);
    ck_assert_ptr_null(options.access.admin_key);
    ck_assert_int_eq(options.api.seed, -1);
    ck_assert_int_eq((int)options.engine.device, DEVICE_AUTO);
    ck_assert_int_eq((int)options.log.format, LOG_TEXT);
    ck_assert_int_eq(options.n_arguments, 0);
    ck_assert_int_eq(options.run.max_tokens, 256);
    ck_assert_str_eq(options.bench.prompt, "128,512");
    ck_assert_int_eq((int)options.scheduler.speculation.method, SPECULATION_NONE);
    ck_assert(!options.scheduler.fixed_drafts);
    options_free(&options);
    ck_assert_ptr_null(options.engine.model);
}
END_TEST

START_TEST(flags_in_every_form) {
    accepted("serve --model=m --port 9 --max_num_seqs=3 --no-enable-prefix-caching "
             "--kv-cache-memory 2GiB --seed -1 --log-level debug --api-key=--a=b");
    ck_assert_str_eq(options.engine.model, "m");
    ck_assert_int_eq(options.http.port, 9);
    ck_assert_int_eq(options.engine.max_num_seqs, 3);
    ck_assert(!options.scheduler.prefix_caching);
    ck_assert_int_eq(options.engine.kv_memory, (int64_t)2 << 30);
    ck_assert_int_eq(options.api.seed, -1);
    ck_assert_int_eq((int)options.log.level, LOG_DEBUG);
    ck_assert_str_eq(options.access.api_key, "--a=b");
    options_free(&options);
    accepted("serve m --no-enable-prefix-caching --enable-prefix-caching --port 1 --port 2");
    ck_assert(options.scheduler.prefix_caching);
    ck_assert_int_eq(options.http.port, 2);
    options_free(&options);
    accepted("serve m --enable-prefix-caching=off");
    ck_assert(!options.scheduler.prefix_caching);
    ck_assert(!options.engine.enforce_eager && !options.engine.warm_up);
    options_free(&options);
    accepted("serve m --warm-up");
    ck_assert(options.engine.warm_up);
    options_free(&options);
    accepted("bench m --enforce-eager");
    ck_assert(options.engine.enforce_eager);
    options_free(&options);
    accepted("run --model m --temperature 0.7 --chat --max-tokens 5");
    ck_assert_double_eq(options.run.temperature, 0.7);
    ck_assert(options.run.chat);
    options_free(&options);
}
END_TEST

START_TEST(names) {
    static const struct {
        const char *line, *names, *model;
    } cases[] = {
        {"serve --model m --served-model-name a b c --port 1", "a,b,c", "m"},
        {"serve --served-model-name a b --model m", "a,b", "m"},
        {"serve m --served-model-name a b", "a,b", "m"},
        {"serve --served-model-name a m", "a", "m"},
        {"serve --served-model-name=a,b m", "a,b", "m"},
        {"serve --served-model-name a --model=m", "a", "m"},
        {"batch --model m --served-model-name a b -i x -o y", "a,b", "m"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        accepted(cases[i].line);
        ck_assert_str_eq(options.api.served_model_name, cases[i].names);
        ck_assert_str_eq(options.engine.model, cases[i].model);
        options_free(&options);
    }
}
END_TEST

START_TEST(letters) {
    accepted("batch --model m -i in -o -");
    ck_assert_str_eq(options.batch.input_file, "in");
    ck_assert_str_eq(options.batch.output_file, "-");
    options_free(&options);
    accepted("batch --model m --input_file=-i --output-file out");
    ck_assert_str_eq(options.batch.input_file, "-i");
    options_free(&options);
}
END_TEST

START_TEST(sizes) {
    static const struct {
        const char *text;
        int64_t bytes;
    } cases[] = {{"1048576", 1 << 20},      {"2GiB", (int64_t)2 << 30},
                 {"512MB", 512000000},      {"16MiB", 16 << 20},
                 {"1.5GiB", 1610612736},    {"1g", 1 << 30},
                 {"4096B", 4096},           {"3kb", 3000},
                 {"1TiB", (int64_t)1 << 40}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[100];
        snprintf(line, sizeof line, "serve m --kv-cache-memory %s", cases[i].text);
        accepted(line);
        ck_assert_int_eq(options.engine.kv_memory, cases[i].bytes);
        options_free(&options);
    }
    accepted("serve m --swap-space 1GiB --swap-space auto");
    ck_assert_int_eq(options.engine.swap_space, -1);
    options_free(&options);
    expect_refused("serve m --kv-cache-memory 2GB2", "takes a size such as 2GiB, 512MB or 1048576");
    expect_refused("serve m --kv-cache-memory GiB", "takes a size");
    expect_refused("serve m --kv-cache-memory -1", "takes a size");
    expect_refused("serve m --kv-cache-memory 1.2.3GiB", "takes a size");
    expect_refused("serve m --kv-cache-memory 2XiB", "takes a size");
    expect_refused("serve m --kv-cache-memory 99999TiB",
                   "from 0 to 70368744177664, not \"99999TiB\"");
    expect_refused("serve m --max-body-size 12", "from 1024 to");
}
END_TEST

START_TEST(values_out_of_range) {
    expect_refused("serve m --port 70000",
                   "--port takes a whole number from 0 to 65535, not \"70000\"");
    ck_assert_str_eq(err.param, "port");
    expect_refused("serve m --port -1", "from 0 to 65535");
    expect_refused("serve m --port 80x", "a whole number");
    expect_refused("serve m --port=", "a whole number");
    expect_refused("serve m --port 0x10", "a whole number");
    expect_refused("serve m --port 99999999999999999999999999", "a whole number");
    expect_refused("serve m --seed -2", "a whole number of -1 or more");
    expect_refused("serve m --seed 9223372036854775808", "a whole number");
    expect_refused("run --model m --temperature 2.1", "a number from 0 to 2, not \"2.1\"");
    expect_refused("run --model m --temperature nan", "a number from 0 to 2");
    expect_refused("run --model m --temperature inf", "a number from 0 to 2");
    expect_refused("serve m --device tpu", "--device takes auto, cpu or cuda, not \"tpu\"");
    expect_refused("serve m --load-format aut", "--load-format takes auto or dummy");
    expect_refused("serve m --log-format TEXT", "takes text or json");
    expect_refused("serve m --enable-prefix-caching=maybe", "takes true or false");
    expect_refused("serve m --no-enable-prefix-caching=true", "does not take a value");
    expect_refused("bench m --bench-batch 1,,2",
                   "whole numbers from 1 to 4096 with commas between them");
    expect_refused("bench m --bench-batch 1,0", "whole numbers from 1");
    expect_refused("bench m --bench-batch=", "whole numbers from 1");
}
END_TEST

START_TEST(edges_of_ranges) {
    accepted("serve m --port 0 --seed 9223372036854775807 --max-body-size 1024 --block-size 256");
    ck_assert_int_eq(options.http.port, 0);
    ck_assert_int_eq(options.api.seed, INT64_MAX);
    options_free(&options);
    accepted("serve m --port 00000000000000000008080"); /* 23 digits are the most */
    ck_assert_int_eq(options.http.port, 8080);
    options_free(&options);
    accepted("serve m --port 65535 --drain-timeout 0");
    options_free(&options);
    accepted("bench m --bench-batch 1,4096 --bench-prompt 7");
    ck_assert_str_eq(options.bench.batch, "1,4096");
    options_free(&options);
}
END_TEST

START_TEST(options_that_exclude_one_another) {
    static const char *const lines[][2] = {
        {"serve m --unload-when-idle 1 --exit-when-idle 1", "1 never happens with"},
        {"serve m --unload-when-idle 3 --exit-when-idle 2", "3 never happens with"},
        {"serve m --unload-when-idle 1 --exit-when-idle 2", NULL},
        {"serve m --unload-when-idle 2", NULL},
        {"serve m --exit-when-idle 2", NULL},
        {"serve m --record r --state-dir s", "--record does not work with --state-dir"},
        {"serve m --record r", NULL},
        {"serve m --state-dir s", NULL},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (lines[i][1]) {
            expect_refused(lines[i][0], lines[i][1]);
        } else {
            accepted(lines[i][0]);
            options_free(&options);
        }
    }
}
END_TEST

START_TEST(unknown_flags_get_a_neighbour) {
    expect_refused("serve m --prot 80", "serve: unknown flag --prot; did you mean --port?");
    expect_refused("serve m --max-num-seq=3", "did you mean --max-num-seqs?");
    expect_refused("serve m --model-len 3", "did you mean --max-model-len?");
    expect_refused("serve m --max_batched_tokens 3", "did you mean --max-num-batched-tokens?");
    expect_refused("serve m --zebra", "`penstock serve --help` lists its flags");
    expect_refused("serve m --temperature 1", "serve: unknown flag --temperature");
    expect_refused("serve m --no-port", "serve: unknown flag --no-port");
    expect_refused("serve m -p 80", "-p is not a flag");
    expect_refused("serve m -i x", "-i is not a flag");
    expect_refused("batch -ix", "-ix is not a flag");
    expect_refused("batch -i", "--input-file needs a value");
    expect_refused("batch --model m -i x", "-i FILE -o FILE");
    expect_refused(
        "serve m --port",
        "--port needs a value: --port PORT; one that begins with -- is given as --port=VALUE");
    expect_refused("serve m --port --host x", "--port needs a value");
    expect_refused("serve m --device", "--device auto|cpu|cuda");
    expect_refused("sevre m", "unknown command \"sevre\"; did you mean serve?");
    expect_refused("zebra m", "`penstock --help` lists them");
}
END_TEST

START_TEST(arguments) {
    accepted("serve m.gguf");
    ck_assert_str_eq(options.engine.model, "m.gguf");
    options_free(&options);
    accepted("inspect m.gguf");
    ck_assert_str_eq(options.engine.model, "m.gguf");
    ck_assert_int_eq(options.n_arguments, 1);
    options_free(&options);
    accepted("inspect --model m.gguf");
    ck_assert_str_eq(options.engine.model, "m.gguf");
    options_free(&options);
    accepted("run --model m -- --hello");
    ck_assert_int_eq(options.n_arguments, 1);
    ck_assert_str_eq(options.arguments[0], "--hello");
    options_free(&options);
    accepted("run --model m -");
    ck_assert_str_eq(options.arguments[0], "-");
    options_free(&options);
    accepted("version");
    options_free(&options);
    expect_refused("version x", "version does not take an argument");
    expect_refused("run --model m two words", "put a text with spaces in quotes");
    expect_refused("serve --model a b", "two models");
    expect_refused("serve", "serve needs a model: --model PATH");
    expect_refused("inspect", "inspect needs a model: PATH");
    expect_refused("tokenize text", "needs a model");
    expect_refused("serve --model=", "needs a model");
}
END_TEST

/* ---- environment and file ------------------------------------------------------------------- */

START_TEST(environment_is_read) {
    ck_assert_int_eq(parse_in("PENSTOCK_MODEL=m PENSTOCK_PORT=7 PENSTOCK_MAX_NUM_SEQS=5 "
                              "PENSTOCK_ENABLE_PREFIX_CACHING=no PENSTOCK_API_KEY=a=b "
                              "PENSTOCK_HOST= PENSTOCK_TEMPERATURE=9 PORT=1",
                              "serve --port 8"),
                     STATUS_OK);
    ck_assert_str_eq(options.engine.model, "m");
    ck_assert_int_eq(options.http.port, 8);
    ck_assert_int_eq(options.engine.max_num_seqs, 5);
    ck_assert(!options.scheduler.prefix_caching);
    ck_assert_str_eq(options.access.api_key, "a=b");
    ck_assert_str_eq(options.http.host, "127.0.0.1");
    options_free(&options);
    refused_in("PENSTOCK_PORT=x", "serve m", "PENSTOCK_PORT takes a whole number from 0 to 65535");
    ck_assert_int_eq(parse_in("PENSTOCK_PORT=x PENSTOCK_MODEL=m", "serve n --port 1"), STATUS_OK);
    ck_assert_str_eq(options.engine.model, "n");
    options_free(&options);
}
END_TEST

static const char *write_file(const char *text) {
    static char path[64];
    strcpy(path, "/tmp/penstock_options_XXXXXX");
    int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    ck_assert_int_eq(write(file, text, strlen(text)), (ssize_t)strlen(text));
    close(file);
    return path;
}

static enum status parse_file(const char *environment, const char *text) {
    char line[256];
    const char *path = write_file(text);
    snprintf(line, sizeof line, "serve m --port 8 --config %s", path);
    enum status status = parse_in(environment, line);
    unlink(path);
    return status;
}

START_TEST(file_is_the_weakest_source) {
    const char *text = "# a comment\nport: 1\nmax-num-seqs: 2\nmax_num_batched_tokens: 3\n"
                       "block-size: 4\nhost: \"0.0.0.0\"\nenable-prefix-caching: false\n"
                       "api-key:\nserved-model-name: 'a b'\ntemperature: 1.5\n";
    ck_assert_int_eq(parse_file("PENSTOCK_MAX_NUM_SEQS=5", text), STATUS_OK);
    ck_assert_int_eq(options.http.port, 8);
    ck_assert_int_eq(options.engine.max_num_seqs, 5);
    ck_assert_int_eq(options.engine.max_num_batched_tokens, 3);
    ck_assert_int_eq(options.engine.block_size, 4);
    ck_assert_str_eq(options.http.host, "0.0.0.0");
    ck_assert(!options.scheduler.prefix_caching);
    ck_assert_ptr_null(options.access.api_key);
    ck_assert_str_eq(options.api.served_model_name, "a b");
    options_free(&options);
    ck_assert_int_eq(parse_file("", "no-enable-prefix-caching: true\n"), STATUS_OK);
    ck_assert(!options.scheduler.prefix_caching);
    options_free(&options);
    ck_assert_int_eq(parse_file("", "no-enable-prefix-caching: false\n"), STATUS_OK);
    ck_assert(options.scheduler.prefix_caching);
    options_free(&options);
}
END_TEST

START_TEST(empty_files_set_nothing) {
    static const char *const texts[] = {"",    "# only a comment\n", "---\n", "{}\n",
                                        "~\n", "--- {}\n...\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        enum status status = parse_file("", texts[i]);
        ck_assert_msg(status == STATUS_OK, "%s: %s", texts[i], err.message);
        options_free(&options);
    }
}
END_TEST

START_TEST(bad_files_name_the_line) {
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"host: x\nprot: 1\n", ":2: unknown option \"prot\"; did you mean port?"},
        {"zebra: 1\n", ":1: unknown option \"zebra\""},
        {"\n\nmax-num-seqs: many\n",
         ":3: max-num-seqs takes a whole number from 1 to 4096, not \"many\""},
        {"host: x\nblock-size: 0\n", ":2: block-size takes"},
        {"host: x\nhost: y\n", ":2: host is set twice, first on line 1"},
        {"host: [x, y]\n", ":1: host takes one value"},
        {"host: {x: y}\n", ":1: host takes one value"},
        {"- host\n", ":1: the file must hold lines of `name: value`"},
        {"just text\n", ":1: the file must hold"},
        {"[a]: b\n", ":1: a key must be the name of an option"},
        {"host: *unknown\n", ":1: "},
        {"host: \"open\n", ":"},
        {"host: x\n---\nhost: y\n", ":2: a second document begins here"},
        {"config: other.yaml\n", ":1: a file cannot name another file"},
        {"host: \"a\\0b\"\n", ":1: host holds a NUL byte"},
        {"host: \xFF\n", ":"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum status status = parse_file("", cases[i].text);
        ck_assert_msg(status == STATUS_BAD_FILE, "%s: status %d", cases[i].text, status);
        ck_assert_int_eq(err.status, STATUS_BAD_FILE);
        ck_assert_msg(strstr(err.message, cases[i].expected), "\"%s\" lacks \"%s\"", err.message,
                      cases[i].expected);
    }
}
END_TEST

/* Each option but config is known in a file; none takes a mapping as its value. */
START_TEST(a_file_may_name_each_option) {
    for (int i = 0; i < option_count; i++) {
        char text[128], expected[128];
        const char *name = option_table[i].name;
        if (strcmp(name, "config") == 0) continue;
        snprintf(text, sizeof text, "%s: {x: y}\n", name);
        snprintf(expected, sizeof expected, ":1: %s takes one value", name);
        ck_assert_msg(parse_file("", text) == STATUS_BAD_FILE, "%s", name);
        ck_assert_msg(strstr(err.message, expected), "%s: %s", name, err.message);
    }
}
END_TEST

START_TEST(files_that_cannot_be_read) {
    ck_assert_int_eq(parse("serve m --config /nonexistent.yaml"), STATUS_BAD_FILE);
    ck_assert_ptr_nonnull(strstr(err.message, "/nonexistent.yaml cannot be read: No such file"));
    ck_assert_int_eq(parse("serve m --config /tmp"), STATUS_BAD_FILE);
    ck_assert_ptr_nonnull(strstr(err.message, "cannot be read"));
    ck_assert_int_eq(parse("serve m --config /dev/zero"), STATUS_BAD_FILE);
    ck_assert_ptr_nonnull(strstr(err.message, "larger than the 1 MiB"));
}
END_TEST

/* ---- help ----------------------------------------------------------------------------------- */

START_TEST(help_wins_over_the_rest) {
    accepted("serve --help");
    ck_assert(help);
    options_free(&options);
    accepted("serve --port 1 -h --zebra");
    ck_assert(help);
    options_free(&options);
    accepted("serve m");
    ck_assert(!help);
    options_free(&options);
    accepted("run --model m -- --help");
    ck_assert(!help);
    options_free(&options);
}
END_TEST

/* ---- the table itself ----------------------------------------------------------------------- */

/* Each word of each list is accepted and sets its value. */
START_TEST(words_become_values) {
    for (int i = 0; i < option_count; i++) {
        const struct option *option = &option_table[i];
        for (const struct named_value *at = option->names; at && at->name; at++) {
            struct options filled = {0};
            ck_assert_int_eq(option_set(option, at->name, option->name, &filled, NULL), STATUS_OK);
            ck_assert_int_eq(*(int *)((char *)&filled + option->offset), at->value);
            ck_assert_str_ne(value_name(option->names, at->value), "");
        }
    }
    ck_assert_str_eq(value_name(kv_dtype_names, KV_DTYPE_FP8), "fp8");
    accepted("serve m --kv-cache-dtype fp8_e4m3 --device=cuda --dtype float16 --quantization fp8 "
             "--load-format dummy --log-level error --log-format json");
    ck_assert(options.engine.kv_dtype == KV_DTYPE_FP8 && options.engine.device == DEVICE_CUDA);
    ck_assert(options.engine.dtype == COMPUTE_FLOAT16 &&
              options.engine.quantization == QUANTIZATION_FP8);
    ck_assert(options.stated.load_format == LOAD_DUMMY && options.engine.dummy &&
              options.log.level == LOG_ERROR);
    ck_assert(options.log.format == LOG_JSON);
    options_free(&options);
    accepted("serve m --generation-config none");
    ck_assert_int_eq(options.api.generation_config, GENERATION_CONFIG_NONE);
    options_free(&options);
    accepted("batch --model m -i a -o b");
    ck_assert_int_eq(options.api.generation_config, GENERATION_CONFIG_AUTO);
    options_free(&options);
    expect_refused("serve m --generation-config vllm", "--generation-config takes auto or none");
    expect_refused("serve m --kv-cache-dtype int3",
                   "--kv-cache-dtype takes auto, int16, q8_0, float16, float32, bfloat16, fp8 or "
                   "fp8_e4m3, not \"int3\"");
}
END_TEST

START_TEST(table_is_sound) {
    for (int i = 0; i < option_count; i++) {
        const struct option *option = &option_table[i];
        bool negated;
        ck_assert_int_eq(option_find(option->name, strlen(option->name), &negated), i);
        ck_assert(!negated);
        ck_assert(option->commands != 0 && option->group && option->help);
        ck_assert((option->type == OPTION_ENUM) == (option->names != NULL));
        ck_assert(option->type == OPTION_BOOL || option->names || option->metavar);
        ck_assert_int_le(option->min, option->max);
        for (int j = 0; j < i; j++) ck_assert_uint_ne(option_table[j].offset, option->offset);
        if (!option->fallback) {
            ck_assert(option->type == OPTION_TEXT || option->type == OPTION_NAMES ||
                      option->type == OPTION_PAIRS);
            continue;
        }
        struct options filled = {0};
        ck_assert_int_eq(option_set(option, option->fallback, option->name, &filled, NULL),
                         STATUS_OK);
    }
    bool negated;
    ck_assert_int_eq(strcmp(option_table[0].name, "model"), 0);
    ck_assert_int_eq(option_find("no", 2, &negated), -1);
    ck_assert_int_eq(option_find("no-", 3, &negated), -1);
    ck_assert_int_eq(option_find("", 0, &negated), -1);
}
END_TEST

/* Messages of the engine name settings; a user reads flags. */
START_TEST(settings_in_messages_become_flags) {
    static const struct {
        const char *message, *printed;
    } cases[] = {
        {"", ""},
        {"lower {max-num-seqs}", "lower --max-num-seqs"},
        {"{device} cpu, {no-deterministic} and {dtype}",
         "--device cpu, --no-deterministic and --dtype"},
        {"{} {\"a\":1} {unknown} {{port}} {port", "{} {\"a\":1} {unknown} {--port} {port"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf printed = {0};
        options_message(cases[i].message, &printed);
        ck_assert_str_eq(printed.data, cases[i].printed);
        buf_free(&printed);
    }
}
END_TEST

/* docs/options.md contains the table between two marks; `make readme` writes it. */
START_TEST(docs_hold_the_table) {
    static char page[1 << 18];
    struct buf table = {0};
    FILE *file = fopen("docs/options.md", "rb");
    ck_assert_ptr_nonnull(file);
    page[fread(page, 1, sizeof page - 1, file)] = 0;
    fclose(file);
    buf_puts(&table, "<!-- options -->\n");
    options_markdown(&table);
    buf_puts(&table, "<!-- end of options -->\n");
    ck_assert_msg(strstr(page, table.data),
                  "docs/options.md lacks the current option table: run `make readme`");
    buf_free(&table);
}
END_TEST

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--markdown") == 0) {
        struct buf table = {0};
        options_markdown(&table);
        fputs(table.data, stdout);
        buf_free(&table);
        return 0;
    }
    Suite *suite = suite_create("server_options");
    TCase *cases = tcase_create("core");
    suite_add_tcase(suite, cases);
    tcase_add_test(cases, defaults_hold);
    tcase_add_test(cases, flags_in_every_form);
    tcase_add_test(cases, letters);
    tcase_add_test(cases, names);
    tcase_add_test(cases, sizes);
    tcase_add_test(cases, values_out_of_range);
    tcase_add_test(cases, edges_of_ranges);
    tcase_add_test(cases, options_that_exclude_one_another);
    tcase_add_test(cases, unknown_flags_get_a_neighbour);
    tcase_add_test(cases, arguments);
    tcase_add_test(cases, environment_is_read);
    tcase_add_test(cases, file_is_the_weakest_source);
    tcase_add_test(cases, empty_files_set_nothing);
    tcase_add_test(cases, bad_files_name_the_line);
    tcase_add_test(cases, a_file_may_name_each_option);
    tcase_add_test(cases, files_that_cannot_be_read);
    tcase_add_test(cases, help_wins_over_the_rest);
    tcase_add_test(cases, words_become_values);
    tcase_add_test(cases, table_is_sound);
    tcase_add_test(cases, settings_in_messages_become_flags);
    tcase_add_test(cases, docs_hold_the_table);
    return suite_main(suite);
}
