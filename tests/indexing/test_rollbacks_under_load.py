"""Readers under load while versions are rolled back."""

import threading
import time
from pathlib import Path

from lsr_prod.indexing import rollback
from lsr_prod.search import Searcher
from tests.indexing.corpus import Doc, make_index

_ROLLBACKS = 10
_READERS = 4


def test_readers_see_no_error_during_rollbacks(tmp_path: Path):
    for impact in (1, 2):
        make_index(tmp_path, {f"d{i}": Doc({i % 4: impact}) for i in range(200)}, vocabulary_size=4)
    errors: list[Exception] = []
    newest = [0] * _READERS  # publication of the last answer
    stop = threading.Event()

    def read(number: int) -> None:
        searcher = Searcher.open(tmp_path)
        while not stop.is_set():
            try:
                searcher.refresh()
                result = searcher.search_vector({"t1": 1.0}, 10)
                assert len(result.hits) == 10
                assert len({hit.score for hit in result.hits}) == 1  # of one version
                newest[number] = searcher.publication.number
            except Exception as error:  # noqa: BLE001 - any error is a failure of the test
                errors.append(error)
                return

    readers = [threading.Thread(target=read, args=(number,)) for number in range(_READERS)]
    for reader in readers:
        reader.start()
    try:
        for number in range(_ROLLBACKS):
            publication = rollback(tmp_path, 1 + number % 2)
            while min(newest) < publication.number and not errors:
                time.sleep(0.005)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert not errors
    assert publication.number == 2 + _ROLLBACKS
