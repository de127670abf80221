"""Rows of a quarantine that match a filter, and their number by reason."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lsr_prod.credentials import without_credentials
from lsr_prod.encoding.tables.quarantine import QuarantinePart, quarantine_parts, quarantined_rows
from lsr_prod.errors import ConfigError
from lsr_prod.storage import Store


@dataclass(frozen=True, slots=True)
class QuarantineFilter:
    """Rows to show; every field that is given must match."""

    reason: str | None = None  # quarantine reason
    source: str | None = None  # a text in the location of the source file
    plan: str | None = None  # first digits of the digest of the plan
    wave: int | None = None  # number of the wave

    def has_part(self, part: QuarantinePart) -> bool:
        """Return whether rows of a part can match."""
        return part.plan.startswith(self.plan or "") and self.wave in (None, part.wave)

    def has_row(self, row: dict[str, Any]) -> bool:
        """Return whether a row of such a part matches."""
        return self.reason in (None, row["reason"]) and (self.source or "") in (row["source"] or "")


def read_quarantine(
    store: Store, wanted: QuarantineFilter, show: Callable[[dict[str, Any]], None], limit: int
) -> Counter[tuple[str, str]]:
    """Give matching rows to ``show``, and count all of them.

    Returns:
        Number of matching rows by reason and state.
    """
    known = quarantine_parts(store)
    parts = [part for part in known if wanted.has_part(part)]
    if known and not parts:
        name, value = ("--plan", wanted.plan) if wanted.plan is not None else ("--wave", wanted.wave)
        plans = ", ".join(sorted({part.plan[:12] for part in known})[:5])
        raise ConfigError(name, f"{store.uri} has no rows of {value}", f"its plans are {plans}")
    counts: Counter[tuple[str, str]] = Counter()
    for part in parts:
        for row in quarantined_rows(store, part):
            if not wanted.has_row(row):
                continue
            counts[row["reason"] or "", part.state] += 1
            if limit > 0:
                limit -= 1
                place = {"plan": part.plan, "wave": part.wave, "state": part.state}
                texts = {name: without_credentials(row[name] or "") for name in ("source", "detail")}
                show({**place, **row, **texts})
    return counts
