"""Formats C files by .clang-format: `tests/format.py FILE...`, or all of them without arguments.

clang-format does most of it. Before it runs, section rules (`/* ---- name ---- */`) are cut to the width, and a comment
that makes its line too wide is moved above that line. Afterwards, the end of a comment that was left alone on a line is
joined with the last word.
"""
import argparse
import os
import re
import subprocess

WIDTH = 100
FOLDERS = ["config", "kernels", "engine", "scheduler", "server", "bench", "tests"]


def rules_cut(text):
    def cut(match):
        return match[1] + "-" * (WIDTH - 1 - len(match[1]) - 3) + " */"
    return re.sub(r"^(/\* -+ .*? )-{3,} ?\*/$", cut, text, flags=re.M)


def trailing_moved(text):
    def moved(match):
        if len(match[0]) <= WIDTH:
            return match[0]
        return f"{match[1]}{match[3]}\n{match[1]}{match[2]}"
    return re.sub(r"^( *)([^ /*#].*[;,]) +(/\*.*\*/)$", moved, text, flags=re.M)


def end_joined(match):
    """Moves a comment's end that is alone on its line to the end of the last line if it fits there, else next to that
    line's last word.

    Comments of several paragraphs end on a separate line, and so do drawings: their last line is indented.
    """
    text = match[0]
    if re.search(r"\n *\*\n", text) or re.search(r"\n *\*  +\S[^\n]*\n *\*/$", text):
        return text
    head, word, indent = re.fullmatch(r"(?s)(.*\S) +(\S+)\n( *)\*/", text).groups()
    joined = f"{head} {word} */"
    return joined if len(joined.split("\n")[-1]) <= WIDTH else f"{head}\n{indent}* {word} */"


def ends_joined(text):
    return re.sub(r"(?m)^ */\*(?:(?!\*/)[^\n]*[^\n/]\n)+ *\*/(?=\n)", end_joined, text)


def is_cpp(path):
    return path.endswith((".cu", ".cuh", ".cpp")) or path.startswith(("kernels/cuda/", "tests/cuda"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", help="default: all C, C++ and CUDA files of the tree")
    paths = parser.parse_args().files or sorted(
        os.path.join(folder, name) for top in FOLDERS for folder, _, names in os.walk(top)
        for name in names if name.endswith((".c", ".h", ".inc", ".cu", ".cuh", ".cpp")))
    for path in paths:
        with open(path, encoding="utf-8") as file:
            before = file.read()
        done = subprocess.run(["clang-format", "--assume-filename", "any.cpp" if is_cpp(path) else "any.c"],
                              input=trailing_moved(rules_cut(before)), text=True, capture_output=True,
                              check=True).stdout
        done = ends_joined(done)
        if done != before:
            with open(path, "w", encoding="utf-8") as file:
                file.write(done)


if __name__ == "__main__":
    main()
