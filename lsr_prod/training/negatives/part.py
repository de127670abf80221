"""Mine the rows of a slice into one Parquet part, and its bad rows into the quarantine; neither is ever replaced."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from lsr_prod.config import MineSettings
from lsr_prod.corpus.rows import BadRow
from lsr_prod.corpus.slices import Slice
from lsr_prod.storage import Store
from lsr_prod.training.data.row_jobs.parts import PartFormat, PartReport, in_batches
from lsr_prod.training.negatives.mine import MinedRow, Miner
from lsr_prod.training.negatives.pairs import Pair, read_pairs
from lsr_prod.training.negatives.rules import RULES

MINED = PartFormat("mined", counts=("negatives",), rules=RULES)


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


def mine_slice(miner: Miner, store: Store, plan: str, number: int, piece: Slice) -> PartReport:
    """Mine a slice, then write its quarantine and its part."""
    miner.begin_slice()
    mined = _mined(piece, miner, store.options)
    return MINED.write(store, plan, number, piece, mined, lambda rows: _table(rows, miner.settings))


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
