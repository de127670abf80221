"""A small collection and its index with postings of words."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lsr_prod import Index
from tests.contrib.sweeps.conftest import write_collection


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return write_collection(tmp_path_factory.mktemp("tuning") / "small")


@pytest.fixture(scope="session")
def index(places: dict[str, str], tiny_bundle: Path) -> Iterator[Index]:
    rows = [json.loads(line) for line in Path(places["corpus"]).read_text().splitlines()]
    with Index.from_texts({row["_id"]: row["text"] for row in rows}, tiny_bundle, bm25=True) as index:
        yield index
