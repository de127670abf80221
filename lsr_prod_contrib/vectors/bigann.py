"""CSR files of the sparse track of BigANN (NeurIPS 2023): sizes, row bounds, columns and values without a header.

Little-endian: int64 rows, columns and number of values; int64 bounds [rows + 1]; int32 columns; float32 values. The
three arrays are read next to each other, each with a file handle of its own, a block of rows at a time: a file of an
object store is never fetched as a whole, and memory does not depend on its size.
"""

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import BinaryIO

import numpy as np

from lsr_prod.corpus.compression import decompressed
from lsr_prod.corpus.source_rows import BadRow
from lsr_prod.errors import LineageError, SourceError
from lsr_prod.storage import Store
from lsr_prod_contrib.vectors.npz import Column, rows_of_columns
from lsr_prod_contrib.vectors.vector import Rules, ValidatedVector

_SIZES = 24
_BLOCK = 1 << 20


def csr_file_vectors(
    store: Store, name: str, ids: Iterator[str | BadRow] | None, rules: Rules
) -> Iterator[tuple[int, ValidatedVector]]:
    """Yield (row number, vector) of every row; columns are term ids."""
    where = f"{store.uri.rstrip('/')}/{name}"
    with ExitStack() as stack:
        handles = _handles(store, name, stack)
        size = handles[0].seek(0, 2)
        rows, columns, values = _sizes(handles[0], size, where)
        if columns > len(rules.vocabulary):
            raise LineageError(
                f"{where} has {columns} columns, the bundle's vocabulary {len(rules.vocabulary)} terms; give the "
                "bundle of its vectors"
            )
        after_bounds = _SIZES + 8 * (rows + 1)
        bounds = _column(handles[0], "bounds", _SIZES, "<i8", rows + 1)
        terms = _column(handles[1], "columns", after_bounds, "<i4", values)
        weights = _column(handles[2], "values", after_bounds + 4 * values, "<f4", values)
        numbers: Iterator[str | BadRow] = map(str, itertools.count()) if ids is None else ids
        yield from rows_of_columns(rows, bounds, terms, weights, numbers, rules, where)
        if ids is not None and next(ids, None) is not None:
            raise SourceError(f"{where} has {rows} rows and more ids than that; give the ids that belong to it")


def _column(handle: BinaryIO, name: str, start: int, kind: str, count: int) -> Column:
    handle.seek(start)
    return Column(name, handle, np.dtype(kind), count)


def _handles(store: Store, name: str, stack: ExitStack) -> list[BinaryIO]:
    if not name.lower().endswith(".gz"):
        return [stack.enter_context(store.open_reader(name)) for _ in range(3)]
    plain = stack.enter_context(tempfile.NamedTemporaryFile(prefix="lsr-csr-"))  # noqa: SIM115
    with store.open_reader(name) as packed, decompressed(packed, "csr.gz") as file:
        head, copied = bytearray(), 0
        # One byte more than declared shows that the file is too long: a file of a few kB cannot fill the disk.
        while (len(head) < _SIZES or copied <= _expected(head)) and (block := file.read1(_BLOCK)):
            head += block[: _SIZES - len(head)]
            plain.write(block)
            copied += len(block)
    plain.flush()
    folder, _, copy = plain.name.rpartition("/")
    return [stack.enter_context(Store(folder).open_reader(copy)) for _ in range(3)]


def _expected(head: bytes | bytearray) -> int:
    """Return the bytes of a file with these sizes."""
    rows, _, values = (int(number) for number in np.frombuffer(bytes(head[:_SIZES]), "<i8"))
    return _SIZES + 8 * (rows + 1) + 8 * values


def _sizes(handle: BinaryIO, size: int, where: str) -> tuple[int, int, int]:
    """Return rows, columns and values; the file has exactly the bytes that they need, so none can be too large."""
    handle.seek(0)
    head = handle.read(_SIZES)
    if len(head) < _SIZES:
        raise SourceError(f"{where} has {size} bytes; a CSR file of BigANN begins with {_SIZES} bytes of sizes")
    rows, columns, values = (int(number) for number in np.frombuffer(head, "<i8"))
    expected = _expected(head)
    if min(rows, columns, values) < 0 or size != expected:
        raise SourceError(
            f"{where} declares {rows} rows, {columns} columns and {values} values, which need {expected} bytes, and "
            f"has {size}; give a CSR file of BigANN"
        )
    return rows, columns, values
