/* An engine that drafts for another: its limits, and the vocabularies that are refused. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/internal.h"
#include "support/suite_main.h"
#include "support/tiny_model.h"

static struct engine_config config_of(const char *path, const struct engine *target) {
    return (struct engine_config){.model = path,
                                  .threads = 1,
                                  .max_num_seqs = 3,
                                  .max_num_batched_tokens = 9,
                                  .block_size = 16,
                                  .kv_memory = target ? 0 : 1 << 20,
                                  .drafts_for = target};
}

static struct engine *open_target(const char *path, int length) {
    struct engine_config config = config_of(path, NULL);
    struct engine *engine;
    struct err err = {0};
    config.max_model_len = length;
    ck_assert_msg(engine_open(&engine, &config, &err) == STATUS_OK, "%s", err.message);
    return engine;
}

/* Writes a file of the model in which `from`, a part of its bytes, is replaced by `to`. */
static char *write_model(const struct tiny_model *model, const char *from, const char *to) {
    struct buf bytes = {0};
    char *path = tiny_model_temporary(model);
    if (from) {
        tiny_model_bytes(model, &bytes);
        char *at = memmem(bytes.data, bytes.length, from, strlen(from));
        ck_assert(at && strlen(from) == strlen(to));
        memcpy(at, to, strlen(to));
        FILE *file = fopen(path, "wb");
        ck_assert_ptr_nonnull(file);
        ck_assert_uint_eq(fwrite(bytes.data, 1, bytes.length, file), bytes.length);
        ck_assert_int_eq(fclose(file), 0);
        buf_free(&bytes);
    }
    return path;
}

static void remove_model(char *path) {
    unlink(path);
    free(path);
}

START_TEST(the_same_model_may_draft_for_itself) {
    struct tiny_model model;
    tiny_model_defaults(&model);
    char *path = write_model(&model, NULL, NULL);
    struct engine *target = open_target(path, 100), *draft;
    struct engine_config config = config_of(path, target);
    struct err err = {0};
    ck_assert_msg(engine_open(&draft, &config, &err) == STATUS_OK, "%s", err.message);
    ck_assert_int_eq(engine_memory(draft)->max_model_len, 100);
    ck_assert_int_eq(engine_max_rows(draft), 9);
    ck_assert_int_eq(engine_max_logit_rows(draft), 3);
    engine_close(draft);
    engine_close(target);
    remove_model(path);
}
END_TEST

START_TEST(another_vocabulary_is_refused) {
    struct tiny_model model;
    tiny_model_defaults(&model);
    model.V = 300;
    char *path = write_model(&model, NULL, NULL);
    char *spelt = write_model(&model, "[UNUSED287]", "[UNUSED28x]");
    char *merged = write_model(&model, "<|im_start|>", "<|im_stars|>");
    model.V = 310;
    char *longer = write_model(&model, NULL, NULL);
    struct engine *target = open_target(path, 100), *draft;
    const struct {
        const char *path, *said;
    } cases[] = {{spelt, "the id 287 is another token"},
                 {merged, "the id 2 is another token"},
                 {longer, "310 ids instead of 300"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct engine_config config = config_of(cases[i].path, target);
        struct err err = {0};
        ck_assert_int_eq(engine_open(&draft, &config, &err), STATUS_BAD_FILE);
        ck_assert_msg(strstr(err.message, cases[i].said) && strstr(err.message, cases[i].path),
                      "%s", err.message);
        ck_assert_ptr_null(draft);
    }
    engine_close(target);
    remove_model(path);
    remove_model(spelt);
    remove_model(merged);
    remove_model(longer);
}
END_TEST

/* The draft model must not use the target's planned memory, nor the target's last positions. */
START_TEST(the_target_is_planned_first) {
    struct tiny_model model;
    tiny_model_defaults(&model);
    char *path = write_model(&model, NULL, NULL);
    struct engine *target = open_target(path, 100), own = {.model.config.context_length = 64};
    const struct engine_memory *planned = engine_memory(target);
    struct opening o = {.engine = &own, .config = config_of(path, target)};
    o.machine.available = 1 << 30;
    draft_bound(&o);
    ck_assert_int_eq(o.machine.available, (1 << 30) - planned->kv_cache - planned->scratch);
    ck_assert_int_eq(o.config.max_model_len, 64);
    o.machine.available = planned->kv_cache;
    draft_bound(&o);
    ck_assert_int_eq(o.machine.available, 0);
    o.config.drafts_for = NULL;
    o.machine.available = 5;
    draft_bound(&o);
    ck_assert_int_eq(o.machine.available, 5);
    engine_close(target);
    remove_model(path);
}
END_TEST

/* A cache that was touched is already missing from the machine's free memory. */
START_TEST(a_touched_cache_is_counted_once) {
    struct tiny_model model;
    tiny_model_defaults(&model);
    char *path = write_model(&model, NULL, NULL);
    struct engine_config config = config_of(path, NULL);
    struct engine *target, own = {.model.config.context_length = 64};
    config.warm_up = true;
    ck_assert_int_eq(engine_open(&target, &config, NULL), STATUS_OK);
    struct opening o = {.engine = &own, .config = config_of(path, target)};
    o.machine.available = 1 << 30;
    draft_bound(&o);
    ck_assert_int_eq(o.machine.available, (1 << 30) - engine_memory(target)->scratch);
    engine_close(target);
    remove_model(path);
}
END_TEST

START_TEST(without_room_for_one_sequence_it_is_refused) {
    struct tiny_model model;
    tiny_model_defaults(&model);
    char *path = write_model(&model, NULL, NULL);
    struct engine *target = open_target(path, 100), *draft;
    struct engine_config config = config_of(path, target);
    struct err err = {0};
    config.kv_memory = 1;
    ck_assert_int_eq(engine_open(&draft, &config, &err), STATUS_USAGE);
    ck_assert_msg(strstr(err.message, "too small for one sequence of 100 tokens"), "%s",
                  err.message);
    engine_close(target);
    remove_model(path);
}
END_TEST

int main(void) {
    log_setup(LOG_WARNING, LOG_TEXT); /* without the messages of warm-ups */
    Suite *suite = suite_create("engine_draft_engine");
    TCase *core = tcase_create("core");
    tcase_add_test(core, the_same_model_may_draft_for_itself);
    tcase_add_test(core, another_vocabulary_is_refused);
    tcase_add_test(core, the_target_is_planned_first);
    tcase_add_test(core, a_touched_cache_is_counted_once);
    tcase_add_test(core, without_room_for_one_sequence_it_is_refused);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
