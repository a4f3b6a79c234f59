"""Checks by disassembly that object files have only instructions of sets that their names allow.

`tests/instruction_sets.py BUILD` checks all objects of the libraries and programs in a build folder:
kernels/cpu/simd/*_SET.c may use SET, all others only instructions of every x86-64, so that one program runs on all
processors. `--self-test` checks that the kinds of instructions are told apart.
"""
import os
import re
import subprocess
import sys

# The kinds of instructions that the files of each set may use.
ALLOWED = {
    "avx2": {"vex"},
    "avxvnni": {"vex", "avx-vnni"},
    "avx512vnni": {"vex", "evex"},
    "amx": {"vex", "evex", "amx"},
}
# Instructions with older encodings that not every x86-64 has; compilers use tzcnt only in the form that all processors run.
NEWER = re.compile(r"popcnt|crc32|pshufb|p(min|max)[su][bdw]\b|pmul(ld|dq)|round[sp][sd]|blendv|ptest|movbe|lzcnt|pclmul|aes")
OLD_ENOUGH = re.compile(r"p(minub|maxub|minsw|maxsw)\b")  # part of SSE2
PREFIXES = {0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3}
LINE = re.compile(r"^ *[0-9a-f]+:\t((?:[0-9a-f]{2} )+) *\t(.*)$")


def kind_of(code, text):
    """Returns vex, evex, avx-vnni, amx, newer, or None for instructions of every x86-64. 62, c4 and c5 are not opcodes
    in 64-bit code."""
    first = next((byte for byte in code if byte not in PREFIXES), 0)
    if "tmm" in text or re.match(r"(ld|st)tilecfg|tilerelease", text):
        return "amx"
    if first == 0x62:
        return "evex"
    if first in (0xc4, 0xc5):
        return "avx-vnni" if "vpdp" in text else "vex"
    words = text.split()
    return "newer" if words and NEWER.match(words[0]) and not OLD_ENOUGH.match(words[0]) else None


def instructions_of(listing):
    """Yields (symbol, bytes, text) of objdump's lines."""
    symbol = ""
    for line in listing.split("\n"):
        if line.endswith(">:"):
            symbol = line[line.index("<") + 1:-2]
        match = LINE.match(line)
        if match:
            yield symbol, [int(byte, 16) for byte in match[1].split()], match[2]


def set_of(path):
    match = re.search(r"/kernels/cpu/(?:\w+/)?\w+_(\w+)\.c\.o$", path)
    return match[1] if match and match[1] in ALLOWED else None


def findings_in(path, listing):
    allowed = ALLOWED.get(set_of(path), set())
    found = {}
    for symbol, code, text in instructions_of(listing):
        kind = kind_of(code, text)
        if kind and kind not in allowed and not (kind == "newer" and allowed):
            found.setdefault(kind, f"{path}: {kind} in {symbol}: {text.strip()}")
    return list(found.values()), {kind_of(code, text) for _, code, text in instructions_of(listing)}


def disassemble(path):
    return subprocess.run(["objdump", "-d", "--wide", path], check=True, capture_output=True, text=True).stdout


def objects_of(build):
    """The objects of the libraries and the program; those of tests may use any instruction."""
    for folder, folders, names in os.walk(os.path.join(build, "CMakeFiles")):
        folders[:] = [f for f in folders if not re.match(r"(test|fuzz)_\w+\.dir", f)]
        yield from (os.path.join(folder, name) for name in sorted(names) if name.endswith(".c.o"))


def check(build):
    findings, count = [], 0
    for path in objects_of(build):
        found, kinds = findings_in(path, disassemble(path))
        findings += found
        count += 1
        wanted = {"avx2": "vex", "avxvnni": "avx-vnni", "avx512vnni": "evex", "amx": "amx"}.get(set_of(path))
        if wanted and "/matmul_" in path and wanted not in kinds:
            findings.append(f"{path}: not one {wanted} instruction: is the check blind?")
    if count == 0:
        findings.append(f"{build}: no object files")
    return findings, count


def self_test():
    def kinds(name, *lines):
        listing = "0 <f>:\n" + "\n".join(f"   0:\t{code} \t{text}" for code, text in lines)
        return findings_in(f"x/kernels/cpu/{name}.c.o", listing)[0]

    sse = ("66 0f 38 00 c1", "pshufb %xmm1,%xmm0")
    add = ("66 0f fe c1", "paddd  %xmm1,%xmm0")
    vex = ("c5 fd fe c1", "vpaddd %ymm1,%ymm0,%ymm0")
    evex = ("62 f1 7d 48 fe c1", "vpaddd %zmm1,%zmm0,%zmm0")
    narrow = ("62 f2 7d 28 50 c1", "vpdpbusd %ymm1,%ymm0,%ymm0")
    vnni = ("c4 e2 7d 50 c1", "{vex} vpdpbusd %ymm1,%ymm0,%ymm0")
    tile = ("c4 e2 7b 49 c0", "tilezero %tmm0")
    prefixed = ("2e 67 c5 f8 77", "vzeroupper")
    assert not kinds("rows", add, ("f3 0f bc c1", "tzcnt  %ecx,%eax"), ("66 0f da c1", "pminub %xmm1,%xmm0"))
    for line in (sse, vex, evex, vnni, tile, prefixed, ("f3 0f b8 c1", "popcnt %ecx,%eax")):
        assert len(kinds("rows", add, line)) == 1, line
    assert not kinds("path_avx2", add, sse, vex) and not kinds("path_avxvnni", vex, vnni)
    for line in (evex, narrow, vnni, tile):
        assert len(kinds("path_avx2", line)) == 1, line
    for line in (evex, narrow, tile):
        assert len(kinds("path_avxvnni", line)) == 1, line
    assert not kinds("path_avx512vnni", vex, evex, narrow) and len(kinds("path_avx512vnni", tile, vnni)) == 2
    assert not kinds("product_amx", vex, evex, tile) and len(kinds("product_amx", vnni)) == 1
    print("instruction sets: self-test passed")


def main():
    self_test()
    if sys.argv[1:] == ["--self-test"]:
        return 0
    findings, count = check(sys.argv[1])
    for finding in findings:
        print(finding)
    print(f"{count} object files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
