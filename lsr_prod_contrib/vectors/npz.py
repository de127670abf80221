"""CSR matrices as ``scipy.sparse.save_npz`` writes them, with numpy alone and a block of rows in memory.

The archive has ``data``, ``indices``, ``indptr``, ``shape`` and ``format``. Nothing in it is trusted: pickles are never
loaded, and lengths and bounds are checked. Ids are in a file next to it, one per row: ``<name>.ids.jsonl`` or
``<name>.ids.txt``.
"""

import json
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from lsr_prod.corpus.compression import Readable
from lsr_prod.corpus.lines import lines
from lsr_prod.corpus.pinned_file import DamagedFileError
from lsr_prod.corpus.source_rows import BadRow, parse_line, shorten
from lsr_prod.errors import LineageError, SourceError
from lsr_prod.storage.disk import scratch_folder
from lsr_prod_contrib.vectors.jsonl import new_file
from lsr_prod_contrib.vectors.vector import Rules, ValidatedVector, VectorRow, id_problem, row_of_ids

_ROWS = 256
_ID_LIMIT = 1 << 16
_COPY = 1 << 20
_WIDEST = 64  # bytes of one value


def csr_vectors(
    file: BinaryIO, ids: Iterator[str | BadRow], rules: Rules, where: str
) -> Iterator[tuple[int, ValidatedVector]]:
    """Yield (row number, vector) of every row; columns are term ids."""
    with _open_archive(file) as archive:
        rows = _check_shape(archive, rules, where)
        with (
            _open(archive, "indptr", where) as bounds,
            _open(archive, "indices", where) as terms,
            _open(archive, "data", where, kinds="iuf") as weights,
        ):
            if bounds.count != rows + 1 or terms.count != weights.count:
                raise SourceError(f"{where}: data, indices, indptr and shape do not fit together; write it again")
            yield from rows_of_columns(rows, bounds, terms, weights, ids, rules, where)
    if next(ids, None) is not None:
        raise SourceError(f"{where} has {rows} rows and more ids than that; give the ids that belong to it")


def read_ids(file: Readable, *, json_lines: bool) -> Iterator[str | BadRow]:
    """Yield the ids of an id file: one per line, plain, or as JSON (a string, or an object with ``id``)."""
    for _, line, whole in lines(file, 0, None, _ID_LIMIT):
        yield _id(line, whole, json_lines)


def _id(line: bytes, whole: bool, json_lines: bool) -> str | BadRow:
    if not whole:
        return BadRow("row_too_long", f"the id is longer than {_ID_LIMIT} bytes", None, shorten(line))
    value = parse_line(line, _json_id if json_lines else _plain_id)
    if isinstance(value, BadRow):
        return value
    problem = id_problem(value)
    return BadRow(*problem, None, shorten(line)) if problem else str(value)


def _plain_id(text: str) -> str:
    return text.removesuffix("\r")


def _json_id(text: str) -> object:
    value = json.loads(text.removesuffix("\r"))
    return value.get("id") if isinstance(value, dict) else value


@dataclass(frozen=True, slots=True)
class Column:
    """A one-dimensional array, read in pieces from the position of its file."""

    name: str
    file: IO[bytes]
    dtype: np.dtype[Any]
    count: int

    def __enter__(self) -> "Column":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def take(self, count: int) -> npt.NDArray[Any]:
        """Return the next ``count`` values."""
        wanted = count * self.dtype.itemsize
        data = bytearray()
        while len(data) < wanted:
            block = self.file.read(min(wanted - len(data), _COPY))
            if not block:
                raise DamagedFileError(f"{self.name} ends early")
            data += block
        return np.frombuffer(data, dtype=self.dtype)


def _open_archive(file: BinaryIO) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except (NotImplementedError, ValueError) as error:  # an impossible version; a name that is not UTF-8; a bad place
        raise DamagedFileError(f"the archive cannot be opened ({error})") from error


def _open(archive: zipfile.ZipFile, name: str, where: str, kinds: str = "iu", dimensions: int = 1) -> Column:
    try:
        file = archive.open(f"{name}.npy")
    except KeyError as error:
        raise SourceError(f"{where} has no {name}; give what scipy.sparse.save_npz wrote of a CSR matrix") from error
    except (NotImplementedError, RuntimeError) as error:  # an unknown compression; a password
        raise SourceError(
            f"{where}: {name} cannot be unpacked ({error}); write it again with numpy or scipy"
        ) from error
    except ValueError as error:  # a name that is not UTF-8; a bad place
        raise DamagedFileError(f"{name} cannot be opened ({error})") from error
    try:
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, _, dtype = read(file)
    except (ValueError, KeyError, SyntaxError, RecursionError, TokenError) as error:
        file.close()
        raise SourceError(f"{where}: {name} is not a supported array ({error}); write it again") from error
    if dtype.hasobject or dtype.kind not in kinds or dtype.itemsize > _WIDEST or len(shape) != dimensions:
        file.close()
        raise SourceError(f"{where}: {name} is {dtype} with {len(shape)} dimensions; give a CSR matrix of numbers")
    return Column(name, file, dtype, shape[0] if shape else 1)


def _check_shape(archive: zipfile.ZipFile, rules: Rules, where: str) -> int:
    """Return the number of rows."""
    with _open(archive, "format", where, kinds="SU", dimensions=0) as column:
        # Bytes or UCS-4 of either byte order: numpy rejects a str with invalid code points.
        name = bytes(filter(None, column.take(1).tobytes())).decode("ascii", "replace")
    if name != "csr":
        raise SourceError(f"{where} holds a {name!r} matrix; save it as CSR (matrix.tocsr())")
    with _open(archive, "shape", where) as column:
        if column.count != 2:
            raise SourceError(f"{where}: shape has {column.count} numbers instead of 2; write it again")
        rows, columns = (int(value) for value in column.take(2))
    if columns != len(rules.vocabulary):
        raise LineageError(
            f"{where} has {columns} columns, the bundle's vocabulary {len(rules.vocabulary)} terms; give the bundle "
            "of its vectors"
        )
    return rows


def rows_of_columns(
    rows: int, bounds: Column, terms: Column, weights: Column, ids: Iterator[str | BadRow], rules: Rules, where: str
) -> Iterator[tuple[int, ValidatedVector]]:
    """Yield (row number, vector) of every row of a CSR matrix."""
    last = int(bounds.take(1)[0])
    if last != 0:
        raise DamagedFileError("indptr does not begin with 0")
    for start in range(0, rows, _ROWS):
        block = [last, *(int(bound) for bound in bounds.take(min(_ROWS, rows - start)))]
        lengths = [high - low for low, high in pairwise(block)]
        if min(lengths) < 0 or max(lengths) > len(rules.vocabulary) or block[-1] > terms.count:
            raise DamagedFileError(f"indptr is not a list of row bounds near row {start}")
        some_terms = terms.take(block[-1] - last).astype(np.int64)
        some_weights = weights.take(block[-1] - last).astype(np.float64)
        for i, (low, high) in enumerate(pairwise(block)):
            doc_id = next(ids, None)
            if doc_id is None:
                raise SourceError(f"{where} has {rows} rows and {start + i} ids; give the ids that belong to it")
            part = slice(low - last, high - last)
            yield start + i, _validate(doc_id, some_terms[part], some_weights[part], rules)
        last = block[-1]
    if last != terms.count:
        raise DamagedFileError(f"indptr ends at {last} of {terms.count} values")


def _validate(
    doc_id: str | BadRow, terms: npt.NDArray[np.int64], weights: npt.NDArray[np.float64], rules: Rules
) -> ValidatedVector:
    if isinstance(doc_id, BadRow):
        return doc_id
    row = row_of_ids(doc_id, terms, weights, rules)
    if isinstance(row, VectorRow):
        return row
    shown = json.dumps(dict(zip(terms.tolist(), weights.tolist(), strict=True)))
    return BadRow(*row, doc_id, shorten(shown))


@dataclass(frozen=True, slots=True)
class CsrBlock:
    """Some rows of a matrix."""

    ids: list[str]  # of its n rows
    lengths: npt.NDArray[np.int64]  # int64 [n], values of each row
    terms: npt.NDArray[np.int32]  # int32 [nnz], in increasing order inside a row
    weights: npt.NDArray[Any]  # [nnz], of the type of the matrix


def write_csr(path: Path, ids: Path, blocks: Iterable[CsrBlock], columns: int, dtype: npt.DTypeLike) -> tuple[int, int]:
    """Write a matrix, and its ids as JSON strings, one per line. Memory: one block; disk: twice the matrix.

    Returns:
        Number of rows and of values.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = values = 0
    with scratch_folder(parent=path.parent, prefix=".csr-") as scratch:
        names = ("lengths", "indices", "data")
        with new_file(ids) as id_file:
            files = {name: (scratch / name).open("wb") for name in names}
            try:
                for block in blocks:
                    files["lengths"].write(block.lengths.astype(np.int64).tobytes())
                    files["indices"].write(block.terms.astype(np.int32).tobytes())
                    files["data"].write(block.weights.astype(dtype).tobytes())
                    id_file.writelines(json.dumps(doc_id, ensure_ascii=False).encode() + b"\n" for doc_id in block.ids)
                    rows, values = rows + len(block.ids), values + len(block.terms)
            finally:
                for file in files.values():
                    file.close()
            # The matrix first: ids without a matrix would look like a finished export.
            with new_file(path) as target:
                _assemble(target, scratch, rows, values, columns, np.dtype(dtype))
    return rows, values


def _assemble(target: IO[bytes], folder: Path, rows: int, values: int, columns: int, dtype: np.dtype[Any]) -> None:
    # scipy requires one type for both, and uses int32 if it fits.
    index = np.dtype(np.int32 if values <= np.iinfo(np.int32).max else np.int64)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        _write(archive, "indices", index, values, _stored(folder / "indices", np.dtype(np.int32), index))
        _write(archive, "indptr", index, rows + 1, _bounds(folder / "lengths", index))
        _write(archive, "format", np.dtype("S3"), None, [b"csr"])
        _write(archive, "shape", np.dtype(np.int64), 2, [np.array([rows, columns], np.int64).tobytes()])
        _write(archive, "data", dtype, values, _stored(folder / "data", dtype, dtype))


def _write(
    archive: zipfile.ZipFile, name: str, dtype: np.dtype[Any], count: int | None, pieces: Iterable[bytes]
) -> None:
    entry = zipfile.ZipInfo(f"{name}.npy")  # with a fixed date: equal matrices make equal files
    entry.compress_type = zipfile.ZIP_DEFLATED
    shape = () if count is None else (count,)
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with archive.open(entry, "w", force_zip64=True) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for piece in pieces:
            file.write(piece)


def _stored(path: Path, dtype: np.dtype[Any], wanted: np.dtype[Any]) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_COPY):
            yield np.frombuffer(piece, dtype).astype(wanted).tobytes()


def _bounds(path: Path, wanted: np.dtype[Any]) -> Iterator[bytes]:
    last = np.int64(0)
    yield np.zeros(1, wanted).tobytes()
    with path.open("rb") as file:
        while piece := file.read(_COPY):
            bounds = last + np.cumsum(np.frombuffer(piece, np.int64))
            last = bounds[-1]
            yield bounds.astype(wanted).tobytes()
