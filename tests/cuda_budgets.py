"""Checks the hot CUDA kernels and the functions that they call against budgets, without a GPU: registers, stack and spills
from ptxas, and the instructions and mma of the loops from the disassembler.

    tests/cuda_budgets.py BUILD [NVCC]     compiles SOURCES, and compares the results with BUDGETS
    tests/cuda_budgets.py --self-test      checks the reading of ptxas's and nvdisasm's output

Compilers differ, so budgets apply only with the toolkit that the table was made with. With others the figures are
printed. Toolkits without nvdisasm get it from PyPI (tests/cuda/requirements.txt). If that fails, the figures of ptxas
are checked and the rest is reported as not counted. The test takes about 10 seconds of processor time.
"""
import contextlib
import io
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCES = {"tests/cuda/device/budgets.cu": "sm_90", "tests/cuda/device/budgets90a.cu": "sm_90a"}
TOOLKIT = "13.0.88"
# The maximum bytes of a kernel's __shared__ variables: the room that DEFAULT_SMEM of kernels/cuda/runtime/device.cuh
# leaves.
STATIC_SMEM = 1 << 10
# The kernel of persistent steps always requests its memory: STEP_SMEM of kernels/cuda/persistent/persistent.cu leaves
# this room.
STEP_STATIC_SMEM = 2 << 10

# For each kernel: a part of its mangled name; the maximum of registers, bytes of stack, bytes of spills (stores and
# loads); and (instructions, mma) of its loops. Loops are those that contain mma but no smaller loop with mma, in the
# order of the code. The instructions are all from a loop's first to its last. Code after a loop that jumps back into it
# belongs to the loop: the compiler has moved it out, such as a wait that is seldom long. Code with mma outside loops
# counts like a last loop, from its first mma to its last.
BUDGETS = {
    "skinny, 1-8 rows": ("skinny_kernelI8Format1613__nv_bfloat16Li1E", 114, 0, 0, [(248, 16)]),
    "skinny, 9-16 rows": ("skinny_kernelI8Format1613__nv_bfloat16Li2E", 128, 16, 48, [(353, 32)]),
    "a persistent step": ("step_kernelI13__nv_bfloat16Li1E", 255, 336, 64,
                          [(195, 16), (188, 16), (3100, 128), (2400, 64), (3100, 128), (2400, 64)]),
    "tiled, 17-64 rows": ("tiled_kernelI8Format1613__nv_bfloat165ShapeILi2E", 80, 0, 0, [(75, 8)]),
    "tiled, 65 rows on": ("tiled_kernelI8Format1613__nv_bfloat165ShapeILi8E", 255, 512, 0, [(300, 128)]),
    "wgmma, 17-32 rows": ("wide_kernelI13__nv_bfloat164WideILi32E", 168, 0, 0, [(118, 8), (25, 4)]),
    "wgmma, 33-64 rows": ("wide_kernelI13__nv_bfloat164WideILi64E", 168, 0, 0, [(118, 8), (25, 4)]),
    "wgmma, 128 rows": ("wide_kernelI13__nv_bfloat164WideILi128E", 168, 0, 0, [(118, 8), (25, 4)]),
    "wgmma, 192 rows": ("wide_kernelI13__nv_bfloat164WideILi192E", 168, 0, 0, [(124, 8), (12, 4)]),
    "e4m3, 1-16 rows": ("wide_kernelI13__nv_bfloat168WideE4m3ILi16E", 168, 0, 0, [(118, 4)]),
    "e4m3, 17-64 rows": ("wide_kernelI13__nv_bfloat168WideE4m3ILi64E", 168, 0, 0, [(143, 4)]),
    "e4m3, 65 rows on": ("wide_kernelI13__nv_bfloat168WideE4m3ILi128E", 168, 0, 0, [(172, 4)]),
    "wgmma chunks, D 64": ("chunk_kernelI14attention_kindI13__nv_bfloat16S1_Li64ELb1ELb0E", 168, 128, 0, [(1160, 8)]),
    "wgmma chunks, D 128": ("chunk_kernelI14attention_kindI13__nv_bfloat16S1_Li128ELb1ELb0E", 168, 256, 0, [(1440, 12)]),
    "wgmma chunks, D 64, caps": ("chunk_kernelI14attention_kindI13__nv_bfloat16S1_Li64ELb1ELb1E", 168, 128, 0, [(2330, 8)]),
    "wgmma chunks, D 128, caps": ("chunk_kernelI14attention_kindI13__nv_bfloat16S1_Li128ELb1ELb1E", 168, 256, 0, [(2610, 12)]),
    "attention, D 64": ("attention_kernelI14attention_kindI13__nv_bfloat16S1_Li64ELb1ELb0E", 168, 128, 0, [(980, 64), (500, 64)]),
    "attention, D 64, caps": ("attention_kernelI14attention_kindI13__nv_bfloat16S1_Li64ELb1ELb1E", 168, 144, 64, [(1640, 64), (1310, 64)]),
    "attention, D 128": ("attention_kernelI14attention_kindI13__nv_bfloat16S1_Li128ELb1ELb0E", 255, 256, 0, [(1380, 128), (700, 128)]),
    "attention, D 128, caps": ("attention_kernelI14attention_kindI13__nv_bfloat16S1_Li128ELb1ELb1E", 255, 272, 48, [(2040, 128), (1420, 128)]),
    "wide heads, 512, 16 vectors": ("wide_heads_kernelI9wide_kindI13__nv_bfloat16Li512ELi512ELi1E", 128, 128, 0, [(1000, 32)]),
    "wide heads, 512, 64 vectors": ("wide_heads_kernelI9wide_kindI13__nv_bfloat16Li512ELi512ELi4E", 255, 512, 0, [(64, 32), (178, 64)]),
    "wide heads, 576, 16 vectors": ("wide_heads_kernelI9wide_kindI13__nv_bfloat16Li576ELi512ELi1E", 128, 128, 0, [(965, 34)]),
    "wide heads, 576, 64 vectors": ("wide_heads_kernelI9wide_kindI13__nv_bfloat16Li576ELi512ELi4E", 255, 512, 0, [(64, 32), (1255, 72)]),
}

# Functions that kernels call, which ptxas lists without their registers: a part of the mangled name; the maximum of bytes of
# stack and of spills. Their loops are among those of the kernel. A function that is not here is a finding.
CALLED = {
    "a step's products": ("do_productsI13__nv_bfloat16Li1ELb0E", 0, 64),
    "a step's products and norm": ("do_productsI13__nv_bfloat16Li1ELb1E", 0, 64),
    "a step's attention, D 128": ("do_attentionI13__nv_bfloat16Li128E", 0, 400),
    "a step's attention, D 64": ("do_attentionI13__nv_bfloat16Li64E", 0, 96),
    "a step's attention, D 128, float16 cache": ("do_attentionI6__halfLi128E", 0, 400),
    "a step's attention, D 64, float16 cache": ("do_attentionI6__halfLi64E", 0, 96),
    "a step's heads": ("do_headsI13__nv_bfloat16S0_E", 0, 0),
    "a step's heads, float16 cache": ("do_headsI13__nv_bfloat166__halfE", 0, 0),
}


# ---- reading the tools' output ----------------------------------------------------------------------------------

def resources_of(said):
    """Returns {mangled name: (registers, bytes of stack, bytes of spills)} from the output of ptxas -v."""
    found = {}
    for part in said.split("Compiling entry function '")[1:]:
        spills = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", part)
        stack, stores, loads = (int(number) for number in spills.groups())
        found[part.split("'")[0]] = (int(re.search(r"Used (\d+) registers", part)[1]), stack, stores + loads)
    return found


def called_of(said):
    """Returns {mangled name: (bytes of stack, bytes of spills)} of the functions that kernels call."""
    found = {}
    for part in said.split("Function properties for ")[1:]:
        name, spills = part.split()[0], re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", part)
        if f"Compiling entry function '{name}'" not in said:
            found[name] = (int(spills[1]), int(spills[2]) + int(spills[3]))
    return found


def judge_called(said):
    """Returns sentences about called functions above their budgets, without one, or missing."""
    findings, missing = [], dict(CALLED)
    for name, got in called_of(said).items():
        rows = [kernel for kernel, (part, *_) in CALLED.items() if part in name]
        if len(rows) != 1:
            findings.append(f"{name} is called, and {len(rows)} budgets are named like it")
            continue
        missing.pop(rows[0], None)
        print("{:40} {:3} bytes of stack, {:3} of spills".format(rows[0], *got))
        findings += [f"{rows[0]}: {used} bytes of {what}, and the budget is {most}"
                     for what, used, most in zip(("stack", "spills"), got, CALLED[rows[0]][1:]) if used > most]
    return findings + [f"{kernel} is not called: the sources and the table differ" for kernel in missing]


def static_smem_of(said):
    """Returns {mangled name: bytes of its __shared__ variables} from the output of ptxas -v, for kernels that have any."""
    parts = said.split("Compiling entry function '")[1:]
    found = {part.split("'")[0]: re.search(r"(\d+) bytes smem", part) for part in parts}
    return {name: int(match[1]) for name, match in found.items() if match}


def code_of(listing):
    """Returns {mangled name: (instructions, {label: number of the instruction after it})} from nvdisasm's listing."""
    found, code, labels = {}, [], {}
    for line in listing.split("\n"):
        if begin := re.match(r"\.text\.(\S+):", line):
            code, labels = [], {}
            found[begin[1]] = (code, labels)
        elif label := re.match(r"(\.L_x_\d+):", line):
            labels[label[1]] = len(code)
        elif instruction := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*);", line):
            code.append(instruction[1])
    return found


def loops_of(code, labels):
    """Returns [(instructions, mma)] of the loops that contain mma but no smaller loop with mma, and of the code outside
    them."""
    ends = {}
    for at, text in enumerate(code):
        target = re.search(r"\bBRA\b.*`\((\.L_x_\d+)\)", text)
        begin = labels.get(target[1], at + 1) if target else at + 1
        if begin <= at:
            ends[begin] = at + 1
    mma = {(begin, end): sum("MMA" in text for text in code[begin:end]) for begin, end in ends.items()}
    loops = sorted(loop for loop in mma if mma[loop])
    loops = [a for a in loops if not any(b[0] < a[0] < b[1] < a[1] for b in loops)]
    inner = [a for a in loops if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    outside = [at for at, text in enumerate(code) if "MMA" in text and not any(begin <= at < end for begin, end in inner)]
    return [(loop[1] - loop[0], mma[loop]) for loop in inner] + [(outside[-1] - outside[0] + 1, len(outside)) for _ in outside[:1]]


# ---- the tools --------------------------------------------------------------------------------------------------

def run(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def version_of(nvcc):
    """Returns the toolkit's version, or None if nvcc does not run."""
    if not nvcc or not os.access(nvcc, os.X_OK):
        return None
    version = re.search(r"V(\d+\.\d+\.\d+)", run(nvcc, "--version").stdout)
    return version[1] if version else None


def disassembler(build, nvcc):
    """Returns the path of nvdisasm, or None."""
    there = shutil.which("nvdisasm") or shutil.which("nvdisasm", path=os.path.dirname(nvcc))
    if there:
        return there
    venv = os.path.join(build, "nvdisasm")
    made = run("env", "PIP_RETRIES=1", "PIP_DEFAULT_TIMEOUT=15", "timeout", "120", "docker/venv.sh", venv, "tests/cuda/requirements.txt")
    if made.returncode:
        return None
    for folder, _, names in os.walk(venv):
        if "nvdisasm" in names:
            os.chmod(os.path.join(folder, "nvdisasm"), 0o755)
            return os.path.join(folder, "nvdisasm")
    return None


def compile_kernels(build, nvcc, source):
    """Compiles a source. Returns the cubin's path and the output of ptxas."""
    cubin = os.path.join(build, os.path.basename(source) + "bin")
    options = ["-I.", "-std=c++20", "-O3", "-fmad=false", f"-arch={SOURCES[source]}", "-Xptxas", "-v"]
    done = run(nvcc, *options, "-cubin", "-o", cubin, source)
    if done.returncode:
        sys.exit(f"{source} does not compile:\n{done.stdout}{done.stderr}")
    return cubin, done.stdout + done.stderr


def disassemble(build, nvcc, cubin):
    """Returns the kernels' code, or None with a note if it is not available."""
    tool = disassembler(build, nvcc)
    if not tool:
        print("nvdisasm cannot be had: instructions are NOT COUNTED")
        return None
    done = run(tool, "-c", cubin)
    if done.returncode:
        print(f"{tool} cannot read this code: instructions are NOT COUNTED\n{done.stderr}")
        return None
    return code_of(done.stdout)


# ---- judging ----------------------------------------------------------------------------------------------------

def named(figures, part):
    """Returns the entry of the one kernel whose mangled name contains `part`."""
    names = [name for name in figures if part in name]
    if len(names) != 1:
        sys.exit(f"{len(names)} kernels are named like {part}: the sources and the table differ")
    return figures[names[0]]


def compare(kernel, budget, used, loops):
    """Returns sentences about all figures above a kernel's budget."""
    _, *most, most_loops = budget
    findings = [f"{kernel}: {got} {what}, and the budget is {limit}"
                for what, got, limit in zip(("registers", "bytes of stack", "bytes of spills"), used, most) if got > limit]
    if loops is None:
        return findings
    if [mma for _, mma in loops] != [mma for _, mma in most_loops]:
        return findings + [f"{kernel}: its loops are {loops}, and the budget has {most_loops}"]
    return findings + [f"{kernel}: {got} instructions for {mma} mma, and the budget is {limit}"
                       for (got, mma), (limit, _) in zip(loops, most_loops) if got > limit]


def too_much_smem(said):
    """Returns sentences about kernels whose __shared__ variables do not fit next to DEFAULT_SMEM."""
    most = {name: STEP_STATIC_SMEM if "step_kernel" in name else STATIC_SMEM for name in static_smem_of(said)}
    return [f"{name}: {got} bytes of its own shared memory, and the budget is {most[name]}"
            for name, got in static_smem_of(said).items() if got > most[name]]


def judge(used, code):
    """Prints the figures of all kernels. Returns sentences about those above their budgets."""
    findings = []
    for kernel, budget in BUDGETS.items():
        resources = named(used, budget[0])
        loops = loops_of(*named(code, budget[0])) if code else None
        print("{:25} {:3} registers, {:3} bytes of stack, {:3} of spills; ".format(kernel, *resources)
              + ", ".join(f"{count} instructions for {mma} mma" for count, mma in loops or []))
        findings += compare(kernel, budget, resources, loops)
    return findings


# ---- self-test --------------------------------------------------------------------------------------------------

SAID = """ptxas info    : Compiling entry function '_Z1kv' for 'sm_90'
ptxas info    : Function properties for _Z1kv
    16 bytes stack frame, 20 bytes spill stores, 28 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 16 bytes cumulative stack size, 1152 bytes smem
"""
LISTING = """.text._Z1kv:
.L_x_0:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*0020*/              @P0  BRA `(.L_x_1) ;
.L_x_2:
        /*0030*/                   IADD3 R0, R0, 0x1, RZ ;
        /*0040*/                   BRA `(.L_x_2) ;
        /*0050*/              @P1  BRA `(.L_x_0) ;
        /*0060*/                   EXIT ;
"""
MOVED_OUT = """.text._Z1mv:
.L_x_0:
        /*0000*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R2+URZ], R3 ;
        /*0010*/             @!P0  BRA `(.L_x_2) ;
.L_x_1:
        /*0020*/                   HGMMA.64x192x16.F32.BF16 R24, R4, gdesc[UR4], R24, gsb0 ;
        /*0030*/              @P1  BRA `(.L_x_0) ;
        /*0040*/                   EXIT ;
.L_x_2:
        /*0050*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R2+URZ], R3 ;
        /*0060*/             @!P0  BRA `(.L_x_2) ;
        /*0070*/                   BRA `(.L_x_1) ;
"""


CALLS = """ptxas info    : Function properties for _Z11do_productsI13__nv_bfloat16Li1ELb0EEv
    0 bytes stack frame, 40 bytes spill stores, 28 bytes spill loads
ptxas info    : Function properties for _Z5othervi
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
"""


def self_test():
    """Reads fake output, and finds each kind of excess."""
    assert called_of(SAID) == {} and called_of(SAID + CALLS) == {"_Z11do_productsI13__nv_bfloat16Li1ELb0EEv": (0, 68), "_Z5othervi": (0, 0)}
    assert resources_of(SAID + CALLS) == resources_of(SAID)
    assert resources_of(SAID) == {"_Z1kv": (128, 16, 48)}
    assert static_smem_of(SAID) == {"_Z1kv": 1152} and too_much_smem(SAID) and not too_much_smem(SAID.replace("1152", "128"))
    assert not too_much_smem(SAID.replace("_Z1kv", "_Z11step_kernelv"))
    code = code_of(LISTING)["_Z1kv"]
    assert len(code[0]) == 7 and loops_of(*code) == [(2, 1)], loops_of(*code)
    straight = code_of(LISTING.replace("EXIT", "HMMA"))["_Z1kv"]
    assert loops_of(*straight) == [(2, 1), (1, 1)], loops_of(*straight)
    moved = code_of(MOVED_OUT)["_Z1mv"]
    assert loops_of(*moved) == [(4, 1)], loops_of(*moved)
    for budget, count in (((128, 16, 48, [(2, 1)]), 0), ((127, 15, 47, [(1, 1)]), 4), ((128, 16, 48, [(2, 2)]), 1), ((128, 16, 48, []), 1)):
        assert len(compare("k", ("_Z1kv", *budget), (128, 16, 48), loops_of(*code))) == count, budget
    assert not compare("k", ("_Z1kv", 128, 16, 48, [(1, 1)]), (128, 16, 48), None)
    with contextlib.redirect_stdout(io.StringIO()):
        findings = judge_called(SAID + CALLS)
    assert "68 bytes of spills, and the budget is 64" in findings[0] and "_Z5othervi is called" in findings[1], findings
    assert len(findings) == 2 + len(CALLED) - 1 and "is not called" in findings[2], findings


def main():
    self_test()
    if sys.argv[1:] == ["--self-test"]:
        return 0
    build, nvcc = os.path.abspath(sys.argv[1]), (sys.argv[2:] + [""])[0] or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    version = version_of(nvcc)
    if not version:
        print("the CUDA compiler is missing: NOT RUN")
        return 0
    used, code, findings, everything = {}, {}, [], ""
    for source in SOURCES:
        cubin, said = compile_kernels(build, nvcc, source)
        used, everything = used | resources_of(said), everything + said
        findings += too_much_smem(said)
        of_source = disassemble(build, nvcc, cubin)
        code = None if code is None or of_source is None else code | of_source
    findings += judge(used, code) + judge_called(everything)
    if version != TOOLKIT:
        print(f"the table was made with toolkit {TOOLKIT}, and this is {version}: NOT HELD")
        return 0
    print("\n".join(findings) or f"all {len(BUDGETS)} kernels are within their budgets")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
