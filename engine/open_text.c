/* DESIGN: reads a model's tokenizer, chat template and end ids.
 *
 * A separate thread reads them while the weights are loaded. Neither needs the other's results, so
 * the start takes as long as the longer of both. The thread writes only the engine's text fields,
 * which are read after text_end has joined it. If a thread cannot be started, the caller reads
 * them.
 */
#include "engine/internal.h"

/* Reads the tokenizer and, if `templates` is not NULL, the end ids. */
static enum status read_tokenizer(struct engine *engine, const struct model_file *file,
                                  const struct folder_templates *templates, struct err *err) {
    struct tokenizer_spec spec = {0};
    enum status status = tokenizer_spec_read(&spec, file, err);
    if (!status) status = tokenizer_new(&engine->tokenizer, &spec, err);
    if (!status && templates)
        status = end_ids_read(engine->end_ids, &engine->n_end_ids, file, &spec, templates, err);
    tokenizer_spec_free(&spec);
    return model_file_blame(file, status, err);
}

static enum status compile_templates(struct opening *o, const struct folder_templates *texts,
                                     struct err *err) {
    struct engine *engine = o->engine;
    enum status status = STATUS_OK;
    if (texts->text)
        status = folder_template_new(&engine->chat_template, texts->text, texts->length,
                                     texts->file, err);
    if (!status && texts->tools_text)
        status = folder_template_new(&engine->tools_template, texts->tools_text,
                                     texts->tools_length, texts->tools_file, err);
    return o->config.chat_template ? status : model_file_blame(&o->file, status, err);
}

static enum status read_all(struct opening *o, struct err *err) {
    struct folder_templates texts;
    const char *given = o->config.chat_template;
    enum status status = chat_templates_read(&texts, &o->file, given, err);
    if (status) return given ? status : model_file_blame(&o->file, status, err);
    status = read_tokenizer(o->engine, &o->file, &texts, err);
    if (!status) status = compile_templates(o, &texts, err);
    folder_templates_free(&texts);
    return status;
}

static void *read_text(void *arg) {
    struct opening *o = arg;
    o->text_status = read_all(o, &o->text_err);
    return NULL;
}

enum status text_begin(struct opening *o, struct err *err) {
    (void)err; /* text_end reports errors of the text */
    o->text_begun = true;
    o->text_on_thread = pthread_create(&o->text_thread, NULL, read_text, o) == 0;
    if (!o->text_on_thread) read_text(o);
    return STATUS_OK;
}

enum status text_end(struct opening *o, struct err *err) {
    if (!o->text_begun) return STATUS_OK;
    if (o->text_on_thread) pthread_join(o->text_thread, NULL);
    if (o->text_status && err) *err = o->text_err;
    return o->text_status;
}

enum status engine_open_tokenizer(struct tokenizer **out, const char *path, struct err *err) {
    struct model_file file;
    struct engine engine = {0};
    enum status status = model_file_open(&file, path, MODEL_TEXT, err);
    if (status) return status;
    status = read_tokenizer(&engine, &file, NULL, err);
    model_file_close(&file);
    *out = engine.tokenizer;
    return status;
}
