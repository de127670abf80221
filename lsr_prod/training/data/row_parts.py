"""Parquet parts of training rows with their counts in the footer; a part that exists is complete, and never replaced.

The quarantine of a slice is written before its part, so that the counts of a part cover both.
"""

import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from lsr_prod.corpus import pinned_file, source_rows
from lsr_prod.encoding.tables.quarantine_rows import BadRowWriter
from lsr_prod.errors import ArtifactError
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import field_values, parsing
from lsr_prod.training.data.training_rows import quarantine

QUARANTINE = "_quarantine"
"""Folder of the bad rows inside the output; folder readers skip names that begin with ``_``."""
T = TypeVar("T")


def part_name(number: int) -> str:
    """Return the file name of the part of a slice."""
    return f"part-{number:06d}.parquet"


def in_batches(rows: Iterator[T], size: int) -> Iterator[list[T]]:
    """Yield lists of ``size`` rows; the last one may be shorter."""
    return iter(lambda: list(islice(rows, size)), [])


class OutputRow(Protocol):
    """A row of a part."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Numbers that the row adds to the counts of its job."""


Row = TypeVar("Row", bound=OutputRow)


@dataclass(frozen=True, slots=True)
class PartReport:
    """Counts of a finished slice."""

    rows: int = 0  # rows of the slice
    made: int = 0  # rows of the part
    quarantined: Counter[str] = field(default_factory=Counter)  # bad rows by reason
    counts: Counter[str] = field(default_factory=Counter)  # further counts of the job
    dropped: Counter[str] = field(default_factory=Counter)  # what was left out of the rows, by rule

    def __add__(self, other: "PartReport") -> "PartReport":
        mine, theirs = field_values(self), field_values(other)
        return PartReport(**{name: mine[name] + theirs[name] for name in mine})


@dataclass(frozen=True, slots=True)
class PartFormat:
    """Names under which the footers of a job's parts have the counts."""

    made: str  # of the rows of a part
    counts: tuple[str, ...]  # of the further counts
    rules: tuple[str, ...] = ()  # of the rules that leave something out of a row; empty: the job has none
    batch: int = 1024  # rows that become Arrow columns together

    def to_json(self, report: PartReport, rules: Sequence[str] = ()) -> dict[str, Any]:
        """Return the counts as a footer has them, equal in every run; ``rules`` may have dropped nothing."""
        counts = {"rows": report.rows, self.made: report.made, **{name: report.counts[name] for name in self.counts}}
        dropped = {"dropped": dict.fromkeys(rules, 0) | dict(sorted(report.dropped.items()))} if self.rules else {}
        return {**counts, "quarantined": dict(sorted(report.quarantined.items())), **dropped}

    def from_json(self, value: Mapping[str, Any]) -> PartReport:
        """Read what ``to_json`` wrote."""
        counts = Counter({name: int(value[name]) for name in self.counts})
        bad, dropped = Counter(value["quarantined"]), Counter(value["dropped"] if self.rules else {})
        return PartReport(int(value["rows"]), int(value[self.made]), bad, counts, dropped)

    def write(
        self,
        store: Store,
        plan: str,
        number: int,
        piece: pinned_file.Slice,
        rows: Iterator[tuple[int, Row | source_rows.BadRow, Counter[str]]],
        to_table: Callable[[Sequence[Row]], pa.Table],
    ) -> PartReport:
        """Write the quarantine of a slice, then its part.

        ``rows`` has the position of each row, its output row, and what was dropped by rule.
        """
        bad = BadRowWriter(store.child(QUARANTINE), plan, number)
        tables, read = [to_table([])], 0
        counts, dropped = Counter[str](), Counter[str]()
        for batch in in_batches(rows, self.batch):
            good: list[Row] = []
            for position, row, left_out in batch:
                dropped += left_out
                if isinstance(row, source_rows.BadRow):
                    quarantine(bad, piece, position, row)
                else:
                    counts.update(row.counts)
                    good.append(row)
            read += len(batch)
            tables.append(to_table(good))
        table = pa.concat_tables(tables)
        report = PartReport(read, table.num_rows, bad.reasons, counts, dropped)
        bad.flush()
        buffer = io.BytesIO()
        footer = {f"lsr_prod.{self.made}": json.dumps(self.to_json(report), sort_keys=True)}
        pq.write_table(table.replace_schema_metadata(footer), buffer, compression="zstd")
        store.put_new(part_name(number), buffer.getvalue())
        return report

    def read(self, store: Store, number: int) -> PartReport:
        """Read the counts of a finished slice from the footer of its part."""
        place = f"{store.uri}/{part_name(number)}"
        with parsing(f"{place} is damaged", "delete it, then run again"):
            with store.open_reader(part_name(number)) as file:
                footer = pq.read_metadata(file)
            report = self.from_json(json.loads((footer.metadata or {})[f"lsr_prod.{self.made}".encode()]))
            bad = report.quarantined.total()
        if footer.num_rows != report.made or report.rows != report.made + bad:
            raise ArtifactError(f"{place} contradicts the row counts in its footer; delete it, then run again")
        return report
