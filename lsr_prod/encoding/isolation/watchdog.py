"""Watchdog: ends this process when one call of the model takes too long; the owner of the process starts another one.

A call into native code cannot be interrupted, only ended with its process. The first timer is a Python thread, which
needs the interpreter's lock: ONNX Runtime and ``encode_batch`` of tokenizers release it, ``encode`` of tokenizers does
not. The second timer, of faulthandler, needs no lock.
"""

import faulthandler
import os
import threading
from collections.abc import Sequence

from lsr_prod.encoding.encoder import TextEncoder
from lsr_prod.logs import get_log
from lsr_prod.storage.formats.sparse import SparseBatch

log = get_log(__name__)

EXIT_CODE = 86
"""Exit code of a process that the watchdog ended; it is 1 if the call held the interpreter's lock."""

_GRACE_S = 5.0  # between the two timers
_STDERR = 2


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
