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


def publish_version(index: Path | str, number: int, table: Store, version: int) -> None:
    made = IndexVersion((), "b" * 64, "v" * 64, 0.01, 8, table.location, version, (), ())
    store = Store(str(index), table.options)
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


@pytest.mark.parametrize("named", ["link", "dots", "slash", "relative"])
def test_versions_of_indexes_are_kept_if_the_table_is_named_by_another_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
):
    table, _ = two_waves(tmp_path, "parquet")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "linked").symlink_to(tmp_path, target_is_directory=True)
    folder = Path(table.uri).relative_to(tmp_path)
    other = {
        "link": f"{tmp_path}/linked/{folder}",
        "dots": f"{tmp_path}/linked/../{tmp_path.name}/{folder}",
        "slash": f"{table.uri}//",
        "relative": str(folder),
    }[named]
    publish_version(tmp_path / "index", 1, table, 1)
    kept = maintain(deployment(table, table=other, indexes=["linked/index/"], compact=False, dry_run=True))
    assert kept.versions_kept == (1,)
    publish_version(tmp_path / "by_link", 1, Store(f"{tmp_path}/linked/{folder}"), 2)
    assert versions_of_indexes(table, ["by_link"]) == {2}


def test_versions_of_an_index_on_an_object_store_are_kept(tmp_path: Path, s3_options: dict[str, str]):
    folder = f"s3://lsr/{tmp_path.name}"
    publish_version(f"{folder}/index", 1, Store(f"{folder}/table", s3_options), 4)
    for other in (f"{folder}/table", f"{folder}/table/"):
        assert versions_of_indexes(Store(other, s3_options), [f"{folder}/index/"]) == {4}


def test_index_that_protects_no_version_of_the_table_is_refused(tmp_path: Path):
    table, _ = two_waves(tmp_path, "parquet")
    publish_version(tmp_path / "index", 1, Store(str(tmp_path / "another")), 1)
    with pytest.raises(ConfigError, match=r"maintain\.indexes: .*index was built from .*another, .*not from"):
        maintain(deployment(table, indexes=[str(tmp_path / "index")]))
    publish_version(tmp_path / "index", 2, table, 77)
    with pytest.raises(ConfigError, match=r"maintain\.indexes: .*index was built from version 77"):
        maintain(deployment(table, indexes=[str(tmp_path / "index")]))


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
