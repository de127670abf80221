"""Write the Tantivy index of a shard: its text, for words of filters and the lexical baseline.

Its files have equal bytes in every build of equal documents. Tantivy gives segments random names and merges them in the
background: in a random order if their sizes are equal, else by falling size. So every segment is written in a folder of
its own, from a fixed number of documents, eight neighbors are merged in a folder that holds nothing else, each a little
smaller than the one before, and the final segments are named 1, 2, 3 by rising document.
"""

import json
import shutil
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import tantivy

from lsr_prod.inference.terms.analysis import prepare, tokenizer
from lsr_prod.storage.formats import digests, shard_format
from lsr_prod.storage.formats.index_format import Analyzer

_SEGMENT_BYTES = 64 << 20  # memory of Tantivy for an average segment
_DOCUMENTS = (64, 1 << 20)  # smallest and largest number of documents of a segment before merges
_HEAP = 384 << 20  # bytes; Tantivy starts a new segment when the heap is full
_MERGED = 8  # the number of segments of similar size that Tantivy's policy merges
_LEVELS = 8  # of merges; 8 ** 8 segments
_META = "meta.json"
_MANAGED = ".managed.json"


def segment_documents(documents: int, text_bytes: int) -> int:
    """Return the number of documents per segment: so many that Tantivy needs about 64 MiB of memory for a segment."""
    # Measured with Tantivy 0.27.
    return sorted((*_DOCUMENTS, _SEGMENT_BYTES * documents // max(1, 100 * documents + 3 * text_bytes // 2)))[1]


@dataclass(frozen=True, slots=True)
class _Run:
    """Segments of neighboring documents in one folder."""

    folder: Path  # the folder
    segments: tuple[dict[str, Any], ...]  # records of ``meta.json``, by rising document
    merges: int  # how many merges made it


class BooleanWriter:
    """Writer of the Tantivy index of one shard; a context manager that commits unless an error was raised."""

    def __init__(self, shard: Path, analyzer: Analyzer = "english", *, segment_documents: int | None = None) -> None:
        """Create the index; ``segment_documents`` follows the first texts if it is None."""
        self.seconds = 0.0  # spent so far
        self._analyzer: Analyzer = analyzer
        self._folder = shard / shard_format.TANTIVY_FOLDER
        self._folder.mkdir()
        schema = tantivy.SchemaBuilder()
        schema.add_unsigned_field(shard_format.ORDINAL_FIELD, fast=True)
        schema.add_text_field(shard_format.TEXT_FIELD, tokenizer_name=_tokenizer_name(analyzer), index_option="freq")
        self._schema = schema.build()
        self._segment_documents = segment_documents
        self._documents = self._folders = self._segments = 0
        self._left = 0  # documents until the current segment ends
        self._writer: Any = None  # of the current segment
        self._runs: list[_Run] = []  # of the segments before

    def add(self, texts: Sequence[str]) -> None:
        """Append the next documents."""
        began = time.perf_counter()
        if self._segment_documents is None:
            self._segment_documents = segment_documents(len(texts), sum(map(len, texts)))
        for text in texts:
            document = tantivy.Document()
            # Keyword arguments of the constructor would create signed integers, and an unsigned field panics on them.
            document.add_unsigned(shard_format.ORDINAL_FIELD, self._documents)
            if text:
                document.add_text(shard_format.TEXT_FIELD, prepare(text, self._analyzer))
            if not self._left:
                self._begin(self._segment_documents)
            self._writer.add_document(document)
            self._left -= 1
            self._documents += 1
        self.seconds += time.perf_counter() - began

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        start = time.perf_counter()
        if self._writer is None:
            self._begin(_DOCUMENTS[0])
        if kind is None:
            self._end_segment()
            _move(self._runs, self._folder, _read_meta(self._current))
            for run in self._runs:
                _delete(run.folder)
        else:
            self._writer.wait_merging_threads()
            _delete(self._folder)
        self.seconds += time.perf_counter() - start

    def _begin(self, documents: int) -> None:
        """End the current segment, merge it with its neighbors if they are eight, and begin another one."""
        if self._writer is not None:
            self._end_segment()
            while _can_merge(self._runs[-_MERGED:]):
                self._runs[-_MERGED:] = [_merge(self._runs[-_MERGED:], self._new_folder())]
        self._current = self._new_folder()
        self._left = documents + surplus(self._segments)
        self._segments += 1
        # With one thread documents keep their order inside a segment, so that equal scores rank by doc_id.
        index = tantivy.Index(self._schema, path=str(self._current))
        index.register_tokenizer(_tokenizer_name(self._analyzer), tokenizer(self._analyzer))
        self._writer = index.writer(heap_size=_HEAP, num_threads=1)

    def _end_segment(self) -> None:
        self._writer.commit()
        self._writer.wait_merging_threads()
        self._runs.append(_read_run(self._current))

    def _new_folder(self) -> Path:
        self._folders += 1
        folder = self._folder / f"run{self._folders}"
        folder.mkdir()
        return folder


def _tokenizer_name(analyzer: Analyzer) -> str:
    """Return the name of an analyzer in the schema of Tantivy."""
    return "en_stem" if analyzer == "english" else analyzer


def surplus(segment: int) -> int:
    """Return by how much a segment is larger than the last one, so that among eight neighbors each is smaller.

    This holds for segments that were merged too: a digit of the number, to the base of eight, counts for each merge.
    """
    return sum(_MERGED - 1 - segment // _MERGED**level % _MERGED for level in range(_LEVELS))


def _can_merge(runs: list[_Run]) -> bool:
    return len(runs) == _MERGED and all(len(run.segments) == 1 and run.merges == runs[0].merges for run in runs)


def _merge(runs: list[_Run], folder: Path) -> _Run:
    """Let Tantivy merge segments of one size; it leaves very large ones as they are."""
    _move(runs, folder, _read_meta(runs[0].folder))
    for run in runs:
        _delete(run.folder)
    writer = tantivy.Index.open(str(folder)).writer(heap_size=_HEAP, num_threads=1)
    writer.commit()  # considers merges
    writer.wait_merging_threads()
    return _Run(folder, tuple(sorted(_read_meta(folder)["segments"], key=_name)), runs[0].merges + 1)


def _read_run(folder: Path) -> _Run:
    """Return the segments of a new folder: one, or more if the heap was full before ``cut``."""
    # The order of several is unknown, but has to be the same in every build.
    return _Run(folder, tuple(sorted(_read_meta(folder)["segments"], key=lambda segment: _digest(folder, segment))), 0)


def _move(runs: list[_Run], target: Path, meta: dict[str, Any]) -> None:
    """Rename the files of segments into another folder, named by their order, and write its ``meta.json``."""
    moved: list[dict[str, Any]] = []
    for run in runs:
        for segment in run.segments:
            name = uuid.UUID(int=len(moved) + 1)
            for path in run.folder.glob(f"{_name(segment)}.*"):
                path.rename(target / f"{name.hex}{path.suffix}")
            moved.append({**segment, "segment_id": str(name)})
    documents = sum(segment["max_doc"] for segment in moved)
    (target / _META).write_bytes(digests.canonical_json({**meta, "segments": moved, "opstamp": documents}))
    files = [_META, *(path.name for path in target.glob("*.*") if len(path.stem) == 32)]
    (target / _MANAGED).write_bytes(digests.canonical_json(sorted(files)))


def _delete(folder: Path) -> None:
    """Delete a folder under another name: a thread of Tantivy may still create a lock in it, by its path."""
    shutil.rmtree(folder.rename(folder.with_suffix(".deleted")))


def _read_meta(folder: Path) -> dict[str, Any]:
    meta: dict[str, Any] = json.loads((folder / _META).read_bytes())
    return meta


def _digest(folder: Path, segment: dict[str, Any]) -> str:
    files = sorted(folder.glob(f"{_name(segment)}.*"), key=lambda path: path.suffix)
    return digests.digest_json([digests.digest_path(path) for path in files])


def _name(segment: dict[str, Any]) -> str:
    return str(segment["segment_id"]).replace("-", "")
