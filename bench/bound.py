"""Says how fast a kernel could read its weights if the memory were infinitely fast, by llvm-mca.

    bench/bound.py build/CMakeFiles/kernels.dir/kernels/cpu/simd/matmul_avx2.c.o q4_1_1 320 --cpu znver3 skylake

Takes the longest loop of a function from an object file: for a product it is one block of a panel, 16 outputs times 32
inputs. Prints for each processor the cycles of an iteration, the most used execution unit, and the bytes per second of one
core at --ghz. BYTES is what an iteration reads of the weights; it prefetches once for each 64 of them.
"""
import argparse
import re
import subprocess

ITERATIONS = 1000


def output_of(command, text=None):
    return subprocess.run(command, input=text, check=True, stdout=subprocess.PIPE, text=True).stdout


def instructions_of(path, function):
    """Returns the addresses and texts of a function's instructions."""
    listing = output_of(["objdump", "-d", "--no-show-raw-insn", f"--disassemble={function}", path])
    found = re.findall(r"^ *([0-9a-f]+):\t([^#\n]+)", listing, re.MULTILINE)
    return [(int(address, 16), text.strip()) for address, text in found]


def length(loop):
    return loop[1] - loop[0]


def longest_loop(instructions, lines):
    """Returns the loop's instructions without jumps; those of the shortest loop that prefetches `lines` times."""
    jumps = [(address, re.match(r"j\w+ +([0-9a-f]+)", text)) for address, text in instructions]
    loops = [(int(jump[1], 16), address) for address, jump in jumps if jump and int(jump[1], 16) < address]
    if not loops:
        raise SystemExit("no loop: is it a function of this object file, compiled for speed?")
    first, last = max(loops, key=length)
    fetches = [at for at, text in instructions if text.startswith("prefetch")]
    inner = min((loop for loop in loops if any(loop[0] <= at <= loop[1] for at in fetches)), default=(0, 0), key=length)
    body = [(at, text) for at, text in instructions if first <= at <= last and not re.match(r"j|nop|cs nop|data16", text)]
    return [text for at, text in body for _ in range(lines if inner[0] <= at <= inner[1] else 1)]


def analysis(loop, cpu):
    """Returns the cycles of an iteration, and the name and the use of the most used unit."""
    report = output_of(["llvm-mca", "-mtriple=x86_64", f"-mcpu={cpu}", f"-iterations={ITERATIONS}"], "\n".join(loop))
    cycles = int(re.search(r"Total Cycles: +(\d+)", report)[1]) / ITERATIONS
    names = re.findall(r"^\[[\d.]+\] +- (\w+)$", report, re.MULTILINE)
    uses = re.search(r"Resource pressure per iteration:\n.*\n(.*)", report)[1].split()
    use, name = max((float(use), name) for use, name in zip(uses, names) if use != "-")
    return cycles, name, use


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("object")
    parser.add_argument("function")
    parser.add_argument("bytes", type=int, metavar="BYTES")
    parser.add_argument("--cpu", nargs="+", default=["znver3", "skylake", "alderlake"], help="names of llvm-mca")
    parser.add_argument("--ghz", type=float, default=3.5)
    options = parser.parse_args()
    loop = longest_loop(instructions_of(options.object, options.function), -(-options.bytes // 64))
    for cpu in options.cpu:
        cycles, name, use = analysis(loop, cpu)
        print(f"{cpu}: {len(loop)} instructions, {cycles:.1f} cycles, {name} busy for {use:.1f}, "
              f"{options.bytes * options.ghz / cycles:.1f} GB/s at {options.ghz} GHz")


if __name__ == "__main__":
    main()
