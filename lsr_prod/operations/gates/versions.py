"""The version that gates look at and the current one, opened for queries when a gate asks for them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsr_prod.config import Deployment
from lsr_prod.config.index import GatesSettings
from lsr_prod.encoding.tables import Table, TableFile, live_batches
from lsr_prod.encoding.tables.live_rows import to_files
from lsr_prod.indexing.gates import Candidate
from lsr_prod.search import Searcher
from lsr_prod.search.location import locate
from lsr_prod.search.open_index import open_version
from lsr_prod.storage import as_store, in_threads
from lsr_prod.storage.formats.index import IndexVersion
from lsr_prod.storage.formats.publication import Publication

_PARTS = 256  # a few requests each
_DOCUMENTS = 1 << 16


@dataclass(frozen=True, slots=True)
class ImpactCounts:
    """Number of weights by their impact."""

    by_impact: npt.NDArray[np.int64]  # int64 [2**impact_bits]
    documents: int  # counted documents

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
    bits = table.sparse_properties.impact_bits
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


@dataclass
class Versions:
    """The candidate and the current version of an index."""

    candidate: Candidate  # what the publisher asks about
    deployment: Deployment  # its settings
    files: pa.Table | None = None  # the pinned source of the run that built the candidate; None: the run read no source
    _impacts: dict[int, ImpactCounts] = field(default_factory=dict)

    @property
    def limits(self) -> GatesSettings:
        """Limits of the gates."""
        return self.deployment.gates

    @property
    def options(self) -> Mapping[str, str]:
        """Options of object stores."""
        return self.deployment.storage.options

    @cached_property
    def searcher(self) -> Searcher:
        """Searches the candidate."""
        return self._open(self.candidate.version)

    @cached_property
    def current(self) -> Searcher | None:
        """Searches the current version; None: nothing is published that this release reads."""
        return None if self.candidate.current is None else self._open(self.candidate.current)

    def _open(self, version: IndexVersion) -> Searcher:
        store = as_store(self.candidate.index)
        location = locate(store.uri, None, None, dict(self.options))
        # The number of a version that is not published is never shown.
        snapshot = open_version(location, Publication(0, version.sha, ""), "lazy")
        return Searcher(snapshot, location=location)

    def impacts(self, table: Table) -> ImpactCounts:
        """Return the impacts of the table of the index; several gates share one count."""
        if table.version not in self._impacts:
            self._impacts[table.version] = count_impacts(table)
        return self._impacts[table.version]
