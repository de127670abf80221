"""The plan: pinned files cut into slices, slices gathered into waves, and one digest that names it all.

The digest covers every setting that can change a row of the table and none that cannot, and it is the app id of every
commit. Two runs with one digest are attempts at the same work. A plan lies beside its table in three objects; the
header is written last, so that where a header is, a whole plan is.
"""

import hashlib
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lsr_prod.config import EncodeSettings, SourceSettings
from lsr_prod.corpus.filelist import REMOVED, file_keys, file_of, files_digest, iterate_files, list_files
from lsr_prod.corpus.slices import WHOLE, Slice, cut_files
from lsr_prod.corpus.sources import SourceFile
from lsr_prod.errors import ArtifactError, CommitError, DigestMismatchError, FormatVersionError
from lsr_prod.formats.digest import canonical_json, digest_json
from lsr_prod.storage import Store

__all__ = [
    "PLAN_SETTINGS",
    "PROTOCOL_FOLDER",
    "ROW_SETTINGS",
    "RUN_SETTINGS",
    "WHOLE",
    "Plan",
    "Slice",
    "load_plan",
    "make_plan",
    "plan_files",
    "save_plan",
    "successor_of",
]

PLAN_FORMAT = 2
PROTOCOL_FOLDER = "_lsr_prod"

ROW_SETTINGS = frozenset(
    {"store_k", "max_length", "passage_stride", "max_passages", "impact_bits", "impact_step", "buckets"},
)
"""Settings of ``encode`` that decide a row: in the digest, and the same for every plan of a table."""

PLAN_SETTINGS = frozenset({"wave_megabytes", "slice_megabytes", "probe_documents"})
"""Those that decide what a commit holds, or the impact scale of the first plan: in the digest of one plan."""

RUN_SETTINGS = frozenset(
    {
        "bundle",
        "table",
        "sink",
        "quarantine",
        "batch_tokens",
        "actors",
        "threads_per_actor",
        "provider",
        "batch_timeout_s",
        "document_timeout_s",
        "max_bad_fraction",
    }
)
"""Those that an attempt may change: in no digest. The bundle enters it by its own digest."""

_PIECES = pa.schema(
    [
        ("ordinal", pa.int32()),
        ("start", pa.int64()),
        ("stop", pa.int64()),
        ("first_row", pa.int64()),
        ("size", pa.int64()),
    ]
)
_BATCH = 8192


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What will be encoded, in which order, in which commits. Columns inside: a million files are a few hundred MB.

    Attributes:
        digest: sha256 (hex) of ``document``; the app id of every commit.
        document: the JSON header that is stored; everything that decides the table's rows.
        files: every file of the corpus and, at the end, the removed ones (``filelist``).
        pieces: the slices, in order; ``ordinal`` is a row of ``files``.
        removed: keys of files whose rows have to go.
    """

    digest: str
    document: dict[str, Any]
    files: pa.Table = field(repr=False)
    pieces: pa.Table = field(repr=False)
    removed: frozenset[int] = field(repr=False)
    _bounds: npt.NDArray[np.int64] = field(repr=False)  # first slice of each wave of a first plan, and the end

    @property
    def base(self) -> str | None:
        """Digest of the plan before; None: the first of its table."""
        base: str | None = self.document["base"]
        return base

    @property
    def waves(self) -> int:
        """How many commits the plan is; wave ``w`` is commit ``w``."""
        return int(self.document["waves"])

    def wave(self, number: int) -> tuple[Slice, ...]:
        """What one wave reads, in source order: a part of a first plan, all new files of an increment."""
        if not 0 <= number < self.waves:
            raise IndexError(f"wave {number} of {self.waves}")
        if self.base is not None:
            return tuple(self.slices())
        first, end = int(self._bounds[number]), int(self._bounds[number + 1])
        return tuple(self._slices(self.pieces.slice(first, end - first)))

    def buckets_of(self, number: int) -> range | None:
        """The buckets whose rows a wave keeps, all of which it visits; None: all that come."""
        if self.base is None:
            return None
        buckets = int(self.document["encode"]["buckets"])
        return range(buckets * number // self.waves, buckets * (number + 1) // self.waves)

    def present(self) -> pa.Array:
        """Keys of the files that the corpus has, int64."""
        files = self.files.filter(pa.array(self.files["state"].to_numpy() != REMOVED))
        return pa.array(file_keys(files))

    def slices(self) -> Iterator[Slice]:
        """All slices in order; a batch of them is held at a time."""
        for start in range(0, self.pieces.num_rows, _BATCH):
            yield from self._slices(self.pieces.slice(start, _BATCH))

    def _slices(self, pieces: pa.Table) -> Iterator[Slice]:
        if not pieces.num_rows:
            return
        ordinals = pieces["ordinal"].to_numpy()  # they never fall
        wanted = ordinals[np.diff(ordinals, prepend=-1) > 0]
        rows = self.files.slice(ordinals[0], ordinals[-1] - ordinals[0] + 1)
        if len(wanted) < rows.num_rows:
            rows = rows.take(pa.array(wanted - ordinals[0]))
        files = {ordinal: file_of(row) for ordinal, row in zip(wanted.tolist(), rows.to_pylist(), strict=True)}
        for ordinal, *place in zip(*(column.to_pylist() for column in pieces.columns), strict=True):
            yield Slice(files[ordinal], ordinal, *place)


def make_plan(
    files: Iterable[SourceFile],
    source: SourceSettings,
    encode: EncodeSettings,
    *,
    bundle_digest: str,
    options: dict[str, str],
) -> Plan:
    """Cut a corpus into the waves of a table's first plan.

    Args:
        files: the pinned corpus; may be a generator.
        source: the section ``source``.
        encode: the section ``encode``.
        bundle_digest: of the encoder.
        options: options of the object store.

    Raises:
        ConfigError: the columns of the corpus are not those that the settings name, or a file is damaged (``slices``).
    """
    return plan_files(list_files(files), source, encode, bundle_digest=bundle_digest, options=options, base=None)


def plan_files(
    files: pa.Table,
    source: SourceSettings,
    encode: EncodeSettings,
    *,
    bundle_digest: str,
    options: dict[str, str],
    base: str | None,
) -> Plan:
    """The plan over a list of files that says what is to be done with each (``filelist``)."""
    limit = encode.slice_megabytes * 1_000_000
    pieces = _table_of(cut_files(iterate_files(files), source, limit, options))
    sizes = pieces["size"].to_numpy()
    bounds = _wave_bounds(sizes, encode.wave_megabytes * 1_000_000)
    waves = len(bounds) - 1
    if base is not None:
        wanted = -(-int(sizes.sum()) // (encode.wave_megabytes * 1_000_000))
        waves = min(max(wanted, 1), encode.buckets)  # removed files take a commit too
    document = {
        "format": PLAN_FORMAT,
        "base": base,
        "bundle": bundle_digest,
        "files": {"count": files.num_rows, "sha256": files_digest(files)},
        "slices": {"count": pieces.num_rows, "sha256": _pieces_digest(pieces)},
        "waves": waves,
        "source": source.model_dump(mode="json", exclude={"paths", "format", "version"}),
        "encode": encode.model_dump(mode="json", include=set(ROW_SETTINGS | PLAN_SETTINGS)),
    }
    return Plan(digest_json(document), document, files, pieces, _removed(files), bounds)


def _table_of(slices: Iterator[Slice]) -> pa.Table:
    names = _PIECES.names
    batches = []
    while some := list(islice(slices, _BATCH)):
        columns = [pa.array([getattr(piece, name) for piece in some], _PIECES.field(name).type) for name in names]
        batches.append(pa.RecordBatch.from_arrays(columns, schema=_PIECES))
    return pa.Table.from_batches(batches, _PIECES).combine_chunks()


def _pieces_digest(pieces: pa.Table) -> str:
    columns = [column.to_numpy().astype(np.int64) for column in pieces.columns]
    return hashlib.sha256(np.column_stack(columns).tobytes()).hexdigest()


def _wave_bounds(sizes: npt.NDArray[np.int64], limit: int) -> npt.NDArray[np.int64]:
    """First slice of each wave, and the end: as many slices as fit, and one at least."""
    ends = np.cumsum(sizes)
    bounds = [0]
    while bounds[-1] < len(sizes):
        before = ends[bounds[-1] - 1] if bounds[-1] else 0
        bounds.append(max(int(np.searchsorted(ends, before + limit, side="right")), bounds[-1] + 1))
    return np.array(bounds, np.int64)


def _removed(files: pa.Table) -> frozenset[int]:
    gone = files["state"].to_numpy() == REMOVED
    return frozenset(file_keys(files)[gone].tolist())


def save_plan(plan: Plan, table: Store) -> None:
    """Write the plan beside the table unless an earlier attempt did, and take the place after its base.

    Raises:
        CommitError: another increment follows the base.
    """
    folder = f"{PROTOCOL_FOLDER}/plans/{plan.digest}"
    table.put_new(f"{folder}.files.parquet", _parquet(plan.files))
    table.put_new(f"{folder}.slices.parquet", _parquet(plan.pieces))
    table.put_new(f"{folder}.json", canonical_json(plan.document) + b"\n")
    if plan.base is None:
        return
    link = canonical_json({"plan": plan.digest}) + b"\n"
    if not table.put_new(_successor(plan.base), link) and (other := successor_of(table, plan.base)) != plan.digest:
        raise CommitError(
            f"plan {str(other)[:12]} of another run, with another state of the source, already follows plan "
            f"{plan.base[:12]} in {table.uri}; let that run finish, then run this one again"
        )


def successor_of(table: Store, digest: str) -> str | None:
    """The plan that follows a plan, or None."""
    data = table.get(_successor(digest))
    return None if data is None else str(json.loads(data)["plan"])


def load_plan(table: Store, digest: str) -> Plan:
    """Read what ``save_plan`` wrote.

    Its files have the locations they had for the attempt that saved it. A corpus that moved is still the same corpus,
    so whoever wants to read it takes the locations of today (``increment.prepare_plan`` does).

    Raises:
        ArtifactError: there is no such plan.
        DigestMismatchError: its parts are not what its digest names.
        FormatVersionError: another release wrote it.
    """
    folder = f"{PROTOCOL_FOLDER}/plans/{digest}"
    header, *parts = (table.get(f"{folder}{ending}") for ending in (".json", ".files.parquet", ".slices.parquet"))
    found = [part for part in parts if part is not None]
    if header is None or len(found) < len(parts):
        raise ArtifactError(f"{table.uri} has no plan {digest[:12]}; its folder lost {folder}.*, encode a new table")
    document = json.loads(header)
    if document.get("format") != PLAN_FORMAT:
        raise FormatVersionError(
            f"plan {digest[:12]} has format {document.get('format')}; this release reads {PLAN_FORMAT}, encode again"
        )
    files, pieces = (pq.read_table(io.BytesIO(part)) for part in found)
    named = (digest, document["files"]["sha256"], document["slices"]["sha256"])
    if (digest_json(document), files_digest(files), _pieces_digest(pieces)) != named:
        raise DigestMismatchError(f"{folder}.* in {table.uri} is damaged; encode into a new table")
    limit = document["encode"]["wave_megabytes"] * 1_000_000
    return Plan(digest, document, files, pieces, _removed(files), _wave_bounds(pieces["size"].to_numpy(), limit))


def _successor(digest: str) -> str:
    return f"{PROTOCOL_FOLDER}/successors/{digest}.json"


def _parquet(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()
