"""Rights of the process that runs the tests.

Root may override the modes of files, change what belongs to others and mount. Programs of users may not, so that tests
run without these rights even if root starts them, except tests with the marker ``root``.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["as_ordinary_user", "why_not_root"]

_VERSION_3 = 0x20080522
_GET_SECUREBITS, _SET_SECUREBITS = 27, 28
_NO_ROOT = 1  # a program that user 0 starts gets no rights for that
_SYS_ADMIN = 21
_AMBIENT, _RAISE, _LOWER = 47, 2, 3
_SETFCAP = 31  # user 0 needs this right, and others none, to make a user namespace in which it may mount


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def why_not_root() -> str:
    """Return why a test with the marker ``root`` cannot run in this process, or ""."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "needs root on Linux; run pytest -m root as root"
    if not _read()[0].effective & 1 << _SYS_ADMIN:
        return "needs the rights of root, which this process dropped; run pytest -m root as root"
    return ""


@contextmanager
def as_ordinary_user() -> Iterator[None]:
    """Drop the rights of root, also for threads and programs started meanwhile; others have none to drop."""
    if why_not_root():
        yield
        return
    libc, before = _libc(), _read()
    bits = libc.prctl(_GET_SECUREBITS, 0, 0, 0, 0)
    _check(libc.prctl(_SET_SECUREBITS, bits | _NO_ROOT, 0, 0, 0))
    low, high = before
    kept = low.permitted & 1 << _SETFCAP
    _write((_Sets * 2)(_Sets(kept, low.permitted, kept), _Sets(0, high.permitted, 0)))
    if kept:
        _check(libc.prctl(_AMBIENT, _RAISE, _SETFCAP, 0, 0))  # programs that are started keep it
    try:
        yield
    finally:
        _check(libc.prctl(_AMBIENT, _LOWER, _SETFCAP, 0, 0))
        _write(before)
        _check(libc.prctl(_SET_SECUREBITS, bits, 0, 0, 0))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _read() -> "ctypes.Array[_Sets]":
    found = (_Sets * 2)()
    _check(_libc().capget(ctypes.byref(_Header(_VERSION_3, 0)), found))
    return found


def _write(sets: "ctypes.Array[_Sets]") -> None:
    _check(_libc().capset(ctypes.byref(_Header(_VERSION_3, 0)), sets))


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
