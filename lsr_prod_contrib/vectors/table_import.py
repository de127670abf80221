"""Import of vectors as a sparse table: read once to disk, quantized with one scale, written by bucket in one commit.

The largest weight, which fixes the scale, and repeated ids are known only after the last row. Therefore rows are first
written to disk by bucket; memory is bounded by a batch and the ids of one bucket.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsr_prod.config.vectors import VectorsSettings
from lsr_prod.corpus.source_rows import BadRow, shorten
from lsr_prod.encoding.tables import Part, Table, write_part
from lsr_prod.encoding.tables.impact_scale import ImpactScale, impact_scale
from lsr_prod.encoding.tables.live_rows import build_rows
from lsr_prod.encoding.tables.quarantine_rows import DUPLICATE, BadRowWriter
from lsr_prod.encoding.tables.sparse_table import create_sparse_table
from lsr_prod.errors import SourceError
from lsr_prod.logs import get_log
from lsr_prod.storage import Store
from lsr_prod.storage.disk import scratch_folder
from lsr_prod.storage.formats.table_format import TableProperties, content_hash, quantize
from lsr_prod_contrib.vectors.spill import Spill, SpillTotals
from lsr_prod_contrib.vectors.vector import ValidatedVector, Vocabulary

log = get_log("lsr_prod.vectors")
_LOGGED = 5
_PART_ROWS = 65_536
_PART_POSTINGS = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSummary:
    """Summary of an import."""

    imported: bool = True  # this run wrote the table
    files: int  # source files
    rows_in: int  # rows of the source files
    documents: int  # rows of the table
    quarantined: int  # bad rows
    quarantined_by_reason: dict[str, int]  # bad rows by reason
    unknown_terms_dropped: int  # terms outside the vocabulary that were dropped
    postings: int  # terms of all documents
    clipped: int  # weights above the largest impact
    impact_step: float  # weight of one impact unit
    impact_error: float | None  # mean error of a weight over the mean weight
    store_k: int  # terms kept per document
    seconds: float  # wall time
    docs_per_s: float  # documents per second
    table: str  # URI of the table
    quarantine: str  # URI of the quarantine
    plan: str  # digest of the import


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedImport:
    """Summary of an import that an earlier run finished; the attributes are those of ``ImportSummary``."""

    imported: bool = False
    documents: int
    impact_step: float
    store_k: int
    table: str
    plan: str


class ImportQuarantine(BadRowWriter):
    """Bad rows of one import; some reasons are refused."""

    def __init__(self, store: Store, plan: str, refused: Collection[str] = ()) -> None:
        super().__init__(store, plan, 0)
        self._store, self._refused = store, frozenset(refused)

    def add(self, row: BadRow, *, ordinal: int, key: int, source: str, position: int) -> None:
        """Add a bad row; the arguments are those of ``BadRowWriter.add``. The first rows are logged."""
        if row.reason in self._refused:
            for part in self.parts:
                self._store.delete(part.path)
            raise SourceError(
                f"{source} at {position}: {row.reason}, {row.detail}; nothing was written; fix the file, or set "
                "vectors.unknown_terms or vectors.bad_weights to quarantine"
            )
        super().add(row, ordinal=ordinal, key=key, source=source, position=position)
        if self.reasons.total() <= _LOGGED:
            fields = {"source": source, "position": position, "reason": row.reason, "detail": row.detail}
            log.warning("quarantined", extra={"fields": {**fields, "doc_id": row.doc_id}})


@dataclass(frozen=True, slots=True)
class Source:
    """One source of rows."""

    location: str  # path or URI, for people
    key: int  # 64 bits that identify its content; column ``source_file``
    rows: Iterable[tuple[int, ValidatedVector]]  # (position, vector or bad row), in order


@dataclass(frozen=True, slots=True)
class Imported:
    """Result of an import."""

    table: Table  # the table, with the vectors
    read: int  # valid vectors of the sources, repeated ids included
    documents: int  # rows of the table
    postings: int  # terms of all documents
    clipped: int  # weights above the largest impact
    unknown: int  # dropped terms outside the vocabulary
    properties: TableProperties  # properties of the table


def import_vectors(
    sources: Sequence[Source],
    store: Store,
    vocabulary: Vocabulary,
    settings: VectorsSettings,
    quarantine: ImportQuarantine,
    plan: str,
) -> Imported:
    """Write the vectors of sources into a table in one commit. Of rows with the same id the first is kept."""
    with scratch_folder(prefix="lsr-import-") as scratch:
        with Spill(scratch, settings.buckets, settings.store_k) as spill:
            for number, source in enumerate(sources):
                for position, row in source.rows:
                    if isinstance(row, BadRow):
                        quarantine.add(row, ordinal=number, key=source.key, source=source.location, position=position)
                    else:
                        spill.add(row, number, position)
        scale = _scale(spill, settings)
        _check_error(scale, spill.totals, settings)
        properties = _properties(vocabulary, settings, scale, spill.totals)
        table = create_sparse_table(store, properties, plan)
        writer = _Writer(store, properties, settings, sources, quarantine, plan)
        adds = [(part, {"bucket": str(b)}) for b in range(settings.buckets) for part in writer.parts(spill, b)]
    quarantine.flush()  # before the commit: a committed import always has its quarantine
    table.commit(adds, [], app=plan, version=0, epoch=1)
    totals = spill.totals
    return Imported(table, totals.rows, writer.documents, writer.postings, writer.clipped, totals.unknown, properties)


def _properties(
    vocabulary: Vocabulary, settings: VectorsSettings, scale: ImpactScale, totals: SpillTotals
) -> TableProperties:
    return TableProperties(
        bundle_digest=vocabulary.bundle_digest,
        vocabulary_sha256=vocabulary.sha256,
        impact_step=scale.step,
        impact_bits=settings.impact_bits,
        store_k=settings.store_k or max(1, totals.longest),
        buckets=settings.buckets,
        stored_fields=() if settings.contents is None else (settings.contents,),
        vocabulary_size=len(vocabulary),
        impact_error=scale.error,
        impact_error_max=scale.largest_error,
        impact_clipped=scale.clipped,
        probe_documents=scale.documents,
    )


def _scale(spill: Spill, settings: VectorsSettings) -> ImpactScale:
    """Return the step and its error on all weights."""
    totals, step = spill.totals, settings.impact_step
    if settings.quantized:
        assert step is not None  # the settings demanded it
        return ImpactScale(step, 0.0, 0.0, 0.0, totals.rows)
    if step is None:
        largest = np.array([totals.largest] if totals.largest else [], np.float32)
        step = impact_scale(largest, settings.impact_bits, documents=totals.rows).step
    weight, error, worst, clipped = 0.0, 0.0, 0.0, 0
    for bucket in range(settings.buckets):
        for batch in spill.read(bucket):
            one = impact_scale(_values(batch, "weights"), settings.impact_bits, documents=0, step=step)
            total = float(_values(batch, "weights").sum(dtype=np.float64))
            weight, error = weight + total, error + one.error * total
            worst = max(worst, one.largest_error)
            clipped += round(one.clipped * len(_values(batch, "weights")))
    return ImpactScale(step, error / weight if weight else 0.0, worst, clipped / max(1, totals.postings), totals.rows)


def _check_error(scale: ImpactScale, totals: SpillTotals, settings: VectorsSettings) -> None:
    """Refuse a scale with which most weights would become the same few impacts."""
    limit = settings.max_impact_error
    if limit is None or scale.error <= limit:
        return
    raise SourceError(
        f"impacts would be off by {scale.error:.2g} of the mean weight, above vectors.max_impact_error={limit:g}: "
        f"one impact unit is {scale.step:.4g}, and the largest weight is {totals.largest:.4g}, in document "
        f"{shorten(totals.largest_id)}; correct that document, give vectors.impact_step, or raise the limit"
    )


def _values(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.float32]:
    values: npt.NDArray[np.float32] = batch[name].flatten().to_numpy()
    return values


class _Writer:
    """Writes the parts of a bucket and counts rows."""

    def __init__(
        self,
        store: Store,
        properties: TableProperties,
        settings: VectorsSettings,
        sources: Sequence[Source],
        quarantine: ImportQuarantine,
        plan: str,
    ) -> None:
        self._store, self._properties, self._settings, self._plan = store, properties, settings, plan
        self._sources, self._quarantine = sources, quarantine
        self._keys = np.array([source.key for source in sources], np.int64)
        self.documents = self.postings = self.clipped = 0

    def parts(self, spill: Spill, bucket: int) -> Iterator[Part]:
        """Write the rows of a bucket and yield its parts."""
        held: list[pa.Table] = []
        rows = postings = 0
        for batch in self._first_of_each_id(spill.read(bucket)):
            held.append(self._rows(batch))
            rows, postings = rows + batch.num_rows, postings + len(held[-1]["terms"].combine_chunks().flatten())
            if rows >= _PART_ROWS or postings >= _PART_POSTINGS:
                yield self._write(bucket, held)
                held, rows, postings = [], 0, 0
        if rows:
            yield self._write(bucket, held)

    def _write(self, bucket: int, held: list[pa.Table]) -> Part:
        table = pa.concat_tables(held).sort_by("doc_id").combine_chunks()
        self.documents += table.num_rows
        self.postings += len(table["terms"].combine_chunks().flatten())
        return write_part(self._store, f"bucket={bucket}", table, self._plan)

    def _first_of_each_id(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen: set[str] = set()
        for batch in batches:
            ids = batch["doc_id"].to_pylist()
            first = np.ones(len(ids), dtype=bool)
            for i, doc_id in enumerate(ids):
                if doc_id in seen:
                    first[i] = False
                    number, position = batch["file"][i].as_py(), batch["position"][i].as_py()
                    source = self._sources[number]
                    bad = BadRow(DUPLICATE, "an earlier row of the input has this id", doc_id, "")
                    self._quarantine.add(bad, ordinal=number, key=source.key, source=source.location, position=position)
                seen.add(doc_id)
            yield batch if first.all() else batch.filter(pa.array(first))

    def _rows(self, batch: pa.RecordBatch) -> pa.Table:
        weights = _values(batch, "weights")
        if self._settings.quantized:
            impacts: npt.NDArray[np.int16] | npt.NDArray[np.int32] = weights.astype(np.int32)
        else:
            impacts, clipped = quantize(weights, self._properties.impact_step, self._properties.impact_bits)
            self.clipped += clipped
        lengths = batch["terms"].value_lengths().to_numpy()
        hashes = pa.array([content_hash(text or "") for text in batch["contents"].to_pylist()], pa.string())
        return build_rows(
            self._properties,
            batch["doc_id"],
            (np.concatenate([[0], np.cumsum(lengths)]), batch["terms"].flatten(), impacts),
            hashes,
            pa.array(self._keys[batch["file"].to_numpy()]),
            {} if self._settings.contents is None else {self._settings.contents: batch["contents"]},
        )
