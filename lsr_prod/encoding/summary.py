"""What a run did, counted wave by wave for the closing table."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lsr_prod.encoding.prepare import Work
from lsr_prod.encoding.results import WaveCosts, WaveResult
from lsr_prod.errors import QuarantineOverflowError
from lsr_prod.inference import Counters
from lsr_prod.tables import Table
from lsr_prod.tables.quarantine import quarantine_folder, quarantined_by_reason

__all__ = ["Totals"]


@dataclass(slots=True)
class Totals:
    """Counts of a plan: of a first plan over all its runs, of an increment over this run.

    Attributes:
        rows_out: rows of the source that are documents of the table.
        reasons: quarantined rows by reason.
        encoded: documents that went through the model in this run.
        unchanged: documents that kept their vector.
        deleted: documents that left the table.
        clipped: weights above the largest impact.
        reused_cells: cells that an earlier attempt had finished.
        counters: what the model saw in this run.
    """

    rows_out: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    encoded: int = 0
    unchanged: int = 0
    deleted: int = 0
    clipped: int = 0
    reused_cells: int = 0
    counters: Counters = field(default_factory=Counters)

    @classmethod
    def before(cls, work: Work, table: Table, waves: int) -> "Totals":
        """What earlier runs of the plan left in the table.

        Args:
            work: the checked job.
            table: its newest snapshot.
            waves: waves of the plan that it has.
        """
        if work.plan.base is not None:
            return cls()
        return cls(_documents(table), quarantined_by_reason(work.quarantine, work.plan.digest, waves))

    @property
    def quarantined(self) -> int:
        """Quarantined rows."""
        return self.reasons.total()

    def spend(self, costs: WaveCosts) -> None:
        """Count the work of a wave, committed or not."""
        self.encoded += costs.encoded
        self.reused_cells += costs.reused_cells
        self.counters += costs.counters

    def add(self, result: WaveResult) -> None:
        """Count a wave that is committed."""
        written = result.rows_out
        self.rows_out += written
        self.reasons.update(result.reasons)
        self.clipped += result.clipped
        self.deleted += result.deleted
        self.unchanged += written - result.encoded

    def check_overflow(self, work: Work, result: WaveResult) -> None:
        """Stop a job that would quarantine a corpus, before the wave is committed that brings it there.

        Raises:
            QuarantineOverflowError: the share of bad rows is above ``encode.max_bad_fraction``.
        """
        reasons = self.reasons + result.reasons
        bad, rows = reasons.total(), reasons.total() + self.rows_out + result.rows_out
        if bad <= work.encode.max_bad_fraction * rows:
            return
        top = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common(3))
        raise QuarantineOverflowError(
            f"{bad} of {rows} rows are bad ({top}), encode.max_bad_fraction is {work.encode.max_bad_fraction}; wave "
            f"{result.wave} was not committed; see {work.quarantine.uri}/"
            f"{quarantine_folder(work.plan.digest, result.wave)}, then raise the fraction, or mend the source and give "
            "a new encode.table"
        )

    def summary(self, table: Table) -> Mapping[str, Any]:
        """The counts by name, with the documents that ``table`` has."""
        return {
            "documents": _documents(table),
            "rows_in": self.rows_out + self.quarantined,
            "rows_out": self.rows_out,
            "quarantined": self.quarantined,
            "quarantined_by_reason": dict(sorted(self.reasons.items())),
            "encoded": self.encoded,
            "unchanged": self.unchanged,
            "deleted": self.deleted,
            "clipped": self.clipped,
            "reused_cells": self.reused_cells,
            "tokens": self.counters.tokens,
            "padding_share": self.counters.padding_share,
            "cut_documents": self.counters.cut,
        }


def _documents(table: Table) -> int:
    return sum(file.rows or 0 for file in table.files())
