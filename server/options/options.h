/* server/options: the options of all commands, and the settings that they fill. Internal to
 * server/.
 *
 * struct options embeds the settings of the rooms below, so an option is a row of table.c that
 * points to a field, and the field's use. Options whose values differ from their fields are in
 * `stated`; options_parse converts them (settings.c).
 */
#ifndef PENSTOCK_SERVER_OPTIONS_H
#define PENSTOCK_SERVER_OPTIONS_H

#include "scheduler/scheduler.h"
#include "server/http/http.h"

/* Every option of every command. Flags override the environment (PENSTOCK_<NAME>), which overrides
 * the file, which overrides the defaults. The struct owns its strings until options_free. Settings
 * that are not options are zero, except for those that settings.c sets. */
struct options {
    struct engine_config engine;
    struct scheduler_config scheduler; /* completed by scheduler_config_from */
    struct http_config http;           /* completed by app_open */
    /* as a user states them; read only by settings.c */
    struct {
        bool deterministic; /* CUDA: a request's output does not depend on the batch */
        enum load_format load_format;
        int itl_target_ms;     /* between two tokens while prompts are computed; -1: auto */
        int request_timeout_s; /* seconds to receive headers and body */
    } stated;
    /* requests and their model */
    struct {
        const char *served_model_name; /* separated by commas; NULL: the name in the model file */
        bool any_model_name;           /* requests may name any model */
        const char *tool_call_parser;  /* auto, none, or a format of server/message */
        int reasoning_budget;          /* tokens; -1: no limit */
        const char *reasoning_parser;  /* auto, none, or a format of server/message */
        enum generation_config generation_config; /* do the model's files set sampling defaults? */
        int64_t seed;                             /* for requests without a seed; -1: random */
        int64_t grammar_cache;                    /* bytes of cached compiled grammars */
        /* maximum bytes of all grammars; above it none is compiled; 0: no limit */
        int64_t grammar_memory;
        bool open_objects; /* schemas: objects without additionalProperties may have others */
    } api;
    struct {
        const char *adapters; /* NAME=PATH, separated by commas; NULL: none at the start */
        bool may_load;        /* clients with an admin key may load and unload others */
        const char *folder;   /* from which they may load */
    } lora;
    /* clients of a server */
    struct {
        const char *api_key;         /* separated by commas; NULL: no key is required */
        const char *api_key_file;    /* one key per line */
        const char *admin_key;       /* keys that may drain the server, separated by commas */
        const char *metrics_key;     /* keys for monitors, separated by commas; NULL: open */
        const char *cors_origins;    /* origins separated by commas, or *; NULL: none */
        const char *trusted_proxies; /* addresses and ranges, separated by commas */
        bool share_prefixes;         /* among API keys */
        bool page;                   /* browsers get the web page at / */
    } access;
    /* blocks of the prefix cache outside the process */
    struct {
        const char *place; /* a folder or an address of Redis; NULL: none */
        int64_t bytes;     /* of all files in the folder */
    } prefix_store;
    /* events of the prefix cache for routers; NULL: none */
    struct {
        const char *endpoint, *replay_endpoint; /* tcp://HOST:PORT */
        const char *topic;
    } kv_events;
    /* traces of requests for a collector */
    struct {
        const char *endpoint; /* its URL; NULL: none */
        double ratio;         /* share of the requests without a parent that have a span */
    } traces;
    struct {
        int delay_s;   /* seconds from SIGTERM until the port closes */
        int timeout_s; /* seconds after that for running requests */
        int idle_s;    /* the process ends after this time without requests; 0: never */
        int unload_s;  /* weights and cache leave memory after this time without; 0: never */
    } drain;
    struct {
        const char *folder; /* of the journal of promises; NULL: nothing is kept */
        int64_t size;       /* limit of its files in bytes */
    } state;
    struct {
        enum log_level level;
        enum log_format format;
    } log;
    struct {
        bool chat;    /* hold a conversation */
        bool history; /* store typed messages in a file */
        int max_tokens;
        double temperature;
        const char *grammar_path; /* file with a grammar for answers */
        const char *json_schema;  /* a schema, or the name of its file */
        const char *regex;        /* answers match it */
        const char *stop_regex;   /* answers end at a match */
    } run;
    struct {
        const char *input_file;  /* requests, one per line */
        const char *output_file; /* responses */
    } batch;
    struct {
        const char *key;        /* PEM file of the key that signs them; NULL: unsigned */
        const char *public_key; /* verify: PEM file of the key that must have signed them */
        const char *record;     /* cassette to which each answer is appended; NULL: none */
        const char *replay;     /* cassette that answers; NULL: none */
    } receipts;
    struct {
        const char *prompt; /* prompt lengths, e.g. "128,512" */
        const char *batch;  /* batch sizes, e.g. "1,2,4,8,16" */
        int generate;       /* tokens that each sequence decodes */
        int repeats;        /* number of runs for the median */
        bool scaling;       /* only the report of the speed by the number of threads */
    } bench;
    struct {
        const char *folder; /* of models by name; NULL: huggingface_hub's cache */
        bool offline;       /* no model is fetched */
    } hub;
    bool check; /* serve: end before the weights are loaded */
    struct inspected inspected;
    enum quantization type;         /* quantize: of the layers' matrices */
    bool deltas;                    /* parse: one line per byte that adds something */
    enum grammar_file grammar_file; /* grammar: kind of its file */
    const char *config;             /* YAML file */
    /* arguments after the flags */
    int n_arguments;
    const char **arguments;
    void *owned; /* memory of the strings */
    /* where they were read, for options_read_again; lives as long as the process */
    struct {
        const char *command;
        int argc;
        char **argv, **environment;
    } again;
};

/* Fills `options` for `command` ("serve", "run", ...) from argv[0..argc), the arguments after the
 * command. `environment` is environ or, in tests, a similar list. Sets *help if --help is given.
 * Fails with STATUS_USAGE (unknown flag, value out of range, with the valid values) or
 * STATUS_BAD_FILE (the YAML file, with its line). */
enum status options_parse(struct options *options, const char *command, int argc, char **argv,
                          char **environment, bool *help, struct err *err);
void options_free(struct options *options);

/* Reads the same flags, variables and file again. Fails like options_parse. */
enum status options_read_again(const struct options *first, struct options *out, struct err *err);

/* Returns the name of an option that differs between two readings and cannot change while a server
 * runs, or NULL. Static storage. */
const char *options_fixed_change(const struct options *a, const struct options *b);

/* Returns a copy of the text that lives as long as the options. */
const char *options_keep(struct options *options, const char *text);

/* Makes the scheduler's settings for an opened engine. */
struct scheduler_config scheduler_config_from(const struct options *options,
                                              const struct engine *engine);

/* Appends an error's message as commands print it: a setting in braces, "{max-num-seqs}", becomes
 * its flag, "--max-num-seqs". Other braces are unchanged. */
void options_message(const char *message, struct buf *out);

/* Appends the help of one command, or of the program if `command` is NULL. */
void options_help(const char *command, struct buf *out);

/* Appends the option table as Markdown, for the docs. */
void options_markdown(struct buf *out);

#endif
