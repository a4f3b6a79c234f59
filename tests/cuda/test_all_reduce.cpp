/* Sums over ranks: their order and single rounding, in rows of all widths; and the messages if GPUs
 * or NCCL are missing. */
#include <atomic>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <thread>

#include "kernels/cuda/runtime/nccl.cuh"
extern "C" {
#include "kernels/gpu_group.h"
}
#include "tests/cuda/nccl_stand_in.h"
#include "tests/cuda/support.h"

/* Adds in the order of the ranks, in float32, and rounds once. */
static floats right_sum(enum dtype act, const std::vector<floats> &rows) {
    floats sum = rows[0];
    for (size_t r = 1; r < rows.size(); r++)
        for (size_t i = 0; i < sum.size(); i++) sum[i] = sum[i] + rows[r][i];
    return rounded(act, sum);
}

static std::vector<floats> rows_of_ranks(enum dtype act, int ranks, size_t n) {
    std::vector<floats> rows;
    uint64_t state = 5;
    for (int r = 0; r < ranks; r++) {
        floats row = random_vector(&state, n);
        /* so that the order changes the sum */
        for (size_t i = r % 2; i < n; i += 3) row[i] *= 1000;
        rows.push_back(rounded(act, row));
    }
    return rows;
}

static void assert_same(enum dtype act, const buffer &got, const floats &want) {
    const floats values = read_activations(act, got);
    ck_assert(!memcmp(values.data(), want.data(), want.size() * sizeof(float)));
}

static void check_sum(enum dtype act, int ranks, int M, int K) {
    const size_t n = (size_t)M * (size_t)K;
    const std::vector<floats> rows = rows_of_ranks(act, ranks, n);
    floats all;
    for (const floats &row : rows) all.insert(all.end(), row.begin(), row.end());
    const buffer gathered(packed(act, all));
    const size_t bytes = n * (act == DTYPE_F32 ? 4 : 2);
    buffer x(bytes), part(bytes), alone(bytes);
    all_reduce_sum(act, x.data, part.data, gathered.data, ranks, M, K, test_stream());
    all_reduce_sum(act, alone.data, NULL, gathered.data, ranks, M, K, test_stream());
    finish();
    const floats want = right_sum(act, rows);
    assert_same(act, x, want);
    assert_same(act, alone, want);
    assert_same(act, part, floats(n, 0.0f));
}

START_TEST(a_sum_has_one_order) {
    for (enum dtype act : activation_types)
        for (int ranks : {1, 2, 3, 8})
            for (int K : {1, 7, 8, 20, 64, 264}) check_sum(act, ranks, 9, K);
}
END_TEST

/* ---- the op --------------------------------------------------------------------------------- */

enum { RANKS = 2, ROWS = 21, WIDTH = 12 };

/* One rank's thread: reduces its part of the rows, in pieces of `at_once` elements. */
static void run_rank(struct rank_group *group, int rank, enum dtype act, size_t at_once,
                     const floats &given, floats *got, floats *left) {
    const size_t element = act == DTYPE_F32 ? 4 : 2, bytes = (size_t)ROWS * WIDTH * element;
    CUDA_OK(cudaSetDevice(rank));
    cudaStream_t stream;
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    {
        struct all_reduce all = {(struct cuda_group *)group, rank, NULL, 0};
        all.bytes = at_once * RANKS * WIDTH * element;
        const buffer gathered(all.bytes), mine(packed(act, given)), other(bytes);
        all.gathered = gathered.data;
        finish(); /* the poison is written on the test's stream */
        all_reduce_run(&all, act, rank ? other.data : mine.data, rank ? mine.data : NULL, ROWS,
                       WIDTH, stream);
        CUDA_OK(cudaStreamSynchronize(stream));
        *got = read_activations(act, rank ? other : mine);
        *left = read_activations(act, mine);
    }
    CUDA_OK(cudaStreamDestroy(stream));
}

static void check_op(enum dtype act, size_t at_once) {
    struct rank_group *group;
    struct err err;
    ck_assert_int_eq(rank_group_cuda_new(&group, RANKS, &err), STATUS_OK);
    const std::vector<floats> rows = rows_of_ranks(act, RANKS, ROWS * WIDTH);
    floats got[RANKS], left[RANKS];
    std::thread second([&] { run_rank(group, 1, act, at_once, rows[1], &got[1], &left[1]); });
    run_rank(group, 0, act, at_once, rows[0], &got[0], &left[0]);
    second.join();
    ck_assert(got[0] == right_sum(act, rows) && got[1] == got[0]);
    ck_assert(left[1] == floats(ROWS * WIDTH, 0.0f));
    rank_group_close(group);
    ck_assert_int_eq(nccl_stand_in_open(), 0);
}

START_TEST(all_ranks_get_the_sum) {
    for (size_t at_once : {1, 5, 7, 100}) {
        for (enum dtype act : activation_types) {
            nccl_stand_in(NCCL_WORKS);
            check_op(act, at_once);
            ck_assert_int_eq(nccl_stand_in_meetings(), (int)((ROWS + at_once - 1) / at_once));
        }
    }
}
END_TEST

/* ---- ranks that join by an id, as processes do ---------------------------------------------- */

/* The ranks that declared themselves lost. */
struct losses {
    std::atomic<int> n{0};
    std::string why;
};

static void note_loss(void *arg, const char *why) {
    struct losses *losses = (struct losses *)arg;
    losses->why = why;
    losses->n++;
}

static struct rank_group *join(const struct gpu_group_id *id, int rank, struct losses *losses) {
    struct rank_group *group;
    struct err err = {};
    const struct gpu_join join = {*id, RANKS, rank, rank, note_loss, losses};
    ck_assert_int_eq(gpu_group_check(&err), STATUS_OK);
    ck_assert_msg(gpu_group_join(&group, &join, &err) == STATUS_OK, "%s", err.message);
    ck_assert(group->ranks == RANKS && nccl_gpu(group, rank) == rank && !group->gather);
    return group;
}

/* The group of both ranks, which two threads join. */
struct joined {
    struct rank_group *group[RANKS];

    explicit joined(struct losses *losses) {
        struct gpu_group_id id;
        struct err err;
        nccl_stand_in(NCCL_WORKS);
        ck_assert_int_eq(gpu_group_id(&id, &err), STATUS_OK);
        std::thread second([&] { group[1] = join(&id, 1, losses); });
        group[0] = join(&id, 0, losses);
        second.join();
    }
};

START_TEST(ranks_that_join_by_an_id_get_the_sum) {
    nccl_stand_in(NCCL_WORKS);
    for (enum dtype act : activation_types) {
        struct gpu_group_id id;
        struct err err;
        struct losses losses;
        ck_assert_int_eq(gpu_group_id(&id, &err), STATUS_OK);
        const std::vector<floats> rows = rows_of_ranks(act, RANKS, ROWS * WIDTH);
        floats got[RANKS], left[RANKS];
        const auto run = [&](int rank) {
            struct rank_group *group = join(&id, rank, &losses);
            run_rank(group, rank, act, 7, rows[(size_t)rank], &got[rank], &left[rank]);
            rank_group_close(group);
        };
        std::thread second(run, 1);
        run(0);
        second.join();
        ck_assert(got[0] == right_sum(act, rows) && got[1] == got[0]);
        ck_assert_int_eq(losses.n, 0);
    }
    ck_assert_int_eq(nccl_stand_in_open(), 0);
}
END_TEST

/* Rank 0 waits for rank 1, which has joined and then does nothing. */
START_TEST(an_abort_ends_the_wait_for_a_lost_rank) {
    struct losses losses;
    const joined both(&losses);
    struct rank_group *group = both.group[0], *other = both.group[1];
    cudaStream_t stream;
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const buffer one(16), all(32);
    finish();
    std::atomic<bool> has_ended{false};
    std::thread waits([&] {
        CUDA_OK(cudaSetDevice(0));
        nccl_gather((struct cuda_group *)group, 0, one.data, all.data, 16, stream);
        CUDA_OK(cudaStreamSynchronize(stream));
        nccl_gather((struct cuda_group *)group, 0, one.data, all.data, 16, stream);
        CUDA_OK(cudaStreamSynchronize(stream));
        has_ended = true;
    });
    usleep(100000);
    ck_assert(!has_ended);
    ck_assert(cudaStreamQuery(stream) == cudaErrorNotReady);
    gpu_group_abort(group);
    gpu_group_abort(group);
    waits.join();
    ck_assert(has_ended);
    gpu_group_abort(other);
    rank_group_close(group);
    rank_group_close(other);
    CUDA_OK(cudaStreamDestroy(stream));
    ck_assert_int_eq(losses.n, 0);
    ck_assert_int_eq(nccl_stand_in_open(), 0);
}
END_TEST

START_TEST(a_rank_whose_nccl_fails_is_lost_and_says_why) {
    struct losses losses;
    const joined both(&losses);
    struct rank_group *group = both.group[0], *other = both.group[1];
    nccl_stand_in(NCCL_FAILS);
    const buffer one(16), all(32);
    finish();
    for (int i = 0; i < 2; i++)
        nccl_gather((struct cuda_group *)group, 0, one.data, all.data, 16, test_stream());
    ck_assert_int_eq(losses.n, 1);
    ck_assert_str_eq(losses.why.c_str(),
                     "NCCL has failed: gathering the ranks' rows: out of luck.");
    gpu_group_abort(group);
    gpu_group_abort(other);
    rank_group_close(group);
    rank_group_close(other);
}
END_TEST

/* ---- missing libraries and GPUs ------------------------------------------------------------- */

static void refused(int ranks, const char *words) {
    struct rank_group *group = NULL;
    struct err err = {};
    ck_assert_int_eq(rank_group_cuda_new(&group, ranks, &err), STATUS_USAGE);
    ck_assert_ptr_null(group);
    ck_assert_str_eq(err.param, "tensor-parallel-size");
    ck_assert_msg(strstr(err.message, words) != NULL, "%s", err.message);
    ck_assert_int_eq(nccl_stand_in_open(), 0);
}

START_TEST(each_cause_of_a_refusal_is_named) {
    nccl_stand_in(NCCL_WORKS);
    refused(RANKS + 1, "this machine has 2 GPUs");
    nccl_stand_in(NCCL_IS_MISSING);
    refused(RANKS, "libnccl.so.2 cannot be loaded");
    nccl_stand_in(NCCL_LACKS_A_FUNCTION);
    refused(RANKS, "libnccl.so.2 cannot be loaded");
    nccl_stand_in(NCCL_IS_BROKEN);
    refused(RANKS, "NCCL cannot join the GPUs: out of luck");
    struct gpu_group_id id = {};
    struct err err = {};
    ck_assert_int_eq(gpu_group_id(&id, &err), STATUS_USAGE);
    ck_assert(strstr(err.message, "NCCL cannot listen for the other GPUs: out of luck"));
    const struct gpu_join far = {id, RANKS, 0, RANKS, note_loss, NULL};
    struct rank_group *group;
    ck_assert_int_eq(gpu_group_join(&group, &far, &err), STATUS_USAGE);
    ck_assert_str_eq(err.param, "device");
}
END_TEST

/* ---- ranks of one process that fail --------------------------------------------------------- */

/* Rank 0's device waits for rank 1, whose part fails. Returns the recorded reason. */
static std::string reason_of_loss(bool device_fails) {
    struct rank_group *group;
    struct err err;
    nccl_stand_in(NCCL_WORKS);
    ck_assert_int_eq(rank_group_cuda_new(&group, RANKS, &err), STATUS_OK);
    auto *all = (struct cuda_group *)group;
    const buffer one(16), received(32);
    cuda_failure_open();
    nccl_stand_in(NCCL_FAILS_AT_1);
    nccl_gather(all, 0, one.data, received.data, 16, test_stream());
    ck_assert(!cuda_failure(&err));
    if (device_fails) cuda_check(cudaErrorLaunchFailure, "a test");
    nccl_gather(all, 1, one.data, received.data, 16, test_stream());
    ck_assert(cuda_failure(&err));
    ck_assert_int_eq(nccl_stand_in_open(), 0); /* the group is aborted */
    cudaStreamSynchronize(test_stream());      /* and its work ends */
    rank_group_close(group);
    cuda_failure_close();
    ck_assert(!cuda_failed());
    return err.message;
}

START_TEST(a_rank_that_cannot_meet_the_others_says_why) {
    const std::string device = reason_of_loss(true), nccl = reason_of_loss(false);
    ck_assert_msg(device.find("The GPU has failed: a test:") == 0, "%s", device.c_str());
    ck_assert_str_eq(nccl.c_str(),
                     "Rank 1 of 2 is lost: NCCL has failed: gathering the ranks' rows: out of "
                     "luck.");
}
END_TEST

int main() {
    setenv("CUDA_EMU_DEVICES", "2", 1);
    Suite *suite = suite_create("cuda_all_reduce");
    TCase *cases = tcase_create("all_reduce");
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, a_sum_has_one_order);
    tcase_add_test(cases, all_ranks_get_the_sum);
    tcase_add_test(cases, ranks_that_join_by_an_id_get_the_sum);
    tcase_add_test(cases, an_abort_ends_the_wait_for_a_lost_rank);
    tcase_add_test(cases, a_rank_whose_nccl_fails_is_lost_and_says_why);
    tcase_add_test(cases, each_cause_of_a_refusal_is_named);
    tcase_add_test(cases, a_rank_that_cannot_meet_the_others_says_why);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
