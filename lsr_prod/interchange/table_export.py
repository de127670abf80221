"""Export of a sparse table as JSON vectors, a CSR matrix or CIFF, in bounded memory; rows by bucket, then by part."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsr_prod.errors import ArtifactError, ConfigError, LineageError
from lsr_prod.extras import contrib
from lsr_prod.formats.table import TableProperties
from lsr_prod.interchange.jsonl import write_jsonl
from lsr_prod.interchange.npz import CsrBlock, write_csr
from lsr_prod.interchange.vectors import Vocabulary
from lsr_prod.tables import Table, TableFile, live_batches

_ROWS = 2048


@dataclass(frozen=True, slots=True)
class TableVectors:
    """The vectors of a snapshot.

    Attributes:
        table: the snapshot.
        properties: properties of the table.
        vocabulary: vocabulary of the bundle that encoded the table.
        floats: weights are impact * impact_step; False: the integer impacts.
        contents: stored field for the contents; None: no contents.
    """

    table: Table
    properties: TableProperties
    vocabulary: Vocabulary
    floats: bool = False
    contents: str | None = None

    @classmethod
    def open(
        cls, table: Table, vocabulary: Vocabulary, *, floats: bool = False, contents: str | None = None
    ) -> "TableVectors":
        """Check that table, vocabulary and field match."""
        properties = TableProperties.from_delta(dict(table.properties))
        if properties.vocabulary_sha256 != vocabulary.sha256:
            raise LineageError(f"{table.store.uri} has another vocabulary; give the bundle that encoded it")
        if contents is not None and contents not in properties.stored_fields:
            stored = ", ".join(properties.stored_fields) or "none"
            raise ConfigError(
                "vectors.contents", f"the table does not store {contents!r}", f"give null, or one of: {stored}"
            )
        return cls(table, properties, vocabulary, floats, contents)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the weights."""
        return np.dtype(np.float32 if self.floats else np.int32)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the columns ``doc_id``, ``terms``, ``impacts`` and the contents."""
        columns = ["doc_id", "terms", "impacts", *([] if self.contents is None else [self.contents])]
        for file in sorted(self.table.files(), key=lambda one: (int(one.partition["bucket"] or 0), one.path)):
            rows = 0
            for batch in live_batches(self.table.store, file, columns, _ROWS):
                self._check(file, batch)
                rows += batch.num_rows
                yield batch
            if file.live_rows is not None and rows != file.live_rows:
                raise ArtifactError(f"{self._name(file)} has {rows} rows, the table says {file.live_rows}; restore it")

    def weights(self, batch: pa.RecordBatch) -> npt.NDArray[Any]:
        """Return the weights of all terms of a batch, concatenated."""
        impacts = batch["impacts"].flatten().to_numpy()
        weights: npt.NDArray[Any] = impacts * self.properties.impact_step if self.floats else impacts
        return weights.astype(self.dtype)

    def printed(self) -> npt.NDArray[Any]:
        """Return the weight of every impact, [2**bits], as the shortest decimal number of the same float32."""
        impacts = np.arange(1 << self.properties.impact_bits)
        if not self.floats:
            return impacts
        weights = (impacts * self.properties.impact_step).astype(self.dtype)
        return np.array([float(str(weight)) for weight in weights])

    def _check(self, file: TableFile, batch: pa.RecordBatch) -> None:
        terms = batch["terms"].flatten().to_numpy()
        same = np.array_equal(batch["terms"].value_lengths(), batch["impacts"].value_lengths())
        if not same or (len(terms) and (terms.min() < 0 or terms.max() >= len(self.vocabulary))):
            raise ArtifactError(f"{self._name(file)} has terms outside its vocabulary; encode the table again")
        impacts = batch["impacts"].flatten().to_numpy()
        if len(impacts) and (impacts.min() < 1 or impacts.max() >= 1 << self.properties.impact_bits):
            raise ArtifactError(f"{self._name(file)} has impacts above 2**impact_bits; encode the table again")

    def _name(self, file: TableFile) -> str:
        return f"{self.table.store.uri}/{file.path}"


def export_jsonl(vectors: TableVectors, path: Path) -> tuple[int, int]:
    """Write the vectors as JSON lines, heaviest term first; integer impacts as integers.

    Returns:
        Number of documents and of postings.
    """
    postings = 0

    def lines() -> Iterator[tuple[str, dict[str, float], str | None]]:
        nonlocal postings
        names, printed = vectors.vocabulary.terms, vectors.printed()
        for batch in vectors.batches():
            contents = [None] * batch.num_rows if vectors.contents is None else batch[vectors.contents].to_pylist()
            terms = [names[term] for term in batch["terms"].flatten().to_pylist()]
            weights, at = printed[batch["impacts"].flatten().to_numpy()].tolist(), 0
            postings += len(terms)
            lengths = batch["terms"].value_lengths().to_pylist()
            for doc_id, length, text in zip(batch["doc_id"].to_pylist(), lengths, contents, strict=True):
                row = slice(at, at + length)
                yield doc_id, dict(zip(terms[row], weights[row], strict=True)), text
                at += length

    return write_jsonl(path, lines()), postings


def export_csr(vectors: TableVectors, path: Path) -> tuple[int, int]:
    """Write the vectors as a CSR matrix [documents, V], int32 or float32, and its ids next to it.

    Returns:
        Number of documents and of postings.
    """
    counted = _Counted(vectors)
    documents = write_csr(path, ids_path(path), counted.blocks(), len(vectors.vocabulary), vectors.dtype)
    return documents, counted.postings


def export_ciff(vectors: TableVectors, path: Path) -> tuple[int, int]:
    """Write the vectors as CIFF: postings lists with impacts as frequencies, and the ids of the documents.

    Returns:
        Number of documents and of postings.
    """
    counted = _Counted(vectors)
    step = vectors.properties.impact_step
    description = f"lsr_prod: impacts as frequencies, weight = impact * {step!r}"
    write_ciff = contrib("vectors.ciff_write").write_ciff
    return write_ciff(path, counted.blocks(), vectors.vocabulary.terms, description), counted.postings


class _Counted:
    """Blocks of the vectors of a table, which count their postings."""

    def __init__(self, vectors: TableVectors) -> None:
        self._vectors = vectors
        self.postings = 0

    def blocks(self) -> Iterator[CsrBlock]:
        for batch in self._vectors.batches():
            lengths = batch["terms"].value_lengths().to_numpy().astype(np.int64)
            terms = batch["terms"].flatten().to_numpy()
            order = np.lexsort((terms, np.repeat(np.arange(len(lengths)), lengths)))
            self.postings += len(terms)
            weights = self._vectors.weights(batch)[order]
            yield CsrBlock(batch["doc_id"].to_pylist(), lengths, terms[order], weights)


def ids_path(path: Path) -> Path:
    """Return the path of the ids of a matrix."""
    return path.with_name(f"{path.name.removesuffix('.npz')}.ids.jsonl")
