/* The registry of adapters, with a stand-in for the engine: a number belongs to an adapter until
 * its last request has ended, whatever is loaded or unloaded meanwhile. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/app/adapters.h"
#include "server/app/app.h"
#include "tests/support/suite_main.h"

enum { MOST = 3 };

static struct app *app;
static struct options options;
static bool is_used[MOST + 1];
static int n_freed;

/* ---- stand-ins; the linker prefers them ------------------------------------------------------ */

int engine_max_adapters(const struct engine *engine) {
    (void)engine;
    return MOST;
}

enum status engine_adapter_load(struct engine *engine, const char *path, int *number,
                                struct adapter_facts *facts, struct err *err) {
    (void)engine;
    (void)path;
    *facts = (struct adapter_facts){1, 1, 64};
    for (*number = 1; *number <= MOST && is_used[*number];) ++*number;
    if (*number > MOST) return err_set(err, STATUS_USAGE, NULL, "full");
    is_used[*number] = true;
    return STATUS_OK;
}

void engine_adapter_unload(struct engine *engine, int number) {
    (void)engine;
    ck_assert(number >= 1 && number <= MOST && is_used[number]);
    is_used[number] = false;
    n_freed++;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void setup(void) {
    struct err err;
    options = (struct options){.lora = {.adapters = "a=/dev/null"}};
    app = mem_calloc(1, sizeof *app);
    app->options = &options;
    memset(is_used, 0, sizeof is_used);
    n_freed = 0;
    ck_assert_int_eq(adapters_open(app, &err), STATUS_OK);
    ck_assert(is_used[1]);
}

static void teardown(void) {
    adapters_close(app);
    for (int i = 1; i <= MOST; i++) ck_assert(!is_used[i]);
    mem_free(app);
}

static struct served_adapter *hold(const char *name) {
    struct served_adapter *held = adapters_hold(app->adapters, name);
    ck_assert_ptr_nonnull(held);
    return held;
}

static void load(const char *name, bool in_place) {
    struct err err = {0};
    ck_assert_msg(!adapters_load(app->adapters, name, "/dev/null", in_place, &err), "%s",
                  err.message);
}

START_TEST(a_number_is_kept_until_its_last_request_has_ended) {
    struct err err;
    struct served_adapter *first = hold("a"), *second = hold("a");
    ck_assert_ptr_eq(first, second);
    ck_assert_int_eq(adapters_unload(app->adapters, "a", &err), STATUS_OK);
    ck_assert_ptr_null(adapters_hold(app->adapters, "a"));
    load("b", false);
    struct served_adapter *other = hold("b");
    ck_assert_int_ne(other->number, first->number);
    adapters_give_back(app->adapters, other);
    adapters_give_back(app->adapters, first);
    ck_assert_int_eq(n_freed, 0);
    adapters_give_back(app->adapters, second);
    ck_assert_int_eq(n_freed, 1);
    load("c", false);
    ck_assert(is_used[1]);
}
END_TEST

START_TEST(an_adapter_is_listed_with_the_hash_of_its_file) {
    char hash[HASH_DIGITS + 1], of_nothing[HASH_DIGITS + 1], system[FINGERPRINT_SYSTEM_BYTES];
    struct served_adapter *held = hold("a");
    hash_text(of_nothing, "", 0);
    ck_assert_str_eq(held->hash, of_nothing);
    adapters_hash(app->adapters, "a", hash);
    ck_assert_str_eq(hash, of_nothing);
    adapters_hash(app->adapters, "b", hash);
    ck_assert_str_eq(hash, "");
    adapters_hash(NULL, "a", hash);
    ck_assert_str_eq(hash, "");
    fingerprint_write_system(system, &app->fingerprint);
    ck_assert_str_ne(held->system_fingerprint, system);
    adapters_give_back(app->adapters, held);
}
END_TEST

/* The engine has read it, and its files are gone. */
START_TEST(an_adapter_without_a_hash_is_not_served) {
    struct err err = {0};
    ck_assert_int_eq(adapters_load(app->adapters, "b", "/nowhere/b", false, &err),
                     STATUS_SERVER_ERROR);
    ck_assert_ptr_nonnull(strstr(err.message, "/nowhere/b"));
    ck_assert_ptr_null(adapters_hold(app->adapters, "b"));
    ck_assert_int_eq(n_freed, 1);
    ck_assert(!is_used[2]);
}
END_TEST

START_TEST(a_replaced_adapter_has_another_number_and_id) {
    struct served_adapter *old = hold("a");
    const int number = old->number;
    const uint64_t id = old->id;
    load("a", true);
    struct served_adapter *new = hold("a");
    ck_assert(new->number != number &&new->id != id &&is_used[number]);
    adapters_give_back(app->adapters, old);
    ck_assert(!is_used[number]);
    adapters_give_back(app->adapters, new);
    ck_assert_int_eq(n_freed, 1);
}
END_TEST

START_TEST(places_that_requests_hold_are_not_given_away) {
    struct err err = {0};
    struct served_adapter *held[MOST];
    for (int i = 0; i < MOST; i++) {
        held[i] = hold("a");
        if (i < MOST - 1) load("a", true);
    }
    ck_assert_int_eq(adapters_load(app->adapters, "a", "path", true, &err), STATUS_INVALID_REQUEST);
    for (int i = 0; i < MOST; i++) adapters_give_back(app->adapters, held[i]);
    ck_assert_int_eq(n_freed, MOST - 1);
    load("a", true);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_adapters");
    TCase *core = tcase_create("core");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, a_number_is_kept_until_its_last_request_has_ended);
    tcase_add_test(core, an_adapter_is_listed_with_the_hash_of_its_file);
    tcase_add_test(core, an_adapter_without_a_hash_is_not_served);
    tcase_add_test(core, a_replaced_adapter_has_another_number_and_id);
    tcase_add_test(core, places_that_requests_hold_are_not_given_away);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
