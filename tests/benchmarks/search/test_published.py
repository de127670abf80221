from pathlib import Path

import numpy as np
import pytest

from benchmarks.search.data import KS, Collection, Spec, make, recall
from benchmarks.search.published import Published

SPEC = Spec("topics", 3_000, 20, 7, queries=20)
OPTIONS = {"min_terms": 1, "overlap_threshold": 0.0}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Collection, Path]:
    folder = tmp_path_factory.mktemp("published")
    collection = make(SPEC, folder)
    (folder / "index").mkdir()
    assert Published.build(collection, folder / "index", OPTIONS) > 0
    return collection, folder / "index"


@pytest.mark.parametrize("call", ["vector", "arrays"])
def test_public_calls_return_exact_hits_as_row_numbers(built: tuple[Collection, Path], call: str) -> None:
    collection, index = built
    engine = Published(collection, index, {**OPTIONS, "call": call})
    queries, truth = collection.queries(SPEC.query_terms), collection.truth(SPEC.query_terms, KS)
    for i in range(len(queries)):
        ids, scores = engine.decode(engine.query(engine.prepare(*queries[i], 10), 10))
        found = np.asarray(ids, np.int64)
        assert recall(collection, found, queries[i], k=10, floor=truth[i, 0], matching=int(truth[i, -2])) == 1.0
        assert np.allclose(scores[: len(ids)], collection.score_of(found, *queries[i]), rtol=1e-5)


def test_batch_of_arrays_counts_all_queries_with_any_number_of_threads(built: tuple[Collection, Path]) -> None:
    collection, index = built
    engine = Published(collection, index, {**OPTIONS, "call": "arrays"})
    queries = collection.queries(SPEC.query_terms)
    asked = [engine.prepare(*queries[i], 10) for i in range(len(queries))]
    assert engine.batch is not None
    assert [engine.batch(asked, 10, threads) for threads in (1, 2, 3)] == [len(queries)] * 3


def test_sizes_cover_all_files_of_the_shard(built: tuple[Collection, Path]) -> None:
    collection, index = built
    sizes = Published(collection, index, {**OPTIONS, "call": "vector"}).sizes()
    files = [path for path in (index / "shards").rglob("*") if path.is_file()]
    assert min(sizes.values()) > 0
    assert sum(sizes.values()) == sum(path.stat().st_size for path in files)


@pytest.mark.parametrize("call", ["vector", "arrays"])
def test_share_of_the_scan_is_an_option_of_the_call(built: tuple[Collection, Path], call: str) -> None:
    collection, index = built
    engine = Published(collection, index, {**OPTIONS, "call": call, "scan_share": 0.5})
    asked = engine.prepare(*collection.queries(SPEC.query_terms)[0], 10)
    assert asked[1]["scan_share"] == 0.5
    ids, scores = engine.decode(engine.query(asked, 10))
    assert np.allclose(scores[: len(ids)], collection.score_of(np.array(ids), *collection.queries(7)[0]), rtol=1e-5)
