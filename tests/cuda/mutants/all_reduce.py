"""Mutants of sums over ranks; tests/cuda_mutate.py says what the names mean."""
UNITS = ["runtime/all_reduce", "runtime/nccl"]

MUTANTS = [
    ("runtime/all_reduce.cu", "for (int r = 1; r < ranks; r++)", "for (int r = 1; r < ranks - 1; r++)"),
    ("runtime/all_reduce.cu", "for (int r = 1; r < ranks; r++)", "for (int r = ranks - 1; r > 0; r--)"),
    ("runtime/all_reduce.cu", "(size_t)r * n + at", "(size_t)(r - 1) * n + at"),
    ("runtime/all_reduce.cu", "if (at >= n) return;", "if (at > n) return;"),
    ("runtime/all_reduce.cu", "from_float<T>(0.0f)", "from_float<T>(sum[i])"),
    ("runtime/all_reduce.cu", "(n + per_block - 1) / per_block", "n / per_block"),
    ("runtime/all_reduce.cu", "if (K % Vec16<T>::N == 0)", "if (n % Vec16<T>::N == 0)",
     "all parts but the last are as long, so that the next one begins at a whole vector, too"),
    ("runtime/all_reduce.cu", "mine ? mine : rows", "rows"),
    ("runtime/all_reduce.cu", "(char *)part + m * row : NULL", "(char *)part : NULL"),
    ("runtime/all_reduce.cu", "left < at_once ? left : at_once", "left > 0 ? at_once : 0"),
    # what NCCL says, and what is said of it
    ("runtime/nccl.cu", "if (result == NCCL_SUCCESS) return;", "if (result >= NCCL_SUCCESS) return;"),
    ("runtime/nccl.cu", "    if (cuda_failure(&err)) end_process(rank, err.message);\n", ""),
    ("runtime/nccl.cu", "if (ranks <= count) return STATUS_OK;", "if (ranks <= count + 1) return STATUS_OK;"),
    ("runtime/nccl.cu", "!library.init_all || !library.all_gather ||", "!library.init_all ||"),
    ("runtime/nccl.cu", "if (result != NCCL_SUCCESS) {", "if (result < NCCL_SUCCESS) {"),
    ("runtime/nccl.cu", "for (int r = 0; r < head->ranks; r++) library.destroy", "for (int r = 1; r < head->ranks; r++) library.destroy"),
    ("runtime/nccl.cu", "    err_set(&err, STATUS_SERVER_ERROR, NULL, \"NCCL has failed: gathering the ranks' rows: %s.\",\n            library.error_text(result));\n", "    err.message[0] = 0;\n"),
]
