"""Report of the gates about a new version of an index, and the figures and queries that the gates read."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from lsr_prod.config import Deployment
from lsr_prod.config.deployment import GatesSettings
from lsr_prod.encoding.tables import Table, TableFile, live_batches, live_rows, load_table
from lsr_prod.errors import SourceError
from lsr_prod.evaluation.rows import numbered_lines
from lsr_prod.indexing.publish import Candidate
from lsr_prod.operations.audit import compare, findings
from lsr_prod.operations.audit.audit import audit, deployment_scope
from lsr_prod.operations.audit.scope import IndexScope
from lsr_prod.operations.canary import CanaryQuery, read_queries
from lsr_prod.search import Searcher, open_index
from lsr_prod.storage import Store, as_store, folders, in_threads
from lsr_prod.storage.formats.index_format import IndexVersion, Publication

_PARTS = 256  # of a table, whose impacts are counted: a few requests each
_DOCUMENTS = 1 << 16  # of these parts, at most about so many
_SAMPLE = 100_000  # ids that an audit compares, at least
_LARGEST_SHARE = 64  # an audit compares at least one of so many ids
_K = 10  # hits of a golden query, unless it says otherwise
Verdict = Literal["passed", "refused", "forced", "off"]


@dataclass(frozen=True, slots=True)
class GateResult:
    """Result of one gate."""

    gate: str  # its name
    verdict: Verdict  # ``passed``; ``refused``; ``forced``: refused, but overruled; ``off``: it has no limit
    measured: float | None  # value of the version; None: there is nothing to measure, or the gate is off
    limit: float | None  # the limit of the settings; None: off
    sentence: str  # the finding in words
    queries: tuple[str, ...] = ()  # ids of the queries whose hits changed most, of the gate ``overlap``

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "GateResult":
        """Read the form of ``GateReport.to_json``."""
        return cls(**{**value, "queries": tuple(value.get("queries", ()))})


@dataclass(frozen=True, slots=True)
class GateReport:
    """Results of all gates for one version."""

    version: str  # sha256 of the version
    current: str  # sha256 of the version that it would replace; "": there is none
    checked_at: str  # UTC, ISO 8601
    results: tuple[GateResult, ...]  # one per gate, in their order
    reason: str = ""  # why gates were overruled; "": none was

    @property
    def refused(self) -> tuple[GateResult, ...]:
        """Results of the gates that refuse the version."""
        return tuple(result for result in self.results if result.verdict == "refused")

    def to_json(self) -> dict[str, Any]:
        """Return the form stored in the index."""
        return {**asdict(self), "results": [asdict(result) for result in self.results]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "GateReport":
        """Read the form of ``to_json``."""
        return cls(**{**value, "results": tuple(GateResult.from_json(result) for result in value["results"])})


@dataclass(frozen=True, slots=True)
class ImpactCounts:
    """Number of weights by their impact."""

    by_impact: np.typing.NDArray[np.int64]  # int64 [2**impact_bits]
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


@dataclass
class Versions:
    """The candidate and the current version of an index."""

    candidate: Candidate  # what the publisher asks about
    deployment: Deployment  # its settings
    files: pa.Table | None = None  # the pinned source of the run that built the candidate; None: the run read no source

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
        location = open_index.locate(as_store(self.candidate.index).uri, None, None, dict(self.options))
        # The number of a version that is not published is never shown.
        return Searcher(open_index.open_version(location, Publication(0, version.sha, ""), "lazy"), location=location)

    @cached_property
    def table(self) -> Table:
        """The table that the candidate was built from."""
        assert self.deployment.index is not None
        place = folders.absolute(self.deployment.index.table)
        return load_table(Store(place, dict(self.options)), self.candidate.version.table_version)

    @cached_property
    def impacts(self) -> ImpactCounts:
        """The impacts of the table; several gates share one count."""
        return count_impacts(self.table)


@dataclass(frozen=True, slots=True)
class GoldenQuery:
    """A query that must find some documents."""

    query_id: str  # its id
    text: str  # the query
    must: tuple[str, ...]  # ids of the documents
    k: int  # they have to be among so many hits


def count_impacts(table: Table, *, parts: int = _PARTS, documents: int = _DOCUMENTS) -> ImpactCounts:
    """Count the impacts of documents of a table that are not deleted.

    A part has documents of one plan whose ids hash to one bucket, so the first ones of many parts are a fair sample of
    all plans.
    """
    files = live_rows.to_files(_spread(table.file_table(), parts))
    bits = table.sparse_properties.impact_bits
    counts = in_threads(partial(_count, table, rows=-(-documents // max(len(files), 1)), bits=bits), files)
    by_impact = np.sum([np.zeros(1 << bits, np.int64), *(one.by_impact for one in counts)], axis=0)
    return ImpactCounts(by_impact, sum(one.documents for one in counts))


def audit_candidate(versions: Versions) -> findings.Audit:
    """Compare the source with the candidate and the table version that it was built from.

    A sample has other ids for every version, so that all ids are compared in the course of many nights.
    """
    version, table = versions.candidate.version, versions.table
    assert versions.files is not None
    whole = versions.limits.verify == "all"
    share = 1 if whole else min(max(version.documents // _SAMPLE, 1), _LARGEST_SHARE)
    return audit(
        replace(
            deployment_scope(versions.deployment, versions.files, table),
            index=IndexScope(as_store(versions.candidate.index), version, table),
            ids=compare.IdRange(share, int(version.sha[:8], 16) % share),
            stored=whole,
            clipping=False,
        ),
        versions.deployment.ray,
    )


def read_golden(place: str, options: Mapping[str, str]) -> list[GoldenQuery]:
    """Read golden queries."""
    queries = []
    for number, line in numbered_lines(place, options):
        try:
            row = json.loads(line)
            query = GoldenQuery(str(row["_id"]), row["text"], tuple(map(str, row["must"])), int(row.get("k", _K)))
            fine = isinstance(query.text, str) and bool(row["_id"]) and isinstance(row["must"], list)
            fine = fine and len(query.must) > 0 and query.k > 0
        except (ValueError, KeyError, TypeError):
            fine = False
        if not fine:
            raise SourceError(f"{place}:{number} is not a query of a gate; see section gates in docs/nights.md")
        queries.append(query)
    if not queries:
        raise SourceError(f"{place} has no query; give some, or remove the setting of the gate")
    return queries


def read_canaries(place: str, options: Mapping[str, str], sample: int) -> list[CanaryQuery]:
    """Return at most ``sample`` queries, at even distances in the file."""
    queries = list(read_queries(place, options))
    count = min(sample, len(queries))
    return [queries[i * len(queries) // count] for i in range(count)]


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
