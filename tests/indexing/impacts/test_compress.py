"""Compressed postings equal plain ones and take fewer bytes."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsr_prod.formats.shard import array_name
from lsr_prod.indexing.impacts.arrays import compress_postings
from lsr_prod.indexing.impacts.vectors import TermField, write_postings
from tests.indexing.impacts.test_postings import T, make

_documents = st.dictionaries(st.integers(0, T - 1), st.integers(1, 255), max_size=T)


def read(folder, name):
    return np.load(folder / array_name(name), allow_pickle=False)


def postings_of(folder, compressed):
    """Return (term, block, position, impact) of every posting."""
    runs, gaps, counts, maxima = (read(folder, n) for n in ("term_runs", "run_gaps", "run_counts", "run_maxima"))
    ids, impacts = read(folder, "ids").tolist(), read(folder, "impacts").tolist()
    found, id_at, impact_at = [], 0, 0
    for term in range(T):
        if compressed:
            assert (read(folder, "term_ids")[term], read(folder, "term_impacts")[term]) == (id_at, impact_at)
        block = -1
        for run in range(runs[term], runs[term + 1]):
            block += int(gaps[run])
            if gaps[run] == 255:
                continue
            count = int(counts[run]) + 1
            if compressed and count > 32:
                places = [8 * i + bit for i in range(32) for bit in range(8) if ids[id_at + i] >> bit & 1]
                id_at += 32
            else:
                places = ids[id_at : id_at + count]
                id_at += count
            if compressed and count == 1:
                mine = [int(maxima[run])]
            else:
                mine = impacts[impact_at : impact_at + count]
                impact_at += count
            found += [(term, block, place, impact) for place, impact in zip(places, mine, strict=True)]
    assert (id_at, impact_at) == (len(ids), len(impacts))
    return found


def check(folder, documents, block_size):
    (folder / "impacts").mkdir(parents=True)
    write_postings(folder, [TermField(make(documents), T, None)], block_size=block_size)
    plain, before = postings_of(folder, False), len(read(folder, "ids")) + len(read(folder, "impacts"))
    compress_postings(folder)
    assert postings_of(folder, True) == plain
    assert len(read(folder, "ids")) + len(read(folder, "impacts")) <= before
    assert not list(folder.rglob("compressed_*"))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_documents, max_size=120), st.sampled_from([1, 7, 64, 256]))
def test_compressed_postings_equal_plain_ones(tmp_path_factory, documents, block_size):
    check(tmp_path_factory.mktemp("compress"), documents, block_size)


@pytest.mark.parametrize("count", [32, 33, 256, 700])
def test_compress_runs_around_the_bitmap_limit(tmp_path, count):
    check(tmp_path, [{0: 1 + i % 255, 1 + i % 5: 9} for i in range(count)], 256)


def test_compress_gaps_of_many_blocks(tmp_path):
    check(tmp_path, [{0: 5} if i in (0, 300, 301, 999) else {} for i in range(1000)], 1)
