"""An encoder whose model lives in a child process: a document may crash or hang it, and this process goes on.

It costs a start of the child (import, model) after every failure and a copy of texts and vectors through two pipes, so
the corpus is encoded without it and only rows that cost an actor its life come here.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from lsr_prod.encoding.encoder import EncoderFactory
from lsr_prod.encoding.isolation.messages import Message, read_message, vectors_from, write_message
from lsr_prod.errors import EncoderBrokenError, EncoderCrashedError, EncoderRaisedError, EncoderTimeoutError
from lsr_prod.formats.card import Kind
from lsr_prod.formats.sparse import SparseBatch

__all__ = ["ISOLATED_BATCH_SIZE", "IsolatedEncoder"]

log = logging.getLogger(__name__)

ISOLATED_BATCH_SIZE = 32
"""Texts of one call in isolation: few, since each halving of a group that hangs costs a whole timeout."""


class IsolatedEncoder:
    """A ``TextEncoder`` in a child process, which is started when it is needed and dies with this one.

    Use as a context manager. Not for two threads at once.

    Attributes:
        starts: child processes started so far.
    """

    def __init__(
        self, factory: EncoderFactory, *, timeout_s: float, start_timeout_s: float = 300.0, most_in_a_row: int = 20
    ) -> None:
        """Start nothing yet.

        Args:
            factory: opens the encoder in the child.
            timeout_s: seconds of one call, however many texts it has: a group that is merely slow is halved by
                ``encode_batches``, and only a single text that takes longer is given up.
            start_timeout_s: seconds to open the model.
            most_in_a_row: single texts that may end the child with no success in between.
        """
        self._factory, self._timeout_s, self._start_timeout_s = factory, timeout_s, start_timeout_s
        self._most_in_a_row, self._in_a_row = most_in_a_row, 0
        self._child: _Child | None = None
        self.starts = 0

    def __enter__(self) -> "IsolatedEncoder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child, if there is one."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def encode(self, texts: Sequence[str], *, kind: Kind, top_k: int, batch_tokens: int) -> SparseBatch:
        """One vector a text, in order.

        A single text that ends the child is tried once more: what ended it may have been the kernel, short of memory.

        Raises:
            EncoderRaisedError: the encoder raised; the child lives.
            EncoderCrashedError: the child ended.
            EncoderTimeoutError: the call took too long; the child was ended.
            EncoderBrokenError: the model does not even open, or too many single texts in a row ended it.
        """
        columns = {"texts": pa.array(texts, pa.large_string())}
        facts = {"kind": kind, "top_k": top_k, "batch_tokens": batch_tokens}
        try:
            try:
                answer, found = self._call(columns, facts)
            except EncoderCrashedError:
                if len(texts) > 1:
                    raise
                answer, found = self._call(columns, facts)
        except (EncoderCrashedError, EncoderTimeoutError) as error:
            self._count(len(texts), error)
            raise
        if "error" in found:
            raise EncoderRaisedError(found["error"])
        self._in_a_row = 0
        return vectors_from(answer)

    def _call(self, columns: Mapping[str, pa.Array], facts: Mapping[str, Any]) -> Message:
        if self._child is not None and not self._child.alive:  # ended between two calls: no text's doing
            self.close()
        try:
            child = self._child or self._start()
            with child.limit(self._timeout_s):
                write_message(child.requests, columns, facts)
                return read_message(child.answers)
        except BaseException as error:  # whatever it was, this child may still answer the request that was given up
            self.close()
            log.warning("isolated encoder lost", extra={"fields": {"error": str(error), "starts": self.starts}})
            raise

    def _start(self) -> "_Child":
        child = self._child = _Child(self._factory)
        self.starts += 1
        try:
            with child.limit(self._start_timeout_s):
                read_message(child.answers)
        except (EncoderCrashedError, EncoderTimeoutError) as error:
            raise EncoderBrokenError(
                f"the model cannot be opened in a process of its own: {error}; see that process's output in the log, "
                "then export the model again or give its machine what it lacks (memory?)"
            ) from error
        return child

    def _count(self, texts: int, error: Exception) -> None:
        self._in_a_row += texts == 1
        if self._in_a_row >= self._most_in_a_row:
            raise EncoderBrokenError(
                f"{self._in_a_row} documents in a row ended the encoder, each alone and none between them was encoded; "
                f"the last: {error}; the model does not work here, or the corpus is not what it was made for: export "
                "it again, try another encode.provider, raise encode.document_timeout_s if it is only slow"
            ) from error


class _Child:
    """A process of ``encoder_process`` and the pipes to it."""

    def __init__(self, factory: EncoderFactory) -> None:
        lifeline, self._lifeline = os.pipe()
        # The child imports what this process can import, wherever Ray put it.
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        command = [sys.executable, "-P", "-m", "lsr_prod.encoding.isolation.process"]
        try:
            self._process = subprocess.Popen(  # noqa: S603 (our own module)
                [*command, str(lifeline), json.dumps(asdict(factory))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[lifeline],
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C is for the job
            )
        except OSError:
            os.close(self._lifeline)
            raise
        finally:
            os.close(lifeline)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.requests, self.answers = self._process.stdin, self._process.stdout

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @contextmanager
    def limit(self, timeout_s: float) -> Iterator[None]:
        """End the child if the block takes too long.

        Raises:
            EncoderCrashedError: it ended inside the block.
            EncoderTimeoutError: it was ended.
        """
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
        with suppress(BrokenPipeError):  # of a request that was never read
            self.requests.close()
        self.answers.close()
        os.close(self._lifeline)


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    return signal.Signals(-code).name + (" (out of memory, or ended from outside)" if code == -signal.SIGKILL else "")
