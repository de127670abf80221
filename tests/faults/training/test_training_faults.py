"""A few of the kills of ``make faults``, and a machine that is taken away.

All are slow; ``make test-long`` kills the scoring of ``tests/training/scoring/test_job.py``.
"""

import time
from pathlib import Path

import pytest

from tests.faults.cluster import kill, local_cluster
from tests.faults.training.campaign import Campaign, plan_kills
from tests.faults.training.run import MOMENTS, VICTIMS, Training
from tests.training.small import difference, small_start, small_training


def test_plan_covers_every_victim_at_every_moment_and_depends_on_seed():
    plan = plan_kills(3, 12)
    assert len(plan) == 12
    assert set(plan) == {(victim, moment) for victim in VICTIMS for moment in MOMENTS}
    assert plan == plan_kills(3, 12)
    assert plan != plan_kills(4, 12)


@pytest.mark.slow
def test_controller_killed_during_checkpoint_keeps_final_weights_identical(tmp_path: Path):
    found = Campaign(tmp_path, 20, steps=40).run([("controller", "checkpoint")])
    assert found.sentences == []
    assert found.landed.total() == 1


@pytest.mark.slow
def test_final_weights_are_identical_after_any_kill(tmp_path: Path):
    found = Campaign(tmp_path, 21).run(plan_kills(21, 9))
    assert found.sentences == []
    assert found.landed.total() == 9


@pytest.mark.slow
def test_run_resumes_on_remaining_machine_after_preemption(tmp_path: Path):
    start = small_start(tmp_path / "start")
    (tmp_path / "whole").mkdir()
    (tmp_path / "less").mkdir()
    common = {"workers": 2, "steps": 150, "checkpoint_every": 1000, "dropout": 0.0}
    whole = small_training(tmp_path / "whole", start, **common)
    less = small_training(tmp_path / "less", start, **common)
    less["train"]["min_workers"] = 1
    with local_cluster(2) as cluster:
        for settings in (whole, less):
            settings["ray"] = {"address": cluster.address}
        reference = Training(whole, tmp_path / "whole")
        reference.start()
        reference.finish()
        training = Training(less, tmp_path / "less")
        training.start()
        while not training.reports():
            time.sleep(0.05)
        cluster.announce_preemption(0, seconds=20)
        saved = training.until_saved(patience=60)
        assert kill(cluster.raylets()[0])
        training.finish()
    assert 0 < saved < 150
    losses, wanted = ([one["values"]["loss"] for one in run.reports()] for run in (training, reference))
    assert losses == pytest.approx(wanted, abs=1e-4)
    assert difference(tmp_path / "less" / "out", tmp_path / "whole" / "out") < 1e-4
