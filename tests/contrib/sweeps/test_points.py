import numpy as np
import pytest

from lsr_prod.errors import ArtifactError
from lsr_prod.evaluation.vector_evaluation import LevelReport
from lsr_prod_contrib.sweeps.plan import Setting, point_bytes, read_point

SETTING = Setting("tiny", 8, 0, 0.4, 2.0)


def test_stored_point_has_all_figures_of_its_level() -> None:
    values = {"RR@10": np.array([1 / 3, 1.0])}
    report = LevelReport(
        qk=8, dk=0, threshold=0.4, measures={"RR@10": 2 / 3}, by_query=values, l0_query=5.5, l0_document=60.0,
        flops=1.25, matched=12.0, hybrid_weight=2.0, bytes=1000, match_p50_ms=0.25,
    )  # fmt: skip
    row = read_point(point_bytes(report), "place", "scifact", SETTING).to_json()
    assert row == {
        "collection": "scifact", "model": "tiny", "qk": 8, "dk": 0, "threshold": 0.4, "hybrid_weight": 2.0,
        "measures": {"RR@10": 2 / 3}, "by_query": {"RR@10": [0.333333, 1.0]}, "flops": 1.25, "l0_query": 5.5,
        "l0_document": 60.0, "matched": 12.0, "bytes": 1000, "match_p50_ms": 0.25,
    }  # fmt: skip


@pytest.mark.parametrize("data", [b"", b"[]", b'{"flops": 1}', b"\xff"])
def test_damaged_point_is_refused_with_its_place(data: bytes) -> None:
    with pytest.raises(ArtifactError, match=r"out/points/1.json is damaged .* delete it"):
        read_point(data, "out/points/1.json", "scifact", SETTING)
