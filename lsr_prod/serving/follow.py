"""Open new publications in the background."""

import logging
import threading
from collections.abc import Callable

__all__ = ["Follower"]

log = logging.getLogger(__name__)


class Follower:
    """Call ``refresh`` at an interval, in a separate thread.

    If a call fails, the previous version stays open. The failure is logged and kept in ``problem`` until a refresh
    succeeds.

    Attributes:
        problem: failure of the last refresh; None: it succeeded.
    """

    def __init__(self, refresh: Callable[[], bool], seconds: float) -> None:
        """Start the thread.

        Args:
            refresh: opens the current publication; returns whether the version changed.
            seconds: between two calls.
        """
        self.problem: str | None = None
        self._refresh = refresh
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lsr-follow", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            try:
                changed = self._refresh()
            except Exception as error:  # the next publication may open
                self.problem = f"{type(error).__name__}: {error}"
                log.exception("current publication could not be opened", extra={"fields": {"problem": self.problem}})
            else:
                self.problem = None
                if changed:
                    log.info("new publication opened")
