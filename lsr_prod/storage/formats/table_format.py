"""The sparse table: the contract between encoding and indexing.

A Delta table partitioned by ``bucket``. Delta has no unsigned integers, so impacts of up to 8 bits are stored as
``short``, impacts of 16 bits and term ids as ``integer``; bit-packing in Parquet makes them as small as unsigned ones.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pyarrow as pa

from lsr_prod.errors import FormatVersionError
from lsr_prod.storage.formats.stored_values import AttributeType, arrow_type

TABLE_FORMAT = 4
CORE_COLUMNS = ("doc_id", "bucket", "terms", "impacts", "content_hash", "content_key", "source_file")
Types = Mapping[str, AttributeType]
"""Type of each stored field that is no string."""
_PROPERTY_PREFIX = "lsr_prod."
# How a property of each type is written as text, and read.
_FORMS: dict[Any, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    str: (str, str),
    int: (str, int),
    float: (lambda value: float(value).hex(), float.fromhex),
    tuple[str, ...]: (",".join, lambda text: tuple(name for name in text.split(",") if name)),
    Types: (
        lambda types: ",".join(f"{name}:{kind}" for name, kind in types.items()),
        lambda text: {name: kind for name, _, kind in (pair.rpartition(":") for pair in text.split(",") if pair)},
    ),
}


def is_field_name(name: object) -> bool:
    """Return whether a stored field can have a name: it is a valid string without commas, and not taken."""
    valid = isinstance(name, str) and not any(c == "," or "\ud800" <= c <= "\udfff" for c in name)
    return valid and name not in ("", *CORE_COLUMNS)


def sparse_schema(stored_fields: Sequence[str], bits: int = 8, types: Types | None = None) -> pa.Schema:
    """Return the Arrow schema of the sparse table; stored fields without a type are strings."""
    impact = pa.int16() if bits <= 8 else pa.int32()
    return pa.schema(
        [
            pa.field("doc_id", pa.string(), nullable=False),
            pa.field("bucket", pa.int32(), nullable=False),
            pa.field("terms", pa.list_(pa.field("element", pa.int32(), nullable=False)), nullable=False),
            pa.field("impacts", pa.list_(pa.field("element", impact, nullable=False)), nullable=False),
            pa.field("content_hash", pa.string(), nullable=False),
            pa.field("content_key", pa.int32(), nullable=False),
            pa.field("source_file", pa.int64(), nullable=False),
            *(pa.field(name, _stored_type((types or {}).get(name, "string"))) for name in stored_fields),
        ]
    )


def _stored_type(kind: AttributeType) -> pa.DataType:
    return {"string": pa.string(), "strings": pa.list_(pa.field("element", pa.string()))}.get(kind) or arrow_type(kind)


@dataclass(frozen=True, slots=True)
class TableProperties:
    """Properties of all rows of a sparse table; stored as properties of the Delta table."""

    bundle_digest: str  # bundle that encoded every vector
    vocabulary_sha256: str  # digest of its output vocabulary
    # weight of one impact unit; ``weight ~ impact * impact_step``. Changes only while the table has few documents
    # (``encoding.scale``).
    impact_step: float
    impact_bits: int  # 4, 8 or 16; impacts are in 1..2**bits - 1
    store_k: int  # maximum number of terms per document
    buckets: int  # number of hash buckets
    stored_fields: tuple[str, ...]  # further columns
    vocabulary_size: int  # V; every term id is below it
    # mean |weight - impact * impact_step| divided by the mean weight, over the probe documents
    impact_error: float = 0.0
    impact_error_max: float = 0.0  # largest |weight - impact * impact_step| in the probe documents
    impact_clipped: float = 0.0  # share of the weights of probe documents that are above the largest impact
    # number of documents that the scale was chosen for; 0 if there was none, or before the probe
    probe_documents: int = 0
    stored_types: Types = field(default_factory=dict)  # of the stored fields that are no strings
    format: int = TABLE_FORMAT

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the sparse table."""
        return sparse_schema(self.stored_fields, self.impact_bits, self.stored_types)

    def to_delta(self) -> dict[str, str]:
        """Return the form stored in the configuration of the Delta table: strings under the prefix ``lsr_prod.``."""
        return {_PROPERTY_PREFIX + one.name: _FORMS[one.type][0](getattr(self, one.name)) for one in fields(self)}

    @classmethod
    def from_delta(cls, configuration: dict[str, str]) -> "TableProperties":
        """Read the form of ``to_delta``."""
        found = configuration.get(_PROPERTY_PREFIX + "format")
        if found is None:
            raise FormatVersionError("the table was not written by lsr_prod; give one that lsr-prod encode wrote")
        if found != str(TABLE_FORMAT):
            raise FormatVersionError(
                f"the table has format {found}, this release reads and writes {TABLE_FORMAT}; encode the corpus again "
                "into a new table folder, and index that"
            )
        return cls(**{one.name: _FORMS[one.type][1](configuration[_PROPERTY_PREFIX + one.name]) for one in fields(cls)})


def bucket_of(doc_id: str, buckets: int) -> int:
    """Return the hash bucket of a document: first 8 bytes of sha256(doc_id), big-endian, modulo ``buckets``."""
    return int.from_bytes(hashlib.sha256(doc_id.encode()).digest()[:8], "big") % buckets


def cell_of(doc_id: str, cells: int) -> int:
    """Return the hash cell of a document: the same hash modulo ``cells``.

    ``cells`` is a multiple of the number of buckets, so that ``cell % buckets`` is the document's bucket.
    """
    return bucket_of(doc_id, cells)


def content_hash(text: str) -> str:
    """Return the first 32 hex digits of the sha256 of the encoded text, without the prompt."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def content_keys(hashes: Iterable[str]) -> np.typing.NDArray[np.int32]:
    """Return the first 32 bits of content hashes, int32 [n].

    A key takes 4 bytes of a part, a hash 17: an increment reads the keys of all rows, and the hashes of equal keys.
    """
    return np.array([int(one[:8], 16) for one in hashes], np.uint32).view(np.int32)


def quantize(
    weights: np.typing.NDArray[np.float32], step: float, bits: int = 8
) -> tuple[np.typing.NDArray[np.int16] | np.typing.NDArray[np.int32], int]:
    """Quantize linearly, rounding half to even, and clip to 1..2**bits - 1.

    Returns:
        Impacts [n], int16 up to 8 bits and int32 above; and the number of weights above the largest impact, which were
        clipped.
    """
    top = (1 << bits) - 1
    scaled = np.rint(weights.astype(np.float64) / step)
    impacts = np.clip(scaled, 1, top)
    clipped = int((scaled > top).sum())
    return (impacts.astype(np.int16), clipped) if bits <= 8 else (impacts.astype(np.int32), clipped)
