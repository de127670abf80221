"""The sparse table: the one contract between encoding and indexing.

A Delta table partitioned by ``bucket``. Delta has no unsigned integers, so 8-bit impacts are stored as ``short`` and
term ids as ``integer``; Parquet's bit-packing makes them as small as unsigned ones.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsr_prod.errors import FormatVersionError

__all__ = ["CORE_COLUMNS", "TableProperties", "bucket_of", "content_hash", "quantise", "sparse_schema"]

TABLE_FORMAT = 1
CORE_COLUMNS = ("doc_id", "bucket", "terms", "impacts", "content_hash")
_PROPERTY_PREFIX = "lsr_prod."


def sparse_schema(stored_fields: Sequence[str]) -> pa.Schema:
    """Arrow schema of the sparse table.

    Args:
        stored_fields: names of further string columns, taken from the source as they are.
    """
    return pa.schema(
        [
            pa.field("doc_id", pa.string(), nullable=False),
            pa.field("bucket", pa.int32(), nullable=False),
            pa.field("terms", pa.list_(pa.field("element", pa.int32(), nullable=False)), nullable=False),
            pa.field("impacts", pa.list_(pa.field("element", pa.int16(), nullable=False)), nullable=False),
            pa.field("content_hash", pa.string(), nullable=False),
            *(pa.field(name, pa.string()) for name in stored_fields),
        ]
    )


@dataclass(frozen=True, slots=True)
class TableProperties:
    """What is true of every row of a sparse table; stored as Delta table properties.

    Attributes:
        bundle_digest: the bundle that made every vector.
        vocabulary_sha256: of its output vocabulary.
        impact_step: weight of one impact unit; ``weight ~ impact * impact_step``. Fixed before the first wave.
        impact_bits: 8; impacts lie in 1..2**bits - 1.
        store_k: most terms kept of a document.
        buckets: number of hash buckets.
        stored_fields: further columns.
    """

    bundle_digest: str
    vocabulary_sha256: str
    impact_step: float
    impact_bits: int
    store_k: int
    buckets: int
    stored_fields: tuple[str, ...]
    format: int = TABLE_FORMAT

    def to_delta(self) -> dict[str, str]:
        """The form stored in ``delta`` table configuration: strings under the prefix ``lsr_prod.``."""
        values: dict[str, Any] = {
            "format": self.format,
            "bundle_digest": self.bundle_digest,
            "vocabulary_sha256": self.vocabulary_sha256,
            "impact_step": float(self.impact_step).hex(),
            "impact_bits": self.impact_bits,
            "store_k": self.store_k,
            "buckets": self.buckets,
            "stored_fields": ",".join(self.stored_fields),
        }
        return {_PROPERTY_PREFIX + key: str(value) for key, value in values.items()}

    @classmethod
    def from_delta(cls, configuration: dict[str, str]) -> "TableProperties":
        """Read what ``to_delta`` wrote.

        Raises:
            FormatVersionError: the table was not written by lsr_prod, or in another format.
        """
        found = configuration.get(_PROPERTY_PREFIX + "format")
        if found != str(TABLE_FORMAT):
            raise FormatVersionError(
                f"the table has lsr_prod format {found}; this release reads {TABLE_FORMAT}, encode it again"
            )

        def value(key: str) -> str:
            return configuration[_PROPERTY_PREFIX + key]

        return cls(
            bundle_digest=value("bundle_digest"),
            vocabulary_sha256=value("vocabulary_sha256"),
            impact_step=float.fromhex(value("impact_step")),
            impact_bits=int(value("impact_bits")),
            store_k=int(value("store_k")),
            buckets=int(value("buckets")),
            stored_fields=tuple(name for name in value("stored_fields").split(",") if name),
        )


def bucket_of(doc_id: str, buckets: int) -> int:
    """The hash bucket of a document: first 8 bytes of sha256(doc_id), big-endian, modulo ``buckets``."""
    return int.from_bytes(hashlib.sha256(doc_id.encode()).digest()[:8], "big") % buckets


def content_hash(text: str) -> str:
    """First 32 hex digits of the sha256 of the text that was encoded, prompt excluded."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def quantise(weights: npt.NDArray[np.float32], step: float, bits: int = 8) -> tuple[npt.NDArray[np.int16], int]:
    """Linear quantisation, rounded half to even, clipped to 1..2**bits - 1.

    Args:
        weights: float32 [n], above zero.
        step: weight of one unit.
        bits: width of an impact.

    Returns:
        int16 [n] impacts, and how many weights lay above the largest impact and were clipped.
    """
    top = (1 << bits) - 1
    scaled = np.rint(weights.astype(np.float64) / step)
    return np.clip(scaled, 1, top).astype(np.int16), int((scaled > top).sum())
