/* DESIGN. A processor raises SIGILL at an unknown instruction. The handler reads the instruction at
 * the thread's program counter, changes the thread's saved registers and memory as the manual
 * defines (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2), moves the
 * program counter after it and returns. So the shipped object files run unchanged, with the
 * compiler's encoding and order of operands. Tile registers are thread-local. The handler runs on
 * the thread that met the instruction, and shares only a counter. */
#include "support/instructions.h"

#include <assert.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

static atomic_long carried_out;

/* ---- reading an instruction ----------------------------------------------------------------- */

enum prefix { NO_PREFIX, PREFIX_66, PREFIX_F3, PREFIX_F2 };

/* An instruction with a VEX prefix of three bytes and the opcode map 0F38. */
struct instruction {
    enum prefix prefix;
    int opcode;
    bool wide;           /* 256 bits */
    int reg, rm, second; /* register numbers; `second` is VEX.vvvv */
    bool memory;         /* the operand rm is in memory */
    uint8_t *address;    /* without the index register, which for tiles is */
    int64_t stride;      /* the distance between rows */
    int bytes;           /* length of the instruction */
};

static int64_t general(const ucontext_t *context, int number) {
    static const int order[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                  REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                  REG_R12, REG_R13, REG_R14, REG_R15};
    return context->uc_mcontext.gregs[order[number]];
}

static int64_t displacement(const uint8_t *at, int bytes) {
    int32_t four;
    if (bytes == 1) return (int8_t)*at;
    memcpy(&four, at, 4);
    return bytes ? four : 0;
}

/* Reads the address after the ModRM byte at `at`; x and b are the high bits of index and base. */
static void read_address(struct instruction *in, const ucontext_t *context, const uint8_t *at,
                         const uint8_t *begin, int x, int b) {
    int mod = *at >> 6, rm = *at & 7, bytes = mod == 1 ? 1 : mod == 2 ? 4 : 0;
    int64_t address = 0;
    at++;
    bool relative = mod == 0 && rm == 5;
    if (rm == 4) {
        int index = (*at >> 3 & 7) | x, base = (*at & 7) | b;
        if (index != 4) in->stride = general(context, index) << (*at >> 6);
        if (mod == 0 && (*at & 7) == 5)
            bytes = 4;
        else
            address = general(context, base);
        at++;
    } else if (!relative) {
        address = general(context, rm | b);
    }
    if (relative) bytes = 4;
    address += displacement(at, bytes);
    in->bytes = (int)(at + bytes - begin);
    if (relative) address += (int64_t)(intptr_t)begin + in->bytes;
    in->address = (uint8_t *)(intptr_t)address;
}

static bool read_instruction(struct instruction *in, const ucontext_t *context) {
    const uint8_t *begin = (const uint8_t *)context->uc_mcontext.gregs[REG_RIP];
    if (begin[0] != 0xc4 || (begin[1] & 0x1f) != 2) return false;
    int r = begin[1] & 0x80 ? 0 : 8, x = begin[1] & 0x40 ? 0 : 8, b = begin[1] & 0x20 ? 0 : 8;
    *in = (struct instruction){.prefix = (enum prefix)(begin[2] & 3),
                               .opcode = begin[3],
                               .wide = begin[2] & 4,
                               .reg = (begin[4] >> 3 & 7) | r,
                               .rm = (begin[4] & 7) | b,
                               .second = ~(begin[2] >> 3) & 15,
                               .memory = begin[4] >> 6 != 3,
                               .bytes = 5};
    if (in->memory) read_address(in, context, begin + 4, begin, x, b);
    return true;
}

/* ---- tiles ---------------------------------------------------------------------------------- */

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64 };

static _Thread_local struct {
    int rows[TILES], row_bytes[TILES];
    uint8_t data[TILES][ROWS][ROW_BYTES];
} tiles;

/* Loads a configuration of palette 1. */
static bool configure(const uint8_t *config) {
    memset(&tiles, 0, sizeof tiles);
    if (config[0] != 1) return false;
    for (int i = 2; i < 16; i++)
        if (config[i]) return false;
    for (int t = 0; t < 16; t++) {
        int rows = config[48 + t], bytes = config[16 + 2 * t] | config[17 + 2 * t] << 8;
        if (rows > ROWS || bytes > ROW_BYTES || (t >= TILES && (rows || bytes))) return false;
        if ((rows == 0) != (bytes == 0)) return false;
        if (t < TILES) tiles.rows[t] = rows, tiles.row_bytes[t] = bytes;
    }
    return true;
}

/* Copies between a tile and memory. A load clears the rest of the tile. */
static bool move(const struct instruction *in, bool load) {
    int t = in->reg;
    if (t >= TILES || tiles.rows[t] == 0) return false;
    if (load) memset(tiles.data[t], 0, sizeof tiles.data[t]);
    for (int row = 0; row < tiles.rows[t]; row++) {
        uint8_t *memory = in->address + row * in->stride;
        size_t bytes = (size_t)tiles.row_bytes[t];
        if (load)
            memcpy(tiles.data[t][row], memory, bytes);
        else
            memcpy(memory, tiles.data[t][row], bytes);
    }
    return true;
}

static int byte_of(uint8_t byte, bool is_signed) {
    return is_signed ? (int8_t)byte : byte;
}

/* Adds to one dword of the sums: the row of a times the column of b, in groups of 4 bytes. */
static void add_products(uint8_t *sum, int a, int b, int m, int n, bool a_signed, bool b_signed) {
    int32_t total;
    memcpy(&total, sum, 4);
    for (int k = 0; k < tiles.row_bytes[a]; k++) {
        int left = byte_of(tiles.data[a][m][k], a_signed);
        int right = byte_of(tiles.data[b][k / 4][4 * n + k % 4], b_signed);
        total = (int32_t)((uint32_t)total + (uint32_t)(left * right));
    }
    memcpy(sum, &total, 4);
}

/* tdpbssd and its variants: reg += rm * second. */
static bool multiply(const struct instruction *in) {
    int c = in->reg, a = in->rm, b = in->second;
    bool a_signed = in->prefix == PREFIX_F2 || in->prefix == PREFIX_F3;
    bool b_signed = in->prefix == PREFIX_F2 || in->prefix == PREFIX_66;
    if (c >= TILES || a >= TILES || b >= TILES || c == a || c == b || a == b) return false;
    if (tiles.rows[c] != tiles.rows[a] || tiles.row_bytes[c] != tiles.row_bytes[b] ||
        tiles.row_bytes[a] != 4 * tiles.rows[b] || tiles.rows[c] == 0)
        return false;
    for (int m = 0; m < tiles.rows[c]; m++)
        for (int n = 0; n < tiles.row_bytes[c] / 4; n++)
            add_products(&tiles.data[c][m][4 * n], a, b, m, n, a_signed, b_signed);
    return true;
}

static bool tile_instruction(const struct instruction *in) {
    if (in->opcode == 0x49 && in->prefix == NO_PREFIX && in->memory) return configure(in->address);
    if (in->opcode == 0x49 && in->prefix == NO_PREFIX) {
        memset(&tiles, 0, sizeof tiles);
        return true;
    }
    if (in->opcode == 0x49 && in->prefix == PREFIX_F2 && !in->memory && tiles.rows[in->reg & 7]) {
        memset(tiles.data[in->reg], 0, sizeof tiles.data[in->reg]);
        return true;
    }
    if (in->opcode == 0x4b && in->memory && in->prefix == PREFIX_F2) return move(in, true);
    if (in->opcode == 0x4b && in->memory && in->prefix == PREFIX_F3) return move(in, false);
    return in->opcode == 0x5e && !in->memory && multiply(in);
}

/* ---- vpdpbusd and vpdpwssd ------------------------------------------------------------------ */

/* The saved vector registers of a thread, in the xsave area. Its header says which parts were in
 * use; other parts are zero and not written. */
enum { XSAVE_HEADER = 512, UPPER_HALVES = 576, PART_XMM = 2, PART_UPPER = 4 };

enum { DOTS_OF_BYTES = 0x50, DOTS_OF_PAIRS = 0x52 }; /* opcodes */

static uint8_t *saved_area(const ucontext_t *context) {
    uint8_t *area = (uint8_t *)context->uc_mcontext.fpregs;
    uint64_t parts;
    memcpy(&parts, area + XSAVE_HEADER, 8);
    if (!(parts & PART_XMM)) memset(context->uc_mcontext.fpregs->_xmm, 0, 256);
    if (!(parts & PART_UPPER)) memset(area + UPPER_HALVES, 0, 256);
    parts |= PART_XMM | PART_UPPER;
    memcpy(area + XSAVE_HEADER, &parts, 8);
    return area;
}

static void read_vector(uint8_t *out, const ucontext_t *context, int number) {
    uint8_t *area = saved_area(context);
    memcpy(out, &context->uc_mcontext.fpregs->_xmm[number], 16);
    memcpy(out + 16, area + UPPER_HALVES + 16 * number, 16);
}

static void write_vector(const uint8_t *value, const ucontext_t *context, int number) {
    uint8_t *area = saved_area(context);
    memcpy(&context->uc_mcontext.fpregs->_xmm[number], value, 16);
    memcpy(area + UPPER_HALVES + 16 * number, value + 16, 16);
}

/* reg += second * rm in each of eight lanes: four unsigned times four signed bytes, or two times
 * two signed 16-bit numbers. */
static bool add_dots(const struct instruction *in, const ucontext_t *context) {
    uint8_t second[32], rm[32];
    int16_t a[16], b[16];
    int32_t sums[8];
    if (!in->wide || in->prefix != PREFIX_66) return false;
    read_vector((uint8_t *)sums, context, in->reg);
    read_vector(second, context, in->second);
    if (in->memory)
        memcpy(rm, in->address + in->stride, sizeof rm);
    else
        read_vector(rm, context, in->rm);
    memcpy(a, second, sizeof a);
    memcpy(b, rm, sizeof b);
    for (int k = 0; k < 32 && in->opcode == DOTS_OF_BYTES; k++)
        sums[k / 4] += second[k] * (int8_t)rm[k];
    for (int k = 0; k < 16 && in->opcode == DOTS_OF_PAIRS; k++) sums[k / 2] += a[k] * b[k];
    write_vector((const uint8_t *)sums, context, in->reg);
    return true;
}

/* ---- the trap ------------------------------------------------------------------------------- */

static void carry_out(int number, siginfo_t *info, void *arg) {
    (void)info;
    ucontext_t *context = arg;
    struct instruction in;
    bool done = read_instruction(&in, context) &&
                (in.opcode == DOTS_OF_BYTES || in.opcode == DOTS_OF_PAIRS ? add_dots(&in, context)
                                                                          : tile_instruction(&in));
    if (!done) { /* it is raised again, and then ends the process */
        signal(number, SIG_DFL);
        return;
    }
    context->uc_mcontext.gregs[REG_RIP] += in.bytes;
    atomic_fetch_add_explicit(&carried_out, 1, memory_order_relaxed);
}

void instructions_carry_out(void) {
    struct sigaction action = {.sa_sigaction = carry_out, .sa_flags = SA_SIGINFO};
    int status = sigaction(SIGILL, &action, NULL);
    assert(status == 0);
    (void)status;
}

long instructions_carried_out(void) {
    return atomic_load(&carried_out);
}
