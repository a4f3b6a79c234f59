"""Reads weights of any type of GGUF: by the `gguf` package, or by ggml's own library for the types that the package
cannot read. GGML_LIBRARY is the path of libggml-base.so, which the package llama-cpp-python contains.
"""
import ctypes
import os

import numpy as np
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

# Types that the package cannot read: number, weights and bytes of a block, and the library's function.
BY_LIBRARY = {"Q1_0": (41, 128, 18, "dequantize_row_q1_0"), "Q2_0": (42, 64, 18, "dequantize_row_q2_0")}


def shape_of(name, kind):
    """Returns a type's number, and the weights and bytes of a block. `kind` is the package's value of the type."""
    return BY_LIBRARY[name][:3] if name in BY_LIBRARY else (int(kind), *GGML_QUANT_SIZES[kind])


def weights_of(name, kind, data):
    """Returns the weights of whole blocks as float32."""
    data = np.ascontiguousarray(data, dtype=np.uint8).reshape(-1)
    if name not in BY_LIBRARY:
        return dequantize(data, kind).astype(np.float32).reshape(-1)
    _, elements, size, function = BY_LIBRARY[name]
    out = np.empty(data.size // size * elements, dtype=np.float32)
    read = getattr(ctypes.CDLL(os.environ["GGML_LIBRARY"]), function)
    read.restype, read.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    read(data.ctypes.data, out.ctypes.data, out.size)
    return out
