"""The process that holds the model of an ``IsolatedEncoder``: requests come on stdin, answers go to stdout.

::

    python -m lsr_prod.encoding.encoder_process LIFELINE FACTORY

A message is its length (8 bytes, little endian) and an Arrow IPC stream; what is no column stands in the schema's
metadata. The first answer says that the model is open and has encoded a word.
"""

import faulthandler
import fcntl
import json
import os
import select
import signal
import struct
import sys
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
import pyarrow as pa

from lsr_prod.encoding.encoder import EncoderFactory, TextEncoder
from lsr_prod.formats.sparse import SparseBatch

__all__ = ["Message", "read_message", "vectors_from", "vectors_to", "write_message"]

Message = tuple[pa.Table, dict[str, Any]]
"""Columns, and the facts beside them."""

_LENGTH = struct.Struct("<q")
_STDOUT, _STDERR = 1, 2


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


def _main(lifeline: int, factory: EncoderFactory) -> None:
    _end_with(lifeline)
    faulthandler.enable(file=_STDERR)
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(_STDOUT), "wb")
    os.dup2(_STDERR, _STDOUT)  # what native libraries print must not get between the answers
    encoder = factory.open()
    encoder.encode(["word"], kind="document", top_k=1, batch_tokens=1)
    write_message(answers, {}, {})
    while True:
        try:
            columns, facts = read_message(requests)
        except EOFError:
            return
        _answer(answers, encoder, columns, facts)


def _answer(answers: IO[bytes], encoder: TextEncoder, columns: pa.Table, facts: Mapping[str, Any]) -> None:
    try:
        vectors = encoder.encode(columns["texts"].to_pylist(), **facts)
    except Exception as error:  # noqa: BLE001 (tokenizers and ONNX Runtime raise bare Exceptions)
        write_message(answers, {}, {"error": f"{type(error).__name__}: {error}"})
        return
    write_message(answers, vectors_to(vectors), {})


def _end_with(lifeline: int) -> None:
    """Let the kernel end this process when the parent's end of the pipe ``lifeline`` closes.

    This works for a process that hangs in native code. PR_SET_PDEATHSIG is no choice: it goes by the thread that
    started the process, and a thread may end before its process does.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    closed = select.poll()
    closed.register(lifeline, 0)
    if closed.poll(0):  # before the signal was asked for
        sys.exit("the parent is gone")


if __name__ == "__main__":
    _main(int(sys.argv[1]), EncoderFactory(**json.loads(sys.argv[2])))
