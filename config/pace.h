/* pace: how often one of several things ends: a waiting request, a connection, a piece of work. It
 * tells a client that was refused when a place is free again (Retry-After, RFC 9110).
 *
 * Only the time in which things wait or run counts: pace_begin marks its start after an idle time.
 * The owner guards a pace that several threads use. A zeroed pace has measured nothing.
 */
#ifndef PENSTOCK_PACE_H
#define PENSTOCK_PACE_H

#include <stdint.h>

/* The longest time that is told, in seconds. OpenAI's clients ignore longer ones. */
enum { PACE_MAX_S = 60 };

struct pace {
    uint64_t since_ns;  /* the last end, or a later start after an idle time; 0: none yet */
    double interval_ns; /* between two ends, a moving average; 0: not measured */
};

/* There is work since now_ns. Has no effect if something has ended later. */
void pace_begin(struct pace *pace, uint64_t now_ns);

/* One thing has ended. */
void pace_note(struct pace *pace, uint64_t now_ns);

/* Returns the seconds until n more things have ended, 1 to PACE_MAX_S, rounded up. If the next end
 * is late, the time that has passed counts instead of the average. */
int pace_seconds(const struct pace *pace, uint64_t now_ns, int n);

#endif
