"""Mutants of the ops that multiply, and of what cuBLAS does for them; tests/cuda_mutate.py says what the names mean."""
UNITS = ["products", "gemm", "gemm_pack", "gemm_skinny", "cublas", "matrix"]
PROGRAMS = ["gemm_cublas", "products", "launches"]

MUTANTS = [
    ("products.cu", "taken = taken && gemm_takes_norm(jobs[i].w, M);", "taken = gemm_takes_norm(jobs[i].w, M);",
     "the matrices of one op have one K and are all float32 or none, so that all take a norm or none does"),
    ("products.cu", "    *norm = NULL;\n", ""),
    ("products.cu", "if (!*norm || taken) return x;", "if (!*norm) return x;"),
    ("products.cu", "end.residual = sum;", ""),
    ("products.cu", "end.float_out = true;", ""),
    ("products.cu", "if (gemm_is_pair(gate, up, M)) {", "if (false) {"),
    ("products.cu", "{gate, p->gate, NULL, up};", "{up, p->gate, NULL, gate};"),
    ("products.cu", "(size_t)M * (size_t)gate->N, p->stream", "(size_t)gate->N, p->stream"),
    ("products.cu", "p->gate = (char *)p->memory + bytes;", "p->gate = p->memory;"),
    ("products.cu", "(act == DTYPE_F32 ? 4 : 2);", "2;"),
    ("gemm.cu", "return w->act != DTYPE_F32 && M <= GEMM_SKINNY_ROWS", "return M <= GEMM_SKINNY_ROWS"),
    ("gemm_pack.cu", "source->cublas && K % SLAB == 0 && cublas_open()", "source->cublas && K % TILE == 0 && cublas_open()"),
    ("cublas.cu", "if (M == 0 || cuda_failed()) return;", "if (M == 0) return;"),
    ("cublas.cu", "return &library.handle[device];", "return &library.handle[0];"),
    ("cublas.cu", "return cuda_did(cause == cudaSuccess ? cudaErrorUnknown : cause, what);", "return cuda_did(cause, what);"),
    ("gemm.cu", "if (format == GEMM_ROWS && !has_mma_kernel(jobs->w, M))", "if (format == GEMM_ROWS)"),
    ("cublas.cu", "before = add ? 1.0f : 0.0f;", "before = add ? 0.5f : 0.0f;"),
    ("gemm_format.cuh", "const int row = lane / 4 + 8 * side, column = slab * SLAB + j * 32 + lane % 4 * 8;",
     "const int row = lane / 4 + 8 * side, column = slab * SLAB + j * 32 + lane % 4 * 4;"),
    ("gemm_format.cuh", "w.code[8 * j + 2 * i + side] = words[i];", "w.code[8 * j + i + 4 * side] = words[i];"),
    ("gemm_format.cuh", "const int row = lane / 4 + 8 * side,", "const int row = 2 * (lane / 4) + side,"),
    ("matrix.cu", "cublas && !source.fp8 && act != DTYPE_F32 && dtype_block_elements(type) == 1;", "cublas && !source.fp8 && act != DTYPE_F32;"),
    ("matrix.cu", "cublas && !source.fp8 && act != DTYPE_F32 && dtype_block_elements(type) == 1;", "cublas && dtype_block_elements(type) == 1;"),
]
