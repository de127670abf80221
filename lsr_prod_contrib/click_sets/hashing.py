"""Seeded 64-bit hashes: the order of every draw, and of ties."""

import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]

_GOLDEN = 0x9E3779B97F4A7C15


def text_hashes(texts: Iterable[str], seed: int) -> Hashes:
    """Return 8 bytes of BLAKE2b of every text, keyed by the seed.

    Returns:
        uint64 [n], the same on every machine.
    """
    key = seed.to_bytes(8, "big")
    digests = b"".join(hashlib.blake2b(text.encode(), digest_size=8, key=key).digest() for text in texts)
    return np.frombuffer(digests, ">u8").astype(np.uint64)


def mix(hashes: Hashes, other: Hashes | int) -> Hashes:
    """Return a hash of two hashes, element by element, so that draws are independent (finalizer of splitmix64)."""
    second = np.asarray(other, dtype=np.uint64)
    with np.errstate(over="ignore"):
        value = hashes + np.uint64(_GOLDEN) * (second + np.uint64(1))
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(value ^ (value >> np.uint64(31)), dtype=np.uint64)
