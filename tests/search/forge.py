"""Forged bytes with the CRC-32 of the original: what a checksum that is no cryptographic hash does not find."""

import zlib
from pathlib import Path

__all__ = ["PATCH", "forge_file", "keep_crc"]

PATCH = 4  # free bytes that give any content any CRC-32
_CRC_PAGE = 1 << 16


def keep_crc(original: bytes, changed: bytes, free: int) -> bytes:
    """Return ``changed`` with other bytes at ``free`` to ``free + 4``, so that it has the CRC-32 of ``original``.

    CRC-32 is affine over GF(2): each free bit changes it by a value that does not depend on the other bits, and 32
    linear equations say which bits to flip.
    """
    now = zlib.crc32(changed)
    bases: list[tuple[int, int]] = []  # effect on the CRC, and the bits that have it; leading bits differ
    for bit in range(8 * PATCH):
        effect, bits = zlib.crc32(_flip(changed, free, 1 << bit)) ^ now, 1 << bit
        for other, others in bases:
            if effect ^ other < effect:
                effect, bits = effect ^ other, bits ^ others
        bases.append((effect, bits))
        bases.sort(reverse=True)
    wanted, chosen = zlib.crc32(original) ^ now, 0
    for effect, bits in bases:
        if wanted ^ effect < wanted:
            wanted, chosen = wanted ^ effect, chosen ^ bits
    assert wanted == 0
    return _flip(changed, free, chosen)


def forge_file(path: Path, at: int, new: bytes, free: int) -> None:
    """Write ``new`` at byte ``at`` of a file, and 4 bytes at ``free``, so that 64 KiB pages keep their CRC-32."""
    data = bytearray(path.read_bytes())
    start = at // _CRC_PAGE * _CRC_PAGE
    stop = min(len(data), start + _CRC_PAGE)
    assert start <= free <= stop - PATCH
    assert at + len(new) <= stop
    assert free >= at + len(new) or free + PATCH <= at
    page = bytes(data[start:stop])
    changed = page[: at - start] + new + page[at - start + len(new) :]
    data[start:stop] = keep_crc(page, changed, free - start)
    assert bytes(data[at : at + len(new)]) == new
    assert zlib.crc32(data[start:stop]) == zlib.crc32(page)
    path.write_bytes(data)


def _flip(data: bytes, at: int, bits: int) -> bytes:
    value = int.from_bytes(data[at : at + PATCH], "little") ^ bits
    return data[:at] + value.to_bytes(PATCH, "little") + data[at + PATCH :]
