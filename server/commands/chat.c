/* DESIGN: `penstock run --chat`: a conversation.
 *
 * On a terminal, a person types: a banner is shown, a message may have several lines, lines that
 * begin with a slash are commands, and an error ends only the turn. Any other input is a script:
 * each line is a message, only answers are written, and an error ends the program.
 *
 * The conversation is stored as the JSON of the API's messages, except for the system message,
 * which may change. Each turn renders all messages; the prefix cache avoids recomputing earlier
 * ones. A question without an answer is removed, because templates require questions and answers to
 * alternate.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/commands/console.h"
#include "server/generation/prompt.h"
#include "server/json/json.h"

struct chat {
    struct session *session;
    struct line_editor *editor;
    /* for messages to a person; NULL: the input is a script */
    FILE *console;
    const char *history;       /* file, or NULL */
    struct buf system;         /* text of the system message; empty: none */
    struct buf messages;       /* JSON objects, separated by commas */
    struct buf saved;          /* path that this conversation last wrote to */
    struct answer last;        /* figures of the last answer */
    int n_answers;             /* answers in this conversation */
    long long n_prompt_tokens; /* their totals */
    long long n_cached, n_tokens;
    bool ends; /* the user asked to quit */
};

/* Writes a line for the person, in the note style. */
static void __attribute__((format(printf, 2, 3)))
note(const struct chat *chat, const char *format, ...) {
    if (!chat->console) return;
    va_list args;
    int fd = fileno(chat->console);
    fputs(terminal_style(fd, TERMINAL_NOTE), chat->console);
    va_start(args, format);
    vfprintf(chat->console, format, args);
    va_end(args);
    fprintf(chat->console, "%s\n", terminal_style(fd, TERMINAL_PLAIN));
}

/* ---- the messages --------------------------------------------------------------------------- */

static void add_message(struct buf *messages, const char *role, const struct buf *content) {
    buf_puts(messages, messages->length > 0 ? ",\n{\"role\":" : "{\"role\":");
    json_write_string(messages, role, strlen(role));
    buf_puts(messages, ",\"content\":");
    json_write_string(messages, content->data ? content->data : "", content->length);
    buf_puts(messages, "}");
}

/* Appends all messages as a JSON array. */
static void write_messages(const struct chat *chat, struct buf *out) {
    struct buf all = {0};
    if (chat->system.length > 0) add_message(&all, "system", &chat->system);
    if (all.length > 0 && chat->messages.length > 0) buf_puts(&all, ",\n");
    buf_add(&all, chat->messages.data, chat->messages.length);
    buf_printf(out, "[%s]", all.data);
    buf_free(&all);
}

/* ---- a turn --------------------------------------------------------------------------------- */

/* Renders and tokenises the messages. *after is the marker that ends reasoning if the rendered
 * prompt ends inside of it, else NULL. */
static enum status encode_messages(const struct chat *chat, int32_t **ids, int *n,
                                   const char **after, struct err *err) {
    struct message_settings format = {.reasoning = chat->session->rules.reasoning};
    struct api_prompt prompt = {.add_generation_prompt = true};
    struct buf text = {0};
    struct json *json;
    write_messages(chat, &text);
    enum status status = json_parse(&json, "The conversation", text.data, text.length, err);
    prompt.messages = json;
    if (!status)
        status = prompt_encode(chat->session->engine, &prompt, false, &format, ids, n, err);
    *after = format.starts_inside ? reasoning_format_end(format.reasoning) : NULL;
    json_free(json);
    buf_free(&text);
    return status;
}

static void count_answer(struct chat *chat, const struct answer *answer) {
    assert(answer->n_cached <= answer->n_prompt);
    chat->last = *answer;
    chat->last.text = (struct buf){0};
    chat->n_answers++;
    chat->n_prompt_tokens += answer->n_prompt;
    chat->n_cached += answer->n_cached;
    chat->n_tokens += answer->n_tokens;
}

/* Explains the end of an answer if its text does not show the reason. */
static void explain_end(const struct chat *chat, const struct answer *answer) {
    const struct options *options = chat->session->options;
    if (answer->finish == FINISH_CANCELLED)
        note(chat, answer->text.length > 0 ? "[stopped]" : "[stopped; the question is forgotten]");
    else if (answer->finish == FINISH_LENGTH && answer->n_tokens == options->run.max_tokens)
        note(chat, "[cut off after %d tokens: --max-tokens]", options->run.max_tokens);
    else if (answer->finish == FINISH_LENGTH)
        note(chat, "[cut off: the context of %d tokens is full; /clear starts a new conversation]",
             engine_memory(chat->session->engine)->max_model_len);
}

/* Asks one question. Returns an exit code, after printing any error. */
static int take_turn(struct chat *chat, const struct buf *question) {
    struct answer answer = {0};
    struct err err;
    const char *after;
    int32_t *ids;
    int n, code;
    size_t before = chat->messages.length;
    add_message(&chat->messages, "user", question);
    if (memchr(question->data, 0, question->length)) {
        err_set(&err, STATUS_INVALID_REQUEST, NULL,
                "a message holds a NUL character; chat templates would cut it there");
        code = print_error(&err);
    } else if (encode_messages(chat, &ids, &n, &after, &err)) {
        code = print_error(&err);
    } else {
        code = session_answer(chat->session, ids, n, after, &answer);
        printf("\n");
        fflush(stdout);
    }
    if (code == 0 && (answer.text.length > 0 || answer.finish == FINISH_STOP)) {
        add_message(&chat->messages, "assistant", &answer.text);
        count_answer(chat, &answer);
    } else {
        chat->messages.length = before;
        if (before > 0) chat->messages.data[before] = 0;
    }
    if (code == 0) explain_end(chat, &answer);
    buf_free(&answer.text);
    if (code == 0 || code == EXIT_DEVICE_FAILED || !chat->console) return code;
    note(chat, "The question is forgotten; /clear starts a new conversation.");
    return 0;
}

/* ---- commands ------------------------------------------------------------------------------- */

static void run_help(struct chat *chat, const char *argument);

static void run_clear(struct chat *chat, const char *argument) {
    (void)argument;
    buf_clear(&chat->messages);
    buf_clear(&chat->saved);
    chat->n_answers = 0;
    chat->n_prompt_tokens = chat->n_cached = chat->n_tokens = 0;
    note(chat, "Everything said is forgotten%s.",
         chat->system.length > 0 ? "; the system message stays" : "");
}

static void run_system(struct chat *chat, const char *argument) {
    if (strcmp(argument, "none") == 0) {
        buf_clear(&chat->system);
        note(chat, "The system message is removed.");
    } else if (*argument) {
        buf_clear(&chat->system);
        buf_puts(&chat->system, argument);
        note(chat, "The system message is set, from the next question on.");
    } else if (chat->system.length > 0) {
        note(chat, "The system message: %s", chat->system.data);
    } else {
        note(chat, "The system message is not set; /system TEXT sets it.");
    }
}

/* Writes the whole file. Replaces a file only if this conversation wrote it. */
static enum status save(struct chat *chat, const char *path, struct err *err) {
    bool again = chat->saved.length > 0 && strcmp(chat->saved.data, path) == 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (again ? O_TRUNC : O_EXCL), 0666);
    if (fd < 0 && errno == EEXIST)
        return err_set(err, STATUS_SYSTEM, NULL, "%s exists already; name another file", path);
    struct buf text = {0};
    buf_puts(&text, "{\"messages\": ");
    write_messages(chat, &text);
    buf_puts(&text, "}\n");
    bool written = fd >= 0 && write(fd, text.data, text.length) == (ssize_t)text.length;
    int cause = errno;
    buf_free(&text);
    if (fd >= 0 && close(fd) != 0 && written) written = false, cause = errno;
    if (!written) return err_set(err, STATUS_SYSTEM, NULL, "%s: %s", path, strerror(cause));
    buf_clear(&chat->saved);
    buf_puts(&chat->saved, path);
    return STATUS_OK;
}

static void run_save(struct chat *chat, const char *argument) {
    struct buf path = {0};
    struct err err;
    const char *home = getenv("HOME");
    if (strncmp(argument, "~/", 2) == 0 && home)
        buf_printf(&path, "%s%s", home, argument + 1);
    else
        buf_puts(&path, argument);
    if (path.length == 0)
        note(chat, "/save needs the name of a file: /save talk.json");
    else if (save(chat, path.data, &err))
        print_error(&err);
    else
        note(chat, "Saved to %s, as the body of a request to /v1/chat/completions.", path.data);
    buf_free(&path);
}

static void run_stats(struct chat *chat, const char *argument) {
    (void)argument;
    const struct answer *last = &chat->last;
    int max_tokens = engine_memory(chat->session->engine)->max_model_len;
    if (chat->n_answers == 0) {
        note(chat, "The model has not answered yet; the context holds %d tokens.", max_tokens);
        return;
    }
    double decoding_s = last->seconds - last->first_s;
    note(chat, "Last answer: %d tokens after a prompt of %d (%d cached)", last->n_tokens,
         last->n_prompt, last->n_cached);
    note(chat, "  first token after %.2f s, then %.0f tokens/s", last->first_s,
         decoding_s > 0 ? (last->n_tokens - 1) / decoding_s : 0);
    note(chat,
         "Conversation: %d answer%s of %lld tokens together, after prompts of %lld (%lld "
         "cached)",
         chat->n_answers, chat->n_answers == 1 ? "" : "s", chat->n_tokens, chat->n_prompt_tokens,
         chat->n_cached);
    note(chat, "  it fills %d of the context's %d tokens", last->n_prompt + last->n_tokens,
         max_tokens);
}

static void run_quit(struct chat *chat, const char *argument) {
    (void)argument;
    chat->ends = true;
}

static const struct chat_command {
    const char *name, *argument, *help;
    void (*run)(struct chat *chat, const char *argument);
} chat_commands[] = {
    {"/help", "", "lists commands and keys", run_help},
    {"/clear", "", "forgets everything said", run_clear},
    {"/system", "TEXT", "sets the system message; without TEXT shows it; `none` removes it",
     run_system},
    {"/save", "FILE", "writes the conversation to a new file, as JSON", run_save},
    {"/stats", "", "shows tokens, times, and how full the context is", run_stats},
    {"/quit", "", "ends the program, as Ctrl-D does", run_quit},
};
enum { N_CHAT_COMMANDS = sizeof chat_commands / sizeof *chat_commands };

static void run_help(struct chat *chat, const char *argument) {
    (void)argument;
    for (int i = 0; i < N_CHAT_COMMANDS; i++)
        note(chat, "  %-8s %-5s %s", chat_commands[i].name, chat_commands[i].argument,
             chat_commands[i].help);
    note(chat,
         "A line that ends with a backslash continues on the next line. A message of several\n"
         "lines can also stand between two \"\"\". To begin a message with /, type //.");
    if (line_editor_edits(chat->editor))
        note(
            chat,
            "Alt-Enter adds a line end; pasted text may contain line ends. Arrow up shows earlier\n"
            "lines, Ctrl-R searches them.");
    note(chat, "Ctrl-C stops an answer or clears the line; on an empty line, twice, it ends the "
               "program.");
    if (chat->history)
        note(chat, "Typed lines are saved in %s (--no-history turns this off).", chat->history);
}

/* Returns the command that shares the longest prefix with the name. */
static const char *nearest_command(const char *name, size_t length) {
    const char *nearest = NULL;
    size_t best = 1; /* the slash is not enough */
    for (int i = 0; i < N_CHAT_COMMANDS; i++) {
        size_t same = 0;
        while (same < length && chat_commands[i].name[same] == name[same]) same++;
        if (same > best) best = same, nearest = chat_commands[i].name;
    }
    return nearest;
}

static void run_command(struct chat *chat, char *line) {
    size_t length = strcspn(line, " \t\n"), end = strlen(line);
    const char *argument = line + length + strspn(line + length, " \t\n");
    while (end > length && strchr(" \t\n", line[end - 1])) line[--end] = 0;
    for (int i = 0; i < N_CHAT_COMMANDS; i++) {
        const char *name = chat_commands[i].name;
        if (strlen(name) != length || memcmp(name, line, length) != 0) continue;
        chat_commands[i].run(chat, argument);
        return;
    }
    const char *nearest = nearest_command(line, length);
    note(chat, "Unknown command %.*s; %s%s%s To begin a message with /, type //.",
         (int)min_int((int)length, 40), line, nearest ? "did you mean " : "/help lists them.",
         nearest ? nearest : "", nearest ? "?" : "");
}

/* ---- reading a message ---------------------------------------------------------------------- */

static bool takes(struct buf *text, const char *ending) {
    size_t n = strlen(ending);
    if (text->length < n || memcmp(text->data + text->length - n, ending, n) != 0) return false;
    text->length -= n;
    text->data[text->length] = 0;
    return true;
}

/* Reads a message, which may have several lines. A line that ends with a backslash continues in the
 * next line. A line that begins with """ begins a block that ends with """. */
static enum line_end read_message(struct chat *chat, struct buf *message) {
    struct buf line = {0};
    enum line_end end = line_editor_read(chat->editor, "> ", message);
    bool block = end == LINE_READ && strncmp(message->data, "\"\"\"", 3) == 0;
    if (block) {
        message->length -= 3;
        memmove(message->data, message->data + 3, message->length + 1);
    }
    while (end == LINE_READ && (block ? !takes(message, "\"\"\"") : takes(message, "\\"))) {
        end = line_editor_read(chat->editor, ". ", &line);
        buf_puts(message, "\n");
        buf_add(message, line.data, line.length);
    }
    buf_free(&line);
    return end;
}

/* Handles a typed message: a command or a question. Returns an exit code. */
static int take_message(struct chat *chat, struct buf *message) {
    if (strspn(message->data, " \t\n") == message->length) return 0;
    struct err err; /* an error of the history is shown once */
    if (line_editor_remember(chat->editor, message->data, &err) && chat->history) {
        note(chat, "[typed lines are not saved: %s]", err.message);
        chat->history = NULL;
    }
    if (message->data[0] == '/' && message->data[1] != '/') {
        run_command(chat, message->data);
        return 0;
    }
    if (message->data[0] == '/') memmove(message->data, message->data + 1, message->length--);
    return take_turn(chat, message);
}

/* ---- the conversation ----------------------------------------------------------------------- */

/* Handles a person's turns. Ctrl-C clears the line; on an empty line, it must be pressed twice to
 * quit. */
static int converse_with_person(struct chat *chat) {
    struct buf message = {0};
    bool interrupted = false;
    int code = 0;
    while (code == 0 && !chat->ends && !ferror(stdout)) {
        enum line_end end = read_message(chat, &message);
        bool empty = message.length == 0;
        if (end == LINE_READ) {
            interrupted = false;
            code = take_message(chat, &message);
        } else if (end == LINE_GIVEN_UP || (end == LINE_INTERRUPTED && !empty)) {
            interrupted = false;
        } else if (end == LINE_INTERRUPTED && !interrupted) {
            note(chat, "Ctrl-C again, or Ctrl-D, ends the program.");
            interrupted = true;
        } else {
            break;
        }
        if (interrupt_pending() && interrupt_pending() != SIGINT) break;
    }
    buf_free(&message);
    return code;
}

/* Handles a script's turns: one per line. */
static int converse_with_script(struct chat *chat) {
    struct buf line = {0};
    int code = 0;
    while (code == 0 && !ferror(stdout) && line_editor_read(chat->editor, "", &line) == LINE_READ) {
        if (line.length > 0) code = take_turn(chat, &line);
    }
    buf_free(&line);
    return code;
}

static void print_banner(const struct chat *chat) {
    const struct model_config *model = engine_model(chat->session->engine);
    const char *backend = engine_backend_name(chat->session->engine);
    note(chat, "%s: %s, %.1f M parameters, %s, on %.*s", model->name, model->architecture,
         (double)model->n_parameters * 1e-6, model->quantisation, (int)strcspn(backend, "("),
         backend);
    note(chat, "/help lists commands and keys, Ctrl-C stops an answer, Ctrl-D ends the program.");
}

/* Returns the stream for talking with a person. It prefers standard error, so that standard output
 * holds only answers. */
static FILE *console_of(void) {
    if (!isatty(STDIN_FILENO)) return NULL;
    return isatty(STDERR_FILENO) ? stderr : isatty(STDOUT_FILENO) ? stdout : NULL;
}

int converse(struct session *session) {
    const struct options *options = session->options;
    struct chat chat = {.session = session, .console = console_of()};
    struct buf path = {0};
    if (!engine_chat_template(session->engine, false)) {
        print_failure("this model has no chat template, so it cannot chat; leave out --chat to "
                      "complete a text");
        return 1;
    }
    if (chat.console && options->run.history && history_path(&path)) chat.history = path.data;
    chat.editor = line_editor_open(chat.console, chat.history);
    if (chat.console) print_banner(&chat);
    int code = 0;
    if (options->n_arguments > 0) { /* the first question is an argument */
        struct buf question = {0};
        buf_puts(&question, options->arguments[0]);
        code = take_turn(&chat, &question);
        buf_free(&question);
    }
    if (code == 0) code = chat.console ? converse_with_person(&chat) : converse_with_script(&chat);
    line_editor_close(chat.editor);
    buf_free(&path);
    buf_free(&chat.system);
    buf_free(&chat.messages);
    buf_free(&chat.saved);
    return code;
}
