"""Encoders for documents that may crash or hang the model: one in a child process, one with a time limit per call.

``IsolatedEncoder`` has its model in a child process; if a document ends the child, this process continues. Every
failure costs a start of the child (imports, model), and texts and vectors are copied through two pipes. So the corpus
is encoded without it; only blocks that ended an actor's process are encoded by it.

``WatchedEncoder`` has its model in this process, and ends the process when one call of the model takes too long; the
owner of the process starts another one. A call into native code cannot be interrupted, only ended with its process.
The first of two timers is a Python thread, which needs the interpreter's lock: ONNX Runtime and ``encode_batch`` of
tokenizers release it, ``encode`` of tokenizers does not. The second timer, of faulthandler, needs no lock.
"""

import faulthandler
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa

from lsr_prod import errors
from lsr_prod.encoding.encoder import EncoderFactory, TextEncoder
from lsr_prod.errors import (
    ArtifactError,
    EncoderBrokenError,
    EncoderCrashedError,
    EncoderRaisedError,
    EncoderTimeoutError,
    LsrError,
    StorageError,
)
from lsr_prod.logs import get_log
from lsr_prod.storage.formats.sparse import SparseBatch

log = get_log(__name__)

EXIT_CODE = 86
"""Exit code of a process that the watchdog ended; it is 1 if the call held the interpreter's lock."""

ISOLATED_BATCH_SIZE = 32
"""Texts per call in isolation: few, because each halving of a batch that hangs costs a whole timeout."""

_GRACE_S = 5.0  # between the two timers
_STDERR = 2
_LENGTH = struct.Struct("<q")


class IsolatedEncoder:
    """A ``TextEncoder`` in a child process, which is started on demand and ends with this process.

    Use as a context manager, from one thread at a time.

    Attributes:
        starts: child processes started so far.
    """

    def __init__(
        self, factory: EncoderFactory, *, timeout_s: float, start_timeout_s: float = 300.0, most_in_a_row: int = 20
    ) -> None:
        """Set the limits; the child is started by the first call."""
        self._factory, self._timeout_s, self._start_timeout_s = factory, timeout_s, start_timeout_s
        self._most_in_a_row, self._in_a_row = most_in_a_row, 0
        self._child: _Child | None = None
        self.starts = 0

    def __enter__(self) -> "IsolatedEncoder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child, if it runs."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def encode(self, texts: Sequence[str]) -> SparseBatch:
        """Return one vector per text, in order.

        A single text that ends the child is tried a second time: the kernel may have ended it for lack of memory.
        """
        try:
            try:
                answer = self._call(texts)
            except EncoderCrashedError:
                if len(texts) > 1:
                    raise
                answer = self._call(texts)
        except (EncoderCrashedError, EncoderTimeoutError) as error:
            self._count_failure(len(texts), error)
            raise
        if "error" in answer.column_names:
            raise EncoderRaisedError(answer["error"][0].as_py())
        self._in_a_row = 0
        return vectors_from(answer)

    def _call(self, texts: Sequence[str]) -> pa.Table:
        if self._child is not None and not self._child.alive:  # it ended between two calls, not because of a text
            self.close()
        try:
            child = self._child or self._start()
            with child.limit(self._timeout_s):
                write_message(child.requests, {"texts": pa.array(texts, pa.large_string())})
                return read_message(child.answers)
        except BaseException as error:  # after any error this child may still answer the abandoned request
            self.close()
            log.warning("isolated encoder lost", extra={"fields": {"error": str(error), "starts": self.starts}})
            raise

    def _start(self) -> "_Child":
        child = self._child = _Child(self._factory)
        self.starts += 1
        try:
            with child.limit(self._start_timeout_s):
                answer = read_message(child.answers)
        except (EncoderCrashedError, EncoderTimeoutError) as error:
            raise EncoderBrokenError(
                f"the model cannot be opened in a process of its own: {error}; look at the output of that process in "
                "the log, then export the model again, or run on a machine with more memory"
            ) from error
        if "error" in answer.column_names:
            raise error_from(answer)
        return child

    def _count_failure(self, texts: int, error: Exception) -> None:
        self._in_a_row += texts == 1
        if self._in_a_row >= self._most_in_a_row:
            raise EncoderBrokenError(
                f"{self._in_a_row} documents in a row, encoded one by one, ended the encoder's process (the last one: "
                f"{error}); the model does not work on this machine or on this corpus: export it again, try another "
                "encode.provider, or raise encode.document_timeout_s if it is only slow"
            ) from error


class _Child:
    """A process of ``isolation.process`` and the pipes to it."""

    def __init__(self, factory: EncoderFactory) -> None:
        lifeline, self._lifeline = os.pipe()
        # The child can import the same modules as this process, also where Ray changed sys.path.
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        command = [sys.executable, "-P", "-m", "lsr_prod.encoding.isolation.process"]
        try:
            self._process = subprocess.Popen(  # noqa: S603 (our own module)
                [*command, str(lifeline)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[lifeline],
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C must reach the job only
            )
        except OSError:
            os.close(self._lifeline)
            raise
        finally:
            os.close(lifeline)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.requests, self.answers = self._process.stdin, self._process.stdout
        with suppress(BrokenPipeError):  # the first answer tells why the process ended
            pickle.dump(factory, self.requests)
            self.requests.flush()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @contextmanager
    def limit(self, timeout_s: float) -> Iterator[None]:
        """End the child if the block takes too long."""
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(timeout_s, end)
        timer.daemon = True
        timer.start()
        lost = False
        try:
            yield
        except (EOFError, BrokenPipeError):
            lost = True
        finally:
            timer.cancel()
            timer.join()
        if late.is_set():
            raise EncoderTimeoutError(f"the encoder did not answer within {timeout_s:g} s")
        if lost:
            raise EncoderCrashedError(f"the encoder's process ended with {_cause(self._process.wait())}")

    def end(self) -> None:
        """End the process and close the pipes."""
        self._process.kill()
        self._process.wait()
        with suppress(BrokenPipeError):  # the last request may be unread
            self.requests.close()
        self.answers.close()
        os.close(self._lifeline)


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    return signal.Signals(-code).name + (
        " (out of memory, or killed by another process)" if code == -signal.SIGKILL else ""
    )


class WatchedEncoder:
    """Encoder in this process with a time limit for each call, one at a time."""

    def __init__(self, encoder: TextEncoder, timeout_s: float) -> None:
        self._encoder, self._timeout_s = encoder, timeout_s

    def encode(self, texts: Sequence[str]) -> SparseBatch:
        """Return one vector per text, in order; end the process with ``EXIT_CODE`` if that takes too long."""
        timer = threading.Timer(self._timeout_s, self._end)
        timer.daemon = True
        timer.start()
        faulthandler.dump_traceback_later(self._timeout_s + _GRACE_S, exit=True, file=_STDERR)
        try:
            return self._encoder.encode(texts)
        finally:
            faulthandler.cancel_dump_traceback_later()
            timer.cancel()

    def _end(self) -> None:
        remedy = (
            "the documents of the block are tried in a child process; raise encode.batch_timeout_s if the model is slow"
        )
        log.critical(
            "model call timed out", extra={"fields": {"timeout_s": self._timeout_s, "pid": os.getpid(), "next": remedy}}
        )
        faulthandler.dump_traceback(file=_STDERR)  # the stack of every thread
        os._exit(EXIT_CODE)


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
    return SparseBatch(terms.offsets.to_numpy().astype(np.int64), terms.values.to_numpy(), weights.values.to_numpy())


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


def _read(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) != size:
        raise EOFError("the other process closed the pipe")
    return data
