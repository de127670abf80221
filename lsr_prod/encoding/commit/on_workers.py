"""Checks of many parts and markers, and merges of deletion vectors, by Ray tasks; few are made in this process."""

from collections.abc import Sequence

from lsr_prod.encoding.commit.committer import check_for_commit, merge_all
from lsr_prod.encoding.commit.markers import read_markers
from lsr_prod.encoding.node_tasks import NodeTasks
from lsr_prod.encoding.results import CellResult
from lsr_prod.encoding.tables.deletions import Deletion
from lsr_prod.storage import Store

_FEW = 32
_GROUP = 64  # cells per task: seconds, at a few requests of 20 ms each


def check_on_workers(
    tasks: NodeTasks, table: Store, quarantine: Store, cells: Sequence[CellResult], began: float
) -> None:
    """See ``committer.check_for_commit``."""
    if len(cells) <= _FEW:
        check_for_commit(table, quarantine, cells, began)
        return
    calls = [(table, quarantine, cells[start : start + _GROUP], began) for start in range(0, len(cells), _GROUP)]
    tasks.run(check_for_commit, calls, task="checking parts before their commit")


def merge_on_workers(tasks: NodeTasks, table: Store, groups: Sequence[Sequence[Deletion]]) -> list[Deletion]:
    """See ``committer.merge_all``; parts that one cell deletes rows of need no work."""
    merged = [group[0] for group in groups if len(group) == 1]
    left = [group for group in groups if len(group) > 1]
    if len(left) <= _FEW:
        return merged + merge_all(table, left)
    calls = [(table, left[start : start + _GROUP]) for start in range(0, len(left), _GROUP)]
    return merged + [each for some in tasks.run(merge_all, calls, task="merging deletion vectors") for each in some]


def read_markers_on_workers(
    tasks: NodeTasks, table: Store, quarantine: Store, names: Sequence[str]
) -> list[CellResult]:
    """See ``markers.read_markers``."""
    if len(names) <= _FEW:
        return read_markers(table, quarantine, names)
    calls = [(table, quarantine, names[start : start + _GROUP]) for start in range(0, len(names), _GROUP)]
    found = tasks.run(read_markers, calls, task="reading markers")
    return [result for results in found for result in results]
