"""The digest of rows of the sparse table: a sum over rows, so that those of files and snapshots are sums too.

The digest of a row is the sha256 of its doc_id, terms, impacts and content_hash; the digest of several rows is the sum
of theirs modulo 2**256. So it is independent of the order of rows and of files, and a duplicated row changes it. A part
has the digest of its rows in its name (``part``): the digest of a snapshot follows from its list of files.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

DIGESTED = ("doc_id", "terms", "impacts", "content_hash")
"""Columns that the digest covers."""

MODULUS = 1 << 256
"""Digests are below this number."""

_BATCH = 4096
_NAME = re.compile(r"(?:^|/)part-[0-9a-f]{64}-([0-9a-f]{64})(?:-\d+)?\.parquet$")


def row_digest(rows: pa.Table) -> int:
    """Return the digest of rows, below 2**256."""
    return digest_batches(rows.select(list(DIGESTED)).to_batches(max_chunksize=_BATCH))


def digest_batches(batches: Iterable[pa.RecordBatch]) -> int:
    """Return the digest of the rows of small batches, below 2**256."""
    return sum(_sum(batch) for batch in batches) % MODULUS


def digest_in_name(path: str) -> int | None:
    """Return the digest of the rows of a part from its name; None: its name has none."""
    found = _NAME.search(path)
    return int(found[1], 16) if found else None


def combine_digests(digests: Iterable[int]) -> str:
    """Return the digest of a table, 64 hex digits, from the digests of its files."""
    return f"{sum(digests) % MODULUS:064x}"


def _sum(batch: pa.RecordBatch) -> int:
    return sum(int.from_bytes(hashlib.sha256(row).digest(), "big") for row in _rows(batch))


def _rows(batch: pa.RecordBatch) -> Iterator[bytes]:
    (first, terms), (second, impacts) = _lists(batch["terms"]), _lists(batch["impacts"])
    ids, hashes = batch["doc_id"].to_pylist(), batch["content_hash"].to_pylist()
    for i, (doc_id, content) in enumerate(zip(ids, hashes, strict=True)):
        fields = (
            doc_id.encode(),
            terms[first[i] : first[i + 1]],
            impacts[second[i] : second[i + 1]],
            content.encode(),
        )
        # Lengths first, so that no two different rows have the same bytes.
        yield b"".join(part for field in fields for part in (len(field).to_bytes(8, "big"), field))


def _lists(column: pa.ListArray) -> tuple[list[int], memoryview]:
    """Return the bounds of the lists in bytes [n + 1], and their values as 32-bit integers."""
    offsets: npt.NDArray[np.int64] = column.offsets.to_numpy().astype(np.int64)
    values = np.ascontiguousarray(column.flatten().to_numpy(), "<i4")  # of this slice only
    return ((offsets - offsets[0]) * 4).tolist(), memoryview(values.tobytes())
