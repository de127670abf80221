"""The actor class that encodes batches of a Ray dataset."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import ray.data

from lsr_prod.config import Deployment
from lsr_prod.corpus.formats.arrow import flatten, select_columns, typed_records
from lsr_prod.corpus.read import read_request
from lsr_prod.corpus.rows import BadRow, Document, shorten, validate
from lsr_prod.encoding.actors.places import pool_size
from lsr_prod.encoding.cells.cell import Failure, encode_batches
from lsr_prod.encoding.isolation.isolated import ISOLATED_BATCH_SIZE, IsolatedEncoder
from lsr_prod.errors import ConfigError, EncoderCrashedError, EncoderRaisedError, EncoderTimeoutError
from lsr_prod.logs import get_log
from lsr_prod.ray_data.staging import DatasetWrite, StagedKeys
from lsr_prod.storage.formats.sparse import SparseBatch
from lsr_prod.storage.formats.table import content_hash

log = get_log(__name__)
BATCH_SIZE = 512
"""Documents per call. The encoder sorts them by length, so that its own batches have little padding."""


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
        hashes = [content_hash(row.text) for row in documents]
        new = self._staged.missing([row.doc_id for row in documents], hashes)
        left = [(row, digest) for row, digest, is_new in zip(documents, hashes, new, strict=True) if is_new]
        vectors, failures = self._encode([row.text for row, _ in left])
        failed = [_failed(*left[place], failure) for place, failure in failures.items()]
        encoded = [pair for place, pair in enumerate(left) if place not in failures]
        staged = [*self._documents(encoded, vectors), *bad, *failed]
        return pa.Table.from_pylist(staged, schema=self._write.schema)

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


def _bad(row: BadRow, digest: str | None) -> dict[str, Any]:
    values: dict[str, Any] = {"doc_id": row.doc_id, "content_hash": digest, "terms": [], "weights": []}
    return values | {"reason": row.reason, "detail": row.detail, "raw": row.raw}


def _failed(row: Document, digest: str, failure: Failure) -> dict[str, Any]:
    return _bad(BadRow(failure.reason, failure.detail, row.doc_id, shorten(row.text)), digest)
