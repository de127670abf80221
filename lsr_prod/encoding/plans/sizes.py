"""Sizes of a plan: buckets, waves, cells and slices, chosen from the bytes to read and the number of encoders.

A plan keeps its sizes: a later attempt continues it on any cluster, and markers of finished cells stay valid.

- A cell becomes a part. Its bytes grow with the corpus, so that a table has a few thousand parts, of 64 to 512 MB where
  the corpus is large; but every encoder has several cells.
- A wave has two cells for every encoder or more, and a corpus has some dozens of waves at most. Waves overlap
  (``encoding.pipeline``), so that no encoder waits for the last cell of a wave.
- A table has as many buckets as a wave has cells, as far as is useful: then the ids of a bucket are looked up once per
  wave, by the encoder of its only cell.
- A slice is what one read task reads: small enough to be held in memory, and large enough that read tasks times blocks
  of a wave stay few.
"""

import math
from dataclasses import asdict, dataclass

from lsr_prod.config import EncodeSettings

SIZE_SETTINGS = ("buckets", "wave_megabytes", "cell_megabytes", "slice_megabytes")
"""Settings of ``encode`` that are chosen if they are not given."""

_MEGABYTE = 1_000_000
_WAVE = 256  # MB of a small corpus
_WAVES = 64  # of a large one: each looks up its ids in the parts of those before
_CELL, _LARGEST_CELL = 8, 128
_CELLS = 1024  # of a corpus of some size; a larger one has more of the largest cells
_CELLS_PER_ACTOR = 8
_CELLS_PER_WAVE = 2  # and actor: the wave after the next is read when the last cell of a wave is encoded
_SLICE, _LARGEST_SLICE = 32, 512
_SLICES_PER_WAVE = 128
_BUCKETS, _MOST_BUCKETS = 16, 4096
_SMALL = 4000  # MB of a corpus that needs no more buckets


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a plan.

    Attributes:
        buckets: hash buckets of the table.
        wave_megabytes: source bytes of a wave, MB.
        cell_megabytes: largest source bytes of a cell, MB.
        slice_megabytes: source bytes of a slice, MB.
    """

    buckets: int
    wave_megabytes: int
    cell_megabytes: int
    slice_megabytes: int

    def settings(self) -> dict[str, int]:
        """Return the values by setting."""
        return asdict(self)


def choose_sizes(source_bytes: int, actors: int, encode: EncodeSettings, buckets: int | None = None) -> Sizes:
    """Choose the sizes that the settings leave open."""
    megabytes = math.ceil(source_bytes / _MEGABYTE)
    cell = encode.cell_megabytes or min(
        _between(_CELL, megabytes // _CELLS, _LARGEST_CELL), max(megabytes // (_CELLS_PER_ACTOR * actors), _CELL)
    )
    wave = encode.wave_megabytes or max(_WAVE, _CELLS_PER_WAVE * actors * cell, megabytes // _WAVES)
    wanted = 1 << max(math.ceil(min(wave, megabytes) / cell) - 1, 0).bit_length()
    chosen = _BUCKETS if megabytes <= _SMALL else _between(_BUCKETS, wanted, _MOST_BUCKETS)
    return Sizes(
        buckets=buckets or encode.buckets or chosen,
        wave_megabytes=wave,
        cell_megabytes=cell,
        slice_megabytes=encode.slice_megabytes or _between(_SLICE, wave // _SLICES_PER_WAVE, _LARGEST_SLICE),
    )


def _between(least: int, value: int, most: int) -> int:
    return min(max(value, least), most)
