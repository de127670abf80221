"""The first nights of ``make nights``, and the schedule of all nights."""

from collections import Counter
from pathlib import Path

import pytest

from tests.nights.schedule import GATES, Night, make_schedule
from tests.nights.world import run_nights


@pytest.mark.parametrize("seed", range(5))
def test_schedule_of_thirty_nights_has_all_disturbances(seed: int) -> None:
    nights = make_schedule(30, seed)
    assert Counter(night.kill for night in nights if night.kill).total() == 12
    assert sum(night.kill == "node" for night in nights) == 3
    assert sum(night.twice for night in nights) == 3
    bad = [night for night in nights if night.bad]
    assert {night.bad for night in bad} == GATES.keys()
    assert len(bad) == 3
    assert not any(night.kill or night.twice or night.number == 1 for night in bad)
    assert [night.model for night in nights] == [0] * 10 + [1] * 10 + [2] * 10


@pytest.mark.long
def test_night_whose_driver_is_killed_ends_as_full_rebuild(tmp_path: Path) -> None:
    tally = run_nights(tmp_path, [Night(1, kill="driver")], 60, seed=1)
    assert tally.problems == []
    assert tally.nights == 1
    assert tally.events["killed: driver"] == 1


@pytest.mark.slow
def test_three_disturbed_nights_end_as_full_rebuilds(tmp_path: Path) -> None:
    schedule = [Night(1), Night(2, bad="garbled"), Night(3, kill="driver")]
    tally = run_nights(tmp_path, schedule, 60, seed=1)
    assert tally.problems == []
    assert (tally.nights, tally.refused) == (3, 1)
    assert tally.events["killed: driver"] == 1
