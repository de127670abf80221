"""What the gates found: a result per gate, and the report that is kept in the index."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from lsr_prod.encoding.tables import open_table
from lsr_prod.errors import ArtifactError, SourceError
from lsr_prod.evaluation.rows import numbered_lines
from lsr_prod.operations.audit.audit import audit
from lsr_prod.operations.audit.compare import IdRange
from lsr_prod.operations.audit.deployment import deployment_scope
from lsr_prod.operations.audit.findings import Audit
from lsr_prod.operations.audit.scope import IndexScope
from lsr_prod.operations.canary import CanaryQuery, read_queries
from lsr_prod.operations.gates.versions import Versions
from lsr_prod.storage import Store, as_store
from lsr_prod.storage.folders import absolute

Verdict = Literal["passed", "refused", "forced", "off"]
_SAMPLE = 100_000  # ids, at least
_LARGEST_SHARE = 64
_K = 10


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


def audit_candidate(versions: Versions) -> Audit:
    """Compare the source with the candidate and the table version that it was built from.

    A sample has other ids for every version, so that all ids are compared in the course of many nights.
    """
    version, encode = versions.candidate.version, versions.deployment.encode
    assert encode is not None
    assert versions.files is not None
    store = Store(absolute(encode.table), dict(versions.options))
    table = open_table(store, version.table_version)
    if table is None:
        raise ArtifactError(f"{store.uri} is not a table; encode the corpus again")
    whole = versions.limits.verify == "all"
    share = 1 if whole else min(max(version.documents // _SAMPLE, 1), _LARGEST_SHARE)
    scope = deployment_scope(versions.deployment, versions.files, table)
    return audit(
        replace(
            scope,
            index=IndexScope(as_store(versions.candidate.index), version, table),
            ids=IdRange(share, int(version.sha[:8], 16) % share),
            stored=whole,
            clipping=False,
        ),
        versions.deployment.ray,
    )


@dataclass(frozen=True, slots=True)
class GoldenQuery:
    """A query that must find some documents."""

    query_id: str  # its id
    text: str  # the query
    must: tuple[str, ...]  # ids of the documents
    k: int  # they have to be among so many hits


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
