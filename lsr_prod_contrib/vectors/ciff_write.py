"""Export of vectors as CIFF: postings lists by rising term, then document records; memory of a range of terms."""

import shutil
import struct
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import StorageError
from lsr_prod.storage.disk import scratch_folder
from lsr_prod_contrib.vectors.ciff import CIFF_VERSION
from lsr_prod_contrib.vectors.inversion import Inversion
from lsr_prod_contrib.vectors.jsonl import new_file
from lsr_prod_contrib.vectors.npz import CsrBlock
from lsr_prod_contrib.vectors.wire import MESSAGE_LIMIT, encode_varints, varint, varint_lengths

_PARTS = 128
_LARGEST = (1 << 31) - 1
_SHORTEST = 6  # bytes of a posting: key and length, gap and frequency with a key each
_REMEDY = "set vectors.format to jsonl, npz or parquet"

Ints = npt.NDArray[np.int64]


def write_ciff(path: Path, blocks: Iterable[CsrBlock], terms: Sequence[str], description: str) -> tuple[int, int]:
    """Write vectors; their order numbers the documents. Terms without a posting have no list.

    Returns:
        Number of documents and of postings.

    Raises:
        StorageError: the output exists, or CIFF cannot hold so many documents or such a long postings list.
    """
    order = sorted(range(len(terms)), key=lambda term: terms[term].encode())
    rank = np.empty(len(terms), np.int64)
    rank[order] = np.arange(len(terms))
    frequency, total, documents = np.zeros(len(terms), np.int64), 0, 0
    with scratch_folder(prefix="lsr-ciff-") as scratch:
        inversion = Inversion(scratch, len(terms), _PARTS)
        with tempfile.TemporaryFile() as records:
            for block in blocks:
                numbers = np.arange(documents, documents + len(block.ids))
                if documents + len(block.ids) > _LARGEST:
                    raise StorageError(f"{path}: CIFF numbers at most {_LARGEST} documents; {_REMEDY}")
                ranks = rank[block.terms]
                inversion.add(ranks, np.repeat(numbers, block.lengths), block.weights)
                frequency += np.bincount(ranks, minlength=len(terms))
                sums = np.concatenate([[0], np.cumsum(block.weights, dtype=np.int64)])
                lengths = np.diff(sums[np.concatenate([[0], np.cumsum(block.lengths)])])
                for number, doc_id, length in zip(numbers.tolist(), block.ids, lengths.tolist(), strict=True):
                    records.write(_delimited(_record(number, doc_id, min(length, _LARGEST))))
                documents, total = documents + len(block.ids), total + int(sums[-1])
            names = [terms[term] for term in order]
            longest = int(frequency.argmax())
            if _SHORTEST * int(frequency[longest]) - 2 > MESSAGE_LIMIT:  # no gap of document 0
                raise _too_long(names[longest], int(frequency[longest]))
            records.seek(0)
            with new_file(path) as file:
                lists = int((frequency > 0).sum())
                file.write(_delimited(_header(lists, documents, total, description)))
                _write_lists(file, inversion, names)
                shutil.copyfileobj(records, file)
    return documents, int(frequency.sum())


def postings_message(term: str, documents: Ints, frequencies: Ints) -> bytes:
    """Return the message of a postings list."""
    gaps = np.diff(documents, prepend=0).astype(np.uint64)
    weights = frequencies.astype(np.uint64)
    # A number of 0 is not written: the gap of document 0.
    of_gap = np.where(gaps > 0, 1 + varint_lengths(gaps), 0)
    body = of_gap + 1 + varint_lengths(weights)
    starts = np.concatenate([[0], np.cumsum(2 + body)]).astype(np.int64)
    out = np.zeros(starts[-1], np.uint8)
    starts = starts[:-1]
    out[starts], out[starts + 1] = 0x22, body
    some = gaps > 0
    out[starts[some] + 2] = 0x08
    encode_varints(out, starts[some] + 3, gaps[some])
    out[starts + 2 + of_gap] = 0x10
    encode_varints(out, starts + 3 + of_gap, weights)
    name = term.encode()
    head = _text_field(1, name) + _number_field(2, len(documents)) + _number_field(3, int(frequencies.sum()))
    return head + out.tobytes()


def _write_lists(file: IO[bytes], inversion: Inversion, names: Sequence[str]) -> None:
    for part in range(inversion.parts):
        ranks, documents, weights = inversion.read(part)
        present, starts, sizes = np.unique(ranks, return_index=True, return_counts=True)
        ends = starts + sizes
        for term, start, end in zip(present.tolist(), starts.tolist(), ends.tolist(), strict=True):
            message = postings_message(names[term], documents[start:end], weights[start:end])
            if len(message) > MESSAGE_LIMIT:
                raise _too_long(names[term], end - start)
            file.write(_delimited(message))


def _too_long(term: str, documents: int) -> StorageError:
    return StorageError(
        f"the postings list of {term!r} has {documents} documents and more than {MESSAGE_LIMIT} bytes, which no reader "
        f"of CIFF accepts; {_REMEDY}"
    )


def _header(lists: int, documents: int, total: int, description: str) -> bytes:
    numbers = (CIFF_VERSION, lists, documents, lists, documents, total)
    average = total / documents if documents else 0.0
    return (
        b"".join(_number_field(field, number) for field, number in enumerate(numbers, start=1))
        + (b"\x39" + struct.pack("<d", average) if average else b"")
        + _text_field(8, description.encode())
    )


def _record(number: int, doc_id: str, length: int) -> bytes:
    return _number_field(1, number) + _text_field(2, doc_id.encode()) + _number_field(3, length)


def _number_field(field: int, number: int) -> bytes:
    return varint(field << 3) + varint(number) if number else b""


def _text_field(field: int, text: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(text)) + text if text else b""


def _delimited(message: bytes) -> bytes:
    return varint(len(message)) + message
