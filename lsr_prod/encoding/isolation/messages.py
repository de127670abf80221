"""Messages between an encoder in a child process and its parent: a length (8 bytes, little endian), an Arrow stream."""

import struct
from collections.abc import Mapping
from typing import IO

import numpy as np
import pyarrow as pa

from lsr_prod import errors
from lsr_prod.errors import ArtifactError, EncoderBrokenError, LsrError, StorageError
from lsr_prod.formats.sparse import SparseBatch

_LENGTH = struct.Struct("<q")


def write_message(pipe: IO[bytes], columns: Mapping[str, pa.Array]) -> None:
    """Send columns of equal length."""
    schema = pa.schema([(name, column.type) for name, column in columns.items()])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(pa.record_batch(list(columns.values()), schema=schema))
    body = sink.getvalue()
    pipe.write(_LENGTH.pack(len(body)))
    pipe.write(body)
    pipe.flush()


def read_message(pipe: IO[bytes]) -> pa.Table:
    """Receive the columns of a message."""
    (length,) = _LENGTH.unpack(_read(pipe, _LENGTH.size))
    with pa.ipc.open_stream(_read(pipe, length)) as stream:
        return stream.read_all()


def _read(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) != size:
        raise EOFError("the other process closed the pipe")
    return data


def vectors_to(vectors: SparseBatch) -> dict[str, pa.Array]:
    """Return vectors as columns ``terms`` (lists of int32) and ``weights`` (lists of float32)."""
    offsets = pa.array(vectors.offsets, pa.int64())
    return {
        "terms": pa.LargeListArray.from_arrays(offsets, pa.array(vectors.terms, pa.int32())),
        "weights": pa.LargeListArray.from_arrays(offsets, pa.array(vectors.weights, pa.float32())),
    }


def vectors_from(table: pa.Table) -> SparseBatch:
    """Return the vectors in the columns of ``vectors_to``."""
    terms, weights = (table[name].combine_chunks() for name in ("terms", "weights"))
    offsets = terms.offsets.to_numpy().astype(np.int64)
    return SparseBatch(offsets, terms.values.to_numpy(), weights.values.to_numpy())


def error_to(error: LsrError) -> dict[str, pa.Array]:
    """Return an error as columns ``kind`` (name of its class) and ``error``."""
    return {"kind": pa.array([type(error).__name__], pa.string()), "error": pa.array([str(error)], pa.large_string())}


def error_from(table: pa.Table) -> LsrError:
    """Return the error in the columns of ``error_to``: of its class if an artifact or a store is the cause."""
    kind, text = getattr(errors, table["kind"][0].as_py()), table["error"][0].as_py()
    if issubclass(kind, ArtifactError | StorageError):
        found: LsrError = kind(text)
        return found
    return EncoderBrokenError(f"the model cannot be opened in a process of its own: {text}")
