"""Records of an encode run: waves, idle share, cost."""

import dataclasses
from pathlib import Path

import pytest

from lsr_prod.encoding.run_records import read_waves
from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod_contrib.estimates.cluster import ClusterDescription
from lsr_prod_contrib.pages.runs import encoding
from lsr_prod_contrib.pages.runs.encoding import describe_encoding
from tests.contrib.pages.runs.records import encode_records

CLUSTER = ClusterDescription(
    name="c", nodes=4, actors_per_node=2, speed=1, price_per_node_hour=9.0, storage_price_per_gb_month=0.02,
    request_prices={"put": 0, "get": 0, "list": 0, "delete": 0}, currency="EUR",
)  # fmt: skip


def test_waves_have_rates_and_the_idle_share_of_their_encoders(tmp_path: Path):
    table, plan = encode_records(tmp_path)
    found = describe_encoding(table)
    assert found["plan"]["plan"] == plan
    assert [wave["rows_out"] for wave in found["waves"]] == [4, 5, 6]
    assert [(wave["began"], wave["ended"]) for wave in found["waves"]] == [(0, 10), (8, 18), (16, 26)]
    for wave in found["waves"]:
        assert wave["idle_share"] == pytest.approx(1 - 14 / (2 * 10))
        assert wave["tokens_per_s"] == 100
        assert (wave["attempt"], wave["encoders"]) == (2, 2)
    assert found["reasons"] == {"broken_json": 3}


def test_cost_of_a_run_is_the_price_of_all_nodes_for_its_duration(tmp_path: Path):
    table, plan = encode_records(tmp_path)
    (run,) = describe_encoding(table, plan[:12], CLUSTER)["runs"]
    assert run["cost"] == pytest.approx(40 / 3600 * 4 * 9.0)
    assert run["core_hours"] == pytest.approx(40 * 6 / 3600)
    assert run["idle_share"] == pytest.approx(0.3)
    assert describe_encoding(table)["runs"][0]["cost"] is None


def test_record_of_a_wave_is_never_replaced(tmp_path: Path):
    table, plan = encode_records(tmp_path, waves=1)
    (before,) = read_waves(table, plan)
    encode_records(tmp_path / "other", waves=1)
    assert read_waves(table, plan) == [before]


def test_damaged_record_and_unknown_plan_are_errors(tmp_path: Path):
    table, plan = encode_records(tmp_path)
    for wanted in ("0" * 12, plan[:7]):
        with pytest.raises(ConfigError, match=f"--plan: no plan of .* has the digest {wanted}; give 8 or more digits"):
            describe_encoding(table, wanted)
    (tmp_path / "table" / "_lsr_prod" / "waves" / plan / "000001.json").write_text('{"format": 1}')
    with pytest.raises(ArtifactError, match="is damaged"):
        describe_encoding(table)


def test_table_without_plans_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table, _ = encode_records(tmp_path)
    status = dataclasses.replace(encoding.table_status(table), plans=())
    monkeypatch.setattr(encoding, "table_status", lambda _: status)
    with pytest.raises(ArtifactError, match=r"has no plan; give the encode\.table of a job that has started"):
        describe_encoding(table)
