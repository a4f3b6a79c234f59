"""Brings C files into the form of .clang-format: `tests/format.py FILE...`, or all of them without arguments.

clang-format does the work; what it does badly is done around it: section rules (`/* ---- name ---- */`) are cut to
the width and a comment that makes its line too wide is moved above it first, and a comment's end that was left
alone on a line gets the last word for company.
"""
import os
import re
import subprocess
import sys

WIDTH = 100
FOLDERS = ["config", "kernels", "engine", "scheduler", "server", "bench", "tests"]


def rules_cut(text):
    return re.sub(r"^(/\* -+ .*? )-{3,} ?\*/$", lambda m: m[1] + "-" * (WIDTH - 1 - len(m[1]) - 3) + " */", text, flags=re.M)


def trailing_moved(text):
    def moved(match):
        if len(match[0]) <= WIDTH:
            return match[0]
        return f"{match[1]}{match[3]}\n{match[1]}{match[2]}"
    return re.sub(r"^( *)([^ /*#].*[;,]) +(/\*.*\*/)$", moved, text, flags=re.M)


def end_joined(match):
    """Moves the last word beside a comment's end that stands alone; comments of several paragraphs end like that."""
    text = match[0]
    if re.search(r"\n *\*\n", text):
        return text
    head, word, indent = re.fullmatch(r"(?s)(.*\S) +(\S+)\n( *)\*/", text).groups()
    return f"{head}\n{indent}* {word} */"


def ends_joined(text):
    return re.sub(r"(?m)^ */\*(?:(?!\*/)[^\n]*[^\n/]\n)+ *\*/(?=\n)", end_joined, text)


def is_cpp(path):
    return path.endswith((".cu", ".cuh", ".cpp")) or path.startswith(("kernels/cuda/", "tests/cuda"))


def main():
    paths = sys.argv[1:] or sorted(
        os.path.join(folder, name) for top in FOLDERS for folder, _, names in os.walk(top)
        for name in names if name.endswith((".c", ".h", ".inc", ".cu", ".cuh", ".cpp")))
    for path in paths:
        with open(path, encoding="utf-8") as file:
            before = file.read()
        done = subprocess.run(["clang-format", "--assume-filename", "any.cpp" if is_cpp(path) else "any.c"], input=trailing_moved(rules_cut(before)), text=True,
                              capture_output=True, check=True).stdout
        done = ends_joined(done)
        if done != before:
            with open(path, "w", encoding="utf-8") as file:
                file.write(done)


if __name__ == "__main__":
    main()
