"""Encoder that certain words make fail in every way a model can; child processes open it by name."""

import ctypes
import os
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lsr_prod.encoding.encoder import EncoderFactory
from lsr_prod.storage.formats.sparse import SparseBatch

TERMS = 30_000


class PoisonEncoder:
    """Encodes a text as one term: its checksum."""

    def encode(self, texts: Sequence[str]) -> SparseBatch:
        for text in texts:
            self._fail_on(text)
        terms = np.array([term_of(text) for text in texts], np.int32)
        weights = np.array([np.nan if "NAN" in text else 1.0 for text in texts], np.float32)
        return SparseBatch(np.arange(len(texts) + 1), terms, weights)

    def _fail_on(self, text: str) -> None:
        if "SEGFAULT" in text:
            ctypes.string_at(0)
        if "ABORT" in text:
            os.abort()
        if "EXIT" in text:
            os._exit(3)
        if "KILL" in text:
            os.kill(os.getpid(), 9)
        if "SPIN" in text:
            while True:
                pass
        if "SLEEP" in text:
            time.sleep(60)
        if "HOLD" in text:  # holds the interpreter lock, as native code may
            ctypes.PyDLL(None).sleep(60)
        if "PAUSE" in text:
            time.sleep(1.5)
        if "RAISE" in text:
            raise RuntimeError("the graph failed")
        if "PRINT" in text:
            os.write(1, b"native noise\n" * 100)
            print("python noise", flush=True)


class FirstTimeEncoder(PoisonEncoder):
    """Crashes on the word ONCE in the first process that reads it, as in a temporary shortage of memory."""

    def __init__(self, memory: Path) -> None:
        self._memory = memory

    def encode(self, texts: Sequence[str]) -> SparseBatch:
        if any("ONCE" in text for text in texts) and not self._memory.exists():
            self._memory.touch()
            os.kill(os.getpid(), 9)
        return super().encode(texts)


def open_poison(pid_file: str | None = None) -> PoisonEncoder:
    if pid_file:
        Path(pid_file).write_text(str(os.getpid()))
    return PoisonEncoder()


def open_first_time(memory: str) -> FirstTimeEncoder:
    return FirstTimeEncoder(Path(memory))


def open_broken(how: str) -> PoisonEncoder:
    encoder = PoisonEncoder()
    encoder.encode([how])
    return encoder


def term_of(text: str) -> int:
    return zlib.crc32(text.encode()) % TERMS


def poison_factory(pid_file: Path | None = None) -> EncoderFactory:
    return EncoderFactory(f"{__name__}:open_poison", {"pid_file": str(pid_file)} if pid_file else {})
