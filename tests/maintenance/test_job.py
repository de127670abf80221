"""The maintenance job checks settings, compacts, then vacuums; it keeps versions of published indexes."""

import json
from pathlib import Path

import pytest

from lsr_prod.config import Deployment, MaintainSettings
from lsr_prod.encoding.table import table_digest
from lsr_prod.errors import ConfigError
from lsr_prod.formats.digest import canonical_json
from lsr_prod.formats.index import IndexVersion
from lsr_prod.formats.publication import Publication
from lsr_prod.jobs.maintain import main
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


def test_maintain_compacts_and_keeps_table_versions_of_published_indexes(tmp_path: Path, ray_local: None):
    table, _ = two_waves(tmp_path, "delta")
    digest, old = table_digest(table.uri), newest(table).files()
    publish_version(tmp_path / "index", 1, table, 1)
    publish_version(tmp_path / "index", 2, table, 2)
    publish_version(tmp_path / "index", 3, Store(str(tmp_path / "another")), 77)
    assert versions_of_indexes(table, [str(tmp_path / "index")]) == {1, 2}
    summary = maintain(deployment(table))
    assert summary.compaction is not None
    assert (summary.compaction.parts_before, summary.compaction.parts_after, summary.files_deleted) == (2, 1, 0)
    age(tmp_path)
    kept = maintain(deployment(table, indexes=[str(tmp_path / "index")]))
    assert (kept.versions_kept, kept.files_deleted, kept.result()["parts_merged"]) == ((1, 2), 0, 0)
    listed = maintain(deployment(table, dry_run=True))
    assert sorted(listed.garbage) == sorted(f"{table.uri}/{file.path}" for file in old)
    assert listed.files_deleted == 0
    assert maintain(deployment(table)).files_deleted == 2
    assert table_digest(table.uri) == digest
    assert ids_of(table) == ["a", "b"]
    json.dumps(listed.result())


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"table": "nowhere"}, "maintain.table"),
        ({"indexes": ["nowhere"]}, "maintain.indexes"),
        ({"keep_versions": [9]}, "maintain.keep_versions"),
    ],
)
def test_maintain_rejects_settings_that_name_nothing(tmp_path: Path, changes: dict, field: str):
    table, _ = two_waves(tmp_path, "parquet")
    before = table.entries()
    with pytest.raises(ConfigError, match=field):
        maintain(deployment(table, **changes))
    assert table.entries() == before


def test_maintain_rejects_a_table_of_another_program(tmp_path: Path):
    table, quarantine = two_waves(tmp_path, "delta")
    with pytest.raises(ConfigError, match=r"maintain\.table: .*not written by lsr_prod"):
        maintain(deployment(table, table=quarantine.uri))


def test_maintain_command_prints_result_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    table, _ = two_waves(tmp_path, "parquet")
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"maintain": {"table": table.uri, "compact": False}}))
    assert main(["--config", str(config), "--maintain.dry_run", "true"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1].removeprefix("RESULT "))
    assert (result["files_garbage"], result["dry_run"], result["garbage"]) == (0, True, [])
    assert main(["--config", str(config), "--maintain.retention_hours", "0"]) == 2
