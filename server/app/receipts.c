/* Receipts and cassettes of the process: the fingerprint of its answers, the key, the files. */
#include <stdio.h>
#include <string.h>

#include "server/app/app.h"

void app_clear_identity(struct app *app) {
    model_hash_free(app->model_hash);
    receipt_key_free(app->receipt_key);
    app->model_hash = NULL;
    app->receipt_key = NULL;
}

enum status app_fingerprint(const struct app *app, struct fingerprint *out, struct err *err) {
    *out = app->fingerprint;
    const bool on_host = strcmp(out->device, "cpu") == 0;
    if (app->options->engine.allow_batch_variant_gemm && !on_host)
        return err_set(err, STATUS_INVALID_REQUEST, "receipt",
                       "'receipt' must be false on this server: with --no-deterministic, answers "
                       "depend on the batch.");
    return model_hash_get(app->model_hash, out->model, err);
}

enum status app_read_receipt_key(struct app *app, struct err *err) {
    const char *path = app->options->receipts.key;
    if (!path) return STATUS_OK;
    enum status status = receipt_key_read(&app->receipt_key, path, err);
    if (status) snprintf(err->param, sizeof err->param, "receipt-key");
    return status;
}

enum status app_open_cassettes(struct app *app, struct err *err) {
    const char *record = app->options->receipts.record, *replay = app->options->receipts.replay;
    enum status status = replay ? cassette_read(&app->cassette, replay, err) : STATUS_OK;
    if (!status && record) status = recorder_open(&app->recorder, record, err);
    if (!status && replay)
        log_line(LOG_INFO, "%s: %d recorded answers", replay, cassette_count(app->cassette));
    return status;
}

void app_close_cassettes(struct app *app) {
    recorder_close(app->recorder);
    cassette_free(app->cassette);
    app->recorder = NULL;
    app->cassette = NULL;
}
