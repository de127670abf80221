"""What an encoder in a process of its own and its parent tell each other.

A message is its length (8 bytes, little endian) and an Arrow IPC stream; what is no column stands in the schema's
metadata.
"""

import json
import struct
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
import pyarrow as pa

from lsr_prod.formats.sparse import SparseBatch

__all__ = ["Message", "read_message", "vectors_from", "vectors_to", "write_message"]

Message = tuple[pa.Table, dict[str, Any]]
"""Columns, and the facts beside them."""

_LENGTH = struct.Struct("<q")


def write_message(pipe: IO[bytes], columns: Mapping[str, pa.Array], facts: Mapping[str, Any]) -> None:
    """Send a message.

    Args:
        pipe: where to.
        columns: arrays of one length.
        facts: JSON values beside them.
    """
    schema = pa.schema([(name, column.type) for name, column in columns.items()], {"facts": json.dumps(facts)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(pa.record_batch(list(columns.values()), schema=schema))
    body = sink.getvalue()
    pipe.write(_LENGTH.pack(len(body)))
    pipe.write(body)
    pipe.flush()


def read_message(pipe: IO[bytes]) -> Message:
    """Receive a message: its columns and its facts.

    Raises:
        EOFError: the other side is gone, before the message or inside it.
    """
    (length,) = _LENGTH.unpack(_read(pipe, _LENGTH.size))
    with pa.ipc.open_stream(_read(pipe, length)) as stream:
        table = stream.read_all()
    return table, json.loads(table.schema.metadata[b"facts"])


def _read(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) != size:
        raise EOFError("the other side is gone")
    return data


def vectors_to(vectors: SparseBatch) -> dict[str, pa.Array]:
    """Vectors as columns ``terms`` (lists of int32) and ``weights`` (lists of float32)."""
    offsets = pa.array(vectors.offsets, pa.int64())
    return {
        "terms": pa.LargeListArray.from_arrays(offsets, pa.array(vectors.terms, pa.int32())),
        "weights": pa.LargeListArray.from_arrays(offsets, pa.array(vectors.weights, pa.float32())),
    }


def vectors_from(table: pa.Table) -> SparseBatch:
    """The vectors of ``vectors_to``'s columns."""
    terms, weights = (table[name].combine_chunks() for name in ("terms", "weights"))
    offsets = terms.offsets.to_numpy().astype(np.int64)
    return SparseBatch(offsets, terms.values.to_numpy(), weights.values.to_numpy())
