"""Staging of a Ray dataset for a write: an actor encodes its batches, and the encoded rows are kept as files.

Every block of the dataset becomes a file in ``_lsr_prod/staged/<plan>``. Staged rows are a set: a row that was staged
twice, by a repeated task or by a run that was killed, counts once. So a run needs no record of what earlier runs did,
and encodes only documents that are not staged (``StagedKeys``).
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import ray
import ray.data

from lsr_prod.cluster.tasks import remote
from lsr_prod.config import Deployment, EncodeSettings, SourceSettings
from lsr_prod.config.section import quarantine_uri
from lsr_prod.corpus.formats.arrow import flatten, select_columns, typed_records
from lsr_prod.corpus.read import read_request
from lsr_prod.corpus.source_rows import BadRow, Document, shorten, table_type, validate
from lsr_prod.encoding.actors.places import pool_size
from lsr_prod.encoding.cells.cell import Failure, encode_batches
from lsr_prod.encoding.encoder import EncoderFactory
from lsr_prod.encoding.isolation.isolated import ISOLATED_BATCH_SIZE, IsolatedEncoder
from lsr_prod.encoding.plans.plan_header import ROW_SETTINGS
from lsr_prod.encoding.prepare import check_quarantine, prepare_encoder
from lsr_prod.encoding.tables import Table, read_all_rows, sparse_table
from lsr_prod.errors import ConfigError, EncoderCrashedError, EncoderRaisedError, EncoderTimeoutError, StorageError
from lsr_prod.logs import get_log
from lsr_prod.storage import Entry, Store, folders
from lsr_prod.storage.formats import stored_values, table_format
from lsr_prod.storage.formats.digests import digest_json
from lsr_prod.storage.formats.sparse import SparseBatch

log = get_log(__name__)

FORMAT = 1
BATCH_SIZE = 512
"""Documents per call. The encoder sorts them by length, so that its own batches have little padding."""
_OF_FILES = {"format", "version", "csv", "on_damage"}
_OF_WAVES = {
    "wave_megabytes", "cell_megabytes", "slice_megabytes", "node_wait_seconds", "probe_documents",
    "bad_fraction_min_rows",
}  # fmt: skip
_FILES_PER_TASK = 256

Keys = np.typing.NDArray[np.uint64]
"""Keys of documents, uint64 [2, n]: 128 bits of the sha256 of content hash and id, sorted by the first row."""


@dataclass(frozen=True)
class DatasetWrite:
    """The checked settings of a write."""

    source: SourceSettings  # the section ``source``; its paths only name the corpus
    encode: EncodeSettings  # the section ``encode``
    factory: EncoderFactory  # opens the encoder
    wanted: table_format.TableProperties  # properties of a new table, without buckets and impact scale
    table: Store  # the sparse table's folder
    quarantine: Store  # the quarantine table's folder

    @classmethod
    def prepare(cls, deployment: Deployment) -> "DatasetWrite":
        """Check the sections ``source`` and ``encode``."""
        source, encode, options = deployment.source, deployment.encode, deployment.storage.options
        for name, section in (("source", source), ("encode", encode)):
            if section is None:
                raise ConfigError(name, "the section is missing", "add it: it has the columns, the bundle, the table")
        assert source is not None
        assert encode is not None
        given = {"source": source.model_fields_set & _OF_FILES, "encode": encode.model_fields_set & _OF_WAVES}
        for name, unused in given.items():
            if unused:
                raise ConfigError(f"{name}.{min(unused)}", "a Ray dataset does not use it", "leave it out")
        if encode.on_duplicate == "last":
            raise ConfigError("encode.on_duplicate", "rows of a dataset have no order", "give first or error")
        factory, wanted = prepare_encoder(source, encode, options)
        types = {name: table_type(kind) for name, kind in source.types.items() if kind != "string"}
        table = Store(folders.absolute(encode.table), options)
        quarantine = Store(folders.absolute(quarantine_uri(encode.quarantine, encode.table)), options)
        write = cls(source, encode, factory, replace(wanted, stored_types=types), table, quarantine)
        write.finished()
        check_quarantine(quarantine)
        return write

    @cached_property
    def plan(self) -> str:
        """Digest of the settings that decide the rows; the app id of the commit."""
        rows = self.encode.model_dump(mode="json", include=set(ROW_SETTINGS))
        source = self.source.model_dump(mode="json", exclude=_OF_FILES)
        return digest_json({"ray_data": FORMAT, "bundle": self.wanted.bundle_digest, "source": source, "encode": rows})

    @property
    def source_key(self) -> int:
        """Number of the corpus; column ``source_file``."""
        return int.from_bytes(bytes.fromhex(self.plan)[:8], "big", signed=True)

    @property
    def folder(self) -> str:
        """Folder of the staged files in the table's folder."""
        return f"{sparse_table.PROTOCOL_FOLDER}/staged/{self.plan}"

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of staged rows; ``reason`` is null for a document, ``content_hash`` for a row without a text."""
        texts = ("doc_id", "content_hash", "reason", "detail", "raw")
        types = self.wanted.stored_types
        return pa.schema(
            [
                *(pa.field(name, pa.large_string()) for name in texts),
                pa.field("terms", pa.large_list(pa.int32())),
                pa.field("weights", pa.large_list(pa.float32())),
                *(
                    pa.field(f"stored.{name}", stored_values.arrow_type(types.get(name, "string")))
                    for name in self.source.stored_fields
                ),
            ]
        )

    def finished(self) -> Table | None:
        """Return the table if an earlier run has finished this write."""
        return sparse_table.finished_table("encode.table", self.table, self.plan)

    def staged(self) -> list[Entry]:
        """Return the staged files."""
        return [entry for entry in self.table.entries(self.folder) if entry.name.endswith(".parquet")]

    def read(self, names: Iterable[str]) -> pa.Table:
        """Return the rows of staged files."""
        return pa.concat_tables(
            [self.schema.empty_table(), *(read_all_rows(self.table, name, self.schema) for name in names)]
        )


class StagedKeys:
    """Keys of the documents that earlier runs have staged: 16 bytes per document, once per node.

    A reference is passed on, so that no process but the one that sorts has a copy of its own.
    """

    def __init__(self, write: DatasetWrite) -> None:
        """Start tasks that read the staged ids; without staged files, do nothing."""
        self._names, shared = [entry.name for entry in write.staged()], ray.put(write)
        groups = [self._names[start : start + _FILES_PER_TASK] for start in range(0, len(self._names), _FILES_PER_TASK)]
        self._sorted: Any = (
            remote(_sorted_keys)(*(remote(_read_keys)(shared, group) for group in groups)) if groups else None
        )

    def check(self, write: DatasetWrite) -> None:
        """Raise if a staged file was deleted: the write would lack its documents, which are not encoded again."""
        if {*self._names} - {entry.name for entry in write.staged()}:
            raise StorageError(
                f"{write.table.uri}/{write.folder} has lost staged documents that this dataset does not encode again; "
                "take SparseEncode.options once more"
            )

    def missing(self, ids: Sequence[str], hashes: Sequence[str]) -> np.typing.NDArray[np.bool_]:
        """Return which documents are not staged, bool [n]."""
        staged: Keys = np.zeros((2, 0), np.uint64) if self._sorted is None else ray.get(self._sorted)
        if not staged.shape[1]:
            return np.ones(len(ids), np.bool_)
        wanted = document_keys(ids, hashes)
        places = np.minimum(np.searchsorted(staged[0], wanted[0]), staged.shape[1] - 1)
        # Of two staged keys that share 64 bits the second is not found: that document is encoded twice, which is right.
        found: np.typing.NDArray[np.bool_] = (staged[:, places] != wanted).any(axis=0)
        return found


class SparseEncode:
    """Actor class for ``Dataset.map_batches``: encodes documents with a bundle.

    Rows are validated by the section ``source`` as those of the encode job are: a row that is no document, or that the
    model fails on, is passed on with its reason, and ``write_sparse_table`` quarantines it. The model runs in a child
    process of the actor, so that a document that crashes it costs a document. Documents that an earlier run of the
    same write has staged are left out.

    The result has the columns ``doc_id``, ``content_hash``, ``terms``, ``weights`` (heaviest term first), ``reason``,
    ``detail``, ``raw`` and ``stored.<field>`` of each stored field.

    Examples:
        >>> from lsr_prod.ray_data import SparseEncode
        >>> vectors = dataset.map_batches(SparseEncode, **SparseEncode.options(deployment))  # doctest: +SKIP
    """

    def __init__(self, write: DatasetWrite, staged: StagedKeys) -> None:
        """Open nothing: the first batch starts the child process. Use ``options`` for the arguments."""
        staged.check(write)
        encode = write.encode
        self._write, self._staged, self._request = write, staged, read_request(write.source)
        self._encoder = IsolatedEncoder(write.factory, timeout_s=encode.batch_timeout_s)

    @staticmethod
    def options(deployment: Deployment) -> dict[str, Any]:
        """Return the arguments of ``map_batches`` for a deployment; needs a connection to Ray.

        ``encode.actors``, ``min_actors`` and ``max_actors`` size the pool, and ``provider``, ``actors_per_gpu``,
        ``threads_per_actor``, ``actor_memory_megabytes`` and ``labels`` say what an actor reserves. The dataset needs
        cores beside the actors to read its input.

        Raises:
            ConfigError: a setting is wrong, or the cluster has no room for an actor.
            LineageError: the bundle has another digest than the table.
        """
        write = DatasetWrite.prepare(deployment)
        size = pool_size(write.encode)
        fixed = {"size": size.most} if write.encode.actors else {"min_size": size.fewest, "max_size": size.most}
        return {
            "fn_constructor_args": (write, StagedKeys(write)),
            "batch_size": BATCH_SIZE,
            "batch_format": "pyarrow",
            "compute": ray.data.ActorPoolStrategy(**fixed),  # type: ignore[arg-type]  # integers only
            "label_selector": size.settings.labels or None,
            **size.needs.reserved,
        }

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Encode a batch."""
        rows = self._rows(batch)
        documents = [row for row in rows if isinstance(row, Document)]
        bad = [_bad(row, None) for row in rows if isinstance(row, BadRow)]
        hashes = [table_format.content_hash(row.text) for row in documents]
        new = self._staged.missing([row.doc_id for row in documents], hashes)
        left = [(row, digest) for row, digest, is_new in zip(documents, hashes, new, strict=True) if is_new]
        vectors, failures = self._encode([row.text for row, _ in left])
        failed = [_failed(*left[place], failure) for place, failure in failures.items()]
        encoded = [pair for place, pair in enumerate(left) if place not in failures]
        return pa.Table.from_pylist([*self._documents(encoded, vectors), *bad, *failed], schema=self._write.schema)

    def _rows(self, batch: pa.Table) -> list[Document | BadRow]:
        source, names = self._write.source, select_columns(batch.schema, self._request.columns)
        for field, wanted in (("id_field", [source.id_field]), ("text_fields", source.text_fields)):
            columns = [source.column(name) for name in wanted]
            if {*columns}.isdisjoint(names):
                found = ", ".join(batch.column_names)
                raise ConfigError(
                    f"source.{field}",
                    f"the dataset has no column {' or '.join(columns)}, only {found}",
                    "name columns of the dataset, in this field or in source.columns",
                )
        flat = (flatten(piece, names) for piece in batch.to_batches())
        records = (record for _, record in typed_records(flat, 0, {}, self._request))
        return [row if isinstance(row, BadRow) else validate(row.values, source) for row in records if row is not None]

    def _encode(self, texts: Sequence[str]) -> tuple[SparseBatch, dict[int, Failure]]:
        """Encode texts; after a failure again in small batches, to find the document that is to blame."""
        if not texts:
            return SparseBatch.concatenate([]), {}
        try:
            vectors = self._encoder.encode(texts)
            if np.isfinite(vectors.weights).all():
                return vectors, {}
            problem = "a weight is NaN or infinite"
        except (EncoderCrashedError, EncoderRaisedError, EncoderTimeoutError) as error:
            problem = str(error)
        log.warning("batch failed", extra={"fields": {"documents": len(texts), "error": problem}})
        with IsolatedEncoder(self._write.factory, timeout_s=self._write.encode.document_timeout_s) as child:
            return encode_batches(child, texts, batch_size=ISOLATED_BATCH_SIZE)

    def _documents(self, encoded: Sequence[tuple[Document, str]], vectors: SparseBatch) -> Iterator[dict[str, Any]]:
        names = [f"stored.{name}" for name in self._write.source.stored_fields]
        for place, (row, digest) in enumerate(encoded):
            terms, weights = vectors.row(place)
            values = {"doc_id": row.doc_id, "content_hash": digest, "terms": terms, "weights": weights}
            yield values | dict(zip(names, row.stored, strict=True))


def document_keys(ids: Sequence[str], hashes: Sequence[str]) -> Keys:
    """Return the keys of documents, in their order."""
    pairs = zip(ids, hashes, strict=True)
    data = b"".join(hashlib.sha256((content + doc_id).encode()).digest()[:16] for doc_id, content in pairs)
    return np.ascontiguousarray(np.frombuffer(data, np.uint64).reshape(-1, 2).T)


def _read_keys(write: DatasetWrite, names: Sequence[str]) -> Keys:
    rows = write.read(names).select(["doc_id", "content_hash", "reason"])
    good = rows.filter(rows["reason"].is_null())
    return document_keys(good["doc_id"].to_pylist(), good["content_hash"].to_pylist())


def _sorted_keys(*keys: Keys) -> Keys:
    whole = np.concatenate(keys, axis=1)
    return whole[:, np.argsort(whole[0])]


def _bad(row: BadRow, digest: str | None) -> dict[str, Any]:
    values: dict[str, Any] = {"doc_id": row.doc_id, "content_hash": digest, "terms": [], "weights": []}
    return values | {"reason": row.reason, "detail": row.detail, "raw": row.raw}


def _failed(row: Document, digest: str, failure: Failure) -> dict[str, Any]:
    return _bad(BadRow(failure.reason, failure.detail, row.doc_id, shorten(row.text)), digest)
