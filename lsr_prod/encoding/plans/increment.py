"""The plan of a run: the first plan of a table, its newest plan resumed, or an increment that follows that one.

A table is made by a chain of plans: a table property names the first, and each plan has at most one successor. An
increment reads new files and deletes the rows of removed files; unchanged files are not opened. A changed file is a
removed and a new one. Every wave of an increment has the new rows of a range of buckets, so that the old and the new
row of an id are in the same commit.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsr_prod.config import EncodeSettings, SourceSettings
from lsr_prod.corpus.filelist import KEPT, READ, REMOVED, file_keys, list_files, mark, relocate
from lsr_prod.corpus.source_file import SourceFile
from lsr_prod.encoding.plans.header import PLAN_FORMAT, PLAN_SETTINGS, ROW_SETTINGS
from lsr_prod.encoding.plans.plan import Plan, make_plan, plan_files
from lsr_prod.encoding.plans.saved import load_plan, successor_of
from lsr_prod.errors import ConfigError, FormatVersionError, LineageError
from lsr_prod.storage import Store

__all__ = ["newest_plan", "plan_increment", "prepare_plan"]


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
    """Return the plan that this run attempts, without writing it (``save_plan`` does).

    Args:
        files: the current corpus.
        source: the section ``source``.
        encode: the section ``encode``.
        bundle_digest: of the encoder.
        options: options of the object store.
        table: the sparse table's folder.
        root: digest of the table's first plan; None: there is no table yet.
        waves_done: returns the number of committed waves of a plan.

    Returns:
        The first plan; or the newest plan of the table, if the corpus is unchanged; or an increment that follows it.

    Raises:
        ConfigError: settings differ from those that made the table, the corpus changed while the newest plan is
            unfinished, or a new file is damaged (``slices``).
        LineageError: another bundle made the table.
        FormatVersionError: an earlier release began the newest plan and did not finish it.
    """
    if root is None:
        return make_plan(files, source, encode, bundle_digest=bundle_digest, options=options)
    newest = load_plan(table, newest_plan(table, root))
    if newest.header.bundle_digest != bundle_digest:
        raise LineageError(
            f"{table.uri} was made by bundle {newest.header.bundle_digest[:12]}, encode.bundle is "
            f"{bundle_digest[:12]}; give that bundle or a new encode.table"
        )
    finished = waves_done(newest.digest) >= newest.waves
    if not finished and newest.header.format != PLAN_FORMAT:
        raise FormatVersionError(
            f"plan {newest.digest[:12]} of {table.uri} has format {newest.header.format} and is not finished, but this "
            "release continues only plans of format "
            f"{PLAN_FORMAT}; finish it with the release that began it, or give a new encode.table"
        )
    _check_settings(newest, source, encode, table, finished=finished)
    return plan_increment(newest, files, source, encode, options=options, finished=finished)


def newest_plan(table: Store, root: str) -> str:
    """Return the digest of the newest plan of a table whose first plan is ``root``."""
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
    """Return the plan that brings a table from the corpus of ``base`` to ``files``.

    Files are compared by content (``SourceFile.key``): a file that moved, or has another place in the order, is
    unchanged.

    Args:
        base: the newest plan of the table.
        files: the current corpus.
        source: the section ``source``.
        encode: the section ``encode``; ``wave_megabytes`` bounds the bytes that a wave keeps, at least one bucket.
        options: options of the object store.
        finished: the table has all waves of ``base``.

    Returns:
        ``base`` with the current locations of its files if no file differs, else the increment.

    Raises:
        ConfigError: a file differs and ``base`` is unfinished, or a new file is damaged (``slices``).
    """
    today = list_files(files)
    present = base.files["state"].to_numpy() != REMOVED  # the removed files come last
    old, new = file_keys(base.files)[present], file_keys(today)
    added, gone = _beyond(new, old), _beyond(old, new) & ~np.isin(old, new)
    if not added.any() and not gone.any():
        return base if finished else _relocated(base, old, new, today)
    if not finished:
        raise ConfigError(
            "source.paths",
            f"{added.sum()} files are new and {gone.sum()} are gone since plan {base.digest[:12]}, of which only some "
            "waves are committed",
            "run with the former source first (of a Delta table: source.version), or give a new encode.table",
        )
    states = np.where(added, READ, KEPT).astype(np.int8)
    removed = mark(base.files.take(pa.array(np.flatnonzero(gone))), np.full(gone.sum(), REMOVED, np.int8))
    listed = pa.concat_tables([mark(today, states), removed])
    bundle_digest = base.header.bundle_digest
    return plan_files(listed, source, encode, bundle_digest=bundle_digest, options=options, base=base.digest)


def _beyond(keys: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which ``keys`` exceed their count in ``others``: of n equal keys against m, the last n - m."""
    known, counts = np.unique(others, return_counts=True)
    if not len(known):
        return np.ones(len(keys), np.bool_)
    places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    have = np.where(known[places] == keys, counts[places], 0)
    beyond: npt.NDArray[np.bool_] = _occurrence(keys) >= have
    return beyond


def _occurrence(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the number of equal keys before each key."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    runs = np.diff(np.append(starts, len(keys)))
    found = np.empty(len(keys), np.int64)
    found[order] = np.arange(len(keys)) - np.repeat(starts, runs)
    return found


def _relocated(base: Plan, old: npt.NDArray[np.int64], new: npt.NDArray[np.int64], today: pa.Table) -> Plan:
    """Return ``base`` with the current locations; equal keys are matched in their order."""
    if len(old) != len(new):
        raise ConfigError(
            "source.paths",
            f"a file that is listed several times is listed another number of times than in plan {base.digest[:12]}, "
            "of which only some waves are committed",
            "run with the former source first",
        )
    source_row = np.empty(len(old), np.int64)
    source_row[np.argsort(old, kind="stable")] = np.argsort(new, kind="stable")
    # The removed files come last and are never read.
    return replace(base, files=relocate(base.files, today.take(pa.array(source_row))))


def _check_settings(
    newest: Plan, source: SourceSettings, encode: EncodeSettings, table: Store, *, finished: bool
) -> None:
    compared = ROW_SETTINGS if finished else ROW_SETTINGS | PLAN_SETTINGS
    now = {
        "source": source.model_dump(mode="json", include=set(newest.header.source)),
        "encode": encode.model_dump(mode="json", include=set(compared)),
    }
    before = {"source": newest.header.source, "encode": newest.header.encode}
    for section, values in now.items():
        for name, value in values.items():
            was = before[section].get(name)
            if was != value:
                raise ConfigError(
                    f"{section}.{name}",
                    f"{value!r} is not what {table.uri} is made with, {was!r}",
                    f"set {was!r}, or give a new encode.table",
                )
