"""The maintenance job checks settings, compacts, then vacuums; it keeps versions of published indexes."""

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lsr_prod.config import Deployment, MaintainSettings
from lsr_prod.encoding.tables.sparse_table import table_digest
from lsr_prod.errors import ConfigError
from lsr_prod.jobs import table as table_commands
from lsr_prod.operations.maintenance import maintain
from lsr_prod.operations.maintenance.job import versions_of_indexes
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import canonical_json
from lsr_prod.storage.formats.index_format import IndexVersion, Publication
from tests.encoding.made_tables import ids_of, make_cell, make_tables, newest
from tests.operations.maintenance.test_vacuum import age, two_waves


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
    table, _ = two_waves(tmp_path)
    digest, old = table_digest(table.uri), newest(table).files()
    publish_version(tmp_path / "index", 1, table, 1)
    publish_version(tmp_path / "index", 2, table, 2)
    publish_version(tmp_path / "index", 3, Store(str(tmp_path / "another")), 77)
    assert versions_of_indexes(table, [str(tmp_path / "index")]) == {1, 2}
    planned, summary = maintain(deployment(table, dry_run=True)), maintain(deployment(table))
    for done in (planned, summary):
        assert done.compaction is not None
        assert done.quarantine is not None
        assert (done.compaction.parts_before, done.compaction.parts_after, done.files_deleted) == (2, 1, 0)
        assert (done.quarantine.parts_before, done.quarantine.parts_after) == (2, 2)  # one part per wave
    age(tmp_path)
    kept = maintain(deployment(table, indexes=[str(tmp_path / "index")]))
    assert (kept.versions_kept, kept.files_deleted, kept.result()["parts_merged"]) == ((1, 2), 0, 0)
    listed = maintain(deployment(table, dry_run=True))
    assert sorted(listed.garbage) == sorted(f"{table.uri}/{file.path}" for file in old)
    assert listed.files_deleted == 0
    done = maintain(deployment(table))
    assert (done.files_deleted, done.kinds, listed.kinds) == (2, {"parts": 2}, {"parts": 2})
    assert table_digest(table.uri) == digest
    assert ids_of(table) == ["a", "b"]
    json.dumps(listed.result())


@pytest.mark.parametrize("named", ["link", "dots", "slash", "relative"])
def test_versions_of_indexes_are_kept_if_the_table_is_named_by_another_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
):
    table, _ = two_waves(tmp_path)
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
    table, _ = two_waves(tmp_path)
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
    table, _ = two_waves(tmp_path)
    before = table.entries()
    with pytest.raises(ConfigError, match=field):
        maintain(deployment(table, **changes))
    assert table.entries() == before


def test_versions_whose_log_was_deleted_are_refused_in_keep_versions_and_ignored_in_indexes(tmp_path: Path):
    table, _ = make_tables(tmp_path)
    for wave in range(17):
        if wave == 16:
            DeltaTable(table.location).create_checkpoint()
        newest(table).commit([], [], app="p", version=wave, epoch=1)
    publish_version(tmp_path / "index", 1, table, 3)
    age(tmp_path)
    deleted = maintain(deployment(table, compact=False))
    assert deleted.kinds == {"log": 16}
    kept = maintain(deployment(table, compact=False, indexes=[str(tmp_path / "index")]))
    assert (kept.versions_kept, kept.kinds) == ((), {})
    with pytest.raises(ConfigError, match=r"maintain\.keep_versions: version 3 of the table was deleted .* from 16 on"):
        maintain(deployment(table, compact=False, keep_versions=[3]))


def test_maintain_rejects_a_table_of_another_program(tmp_path: Path):
    table, quarantine = two_waves(tmp_path)
    with pytest.raises(ConfigError, match=r"maintain\.table: .*not written by lsr_prod"):
        maintain(deployment(table, table=quarantine.uri))


def test_maintain_command_prints_result_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    table, _ = two_waves(tmp_path)
    quarantine = str(tmp_path / "quarantine")
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"maintain": {"table": table.uri, "quarantine": quarantine, "compact": False}}))
    make_cell(table, Store(quarantine), 5, "z", "z")  # of a killed attempt
    age(tmp_path)
    assert table_commands.maintain.run(["--config", str(config), "--maintain.dry_run", "true"]) == 0
    shown = capsys.readouterr().out
    result = json.loads(shown.splitlines()[-1].removeprefix("RESULT "))
    assert (result["files_garbage"], result["dry_run"], len(result["garbage"])) == (2, True, 2)
    assert result["garbage_by_kind"] == {"parts": 1, "quarantine_parts": 1}
    assert "files that would be deleted" in shown
    assert "quarantine parts" in shown
    assert table_commands.maintain.run(["--config", str(config), "--maintain.retention_hours", "0"]) == 2
