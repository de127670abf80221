"""What a run does with a table: make its first plan, resume the newest one, or follow it with an increment.

A table is made by a chain of plans; its property names the first, and each is followed by one at most. An increment
reads the files that are new and deletes the rows of files that are gone; files that stayed are not opened. A file that
changed is both. Every wave of an increment reads all new files and keeps a range of buckets, so that the old and the
new row of an id meet in one commit.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsr_prod.config import EncodeSettings, SourceSettings
from lsr_prod.corpus.filelist import KEPT, READ, REMOVED, file_keys, list_files, mark
from lsr_prod.corpus.sources import SourceFile
from lsr_prod.encoding.plan import PLAN_SETTINGS, ROW_SETTINGS, Plan, load_plan, make_plan, plan_files, successor_of
from lsr_prod.errors import ConfigError, LineageError
from lsr_prod.storage import Store

__all__ = ["head_of", "plan_increment", "prepare_plan"]


def prepare_plan(
    files: Iterable[SourceFile],
    source: SourceSettings,
    encode: EncodeSettings,
    *,
    bundle_digest: str,
    options: dict[str, str],
    table: Store,
    root: str | None,
    waves_done: Callable[[str], int],
) -> Plan:
    """The plan that this run attempts. Nothing is written; ``save_plan`` does that.

    Args:
        files: the corpus of today.
        source: the section ``source``.
        encode: the section ``encode``.
        bundle_digest: of the encoder.
        options: options of the object store.
        table: the sparse table's folder.
        root: the table's first plan; None: there is no table yet.
        waves_done: how many waves of a plan the table has.

    Returns:
        The first plan; or the newest one of the table, if the corpus is what it was; or an increment upon it.

    Raises:
        ConfigError: settings differ from those that made the table, or the corpus changed while the newest plan is
            unfinished, or a new file is damaged (``slices``).
        LineageError: another bundle made the table.
    """
    if root is None:
        return make_plan(files, source, encode, bundle_digest=bundle_digest, options=options)
    head = load_plan(table, head_of(table, root))
    if head.document["bundle"] != bundle_digest:
        raise LineageError(
            f"{table.uri} was made by bundle {head.document['bundle'][:12]}, encode.bundle is {bundle_digest[:12]}; "
            "give that bundle or a new encode.table"
        )
    finished = waves_done(head.digest) >= head.waves
    _check_settings(head, source, encode, table, finished=finished)
    return plan_increment(head, files, source, encode, options=options, finished=finished)


def head_of(table: Store, root: str) -> str:
    """The newest plan of a table, whose first one is ``root``."""
    digest = root
    while (after := successor_of(table, digest)) is not None:
        digest = after
    return digest


def plan_increment(
    base: Plan,
    files: Iterable[SourceFile],
    source: SourceSettings,
    encode: EncodeSettings,
    *,
    options: dict[str, str],
    finished: bool,
) -> Plan:
    """The plan that takes a table from the corpus of ``base`` to ``files``.

    A file is known by its content (``SourceFile.key``): one that moved, or stands elsewhere in the order, is unchanged.

    Args:
        base: the newest plan of the table.
        files: the corpus of today.
        source: the section ``source``.
        encode: the section ``encode``; its wave is a bound on what is read for a range of buckets, which cannot be
            narrower than one bucket.
        options: options of the object store.
        finished: whether the table has all waves of ``base``.

    Returns:
        ``base`` if there is no difference, its files where they lie today.

    Raises:
        ConfigError: there is a difference, and ``base`` is unfinished; or a new file is damaged (``slices``).
    """
    today = list_files(files)
    stood = base.files["state"].to_numpy() != REMOVED  # those that do not stand last
    old, new = file_keys(base.files)[stood], file_keys(today)
    added, gone = _beyond(new, old), _beyond(old, new) & ~np.isin(old, new)
    if not added.any() and not gone.any():
        return base if finished else _at_their_places(base, old, new, today)
    if not finished:
        raise ConfigError(
            "source.paths",
            f"{added.sum()} files are new and {gone.sum()} are gone since plan {base.digest[:12]}, which the table has "
            "in part",
            "run with the former source first (of a Delta table: source.version), or give a new encode.table",
        )
    states = np.where(added, READ, KEPT).astype(np.int8)
    removed = mark(base.files.take(pa.array(np.flatnonzero(gone))), np.full(gone.sum(), REMOVED, np.int8))
    listed = pa.concat_tables([mark(today, states), removed])
    bundle = base.document["bundle"]
    return plan_files(listed, source, encode, bundle_digest=bundle, options=options, base=base.digest)


def _beyond(keys: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which of ``keys`` are more than ``others`` has of the same: of n equal ones against m, the last n - m."""
    known, counts = np.unique(others, return_counts=True)
    if not len(known):
        return np.ones(len(keys), np.bool_)
    places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    have = np.where(known[places] == keys, counts[places], 0)
    beyond: npt.NDArray[np.bool_] = _occurrence(keys) >= have
    return beyond


def _occurrence(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many equal keys stand before each."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    runs = np.diff(np.append(starts, len(keys)))
    found = np.empty(len(keys), np.int64)
    found[order] = np.arange(len(keys)) - np.repeat(starts, runs)
    return found


def _at_their_places(base: Plan, old: npt.NDArray[np.int64], new: npt.NDArray[np.int64], today: pa.Table) -> Plan:
    """``base`` with the locations of today: equal keys in their order meet each other."""
    if len(old) != len(new):
        raise ConfigError(
            "source.paths",
            f"a file that stands several times in the corpus stands another number of times than in plan "
            f"{base.digest[:12]}, which the table has in part",
            "run with the former source first",
        )
    source_row = np.empty(len(old), np.int64)
    source_row[np.argsort(old, kind="stable")] = np.argsort(new, kind="stable")
    present = today.take(pa.array(source_row))
    removed = base.files.slice(len(old))  # they stand last, and are never read
    files = base.files
    for name in ("uri", "name"):
        column = pa.chunked_array([*present[name].chunks, *removed[name].chunks], pa.string())
        files = files.set_column(files.schema.get_field_index(name), name, column)
    return replace(base, files=files)


def _check_settings(
    head: Plan, source: SourceSettings, encode: EncodeSettings, table: Store, *, finished: bool
) -> None:
    compared = ROW_SETTINGS if finished else ROW_SETTINGS | PLAN_SETTINGS
    now = {
        "source": source.model_dump(mode="json", include=set(head.document["source"])),
        "encode": encode.model_dump(mode="json", include=set(compared)),
    }
    for section, values in now.items():
        for name, value in values.items():
            was = head.document[section].get(name)
            if was != value:
                raise ConfigError(
                    f"{section}.{name}",
                    f"{value!r} is not what {table.uri} is made with, {was!r}",
                    "set it so, or give a new encode.table",
                )
