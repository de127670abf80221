"""Files that take the GPU kit to a machine that has torch with CUDA, but reaches no package index.

    pip download --no-deps --only-binary=:all: --python-version 3.12 --platform manylinux_2_28_x86_64 \\
        --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 -d WHEELS -r benchmarks/gpu/wheels.txt
    python -m benchmarks.gpu.parcels WHEELS OUT [--architecture 90] [--megabytes 50]
    cat OUT/kit.tar.xz.* | tar xJ -C FOLDER      # there, with FOLDER in PYTHONPATH

ONNX Runtime's library for CUDA has kernels of six architectures in 284 MB, and a machine uses those of one: the others
become zeros, which take no room in an archive. Java, pages and tests of packages are left out. ONNX Runtime looks for
CUDA in a folder ``nvidia`` beside its own: link that of torch's environment to it.
"""

import argparse
import lzma
import struct
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from lsr_prod.jobs.terminal.shell import print_result

CUDA = "onnxruntime/capi/libonnxruntime_providers_cuda.so"
_MAGIC = 0xBA55ED50  # of a bundle of kernels for several architectures
_HEADER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes after it
_ENTRY = struct.Struct("<HHIQ")  # kind, version, bytes of this header, bytes after it
_ARCHITECTURE = struct.Struct("<I")
_AT = 28  # of the architecture, in the header of an entry
_MACHINE_CODE = 2  # kind
_LEFT_OUT = (
    "ray/jars/",
    "ray/dashboard/client/",
    "ray/rllib/",
    "ray/serve/",
    "ray/tune/",
    "onnxruntime/capi/libonnxruntime.so",  # for programs in C
)


def main(argv: Sequence[str]) -> int:
    """Write the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--architecture", type=int, default=90, help="of the GPU: 90 is Hopper, 80 Ampere")
    parser.add_argument("--megabytes", type=int, default=50, help="of a part")
    asked = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        for wheel in sorted(asked.wheels.glob("*.whl")):
            unpack(wheel, tree)
        library = tree / CUDA
        if library.is_file():
            library.write_bytes(keep_architecture(library.read_bytes(), asked.architecture))
        packed = Path(scratch) / "kit.tar.xz"
        with lzma.open(packed, "wb", preset=6) as compressed, tarfile.open(fileobj=compressed, mode="w") as archive:
            archive.add(tree, ".")
        parts = split(packed, asked.out, asked.megabytes * 1_000_000)
    print_result({"parts": len(parts), "bytes": sum(part.stat().st_size for part in parts)})
    return 0


def unpack(wheel: Path, tree: Path) -> None:
    """Unpack a wheel with the rights of its programs, and without what a job does not use."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if not member.filename.startswith(_LEFT_OUT):
                path = Path(archive.extract(member, tree))
                path.chmod(path.stat().st_mode | (member.external_attr >> 16 & 0o111))


def keep_architecture(library: bytes, architecture: int) -> bytes:
    """Replace the kernels of all other architectures by zeros; the size and all addresses stay."""
    kept = bytearray(library)
    magic = struct.pack("<I", _MAGIC)
    at = library.find(magic)
    while at >= 0:
        _, version, header, size = _HEADER.unpack_from(library, at)
        end = at + header + size
        if version != 1 or end > len(library):  # four bytes that happen to be equal
            at = library.find(magic, at + 1)
            continue
        entry = at + header
        while entry + _ENTRY.size <= end:
            kind, _, own, held = _ENTRY.unpack_from(library, entry)
            (found,) = _ARCHITECTURE.unpack_from(library, entry + _AT)
            if (kind, found) != (_MACHINE_CODE, architecture):
                kept[entry + own : entry + own + held] = bytes(held)
            entry += own + held
        at = library.find(magic, end)
    return bytes(kept)


def split(packed: Path, out: Path, size: int) -> list[Path]:
    """Copy a file into parts of at most ``size`` bytes."""
    out.mkdir(parents=True, exist_ok=True)
    parts = []
    with packed.open("rb") as file:
        while part := file.read(size):
            parts.append(out / f"{packed.name}.{len(parts):02d}")
            parts[-1].write_bytes(part)
    return parts


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
