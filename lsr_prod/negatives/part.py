"""Write the rows of a slice to one Parquet part and its bad rows to the quarantine; neither is ever replaced."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lsr_prod.config import MineSettings
from lsr_prod.corpus.rows import BadRow
from lsr_prod.corpus.slices import Slice
from lsr_prod.negatives.mine import MinedRow, Miner
from lsr_prod.negatives.pairs import Pair, read_pairs
from lsr_prod.storage import Store
from lsr_prod.tables.quarantine import BadRowWriter
from lsr_prod.training_data.row_jobs.parts import QUARANTINE, in_batches, read_counts, write_part

_COUNTS = b"lsr_prod.mined"
_AHEAD = 1024  # rows buffered before they are converted to Arrow


@dataclass(frozen=True, slots=True)
class PartReport:
    """Counts of a mined slice.

    Attributes:
        rows: rows of the slice.
        mined: rows of the part.
        negatives: total number of negatives.
        quarantined: bad rows by reason.
        dropped: hits that were not selected, by rule.
        seconds: mining time; not stored.
    """

    rows: int
    mined: int
    negatives: int
    quarantined: Counter[str]
    dropped: Counter[str]
    seconds: float = 0.0

    @property
    def made(self) -> int:
        """Rows of the part."""
        return self.mined

    def to_json(self) -> dict[str, Any]:
        """Return the form stored in the footer, equal in every run."""
        return {
            "rows": self.rows,
            "mined": self.mined,
            "negatives": self.negatives,
            "quarantined": dict(sorted(self.quarantined.items())),
            "dropped": dict(sorted(self.dropped.items())),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any], seconds: float = 0.0) -> "PartReport":
        """Read what ``to_json`` wrote."""
        quarantined, dropped = Counter[str](value["quarantined"]), Counter[str](value["dropped"])
        return cls(value["rows"], value["mined"], value["negatives"], quarantined, dropped, seconds)


def schema_of(settings: MineSettings) -> pa.Schema:
    """Return the schema of a part: training data of kind negatives, and with ``scores`` also of kind scores."""
    texts, floats = pa.list_(pa.string()), pa.list_(pa.float32())
    fields = [
        ("query", pa.string()),
        ("positive", pa.string()),
        ("negatives", texts),
        ("positive_id", pa.string()),
        ("negative_ids", texts),
        ("positive_score", pa.float32()),
        ("negative_scores", floats),
    ]
    if settings.scores:
        fields += [("documents", texts), ("scores", floats)]
    return pa.schema(fields)


def mine_slice(number: int, piece: Slice, miner: Miner, store: Store, plan: str) -> PartReport:
    """Mine a slice, then write its quarantine and its part."""
    began, settings = time.monotonic(), miner.settings
    bad = BadRowWriter(store.child(QUARANTINE), plan, number)
    miner.begin_slice()
    tables: list[pa.Table] = []
    rows, negatives, dropped = 0, 0, Counter[str]()
    for batch in in_batches(_mined(piece, miner, store.options), _AHEAD):
        good: list[MinedRow] = []
        for position, row, hits in batch:
            rows += 1
            dropped += hits
            if isinstance(row, BadRow):
                bad.add(row, ordinal=piece.ordinal, key=piece.file.key, source=piece.file.location, position=position)
            else:
                negatives += len(row.negatives)
                good.append(row)
        tables.append(_table(good, settings))
    table = pa.concat_tables([schema_of(settings).empty_table(), *tables])
    report = PartReport(rows, table.num_rows, negatives, bad.reasons, dropped, time.monotonic() - began)
    bad.flush()
    write_part(store, number, table, report.to_json(), key=_COUNTS)
    return report


def _mined(
    piece: Slice, miner: Miner, options: dict[str, str]
) -> Iterator[tuple[int, MinedRow | BadRow, Counter[str]]]:
    """Yield (position, row, dropped hits by rule); batches start at the slice, so every run makes the same ones."""
    for batch in in_batches(read_pairs(piece, miner.settings, options), miner.settings.batch):
        pairs = [(at, row) for at, row in batch if isinstance(row, Pair)]
        yield from ((at, row, Counter()) for at, row in batch if isinstance(row, BadRow))
        mined = miner.mine([pair for _, pair in pairs]) if pairs else ()
        yield from ((at, row, hits) for (at, _), (row, hits) in zip(pairs, mined, strict=True))


def _table(rows: Sequence[MinedRow], settings: MineSettings) -> pa.Table:
    columns: dict[str, Iterable[Any]] = {
        "query": [row.query for row in rows],
        "positive": [row.positive.text for row in rows],
        "negatives": [[hit.text for hit in row.negatives] for row in rows],
        "positive_id": [row.positive.doc_id or None for row in rows],
        "negative_ids": [[hit.doc_id for hit in row.negatives] for row in rows],
        "positive_score": [row.positive.score for row in rows],
        "negative_scores": [[hit.score for hit in row.negatives] for row in rows],
    }
    if settings.scores:
        columns["documents"] = [[row.positive.text, *(hit.text for hit in row.negatives)] for row in rows]
        columns["scores"] = [list(row.scores) for row in rows]
    return pa.table(columns, schema=schema_of(settings))


def read_report(store: Store, number: int) -> PartReport:
    """Read the counts of a finished slice from the footer of its part.

    Raises:
        ArtifactError: the file is damaged, or is not a part of mined rows.
    """
    return PartReport.from_json(read_counts(store, number, key=_COUNTS, made="mined"))
