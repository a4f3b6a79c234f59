"""Penstock, an HTTP inference server for language models. PROGRAM is the path of its program."""
import pathlib

PROGRAM = str(pathlib.Path(__file__).parent / "bin" / "penstock")
