"""Calls that need space fail on demand: a library that is loaded before the C library (``no_space.c``)."""

import ctypes
import errno
import os
import subprocess
from pathlib import Path

__all__ = ["NoSpace", "compile_library"]

_SOURCE = Path(__file__).with_name("no_space.c")
_NAME = "no_space.so"
_RECORDED = 1 << 16


def compile_library(folder: Path) -> Path:
    """Compile the library; the value of ``LD_PRELOAD`` for a process in which calls are to fail."""
    library = folder / _NAME
    command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE), "-ldl"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library


class NoSpace:
    """The library in this process, which has to be started with it.

    Args:
        folder: calls on files below it are counted.
    """

    def __init__(self, folder: Path) -> None:
        preloaded = os.environ.get("LD_PRELOAD", "")
        assert preloaded.endswith(_NAME), "start this process with LD_PRELOAD"
        self._library = ctypes.CDLL(preloaded)
        self._folder = str(folder).encode()
        self._kinds = self._library.no_space_kinds
        self._kinds.restype = ctypes.c_void_p

    def arm(self, call: int | None, *, once: bool = False, error: int = errno.ENOSPC) -> None:
        """Fail the call with this number, and all later ones unless ``once``; None: count only."""
        at = 1 << 60 if call is None else call
        self._library.no_space_arm(self._folder, ctypes.c_long(at), int(once), error)

    def disarm(self) -> tuple[str, int]:
        """End; returns the kind of each call that was counted, one letter each, and how many failed."""
        self._library.no_space_disarm()
        seen: int = self._library.no_space_seen()
        kinds = ctypes.string_at(self._kinds(), min(seen, _RECORDED)).decode()
        return kinds, self._library.no_space_failed()
