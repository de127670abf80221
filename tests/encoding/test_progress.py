"""Progress lines: shares in source bytes of overlapping waves, rates, remaining time, and what the job waits for."""

import logging

import pytest

from lsr_prod.encoding.actors.pool import PoolActivity
from lsr_prod.encoding.progress import Progress
from lsr_prod.encoding.results import BlockResult, CellResult, Counts

ENCODING = PoolActivity(ready=2, starting=0, encoding=True, reading=False)


class Scene:
    """A plan of two waves, of 3/4 and 1/4 of the bytes, on a clock that the test moves."""

    def __init__(self, done: int = 0) -> None:
        self.now, self.activity = 1000.0, ENCODING
        self.progress = Progress([0.75, 0.25], done, lambda: self.activity, clock=lambda: self.now)

    def after(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            self.progress.sample()

    def block(self, wave: int, share: float, rows: int = 0, model_s: float = 0.0) -> None:
        cell = CellResult(0, 0, Counts(rows_in=rows), (), None)
        self.progress.block(wave, share, BlockResult("n", (cell,), Counts(tokens=10 * rows), model_s))


def test_line_every_30_s_also_while_no_block_finishes(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    with caplog.at_level(logging.INFO, "lsr_prod"):
        scene.after(95)
    assert [vars(record)["event"] for record in caplog.records] == ["encode progress"] * 3
    assert caplog.records[0].fields["eta_s"] is None  # type: ignore[attr-defined]


def test_rates_cover_last_minute_and_run_and_busy_share_counts_model_seconds() -> None:
    scene = Scene()
    scene.after(60)
    scene.progress.start_wave(0, 0.0)
    scene.block(0, 0.5, rows=600, model_s=90.0)
    scene.after(60)
    facts = scene.progress.facts()
    assert (facts["rows_per_s"], facts["rows_per_s_run"]) == (10.0, 5.0)
    assert (facts["tokens_per_s"], facts["tokens_per_s_run"]) == (100.0, 50.0)
    assert facts["busy_share"] == 0.375  # 90 s of 2 encoders x 120 s


def test_share_and_eta_count_bytes_of_overlapping_waves_without_reused_cells() -> None:
    scene = Scene()
    scene.progress.start_wave(0, 0.5)  # reused: done, but not the speed of this run
    scene.progress.start_wave(1, 0.0)
    scene.block(0, 0.25)
    scene.block(1, 0.25)
    scene.after(10)
    facts = scene.progress.facts()
    assert facts["share"] == 0.625  # 3/4 x 3/4 + 1/4 x 1/4
    assert facts["eta_s"] == 15  # 0.375 left at 0.25 per 10 s
    scene.progress.committed(0, 1, 0, 0.1)
    assert scene.progress.share_done == pytest.approx(0.8125)
    scene.progress.drop(1)
    assert scene.progress.share_done == pytest.approx(0.75)


def test_eta_follows_the_last_minutes() -> None:
    scene = Scene(done=1)
    scene.progress.start_wave(1, 0.0)
    scene.after(3600)  # the cluster had no node
    scene.block(1, 0.5)
    scene.after(10)
    assert scene.progress.facts()["eta_s"] == 300
    assert scene.progress.facts()["share"] == 0.875


@pytest.mark.parametrize(
    ("activity", "finished", "waits_for"),
    [
        (PoolActivity(0, 4, False, False), 0.0, "nodes"),
        (PoolActivity(2, 0, False, True), 0.0, "reading"),
        (PoolActivity(2, 0, False, False), 0.5, "reading"),
        (ENCODING, 1.0, "encoding"),
        (PoolActivity(2, 0, False, False), 1.0, "committing"),
    ],
)
def test_line_says_what_the_job_waits_for(activity: PoolActivity, finished: float, waits_for: str) -> None:
    scene = Scene()
    scene.activity = activity
    scene.progress.start_wave(0, finished)
    assert scene.progress.facts()["waits_for"] == waits_for
