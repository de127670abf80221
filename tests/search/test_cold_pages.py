"""Answers do not depend on what memory has: after a query that waits for a disk, its thread reads ahead."""

import ctypes
import os
import random
from pathlib import Path

from lsr_prod import Searcher
from tests.indexing.corpus import Doc, make_index

QUERIES = 150  # more than one slow query makes read ahead
PAGEOUT = 21  # MADV_PAGEOUT of Linux


def drop_pages(folder: Path) -> int:
    """Take the mapped pages of the files below a folder out of memory; return the number of mappings.

    The kernels have verified them: only then do they wait for a disk themselves. A folder in memory keeps its pages.
    """
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    dropped = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        if str(folder) in line:
            first, last = (int(part, 16) for part in line.split()[0].split("-"))
            dropped += ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), PAGEOUT) == 0
    return dropped


def test_answers_from_cold_pages_equal_those_from_memory(tmp_path: Path) -> None:
    dice = random.Random(5)
    corpus = {
        f"document {i}": Doc({term: dice.randint(1, 255) for term in dice.sample(range(500), 40)}) for i in range(3000)
    }
    make_index(tmp_path / "index", corpus, vocabulary_size=500)
    queries: list[dict[str | int, float]] = [
        {f"t{term}": dice.random() for term in dice.sample(range(500), 9)} for _ in range(QUERIES)
    ]
    with Searcher.open(tmp_path / "index") as searcher:

        def answers() -> list[list[tuple[str, float]]]:
            return [[(hit.doc_id, hit.score) for hit in searcher.search_vector(each, 20).hits] for each in queries]

        first = answers()
        assert all(len(hits) == 20 for hits in first)
        assert drop_pages(tmp_path / "index")
        assert answers() == first
