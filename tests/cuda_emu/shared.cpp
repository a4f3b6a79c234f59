/* DESIGN: shared memory.
 *
 * Dynamic shared memory is a window that ends at an inaccessible page; a launch uses its last
 * bytes. Static shared variables are static variables of the program. The emulation finds them in
 * the program's symbol table, by the tag in their mangled names (include/cuda_runtime.h); test
 * programs must not be stripped. The guards next to them hold a pattern that is checked after each
 * block.
 */
#include <algorithm>
#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include "internal.h"

extern "C" const char __executable_start;

namespace emu {

constexpr int WINDOW = 256 << 10, RUBBISH = 0xff, PATTERN = 0xc5;

/* ---- static --------------------------------------------------------------------------------- */

struct variable {
    char *start;
    size_t bytes;
    bool is_guard;
    std::string name;
};

/* Collects the tagged variables of one symbol table. */
static void take_symbols(const char *file, const Elf64_Shdr *sections, const Elf64_Shdr &table,
                         uintptr_t base, std::vector<variable> &out) {
    auto *symbols = reinterpret_cast<const Elf64_Sym *>(file + table.sh_offset);
    const char *names = file + sections[table.sh_link].sh_offset;
    for (size_t i = 0; i < table.sh_size / sizeof *symbols; i++) {
        const char *name = names + symbols[i].st_name;
        bool is_guard = strstr(name, "B5guard") != nullptr;
        if (ELF64_ST_TYPE(symbols[i].st_info) != STT_OBJECT || symbols[i].st_size == 0) continue;
        if (!is_guard && !strstr(name, "B6shared")) continue;
        out.push_back({reinterpret_cast<char *>(base + symbols[i].st_value), symbols[i].st_size,
                       is_guard, name});
    }
}

static std::vector<variable> read_variables() {
    std::vector<variable> found;
    struct stat about;
    int fd = open("/proc/self/exe", O_RDONLY);
    if (fd < 0 || fstat(fd, &about) != 0) abort();
    void *map = mmap(nullptr, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (map == MAP_FAILED) abort();
    auto *file = static_cast<const char *>(map);
    auto *header = static_cast<const Elf64_Ehdr *>(map);
    auto *sections = reinterpret_cast<const Elf64_Shdr *>(file + header->e_shoff);
    uintptr_t base = header->e_type == ET_DYN ? (uintptr_t)&__executable_start : 0;
    for (int i = 0; i < header->e_shnum; i++)
        if (sections[i].sh_type == SHT_SYMTAB)
            take_symbols(file, sections, sections[i], base, found);
    munmap(map, (size_t)about.st_size);
    std::sort(found.begin(), found.end(),
              [](const variable &a, const variable &b) { return a.start < b.start; });
    return found;
}

static const std::vector<variable> &variables() {
    static const std::vector<variable> all = read_variables();
    return all;
}

static const variable *variable_at(const void *p) {
    auto &all = variables();
    auto after = std::upper_bound(all.begin(), all.end(), p,
                                  [](const void *q, const variable &v) { return q < v.start; });
    if (after == all.begin()) return nullptr;
    const variable *v = &*(after - 1);
    return p < v->start + v->bytes ? v : nullptr;
}

place static_place(const void *p, size_t n) {
    const variable *v = variable_at(p);
    if (!v) return place::ELSEWHERE;
    bool inside = !v->is_guard && static_cast<const char *>(p) + n <= v->start + v->bytes;
    return inside ? place::SHARED : place::GUARD;
}

/* ---- dynamic -------------------------------------------------------------------------------- */

static char *window, *dynamic_start;
static size_t dynamic_size;

void *dynamic_shared() {
    return dynamic_start;
}

range dynamic_range() {
    return {dynamic_start, dynamic_start + dynamic_size};
}

range dynamic_window() {
    return {window, window + WINDOW + PAGE};
}

void shared_plan(size_t bytes) {
    if (!window) {
        window = static_cast<char *>(mmap(nullptr, WINDOW + PAGE, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        mprotect(window + WINDOW, PAGE, PROT_NONE);
    }
    dynamic_size = bytes;
    dynamic_start = window + WINDOW - (bytes + 15) / 16 * 16;
#ifdef __SANITIZE_ADDRESS__
    __asan_poison_memory_region(window, WINDOW);
    __asan_unpoison_memory_region(dynamic_start, bytes);
#endif
}

/* ---- before and after a block ---------------------------------------------------------------- */

void shared_fill() {
    memset(dynamic_start, RUBBISH, dynamic_size);
    for (const variable &v : variables()) memset(v.start, v.is_guard ? PATTERN : RUBBISH, v.bytes);
}

void shared_check() {
    for (const variable &v : variables()) {
        if (!v.is_guard) continue;
        for (size_t i = 0; i < v.bytes; i++) {
            if ((unsigned char)v.start[i] == PATTERN) continue;
            report("out of bounds", "a shared variable was overrun: %s", describe(v.start).c_str());
            break;
        }
    }
}

/* Exchanges the block's memory with the saved bytes. Returns the number of bytes. */
static size_t swap_bytes(char *memory, size_t bytes, char *kept) {
    std::swap_ranges(memory, memory + bytes, kept);
    return bytes;
}

void shared_swap(size_t number) {
    static std::vector<std::vector<char>> kept;
    if (kept.size() <= number) kept.resize(number + 1);
    size_t bytes = dynamic_size, at = 0;
    for (const variable &v : variables()) bytes += v.bytes;
    kept[number].resize(bytes);
    at += swap_bytes(dynamic_start, dynamic_size, kept[number].data());
    for (const variable &v : variables())
        at += swap_bytes(v.start, v.bytes, kept[number].data() + at);
}

std::string shared_describe(const void *p) {
    char text[400];
    if (dynamic_window().has(p)) {
        snprintf(text, sizeof text, "offset %td of %zu bytes of dynamic shared memory",
                 static_cast<const char *>(p) - dynamic_start, dynamic_size);
        return text;
    }
    const variable *v = variable_at(p);
    if (!v) return "";
    char *name = abi::__cxa_demangle(v->name.c_str(), nullptr, nullptr, nullptr);
    snprintf(text, sizeof text, "offset %td of the shared variable %s",
             static_cast<const char *>(p) - v->start, name ? name : v->name.c_str());
    free(name);
    return text;
}

} // namespace emu
