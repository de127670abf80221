"""Click logs for tests, and slow obvious references."""

import random
from collections.abc import Iterable
from typing import Any

from lsr_prod.config.click_set import ClickSetSettings
from lsr_prod_contrib.click_sets.log import ClickLog, LogBuilder
from lsr_prod_contrib.click_sets.rows import ClickRow, normalized

WORDS = [f"word{number}" for number in range(12)]


def make_settings(**changes: Any) -> ClickSetSettings:
    """Settings that use every pair of a small log."""
    values: dict[str, Any] = {
        "paths": ["log.jsonl"],
        "output": "sets",
        "min_clicks": 1,
        "min_documents": 1,
        "min_cluster_queries": 1,
        "max_cluster_share": 1.0,
    }
    return ClickSetSettings(**{**values, **changes})


def click(query: str, document: str, title: str, clicks: int = 1, **changes: Any) -> ClickRow:
    """A valid row."""
    row = ClickRow(normalized(query), query, document, title, "", clicks, 0, 0, "")
    return row._replace(**changes)


def make_log(rows: Iterable[ClickRow], max_position: int | None = None) -> ClickLog:
    """The log of some rows."""
    builder = LogBuilder(max_position)
    for row in rows:
        builder.add(row)
    return builder.log()


def random_rows(seed: int, queries: int = 60, rows: int = 600) -> list[ClickRow]:
    """Clicks of topics of four queries on six documents; words are shared by all topics."""
    rng = random.Random(seed)
    texts = {
        q: " ".join(random.Random(f"q{seed}{q}").sample(WORDS, 1 + q % 4)) + f" of{q}" * (q % 3 == 0)
        for q in range(queries)
    }
    found = []
    for _ in range(rows):
        query = rng.randrange(queries)
        document = query // 4 * 6 + rng.randrange(6)
        title = " ".join(random.Random(f"d{seed}{document}").sample(WORDS, 4))
        found.append(click(texts[query], f"d{document}", title))
    return found
