#!/usr/bin/env python3
"""Writes the contents of a model file as read by the gguf package (the reference reader of the format), one line for
each key and tensor, for tests/engine/test_gguf.c. The committed file was made with gguf 0.19.0 from the model of
98362432 bytes:

    python tests/vectors/make_gguf.py models/SmolLM2-135M-Instruct.Q4_1.gguf > tests/vectors/gguf_smollm2.txt

    key    NAME TYPE ELEMENT COUNT BYTES CRC32        of the payload in the file
    tensor NAME TYPE OFFSET BYTES CRC32 DIM...        offset in the file; CRC-32 of the first 256 bytes of data
"""
import sys
import zlib

from gguf import GGUFReader


def key_line(field):
    array = len(field.types) > 1
    payload = b"".join(part.tobytes() for part in field.parts[5 if array else 3:])
    element = field.types[1] if array else field.types[0]
    count = int(field.parts[4][0]) if array else 1
    return f"key {field.name} {int(field.types[0])} {int(element)} {count} {len(payload)} {zlib.crc32(payload)}"


def tensor_line(tensor, data):
    start = int(tensor.data_offset)
    head = data[start:start + min(256, int(tensor.n_bytes))].tobytes()
    dims = " ".join(str(int(dim)) for dim in tensor.shape)
    return f"tensor {tensor.name} {int(tensor.tensor_type)} {start} {int(tensor.n_bytes)} {zlib.crc32(head)} {dims}"


def main():
    reader = GGUFReader(sys.argv[1])
    for name, field in reader.fields.items():
        if not name.startswith("GGUF."):
            print(key_line(field))
    for tensor in reader.tensors:
        print(tensor_line(tensor, reader.data))


main()
