#include "config/pace.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

/* The average is over about this number of ends. */
static const double averaged_ends = 16;

void pace_begin(struct pace *pace, uint64_t now_ns) {
    if (now_ns > pace->since_ns) pace->since_ns = now_ns;
}

void pace_note(struct pace *pace, uint64_t now_ns) {
    if (pace->since_ns > 0) {
        double took = now_ns > pace->since_ns ? (double)(now_ns - pace->since_ns) : 0;
        double change = (took - pace->interval_ns) / averaged_ends;
        pace->interval_ns = pace->interval_ns > 0 ? pace->interval_ns + change : took;
    }
    assert(pace->interval_ns >= 0);
    pace_begin(pace, now_ns);
}

int pace_seconds(const struct pace *pace, uint64_t now_ns, int n) {
    bool is_known = pace->since_ns > 0 && now_ns > pace->since_ns;
    double passed = is_known ? (double)(now_ns - pace->since_ns) : 0;
    assert(n >= 0);
    double ns = fmax(pace->interval_ns, passed) + pace->interval_ns * (n - 1);
    return (int)fmin(fmax(ceil(ns * 1e-9), 1), PACE_MAX_S);
}
