"""Parts of the soak: it would notice growth and wrong answers."""

import json
from pathlib import Path

import numpy as np

from tests.search.soak import STEPS, count_wrong, grown, percentile

STEADY = [{"rss": 150 + i % 3, "anonymous": 90, "descriptors": 9, "maps": 800, "threads": 6} for i in range(40)]


def test_growth_is_noticed() -> None:
    assert grown(STEADY) == []
    for name, by in (("rss", 1), ("descriptors", 1), ("maps", 10)):
        leaking = [{**one, name: one[name] + by * i} for i, one in enumerate(STEADY)]
        assert [each.split()[0] for each in grown(leaking)] == [name]


def test_wrong_answers_are_counted(tmp_path: Path) -> None:
    (tmp_path / "expected").mkdir()
    documents = {"a": [{"1": 9}, "2000"], "b": [{"1": 3, "2": 3}, "2010"]}
    (tmp_path / "expected" / "v.json").write_text(json.dumps(documents))
    right = ["v", {"1": 1.0}, 1, None, 10, [["a", 9 * 0.03125, 1], ["b", 3 * 0.03125, 1]]]
    filtered = ["v", {"1": 1.0}, 1, 2005, 10, [["b", 3 * 0.03125, 1]]]
    wrong = ["v", {"1": 1.0}, 2, None, 10, [["a", 9 * 0.03125, 1]]]
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(one) + "\n" for one in (right, filtered, wrong)))
    assert count_wrong(tmp_path) == (3, 1)


def test_percentiles_are_right_to_half_a_percent() -> None:
    times = np.zeros(20 * STEPS, np.int64)
    times[int(STEPS * np.log(1000))] = 99
    times[int(STEPS * np.log(50_000))] = 1
    assert abs(percentile(times, 0.5) - 1.0) < 0.01
    assert abs(percentile(times, 0.999) - 50.0) < 0.5
