"""Mutants of what a person sees in a terminal; tests/mutate.py says what the names mean. tests/e2e/test_terminal.py and test_command_line.py test more."""
C = "server/commands/"
SUITES = {
    C + "history.c": ["server_history"],
    C + "progress.c": ["server_progress"],
    "config/terminal.c": ["config_terminal"],
}

MUTANTS = [
    # history
    (C + "history.c", "if (state && *state == '/')", "if (state && *state)"),
    (C + "history.c", "            buf_puts(out, \"\\\\\\\\\");", "            buf_puts(out, \"\\\\\");"),
    (C + "history.c", "*out++ = *++at == 'n' ? '\\n' : *at;", "*out++ = *++at;"),
    (C + "history.c", "if (*at != '\\\\' || !at[1])", "if (*at != '\\\\')"),
    (C + "history.c", "if (!*line || strlen(line) > HISTORY_ENTRY_BYTES) continue;", ""),
    (C + "history.c", "if (lines->n >= 2 * HISTORY_ENTRIES) rewrite(path, lines);", ""),
    (C + "history.c", "if (lines->n >= 2 * HISTORY_ENTRIES)", "if (lines->n >= 2 * HISTORY_ENTRIES - 1)"),
    (C + "history.c", "for (int i = lines->n - HISTORY_ENTRIES; i < lines->n; i++)", "for (int i = lines->n - HISTORY_ENTRIES + 1; i < lines->n; i++)"),
    (C + "history.c", "        mkdir(folder, 0700);", "        mkdir(folder, 0755);"),
    (C + "history.c", "if (strlen(text) > HISTORY_ENTRY_BYTES) return STATUS_OK;", "if (strlen(text) >= HISTORY_ENTRY_BYTES) return STATUS_OK;"),
    (C + "history.c", "fd >= 0 && fchmod(fd, 0600) == 0 &&", "fd >= 0 &&"),
    (C + "history.c", "O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;", "O_WRONLY | O_CREAT | O_CLOEXEC;"),
    # progress
    (C + "progress.c", "if (now - progress->began_ns < FIRST_NS) return;", ""),
    (C + "progress.c", "now - progress->shown_ns < REPEAT_NS) return;", "now - progress->shown_ns > REPEAT_NS) return;"),
    (C + "progress.c", "if (progress->rewrites && progress->shown_ns)", "if (progress->rewrites)"),
    (C + "progress.c", "    progress->shown_ns = now;", ""),
    # styles
    ("config/terminal.c", "return isatty(fd) && term &&", "return term &&"),
    ("config/terminal.c", " && strcmp(term, \"dumb\") != 0", ""),
    ("config/terminal.c", "if (no_colour && *no_colour) return \"\";", "if (no_colour) return \"\";"),
    ("config/terminal.c", "if (no_colour && *no_colour) return \"\";", ""),
]
