"""Posting arrays compared with a slow reference."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsr_prod.errors import ArtifactError
from lsr_prod.indexing.impacts import postings as postings_module
from lsr_prod.indexing.impacts.postings import TermField, write_postings
from lsr_prod.indexing.impacts.vectors import Vectors
from lsr_prod.storage.formats.shard_format import DENSE, MATCHING_ARRAYS, WINDOW, array_name
from tests.quick import first_quick

T = 6
TYPES = {"term_tenths": "u1", "term_hundredths": "u1", "impacts": "u1", "ids": "<u2", "run_windows": "<u2"}
TYPES |= {"term_runs": "<u4", "term_postings": "<u4", "term_ids": "<u4", "run_counts": "<u2"}
_documents = st.dictionaries(st.integers(0, T - 1), st.integers(1, 255), max_size=T)


def make(documents: list[dict[int, int]], dtype: type[np.generic] = np.uint16) -> Vectors:
    lengths = [len(document) for document in documents]
    return Vectors(
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint32),
        np.array([term for document in documents for term in document], dtype),
        np.array([impact for document in documents for impact in document.values()], np.uint8),
    )


def bitmap(places: list[int]) -> list[int]:
    items = [0] * DENSE
    for place in places:
        items[place // 16] |= 1 << place % 16
    return items


def reference(documents: list[dict[int, int]], dk: int) -> dict[str, list[int]]:
    """The arrays, as the layout describes them."""
    found: dict[str, list[int]] = {name: [] for name in MATCHING_ARRAYS}
    kept = [dict(list(document.items())[:dk]) for document in documents]
    for term in range(T):
        found["term_runs"].append(len(found["run_windows"]))
        found["term_postings"].append(len(found["impacts"]))
        found["term_ids"].append(len(found["ids"]))
        for window in range(-(-len(kept) // WINDOW)):
            some = kept[window * WINDOW : (window + 1) * WINDOW]
            places = [place for place, document in enumerate(some) if term in document]
            if places:
                found["run_windows"].append(window)
                found["run_counts"].append(len(places) - 1)
                found["ids"] += bitmap(places) if len(places) > DENSE else places
                found["impacts"] += [some[place][term] for place in places]
        ranked = sorted((document[term] for document in kept if term in document), reverse=True)
        found["term_tenths"].append(ranked[9] if len(ranked) >= 10 else 0)
        found["term_hundredths"].append(ranked[99] if len(ranked) >= 100 else 0)
    found["term_runs"].append(len(found["run_windows"]))
    found["term_postings"].append(len(found["impacts"]))
    found["term_ids"].append(len(found["ids"]))
    return found


def check(folder, documents, dk, *, fields=1, dtype=np.uint16):
    (folder / "impacts").mkdir(parents=True)
    expected = reference(documents, dk)
    write_postings(folder, [TermField(make(documents, dtype), T, dk)] * fields)
    for name in MATCHING_ARRAYS:
        if fields == 2:  # the same terms again, numbered behind the first
            again = expected[name]
            begins = name in ("term_runs", "term_postings", "term_ids")
            expected[name] = again + [again[-1] + start for start in again[1:]] if begins else again * 2
        array = np.load(folder / array_name(name), allow_pickle=False)
        assert array.tolist() == expected[name], name
        assert array.dtype == np.dtype(TYPES[name]), name
    assert sorted(path.stem for path in (folder / "impacts").iterdir()) == sorted(MATCHING_ARRAYS)
    return expected


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_documents, max_size=30), st.sampled_from([1, 2, 64]), st.sampled_from([np.uint16, np.int32]))
def test_posting_arrays_equal_the_reference(tmp_path_factory, documents, dk, dtype):
    check(tmp_path_factory.mktemp("postings"), documents, dk, dtype=dtype)


def test_terms_of_a_second_field_follow_those_of_the_first(tmp_path):
    check(tmp_path, [{i % T: 1 + i, 5: 3} for i in range(40)], 64, fields=2)


@pytest.mark.parametrize("dk", [2, 64])
@pytest.mark.parametrize("fields", first_quick([2, 1]))
def test_bitmaps_and_several_windows_equal_the_reference(tmp_path, dk, fields):
    rng = np.random.default_rng(dk)
    documents = []
    for share in rng.random((2 * WINDOW + 777, T)):
        # Shares of the terms: all, most, about DENSE of a window, few, one window only, none.
        terms = np.flatnonzero(share < [1, 0.9, DENSE / WINDOW, 0.001, 0.5 * (len(documents) // WINDOW == 1), 0])
        documents.append({int(term): int(rng.integers(1, 256)) for term in rng.permutation(terms)})
    found = check(tmp_path, documents, dk, fields=fields)
    assert found["run_windows"][:3] == [0, 1, 2]
    if dk == 64:
        assert found["run_counts"][:3] == [WINDOW - 1, WINDOW - 1, 776]


@pytest.mark.parametrize("count", [DENSE - 1, DENSE, DENSE + 1, WINDOW, WINDOW + 1, WINDOW + DENSE + 1])
def test_runs_around_the_sizes_of_bitmaps_and_windows(tmp_path, count):
    check(tmp_path, [{0: 1 + i % 255, 3: 9} for i in range(count)], 64)


def test_terms_far_apart_have_runs_of_one_posting(tmp_path):
    documents: list[dict[int, int]] = [{} for _ in range(3 * WINDOW + 2)]
    for at in (0, WINDOW - 1, WINDOW, 3 * WINDOW - 1, 3 * WINDOW + 1):
        documents[at] = {1: 7, 4: 255}
    found = check(tmp_path, documents, 64)
    assert found["run_windows"] == [0, 1, 2, 3] * 2


@pytest.mark.parametrize("count", [9, 10, 11, 99, 100, 101, 300])
def test_ranked_impacts_count_ties(tmp_path, count):
    found = check(tmp_path, [{0: 1 + i % 3, 1: 255, 2: 1 + i % 255} for i in range(count)], 64)
    assert (found["term_tenths"][1], found["term_hundredths"][1]) == (255 * (count >= 10), 255 * (count >= 100))


def test_more_documents_or_postings_than_a_shard_can_hold_are_refused(tmp_path, monkeypatch):
    (tmp_path / "impacts").mkdir()
    documents = np.broadcast_to(np.uint32(0), (WINDOW << 16) + 2)
    with pytest.raises(ValueError, match=r"cannot hold 1073741825 documents; set index\.shards"):
        write_postings(tmp_path, [TermField(Vectors(documents, np.zeros(0, np.uint16), np.zeros(0, np.uint8)), T)])
    monkeypatch.setattr(postings_module, "MAX_ITEMS", 10)
    with pytest.raises(ValueError, match=r"cannot hold 11 postings; set index\.shards"):
        write_postings(tmp_path, [TermField(make([{i % T: 1} for i in range(11)]), T)])


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_term_outside_the_vocabulary_is_refused(tmp_path, dtype):
    (tmp_path / "impacts").mkdir()
    vectors = Vectors(np.array([0, 2], np.uint32), np.array([0, T], dtype), np.array([1, 1], np.uint8))
    with pytest.raises(ArtifactError, match="outside the vocabulary; encode the corpus again"):
        write_postings(tmp_path, [TermField(vectors, T)])
