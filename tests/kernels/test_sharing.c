/* The distribution of pieces: every piece runs once, whatever the speeds of the threads. A model of
 * cores and memory nodes drives the sharing that the pool uses, to test other machines. It computes
 * how long cores wait for the last piece, how much they read from the memory of other nodes, and
 * the cost of the beginning and end of a job. PENSTOCK_WRITE_TABLE=1 prints the table of
 * docs/performance.md. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "support/suite_main.h"

enum { MOST_THREADS = 128, MOST_PIECES = 8192 };

/* ---- the model ------------------------------------------------------------------------------ */

/* The nanoseconds to get a line from another core's cache, on the same node and on another; and the
 * factor by which a piece is slower if its weights are on another node. */
enum { NEAR_LINE = 50, FAR_LINE = 150 };
static const double FAR_MEMORY = 1.8;

struct machine {
    const char *name;
    int threads, nodes;
    double slow;   /* relative speed of the second half of each node's threads */
    double jitter; /* random variation of the speeds, up and down */
};

struct run {
    const struct machine *machine;
    struct sharing *sharing;
    int node_of[MOST_THREADS], border[MAX_NODES + 1], pieces;
    double speed[MOST_THREADS];
    double time[MOST_THREADS]; /* time of a thread's next claim; at last, of its end */
    bool done[MOST_THREADS];
    int runs[MOST_PIECES];
    /* results, in ns except the share */
    double end, longest_wait, longest_piece, least, far_share;
    int fewest, most; /* pieces of one thread */
};

static double draw(uint32_t *seed) { /* in [-1, 1) */
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) / 8388608.0 - 1;
}

static void set_up(struct run *run, const struct machine *machine, uint32_t seed) {
    *run = (struct run){.machine = machine};
    for (int t = 0; t < machine->threads; t++) {
        int node = t * machine->nodes / machine->threads;
        int per_node = machine->threads / machine->nodes;
        bool slow = t % (per_node ? per_node : 1) >= (per_node + 1) / 2;
        run->node_of[t] = node;
        run->speed[t] = (slow ? machine->slow : 1) * (1 + machine->jitter * draw(&seed));
    }
    run->sharing = sharing_new(run->node_of, machine->threads);
}

static int home_of(const struct run *run, int piece) {
    int node = 0;
    while (piece >= run->border[node + 1]) node++;
    return node;
}

/* Returns the thread that acts next; -1: all are done. */
static int next_thread(const struct run *run) {
    int next = -1;
    for (int t = 0; t < run->machine->threads; t++)
        if (!run->done[t] && (next < 0 || run->time[t] < run->time[next])) next = t;
    return next;
}

static void judge(struct run *run, const int *pieces_of, double far, double piece_ns) {
    double speeds = 0;
    run->fewest = run->pieces;
    for (int t = 0; t < run->machine->threads; t++) {
        speeds += run->speed[t];
        if (run->time[t] > run->end) run->end = run->time[t];
        if (pieces_of[t] < run->fewest) run->fewest = pieces_of[t];
        if (pieces_of[t] > run->most) run->most = pieces_of[t];
    }
    for (int t = 0; t < run->machine->threads; t++)
        if (run->end - run->time[t] > run->longest_wait)
            run->longest_wait = run->end - run->time[t];
    run->least = run->pieces * piece_ns / speeds;
    run->far_share = far / run->pieces;
}

/* Runs a job of pieces that take piece_ns on a core of speed 1 with local weights. */
static void simulate(struct run *run, int pieces, double piece_ns) {
    struct range_search search[MOST_THREADS];
    int pieces_of[MOST_THREADS] = {0}, touched_by[MOST_PIECES], threads = run->machine->threads;
    double far = 0;
    run->pieces = pieces;
    sharing_borders(run->sharing, pieces, run->border);
    uint32_t job = sharing_begin(run->sharing, run->border);
    memset(run->runs, 0, sizeof run->runs);
    memset(run->done, 0, sizeof run->done);
    for (int t = 0; t < threads; t++) {
        run->time[t] = 0;
        touched_by[t] = t;
        sharing_search(run->sharing, &search[t], job, t);
    }
    run->end = run->longest_wait = run->longest_piece = 0;
    run->most = 0;
    for (int t; (t = next_thread(run)) >= 0;) {
        int piece = sharing_claim(run->sharing, &search[t]);
        run->done[t] = piece < 0;
        if (piece < 0) continue;
        int owner = search[t].owner;
        double ns = piece_ns / run->speed[t];
        if (run->node_of[t] != home_of(run, piece)) ns *= FAR_MEMORY, far++;
        if (ns > run->longest_piece) run->longest_piece = ns;
        if (touched_by[owner] != t)
            ns += run->node_of[t] == run->node_of[owner] ? NEAR_LINE : FAR_LINE;
        touched_by[owner] = t;
        run->time[t] += ns;
        run->runs[piece]++;
        pieces_of[t]++;
    }
    judge(run, pieces_of, far, piece_ns);
}

static void check_all_ran_once(const struct run *run) {
    ck_assert_uint_eq(atomic_load(&run->sharing->ended), run->sharing->wanted);
    for (int i = 0; i < run->pieces; i++) ck_assert_int_eq(run->runs[i], 1);
}

/* ---- machines ------------------------------------------------------------------------------- */

static const struct machine machines[] = {
    {"2 cores", 2, 1, 1, 0.02},
    {"8 cores", 8, 1, 1, 0.02},
    {"8 fast and 8 slow", 16, 1, 0.5, 0.02},
    {"16 cores", 16, 1, 1, 0.02},
    {"2 x 16", 32, 2, 1, 0.02},
    {"64 cores", 64, 1, 1, 0.02},
    {"2 x 32", 64, 2, 1, 0.02},
    {"4 x 16", 64, 4, 1, 0.02},
    {"4 x 16, half slow", 64, 4, 0.5, 0.02},
    {"2 x 64", 128, 2, 1, 0.02},
    {"8 x 16", 128, 8, 1, 0.02},
    {"8 x 16, speeds 10 % apart", 128, 8, 1, 0.1},
};
enum { MACHINES = sizeof machines / sizeof *machines };

/* Jobs of a model of 8 billion parameters, one stream: gate and up, 448 pairs of panels; down and
 * o, 256 panels. A core reads 4 GB of its share per second. */
static const struct {
    int units;
    double unit_ns;
} jobs[] = {{448, 41000}, {256, 36000}, {256, 10000}};
enum { JOBS = sizeof jobs / sizeof *jobs };

/* Makes pieces like matmul.c. */
static int pieces_of_units(int units, int threads) {
    int by_threads = units / (12 * threads), each = by_threads < 1 ? 1 : by_threads;
    return (units + each - 1) / each;
}

/* A core waits no longer than one piece takes on the slowest core with the farthest memory, plus
 * one or two lines. A job takes no longer than the speeds of the cores allow, plus that. */
START_TEST(no_core_waits_longer_than_a_piece) {
    const struct machine *machine = &machines[_i];
    for (uint32_t seed = 1; seed <= 5; seed++) {
        struct run run;
        set_up(&run, machine, seed);
        for (int j = 0; j < JOBS; j++) {
            int n = pieces_of_units(jobs[j].units, machine->threads);
            simulate(&run, n, jobs[j].unit_ns * jobs[j].units / n);
            check_all_ran_once(&run);
            double bound = run.longest_piece + 2 * FAR_LINE;
            ck_assert_double_le(run.longest_wait, bound);
            ck_assert_double_le(run.end, run.least * (1 + 2 * run.far_share) + bound);
            if (n >= machine->threads) ck_assert_int_ge(run.fewest, 1);
        }
        sharing_free(run.sharing);
    }
}
END_TEST

/* Equal cores rarely read from other nodes. With unequal cores each node has the same mix, so the
 * same holds. */
START_TEST(pieces_stay_with_their_node) {
    const struct machine *machine = &machines[_i];
    struct run run;
    set_up(&run, machine, 7);
    for (int j = 0; j < JOBS; j++) {
        simulate(&run, pieces_of_units(jobs[j].units, machine->threads), jobs[j].unit_ns);
        ck_assert_double_le(run.far_share, machine->nodes == 1 ? 0 : 0.09);
    }
    sharing_free(run.sharing);
}
END_TEST

/* If half of the cores have half the speed, they run about half as many pieces. */
START_TEST(slow_cores_have_less_to_do) {
    static const struct machine hybrid = {"hybrid", 16, 1, 0.5, 0};
    struct run run;
    set_up(&run, &hybrid, 1);
    simulate(&run, 16 * 12, 1000);
    ck_assert_int_ge(run.fewest, 7);
    ck_assert_int_le(run.most, 17);
    sharing_free(run.sharing);
}
END_TEST

/* ---- odd jobs ------------------------------------------------------------------------------- */

/* Any number of pieces on any number of threads and nodes, with borders that leave some nodes
 * empty. */
START_TEST(every_piece_once_whatever_the_borders) {
    uint32_t seed = 1;
    for (int round = 0; round < 300; round++) {
        struct machine machine = {"", 1 + round % 40, 1 + round % 5, 1, 0.9};
        if (machine.nodes > machine.threads) machine.nodes = machine.threads;
        struct run run;
        set_up(&run, &machine, seed + (uint32_t)round);
        for (int n = round % 3; n < 300; n += 1 + n) {
            simulate(&run, n, 100);
            check_all_ran_once(&run);
        }
        sharing_free(run.sharing);
    }
}
END_TEST

/* The part of a node is proportional to its number of threads. */
START_TEST(borders_go_by_threads) {
    static const int node_of[] = {0, 0, 0, 1};
    struct sharing *s = sharing_new(node_of, 4);
    int border[3];
    sharing_borders(s, 40, border);
    ck_assert_int_eq(border[0], 0);
    ck_assert_int_eq(border[1], 30);
    ck_assert_int_eq(border[2], 40);
    sharing_free(s);
}
END_TEST

/* All pieces belong to one node: the other nodes run them, too. */
START_TEST(a_node_with_all_the_work_is_helped) {
    static const int node_of[] = {0, 0, 1, 1, 2, 2};
    struct sharing *s = sharing_new(node_of, 6);
    const int border[] = {0, 0, 10, 10};
    uint32_t job = sharing_begin(s, border);
    struct range_search search;
    sharing_search(s, &search, job, 5);
    for (int i = 0; i < 10; i++) ck_assert_int_ge(sharing_claim(s, &search), 0);
    ck_assert_int_eq(sharing_claim(s, &search), -1);
    ck_assert(search.counted);
    ck_assert_uint_eq(atomic_load(&s->ended), s->wanted);
    sharing_free(s);
}
END_TEST

/* A thread looks for pieces in its own share, then its group, its node, and elsewhere. */
START_TEST(the_nearest_pieces_are_claimed_first) {
    int node_of[72], last = 0, changes = 0;
    for (int t = 0; t < 72; t++) node_of[t] = t / 36;
    struct sharing *s = sharing_new(node_of, 72);
    ck_assert_int_eq(s->n_groups, 6);
    int border[3];
    sharing_borders(s, 144, border);
    struct range_search search;
    sharing_search(s, &search, sharing_begin(s, border), 50);
    for (int i = 0, piece; (piece = sharing_claim(s, &search)) >= 0; i++) {
        int owner = piece / 2, distance = 3;
        if (owner == 50)
            distance = 0;
        else if (sharing_group(s, owner) == sharing_group(s, 50))
            distance = 1;
        else if (node_of[owner] == node_of[50])
            distance = 2;
        ck_assert_int_ge(distance, last);
        changes += distance != last;
        last = distance;
        if (i < 2) ck_assert_int_eq(piece, 100 + i);
    }
    ck_assert_int_eq(changes, 3);
    sharing_free(s);
}
END_TEST

/* A thread with the number of a job that is over gets no piece, and claims none of the current job:
 * not even from a share that was empty in its job. */
START_TEST(a_late_thread_claims_nothing) {
    struct sharing *s = sharing_new(NULL, 3);
    const int one[] = {0, 1}, three[] = {0, 3};
    uint32_t first = sharing_begin(s, one);
    struct range_search worker, late;
    sharing_search(s, &worker, first, 0);
    while (sharing_claim(s, &worker) >= 0) {
    }
    uint32_t second = sharing_begin(s, three);
    sharing_search(s, &late, first, 1);
    ck_assert_int_eq(sharing_claim(s, &late), -1);
    ck_assert(!late.counted);
    sharing_search(s, &worker, second, 2);
    for (int i = 0; i < 3; i++) ck_assert_int_eq(sharing_claim(s, &worker), (2 + i) % 3);
    ck_assert_int_eq(sharing_claim(s, &worker), -1);
    sharing_free(s);
}
END_TEST

/* Shares store 28 bits of a job's number. A share that was not used since the last job with the
 * same bits must not appear to be used up. */
START_TEST(numbers_of_jobs_may_repeat) {
    struct sharing *s = sharing_new(NULL, 2);
    const int two[] = {0, 2};
    atomic_store(&s->number, (1u << 28) - 3);
    for (int i = 0; i < 5; i++) {
        struct range_search search;
        sharing_search(s, &search, sharing_begin(s, two), 0);
        ck_assert_int_eq(sharing_claim(s, &search), 0);
        ck_assert_int_eq(sharing_claim(s, &search), 1);
        ck_assert_int_eq(sharing_claim(s, &search), -1);
    }
    /* number 5 of the next round; share 1 was last used in number 5 of this one */
    atomic_store(&s->number, 4);
    struct range_search search;
    sharing_search(s, &search, sharing_begin(s, two), 0);
    while (sharing_claim(s, &search) >= 0) {
    }
    atomic_store(&s->number, (1u << 28) - 1);
    ck_assert_uint_eq(sharing_begin(s, (const int[]){0, 0}), (1u << 28) + 1);
    atomic_store(&s->number, (1u << 28) + 4);
    sharing_search(s, &search, sharing_begin(s, two), 1);
    ck_assert_int_eq(sharing_claim(s, &search), 1);
    sharing_free(s);
}
END_TEST

/* ---- the cost of beginnings and ends -------------------------------------------------------- */

/* Threads that end together count in lines, and each change of a line waits for the change before
 * it. Returns the time until the caller knows; `flat`: all count in one line. */
static double ending_ns(const struct run *run, bool flat) {
    const struct sharing *s = run->sharing;
    double root = 0, line = 0;
    for (int g = 0; g < s->n_groups; g++) {
        int members = s->groups[g].end - s->groups[g].first;
        double far = s->groups[g].node ? FAR_LINE : NEAR_LINE;
        if (flat)
            root += members * far;
        else if (members * NEAR_LINE > line)
            line = members * NEAR_LINE;
        if (!flat && s->n_groups > 1) root += far;
    }
    return root + line;
}

static void write_table(void) {
    printf(
        "| machine | longest wait for the last piece | read from other nodes | time, of what the "
        "cores allow | ends counted in a tree, ns | in one line, ns "
        "|\n|---|---|---|---|---|---|\n");
    for (int m = 0; m < MACHINES; m++) {
        struct run run;
        set_up(&run, &machines[m], 1);
        double wait = 0, far = 0, end = 0, least = 0;
        for (int j = 0; j < JOBS; j++) {
            int n = pieces_of_units(jobs[j].units, machines[m].threads);
            simulate(&run, n, jobs[j].unit_ns * jobs[j].units / n);
            if (run.longest_wait / run.longest_piece > wait)
                wait = run.longest_wait / run.longest_piece;
            far += run.far_share / JOBS;
            end += run.end;
            least += run.least;
        }
        printf("| %s | %.2f pieces | %.1f %% | %.2f | %.0f | %.0f |\n", machines[m].name, wait,
               100 * far, end / least, ending_ns(&run, false), ending_ns(&run, true));
        sharing_free(run.sharing);
    }
}

/* With two or more groups, a tree is faster than one line for all. */
START_TEST(a_tree_ends_sooner) {
    struct run run;
    set_up(&run, &machines[_i], 1);
    if (run.sharing->n_groups > 1)
        ck_assert_double_lt(2 * ending_ns(&run, false), ending_ns(&run, true));
    sharing_free(run.sharing);
}
END_TEST

int main(void) {
    if (getenv("PENSTOCK_WRITE_TABLE")) {
        write_table();
        return 0;
    }
    Suite *suite = suite_create("kernels_sharing");
    TCase *core = tcase_create("sharing");
    tcase_add_loop_test(core, no_core_waits_longer_than_a_piece, 0, MACHINES);
    tcase_add_loop_test(core, pieces_stay_with_their_node, 0, MACHINES);
    tcase_add_loop_test(core, a_tree_ends_sooner, 0, MACHINES);
    tcase_add_test(core, slow_cores_have_less_to_do);
    tcase_add_test(core, every_piece_once_whatever_the_borders);
    tcase_add_test(core, borders_go_by_threads);
    tcase_add_test(core, a_node_with_all_the_work_is_helped);
    tcase_add_test(core, the_nearest_pieces_are_claimed_first);
    tcase_add_test(core, a_late_thread_claims_nothing);
    tcase_add_test(core, numbers_of_jobs_may_repeat);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
