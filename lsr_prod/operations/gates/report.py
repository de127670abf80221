"""What the gates found: a result per gate, and the report that is kept in the index."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["passed", "refused", "forced", "off"]


@dataclass(frozen=True, slots=True)
class GateResult:
    """Result of one gate.

    Attributes:
        gate: its name.
        verdict: ``passed``; ``refused``; ``forced``: refused, but overruled; ``off``: it has no limit.
        measured: value of the version; None: there is nothing to measure, or the gate is off.
        limit: the limit of the settings; None: off.
        sentence: the finding in words.
        queries: ids of the queries whose hits changed most, of the gate ``overlap``.
    """

    gate: str
    verdict: Verdict
    measured: float | None
    limit: float | None
    sentence: str
    queries: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "GateResult":
        """Read the form of ``GateReport.to_json``."""
        return cls(**{**value, "queries": tuple(value.get("queries", ()))})


@dataclass(frozen=True, slots=True)
class GateReport:
    """Results of all gates for one version.

    Attributes:
        version: sha256 of the version.
        current: sha256 of the version that it would replace; "": there is none.
        checked_at: UTC, ISO 8601.
        results: one per gate, in their order.
        reason: why gates were overruled; "": none was.
    """

    version: str
    current: str
    checked_at: str
    results: tuple[GateResult, ...]
    reason: str = ""

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
