"""``.npy`` files of one dimension: those of a shard, of tombstones and of term weights.

numpy reads a header with ``ast.literal_eval``. In CPython 3.11 that raises SystemError where a garbage collection in
the middle of it lets another thread do the same (python/cpython issue 106905), and searchers open shards in threads.
"""

import io
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ArtifactError

HEADER_LIMIT = 1024  # bytes that hold a header of one dimension
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '(\|[biu]1|[<>][iu][248]|[<>]f[248])', 'fortran_order': (?:False|True), "
    rb"'shape': \((\d{1,18}),\), \} *\n",
    re.DOTALL,
)


def npy_bytes(array: npt.NDArray[Any]) -> bytes:
    """Return the content of an ``.npy`` file."""
    return npy_header(array.dtype, len(array)) + array.tobytes()


def npy_header(dtype: np.dtype[Any], length: int) -> bytes:
    """Return the header of a file; its size does not depend on the length, since numpy pads it."""
    header = io.BytesIO()
    fields = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(header, fields)
    return header.getvalue()


def parse_npy_header(head: bytes, size: int) -> tuple[np.dtype[Any], int]:
    """Read the header of a file of ``size`` bytes that begins with ``head``.

    Returns:
        The type of the items, and the number of bytes before them.

    Raises:
        ValueError: the file is not an array of numbers of one dimension, or has not the length that it states.
    """
    header = _HEADER.match(head)
    if header is None or int.from_bytes(head[8:10], "little") != header.end() - 10:
        raise ValueError("not an array of numbers of one dimension")
    dtype = np.dtype(header[1].decode())
    if int(header[2]) * dtype.itemsize != size - header.end():
        raise ValueError("not of the length that it states")
    return dtype, header.end()


def parse_npy(data: bytes, name: str, remedy: str) -> npt.NDArray[Any]:
    """Return a copy of the array of an ``.npy`` file; ``name`` and ``remedy`` are for the ArtifactError."""
    try:
        dtype, start = parse_npy_header(data[:HEADER_LIMIT], len(data))
    except ValueError as error:
        raise ArtifactError(f"{name} cannot be read ({error}); {remedy}") from error
    return np.frombuffer(data, dtype, offset=start).copy()
