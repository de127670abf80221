"""The plan: pinned files, cut into slices, grouped into waves of cells, named by one digest.

The digest covers every setting that can change a row of the table, and no other setting. It is the app id of every
commit; two runs with the same digest are attempts at the same work.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from lsr_prod.config import EncodeSettings, SourceSettings
from lsr_prod.corpus.filelist import (
    KEPT,
    READ,
    REMOVED,
    cut_files,
    file_keys,
    file_of,
    files_digest,
    iterate_files,
    list_files,
)
from lsr_prod.corpus.pinned_file import Slice, SourceFile
from lsr_prod.encoding.plans.plan_header import PLAN_SETTINGS, ROW_SETTINGS, ListDigest, PlanHeader, Sizes, choose_sizes
from lsr_prod.storage.formats.digests import digest_json

_SLICE_SCHEMA = pa.schema(
    [
        ("ordinal", pa.int32()),
        ("start", pa.int64()),
        ("stop", pa.int64()),
        ("first_row", pa.int64()),
        ("size", pa.int64()),
    ]
)
_BATCH = 8192
_MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Pinned slices and settings of an encode run, cut into waves.

    Files and slices are Arrow tables: a million files take a few hundred MB.
    """

    digest: str  # sha256 (hex) of ``header``; the app id of every commit
    header: PlanHeader  # settings and digests; the part of the plan that its digest names
    files: pa.Table = field(repr=False)  # every file of the corpus and, at the end, the removed ones (``filelist``)
    slice_table: pa.Table = field(repr=False)  # the slices, in order; ``ordinal`` is a row of ``files``
    removed: frozenset[int] = field(repr=False)  # keys of the removed files, whose rows are deleted from the table
    _bounds: np.typing.NDArray[np.int64] = field(repr=False)  # first slice of each wave of a first plan, and the end

    @classmethod
    def of(cls, header: PlanHeader, files: pa.Table, slice_table: pa.Table) -> "Plan":
        """Return the plan with this header over these files and slices."""
        removed = frozenset(file_keys(files)[files["state"].to_numpy() == REMOVED].tolist())
        bounds = _wave_bounds(slice_table["size"].to_numpy(), _wave_bytes(header.encode["wave_megabytes"]))
        return cls(digest_json(header.to_json()), header, files, slice_table, removed, bounds)

    @property
    def base(self) -> str | None:
        """Digest of the previous plan; None: the first plan of its table."""
        return self.header.base

    @property
    def waves(self) -> int:
        """Number of commits; wave ``w`` is commit ``w``."""
        return self.header.waves

    def committed_files(self, waves: int) -> tuple[np.typing.NDArray[np.bool_], np.typing.NDArray[np.bool_]]:
        """Return which files a table has after some waves: (with all rows, with some or all rows), bool [files] each.

        Waves of an increment keep ranges of buckets, so that an unfinished one has read and removed its files only in
        part.
        """
        states = self.files["state"].to_numpy()
        if waves >= self.waves:
            return states != REMOVED, states != REMOVED
        if self.base is not None:
            return states == KEPT, (states != READ) | (waves > 0)
        read = self.slice_table["ordinal"].to_numpy()
        done = int(self._bounds[waves])
        some = np.isin(np.arange(len(states)), read[:done])
        return some & ~np.isin(np.arange(len(states)), read[done:]), some

    def wave(self, number: int) -> tuple[Slice, ...]:
        """Return the slices that a wave reads, in source order; every wave of an increment reads all new files."""
        if not 0 <= number < self.waves:
            raise IndexError(f"wave {number} of {self.waves}")
        if self.base is not None:
            return tuple(self.slices())
        first, end = int(self._bounds[number]), int(self._bounds[number + 1])
        return tuple(self._slices(self.slice_table.slice(first, end - first)))

    @property
    def cells(self) -> int:
        """Number of cells that ids are hashed to, in every wave: a multiple of the buckets."""
        return self.header.cells

    @property
    def source_bytes(self) -> int:
        """Source bytes of all slices."""
        return int(self.slice_table["size"].to_numpy().sum())

    def bytes_through(self, wave: int) -> int:
        """Return the source bytes that are read up to the end of a wave; every wave of an increment reads them all."""
        if self.base is not None:
            return self.source_bytes
        return int(self.slice_table["size"].to_numpy()[: self._bounds[wave + 1]].sum())

    def wave_shares(self) -> np.typing.NDArray[np.float64]:
        """Return the share of the source bytes that each wave encodes, [waves]; an increment spreads them evenly."""
        sizes = self.slice_table["size"].to_numpy()
        if self.base is not None or not sizes.sum():
            return np.full(self.waves, 1 / max(self.waves, 1))
        ends = np.concatenate([[0], np.cumsum(sizes)])[self._bounds]
        shares: np.typing.NDArray[np.float64] = np.diff(ends) / ends[-1]
        return shares

    @property
    def buckets(self) -> int:
        """Number of hash buckets of the table."""
        return int(self.header.encode["buckets"])

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the plan by name; the bytes are those of the source."""
        parts = sum(len(self.cells_of(wave)) for wave in range(self.waves))
        return {
            "source_bytes": self.source_bytes,
            "waves": self.waves,
            "cells_per_wave": parts // max(self.waves, 1),
            "parts": parts,
            "bytes_per_part": self.source_bytes // max(parts, 1),
            "buckets": self.buckets,
            "read_tasks": math.ceil(self.source_bytes / self.slice_bytes),
        }

    @property
    def slice_bytes(self) -> int:
        """Source bytes of a slice, about."""
        return int(self.header.encode["slice_megabytes"]) * _MEGABYTE

    @property
    def largest_wave_bytes(self) -> int:
        """Source bytes of the largest wave."""
        sizes = self.slice_table["size"].to_numpy()
        return _largest(sizes, self._bounds) if self.base is None else math.ceil(int(sizes.sum()) / self.waves)

    def buckets_of(self, number: int) -> range:
        """Return the buckets whose rows a wave keeps: all in a first plan, a range of them in an increment."""
        if self.base is None:
            return range(self.buckets)
        return range(self.buckets * number // self.waves, self.buckets * (number + 1) // self.waves)

    def cells_of(self, number: int) -> tuple[int, ...]:
        """Return the cells of a wave, ascending: all cells of its buckets."""
        kept = self.buckets_of(number)
        return tuple(start + bucket for start in range(0, self.cells, self.buckets) for bucket in kept)

    def present(self) -> pa.Array:
        """Return the keys of the files of the corpus, int64."""
        return pa.array(file_keys(self.files.filter(pa.array(self.files["state"].to_numpy() != REMOVED))))

    def slices(self) -> Iterator[Slice]:
        """Yield all slices in order; one batch of them is in memory at a time."""
        for start in range(0, self.slice_table.num_rows, _BATCH):
            yield from self._slices(self.slice_table.slice(start, _BATCH))

    def _slices(self, rows: pa.Table) -> Iterator[Slice]:
        ordinals = rows["ordinal"].to_numpy()  # ascending
        wanted = ordinals[np.diff(ordinals, prepend=-1) > 0]
        listed = self.files.slice(ordinals[0], ordinals[-1] - ordinals[0] + 1)
        if len(wanted) < listed.num_rows:
            listed = listed.take(pa.array(wanted - ordinals[0]))
        files = {ordinal: file_of(row) for ordinal, row in zip(wanted.tolist(), listed.to_pylist(), strict=True)}
        for ordinal, *place in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            yield Slice(files[ordinal], ordinal, *place)


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """Settings that a new plan follows from, besides its files."""

    source: SourceSettings  # the section ``source``
    encode: EncodeSettings  # the section ``encode``
    bundle: str  # digest of the bundle of the encoder
    options: dict[str, str]  # options of the object store
    actors: Callable[[], int] = lambda: 1  # returns the number of encoders that open sizes are chosen for


def make_plan(files: Iterable[SourceFile], inputs: PlanInputs) -> Plan:
    """Make the first plan of a table."""
    listed = list_files(files)
    return plan_files(listed, inputs, choose_sizes(bytes_to_read(listed), inputs.actors(), inputs.encode))


def plan_files(
    files: pa.Table, inputs: PlanInputs, sizes: Sizes, base: str | None = None, base_waves: int | None = None
) -> Plan:
    """Make a plan over a list of files with a state each: read, kept or removed (``filelist``)."""
    source, slice_bytes = inputs.source, sizes.slice_megabytes * _MEGABYTE
    slice_table = _table_of(cut_files(iterate_files(files), source, slice_bytes, inputs.options))
    lengths, wave_bytes = slice_table["size"].to_numpy(), _wave_bytes(sizes.wave_megabytes)
    if base is None:
        bounds = _wave_bounds(lengths, wave_bytes)
        waves, shared = len(bounds) - 1, _largest(lengths, bounds)
    else:
        shared = int(lengths.sum())
        # An increment that only removes files needs a commit too.
        waves = min(max(math.ceil(shared / wave_bytes), 1), sizes.buckets)
    header = PlanHeader(
        base=base,
        bundle=inputs.bundle,
        files=ListDigest(files.num_rows, files_digest(files)),
        slices=ListDigest(slice_table.num_rows, slices_digest(slice_table)),
        waves=waves,
        cells=sizes.buckets * max(math.ceil(shared / (sizes.buckets * sizes.cell_megabytes * _MEGABYTE)), 1),
        source=source.model_dump(mode="json", exclude={"paths", "format", "version", "on_damage"}),
        encode=_encode_settings(inputs.encode) | asdict(sizes),
        base_waves=base_waves,
    )
    return Plan.of(header, files, slice_table)


def _encode_settings(encode: EncodeSettings) -> dict[str, Any]:
    values = encode.model_dump(mode="json", include=set(ROW_SETTINGS | PLAN_SETTINGS))
    if encode.store_mass is None:  # as in plans of releases without it, which are resumed by their digest
        del values["store_mass"]
    return values


def _table_of(slices: Iterator[Slice]) -> pa.Table:
    names = _SLICE_SCHEMA.names
    batches = []
    while some := list(islice(slices, _BATCH)):
        columns = [pa.array([getattr(piece, name) for piece in some], _SLICE_SCHEMA.field(name).type) for name in names]
        batches.append(pa.RecordBatch.from_arrays(columns, schema=_SLICE_SCHEMA))
    return pa.Table.from_batches(batches, _SLICE_SCHEMA).combine_chunks()


def slices_digest(slice_table: pa.Table) -> str:
    """Return the sha256 (hex) over every slice, in order."""
    columns = [column.to_numpy().astype(np.int64) for column in slice_table.columns]
    return hashlib.sha256(np.column_stack(columns).tobytes()).hexdigest()


def bytes_to_read(files: pa.Table) -> int:
    """Return the bytes of the files that a plan reads."""
    return int(files["size"].to_numpy()[files["state"].to_numpy() == READ].sum())


def _largest(sizes: np.typing.NDArray[np.int64], bounds: np.typing.NDArray[np.int64]) -> int:
    return int(np.add.reduceat(sizes, bounds[:-1]).max()) if len(bounds) > 1 else 0


def _wave_bytes(megabytes: int) -> int:
    return megabytes * _MEGABYTE


def _wave_bounds(sizes: np.typing.NDArray[np.int64], limit: int) -> np.typing.NDArray[np.int64]:
    """First slice of each wave, and the end; a wave has as many slices as fit in ``limit`` bytes, at least one."""
    ends = np.cumsum(sizes)
    bounds = [0]
    while bounds[-1] < len(sizes):
        before = ends[bounds[-1] - 1] if bounds[-1] else 0
        bounds.append(max(int(np.searchsorted(ends, before + limit, side="right")), bounds[-1] + 1))
    return np.array(bounds, np.int64)
