"""Requests to stores, at any of which an attempt is killed, or waits while another attempt works.

A kill is an exception that no code of the product catches; every later request of the attempt raises it too, so that
nothing is cleaned up. There is a moment before each request, and one after each request that writes.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from deltalake import DeltaTable

from lsr_prod.storage import Store

__all__ = ["REQUESTS", "Killed", "Requests"]

_READS = ("get", "read_range", "entry", "open_reader", "entries")
_WRITES = ("put_new", "put_file_new", "put_file", "delete", "touch")
_WAIT_S = 60.0


class Killed(BaseException):
    """The attempt was killed."""


class Requests:
    """Counts requests and carries out one kill or one wait.

    Attributes:
        count: moments so far.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reset(None, None)

    def _reset(self, kill: int | None, wait: int | None) -> None:
        self.count = 0
        self._kill, self._wait, self._is_dead = kill, wait, False
        self.waits, self._proceed = threading.Event(), threading.Event()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Wrap the requests of this process in this block."""
        with ExitStack() as wrapped:
            for names, writes in ((_READS, False), (_WRITES, True)):
                for name in names:
                    wrapped.enter_context(patch.object(Store, name, self._wrapped(getattr(Store, name), writes=writes)))
            commit = self._wrapped(DeltaTable.create_write_transaction, writes=True)
            wrapped.enter_context(patch.object(DeltaTable, "create_write_transaction", commit))
            yield

    def kill_at(self, moment: int | None) -> None:
        """Count from zero, and kill at a moment; None: never."""
        self._reset(moment, None)

    def wait_at(self, moment: int) -> None:
        """Count from zero, and wait at a moment until ``proceed`` is called; only the first attempt waits."""
        self._reset(None, moment)

    def proceed(self) -> None:
        """Let the attempt that waits continue."""
        self._proceed.set()

    def _moment(self) -> None:
        with self._lock:
            self.count += 1
            if self.count == self._kill:
                self._is_dead = True
            waits = self.count == self._wait
        if self._is_dead:
            raise Killed
        if waits:
            self.waits.set()
            self._proceed.wait(_WAIT_S)

    def _wrapped(self, function: Callable[..., Any], *, writes: bool) -> Callable[..., Any]:
        def request(*args: Any, **kwargs: Any) -> Any:
            self._moment()
            result = function(*args, **kwargs)
            if writes:
                self._moment()
            return result

        return request


REQUESTS = Requests()
"""Requests of this process."""
