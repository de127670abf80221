"""Summaries of imports and exports."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSummary:
    """Summary of an import.

    Attributes:
        imported: this run wrote the table.
        files: source files.
        rows_in: rows of the source files.
        documents: rows of the table.
        quarantined: bad rows.
        quarantined_by_reason: bad rows by reason.
        unknown_terms_dropped: terms outside the vocabulary that were dropped.
        postings: terms of all documents.
        clipped: weights above the largest impact.
        impact_step: weight of one impact unit.
        impact_error: mean error of a weight over the mean weight.
        store_k: terms kept per document.
        seconds: wall time.
        docs_per_s: documents per second.
        table: URI of the table.
        quarantine: URI of the quarantine.
        plan: digest of the import.
    """

    imported: bool = True
    files: int
    rows_in: int
    documents: int
    quarantined: int
    quarantined_by_reason: dict[str, int]
    unknown_terms_dropped: int
    postings: int
    clipped: int
    impact_step: float
    impact_error: float | None
    store_k: int
    seconds: float
    docs_per_s: float
    table: str
    quarantine: str
    plan: str

    def result(self) -> dict[str, Any]:
        """Return the flat summary of a job."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedImport:
    """Summary of an import that an earlier run finished; the attributes are those of ``ImportSummary``."""

    imported: bool = False
    documents: int
    impact_step: float
    store_k: int
    table: str
    plan: str

    def result(self) -> dict[str, Any]:
        """Return the flat summary of a job."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSummary:
    """Summary of an export.

    Attributes:
        documents: vectors in the output.
        postings: terms of all vectors.
        bytes: size of the output.
        impact_step: weight of one impact unit.
        seconds: wall time.
        docs_per_s: documents per second.
        table: URI of the table.
        table_version: version of the table.
        output: path of the output.
    """

    documents: int
    postings: int
    bytes: int
    impact_step: float
    seconds: float
    docs_per_s: float
    table: str
    table_version: int
    output: str

    def result(self) -> dict[str, Any]:
        """Return the flat summary of a job."""
        return asdict(self)
