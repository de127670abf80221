"""Open new publications in the background."""

import random
import threading
import weakref
from collections.abc import Callable
from types import MethodType

from lsr_prod.logs import get_log

log = get_log(__name__)


class Follower:
    """Call ``refresh`` at an interval, in a separate thread, which ends with the object whose method it is.

    If a call fails, the previous version stays open. The failure is logged and kept in ``problem`` until a refresh
    succeeds.

    Attributes:
        problem: failure of the last refresh; None: it succeeded.
    """

    def __init__(
        self,
        refresh: Callable[[], bool],
        seconds: float,
        *,
        jitter: float = 0.0,
        changed: Callable[[], None] | None = None,
    ) -> None:
        """Start the thread."""
        self.problem: str | None = None
        self._stop = stop = threading.Event()
        self._refresh: Callable[[], Callable[[], bool] | None] = lambda: refresh
        if isinstance(refresh, MethodType):
            self._refresh = weakref.WeakMethod(refresh, lambda _: stop.set())
        self._seconds = seconds
        self._jitter = jitter
        self._changed = changed
        self._thread = threading.Thread(target=self._run, name="lsr-follow", daemon=True)
        self._thread.start()

    def stop(self, *, wait: bool = True) -> None:
        """End the thread."""
        self._stop.set()
        if wait and threading.current_thread() is not self._thread:
            self._thread.join()

    def check_alive(self) -> None:
        """Raise ``RuntimeError`` if the thread ended, so that new publications are not opened any more."""
        if not self._thread.is_alive():
            raise RuntimeError("the thread that follows publications has ended")

    def _run(self) -> None:
        while not self._stop.wait(self._seconds * random.uniform(1 - self._jitter, 1 + self._jitter)):  # noqa: S311
            self._poll()

    def _poll(self) -> None:
        """Refresh once; after this call, nothing in the thread refers to the object of the method."""
        refresh = self._refresh()
        if refresh is None:
            return
        try:
            changed = refresh()
        except Exception as error:  # the next publication may open
            if not self._stop.is_set():  # otherwise closed meanwhile
                self.problem = f"{type(error).__name__}: {error}"
                log.exception("current publication could not be opened", extra={"fields": {"problem": self.problem}})
            return
        self.problem = None
        if not changed:
            return
        log.info("new publication opened")
        try:
            if self._changed is not None:
                self._changed()
        except Exception:  # an error of the caller's code must not end the thread
            log.exception("callback for a new publication failed")
