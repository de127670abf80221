"""A click log in memory: distinct queries, documents, and pairs of them with their clicks.

Rows are added in batches and merged with Arrow, so that memory follows the distinct pairs, queries and documents, and
not the rows. Nothing in the result depends on the order of the rows.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod_contrib.click_sets.rows import ClickRow

Ints = npt.NDArray[np.int64]

_BATCH_ROWS = 65_536
_MERGE_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class ClickLog:
    """Queries and documents are numbered by rising key and id (order of their UTF-8 bytes)."""

    keys: pa.Array  # large_string [Q], normalized queries
    queries: pa.Array  # large_string [Q], the spelling with the most rows; of several, the first in order
    clusters: pa.Array  # large_string [Q], given clusters, "" without one; of several, the first in order
    documents: pa.Array  # large_string [D], ids
    titles: pa.Array  # large_string [D]; of several texts of one document, the first in order of (title, text)
    texts: pa.Array  # large_string [D]
    pair_query: Ints  # int64 [P], rising
    pair_document: Ints  # int64 [P], rising inside a query
    clicks: Ints  # int64 [P]
    impressions: Ints  # int64 [P]
    several_texts: int  # number of documents that the log has with more than one text
    several_clusters: int  # number of queries that the log has with more than one cluster


class LogBuilder:
    """Merges rows.

    Attributes:
        used: number of merged rows.
        skipped: number of valid rows that are no clicks, by rule: ``no_clicks`` (their impressions count),
            ``low_position``.
    """

    def __init__(self, max_position: int | None) -> None:
        self._max_position = max_position
        self._rows: list[ClickRow] = []
        self._shown: list[tuple[str, str, int]] = []  # key, document, impressions of rows without clicks
        self._pairs = _Merged({"key": _TEXT, "document": _TEXT, "clicks": _INT, "impressions": _INT}, 2)
        self._queries = _Merged({"key": _TEXT, "query": _TEXT, "rows": _INT}, 2)
        self._documents = _Merged({"document": _TEXT, "title": _TEXT, "text": _TEXT}, 3)
        self._clusters = _Merged({"key": _TEXT, "cluster": _TEXT}, 2)
        self.used = 0
        self.skipped: Counter[str] = Counter()

    def add(self, row: ClickRow) -> None:
        """Add a row."""
        low = self._max_position is not None and row.position > self._max_position
        if row.clicks == 0:
            self.skipped["no_clicks"] += 1
            if row.impressions and not low:
                self._shown.append((row.key, row.document, row.impressions))
        elif low:
            self.skipped["low_position"] += 1
        else:
            self.used += 1
            self._rows.append(row)
        if len(self._rows) + len(self._shown) == _BATCH_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._shown:
            key, document, impressions = zip(*self._shown, strict=True)
            self._shown = []
            self._pairs.add(key, document, [0] * len(key), impressions)
        if not self._rows:
            return
        key, query, document, title, text, clicks, impressions, _, cluster = zip(*self._rows, strict=True)
        self._rows = []
        self._pairs.add(key, document, clicks, impressions)
        self._queries.add(key, query, [1] * len(key))
        self._documents.add(document, title, text)
        if any(cluster):
            self._clusters.add(key, cluster)

    def log(self) -> ClickLog:
        """Return the log of all rows that were added."""
        self._flush()
        documents = self._documents.table().sort_by([(name, "ascending") for name in ("document", "title", "text")])
        ids, first = _firsts(documents["document"])
        queries = self._queries.table().sort_by([("key", "ascending"), ("rows", "descending"), ("query", "ascending")])
        keys, first_spelling = _firsts(queries["key"])
        clusters, several_clusters = self._labels(keys)
        pairs = self._pairs.table()
        pairs = pairs.filter(pc.greater(pairs["clicks"], 0))
        query = pc.index_in(pairs["key"], value_set=keys).combine_chunks().to_numpy().astype(np.int64)
        document = pc.index_in(pairs["document"], value_set=ids).combine_chunks().to_numpy().astype(np.int64)
        order = np.lexsort((document, query))
        return ClickLog(
            keys,
            _take(queries["query"], first_spelling),
            clusters,
            ids,
            _take(documents["title"], first),
            _take(documents["text"], first),
            query[order],
            document[order],
            pairs["clicks"].to_numpy()[order],
            pairs["impressions"].to_numpy()[order],
            len(np.unique(np.searchsorted(first, _others(first, len(documents)), side="right"))),
            several_clusters,
        )

    def _labels(self, keys: pa.Array) -> tuple[pa.Array, int]:
        """Return the cluster of every key, and the number of keys with several."""
        table = self._clusters.table()
        table = table.filter(pc.not_equal(table["cluster"], ""))
        table = table.sort_by([("key", "ascending"), ("cluster", "ascending")])
        known, first = _firsts(table["key"])
        place = pc.index_in(keys, value_set=known)
        labels = _take(table["cluster"], first).take(place).fill_null("")
        several = np.unique(np.searchsorted(first, _others(first, len(table)), side="right"))
        return labels, len(several)


_TEXT, _INT = pa.large_string(), pa.int64()


class _Merged:
    """Distinct rows of ``keys`` leading columns; the columns after them are summed."""

    def __init__(self, columns: dict[str, pa.DataType], keys: int) -> None:
        self._schema = pa.schema(list(columns.items()))
        self._keys, self._sums = list(columns)[:keys], list(columns)[keys:]
        self._merged = self._schema.empty_table()
        self._waiting: list[pa.Table] = []
        self._rows = 0

    def add(self, *columns: object) -> None:
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        batch = self._merge(pa.Table.from_arrays(arrays, schema=self._schema))
        self._waiting.append(batch)
        self._rows += len(batch)
        if self._rows > max(_MERGE_ROWS, len(self._merged)):  # every row is merged a few times only
            self.table()

    def table(self) -> pa.Table:
        """Return the distinct rows, in no particular order."""
        if self._waiting:
            self._merged = self._merge(pa.concat_tables([self._merged, *self._waiting]))
            self._waiting, self._rows = [], 0
        return self._merged

    def _merge(self, table: pa.Table) -> pa.Table:
        sums = [(name, "sum") for name in self._sums]
        found = table.group_by(self._keys, use_threads=False).aggregate(sums)
        names = [*self._keys, *(f"{name}_sum" for name in self._sums)]
        return found.select(names).rename_columns(self._schema.names).cast(self._schema)


def _firsts(column: pa.ChunkedArray) -> tuple[pa.Array, Ints]:
    """Return the distinct values of a sorted column, and the row of the first of each."""
    values = column.combine_chunks()
    values = values if isinstance(values, pa.Array) else pa.array([], _TEXT)
    if not len(values):
        return values, np.zeros(0, np.int64)
    differs = pc.not_equal(values.slice(1), values.slice(0, len(values) - 1)).to_numpy(zero_copy_only=False)
    first = np.concatenate([[0], np.flatnonzero(differs) + 1]).astype(np.int64)
    return values.take(pa.array(first)), first


def _others(first: Ints, rows: int) -> Ints:
    """Return the rows that are not the first of their value."""
    return np.setdiff1d(np.arange(rows, dtype=np.int64), first, assume_unique=True)


def _take(column: pa.ChunkedArray, rows: Ints) -> pa.Array:
    taken = column.take(pa.array(rows)).combine_chunks()
    return taken if isinstance(taken, pa.Array) else pa.array([], column.type)
