"""Packs folders of vectors as tests/vectors/NAME.tar.xz, which is committed instead of the folder.

    tests/vectors/pack.py NAME ...

The make scripts of these folders call pack(). CMake unpacks the archives (unpack.cmake). They exist to keep the tree small:
bench/gpu.sh carry takes it to a GPU with at most 64 MiB. Equal folders give equal archives.
"""
import hashlib
import io
import pathlib
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
STAMP = ".unpacked"  # in each folder: the SHA-256 of its archive


def pack(name, at=HERE):
    """Packs at/NAME and marks it as unpacked. Returns the bytes of the archive."""
    folder, archive = at / name, at / f"{name}.tar.xz"
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != STAMP)
    assert files, f"{folder} has no files"
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for path in files:
            data = path.read_bytes()
            entry = tarfile.TarInfo(str(path.relative_to(at)))
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    (folder / STAMP).write_text(hashlib.sha256(archive.read_bytes()).hexdigest())
    return archive.stat().st_size


if __name__ == "__main__":
    for one in sys.argv[1:]:
        print(one, pack(one), "bytes")
