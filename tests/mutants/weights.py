"""Mutants of reading, packing and multiplying quantised weights; tests/mutate.py says what the names mean."""
W, F = "kernels/cpu/weights/", "engine/files/"
SUITES = {
    W: ["kernels_dtype", "kernels_matmul"],
    F: ["engine_families", "engine_folder_broken"],
    W + "quantise.c": ["kernels_quantise"],
    W + "quantise_k.c": ["kernels_quantise"],
}

MUTANTS = [
    # blocks
    (W + "dequantise.c", "p[i / 4 * 32 + j] >> i % 4 * 2 & 3", "p[i / 4 * 32 + j] >> i % 2 * 2 & 3"),
    (W + "dequantise.c", "block->scale[half] = p[2 * i + half] & 15;", "block->scale[half] = p[2 * i] & 15;"),
    (W + "dequantise.c", "block->min[half] = -(p[2 * i + half] >> 4);", "block->min[half] = -(p[2 * i + half] & 15);"),
    (W + "dequantise.c", "(p[8 + i % 4] >> i / 4 * 2 & 3) << 4) - 32", "(p[8 + i % 4] >> i / 4 * 2 & 3) << 4) - 31"),
    (W + "dequantise.c", "p[8 + i % 4] >> i / 4 * 2", "p[8 + i / 4] >> i % 4 * 2"),
    (W + "dequantise.c", "block->code[j] |= (p[j] >> i & 1) << 2;", "block->code[j] |= (p[j] >> j % 8 & 1) << 2;"),
    (W + "dequantise.c", "k < 240 ? p[32 + k % 16]", "k < 240 ? p[32 + k % 8]"),
    (W + "dequantise.c", "power[(k - 240) / 4]", "power[(k - 240) % 4]"),
    (W + "dequantise.c", "*p < 2 ? 0x20 << *p", "*p < 1 ? 0x20 << *p"),
    (W + "dequantise.c", "(*p - 1) << 7", "*p << 7"),
    (W + "dequantise.c", "high = read_u16(p + 2) >> 2 * i & 3;", "high = read_u16(p + 2) >> i & 3;"),
    (W + "dequantise.c", "read_nibbles(block->code, p + 8 + 16 * i);", "read_nibbles(block->code, p + 8 + 16 * (i % 4));"),
    # from floats to blocks
    (W + "quantise.c", "if (fabsf(x[i]) > fabsf(max)) max = x[i];", "if (fabsf(x[i]) >= fabsf(max)) max = x[i];"),
    (W + "quantise.c", "largest(x) / (float)-zero", "largest(x) / (float)zero"),
    (W + "quantise.c", "(float)zero + 0.5f, 2 * zero - 1);", "(float)zero + 0.5f, 2 * zero);"),
    (W + "quantise.c", "inverse_of(d), 0.5f, top);", "inverse_of(d), 0.0f, top);"),
    (W + "quantise.c", "roundf(x[i] * inverse)", "rintf(x[i] * inverse)"),
    (W + "quantise.c", "if (!(fabsf(x[i]) <= FLT_MAX)) return true;", "if (fabsf(x[i]) > FLT_MAX) return true;"),
    (W + "quantise.c", "(type == DTYPE_Q6_K ? 208 : 0)", "0"),
    (W + "quantise_k.c", "p[i - 4] |= (uint8_t)(scale >> 4 << 6);", ""),
    (W + "quantise_k.c", "p[i] |= (uint8_t)(min >> 4 << 6);", ""),
    (W + "quantise_k.c", "+ dmin * (float)min) * inverse", ") * inverse"),
    (W + "quantise_k.c", "if (error < best_error) best", "if (error > best_error) best"),
    (W + "quantise_k.c", "put_half(p + 208, max / -128)", "put_half(p + 208, max / 64)"),
    (W + "quantise_k.c", "(uint8_t)(code >> 4 << block % 4 * 2)", "(uint8_t)(code >> 4 << block % 2 * 2)"),
    # quantised folders
    (F + "packed.c", "{0, 4, 1, 5, 2, 6, 3, 7}", "{0, 2, 4, 6, 1, 3, 5, 7}"),
    (F + "packed.c", "& mask) + p->zero_add;", "& mask);"),
    (F + "packed.c", "(size_t)k) : k / p->group;", "(size_t)k) : k / p->group % 1;"),
    (F + "packed.c", "if (g != last) scale", "if (last < 0) scale"),
    (F + "packed.c", "(size_t)(n / p->scale_rows) * p->row_stride", "(size_t)n * p->row_stride"),
    (F + "hf_packing.c", "p->zeros_less_one = !json_is_text(format, \"gptq_v2\");", "p->zeros_less_one = true;"),
    (F + "packed.c", "(k % 2 != p->high_first) * 4", "(k % 2) * 4"),
    (F + "packed.c", "p->over != 0 ? scale / p->over : scale", "scale"),
    (F + "packed.c", "i / (size_t)p->scale_block) +", "0) +"),
    (F + "hf_tables.c", ".row_stride = (size_t)(K / GROUP),", ".row_stride = 1,"),
    # types that are looked up
    (W + "lookup.c", "__builtin_parity(seven) << 7", "(seven & 1) << 7"),
    (W + "lookup.c", "rest >> 7 * (j / 2)) >> j % 2 * 4;", "rest >> 7 * (j / 2));"),
    (W + "lookup.c", "8 * value[i] + (down ? -1 : 1)", "8 * value[i] + (down ? 1 : 1)"),
    (W + "lookup.c", "look_up(b->code + 8 * j, GRID_IQ2_S, number", "look_up(b->code + 8 * j, GRID_IQ2_S, number & 511"),
    (W + "lookup.c", "if (byte == 0x7f) return 0;", ""),
    (W + "lookup.c", "scales >> 3 & 7", "scales & 7"),
    # panels
    (W + "pack.c", "if (bits == 3) bits_write(codes + 2 * LINE, code, 8, 2, 1, lane);", ""),
    (W + "pack.c", "if (three) code[i] |= (codes[2 * LINE + i % 4] >> i / 4 & 1) << 2;", ""),
    (W + "pack.c", "block->scale[1] | -block->min[1] << 4", "block->scale[1] | -block->min[0] << 4"),
    (W + "pack.c", "return format->has_min || format->halved ? 2 * LANES : LANES;", "return LANES;"),
    (W + "pack.c", "block->scales = w->format->scales;", ""),
    (W + "pack.c", "block->table = codes_table(w->format->table);", ""),
]
