/* A process of `mpirun penstock serve` above rank 0: it opens no port and follows rank 0. */
#include <signal.h>

#include "engine/engine.h"
#include "engine/peers/peers.h"
#include "server/commands/commands.h"

/* Rank 0 gets the signals that end a server, and then ends the others. mpirun sends its own signals
 * to all processes. */
static void ignore_endings(void) {
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
}

/* Rank 0 calls the others when it has its model, so errors in the options are printed once, and
 * processes of one machine do not fetch the same model at the same time. */
static bool await_call(struct peers *peers) {
    char call;
    size_t bytes;
    return peers_receive(peers, 0, &call, sizeof call, &bytes);
}

void call_ranks(const struct options *options) {
    const char call = 0;
    if (options->engine.peers) peers_send_all(options->engine.peers, &call, sizeof call);
}

int follow_rank(struct options *options) {
    struct peers *peers = options->engine.peers;
    struct err err = {0};
    int code = 0;
    ignore_endings();
    const bool begins = await_call(peers);
    if (peers_ended(peers, &code)) return code;
    if (begins && find_models(options))
        log_line(LOG_WARNING, "rank %d of %d cannot find the model", peers_rank(peers),
                 peers_count(peers));
    if (begins && engine_follow(&options->engine, &code, &err) == STATUS_OK) return code;
    peers_lost(peers, &err);
    log_line(LOG_ERROR, "%s This process, rank %d, ends.", err.message, peers_rank(peers));
    return EXIT_DEVICE_FAILED;
}
