"""Impacts of a table: how many weights have which impact, counted over a sample of all parts."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsr_prod.formats.table import TableProperties
from lsr_prod.storage.threads import in_threads
from lsr_prod.tables import Table, TableFile, live_batches
from lsr_prod.tables.file_table import to_files

_PARTS = 256  # a few requests each
_DOCUMENTS = 1 << 16


@dataclass(frozen=True, slots=True)
class ImpactCounts:
    """Number of weights by their impact.

    Attributes:
        by_impact: int64 [2**impact_bits].
        documents: counted documents.
    """

    by_impact: npt.NDArray[np.int64]
    documents: int

    @property
    def weights(self) -> int:
        """Number of weights."""
        return int(self.by_impact.sum())

    @property
    def mean(self) -> float:
        """Mean impact; 0 without weights."""
        return float(self.by_impact @ np.arange(len(self.by_impact))) / max(self.weights, 1)

    @property
    def largest_share(self) -> float:
        """Share of the weights that have the largest impact; a scale with headroom gives it to clipped weights only."""
        return int(self.by_impact[-1]) / max(self.weights, 1)


def count_impacts(table: Table, *, parts: int = _PARTS, documents: int = _DOCUMENTS) -> ImpactCounts:
    """Count the impacts of documents of a table that are not deleted.

    A part has documents of one plan whose ids hash to one bucket, so the first ones of many parts are a fair sample of
    all plans.
    """
    files = to_files(_spread(table.file_table(), parts))
    bits = TableProperties.from_delta(dict(table.properties)).impact_bits
    rows = -(-documents // max(len(files), 1))
    counts = in_threads(partial(_count, table, rows=rows, bits=bits), files)
    by_impact = np.sum([np.zeros(1 << bits, np.int64), *(one.by_impact for one in counts)], axis=0)
    return ImpactCounts(by_impact, sum(one.documents for one in counts))


def _spread(files: pa.Table, parts: int) -> pa.Table:
    """Return parts at even distances in rows; a large part counts once."""
    if files.num_rows <= parts:
        return files
    ends = np.cumsum(files["rows"].fill_null(1).to_numpy())
    places = np.searchsorted(ends, (np.arange(parts) + 0.5) * ends[-1] / parts, side="right")
    return files.take(pa.array(np.unique(np.minimum(places, files.num_rows - 1))))


def _count(table: Table, file: TableFile, *, rows: int, bits: int) -> ImpactCounts:
    """Count the impacts of the first rows of a part."""
    for batch in live_batches(table.store, file, ["impacts"], rows):
        if batch.num_rows:
            impacts = batch["impacts"].flatten().to_numpy()
            return ImpactCounts(np.bincount(impacts, minlength=1 << bits).astype(np.int64), batch.num_rows)
    return ImpactCounts(np.zeros(1 << bits, np.int64), 0)
