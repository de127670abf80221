import logging
from typing import Any

import pytest

from lsr_prod.config import EncodeSettings, SourceSettings
from lsr_prod.corpus.pinned_file import SourceFile
from lsr_prod.encoding.actors.places import report_idle_actors
from lsr_prod.encoding.plans.encode_plan import Plan, PlanInputs, make_plan


def plan_of(*megabytes: int, **encode: Any) -> Plan:
    files = [SourceFile("/c", f"{i}", "jsonl.gz", 1_000_000 * size, f"{i}") for i, size in enumerate(megabytes)]
    settings = EncodeSettings(bundle="b", table="t", **{"buckets": 4, "wave_megabytes": 100, **encode})
    return make_plan(files, PlanInputs(SourceSettings(paths=["c"]), settings, "b", {}))


@pytest.mark.parametrize(
    ("plan", "actors", "remedy"),
    [
        (plan_of(100, 100, cell_megabytes=10), 12, None),
        (plan_of(100, 100, cell_megabytes=10), 20, "lower encode.cell_megabytes to 5 for the next plan"),
        (plan_of(100, 50, cell_megabytes=10), 200, "raise encode.wave_megabytes to 2000 for the next plan"),
        (plan_of(3), 5, None),
        (plan_of(), 5, None),
    ],
)
def test_setting_that_would_keep_all_actors_busy_is_named(
    caplog: pytest.LogCaptureFixture, plan: Plan, actors: int, remedy: str | None
):
    with caplog.at_level(logging.WARNING):
        report_idle_actors(plan, actors)
    assert [record.fields["remedy"] for record in caplog.records] == ([remedy] if remedy else [])
