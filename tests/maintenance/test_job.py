"""The job: settings first, then merges, then garbage; versions of published indexes stay."""

import json
from pathlib import Path

import pytest

from jobs.maintain import main
from lsr_prod.config import Deployment, MaintainSettings
from lsr_prod.encoding.table import table_digest
from lsr_prod.errors import ConfigError
from lsr_prod.formats.digest import canonical_json
from lsr_prod.formats.index import IndexVersion, Publication
from lsr_prod.maintenance import maintain
from lsr_prod.maintenance.job import versions_of_indexes
from lsr_prod.storage import Store
from tests.encoding.tables import ids_of, newest
from tests.maintenance.test_vacuum import age, two_waves


def deployment(made: Store, **changes: object) -> Deployment:
    quarantine = str(Path(made.uri).parent / "quarantine")
    return Deployment(maintain=MaintainSettings(**{"table": made.uri, "quarantine": quarantine, **changes}))


def publish_version(index: Path, number: int, table: Store, version: int) -> None:
    made = IndexVersion((), "b" * 64, "v" * 64, 0.01, 8, table.location, version, (), ())
    store = Store(str(index))
    store.put_new(f"versions/{made.sha}.json", canonical_json(made.to_json()))
    record = Publication(number, made.sha, "today")
    store.put_new(f"publications/{number:06d}.json", canonical_json(record.to_json()))


def test_the_job_merges_and_deletes_and_keeps_what_indexes_name(tmp_path: Path, ray_local: None):
    table, _ = two_waves(tmp_path, "delta")
    digest, old = table_digest(table.uri), newest(table).files()
    publish_version(tmp_path / "index", 1, table, 1)
    publish_version(tmp_path / "index", 2, table, 2)
    publish_version(tmp_path / "index", 3, Store(str(tmp_path / "another")), 77)
    assert versions_of_indexes(table, [str(tmp_path / "index")]) == {1, 2}
    summary = maintain(deployment(table))
    assert (summary["parts_before"], summary["parts_after"], summary["files_deleted"]) == (2, 1, 0)
    age(tmp_path)
    kept = maintain(deployment(table, indexes=[str(tmp_path / "index")]))
    assert (kept["versions_kept"], kept["files_deleted"], kept["parts_merged"]) == ([1, 2], 0, 0)
    listed = maintain(deployment(table, dry_run=True))
    assert sorted(listed["garbage"]) == sorted(f"{table.uri}/{file.path}" for file in old)
    assert listed["files_deleted"] == 0
    assert maintain(deployment(table))["files_deleted"] == 2
    assert table_digest(table.uri) == digest
    assert ids_of(table) == ["a", "b"]
    json.dumps(listed)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"table": "nowhere"}, "maintain.table"),
        ({"indexes": ["nowhere"]}, "maintain.indexes"),
        ({"keep_versions": [9]}, "maintain.keep_versions"),
    ],
)
def test_settings_that_point_nowhere_are_refused(tmp_path: Path, changes: dict, field: str):
    table, _ = two_waves(tmp_path, "parquet")
    before = table.entries()
    with pytest.raises(ConfigError, match=field):
        maintain(deployment(table, **changes))
    assert table.entries() == before


def test_a_table_that_is_not_ours_is_refused(tmp_path: Path):
    table, quarantine = two_waves(tmp_path, "delta")
    with pytest.raises(ConfigError, match=r"maintain\.table: .*not written by lsr_prod"):
        maintain(deployment(table, table=quarantine.uri))


def test_the_command_ends_with_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    table, _ = two_waves(tmp_path, "parquet")
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"maintain": {"table": table.uri, "compact": False}}))
    assert main(["--config", str(config), "--maintain.dry_run", "true"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1].removeprefix("RESULT "))
    assert (result["files_garbage"], result["dry_run"], result["garbage"]) == (0, True, [])
    assert main(["--config", str(config), "--maintain.retention_hours", "0"]) == 2
