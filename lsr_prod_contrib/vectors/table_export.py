"""Export of a sparse table as JSON vectors, CSR matrix, CIFF or Parquet, in bounded memory; by bucket, then by part."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.encoding.tables import Table, TableFile, live_batches, read_part
from lsr_prod.encoding.tables.part import large_strings, parquet_bytes
from lsr_prod.errors import ArtifactError, ConfigError, LineageError, StorageError
from lsr_prod.storage import Store
from lsr_prod.storage.formats.table_format import TableProperties
from lsr_prod_contrib.vectors.ciff_write import write_ciff
from lsr_prod_contrib.vectors.jsonl import write_jsonl
from lsr_prod_contrib.vectors.npz import CsrBlock, write_csr
from lsr_prod_contrib.vectors.vector import Vocabulary

_ROWS = 2048
_ROW = "row,number"  # no stored field has a comma in its name
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSummary:
    """Summary of an export."""

    documents: int  # vectors in the output
    postings: int  # terms of all vectors
    bytes: int  # size of the output
    impact_step: float  # weight of one impact unit
    seconds: float  # wall time
    docs_per_s: float  # documents per second
    table: str  # URI of the table
    table_version: int  # version of the table
    output: str  # path of the output


@dataclass(frozen=True, slots=True)
class TableVectors:
    """The vectors of a snapshot."""

    table: Table  # the snapshot
    properties: TableProperties  # properties of the table
    vocabulary: Vocabulary  # vocabulary of the bundle that encoded the table
    floats: bool = False  # weights are impact * impact_step; False: the integer impacts
    contents: str | None = None  # stored field for the contents; None: no contents

    @classmethod
    def open(
        cls, table: Table, vocabulary: Vocabulary, *, floats: bool = False, contents: str | None = None
    ) -> "TableVectors":
        """Check that table, vocabulary and field match."""
        properties = table.sparse_properties
        if properties.vocabulary_sha256 != vocabulary.sha256:
            raise LineageError(f"{table.store.uri} has another vocabulary; give the bundle that encoded it")
        texts = [name for name in properties.stored_fields if name not in properties.stored_types]
        if contents is not None and contents not in texts:
            stored = ", ".join(texts) or "none"
            raise ConfigError(
                "vectors.contents", f"the table stores no text {contents!r}", f"give null, or one of: {stored}"
            )
        return cls(table, properties, vocabulary, floats, contents)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the weights."""
        return np.dtype(np.float32 if self.floats else np.int32)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the columns ``doc_id``, ``terms``, ``impacts`` and the contents."""
        columns = ["doc_id", "terms", "impacts", *([] if self.contents is None else [self.contents])]
        for file in self.files():
            yield from self._batches_of(file, columns)

    def blocks(self) -> Iterator[CsrBlock]:
        """Yield the vectors as rows of a matrix."""
        for batch in self.batches():
            lengths = batch["terms"].value_lengths().to_numpy().astype(np.int64)
            terms = batch["terms"].flatten().to_numpy()
            order = np.lexsort((terms, np.repeat(np.arange(len(lengths)), lengths)))
            yield CsrBlock(batch["doc_id"].to_pylist(), lengths, terms[order], self.weights(batch)[order])

    def files(self) -> list[TableFile]:
        """Return the parts by bucket, then by path."""
        return sorted(self.table.files(), key=lambda file: (_bucket(file), file.path))

    def rows_of(self, file: TableFile) -> pa.Table:
        """Return the rows of a part in the columns of the table; with ``floats``, ``weights`` replace ``impacts``."""
        stored = self.properties.schema
        schema = large_strings(stored.remove(stored.get_field_index("bucket")))
        rows = read_part(self.table.store, file, schema).combine_chunks()
        batches = rows.to_batches()
        for batch in batches:
            self._check(file, batch)
        self._check_count(file, rows.num_rows)
        if self.floats:
            lists = pa.chunked_array([self._weight_lists(batch) for batch in batches], pa.list_(pa.float32()))
            rows = rows.set_column(schema.get_field_index("impacts"), "weights", lists)
        return rows.append_column("bucket", pa.repeat(pa.scalar(_bucket(file), pa.int32()), rows.num_rows))

    def _weight_lists(self, batch: pa.RecordBatch) -> pa.ListArray:
        ends = np.cumsum(batch["impacts"].value_lengths().to_numpy(), dtype=np.int32)
        return pa.ListArray.from_arrays(np.append(np.int32(0), ends), self.weights(batch))

    def _batches_of(self, file: TableFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        rows = 0
        for batch in live_batches(self.table.store, file, columns, _ROWS):
            self._check(file, batch)
            rows += batch.num_rows
            yield batch
        self._check_count(file, rows)

    def _check_count(self, file: TableFile, rows: int) -> None:
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
    return write_csr(path, ids_path(path), vectors.blocks(), len(vectors.vocabulary), vectors.dtype)


def export_ciff(vectors: TableVectors, path: Path) -> tuple[int, int]:
    """Write the vectors as CIFF: postings lists with impacts as frequencies, and the ids of the documents.

    Returns:
        Number of documents and of postings.
    """
    description = f"lsr_prod: impacts as frequencies, weight = impact * {vectors.properties.impact_step!r}"
    return write_ciff(path, vectors.blocks(), vectors.vocabulary.terms, description)


EXPORTS = {"jsonl": export_jsonl, "npz": export_csr, "ciff": export_ciff}
"""Function that exports to one file, by format."""


def export_parquet(vectors: TableVectors, output: Store, partition_by: Sequence[str]) -> tuple[int, int]:
    """Write the rows as Parquet files in folders ``<column>=<value>``, one part of the table at a time.

    The columns are those of the table, without the ones in ``partition_by``; with ``floats``, ``weights`` takes the
    place of ``impacts``. The file ``_SUCCESS`` is written last.

    Returns:
        Number of documents and of postings.
    """
    documents = postings = 0
    for number, file in enumerate(vectors.files()):
        rows = vectors.rows_of(file)
        documents += rows.num_rows
        postings += len(rows["terms"].combine_chunks().flatten())
        for folder, group in _by_partition(rows, partition_by):
            _put(output, f"{folder}part-{number:06d}.parquet", parquet_bytes(group))
    _put(output, "_SUCCESS", b"")
    return documents, postings


def _put(output: Store, name: str, data: bytes) -> None:
    if not output.put_new(name, data):
        raise StorageError(f"{output.uri}/{name} exists already: another export writes there; give a new folder")


def _by_partition(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each combination of values, without these columns, and the folder that names the values."""
    if not columns or not rows.num_rows:
        yield "", rows
        return
    texts = ((name, rows[name] if name == "bucket" else rows[name].cast(pa.large_string())) for name in columns)
    values = [column if name == "bucket" else pc.fill_null(column, "") for name, column in texts]  # null and "": one
    numbered = pa.table([*values, np.arange(rows.num_rows)], names=[*columns, _ROW])
    groups = numbered.group_by(list(columns), use_threads=False).aggregate([(_ROW, "list")])
    for group in groups.to_pylist():
        folder = "".join(f"{name}={_folder_name(group[name])}/" for name in columns)
        yield folder, rows.drop_columns(list(columns)).take(pa.array(group[f"{_ROW}_list"]))


def _folder_name(value: object) -> str:
    return _NO_VALUE if value == "" else quote(str(value), safe="")


def _bucket(file: TableFile) -> int:
    return int(file.partition["bucket"] or 0)


def ids_path(path: Path) -> Path:
    """Return the path of the ids of a matrix."""
    return path.with_name(f"{path.name.removesuffix('.npz')}.ids.jsonl")
