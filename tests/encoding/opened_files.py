"""Count how often files are opened, by any process of the machine: inotify through ctypes."""

import ctypes
import os
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["opened_files"]

_IN_OPEN = 0x20
_EVENT = struct.Struct("iIII")


@contextmanager
def opened_files(folder: Path) -> Iterator[Counter[str]]:
    """Count the openings of the files of a folder, by name; the counts are complete after the block."""
    libc = ctypes.CDLL(None, use_errno=True)
    watcher = libc.inotify_init1(os.O_NONBLOCK)
    if watcher < 0 or libc.inotify_add_watch(watcher, os.fsencode(folder), _IN_OPEN) < 0:
        raise OSError(ctypes.get_errno(), "inotify")
    found: Counter[str] = Counter()
    try:
        yield found
        found.update(_names(watcher))
    finally:
        os.close(watcher)


def _names(watcher: int) -> Iterator[str]:
    while True:
        try:
            data = os.read(watcher, 1 << 20)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            *_, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size
            if name := data[at : at + length].rstrip(b"\0").decode():  # without a name: the folder itself
                yield name
            at += length
