/* The choice of a path for a processor: each path needs exactly its listed features. The bits are
 * listed here a second time, as in the manuals. */
#include <check.h>
#include <string.h>

#include "kernels/cpu/features.h"
#include "support/suite_main.h"

enum { AMX = 1, AVX512VNNI = 2, AVXVNNI = 4, AVX2 = 8, ALL_FAST = 15 };

/* One bit that the processor or the system reports, and the paths that need it. */
struct need {
    const char *name;
    int word, bit, paths;
};

static const struct need needs[] = {
    {"sse3", LEAF_1_ECX, 0, ALL_FAST},
    {"ssse3", LEAF_1_ECX, 9, ALL_FAST},
    {"fma", LEAF_1_ECX, 12, ALL_FAST},
    {"sse4.1", LEAF_1_ECX, 19, ALL_FAST},
    {"sse4.2", LEAF_1_ECX, 20, ALL_FAST},
    {"popcnt", LEAF_1_ECX, 23, ALL_FAST},
    {"xsave", LEAF_1_ECX, 26, ALL_FAST},
    {"osxsave", LEAF_1_ECX, 27, ALL_FAST},
    {"avx", LEAF_1_ECX, 28, ALL_FAST},
    {"f16c", LEAF_1_ECX, 29, ALL_FAST},
    {"avx2", LEAF_7_EBX, 5, ALL_FAST},
    {"bmi2", LEAF_7_EBX, 8, ALL_FAST},
    {"avx512f", LEAF_7_EBX, 16, AMX | AVX512VNNI},
    {"avx512dq", LEAF_7_EBX, 17, AMX | AVX512VNNI},
    {"avx512bw", LEAF_7_EBX, 30, AMX | AVX512VNNI},
    {"avx512vl", LEAF_7_EBX, 31, AMX | AVX512VNNI},
    {"avx512_vnni", LEAF_7_ECX, 11, AMX | AVX512VNNI},
    {"amx_tile", LEAF_7_EDX, 24, AMX},
    {"amx_int8", LEAF_7_EDX, 25, AMX},
    {"avx_vnni", LEAF_7_1_EAX, 4, AVXVNNI},
    {"xmm saved", XCR0, 1, ALL_FAST},
    {"ymm saved", XCR0, 2, ALL_FAST},
    {"masks saved", XCR0, 5, AMX | AVX512VNNI},
    {"zmm saved", XCR0, 6, AMX | AVX512VNNI},
    {"zmm16-31 saved", XCR0, 7, AMX | AVX512VNNI},
    {"tile config saved", XCR0, 17, AMX},
    {"tiles saved", XCR0, 18, AMX},
    {"tiles granted", GRANTED, 0, AMX},
};
enum { N_NEEDS = sizeof needs / sizeof *needs };

static const char *const fast[] = {"amx", "avx512vnni", "avxvnni", "avx2"};
enum { N_FAST = 4 };

static struct features everything(void) {
    struct features f;
    memset(&f, 0xff, sizeof f);
    return f;
}

/* Asserts that the features allow exactly this set of paths, and plain C. The first path is the
 * best. */
static void assert_paths(const struct features *f, int paths, const char *what) {
    const char *names[MAX_PATHS + 1];
    int n = 0;
    path_names(f, names);
    for (int i = 0; i < N_FAST; i++) {
        const struct path *path = path_find(f, fast[i]);
        bool wanted = paths >> i & 1;
        ck_assert_msg((path != NULL) == wanted, "%s: %s is %s", what, fast[i],
                      path ? "taken" : "missing");
        if (wanted) ck_assert_str_eq(names[n++], fast[i]);
    }
    ck_assert_str_eq(names[n], "plain");
    ck_assert_ptr_null(names[n + 1]);
    ck_assert_str_eq(path_find(f, NULL)->name, names[0]);
    ck_assert_ptr_eq(path_find(f, "avx512"), path_find(f, "avx512vnni"));
    ck_assert_ptr_eq(path_find(f, "plain"), &path_plain);
    ck_assert_ptr_null(path_find(f, "neon"));
    ck_assert_ptr_null(path_find(f, ""));
}

static int paths_without(int word, int bit) {
    for (int i = 0; i < N_NEEDS; i++)
        if (needs[i].word == word && needs[i].bit == bit) return ALL_FAST & ~needs[i].paths;
    return ALL_FAST;
}

static const char *name_of(int word, int bit) {
    for (int i = 0; i < N_NEEDS; i++)
        if (needs[i].word == word && needs[i].bit == bit) return needs[i].name;
    return "a bit that no path needs";
}

/* Clears each single bit of every word, including bits that should not matter. */
START_TEST(a_missing_bit_takes_its_paths_away) {
    struct features all = everything();
    assert_paths(&all, ALL_FAST, "everything");
    for (int word = 0; word < FEATURE_WORDS; word++) {
        for (int bit = 0; bit < 32; bit++) {
            struct features f = everything();
            f.word[word] &= ~(1u << bit);
            assert_paths(&f, paths_without(word, bit), name_of(word, bit));
        }
    }
}
END_TEST

/* The needed bits are sufficient: the path exists with only these bits. */
START_TEST(the_features_of_a_path_suffice) {
    static const int below[N_FAST] = {AMX | AVX512VNNI | AVX2, AVX512VNNI | AVX2, AVXVNNI | AVX2,
                                      AVX2};
    for (int path = 0; path < N_FAST; path++) {
        struct features f = {0};
        for (int i = 0; i < N_NEEDS; i++)
            if (needs[i].paths >> path & 1) f.word[needs[i].word] |= 1u << needs[i].bit;
        assert_paths(&f, below[path], fast[path]);
    }
    assert_paths(&(struct features){0}, 0, "nothing");
}
END_TEST

/* This machine: the result agrees with the compiler's reading of CPUID, for the features that it
 * knows. */
START_TEST(this_machine_is_read_right) {
    struct features f = features_read();
    const char *names[MAX_PATHS + 1];
    path_names(&f, names);
    for (int i = 0; names[i]; i++) ck_assert_str_eq(names[i], backend_cpu_paths()[i]);
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                __builtin_cpu_supports("bmi2");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                  __builtin_cpu_supports("avx512vnni");
    ck_assert(path_find(&f, "avx2") ? avx2 : true);
    ck_assert_int_eq(path_find(&f, "avx512") != NULL, avx512);
    ck_assert(!path_find(&f, "amx") || avx512);
}
END_TEST

/* A path is forced by its name. If the machine lacks it, the refusal names it. */
START_TEST(a_path_is_forced_or_refused) {
    static const char *const asked[] = {"amx", "avx512", "avx512vnni", "avxvnni", "avx2", "plain"};
    struct features f = features_read();
    for (int i = 0; i < 6; i++) {
        struct backend_config config = {1, asked[i], 1, 32};
        struct backend *b = NULL;
        struct err err = {0};
        const struct path *path = path_find(&f, asked[i]);
        enum status status = backend_cpu_open(&b, &config, &err);
        ck_assert_int_eq(status, path ? STATUS_OK : STATUS_USAGE);
        if (path) {
            ck_assert_str_eq(b->path, path->name);
        } else {
            char start[64] = "this machine has no CPU path \"";
            strcat(start, asked[i]);
            ck_assert_ptr_nonnull(strstr(err.message, start));
        }
        backend_close(b);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_paths");
    TCase *core = tcase_create("choosing");
    tcase_add_test(core, a_missing_bit_takes_its_paths_away);
    tcase_add_test(core, the_features_of_a_path_suffice);
    tcase_add_test(core, this_machine_is_read_right);
    tcase_add_test(core, a_path_is_forced_or_refused);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
