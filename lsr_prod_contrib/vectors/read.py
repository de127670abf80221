"""Files and folders of vectors become validated rows, streaming; bad rows have their place and reason."""

import lzma
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from lsr_prod.corpus.compression import Readable, decompressed
from lsr_prod.corpus.lines import BOM, lines
from lsr_prod.corpus.listing import find_files
from lsr_prod.corpus.pinned_file import DamagedFileError
from lsr_prod.corpus.source_rows import BadRow, shorten
from lsr_prod.errors import ConfigError, SourceError
from lsr_prod.logs import get_log
from lsr_prod.storage import Entry, Store
from lsr_prod.storage.folders import absolute
from lsr_prod.storage.formats.sparse import SparseBatch
from lsr_prod_contrib.vectors.bigann import csr_file_vectors
from lsr_prod_contrib.vectors.ciff import ciff_vectors
from lsr_prod_contrib.vectors.jsonl import LINE_LIMIT, json_vectors
from lsr_prod_contrib.vectors.npz import csr_vectors, read_ids
from lsr_prod_contrib.vectors.vector import (
    Problem,
    Rules,
    ValidatedVector,
    VectorRow,
    as_batch,
    id_problem,
    row_of_tokens,
)

VectorFormat = Literal["jsonl", "tsv", "npz", "ciff", "csr"]
_ENDINGS: dict[VectorFormat, tuple[str, ...]] = {
    "jsonl": (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".ndjson", ".ndjson.gz"),
    "tsv": (".tsv", ".tsv.gz"),
    "npz": (".npz",),
    "ciff": (".ciff", ".ciff.gz"),
    "csr": (".csr", ".csr.gz"),
}
_ID_ENDINGS = (".ids.jsonl", ".ids.txt")
_DAMAGE = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, DamagedFileError)

log = get_log("lsr_prod.vectors")


@dataclass(frozen=True, slots=True)
class VectorFile:
    """A file of vectors."""

    store: Store  # its folder
    entry: Entry  # name, size and tag in the store
    format: VectorFormat  # how to read it
    # name of the file with the ids of a matrix, in the same folder; None: the format has its own ids, or the
    # numbers of the rows are the ids
    ids: str | None = None

    @property
    def location(self) -> str:
        """Path or URI, for people."""
        return f"{self.store.uri.rstrip('/')}/{self.entry.name}"


@dataclass(frozen=True, slots=True)
class VectorBatch:
    """Vectors in memory.

    Attributes:
        ids: ids of the vectors.
        vectors: the vectors.
        bad: (place, bad row) of the lines that are not vectors.
        unknown: number of dropped terms outside the vocabulary.
    """

    ids: tuple[str, ...]
    vectors: SparseBatch
    bad: tuple[tuple[str, BadRow], ...]
    unknown: int


def find_vector_files(
    paths: Sequence[str], vector_format: VectorFormat, options: dict[str, str] | None = None, *, field: str = "paths"
) -> list[VectorFile]:
    """List the files of paths, folders and globs, in order. A file that is named itself may have any ending.

    Other files of a folder or glob are skipped, with one warning per path.

    Args:
        paths: local, or on an object store.
        vector_format: format of all files.
        options: options of the object store.
        field: name of the setting in messages.

    Raises:
        ConfigError: a path points nowhere, a folder has no such file, or an npz has no id file.
    """
    endings = _ENDINGS[vector_format]
    found: dict[str, VectorFile] = {}
    for path in paths:
        place = absolute(path)
        listed = list(find_files(place, options or {}))
        if not listed:
            raise ConfigError(field, f"there is nothing at {path}", "give files, folders or globs that exist")
        known, skipped = False, list[str]()
        for folder, entry in listed:
            store = Store(folder, options or {})
            file = VectorFile(store, entry, vector_format)
            if any(file.location.lower().endswith(ending) for ending in _ID_ENDINGS) and len(listed) > 1:
                continue
            if file.location == place or entry.name.lower().endswith(endings):
                ids = _sidecar(store, entry.name, vector_format, field) if vector_format in ("npz", "csr") else None
                found[file.location] = VectorFile(store, entry, vector_format, ids)
                known = True
            else:
                skipped.append(file.location)
        if not known:
            raise ConfigError(field, f"{path} has no file of {', '.join(endings)}", "give another format or path")
        if skipped:
            fields = {"path": path, "files": len(skipped), "example": skipped[0]}
            log.warning("files with another ending are skipped", extra={"fields": fields})
    return list(found.values())


def _sidecar(store: Store, name: str, vector_format: VectorFormat, field: str) -> str | None:
    stem = name.removesuffix(".gz").removesuffix(f".{vector_format}")
    for ending in _ID_ENDINGS:
        if store.entry(f"{stem}{ending}") is not None:
            return f"{stem}{ending}"
    if vector_format == "csr":  # BigANN has none: its ground truth names rows by their numbers
        return None
    wanted = " or ".join(f"{stem}{ending}" for ending in _ID_ENDINGS)
    raise ConfigError(field, f"{store.uri}/{name} has no id file", f"write the ids to {wanted}, one per line")


def read_vectors(file: VectorFile, rules: Rules) -> Iterator[tuple[int, ValidatedVector]]:
    """Yield (position, vector or bad row) of a file: byte of a text format, row of a matrix, number of a document.

    Bytes that do not decode end the file: vectors before them are kept, and one bad row with the reason
    ``damaged_file`` has the error and its place.

    Raises:
        SourceError: the file was deleted, cannot be read, or does not have its format.
        LineageError: the number of columns of a matrix differs from the size of the vocabulary.
    """
    position, count = 0, 0
    try:
        for position, row in _decode(file, rules):
            yield position, row
            count += 1
    except _DAMAGE as error:
        what = " ".join(str(error).split()) or type(error).__name__
        yield position + (count > 0), BadRow("damaged_file", shorten(f"{what}, after {count} rows"), None, "")
    except OSError as error:
        raise SourceError(f"{file.location} cannot be read ({error}); fix it, then run again") from error


def _decode(file: VectorFile, rules: Rules) -> Iterator[tuple[int, ValidatedVector]]:
    if file.format == "csr":
        with _ids(file) as ids:
            yield from csr_file_vectors(file.store, file.entry.name, ids, rules)
        return
    with file.store.open_reader(file.entry.name) as handle:
        if file.format == "npz":
            with _ids(file) as ids:
                assert ids is not None
                yield from csr_vectors(handle, ids, rules, file.location)
            return
        compressed = file.entry.name.lower().endswith(".gz")
        with decompressed(handle, "jsonl.gz" if compressed else "jsonl") as plain:
            if file.format == "ciff":
                size = file.entry.size * (4 if compressed else 1)
                yield from ciff_vectors(plain, size, rules)
                return
            yield from (json_vectors if file.format == "jsonl" else topic_vectors)(plain, rules)


@contextmanager
def _ids(file: VectorFile) -> Iterator[Iterator[str | BadRow] | None]:
    if file.ids is None:
        yield None
        return
    with file.store.open_reader(file.ids) as handle, decompressed(handle, "jsonl") as plain:
        yield read_ids(plain, json_lines=file.ids.endswith(".jsonl"))


def read_batches(files: Iterable[VectorFile], rules: Rules, *, rows: int = 1024) -> Iterator[VectorBatch]:
    """Yield the vectors of files in batches of ``rows`` lines; repeated ids are not checked.

    Raises:
        SourceError: a file cannot be read at all.
        LineageError: the number of columns of a matrix differs from the size of the vocabulary.
    """
    good: list[VectorRow] = []
    bad: list[tuple[str, BadRow]] = []
    for file in files:
        for position, row in read_vectors(file, rules):
            if isinstance(row, BadRow):
                bad.append((f"{file.location}:{position}", row))
            else:
                good.append(row)
            if len(good) + len(bad) == rows:
                yield _batch(good, bad)
                good, bad = [], []
    if good or bad:
        yield _batch(good, bad)


def _batch(good: list[VectorRow], bad: list[tuple[str, BadRow]]) -> VectorBatch:
    unknown = sum(row.unknown for row in good)
    return VectorBatch(tuple(row.doc_id for row in good), as_batch(good), tuple(bad), unknown)


def topic_vectors(file: Readable, rules: Rules) -> Iterator[tuple[int, ValidatedVector]]:
    """Yield (offset, vector) of every line; blank lines are skipped."""
    for at, line, whole in lines(file, 0, None, LINE_LIMIT):
        record = (line.removeprefix(BOM) if at == 0 else line).removesuffix(b"\r")
        if not record:
            continue
        row = _vector(record, rules) if whole else ("row_too_long", f"the line is longer than {LINE_LIMIT} bytes")
        yield at, row if isinstance(row, VectorRow) else BadRow(*row, None, shorten(record))


def _vector(line: bytes, rules: Rules) -> VectorRow | Problem:
    try:
        topic_id, tab, text = line.decode().partition("\t")
    except UnicodeDecodeError as error:
        return "invalid_utf8", f"{error.reason} at byte {error.start} of the line"
    if not tab:
        return "wrong_field_count", "the line has no tab between id and terms"
    # Only spaces separate terms: a vocabulary may have terms of other white space.
    terms: Mapping[str, int] = Counter(term for term in text.split(" ") if term)
    return id_problem(topic_id) or row_of_tokens(topic_id, terms, None, rules)
