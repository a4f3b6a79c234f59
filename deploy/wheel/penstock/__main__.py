"""`penstock` and `python -m penstock`: the program takes this process's place, so signals and exit codes are its own."""
import os
import sys

from . import PROGRAM


def main():
    os.execv(PROGRAM, ["penstock", *sys.argv[1:]])


if __name__ == "__main__":
    main()
