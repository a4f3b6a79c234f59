/* `penstock run`: completes one prompt, or holds a conversation (chat.c). */
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/commands/console.h"
#include "server/generation/prompt.h"

static int complete(struct session *session, const char *prompt, size_t length) {
    struct api_prompt asked = {.text = prompt, .length = length};
    struct answer answer = {0};
    struct err err;
    int32_t *ids;
    int n;
    if (prompt_encode(session->engine, &asked, true, NULL, &ids, &n, &err))
        return print_error(&err);
    if (n == 0) {
        mem_free(ids);
        print_failure("the prompt is empty; give a text, or pipe one in");
        return 2;
    }
    int code = session_answer(session, ids, n, NULL, &answer);
    printf("\n");
    fprintf(stderr, "%d tokens after a prompt of %d in %.2f s\n", answer.n_tokens, n,
            answer.seconds);
    buf_free(&answer.text);
    return code;
}

static int complete_from_options(struct session *session) {
    const struct options *options = session->options;
    if (options->n_arguments > 0) {
        return complete(session, options->arguments[0], strlen(options->arguments[0]));
    }
    struct buf input = {0};
    int code = read_input(&input);
    if (code == 0) code = complete(session, input.data, input.length);
    buf_free(&input);
    return code;
}

int command_run(struct options *options) {
    struct session session;
    /* Line editing needs characters, and so a UTF-8 locale; numbers stay in the C locale. setlocale
     * must be called before other threads start. */
    if (options->run.chat) setlocale(LC_CTYPE, "");
    if (options->run.chat && MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8");
    int code = session_open(&session, options);
    if (code == 0) code = options->run.chat ? converse(&session) : complete_from_options(&session);
    session_close(&session);
    bool stopped = interrupt_pending() == SIGTERM || interrupt_pending() == SIGHUP;
    return code == 0 && stopped ? 128 + interrupt_pending() : code;
}
