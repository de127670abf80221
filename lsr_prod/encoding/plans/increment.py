"""The plan of a run: the first plan of a table, its newest plan resumed, or an increment that follows that one.

A table is made by a chain of plans: a table property names the first, and each plan has at most one successor. An
increment reads new files and deletes the rows of removed files; unchanged files are not opened. A changed file is a
removed and a new one. Every wave of an increment has the new rows of a range of buckets, so that the old and the new
row of an id are in the same commit.

A file that did not change is read again if a row of it was quarantined as a duplicate and now becomes the document of
its id (``returning``): it counts as removed and new, and its other texts keep their vectors.

An increment follows a finished plan, or one that is given up: superseded if it has no committed wave, else abandoned.
Files that an abandoned plan has read or removed in part are removed and read again; texts that did not change keep
their vectors.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lsr_prod.config import EncodeSettings
from lsr_prod.corpus.filelist import KEPT, READ, REMOVED, file_keys, list_files, mark, relocate
from lsr_prod.corpus.pinned_file import SourceFile
from lsr_prod.encoding.plans import plan_header, successors
from lsr_prod.encoding.plans.encode_plan import Plan, PlanInputs, bytes_to_read, make_plan, plan_files
from lsr_prod.encoding.tables.sparse_table import other_setting
from lsr_prod.errors import ConfigError, LineageError
from lsr_prod.storage import Store

_SHORTEST_PREFIX = 8  # digits of a digest


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Changes of a list of files."""

    present: pa.Array  # int64, keys of all files of the corpus, in order
    kept: pa.Array  # int64, keys of the files that are not read
    removed: pa.Array  # int64, keys of the files whose rows are deleted
    reordered: bool  # the kept files are listed in another order than before


FindReturning = Callable[[FileChanges], frozenset[int]]
"""Returns the keys of kept files that have to be read again; see ``returning.find_returning_files``."""


def prepare_plan(
    files: Iterable[SourceFile],
    inputs: PlanInputs,
    *,
    table: Store,
    root: str | None,
    waves_done: Callable[[str], int],
    abandon: str | None = None,
    returning: FindReturning = lambda _: frozenset(),
) -> Plan:
    """Return the plan that this run attempts, without writing it (``save_plan`` does).

    Returns:
        The first plan; or the newest plan of the table, if the corpus is unchanged; or an increment that follows it.
    """
    if root is None:
        if abandon is not None:
            raise ConfigError("--abandon", f"{table.uri} has no plan", "leave the option out")
        return make_plan(files, inputs)
    newest = successors.load_plan(table, successors.plan_chain(table, root, waves_done)[-1])
    if newest.header.bundle != inputs.bundle:
        raise LineageError(
            f"{table.uri} was made by bundle {newest.header.bundle[:12]}, encode.bundle is "
            f"{inputs.bundle[:12]}; give that bundle or a new encode.table"
        )
    done = min(waves_done(newest.digest), newest.waves)
    given_up = abandon is not None and _is_abandoned(newest, abandon, done, table)
    _check_settings(newest, inputs, table, plan_header.ROW_SETTINGS)
    if 0 < done < newest.waves and not given_up:
        _check_settings(newest, inputs, table, plan_header.PLAN_SETTINGS)
    return plan_increment(newest, files, inputs, done=done, abandon=given_up, returning=returning)


def has_order_of(plan: Plan, listed: pa.Table) -> bool:
    """Return whether a plan has the files of the corpus in their current order.

    An unfinished plan is resumed with the order that it began with; the next plan follows a new order.
    """
    return np.array_equal(plan.present().to_numpy(), file_keys(listed))


def plan_increment(
    base: Plan,
    files: Iterable[SourceFile],
    inputs: PlanInputs,
    *,
    done: int,
    abandon: bool = False,
    returning: FindReturning = lambda _: frozenset(),
) -> Plan:
    """Return the plan that brings a table from the committed part of ``base`` to ``files``.

    Files are compared by content (``SourceFile.key``): a file that moved is unchanged. Another order of the files
    matters only if rows of two files have one id.

    Returns:
        ``base`` with the current locations of its files if no file differs, else the increment.
    """
    today = list_files(files)
    finished = done >= base.waves
    planned = file_keys(base.files)[base.files["state"].to_numpy() != REMOVED]  # the removed files come last
    new = file_keys(today)
    added, gone = _beyond(new, planned), _beyond(planned, new) & ~np.isin(planned, new)
    unchanged = not added.any() and not gone.any() and not abandon
    if unchanged and not finished and (done or (len(planned) == len(new) and _same_waves(base, inputs.encode))):
        return _relocated(base, planned, new, today)
    if 0 < done < base.waves and not abandon:
        raise ConfigError(
            "source.paths",
            f"{added.sum()} files are new and {gone.sum()} are gone since plan {base.digest[:12]}, of which only "
            f"{done} of {base.waves} waves are committed",
            "run with the former source first (of a Delta table: source.version), or give the plan up with "
            f"lsr-prod encode --abandon {base.digest[:12]}",
        )
    listed = _with_states(base, done, today, new, returning)
    if finished and (listed["state"].to_numpy() == KEPT).all():
        return base
    buckets = int(base.header.encode["buckets"])
    sizes = plan_header.choose_sizes(bytes_to_read(listed), inputs.actors(), inputs.encode, buckets)
    return plan_files(listed, inputs, sizes, base.digest, None if finished else done)


def _with_states(
    base: Plan, done: int, today: pa.Table, new: np.typing.NDArray[np.int64], returning: FindReturning
) -> pa.Table:
    """Return the files of the corpus, to be read or kept, then those whose rows are removed."""
    keys = file_keys(base.files)
    whole, some = base.committed_files(done)
    added, gone = _differences(keys, whole, some, new)
    kept = new[~added]
    reordered = not np.array_equal(keys[whole & ~gone], kept)
    if reordered or gone.any():
        present, staying, leaving = (pa.array(some_keys, pa.int64()) for some_keys in (new, kept, keys[gone]))
        changes = FileChanges(present, staying, leaving, reordered)
        again = np.isin(keys, np.array(sorted(returning(changes)), np.int64))
        if again.any():
            added, gone = _differences(keys, whole & ~again, some, new)
    removed = mark(base.files.take(pa.array(np.flatnonzero(gone))), np.full(gone.sum(), REMOVED, np.int8))
    return pa.concat_tables([mark(today, np.where(added, READ, KEPT).astype(np.int8)), removed])


def _differences(
    keys: np.typing.NDArray[np.int64],
    whole: np.typing.NDArray[np.bool_],
    some: np.typing.NDArray[np.bool_],
    new: np.typing.NDArray[np.int64],
) -> tuple[np.typing.NDArray[np.bool_], np.typing.NDArray[np.bool_]]:
    """Return which files of the corpus are read, and which files of the previous plan are removed."""
    in_part = some & ~whole
    whole = whole & ~np.isin(keys, keys[in_part])  # another copy of such a file: its rows are removed with those of it
    old = keys[whole]
    gone = in_part
    gone[np.flatnonzero(whole)] = _beyond(old, new) & ~np.isin(old, new)
    return _beyond(new, old), gone


def _same_waves(base: Plan, encode: EncodeSettings) -> bool:
    """Return whether a plan has the waves and cells that these settings give."""
    now = encode.model_dump(mode="json", include=set(plan_header.PLAN_SETTINGS))
    return all(_is_open(name, value) or base.header.encode[name] == value for name, value in now.items())


def _is_open(name: str, value: object) -> bool:
    """Return whether a setting leaves its value to the plan."""
    return name in plan_header.SIZE_SETTINGS and value is None


def _is_abandoned(newest: Plan, wanted: str, done: int, table: Store) -> bool:
    """Return whether the newest plan is the one to abandon; False: an earlier run has abandoned it already."""
    if len(wanted) < _SHORTEST_PREFIX:
        remedy = f"give {_SHORTEST_PREFIX} digits of the plan or more"
        raise ConfigError("--abandon", f"{wanted!r} is too short", remedy)
    if newest.base is not None and newest.base.startswith(wanted) and newest.header.base_waves is not None:
        return False
    if not newest.digest.startswith(wanted):
        problem = f"{wanted} is not the newest plan of {table.uri}"
        raise ConfigError("--abandon", problem, f"give {newest.digest[:12]}, or leave the option out")
    if done >= newest.waves:
        raise ConfigError("--abandon", f"plan {wanted} is finished", "leave the option out")
    return True


def _beyond(keys: np.typing.NDArray[np.int64], others: np.typing.NDArray[np.int64]) -> np.typing.NDArray[np.bool_]:
    """Return which ``keys`` exceed their count in ``others``: of n equal keys against m, the last n - m."""
    known, counts = np.unique(others, return_counts=True)
    if not len(known):
        return np.ones(len(keys), np.bool_)
    places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    beyond: np.typing.NDArray[np.bool_] = _occurrence(keys) >= np.where(known[places] == keys, counts[places], 0)
    return beyond


def _occurrence(keys: np.typing.NDArray[np.int64]) -> np.typing.NDArray[np.int64]:
    """Return the number of equal keys before each key."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    runs = np.diff(np.append(starts, len(keys)))
    found = np.empty(len(keys), np.int64)
    found[order] = np.arange(len(keys)) - np.repeat(starts, runs)
    return found


def _relocated(base: Plan, old: np.typing.NDArray[np.int64], new: np.typing.NDArray[np.int64], today: pa.Table) -> Plan:
    """Return ``base`` with the current locations.

    Equal keys are matched in their order. If copies of a file are gone, the last one that is left stands for them.
    """
    order = np.argsort(new, kind="stable")
    first, end = (np.searchsorted(new[order], old, side=side) for side in ("left", "right"))
    source_row = order[np.minimum(first + _occurrence(old), end - 1)]
    # The removed files come last and are never read.
    return replace(base, files=relocate(base.files, today.take(pa.array(source_row))))


def _check_settings(newest: Plan, inputs: PlanInputs, table: Store, compared: frozenset[str]) -> None:
    now = {
        "source": inputs.source.model_dump(mode="json", include=set(newest.header.source) - {"types"}),
        "encode": inputs.encode.model_dump(mode="json", include=set(compared)),
    }
    before = {"source": newest.header.source, "encode": newest.header.encode}
    for section, values in now.items():
        for name, value in values.items():
            was = before[section].get(name)  # store_mass is absent if it is not set
            if was != value and not _is_open(name, value):
                raise other_setting(f"{section}.{name}", table, value, was)
