/* DESIGN: explains a --model that is not a model.
 *
 * find_models, which commands call before they open a model, calls model_path_check. It accepts
 * every path that the engine opens or rejects with a clear message. It explains the other cases: a
 * missing path, a folder without a model, a single file of a model. Its messages say what a model
 * is, how to get one, and which files near the path may be meant.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "server/commands/commands.h"

#define SHOWN_MODELS 6
#define MAX_FOLDERS 3

/* ---- files ---------------------------------------------------------------------------------- */

static bool ends_in(const char *path, const char *ending) {
    size_t n = strlen(path), m = strlen(ending);
    return n > m && strcasecmp(path + n - m, ending) == 0;
}

static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Hides names with control characters. */
static int is_shown(const struct dirent *entry) {
    for (const char *at = entry->d_name; *at;) {
        size_t n = utf8_character(at, strnlen(at, 4));
        uint32_t code = n ? utf8_code_point(at, n) : 0;
        if (code < ' ' || (code >= 0x7F && code < 0xA0)) return 0;
        at += n;
    }
    return entry->d_name[0] != '.';
}

static int is_safetensors(const struct dirent *entry) {
    return ends_in(entry->d_name, ".safetensors");
}

static int is_config(const struct dirent *entry) {
    return strcmp(entry->d_name, "config.json") == 0;
}

/* Does the folder have an entry that passes the filter? */
static bool has_file(const char *folder, int (*filter)(const struct dirent *entry)) {
    struct dirent **entries;
    int n = scandir(folder, &entries, filter, NULL);
    for (int i = 0; i < n; i++) mem_free(entries[i]);
    if (n >= 0) mem_free(entries);
    return n > 0;
}

/* Appends the paths of a folder's models up to SHOWN_MODELS in total; `n` are already listed.
 * Returns the new total, including those not appended. */
static int add_models(struct buf *out, const char *folder, int n) {
    struct dirent **entries;
    struct buf path = {0};
    int found = scandir(folder, &entries, is_shown, alphasort);
    for (int i = 0; i < found; i++) {
        buf_clear(&path);
        if (strcmp(folder, ".") != 0) buf_printf(&path, "%s/", folder);
        buf_puts(&path, entries[i]->d_name);
        mem_free(entries[i]);
        bool folds = is_folder(path.data);
        if (folds ? !has_file(path.data, is_config) : !ends_in(path.data, ".gguf")) continue;
        if (n++ < SHOWN_MODELS) buf_printf(out, "%s%s", out->length > 0 ? ", " : "", path.data);
    }
    if (found >= 0) mem_free(entries);
    buf_free(&path);
    return n;
}

/* ---- models near a path --------------------------------------------------------------------- */

/* Is folder `n` missing, or the same as an earlier one? */
static bool is_repeated(const char *const *folders, int n) {
    assert(n >= 0 && n < MAX_FOLDERS);
    struct stat one, other;
    if (stat(folders[n], &one) != 0) return true;
    for (int i = 0; i < n; i++) {
        if (stat(folders[i], &other) == 0 && one.st_dev == other.st_dev &&
            one.st_ino == other.st_ino)
            return true;
    }
    return false;
}

void print_models_near(const char *folder) {
    const char *const folders[MAX_FOLDERS] = {folder, ".", "models"};
    struct buf files = {0};
    int n = 0;
    for (int i = 0; i < MAX_FOLDERS; i++) {
        if (!is_repeated(folders, i)) n = add_models(&files, folders[i], n);
    }
    fprintf(stderr,
            "  A model is a file in the GGUF format, whose name ends in .gguf, or a folder with\n"
            "  config.json, safetensors and tokenizer, as it is published on a model hub.\n");
    if (n > SHOWN_MODELS) buf_printf(&files, " and %d more", n - SHOWN_MODELS);
    if (n > 0) fprintf(stderr, "  Near here: %s\n", files.data);
    fprintf(stderr,
            "  To get %s: give its name on a model hub, org/repo, as --model, or fetch it first:\n"
            "      penstock pull org/repo\n"
            "  Names are on https://huggingface.co/models?library=gguf; `make model` in Penstock's "
            "folder fetches\n  a small one of 98 MB.\n",
            n > 0 ? "another" : "one");
    buf_free(&files);
}

static void print_models_beside(const char *path) {
    const char *slash = strrchr(path, '/');
    char *folder = mem_strdup(slash ? path : ".");
    if (slash) folder[slash == path ? 1 : slash - path] = 0;
    print_models_near(folder);
    mem_free(folder);
}

/* ---- explanations of paths ------------------------------------------------------------------ */

static void explain_safetensors(void) {
    fprintf(
        stderr,
        "  Such a model is a whole folder: weights, config.json and tokenizer. Give the folder,\n"
        "  or download the missing files from the source of the weights. Many models are also\n"
        "  published as one .gguf file:\n"
        "  https://huggingface.co/models?library=gguf\n");
}

static void explain_folder(const char *path) {
    struct buf files = {0};
    int n = add_models(&files, path, 0);
    if (n > 0) {
        print_failure("%s is a folder; name one of its files", path);
        if (n > SHOWN_MODELS) buf_printf(&files, " and %d more", n - SHOWN_MODELS);
        fprintf(stderr, "  In it: %s\n", files.data);
    } else if (has_file(path, is_safetensors)) {
        print_failure("%s is a folder with weights, but without config.json", path);
        explain_safetensors();
    } else {
        print_failure("%s is a folder without a model", path);
        print_models_near(path);
    }
    buf_free(&files);
}

int model_path_check(const char *path) {
    struct stat info;
    bool is_there = stat(path, &info) == 0;
    int cause = errno;
    if (is_there && S_ISDIR(info.st_mode)) {
        if (has_file(path, is_config)) return 0;
        explain_folder(path);
    } else if (is_there && ends_in(path, ".safetensors")) {
        print_failure("%s is one file of a model", path);
        explain_safetensors();
    } else if (!is_there) {
        print_failure("cannot find the model %s: %s", path, strerror(cause));
        if (cause == ENOENT || cause == ENOTDIR) print_models_beside(path);
    } else {
        return 0;
    }
    return 1;
}
