"""Mutants of sums over ranks; tests/cuda_mutate.py says what the names mean."""
UNITS = ["all_reduce"]

MUTANTS = [
    ("all_reduce.cu", "for (int r = 1; r < ranks; r++)", "for (int r = 1; r < ranks - 1; r++)"),
    ("all_reduce.cu", "for (int r = 1; r < ranks; r++)", "for (int r = ranks - 1; r > 0; r--)"),
    ("all_reduce.cu", "(size_t)r * n + at", "(size_t)(r - 1) * n + at"),
    ("all_reduce.cu", "if (at >= n) return;", "if (at > n) return;"),
    ("all_reduce.cu", "from_float<T>(0.0f)", "from_float<T>(sum[i])"),
    ("all_reduce.cu", "(n + per_block - 1) / per_block", "n / per_block"),
    ("all_reduce.cu", "if (K % Vec16<T>::N == 0)", "if (n % Vec16<T>::N == 0)",
     "all parts but the last are as long, so that the next one begins at a whole vector, too"),
    ("all_reduce.cu", "mine ? mine : rows", "rows"),
    ("all_reduce.cu", "(char *)part + m * row : NULL", "(char *)part : NULL"),
    ("all_reduce.cu", "left < at_once ? left : at_once", "left > 0 ? at_once : 0"),
]
