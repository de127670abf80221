"""Ends this process when one call of the model takes too long; whoever owns the process decides what comes next.

A call into native code cannot be interrupted, only ended with its process. The timer is a Python thread, which works
as long as the call lets other threads run: ONNX Runtime and ``encode_batch`` of tokenizers do, its ``encode`` does not.
For code that holds the interpreter's lock a second timer, faulthandler's, stands behind it; it needs no lock.
"""

import faulthandler
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lsr_prod.encoding.encoder import TextEncoder
from lsr_prod.formats.card import Kind
from lsr_prod.formats.sparse import SparseBatch

__all__ = ["EXIT_CODE", "Watchdog", "WatchedEncoder"]

log = logging.getLogger(__name__)

EXIT_CODE = 86
"""Exit code of a process that its watchdog ended; it is 1 where the call held the interpreter's lock."""

_GRACE_S = 5.0  # between the two timers
_STDERR = 2


class Watchdog:
    """Guards calls of this process, one at a time.

    Args:
        timeout_s: seconds that a guarded call may take.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    @contextmanager
    def guard(self) -> Iterator[None]:
        """End the process with ``EXIT_CODE`` if the block is not left in time."""
        timer = threading.Timer(self._timeout_s, self._end)
        timer.daemon = True
        timer.start()
        faulthandler.dump_traceback_later(self._timeout_s + _GRACE_S, exit=True, file=_STDERR)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            timer.cancel()

    def _end(self) -> None:
        remedy = "its documents are tried one by one; raise encode.batch_timeout_s if the model is only slow"
        log.critical(
            "model call timed out", extra={"fields": {"timeout_s": self._timeout_s, "pid": os.getpid(), "next": remedy}}
        )
        faulthandler.dump_traceback(file=_STDERR)  # says where every thread stands
        os._exit(EXIT_CODE)


class WatchedEncoder:
    """An encoder of this process whose every call is guarded.

    Args:
        encoder: the one that does the work.
        timeout_s: seconds that a call may take.
    """

    def __init__(self, encoder: TextEncoder, timeout_s: float) -> None:
        self._encoder = encoder
        self._watchdog = Watchdog(timeout_s)

    def encode(self, texts: Sequence[str], *, kind: Kind, top_k: int, batch_tokens: int) -> SparseBatch:
        """One vector a text, in order."""
        with self._watchdog.guard():
            return self._encoder.encode(texts, kind=kind, top_k=top_k, batch_tokens=batch_tokens)
