/* The scratch of a plan covers the buffers of a pass and the rows of its experts: of one rank and
 * of several, for the tiny model of each family and for the shapes of published models. */
#include <check.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/memory/memory.h"
#include "engine/models/model.h"
#include "engine/models/shard.h"
#include "support/suite_main.h"

#define VECTORS "tests/vectors/"

enum { ROWS = 512, LOGIT_ROWS = 16, PATH_BYTES = 256 };
static const int64_t MACHINE = (int64_t)1 << 60;

/* Returns the bytes of the buffers of all ranks, and of their copies of each row for its experts
 * and of the experts' hidden numbers. */
static int64_t used_bytes(const struct model_config *config, int ranks) {
    static struct model model;
    int64_t bytes = 0;
    model.config = *config;
    model.part = shard_config(config, ranks);
    const struct expert_config *e = &model.part.experts;
    for (int rank = 0; rank < ranks; rank++) {
        model.shard = (struct shard){rank, ranks};
        bytes += activations_bytes(&model, ROWS, LOGIT_ROWS);
        if (e->is_used) bytes += (int64_t)ROWS * e->n_used * (config->K + e->F) * 4;
    }
    return bytes;
}

static int64_t planned_bytes(const struct model_config *config, int ranks) {
    const struct engine_config settings = {.max_num_seqs = LOGIT_ROWS,
                                           .max_num_batched_tokens = ROWS,
                                           .block_size = 16,
                                           .max_model_len = 32,
                                           .ranks = ranks};
    const struct machine_memory machine = {.total = MACHINE, .available = MACHINE};
    struct engine_memory memory = {0};
    struct err err = {0};
    ck_assert_msg(memory_plan(&memory, config, &settings, &machine, &err) == STATUS_OK, "%s",
                  err.message);
    return memory.scratch;
}

/* Opens a model, with the EAGLE-3 head in PATH_head if that exists. */
static void open_model(struct model_file *file, const char *path, enum model_use use,
                       bool guesses) {
    static char head[PATH_BYTES + 8]; /* the file keeps the pointer */
    struct err err = {0};
    snprintf(head, sizeof head, "%s_head", path);
    const struct engine_config settings = {.guesses_ahead = guesses,
                                           .eagle = access(head, F_OK) == 0 ? head : NULL};
    ck_assert_msg(model_file_open(file, path, use, &err) == STATUS_OK, "%s", err.message);
    ck_assert_msg(model_file_guess(file, &settings, &err) == STATUS_OK, "%s", err.message);
}

/* Checks the plan for each number of ranks that divides the model. Returns how many there
 * are. */
static int check_model(const char *path, enum model_use use, bool guesses) {
    static struct model_config config;
    struct model_file file;
    struct err err = {0};
    int n = 0;
    open_model(&file, path, use, guesses);
    ck_assert_msg(model_config_read(&config, &file, &err) == STATUS_OK, "%s", err.message);
    for (int ranks = 1; ranks <= MAX_RANKS; ranks++) {
        if (shard_check(&config, model_file_weights(&file), ranks, &err)) continue;
        const int64_t planned = planned_bytes(&config, ranks), used = used_bytes(&config, ranks);
        ck_assert_msg(planned >= used, "%s on %d ranks uses %lld bytes, %lld are planned", path,
                      ranks, (long long)used, (long long)planned);
        n++;
    }
    model_file_close(&file);
    return n;
}

static const struct {
    const char *pattern;
    enum model_use use;
    bool guesses;
    int models, checks; /* at least */
} sets[] = {
    {VECTORS "families/*.gguf", MODEL_WHOLE, false, 60, 100},
    {VECTORS "folders/*/config.json", MODEL_WHOLE, false, 80, 160},
    {VECTORS "ahead/*/config.json", MODEL_WHOLE, true, 7, 9},
    {VECTORS "encoders/*/config.json", MODEL_WHOLE, false, 5, 10},
    {VECTORS "published/*/config.json", MODEL_SHAPE, false, 20, 80},
};

START_TEST(the_plan_covers_what_ranks_use) {
    glob_t found;
    int checks = 0;
    ck_assert_int_eq(glob(sets[_i].pattern, 0, NULL, &found), 0);
    ck_assert_int_ge((int)found.gl_pathc, sets[_i].models);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char path[PATH_BYTES], *end;
        snprintf(path, sizeof path, "%s", found.gl_pathv[i]);
        end = strstr(path, "/config.json");
        if (end) *end = 0;
        end = strrchr(path, '_');
        if (end && strcmp(end, "_head") == 0) continue; /* it is opened with its model */
        checks += check_model(path, sets[_i].use, sets[_i].guesses);
    }
    ck_assert_int_ge(checks, sets[_i].checks);
    globfree(&found);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine/memory_scratch");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 120);
    tcase_add_loop_test(all, the_plan_covers_what_ranks_use, 0, sizeof sets / sizeof *sets);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
