/* The short commands: inspect, quantize, tokenize, version. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/commands/commands.h"
#include "server/endpoints/endpoints.h"

int command_inspect(struct options *options) {
    struct engine_config config = options->engine;
    struct err err;
    int code = find_models(options);
    if (code) return code;
    return engine_inspect(&config, options->inspected, stdout, &err) ? print_error(&err) : 0;
}

int command_quantize(struct options *options) {
    struct err err;
    struct progress progress;
    struct quantise_job job = {.in = options->engine.model,
                               .out = options->arguments[1],
                               .type = options->type,
                               .threads = options->engine.threads,
                               .progress = progress_step,
                               .progress_arg = &progress};
    int code = find_models(options);
    if (code) return code;
    uint64_t began = now_ns();
    progress_begin(&progress, "loading", terminal_has_codes(STDERR_FILENO));
    enum status status = engine_quantise(&job, &err);
    progress_end(&progress);
    if (status) return print_error(&err);
    printf("%s: %.1f MB, from %.1f MB in %.1f s\n", job.out, (double)job.bytes_out * 1e-6,
           (double)job.bytes_in * 1e-6, (double)(now_ns() - began) * 1e-9);
    return 0;
}

int command_version(struct options *options) {
    (void)options;
    struct buf out = {0};
    version_write(&out);
    printf("%s\nCPU paths of this machine:", out.data);
    for (const char *const *path = backend_cpu_paths(); *path; path++) printf(" %s", *path);
    printf("\n");
    buf_free(&out);
    return 0;
}

int command_tokenize(struct options *options) {
    struct buf text = {0};
    int code = find_models(options);
    if (code == 0 && options->n_arguments == 0)
        code = read_input(&text);
    else if (code == 0)
        buf_puts(&text, options->arguments[0]);
    struct tokenizer *tokenizer;
    struct err err;
    if (code) {
        /* the error was printed */
    } else if (engine_open_tokenizer(&tokenizer, options->engine.model, &err)) {
        code = print_error(&err);
    } else {
        int32_t *ids;
        int n = tokenizer_encode(tokenizer, text.data, text.length, SPECIAL_PARSED, true, INT32_MAX,
                                 &ids);
        for (int i = 0; i < n; i++) {
            const char *name = tokenizer_token_name(tokenizer, ids[i]);
            printf("%6d  ", ids[i]);
            print_text(name, strlen(name));
            printf("\n");
        }
        printf("%d tokens\n", n);
        mem_free(ids);
        tokenizer_free(tokenizer);
    }
    buf_free(&text);
    return code;
}
