/* How ranks share a model: which numbers of ranks divide it, the dimensions of each rank, that the
 * pieces of a matrix together are the matrix, and which tensors a rank's model holds. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/models/load/load.h"
#include "support/suite_main.h"
#include "support/tiny_model.h"

static const struct model_config six_heads = {
    .V = 100, .K = 60, .F = 96, .L = 1, .H = 6, .G = 6, .D = 16};

/* Adds a tensor without data. Only tensors whose blocks matter are added. */
static void add(struct weights *weights, const char *name, enum dtype type, int K, int N) {
    struct weight weight = {.type = type, .n_dims = 2, .dim = {K, N}};
    strcpy(weight.name, name);
    ck_assert_int_eq(weight_measure(&weight, NULL), STATUS_OK);
    ck_assert_int_eq(weights_add(weights, &weight, NULL), STATUS_OK);
}

static struct weights sharable(enum dtype type) {
    struct weights weights;
    weights_init(&weights, 3);
    add(&weights, "blk.0.attn_output.weight", type, 96, 60);
    add(&weights, "blk.0.ffn_down.weight", type, 96, 60);
    return weights;
}

static void expect_refused(const struct weights *weights, int ranks, const char *words) {
    struct err err = {0};
    ck_assert_int_eq(shard_check(&six_heads, weights, ranks, &err), STATUS_USAGE);
    ck_assert_str_eq(err.param, "tensor-parallel-size");
    ck_assert_msg(strstr(err.message, words), "\"%s\" lacks \"%s\"", err.message, words);
}

START_TEST(heads_and_widths_have_to_divide) {
    struct weights weights = sharable(DTYPE_F32);
    for (int ranks = 1; ranks <= 6; ranks++) {
        if (6 % ranks == 0)
            ck_assert_int_eq(shard_check(&six_heads, &weights, ranks, NULL), STATUS_OK);
        else
            expect_refused(&weights, ranks, "6 query heads, 6 key-value heads");
    }
    expect_refused(&weights, 5, "possible: 1, 2, 3, 6");
    expect_refused(&weights, 0, "out of range; 1 to 64");
    expect_refused(&weights, MAX_RANKS + 1, "out of range");
    weights_free(&weights);
}
END_TEST

/* 96 columns are 3 blocks of 32, which only 3 ranks can share. */
START_TEST(blocks_are_not_cut) {
    struct weights weights = sharable(DTYPE_Q8_0);
    ck_assert_int_eq(shard_check(&six_heads, &weights, 3, NULL), STATUS_OK);
    expect_refused(&weights, 2, "an MLP of 96 in blocks of 32; possible: 1, 3");
    weights_free(&weights);
}
END_TEST

/* Experts of 32 are two whole tiles, which three ranks cannot share. F matters only if a
 * layer has an MLP. */
START_TEST(experts_are_not_cut_below_a_tile) {
    struct weights weights = sharable(DTYPE_F32);
    struct model_config c = six_heads;
    struct err err = {0};
    c.F = 7;
    c.experts =
        (struct expert_config){.is_used = true, .E = 4, .n_used = 2, .F = 32, .F_shared = 64};
    ck_assert_int_eq(shard_check(&c, &weights, 2, NULL), STATUS_OK);
    ck_assert_int_eq(shard_check(&c, &weights, 3, &err), STATUS_USAGE);
    ck_assert_msg(strstr(err.message, "experts of 32 in blocks of 16, a shared expert of 64 in "
                                      "blocks of 16; possible: 1, 2"),
                  "%s", err.message);
    c.L = 2, c.layer[0].is_dense = true;
    ck_assert_int_eq(shard_check(&c, &weights, 2, &err), STATUS_USAGE);
    ck_assert_msg(strstr(err.message, "an MLP of 7 in blocks of 1"), "%s", err.message);
    weights_free(&weights);
}
END_TEST

START_TEST(a_rank_has_its_share_of_the_letters) {
    struct model_config part = shard_config(&six_heads, 3);
    ck_assert(part.H == 2 && part.G == 2 && part.F == 32);
    ck_assert(part.K == 60 && part.V == 100 && part.L == 1 && part.D == 16);
    part = shard_config(&six_heads, 1);
    ck_assert_int_eq(memcmp(&part, &six_heads, sizeof part), 0);
}
END_TEST

/* Two key heads with three value heads each. */
static const struct model_config two_keys = {
    .V = 100,
    .K = 60,
    .F = 96,
    .L = 1,
    .H = 2,
    .G = 2,
    .D = 16,
    .C = 2 * 2 * 4 + 6 * 16,
    .taps = 3,
    .layer = {{.is_recurrent = true}},
    .state = {.kind = STATE_DELTA, .Hk = 2, .Hv = 6, .dk = 4, .dv = 16}};

START_TEST(a_rank_has_its_share_of_states) {
    struct weights weights = sharable(DTYPE_F32);
    struct err err = {0};
    struct model_config part = shard_config(&two_keys, 2);
    ck_assert(part.C == two_keys.C / 2 && part.state.Hk == 1 && part.state.Hv == 3);
    ck_assert(part.state.dk == 4 && part.state.dv == 16 && part.taps == 3);
    ck_assert_int_eq(shard_check(&two_keys, &weights, 2, NULL), STATUS_OK);
    ck_assert_int_eq(shard_check(&two_keys, &weights, 3, &err), STATUS_USAGE);
    ck_assert_msg(strstr(err.message, "2 key heads or groups of recurrent layers, ") &&
                      strstr(err.message, "; possible: 1, 2"),
                  "%s", err.message);
    add(&weights, "blk.0.ssm_out.weight", DTYPE_Q8_0, 96, 60); /* 3 blocks of 32 */
    ck_assert_int_eq(shard_check(&two_keys, &weights, 2, &err), STATUS_USAGE);
    ck_assert_msg(strstr(err.message, "value heads of a recurrent layer of 96 in blocks of 32; "
                                      "possible: 1"),
                  "%s", err.message);
    weights_free(&weights);
}
END_TEST

/* A model without attention: its one head of 16 is not divided. */
START_TEST(only_divided_heads_are_named) {
    struct weights weights = sharable(DTYPE_F32);
    struct err err = {0};
    struct model_config c = two_keys;
    c.lacks_attention = true, c.F = 0, c.H = c.G = 1;
    ck_assert_int_eq(shard_check(&c, &weights, 2, NULL), STATUS_OK);
    ck_assert(shard_config(&c, 2).H == 1 && shard_config(&c, 2).G == 1);
    ck_assert_int_eq(shard_check(&c, &weights, 4, &err), STATUS_USAGE);
    ck_assert_ptr_null(strstr(err.message, "query heads"));
    c = six_heads;
    c.G = 1;
    c.latent = (struct latent_config){
        .is_used = true, .rank = 8, .D_unrotated = 12, .D_rope = 4, .D_value = 16};
    ck_assert_int_eq(shard_check(&c, &weights, 3, NULL), STATUS_OK);
    ck_assert(shard_config(&c, 3).H == 2 && shard_config(&c, 3).G == 1);
    ck_assert_int_eq(shard_check(&c, &weights, 4, &err), STATUS_USAGE);
    ck_assert_msg(strstr(err.message, "6 query heads, attention's output") != NULL, "%s",
                  err.message);
    weights_free(&weights);
}
END_TEST

/* ---- pieces --------------------------------------------------------------------------------- */

enum { N = 6, K = 96, RANKS = 3 };

static const struct division rows_of_one = {1, {{1, N}}}, rows_of_two = {1, {{2, N / 2}}},
                             columns = {1, {{1, K}}};

static uint8_t *matrix_of(enum dtype type, size_t *bytes) {
    *bytes = N * dtype_bytes(type, K);
    uint8_t *rows = mem_alloc(*bytes);
    for (size_t i = 0; i < *bytes; i++) rows[i] = (uint8_t)(i * 7 + i / 256);
    return rows;
}

START_TEST(pieces_of_outputs_are_rows_in_place) {
    size_t bytes;
    uint8_t *rows = matrix_of(DTYPE_Q8_0, &bytes);
    for (int rank = 0; rank < RANKS; rank++) {
        struct piece piece;
        piece_cut(&piece, (struct shard){rank, RANKS}, SPLIT_OUTPUTS, &rows_of_one, DTYPE_Q8_0, N,
                  K, rows);
        ck_assert(piece.N == 2 && piece.K == K && !piece.copy);
        ck_assert_ptr_eq(piece.rows, rows + bytes / RANKS * (size_t)rank);
        piece_free(&piece);
    }
    free(rows);
}
END_TEST

/* Two experts of three rows each: a rank has one row of each. */
START_TEST(pieces_of_experts_are_rows_of_each) {
    size_t bytes, row = dtype_bytes(DTYPE_Q8_0, K);
    uint8_t *rows = matrix_of(DTYPE_Q8_0, &bytes);
    for (int rank = 0; rank < RANKS; rank++) {
        struct piece piece;
        piece_cut(&piece, (struct shard){rank, RANKS}, SPLIT_OUTPUTS, &rows_of_two, DTYPE_Q8_0, N,
                  K, rows);
        ck_assert(piece.N == 2 && piece.K == K && piece.bytes == 2 * row);
        for (size_t e = 0; e < 2; e++)
            ck_assert_int_eq(memcmp((const uint8_t *)piece.rows + e * row,
                                    rows + (3 * e + (size_t)rank) * row, row),
                             0);
        piece_free(&piece);
    }
    free(rows);
}
END_TEST

START_TEST(pieces_of_inputs_together_are_the_matrix) {
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_Q4_1, DTYPE_Q8_0};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        size_t bytes, row = dtype_bytes(types[t], K), part = row / RANKS;
        uint8_t *rows = matrix_of(types[t], &bytes), *joined = mem_alloc(bytes);
        for (int rank = 0; rank < RANKS; rank++) {
            struct piece piece;
            piece_cut(&piece, (struct shard){rank, RANKS}, SPLIT_INPUTS, &columns, types[t], N, K,
                      rows);
            ck_assert(piece.N == N && piece.K == K / RANKS && piece.bytes == bytes / RANKS);
            for (size_t n = 0; n < N; n++)
                memcpy(joined + n * row + (size_t)rank * part,
                       (const uint8_t *)piece.rows + n * part, part);
            piece_free(&piece);
        }
        ck_assert_int_eq(memcmp(joined, rows, bytes), 0);
        free(rows), free(joined);
    }
}
END_TEST

/* Writes the numbers of the shard's part of a vector 0, 1, 2 .. to `out`. */
static void cut_numbers(float *out, const struct model_config *m, enum role role, int size,
                        struct shard shard) {
    float all[512];
    struct piece piece;
    const struct division d = shard_division(m, role, size);
    ck_assert_int_le(size, 512);
    for (int i = 0; i < size; i++) all[i] = (float)i;
    piece_cut(&piece, shard, SPLIT_OUTPUTS, &d, DTYPE_F32, size, 1, all);
    ck_assert_int_eq(piece.N * shard.ranks, size);
    memcpy(out, piece.rows, (size_t)piece.N * sizeof *out);
    piece_free(&piece);
}

/* Value head h of a file that tiles them reads key head h % 2, of others h / 3. */
START_TEST(value_heads_follow_their_key_head) {
    static const int first[2][2][3] = {{{0, 1, 2}, {3, 4, 5}}, {{0, 2, 4}, {1, 3, 5}}};
    for (int tiles = 0; tiles < 2; tiles++)
        for (int rank = 0; rank < 2; rank++) {
            struct model_config m = two_keys;
            float heads[6], channels[112];
            m.state.tiles = tiles;
            cut_numbers(heads, &m, ROLE_STATE_DECAY, 6, (struct shard){rank, 2});
            cut_numbers(channels, &m, ROLE_DELTA_QKV, m.C, (struct shard){rank, 2});
            ck_assert(channels[0] == (float)(4 * rank) && channels[4] == (float)(8 + 4 * rank));
            for (int h = 0; h < 3; h++) {
                const int head = first[tiles][rank][h];
                ck_assert(heads[h] == (float)head);
                for (int i = 0; i < 16; i++)
                    ck_assert(channels[8 + 16 * h + i] == (float)(16 + 16 * head + i));
            }
        }
}
END_TEST

/* Taps are [taps][C], and the columns of an output product follow the value heads. */
START_TEST(taps_and_inputs_follow_the_channels) {
    struct model_config m = two_keys;
    float taps[168], matrix[2 * 96];
    struct piece piece;
    m.state.tiles = true;
    cut_numbers(taps, &m, ROLE_STATE_CONV, 3 * m.C, (struct shard){1, 2});
    for (int t = 0; t < 3; t++) {
        ck_assert(taps[56 * t] == (float)(m.C * t + 4));
        ck_assert(taps[56 * t + 8 + 16] == (float)(m.C * t + 16 + 16 * 3));
    }
    for (int i = 0; i < 2 * 96; i++) matrix[i] = (float)i;
    const struct division d = shard_division(&m, ROLE_STATE_OUT, 96);
    piece_cut(&piece, (struct shard){1, 2}, SPLIT_INPUTS, &d, DTYPE_F32, 2, 96, matrix);
    const float *rows = piece.rows;
    ck_assert(piece.K == 48 && rows[0] == 16 && rows[16] == 48 && rows[47] == 95);
    ck_assert(rows[48] == 96 + 16 && rows[95] == 96 + 95);
    piece_free(&piece);
    ck_assert_int_eq(role_split(&m, ROLE_STATE_NORM), SPLIT_NONE);
    m.state.kind = STATE_SPACE;
    ck_assert_int_eq(role_split(&m, ROLE_STATE_NORM), SPLIT_OUTPUTS);
}
END_TEST

START_TEST(weights_that_are_not_divided_stay_whole) {
    static const enum split splits[] = {SPLIT_NONE, SPLIT_FIRST};
    size_t bytes;
    uint8_t *rows = matrix_of(DTYPE_F32, &bytes);
    struct piece piece;
    for (size_t i = 0; i < 2; i++) {
        piece_cut(&piece, (struct shard){1, RANKS}, splits[i], &columns, DTYPE_F32, N, K, rows);
        ck_assert(piece.N == N && piece.K == K && piece.rows == rows && !piece.copy);
    }
    piece_cut(&piece, (struct shard){0, 1}, SPLIT_INPUTS, &columns, DTYPE_F32, N, K, rows);
    ck_assert(piece.N == N && piece.K == K && piece.rows == rows && !piece.copy);
    free(rows);
}
END_TEST

/* ---- roles ---------------------------------------------------------------------------------- */

START_TEST(roles_have_names_and_lengths) {
    char name[ROLE_NAME_BYTES];
    role_name(name, ROLE_TOKEN_EMBEDDING, 3);
    ck_assert_str_eq(name, "token_embd.weight");
    role_name(name, ROLE_Q_BIAS, 17);
    ck_assert_str_eq(name, "blk.17.attn_q.bias");
    struct model_config c = six_heads;
    c.G = 3, c.rope.D_rope = 8, c.context_length = 50;
    ck_assert_int_eq(role_extent(&c, EXTENT_Q, 0), 96);
    ck_assert_int_eq(role_extent(&c, EXTENT_KV, 0), 48);
    ck_assert_int_eq(role_extent(&c, EXTENT_QKV, 0), 192);
    ck_assert_int_eq(role_extent(&c, EXTENT_2F, 0), 192);
    ck_assert_int_eq(role_extent(&c, EXTENT_ROPE, 0), 4);
    ck_assert_int_eq(role_extent(&c, EXTENT_CONTEXT, 0), 50);
}
END_TEST

START_TEST(norms_have_the_names_of_their_family) {
    struct model_config c = six_heads;
    char name[ROLE_NAME_BYTES];
    config_role_name(name, &c, ROLE_FFN_NORM, 2);
    ck_assert_str_eq(name, "blk.2.ffn_norm.weight");
    c.norm_names = NORM_NAMES_AFTER_ATTENTION;
    config_role_name(name, &c, ROLE_FFN_NORM, 2);
    ck_assert_str_eq(name, "blk.2.post_attention_norm.weight");
    c.norm_names = NORM_NAMES_OF_OUTPUTS;
    config_role_name(name, &c, ROLE_FFN_NORM_BIAS, 2);
    ck_assert_str_eq(name, "blk.2.layer_output_norm.bias");
    ck_assert_str_eq(config_role_gguf(&c, ROLE_OUTPUT_NORM), "output_norm.weight");
    c.norm_names = NORM_NAMES_OF_EMBEDDING;
    config_role_name(name, &c, ROLE_OUTPUT_NORM, -1);
    ck_assert_str_eq(name, "token_embd_norm.weight");
    ck_assert_str_eq(config_role_gguf(&c, ROLE_FFN_NORM), "ffn_norm.weight");
}
END_TEST

/* The parts of a fused tensor are all of its rows. Each part is a tensor with a role. */
START_TEST(fused_tensors_have_their_parts) {
    int n_fused = 0;
    for (enum role role = 0; role < N_ROLES; role++) {
        const struct role_info *whole = role_info(role);
        int rows = 0;
        ck_assert_ptr_nonnull(whole->gguf);
        if (whole->n_parts == 0 || whole->of_latents) continue; /* a part of those is turned */
        for (int i = 0; i < whole->n_parts; i++) {
            const struct role_info *part = role_info(whole->parts[i]);
            ck_assert(!part->K == !whole->K && part->split == whole->split && part->n_parts == 0);
            ck_assert_int_eq(role_extent(&six_heads, part->K, 0),
                             role_extent(&six_heads, whole->K, 0));
            ck_assert(part->of_experts == whole->of_experts);
            rows += role_extent(&six_heads, part->N, 0);
        }
        ck_assert_int_eq(rows, role_extent(&six_heads, whole->N, 0));
        n_fused++;
    }
    ck_assert_int_eq(n_fused, 12);
}
END_TEST

START_TEST(a_family_may_have_up_before_the_gate) {
    struct model_config c = six_heads;
    enum role parts[MAX_PARTS];
    ck_assert_int_eq(role_parts(&c, ROLE_GATE_UP, parts), 2);
    ck_assert(parts[0] == ROLE_GATE && parts[1] == ROLE_UP);
    c.up_is_first = true;
    ck_assert_int_eq(role_parts(&c, ROLE_GATE_UP, parts), 2);
    ck_assert(parts[0] == ROLE_UP && parts[1] == ROLE_GATE);
    ck_assert_int_eq(role_parts(&c, ROLE_QKV, parts), 3);
    ck_assert(parts[0] == ROLE_Q && parts[1] == ROLE_K && parts[2] == ROLE_V);
    ck_assert_int_eq(role_parts(&c, ROLE_DOWN, parts), 0);
}
END_TEST

/* ---- a rank's model ------------------------------------------------------------------------- */

static void load_rank(struct model *model, struct model_file *file, int rank, int ranks) {
    struct err err = {0};
    const struct engine_config settings = {
        .dtype = COMPUTE_FLOAT32, .max_num_batched_tokens = 4, .max_logit_rows = 2};
    *model = (struct model){.shard = {rank, ranks}};
    ck_assert_int_eq(model_config_read(&model->config, file, &err), STATUS_OK);
    struct backend_config wanted = {.threads = 1, .max_rows = 4, .max_k = 96};
    ck_assert_int_eq(backend_cpu_open(&model->backend, &wanted, &err), STATUS_OK);
    ck_assert_msg(model_load(model, model_file_weights(file), &settings, &err) == STATUS_OK, "%s",
                  err.message);
}

static void unload(struct model *model) {
    struct backend *b = model->backend;
    model_unload(model);
    backend_close(b);
}

START_TEST(embeddings_and_head_are_on_rank_0_alone) {
    struct tiny_model tiny;
    struct model model;
    tiny_model_defaults(&tiny);
    tiny.untied = true;
    char *path = tiny_model_temporary(&tiny);
    struct model_file file;
    ck_assert_int_eq(model_file_open(&file, path, MODEL_WHOLE, NULL), STATUS_OK);
    int64_t bytes[2];
    for (int rank = 0; rank < 2; rank++) {
        load_rank(&model, &file, rank, 2);
        bool first = rank == 0;
        ck_assert(first == (model.ends.w[ROLE_TOKEN_EMBEDDING] != NULL));
        ck_assert(first == (model.ends.w[ROLE_OUTPUT] != NULL));
        ck_assert(first == (model.ends.vec[ROLE_OUTPUT_NORM] != NULL));
        ck_assert(first == (model.act.logits != NULL) && first == (model.act.part == NULL));
        for (int i = 0; i < model.config.L; i++) {
            const struct tensors *t = &model.layers[i];
            ck_assert(t->w[ROLE_Q] && t->w[ROLE_DOWN] && t->vec[ROLE_ATTN_NORM]);
            ck_assert(!t->vec[ROLE_Q_BIAS] && !t->vec[ROLE_ATTN_POST_NORM] && !model.act.branch);
        }
        bytes[rank] = model.weight_bytes;
        unload(&model);
        ck_assert(!model.layers && !model.inv_freq);
    }
    ck_assert_int_gt(bytes[0], bytes[1]);
    model_file_close(&file);
    unlink(path);
    free(path);
}
END_TEST

/* A file may write a vector as a matrix of one row: "[64 x 1]" is "[64]". */
START_TEST(a_vector_may_have_a_second_dimension) {
    struct tiny_model tiny;
    struct model model;
    tiny_model_defaults(&tiny);
    char *path = tiny_model_temporary(&tiny);
    struct model_file file;
    ck_assert_int_eq(model_file_open(&file, path, MODEL_WHOLE, NULL), STATUS_OK);
    struct weights *weights = &file.gguf->weights;
    for (int i = 0; i < weights->n; i++) weights->tensor[i].n_dims = 2;
    load_rank(&model, &file, 0, 1);
    ck_assert(model.ends.vec[ROLE_OUTPUT_NORM] && model.layers[0].vec[ROLE_FFN_NORM]);
    unload(&model);
    model_file_close(&file);
    unlink(path);
    free(path);
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        heads_and_widths_have_to_divide,
        blocks_are_not_cut,
        experts_are_not_cut_below_a_tile,
        a_rank_has_its_share_of_the_letters,
        a_rank_has_its_share_of_states,
        only_divided_heads_are_named,
        pieces_of_outputs_are_rows_in_place,
        pieces_of_experts_are_rows_of_each,
        pieces_of_inputs_together_are_the_matrix,
        value_heads_follow_their_key_head,
        taps_and_inputs_follow_the_channels,
        weights_that_are_not_divided_stay_whole,
        roles_have_names_and_lengths,
        norms_have_the_names_of_their_family,
        fused_tensors_have_their_parts,
        a_family_may_have_up_before_the_gate,
        embeddings_and_head_are_on_rank_0_alone,
        a_vector_may_have_a_second_dimension,
    };
    Suite *suite = suite_create("engine/shard");
    TCase *all = tcase_create("all");
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(all, tests[i]);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
