"""Term-ordered postings compared with a slow reference."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsr_prod.formats.shard import MATCHING_ARRAYS, array_name, local_dtype
from lsr_prod.indexing.impacts.vectors import TermField, Vectors, write_postings

T = 6
ARRAYS = [name for name in MATCHING_ARRAYS if name not in ("term_ids", "term_impacts")]
_documents = st.dictionaries(st.integers(0, T - 1), st.integers(1, 255), max_size=T)


def make(documents: list[dict[int, int]]) -> Vectors:
    lengths = [len(document) for document in documents]
    return Vectors(
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.array([term for document in documents for term in document], np.uint16),
        np.array([impact for document in documents for impact in document.values()], np.uint8),
    )


def reference(documents: list[dict[int, int]], dk: int, block_size: int) -> dict[str, list[int]]:
    """The arrays, as the layout describes them."""
    found: dict[str, list[int]] = {name: [] for name in ARRAYS}
    for term in range(T):
        found["term_runs"].append(len(found["run_gaps"]))
        found["term_postings"].append(len(found["ids"]))
        last = -1
        for block in range(-(-len(documents) // block_size)):
            first = block * block_size
            mine = [
                (place, dict(list(document.items())[:dk])[term])
                for place, document in enumerate(documents[first : first + block_size])
                if term in dict(list(document.items())[:dk])
            ]
            if not mine:
                continue
            gap, last = block - last, block
            fillers, gap = divmod(gap, 255)
            found["run_gaps"] += [255] * fillers + [gap]
            found["run_counts"] += [0] * fillers + [len(mine) - 1]
            found["run_maxima"] += [0] * fillers + [max(impact for _, impact in mine)]
            found["ids"] += [place for place, _ in mine]
            found["impacts"] += [impact for _, impact in mine]
    found["term_runs"].append(len(found["run_gaps"]))
    found["term_postings"].append(len(found["ids"]))
    return found


def check(folder, documents, dk, block_size, fields=1):
    (folder / "impacts").mkdir(parents=True)
    expected = reference(documents, dk, block_size)
    write_postings(folder, [TermField(make(documents), T, dk)] * fields, block_size=block_size)
    if fields == 2:  # the same terms again, numbered behind the first
        for name in ("term_runs", "term_postings"):
            expected[name] += [expected[name][-1] + start for start in expected[name][1:]]
        for name in ("run_gaps", "run_counts", "run_maxima", "ids", "impacts"):
            expected[name] *= 2
    for name in ARRAYS:
        array = np.load(folder / array_name(name), allow_pickle=False)
        assert array.tolist() == expected[name], name
        if name in ("ids", "run_counts"):
            assert array.dtype == local_dtype(block_size)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_documents, max_size=30), st.sampled_from([1, 2, 64]), st.sampled_from([1, 3, 7, 256, 300]))
def test_posting_arrays_equal_the_reference(tmp_path_factory, documents, dk, block_size):
    check(tmp_path_factory.mktemp("postings"), documents, dk, block_size)


def test_terms_of_a_second_field_follow_those_of_the_first(tmp_path):
    check(tmp_path, [{i % T: 1 + i, 5: 3} for i in range(40)], 64, 8, fields=2)


def test_postings_with_gaps_around_255_blocks(tmp_path):
    documents: list[dict[int, int]] = [{} for _ in range(1600)]
    for term, gap in enumerate((253, 254, 255, 256, 510)):
        for at in (gap, 2 * gap, 1599):
            documents[at][term] = 7
    check(tmp_path, documents, 64, 1)


@pytest.mark.parametrize("count", [256, 257, 700])
def test_postings_of_full_and_partial_blocks(tmp_path, count):
    check(tmp_path, [{0: 1 + i % 255, 3: 9} for i in range(count)], 64, 256)
