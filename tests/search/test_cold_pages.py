"""Answers do not depend on what memory has: after a query that waits for a disk, its thread reads ahead."""

import os
import random
from pathlib import Path

from lsr_prod import Searcher
from tests.indexing.corpus import Doc, make_index

QUERIES = 150  # more than one slow query makes read ahead


def drop_pages(folder: Path) -> None:
    """Let the system forget the pages of all files, which nothing maps."""
    for path in folder.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def test_answers_from_cold_pages_equal_those_from_memory(tmp_path: Path) -> None:
    dice = random.Random(5)
    corpus = {
        f"document {i}": Doc({term: dice.randint(1, 255) for term in dice.sample(range(500), 40)}) for i in range(600)
    }
    make_index(tmp_path / "index", corpus, vocabulary_size=500)
    queries = [{f"t{term}": dice.random() for term in dice.sample(range(500), 9)} for _ in range(QUERIES)]

    def answers() -> list[list[tuple[str, float]]]:
        with Searcher.open(tmp_path / "index") as searcher:
            return [[(hit.doc_id, hit.score) for hit in searcher.search_vector(each, 20).hits] for each in queries]

    first = answers()
    assert all(len(hits) == 20 for hits in first)
    drop_pages(tmp_path / "index")
    assert answers() == first
