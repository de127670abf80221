"""The version that gates look at and the current one, opened for queries when a gate asks for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from lsr_prod.config import Deployment
from lsr_prod.config.gates import GatesSettings
from lsr_prod.formats.index import IndexVersion
from lsr_prod.formats.publication import Publication
from lsr_prod.indexing.gates import Candidate
from lsr_prod.interchange.runs import Ranking
from lsr_prod.operations.gates.impacts import ImpactCounts, count_impacts
from lsr_prod.search import Searcher
from lsr_prod.search.location import locate
from lsr_prod.search.opening.index import open_version
from lsr_prod.storage import as_store
from lsr_prod.tables import Table


@dataclass
class Versions:
    """The candidate and the current version of an index.

    Attributes:
        candidate: what the publisher asks about.
        deployment: its settings.
        files: the pinned source of the run that built the candidate; None: the run read no source.
    """

    candidate: Candidate
    deployment: Deployment
    files: pa.Table | None = None
    _answers: dict[tuple[str, tuple[str, ...], int], list[Ranking]] = field(default_factory=dict)
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

    def answers(self, searcher: Searcher, texts: Sequence[str], k: int) -> list[Ranking]:
        """Return the hits of texts; several gates share one answer."""
        key = (searcher.publication.version, tuple(texts), k)
        if key not in self._answers:
            results = [searcher.search(text, k, overlap_threshold=self.limits.threshold) for text in texts]
            self._answers[key] = [[(hit.doc_id, hit.score) for hit in result.hits] for result in results]
        return self._answers[key]
