"""A synthetic click log: topics, queries and documents with Zipfian popularity, home pages, spellings, and bad rows."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["SyntheticLog", "write_log"]

QUERIES, DOCUMENTS = 24, 40  # of a topic
ROWS_OF_TOPIC = 240  # rows per topic on average
HOME_PAGES, HOME_SHARE = 40, 0.02
BAD_SHARE = 0.001
VOCABULARY, TOPIC_WORDS = 30_000, 5_000


@dataclass(frozen=True, slots=True)
class SyntheticLog:
    """Counts of a written log.

    Attributes:
        rows: number of rows.
        bad: rows with an empty document id.
        topics: number of topics.
    """

    rows: int
    bad: int
    topics: int


def write_log(path: Path, rows: int, seed: int, *, shuffled: int | None = None) -> SyntheticLog:
    """Write a log as Parquet with the columns ``query``, ``doc_id`` and ``title``; every row is one click.

    Args:
        path: the file.
        rows: number of rows.
        seed: of the log.
        shuffled: seed of the order of the rows; None: as they were drawn.
    """
    rng = np.random.default_rng(seed)
    topics = max(rows // ROWS_OF_TOPIC, 8)
    topic = _zipf(rng, topics, rows, 0.7)
    query = topic * QUERIES + _zipf(rng, QUERIES, rows, 1.0)
    # Every query of a topic prefers its own documents, of which neighbors share some.
    document = topic * DOCUMENTS + (query % QUERIES + _zipf(rng, DOCUMENTS // 2, rows, 1.2)) % DOCUMENTS
    home = rng.random(rows) < HOME_SHARE
    document[home] = topics * DOCUMENTS + _zipf(rng, HOME_PAGES, int(home.sum()), 1.0)
    queries = _query_texts(rng, topics)
    spelled = query + (rng.random(rows) < 0.1) * len(queries)  # capitals: the same query
    spellings = pa.array(queries + [text.title() for text in queries])
    titles = pa.array(_titles(rng, topics))
    bad = rng.random(rows) < BAD_SHARE
    ids = pa.array(np.char.add("d", document.astype(str)), mask=bad)
    table = pa.table({"query": spellings.take(spelled), "doc_id": ids, "title": titles.take(document)})
    if shuffled is not None:
        table = table.take(np.random.default_rng(shuffled).permutation(rows))
    pq.write_table(table, path, row_group_size=131_072)
    return SyntheticLog(rows, int(bad.sum()), topics)


def _zipf(rng: np.random.Generator, values: int, size: int, exponent: float) -> npt.NDArray[np.int64]:
    share = np.arange(1, values + 1) ** -exponent
    return np.searchsorted(np.cumsum(share / share.sum()), rng.random(size)).clip(0, values - 1).astype(np.int64)


def _words(rng: np.random.Generator, rows: int, columns: int) -> list[list[str]]:
    return [
        [f"word{number}" for number in row] for row in _zipf(rng, VOCABULARY, rows * columns, 0.9).reshape(rows, -1)
    ]


def _topic_words(topics: int) -> list[list[str]]:
    """Return six words of every topic; other topics have some of them, too."""
    numbers = np.random.default_rng(0).integers(0, TOPIC_WORDS, (topics, 6))
    return [[f"term{number}" for number in row] for row in numbers.tolist()]


def _query_texts(rng: np.random.Generator, topics: int) -> list[str]:
    """Return the text of every query: 1 to 3 words of its topic, and sometimes a word of the whole vocabulary."""
    texts = []
    own, other = _topic_words(topics), _words(rng, topics * QUERIES, 1)
    number = rng.integers(1, 4, topics * QUERIES).tolist()
    extra = (rng.random(topics * QUERIES) < 0.5).tolist()
    for query in range(topics * QUERIES):
        topic, place = divmod(query, QUERIES)
        words = [own[topic][(place + i) % 6] for i in range(number[query])]
        texts.append(" ".join([*words, *(other[query] if extra[query] else [])]))
    return texts


def _titles(rng: np.random.Generator, topics: int) -> list[str]:
    """Return the title of every document: words of its topic among words of the whole vocabulary; then home pages."""
    own, other = _topic_words(topics), _words(rng, topics * DOCUMENTS, 8)
    number = rng.integers(0, 6, topics * DOCUMENTS).tolist()
    titles = []
    for document in range(topics * DOCUMENTS):
        topic, place = divmod(document, DOCUMENTS)
        words = [own[topic][(place + i) % 6] for i in range(number[document])]
        titles.append(" ".join([*words, *other[document]]))
    return titles + [f"home page {page}" for page in range(HOME_PAGES)]
