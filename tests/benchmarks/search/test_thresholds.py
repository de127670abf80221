from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from benchmarks.search.data import Spec, make
from benchmarks.search.thresholds import THRESHOLDS, Threshold, measure_quality

SHARED, COVERED = np.array([0, 1, 1, 2, 3]), np.array([0.0, 0.5, 2.0, 2.5, 4.0])
WEIGHTS = np.array([2.0, 1.0, 0.5, 0.5], np.float32)


@pytest.mark.parametrize(
    ("threshold", "passing"),
    [
        (Threshold("count", 2), [False, False, False, True, True]),
        (Threshold("ratio", 0.3), [False, False, False, True, True]),
        (Threshold("ratio", 0.6), [False, False, False, False, True]),
        (Threshold("weight", 0.5), [False, False, True, True, True]),
        (Threshold("weight", 0.0), [False, True, True, True, True]),
    ],
)
def test_threshold_passes_documents_that_share_enough(threshold: Threshold, passing: list[bool]) -> None:
    assert threshold.passing(SHARED, COVERED, WEIGHTS).tolist() == passing


def test_higher_thresholds_of_one_kind_never_keep_more(tmp_path: Path) -> None:
    collection = make(Spec("topics", 2_000, 20, 7, queries=15), tmp_path)
    quality = measure_quality(collection, collection.queries(7))
    assert quality[Threshold("count", 1)].recall == pytest.approx(1.0)
    for kind in ("count", "ratio", "weight"):
        rows = [quality[threshold] for threshold in THRESHOLDS if threshold.kind == kind]
        for one, other in pairwise(rows):
            assert one.recall >= other.recall
            assert one.passing >= other.passing
            assert one.empty <= other.empty
