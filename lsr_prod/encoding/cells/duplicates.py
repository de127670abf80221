"""Rows with one id: which of them becomes the document, by their order in the source (``encode.on_duplicate``).

The order of two rows is that of their files in the current listing, then their position. So an increment chooses the
row that a full encode chooses: a new row may displace a committed one, which then is quarantined as a duplicate.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.encoding.plans.saved import file_locations
from lsr_prod.errors import SourceError
from lsr_prod.storage import Store
from lsr_prod.tables.quarantine import DUPLICATE

Rule = Literal["first", "last", "error"]

DETAILS = {
    "first": "an earlier row of the corpus has this id",
    "last": "a later row of the corpus has this id",
    "error": "another row of the corpus has this id",
}
"""Rule -> detail of a row that is quarantined as a duplicate."""


@dataclass(frozen=True, slots=True)
class SourceOrder:
    """Order of new and committed rows of one id.

    Attributes:
        rule: ``encode.on_duplicate``.
        files: int64, keys of the current source files in their order; None: a first plan, whose committed rows come
            before all rows of the wave.
    """

    rule: Rule
    files: pa.Array | None

    def displaces(self, new: pa.Array, committed: pa.Array) -> pa.Array:
        """Return whether new rows take the place of committed rows of the same ids, bool [n]."""
        if self.rule == "error":
            return pa.array(np.zeros(len(committed), np.bool_))
        if self.files is None:
            return pa.array(np.full(len(committed), self.rule == "last"))
        numbers, places = new.to_numpy(zero_copy_only=False), self._places(committed)
        return pa.array(numbers < places if self.rule == "first" else numbers > places)

    def takes_over(self, duplicates: pa.Array, owners: pa.Array) -> pa.Array:
        """Return whether quarantined duplicates take the place of other rows of the same ids, bool [n]."""
        return self.displaces(pa.array(self._places(duplicates)), owners)

    def _places(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        """Return the number of each file; of a file that is listed several times, the one whose rows count."""
        assert self.files is not None
        listed = self.files.to_numpy()
        if self.rule == "first":
            known, places = np.unique(listed, return_index=True)
        else:
            known, places = np.unique(listed[::-1], return_index=True)
            places = len(listed) - 1 - places
        found: npt.NDArray[np.int64] = places[np.searchsorted(known, keys.to_numpy(zero_copy_only=False))]
        return found


def choose_rows(rows: pa.Table, rule: Rule) -> tuple[pa.Table, pa.Table]:
    """Return (one row of each id, sorted by id; the other rows)."""
    order = "descending" if rule == "last" else "ascending"
    rows = rows.sort_by([("doc_id", "ascending"), ("file", order), ("position", order)])
    ids = rows["doc_id"].combine_chunks()
    chosen = np.ones(len(ids), dtype=bool)
    if len(ids) > 1:
        chosen[1:] = pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
    mask = pa.array(chosen)
    return rows.filter(mask), rows.filter(pc.invert(mask))


def refuse_duplicates(rows: pa.Table) -> None:
    """Refuse rows whose id another row of the corpus has."""
    if rows.num_rows:
        row = rows.slice(0, 1).to_pylist()[0]
        raise SourceError(
            f"{rows.num_rows} rows have the id of another row, the first {row['doc_id']!r} at {row['position']} of "
            f"{row['source']}; remove one of them, or set encode.on_duplicate to first or last for a new table"
        )


def displaced_rows(
    schema: pa.Schema, table: Store, plan: str, displaced: Iterable[tuple[str, int]], rule: Rule
) -> pa.Table:
    """Return displaced documents as bad rows; position and bytes are not known, because their files are not read."""
    found = list(displaced)
    names = file_locations(table, plan, {key for _, key in found}) if found else {}
    rows = [
        {
            "file": -1,
            "source_key": key,
            "source": names.get(key, ""),
            "position": -1,
            "doc_id": doc_id,
            "reason": DUPLICATE,
            "detail": f"{DETAILS[rule]}; this one was a document until then",
            "raw": "",
        }
        for doc_id, key in found
    ]
    return pa.Table.from_pylist(rows, schema=schema)
