"""CIFF, the Common Index File Format (arXiv 2003.08276) of Anserini, PISA and Terrier: a file of postings lists.

A file is a sequence of delimited protocol buffers: a header, the postings lists of all terms, a record per document. A
posting has the gap to the document before it in its list (the first: its number) and a frequency, here the impact.
Vectors need the postings of a document together, so lists are written to disk by ranges of documents and read again
range by range: memory is bounded by a postings list and a range.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lsr_prod.corpus.compression import Readable
from lsr_prod.corpus.pinned_file import DamagedFileError
from lsr_prod.corpus.source_rows import BadRow, shorten
from lsr_prod.storage.disk import scratch_folder
from lsr_prod_contrib.vectors.inversion import Inversion
from lsr_prod_contrib.vectors.vector import Rules, ValidatedVector, VectorRow, id_problem, row_of_ids
from lsr_prod_contrib.vectors.wire import DelimitedReader, decode_varints, fields, signed32, varint_lengths

CIFF_VERSION = 1

_PART_BYTES = 32_000_000
_MOST_PARTS = 512
_ROWS = 65_536
_POSTINGS_KEY, _DOCID_KEY, _TF_KEY = 0x22, 0x08, 0x10

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Header:
    """Numbers of the header that a reader needs."""

    version: int  # of the format
    lists: int  # number of postings lists in the file
    documents: int  # number of document records in the file


@dataclass(frozen=True, slots=True)
class PostingsList:
    """Postings of one term."""

    term: str  # the term
    documents: Ints  # int64 [n], numbers, as they are in the file
    frequencies: Ints  # int64 [n], int32 numbers of any sign


def ciff_vectors(file: Readable, size: int, rules: Rules) -> Iterator[tuple[int, ValidatedVector]]:
    """Yield (number of the document, vector) of every document record; the weights are the frequencies."""
    reader = DelimitedReader(file)
    header = parse_header(_expect(reader, "the header"))
    parts = min(_MOST_PARTS, 1 + size // _PART_BYTES)
    with scratch_folder(prefix="lsr-ciff-") as scratch:
        inversion = Inversion(scratch, header.documents, parts)
        unknown: list[str] = []
        for number in range(header.lists):
            found = parse_list(_expect(reader, f"postings list {number}"))
            if len(found.documents) and found.documents[-1] >= header.documents:
                raise DamagedFileError(f"{found.term!r} has document {found.documents[-1]} of {header.documents}")
            term = rules.vocabulary.ids.get(found.term)
            if term is None:
                unknown.append(found.term)
                term = -len(unknown)
            inversion.add(found.documents, term, found.frequencies)
        for part in range(inversion.parts):
            document, terms, weights = inversion.read(part)
            first, stop = inversion.bounds(part)
            for low in range(first, min(stop, header.documents), _ROWS):  # a short file can declare 2**31 documents
                high = min(low + _ROWS, stop, header.documents)
                bounds = np.searchsorted(document, np.arange(low, high + 1))
                for number in range(low, high):
                    doc_id = parse_record(_expect(reader, f"document record {number}"), number)
                    row = slice(bounds[number - low], bounds[number - low + 1])
                    yield number, _validate(doc_id, terms[row], weights[row], unknown, rules)
    if reader.message() is not None:
        raise DamagedFileError(f"messages follow the last of {header.documents} document records")


def parse_header(message: bytes) -> Header:
    """Parse a header."""
    numbers = {number: signed32(value) for number, _, value, _ in fields(message) if isinstance(value, int)}
    header = Header(numbers.get(1, 0), numbers.get(2, 0), numbers.get(3, 0))
    if header.version != CIFF_VERSION:
        raise DamagedFileError(f"the header has version {header.version}; version {CIFF_VERSION} is read")
    if header.lists < 0 or header.documents < 0:
        raise DamagedFileError(f"the header declares {header.lists} lists and {header.documents} documents")
    return header


def parse_list(message: bytes) -> PostingsList:
    """Parse a postings list."""
    term, frequency, at = "", 0, 0
    for number, _, value, after in fields(message):
        if number == 4:  # in files that are written in field order all postings follow
            break
        if number == 1 and isinstance(value, bytes):
            term = _text(value)
        elif number == 2 and isinstance(value, int):
            frequency = value
        at = after
    regular = _regular_postings(message[at:])
    pairs = _any_postings(message[at:]) if regular is None else regular
    if len(pairs) != frequency:
        raise DamagedFileError(f"{term!r} declares {frequency} documents and has {len(pairs)}")
    if (pairs[:, 0] < 0).any():
        raise DamagedFileError(f"the documents of {term!r} do not rise")
    return PostingsList(term, np.cumsum(pairs[:, 0]), pairs[:, 1])


def parse_record(message: bytes, number: int) -> str | BadRow:
    """Return the id of a document record, or a bad row."""
    found, doc_id = 0, b""
    for field, _, value, _ in fields(message):
        if field == 1 and isinstance(value, int):
            found = signed32(value)
        elif field == 2 and isinstance(value, bytes):
            doc_id = value
    if found != number:
        raise DamagedFileError(f"the record of document {number} is that of {found}")
    try:
        text = doc_id.decode()
    except UnicodeDecodeError as error:
        return BadRow("invalid_utf8", f"the id: {error.reason} at byte {error.start}", None, shorten(doc_id))
    problem = id_problem(text)
    return text if problem is None else BadRow(*problem, None, shorten(doc_id))


def _expect(reader: DelimitedReader, what: str) -> bytes:
    message = reader.message()
    if message is None:
        raise DamagedFileError(f"the file ends before {what}")
    return message


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise DamagedFileError(f"a term is not UTF-8: {error.reason} at byte {error.start}") from error


def _regular_postings(rest: bytes) -> Ints | None:
    """Return (gap, frequency) of postings if all but the first have both numbers, once and in order; else None.

    The first posting of a list of document 0 lacks its gap: numbers of 0 are not written.
    """
    if not rest:
        return np.zeros((0, 2), np.int64)
    if len(rest) < 2 or rest[0] != _POSTINGS_KEY or rest[1] >= 0x80 or rest[1] > len(rest) - 2:
        return None
    first = 2 + rest[1]
    numbers = decode_varints(np.frombuffer(rest, np.uint8)[first:])
    if numbers is None or len(numbers) % 6:
        return None
    table = numbers.reshape(-1, 6)
    lengths = 2 + varint_lengths(table[:, 3]) + varint_lengths(table[:, 5])
    regular = (
        (table[:, 0] == _POSTINGS_KEY)
        & (table[:, 1] == lengths)
        & (table[:, 2] == _DOCID_KEY)
        & (table[:, 4] == _TF_KEY)
    )
    if not regular.all():
        return None
    low = (table[:, [3, 5]] & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.int32).astype(np.int64)
    return np.concatenate([_any_postings(rest[:first]), low])


def _any_postings(rest: bytes) -> Ints:
    """Return (gap, frequency) of postings in any form that the wire format allows."""
    pairs = []
    for number, _, value, _ in fields(rest):
        if number == 4 and isinstance(value, bytes):
            found = {field: one for field, _, one, _ in fields(value) if isinstance(one, int)}
            pairs.append((signed32(found.get(1, 0)), signed32(found.get(2, 0))))
    return np.array(pairs, np.int64).reshape(-1, 2)


def _validate(doc_id: str | BadRow, terms: Ints, weights: Ints, unknown: list[str], rules: Rules) -> ValidatedVector:
    if isinstance(doc_id, BadRow):
        return doc_id
    absent = terms[terms < 0]
    if len(absent) and not rules.drop_unknown:
        detail = f"{unknown[-int(absent[0]) - 1]!r} is not in the vocabulary, and {len(absent) - 1} terms more"
        return BadRow("unknown_term", detail, doc_id, "")
    row = row_of_ids(doc_id, terms, weights.astype(np.float64), rules)
    return row if isinstance(row, VectorRow) else BadRow(*row, doc_id, "")
