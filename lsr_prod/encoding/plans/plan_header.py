"""The header of a plan: its settings and the digests of its lists; the part of a plan that its digest names.

Sizes of a plan: buckets, waves, cells and slices, chosen from the bytes to read and the number of encoders.

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
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lsr_prod.config import EncodeSettings

PLAN_FORMAT = 3
ROW_SETTINGS = frozenset(
    {"store_k", "store_mass", "max_length", "passage_stride", "max_passages", "impact_bits", "impact_step", "buckets",
     "on_duplicate"},
)  # fmt: skip
"""Settings of ``encode`` that decide the rows: part of the digest, and the same for every plan of a table."""
PLAN_SETTINGS = frozenset({"wave_megabytes", "slice_megabytes", "cell_megabytes", "probe_documents"})
"""Settings that decide the contents of a commit, or the impact scale of the first plan: part of one plan's digest.

An attempt may change every other setting of ``encode``. The bundle enters the digest by its own digest.
"""
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
class ListDigest:
    """Number of entries of a list, and the sha256 (hex) over them."""

    count: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PlanHeader:
    """Settings and file lists that determine the rows of the table; its JSON form has the digest of the plan."""

    base: str | None  # digest of the previous plan; None: the first plan of its table
    bundle: str  # digest of the bundle of the encoder
    files: ListDigest  # of the corpus and of the removed files
    slices: ListDigest  # that the waves read
    waves: int  # number of commits; wave ``w`` is commit ``w``
    cells: int  # number of cells that ids are hashed to, a multiple of the buckets
    source: Mapping[str, Any]  # settings of the section ``source``, by name
    encode: Mapping[str, Any]  # settings of the section ``encode``, by name
    # committed waves of a previous plan that is not finished and never will be; None: it is finished
    base_waves: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the header as it is stored."""
        document = {"format": PLAN_FORMAT, **asdict(self)}
        if self.base_waves is None:
            del document["base_waves"]
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "PlanHeader":
        """Read the output of ``to_json``."""
        lists = {name: ListDigest(**document[name]) for name in ("files", "slices")}
        return cls(**{name: value for name, value in document.items() if name != "format"} | lists)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a plan."""

    buckets: int  # hash buckets of the table
    wave_megabytes: int  # source bytes of a wave, MB
    cell_megabytes: int  # largest source bytes of a cell, MB
    slice_megabytes: int  # source bytes of a slice, MB


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
