/* Tools that Anthropic has defined and the client runs. A body names their type only, because
 * Claude models know them; other models get the published schemas of their arguments.
 *
 * Source: https://docs.anthropic.com/en/docs/agents-and-tools/tool-use, the page of each tool. */
#include <string.h>

#include "server/anthropic/internal.h"

static const char bash[] =
    "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\","
    "\"description\":\"The command to run; required unless the tool is "
    "restarted.\"},\"restart\":{\"type\":\"boolean\",\"description\":\"true restarts the "
    "tool.\"}},\"required\":[]}";

/* Before May 2025, new_str is also the text to insert. */
static const char old_editor[] =
    "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\",\"enum\":[\"view\","
    "\"create\",\"str_replace\",\"insert\",\"undo_edit\"]},\"path\":{\"type\":\"string\","
    "\"description\":\"The absolute path of a file or "
    "folder.\"},\"file_text\":{\"type\":\"string\",\"description\":\"The content of the new "
    "file, for create.\"},\"old_str\":{\"type\":\"string\",\"description\":\"The text to "
    "replace, for str_replace.\"},\"new_str\":{\"type\":\"string\",\"description\":\"The new "
    "text, for str_replace and "
    "insert.\"},\"insert_line\":{\"type\":\"integer\",\"description\":\"The text is inserted "
    "after this line; 0: before the first "
    "line.\"},\"view_range\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"},"
    "\"description\":\"The first and last line to view; -1: the last line of the "
    "file.\"}},\"required\":[\"command\",\"path\"]}";

/* The members of commands that change files, in editor and memory. */
#define EDITS                                                                                      \
    "\"path\":{\"type\":\"string\",\"description\":\"The absolute path of a file or "              \
    "folder.\"},\"file_text\":{\"type\":\"string\",\"description\":\"The content of the new "      \
    "file, "                                                                                       \
    "for create.\"},\"old_str\":{\"type\":\"string\",\"description\":\"The text to replace, for "  \
    "str_replace.\"},\"new_str\":{\"type\":\"string\",\"description\":\"The new text, for "        \
    "str_replace.\"},\"insert_line\":{\"type\":\"integer\",\"description\":\"The text is "         \
    "inserted "                                                                                    \
    "after this line; 0: before the first line.\"},\"insert_text\":{\"type\":\"string\","          \
    "\"description\":\"The text to insert, for insert.\"},\"view_range\":{\"type\":\"array\","     \
    "\"items\":{\"type\":\"integer\"},\"description\":\"The first and last line to view; -1: the " \
    "last line of the file.\"}"

static const char editor[] =
    "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\",\"enum\":[\"view\","
    "\"create\",\"str_replace\",\"insert\"]}," EDITS "},\"required\":[\"command\",\"path\"]}";

static const char memory[] =
    "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\",\"enum\":[\"view\","
    "\"create\",\"str_replace\",\"insert\",\"delete\",\"rename\"]}," EDITS
    ",\"old_path\":{\"type\":\"string\",\"description\":\"The path before, for "
    "rename.\"},\"new_path\":{\"type\":\"string\",\"description\":\"The path after, for "
    "rename.\"}},\"required\":[\"command\"]}";

#define EDITS_FILES "Views, creates and edits text files."

/* The first row whose type begins a tool's type counts. */
static const struct client_tool tools[] = {
    {"bash_", "Runs commands in a bash shell, whose state is kept between calls.", bash},
    {"text_editor_20241022", EDITS_FILES, old_editor},
    {"text_editor_20250124", EDITS_FILES, old_editor},
    {"text_editor_", EDITS_FILES, editor},
    {"memory_", "Reads and changes files below /memories, which later conversations see.", memory},
    {"computer_", NULL, NULL},
};

const struct client_tool *messages_client_tool(const char *type) {
    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++)
        if (strncmp(type, tools[i].type, strlen(tools[i].type)) == 0) return &tools[i];
    return NULL;
}
