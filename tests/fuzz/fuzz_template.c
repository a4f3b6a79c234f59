/* The chat template interpreter: the input is a template's text, which is rendered for a fixed
 * conversation. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "engine/text/text.h"

static const char conversation[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \" Be br\\u00efef.\\n\"},"
    "{\"role\": \"user\", \"content\": \"Z\\u00fcrich <|im_end|> 'q' \\\"d\\\" 42\"},"
    "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"call12345\","
    "\"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": [1.5, true]}}}]},"
    "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"x\"}]}],"
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}],"
    "\"extra\": {\"s\": \"Hello, World\", \"i\": 42, \"f\": 2.5, \"t\": true, \"n\": null,"
    "\"l\": [3, 1, 2], \"d\": {\"b\": 1, \"a\": 2}, \"people\": [{\"name\": \"Bob\", \"age\": "
    "30}]}}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void render(const struct chat_template *chat_template, const struct chat_input *input) {
    struct buf out = {0};
    struct chat_piece *pieces = NULL;
    int n_pieces = 0;
    struct err err = {0};
    if (chat_template_render(chat_template, input, 1 << 20, &out, &pieces, &n_pieces, &err) ==
        STATUS_OK) {
        size_t at = 0;
        for (int i = 0; i < n_pieces; i++) {
            assert(pieces[i].start == at && pieces[i].length > 0);
            at += pieces[i].length;
        }
        assert(at == out.length && at <= 1 << 20);
    } else {
        assert(err.status == STATUS_INVALID_REQUEST && strstr(err.message, "line "));
    }
    free(pieces);
    buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct json *json;
    struct err err = {0};
    if (!json) json_parse(&json, "The test", conversation, strlen(conversation), &err);
    assert(json);
    struct chat_input input = {
        .messages = json_member(json, "messages"),
        .tools = json_member(json, "tools"),
        .extra = json_member(json, "extra"),
        .bos_token = "<s>",
        .add_generation_prompt = true,
    };
    struct chat_template *chat_template;
    if (chat_template_new(&chat_template, (const char *)data, size, &err) == STATUS_OK) {
        render(chat_template, &input);
        chat_template_free(chat_template);
    } else {
        assert(err.status == STATUS_BAD_FILE && strstr(err.message, "line "));
    }
    return 0;
}
