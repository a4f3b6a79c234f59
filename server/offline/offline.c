/* Opens and closes the parts of such a command. */
#include "server/offline/offline.h"

#include "server/app/adapters.h"
#include "server/commands/commands.h"
#include "server/generation/grammar_store.h"

int offline_open(struct app *app, struct options *options) {
    int code = find_models(options);
    if (code == 0) code = open_engine(&app->engine, options);
    if (code == 0) code = open_draft_engine(&app->draft_engine, app->engine, options);
    if (code) return code;
    app_set_name(app);
    app_set_limits(app);
    app_set_identity(app);
    app->grammars =
        grammar_store_new(app->engine, app->limits.V, (size_t)options->api.grammar_cache, 0);
    grammar_store_open_objects(app->grammars, options->api.open_objects);
    struct scheduler_config config = scheduler_config_from(options, app->engine);
    config.max_queued_requests = 1 << 24; /* the caller bounds the queue */
    config.max_queued_tokens = 1 << 30;
    config.draft_engine = app->draft_engine;
    config.on_events = bridge_on_events;
    config.on_failure = bridge_on_failure;
    config.arg = app;
    app->scheduler = scheduler_new(&config, app->engine);
    scheduler_start(app->scheduler);
    struct err err;
    return adapters_open(app, &err) ? print_error(&err) : 0;
}

void offline_close(struct app *app) {
    if (app->scheduler) scheduler_free(app->scheduler);
    grammar_store_free(app->grammars);
    app_clear_identity(app);
    adapters_close(app);
    engine_close(app->draft_engine);
    engine_close(app->engine);
    bridge_close(app);
}
