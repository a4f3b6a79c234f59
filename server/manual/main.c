/* penstock_manual FOLDER: writes the man pages and the completion scripts into FOLDER. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "server/manual/manual.h"

/* Writes FOLDER/ROOM/NAME and empties the text. Returns the exit code. */
static int write_file(const char *folder, const char *room, const char *name, struct buf *text) {
    struct buf path = {0};
    buf_printf(&path, "%s/%s", folder, room);
    mkdir(path.data, 0777); /* if it fails, fopen reports why */
    buf_printf(&path, "/%s", name);
    FILE *file = fopen(path.data, "w");
    bool failed = !file || fwrite(text->data, 1, text->length, file) != text->length;
    failed |= file && fclose(file) != 0;
    if (failed) perror(path.data);
    buf_clear(text);
    buf_free(&path);
    return failed ? 1 : 0;
}

static int write_man(const char *folder, struct buf *text) {
    man_program(text);
    int code = write_file(folder, "man1", "penstock.1", text);
    for (int i = 0; i < command_count; i++) {
        struct buf name = {0};
        buf_printf(&name, "penstock-%s.1", command_table[i].name);
        man_command(&command_table[i], text);
        code |= write_file(folder, "man1", name.data, text);
        buf_free(&name);
    }
    man_file(text);
    return code | write_file(folder, "man5", "penstock.yaml.5", text);
}

static int write_completion(const char *folder, struct buf *text) {
    completion_bash(text);
    int code = write_file(folder, "bash", "penstock", text);
    completion_zsh(text);
    code |= write_file(folder, "zsh", "_penstock", text);
    completion_fish(text);
    return code | write_file(folder, "fish", "penstock.fish", text);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fputs("usage: penstock_manual FOLDER\n", stderr);
        return 2;
    }
    struct buf text = {0};
    mkdir(argv[1], 0777);
    int code = write_man(argv[1], &text) | write_completion(argv[1], &text);
    buf_free(&text);
    return code;
}
