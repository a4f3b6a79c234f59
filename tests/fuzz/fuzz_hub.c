/* Any bytes as the hub's answer: it is refused, or each path stays inside the model, each hash is
 * one, and a choice needs only files of the listing. */
#include <stdlib.h>
#include <string.h>

#include "server/hub/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void check_file(const struct hub_listing *listing, int i) {
    const struct hub_file *file = &listing->file[i];
    require(hub_path_is_safe(file->path) && !strstr(file->path, "/../"));
    require(file->path[0] != '/' && strcmp(file->path, "..") != 0);
    require(!*file->hash || hub_is_hex(file->hash, 40) || hub_is_hex(file->hash, 64));
    require(file->bytes >= -1);
    require(hub_listing_find(listing, file->path) == i);
}

static void choose(const struct hub_listing *listing, const char *text, const struct json *index) {
    struct hub_choice choice;
    struct hub_name name;
    struct err err = {0};
    require(hub_name_parse(&name, text, &err) == STATUS_OK);
    enum status status = hub_select(&choice, listing, &name, index, &err);
    require((status == STATUS_OK) == (err.status == STATUS_OK));
    if (!status) require(choice.first >= 0 && choice.first < listing->n);
    if (!status) require(choice.needs[choice.first]);
    mem_free(choice.needs);
}

/* Takes the input as a name and, as it is, as the index of a folder. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct hub_listing listing;
    struct hub_name name;
    struct json *index = NULL;
    struct err err = {0};
    char *text = mem_alloc(size + 1);
    if (size > 0) memcpy(text, data, size);
    text[size] = 0;
    enum status status = hub_listing_parse(&listing, text, size, &err);
    require((status == STATUS_OK) == (err.status == STATUS_OK) && (!status || *err.message));
    json_parse(&index, "index", text, size, &err);
    for (int i = 0; i < listing.n && !status; i++) check_file(&listing, i);
    if (!status) {
        choose(&listing, "river/bank", NULL);
        choose(&listing, "river/bank", index);
        choose(&listing, "river/bank:Q8_0", NULL);
        choose(&listing, "river/bank/a.gguf", NULL);
    }
    if (hub_name_parse(&name, text, &err) == STATUS_OK)
        require(!strstr(name.repo, "..") && (!*name.file || hub_path_is_safe(name.file)));
    json_free(index);
    hub_listing_free(&listing);
    mem_free(text);
    return 0;
}
