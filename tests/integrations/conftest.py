"""An index without a model that the retrievers of all frameworks search."""

import datetime as dt
from collections.abc import Iterator

import pytest

from lsr_prod import Index


@pytest.fixture(scope="package")
def documents() -> Iterator[Index]:
    texts = {"lock": "hold a lock", "date": "parse a date", "square": "a square root"}
    days = [None, dt.date(2021, 8, 22), None]
    with Index.from_texts(texts, fields={"year": [2019, 2021, 2024], "day": days}, bm25=True) as index:
        yield index
