"""A part of SciFact as ir_datasets hands it over, its index, and our evaluation of that index."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lsr_prod import Index
from lsr_prod.integrations.ir_datasets import write_dataset
from tests.lazy import LazyModule

harnesses = LazyModule("benchmarks.evaluation.harnesses")


@pytest.fixture(scope="package")
def inputs(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first 120 documents of SciFact with their queries and judgments, as ``write_dataset`` writes them."""
    folder = tmp_path_factory.mktemp("scifact")
    write_dataset(harnesses.register(shared_data / "scifact", folder / "part", 120), folder / "inputs")
    return folder / "inputs"


@pytest.fixture(scope="package")
def index(inputs: Path, tiny_bundle: Path) -> Iterator[Index]:
    """The index of this part, with postings of words."""
    texts = {row["_id"]: row["text"] for row in harnesses.read_rows(inputs / "corpus.jsonl")}
    with Index.from_texts(texts, tiny_bundle, bm25=True) as opened:
        yield opened


@pytest.fixture(scope="package")
def ours(index: Index, inputs: Path) -> dict[str, float]:
    """The measures of ``lsr-prod evaluate``."""
    return harnesses.our_measures(index.snapshot.index, inputs)
